r"""Reads records in a format such as '%k=%v\n', with the letters of `firnline consume -f`. PURE.

A field ends where the text that follows it begins. With %K and %V before them, a key and a value are as
long as these say, and may hold anything.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from firnline.cli.records.lines import PENDING_BYTES_MAX, Numbered
from firnline.cli.records.record import InputError, NewRecord
from firnline.cli.records.templates import Piece, pieces_of

# What each length measures. %R is binary: four bytes.
_MEASURED = {"K": "k", "S": "v", "V": "v", "R": "v"}
_R_BYTES = 4
_PARTITION_MAX, _TIMESTAMP_MAX = (1 << 31) - 1, (1 << 63) - 1


class Step(NamedTuple):
    """A field to read, or bytes to skip (letter "").

    until  what ends the field, or the bytes to skip; None for a field whose length is known when it begins
    """

    letter: str
    until: bytes | None


class Format:
    """A decoder of records in a format. Raises ValueError for one that does not say where a field ends."""

    def __init__(self, text: str, delimiter: bytes = b"\n", *, null_if_empty: bool = False) -> None:
        self._steps = steps_of(pieces_of(text), delimiter)
        self._null_if_empty = null_if_empty
        self._rest = b""
        self._number = 0

    def feed(self, data: bytes) -> Iterator[Numbered]:
        """Yield the records that end in this piece of the input. Raises InputError."""
        yield from self._records(self._rest + data, is_end=False)
        if len(self._rest) > PENDING_BYTES_MAX:
            raise InputError(f"record {self._number + 1} has no end within 256 MiB")

    def end(self) -> Iterator[Numbered]:
        """Yield the last record, if the input does not end with a delimiter. Raises InputError."""
        yield from self._records(self._rest, is_end=True)
        if self._rest:
            raise InputError(f"record {self._number + 1}: the input ends within it")

    def _records(self, data: bytes, *, is_end: bool) -> Iterator[Numbered]:
        at = 0
        while at < len(data):
            try:
                found = self._one(data, at, is_end=is_end)
            except InputError as problem:
                raise InputError(f"record {self._number + 1}: {problem}") from None
            if found is None:
                break
            record, at = found
            self._number += 1
            yield self._number, record
        self._rest = data[at:]

    def _one(self, data: bytes, at: int, *, is_end: bool) -> tuple[NewRecord, int] | None:
        """Read the record at a position; None: the rest of it is not here yet."""
        found: dict[str, bytes | None] = {}
        sizes = {"R": _R_BYTES}
        last = len(self._steps) - 1
        for index, (letter, until) in enumerate(self._steps):
            if not letter:
                assert until is not None
                may_be_missing = is_end and index == last and at == len(data)
                if data.startswith(until, at):
                    at += len(until)
                elif not is_end and until.startswith(data[at : at + len(until)]):
                    return None
                elif not may_be_missing:
                    raise InputError(f"{_shown(until)} is expected, not {_shown(data[at:])}")
                continue
            if until is None:
                size = sizes[letter]
                end = at + max(size, 0)
                if end > len(data):
                    return None
            else:
                size, end = 0, data.find(until, at)
                if end < 0:
                    if not is_end or index + 1 < last:
                        return None
                    end = len(data)
            found[letter] = None if size < 0 else data[at:end]
            at = end
            if letter in _MEASURED:
                sizes[_MEASURED[letter]] = _size(letter, found[letter] or b"")
        return self._record(found), at

    def _record(self, found: dict[str, bytes | None]) -> NewRecord:
        key, value = found.get("k"), found.get("v")
        if self._null_if_empty:
            key, value = key or None, value or None
        return NewRecord(
            key,
            value,
            headers_of(found.get("h") or b""),
            _number(found.get("p"), "partition", 0, _PARTITION_MAX),
            _number(found.get("T"), "timestamp", 1, _TIMESTAMP_MAX),
        )


def steps_of(pieces: Sequence[Piece], delimiter: bytes) -> list[Step]:
    """Return how to read a format; a last field without a known length ends with the delimiter.

    Raises ValueError where the end of a field cannot be known.
    """
    pieces = [Piece("v") if each.letter == "s" else each for each in pieces]
    letters = [each.letter for each in pieces if each.letter]
    if not {"k", "v"} & {*letters}:
        raise ValueError("a format to read needs %k or %v")
    found: list[Step] = []
    measured: set[str] = set()
    for index, (letter, literal) in enumerate(pieces):
        following = pieces[index + 1] if index + 1 < len(pieces) else Piece("", delimiter)
        if not letter:
            found.append(Step("", literal))
            continue
        if letters.count(letter) > 1:
            raise ValueError(f"%{letter} is there twice")
        if letter in _MEASURED:
            if letters.index(letter) > letters.index(_MEASURED[letter]):
                raise ValueError(f"%{letter} has to come before what it measures")
            measured.add(_MEASURED[letter])
        if letter in measured or letter == "R":
            found.append(Step(letter, None))
        elif following.letter:
            raise ValueError(
                f"%{letter} and %{following.letter} need something between them, or the length"
                " of the first before it"
            )
        else:
            found.append(Step(letter, following.literal))
            if index + 1 == len(pieces):
                found.append(Step("", delimiter))
    return found


def headers_of(text: bytes) -> list[tuple[str, bytes | None]]:
    """Parse name=value,name=value. A name without `=` is a header that is null. Raises InputError."""
    found: list[tuple[str, bytes | None]] = []
    for each in text.split(b",") if text else []:
        name, equals, value = each.partition(b"=")
        try:
            found.append((name.decode(), value if equals else None))
        except UnicodeDecodeError:
            raise InputError(f"the name of a header is not UTF-8: {_shown(name)}") from None
    return found


def _size(letter: str, text: bytes) -> int:
    if letter == "R":
        size = int.from_bytes(text, "big", signed=True)
    else:
        digits = text.removeprefix(b"-")
        if not digits.isdigit() or len(digits) > 10:
            raise InputError(f"%{letter} is not a length: {_shown(text)}")
        size = int(text)
    if not -1 <= size <= PENDING_BYTES_MAX:
        raise InputError(f"%{letter} is not a length: {size}")
    return size


def _number(text: bytes | None, name: str, least: int, most: int) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or len(text) > 19 or not least <= int(text) <= most:
        raise InputError(f"{_shown(text)} is not a {name}")
    return int(text)


def _shown(content: bytes) -> str:
    return repr(content[:40])[1:] + ("..." if len(content) > 40 else "")
