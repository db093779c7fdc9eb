"""A producer's batch in the codec that its topic wants. PURE.

What is kept is what Apache Kafka 4.3.1 keeps (`tests/compat/test_compression_type.py`): producer, epoch,
sequence, the transactional bit, times, keys, values and headers. Offsets within the batch become 0, 1, 2 and
so on, the greatest time is what the records say, and attributes that nobody knows are dropped. Only a body
that is the records it claims to be is compressed again: all else is refused. Source: KIP-390, decision 0030.
"""

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from firnline.base.errors import Code, KafkaError
from firnline.base.limits import DECOMPRESSED_BATCH_BYTES_MAX
from firnline.base.ports import Buffer
from firnline.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from firnline.records.compression import NONE, compress, decompress
from firnline.records.usual import renumber, survey
from firnline.records.validate import BatchLimits, check_shape, judge

_new_tuple = tuple.__new__  # half the price of the class's own constructor
_CRC = Struct(">I")
_TOO_LARGE = KafkaError(
    Code.MESSAGE_TOO_LARGE, "the batch exceeds max.message.bytes in its topic's codec"
)
_UNREADABLE = KafkaError(
    Code.INVALID_RECORD, "the batch cannot be opened, and its topic wants another codec"
)
_OPENS_TOO_FAR = KafkaError(Code.INVALID_RECORD, "a batch opens to too many bytes")
_OTHER_RECORDS = KafkaError(Code.INVALID_RECORD, "the records are not what the batch says")


class Target(NamedTuple):
    """What batches of a topic are to be; `level` is that of the codec, None for its usual one."""

    codec: int
    level: int | None = None


def recompress(
    data: Buffer,
    target: Target,
    limits: BatchLimits,
    now_ms: int,
    *,
    opened_bytes_max: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> bytearray | KafkaError:
    """Return the one batch in `data` compressed as `target` says, or why it is refused.

    `data` is as a producer sent it, and is left as it is. MESSAGE_TOO_LARGE where it is too large before or
    after; INVALID_RECORD where its body is not what its header says, or opens to more than
    `opened_bytes_max`. An append then judges the result as it would judge any batch.
    """
    fields = check_shape(data, limits)
    if isinstance(fields, KafkaError):
        return fields
    problem = judge(fields, data, limits._replace(is_compacted=False), now_ms)
    if problem is not None:
        return problem
    header: BatchHeader = _new_tuple(BatchHeader, fields)
    room = limits.max_bytes - HEADER_BYTES
    most = min(opened_bytes_max, room) if target.codec == NONE else opened_bytes_max
    with memoryview(data) as view, view[HEADER_BYTES : header.size_bytes] as packed:
        try:
            body = decompress(header.codec, packed, limit_bytes=most)
        except KafkaError as refusal:
            if refusal.code == Code.INVALID_RECORD and most < opened_bytes_max:
                return _TOO_LARGE
            # A value from here on: with its traceback it would hold all that was opened.
            return (
                _UNREADABLE
                if refusal.code == Code.CORRUPT_MESSAGE
                else refusal.with_traceback(None)
            )
    found = survey(body, header.record_count)
    if found is None:
        return _OTHER_RECORDS
    least, greatest, have_keys, is_plain = found
    if limits.is_compacted and not have_keys:
        return KafkaError(Code.INVALID_RECORD, "a compacted topic takes no record without a key")
    base, max_time = header.base_timestamp, header.base_timestamp + greatest
    is_plain &= -(2**63) <= base + least <= max_time < 2**63
    if not is_plain or header.is_log_append_time:
        # Where the producer claims log append time, all have the time that it states.
        claimed = header.max_timestamp if header.is_log_append_time else None
        again = renumber(body, header.record_count, base if claimed is None else None, most)
        if again is None:
            return _OPENS_TOO_FAR
        body, base, max_time = again
        if claimed is not None:
            base = max_time = claimed
    shrunk = compress(target.codec, body, target.level)
    if len(shrunk) > room:
        return _TOO_LARGE
    attributes = target.codec | header.attributes & TRANSACTIONAL_MASK
    header = header._replace(attributes=attributes, base_timestamp=base, max_timestamp=max_time)
    return _batch(header, shrunk)


def _batch(header: BatchHeader, body: bytes) -> bytearray:
    """Put a header, with what it says of length and CRC, before a body."""
    batch = bytearray(HEADER_BYTES)
    batch += body
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - LOG_OVERHEAD_BYTES)[:13])
    with memoryview(batch) as view, view[CRC_START:] as covered:
        crc = crc32c(covered)
    _CRC.pack_into(batch, CRC_START - _CRC.size, crc)
    return batch
