"""Randomness of a production node. WORLD."""

import random
import uuid


class SystemRng:
    """Implements the Rng port with the randomness of the operating system."""

    def below(self, bound: int) -> int:
        return random.SystemRandom().randrange(bound)

    def uuid(self) -> bytes:
        """A version 4 UUID whose base64 text does not begin with a dash, as Kafka's tools expect."""
        while True:
            value = uuid.uuid4().bytes
            if value[0] >> 2 != 62:
                return value
