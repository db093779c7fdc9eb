"""Runs large requests in slices, between the requests of others. PURE.

A handler whose work grows with its request, or with the cluster, is a generator. It yields effects after each
slice, about a millisecond, and returns the last ones. The first slice runs at once; nearly every request ends
in it, as if there were no slices. The others run in later turns of the event loop, the requests in turn.
Between two slices a leader may resign and a topic may be deleted, so a slice looks up the partitions that it
uses. Decision 0018.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from firnline.base.background import HungUp, Pause, SlicedTask
from firnline.base.effects import Effects
from firnline.base.limits import SLICE_HELD_BYTES

if TYPE_CHECKING:
    from firnline.api.context import RequestContext, ResponseMemory
    from firnline.base.background import Background

# Yields the effects of each slice, receives the time in ms, and returns the effects of the last slice.
Slices = Generator[Effects, int, Effects]
# The same; it yields a Pause where the next slice has to wait for something.
SlicesWithPauses = Generator[Effects | Pause, int, Effects]
# Freeing this many rows in one step does not take long.
_KEPT_ROWS = 1_000
# Takes half a millisecond.
_LOOKED_AT_PER_SLICE = 5_000
# Takes one or two milliseconds.
_MADE_PER_SLICE = 500
Row = TypeVar("Row")
HashableT = TypeVar("HashableT", bound=Hashable)
Found = TypeVar("Found")


class Busy(Protocol):
    """A node: `sliced_tasks` runs one slice in each turn of the event loop, the requests in turn."""

    @property
    def sliced_tasks(self) -> "Background": ...


class Outstanding:
    """Counts what a response waits for. The slices count as one until the last of them has run."""

    __slots__ = ("_finish", "left")

    def __init__(self, finish: Callable[[], Effects]) -> None:
        self._finish = finish
        self.left = 1

    def one_less(self) -> Effects:
        """Count one down; return the effects of `finish` if nothing is left."""
        assert self.left > 0, "the response has been made already"
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
    """Run the first slice, and schedule the others.

    held_bytes  the estimate of the memory that one slice of the response takes; 0 if the handler counts it
                itself (`context.grow`)
    to_the_end  run all slices even if the client disconnects, because the request changes something;
                otherwise the rest is dropped then
    """
    if to_the_end:
        context.gives_way()
        context.is_change = True
    memory = context.response_memory
    if memory is not None and memory.must_wait_to_begin():
        context.is_large = context.has_slices_left = True
        again = partial(_go_on, node, context, slices, memory, held_bytes, is_begun=False)
        memory.wait(again, to_begin=True)
        return []
    try:
        effects = next(slices)
        if memory is not None:
            memory.grow(held_bytes)
    except StopIteration as done:
        found: Effects = done.value
        return found
    except Exception as problem:  # noqa: BLE001 - the runtime decides (failed_requests)
        return [context.failed(problem)]
    context.is_large = context.has_slices_left = True
    go_on = partial(_go_on, node, context, slices, memory, held_bytes, to_the_end=to_the_end)
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
    memory: "ResponseMemory | None",
    held_bytes: int,
    now_ms: int,
    *,
    is_begun: bool = True,
    to_the_end: bool = False,
) -> Effects:
    """Schedule the slices that are left."""
    rest: Any = _rest(node, context, slices, memory, held_bytes, is_begun, to_the_end)
    # The name of a slow slice in the metrics.
    rest.__qualname__ = f"{getattr(slices, '__qualname__', 'slices')} of API {context.api_key}"
    return node.sliced_tasks.begin(rest, now_ms, is_urgent=context.is_urgent)


def cut(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    """Split rows into portions of `size`, the last one smaller; one empty portion if there are no rows."""
    for first in range(0, max(len(rows), 1), size):
        yield rows[first : first + size]


def naming_any(
    topics: Sequence[Row], rows_of: Callable[[Row], Sequence[object]], *, takes_out: bool = False
) -> Generator[None, None, list[Row]]:
    """Return the topics that have rows, in slices.

    A handler that counts only rows would pass over any number of topics without rows in one step.

    takes_out  remove all topics from the request, as `emptied` does
    """
    found: list[Row] = []
    portions = (emptied if takes_out else cut)(topics, _LOOKED_AT_PER_SLICE)
    for place, some in enumerate(portions):
        if place:
            yield
        found += [topic for topic in some if rows_of(topic)]
    return found


def taken_out(rows: Sequence[Row]) -> Iterable[Row]:
    """Iterate over the rows of a request; of very many free each, as all at once would take milliseconds."""
    if len(rows) <= _KEPT_ROWS:
        return rows
    assert isinstance(rows, list)  # as in every decoded request
    return _taken_out(rows)


def _taken_out(rows: list[Row]) -> Iterator[Row]:
    rows.reverse()
    while rows:
        yield rows.pop()


def let_go(rows: Sequence[Row]) -> Slices:
    """Free the rows of a list in slices."""
    left: Any = rows
    while type(left) is list and len(left) > _KEPT_ROWS:
        del left[-_KEPT_ROWS:]
        yield []
    return []


def emptied(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    """As `cut`, and remove each portion from the list: freeing very many rows at once takes long, too."""
    left: Any = rows
    for first in range(0, max(len(rows), 1), size):
        some = rows[first : first + size]
        if type(left) is list:  # a tuple has only numbers, or nothing
            left[first : first + size] = [None] * len(some)
        yield some


def a_row_for_each(
    names: Iterable[HashableT], make: Callable[[HashableT], Row]
) -> Generator[dict[HashableT, Row], None, list[Row]]:
    """Return the row that `make` returns for each name, one for a repeated name, in slices."""
    rows: dict[HashableT, Row] = {}
    for count, name in enumerate(names, 1):
        rows[name] = make(name)
        if count % _MADE_PER_SLICE == 0:
            yield rows
    return list(rows.values())


def a_step_a_slice(
    steps: Generator[object, None, Found], now_ms: int, context: "RequestContext"
) -> Generator[Effects, int, tuple[Found, int]]:
    """Run each step in a slice of its own; return the result of the steps, and the time.

    `context` keeps the containers that the steps yield, and a large result (`RequestContext.keeps`).
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
    memory: "ResponseMemory | None",
    held_bytes: int,
    is_begun: bool,
    to_the_end: bool,
) -> SlicedTask:
    """Run the slices that are left. While responses hold too much memory, stop, and continue later."""
    is_over = True
    try:
        now_ms = yield []
        while to_the_end or not context.is_gone:
            if memory is not None and memory.must_wait():
                memory.wait(
                    partial(_go_on, node, context, slices, memory, held_bytes, is_begun=is_begun)
                )
                is_over = False
                return []
            effects = slices.send(now_ms) if is_begun else next(slices)
            is_begun = True
            if memory is not None:
                memory.grow(held_bytes)
            if isinstance(effects, Pause):
                is_over = False
                go_on = partial(_go_on, node, context, slices, memory, held_bytes)
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
