"""Reads the table `gaps` and the records of the same read as Spark does, without Spark."""

from collections import Counter
from typing import Any

from firnline.spark.gaps.options import parse_gaps_options
from firnline.spark.gaps.read import read_gaps
from firnline.spark.options.parse import Options, parse_options
from firnline.spark.planning.plan import TailTask
from firnline.spark.planning.scan import plan_read
from firnline.spark.read import read_task
from firnline.spark.schema import ReadSettings
from firnline.spark.tables.columns import GAPS, TABLES
from firnline.stores.port import ObjectStore

COLUMNS = tuple(TABLES[GAPS].columns)
GIVEN = {"tier.uri": "/m", "subscribe": "t"}


def settings_of(options: Options) -> ReadSettings:
    """Return how the reader of the data source reads with these options."""
    return ReadSettings(
        ("topic", "partition", "offset"), options.chunk_bytes, options.window_bytes,
        options.verify_crc, options.fail_on_data_loss, options.decoder,
        keeps_aborted=not options.read_committed, on_gap=options.on_gap,
    )  # fmt: skip


def gaps(store: ObjectStore, **options: str) -> list[dict[str, Any]]:
    """Return the rows of the table, in the order of the plan."""
    parsed = parse_gaps_options({**GIVEN, **options})
    plan = plan_read(store, parsed)
    how, works = settings_of(parsed), (*plan.left_out, *plan.tasks)
    batches = read_gaps(store, works, how, parsed.brokers, COLUMNS)
    return [row for batch in batches for row in batch.to_pylist()]


def causes(store: ObjectStore, **options: str) -> list[tuple[int, int, str]]:
    """Return start, end and cause of each gap, by offset."""
    found = gaps(store, **options)
    return sorted((row["start_offset"], row["end_offset"], row["cause"]) for row in found)


def records(store: ObjectStore, **options: str) -> list[int]:
    """Return the offsets that a read of a topic with one partition gives."""
    parsed = parse_options({**GIVEN, **options})
    how, found = settings_of(parsed), list[int]()
    for task in plan_read(store, parsed).tasks:
        assert not isinstance(task, TailTask)
        for batch in read_task(store, task, how, parsed.brokers):
            found += batch.column("offset").to_pylist()
    return found


def check_covered(start: int, end: int, given: list[int], rows: list[dict[str, Any]]) -> None:
    """Records and gaps have each offset of [start, end) once, and no other."""
    counted = Counter(given)
    for row in rows:
        assert row["offsets"] == row["end_offset"] - row["start_offset"] > 0, row
        counted.update(range(row["start_offset"], row["end_offset"]))
    assert counted == Counter(range(start, end))
