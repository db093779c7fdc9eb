"""Changes of the cluster that are asked for by the thousand: decided on a portion at a time. PURE.

Each portion is decided on the newest image and written at once, as a batch of its own, so that what others
ask in between is decided between two portions, and each of its rows is answered on its own. Decision 0018.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from firnline.api.slices import Outstanding, Slices, a_step_a_slice
from firnline.base.background import whole
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.metadata.quorum import MetadataQuorum, R, WriteCallback
from firnline.metadata.result import ControllerResult

if TYPE_CHECKING:
    from firnline.api.context import RequestContext

Row = TypeVar("Row")
# Steps of a millisecond, which lead to a decision.
Steps = Generator[None, None, ControllerResult[R]]
# How often a large decision is begun anew where the cluster changes meanwhile.
_TRIES = 3
_GROUPED_PER_SLICE = 500


class Write(Protocol):
    """`MetadataQuorum.write`, or `write_topics` of a node."""

    def __call__(
        self, result: ControllerResult[R], then: WriteCallback[R], now_ms: int, /
    ) -> Effects: ...


def in_portions(
    context: "RequestContext",
    portions: Iterable[Sequence[Row]],
    *,
    decide: Callable[[Sequence[Row]], ControllerResult[R] | Steps[R]],
    write: Write,
    told: Callable[[Sequence[Row], R | KafkaError], None],
    finish: Callable[[int], Effects],
    now_ms: int,
) -> Slices:
    """Decide on each of `portions` in a slice of its own and write that.

    decide  returns the decision; of a portion that is large, as one topic may be, steps that lead to it
    told    is called with each portion and what became of it, in their order: the response of its decision
            once that is committed, or the KafkaError that says why it is not
    finish  returns the answer, at a time in ms, after the last of them; where it fails the connection of
            `context` is closed
    """
    latest_ms = now_ms
    finish = context.makes_replies(finish)

    def settle(portion: Sequence[Row], outcome: R | KafkaError, at_ms: int) -> Effects:
        nonlocal latest_ms
        latest_ms = at_ms
        told(portion, outcome)
        return outstanding.one_less()

    outstanding = Outstanding(lambda: finish(latest_ms))
    effects: Effects = []
    is_first = True
    for portion in portions:
        if not is_first:
            now_ms = latest_ms = yield effects
        is_first = False
        result = decide(portion)
        if isinstance(result, Generator):
            result, now_ms = yield from a_step_a_slice(result, now_ms, context)
            latest_ms = now_ms
        outstanding.left += 1
        effects = write(result, partial(settle, portion), now_ms)
    return effects + outstanding.one_less()


def on_newest(quorum: MetadataQuorum, decide: Callable[[], Steps[R]]) -> Steps[R]:
    """Decide, and prepare what is written, in steps.

    What was decided on another image than the newest is decided anew; where the cluster changes all the
    time in one step, in the end.
    """
    for _ in range(_TRIES):
        image = quorum.newest
        steps = decide()
        is_prepared = False
        while quorum.newest is image:
            try:
                next(steps)
            except StopIteration as done:
                if is_prepared:
                    return done.value  # type: ignore[no-any-return]
                is_prepared, steps = True, quorum.prepare(done.value)
            yield
    return whole(decide())


def grouped(
    rows: Iterable[Row], key: Callable[[Row], Hashable]
) -> Generator[None, None, Iterator[list[Row]]]:
    """Group rows of the same key, in the order of their first ones; yields after some rows at a time."""
    groups: OrderedDict[Hashable, list[Row]] = OrderedDict()
    for place, row in enumerate(rows, 1):
        groups.setdefault(key(row), []).append(row)
        if place % _GROUPED_PER_SLICE == 0:
            yield
    return _each_once(groups)


def _each_once(groups: OrderedDict[Hashable, list[Row]]) -> Iterator[list[Row]]:
    while groups:
        yield groups.popitem(last=False)[1]  # to free all of them in the end would take long


def portions_of(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Cut what is asked for; the first portion is there even where that is nothing."""
    left = iter(rows)
    yield list(islice(left, size))
    while portion := list(islice(left, size)):
        yield portion


def together(
    groups: Iterable[Sequence[Row]], size: int, cost: Callable[[Row], int] = lambda row: 1
) -> Iterable[list[Row]]:
    """Join groups to portions that cost about `size`; what is in one group stays together."""
    portion: list[Row] = []
    total = 0
    for group in groups:
        portion += group
        total += sum(map(cost, group))
        if total >= size:
            yield portion
            portion, total = [], 0
    if portion:
        yield portion
