"""The fast path for batches as producers usually send them. PURE.

These are the reference implementations of the functions of the same names in _native.c. They check only
shape and CRC and return None for everything else. `records/validate.py` checks the topic's limits and says
what is wrong with other batches.

The compiled code also walks the records of an uncompressed batch, as Kafka does, for some ten nanoseconds a
record. In Python it would be a microsecond a record, so the Python code does not: a corrupt body with a right
CRC then reaches consumers as it came, as a compressed one always does.
"""

from collections.abc import Callable
from struct import error as StructError

from crc32c import crc32c

from firnline.base.native import native
from firnline.base.ports import Buffer
from firnline.base.units import INT64_MAX, wrap_int64
from firnline.protocol.primitives import varint
from firnline.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL_MASK,
)

# Length, attributes, two deltas, key length, value length and header count: at least one byte each.
_RECORD_BYTES_MIN = 7
# The highest possible compression ratio of each codec; unknown codecs are refused later. For snappy and lz4
# it is a limit of the format. Runs of equal bytes reach more in gzip (1,032) and zstd (32,768), but records
# are no such run, because each has another offset. The smallest possible records reach 0.7 records a byte in
# gzip and 1.8 in zstd; a batch that is refused has more than 64.
RATIO_MAX = (1, 448, 32, 256, 448, 1, 1, 1)
_unpack = HEADER.unpack_from


def has_room(record_count: int, size_bytes: int, attributes: int) -> bool:
    """Check whether a batch of `size_bytes` can hold so many records, given its codec."""
    room = (size_bytes - HEADER_BYTES) * RATIO_MAX[attributes & COMPRESSION_MASK]
    return record_count * _RECORD_BYTES_MIN <= room


def common_batch_python(data: Buffer, *, walks: bool = False) -> tuple[int, ...] | None:
    """Return the fields of the header if `data` is one complete v2 batch from offset 0, with the right CRC
    and a record count that fits its offsets and its bytes; else None.

    walks  also check the records, if they are not compressed
    """
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
    body = memoryview(data)[HEADER_BYTES:]
    if crc32c(memoryview(data)[CRC_START:]) != crc:
        return None
    if walks and not attributes & COMPRESSION_MASK and not right_body_python(body, count):
        return None
    return header


def right_body_python(data: Buffer, count: int) -> bool:
    """Check whether `data` is exactly `count` records, each with the stated length and number of headers."""
    position, end = 0, len(data)
    try:
        for _ in range(count):
            length, position = kafka_varint(data, position, end, 5)
            if length < 0 or length > end - position:
                return False
            if not _is_record(data, position, position + length):
                return False
            position += length
    except ShortBody:
        return False
    return position == end and count >= 0


Survey = tuple[int, int, bool, bool]


def survey_python(data: Buffer, count: int) -> Survey | None:
    """Look at a body that should be `count` records, at least one. None where `right_body` is False.

    Returns the smallest and greatest timestamp delta, whether all records have keys, and whether the body is
    plain: no record has attributes, and the offset deltas are 0, 1, 2 and so on.
    """
    if count <= 0 or not right_body_python(data, count):
        return None
    position, end = 0, len(data)
    least, greatest = INT64_MAX, -INT64_MAX - 1
    have_keys = is_plain = True
    for number in range(count):
        length, start = kafka_varint(data, position, end, 5)
        position = start + length
        time, after = kafka_varint(data, start + 1, end, 10)
        offset, after = kafka_varint(data, after, end, 5)
        key_length, _ = kafka_varint(data, after, end, 5)
        least, greatest = min(least, time), max(greatest, time)
        have_keys &= key_length >= 0
        is_plain &= data[start] == 0 and offset == number
    return least, greatest, have_keys, is_plain


def renumber_python(
    data: Buffer, count: int, base_ms: int | None, bytes_max: int
) -> tuple[bytes, int, int] | None:
    """Rewrite a body of `count` records as a current producer would: without attributes, with offset deltas
    0, 1, 2 and so on, and with timestamp deltas relative to the first record.

    Also returns the first and the greatest timestamp, wrapped to 64 bits as in every Kafka client. None where
    `right_body` is False, or where the new body would be larger than `bytes_max`.

    base_ms  the base timestamp of the deltas; None: all records have one timestamp, whatever their deltas are
    """
    if count <= 0 or not right_body_python(data, count):
        return None
    position, end = 0, len(data)
    out = bytearray()
    first = greatest = 0
    for number in range(count):
        length, start = kafka_varint(data, position, end, 5)
        position = start + length
        delta, after = kafka_varint(data, start + 1, end, 10)
        _, rest = kafka_varint(data, after, end, 5)
        time = wrap_int64((base_ms or 0) + delta)
        if not number:
            first = greatest = time
        greatest = max(greatest, time)
        record = b"\0" + varint(0 if base_ms is None else wrap_int64(time - first)) + varint(number)
        out += varint(len(record) + position - rest) + record + bytes(data[rest:position])
        if len(out) > bytes_max:
            return None
    return bytes(out), first, greatest


class ShortBody(Exception):
    """The bytes end early, or a varint does not end."""


def _is_record(data: Buffer, position: int, end: int) -> bool:
    _, position = kafka_varint(data, position + 1, end, 10)  # attributes and timestamp
    _, position = kafka_varint(data, position, end, 5)  # the offset: Kafka does not check it either
    position = _skip(data, position, end)
    position = _skip(data, position, end)
    count, position = kafka_varint(data, position, end, 5)
    if count < 0:
        return False
    for _ in range(count):
        size, position = kafka_varint(data, position, end, 5)
        if size < 0:
            return False
        position = _skip(data, position + size, end)
    return position == end


def _skip(data: Buffer, position: int, end: int) -> int:
    """Read a length and skip that many bytes; a negative length is null."""
    size, position = kafka_varint(data, position, end, 5)
    return position + max(size, 0)


def kafka_varint(data: Buffer, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    """Read a zigzag varint. Bits above its width are dropped, as in Kafka."""
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        if position >= end:
            raise ShortBody
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFF_FFFF if bytes_max == 5 else 0xFFFF_FFFF_FFFF_FFFF
            return value >> 1 ^ -(value & 1), position
    raise ShortBody


# A batch of more records goes to records/record.py, which can pause between them.
WALK_RECORDS_MAX = 4096
_BASE_OFFSET_MAX = INT64_MAX - 0xFFFF_FFFF
_UNUSUAL = COMPRESSION_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
Row = tuple[int, bytes | None, bytes | None]


def common_records_python(data: Buffer, position: int, at_most: int) -> tuple[list[Row], int]:
    """Return (offset, key, value) of the records of complete batches from `position` on, and the position
    after.

    Stops after the batch that fills `at_most` rows, and before a batch that needs the general code: one that
    is compressed, transactional, a control batch, damaged or incomplete, or that has headers or more than
    WALK_RECORDS_MAX records. Returns nothing of such a batch; the caller finds its header at the position.
    """
    rows: list[Row] = []
    while position >= 0 and len(rows) < at_most:
        try:
            fields = _unpack(data, position)
        except StructError:
            break
        base_offset, length, _, magic, crc, attributes, *_, count = fields
        end = position + length + LOG_OVERHEAD_BYTES
        if (
            end < position + HEADER_BYTES
            or end > len(data)
            or magic != 2
            or attributes & _UNUSUAL
            or not 0 <= count <= WALK_RECORDS_MAX
            or not 0 <= base_offset <= _BASE_OFFSET_MAX
        ):
            break
        batch = memoryview(data)[position:end]
        if crc32c(batch[CRC_START:]) != crc:
            break
        body = bytes(batch[HEADER_BYTES:])
        found = _rows(body, base_offset, count)
        if found is None:
            break
        rows += found
        position = end
    return rows, position


def _rows(body: bytes, base_offset: int, count: int) -> list[Row] | None:
    """Return the records of one body; None for a malformed body or one with headers."""
    rows: list[Row] = []
    position = 0
    try:
        for _ in range(count):
            length, position = kafka_varint(body, position, len(body), 5)
            end = position + length
            if length < 0 or end > len(body):
                return None
            _, position = kafka_varint(body, position + 1, end, 10)
            delta, position = kafka_varint(body, position, end, 5)
            key, position = _bytes(body, position, end)
            value, position = _bytes(body, position, end)
            headers, position = kafka_varint(body, position, end, 5)
            if headers or position != end:
                return None
            rows.append((base_offset + delta, key, value))
    except ShortBody:
        return None
    return rows if position == len(body) else None


def _bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = kafka_varint(body, position, end, 5)
    if size == -1:
        return None, position
    if size < 0 or size > end - position:
        raise ShortBody
    return body[position : position + size], position + size


common_batch: Callable[[Buffer], tuple[int, ...] | None] = (
    common_batch_python if native is None else native.common_batch
)
right_body: Callable[[Buffer, int], bool] | None = None if native is None else native.right_body
renumber: Callable[[Buffer, int, int | None, int], tuple[bytes, int, int] | None] = (
    renumber_python if native is None else native.renumber
)
survey: Callable[[Buffer, int], Survey | None] = survey_python if native is None else native.survey
common_records: Callable[[Buffer, int, int], tuple[list[Row], int]] = (
    common_records_python if native is None else native.common_records
)
