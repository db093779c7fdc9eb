"""Streams that go from the tier to the tail. The reader is called as Spark's process of Python does."""

import json
from collections import Counter
from collections.abc import Iterator
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
from firnline.spark.options.parse import parse_options
from firnline.spark.options.triggers import parse_triggers
from firnline.spark.schema import DataLoss
from firnline.spark.source import FirnlineReader
from firnline.spark.streaming.reader import FirnlineStreamReader
from firnline.testing.plugin import Broker
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
    assert set(after) == {"pattern-a", "#ids"}
    assert rows_of(lenient, logged, after) == []
