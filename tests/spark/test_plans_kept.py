"""Which queries read a topic as it is then, and which read what an earlier query found."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast

from firnline.spark.load import load
from tests.spark.growing_tier import GrowingTier

pytestmark = pytest.mark.spark


@pytest.fixture
def tier(spark: SparkSession, tmp_path: Path) -> Iterator[GrowingTier]:
    """A tier with ten records, and a table, a permanent view and temporary views over it."""
    made = GrowingTier(tmp_path / "tier")
    made.grow(10)
    options = f"OPTIONS (`tier.uri` '{made.path}', subscribe 't')"
    of_segments = f"OPTIONS (table 'segments', `tier.uri` '{made.path}')"
    spark.sql(f"CREATE DATABASE kept LOCATION '{(tmp_path / 'warehouse').as_uri()}'")
    try:
        spark.sql(f"CREATE TABLE kept.log USING firnline {options}")
        spark.sql(f"CREATE TABLE kept.segments USING firnline {of_segments}")
        spark.sql("CREATE VIEW kept.seen AS SELECT offset FROM kept.log")
        spark.sql(f"CREATE TEMPORARY VIEW log_now USING firnline {options}")
        spark.sql(f"CREATE TEMPORARY VIEW segments_now USING firnline {of_segments}")
        yield made
    finally:
        spark.sql("DROP DATABASE kept CASCADE")
        for view in ("log_now", "segments_now", "loaded"):
            spark.catalog.dropTempView(view)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_spark_does_not_know_how_large_a_topic_is(spark: SparkSession, tier: GrowingTier) -> None:
    """So a join is planned without a broadcast unless that is asked for; docs/SPARK.md says so."""
    options = {"tier.uri": str(tier.path), "subscribe": "t"}
    frame = spark.read.format("firnline").options(**options).load()
    stats = frame._jdf.queryExecution().optimizedPlan().stats()
    assert int(str(stats.sizeInBytes())) > 2**60
    assert "BroadcastHashJoin" not in plan_of(frame.join(frame, "offset"))
    assert "BroadcastHashJoin" in plan_of(frame.join(broadcast(frame), "offset"))


def test_tables_and_load_see_what_is_new_and_a_view_or_frame_keeps_its_first_plan(
    spark: SparkSession, tier: GrowingTier
) -> None:
    """As docs/SPARK.md says under SQL. Fears a user who watches segments through a view that stands still."""
    given = {"tier.uri": str(tier.path), "subscribe": "t"}
    frame = spark.read.format("firnline").options(**given).load()
    loaded = load(spark, given)
    loaded.createOrReplaceTempView("loaded")

    def rows(of: DataFrame | str) -> int:
        return (spark.table(of) if isinstance(of, str) else of).count()

    anew = ("kept.log", "kept.seen", "loaded", loaded)
    kept = ("log_now", frame, frame.select("offset"))
    tables = ("kept.segments", "segments_now")
    assert [rows(each) for each in (*anew, *kept)] == [10] * 7
    assert [rows(each) for each in tables] == [1, 1]
    tier.grow(10)
    assert [rows(each) for each in anew] == [20] * 4
    assert [rows(each) for each in kept] == [10] * 3
    assert [rows(each) for each in tables] == [2, 1]
    # What helps: to make it again.
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW log_now USING firnline OPTIONS"
        f" (`tier.uri` '{tier.path}', subscribe 't')"
    )
    assert rows("log_now") == 20
