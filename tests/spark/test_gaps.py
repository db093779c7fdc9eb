"""The table `gaps` in Spark, and of a real broker: retention, DeleteRecords, compaction."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="NOT RUN: confluent-kafka is not installed")
pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from firnline.base.errors import ConfigError
from firnline.client.admin import Admin
from firnline.spark.schema import DataLoss
from firnline.spark.source import FirnlineSource
from firnline.stores.directory import DirectoryStore
from firnline.testing.plugin import Broker
from tests.peers.nodes import eventually
from tests.spark.reading_gaps import check_covered
from tests.spark.test_past_and_tail import Cluster, delete_below, flush, make_topic
from tests.spark.tiered_topic import write
from tests.spark.written_tier import WrittenPartition, batch, batches, compacted
from tests.unit.spark.test_gaps import marker

Row = dict[str, Any]
_OFTEN = (
    "firnline.local.retention.check.interval.ms=100", "log.retention.check.interval.ms=200",
    "remote.log.manager.task.interval.ms=200", "log.cleaner.backoff.ms=100",
)  # fmt: skip
SMALL = {"internal.segment.bytes": "4096", "local.retention.bytes": "1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("gaps")
    tier = directory / "tier"
    tier.mkdir()
    settings = [part for each in _OFTEN for part in ("-X", each)]
    broker = Broker(directory / "data", tier=tier, options=settings)
    broker.start()
    try:
        yield Cluster(broker, tier)
    finally:
        broker.stop()


def rows_of(options: dict[str, str]) -> list[Row]:
    """Return the rows of a read as Spark would get them, each part pickled on its way."""
    source = FirnlineSource(CaseInsensitiveDict(options))
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))  # noqa: S301 - our own bytes
    parts = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 - our own bytes
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def read(cluster: Cluster, topic: str, start: int, **more: str) -> tuple[list[int], list[Row]]:
    """Return the offsets that a read from `start` gives, and its gaps, after a check that none is missing."""
    options = cluster.options(topic, **more) | {
        "startingOffsets": f'{{"{topic}": {{"0": {start}}}}}'
    }
    table = rows_of(options | {"table": "gaps"})
    for _ in range(20):  # compaction goes on between two reads
        before = table
        given = [row["offset"] for row in rows_of(options | {"failOnDataLoss": "false"})]
        table = rows_of(options | {"table": "gaps"})
        if before == table:
            break
    end = max([*given, *(row["end_offset"] - 1 for row in table)]) + 1
    check_covered(start, end, given, table)
    return given, sorted(table, key=lambda row: row["start_offset"])


def spans(rows: list[Row]) -> dict[str, int]:
    """Return how many offsets each cause has."""
    found: dict[str, int] = {}
    for row in rows:
        found[row["cause"]] = found.get(row["cause"], 0) + row["offsets"]
    return found


def test_deleted_records_whose_segment_is_still_there_are_told(cluster: Cluster) -> None:
    """DeleteRecords up to the middle of a segment: complete ones go, and the rest of that one stays."""
    make_topic(cluster, "deleted", **SMALL)
    write(cluster.broker.bootstrap, "deleted", 0, 200)
    flush(cluster, "deleted")
    write(cluster.broker.bootstrap, "deleted", 200, 210)
    delete_below(cluster, "deleted", 130)

    def all_gone() -> bool:
        given, rows = read(cluster, "deleted", 3)
        assert given == list(range(130, 210))
        assert {row["is_loss"] for row in rows} == {False}
        return all(row["segment_id"] for row in rows)

    eventually("the tier's metadata has the removals", all_gone)
    _, rows = read(cluster, "deleted", 3)
    assert spans(rows).keys() == {"expired_or_deleted", "delete_records"}
    assert rows[-1]["cause"] == "delete_records"
    assert rows[-1]["end_offset"] == 130
    assert "retention removes complete segments" in rows[-1]["detail"]
    assert "now retention.ms=-1 and retention.bytes=-1" in rows[0]["detail"]
    alone = cluster.options("deleted") | {"table": "gaps", "readFrom": "tier"}
    alone |= {"startingOffsets": '{"deleted": {"0": 3}}'}
    assert spans(rows_of(alone)) == {"expired_or_deleted": 127}


@pytest.mark.parametrize(
    ("topic", "limit", "cause"),
    [
        ("aged", "retention.ms=1000", "retention_time"),
        ("large", "retention.bytes=6000", "retention_size"),
    ],
)
def test_what_a_limit_removed_is_told(cluster: Cluster, topic: str, limit: str, cause: str) -> None:
    make_topic(cluster, topic, **SMALL)
    write(cluster.broker.bootstrap, topic, 0, 200)
    flush(cluster, topic)
    name, value = limit.split("=")
    with Admin(cluster.broker.bootstrap) as admin:
        admin.alter_topic(topic, changes={name: value})
    options = cluster.options(topic) | {
        "table": "gaps",
        "startingOffsets": f'{{"{topic}": {{"0": 0}}}}',
    }
    eventually("retention removes", lambda: spans(rows_of(options)).get(cause, 0) >= 50)
    assert limit in rows_of(options)[0]["detail"]


def test_what_compaction_removed_on_a_broker_is_told(cluster: Cluster) -> None:
    make_topic(
        cluster, "keyed", **{
            "remote.storage.enable": "false", "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "4096",
            "delete.retention.ms": "100",
        },
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": cluster.broker.bootstrap})
    for number in range(400):
        producer.produce("keyed", f"{number}-" + "x" * 60, f"{number % 7}", partition=0)
        if number % 20 == 0:
            producer.flush()
    producer.flush()

    def is_compacted() -> bool:
        given, rows = read(cluster, "keyed", 0)
        return len(given) < 200 and spans(rows).keys() == {"compacted"}

    eventually("the topic is compacted", is_compacted)
    _, rows = read(cluster, "keyed", 0)
    assert rows[0]["detail"].endswith("cleanup.policy is compact")
    options = cluster.options("keyed")
    assert len(rows_of(options | {"onGap": "explain"})) < 200
    with pytest.raises(DataLoss, match=r"cause=compacted.*onGap=fail"):
        rows_of(options | {"onGap": "fail"})


def test_offsets_that_nobody_wrote_and_a_topic_of_the_past(cluster: Cluster) -> None:
    make_topic(cluster, "short")
    write(cluster.broker.bootstrap, "short", 0, 10)
    options = cluster.options("short", table="gaps", endingOffsets='{"short": {"0": 15}}')
    (row,) = rows_of(options)
    assert (row["start_offset"], row["end_offset"], row["cause"]) == (10, 15, "not_written")
    options = cluster.options("short") | {"endingOffsets": '{"short": {"0": 15}}'}
    assert len(rows_of(options | {"onGap": "explain"})) == 10
    cut = {"id": "AgICAgICAgICAgICAgICAg", "partitions": {"0": {"start": 0, "end": 7, "epoch": 0}}}
    of_the_past = {"version": 1, "isolation": "read_uncommitted", "topics": {"short": cut}}
    options = cluster.options("short", table="gaps", asOf=json.dumps(of_the_past))
    (row,) = rows_of(options)
    assert (row["offsets"], row["cause"], row["is_loss"]) == (7, "topic_deleted", True)


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topic `t`: offsets below 5 expired, an aborted transaction, compaction, a lost segment."""
    path = tmp_path_factory.mktemp("tier")
    partition = WrittenPartition(DirectoryStore(str(path)), "t")
    aborted = batch(10, 5, is_transactional=True, producer_id=7)
    partition.segment(
        [batch(0, 10), aborted, marker(15, 7), compacted(16, [17], 20)], aborted=[(7, 10, 15)]
    )
    partition.segment(batches(30, 60), split_bytes=200)
    partition.publish(log_start=5, log_end=70)
    return path


def test_sql_reads_the_gaps_of_a_tier(spark: SparkSession, tier: Path) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW the_gaps USING firnline OPTIONS (table 'gaps',"
        f" `tier.uri` '{tier}', subscribe 't', startingOffsets '{{\"t\": {{\"0\": 2}}}}',"
        " endingOffsets '{\"t\": {\"0\": 75}}', `kafka.isolation.level` 'read_committed',"
        " splitBytes '100')"
    )
    found = spark.sql(
        "SELECT cause, is_loss, sum(offsets), min(start_offset), max(producer_id) FROM the_gaps"
        " GROUP BY cause, is_loss ORDER BY 4"
    )
    assert [tuple(row) for row in found.collect()] == [
        ("expired_or_deleted", False, 3, 2, None),
        ("aborted", False, 5, 10, 7),
        ("control_marker", False, 1, 15, 7),
        ("compacted", False, 3, 16, None),
        ("lost", True, 10, 20, None),
        ("not_in_tier", False, 15, 60, None),
    ]


def test_a_table_of_gaps_is_kept_with_its_options_and_refuses_others(tier: Path) -> None:
    given = {"table": "gaps", "tier.uri": str(tier), "subscribe": "t"}
    prefixed = {f"option.{name}": value for name, value in given.items()}
    schema = FirnlineSource(
        CaseInsensitiveDict({"provider": "firnline", **given, **prefixed})
    ).schema()
    reader: Any = FirnlineSource(CaseInsensitiveDict({})).reader(schema)
    causes = [
        row["cause"]
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert causes == ["lost", "control_marker", "compacted", "compacted"]
    assert list(reader.read(None)) == []
    for wrong in ({"includeHeaders": "true"}, {"log.dirs": "/x"}):
        with pytest.raises(ConfigError):
            FirnlineSource(CaseInsensitiveDict({**given, **wrong})).schema()
    with pytest.raises(ConfigError, match="gaps has no such column"):
        FirnlineSource(CaseInsensitiveDict(given)).reader(StructType().add("offset", "long"))
