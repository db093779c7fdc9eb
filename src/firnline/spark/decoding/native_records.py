"""Lay out the records of a group with compiled code. SPARK.

The bytes that it returns become the buffers of Arrow arrays as they are. Its oracle is `numpy_records`
(decision 0049).
"""

from typing import Any

import numpy as np
import pyarrow as pa

from firnline.base.native import native
from firnline.spark.decoding.columns import Group, Rows, header_pairs, timestamps
from firnline.spark.decoding.varints import Corrupt
from firnline.spark.schema import arrow_schema

# As in _decode.h.
_KEYS, _VALUES, _HEADERS, _TIMES, _BATCHES = 1, 2, 4, 8, 16
_FIELDS = {"key": _KEYS, "value": _VALUES, "headers": _HEADERS, "timestamp": _TIMES}


def read_rows(
    group: Group, columns: tuple[str, ...], start_offset: int, end_offset: int, *, numbered: bool
) -> Rows:
    """Do what `numpy_records.read_rows` does; raises only Corrupt."""
    assert native is not None
    fields = sum(bit for name, bit in _FIELDS.items() if name in columns)
    answer = native.decode_records(
        group.body, group.begins, group.ends, group.frames.heads, start_offset, end_offset,
        fields | (_BATCHES if numbered else 0),
    )  # fmt: skip
    if answer is None:
        raise Corrupt("records that are not what their batches say")
    rows, offsets, times, numbers, keys, values, header_ends, has_some, header_nulls, *pairs = (
        answer
    )
    found: dict[str, pa.Array] = {}
    if times is not None:
        micros = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(times)])
        found["timestamp"] = timestamps(micros)
    if keys is not None:
        found["key"] = _binary(rows, keys)
    if values is not None:
        found["value"] = _binary(rows, values)
    if header_ends is not None:
        ends = np.frombuffer(header_ends, dtype=np.int32, count=rows + 1)
        found["headers"] = pa.Array.from_buffers(
            arrow_schema(("headers",)).field(0).type,
            rows,
            [pa.py_buffer(has_some) if header_nulls else None, pa.py_buffer(header_ends)],
            null_count=header_nulls,
            children=[header_pairs(*(_binary(int(ends[-1]), each) for each in pairs))],
        )
    batch = None if numbers is None else np.frombuffer(numbers, dtype=np.int32, count=rows)
    return Rows(
        np.frombuffer(offsets, dtype=np.int64, count=rows),
        None if batch is None else batch.astype(np.int64),
        found,
    )


def _binary(rows: int, column: tuple[Any, ...]) -> pa.Array:
    places, data, valid, nulls = column
    return pa.Array.from_buffers(
        pa.binary(),
        rows,
        [pa.py_buffer(valid) if nulls else None, pa.py_buffer(places), pa.py_buffer(data)],
        null_count=nulls,
    )
