"""Reads and appends records of a topic at other brokers, as a client: ListOffsets, Fetch, Produce. PURE.

The tier uses it for its metadata topic, whose partitions have leaders on any broker (T20, T21). Nothing is
retried here. A response that is lost or late is NETWORK_EXCEPTION: an append may or may not have happened,
and the caller decides what to do. Source: KIP-405 'RemoteLogMetadataManager implemented with an internal
topic'; spec 3.12.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firnline.base.effects import Appended, Effects, Peer, Send, Unanswered
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition, Uuid
from firnline.broker.tier.feed import Fork
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

ACKS_ALL = -1
# The broker's time-out of an append, and ours for any response.
_APPEND_MS, _TIMEOUT_MS = 5_000, 10_000
_ANSWER_BYTES = 1 << 20
_CHANNEL = "topic client"
# In older versions "latest" at a new leader may be below what was committed.
_LIST_OFFSETS_VERSION_MIN = 5
# Older versions do not report divergence (KIP-595).
_FETCH_VERSION_MIN = 12
_CODES = frozenset(Code)

Ends = Mapping[int, int | KafkaError]
# Log start offset, and the complete committed batches from the one that contains the offset.
CommittedRecords = tuple[int, bytes]


class TopicClient:
    """Sends requests to leaders. `peer(broker_id)` returns the broker's address for brokers."""

    def __init__(self, peer: Callable[[int], Peer | None]) -> None:
        self._peer = peer

    def offsets(
        self,
        leader_id: int,
        topic: str,
        partitions: Mapping[int, int],
        which: int,
        then: Callable[[Ends, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Ask for the log start offset (-2) or the high watermark (-1) of each partition.

        A partition that the response lacks is an error.

        partitions  partition -> the leader epoch that we know
        """
        wanted = [
            ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=epoch, timestamp=which
            )
            for partition, epoch in partitions.items()
        ]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
        )

        def answered(answer: Any, at_ms: int) -> Effects:
            rows = None if isinstance(answer, Unanswered) else _rows(answer.topics)
            found: dict[int, int | KafkaError] = dict.fromkeys(partitions, _UNANSWERED)
            for row in rows or ():
                if row.partition_index in found:
                    error = row.error_code
                    found[row.partition_index] = KafkaError(_code(error)) if error else row.offset
            return then(found, at_ms)

        return self._send(leader_id, request, answered, now_ms, _LIST_OFFSETS_VERSION_MIN)

    def read_committed_records(
        self,
        leader_id: int,
        where: TopicPartition,
        topic_id: Uuid,
        offset: int,
        then: Callable[[CommittedRecords | Fork | KafkaError, int], Effects],
        now_ms: int,
        *,
        leader_epoch: int,
        last_epoch: int,
    ) -> Effects:
        """Read the committed records from `offset`, about a megabyte. `Fork`: the leader's log diverges below
        it.

        leader_epoch  the leader epoch that we know: another one is an error
        last_epoch    the epoch of the record before `offset`; -1: unknown
        """
        wanted = FetchPartition(
            partition=where.partition, fetch_offset=offset, partition_max_bytes=_ANSWER_BYTES
        )
        wanted.current_leader_epoch, wanted.last_fetched_epoch = leader_epoch, last_epoch
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_ANSWER_BYTES,
            topics=[FetchTopic(topic=where.topic, topic_id=topic_id, partitions=[wanted])],
        )

        def answered(answer: Any, at_ms: int) -> Effects:
            if isinstance(answer, Unanswered):
                return then(_unanswered(answer), at_ms)
            if answer.error_code:
                return then(KafkaError(_code(answer.error_code)), at_ms)
            rows = _rows(answer.responses)
            if len(rows) != 1 or rows[0].error_code:
                code = _code(rows[0].error_code) if rows else Code.UNKNOWN_SERVER_ERROR
                return then(KafkaError(code), at_ms)
            fork = rows[0].diverging_epoch
            if fork.epoch >= 0 or fork.end_offset >= 0:
                return then(Fork(fork.end_offset), at_ms)
            return then((rows[0].log_start_offset, bytes(rows[0].records or b"")), at_ms)

        return self._send(leader_id, request, answered, now_ms, _FETCH_VERSION_MIN)

    def append(
        self,
        leader_id: int,
        where: TopicPartition,
        topic_id: Uuid,
        batch: bytearray,
        then: Callable[[Appended | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Append a batch of one record with acks=all. NETWORK_EXCEPTION: the outcome is unknown."""
        data = PartitionProduceData(index=where.partition, records=bytes(batch))
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=_APPEND_MS,
            topic_data=[
                TopicProduceData(name=where.topic, topic_id=topic_id, partition_data=[data])
            ],
        )

        def answered(answer: Any, at_ms: int) -> Effects:
            if isinstance(answer, Unanswered):
                return then(_unanswered(answer), at_ms)
            rows = [row for topic in answer.responses for row in topic.partition_responses]
            if len(rows) != 1 or rows[0].error_code:
                code = _code(rows[0].error_code) if rows else Code.UNKNOWN_SERVER_ERROR
                return then(KafkaError(code), at_ms)
            [row] = rows
            appended = Appended(
                base_offset=row.base_offset,
                last_offset=row.base_offset,
                log_append_time_ms=row.log_append_time_ms,
                log_start_offset=row.log_start_offset,
            )
            return then(appended, at_ms)

        return self._send(leader_id, request, answered, now_ms, 0)

    def _send(
        self,
        leader_id: int,
        request: Any,
        then: Callable[[Any, int], Effects],
        now_ms: int,
        version_min: int,
    ) -> Effects:
        peer = self._peer(leader_id)
        if peer is None:
            return then(Unanswered(why="the broker's address is not known"), now_ms)
        return [
            Send(
                peer=peer,
                request=request,
                timeout_ms=_TIMEOUT_MS,
                then=then,
                channel=_CHANNEL,
                version_min=version_min,
            )
        ]


def _rows(topics: Sequence[Any]) -> list[Any]:
    return [row for topic in topics for row in topic.partitions]


def _code(number: int) -> Code:
    return Code(number) if number in _CODES else Code.UNKNOWN_SERVER_ERROR


def _unanswered(answer: Unanswered) -> KafkaError:
    code = Code.UNSUPPORTED_VERSION if answer.is_unsupported else Code.NETWORK_EXCEPTION
    return KafkaError(code, answer.why)


_UNANSWERED = KafkaError(Code.NETWORK_EXCEPTION, "no answer")
