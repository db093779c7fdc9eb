"""Spark's own filters, from SQL to the plan: whatever the condition is, no row that it takes is missing."""

from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

from pyspark.sql import DataFrame, SparkSession

from firnline.records.build import NewRecord, build_batch
from firnline.spark.load import load
from firnline.stores.directory import DirectoryStore
from tests.spark.written_tier import T0, WrittenPartition

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000
ZONES = ("UTC", "America/New_York", "Asia/Kathmandu")
# T0 is 2023-11-14 22:13:20 UTC; a record an hour. Some have no time at all.
ATOMS = (
    "offset = 5", "offset <=> 70", "offset in (1, null, 7)", "offset not in (1, 2)", "offset = 5.0",
    "offset > 50.5", "offset >= '7'", "cast(offset as int) < 9", "offset is null", "offset is not null",
    "offset between 30 and 33", "offset = null", "offset % 7 = 3", "offset > 9223372036854775806",
    "partition = 1L", "partition in (0, 5)", "partition < 3000000000", "-partition < 0",
    "topic = 't'", "topic like 't%'", "topic <> 't'", "topic > 's'", "upper(topic) = 'T'",
    "timestamp >= '2023-11-16'", "timestamp > date'2023-11-16'",
    "cast(timestamp as date) = date'2023-11-16'", "date_trunc('day', timestamp) = '2023-11-16'",
    "timestamp < timestamp'2023-11-16 03:00:00+05:30'",
    "timestamp >= timestamp'2023-11-16 00:00:00 America/New_York'",
    "timestamp >= timestamp_ntz'2023-11-16 00:00:00'",
    "cast(timestamp as timestamp_ntz) < timestamp_ntz'2023-11-16 00:00:00'",
    f"timestamp in (timestamp_millis({T0 + HOUR_MS}), null)",
    f"timestamp <> timestamp_millis({T0 + 7 * HOUR_MS})",
    "timestamp < timestamp'1970-01-01 00:00:00Z'", "timestamp > timestamp'9999-12-31 00:00:00Z'",
    "timestamp + interval 1 day > timestamp'2023-11-17'", "hour(timestamp) = 3",
)  # fmt: skip
CONDITIONS = st.recursive(
    st.sampled_from(ATOMS),
    lambda some: st.one_of(
        some.map("not ({})".format),
        st.tuples(some, st.sampled_from(("and", "or")), some).map(
            lambda each: "({}) {} ({})".format(*each)
        ),
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topic `t` with two partitions of 80 records, in 8 segments each; the times of one are in no order."""
    path, rnd = tmp_path_factory.mktemp("tier"), Random(5)
    for number in range(2):
        written = WrittenPartition(DirectoryStore(str(path)), "t", number)
        for base in range(0, 80, 10):
            times = [T0 + offset * HOUR_MS for offset in range(base, base + 10)]
            if number:
                times = [rnd.choice((-1, T0 + rnd.randint(0, 80) * HOUR_MS)) for _ in times]
            rows = [
                bytes(build_batch([NewRecord(b"k", b"v", at)], base_offset=o, leader_epoch=0))
                for o, at in enumerate(times, base)
            ]
            written.segment(rows, split_bytes=200)
        written.publish(rows_per_part=2)
    return path


@pytest.fixture(scope="module")
def everything(spark: SparkSession, tier: Path) -> Iterator[DataFrame]:
    frame = spark.read.format("firnline").options(**options(tier)).load().cache()
    assert frame.count() == 160
    yield frame
    frame.unpersist()


def options(tier: Path) -> dict[str, str]:
    return {"tier.uri": str(tier), "subscribe": "t"}


def rows_of(frames: list[DataFrame]) -> list[tuple[object, ...]]:
    numbered = [
        frame.selectExpr(f"{n} AS number", "partition", "offset") for n, frame in enumerate(frames)
    ]
    return sorted(tuple(row) for row in reduce(DataFrame.unionAll, numbered).collect())


@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(conditions=st.lists(CONDITIONS, min_size=8, max_size=8), zone=st.sampled_from(ZONES))
def test_a_narrow_plan_has_every_row_that_the_condition_takes(
    spark: SparkSession, tier: Path, everything: DataFrame, conditions: list[str], zone: str
) -> None:
    """Fears a cast, a null or a zone of the session that turns into a filter which takes too little. Method:
    each condition over a plan of its own and over all rows, which Spark holds in memory."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        narrowed = [load(spark, options(tier)).where(condition) for condition in conditions]
        expected = [everything.where(condition) for condition in conditions]
        assert rows_of(narrowed) == rows_of(expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
