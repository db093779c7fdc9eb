"""OffsetForLeaderEpoch: answers with the end offset of a leader epoch. PURE. Source: KIP-320, spec T45."""

from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, in_slices, taken_out
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.protocol.messages.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

# Takes a millisecond.
_ROWS_PER_SLICE = 500


def handle(
    node: "BrokerNode",
    context: RequestContext,
    request: OffsetForLeaderEpochRequest,
    now_ms: int,
) -> Effects:
    """Answer each partition from its leader epoch cache."""
    return in_slices(node, context, _answer(node, context, request), now_ms)


def _answer(
    node: "BrokerNode", context: RequestContext, request: OffsetForLeaderEpochRequest
) -> Slices:
    topics: list[OffsetForLeaderTopicResult] = []
    left = _ROWS_PER_SLICE
    for topic in taken_out(request.topics):
        if left <= 0:
            yield context.keeps(topics)
            left = _ROWS_PER_SLICE
        left -= 1
        rows: list[EpochEndOffset] = []
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
        for part in topic.partitions:
            if left <= 0:
                yield context.keeps(topics)
                left = _ROWS_PER_SLICE
            left -= 1
            rows.append(_one(node, topic.topic, part))
    return [context.reply(OffsetForLeaderEpochResponse(topics=topics))]


def _one(node: "BrokerNode", topic: str, part: OffsetForLeaderPartition) -> EpochEndOffset:
    found = node.hosted.find(topic, part.partition)
    refusal = (
        found if isinstance(found, KafkaError) else found.check_epoch(part.current_leader_epoch)
    )
    if refusal is not None:
        return EpochEndOffset(partition=part.partition, error_code=refusal.code)
    assert not isinstance(found, KafkaError)
    epoch, end_offset = found.end_offset_for_epoch(part.leader_epoch)
    return EpochEndOffset(partition=part.partition, leader_epoch=epoch, end_offset=end_offset)
