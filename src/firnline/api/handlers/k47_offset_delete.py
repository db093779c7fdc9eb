"""OffsetDelete: deletes committed offsets of a group. PURE. Source: KIP-496."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import Outstanding, Slices, a_step_a_slice, in_slices, let_go, taken_out
from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.base.ids import TopicPartition
from firnline.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

# An offset takes about 10 us, half of it for the tombstone; one that does not exist a microsecond.
_TOMBS_PER_SLICE = 100
_ROWS_PER_SLICE = 1_000


def handle(
    node: "BrokerNode", context: RequestContext, request: OffsetDeleteRequest, now_ms: int
) -> Effects:
    slices = _delete(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _delete(
    node: "BrokerNode", context: RequestContext, request: OffsetDeleteRequest, now_ms: int
) -> Slices:
    """Delete offsets in portions, each as one batch. An error of the group replaces all rows."""
    topics: list[OffsetDeleteResponseTopic] = []
    response = OffsetDeleteResponse(topics=topics)
    rows: list[OffsetDeleteResponsePartition] = []  # the rows for the coordinator's codes, in order
    gone: list[TopicPartition] = []

    @context.makes_replies
    def finish() -> Effects:
        return in_slices(node, context, slices(), now_ms)

    def slices() -> Slices:
        if response.error_code:
            response.topics = []
            yield from let_go(topics)
        return [context.reply(response)]

    def settle(
        rows: Sequence[OffsetDeleteResponsePartition], code: Code, codes: Sequence[Code]
    ) -> Effects:
        if code is not Code.NONE:
            response.error_code = code
        for row, found in zip(rows, codes, strict=False):  # no codes if the group has an error
            row.error_code = found
        return outstanding.one_less()

    def delete(at_ms: int) -> Effects:
        outstanding.left += 1
        answer = partial(settle, rows)
        return node.groups.delete_offsets(request.group_id, gone, subscribed, answer, at_ms)

    outstanding = Outstanding(finish)
    steps = node.groups.find_subscribed(request.group_id, node.image.topics_by_name)
    subscribed, now_ms = yield from a_step_a_slice(steps, now_ms, context)
    count = 0
    for wanted in taken_out(request.topics):
        if count >= _ROWS_PER_SLICE:
            now_ms = yield delete(now_ms)
            rows, gone, count = [], [], 0
        count += 1
        parts: list[OffsetDeleteResponsePartition] = []
        topics.append(OffsetDeleteResponseTopic(name=wanted.name, partitions=parts))
        for part in wanted.partitions:
            index = part.partition_index
            row = OffsetDeleteResponsePartition(partition_index=index)
            parts.append(row)
            count += 1
            if len(gone) >= _TOMBS_PER_SLICE or count > _ROWS_PER_SLICE:
                now_ms = yield delete(now_ms)
                rows, gone, count = [], [], 0
            topic = node.image.topics_by_name.get(wanted.name)
            if topic is None or index not in topic.partitions:
                row.error_code = Code.UNKNOWN_TOPIC_OR_PARTITION
                continue
            rows.append(row)
            gone.append(TopicPartition(wanted.name, index))
    effects = delete(now_ms)
    return effects + outstanding.one_less()
