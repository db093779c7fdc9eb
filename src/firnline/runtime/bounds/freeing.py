"""What large messages held is freed in portions; meanwhile the collector looks often, at little. WORLD.

When the last reference to a list of 300,000 rows goes, all of them are freed in that step, in up to 70 ms. So
the rows of a large request and of its answer, and tables that were made of them, are kept here until the
request is over (`RequestContext.keeps`). Then they are taken out of their containers, a portion in a turn of
the loop. A container is emptied only when nobody else refers to it, which its count of references tells: what
a waiter or a thread still has stays as it is, and is looked at again, for some minutes. Then it is let go of,
and freed in one step by whoever has it last. No row is changed. Decision 0033.

CPython's collector counts what is made less what is freed. While much is freed it would not look, and then go
over all that was made meanwhile. So while something is kept here it is made to look every few milliseconds.
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
# Of rows that have arrays themselves, which are looked at one by one.
_DEEP_ROWS_PER_PORTION = 250
# An array of no more goes with its row.
_FEW = 16
_LOOK_FIRST_S, _LOOK_LATEST_S, LOOKS_MAX = 0.01, 5.0, 64
# Looks after which its bytes are not counted: it is something that waits, and not what is to be freed.
_LOOKS_COUNTED = 3
_YOUNG_LOOK_S = 0.02
_SAMPLE: list[Any] = [[]]
_ONLY_OURS = getrefcount(_SAMPLE[-1])


class Kept:
    """Containers of one large request: lists, dictionaries, sets and messages."""

    __slots__ = ("_ids", "is_freed", "is_over", "looks", "others", "size_bytes", "stack")

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._ids: set[int] = set()  # of what is in the stack, until the request is over
        self.others: list[Any] = []  # of the stack, what somebody else has
        self.looks = 0
        self.size_bytes = 0
        self.is_over = self.is_freed = False

    def add(self, container: Any) -> None:
        """Keep it until the request is over. Again: it is kept once. It takes the same time for each."""
        if id(container) not in self._ids:
            self.stack.append(container)
            if not self.is_over:  # later the stack changes; what is in it twice is seen then
                self._ids.add(id(container))

    def end(self) -> None:
        """The request is over, and what it keeps is freed from here on."""
        self.is_over = True
        self._ids.clear()

    def free_some(self, left: int) -> int:
        """Free about so many rows; return how many are left of that number."""
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
        """Take the arrays of structs that are worth a portion of their own; return what goes with them."""
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
        """Take a portion out of a container that is ours alone; return its rows."""
        count = min(len(container), left)
        if kind is list:
            is_deep = bool(_arrays_of(container[-1].__class__))
            if is_deep:
                count = min(count, _DEEP_ROWS_PER_PORTION)
            some = container[-count:]
            del container[-count:]
            self.stack.append(container)  # before what was in it, which goes first
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
    """All that is kept, and freed.

    freed()     is called when `held_bytes` is less than it was
    held_bytes  of what is to be freed
    """

    def __init__(self, loop: PollLoop, freed: Callable[[], object]) -> None:
        self._loop = loop
        self._freed = freed
        self.held_bytes = 0
        self._begun: dict[Kept, None] = {}
        self._over: deque[Kept] = deque()
        self._is_due = self._looks_at_young = self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a large request is under way, or what it held is freed."""
        return bool(self._begun)

    def begin(self) -> Kept:
        """Return what keeps the containers of a request until `end`."""
        kept = Kept()
        if not self._is_closed:
            self._begun[kept] = None
            self._look_at_young_soon()
        return kept

    def end(self, kept: Kept, size_bytes: int) -> None:
        """The request is over; from here on what it held counts as `size_bytes` until it is freed."""
        if kept in self._begun and not kept.is_over:
            kept.end()
            kept.size_bytes = size_bytes
            self.held_bytes += size_bytes
            self._over.append(kept)
            self._soon()

    def let_go(self, *containers: Any) -> None:
        """Free what is done with in portions."""
        kept = self.begin()
        kept.stack += containers
        self.end(kept, 0)

    def close(self) -> None:
        """The node ends, and waits for none of this."""
        self._is_closed = True
        self._over.clear()
        self._begun.clear()

    def _soon(self) -> None:
        if self._over and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.free_some)

    def free_some(self) -> None:
        """Free a portion, in a turn of the loop."""
        self._is_due = False
        left = ROWS_PER_PORTION
        while self._over and left > 0:
            kept = self._over[0]
            left = kept.free_some(left) - 1
            if not kept.stack:
                self._over.popleft()
                self._look_later(kept)
        self._soon()

    def _look_later(self, kept: Kept) -> None:
        """Look again at what others have, unless there is none, or that was done often."""
        once = {id(each): each for each in kept.others}
        if len(once) < len(kept.others):  # it was kept, and is in a message, too: that was us
            kept.stack, kept.others = list(once.values()), []
            self._over.append(kept)
            return
        kept.looks += 1
        if not kept.others or kept.looks > LOOKS_MAX:
            self._begun.pop(kept, None)
            kept.is_freed = True
            kept.others = []
            self._uncount(kept)
            return
        if kept.looks > _LOOKS_COUNTED:
            self._uncount(kept)
        delay_s = min(_LOOK_FIRST_S * 2 ** (kept.looks - 1), _LOOK_LATEST_S)
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

    def _look_at_young_soon(self) -> None:
        if not self._looks_at_young:
            self._looks_at_young = True
            self._loop.call_later(_YOUNG_LOOK_S, self._look_at_young)

    def _look_at_young(self) -> None:
        self._looks_at_young = False
        if gc.isenabled():
            gc.collect(1)
        if self._begun:
            self._look_at_young_soon()


_Arrays = tuple[tuple[Callable[[Any], Any], bool], ...]


@cache
def _arrays_of(kind: Any) -> _Arrays:
    """How to get the arrays of a struct, and whether their rows have arrays, too."""
    found: list[tuple[Callable[[Any], Any], bool]] = []
    for name, field in kind.fields.items() if issubclass(kind, Struct) else ():
        inner = field.kind[0] if isinstance(field.kind, list) else field.kind
        has_more = isinstance(inner, type) and bool(_arrays_of(inner))
        if isinstance(field.kind, list) or has_more:
            found.append((attrgetter(name), has_more))
    return tuple(found)
