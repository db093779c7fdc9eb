"""A topic as a DataFrame whose queries hand their filters to the plan. SPARK.

flights = load(spark, {"tier.uri": "/data/tier", "subscribe": "flights"})
flights.where("timestamp >= '2026-01-01'").count()

Spark keeps one plan for each `load()` of a Python source, and gives it to a query that has no filter, too
(`pushdown`). So the DataFrame has a filter of its own, which takes every row: then each query hands filters
over, and its plan is made for it. Imports PySpark.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from firnline.base.errors import ConfigError
from firnline.spark.options.parse import BY_LOAD, PUSHDOWN, RECORDS

# No value of these columns is null, or below what is compared. The first one that there is serves. Spark
# removes `offset >= 0` only beside `offset = 7`, which it hands over, too.
_EVERY_ROW = {
    "offset": "offset >= 0",
    "partition": "partition >= 0",
    "topic": "topic >= ''",
}


def load(spark: Any, options: Mapping[str, str], *, schema: str | None = None) -> DataFrame:
    """Return a DataFrame of a topic, of which each query is planned for its filters.

    spark    a session, classic or of Spark Connect
    options  of `spark.read.format("firnline")`, except `pushdown`
    schema   the columns, as for `spark.read.schema`; those of the official source by default. Filters narrow
             the plan only if offset, partition or topic is one of them

    It may be used in as many queries as you like, also twice in one, and as a temporary view. Raises
    ConfigError for `pushdown` or a system table among the options; other errors are Spark's exceptions.
    """
    names = {name.lower(): str(value).strip().lower() for name, value in options.items()}
    if PUSHDOWN in names:
        raise ConfigError("load() hands filters over by itself: leave out pushdown")
    if names.get("table", RECORDS) != RECORDS:
        raise ConfigError(
            "load() reads records: use spark.read for a system table", table=names["table"]
        )

    def read(**more: str) -> DataFrame:
        reader = spark.read.format("firnline").options(**options, **more)
        frame: DataFrame = (reader if schema is None else reader.schema(schema)).load()
        return frame

    frame = read(**{PUSHDOWN: BY_LOAD})
    filters = [text for column, text in _EVERY_ROW.items() if column in frame.columns]
    return frame.where(filters[0]) if filters else read()
