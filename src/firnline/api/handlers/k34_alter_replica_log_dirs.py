"""AlterReplicaLogDirs: assigns directories to new replicas; existing replicas do not move. PURE.

Source: KIP-113.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, cut, in_slices, taken_out
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

# Takes a millisecond.
_PARTITIONS_PER_SLICE = 400


def handle(
    node: "BrokerNode", context: RequestContext, request: AlterReplicaLogDirsRequest, now_ms: int
) -> Effects:
    """Answer each partition: it is there already, will be created there, or cannot move."""
    return in_slices(node, context, _prefer(node, context, request), now_ms, to_the_end=True)


def _prefer(
    node: "BrokerNode", context: RequestContext, request: AlterReplicaLogDirsRequest
) -> Slices:
    by_topic: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    results: list[AlterReplicaLogDirTopicResult] = []
    count = 0
    for path, name, indexes in _named(request):
        count += 1
        for some in cut(indexes, _PARTITIONS_PER_SLICE):
            if count >= _PARTITIONS_PER_SLICE:
                count = 0
                yield []
            count += len(some)
            for index in some:
                rows = by_topic.get(name)
                if rows is None:
                    rows = by_topic[name] = []
                    results.append(AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows))
                code = node.storage.prefer(TopicPartition(name, index), path)
                rows.append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                )
    return [context.reply(AlterReplicaLogDirsResponse(results=results))]


def _named(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[str, str, Sequence[int]]]:
    """Iterate over directories and their topics; a directory without topics gives one empty row."""
    for directory in taken_out(request.dirs):
        for topic in taken_out(directory.topics):
            yield directory.path, topic.name, topic.partitions
        if not directory.topics:
            yield directory.path, "", ()
