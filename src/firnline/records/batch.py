"""The header of a v2 record batch: parse, verify, stamp in place. PURE.

Byte map (big endian): 0 base offset 8 | 8 batch length 4, counted from byte 12 | 12 partition leader
epoch 4 | 16 magic 1 | 17 CRC-32C 4, over byte 21 to the end | 21 attributes 2 | 23 last offset
delta 4 | 27 base timestamp 8 | 35 max timestamp 8 | 43 producer id 8 | 51 producer epoch 2 |
53 base sequence 4 | 57 record count 4 | 61 records. Base offset and leader epoch lie outside the CRC,
so a leader stamps them without touching it (X47). Source: KIP-98; spec C13.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from firnline.base.errors import Code, KafkaError
from firnline.base.ports import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12  # base offset and batch length
CRC_START = 21
MAGIC_POSITION = 16

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
NO_SEQUENCE = -1

# What a batch begins with, as far as somebody reads or writes no more of it.
OFFSET_AND_LENGTH = struct.Struct(">qi")
STAMP = struct.Struct(">qii")  # base offset, length, leader epoch: what an append writes
PEEK = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")


class BatchHeader(NamedTuple):
    """One parsed header and its place in the buffer. Offsets count records, `position` counts bytes."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record. Sequences wrap from 2^31-1 to 0."""
        return (
            NO_SEQUENCE
            if self.base_sequence < 0
            else (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF
        )

    @property
    def codec(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_MASK)


_new = tuple.__new__  # what `_make` does, without counting the fields


def parse_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Parse the header at `position` without validating it. Raises struct.error if it is incomplete."""
    return _new(BatchHeader, (*HEADER.unpack_from(data, position), position))


def crc_is_right(data: Buffer, header: BatchHeader) -> bool:
    """Recompute the CRC-32C of a complete batch in `data`."""
    start = header.position
    with memoryview(data) as view, view[start + CRC_START : start + header.size_bytes] as body:
        return bool(crc32c(body) == header.crc)


def headers(data: Buffer) -> Iterator[BatchHeader]:
    """Iterate over the complete batches of `data`, as in a Fetch response: a partial one at the end is
    skipped.

    Raises KafkaError CORRUPT_MESSAGE for an impossible length. Does not check CRCs.
    """
    position, end = 0, len(data)
    while end - position >= HEADER_BYTES:
        header = parse_header(data, position)
        if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise KafkaError(Code.CORRUPT_MESSAGE, "batch length below the header's", at=position)
        if header.magic != 2:
            raise KafkaError(
                Code.CORRUPT_MESSAGE, "not a v2 batch", at=position, magic=header.magic
            )
        if header.size_bytes > end - position:
            return
        yield header
        position += header.size_bytes


def set_offset_and_epoch(
    data: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write the base offset and leader epoch into the batch at `position`. The CRC does not cover them."""
    _OFFSET.pack_into(data, position, base_offset)
    _EPOCH.pack_into(data, position + 12, leader_epoch)


def set_log_append_time(data: bytearray | memoryview, header: BatchHeader, now_ms: int) -> None:
    """Change the batch to LogAppendTime: set the type bit and max timestamp, and recompute the CRC (C13)."""
    start = header.position
    _ATTRIBUTES.pack_into(data, start + 21, header.attributes | TIMESTAMP_TYPE_MASK)
    _OFFSET.pack_into(data, start + 35, now_ms)
    with memoryview(data) as view, view[start + CRC_START : start + header.size_bytes] as body:
        _CRC.pack_into(data, start + 17, crc32c(body))
