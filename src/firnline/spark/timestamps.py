"""The first offset at or after a time, found by reading as little of the tier as that takes. SPARK.

As ListOffsets by timestamp: the first record, in offset order, whose timestamp is not below the time.
"""

from collections.abc import Callable, Sequence

import numpy as np

from firnline.base.units import MIB
from firnline.spark.decode import decode_frames
from firnline.spark.plan import OffsetIndex, Range
from firnline.spark.read import windows
from firnline.spark.schema import TIMESTAMP_MS_MAX, Wanted
from firnline.tiered.catalog import CatalogSegment
from firnline.tiered.objects.layout import LOG, TIME_INDEX
from firnline.tiered.spi import ObjectMissing, ObjectStore

TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
_WINDOW_BYTES = MIB


def first_offset_at(
    store: ObjectStore,
    ranges: Sequence[Range],
    timestamp_ms: int,
    *,
    load_index: Callable[[CatalogSegment], OffsetIndex | None],
) -> int | None:
    """Return the offset of the first record of `ranges` at or after `timestamp_ms`; None if none is.

    Errors of the store pass through; CorruptSegment for what cannot be read.
    """
    for one in ranges:
        if one.segment.max_timestamp_ms >= timestamp_ms:
            found = _first_in_range(store, one, timestamp_ms, load_index(one.segment))
            if found is not None:
                return found
    return None


def _first_in_range(
    store: ObjectStore, one: Range, timestamp_ms: int, index: OffsetIndex | None
) -> int | None:
    segment = one.segment
    key = segment.key(LOG)
    wanted = Wanted("", 0, ("offset", "timestamp"), one.start_offset, one.end_offset, source=key)
    begin = _position_before(store, segment, timestamp_ms, index)
    for window in windows(
        store, key, begin=begin, end=segment.size_bytes, window_bytes=_WINDOW_BYTES
    ):
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


def _position_before(
    store: ObjectStore, segment: CatalogSegment, timestamp_ms: int, index: OffsetIndex | None
) -> int:
    """Return a byte before which every record is older than the time, by the segment's indexes."""
    if index is None or TIME_INDEX not in segment.suffixes:
        return 0
    try:
        data = store.get(segment.key(TIME_INDEX))
    except ObjectMissing:
        return 0
    table = np.frombuffer(data[: len(data) // 12 * 12], dtype=TIME_ENTRY)
    times = table["timestamp"].astype(np.int64)
    if len(data) % 12 or (np.diff(times) < 0).any():
        return 0
    before = int(np.searchsorted(times, timestamp_ms, side="left")) - 1
    if before < 0:
        return 0
    offset = segment.base_offset + int(table["relative_offset"][before])
    entry = int(np.searchsorted(index.last_offsets, offset, side="right")) - 1
    return int(index.positions[entry]) if entry >= 0 else 0
