"""Whether bytes are one record batch in the shape that producers send: its header, or None. PURE.

The twin of `usual_batch` in _native.c. Nothing is judged here but shape and CRC: what a topic allows is
asked in `records/validate.py`, which also says of anything else what is wrong with it.
"""

from collections.abc import Callable
from struct import error as StructError

from crc32c import crc32c

from firnline.base.native import native
from firnline.base.ports import Buffer
from firnline.records.batch import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
)

# Length, attributes, two deltas, key length, value length, header count: a byte each.
_RECORD_BYTES_MIN = 7
# The most that a byte of each codec can open to; unknown codecs are refused further down.
_RATIO_MAX = (1, 1100, 32, 256, 32_768, 1, 1, 1)
_unpack = HEADER.unpack_from


def has_room(record_count: int, size_bytes: int, attributes: int) -> bool:
    """Whether a batch of `size_bytes` can hold so many records, given its codec."""
    room = (size_bytes - HEADER_BYTES) * _RATIO_MAX[attributes & COMPRESSION_MASK]
    return record_count * _RECORD_BYTES_MIN <= room


def usual_batch_python(data: Buffer) -> tuple[int, ...] | None:
    """Return the fields of a BatchHeader if `data` is one whole v2 batch from offset 0, with the right CRC
    and a record count that fits its offsets and its bytes; else None."""
    try:
        header = (*_unpack(data), 0)
    except StructError:
        return None
    base_offset, length, _, magic, crc, attributes, delta, *_, count, _ = header
    size = length + LOG_OVERHEAD_BYTES
    if (
        base_offset
        or size != len(data)
        or size < HEADER_BYTES
        or magic != 2
        or delta < 0
        or count != delta + 1
        or not has_room(count, size, attributes)
    ):
        return None
    return header if crc32c(memoryview(data)[CRC_START:]) == crc else None


usual_batch: Callable[[Buffer], tuple[int, ...] | None] = (
    usual_batch_python if native is None else native.usual_batch
)
