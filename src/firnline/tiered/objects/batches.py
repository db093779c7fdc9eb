"""Reads batches of a remote segment, each compared with its neighbours, index and metadata. STORE.

Source: spec 3.14-3.16, T39, T58; rel-T20.
"""

from typing import NamedTuple

from firnline.base.ids import NO_OFFSET
from firnline.base.ports import Buffer
from firnline.base.units import KIB
from firnline.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    crc_is_right,
    parse_header,
)
from firnline.records.times import first_at_time
from firnline.tiered.lineage import epoch_at
from firnline.tiered.objects.fingerprint import decode_fingerprint
from firnline.tiered.reads.indexes import SearchStart
from firnline.tiered.spi import DamagedObject, RemoteSegment, RemoteStorage

# Bytes to fetch in addition: the index is sparse, and a header must be complete.
SLACK_BYTES = 16 * KIB

SCAN_BYTES = 1024 * KIB


class Corrupt(DamagedObject):
    """Bytes from the tier are not the expected batches: fail closed (rel-T20)."""


class Misled(Corrupt):
    """An index does not match its batch: it has to be rebuilt from the batches."""


class Batches(NamedTuple):
    """Complete batches of a segment, the offset after the last one, and the position behind it."""

    data: bytes
    end_offset: int
    end_position: int


class _Window:
    """The fetched range of a segment. Positions are relative to the segment.

    Batches are read in order, from `start` on, and each is compared with the one before it.
    """

    def __init__(
        self, storage: RemoteStorage, segment: RemoteSegment, start: SearchStart, fetch_bytes: int
    ) -> None:
        self._storage = storage
        self._segment = segment
        self._search_start = start
        self._fetch_bytes = fetch_bytes
        self._data: Buffer = b""
        self._start = 0
        known = decode_fingerprint(segment.custom_metadata)
        self.may_have_gaps = known is None or known.may_have_gaps
        # Indexes of old segments may be wrong; others are verified copies, or rebuilt from the batches.
        self._unlike_index = Misled if known is None else Corrupt
        # The lowest offset that the next batch may have; None: the index has to say which batch it is.
        self._next: int | None = None if start.position else segment.base_offset
        if start.begins != NO_OFFSET:
            self._next = start.begins

    @property
    def segment_bytes(self) -> int:
        return self._segment.size_bytes

    def batch_at(self, position: int) -> BatchHeader:
        """Return the header of the batch at `position`; fetches it if it is not complete in the window.

        Raises Corrupt for bytes that no broker wrote there (rel-T20), Misled for a wrong index.
        """
        self._need(position, HEADER_BYTES)
        header = self._header(position)
        if header.magic != 2 or header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise self._unlike("a remote segment has bytes that are no batch", position=position)
        if header.size_bytes > self._segment.size_bytes - position:
            raise self._unlike("a batch is cut off by the end of its segment", position=position)
        self._need(position, header.size_bytes)
        if not crc_is_right(self._data, self._inside(header)):
            raise self._unlike("a batch in the tier has a wrong CRC", offset=header.base_offset)
        self._compare(header)
        self._next = header.next_offset
        return header

    def _compare(self, header: BatchHeader) -> None:
        """Check the fields that no CRC covers, offsets and epoch, by neighbours, index and metadata."""
        segment, base, expected = self._segment, header.base_offset, self._next
        if expected is None:
            if header.last_offset != self._search_start.ends:
                raise self._unlike("an index names another batch", offset=base)
            expected = base if segment.base_offset <= base else segment.base_offset
        is_last = header.position + header.size_bytes == segment.size_bytes
        epoch = epoch_at(segment.epochs, base)
        for is_wrong, why in (
            (base < expected, "a batch begins before the one before it ends"),
            (header.last_offset_delta < 0, "a batch ends before it begins"),
            (header.last_offset > segment.end_offset, "a batch in the tier is of another segment"),
            (epoch not in (None, header.leader_epoch), "a batch is of another leader epoch"),
            (
                not self.may_have_gaps
                and (
                    base > expected
                    or header.record_count != header.last_offset_delta + 1
                    or (is_last and header.last_offset != segment.end_offset)
                ),
                "records are missing in a segment of the tier",
            ),
        ):
            if is_wrong:
                raise Corrupt(why, offset=base, position=header.position)
        noted = self._search_start.noted_offset
        if (
            base <= noted <= header.last_offset
            and header.max_timestamp != self._search_start.noted_ms
        ):
            raise self._unlike_index("a time index says another time of a batch", offset=base)

    def _unlike(self, why: str, /, **facts: int) -> Corrupt:
        """Return the error; at the first position the index may be wrong instead of the batch."""
        kind = self._unlike_index if self._next is None else Corrupt
        return kind(why, **facts)

    def holds_batch(self, position: int) -> bool:
        """Whether the complete batch at `position` is in the window."""
        if not self._has(position, HEADER_BYTES):
            return False
        return self._has(position, self._header(position).size_bytes)

    def first_at_time(
        self, header: BatchHeader, time_ms: int, start_offset: int
    ) -> tuple[int, int] | None:
        return first_at_time(self._data, self._inside(header), time_ms, start_offset)

    def cut(self, position: int, end: int) -> bytes:
        return bytes(self._data[position - self._start : end - self._start])

    def _has(self, position: int, size_bytes: int) -> bool:
        return self._start <= position and position + size_bytes <= self._start + len(self._data)

    def _need(self, position: int, size_bytes: int) -> None:
        if self._has(position, size_bytes):
            return
        fetch_bytes = max(size_bytes, self._fetch_bytes)
        self._data = self._storage.fetch_segment(self._segment, position, fetch_bytes)
        self._start = position
        if len(self._data) < size_bytes:
            raise Corrupt("a remote segment is shorter than its metadata states", position=position)

    def _header(self, position: int) -> BatchHeader:
        return parse_header(self._data, position - self._start)._replace(position=position)

    def _inside(self, header: BatchHeader) -> BatchHeader:
        return header._replace(position=header.position - self._start)


def read_batches(
    storage: RemoteStorage,
    segment: RemoteSegment,
    *,
    start: SearchStart,
    offset: int,
    upto_offset: int,
    max_bytes: int,
) -> Batches:
    """Return complete batches from the one with `offset` on.

    `upto_offset` is exclusive: from there on the segment has another lineage. The first batch is complete,
    whatever its size. b"" if the segment ends before `offset`. Raises Corrupt.
    """
    [piece] = read_pieces(
        storage,
        segment,
        start=start,
        offset=offset,
        upto_offset=upto_offset,
        piece_bytes=max_bytes,
        pieces=1,
    )
    return piece


def read_pieces(
    storage: RemoteStorage,
    segment: RemoteSegment,
    *,
    start: SearchStart,
    offset: int,
    upto_offset: int,
    piece_bytes: int,
    pieces: int,
) -> list[Batches]:
    """Return what so many calls of `read_batches` would, each from the end of the one before.

    It makes one request. There are fewer where the range, or what was fetched, ends before, or where the next
    one is damaged. Raises Corrupt if the first one is.
    """
    window = _Window(storage, segment, start, pieces * piece_bytes + SLACK_BYTES)
    first = start.position
    while first < segment.size_bytes:
        header = window.batch_at(first)
        if header.last_offset >= offset:
            break
        first += header.size_bytes
    else:
        if not window.may_have_gaps:
            raise Corrupt("a segment in the tier ends before its last offset", offset=offset)
        return [Batches(b"", offset, first)]
    if header.base_offset >= upto_offset:
        return [Batches(b"", offset, first)]
    found: list[Batches] = []
    while True:
        try:
            end, end_offset, next_header = _piece_end(
                window, header, first, upto_offset, piece_bytes
            )
        except Corrupt:
            if found:
                return found
            raise
        found.append(Batches(window.cut(first, end), end_offset, end))
        if next_header is None or len(found) == pieces:
            return found
        first, header = end, next_header


def _piece_end(
    window: _Window, header: BatchHeader, first: int, upto_offset: int, piece_bytes: int
) -> tuple[int, int, BatchHeader | None]:
    """Return where the piece ends that begins with a batch, and its end offset; and the batch behind it.

    None for that batch: it is not complete in the window, or not part of the range.
    """
    end, end_offset = first + header.size_bytes, header.next_offset
    while end < window.segment_bytes and window.holds_batch(end):
        header = window.batch_at(end)
        if header.base_offset >= upto_offset:
            return end, end_offset, None
        if end + header.size_bytes - first > piece_bytes:
            return end, end_offset, header
        end, end_offset = end + header.size_bytes, header.next_offset
    return end, end_offset, None


def find_timestamp(
    storage: RemoteStorage,
    segment: RemoteSegment,
    *,
    start: SearchStart,
    timestamp_ms: int,
    from_offset: int,
    upto_offset: int,
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record in [from, upto) at or after the timestamp, or None."""
    window = _Window(storage, segment, start, SCAN_BYTES)
    position = start.position
    while position < segment.size_bytes:
        header = window.batch_at(position)
        if header.base_offset >= upto_offset:
            break
        position += header.size_bytes
        if header.max_timestamp < timestamp_ms or header.last_offset < from_offset:
            continue
        if header.is_control:
            continue
        found = window.first_at_time(header, timestamp_ms, from_offset)
        if found is not None:
            if found[0] <= start.noted_offset:
                raise Misled("a time index passes over a record", offset=found[0])
            return found
    return None
