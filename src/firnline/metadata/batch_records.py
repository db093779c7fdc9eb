"""Decodes the records of a batch of the metadata log, a step at a time. PURE.

Records of controllers have no keys, no record headers and frames of three bytes; the fast path decodes those
in place. Any other batch, and any damage, goes through `records.record` and `metadata.records`, which report
the error. Source: KIP-98, KIP-631; spec Q13.
"""

import struct
from collections.abc import Iterator

from firnline.base.errors import ProtocolError
from firnline.base.limits import ARRAY_ELEMENTS_MAX
from firnline.metadata import records as r
from firnline.protocol.compile import Reader, unguarded_reader
from firnline.protocol.primitives import read_uvarint
from firnline.protocol.schema import Message
from firnline.records.batch import HEADER_BYTES, BatchHeader
from firnline.records.compression import decompress
from firnline.records.record import records

_FRAME_VERSION = 1
_ODD = (struct.error, IndexError, UnicodeDecodeError, ProtocolError)
# Type and version, as two bytes of a frame -> reader.
_readers: dict[int, Reader] = {}


def batch_records(
    data: bytes, header: BatchHeader, *, at_most: int
) -> Iterator[list[tuple[int, Message]]]:
    """Yield the records of the batch at `header` in `data` with their offsets, some at a time.

    KafkaError CORRUPT_MESSAGE or ProtocolError for a damaged or unknown record, after the records before it.
    """
    start, count = header.position, header.record_count
    packed = memoryview(data)[start + HEADER_BYTES : start + header.size_bytes]
    body = decompress(header.codec, packed)
    done = position = 0
    while done < count:
        wanted = min(at_most, count - done)
        found = (
            _fast_path(body, position, wanted) if header.last_offset_delta == count - 1 else None
        )
        if found is None:
            yield from _checked_records(data, header, done, at_most)
            return
        messages, position = found
        first = header.base_offset + done
        done += wanted
        yield list(zip(range(first, first + wanted), messages, strict=True))
    if position != len(body):
        yield from _checked_records(data, header, done, at_most)


def _checked_records(
    data: bytes, header: BatchHeader, skip: int, at_most: int
) -> Iterator[list[tuple[int, Message]]]:
    """The rest of a batch, decoded by the general code, which checks every byte."""
    some: list[tuple[int, Message]] = []
    for count, row in enumerate(records(data, header)):
        if count < skip:
            continue
        some.append((row.offset, r.decode(row.value or b"")))
        if len(some) == at_most:
            yield some
            some = []
    if some:
        yield some


def _fast_path(body: bytes, position: int, count: int) -> tuple[list[Message], int] | None:
    """Decode `count` records from `position` on, and return where they end; None if the general code must do
    it."""
    messages: list[Message] = []
    try:
        for _ in range(count):
            length = body[position]
            position += 1
            if length > 127:
                more = body[position]
                if more < 128:
                    length += (more << 7) - 128
                    position += 1
                else:
                    length, position = read_uvarint(body, position - 1)
            end = position + (length >> 1)  # a signed varint of what is not negative
            position += 1  # attributes
            while body[position] > 127:  # time since that of the batch
                position += 1
            position += 1
            while body[position] > 127:  # offset since that of the batch
                position += 1
            position += 1
            if body[position] != 1:
                return None  # a key
            position += 1
            size = body[position]
            position += 1
            if size > 127:
                more = body[position]
                if more < 128:
                    size += (more << 7) - 128
                    position += 1
                else:
                    size, position = read_uvarint(body, position - 1)
            value_end = position + (size >> 1)
            if (length | size) & 1:
                return None  # negative
            if value_end + 1 != end or body[value_end] or body[position] != _FRAME_VERSION:
                return None
            frame = body[position + 1] << 8 | body[position + 2]
            read = _readers.get(frame) or _reader(frame)
            message, position = read(body, position + 3, value_end, [ARRAY_ELEMENTS_MAX])
            if position != value_end:
                return None
            messages.append(message)
            position = end
    except _ODD:
        return None
    return messages, position


def _reader(frame: int) -> Reader:
    """Return the reader of a type and version. ProtocolError if this release has none."""
    kind, version = r.TYPES.get(frame >> 8), frame & 255
    if kind is None or version not in kind.valid:
        raise ProtocolError("unknown record type or version", type=frame >> 8, version=version)
    read = _readers[frame] = unguarded_reader(kind, version)
    return read
