"""What `firnline consume` prints of messages, and stdout as bytes. WORLD."""

import os
import select
import sys
from collections.abc import Callable, Sequence
from typing import Any

from firnline.base.errors import FirnlineError
from firnline.cli.records.json_lines import line_of
from firnline.cli.records.record import Record
from firnline.cli.records.templates import Piece, pieces_of, printer

# Makes the bytes of some messages of librdkafka's.
Print = Callable[[Sequence[Any]], bytes]


class ClosedOutput(Exception):
    """Whoever read stdout has gone, as `head` does."""


class Unprintable(FirnlineError):
    """A record that cannot be printed; `before` is what was printed of its batch before it."""

    before: Sequence[bytes] = ()


class Output:
    """Stdout without a buffer: a record that was written is at the reader's."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise FirnlineError("cannot write to stdout: it is closed")
        sys.stdout.flush()
        self._descriptor = sys.stdout.fileno()
        self._watch = select.poll()
        self._watch.register(self._descriptor, 0)

    def write(self, data: bytes) -> None:
        """Write all bytes. Raises ClosedOutput, and FirnlineError for a file that cannot be written."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except BrokenPipeError:
            raise ClosedOutput from None
        except OSError as problem:
            raise FirnlineError(f"cannot write to stdout: {problem.strerror}") from None

    def check(self) -> None:
        """Raise ClosedOutput if nobody reads any more: there may be nothing to write for a long time."""
        if any(event & (select.POLLERR | select.POLLNVAL) for _, event in self._watch.poll(0)):
            raise ClosedOutput


def print_with(style: str | None, *, delimiter: bytes, key_end: bytes | None, null: bytes) -> Print:
    """Return what prints messages.

    style      a format, "json", or None for the value, or the key and the value
    delimiter  what ends a record, for None
    key_end    what ends a key, for None; None: no keys
    null       what a null is printed as, except in JSON

    Raises ValueError for a format that is none.
    """

    def text(content: bytes | None) -> bytes:
        return null if content is None else content

    if style is None and key_end is not None:
        between = key_end
        return lambda messages: b"".join(
            [text(each.key()) + between + text(each.value()) + delimiter for each in messages]
        )
    if style is None:
        return lambda messages: b"".join([text(each.value()) + delimiter for each in messages])
    show = line_of if style == "json" else printer(style, null)
    has_headers = style == "json" or Piece("h") in pieces_of(style)

    def print_(messages: Sequence[Any]) -> bytes:
        parts: list[bytes] = []
        try:
            for message in messages:
                parts.append(show(record_of(message, has_headers)))
        except Unprintable as problem:
            problem.before = parts
            raise
        return b"".join(parts)

    return print_


def record_of(message: Any, has_headers: bool) -> Record:
    """Return a message of librdkafka's as a record; its headers only where they are wanted: they cost most.

    Raises Unprintable if the name of a header is not UTF-8. The binding has no other way to it, and may crash
    if it is asked for these headers a second time.
    """
    kind, timestamp_ms = message.timestamp()
    try:
        headers = (message.headers() or ()) if has_headers else ()
    except (UnicodeDecodeError, SystemError):
        raise Unprintable(
            f"{message.topic()} [{message.partition()}] at offset {message.offset()}: the name of a"
            " header is not UTF-8; a format without %h prints the record"
        ) from None
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp_ms if kind else -1,
        message.key(),
        message.value(),
        headers,
    )
