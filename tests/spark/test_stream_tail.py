"""Streams that go from the tier to the tail. The reader is called as Spark's process of Python does."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="NOT RUN: confluent-kafka is not installed")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="NOT RUN: PySpark 4.2 is missing")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.datasource import CaseInsensitiveDict

from firnline.base.errors import ConfigError
from firnline.client.admin import Admin
from firnline.spark.brokers.cluster import NoAnswer
from firnline.spark.options.parse import parse_options
from firnline.spark.options.triggers import parse_triggers
from firnline.spark.schema import DataLoss
from firnline.spark.source import FirnlineReader
from firnline.spark.streaming.reader import FirnlineStreamReader
from firnline.testing.plugin import Broker
from tests.peers.nodes import eventually
from tests.spark import tiered_topic
from tests.spark.tiered_topic import HALF, HALF_END

COLUMNS = ("topic", "partition", "offset", "key", "readFrom")
Json = dict[str, Any]
Row = dict[str, Any]


class Cluster:
    """A broker with a tier, and readers of streams of both."""

    def __init__(self, broker: Broker, tier: Path) -> None:
        self.broker, self.tier = broker, tier

    def reader(self, topic: str = HALF, **more: str) -> FirnlineStreamReader:
        """Return the reader that a new process of Python has."""
        chosen = {} if "subscribePattern" in more else {"subscribe": topic}
        given = CaseInsensitiveDict(
            {"tier.uri": str(self.tier), "kafka.bootstrap.servers": self.broker.bootstrap}
            | {"startingOffsets": "earliest"} | chosen | more
        )  # fmt: skip
        options = parse_options(given, is_stream=True)
        return FirnlineStreamReader(
            options, parse_triggers(given), FirnlineReader(options, COLUMNS)
        )

    def make_topic(self, name: str, partitions: int = 1) -> None:
        kept = {"remote.storage.enable": "true", "retention.ms": "-1"}
        with Admin(self.broker.bootstrap) as admin:
            admin.create_topic(name, partitions=partitions, configs=kept)

    def write(self, topic: str, begin: int, end: int) -> None:
        tiered_topic.write(self.broker.bootstrap, topic, begin, end)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with tiered_topic.tiered_topic(tmp_path_factory.mktemp("tail")) as (broker, tier):
        tiered_topic.half_tiered(broker)
        yield Cluster(broker, tier)


def step(reader: FirnlineStreamReader, start: Json) -> Json:
    """Ask as Spark does; offsets go through JSON."""
    return dict(json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit()))))


def rows_of(reader: FirnlineStreamReader, start: Json, end: Json) -> list[Row]:
    planned = reader.partitions(start, end)
    return [row for p in planned for batch in reader.read(p) for row in batch.to_pylist()]


def test_a_stream_goes_from_the_tier_to_the_tail_without_gap_or_duplicate(cluster: Cluster) -> None:
    """Each micro-batch in a new process; segments move to the tier meanwhile."""
    cluster.make_topic("moving")
    cluster.write("moving", 0, 100)
    with Admin(cluster.broker.bootstrap) as admin:
        admin.tier_flush("moving", [], timeout_s=60)
    cluster.write("moving", 100, 160)
    options = {"maxOffsetsPerTrigger": "30"}
    start, rows = cluster.reader("moving").initialOffset(), []
    for number in range(9):
        reader = cluster.reader("moving", **options)
        end = step(reader, start)
        taken = rows_of(cluster.reader("moving", **options), start, end)
        again = rows_of(cluster.reader("moving", **options), start, end)
        assert [row["offset"] for row in again] == [row["offset"] for row in taken]
        rows += taken
        start = end
        if number == 4:
            cluster.write("moving", 160, 220)
            with Admin(cluster.broker.bootstrap) as admin:
                admin.tier_flush("moving", [], timeout_s=60)
            cluster.write("moving", 220, 230)
    assert step(cluster.reader("moving", **options), start) == start
    assert [row["offset"] for row in rows] == list(range(230))
    assert [row["key"] for row in rows] == [b"key-%d" % n for n in range(230)]
    came_from = Counter(row["readFrom"] for row in rows)
    assert came_from["tier"] >= 100
    assert came_from["broker"] >= 10


@pytest.mark.parametrize("way", ["auto", "broker"])
def test_latest_is_the_end_of_the_topic_and_not_of_the_tier(cluster: Cluster, way: str) -> None:
    options = {"startingOffsets": "latest", "readFrom": way}
    reader = cluster.reader(**options)
    end = step(reader, reader.initialOffset())
    assert end[HALF] == {"0": HALF_END}
    assert end["#begins"] == {HALF: {"0": HALF_END}}
    if way == "broker":
        assert reader._opened() is None
    assert reader.reportLatestOffset() == {HALF: {"0": HALF_END}}


def test_a_partition_that_was_added_is_read_from_its_first_offset(cluster: Cluster) -> None:
    cluster.make_topic("wider")
    cluster.write("wider", 0, 10)
    reader = cluster.reader("wider", startingOffsets="latest")
    first = step(reader, reader.initialOffset())
    admin = AdminClient({"bootstrap.servers": cluster.broker.bootstrap})
    for future in admin.create_partitions([NewPartitions("wider", 2)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": cluster.broker.bootstrap})
    for number in range(5):
        producer.produce("wider", value=str(number), partition=1)
    producer.flush(30)
    second = step(reader, first)
    rows = rows_of(reader, first, second)
    assert sorted((row["partition"], row["offset"]) for row in rows) == [(1, n) for n in range(5)]


def test_a_topic_that_was_created_again_is_data_loss(cluster: Cluster) -> None:
    cluster.make_topic("again")
    cluster.write("again", 0, 10)
    reader = cluster.reader("again")
    before = step(reader, reader.initialOffset())
    cluster.write("again", 10, 15)
    logged = step(reader, before)  # the end of a micro-batch that is not committed
    with Admin(cluster.broker.bootstrap) as admin:
        admin.delete_topic("again")
    with pytest.raises(ConfigError, match="no such topic in the cluster"):
        step(reader, before)
    cluster.make_topic("again")
    cluster.write("again", 0, 20)
    with pytest.raises(DataLoss, match="another one has its name"):
        step(reader, before)
    with pytest.raises(DataLoss, match="another one has its name"):
        reader.partitions(before, logged)
    lenient = cluster.reader("again", failOnDataLoss="false")
    assert rows_of(lenient, before, logged) == []
    after = step(lenient, logged)
    assert [row["offset"] for row in rows_of(lenient, logged, after)] == list(range(20))


def test_a_topic_of_a_pattern_that_was_deleted_is_data_loss(cluster: Cluster) -> None:
    cluster.make_topic("pattern-a")
    cluster.make_topic("pattern-b")
    cluster.write("pattern-a", 0, 10)
    cluster.write("pattern-b", 0, 10)
    options = {"subscribePattern": "^pattern-"}
    reader = cluster.reader(**options)
    start = reader.initialOffset()
    logged = step(reader, start)
    with Admin(cluster.broker.bootstrap) as admin:
        admin.delete_topic("pattern-b")
    with pytest.raises(DataLoss, match=r"a partition of the stream is gone.*topic=pattern-b"):
        step(reader, logged)
    with pytest.raises(ConfigError, match="no such topic"):
        reader.partitions(start, logged)
    # The user wants the rest: also of the micro-batch that was not committed.
    lenient = cluster.reader(failOnDataLoss="false", **options)
    assert {row["topic"] for row in rows_of(lenient, start, logged)} == {"pattern-a"}
    after = step(lenient, logged)
    assert set(after) == {"pattern-a", "#ids", "#epochs"}
    assert rows_of(lenient, logged, after) == []


def test_a_topic_without_records_ends_a_query_that_takes_what_there_is(cluster: Cluster) -> None:
    cluster.make_topic("empty", partitions=2)
    reader = cluster.reader("empty")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = step(reader, start)
    assert end["empty"] == {"0": 0, "1": 0}
    assert rows_of(reader, start, end) == []
    assert step(reader, end) == end
    cluster.write("empty", 0, 3)
    after = step(cluster.reader("empty"), end)
    assert len(rows_of(cluster.reader("empty"), end, after)) == 3


def test_a_stream_that_goes_from_brokers_to_the_tier_and_back_loses_nothing(
    cluster: Cluster,
) -> None:
    """Fears an operator who changes readFrom between two runs: the tier lacks what was read last."""
    cluster.make_topic("switched")
    cluster.write("switched", 0, 40)
    with Admin(cluster.broker.bootstrap) as admin:
        admin.tier_flush("switched", [], timeout_s=60)
    cluster.write("switched", 40, 60)
    reader = cluster.reader("switched")
    start = reader.initialOffset()
    first = step(reader, start)
    rows = rows_of(reader, start, first)
    alone = cluster.reader("switched", readFrom="tier")
    assert step(alone, first) == first
    cluster.write("switched", 60, 80)
    with Admin(cluster.broker.bootstrap) as admin:
        admin.tier_flush("switched", [], timeout_s=60)
    second = step(alone, first)
    rows += rows_of(alone, first, second)
    cluster.write("switched", 80, 90)
    for way in ("broker", "auto"):
        reader = cluster.reader("switched", readFrom=way)
        third = step(reader, second)
        assert [row["offset"] for row in rows_of(reader, second, third)] == list(range(80, 90))
    rows += rows_of(reader, second, third)
    assert [row["offset"] for row in rows] == list(range(90))


def test_a_stream_outlives_brokers_that_are_away(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The last test: the broker is killed, and comes back while Spark asks for offsets, and for a plan."""
    cluster.make_topic("away")
    cluster.write("away", 0, 10)
    reader = cluster.reader("away")
    first = step(reader, reader.initialOffset())
    cluster.write("away", 10, 20)
    second = step(reader, first)
    cluster.broker.kill()
    try:
        # A new query may have a wrong address: it fails at once.
        with pytest.raises(NoAnswer, match="gave no answer"):
            step(cluster.reader("away"), reader.initialOffset())
        # Nobody waits for ever.
        with pytest.raises(NoAnswer, match="gave no answer"):
            step(cluster.reader("away", **{"kafkaConsumer.pollTimeoutMs": "1"}), first)
        caplog.clear()
        with ThreadPoolExecutor(2) as threads:
            asked = threads.submit(step, cluster.reader("away"), first)
            planned = threads.submit(rows_of, cluster.reader("away"), first, second)
            eventually("both wait", lambda: caplog.text.count("the stream asks again") == 2)
            cluster.broker.start()
            assert asked.result(60)["away"] == second["away"]
            assert [row["offset"] for row in planned.result(60)] == list(range(10, 20))
    finally:
        if cluster.broker.process is None:
            cluster.broker.start()
    assert caplog.text.count("the stream asks again") == 2
