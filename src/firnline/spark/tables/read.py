"""Options of a system table -> tasks -> RecordBatches. SPARK, without Spark."""

from collections.abc import Iterator

import pyarrow as pa

from firnline.spark.tables.columns import TABLES
from firnline.spark.tables.options import TableOptions
from firnline.spark.tables.rows import record_batches
from firnline.spark.tables.tier import TierTask, plan_tier, tier_rows
from firnline.stores.port import ObjectStore
from firnline.stores.registry import open_store

TableTask = TierTask


def plan_table(options: TableOptions) -> list[TableTask]:
    """Return what tasks are to read. Runs once per query, on the driver."""
    store = _open(options)
    try:
        return list(plan_tier(store, options.table, options.tier_uri))
    finally:
        store.close()


def read_table(
    options: TableOptions, task: TableTask, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, with these columns."""
    store = _open(options)
    try:
        rows = tier_rows(store, options.table, task)
        yield from record_batches(TABLES[options.table], rows, columns)
    finally:
        store.close()


def _open(options: TableOptions) -> ObjectStore:
    return open_store(options.tier_uri, options.store_settings, is_writer=False)
