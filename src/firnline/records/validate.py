"""What a leader checks before it appends a batch: the header and the CRC. PURE.

Records are decoded only for compacted topics, which refuse records without a key, and in compiled code for
uncompressed batches (records/fast_path). Elsewhere the body is opaque: a corrupt body with a right CRC
reaches consumers as it came. Error codes are those of Kafka 4.3.1 for the same bytes (reliability d 31-44,
spec C13), with two exceptions. We never answer UNKNOWN_SERVER_ERROR (for an unknown codec, or a length of
2^31-1), and we validate a wrong max timestamp as it is, where Kafka recomputes it.
"""

from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from firnline.base.errors import Code, KafkaError
from firnline.base.limits import KEYED_BATCH_BYTES_MAX
from firnline.base.ports import Buffer
from firnline.base.units import INT64_MAX
from firnline.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    headers,
)
from firnline.records.compression import ZSTD
from firnline.records.fast_path import common_batch, has_room, right_body
from firnline.records.record import all_have_keys

_LEGACY_LENGTH_MIN = 14  # the shortest length in any message format
_MAGIC_BYTES = 17  # up to and including the magic byte
_unpack = HEADER.unpack_from
_new_tuple = tuple.__new__  # half the price of the class's constructor


class BatchLimits(NamedTuple):
    """The limits of a topic; timestamps in milliseconds, sizes in bytes."""

    max_bytes: int
    before_max_ms: int = INT64_MAX
    after_max_ms: int = INT64_MAX
    is_log_append_time: bool = False
    is_compacted: bool = False


def check_shape(data: Buffer, limits: BatchLimits) -> tuple[int, ...] | KafkaError:
    """Return the header fields of a batch of the right shape and CRC, or why it is refused.

    A batch that is too large is refused first: checking 90 MiB of small records took 256 ms.
    """
    found = common_batch(data) if len(data) <= limits.max_bytes else None
    return found or _check_slowly(data, limits)


def _check_slowly(data: Buffer, limits: BatchLimits) -> tuple[int, ...] | KafkaError:
    """Say what is wrong with bytes that the fast path refused. Nothing is, if only a few bytes follow the
    batch.
    """
    try:
        header = _new_tuple(BatchHeader, (*_unpack(data), 0))
    except StructError:
        return _refuse_short(data)
    size = header.size_bytes
    if header.magic != 2 or size != len(data) or size < HEADER_BYTES:
        problem = _check_frame(data, header)
        if problem is not None:
            return problem
    if header.base_offset:
        return KafkaError(Code.INVALID_RECORD, "the base offset of a produced batch is not 0")
    if size > limits.max_bytes:
        return _too_large(size, limits)
    if crc32c(memoryview(data)[CRC_START:size]) != header.crc:
        return KafkaError(Code.CORRUPT_MESSAGE, "the batch does not match its CRC")
    delta, count = header.last_offset_delta, header.record_count
    if delta < 0 or count != delta + 1 or not has_room(count, size, header.attributes):
        return KafkaError(
            Code.INVALID_RECORD,
            "the record count does not match the offsets, or the bytes cannot hold it",
            count=count,
            last_offset_delta=delta,
        )
    if right_body is not None and not header.codec:
        with memoryview(data) as view, view[HEADER_BYTES:size] as body:
            if not right_body(body, count):
                return KafkaError(Code.INVALID_RECORD, "the records are not what the batch says")
    return header


def check_limits(
    fields: tuple[int, ...], data: Buffer, limits: BatchLimits, now_ms: int
) -> KafkaError | None:
    """Validate a batch of the right shape and CRC against its topic's limits; `fields` are of its header."""
    _, length, _, _, _, attributes, _, base_time, max_time, producer_id, _, sequence, _, _ = fields
    max_bytes, before_max_ms, after_max_ms, is_log_append_time, is_compacted = limits
    if length + LOG_OVERHEAD_BYTES > max_bytes:
        return _too_large(length + LOG_OVERHEAD_BYTES, limits)
    if attributes and (problem := _check_attributes(attributes, limits)):
        return problem
    if producer_id >= 0 and sequence < 0:
        return KafkaError(Code.INVALID_RECORD, "a producer id without a sequence")
    if not is_log_append_time:
        earliest, latest = now_ms - before_max_ms, now_ms + after_max_ms
        if (
            max_time > latest
            or base_time > latest
            or (base_time < earliest and base_time != NO_TIMESTAMP)
            or (max_time < earliest and max_time != NO_TIMESTAMP)
        ):
            return _too_far(_new_tuple(BatchHeader, fields), earliest, latest)
    if is_compacted:
        return _check_keys(data, _new_tuple(BatchHeader, fields))
    return None


def _too_far(header: BatchHeader, earliest: int, latest: int) -> KafkaError:
    return KafkaError(
        Code.INVALID_TIMESTAMP,
        "a timestamp is too far from now",
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        earliest=earliest,
        latest=latest,
    )


def check_batches(
    data: Buffer, limits: BatchLimits | None = None
) -> list[BatchHeader] | KafkaError:
    """Validate batches of a leader or of our own coordinators: frame and CRC; sizes if `limits` is given.

    Returns at least one header. A partial batch at the end is skipped, as in a Fetch response.
    """
    try:
        found = list(headers(data))
    except KafkaError as problem:
        return problem
    if not found:
        return KafkaError(Code.INVALID_RECORD, "no complete batch")
    with memoryview(data) as view:
        for header in found:
            start, size = header.position, header.size_bytes
            if crc32c(view[start + CRC_START : start + size]) != header.crc:
                return KafkaError(Code.CORRUPT_MESSAGE, "a batch does not match its CRC", at=start)
            if header.last_offset_delta < 0:
                return KafkaError(Code.CORRUPT_MESSAGE, "a negative offset delta", at=start)
            if limits is not None and size > limits.max_bytes:
                return _too_large(size, limits)
    return found


def as_create_time(data: bytearray | memoryview, header: BatchHeader) -> None:
    """Clear the log append time bit that a producer set by mistake, and correct the CRC, as Kafka does."""
    attributes = header.attributes & ~TIMESTAMP_TYPE_MASK
    start = header.position
    data[start + 21 : start + 23] = attributes.to_bytes(2, "big", signed=True)
    with memoryview(data) as view, view[start + CRC_START : start + header.size_bytes] as covered:
        data[start + 17 : start + CRC_START] = crc32c(covered).to_bytes(4, "big")


def check_fetched(
    data: Buffer, end_offset: int, newest_epoch: int, leader_epoch: int
) -> list[BatchHeader] | KafkaError:
    """Validate batches that the leader of `leader_epoch` sent to a log that ends at `end_offset`.

    newest_epoch  the latest leader epoch in that log, or -1

    Like `check_batches`. OFFSET_OUT_OF_RANGE when a batch begins below the end of the one before it,
    FENCED_LEADER_EPOCH when its epoch is older than that of the one before it, UNKNOWN_LEADER_EPOCH when it
    is newer than the leader's. A newer epoch proves that the sender followed another leader when it sent the
    response, so the batches before it may come from that leader too. Kafka keeps those (KAFKA-18723); we
    refuse all.
    """
    found = check_batches(data)
    if isinstance(found, KafkaError):
        return found
    for header in found:
        epoch = header.leader_epoch
        if header.base_offset < end_offset:
            return KafkaError(
                Code.OFFSET_OUT_OF_RANGE,
                "a batch begins below the log end",
                base_offset=header.base_offset,
                log_end_offset=end_offset,
            )
        if epoch < newest_epoch:
            return KafkaError(
                Code.FENCED_LEADER_EPOCH,
                "the log has batches of a newer leader epoch",
                epoch=epoch,
                newest=newest_epoch,
            )
        if epoch > leader_epoch:
            return KafkaError(
                Code.UNKNOWN_LEADER_EPOCH,
                "a leader sent a batch of a newer epoch than its own",
                epoch=epoch,
                leader_epoch=leader_epoch,
            )
        end_offset, newest_epoch = header.next_offset, epoch
    return found


def _too_large(size: int, limits: BatchLimits) -> KafkaError:
    return KafkaError(
        Code.MESSAGE_TOO_LARGE,
        "the batch exceeds max.message.bytes",
        size=size,
        limit=limits.max_bytes,
    )


def _refuse_short(data: Buffer) -> KafkaError:
    """Refuse fewer bytes than a header: they cannot be a complete batch."""
    if len(data) >= LOG_OVERHEAD_BYTES:
        length = int.from_bytes(data[8:12], "big", signed=True)
        if length < _LEGACY_LENGTH_MIN:
            return KafkaError(Code.CORRUPT_MESSAGE, "batch length below the header's")
    return KafkaError(Code.INVALID_RECORD, "there has to be exactly one record batch")


def _check_frame(data: Buffer, header: BatchHeader) -> KafkaError | None:
    """Check the lengths and the magic, and what follows the batch."""
    if header.batch_length < _LEGACY_LENGTH_MIN:
        return KafkaError(Code.CORRUPT_MESSAGE, "batch length below the header's")
    if not 0 <= header.magic <= 2:
        return KafkaError(Code.CORRUPT_MESSAGE, "unknown magic", magic=header.magic)
    left = len(data) - header.size_bytes
    if left < 0:
        return KafkaError(Code.INVALID_RECORD, "there has to be exactly one record batch")
    if header.magic != 2:
        return KafkaError(
            Code.INVALID_RECORD, "only v2 batches may be produced", magic=header.magic
        )
    if left >= LOG_OVERHEAD_BYTES and (problem := _check_rest(data, header.size_bytes, left)):
        return problem
    if header.size_bytes < HEADER_BYTES:
        return KafkaError(Code.CORRUPT_MESSAGE, "batch length below the header's")
    return None


def _check_rest(data: Buffer, start: int, left: int) -> KafkaError | None:
    length = int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
    if length < _LEGACY_LENGTH_MIN:
        return KafkaError(Code.CORRUPT_MESSAGE, "garbage after the batch")
    if left >= _MAGIC_BYTES and data[start + 16] > 2:
        return KafkaError(Code.CORRUPT_MESSAGE, "garbage after the batch")
    if left >= length + LOG_OVERHEAD_BYTES:
        return KafkaError(Code.INVALID_RECORD, "there has to be exactly one record batch")
    return None


def _check_attributes(attributes: int, limits: BatchLimits) -> KafkaError | None:
    if attributes & CONTROL_MASK:
        return KafkaError(Code.INVALID_RECORD, "clients may not write control records")
    if attributes & COMPRESSION_MASK > ZSTD:
        return KafkaError(
            Code.INVALID_RECORD, "unknown compression codec", codec=attributes & COMPRESSION_MASK
        )
    if attributes & TIMESTAMP_TYPE_MASK and limits.is_log_append_time:
        return KafkaError(Code.INVALID_TIMESTAMP, "a producer may not set log append time")
    return None


def _check_keys(data: Buffer, header: BatchHeader) -> KafkaError | None:
    """Refuse records without a key, which compaction could not tell apart."""
    try:
        if not all_have_keys(data, header, limit_bytes=KEYED_BATCH_BYTES_MAX):
            return KafkaError(
                Code.INVALID_RECORD, "a compacted topic takes no record without a key"
            )
    except KafkaError as problem:
        # Keep only a value: the traceback would keep everything that was decompressed in memory.
        return KafkaError(problem.code, problem.why)
    return None
