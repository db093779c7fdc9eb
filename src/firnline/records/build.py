"""Build batches for coordinators, the metadata log, markers and tests. PURE."""

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from crc32c import crc32c

from firnline.protocol.primitives import varint
from firnline.records.batch import (
    CONTROL_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from firnline.records.compression import NONE, compress
from firnline.records.record import Header, encode_records


class NewRecord(NamedTuple):
    """A record before it has an offset. Key and value are bytes; `timestamp_ms` since 1970, or -1 for
    none.
    """

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: tuple[Header, ...] = ()


def build_batch(
    rows: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    codec: int = NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    is_log_append_time: bool = False,
) -> bytearray:
    """Return one complete v2 batch of `rows`. The leader may write offset and epoch into the buffer."""
    assert rows, "a batch holds at least one record"
    base_timestamp = rows[0].timestamp_ms
    max_timestamp = max(row.timestamp_ms for row in rows)
    body = compress(
        codec,
        encode_records((r.timestamp_ms - base_timestamp, r.key, r.value, r.headers) for r in rows),
    )
    attributes = (
        codec
        | (TIMESTAMP_TYPE_MASK if is_log_append_time else 0)
        | (TRANSACTIONAL_MASK if is_transactional else 0)
        | (CONTROL_MASK if is_control else 0)
    )
    fields = (producer_id, producer_epoch, base_sequence, len(rows))
    times = (base_timestamp, max_timestamp)
    return _framed(body, (base_offset, leader_epoch), attributes, times, fields)


def encode_values(values: Iterable[bytes], first: int = 0) -> bytes:
    """Encode records that have only a value and share one timestamp; `first` as in `encode_records`."""
    return encode_records(((0, None, value, ()) for value in values), first)


def build_batch_of(
    body: bytes | bytearray, count: int, *, timestamp_ms: int, leader_epoch: int
) -> bytearray:
    """Like `build_batch`, for `count` values that `encode_values` has encoded."""
    fields = (NO_PRODUCER_ID, -1, NO_SEQUENCE, count)
    return _framed(body, (0, leader_epoch), NONE, (timestamp_ms, timestamp_ms), fields)


def build_record_in_slices(
    key: bytes, value: deque[bytes], timestamp_ms: int
) -> Generator[None, None, bytearray]:
    """Like `build_batch`, for one record whose value comes in parts; yields after each part.

    Removes the parts from `value`, so that no part is in memory twice.
    """
    size = sum(map(len, value))
    # Attributes, timestamp delta and offset delta are 0.
    record = b"\0\0\0" + varint(len(key)) + key + varint(size)
    batch = bytearray(HEADER_BYTES)
    batch += varint(len(record) + size + 1) + record
    front = (0, len(batch) + size + 1 - LOG_OVERHEAD_BYTES, -1, 2)
    fields = (NONE, 0, timestamp_ms, timestamp_ms, NO_PRODUCER_ID, -1, NO_SEQUENCE, 1)
    HEADER.pack_into(batch, 0, *front, 0, *fields)
    crc = crc32c(bytes(batch[CRC_START:]))
    while value:
        part = value.popleft()
        batch += part
        crc = crc32c(part, crc)
        yield
    batch += b"\0"  # no headers
    HEADER.pack_into(batch, 0, *front, crc32c(b"\0", crc), *fields)
    return batch


def _framed(
    body: bytes | bytearray,
    place: tuple[int, int],
    attributes: int,
    times: tuple[int, int],
    rest: tuple[int, int, int, int],
) -> bytearray:
    """Put the header before the records; `rest` are its last fields, from the producer id on."""
    batch = bytearray(HEADER_BYTES)
    batch += body
    size = len(batch) - LOG_OVERHEAD_BYTES
    front = (place[0], size, place[1], 2)
    fields = (attributes, rest[3] - 1, *times, *rest)
    HEADER.pack_into(batch, 0, *front, 0, *fields)
    with memoryview(batch) as view, view[CRC_START:] as covered:
        crc = crc32c(covered)
    HEADER.pack_into(batch, 0, *front, crc, *fields)
    return batch
