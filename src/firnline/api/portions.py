"""Changes of the cluster that are asked for by the thousand: decided on a portion at a time. PURE.

Each portion is decided on the newest image and written at once, as a batch of its own, so that what others
ask in between is decided between two portions, and each of its rows is answered on its own. Decision 0018.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from firnline.api.slices import Outstanding, Slices
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.metadata.result import ControllerResult

Row = TypeVar("Row")


class Write(Protocol):
    """`MetadataQuorum.write`, or `write_topics` of a node."""

    def __call__(
        self, result: ControllerResult[Any], then: Callable[[Any, int], Effects], now_ms: int, /
    ) -> Effects: ...


def in_portions(
    portions: Iterable[Sequence[Row]],
    *,
    decide: Callable[[Sequence[Row]], ControllerResult[Any]],
    write: Write,
    told: Callable[[Sequence[Row], Any], None],
    finish: Callable[[int], Effects],
    now_ms: int,
) -> Slices:
    """Decide on each of `portions` in a slice of its own and write that.

    told    is called with each portion and what became of it, in their order: the response of its decision
            once that is committed, or the KafkaError that says why it is not
    finish  returns the answer, at a time in ms, after the last of them
    """
    latest_ms = now_ms

    def settle(portion: Sequence[Row], outcome: Any | KafkaError, at_ms: int) -> Effects:
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
        outstanding.left += 1
        effects = write(decide(portion), partial(settle, portion), now_ms)
    return effects + outstanding.one_less()


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
