"""Chance in tests: drawn from a seed, or counted where a text shows it."""

import random
from collections.abc import Iterator
from itertools import repeat


class SeededRng:
    """`base.ports.Rng` whose numbers follow from a seed, or from a generator that a test draws from too."""

    def __init__(self, seed: int | random.Random = 0) -> None:
        self._random = seed if isinstance(seed, random.Random) else random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid(self) -> bytes:
        return self._random.randbytes(16)


class CountingRng:
    """Chance that a text may hold: ids count up from `first`, `below` gives the next of `numbers`, or 0."""

    def __init__(self, first: int = 1, numbers: Iterator[int] | None = None) -> None:
        self.last = first - 1
        self._numbers = repeat(0) if numbers is None else numbers

    def below(self, bound: int) -> int:
        return next(self._numbers)

    def uuid(self) -> bytes:
        self.last += 1
        return self.last.to_bytes(16, "big")
