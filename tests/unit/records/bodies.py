"""Bodies of batches that are not compressed, and whether Kafka 4.3.1 takes them.

Each stands in a batch that is right in every other respect, its CRC included.
"""

from firnline.protocol.primitives import varint


def row(content: bytes, length: int | None = None) -> bytes:
    """Any bytes as a record, with its length, or another one, before them."""
    return varint(len(content) if length is None else length) + content


# Attributes, both deltas 0, a key of one byte, a value of one byte, no headers.
ROW = b"\0\0\0\x02k\x02v\0"
SECOND = b"\0\0\x02\x02k\x02v\0"  # offset delta 1
BARE = ROW[:-1]  # its header count is still to come
GOOD: dict[str, tuple[bytes, int]] = {
    "good": (row(ROW) + row(SECOND), 2),
    "attributes that nobody uses": (row(b"\x7f" + ROW[1:]), 1),
    "offset deltas that repeat": (row(ROW) + row(ROW), 2),
    "offset deltas that leap": (row(ROW) + row(b"\0\0\x0a\x02k\x02v\0"), 2),
    "a negative offset delta": (row(b"\0\0\x01\x02k\x02v\0"), 1),
    "a key of -2 bytes": (row(b"\0\0\0\x03\x02v\0"), 1),
    "a value of -2 bytes": (row(b"\0\0\0\x02k\x03\0"), 1),
    "a header": (row(BARE + b"\x02\x02h\x02v"), 1),
    "a header without a value": (row(BARE + b"\x02\x02h\x01"), 1),
    "a header value of -2 bytes": (row(BARE + b"\x02\x02h\x03"), 1),
    "a header name that is not UTF-8": (row(BARE + b"\x02\x02\xff\x02v"), 1),
    "a length in more bytes than it needs": (b"\x90\x00" + ROW, 1),
    "a length with bits above the 32nd": (b"\x90\x80\x80\x80\x10" + ROW, 1),
    "a time delta in ten bytes": (row(b"\0" + b"\x80" * 9 + b"\0" + ROW[2:]), 1),
}
BAD: dict[str, tuple[bytes, int]] = {
    "a record longer than the batch": (row(ROW, 50), 1),
    "a record of -1 bytes": (row(ROW, -1), 1),
    "a record of 0 bytes": (b"\0" + row(ROW), 1),
    "a record shorter than it says": (row(ROW + b"x"), 1),
    "a record longer than it says": (row(ROW, 7), 1),
    "a key beyond the record": (row(b"\0\0\0\x28k\x02v\0"), 1),
    "a value beyond the record": (row(b"\0\0\0\x02k\x28v\0"), 1),
    "a header count of -1": (row(BARE + b"\x01"), 1),
    "a header count beyond the record": (row(BARE + b"\x28"), 1),
    "a header name of -1 bytes": (row(BARE + b"\x02\x01\x02v"), 1),
    "a header value beyond the record": (row(BARE + b"\x02\x02h\x28"), 1),
    "bytes after the last record": (row(ROW) + b"xxx", 1),
    "a record more than is counted": (row(ROW) + row(SECOND), 1),
    "a record fewer than is counted": (row(ROW + bytes(9)), 2),
    "a length in six bytes": (b"\x90\x80\x80\x80\x80\x00" + ROW, 1),
    "a time delta in eleven bytes": (row(b"\0" + b"\x80" * 10 + b"\0" + ROW[2:]), 1),
    "zeros": (bytes(40), 5),
}
# By name: the body, the count in the header, and whether it is taken.
BODIES = {name: (*body, True) for name, body in GOOD.items()}
BODIES |= {name: (*body, False) for name, body in BAD.items()}
