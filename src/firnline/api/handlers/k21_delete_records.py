"""DeleteRecords: move log starts up. PURE. Source: KIP-107, spec T44."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, in_slices
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_OFFSET
from firnline.base.limits import WAIT_MAX_MS
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from firnline.replica.delete_records import Deleted, delete_records, protected_topic

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode
    from firnline.log.log import Log

# A millisecond.
_PARTITIONS_PER_SLICE = 300

Outcome = int | Deleted | KafkaError


def handle(
    node: "BrokerNode", context: RequestContext, request: DeleteRecordsRequest, now_ms: int
) -> Effects:
    """Answer the low watermark of each partition, once no power cut brings back what is below it."""
    asked = [(topic.name, part) for topic in request.topics for part in topic.partitions]
    slices = _delete(node, context, request, asked, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _delete(
    node: "BrokerNode",
    context: RequestContext,
    request: DeleteRecordsRequest,
    asked: Sequence[tuple[str, DeleteRecordsPartition]],
    now_ms: int,
) -> Slices:
    outcomes: list[Outcome] = []

    @context.makes_replies
    def replicated(lows: list[int | KafkaError], at_ms: int) -> Effects:
        in_order = iter(lows)
        found = [next(in_order) if isinstance(each, Deleted) else each for each in outcomes]
        return [context.reply(_response(request, found))]

    def kept(failed: "list[Log]", at_ms: int) -> Effects:
        broken = {log.topic_partition: None for log in failed}
        for place, (name, part) in enumerate(asked):
            if (name, part.partition_index) in broken:
                outcomes[place] = _FAILED
        return node.hosted.deletions.when_replicated(
            [each for each in outcomes if isinstance(each, Deleted)],
            timeout_ms=min(request.timeout_ms, WAIT_MAX_MS),
            then=replicated,
            now_ms=at_ms,
        )

    for name, part in asked:
        if outcomes and len(outcomes) % _PARTITIONS_PER_SLICE == 0:
            now_ms = yield []
        outcomes.append(_one(node, name, part.partition_index, part.offset))
    for place, each in enumerate(outcomes):
        # Since its slice a partition may have gone, and its log with it.
        if isinstance(each, Deleted) and each.partition.refusal is not None:
            outcomes[place] = each.partition.refusal
    # Also where the start was there already: the one who moved it may still wait for the disk.
    moved = [each.partition.log for each in outcomes if isinstance(each, Deleted)]
    return node.storage.keep_log_starts(moved, kept, now_ms)


def _one(node: "BrokerNode", topic: str, index: int, before_offset: int) -> Deleted | KafkaError:
    found = protected_topic(topic) or node.hosted.find(topic, index)
    return found if isinstance(found, KafkaError) else delete_records(found, before_offset)


def _response(request: DeleteRecordsRequest, found: Sequence[Outcome]) -> DeleteRecordsResponse:
    in_order = iter(found)
    topics = [
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=[_result(part.partition_index, next(in_order)) for part in topic.partitions],
        )
        for topic in request.topics
    ]
    return DeleteRecordsResponse(topics=topics)


def _result(index: int, outcome: Outcome) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, KafkaError):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=NO_OFFSET, error_code=outcome.code
        )
    assert isinstance(outcome, int)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=outcome)


_FAILED = KafkaError(Code.KAFKA_STORAGE_ERROR, "where the log begins could not be written down")
