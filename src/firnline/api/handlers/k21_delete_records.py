"""DeleteRecords: move log starts up. PURE. Source: KIP-107, spec T44."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.base.ids import NO_OFFSET
from firnline.broker.delete_records import delete_records, protected_topic
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode


def handle(
    node: "BrokerNode", context: RequestContext, request: DeleteRecordsRequest, now_ms: int
) -> Effects:
    """Answer the low watermark of each partition; what moved is written down soon."""
    effects: Effects = []
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _one(node, topic.name, part.partition_index, part.offset, effects)
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return [context.reply(DeleteRecordsResponse(topics=topics)), *effects]


def _one(
    node: "BrokerNode", topic: str, index: int, before_offset: int, effects: Effects
) -> DeleteRecordsPartitionResult:
    found = protected_topic(topic) or node.hosted.find(topic, index)
    outcome: int | KafkaError
    if isinstance(found, KafkaError):
        outcome = found
    else:
        start = found.log.log_start_offset
        outcome = delete_records(found, before_offset)
        if found.log.log_start_offset != start:
            effects += node.storage.on_log_start_moved(found.log)
    if isinstance(outcome, KafkaError):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_OFFSET, error_code=outcome.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=outcome)
