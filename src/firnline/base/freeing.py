"""Large messages are freed a portion in a turn of the loop. PURE.

When the last reference to a list of 300,000 rows goes, all of them are freed in that step, in up to 70 ms:
at the end of a handler, when a client hangs up, when a request fails. So what may hold that much is one of
the containers below. When nobody has it any more it goes to the BACKLOG with all that is in it, and the loop
takes that out in portions. What somebody else has, too, a row or the container itself, stays as it is.
Where there is no such loop, in tools and in the simulator, all is freed at once.

The collector of cycles does not see them: it would go over all that is in one each time it looks at it, 10 ms
for 300,000 rows. So they hold rows of messages, names and numbers; nothing that may refer to who has them.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from firnline.base.native import native

Container = list[Any] | dict[Any, Any] | set[Any]
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
# What has no more in it is freed at once, also where it is in a row of another: a portion has some of those.
FEW = 16
# A fraction of a millisecond.
_ITEMS_PER_PORTION = 500


def _untrack_python() -> Callable[[object], object]:
    call = ctypes.pythonapi.PyObject_GC_UnTrack
    call.argtypes, call.restype = [ctypes.py_object], None
    return call


# Hide a container from the collector of cycles. A table is seen again with its first row that is an object.
_untrack: Callable[[object], object] = _untrack_python() if native is None else native.untrack


class Backlog:
    """What nobody has any more, and is still to be freed. One for the process, as its memory is."""

    __slots__ = ("_left", "_wake")

    def __init__(self) -> None:
        self._left: deque[Container] = deque()
        self._wake: Callable[[], object] | None = None

    def __len__(self) -> int:
        return len(self._left)

    def begin(self, wake: Callable[[], object]) -> None:
        """From here on `wake()` is called when there is something to free; then call `free_some`.

        It is called in the middle of any line, and must do no more than to note it.
        """
        self._wake = wake

    def end(self, wake: Callable[[], object]) -> None:
        """Nobody calls `free_some` any more, and nobody waits for who frees all at once."""
        if self._wake == wake:
            self._wake = None
            self._left.clear()

    def add(self, container: Container) -> None:
        """Keep it until it is freed. Called once, when nobody has it: for the last time it just goes."""
        if self._wake is None:
            return
        _untrack(container)  # to come back from its end made it young again
        self._left.append(container)
        if len(self._left) == 1:
            self._wake()

    def free_some(self) -> bool:
        """Free a portion; return whether there is more."""
        left = _ITEMS_PER_PORTION
        while self._left and left > 0:
            some = self._left[0]  # what is in its rows comes to the end
            if isinstance(some, list):
                count = min(len(some), left)
                del some[len(some) - count :]
                left -= count
            else:
                take = some.popitem if isinstance(some, dict) else some.pop
                while some and left > 0:
                    take()
                    left -= 1
            if not some:
                self._left.popleft()
                left -= 1
        return bool(self._left)


BACKLOG = Backlog()


class Rows(list[T]):
    """A list that may become very long."""

    __slots__ = ()

    def __init__(self, rows: Iterable[T] = (), /) -> None:
        super().__init__(rows)
        _untrack(self)

    def __del__(self) -> None:
        if len(self) > FEW:
            BACKLOG.add(self)


class Table(dict[K, V]):
    """A dictionary that may become very large."""

    __slots__ = ()

    def __del__(self) -> None:
        if len(self) > FEW:
            BACKLOG.add(self)


class Distinct(set[T]):
    """A set that may become very large."""

    __slots__ = ()

    def __init__(self, members: Iterable[T] = (), /) -> None:
        super().__init__(members)
        _untrack(self)

    def __del__(self) -> None:
        if len(self) > FEW:
            BACKLOG.add(self)
