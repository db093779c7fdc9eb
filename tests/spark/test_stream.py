"""Streams of a tier. Most tests call the reader as Spark's process of Python does; some are with Spark."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="NOT RUN: PySpark 4.2 is missing")

from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

from firnline.base.errors import ConfigError
from firnline.base.ids import uuid_text
from firnline.spark.schema import DataLoss
from firnline.spark.source import FirnlineSource
from firnline.spark.streaming.ends import end_after
from firnline.spark.streaming.reader import FirnlineStreamReader
from firnline.tiered.objects.catalog_reader import list_topics
from tests.spark import kill_streams
from tests.spark.asked_stream import Growing, Json, rows_of, step
from tests.spark.written_tier import T0, batches

ALL = ReadAllAvailable()


@pytest.fixture
def tier(tmp_path: Path) -> Growing:
    """Topic t: 100 offsets in partition 0, 30 in partition 1."""
    made = Growing(tmp_path / "tier")
    made.grow(100)
    made.grow(30, 1)
    return made


def drained(make: Callable[[], FirnlineStreamReader], start: Json) -> tuple[list[Any], int]:
    """Return the rows of all micro-batches until there is nothing new, and how many they were."""
    rows, count, reader = [], 0, make()
    while (end := step(reader, start)) != start:
        rows += rows_of(reader, start, end)
        start, count, reader = end, count + 1, make()
    return rows, count


def whole(**ends: int) -> list[tuple[int, int]]:
    return [(int(p[1:]), offset) for p, end in ends.items() for offset in range(end)]


def test_a_stream_from_earliest_reads_what_there_is_and_then_what_comes(tier: Growing) -> None:
    reader = tier.reader()
    start = reader.initialOffset()
    first = step(reader, start)
    assert {"t": first["t"]} == {"t": {"0": 100, "1": 30}}
    assert rows_of(reader, start, first) == whole(p0=100, p1=30)
    assert step(reader, first) == first  # Spark makes no micro-batch of this
    assert rows_of(reader, first, first) == []  # nor with state that has to expire
    tier.grow(50, 1)
    second = step(reader, first)
    assert second["t"] == {"0": 100, "1": 80}
    assert rows_of(reader, first, second) == [(1, offset) for offset in range(30, 80)]
    assert rows_of(reader, second, second) == []


def test_the_offsets_are_those_of_the_official_source_with_the_topics_ids(tier: Growing) -> None:
    end = step(tier.reader(), tier.reader().initialOffset())
    assert end == {
        "t": {"0": 100, "1": 30},
        "#ids": {"t": uuid_text(bytes([1]) * 16)},
        "#epochs": {"t": {"0": 0, "1": 0}},
        "#begins": {"t": {"0": 0, "1": 0}},
    }
    tier.grow(1)
    assert set(step(tier.reader(), end)) == {"t", "#ids", "#epochs"}


def test_a_checkpoint_of_the_official_source_goes_on(tier: Growing) -> None:
    reader = tier.reader()
    start = {"t": {"0": 40, "1": 30}}
    end = step(reader, start)
    assert rows_of(reader, start, end) == [(0, offset) for offset in range(40, 100)]
    # The ids come to the checkpoint at once, also if there is nothing to read.
    assert set(step(reader, {"t": {"0": 100, "1": 30}})) == {"t", "#ids", "#epochs"}
    # A micro-batch that the official source did not complete.
    assert rows_of(reader, start, {"t": {"0": 43, "1": 30}}) == [(0, 40), (0, 41), (0, 42)]
    assert len(rows_of(reader, reader.initialOffset(), {"t": {"0": 7}})) == 7
    latest = tier.reader(startingOffsets="latest")
    with pytest.raises(ConfigError, match="does not say where its first micro-batch begins"):
        latest.partitions(latest.initialOffset(), {"t": {"0": 7}})


def test_the_first_micro_batch_begins_at_the_same_place_in_a_new_process(tier: Growing) -> None:
    """Fears a query that dies in its first micro-batch: Spark asks for the start again, but keeps the end."""
    tier.grow(20)
    reader = tier.reader(startingOffsets="latest")
    start = reader.initialOffset()
    end = step(reader, start)  # Spark writes it to the checkpoint
    assert rows_of(reader, start, end) == []
    tier.grow(5)
    again = tier.reader(startingOffsets="latest")
    assert again.initialOffset() == start
    assert rows_of(again, start, end) == []
    following = step(again, end)
    assert rows_of(again, end, following) == [(0, offset) for offset in range(120, 125)]


def test_latest_does_not_move_while_a_query_waits_for_its_first_micro_batch(tier: Growing) -> None:
    reader = tier.reader(startingOffsets="latest")
    start = reader.initialOffset()
    step(reader, start)
    tier.grow(5)
    end = step(reader, start)
    assert rows_of(reader, start, end) == [(0, offset) for offset in range(100, 105)]


def test_a_query_without_starting_offsets_starts_at_the_latest(tier: Growing) -> None:
    given = {"tier.uri": str(tier.path), "subscribe": "t"}
    source = FirnlineSource(CaseInsensitiveDict(given))
    reader = source.streamReader(source.schema())
    end = step(reader, reader.initialOffset())  # type: ignore[arg-type]
    assert end["#begins"] == {"t": {"0": 100, "1": 30}}


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        ({"startingOffsets": '{"t": {"0": 7, "1": -1}}'}, {"0": 7, "1": 30}),
        ({"startingOffsets": '{"t": {"0": -2, "1": 9}}'}, {"0": 0, "1": 9}),
        ({"startingTimestamp": str(T0 + 20_000)}, {"0": 20, "1": 20}),
        (
            {"startingTimestamp": str(T0 + 50_000), "startingOffsetsByTimestampStrategy": "latest"},
            {"0": 50, "1": 30},
        ),
    ],
)
def test_a_query_starts_where_its_options_say(
    tier: Growing, options: dict[str, str], begins: dict[str, int]
) -> None:
    reader = tier.reader(**options)
    start = reader.initialOffset()
    end = step(reader, start)
    assert end["#begins"] == {"t": begins}
    expected = [(int(p), o) for p in begins for o in range(begins[p], end["t"][p])]
    assert rows_of(reader, start, end) == expected


@pytest.mark.parametrize(
    ("options", "problem", "why"),
    [
        ({"startingOffsets": '{"t": {"0": 7}}'}, ConfigError, "must name every partition"),
        ({"startingTimestamp": str(T0 + 50_000)}, ConfigError, "no record is at or after"),
        ({"startingOffsets": '{"t": {"0": 700, "1": 0}}'}, DataLoss, "not in the tier"),
        ({"subscribe": "nothing"}, ConfigError, "no such topic"),
    ],
)
def test_a_start_that_is_not_there_is_refused(
    tier: Growing, options: dict[str, str], problem: type[Exception], why: str
) -> None:
    with pytest.raises(problem, match=why):
        step(tier.reader(**options), tier.reader().initialOffset())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"endingOffsets": "latest"}, "a stream has no end: leave out endingOffsets"),
        ({"endingTimestamp": "7"}, "a stream has no end: leave out endingTimestamp"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "is higher than"),
        ({"startingOffsets": "middle"}, "startingOffsets is not like"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
    ],
)
def test_options_that_cannot_be_are_refused(
    tier: Growing, options: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        tier.reader(**options)


def test_a_batch_read_still_cannot_start_at_the_latest(tier: Growing) -> None:
    given = {"tier.uri": str(tier.path), "subscribe": "t", "startingOffsets": "latest"}
    source = FirnlineSource(CaseInsensitiveDict(given))
    with pytest.raises(ConfigError, match="of a batch read cannot be latest"):
        source.reader(source.schema())


def test_limits_make_micro_batches_of_which_each_advances_all_partitions(tier: Growing) -> None:
    reader = tier.reader(maxOffsetsPerTrigger="26")
    assert reader.getDefaultReadLimit() == ReadMaxRows(26)
    end = step(reader, reader.initialOffset())
    assert end["t"] == {"0": 20, "1": 6}
    everything = step(reader, reader.initialOffset(), ALL)  # as a trigger of Spark may ask
    assert everything["t"] == {"0": 100, "1": 30}
    rows, count = drained(lambda: tier.reader(maxOffsetsPerTrigger="26"), reader.initialOffset())
    assert sorted(rows) == whole(p0=100, p1=30)
    assert count == 5


def test_a_limit_in_bytes_is_kept_by_the_sizes_of_segments(tier: Growing) -> None:
    for partition in range(2):
        tier.grow(400, partition)
    tier.publish(0, rows_per_part=1)
    sizes = [s.size_bytes for p in tier.partitions.values() for s in p.segments]
    limit = sum(sizes) // 4
    rows, count = drained(
        lambda: tier.reader(maxBytesPerTrigger=str(limit)), tier.reader().initialOffset()
    )
    assert sorted(rows) == whole(p0=500, p1=430)
    assert 4 <= count <= 6
    rows, count = drained(
        lambda: tier.reader(maxBytesPerTrigger="1", assign='{"t": [1]}'), {"t": {"1": 425}}
    )
    assert rows == [(1, offset) for offset in range(425, 430)]


@pytest.mark.parametrize("parts", [{}, {"rows_per_part": 1}])
def test_a_limit_in_bytes_knows_each_segment_also_of_parts_that_are_not_read_yet(
    tmp_path: Path, parts: dict[str, Any]
) -> None:
    tier = Growing(tmp_path / "tier")
    tier.grow(400)
    small = tier.partitions["t", 0].segments[0]
    # A batch for each record: several times the bytes.
    large = tier.partitions["t", 0].segment(batches(400, 800, per=1))
    tier.publish(**parts)
    assert large.size_bytes > 2 * small.size_bytes

    def end(size_bytes: int) -> int:
        return end_after(tier.store, bytes([1]) * 16, ("t", 0), 0, 1000, size_bytes)

    assert end(small.size_bytes // 2) == 200
    assert end(small.size_bytes + large.size_bytes // 2) == 600
    # What is not in the tier yet counts as the last segment that is.
    assert end(small.size_bytes + large.size_bytes * 5 // 4) == 900
    assert end(10 * large.size_bytes) == 1000


def test_few_offsets_wait_for_more_or_for_the_delay(
    tier: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr("firnline.spark.streaming.reader.time.monotonic", lambda: now_s[0])
    reader = tier.reader(minOffsetsPerTrigger="50", maxTriggerDelay="60s")
    first = step(reader, reader.initialOffset())
    assert first["t"] == {"0": 100, "1": 30}
    tier.grow(49)
    assert step(reader, first) == first
    now_s[0] += 59.9
    assert step(reader, first) == first
    now_s[0] += 0.1
    second = step(reader, first)
    assert second["t"]["0"] == 149
    tier.grow(50)
    assert step(reader, second)["t"]["0"] == 199


def test_available_now_ends_with_what_there_was_whatever_comes(tier: Growing) -> None:
    options = {"maxOffsetsPerTrigger": "40", "minOffsetsPerTrigger": "30"}
    reader = tier.reader(**options)
    reader.prepareForTriggerAvailableNow()
    tier.grow(500)
    tier.grow(5, 2)
    start, rows = reader.initialOffset(), []
    while (end := step(reader, start)) != start:
        rows += rows_of(reader, start, end)
        start = end
    assert sorted(rows) == whole(p0=100, p1=30)
    # The next run reads what came, in a process of its own, and ends too.
    reader = tier.reader(**options)
    reader.prepareForTriggerAvailableNow()
    while (end := step(reader, start)) != start:
        rows += rows_of(reader, start, end)
        start = end
    assert sorted(rows) == whole(p0=600, p1=30, p2=5)


def test_available_now_from_the_latest_ends_at_once_and_keeps_its_place(tier: Growing) -> None:
    reader = tier.reader(startingOffsets="latest")
    reader.prepareForTriggerAvailableNow()
    tier.grow(5)
    start = reader.initialOffset()
    end = step(reader, start)
    assert rows_of(reader, start, end) == []
    assert end["t"] == {"0": 100, "1": 30}
    assert step(reader, end) == end
    following = step(tier.reader(startingOffsets="latest"), end)
    assert following["t"]["0"] == 105


def test_a_new_partition_is_read_from_its_first_offset(tier: Growing) -> None:
    reader = tier.reader(startingOffsets="latest")
    first = step(reader, reader.initialOffset())
    tier.grow(7, 2)
    second = step(reader, first)
    assert second["#begins"] == {"t": {"2": 0}}
    assert rows_of(tier.reader(), first, second) == [(2, offset) for offset in range(7)]


def test_a_new_topic_of_a_pattern_is_read_from_its_first_offset(tier: Growing) -> None:
    reader = tier.reader(subscribePattern="t|u", startingOffsets="latest")
    first = step(reader, reader.initialOffset())
    tier.grow(7, topic="u", number=2)
    second = step(reader, first)
    assert rows_of(reader, first, second) == [(0, offset) for offset in range(7)]
    assert set(second["#ids"]) == {"t", "u"}


def lost(
    tier: Growing, before: Json, why: str, caplog: pytest.LogCaptureFixture, **options: str
) -> list[tuple[int, int]]:
    """Check that a stream fails, and goes on if the user wants the rest; return that."""

    def read(reader: FirnlineStreamReader) -> list[tuple[int, int]]:
        return rows_of(reader, before, step(reader, before))

    with pytest.raises(DataLoss, match=why):
        read(tier.reader(**options))
    lenient = tier.reader(failOnDataLoss="false", **options)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        after = step(lenient, before)
        rows = rows_of(lenient, before, after)
    told = [r for r in caplog.records if "planning.tiered_partitions" not in r.name]
    assert sum("DataLoss" in r.message or "topic=t" in r.message for r in told) == 1
    assert step(lenient, after) == after
    return rows


def test_a_topic_that_was_created_again_is_data_loss(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    before = step(tier.reader(), tier.reader().initialOffset())
    again = Growing(tier.path)
    # Longer than the former one: offsets alone do not tell that it is another topic.
    again.grow(150, number=2)
    again.grow(40, 1, number=2)
    later = [t for t in list_topics(tier.store) if t.topic == "t"]
    assert len(later) == 2
    rows = lost(tier, before, "another one has its name", caplog)
    assert rows == whole(p0=150, p1=40)


def test_a_topic_that_was_created_again_with_as_many_records_is_data_loss_too(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    before = step(tier.reader(), tier.reader().initialOffset())
    again = Growing(tier.path)
    again.grow(100, number=2)
    again.grow(30, 1, number=2)
    assert lost(tier, before, "another one has its name", caplog) == whole(p0=100, p1=30)


def test_records_that_expired_before_they_were_read_are_data_loss(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    before = step(tier.reader(), tier.reader().initialOffset())
    tier.grow(100, log_start=150)
    rows = lost(tier, before, r"below the log start.*from_offset=100.*log_start=150", caplog)
    assert rows == [(0, offset) for offset in range(150, 200)]


def test_a_tier_that_ends_below_what_was_read_is_data_loss(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    """Fears a stream that waits, and then skips what another leader wrote at these offsets."""
    ids = {"t": uuid_text(bytes([1]) * 16)}
    before = {"t": {"0": 140, "1": 30}, "#ids": ids}
    rows = lost(tier, before, r"ends below what the stream has read.*read=140", caplog)
    assert rows == []


def test_a_partition_that_is_gone_is_data_loss(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    before = {"t": {"0": 100, "1": 30, "2": 9}, "#ids": {"t": uuid_text(bytes([1]) * 16)}}
    rows = lost(tier, before, r"a partition of the stream is gone.*partition=2 read=9", caplog)
    assert rows == []


def test_a_new_partition_that_lacks_its_first_records_is_data_loss(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    before = step(tier.reader(), tier.reader().initialOffset())
    tier.grow(10, 2, log_start=4)
    rows = lost(tier, before, "a new partition does not begin at offset 0", caplog)
    assert rows == [(2, offset) for offset in range(4, 10)]


def test_committed_records_end_before_an_open_transaction(tmp_path: Path) -> None:
    tier = Growing(tmp_path / "tier")
    tier.grow(50)
    written = tier.partitions["t", 0]
    written.segment(batches(50, 100), open_at=(70,))
    tier.publish()
    committed = {"kafka.isolation.level": "read_committed"}
    reader = tier.reader(**committed)
    end = step(reader, reader.initialOffset())
    assert end["t"] == {"0": 70}
    assert len(rows_of(reader, reader.initialOffset(), end)) == 70
    # A stream of all records that becomes one of committed records waits, and loses nothing.
    everything = step(tier.reader(), reader.initialOffset())
    assert step(tier.reader(**committed), everything) == everything
    written.segment(batches(100, 120))
    tier.publish()
    later = step(tier.reader(**committed), end)
    assert rows_of(reader, end, later) == [(0, offset) for offset in range(70, 120)]


def test_byte_ranges_and_divisions_act_inside_a_micro_batch(tier: Growing) -> None:
    tier.grow(20_000, 1)
    start = tier.reader().initialOffset()
    for options in ({"minPartitions": "7"}, {"maxRecordsPerPartition": "1000"}):
        reader = tier.reader(**options)
        end = step(reader, start)
        assert len(reader.partitions(start, end)) >= 7
        assert rows_of(reader, start, end) == whole(p0=100, p1=20_030)


def test_two_hundred_partitions_are_one_stream(tmp_path: Path) -> None:
    """A limit of fewer offsets than partitions starves none."""
    tier = Growing(tmp_path / "tier")
    for partition in range(200):
        tier.grow(1 + partition % 2, partition)
    rows, count = drained(
        lambda: tier.reader(maxOffsetsPerTrigger="50"), tier.reader().initialOffset()
    )
    assert count == 2
    assert sorted(rows) == tier.expected


def test_an_idle_stream_reads_no_catalog(tier: Growing) -> None:
    reader = tier.reader()
    end = step(reader, reader.initialOffset())
    reads: list[str] = []
    opened = reader._store
    assert opened is not None
    get = opened.get
    opened.get = lambda key, *more: (reads.append(key), get(key, *more))[1]  # type: ignore[method-assign]
    assert step(reader, end) == end
    assert reads == []
    tier.grow(5)
    assert step(reader, end)["t"]["0"] == 105
    assert len(reads) == 2


def test_an_idle_stream_says_once_what_is_not_there(
    tier: Growing, caplog: pytest.LogCaptureFixture
) -> None:
    """Fears a log that fills a disk: Spark asks an idle stream every few milliseconds."""
    reader = tier.reader(assign='{"t": [0, 9]}')
    end = step(reader, reader.initialOffset())
    for _ in range(5):
        assert step(reader, end) == end
    missing = "nothing of this partition is in the tier topic=t partition=9"
    # One from where the query starts, and one from all that it was asked since.
    assert sum(record.getMessage() == missing for record in caplog.records) == 2
    assert step(tier.reader(assign='{"t": [0, 9]}'), end) == end


def test_the_progress_has_the_latest_offsets_as_the_official_source_has(tier: Growing) -> None:
    reader = tier.reader(maxOffsetsPerTrigger="2")
    assert reader.reportLatestOffset() is None
    step(reader, reader.initialOffset())
    assert reader.reportLatestOffset() == {"t": {"0": 100, "1": 30}}
    reader.stop()


# ------------------------------------------------------------------------------------ with Spark


def begun(spark: SparkSession, tier: Growing, base: Path, *, now: bool, **options: str) -> Any:
    """Start a stream of the tier into a directory of Parquet files."""
    given = {"tier.uri": str(tier.path), "subscribe": "t", "startingOffsets": "earliest"}
    frame = spark.readStream.format("firnline").options(**(given | options)).load()
    trigger = {"availableNow": True} if now else {"processingTime": "0 seconds"}
    return (
        frame.select("partition", "offset", "value")
        .writeStream.format("parquet")
        .option("path", str(base / "out"))
        .option("checkpointLocation", str(base / "checkpoint"))
        .trigger(**trigger)  # type: ignore[arg-type]
        .start()
    )


def written(spark: SparkSession, base: Path) -> list[tuple[int, int]]:
    found = spark.read.parquet(str(base / "out")).select("partition", "offset").collect()
    return sorted((row[0], row[1]) for row in found)


def progress_of(query: StreamingQuery) -> list[Json]:
    return [json.loads(progress.json) for progress in query.recentProgress]


@pytest.mark.spark
def test_a_stream_in_spark_follows_a_tier_that_grows_and_goes_on_after_a_restart(
    spark: SparkSession, tier: Growing, tmp_path: Path
) -> None:
    query = begun(spark, tier, tmp_path, now=True, maxOffsetsPerTrigger="52")
    assert query.awaitTermination(120)
    assert written(spark, tmp_path) == whole(p0=100, p1=30)
    seen = progress_of(query)
    assert [p["numInputRows"] for p in seen if p["numInputRows"]] == [52, 52, 26]
    assert seen[0]["sources"][0]["latestOffset"] == {"t": {"0": 100, "1": 30}}
    tier.grow(50)
    query = begun(spark, tier, tmp_path, now=False)
    try:
        query.processAllAvailable()
        assert written(spark, tmp_path) == whole(p0=150, p1=30)
        tier.grow(5, 2)
        tier.grow(5, 1)
        query.processAllAvailable()
        assert written(spark, tmp_path) == whole(p0=150, p1=35, p2=5)
    finally:
        query.stop()


@pytest.mark.spark
def test_a_micro_batch_that_was_not_committed_is_read_again_and_is_the_same(
    spark: SparkSession, tier: Growing, tmp_path: Path
) -> None:
    """Method: take away the commit of the first micro-batch, also of a query that began at the latest."""
    query = begun(spark, tier, tmp_path, now=True, startingOffsets="latest")
    assert query.awaitTermination(120)
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    tier.grow(20)
    query = begun(spark, tier, tmp_path, now=True, startingOffsets="latest")
    assert query.awaitTermination(120)
    assert written(spark, tmp_path) == [(0, offset) for offset in range(100, 120)]


@pytest.mark.spark
def test_data_loss_ends_a_stream_with_words(
    spark: SparkSession, tier: Growing, tmp_path: Path
) -> None:
    query = begun(spark, tier, tmp_path, now=True)
    assert query.awaitTermination(120)
    tier.grow(100, log_start=150)
    query = begun(spark, tier, tmp_path, now=True)
    with pytest.raises(Exception, match="below the log start"):
        query.awaitTermination(120)
    query = begun(spark, tier, tmp_path, now=True, failOnDataLoss="false")
    assert query.awaitTermination(120)
    assert len(written(spark, tmp_path)) == 180


@pytest.mark.spark
def test_a_stream_that_is_killed_twice_loses_nothing_and_has_nothing_twice(tmp_path: Path) -> None:
    """The long form: python -m tests.spark.kill_streams --kills 20."""
    found = kill_streams.killed(tmp_path, kills=2, seed=10)
    assert (found["lost"], found["duplicate"], found["wrong"]) == (0, 0, 0)
    assert found["records"] > 0
