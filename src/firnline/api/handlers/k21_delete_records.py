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
    """Answer the low watermark of each partition."""
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[
                _one(node, topic.name, part.partition_index, part.offset)
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return [context.reply(DeleteRecordsResponse(topics=topics))]


def _one(
    node: "BrokerNode", topic: str, index: int, before_offset: int
) -> DeleteRecordsPartitionResult:
    found = protected_topic(topic) or node.hosted.find(topic, index)
    outcome = found if isinstance(found, KafkaError) else delete_records(found, before_offset)
    if isinstance(outcome, KafkaError):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_OFFSET, error_code=outcome.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=outcome)
