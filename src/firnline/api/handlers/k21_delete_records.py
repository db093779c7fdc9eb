"""DeleteRecords: raises log start offsets. PURE. Source: KIP-107, spec T44."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Slices, in_slices, taken_out
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_OFFSET
from firnline.base.limits import WAIT_MAX_MS
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from firnline.replica.delete_records import Deleted, delete_records, protected_topic

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode
    from firnline.log.log import Log

# Takes a millisecond.
_ROWS_PER_SLICE = 300

# The row of a partition, and the deletion that it waits for.
Waiting = tuple[DeleteRecordsPartitionResult, Deleted]


def handle(
    node: "BrokerNode", context: RequestContext, request: DeleteRecordsRequest, now_ms: int
) -> Effects:
    """Answer with the low watermark of each partition, once the deletion survives a power cut."""
    slices = _delete(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _delete(
    node: "BrokerNode", context: RequestContext, request: DeleteRecordsRequest, now_ms: int
) -> Slices:
    topics: list[DeleteRecordsTopicResult] = []
    waiting: list[Waiting] = []

    @context.makes_replies
    def replicated(waiting: Sequence[Waiting], lows: list[int | KafkaError], at_ms: int) -> Effects:
        for (row, _), low in zip(waiting, lows, strict=True):
            if isinstance(low, KafkaError):
                row.error_code = low.code
            else:
                row.low_watermark = low
        return [context.reply(DeleteRecordsResponse(topics=topics))]

    def kept(failed: "list[Log]", at_ms: int) -> Effects:
        broken = {log.topic_partition for log in failed}
        left = _refuse(
            waiting, lambda each: _FAILED if each.partition.topic_partition in broken else None
        )
        return node.hosted.deletions.when_replicated(
            [each for _, each in left],
            timeout_ms=min(request.timeout_ms, WAIT_MAX_MS),
            then=partial(replicated, left),
            now_ms=at_ms,
        )

    count = 0
    for topic in taken_out(request.topics):
        rows: list[DeleteRecordsPartitionResult] = []
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=rows))
        if count >= _ROWS_PER_SLICE:
            now_ms = yield context.keeps(topics)
            count = 0
        count += 1
        for part in taken_out(topic.partitions):
            if count >= _ROWS_PER_SLICE:
                now_ms = yield context.keeps(topics)
                count = 0
            count += 1
            index = part.partition_index
            row = DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_OFFSET)
            rows.append(row)
            outcome = _one(node, topic.name, index, part.offset)
            if isinstance(outcome, KafkaError):
                row.error_code = outcome.code
            else:
                waiting.append((row, outcome))
    # A partition may have been deleted since its slice, with its log.
    waiting = _refuse(waiting, lambda each: each.partition.refusal)
    # Also if the log start offset was there already: the request that raised it may still wait for the disk.
    moved = [each.partition.log for _, each in waiting]
    return node.storage.keep_log_starts(moved, kept, now_ms)


def _one(node: "BrokerNode", topic: str, index: int, before_offset: int) -> Deleted | KafkaError:
    found = protected_topic(topic) or node.hosted.find(topic, index)
    return found if isinstance(found, KafkaError) else delete_records(found, before_offset)


def _refuse(
    waiting: Sequence[Waiting], refusal: Callable[[Deleted], KafkaError | None]
) -> list[Waiting]:
    """Answer the partitions that refuse requests by now; return the others."""
    left = []
    for row, each in waiting:
        error = refusal(each)
        if error is None:
            left.append((row, each))
        else:
            row.error_code = error.code
    return left


_FAILED = KafkaError(
    Code.KAFKA_STORAGE_ERROR, "the log start offset could not be written to the disk"
)
