"""A follower's requests to a leader on another broker: Fetch, ListOffsets, OffsetForLeaderEpoch. PURE.

It implements `replica.follower.LeaderPort`. A Fetch may wait at the leader and blocks its connection, so the
other requests have a connection of their own. The version of Fetch follows metadata.version, so that during
an upgrade all brokers understand it. From version 15 on it contains the broker epoch. Nothing is retried
here: a lost response is NETWORK_EXCEPTION. Source: KIP-227, KIP-320, KIP-405, KIP-516, KIP-903; spec I12,
T30.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from firnline.base.effects import Effects, Peer, Send, Unanswered
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import Uuid
from firnline.base.replicas import EpochEnd, Fetched, FetchReply, LeaderFetch, Position
from firnline.config.broker import BrokerConfig
from firnline.outbound.topic_client import TopicClient
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
from firnline.protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

# A Fetch that waits at the leader blocks its connection. Requests that must not wait for it use another.
_CHANNEL, _SIDE_CHANNEL = "replica fetch", "replica offsets"
_CODES = frozenset(Code)
# (lowest metadata.version, version of Fetch).
_FETCH_VERSIONS = ((21, 17), (19, 16), (10, 15), (9, 14), (0, 13))
_LIST_OFFSETS_VERSION = 7
_EARLIEST_LOCAL, _LATEST_TIERED = -4, -5
# The first version that has the offset.
_TIERED_VERSIONS = {_EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
_EPOCH_END_VERSION = 4
# Time-out beyond the wait at the leader, as replica.socket.timeout.ms in Kafka.
_TIMEOUT_MS = 30_000

FetchCallback = Callable[[FetchReply | KafkaError, int], Effects]
OffsetCallback = Callable[[int | KafkaError, int], Effects]
EpochCallback = Callable[[EpochEnd | KafkaError, int], Effects]


class ReplicaFetch(TopicClient):
    """Sends a follower's requests to leaders on other brokers, and the requests of `TopicClient`.

    peer(broker_id)     the broker's address for brokers; None while the image does not have it
    broker_epoch()      of this incarnation, or -1
    metadata_version()  the finalized level
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        peer: Callable[[int], Peer | None],
        broker_epoch: Callable[[], int],
        metadata_version: Callable[[], int],
    ) -> None:
        super().__init__(peer)
        self._node_id = config.node_id
        self._max_wait_ms = config.replica_fetch_wait_max_ms
        self._min_bytes = config.replica_fetch_min_bytes
        self._max_bytes = config.replica_fetch_response_max_bytes
        self._partition_bytes = config.replica_fetch_max_bytes
        self._broker_epoch = broker_epoch
        self._metadata_version = metadata_version

    def fetch(self, leader_id: int, ask: LeaderFetch, then: FetchCallback, now_ms: int) -> Effects:
        """See `replica.follower.LeaderPort`."""
        peer = self._peer(leader_id)
        if peer is None:
            return then(_NO_ADDRESS, now_ms)

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
        self, leader_id: int, position: Position, which: int, then: OffsetCallback, now_ms: int
    ) -> Effects:
        """See `replica.follower.LeaderPort`."""

        def answered(answer: Any, at_ms: int) -> Effects:
            found = _offset(answer)
            return then(found if isinstance(found, KafkaError) else found[1], at_ms)

        return self._list_offset(leader_id, position, which, answered, now_ms)

    def local_start(
        self, leader_id: int, position: Position, then: EpochCallback, now_ms: int
    ) -> Effects:
        """See `replica.follower.LeaderPort`."""
        return self._list_tiered(leader_id, position, _EARLIEST_LOCAL, then, now_ms)

    def last_tiered(
        self, leader_id: int, position: Position, then: EpochCallback, now_ms: int
    ) -> Effects:
        """See `replica.follower.LeaderPort`."""
        return self._list_tiered(leader_id, position, _LATEST_TIERED, then, now_ms)

    def _list_tiered(
        self, leader_id: int, position: Position, which: int, then: EpochCallback, now_ms: int
    ) -> Effects:
        def answered(answer: Any, at_ms: int) -> Effects:
            return then(_offset(answer), at_ms)

        return self._list_offset(leader_id, position, which, answered, now_ms)

    def _list_offset(
        self,
        leader_id: int,
        position: Position,
        which: int,
        then: Callable[[Any, int], Effects],
        now_ms: int,
    ) -> Effects:
        wanted = ListOffsetsPartition(
            partition_index=position.partition,
            current_leader_epoch=position.leader_epoch,
            timestamp=which,
        )
        request = ListOffsetsRequest(
            replica_id=self._node_id,
            topics=[ListOffsetsTopic(name=position.topic, partitions=[wanted])],
        )
        version_min = _TIERED_VERSIONS.get(which, 0)
        version = max(version_min, _LIST_OFFSETS_VERSION)
        return self._ask(leader_id, request, then, now_ms, version, version_min)

    def epoch_end(
        self, leader_id: int, position: Position, epoch: int, then: EpochCallback, now_ms: int
    ) -> Effects:
        """See `replica.follower.LeaderPort`."""
        wanted = OffsetForLeaderPartition(
            partition=position.partition,
            current_leader_epoch=position.leader_epoch,
            leader_epoch=epoch,
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._node_id,
            topics=[OffsetForLeaderTopic(topic=position.topic, partitions=[wanted])],
        )

        def answered(answer: Any, at_ms: int) -> Effects:
            row = _only_row(answer)
            if isinstance(row, KafkaError):
                return then(row, at_ms)
            return then((row.leader_epoch, row.end_offset), at_ms)

        return self._ask(leader_id, request, answered, now_ms, _EPOCH_END_VERSION, 0)

    def _ask(
        self,
        leader_id: int,
        request: Any,
        then: Callable[[Any, int], Effects],
        now_ms: int,
        version_max: int,
        version_min: int,
    ) -> Effects:
        """Send a request that must not wait behind a Fetch."""
        peer = self._peer(leader_id)
        if peer is None:
            return then(Unanswered(why=str(_NO_ADDRESS)), now_ms)
        return [
            Send(
                peer=peer,
                request=request,
                timeout_ms=_TIMEOUT_MS,
                then=then,
                channel=_SIDE_CHANNEL,
                version_max=version_max,
                version_min=version_min,
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
    return FetchReply(answer.session_id, _Parts(answer.responses))


class _Parts(Collection[Fetched]):
    """The partitions of a response, converted during iteration: there may be thousands."""

    def __init__(self, topics: Sequence[Any]) -> None:
        self._topics = topics

    def __len__(self) -> int:
        return sum([len(topic.partitions) for topic in self._topics])

    def __contains__(self, part: object) -> bool:
        return any(part == each for each in self)

    def __iter__(self) -> Iterator[Fetched]:
        for topic in self._topics:
            for row in topic.partitions:
                diverging = row.diverging_epoch
                yield Fetched(
                    topic.topic_id,
                    row.partition_index,
                    _code(row.error_code),
                    row.records or b"",
                    row.high_watermark,
                    row.log_start_offset,
                    None if diverging.epoch < 0 else (diverging.epoch, diverging.end_offset),
                )


def _only_row(answer: Any) -> Any:
    """Return the response's row of the one requested partition, or a KafkaError."""
    if isinstance(answer, Unanswered):
        return _unanswered(answer)
    rows = [row for topic in answer.topics for row in topic.partitions]
    if len(rows) != 1:
        return KafkaError(
            Code.UNKNOWN_SERVER_ERROR, "the response does not contain exactly one partition"
        )
    [row] = rows
    return KafkaError(_code(row.error_code)) if row.error_code else row


def _offset(answer: Any) -> EpochEnd | KafkaError:
    """Return (leader epoch, offset)."""
    row = _only_row(answer)
    if isinstance(row, KafkaError):
        return row
    if row.offset < 0:
        return KafkaError(Code.OFFSET_NOT_AVAILABLE, "the leader does not know the offset yet")
    return int(row.leader_epoch), int(row.offset)


def _code(number: int) -> Code:
    return Code(number) if number in _CODES else Code.UNKNOWN_SERVER_ERROR


def _unanswered(answer: Unanswered) -> KafkaError:
    code = Code.UNSUPPORTED_VERSION if answer.is_unsupported else Code.NETWORK_EXCEPTION
    return KafkaError(code, answer.why)


_NO_ADDRESS = KafkaError(Code.BROKER_NOT_AVAILABLE, "the broker's address is not known")
