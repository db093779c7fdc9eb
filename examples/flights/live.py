"""The last act of the demo: a stream follows the flights of the last day while they leave."""

import time
from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import SparkSession
from report import SCHEMA, as_events

_PATIENCE_SECONDS = 60
_LOOK_SECONDS = 0.3


class TooFew(Exception):
    """The stream did not bring what was sent."""


def follow(
    spark: SparkSession,
    source: Mapping[str, str],
    sent: Iterable[int],
    advance: Callable[[int], None],
) -> int:
    """Start a stream at the end of the topic, send events, and return when the stream has brought all.

    source   options that say where tier and brokers are
    sent     sends some events with each step, and yields how many
    advance  is told how many more the stream has brought

    Returns the number of micro-batches. Raises TooFew.
    """
    log = (
        spark.readStream.format("firnline")
        .schema(SCHEMA)
        .options(subscribe="flights", startingOffsets="latest", **source)
        .load()
    )
    live = as_events(log).writeStream.format("memory").queryName("live").start()
    try:
        live.processAllAvailable()  # it has begun: what is sent from here on is new
        total = seen = 0
        for count in sent:
            total += count
            seen = _look(spark, seen, advance)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while seen < total and live.isActive and time.monotonic() < deadline:
            seen = _look(spark, seen, advance)
        distinct = spark.table("live").select("partition", "offset").distinct().count()
        if (seen, distinct) != (total, total):
            why = live.exception() or f"{distinct:,} of them distinct"
            raise TooFew(f"the stream brought {seen:,} of {total:,} events: {why}")
        return sum(1 for each in live.recentProgress if each["numInputRows"])
    finally:
        live.stop()


def _look(spark: SparkSession, seen: int, advance: Callable[[int], None]) -> int:
    """Wait for a moment; return how many events the stream has brought."""
    time.sleep(_LOOK_SECONDS)
    now = spark.table("live").count()
    advance(now - seen)
    return now
