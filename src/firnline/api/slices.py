"""Requests that take longer than others can wait: a slice now, the rest beside what others ask. PURE.

A handler whose work grows with what is asked for, or with the cluster, is a generator that yields effects
after so many items and returns those of its end. What is done within its first slice, as nearly every
request is, is done as if there were no slices. A partition is looked up in the slice that uses it: between
two of them a leader may resign, and a topic go. Decision 0018.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from firnline.base.background import HungUp, Pause, Work
from firnline.base.effects import Effects
from firnline.base.limits import SLICE_HELD_BYTES

if TYPE_CHECKING:
    from firnline.api.context import RequestContext, Share
    from firnline.base.background import Background

# Effects, then the time; at last effects.
Slices = Generator[Effects, int, Effects]
# The same, of which some are what is waited for before the next slice.
SlicesWithPauses = Generator[Effects | Pause, int, Effects]
# Of so many no step that lets go of them takes long.
_KEPT_ROWS = 1_000
# Half a millisecond.
_LOOKED_AT_PER_SLICE = 5_000
# A millisecond or two.
_MADE_PER_SLICE = 500
Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


class Busy(Protocol):
    """A node: `in_turns` does one slice of one request in a turn of the loop, the requests taking turns."""

    @property
    def in_turns(self) -> "Background": ...


class Outstanding:
    """What an answer waits for, counted while there may come more: 1 until the last slice is done."""

    __slots__ = ("_finish", "left")

    def __init__(self, finish: Callable[[], Effects]) -> None:
        self._finish = finish
        self.left = 1

    def one_less(self) -> Effects:
        """Return the answer if nothing is left."""
        assert self.left > 0, "answered already"
        self.left -= 1
        return [] if self.left else self._finish()


def in_slices(
    node: Busy,
    context: "RequestContext",
    slices: SlicesWithPauses,
    now_ms: int,
    *,
    to_the_end: bool = False,
    held_bytes: int = SLICE_HELD_BYTES,
) -> Effects:
    """Do the first slice, and have the others done.

    held_bytes  what a slice of the answer is taken to hold; 0 where the handler says it (`context.grow`)
    to_the_end  also when whoever asked has hung up meanwhile: it changes something. Else nobody wants
                the rest
    """
    if to_the_end:
        context.gives_way()
        context.is_change = True
    share = context.share
    if share is not None and share.must_wait_to_begin():
        context.is_large = context.is_in_turns = True
        again = partial(_go_on, node, context, slices, share, held_bytes, is_begun=False)
        share.wait(again, to_begin=True)
        return []
    try:
        effects = next(slices)
        if share is not None:
            share.grow(held_bytes)
    except StopIteration as done:
        found: Effects = done.value
        return found
    except Exception as problem:  # noqa: BLE001 - whoever runs the connection judges
        return [context.failed(problem)]
    context.is_large = context.is_in_turns = True
    go_on = partial(_go_on, node, context, slices, share, held_bytes, to_the_end=to_the_end)
    if isinstance(effects, Pause):
        return _pause(effects, go_on, context)
    return effects + go_on(now_ms)


def _pause(pause: Pause, go_on: Callable[[int], Effects], context: "RequestContext") -> Effects:
    if pause.waits_long:
        context.gives_way()
    return pause.begin(go_on, context.peer_host)


def _go_on(
    node: Busy,
    context: "RequestContext",
    slices: SlicesWithPauses,
    share: "Share | None",
    held_bytes: int,
    now_ms: int,
    *,
    is_begun: bool = True,
    to_the_end: bool = False,
) -> Effects:
    """Have the slices that are left done."""
    rest: Any = _rest(node, context, slices, share, held_bytes, is_begun, to_the_end)
    # What a slow slice is called in the metrics.
    rest.__qualname__ = f"{getattr(slices, '__qualname__', 'slices')} of API {context.api_key}"
    return node.in_turns.begin(rest, now_ms, is_urgent=context.is_urgent)


def cut(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    """Cut rows into portions of that size, the last one smaller; one without rows where there are none."""
    for first in range(0, max(len(rows), 1), size):
        yield rows[first : first + size]


def naming_any(
    topics: Sequence[Row], rows_of: Callable[[Row], Sequence[object]], *, takes_out: bool = False
) -> Generator[None, None, list[Row]]:
    """Return those that have rows; yields after so many.

    Who goes over rows alone, and counts them, would go over all that have none in one step.

    takes_out  all are taken out of the request, as by `emptied`
    """
    found: list[Row] = []
    portions = (emptied if takes_out else cut)(topics, _LOOKED_AT_PER_SLICE)
    for place, some in enumerate(portions):
        if place:
            yield
        found += [topic for topic in some if rows_of(topic)]
    return found


def taken_out(rows: Sequence[Row]) -> Iterable[Row]:
    """Give the rows of a request; of very many let go of each: of all at once that takes milliseconds."""
    if len(rows) <= _KEPT_ROWS:
        return rows
    assert isinstance(rows, list)  # as all that is read
    return _taken_out(rows)


def _taken_out(rows: list[Row]) -> Iterator[Row]:
    rows.reverse()
    while rows:
        yield rows.pop()


def let_go(rows: Sequence[Row]) -> Slices:
    """Free the rows of a list that nobody wants any more, some at a time."""
    left: Any = rows
    while type(left) is list and len(left) > _KEPT_ROWS:
        del left[-_KEPT_ROWS:]
        yield []
    return []


def emptied(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    """Cut as `cut` does, and take each portion out of a list: to free very many rows takes long, too."""
    left: Any = rows
    for first in range(0, max(len(rows), 1), size):
        some = rows[first : first + size]
        if type(left) is list:  # a tuple has nothing but numbers, or nothing
            left[first : first + size] = [None] * len(some)
        yield some


def a_row_for_each(
    names: Iterable[Key], make: Callable[[Key], Row]
) -> Generator[dict[Key, Row], None, list[Row]]:
    """Return what `make` makes of each name, one for a name that comes twice; yields after so many."""
    rows: dict[Key, Row] = {}
    for count, name in enumerate(names, 1):
        rows[name] = make(name)
        if count % _MADE_PER_SLICE == 0:
            yield rows
    return list(rows.values())


def a_step_a_slice(
    steps: Generator[object, None, Found], now_ms: int, context: "RequestContext"
) -> Generator[Effects, int, tuple[Found, int]]:
    """Take each step in a slice of its own; return what they lead to, and the time.

    What they yield, and a large table that they lead to, is kept for `context` (`RequestContext.keeps`).
    """
    while True:
        try:
            made = next(steps)
            if made is not None:
                context.keeps(made)
        except StopIteration as done:
            found: Found = done.value
            if isinstance(found, list | dict | set) and len(found) >= _KEPT_ROWS:
                context.keeps(found)
            return found, now_ms
        now_ms = yield []


def _rest(
    node: Busy,
    context: "RequestContext",
    slices: SlicesWithPauses,
    share: "Share | None",
    held_bytes: int,
    is_begun: bool,
    to_the_end: bool,
) -> Work:
    """Do the slices that are left. Where answers hold too much already, end, and go on when there is room."""
    is_over = True
    try:
        now_ms = yield []
        while to_the_end or not context.is_gone:
            if share is not None and share.must_wait():
                share.wait(
                    partial(_go_on, node, context, slices, share, held_bytes, is_begun=is_begun)
                )
                is_over = False
                return []
            effects = slices.send(now_ms) if is_begun else next(slices)
            is_begun = True
            if share is not None:
                share.grow(held_bytes)
            if isinstance(effects, Pause):
                is_over = False
                go_on = partial(_go_on, node, context, slices, share, held_bytes)
                go_on = partial(go_on, to_the_end=to_the_end)
                return _pause(effects, go_on, context)
            now_ms = yield effects
        if is_begun:
            slices.throw(HungUp())
    except StopIteration as done:
        found: Effects = done.value
        return found
    except HungUp:
        return []
    except Exception as problem:  # noqa: BLE001 - as in the first slice
        return [context.failed(problem)]
    finally:
        if is_over:
            slices.close()
            context.ends()
    return []
