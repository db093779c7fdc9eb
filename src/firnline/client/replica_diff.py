"""Compare the replicas of a partition batch by batch, from Fetch responses or from files. WORLD.

Followers store the leader's batches unchanged. So below the high watermark of both, each offset is in the
same batch, with the same epoch and checksum (rel-R9). Compacted replicas may differ: each is compacted
independently.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from firnline.base.ids import Uuid
from firnline.base.ports import Buffer
from firnline.client.connection import Connection
from firnline.client.wire import refuse
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.records.batch import BatchHeader, headers

_FETCH_BYTES = 1 << 20
# The oldest version with topic ids; all our brokers and Kafka 4 support it.
_VERSION = 13


class BatchSummary(NamedTuple):
    """What must be equal in two replicas of one batch. Offsets inclusive."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class Difference(NamedTuple):
    """Where two replicas first differ, and what each has there; None for nothing."""

    offset: int
    one: BatchSummary | None
    other: BatchSummary | None


def batch_summaries(data: bytes | memoryview) -> Iterator[BatchSummary]:
    """Iterate over the complete batches of some bytes of a log. Raises KafkaError CORRUPT_MESSAGE."""
    return map(_summary, headers(data))


def _summary(found: BatchHeader) -> BatchSummary:
    return BatchSummary(found.base_offset, found.last_offset, found.leader_epoch, found.crc)


def first_difference(
    one: Iterable[BatchSummary], other: Iterable[BatchSummary], *, begin: int, end: int
) -> Difference | None:
    """Compare the batches that lie completely in [begin, end); return the first difference."""

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
        if a != b:
            return Difference(min(each.base_offset for each in (a, b) if each is not None), a, b)


class Replica:
    """One replica, read as a consumer would. A follower serves what it knows to be committed."""

    def __init__(self, broker: Connection, topic_id: Uuid, partition: int) -> None:
        self._broker, self._topic_id, self._partition = broker, topic_id, partition

    def high_watermark(self, offset: int) -> int:
        """Return the high watermark that it knows. Raises KafkaError if it does not have `offset`."""
        return int(self._fetch(offset, 1).high_watermark)

    def batch_summaries(self, begin: int, end: int) -> Iterator[BatchSummary]:
        """Iterate over its batches from the one with `begin` to the one before `end`."""
        for _, header in self.batches(begin, end):
            yield _summary(header)

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
