"""Rows of a system table -> RecordBatches with the columns that were selected. SPARK, without Spark."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from firnline.spark.schema import TIMESTAMP_MS_MAX
from firnline.spark.tables.columns import Table

Row = tuple[Any, ...]
ROWS_PER_BATCH = 10_000


def record_batches(
    table: Table, rows: Iterable[Row], columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows, each with all columns of the table in order, as RecordBatches of `columns`."""
    schema = table.arrow_schema(columns)
    places = [list(table.columns).index(name) for name in columns]
    waiting = iter(rows)
    while some := list(islice(waiting, ROWS_PER_BATCH)):
        by_column = list(zip(*some, strict=True))
        arrays = [
            pa.array(by_column[at], field.type) for at, field in zip(places, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def micros(timestamp_ms: int | None) -> int | None:
    """Return a time as Spark has it; None if it is unknown (-1) or beyond Spark's range."""
    if timestamp_ms is None or not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        return None
    return timestamp_ms * 1000
