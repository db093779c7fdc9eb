"""AlterReplicaLogDirs: where new replicas go; those that are there do not move. PURE. Source: KIP-113."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
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


def handle(
    node: "BrokerNode", context: RequestContext, request: AlterReplicaLogDirsRequest, now_ms: int
) -> Effects:
    """Answer each partition: it is there, it will be made there, or it stays where it is."""
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = node.storage.prefer(TopicPartition(topic.name, index), directory.path)
                row = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                results.setdefault(topic.name, []).append(row)
    rows = [
        AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
        for name, partitions in results.items()
    ]
    return [context.reply(AlterReplicaLogDirsResponse(results=rows))]
