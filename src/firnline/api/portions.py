"""Splits a request for thousands of changes of the cluster into portions. PURE.

The controller decides each portion on the newest image and writes it at once, as a batch of its own. Requests
of others are decided between two portions. Each row has its own result. Decision 0018.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from firnline.api.slices import Outstanding, Slices, a_step_a_slice
from firnline.base.background import run_to_completion
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.metadata.quorum import MetadataQuorum, R, WriteCallback
from firnline.metadata.result import ControllerResult

if TYPE_CHECKING:
    from firnline.api.context import RequestContext

Row = TypeVar("Row")
# Makes a decision in steps of a millisecond.
DecisionSteps = Generator[None, None, ControllerResult[R]]
# How often a large decision starts again because the cluster has changed meanwhile.
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
    decide: Callable[[Sequence[Row]], ControllerResult[R] | DecisionSteps[R]],
    write: Write,
    on_outcome: Callable[[Sequence[Row], R | KafkaError], None],
    finish: Callable[[int], Effects],
    now_ms: int,
) -> Slices:
    """Decide each of `portions` in a slice of its own, and write the decision.

    decide      returns the decision; for a large portion, such as one large topic, the steps that make it
    on_outcome  is called with each portion and its outcome, in order: the response of the decision once it is
                committed, or the KafkaError that prevented it
    finish      is called with the time in ms after the last outcome; returns the effects that send the
                response. If it raises, the connection of `context` is closed
    """
    latest_ms = now_ms
    finish = context.makes_replies(finish)

    def settle(portion: Sequence[Row], outcome: R | KafkaError, at_ms: int) -> Effects:
        nonlocal latest_ms
        latest_ms = at_ms
        on_outcome(portion, outcome)
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


def on_newest(quorum: MetadataQuorum, decide: Callable[[], DecisionSteps[R]]) -> DecisionSteps[R]:
    """Make a decision and prepare its records, in steps.

    If the image changes meanwhile, decide again on the newest one; after some tries in a single step.
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
    return run_to_completion(decide())


def grouped(
    rows: Iterable[Row], key: Callable[[Row], Hashable]
) -> Generator[None, None, Iterator[list[Row]]]:
    """Group rows by key, in the order of each key's first row, in slices."""
    groups: OrderedDict[Hashable, list[Row]] = OrderedDict()
    for place, row in enumerate(rows, 1):
        groups.setdefault(key(row), []).append(row)
        if place % _GROUPED_PER_SLICE == 0:
            yield
    return _each_once(groups)


def _each_once(groups: OrderedDict[Hashable, list[Row]]) -> Iterator[list[Row]]:
    while groups:
        yield groups.popitem(last=False)[1]  # freeing all of them at the end would take long


def portions_of(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    """Split rows into portions of `size`; one empty portion if there are no rows."""
    left = iter(rows)
    yield list(islice(left, size))
    while portion := list(islice(left, size)):
        yield portion


def together(
    groups: Iterable[Sequence[Row]], size: int, cost: Callable[[Row], int] = lambda row: 1
) -> Iterable[list[Row]]:
    """Join groups into portions that cost about `size`; a group is never split."""
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
