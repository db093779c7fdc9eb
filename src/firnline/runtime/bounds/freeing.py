"""Frees the objects of large messages in portions, and keeps garbage collections short meanwhile. WORLD.

When the last reference to a list of 300,000 rows goes, CPython frees all of them at once, in up to 70 ms. To
prevent that (decision 0033):
1. `RequestContext.keeps` keeps the containers of a large request and its response here until it is over.
2. Then their rows are removed, a portion in each turn of the event loop.
A container is emptied only when its reference count shows that nobody else refers to it. One that a waiter or
a thread still uses is left alone and checked again, for some minutes; after that it is dropped, and its last
user frees it in one step. Rows themselves are never changed.

CPython's garbage collector starts when allocations exceed deallocations by some number. While much is freed
it would not start, and then have to go over everything allocated meanwhile. So while objects are kept here, a
timer runs it every few milliseconds.
"""

import gc
from collections import deque
from collections.abc import Callable
from functools import cache, partial
from itertools import repeat, starmap
from operator import attrgetter
from sys import getrefcount
from typing import Any

from firnline.protocol.schema import Struct
from firnline.runtime.poll import PollLoop

# A fraction of a millisecond.
ROWS_PER_PORTION = 2_000
# The same for rows that contain arrays, which are inspected one by one.
_DEEP_ROWS_PER_PORTION = 250
# An array of no more elements is freed with its row.
_FEW = 16
_FIRST_CHECK_S, _LATEST_CHECK_S, CHECKS_MAX = 0.01, 5.0, 64
# After so many checks a container in use does not count any more: it belongs to something that waits.
_CHECKS_COUNTED = 3
_COLLECT_YOUNG_S = 0.02
_SAMPLE: list[Any] = [[]]
_ONLY_OURS = getrefcount(_SAMPLE[-1])


class Kept:
    """The containers of one large request: lists, dictionaries, sets and messages."""

    __slots__ = ("_ids", "checks", "is_freed", "is_over", "others", "size_bytes", "stack")

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._ids: set[int] = set()  # of the containers in `stack`, until the request is over
        self.others: list[Any] = []  # containers that somebody else refers to
        self.checks = 0
        self.size_bytes = 0
        self.is_over = self.is_freed = False

    def add(self, container: Any) -> None:
        """Keep a container until the request is over; a second call does nothing. Constant time."""
        if id(container) not in self._ids:
            self.stack.append(container)
            if not self.is_over:  # later the stack changes, and duplicates are found in another way
                self._ids.add(id(container))

    def end(self) -> None:
        """The request is over: its containers may be freed."""
        self.is_over = True
        self._ids.clear()

    def free_some(self, left: int) -> int:
        """Free about `left` rows; return how many of that number are left."""
        stack = self.stack
        while stack and left > 0:
            kind = type(stack[-1])
            if kind is list or kind is dict or kind is set:
                if not stack[-1]:
                    stack.pop()
                elif getrefcount(stack[-1]) > _ONLY_OURS:
                    self.others.append(stack.pop())
                    left -= 1
                else:
                    left -= self._free_of(stack.pop(), kind, left)
            else:
                left -= 1 + self._open([stack.pop()])
        return left

    def _open(self, structs: list[Any]) -> int:
        """Push the large arrays of structs; return how many elements the small ones have."""
        count = 0
        for get, has_more in _arrays_of(structs[-1].__class__):
            for array in filter(None, map(get, structs)):
                is_list = type(array) is list
                if not is_list and not isinstance(array, tuple):
                    self.stack.append(array)  # a struct
                elif is_list and (has_more or len(array) > _FEW):
                    self.stack.append(array)
                else:
                    count += len(array)
        return count

    def _free_of(self, container: Any, kind: type, left: int) -> int:
        """Remove a portion from a container that nobody else refers to; return its number of rows."""
        count = min(len(container), left)
        if kind is list:
            is_deep = bool(_arrays_of(container[-1].__class__))
            if is_deep:
                count = min(count, _DEEP_ROWS_PER_PORTION)
            some = container[-count:]
            del container[-count:]
            self.stack.append(container)  # below its contents, which are freed first
            if is_deep:
                count += self._open(some)
        elif kind is dict and type(next(iter(container.values()))) is list:
            values = [container.popitem()[1] for _ in range(count)]
            self.stack.append(container)
            self.stack += [each for each in values if type(each) is list and len(each) > _FEW]
        else:
            take = container.pop if kind is set else container.popitem
            deque(starmap(take, repeat((), count)), maxlen=0)
            self.stack.append(container)
        return 1 + count


class Freeing:
    """All containers of a node that are kept or being freed.

    freed()     is called when `held_bytes` has decreased
    held_bytes  the memory of what is being freed
    """

    def __init__(self, loop: PollLoop, freed: Callable[[], object]) -> None:
        self._loop = loop
        self._freed = freed
        self.held_bytes = 0
        self._begun: dict[Kept, None] = {}
        self._over: deque[Kept] = deque()
        self._is_due = self._is_collection_due = self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a large request is under way, or its memory is being freed."""
        return bool(self._begun)

    def begin(self) -> Kept:
        """Return an object that keeps the containers of a request until `end`."""
        kept = Kept()
        if not self._is_closed:
            self._begun[kept] = None
            self._collect_young_soon()
        return kept

    def end(self, kept: Kept, size_bytes: int) -> None:
        """The request is over: its containers count as `size_bytes` until they are freed."""
        if kept in self._begun and not kept.is_over:
            kept.end()
            kept.size_bytes = size_bytes
            self.held_bytes += size_bytes
            self._over.append(kept)
            self._soon()

    def let_go(self, *containers: Any) -> None:
        """Free containers that nobody needs any more, in portions."""
        kept = self.begin()
        kept.stack += containers
        self.end(kept, 0)

    def close(self) -> None:
        """The node stops: drop everything."""
        self._is_closed = True
        self._over.clear()
        self._begun.clear()

    def _soon(self) -> None:
        if self._over and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.free_some)

    def free_some(self) -> None:
        """Free a portion, in one turn of the event loop."""
        self._is_due = False
        left = ROWS_PER_PORTION
        while self._over and left > 0:
            kept = self._over[0]
            left = kept.free_some(left) - 1
            if not kept.stack:
                self._over.popleft()
                self._check_later(kept)
        self._soon()

    def _check_later(self, kept: Kept) -> None:
        """Schedule another check of containers that others refer to, or give them up after too many."""
        once = {id(each): each for each in kept.others}
        if len(once) < len(
            kept.others
        ):  # kept twice, also inside a message: the reference was ours
            kept.stack, kept.others = list(once.values()), []
            self._over.append(kept)
            return
        kept.checks += 1
        if not kept.others or kept.checks > CHECKS_MAX:
            self._begun.pop(kept, None)
            kept.is_freed = True
            kept.others = []
            self._uncount(kept)
            return
        if kept.checks > _CHECKS_COUNTED:
            self._uncount(kept)
        delay_s = min(_FIRST_CHECK_S * 2 ** (kept.checks - 1), _LATEST_CHECK_S)
        self._loop.call_later(delay_s, partial(self._again, kept))

    def _again(self, kept: Kept) -> None:
        if kept in self._begun:
            kept.stack += kept.others
            kept.others = []
            self._over.append(kept)
            self._soon()

    def _uncount(self, kept: Kept) -> None:
        size_bytes, kept.size_bytes = kept.size_bytes, 0
        if size_bytes:
            self.held_bytes -= size_bytes
            self._freed()

    def _collect_young_soon(self) -> None:
        if not self._is_collection_due:
            self._is_collection_due = True
            self._loop.call_later(_COLLECT_YOUNG_S, self._collect_young)

    def _collect_young(self) -> None:
        self._is_collection_due = False
        if gc.isenabled():
            gc.collect(1)
        if self._begun:
            self._collect_young_soon()


_Arrays = tuple[tuple[Callable[[Any], Any], bool], ...]


@cache
def _arrays_of(kind: Any) -> _Arrays:
    """Return getters of a struct's arrays, each with whether the elements contain arrays, too."""
    found: list[tuple[Callable[[Any], Any], bool]] = []
    for name, field in kind.fields.items() if issubclass(kind, Struct) else ():
        inner = field.kind[0] if isinstance(field.kind, list) else field.kind
        has_more = isinstance(inner, type) and bool(_arrays_of(inner))
        if isinstance(field.kind, list) or has_more:
            found.append((attrgetter(name), has_more))
    return tuple(found)
