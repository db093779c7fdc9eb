"""AlterPartition requests: the proposals of all partitions on their way to the controller. PURE.

One request is under way at a time, with at most so many proposals; later ones wait for the next. A proposal
is sent again after a short pause while its request brings no answer, or an answer that does not settle it.
Only the controller's decision or newer metadata ends it. Source: KIP-497; spec I18, I19; rel-R7.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import PartitionKey
from firnline.base.replicas import IsrAnswer, IsrChange
from firnline.replica.partition import Partition

# As in Kafka.
_RETRY_MS = 50
# A controller in the same process decides on so many in a millisecond or two. The others wait for the next
# request.
_CHANGES_AT_ONCE = 80
_TIMER = ("replica", "alter partitions")
Answers = list[IsrAnswer | KafkaError] | KafkaError
AlterPartitionCallback = Callable[[Answers, int], Effects]


class IsrCounters(NamedTuple):
    """Results of proposals since the start. `failed`: refused with any error."""

    expands: int = 0
    shrinks: int = 0
    failed: int = 0


class AskController(Protocol):
    """Sends changes to the active controller; `then` gets one answer each, in order, or one error for all."""

    def __call__(
        self, wanted: Sequence[IsrChange], then: AlterPartitionCallback, now_ms: int
    ) -> Effects: ...


class AlterPartitions:
    """The proposals of the partitions this node leads.

    on_settled  called with each partition whose proposal was decided, either way
    """

    def __init__(self, ask: AskController, on_settled: Callable[[Partition, int], Effects]) -> None:
        self._ask = ask
        self._on_settled = on_settled
        self.counters = IsrCounters()
        self._waiting: dict[PartitionKey, Partition] = {}
        self._is_asking = False
        self._is_stopped = False

    def propose(self, partition: Partition, now_ms: int) -> Effects:
        """Send the proposal of the partition to the controller."""
        assert partition.proposed is not None
        self._waiting[_key(partition)] = partition
        return self._go(now_ms)

    def stop(self) -> None:
        """Send nothing more."""
        self._is_stopped = True

    def _go(self, now_ms: int) -> Effects:
        if self._is_asking or self._is_stopped:
            return []
        sent: list[tuple[Partition, IsrChange, int]] = []
        while self._waiting and len(sent) < _CHANGES_AT_ONCE:
            partition = self._waiting.pop(next(iter(self._waiting)))
            change = partition.proposed
            if change is not None:
                sent.append((partition, change, len(change.new_isr) - len(partition.isr)))
        if not sent:
            return []
        self._is_asking = True

        def answered(outcome: Answers, at_ms: int) -> Effects:
            return self._answered(sent, outcome, at_ms)

        return self._ask([change for _, change, _ in sent], answered, now_ms)

    def _answered(
        self, sent: Sequence[tuple[Partition, IsrChange, int]], outcome: Answers, now_ms: int
    ) -> Effects:
        if self._is_stopped:
            return []
        assert self._is_asking, "one request is under way, and it is answered once"
        outcomes = [outcome] * len(sent) if isinstance(outcome, KafkaError) else outcome
        is_unsettled = False
        effects: Effects = []
        for (partition, change, more), each in zip(sent, outcomes, strict=True):
            # An error of the whole request decides on none of its changes.
            found: Effects | None = None
            if not isinstance(outcome, KafkaError):
                self._count(each, more)
                found = partition.altered(change, each, now_ms)
            elif outcome.code is Code.NETWORK_EXCEPTION:
                partition.unanswered(change)
            if found is not None:
                effects += found
                effects += self._on_settled(partition, now_ms)
                if partition.proposed not in (None, change):
                    self._waiting[_key(partition)] = partition
            elif partition.proposed is change:
                self._waiting.setdefault(_key(partition), partition)
                is_unsettled = True
        if not is_unsettled and not isinstance(outcome, KafkaError):
            self._is_asking = False
            return effects + self._go(now_ms)
        return [*effects, SetTimer(key=_TIMER, at_ms=now_ms + _RETRY_MS, then=self._again)]

    def _count(self, outcome: IsrAnswer | KafkaError, more: int) -> None:
        was = self.counters
        if isinstance(outcome, KafkaError):
            self.counters = was._replace(failed=was.failed + 1)
        elif more > 0:
            self.counters = was._replace(expands=was.expands + 1)
        elif more < 0:
            self.counters = was._replace(shrinks=was.shrinks + 1)

    def _again(self, now_ms: int) -> Effects:
        self._is_asking = False
        return self._go(now_ms)


def _key(partition: Partition) -> PartitionKey:
    return partition.topic_id, partition.topic_partition.partition
