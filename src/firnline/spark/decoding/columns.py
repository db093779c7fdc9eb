"""The rows of a group of batches, and the columns that its records do not have themselves. SPARK.

What the records have, one of two twins lays out: `native_records` or `numpy_records`.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from firnline.base.ports import Buffer
from firnline.base.units import INT32_MAX, MIB
from firnline.records.batch import TIMESTAMP_TYPE_MASK
from firnline.records.java_text import java_text
from firnline.spark.frames import Frames, Ints, Mask, transaction_states
from firnline.spark.schema import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    TRANSACTION_STATES,
    Wanted,
    arrow_schema,
)

# A record has at least its length, attributes, two deltas, two lengths and a header count.
RECORD_BYTES_MIN = 7
# Columns of the same value for all rows are kept for the next group, unless they are larger.
_KEPT_BYTES_MAX = MIB
_OF_BATCHES = frozenset(
    ("leaderEpoch", "producerId", "producerEpoch", "sequence", "transaction")
)  # fmt: skip


class Group(NamedTuple):
    """Decompressed batches: `body` holds their records between `begins` and `ends`."""

    body: Buffer
    begins: Ints
    ends: Ints
    frames: Frames


class Rows(NamedTuple):
    """The records of a group that are delivered.

    batch   the number of each one's batch in the group; None if `needs_numbers` says that nobody asks
    fields  columns that the records have themselves: of key, value, timestamp and headers those wanted
    """

    offset: Ints
    batch: Ints | None
    fields: dict[str, pa.Array]


def needs_numbers(columns: tuple[str, ...], frames: Frames) -> bool:
    """Whether a column takes its values from the batches, and these differ."""
    if not _OF_BATCHES.isdisjoint(columns):
        return True
    return "timestampType" in columns and _is_mixed(is_append_time(frames))


def is_append_time(frames: Frames) -> Mask:
    """Return for each batch whether its records have the time at which the leader appended them."""
    found: Mask = (frames.column("attributes") & TIMESTAMP_TYPE_MASK) != 0
    return found


def _is_mixed(mask: Mask) -> bool:
    return bool(mask.any() and not mask.all())


def record_batch(rows: Rows, frames: Frames, wanted: Wanted) -> pa.RecordBatch:
    """Put the wanted columns together."""
    arrays = [
        rows.fields[name] if name in rows.fields else _column(name, rows, frames, wanted)
        for name in wanted.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(wanted.columns))


def _column(name: str, rows: Rows, frames: Frames, wanted: Wanted) -> pa.Array:
    count = len(rows.offset)
    match name:
        case "topic":
            return _repeated(wanted.topic, pa.string(), count)
        case "partition":
            return _repeated(wanted.partition, pa.int32(), count)
        case "segmentId":
            return _repeated(wanted.segment_id, pa.string(), count)
        case "readFrom":
            return _repeated(wanted.read_from, pa.string(), count)
        case "offset":
            return pa.array(rows.offset)
        case "timestampType":
            types = np.where(is_append_time(frames), LOG_APPEND_TIME, CREATE_TIME)
            if rows.batch is None:
                return _repeated(int(types[0]), pa.int32(), count)
            return pa.array(types.astype(np.int32)[rows.batch])
        case _:
            assert rows.batch is not None
            return _batch_column(name, rows.offset, rows.batch, frames, wanted)


def _repeated(value: str | int | None, kind: pa.DataType, count: int) -> pa.Array:
    size_bytes = (len(value) + 4 if isinstance(value, str) else 8) * count
    if size_bytes > _KEPT_BYTES_MAX:
        return pa.repeat(pa.scalar(value, kind), count)
    return _kept(value, kind, 1 << (count - 1).bit_length()).slice(0, count)


@lru_cache(maxsize=16)
def _kept(value: str | int | None, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _batch_column(name: str, offset: Ints, batch: Ints, frames: Frames, wanted: Wanted) -> pa.Array:
    """Build a column from the headers of the batches."""
    if name == "transaction":
        states, is_none = transaction_states(frames, wanted)
        return pa.array(TRANSACTION_STATES).take(pa.array(states[batch], mask=is_none[batch]))
    kind = arrow_schema((name,)).field(0).type
    if name == "leaderEpoch":
        values = frames.column("leader_epoch")[batch]
        return pa.array(values, kind, mask=values < 0)
    producer = frames.column("producer_id")[batch]
    if name == "producerId":
        return pa.array(producer, kind, mask=producer < 0)
    if name == "producerEpoch":
        return pa.array(frames.column("producer_epoch")[batch], kind, mask=producer < 0)
    assert name == "sequence", name
    first = frames.column("base_sequence")[batch]
    # After the greatest one, sequences begin at 0 again.
    values = (first + offset - frames.column("base_offset")[batch]) & INT32_MAX
    return pa.array(values, kind, mask=(producer < 0) | (first < 0))


def timestamps(micros: pa.Array) -> pa.Array:
    """Return whole numbers as the type of the column."""
    return micros.view(pa.timestamp("us", tz="UTC"))


def header_pairs(keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return the headers of all records, given as two binary columns, as one column of structs."""
    return pa.StructArray.from_arrays([_texts(keys), values], names=["key", "value"])


def _texts(keys: pa.Array) -> pa.Array:
    """Return header keys as text; one that is not UTF-8 as Java shows it."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([java_text(key) for key in keys.to_pylist()], pa.string())
