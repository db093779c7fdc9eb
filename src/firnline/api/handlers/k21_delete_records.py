"""DeleteRecords: move log starts up. PURE. Source: KIP-107, spec T44."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_OFFSET
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from firnline.replica.delete_records import delete_records, protected_topic

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode
    from firnline.log.log import Log


def handle(
    node: "BrokerNode", context: RequestContext, request: DeleteRecordsRequest, now_ms: int
) -> Effects:
    """Answer the low watermark of each partition, once no power cut brings back what is below it."""
    moved: list[Log] = []
    outcomes = [
        [
            _one(node, topic.name, part.partition_index, part.offset, moved)
            for part in topic.partitions
        ]
        for topic in request.topics
    ]

    def kept(failed: "list[Log]", at_ms: int) -> Effects:
        broken = {log.topic_partition: None for log in failed}
        topics = [
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _result(
                        part.partition_index,
                        _FAILED if (topic.name, part.partition_index) in broken else outcome,
                    )
                    for part, outcome in zip(topic.partitions, row, strict=True)
                ],
            )
            for topic, row in zip(request.topics, outcomes, strict=True)
        ]
        return [context.reply(DeleteRecordsResponse(topics=topics))]

    return node.storage.keep_log_starts(moved, kept, now_ms)


def _one(
    node: "BrokerNode", topic: str, index: int, before_offset: int, moved: "list[Log]"
) -> int | KafkaError:
    found = protected_topic(topic) or node.hosted.find(topic, index)
    if isinstance(found, KafkaError):
        return found
    outcome = delete_records(found, before_offset)
    if not isinstance(outcome, KafkaError):
        # Also where the start was there already: the one who moved it may still wait for the disk.
        moved.append(found.log)
    return outcome


def _result(index: int, outcome: int | KafkaError) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, KafkaError):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_OFFSET, error_code=outcome.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=outcome)


_FAILED = KafkaError(Code.KAFKA_STORAGE_ERROR, "where the log begins could not be written down")
