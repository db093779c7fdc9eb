"""Reads a system table as Spark does, without Spark: the plan, then each task."""

from collections.abc import Iterator
from typing import Any

from firnline.spark.tables.columns import TABLES
from firnline.spark.tables.options import parse_table_options
from firnline.spark.tables.read import plan_table, read_table


def rows(table: str, **options: object) -> list[dict[str, Any]]:
    """Return every row; options with `_` instead of a dot, and asOfOffset as it is."""
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    return list(_rows({"table": table} | given))


def _rows(given: dict[str, str]) -> Iterator[dict[str, Any]]:
    options = parse_table_options(given)
    table = TABLES[options.table]
    columns = tuple(table.columns)
    for task in plan_table(options):
        for batch in read_table(options, task, columns):
            assert batch.schema.equals(table.arrow_schema(columns))
            yield from batch.to_pylist()


def ms(time: Any) -> int:
    """Return a timestamp as milliseconds, -1 for null."""
    return -1 if time is None else round(time.timestamp() * 1000)
