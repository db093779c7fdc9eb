"""Requests that take longer than others can wait: a slice now, the rest beside what others ask. PURE.

A handler whose work grows with what is asked for, or with the cluster, is a generator that yields effects
after so many items and returns those of its end. What is done within its first slice, as nearly every
request is, is done as if there were no slices. A partition is looked up in the slice that uses it: between
two of them a leader may resign, and a topic go. Decision 0018.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from firnline.base.background import Work
from firnline.base.effects import Effects

if TYPE_CHECKING:
    from firnline.api.context import RequestContext
    from firnline.base.background import Background

# Effects, then the time; at last effects.
Slices = Generator[Effects, int, Effects]
Row = TypeVar("Row")
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
    node: Busy, context: "RequestContext", slices: Slices, now_ms: int, *, to_the_end: bool = False
) -> Effects:
    """Do the first slice, and have the others done.

    to_the_end  also when whoever asked has hung up meanwhile: it changes something. Else nobody wants
                the rest
    """
    try:
        effects = next(slices)
    except StopIteration as done:
        found: Effects = done.value
        return found
    except Exception as problem:  # noqa: BLE001 - whoever runs the connection judges
        return [context.failed(problem)]
    context.is_large = context.is_in_turns = True
    rest: Any = _rest(context, slices, to_the_end)
    # What a slow slice is called in the metrics.
    rest.__qualname__ = f"{getattr(slices, '__qualname__', 'slices')} of API {context.api_key}"
    return effects + node.in_turns.begin(rest, now_ms, is_urgent=context.is_urgent)


def cut(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    """Cut rows into portions of that size, the last one smaller; one without rows where there are none."""
    for first in range(0, max(len(rows), 1), size):
        yield rows[first : first + size]


def a_step_a_slice(
    steps: Generator[None, None, Found], now_ms: int
) -> Generator[Effects, int, tuple[Found, int]]:
    """Take each step in a slice of its own; return what they lead to, and the time."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, now_ms
        now_ms = yield []


def _rest(context: "RequestContext", slices: Slices, to_the_end: bool) -> Work:
    try:
        now_ms = yield []
        while to_the_end or not context.is_gone:
            now_ms = yield slices.send(now_ms)
    except StopIteration as done:
        return done.value
    except Exception as problem:  # noqa: BLE001 - as in the first slice
        return [context.failed(problem)]
    finally:
        slices.close()
        on_end = getattr(context, "on_end", None)
        if on_end is not None:
            del context.on_end  # its answer may be made in slices, too
            on_end()
    return []
