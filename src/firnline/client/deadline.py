"""A moment until which everything that one command asks must be answered. WORLD."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TypeVar

_ASKED_AT_ONCE = 32
_SHARE = 0.5
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.2, 1.0
_T = TypeVar("_T")
_R = TypeVar("_R")


class Deadline:
    """`timeout_s` seconds from now on, in which all requests of a command, and all its pauses, must fit.

    Of those who are asked one after the other, none may use all the time: see `share`.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._at_s = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._at_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Has the moment come?"""
        return self.left_s() <= 0

    def share(self, most_s: float = float("inf")) -> "Deadline":
        """Return an earlier one, for nodes that may hang while others still have to be asked.

        It leaves half of the time, and is at most `most_s` from now.
        """
        return Deadline(min(self.left_s() * _SHARE, most_s))

    def pause(self, pause_s: float) -> None:
        """Sleep for `pause_s`, but not beyond the deadline."""
        time.sleep(min(pause_s, self.left_s()))


def attempts(for_s: float) -> Iterator[int]:
    """Yield 0 at once, then 1, 2, ... after pauses that grow, as long as the next one is within `for_s`."""
    until_s, pause_s = time.monotonic() + for_s, _PAUSE_MIN_S
    for number in count():
        yield number
        if time.monotonic() + pause_s >= until_s:
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def at_once(function: Callable[[_T], _R], asked: Iterable[_T]) -> list[_R]:
    """Call `function` for each node at the same time; return the results in the order of `asked`.

    Nodes that hang then cost the time of one of them.
    """
    them: Sequence[_T] = list(asked)
    if len(them) < 2:
        return [function(each) for each in them]
    with ThreadPoolExecutor(min(len(them), _ASKED_AT_ONCE)) as pool:
        return list(pool.map(function, them))
