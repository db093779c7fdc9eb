"""The one source of chance of tests."""

import random


class SeededRng:
    """`base.ports.Rng` whose numbers follow from a seed, or from a generator that a test draws from too."""

    def __init__(self, seed: int | random.Random = 0) -> None:
        self._random = seed if isinstance(seed, random.Random) else random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid(self) -> bytes:
        return self._random.randbytes(16)


class CountingRng(SeededRng):
    """Ids that a reader of a test's text can tell apart: `first`, the next number, ...; `below` gives 0."""

    def __init__(self, first: int = 1) -> None:
        super().__init__()
        self.last = first - 1

    def below(self, bound: int) -> int:
        return 0

    def uuid(self) -> bytes:
        self.last += 1
        return self.last.to_bytes(16, "big")
