r"""Formats such as '%t[%p]:%o %k=%s\n', with kcat's letters, and how records are printed in one. WORLD."""

import re
from collections.abc import Callable
from typing import NamedTuple

from firnline.cli.records.escapes import unescape
from firnline.cli.records.record import Headers, Record
from firnline.cli.records.times import iso_text
from firnline.config.parse import nearest

# What each letter stands for; docs/CLIENT.md has the same table.
FIELDS = {
    "s": "value",
    "v": "value",
    "S": "length of the value in bytes, -1 for null",
    "V": "length of the value in bytes, -1 for null",
    "R": "length of the value as four bytes, big endian",
    "k": "key",
    "K": "length of the key in bytes, -1 for null",
    "h": "headers, name=value,name=value",
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "T": "timestamp in milliseconds",
    "D": "timestamp as ISO 8601 in UTC",
}
_JSON = "json"  # the format that is no template
_TOKEN = re.compile(r"%(.|$)", re.DOTALL)


class Piece(NamedTuple):
    """A field of a format, or the bytes between two fields: `letter` is "" for these."""

    letter: str
    literal: bytes = b""


def pieces_of(text: str) -> list[Piece]:
    """Parse a format. Two neighbours are never both literals.

    Raises ValueError, which names the field or the escape that is not there.
    """
    found: list[Piece] = []
    literal, end = "", 0
    for each in _TOKEN.finditer(text):
        literal += text[end : each.start()]
        letter, end = each.group(1), each.end()
        if letter == "%":
            literal += "%"
        elif letter in FIELDS:
            found += [Piece("", unescape(literal))] if literal else []
            found.append(Piece(letter))
            literal = ""
        elif letter:
            known = " ".join(f"%{known}" for known in FIELDS)
            raise ValueError(f"%{letter} is not a field; there are {known}, and %% for a %")
        else:
            raise ValueError("a % at the end names no field; %% stands for one")
    literal += text[end:]
    if not found and nearest(text, (_JSON,)):
        raise ValueError(f"{text!r} names no field: did you mean {_JSON}?")
    return found + ([Piece("", unescape(literal))] if literal else [])


def printer(text: str, null: bytes = b"") -> Callable[[Record], bytes]:
    """Return what prints a record in a format. `null` is what a null key or value is printed as.

    Raises ValueError as `pieces_of` does.
    """
    parts = [_part(each, null) for each in pieces_of(text)]

    def shown(record: Record) -> bytes:
        return b"".join([part(record) for part in parts])

    return shown


def _part(piece: Piece, null: bytes) -> Callable[[Record], bytes]:
    if not piece.letter:
        return lambda _: piece.literal
    found: Callable[[Record], bytes] = {
        "s": lambda record: null if record.value is None else record.value,
        "S": lambda record: b"%d" % size_of(record.value),
        "R": lambda record: size_of(record.value).to_bytes(4, "big", signed=True),
        "k": lambda record: null if record.key is None else record.key,
        "K": lambda record: b"%d" % size_of(record.key),
        "h": lambda record: headers_text(record.headers),
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "T": lambda record: b"%d" % record.timestamp_ms,
        "D": lambda record: iso_text(record.timestamp_ms).encode(),
    }[{"v": "s", "V": "S"}.get(piece.letter, piece.letter)]
    return found


def size_of(content: bytes | None) -> int:
    """Return the length of a key or value in bytes, -1 for null, as the protocol has it."""
    return -1 if content is None else len(content)


def headers_text(headers: Headers) -> bytes:
    """Return headers as kcat prints them: a=1,b=2; a header that is null is printed as NULL."""
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if value is None else value)
        for name, value in headers
    )
