"""Varints, tagged sections, and checks against lengths that would cost memory. PURE.

Readers take (buffer, position, end) and return (value, next position). Message readers call these only off
the fast path: `protocol/compile.py` inlines the one-byte cases.
"""

from collections.abc import Callable
from typing import Any

from firnline.base.errors import ProtocolError
from firnline.base.limits import STRING_BYTES_MAX, TAGGED_FIELDS_MAX
from firnline.base.ports import Buffer


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint of up to 64 bits."""
    assert value >= 0
    if value < 1 << 14:
        return bytes((value,)) if value < 128 else bytes((value & 127 | 128, value >> 7))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Encode a signed (zigzag) varint of up to 64 bits."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def read_uvarint(buffer: Buffer, position: int, *, bits: int = 32) -> tuple[int, int]:
    """Decode an unsigned varint; ProtocolError if it is longer than `bits` allow, IndexError at the end."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> bits:
                raise ProtocolError("varint too large", bits=bits)
            return value, position
        shift += 7
        if shift >= bits + 3:
            raise ProtocolError("varint too long", bits=bits)


def read_varint(buffer: Buffer, position: int, *, bits: int = 32) -> tuple[int, int]:
    """Decode a signed (zigzag) varint."""
    value, position = read_uvarint(buffer, position, bits=bits)
    return value >> 1 ^ -(value & 1), position


def check_length(length: int, position: int, end: int) -> int:
    """Return the position after `length` bytes; ProtocolError if the message has fewer left."""
    after = position + length
    if length < 0 or after > end:
        raise ProtocolError("a length exceeds the message", length=length, left=end - position)
    return after


def read_string_length(buffer: Buffer, position: int) -> tuple[int, int]:
    """Decode the length of a compact string, a varint of its bytes plus one. ProtocolError above
    STRING_BYTES_MAX.

    Older string fields cannot be longer, and a server sends back in one field what a client sent in another.
    """
    value, position = read_uvarint(buffer, position)
    if value > STRING_BYTES_MAX + 1:
        raise ProtocolError("a string is too long", length=value - 1)
    return value, position


def string_length(size: int) -> bytes:
    """Encode the length of a compact string of so many bytes. ValueError above STRING_BYTES_MAX."""
    if size > STRING_BYTES_MAX:
        raise ValueError(f"a string of {size} bytes is too long to be sent")
    return uvarint(size + 1)


class TooManyElements(ProtocolError):
    """The arrays of a message have more elements than the reader allows."""


def check_count(count: int, element_bytes_min: int, left: int, budget: list[int]) -> int:
    """Return `count` if so many elements fit into `left` bytes and the message's budget."""
    if count < 0 or count * element_bytes_min > left:
        raise ProtocolError("an array count exceeds the message", count=count, left=left)
    budget[0] -= count
    if budget[0] < 0:
        raise TooManyElements("too many array elements in one message", count=count)
    return count


FieldReader = Callable[[Any, int, int, list[int]], tuple[Any, int]]
NO_TAGS: dict[int, tuple[str, FieldReader]] = {}


def read_tags(
    buffer: Any,
    position: int,
    end: int,
    budget: list[int],
    known: dict[int, tuple[str, FieldReader]],
    target: object,
) -> int:
    """Read a tagged section: set known fields on `target`, skip the rest; return the next position.

    Tags must ascend, as in every client; so a repeated tag is an error too.
    """
    count, position = read_uvarint(buffer, position)
    if count > TAGGED_FIELDS_MAX or count * 2 > end - position:
        raise ProtocolError("too many tagged fields", count=count)
    last_tag = -1
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        after = check_length(size, position, end)
        if tag <= last_tag:
            raise ProtocolError("tagged fields are not in ascending order", tag=tag)
        last_tag = tag
        if tag in known:
            name, read = known[tag]
            value, position = read(buffer, position, after, budget)
            if position != after:
                raise ProtocolError("a tagged field's size differs from its length", tag=tag)
            setattr(target, name, value)
        position = after
    return position
