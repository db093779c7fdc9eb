"""The timers of a world: a dict by key that knows which one fires next without looking at all of them."""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Self

from firnline.base.effects import SetTimer

# Numbers of timers that are gone stay in the heap up to so many, and as many again as there are timers.
_GONE_MAX = 64


class WorldTimers(dict[Any, SetTimer]):
    """Timers by key. Any: keys are tuples, which each part of the source makes of what it has.

    Timers are numbered as they are set. A key that is set again has a new number, and is the dict's last.
    """

    def __init__(self, timers: Mapping[Any, SetTimer] = {}) -> None:
        super().__init__()
        self._count = 0
        self._numbers: dict[Any, int] = {}
        self._keys: dict[int, Any] = {}
        self._heap: list[tuple[int, int]] = []  # when a timer is due, and its number
        self.update(timers)

    def __setitem__(self, key: Any, timer: SetTimer) -> None:
        self.pop(key, None)
        super().__setitem__(key, timer)
        self._count += 1
        self._numbers[key] = self._count
        self._keys[self._count] = key
        heappush(self._heap, (timer.at_ms, self._count))
        if len(self._heap) > 2 * len(self) + _GONE_MAX:
            self._heap = [place for place in self._heap if place[1] in self._keys]
            heapify(self._heap)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        del self._keys[self._numbers.pop(key)]

    def pop(self, key: Any, default: Any = ...) -> Any:
        """Take a timer out; return it, or the default."""
        if default is not ... and key not in self:
            return default
        timer = self[key]
        del self[key]
        return timer

    def update(self, other: Any = (), /, **more: SetTimer) -> None:
        """Set each of the timers."""
        for key, timer in dict(other, **more).items():
            self[key] = timer

    def __ior__(self, other: Any) -> Self:  # type: ignore[override]
        self.update(other)
        return self

    def clear(self) -> None:
        """Take all out."""
        for key in [*self]:
            del self[key]

    def next(self) -> SetTimer | None:
        """Return the timer that fires next: of those due at the same time the one that was set first."""
        while self._heap:
            key = self._keys.get(self._heap[0][1])
            if key is not None:
                return self[key]
            heappop(self._heap)
        return None
