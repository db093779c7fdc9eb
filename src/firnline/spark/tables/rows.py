"""Rows of a system table -> RecordBatches with the columns that were selected. SPARK, without Spark."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
    while True:
        with _without_collector():
            some = list(islice(waiting, ROWS_PER_BATCH))
            if not some:
                return
            by_column = list(zip(*some, strict=True))
            arrays = [
                pa.array(by_column[at], field.type)
                for at, field in zip(places, schema, strict=True)
            ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Make rows without the collector of garbage, which finds none and takes a third of the time.

    Rows are many objects that refer to none of their own kind, so nothing but a count is needed to free them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def micros(timestamp_ms: int | None) -> int | None:
    """Return a time as Spark has it; None if it is unknown (-1) or beyond Spark's range."""
    if timestamp_ms is None or not 0 <= timestamp_ms <= TIMESTAMP_MS_MAX:
        return None
    return timestamp_ms * 1000
