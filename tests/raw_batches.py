"""Batches whose CRC is right, whatever is in them."""

from crc32c import crc32c

from firnline.protocol.primitives import varint
from firnline.records.batch import CRC_START, HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES

GZIP = 1


def raw_batch(body: bytes, *, codec: int = 0, count: int = 1, base_offset: int = 0) -> bytearray:
    """Return a batch of `count` offsets with this body."""
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body)
    head = (base_offset, length, 0, 2, 0, codec, count - 1, 1, 1, -1, -1, -1, count)
    data = bytearray(HEADER.pack(*head) + body)
    data[17:21] = crc32c(bytes(data[CRC_START:])).to_bytes(4, "big")
    return data


def misplaced_batch(offset_delta: int, codec: int = 0) -> bytearray:
    """Return a batch of one offset whose record says that it is at another."""
    one = b"\0" + varint(0) + varint(offset_delta) + b"\x01" + varint(1) + b"x" + b"\0"
    return raw_batch(varint(len(one)) + one, codec=codec)
