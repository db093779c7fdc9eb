"""Lay out the records of a group with numpy, without a Python object per record. SPARK.

First the starts of all records of a group are found (`starts.py`). Then each field is read for all records at
once, and Arrow copies keys and values out. The oracle of `native_records`. Source: spark section 2.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from firnline.spark.decoding.columns import Group, Rows, header_pairs, is_append_time, timestamps
from firnline.spark.decoding.starts import record_ends, record_starts
from firnline.spark.decoding.varints import Corrupt, read_int32s, read_int64s
from firnline.spark.frames import Bytes, Ints, Mask
from firnline.spark.schema import TIMESTAMP_MS_MAX, arrow_schema


class _Spans(NamedTuple):
    begin: Ints
    end: Ints
    null: Mask

    def only(self, mask: Mask) -> "_Spans":
        return _Spans(self.begin[mask], self.end[mask], self.null[mask])


class _Fields(NamedTuple):
    """Positions of the fields of each record in the group's body.

    batch  the number of the record's batch in the group.
    """

    batch: Ints
    offset: Ints
    timestamp_ms: Ints
    key: _Spans
    value: _Spans
    header_count: Ints
    header_begin: Ints
    end: Ints

    def only(self, mask: Mask) -> "_Fields":
        return _Fields(
            batch=self.batch[mask],
            offset=self.offset[mask],
            timestamp_ms=self.timestamp_ms[mask],
            key=self.key.only(mask),
            value=self.value.only(mask),
            header_count=self.header_count[mask],
            header_begin=self.header_begin[mask],
            end=self.end[mask],
        )


def read_rows(
    group: Group, columns: tuple[str, ...], start_offset: int, end_offset: int, *, numbered: bool
) -> Rows:
    """Return the records with offsets in [start_offset, end_offset), and the wanted ones of their fields.

    numbered  whether to return the number of each record's batch.
    The headers of the batches state some records, and no more than there are bytes for. Raises Corrupt or
    IndexError for records that are not what the headers say.
    """
    body = np.frombuffer(group.body, dtype=np.uint8)
    fields = _read_fields(body, group, columns)
    inside = (fields.offset >= start_offset) & (fields.offset < end_offset)
    if not inside.all():
        fields = fields.only(inside)
    found: dict[str, pa.Array] = {}
    if len(fields.offset):
        if "timestamp" in columns:
            found["timestamp"] = timestamps(pa.array(fields.timestamp_ms * 1000))
        if "key" in columns:
            found["key"] = _gather(body, fields.key)
        if "value" in columns:
            found["value"] = _gather(body, fields.value)
        if "headers" in columns:
            found["headers"] = _headers(body, fields)
    return Rows(fields.offset, fields.batch if numbered else None, found)


def _read_fields(body: Bytes, group: Group, columns: tuple[str, ...]) -> _Fields:
    """Read the fields that `columns` need, of every record, left to right; skip the rest."""
    heads, counts = group.frames, group.frames.column("record_count")
    ends = record_ends(body, group.body, group.begins, group.ends, counts)
    _, at = read_int32s(body, record_starts(group.begins, counts, ends))
    timestamp_delta, at = read_int64s(body, at + 1)  # after the attributes, which are unused
    offset_delta, at = read_int32s(body, at)
    last_delta = np.repeat(heads.column("last_offset_delta"), counts)
    if (offset_delta < 0).any() or (offset_delta > last_delta).any():
        raise Corrupt("an offset outside its batch")
    timestamp_ms = np.where(
        np.repeat(is_append_time(heads), counts),
        np.repeat(heads.column("max_timestamp"), counts),
        np.repeat(heads.column("base_timestamp"), counts) + timestamp_delta,
    )
    is_late = (timestamp_ms > TIMESTAMP_MS_MAX).any() or (timestamp_ms < -TIMESTAMP_MS_MAX).any()
    if is_late and "timestamp" in columns:
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
        batch=np.repeat(np.arange(len(counts)), counts),
        offset=np.repeat(heads.column("base_offset"), counts) + offset_delta,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        header_count=header_count,
        header_begin=at,
        end=ends,
    )


def _read_span(body: Bytes, at: Ints, ends: Ints) -> tuple[_Spans, Ints]:
    """Read a length and skip so many bytes; the check comes before the step."""
    length, begin = read_int32s(body, at)
    null = length == -1
    size = np.where(null, 0, length)
    if (size < 0).any() or (size > ends - begin).any():
        raise Corrupt("a length that exceeds the record")
    after = begin + size
    return _Spans(begin, after, null), after


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
        pairs = header_pairs(_gather(body, keys), _gather(body, values))
    else:
        pairs = header_pairs(pa.array([], pa.binary()), pa.array([], pa.binary()))
    return pa.ListArray.from_arrays(
        pa.array(offsets),
        pairs,
        type=arrow_schema(("headers",)).field(0).type,
        mask=pa.array(counts == 0),
    )


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
