"""Produce: batches in, places out. PURE.

acks=0 has no answer; an error under acks=0 closes the connection, which is how the producer learns of
it. Source: spec C13, KIP-951.
"""

from functools import lru_cache, partial
from struct import Struct
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Appended, Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_OFFSET, Uuid
from firnline.broker.produce import Outcome, Write
from firnline.protocol.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from firnline.protocol.session import Encoded, pieces
from firnline.records.batch import COMPRESSION_MASK
from firnline.records.compression import ZSTD

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_new = object.__new__
_TOPIC_ID_VERSION = 13
_LEADER_VERSION = 10
_ZSTD_VERSION = 7
_START_OFFSET_VERSION = 5
_pack_place = Struct(">qqq").pack  # base offset, log append time, log start offset
# Low byte of the attributes of the first batch.
_ATTRIBUTES_POSITION = 22


def handle(
    node: "BrokerNode", context: RequestContext, request: ProduceRequest, now_ms: int
) -> Effects:
    """Append what was sent; answer when `acks` is reached."""
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        effects = _handle_one(node, context, request, now_ms)
        if effects is not None:
            return effects
    hosted = node.hosted
    version = context.api_version
    writes: list[Write] = []
    for topic in topics:
        for data in topic.partition_data:
            found = (
                hosted.find(topic.name, data.index)
                if version < _TOPIC_ID_VERSION
                else hosted.find_by_id(topic.topic_id, data.index)
            )
            records = data.records
            # The receive buffer is used again once this call is over: nobody may keep a view of it.
            data.records = None
            if version < _ZSTD_VERSION and _is_zstd(records):
                found = _ZSTD_TOO_EARLY
            writes.append((found, records))  # type: ignore[arg-type]
    return node.producing.produce(
        writes,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        answer=partial(_answer, node, context, request),
        now_ms=now_ms,
    )


def _handle_one(
    node: "BrokerNode", context: RequestContext, request: ProduceRequest, now_ms: int
) -> Effects | None:
    """Append to the one partition that is asked for; None where that is not all there is to it."""
    topic = request.topic_data[0]
    data = topic.partition_data[0]
    version = context.api_version
    if version < _START_OFFSET_VERSION:
        return None
    found = (
        node.hosted.by_name.get((topic.name, data.index))
        if version < _TOPIC_ID_VERSION
        else node.hosted.by_id.get((topic.topic_id, data.index))
    )
    records = data.records
    if found is None:
        return None
    if version < _ZSTD_VERSION and _is_zstd(records):
        return None
    outcome = node.producing.append_at_once(found, records, request.acks, now_ms)  # type: ignore[arg-type]
    if outcome is None:
        return None
    # The receive buffer is used again once this call is over: nobody may keep a view of it.
    data.records = None
    if type(outcome) is KafkaError:
        effects = _answer(node, context, request, [outcome], now_ms)
        return effects + node.producing.told_of_failure(found, now_ms)
    assert type(outcome) is Appended
    before, after = _around_place(version, topic.name, topic.topic_id, data.index)
    body = (
        before
        + _pack_place(outcome.base_offset, outcome.log_append_time_ms, outcome.log_start_offset)
        + after
    )
    return [context.reply(Encoded([body], len(body)))]


@lru_cache(maxsize=4096)
def _around_place(version: int, topic: str, topic_id: Uuid, index: int) -> tuple[bytes, ...]:
    """Return what always stands in the answer to an append before its place in the log, and after it."""
    mark = (0x4B1D_0000_0000_0001, 0x4B1D_0000_0000_0002, 0x4B1D_0000_0000_0003)
    part = PartitionProduceResponse(
        index=index, base_offset=mark[0], log_append_time_ms=mark[1], log_start_offset=mark[2]
    )
    answered = TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=[part])
    return pieces(ProduceResponse(responses=[answered]).write(version), _pack_place(*mark))


def _is_zstd(records: object) -> bool:
    return (
        isinstance(records, memoryview | bytearray)
        and len(records) > _ATTRIBUTES_POSITION
        and records[_ATTRIBUTES_POSITION] & COMPRESSION_MASK == ZSTD
    )


def _answer(
    node: "BrokerNode",
    context: RequestContext,
    request: ProduceRequest,
    outcomes: list[Outcome],
    now_ms: int,
) -> Effects:
    if request.acks == 0:
        has_failed = any(type(outcome) is KafkaError for outcome in outcomes)
        return [context.close() if has_failed else context.no_reply()]
    responses = []
    leaders: dict[int, None] = {}
    rest = iter(outcomes)
    for topic in request.topic_data:
        partitions = []
        for data in topic.partition_data:
            outcome = next(rest)
            if type(outcome) is Appended:
                # Filled field by field: keywords cost three times as much, and this is the hot path.
                part: PartitionProduceResponse = _new(PartitionProduceResponse)
                part.index = data.index
                part.base_offset = outcome.base_offset
                part.log_append_time_ms = outcome.log_append_time_ms
                part.log_start_offset = outcome.log_start_offset
                partitions.append(part)
            else:
                assert isinstance(outcome, KafkaError)
                partitions.append(_failed(node, context, topic, data.index, outcome, leaders))
        answered: TopicProduceResponse = _new(TopicProduceResponse)
        answered.name = topic.name
        answered.topic_id = topic.topic_id
        answered.partition_responses = partitions
        responses.append(answered)
    response: ProduceResponse = _new(ProduceResponse)
    response.responses = responses
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(node_id=place.node_id, host=place.host, port=place.port, rack=place.rack)
            for place in node.leaders.places(leaders, context.listener)
        ]
    return [context.reply(response)]


def _failed(
    node: "BrokerNode",
    context: RequestContext,
    topic: TopicProduceData,
    index: int,
    error: KafkaError,
    leaders: dict[int, None],
) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=NO_OFFSET, error_message=error.why or None
    )
    batch_index = error.facts.get("batch_index")
    if isinstance(batch_index, int):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=error.why)
        ]
    if error.code == Code.NOT_LEADER_OR_FOLLOWER and context.api_version >= _LEADER_VERSION:
        name = topic.name or node.hosted.name_of(topic.topic_id)
        leader = node.leaders.leader_of(name, index)
        if leader is not None:
            leaders[leader[0]] = None
            response.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    return response


_ZSTD_TOO_EARLY = KafkaError(Code.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
