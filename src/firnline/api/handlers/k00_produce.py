"""Produce: appends record batches, and answers with their offsets. PURE.

`at_once` handles the common case, one batch for one partition; `handle` every request. Both call the same
appends (broker/produce). acks=0 has no response: after an error the connection is closed, so that the
producer notices. Source: spec C13, KIP-951.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any

from firnline.api.context import Connection, RequestContext
from firnline.api.fast_path import Fields
from firnline.api.slices import (
    Slices,
    SlicesWithPauses,
    a_step_a_slice,
    in_slices,
    naming_any,
    taken_out,
)
from firnline.base.effects import Appended, Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_OFFSET, Uuid
from firnline.base.limits import WAIT_MAX_MS
from firnline.broker.produce import Outcome, Recompression, Write
from firnline.protocol.messages.k00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from firnline.protocol.session import header_tail, pieces
from firnline.records.batch import COMPRESSION_MASK
from firnline.records.compression import ZSTD
from firnline.replica.partition import ACKS_ALL

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_new = object.__new__
_TOPIC_ID_VERSION = 13
_LEADER_VERSION = 10
_ZSTD_VERSION = 7
# A batch takes about 10 us, a megabyte a millisecond.
_BATCHES_PER_SLICE = 100
_BYTES_PER_SLICE = 1 << 20
_OUTCOMES_PER_SLICE = 500
_ATTRIBUTES = 5  # their place in a BatchHeader
# Low byte of the attributes of the first batch.
_ATTRIBUTES_POSITION = 22


def handle(
    node: "BrokerNode", context: RequestContext, request: ProduceRequest, now_ms: int
) -> Effects:
    """Append the batches; respond when `acks` is satisfied."""
    topics = request.topic_data
    answer = context.makes_replies(partial(_answer, node, context, request))
    origin = node.producing.origin_at(context.listener)
    version = context.api_version
    append = partial(
        node.producing.produce_in_slices,
        acks=request.acks,
        timeout_ms=min(request.timeout_ms, WAIT_MAX_MS),
        answer=answer,
        origin=origin,
    )
    if context.is_large:  # it was decoded in slices
        appends = _append_many(node, context, topics, append, now_ms)
    elif _is_large(topics):
        appends = append(
            _in_slices(node, version, topics, owns_bytes=context.owns_bytes), now_ms=now_ms
        )
    else:
        writes = [
            _write(node, version, topic, data) for topic in topics for data in topic.partition_data
        ]
        if not Recompression(writes, now_ms):
            return node.producing.produce(
                writes,
                acks=request.acks,
                timeout_ms=min(request.timeout_ms, WAIT_MAX_MS),
                answer=answer,
                now_ms=now_ms,
                origin=origin,
            )
        appends = append((writes,), now_ms=now_ms)
    # A producer with acks=0 may have disconnected already.
    return in_slices(node, context, appends, now_ms, to_the_end=True)


def _append_many(
    node: "BrokerNode",
    context: RequestContext,
    topics: Sequence[TopicProduceData],
    append: Callable[..., SlicesWithPauses],
    now_ms: int,
) -> SlicesWithPauses:
    """Append the batches of a request that was decoded in slices."""
    steps = naming_any(topics, attrgetter("partition_data"))
    named, now_ms = yield from a_step_a_slice(steps, now_ms, context)
    slices = _in_slices(node, context.api_version, named, owns_bytes=True)
    return (yield from append(slices, now_ms=now_ms))


def _is_large(topics: Sequence[TopicProduceData]) -> bool:
    sizes = [len(data.records or b"") for topic in topics for data in topic.partition_data]
    return len(sizes) > _BATCHES_PER_SLICE or (len(sizes) > 1 and sum(sizes) > _BYTES_PER_SLICE)


def _in_slices(
    node: "BrokerNode", version: int, topics: Sequence[TopicProduceData], *, owns_bytes: bool
) -> Iterator[list[Write]]:
    """Yield the batches in slices of about a millisecond, and look up the partitions of each slice then."""
    rows = ((topic, data) for topic in topics for data in topic.partition_data)
    rest = [] if owns_bytes else list(rows)
    size = 0
    writes: list[Write] = []
    for place, (topic, data) in enumerate(rest or rows, 1):
        size += len(data.records or b"")
        writes.append(_write(node, version, topic, data))
        if len(writes) < _BATCHES_PER_SLICE and size < _BYTES_PER_SLICE:
            continue
        if rest:
            # After the first slice the receive buffer is used for the next request.
            for _, later in rest[place:]:
                later.records = None if later.records is None else bytearray(later.records)  # type: ignore[arg-type]
            rest = []
        yield writes
        size, writes = 0, []
    if writes:
        yield writes


def _write(
    node: "BrokerNode", version: int, topic: TopicProduceData, data: PartitionProduceData
) -> Write:
    found = (
        node.hosted.find(topic.name, data.index)
        if version < _TOPIC_ID_VERSION
        else node.hosted.find_by_id(topic.topic_id, data.index)
    )
    records = data.records
    # The receive buffer is used again after this call: nothing may keep a view of it.
    data.records = None
    if version < _ZSTD_VERSION and _is_zstd(records):
        found = _ZSTD_TOO_EARLY
    return (found, records)  # type: ignore[return-value]


def at_once(
    node: "BrokerNode", connection: Connection, asked: Fields, now_ms: int
) -> bytes | Effects | None:
    """Append the one batch of a decoded request; its header and CRC are checked. Responds as `handle` does.

    Returns the frame of the response, or effects if it has to wait or the append failed. None: nothing was
    done, and the request needs `handle`.
    """
    version, correlation_id, topic, index, acks, timeout_ms, records, header = asked
    hosted = node.hosted
    found = (hosted.by_name if version < _TOPIC_ID_VERSION else hosted.by_id).get((topic, index))
    if found is None or (
        version < _ZSTD_VERSION and header[_ATTRIBUTES] & COMPRESSION_MASK == ZSTD
    ):
        return None
    producing = node.producing
    completed: Effects = []
    outcome = producing.append_checked(found, records, header, acks, completed, now_ms)
    waits = False
    if type(outcome) is Appended:
        waits = found.needs_flush(acks) or (
            acks == ACKS_ALL and found.log.high_watermark <= outcome.last_offset
        )
        if acks and not waits and not completed:
            return _frame(version, correlation_id, topic, index, outcome)
    elif outcome is None:
        return None
    context = RequestContext(connection, 0, version, correlation_id, None, now_ms)
    answer = context.makes_replies(partial(_answer_one, node, context, topic, index, acks))
    if not waits:
        return answer([outcome], now_ms) + completed
    until_ms = now_ms + min(timeout_ms, WAIT_MAX_MS)
    assert isinstance(outcome, Appended)
    return completed + producing.await_answer(found, outcome, acks, until_ms, answer, now_ms)


def _answer_one(
    node: "BrokerNode",
    context: RequestContext,
    topic: str | Uuid,
    index: int,
    acks: int,
    outcomes: list[Outcome],
    now_ms: int,
) -> Effects:
    """Send the response of a request that `at_once` began."""
    version, outcome = context.api_version, outcomes[0]
    if acks and type(outcome) is Appended:
        return [context.reply(_frame(version, context.correlation_id, topic, index, outcome))]
    named: Any = {"topic_id" if version >= _TOPIC_ID_VERSION else "name": topic}
    data = TopicProduceData(partition_data=[PartitionProduceData(index=index)], **named)
    request = ProduceRequest(acks=acks, topic_data=[data])
    return _answer(node, context, request, outcomes, now_ms)


def _frame(
    version: int, correlation_id: int, topic: str | Uuid, index: int, outcome: Appended
) -> bytes:
    """Return the frame of a response with the offsets of one batch."""
    pack, size, before, after = _placed(version, topic, index)
    first, _, time_ms, start = outcome
    return pack(size, correlation_id, before, first, time_ms, start, after)


@lru_cache(maxsize=4096)
def _placed(
    version: int, topic: str | Uuid, index: int
) -> tuple[Callable[..., bytes], int, bytes, bytes]:
    """Return a template for the frame of a response: (pack, size, before, after).

    Call `pack(size, correlation_id, before, base offset, append time, log start offset, after)`.
    """
    mark = (0x4B1D_0000_0000_0001, 0x4B1D_0000_0000_0002, 0x4B1D_0000_0000_0003)
    part = PartitionProduceResponse(
        index=index, base_offset=mark[0], log_append_time_ms=mark[1], log_start_offset=mark[2]
    )
    answered = TopicProduceResponse(
        **{"topic_id" if version >= _TOPIC_ID_VERSION else "name": topic},
        partition_responses=[part],
    )
    sample = ProduceResponse(responses=[answered]).write(version)
    before, after = pieces(sample, Struct(">qqq").pack(*mark))
    before = header_tail(ProduceRequest, version) + before
    form = Struct(f">ii{len(before)}sqqq{len(after)}s")
    return form.pack, form.size - 4, before, after


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
        _count_unsaid(node, request, outcomes)
        has_failed = any(type(outcome) is KafkaError for outcome in outcomes)
        return [context.close() if has_failed else context.no_reply()]
    slices = _response_slices(node, context, request, outcomes)
    return in_slices(node, context, slices, now_ms, to_the_end=True)


def _count_unsaid(node: "BrokerNode", request: ProduceRequest, outcomes: Sequence[Outcome]) -> None:
    """Count the appends that failed of a request that has no response."""
    if any(type(outcome) is KafkaError for outcome in outcomes):
        rest = iter(outcomes)
        for topic in request.topic_data:
            for _ in topic.partition_data:
                if type(next(rest, None)) is KafkaError:
                    _count_failed(node, topic.name or node.hosted.name_of(topic.topic_id))


def _count_failed(node: "BrokerNode", name: str | None) -> None:
    traffic = node.hosted.traffic
    found = traffic.by_topic.get(name) if name else None
    if found is None:
        found = traffic.elsewhere
        found.produces += 1
    found.failed_produces += 1


def _response_slices(
    node: "BrokerNode",
    context: RequestContext,
    request: ProduceRequest,
    outcomes: list[Outcome],
) -> Slices:
    responses = []
    leaders: dict[int, None] = {}
    rest = iter(outcomes)
    left = _OUTCOMES_PER_SLICE
    for topic in taken_out(request.topic_data):
        left -= 1
        if left < 0:
            yield []
            left = _OUTCOMES_PER_SLICE
        partitions = []
        for data in topic.partition_data:
            outcome = next(rest)
            left -= 1
            if left < 0:
                yield context.keeps(outcomes)
                left = _OUTCOMES_PER_SLICE
            if type(outcome) is Appended:
                # The fields are set one by one, because keyword arguments take three times as long.
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
            for place in node.leaders.addresses(leaders, context.listener)
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
    name = topic.name or node.hosted.name_of(topic.topic_id)
    _count_failed(node, name)
    response = PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=NO_OFFSET, error_message=error.why or None
    )
    batch_index = error.facts.get("batch_index")
    if isinstance(batch_index, int):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=error.why)
        ]
    if error.code == Code.NOT_LEADER_OR_FOLLOWER and context.api_version >= _LEADER_VERSION:
        leader = node.leaders.leader_of(name, index)
        if leader is not None:
            leaders[leader[0]] = None
            response.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    return response


_ZSTD_TOO_EARLY = KafkaError(Code.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
