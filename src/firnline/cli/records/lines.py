"""Cuts input into records that a delimiter ends: lines, with or without a key. PURE.

A decoder gets the input piece by piece. It keeps what is not yet a whole record, and yields each record
with its number, from 1.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from firnline.cli.records.record import InputError, NewRecord

Numbered = tuple[int, NewRecord]
# What each line becomes.
Decode = Callable[[bytes], NewRecord]
# A record without an end: more than a broker would take by far.
PENDING_BYTES_MAX = 1 << 28


class Decoder(Protocol):
    """Makes records of input. `feed` and `end` raise InputError, which names the line."""

    def feed(self, data: bytes) -> Iterator[Numbered]:
        """Yield the records that end in this piece of the input."""

    def end(self) -> Iterator[Numbered]:
        """Yield the last record, if the input does not end with a delimiter."""


class Lines:
    """Records that a delimiter ends. An empty line is a record, too. `noun` is what messages call one."""

    def __init__(self, decode: Decode, delimiter: bytes = b"\n", noun: str = "line") -> None:
        self._noun = noun
        self._decode = decode
        self._delimiter = delimiter
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._number = 0

    def feed(self, data: bytes) -> Iterator[Numbered]:
        # A delimiter of several bytes may begin in the last piece and end in this one.
        if self._pending and len(self._delimiter) > 1:
            data = b"".join((*self._pending, data))
            self._pending.clear()
        first, *more = data.split(self._delimiter)
        self._pending.append(first)
        if not more:
            self._pending_bytes += len(first)
            if self._pending_bytes > PENDING_BYTES_MAX:
                raise InputError(f"{self._noun} {self._number + 1} has no end within 256 MiB")
            return
        lines = [b"".join(self._pending), *more[:-1]]
        self._pending, self._pending_bytes = [more[-1]], len(more[-1])
        for line in lines:
            yield self._one(line)

    def end(self) -> Iterator[Numbered]:
        if last := b"".join(self._pending):
            self._pending = []
            yield self._one(last)

    def _one(self, line: bytes) -> Numbered:
        self._number += 1
        try:
            return self._number, self._decode(line)
        except InputError as problem:
            raise InputError(f"{self._noun} {self._number}: {problem}") from None


def plain_line(*, key: bytes | None, key_delimiter: bytes | None, null_if_empty: bool) -> Decode:
    """Return what makes a record of a line: its value, or a key and a value.

    key            of lines that state none
    key_delimiter  what ends the key in a line; a line without it has no key of its own, as in kcat
    null_if_empty  send null in place of an empty key or value; a line's empty key is `key` then
    """

    def decode(line: bytes) -> NewRecord:
        own, value = key, line
        if key_delimiter is not None:
            before, found, after = line.partition(key_delimiter)
            if found:
                own, value = before or (key if null_if_empty else before), after
        if null_if_empty:
            return NewRecord(own or None, value or None)
        return NewRecord(own, value)

    return decode
