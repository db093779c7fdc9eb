"""Timers in a heap of moments; a cancelled timer is removed at once. WORLD.

Group members and long polls set a timer with each request and cancel it with the next one, long before it is
due. So timers that are due at nearly the same time share a moment: a set, from which one is removed in
constant time. The heap holds moments, whose number depends on how far ahead timers are due, not on how many
were set. A timer is late by less than a 512th of its delay, and never early.
"""

import time
from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil, frexp, ldexp
from typing import Any

# Up to this delay a timer is exact.
_EXACT_S = 0.001
# A moment is a multiple of a power of two: that of the delay, less so many binary digits.
_DIGITS = 10


class Timer:
    """A call that is due at some moment, unless it is cancelled."""

    __slots__ = ("args", "call", "cancelled", "moment")

    def __init__(
        self, call: Callable[..., object], args: tuple[Any, ...], moment: "dict[Timer, None]"
    ) -> None:
        self.call = call
        self.args = args
        self.cancelled = False
        self.moment = moment

    def cancel(self) -> None:
        self.cancelled = True
        moment = self.moment
        moment.pop(self, None)
        if not moment:
            moment.clear()  # frees the memory of a dictionary that was large


class Timers:
    """All timers of an event loop. `due`: a heap of the moments that have, or had, timers."""

    __slots__ = ("_moments", "due")

    def __init__(self) -> None:
        self.due: list[float] = []
        self._moments: dict[float, dict[Timer, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._moments.values()))

    def add(self, delay_s: float, call: Callable[..., object], args: tuple[Any, ...]) -> Timer:
        """Set a timer that is due `delay_s` from now."""
        at_s = time.monotonic() + delay_s
        if delay_s > _EXACT_S:
            step_s = ldexp(1.0, frexp(delay_s)[1] - _DIGITS)
            at_s = ceil(at_s / step_s) * step_s
        moment = self._moments.get(at_s)
        if moment is None:
            moment = self._moments[at_s] = {}
            heappush(self.due, at_s)
        timer = Timer(call, args, moment)
        moment[timer] = None
        return timer

    def first_s(self) -> float | None:
        """Return when the first timer is due, None without one. Drops empty moments before it."""
        due = self.due
        while due:
            if self._moments[due[0]]:
                return due[0]
            del self._moments[heappop(due)]
        return None

    def take(self, now_s: float) -> tuple[Timer, ...]:
        """Remove and return the timers of the first moment, if it is due, in the order they were set."""
        due = self.due
        if not due or due[0] > now_s:
            return ()
        moment = self._moments.pop(heappop(due))
        taken = tuple(moment)
        moment.clear()  # timer and moment refer to each other: break the cycle
        return taken
