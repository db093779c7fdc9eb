"""AssignReplicasToDirs: a broker says in which of its directories replicas are. PURE. Source: KIP-858."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.controller.directories import Place
from firnline.protocol.messages.k73_assign_replicas_to_dirs import (
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from firnline.broker.controller_node import ControllerNode


def handle(
    node: "ControllerNode",
    context: RequestContext,
    request: AssignReplicasToDirsRequest,
    now_ms: int,
) -> Effects:
    wanted = [
        Place(topic.topic_id, partition.partition_index, directory.id)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]

    def then(outcome: list[KafkaError | None] | KafkaError, at_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            return [context.reply(AssignReplicasToDirsResponse(error_code=outcome.code))]
        codes = [Code.NONE if each is None else each.code for each in outcome]
        return [context.reply(_response(request, codes))]

    result = node.controller.assign_directories(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, wanted=wanted
    )
    return node.quorum.write(result, then, now_ms)


def _response(
    request: AssignReplicasToDirsRequest, codes: list[Code]
) -> AssignReplicasToDirsResponse:
    """Give each partition its code, in the shape of the request."""
    in_order = iter(codes)
    directories = [
        AssignedDirectoryResult(
            id=directory.id,
            topics=[
                AssignedTopicResult(
                    topic_id=topic.topic_id,
                    partitions=[
                        AssignedPartitionResult(
                            partition_index=partition.partition_index, error_code=next(in_order)
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in directory.topics
            ],
        )
        for directory in request.directories
    ]
    return AssignReplicasToDirsResponse(directories=directories)
