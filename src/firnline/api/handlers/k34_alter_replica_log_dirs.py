"""AlterReplicaLogDirs: where new replicas go; those that are there do not move. PURE. Source: KIP-113."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, cut, in_slices
from firnline.base.effects import Effects
from firnline.base.ids import TopicPartition
from firnline.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

# A millisecond.
_PARTITIONS_PER_SLICE = 400


def handle(
    node: "BrokerNode", context: RequestContext, request: AlterReplicaLogDirsRequest, now_ms: int
) -> Effects:
    """Answer each partition: it is there, it will be made there, or it stays where it is."""
    return in_slices(node, context, _prefer(node, context, request), now_ms, to_the_end=True)


def _prefer(
    node: "BrokerNode", context: RequestContext, request: AlterReplicaLogDirsRequest
) -> Slices:
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    asked = [
        (directory.path, topic.name, index)
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    ]
    for some in cut(asked, _PARTITIONS_PER_SLICE):
        if results:
            yield []
        for path, name, index in some:
            code = node.storage.prefer(TopicPartition(name, index), path)
            row = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
            results.setdefault(name, []).append(row)
    rows = [
        AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
        for name, partitions in results.items()
    ]
    return [context.reply(AlterReplicaLogDirsResponse(results=rows))]
