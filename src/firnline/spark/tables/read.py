"""Options of a system table -> tasks -> RecordBatches. SPARK, without Spark.

With `log.dirs` the files of nodes are read, and never the tier: the metadata has every topic, a tier only
those of which a segment was copied.
"""

from collections.abc import Iterator

import pyarrow as pa

from firnline.spark.access.tier import open_tier
from firnline.spark.tables.columns import TABLES
from firnline.spark.tables.groups import GroupsTask, group_rows, plan_groups
from firnline.spark.tables.isr import IsrTask, isr_rows, plan_isr
from firnline.spark.tables.metadata import FileTask, metadata_rows, plan_metadata, plan_snapshots
from firnline.spark.tables.options import TableOptions
from firnline.spark.tables.rows import Row, record_batches
from firnline.spark.tables.state import StateTask, partition_rows, plan_state, topic_rows
from firnline.spark.tables.tier import TierTask, plan_tier, tier_rows
from firnline.stores.port import ObjectStore

TableTask = TierTask | FileTask | StateTask | IsrTask | GroupsTask


def plan_table(options: TableOptions) -> list[TableTask]:
    """Return what tasks are to read. Runs once per query, on the driver."""
    dirs, as_of = options.log_dirs, options.as_of_offset
    if options.table == "metadata":
        return list(plan_metadata(dirs, as_of))
    if options.table == "snapshots":
        return list(plan_snapshots(dirs, as_of))
    if options.table == "isr":
        return list(plan_isr(dirs, as_of))
    if options.table == "groups":
        return list(plan_groups(dirs))
    if dirs:
        return list(plan_state(options.table, dirs, as_of))
    store = _open(options)
    try:
        return list(plan_tier(store, options.table, options.tier_uri))
    finally:
        store.close()


def read_table(
    options: TableOptions, task: TableTask, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, with these columns."""
    yield from record_batches(TABLES[options.table], _rows(options, task, columns), columns)


def _rows(options: TableOptions, task: TableTask, columns: tuple[str, ...]) -> Iterator[Row]:
    if isinstance(task, FileTask):
        yield from metadata_rows(task, columns)
        return
    if isinstance(task, IsrTask):
        yield from isr_rows(task)
        return
    if isinstance(task, GroupsTask):
        yield from group_rows(task)
        return
    if isinstance(task, StateTask):
        yield from topic_rows(task) if options.table == "topics" else partition_rows(task)
        return
    store = _open(options)
    try:
        yield from tier_rows(store, options.table, task)
    finally:
        store.close()


def _open(options: TableOptions) -> ObjectStore:
    return open_tier(options.tier_uri, options.store_settings)
