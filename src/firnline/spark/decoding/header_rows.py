"""Rows from the headers of batches alone, where the wanted columns need nothing else. SPARK.

The header of a batch states its first offset, its last, and how many records it has. If these are as many as
its offsets, each offset has one record, and the body is neither decompressed nor read (decision 0049).
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from firnline.base.units import KIB
from firnline.records.batch import COMPRESSION_MASK, HEADER_BYTES
from firnline.records.fast_path import RATIO_MAX
from firnline.spark.decoding.columns import (
    RECORD_BYTES_MIN,
    Rows,
    is_append_time,
    needs_numbers,
    record_batch,
    timestamps,
)
from firnline.spark.frames import Frames, Mask
from firnline.spark.schema import TIMESTAMP_MS_MAX, Wanted

# Rows of a RecordBatch: half a MiB for each column of 64 bits.
ROWS_MAX = 64 * KIB
_RATIO_MAX = np.array(RATIO_MAX, dtype=np.int64)


def need_no_bodies(frames: Frames, columns: tuple[str, ...]) -> Mask:
    """Return for each batch whether its header states all that `columns` need.

    A header that states more records than the body can hold is not believed.
    """
    if not {"key", "value", "headers"}.isdisjoint(columns):
        return np.zeros(len(frames.begins), dtype=np.bool_)
    counts = frames.column("record_count")
    body_bytes = frames.ends - frames.begins - HEADER_BYTES
    room_bytes = body_bytes * _RATIO_MAX[frames.column("attributes") & COMPRESSION_MASK]
    found: Mask = counts == frames.column("last_offset_delta") + 1
    found &= counts * RECORD_BYTES_MIN <= room_bytes
    if "timestamp" in columns:
        time_ms = frames.column("max_timestamp")
        found &= (time_ms <= TIMESTAMP_MS_MAX) & (time_ms >= -TIMESTAMP_MS_MAX)
        found &= is_append_time(frames)
    return found


def decode_headers(frames: Frames, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches that need no bodies, at most ROWS_MAX at a time."""
    base = frames.column("base_offset")
    last = base + frames.column("last_offset_delta")
    first = np.maximum(base, wanted.start_offset)
    counts = np.minimum(last, wanted.end_offset - 1) + 1 - first
    ends = np.cumsum(counts)
    shift = first - (ends - counts)
    numbered = needs_numbers(wanted.columns, frames)
    times_ms = frames.column("max_timestamp")
    is_plain = not numbered and "timestamp" not in wanted.columns and (shift == shift[0]).all()
    for begin in range(0, int(ends[-1]), ROWS_MAX):
        row = np.arange(begin, min(begin + ROWS_MAX, int(ends[-1])))
        if is_plain:  # the usual case: all that is asked for is one run of offsets
            yield record_batch(Rows(row + shift[0], None, {}), frames, wanted)
            continue
        batch = np.searchsorted(ends, row, side="right")
        fields = {}
        if "timestamp" in wanted.columns:
            fields["timestamp"] = timestamps(pa.array(times_ms[batch] * 1000))
        rows = Rows(row + shift[batch], batch if numbered else None, fields)
        yield record_batch(rows, frames, wanted)
