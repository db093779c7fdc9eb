"""Decode segment bytes to Arrow RecordBatches with numpy, without a Python object per record. SPARK.

Batches are decompressed in groups. First the starts of all records of a group are found (`starts.py`). Then
each field is read for all records at once, and Arrow copies keys and values out. When a check fails, the
reference implementation reads the group again and names the bad record. Source: spark section 2.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from firnline.base.errors import FirnlineError
from firnline.base.ports import Buffer
from firnline.base.units import INT32_MAX
from firnline.records.batch import COMPRESSION_MASK, HEADER_BYTES, TIMESTAMP_TYPE_MASK
from firnline.records.java_text import java_text
from firnline.spark import decode_python
from firnline.spark.bodies import open_body
from firnline.spark.frames import (
    Bytes,
    Frames,
    Ints,
    Mask,
    check_crcs,
    find_frames,
    select_frames,
    transaction_states,
)
from firnline.spark.schema import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    OFFICIAL_COLUMNS,
    TIMESTAMP_MS_MAX,
    TRANSACTION_STATES,
    CorruptSegment,
    Wanted,
    arrow_schema,
)
from firnline.spark.starts import record_ends, record_starts
from firnline.spark.varints import Corrupt, read_int32s, read_int64s

# A record has at least its length, attributes, two deltas, two lengths and a header count.
_RECORD_BYTES_MIN = 7


class _Group(NamedTuple):
    """Decompressed batches: `body` holds their records between `begins` and `ends`."""

    body: Buffer
    begins: Ints
    ends: Ints
    frames: Frames


class _Fields(NamedTuple):
    """Positions of the fields of each record in the group's body; length -1 is null.

    batch  the number of the record's batch in the group.
    """

    batch: Ints
    offset: Ints
    timestamp_ms: Ints
    timestamp_type: Ints
    key: "_Spans"
    value: "_Spans"
    header_count: Ints
    header_begin: Ints
    end: Ints

    def only(self, mask: Mask) -> "_Fields":
        return _Fields(
            batch=self.batch[mask],
            offset=self.offset[mask],
            timestamp_ms=self.timestamp_ms[mask],
            timestamp_type=self.timestamp_type[mask],
            key=self.key.only(mask),
            value=self.value.only(mask),
            header_count=self.header_count[mask],
            header_begin=self.header_begin[mask],
            end=self.end[mask],
        )


class _Spans(NamedTuple):
    begin: Ints
    end: Ints
    null: Mask

    def only(self, mask: Mask) -> "_Spans":
        return _Spans(self.begin[mask], self.end[mask], self.null[mask])


def decode(data: Buffer, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Decode the complete batches of `data`, as in a Fetch response: a partial one at the end is skipped.

    Yields RecordBatches of about `wanted.chunk_bytes` decompressed bytes, in offset order, that own their
    memory. Raises CorruptSegment with the offset for an invalid batch.
    """
    yield from decode_frames(data, find_frames(data, source=wanted.source), wanted)


def decode_frames(data: Buffer, frames: Frames, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Decode the batches `frames` found in `data`; see `decode`."""
    chosen = select_frames(frames, wanted)
    if not len(chosen.begins):
        return
    if wanted.verify_crc:
        check_crcs(data, chosen, wanted)
    for first, last, bodies in _groups(data, chosen, wanted):
        part = chosen.part(first, last)
        try:
            batch = _decode_group(_join(data, part, bodies), wanted)
        except (Corrupt, IndexError, pa.ArrowInvalid) as problem:
            raise _explain(data, part, wanted, problem) from None
        if batch is not None:
            yield batch


def _groups(
    data: Buffer, frames: Frames, wanted: Wanted
) -> Iterator[tuple[int, int, list[Buffer] | None]]:
    """Split the batches into groups of about `chunk_bytes` decompressed bytes; None for uncompressed
    bodies.
    """
    codecs = (frames.column("attributes") & COMPRESSION_MASK).tolist()
    begins, ends = frames.begins.tolist(), frames.ends.tolist()
    if not any(codecs):
        yield from _cut_evenly(begins, ends, wanted.chunk_bytes)
        return
    bodies: list[Buffer] = []
    first = size = 0
    view = memoryview(data)
    for i, codec in enumerate(codecs):
        try:
            body = open_body(codec, view[begins[i] + HEADER_BYTES : ends[i]])
        except FirnlineError as problem:
            raise CorruptSegment(
                "a batch cannot be decompressed",
                segment=wanted.source,
                topic=wanted.topic,
                partition=wanted.partition,
                offset=int(frames.heads["base_offset"][i]),
                problem=problem,
            ) from None
        if bodies and size + len(body) > wanted.chunk_bytes:
            yield first, i, bodies
            bodies, first, size = [], i, 0
        bodies.append(body)
        size += len(body)
    yield first, len(codecs), bodies


def _cut_evenly(
    begins: list[int], ends: list[int], chunk_bytes: int
) -> Iterator[tuple[int, int, None]]:
    total = ends[-1] - begins[0]
    size = max(1, total // max(1, round(total / chunk_bytes)))
    first, limit = 0, begins[0] + size
    for i, end in enumerate(ends):
        if end >= limit and i + 1 < len(ends):
            yield first, i + 1, None
            first, limit = i + 1, end + size
    yield first, len(ends), None


def _join(data: Buffer, frames: Frames, bodies: list[Buffer] | None) -> _Group:
    if bodies is None:
        low, high = int(frames.begins[0]), int(frames.ends[-1])
        return _Group(
            memoryview(data)[low:high],
            frames.begins - low + HEADER_BYTES,
            frames.ends - low,
            frames,
        )
    ends = np.cumsum(np.array([len(body) for body in bodies], dtype=np.int64))
    begins = np.concatenate(([0], ends[:-1])).astype(np.int64)
    return _Group(bodies[0] if len(bodies) == 1 else b"".join(bodies), begins, ends, frames)


def _decode_group(group: _Group, wanted: Wanted) -> pa.RecordBatch | None:
    counts = group.frames.column("record_count")
    if (counts * _RECORD_BYTES_MIN > group.ends - group.begins).any():
        raise Corrupt("more records than bytes for them")
    if not counts.any():
        if (group.begins != group.ends).any():
            raise Corrupt("bytes after the last record")
        return None
    body = np.frombuffer(group.body, dtype=np.uint8)
    fields = _read_fields(body, group, counts, wanted.columns)
    inside = (fields.offset >= wanted.start_offset) & (fields.offset < wanted.end_offset)
    if not inside.all():
        fields = fields.only(inside)
    if not len(fields.offset):
        return None
    arrays = [_column(name, body, fields, group.frames, wanted) for name in wanted.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(wanted.columns))


def _read_fields(body: Bytes, group: _Group, counts: Ints, columns: tuple[str, ...]) -> _Fields:
    """Read the fields that `columns` need, of every record, left to right; skip the rest."""
    ends = record_ends(body, group.body, group.begins, group.ends, counts)
    _, at = read_int32s(body, record_starts(group.begins, counts, ends))
    timestamp_delta, at = read_int64s(body, at + 1)  # after the attributes, which are unused
    offset_delta, at = read_int32s(body, at)
    heads = group.frames
    last_delta = np.repeat(heads.column("last_offset_delta"), counts)
    if (offset_delta < 0).any() or (offset_delta > last_delta).any():
        raise Corrupt("an offset outside its batch")
    is_append_time = (heads.column("attributes") & TIMESTAMP_TYPE_MASK) != 0
    timestamps = np.where(
        np.repeat(is_append_time, counts),
        np.repeat(heads.column("max_timestamp"), counts),
        np.repeat(heads.column("base_timestamp"), counts) + timestamp_delta,
    )
    if (timestamps > TIMESTAMP_MS_MAX).any() or (timestamps < -TIMESTAMP_MS_MAX).any():
        raise Corrupt("a timestamp out of range")
    key = value = _Spans(at, at, np.zeros(len(at), dtype=np.bool_))
    header_count = np.zeros(len(at), dtype=np.int64)
    if {"key", "value", "headers"} & set(columns):
        key, at = _read_span(body, at, ends)
    if {"value", "headers"} & set(columns):
        value, at = _read_span(body, at, ends)
        header_count, at = read_int32s(body, at)
        if (header_count < 0).any() or (header_count * 2 > ends - at).any():
            raise Corrupt("a header count that exceeds the record")
        if (at[header_count == 0] != ends[header_count == 0]).any():
            raise Corrupt("a record whose size differs from its length")
    if (at > ends).any():
        raise Corrupt("a field that exceeds the record")
    return _Fields(
        batch=_batch_numbers(counts, len(at), columns),
        offset=np.repeat(heads.column("base_offset"), counts) + offset_delta,
        timestamp_ms=timestamps,
        timestamp_type=np.repeat(
            np.where(is_append_time, LOG_APPEND_TIME, CREATE_TIME).astype(np.int64), counts
        ),
        key=key,
        value=value,
        header_count=header_count,
        header_begin=at,
        end=ends,
    )


def _batch_numbers(counts: Ints, total: int, columns: tuple[str, ...]) -> Ints:
    """Number the batch of each record, if a column of batches is wanted."""
    if set(columns) <= set(OFFICIAL_COLUMNS):
        return np.zeros(total, dtype=np.int64)
    return np.repeat(np.arange(len(counts)), counts)


def _read_span(body: Bytes, at: Ints, ends: Ints) -> tuple[_Spans, Ints]:
    """Read a length and skip so many bytes; the check comes before the step."""
    length, begin = read_int32s(body, at)
    null = length == -1
    size = np.where(null, 0, length)
    if (size < 0).any() or (size > ends - begin).any():
        raise Corrupt("a length that exceeds the record")
    after = begin + size
    return _Spans(begin, after, null), after


def _column(name: str, body: Bytes, fields: _Fields, frames: Frames, wanted: Wanted) -> pa.Array:
    count = len(fields.offset)
    match name:
        case "key":
            return _gather(body, fields.key)
        case "value":
            return _gather(body, fields.value)
        case "topic":
            return pa.repeat(pa.scalar(wanted.topic, pa.string()), count)
        case "partition":
            return pa.array(np.full(count, wanted.partition, dtype=np.int32))
        case "offset":
            return pa.array(fields.offset)
        case "timestamp":
            return pa.array(fields.timestamp_ms * 1000).view(pa.timestamp("us", tz="UTC"))
        case "timestampType":
            return pa.array(fields.timestamp_type.astype(np.int32))
        case "headers":
            return _headers(body, fields)
        case "segmentId":
            return pa.repeat(pa.scalar(wanted.segment_id, pa.string()), count)
        case "readFrom":
            return pa.repeat(pa.scalar(wanted.read_from, pa.string()), count)
        case _:
            return _batch_column(name, fields, frames, wanted)


def _batch_column(name: str, fields: _Fields, frames: Frames, wanted: Wanted) -> pa.Array:
    """Build a column from the headers of the batches."""
    at = fields.batch
    if name == "transaction":
        states, is_none = transaction_states(frames, wanted)
        return pa.array(TRANSACTION_STATES).take(pa.array(states[at], mask=is_none[at]))
    kind = arrow_schema((name,)).field(0).type
    if name == "leaderEpoch":
        values = frames.column("leader_epoch")[at]
        return pa.array(values, kind, mask=values < 0)
    producer = frames.column("producer_id")[at]
    if name == "producerId":
        return pa.array(producer, kind, mask=producer < 0)
    if name == "producerEpoch":
        return pa.array(frames.column("producer_epoch")[at], kind, mask=producer < 0)
    assert name == "sequence", name
    first = frames.column("base_sequence")[at]
    # After the greatest one, sequences begin at 0 again.
    values = (first + fields.offset - frames.column("base_offset")[at]) & INT32_MAX
    return pa.array(values, kind, mask=(producer < 0) | (first < 0))


def _gather(body: Bytes, spans: _Spans) -> pa.Array:
    """Copy the spans of `body` into one binary array.

    The complete body becomes an array of alternating fields and gaps, of which Arrow takes the fields.
    """
    count = len(spans.begin)
    edges = np.empty(2 * count, dtype=np.int32)
    edges[0::2] = spans.begin
    edges[1::2] = spans.end
    slots = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(body)]
    )
    indexes = np.arange(0, 2 * count, 2, dtype=np.int32)
    mask = spans.null if spans.null.any() else None
    return slots.take(pa.array(indexes, mask=mask))


def _headers(body: Bytes, fields: _Fields) -> pa.Array:
    """Build the list column; a record without headers has null, as in Spark's own Kafka source."""
    counts = fields.header_count
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    keys, values = _read_headers(body, fields, total=int(offsets[-1]))
    if len(keys.begin):
        names = _texts(_gather(body, keys))
        contents = _gather(body, values)
    else:
        names, contents = pa.array([], pa.string()), pa.array([], pa.binary())
    pairs = pa.StructArray.from_arrays([names, contents], names=["key", "value"])
    return pa.ListArray.from_arrays(
        pa.array(offsets),
        pairs,
        type=arrow_schema(("headers",)).field(0).type,
        mask=pa.array(counts == 0),
    )


def _texts(keys: pa.Array) -> pa.Array:
    """Return header keys as text; one that is not UTF-8 as Java shows it."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([java_text(key) for key in keys.to_pylist()], pa.string())


def _read_headers(body: Bytes, fields: _Fields, *, total: int) -> tuple[_Spans, _Spans]:
    """Read headers: step k reads the k-th header of every record that has one. Results are in record
    order.
    """
    parts = [np.empty(total, dtype=np.int64) for _ in range(4)]
    null = np.empty(total, dtype=np.bool_)
    counts = fields.header_count
    first = np.cumsum(counts) - counts
    order = np.argsort(-counts, kind="stable")
    order = order[: int(np.count_nonzero(counts))]
    at = fields.header_begin[order]
    for k in range(int(counts.max(initial=0))):
        active = int(np.count_nonzero(counts[order] > k))
        order, at = order[:active], at[:active]
        ends = fields.end[order]
        key, at = _read_span(body, at, ends)
        value, at = _read_span(body, at, ends)
        if key.null.any():
            raise Corrupt("a header without a key")
        slot = first[order] + k
        for part, found in zip(parts, (key.begin, key.end, value.begin, value.end), strict=True):
            part[slot] = found
        null[slot] = value.null
        done = counts[order] == k + 1
        if (at[done] != ends[done]).any():
            raise Corrupt("a record whose size differs from its length")
    return (
        _Spans(parts[0], parts[1], np.zeros(total, dtype=np.bool_)),
        _Spans(parts[2], parts[3], null),
    )


def _explain(data: Buffer, frames: Frames, wanted: Wanted, problem: Exception) -> CorruptSegment:
    """Let the reference implementation read the same batches: its error names the batch and the reason."""
    for begin, end in zip(frames.begins.tolist(), frames.ends.tolist(), strict=True):
        try:
            for _ in decode_python.rows(memoryview(data)[begin:end], wanted):
                pass
        except CorruptSegment as found:
            return found
    return CorruptSegment(
        "undecodable records",
        segment=wanted.source,
        topic=wanted.topic,
        partition=wanted.partition,
        from_offset=int(frames.heads["base_offset"][0]),
        problem=problem,
    )
