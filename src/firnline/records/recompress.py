"""Compress a producer's batch with the codec of its topic. PURE.

Keeps what Apache Kafka 4.3.1 keeps (`tests/compat/test_compression_type.py`): producer id, epoch, sequence,
the transactional bit, timestamps, keys, values and headers. Offsets within the batch become 0, 1, 2 and so
on, the max timestamp is computed from the records, and unknown attributes are dropped. A body that does not
hold the records its header promises is refused. Source: KIP-390, decision 0030.
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
from firnline.records.fast_path import renumber, survey
from firnline.records.validate import BatchLimits, check_limits, check_shape

_new_tuple = tuple.__new__  # half the price of the class's own constructor
_CRC = Struct(">I")
_TOO_LARGE = KafkaError(
    Code.MESSAGE_TOO_LARGE, "the batch exceeds max.message.bytes in its topic's codec"
)
_UNREADABLE = KafkaError(
    Code.INVALID_RECORD, "the batch cannot be decompressed, and its topic has another codec"
)
_DECOMPRESSES_TOO_FAR = KafkaError(Code.INVALID_RECORD, "a batch decompresses to too many bytes")
_OTHER_RECORDS = KafkaError(Code.INVALID_RECORD, "the records are not what the batch says")


class Target(NamedTuple):
    """The codec of a topic. `level` is the compression level, None for the codec's default."""

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

    `data` is as a producer sent it and is not changed. MESSAGE_TOO_LARGE when the batch is too large before
    or after; INVALID_RECORD when the body does not match the header, or decompresses to more than
    `opened_bytes_max`. The append then validates the result like any batch.
    """
    fields = check_shape(data, limits)
    if isinstance(fields, KafkaError):
        return fields
    problem = check_limits(fields, data, limits._replace(is_compacted=False), now_ms)
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
            # Keep only a value: the traceback would keep everything that was decompressed in memory.
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
        # If the producer set log append time, every record has the max timestamp of the header.
        claimed = header.max_timestamp if header.is_log_append_time else None
        again = renumber(body, header.record_count, base if claimed is None else None, most)
        if again is None:
            return _DECOMPRESSES_TOO_FAR
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
    """Put a header with the right length and CRC before a body."""
    batch = bytearray(HEADER_BYTES)
    batch += body
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - LOG_OVERHEAD_BYTES)[:13])
    with memoryview(batch) as view, view[CRC_START:] as covered:
        crc = crc32c(covered)
    _CRC.pack_into(batch, CRC_START - _CRC.size, crc)
    return batch
