"""Record batches in the shape that producers send: header and records, or None. PURE.

The twins of functions of the same names in _native.c. Nothing is judged here but shape and CRC: what a topic
allows is asked in `records/validate.py`, which also says of anything else what is wrong with it.

Compiled code walks the records of a batch that is not compressed, too, as Kafka does, for some ten
nanoseconds each. In Python it would be a microsecond each, so there it is left out, and a body that is
corrupt under a right CRC reaches consumers as it came; a compressed one does so in any case.
"""

from collections.abc import Callable
from struct import error as StructError

from crc32c import crc32c

from firnline.base.native import native
from firnline.base.ports import Buffer
from firnline.base.units import INT64_MAX
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

# Length, attributes, two deltas, key length, value length, header count: a byte each.
_RECORD_BYTES_MIN = 7
# The most that a byte of each codec may claim to open to; unknown codecs are refused further down. A byte
# of snappy or lz4 cannot open to more, whatever is in it. Runs of equal bytes open to more in gzip (1,032)
# and in zstd (32,768), but records are no such run: the offset of each is another. The smallest records that
# there are come to 0.7 a byte in gzip and 1.8 in zstd; what is refused has more than 64.
_RATIO_MAX = (1, 448, 32, 256, 448, 1, 1, 1)
_unpack = HEADER.unpack_from


def has_room(record_count: int, size_bytes: int, attributes: int) -> bool:
    """Whether a batch of `size_bytes` can hold so many records, given its codec."""
    room = (size_bytes - HEADER_BYTES) * _RATIO_MAX[attributes & COMPRESSION_MASK]
    return record_count * _RECORD_BYTES_MIN <= room


def usual_batch_python(data: Buffer, *, walks: bool = False) -> tuple[int, ...] | None:
    """Return the fields of a BatchHeader if `data` is one whole v2 batch from offset 0, with the right CRC
    and a record count that fits its offsets and its bytes; else None.

    walks  its records, if they are not compressed, have to be in order, too
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
    """Whether `data` is `count` records, each as long as it says, with as many headers, and no more."""
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
    """Look at `data`, which is to be `count` records, one or more: None where `right_body` says it is not.

    Returns the least and the greatest difference of their times from the base timestamp, whether all have
    keys, and whether it is plain: no record has attributes, and their offsets are 0, 1, 2 and so on.
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
    """Return the records of `data`, which is to be `count` of them, as a producer of today would write them:
    without attributes, with offsets 0, 1, 2 and so on, and with times as differences from the first one's.

    Also returns the time of the first, and the greatest, in 64 bits that wrap, as in every Kafka client.
    None where `right_body` says it is not, or where it would be more than `bytes_max`.

    base_ms  what times are differences from; None: all records have one time, whatever they say
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
        time = _wrapped((base_ms or 0) + delta)
        if not number:
            first = greatest = time
        greatest = max(greatest, time)
        record = b"\0" + varint(0 if base_ms is None else _wrapped(time - first)) + varint(number)
        out += varint(len(record) + position - rest) + record + bytes(data[rest:position])
        if len(out) > bytes_max:
            return None
    return bytes(out), first, greatest


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


class ShortBody(Exception):
    """Bytes that end early, or a varint that does not end."""


def _is_record(data: Buffer, position: int, end: int) -> bool:
    _, position = kafka_varint(data, position + 1, end, 10)  # attributes, and the time
    _, position = kafka_varint(
        data, position, end, 5
    )  # the offset: Kafka does not compare it either
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
    """Pass bytes behind their length; a negative one is null."""
    size, position = kafka_varint(data, position, end, 5)
    return position + max(size, 0)


def kafka_varint(data: Buffer, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    """Read a zigzag varint; bits above its width are dropped, as Kafka does."""
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


# More records than that in one batch are decoded by records/record.py, which can pause among them.
WALK_RECORDS_MAX = 4096
_BASE_OFFSET_MAX = INT64_MAX - 0xFFFF_FFFF
_UNUSUAL = COMPRESSION_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
Row = tuple[int, bytes | None, bytes | None]


def usual_records_python(data: Buffer, position: int, at_most: int) -> tuple[list[Row], int]:
    """Return (offset, key, value) of the records of whole batches from `position` on, and where to go on.

    It ends after the batch with which there are `at_most` rows, and before anything unusual: what is
    compressed, transactional or control, has headers or more than WALK_RECORDS_MAX records, is damaged or
    not whole. Nothing of such a batch is returned; who asks finds its header at the position.
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
    """Return the records of one body; None for what is not in order, or has headers."""
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


usual_batch: Callable[[Buffer], tuple[int, ...] | None] = (
    usual_batch_python if native is None else native.usual_batch
)
right_body: Callable[[Buffer, int], bool] | None = None if native is None else native.right_body
renumber: Callable[[Buffer, int, int | None, int], tuple[bytes, int, int] | None] = (
    renumber_python if native is None else native.renumber
)
survey: Callable[[Buffer, int], Survey | None] = survey_python if native is None else native.survey
usual_records: Callable[[Buffer, int, int], tuple[list[Row], int]] = (
    usual_records_python if native is None else native.usual_records
)
