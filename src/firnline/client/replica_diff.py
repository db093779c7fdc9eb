"""Are the copies of a partition the same? Batches as headers, from a replica's answers or from files. WORLD.

Followers take the leader's batches as they are, so that below the high watermark of both each offset is in
one batch of one epoch and one checksum (rel-R9). Compacted replicas may differ: each is cleaned by itself.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from firnline.base.ids import Uuid
from firnline.client.connection import Connection
from firnline.client.wire import refuse
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.records.batch import headers

_FETCH_BYTES = 1 << 20
# With topic ids: the oldest version that every broker of ours and of Kafka 4 speaks.
_VERSION = 13


class Piece(NamedTuple):
    """One batch, as far as two copies of it have to agree. Offsets inclusive."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int


class Difference(NamedTuple):
    """Where two copies part, and what each has there; None for nothing."""

    offset: int
    one: Piece | None
    other: Piece | None


def pieces(data: bytes | memoryview) -> Iterator[Piece]:
    """Iterate over the whole batches of some bytes of a log. Raises KafkaError CORRUPT_MESSAGE."""
    for found in headers(data):
        yield Piece(found.base_offset, found.last_offset, found.leader_epoch, found.crc)


def first_difference(
    one: Iterable[Piece], other: Iterable[Piece], *, begin: int, end: int
) -> Difference | None:
    """Compare the batches that lie in [begin, end) wholly; return where the two part first."""

    def within(found: Iterable[Piece]) -> Iterator[Piece]:
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
    """One replica, asked as a consumer asks; a follower tells what it knows to be committed."""

    def __init__(self, broker: Connection, topic_id: Uuid, partition: int) -> None:
        self._broker, self._topic_id, self._partition = broker, topic_id, partition

    def high_watermark(self, offset: int) -> int:
        """Return the high watermark that it knows. Raises KafkaError where it does not have `offset`."""
        return int(self._fetch(offset, 1).high_watermark)

    def pieces(self, begin: int, end: int) -> Iterator[Piece]:
        """Iterate over its batches from the one with `begin` to the one before `end`."""
        at = begin
        while at < end:
            last = at - 1
            for piece in pieces(self._fetch(at, _FETCH_BYTES).records or b""):
                last = max(last, piece.last_offset)
                yield piece
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
