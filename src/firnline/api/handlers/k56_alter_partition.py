"""AlterPartition: partition leaders propose ISRs to the active controller. PURE. Source: KIP-497, KIP-903.

Brokers send it on the controller's listener. Before version 3 it has no broker epochs of the replicas, and
none is checked (I10).
"""

from collections.abc import Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from firnline.api.context import RequestContext
from firnline.api.portions import in_portions, portions_of
from firnline.api.slices import Slices, a_step_a_slice, in_slices, naming_any, taken_out
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.base.ids import Uuid
from firnline.base.replicas import IsrAnswer, IsrChange, IsrMember
from firnline.metadata.result import ControllerResult
from firnline.protocol.messages.k56_alter_partition import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
    ProposedPartition,
)

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode

Asked = tuple[Uuid, ProposedPartition]
_EPOCHS_SINCE = 3
# Takes one or two milliseconds.
_PARTITIONS_PER_SLICE = 80
_RESULTS_PER_SLICE = 1_000


def handle(
    node: "ControllerNode", context: RequestContext, request: AlterPartitionRequest, now_ms: int
) -> Effects:
    """Decide the partitions in portions.

    If one decision could not be committed, the whole response has the error, because it is unknown whether
    the decision took effect; the leader asks again (rel-R7).
    """
    slices = _alter(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _alter(
    node: "ControllerNode", context: RequestContext, request: AlterPartitionRequest, now_ms: int
) -> Slices:
    answers: list[AlteredPartition] = []
    problems: list[KafkaError] = []

    def decide(portion: Sequence[Asked]) -> ControllerResult[Any]:
        return node.controller.alter_partitions(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            wanted=[_change(topic_id, row, context.api_version) for topic_id, row in portion],
        )

    def on_outcome(
        portion: Sequence[Asked], outcome: list[IsrAnswer | KafkaError] | KafkaError
    ) -> None:
        if isinstance(outcome, KafkaError):
            problems.append(outcome)
        else:  # decisions are committed in order
            rows = zip(portion, outcome, strict=True)
            answers.extend([_row(row, found) for (_, row), found in rows])

    def finish(at_ms: int) -> Effects:
        if problems:
            return [context.reply(AlterPartitionResponse(error_code=problems[0].code))]
        return in_slices(node, context, _answer(context, request, answers), at_ms)

    steps = naming_any(request.topics, attrgetter("partitions"))
    topics, now_ms = yield from a_step_a_slice(steps, now_ms, context)
    asked = ((topic.topic_id, row) for topic in topics for row in topic.partitions)
    return (
        yield from in_portions(
            context,
            portions_of(asked, _PARTITIONS_PER_SLICE),
            decide=decide,
            write=node.quorum.write,
            on_outcome=on_outcome,
            finish=finish,
            now_ms=now_ms,
        )
    )


def _answer(
    context: RequestContext, request: AlterPartitionRequest, answers: Sequence[AlteredPartition]
) -> Slices:
    """Answer with a row for each partition, in the order of the request."""
    in_order = iter(answers)
    topics: list[AlterPartitionTopicResult] = []
    left = _RESULTS_PER_SLICE
    for topic in taken_out(request.topics):
        if left <= 0:
            yield []
            left = _RESULTS_PER_SLICE
        rows = list(islice(in_order, len(topic.partitions)))
        topics.append(AlterPartitionTopicResult(topic_id=topic.topic_id, partitions=rows))
        left -= 1 + len(rows)
    return [context.reply(AlterPartitionResponse(topics=topics))]


def _change(topic_id: Uuid, row: ProposedPartition, version: int) -> IsrChange:
    return IsrChange(
        topic_id,
        row.partition_index,
        row.leader_epoch,
        row.partition_epoch,
        _members(row, version),
        row.leader_recovery_state,
    )


def _members(partition: ProposedPartition, version: int) -> tuple[IsrMember, ...]:
    if version < _EPOCHS_SINCE:
        return tuple(IsrMember(broker_id) for broker_id in partition.new_isr)
    return tuple(
        IsrMember(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs
    )


def _row(partition: ProposedPartition, outcome: IsrAnswer | KafkaError) -> AlteredPartition:
    if isinstance(outcome, KafkaError):
        return AlteredPartition(partition_index=partition.partition_index, error_code=outcome.code)
    return AlteredPartition(
        partition_index=partition.partition_index,
        leader_id=outcome.leader_id,
        leader_epoch=outcome.leader_epoch,
        isr=outcome.isr,
        leader_recovery_state=outcome.leader_recovery_state,
        partition_epoch=outcome.partition_epoch,
    )
