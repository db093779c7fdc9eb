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


# Header keys, and how Java shows them: `?` stands for U+FFFD. Most are not UTF-8: surrogates, sequences that
# are cut off, overlong ones, bad first bytes.
_SHOWN = {
    b"\xed\xa0\x80": "?",
    b"a\xed\xa0\x80z": "a?z",
    b"\xed\xa0": "?",
    b"\xed\xa0A": "?A",
    b"\xed\xa0\x80\xed\xb0\x80": "??",
    b"\xed": "?",
    b"\xe2\x82": "?",
    b"\xe2\x82A": "?A",
    b"\xe2A": "?A",
    b"\xf0\x9f\x98": "?",
    b"\xf0\x9f\x98A": "?A",
    b"\xf0\x9fA": "?A",
    b"\xc3": "?",
    b"\xe0\x80\x80": "???",
    b"\xe0\x80": "??",
    b"\xe0\xa0A": "?A",
    b"\xf0\x80\x80\x80": "????",
    b"\xf4\x90\x80\x80": "????",
    b"\xc0\x80": "??",
    b"\x80": "?",
    b"\xbf\xbf": "??",
    b"\xf5\x80\x80\x80": "????",
    b"\xf8\x88\x80\x80\x80": "?????",
    b"\xfe\xff": "??",
    b"\xf0\xed\xa0\x80": "??",
    b"\xe2\xed\xbf\xbf": "??",
    b"\xed\x9f\xbf\xed\xa0\xbf\xbf": "\ud7ff??",
    b"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80": "\xe4\u20ac\U0001f600",
    b"\xf1\xed\xa0": "??",
    b"": "",
}
SHOWN_BY_JAVA = {key: text.replace("?", "\ufffd") for key, text in _SHOWN.items()}


def record_with_header_keys(keys: tuple[bytes, ...], value: bytes) -> bytes:
    """Return the body of a batch with one record, whose headers have these keys and no values."""
    one = b"\0\0\0\x01" + varint(len(value)) + value + varint(len(keys))
    for key in keys:
        one += varint(len(key)) + key + varint(-1)
    return varint(len(one)) + one
