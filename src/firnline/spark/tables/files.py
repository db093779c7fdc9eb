"""Batches of a node's files, window by window; every one is checked. WORLD.

Files are opened to read, and nothing is locked or written: the node may run. Damage is an error that names
file and position.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from firnline.base.errors import KafkaError, StorageError
from firnline.base.units import MIB
from firnline.records.batch import (
    LOG_OVERHEAD_BYTES,
    OFFSET_AND_LENGTH,
    BatchHeader,
    crc_is_right,
    headers,
)

WINDOW_BYTES = 4 * MIB
SPAN_BYTES = 8 * MIB


class Placed(NamedTuple):
    """A complete batch: its header, the bytes in which it lies, and its position in the file."""

    data: bytes
    header: BatchHeader
    position: int


class Span(NamedTuple):
    """Complete batches of a file, checked: bytes [begin, end), offsets [base_offset, end_offset)."""

    path: str
    begin: int
    end: int
    base_offset: int
    end_offset: int


@contextmanager
def reading(path: str) -> Iterator[int]:
    """Open a file to read. StorageError if a running node has removed it, or if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as problem:
        raise StorageError(
            "a file of the node cannot be read; a running node may have removed it: read again",
            path=path,
            problem=problem.strerror,
        ) from None
    try:
        yield fd
    finally:
        os.close(fd)


def walk(fd: int, begin: int, end: int) -> Iterator[Placed]:
    """Yield the complete batches in bytes [begin, end) of a file, without looking at their CRCs.

    Ends at the first incomplete one. Raises KafkaError for a header that cannot be.
    """
    at, size = begin, WINDOW_BYTES
    while at < end:
        data = os.pread(fd, min(size, end - at), at)
        used = 0
        for header in headers(data):
            yield Placed(data, header, at + header.position)
            used = header.position + header.size_bytes
        size = WINDOW_BYTES
        if not used:
            if len(data) < LOG_OVERHEAD_BYTES:
                return
            size = OFFSET_AND_LENGTH.unpack_from(data)[1] + LOG_OVERHEAD_BYTES
            if size > end - at or size <= len(data):
                return
        at += used


def read_span(span: Span) -> Iterator[Placed]:
    """Yield the batches of a span. Raises StorageError if the file is not any more what was checked."""
    at, offset = span.begin, span.base_offset
    with reading(span.path) as fd:
        try:
            for found in walk(fd, span.begin, span.end):
                if not crc_is_right(found.data, found.header):
                    refuse(span.path, found.position, "a batch has another CRC than it says")
                yield found
                at, offset = found.position + found.header.size_bytes, found.header.next_offset
        except KafkaError as problem:
            refuse(span.path, at, str(problem))
    if (at, offset) != (span.end, span.end_offset):
        refuse(span.path, at, "the file was changed while it was read")


def refuse(path: str, position: int, problem: str, **facts: object) -> NoReturn:
    """Raise the StorageError for damage at a byte of a file."""
    raise StorageError(
        "a file of the node is damaged", path=path, position=position, problem=problem, **facts
    )


class SpanMaker:
    """Puts the batches of one file into spans of about `SPAN_BYTES`."""

    def __init__(self, path: str) -> None:
        self.spans: list[Span] = []
        self._path = path
        self._open: Span | None = None

    def add(self, found: Placed) -> None:
        header, end = found.header, found.position + found.header.size_bytes
        if self._open is None:
            self._open = Span(
                self._path, found.position, end, header.base_offset, header.next_offset
            )
        else:
            self._open = self._open._replace(end=end, end_offset=header.next_offset)
        if end - self._open.begin >= SPAN_BYTES:
            self.close()

    def close(self) -> None:
        """End the last span."""
        if self._open is not None:
            self.spans.append(self._open)
            self._open = None
