"""Fetch: positions in, batches out as they lie in the files. PURE.

A partition with nothing to return carries records of length 0, never null (C19). Source: spec C14,
KIP-227, KIP-516, KIP-951; the high watermark tag of version 18 is read and, with no followers yet,
used by nobody.
"""

from functools import lru_cache, partial
from struct import Struct
from typing import TYPE_CHECKING

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_OFFSET, ZERO_UUID, Uuid
from firnline.base.slices import EMPTY_RECORDS, FileRecords
from firnline.broker.fetch import CONSUMER_REPLICA, FetchAnswer, FetchAsk
from firnline.broker.fetch_session import FINAL_EPOCH, NO_SESSION, Wanted
from firnline.protocol.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchablePartitionResponse,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from firnline.protocol.primitives import uvarint
from firnline.protocol.session import Encoded, pieces
from firnline.replica.read import READ_UNCOMMITTED, Diverging, Local, ReadOutcome

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

_TOPIC_ID_VERSION = 13
_LEADER_VERSION = 12
_REPLICA_STATE_VERSION = 15
_SESSION_VERSION = 7
_FLEXIBLE_VERSION = 12
_new = object.__new__
_pack_offsets = Struct(">qqq").pack  # high watermark, last stable offset, log start offset
_pack_length = Struct(">i").pack
_MARK = b"records: here"
_MOVED = (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH)


def handle(
    node: "BrokerNode", context: RequestContext, request: FetchRequest, now_ms: int
) -> Effects:
    """Read what is asked; answer now or when there is enough."""
    version = context.api_version
    uses_ids = version >= _TOPIC_ID_VERSION
    if request.session_epoch == FINAL_EPOCH and len(request.topics) == 1:
        effects = _handle_one(node, context, request)
        if effects is not None:
            return effects
    wanted = []
    for topic in request.topics:
        name = None if uses_ids else topic.topic
        for part in topic.partitions:
            wanted.append(
                Wanted(
                    name,
                    topic.topic_id,
                    part.partition,
                    fetch_offset=part.fetch_offset,
                    max_bytes=part.partition_max_bytes,
                    leader_epoch=part.current_leader_epoch,
                    last_fetched_epoch=part.last_fetched_epoch,
                )
            )
    ask = FetchAsk(
        wanted,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation=request.isolation_level,
        replica_id=(
            request.replica_state.replica_id
            if version >= _REPLICA_STATE_VERSION
            else request.replica_id
        ),
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        uses_ids=uses_ids,
    )
    if request.forgotten_topics_data:
        ask.forgotten = [
            (topic.topic_id if uses_ids else topic.topic, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
    return node.fetching.fetch(ask, partial(_answer, node, context), now_ms)


def _handle_one(
    node: "BrokerNode", context: RequestContext, request: FetchRequest
) -> Effects | None:
    """Answer a request for one partition, without a session, that has what is wanted; else None."""
    version = context.api_version
    topic = request.topics[0]
    if (
        version < _SESSION_VERSION
        or request.session_id != NO_SESSION
        or request.isolation_level != READ_UNCOMMITTED
        or request.replica_id != CONSUMER_REPLICA
        or request.replica_state.replica_id != CONSUMER_REPLICA
        or request.forgotten_topics_data
        or len(topic.partitions) != 1
    ):
        return None
    [part] = topic.partitions
    index = part.partition
    found = (
        node.hosted.by_name.get((topic.topic, index))
        if version < _TOPIC_ID_VERSION
        else node.hosted.by_id.get((topic.topic_id, index))
    )
    if found is None:
        return None
    max_bytes = part.partition_max_bytes
    outcome = node.fetching.read_at_once(
        found,
        part.fetch_offset,
        max_bytes=max_bytes if max_bytes < request.max_bytes else request.max_bytes,
        min_bytes=request.min_bytes,
        leader_epoch=part.current_leader_epoch,
        last_fetched_epoch=part.last_fetched_epoch,
    )
    if outcome is None:
        return None
    records, high_watermark, stable, start, _ = outcome
    before, between, after = _around_records(version, topic.topic, topic.topic_id, index)
    size = len(records)
    length = uvarint(size + 1) if version >= _FLEXIBLE_VERSION else _pack_length(size)
    front = before + _pack_offsets(high_watermark, stable, start) + between + length
    body = records.slices if type(records) is FileRecords else (records,)
    return [context.reply(Encoded([front, *body, after], len(front) + size + len(after)))]


@lru_cache(maxsize=4096)
def _around_records(version: int, topic: str, topic_id: Uuid, index: int) -> tuple[bytes, ...]:
    """Return what always stands in such an answer before its offsets, then before the length of its
    records, and after the records."""
    mark = (0x4B1D_0000_0000_0001, 0x4B1D_0000_0000_0002, 0x4B1D_0000_0000_0003)
    part = FetchablePartitionResponse(
        partition_index=index,
        high_watermark=mark[0],
        last_stable_offset=mark[1],
        log_start_offset=mark[2],
        aborted_transactions=None,
        records=_MARK,
    )
    answered = FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[part])
    sample = FetchResponse(responses=[answered]).write(version)
    before, between, after = pieces(sample, _pack_offsets(*mark), _MARK)
    length_bytes = 1 if version >= _FLEXIBLE_VERSION else 4
    return before, between[:-length_bytes], after


def _answer(node: "BrokerNode", context: RequestContext, answer: FetchAnswer) -> Effects:
    if answer.error is not None:
        return [context.reply(FetchResponse(error_code=answer.error.code))]
    topics: list[FetchableTopicResponse] = []
    partitions: list[FetchablePartitionResponse] = []
    leaders: dict[int, None] = {}
    last: str | bytes | None = None
    for wanted, outcome in answer.outcomes:
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
        else:
            partitions.append(_refused(node, context, wanted, outcome, leaders))
    response: FetchResponse = _new(FetchResponse)
    response.session_id = answer.session_id
    response.responses = topics
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(node_id=place.node_id, host=place.host, port=place.port, rack=place.rack)
            for place in node.leaders.places(leaders, context.listener)
        ]
    return [context.reply(response)]


def _read(index: int, outcome: Local) -> FetchablePartitionResponse:
    # Filled field by field: keywords cost three times as much, and this is the hot path.
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
    """Answer an error or a divergence; records are empty, never null (C19)."""
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
    assert isinstance(outcome, KafkaError)
    response.error_code = outcome.code
    if outcome.code in _MOVED and context.api_version >= _LEADER_VERSION:
        assert wanted.topic is not None or wanted.topic_id != ZERO_UUID
        name = wanted.topic or node.hosted.name_of(wanted.topic_id)
        leader = node.leaders.leader_of(name, wanted.index)
        if leader is not None:
            response.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
            leaders[leader[0]] = None
    return response
