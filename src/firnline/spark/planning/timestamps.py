"""Find the first offset at or after a timestamp, reading as little of the tier as possible. SPARK.

Like ListOffsets by timestamp: the first record, in offset order, whose timestamp is not below the given one.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from firnline.base.ids import NO_OFFSET
from firnline.base.units import MIB
from firnline.formats import time_index
from firnline.spark.decode import decode_frames
from firnline.spark.frames import Frames, check_crcs
from firnline.spark.integrity import Continuity, load_optional
from firnline.spark.log_lines import warn
from firnline.spark.planning.plan import (
    Confirm,
    Load,
    OffsetIndex,
    Piece,
    Range,
    Segment,
    chunks_of,
)
from firnline.spark.read import Window, check_identity, windows
from firnline.spark.schema import TIMESTAMP_MS_MAX, Wanted
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog.format import SPLIT_BYTES
from firnline.tiered.objects.layout import LOG, TIME_INDEX

TIME_ENTRY = np.dtype(list(time_index.FIELDS))
_WINDOW_BYTES = MIB
_CHUNK_BYTES_MAX = 2 * SPLIT_BYTES
_log = logging.getLogger(__name__)


def first_offset_at(
    store: ObjectStore,
    ranges: Sequence[Range],
    timestamp_ms: int,
    *,
    load_index: Load,
    confirms: Confirm,
) -> int | None:
    """Return the offset of the first record of `ranges` at or after `timestamp_ms`, or None.

    Errors of the store pass through; CorruptSegment for what cannot be read. If an index differs from its
    segment, the segment is scanned from its beginning.
    """
    for one in ranges:
        if one.segment.max_timestamp_ms >= timestamp_ms:
            found = _first_in_range(store, one, timestamp_ms, load_index, confirms)
            if found is not None:
                return found
    return None


class _Start(NamedTuple):
    """Where a search begins: at an index entry or a split, else at the segment's beginning.

    first_ends, first_offset  as in `Piece`
    offset                    the batch that holds it has the greatest timestamp so far, `timestamp_ms`; -1:
                              no time index was used
    window_bytes              how much is read at once
    """

    position: int = 0
    first_ends: int = NO_OFFSET
    first_offset: int = NO_OFFSET
    offset: int = NO_OFFSET
    timestamp_ms: int = -1
    window_bytes: int = _WINDOW_BYTES


class _WrongIndexEntry(Exception):
    """An entry of the time index does not match its batch."""


def _first_in_range(
    store: ObjectStore,
    one: Range,
    timestamp_ms: int,
    load_index: Load,
    confirms: Confirm,
) -> int | None:
    start = _Start()
    known = one.segment.fingerprint
    may_begin_inside = known is None or not known.may_have_gaps
    if may_begin_inside and one.segment.splits:
        start = _start_at_split(one, timestamp_ms)
    elif may_begin_inside:
        index = load_index(one.segment)
        if index is not None:
            start = _start_before(store, one.segment, timestamp_ms, index, confirms)
    try:
        return _search(store, one, timestamp_ms, start)
    except _WrongIndexEntry:
        warn(_log, "a time index differs from its segment", segment=one.segment.stem)
        return _search(store, one, timestamp_ms, _Start())


def _search(store: ObjectStore, one: Range, timestamp_ms: int, start: _Start) -> int | None:
    segment = one.segment
    key, size = segment.key(LOG), segment.size_bytes
    wanted = Wanted(
        "",
        0,
        ("offset", "timestamp"),
        one.start_offset,
        one.end_offset,
        verify_crc=False,
        source=key,
    )
    piece = Piece(
        segment, start.position, size, one.start_offset, one.end_offset, start.first_ends,
        first_offset=start.first_offset,
    )  # fmt: skip
    check_identity(store, piece)
    continuity = Continuity(piece)
    found: int | None = None
    for window in windows(
        store, key, begin=start.position, end=size, window_bytes=start.window_bytes
    ):
        continuity.note(window.frames)
        check_crcs(window.data, window.frames, wanted)
        _check_time(window.frames, start)
        if found is None:
            found = _first_in_window(window, wanted, timestamp_ms)
            if found is not None and found <= start.offset:
                raise _WrongIndexEntry
        is_past = window.frames.heads["base_offset"][-1] >= one.end_offset
        if (found is not None or is_past) and not continuity.needs_all:
            return found
    continuity.finish()
    return found


def _check_time(frames: Frames, start: _Start) -> None:
    """Refuse a time index with an entry that does not match its batch."""
    first, last = int(frames.heads["base_offset"][0]), frames.column("base_offset")
    last = last + frames.column("last_offset_delta")
    if not first <= start.offset <= int(last[-1]):
        return
    holder = int(np.searchsorted(last, start.offset, side="left"))
    if int(frames.heads["max_timestamp"][holder]) != start.timestamp_ms:
        raise _WrongIndexEntry


def _first_in_window(window: Window, wanted: Wanted, timestamp_ms: int) -> int | None:
    reaching = np.flatnonzero(window.frames.heads["max_timestamp"] >= timestamp_ms).tolist()
    for number in reaching:
        only = window.frames.part(number, number + 1)
        for batch in decode_frames(window.data, only, wanted):
            micros = batch.column("timestamp").view("int64").to_numpy()
            late = np.flatnonzero(micros >= min(timestamp_ms, TIMESTAMP_MS_MAX) * 1000)
            if late.size:
                offset: int = batch.column("offset")[int(late[0])].as_py()
                return offset
    return None


def _start_at_split(one: Range, timestamp_ms: int) -> _Start:
    """Return the last split before which no record of the range is as late as the timestamp.

    The first such record is probably before the next split, so as much is read at once.
    """
    chunks = chunks_of(one.segment)
    by_time = int(np.searchsorted(chunks.newest_ms, timestamp_ms, side="left"))
    by_offset = int(np.searchsorted(chunks.offsets, one.start_offset, side="right")) - 1
    number = min(max(by_time, by_offset), len(chunks.newest_ms) - 1)
    position, end = int(chunks.positions[number]), int(chunks.positions[number + 1])
    return _Start(
        position,
        first_offset=int(chunks.offsets[number]) if number else NO_OFFSET,
        window_bytes=min(end - position, _CHUNK_BYTES_MAX),
    )


def _start_before(
    store: ObjectStore,
    segment: Segment,
    timestamp_ms: int,
    index: OffsetIndex,
    confirms: Confirm,
) -> _Start:
    """Return a start before which every record is older than the timestamp, by the segment's indexes."""
    data = load_optional(store, segment, TIME_INDEX)
    if data is None:
        return _Start()
    table = np.frombuffer(
        data[: len(data) // TIME_ENTRY.itemsize * TIME_ENTRY.itemsize], dtype=TIME_ENTRY
    )
    times = table["timestamp"].astype(np.int64)
    relative = table["relative_offset"].astype(np.int64)
    if (
        len(data) % TIME_ENTRY.itemsize
        or (np.diff(times) < 0).any()
        or (np.diff(relative) < 0).any()
    ):
        return _Start()
    before = int(np.searchsorted(times, timestamp_ms, side="left")) - 1
    if before < 0:
        return _Start()
    offset = segment.base_offset + int(relative[before])
    # The batch that holds the offset is read too, to check the entry.
    entry = int(np.searchsorted(index.last_offsets, offset, side="right")) - 1
    if not segment.base_offset <= offset <= segment.end_offset or entry < 0:
        return _Start()
    if not confirms(segment, index, [entry]):
        return _Start()
    place, ends = int(index.positions[entry]), int(index.last_offsets[entry])
    return _Start(place, ends, offset=offset, timestamp_ms=int(times[before]))
