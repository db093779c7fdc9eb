"""Following other brokers on the wire: Fetch as a follower, ListOffsets where a log is out of range. PURE.

The version of Fetch follows metadata.version, so that a cluster in the middle of an upgrade speaks what all
of it knows; from version 15 on it says which incarnation of this broker asks. Source: KIP-227, KIP-516,
KIP-903; spec I12.
"""

from collections.abc import Callable, Sequence
from typing import Any

from firnline.base.effects import Effects, Peer, Send, Unanswered
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import Uuid
from firnline.config.broker import BrokerConfig
from firnline.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.replica.follower import Fetched, FetchReply, LeaderFetch, Position

# A parked Fetch keeps its connection busy: what must not wait for it takes another one.
_CHANNEL, _SIDE_CHANNEL = "replica fetch", "replica offsets"
_CODES = frozenset(Code)
# metadata.version from which on brokers fetch at that version.
_FETCH_VERSIONS = ((21, 17), (19, 16), (10, 15), (9, 14), (0, 13))
_LIST_OFFSETS_VERSION = 7
# Beyond the time that the leader may wait for records. replica.socket.timeout.ms of Kafka.
_TIMEOUT_MS = 30_000

FetchThen = Callable[[FetchReply | KafkaError, int], Effects]
OffsetThen = Callable[[int | KafkaError, int], Effects]


class ReplicaFetch:
    """The way to leaders on other brokers.

    peer(broker_id)   where it listens for brokers; None while the image does not say
    broker_epoch()    of this incarnation, or -1
    metadata_version()  in force
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        peer: Callable[[int], Peer | None],
        broker_epoch: Callable[[], int],
        metadata_version: Callable[[], int],
    ) -> None:
        self._node_id = config.node_id
        self._max_wait_ms = config.replica_fetch_wait_max_ms
        self._min_bytes = config.replica_fetch_min_bytes
        self._max_bytes = config.replica_fetch_response_max_bytes
        self._partition_bytes = config.replica_fetch_max_bytes
        self._peer = peer
        self._broker_epoch = broker_epoch
        self._metadata_version = metadata_version

    def fetch(self, leader_id: int, ask: LeaderFetch, then: FetchThen, now_ms: int) -> Effects:
        """See `replica.follower.LeaderPort`."""
        peer = self._peer(leader_id)
        if peer is None:
            return then(_NOBODY, now_ms)

        def answered(answer: Any, at_ms: int) -> Effects:
            return then(_reply(answer), at_ms)

        level = self._metadata_version()
        return [
            Send(
                peer=peer,
                request=self._request(ask),
                timeout_ms=self._max_wait_ms + _TIMEOUT_MS,
                then=answered,
                channel=_CHANNEL,
                version_max=next(version for since, version in _FETCH_VERSIONS if level >= since),
                version_min=_FETCH_VERSIONS[-1][1],
            )
        ]

    def _request(self, ask: LeaderFetch) -> FetchRequest:
        topics = [
            FetchTopic(
                topic=rows[0].topic,
                topic_id=topic_id,
                partitions=[self._partition(position) for position in rows],
            )
            for topic_id, rows in _by_topic(ask.positions).items()
        ]
        forgotten = [
            ForgottenTopic(
                topic=rows[0].topic,
                topic_id=topic_id,
                partitions=[position.partition for position in rows],
            )
            for topic_id, rows in _by_topic(ask.forgotten).items()
        ]
        return FetchRequest(
            replica_id=self._node_id,
            replica_state=ReplicaState(
                replica_id=self._node_id, replica_epoch=self._broker_epoch()
            ),
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            session_id=ask.session_id,
            session_epoch=ask.session_epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    def _partition(self, position: Position) -> FetchPartition:
        return FetchPartition(
            partition=position.partition,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
            partition_max_bytes=self._partition_bytes,
        )

    def list_offset(
        self, leader_id: int, position: Position, which: int, then: OffsetThen, now_ms: int
    ) -> Effects:
        """See `replica.follower.LeaderPort`."""
        peer = self._peer(leader_id)
        if peer is None:
            return then(_NOBODY, now_ms)
        wanted = ListOffsetsPartition(
            partition_index=position.partition,
            current_leader_epoch=position.leader_epoch,
            timestamp=which,
        )

        def answered(answer: Any, at_ms: int) -> Effects:
            return then(_offset(answer), at_ms)

        return [
            Send(
                peer=peer,
                request=ListOffsetsRequest(
                    replica_id=self._node_id,
                    topics=[ListOffsetsTopic(name=position.topic, partitions=[wanted])],
                ),
                timeout_ms=_TIMEOUT_MS,
                then=answered,
                channel=_SIDE_CHANNEL,
                version_max=_LIST_OFFSETS_VERSION,
            )
        ]


def _by_topic(positions: Sequence[Position]) -> dict[Uuid, list[Position]]:
    found: dict[Uuid, list[Position]] = {}
    for position in positions:
        found.setdefault(position.topic_id, []).append(position)
    return found


def _reply(answer: Any) -> FetchReply | KafkaError:
    if isinstance(answer, Unanswered):
        return _unanswered(answer)
    if answer.error_code:
        return KafkaError(_code(answer.error_code))
    parts = []
    for topic in answer.responses:
        for row in topic.partitions:
            diverging = row.diverging_epoch
            parts.append(
                Fetched(
                    topic.topic_id,
                    row.partition_index,
                    _code(row.error_code),
                    row.records or b"",
                    row.high_watermark,
                    row.log_start_offset,
                    None if diverging.epoch < 0 else (diverging.epoch, diverging.end_offset),
                )
            )
    return FetchReply(answer.session_id, parts)


def _offset(answer: Any) -> int | KafkaError:
    if isinstance(answer, Unanswered):
        return _unanswered(answer)
    rows = [row for topic in answer.topics for row in topic.partitions]
    if len(rows) != 1:
        return KafkaError(Code.UNKNOWN_SERVER_ERROR, "an answer about something else")
    [row] = rows
    if row.error_code:
        return KafkaError(_code(row.error_code))
    if row.offset < 0:
        return KafkaError(Code.OFFSET_NOT_AVAILABLE, "the leader does not know yet")
    return int(row.offset)


def _code(number: int) -> Code:
    return Code(number) if number in _CODES else Code.UNKNOWN_SERVER_ERROR


def _unanswered(answer: Unanswered) -> KafkaError:
    code = Code.UNSUPPORTED_VERSION if answer.is_unsupported else Code.NETWORK_EXCEPTION
    return KafkaError(code, answer.why)


_NOBODY = KafkaError(Code.BROKER_NOT_AVAILABLE, "where that broker listens is not known")
