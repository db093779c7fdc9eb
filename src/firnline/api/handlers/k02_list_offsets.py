"""ListOffsets: answers with the offsets of timestamps. PURE. Source: spec 3.16."""

from operator import attrgetter
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.api.slices import (
    Slices,
    SlicesWithPauses,
    a_step_a_slice,
    in_slices,
    naming_any,
    taken_out,
)
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.limits import WAIT_MAX_MS
from firnline.base.units import KIB
from firnline.broker.list_offsets import OffsetAsk, Outcome
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from firnline.replica.read import READ_LOG_END

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_TIMEOUT_VERSION = 10
# Takes a millisecond.
_ROWS_PER_SLICE = 500
_NAMED_PER_SLICE = 5_000
_LOOKED_UP_BYTES = 32 * KIB  # of a hundred partitions, before there are rows
_SLICE_BYTES = _ROWS_PER_SLICE * 300  # measured: 254 each


def handle(
    node: "BrokerNode", context: RequestContext, request: ListOffsetsRequest, now_ms: int
) -> Effects:
    """Answer every partition; one that is named twice gets INVALID_REQUEST, once."""
    slices = _ask(node, context, request, now_ms)
    return in_slices(node, context, slices, now_ms, held_bytes=_LOOKED_UP_BYTES)


def _ask(
    node: "BrokerNode", context: RequestContext, request: ListOffsetsRequest, now_ms: int
) -> SlicesWithPauses:
    times_named: dict[tuple[str, int], int] = {}
    left = _NAMED_PER_SLICE
    steps = naming_any(request.topics, attrgetter("partitions"))
    topics, now_ms = yield from a_step_a_slice(steps, now_ms, context)
    for topic in topics:
        for part in topic.partitions:
            key = (topic.name, part.partition_index)
            times_named[key] = times_named.get(key, 0) + 1
            left -= 1
            if left < 0:
                now_ms = yield context.keeps(times_named)
                left = _NAMED_PER_SLICE
    asks = (
        OffsetAsk(
            _TWICE
            if times_named[topic.name, part.partition_index] > 1
            else node.hosted.find(topic.name, part.partition_index),
            part.timestamp,
            part.current_leader_epoch,
        )
        for topic in topics
        for part in topic.partitions
    )
    is_answered = False

    def answer(outcomes: list[Outcome], at_ms: int) -> Effects:
        nonlocal is_answered
        is_answered = True
        return _answer(node, context, request, outcomes, at_ms)

    slices = node.listing_offsets.list_offsets(
        asks,
        isolation=request.isolation_level if request.replica_id < 0 else READ_LOG_END,
        version=context.api_version,
        timeout_ms=(
            min(request.timeout_ms, WAIT_MAX_MS)
            if context.api_version >= _TIMEOUT_VERSION
            else None
        ),
        answer=answer,
        now_ms=now_ms,
    )
    effects = yield from slices
    if not is_answered:
        context.gives_way()  # it waits for the tier
    return effects


def _answer(
    node: "BrokerNode",
    context: RequestContext,
    request: ListOffsetsRequest,
    outcomes: list[Outcome],
    now_ms: int,
) -> Effects:
    slices = _response_slices(context, request, outcomes)
    return in_slices(node, context, slices, now_ms, held_bytes=_SLICE_BYTES)


def _response_slices(
    context: RequestContext, request: ListOffsetsRequest, outcomes: list[Outcome]
) -> Slices:
    by_topic: dict[str, list[ListOffsetsPartitionResponse]] = {}
    topics: list[ListOffsetsTopicResponse] = []
    refused: set[tuple[str, int]] = set()
    in_order = iter(outcomes)
    left = _ROWS_PER_SLICE
    for topic in taken_out(request.topics):
        if left <= 0:
            yield context.keeps(outcomes, by_topic, topics)
            left = _ROWS_PER_SLICE
        left -= 1
        rows = by_topic.get(topic.name)
        if rows is None:
            rows = by_topic[topic.name] = []
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        for part in topic.partitions:
            if left <= 0:
                yield context.keeps(outcomes, by_topic, topics)
                left = _ROWS_PER_SLICE
            left -= 1
            outcome = next(in_order)
            if outcome is _TWICE:
                if (topic.name, part.partition_index) in refused:
                    continue
                refused.add((topic.name, part.partition_index))
            rows.append(_one(part.partition_index, outcome))
    return [context.reply(ListOffsetsResponse(topics=topics))]


def _one(index: int, outcome: Outcome) -> ListOffsetsPartitionResponse:
    if isinstance(outcome, KafkaError):
        return ListOffsetsPartitionResponse(partition_index=index, error_code=outcome.code)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        timestamp=outcome.timestamp,
        offset=outcome.offset,
        leader_epoch=outcome.leader_epoch,
    )


_TWICE = KafkaError(Code.INVALID_REQUEST, "a partition is named twice")
