"""Encode and decode the records in a batch body. PURE.

Not on the hot path: produce and fetch do not decode records. Coordinators, the metadata log, compaction,
timestamp lookups and tests do. Source: KIP-98 'Message Format'.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from firnline.base.errors import Code, KafkaError, ProtocolError
from firnline.base.limits import DECOMPRESSED_BATCH_BYTES_MAX
from firnline.base.ports import Buffer
from firnline.base.units import INT64_MAX, wrap_int64
from firnline.protocol.primitives import read_varint, varint
from firnline.records.batch import HEADER_BYTES, BatchHeader
from firnline.records.compression import decompress
from firnline.records.java_text import java_text

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record. `offset` and `timestamp_ms` are absolute. Header keys are text as Java shows it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def records(
    data: Buffer, header: BatchHeader, *, limit_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> Iterator[Record]:
    """Decode the records of the batch `header` found in `data`, also of control batches.

    Raises KafkaError CORRUPT_MESSAGE when the body does not match the header, INVALID_RECORD when it
    decompresses to more than `limit_bytes`.
    """
    start = header.position
    packed = memoryview(data)[start + HEADER_BYTES : start + header.size_bytes]
    body = decompress(header.codec, packed, limit_bytes=limit_bytes)
    position, end = 0, len(body)
    try:
        for _ in range(header.record_count):
            length, position = read_varint(body, position)
            after = position + length
            if length < 0 or after > end:
                raise ProtocolError("record length exceeds the batch", length=length)
            yield _record(body, position, after, header)
            position = after
        if position != end:
            raise ProtocolError("bytes after the last record", left=end - position)
    except (IndexError, ProtocolError) as problem:
        raise KafkaError(
            Code.CORRUPT_MESSAGE, "undecodable record", offset=header.base_offset, problem=problem
        ) from None


def all_have_keys(data: Buffer, header: BatchHeader, *, limit_bytes: int) -> bool:
    """Check whether each record of the batch `header` found in `data` has a key. Decodes nothing else.

    Raises KafkaError CORRUPT_MESSAGE when the body does not match the header, INVALID_RECORD when it
    decompresses to more than `limit_bytes`.
    """
    start = header.position
    packed = memoryview(data)[start + HEADER_BYTES : start + header.size_bytes]
    body = decompress(header.codec, packed, limit_bytes=limit_bytes)
    position, end = 0, len(body)
    try:
        for _ in range(header.record_count):
            length, position = read_varint(body, position)
            after = position + length
            if length < 0 or after > end:
                raise ProtocolError("record length exceeds the batch", length=length)
            _, position = read_varint(body, position + 1, bits=64)
            _, position = read_varint(body, position)
            key_length, _ = read_varint(body, position)
            if key_length < 0:
                return False
            position = after
    except (IndexError, ProtocolError) as problem:
        raise KafkaError(
            Code.CORRUPT_MESSAGE, "undecodable record", offset=header.base_offset, problem=problem
        ) from None
    return True


def _record(body: bytes, position: int, end: int, header: BatchHeader) -> Record:
    position += 1  # attributes: unused
    timestamp_delta, position = read_varint(body, position, bits=64)
    offset_delta, position = read_varint(body, position)
    key, position = _bytes(body, position, end)
    value, position = _bytes(body, position, end)
    count, position = read_varint(body, position)
    if count < 0 or count * 2 > end - position:
        raise ProtocolError("header count exceeds the record", count=count)
    pairs = []
    for _ in range(count):
        name, position = _bytes(body, position, end)
        content, position = _bytes(body, position, end)
        if name is None:
            raise ProtocolError("null header key")
        pairs.append((java_text(name), content))
    if position != end:
        raise ProtocolError("the record's size differs from its length field", left=end - position)
    timestamp = (
        header.max_timestamp
        if header.is_log_append_time
        else header.base_timestamp + timestamp_delta
    )
    if not -INT64_MAX <= timestamp <= INT64_MAX:
        timestamp = wrap_int64(timestamp)
    return Record(header.base_offset + offset_delta, timestamp, key, value, tuple(pairs))


def _bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(body, position)
    if length == -1:
        return None, position
    if length < 0 or length > end - position:
        raise ProtocolError("length exceeds the record", length=length)
    return body[position : position + length], position + length


def encode_records(
    items: Iterable[tuple[int, bytes | None, bytes | None, tuple[Header, ...]]], first: int = 0
) -> bytes:
    """Encode (timestamp delta, key, value, headers) rows as the uncompressed body of a batch.

    first  how many records of the body come before these
    """
    out = bytearray()
    for offset_delta, (timestamp_delta, key, value, pairs) in enumerate(items, first):
        if timestamp_delta == 0 and key is None and value is not None and not pairs:
            # Controllers write thousands of such records in a batch.
            front = b"\0\0" + varint(offset_delta) + b"\x01" + varint(len(value))
            out += varint(len(front) + len(value) + 1) + front + value + b"\0"
            continue
        one = bytearray(b"\0")
        if not -INT64_MAX <= timestamp_delta <= INT64_MAX:
            timestamp_delta = wrap_int64(timestamp_delta)
        one += varint(timestamp_delta)
        one += varint(offset_delta)
        for part in (key, value):
            one += b"\x01" if part is None else varint(len(part)) + part
        one += varint(len(pairs))
        for name, content in pairs:
            encoded = name.encode()
            one += varint(len(encoded)) + encoded
            one += b"\x01" if content is None else varint(len(content)) + content
        out += varint(len(one))
        out += one
    return bytes(out)
