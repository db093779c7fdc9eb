"""AlterPartition: leaders propose in-sync replicas to the active controller. PURE. Source: KIP-497, KIP-903.

Brokers send it on the controller's listener. Before version 3 it names replicas without broker epochs, and
none is checked (I10).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.controller.isr_changes import IsrChange, IsrMember
from firnline.metadata.image import PartitionImage
from firnline.protocol.messages.k56_alter_partition import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
    ProposedPartition,
)

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode

_EPOCHS_SINCE = 3


def handle(
    node: "ControllerNode", context: RequestContext, request: AlterPartitionRequest, now_ms: int
) -> Effects:
    wanted = [
        IsrChange(
            topic.topic_id,
            partition.partition_index,
            partition.leader_epoch,
            partition.partition_epoch,
            _members(partition, context.api_version),
            partition.leader_recovery_state,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]

    def then(outcome: list[PartitionImage | KafkaError] | KafkaError, at_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            return [context.reply(AlterPartitionResponse(error_code=outcome.code))]
        in_order = iter(outcome)
        topics = [
            AlterPartitionTopicResult(
                topic_id=topic.topic_id,
                partitions=[_answer(partition, in_order) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
        return [context.reply(AlterPartitionResponse(topics=topics))]

    result = node.controller.alter_partitions(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, wanted=wanted
    )
    return node.quorum.write(result, then, now_ms)


def _members(partition: ProposedPartition, version: int) -> tuple[IsrMember, ...]:
    if version < _EPOCHS_SINCE:
        return tuple(IsrMember(broker_id) for broker_id in partition.new_isr)
    return tuple(
        IsrMember(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs
    )


def _answer(
    partition: ProposedPartition, in_order: Iterator[PartitionImage | KafkaError]
) -> AlteredPartition:
    outcome = next(in_order)
    if isinstance(outcome, KafkaError):
        return AlteredPartition(partition_index=partition.partition_index, error_code=outcome.code)
    return AlteredPartition(
        partition_index=partition.partition_index,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=outcome.isr,
        leader_recovery_state=outcome.leader_recovery_state,
        partition_epoch=outcome.partition_epoch,
    )
