"""Compare the replicas of a partition batch by batch, from Fetch responses or from files. WORLD.

Followers store the leader's batches unchanged. So below the high watermark of both, each offset is in the
same batch, with the same epoch and checksum (rel-R9), and the checksum is that of its bytes: a disk that
alters them leaves the checksum as it was. Compacted replicas may differ: each is compacted independently.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import Uuid
from firnline.base.ports import Buffer
from firnline.client.connection import Connection
from firnline.client.wire import refuse
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.records.batch import BatchHeader, crc_is_right, headers

_FETCH_BYTES = 1 << 20
# Of bytes that are no batch.
UNKNOWN_EPOCH = -1
# The oldest version with topic ids; all our brokers and Kafka 4 support it.
_VERSION = 13


class BatchSummary(NamedTuple):
    """What must be equal in two replicas of one batch. Offsets inclusive.

    is_intact  its bytes have this checksum
    """

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    is_intact: bool


class Difference(NamedTuple):
    """Where two replicas first differ, or are damaged, and what each has there; None for nothing."""

    offset: int
    one: BatchSummary | None
    other: BatchSummary | None


def batch_summaries(data: bytes | memoryview) -> Iterator[BatchSummary]:
    """Iterate over the complete batches of some bytes of a log. Raises KafkaError CORRUPT_MESSAGE."""
    return (_summary(data, each) for each in headers(data))


def _summary(data: Buffer, found: BatchHeader) -> BatchSummary:
    return BatchSummary(
        found.base_offset,
        found.last_offset,
        found.leader_epoch,
        found.crc,
        crc_is_right(data, found),
    )


def first_difference(
    one: Iterable[BatchSummary], other: Iterable[BatchSummary], *, begin: int, end: int
) -> Difference | None:
    """Compare the batches that lie completely in [begin, end); return the first difference or damage."""

    def within(found: Iterable[BatchSummary]) -> Iterator[BatchSummary]:
        for each in found:
            if each.last_offset >= end:
                return
            if each.base_offset >= begin:
                yield each

    left, right = within(one), within(other)
    while True:
        a, b = next(left, None), next(right, None)
        if a is None and b is None:
            return None
        if a != b or not (a and a.is_intact):
            return Difference(min(each.base_offset for each in (a, b) if each is not None), a, b)


class Replica:
    """One replica, read as a consumer would. A follower serves what it knows to be committed."""

    def __init__(self, broker: Connection, topic_id: Uuid, partition: int) -> None:
        self._broker, self._topic_id, self._partition = broker, topic_id, partition

    def high_watermark(self, offset: int) -> int:
        """Return the high watermark that it knows. Raises KafkaError if it does not have `offset`."""
        return int(self._fetch(offset, 1).high_watermark)

    def batch_summaries(self, begin: int, end: int) -> Iterator[BatchSummary]:
        """Iterate over its batches from the one with `begin` to the one before `end`.

        Bytes that are no batch, here or by what the broker says, are the last one, and damaged.
        """
        at = begin
        try:
            for data, header in self.batches(begin, end):
                found = _summary(data, header)
                at = found.last_offset + 1
                yield found
        except KafkaError as problem:
            if problem.code != Code.CORRUPT_MESSAGE:
                raise
            yield BatchSummary(at, at, UNKNOWN_EPOCH, 0, is_intact=False)

    def batches(self, begin: int, end: int) -> Iterator[tuple[Buffer, BatchHeader]]:
        """As `batch_summaries`, the bytes that hold each batch, and its header."""
        at = begin
        while at < end:
            last = at - 1
            data = self._fetch(at, _FETCH_BYTES).records or b""
            for header in headers(data):
                last = max(last, header.last_offset)
                yield data, header
            if last < at:
                return
            at = last + 1

    def _fetch(self, offset: int, size_bytes: int) -> Any:
        row = FetchPartition(
            partition=self._partition, fetch_offset=offset, partition_max_bytes=size_bytes
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=size_bytes,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[row])],
        )
        answer = self._broker.ask(request, version=_VERSION)
        refuse(answer.error_code, None, self._broker.address)
        (part,) = answer.responses[0].partitions
        refuse(part.error_code, None, f"partition {self._partition} at {self._broker.address}")
        return part
