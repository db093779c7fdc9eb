"""Fetch: answers with record batches as they are in the files. PURE.

`at_once` handles the common case, one partition; `handle` every request. A partition without records in the
response has records of length 0, never null (C19). Source: spec C14, KIP-227, KIP-392, KIP-516, KIP-903,
KIP-951. The high watermark tag of version 18 is ignored.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import lru_cache, partial
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING

from firnline.api.context import Connection, RequestContext
from firnline.api.fast_path import Fields
from firnline.api.slices import Slices, a_step_a_slice, cut, in_slices, naming_any
from firnline.base.background import SlicedTask
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_BROKER_EPOCH, NO_OFFSET, ZERO_UUID, Uuid
from firnline.base.limits import WAIT_MAX_MS
from firnline.base.slices import EMPTY_RECORDS
from firnline.broker.fetch import PARTITIONS_PER_SLICE, FetchAnswer, FetchCallback, Fetching
from firnline.broker.fetch_session import (
    Answered,
    FetchAsk,
    FetchContext,
    SessionPartitionKey,
    Wanted,
)
from firnline.broker.large_fetch import LargeFetch
from firnline.protocol.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from firnline.protocol.primitives import uvarint
from firnline.protocol.schema import Part
from firnline.protocol.session import header_tail, pieces
from firnline.replica.partition import Partition
from firnline.replica.read import Diverging, Local, PreferredReadReplica, ReadOutcome

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_RACK_VERSION = 11
_TOPIC_ID_VERSION = 13
_LEADER_VERSION = 12
_REPLICA_STATE_VERSION = 15
_FLEXIBLE_VERSION = 12
# Partitions of a request or a response; each takes 1.5 us.
_ROWS_PER_SLICE = 500
# The object for each partition that is read, in addition to that of the request.
_WANTED_BYTES = 250
_new = object.__new__
_pack_length = Struct(">i").pack
_MARK = b"records: here"
_MOVED = (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH)


def handle(
    node: "BrokerNode", context: RequestContext, request: FetchRequest, now_ms: int
) -> Effects:
    """Read the partitions; respond now, or when there are enough bytes."""
    topics = request.topics
    context.is_urgent = _replica_id(context, request) >= 0
    named: Sequence[FetchTopic | ForgottenTopic] = topics
    if request.forgotten_topics_data:
        named = [*topics, *request.forgotten_topics_data]
    if (
        len(named) > PARTITIONS_PER_SLICE
        or sum([len(topic.partitions) for topic in named]) > PARTITIONS_PER_SLICE
    ):
        slices = _ask_in_slices(node, context, request)
        return in_slices(node, context, slices, now_ms, held_bytes=0)
    wanted: list[Wanted] = []
    uses_ids = context.api_version >= _TOPIC_ID_VERSION
    for topic in topics:
        _want(wanted, topic, topic.partitions, uses_ids)
    forgotten: list[SessionPartitionKey] = []
    for gone in request.forgotten_topics_data:
        _forget(forgotten, gone, gone.partitions, uses_ids)
    ask = _ask(context, request, wanted, forgotten)
    answer = context.makes_replies(partial(_answer, node, context))
    return node.fetching.fetch(ask, answer, now_ms, partial(_large, node, context))


def _replica_id(context: RequestContext, request: FetchRequest) -> int:
    knows_epochs = context.api_version >= _REPLICA_STATE_VERSION
    return request.replica_state.replica_id if knows_epochs else request.replica_id


def _ask_in_slices(node: "BrokerNode", context: RequestContext, request: FetchRequest) -> Slices:
    wanted: list[Wanted] = []
    uses_ids = context.api_version >= _TOPIC_ID_VERSION
    yield []  # decoding them took as long as a slice
    due = _ROWS_PER_SLICE
    steps = naming_any(request.topics, attrgetter("partitions"), takes_out=True)
    topics, _ = yield from a_step_a_slice(steps, 0, context)
    for topic in topics:
        for first in range(0, len(topic.partitions), _ROWS_PER_SLICE):
            _want(wanted, topic, topic.partitions[first : first + _ROWS_PER_SLICE], uses_ids)
            if len(wanted) >= due:
                due = len(wanted) + _ROWS_PER_SLICE
                context.hold(_ROWS_PER_SLICE * _WANTED_BYTES)
                yield context.keeps(wanted)
    steps_of_rest = naming_any(
        request.forgotten_topics_data, attrgetter("partitions"), takes_out=True
    )
    gone_topics, _ = yield from a_step_a_slice(steps_of_rest, 0, context)
    forgotten: list[SessionPartitionKey] = []
    due = _ROWS_PER_SLICE
    for gone in gone_topics:
        for some in cut(gone.partitions, _ROWS_PER_SLICE):
            _forget(forgotten, gone, some, uses_ids)
            if len(forgotten) >= due:
                due = len(forgotten) + _ROWS_PER_SLICE
                yield context.keeps(forgotten)
    now_ms = yield []
    ask = _ask(context, request, wanted, forgotten)
    in_steps = node.fetching.sessions.context_in_steps(
        ask.session_id,
        ask.session_epoch,
        wanted,
        forgotten,
        uses_ids=uses_ids,
        now_ms=now_ms,
        owner=ask.owner,
    )
    with closing(in_steps):  # the client may disconnect meanwhile
        found, now_ms = yield from a_step_a_slice(in_steps, now_ms, context)
    answer = context.makes_replies(partial(_answer, node, context))
    return node.fetching.fetch(ask, answer, now_ms, partial(_large, node, context), found)


def _want(
    wanted: list[Wanted], topic: FetchTopic, parts: Sequence[FetchPartition], uses_ids: bool
) -> None:
    name = None if uses_ids else topic.topic
    for part in parts:
        wanted.append(
            Wanted(
                name,
                topic.topic_id,
                part.partition,
                fetch_offset=part.fetch_offset,
                max_bytes=part.partition_max_bytes,
                leader_epoch=part.current_leader_epoch,
                last_fetched_epoch=part.last_fetched_epoch,
                log_start_offset=part.log_start_offset,
            )
        )


def _forget(
    forgotten: list[SessionPartitionKey],
    topic: ForgottenTopic,
    numbers: Sequence[int],
    uses_ids: bool,
) -> None:
    name: str | Uuid = topic.topic_id if uses_ids else topic.topic
    forgotten += [(name, index) for index in numbers]


def _ask(
    context: RequestContext,
    request: FetchRequest,
    wanted: list[Wanted],
    forgotten: Sequence[SessionPartitionKey],
) -> FetchAsk:
    version = context.api_version
    knows_epochs = version >= _REPLICA_STATE_VERSION
    ask = FetchAsk(
        wanted,
        max_wait_ms=min(request.max_wait_ms, WAIT_MAX_MS),
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation=request.isolation_level,
        replica_id=_replica_id(context, request),
        replica_epoch=request.replica_state.replica_epoch if knows_epochs else NO_BROKER_EPOCH,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        owner=(context.principal, context.peer_host),
        forgotten=forgotten,
        uses_ids=version >= _TOPIC_ID_VERSION,
        when_gone=context.when_gone,
        held=context.response_memory,
    )
    if version >= _RACK_VERSION and ask.replica_id < 0:
        ask.is_any_replica, ask.rack, ask.listener = True, request.rack_id, context.listener
    return ask


def _large(
    node: "BrokerNode",
    context: RequestContext,
    fetching: Fetching,
    ask: FetchAsk,
    fetch_context: FetchContext,
    answer: FetchCallback,
) -> LargeFetch:
    run = partial(in_slices, node, context, held_bytes=0)
    sliced = partial(_answer_in_slices, node, context)
    run_task = partial(_begin_task, node, context)
    return LargeFetch(run, run_task, sliced, fetching, ask, fetch_context, answer)


def _begin_task(
    node: "BrokerNode", context: RequestContext, work: SlicedTask, now_ms: int
) -> Effects:
    return node.sliced_tasks.begin(work, now_ms, is_urgent=context.is_urgent)


def at_once(
    node: "BrokerNode", connection: Connection, asked: Fields, now_ms: int
) -> tuple[Part, ...] | None:
    """Return the parts of the response of a common request, if there are enough bytes; else None."""
    (
        key_and_version, correlation_id, topic, index, offset, part_bytes, max_bytes, min_bytes,
        epoch, session_id, session_epoch,
    ) = asked  # fmt: skip
    version = key_and_version & 0xFFFF
    if session_id:
        uses_ids = version >= _TOPIC_ID_VERSION
        news = topic and Wanted(
            None if uses_ids else topic,
            topic if uses_ids else ZERO_UUID,
            index,
            fetch_offset=offset,
            max_bytes=part_bytes,
            leader_epoch=epoch,
        )
        owner = (connection.principal, connection.peer_host)
        limits = (max_bytes, min_bytes, uses_ids, owner)
        session_read = node.fetching.read_in_session(
            session_id, session_epoch, news, limits, now_ms
        )
        if session_read is None:
            return None
        wanted, (records, high_watermark, stable, start) = session_read
        topic, index = wanted.topic_id if uses_ids else wanted.topic, wanted.index
    else:
        hosted = node.hosted
        by_topic = hosted.by_name if version < _TOPIC_ID_VERSION else hosted.by_id
        found = by_topic.get((topic, index))
        if found is None:
            return None
        limit = part_bytes if part_bytes < max_bytes else max_bytes
        read = node.fetching.read_at_once(found, offset, limit, min_bytes, epoch)
        if read is None:
            return None
        records, high_watermark, stable, start = read
    size = records[2]
    pack, fixed_bytes, before, between, after = _around_records(version, topic, index, session_id)
    if version >= _FLEXIBLE_VERSION:
        length = uvarint(size + 1)
        fixed_bytes += len(length)
    else:
        length = _pack_length(size)
    front = pack(fixed_bytes + size, correlation_id, before, high_watermark, stable, start, between)
    return front + length, records, after


@lru_cache(maxsize=4096)
def _around_records(
    version: int, topic: str | Uuid, index: int, session_id: int
) -> tuple[Callable[..., bytes], int, bytes, bytes, bytes]:
    """Return a template for the frame of a response: (pack, fixed_bytes, before, between, after).

    `pack(size, correlation_id, before, high watermark, last stable offset, log start offset, between)` makes
    the part before the length of the records; `after` follows the records. `fixed_bytes` is the size without
    the records and, where it is a varint, their length.
    """
    mark = (0x4B1D_0000_0000_0001, 0x4B1D_0000_0000_0002, 0x4B1D_0000_0000_0003)
    part = FetchablePartitionResponse(
        partition_index=index,
        high_watermark=mark[0],
        last_stable_offset=mark[1],
        log_start_offset=mark[2],
        aborted_transactions=None,
        records=_MARK,
    )
    answered = FetchableTopicResponse(
        **{"topic_id" if version >= _TOPIC_ID_VERSION else "topic": topic}, partitions=[part]
    )
    sample = FetchResponse(session_id=session_id, responses=[answered]).write(version)
    before, between, after = pieces(sample, Struct(">qqq").pack(*mark), _MARK)
    length_bytes = 1 if version >= _FLEXIBLE_VERSION else 4
    before = header_tail(FetchRequest, version) + before
    between = between[:-length_bytes]
    form = Struct(f">ii{len(before)}sqqq{len(between)}s")
    fixed_bytes = form.size - 4 + len(after) + (0 if version >= _FLEXIBLE_VERSION else 4)
    return form.pack, fixed_bytes, before, between, after


def _answer(node: "BrokerNode", context: RequestContext, answer: FetchAnswer) -> Effects:
    if answer.error is not None:
        return [context.reply(FetchResponse(error_code=answer.error.code))]
    topics: list[FetchableTopicResponse] = []
    leaders: dict[int, None] = {}
    _add_outcomes(node, context, answer.outcomes, topics, leaders)
    return _reply(node, context, answer.session_id, topics, leaders)


def _answer_in_slices(node: "BrokerNode", context: RequestContext, answer: FetchAnswer) -> Slices:
    topics: list[FetchableTopicResponse] = []
    leaders: dict[int, None] = {}
    for first in range(0, len(answer.outcomes), _ROWS_PER_SLICE):
        if first:
            yield []
        portion = answer.outcomes[first : first + _ROWS_PER_SLICE]
        _add_outcomes(node, context, portion, topics, leaders)
    return _reply(node, context, answer.session_id, topics, leaders)


def _add_outcomes(
    node: "BrokerNode",
    context: RequestContext,
    outcomes: Answered,
    topics: list[FetchableTopicResponse],
    leaders: dict[int, None],
) -> None:
    """Add `outcomes` to the response; adjacent ones of one topic get one row for the topic."""
    partitions: list[FetchablePartitionResponse] = []
    last: str | bytes | None = None
    if topics:
        partitions = topics[-1].partitions  # type: ignore[assignment]
        last = topics[-1].topic or topics[-1].topic_id
    for wanted, outcome in outcomes:
        topic = wanted.topic_id if wanted.topic is None else wanted.topic
        if topic != last:
            last = topic
            partitions = []
            found: FetchableTopicResponse = _new(FetchableTopicResponse)
            found.topic = wanted.topic or ""
            found.topic_id = wanted.topic_id
            found.partitions = partitions
            topics.append(found)
        if type(outcome) is Local:
            partitions.append(_read(wanted.index, outcome))
            if len(outcome.records):
                _count_sent(wanted, context, len(outcome.records))
        else:
            partitions.append(_refused(node, context, wanted, outcome, leaders))


def _count_sent(wanted: Wanted, context: RequestContext, size_bytes: int) -> None:
    """Count records that are sent to a consumer or a follower."""
    if not isinstance(wanted.hosted, Partition):
        return
    if context.is_urgent:  # as a follower's Fetch is, and no consumer's
        wanted.hosted.traffic.replicated_out_bytes += size_bytes
    else:
        wanted.hosted.traffic.bytes_out += size_bytes


def _count_failed(node: "BrokerNode", wanted: Wanted) -> None:
    if isinstance(wanted.hosted, Partition):
        wanted.hosted.traffic.failed_fetches += 1
    else:
        elsewhere = node.hosted.traffic.elsewhere
        elsewhere.fetches += 1
        elsewhere.failed_fetches += 1


def _reply(
    node: "BrokerNode",
    context: RequestContext,
    session_id: int,
    topics: list[FetchableTopicResponse],
    leaders: dict[int, None],
) -> Effects:
    response: FetchResponse = _new(FetchResponse)
    response.session_id = session_id
    response.responses = topics
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(node_id=place.node_id, host=place.host, port=place.port, rack=place.rack)
            for place in node.leaders.addresses(leaders, context.listener)
        ]
    return [context.reply(response)]


def _read(index: int, outcome: Local) -> FetchablePartitionResponse:
    # The fields are set one by one, because keyword arguments take three times as long.
    response: FetchablePartitionResponse = _new(FetchablePartitionResponse)
    response.partition_index = index
    response.error_code = 0
    (
        response.records,
        response.high_watermark,
        response.last_stable_offset,
        response.log_start_offset,
        aborted,
    ) = outcome
    response.aborted_transactions = (
        None
        if aborted is None
        else [
            AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset)
            for a in aborted
        ]
    )
    return response


def _refused(
    node: "BrokerNode",
    context: RequestContext,
    wanted: Wanted,
    outcome: ReadOutcome,
    leaders: dict[int, None],
) -> FetchablePartitionResponse:
    """Set an error, a diverging epoch, or a preferred replica; records are empty, never null (C19)."""
    response = FetchablePartitionResponse(
        partition_index=wanted.index,
        high_watermark=NO_OFFSET,
        aborted_transactions=None,
        records=EMPTY_RECORDS,
    )
    if isinstance(outcome, Diverging):
        response.high_watermark = outcome.high_watermark
        response.last_stable_offset = outcome.last_stable_offset
        response.log_start_offset = outcome.log_start_offset
        response.diverging_epoch = EpochEndOffset(
            epoch=outcome.epoch, end_offset=outcome.end_offset
        )
        return response
    if isinstance(outcome, PreferredReadReplica):
        response.preferred_read_replica = outcome.replica_id
        response.high_watermark = outcome.high_watermark
        response.last_stable_offset = outcome.last_stable_offset
        response.log_start_offset = outcome.log_start_offset
        return response
    assert isinstance(outcome, KafkaError)
    _count_failed(node, wanted)
    response.error_code = outcome.code
    if outcome.code in _MOVED and context.api_version >= _LEADER_VERSION:
        assert wanted.topic is not None or wanted.topic_id != ZERO_UUID
        name = wanted.topic or node.hosted.name_of(wanted.topic_id)
        leader = node.leaders.leader_of(name, wanted.index)
        if leader is not None:
            response.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
            leaders[leader[0]] = None
    return response
