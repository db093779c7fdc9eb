"""Spark over the tier of a replicated topic, after brokers died, stopped and lost a disk under a producer."""

import json
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")
pytest.importorskip("confluent_kafka", reason="NOT RUN: confluent-kafka is not installed")

from click.testing import CliRunner
from pyspark.sql import SparkSession

from firnline.cli.main import cli
from firnline.spark.cuts import pin
from firnline.spark.options.parse import parse_options
from firnline.spark.source import FirnlineReader
from tests.chaos.tiered_replicas import (
    PARTITIONS,
    TOPIC,
    TieredCluster,
    await_all_in_sync,
    leaders,
    local_start,
    orphans,
    read_from_broker,
)
from tests.chaos.workload import Positions, Workload, read_all, violations
from tests.peers.nodes import eventually
from tests.spark.test_past_and_tail import Row, rows_of


def _in_the_tier(cluster: TieredCluster, partition: int, least: int) -> bool:
    """Whether every living replica begins above `least`: its leader copied, and it gave local files up."""
    return all(local_start(n, partition) > least for n in cluster.brokers if n.is_running)


def _tier(cluster: TieredCluster, *words: str) -> str:
    done = CliRunner().invoke(cli, ["tier", *words, "--bootstrap-server", cluster.bootstrap])
    assert done.exit_code == 0, done.output
    return done.output


class Pinned:
    """A cut of past and tail, and the rows that it had when it was made."""

    def __init__(self, bootstrap: str, tier: Path) -> None:
        options = {"tier.uri": tier.as_uri(), "kafka.bootstrap.servers": bootstrap}
        self._options = options | {"asOf": pin(options | {"subscribe": TOPIC})}
        self._rows = self._read("auto")
        sources = {row["readFrom"] for row in self._rows}
        assert sources == {"tier", "broker"}, "it has a past and a tail"

    def _read(self, way: str) -> list[Row]:
        options = parse_options(self._options | {"readFrom": way})
        reader = FirnlineReader(options, ("topic", "partition", "offset", "value", "readFrom"))
        return rows_of(reader, list(reader.partitions()))

    def check(self) -> None:
        """It gives the same rows again, whoever leads by now, and wherever they are read."""
        for way in ("auto", "broker"):
            # A leader may have just gone: Spark tries a task again, too.
            found = eventually(f"it is read from {way}", partial(self._read, way), within_s=180)
            assert isinstance(found, list)
            assert [row | {"readFrom": None} for row in found] == [
                row | {"readFrom": None} for row in self._rows
            ]


@pytest.mark.spark
@pytest.mark.timeout(900)  # half a minute on an idle machine
def test_spark_reads_what_a_consumer_read_after_two_leaders_went(
    spark: SparkSession, tmp_path: Path
) -> None:
    """KIP-405 on replicas: nothing acknowledged is lost or doubled, in either tier, from any broker.

    And a cut that was pinned before gives its rows again under each leader.
    """
    tier = tmp_path / "tier"
    began = time.monotonic()
    with TieredCluster(tmp_path, tier) as cluster:
        admin = cluster.make_topic()
        with Workload(cluster.bootstrap, TOPIC, PARTITIONS, value_bytes=400) as work:
            work.await_acks(1500)
            eventually("segments leave the brokers", lambda: _in_the_tier(cluster, 0, 0))

            cut = Pinned(cluster.bootstrap, tier)
            first = cluster[leaders(admin)[0]]
            first.kill()
            eventually("another leads", lambda: leaders(admin)[0] not in (-1, first.node_id))
            cut.check()
            work.await_acks(1000)
            with work.paused():
                first.start()
                await_all_in_sync(admin)

            second = cluster[leaders(admin)[0]]
            second.stop()
            eventually("a third leads", lambda: leaders(admin)[0] not in (-1, second.node_id))
            cut.check()
            work.await_acks(1000)
            second.wipe()
            before = min(local_start(n, 0) for n in cluster.brokers if n is not second)
            with work.paused():
                second.start()
                await_all_in_sync(admin)
            assert local_start(second, 0) >= before > 0, "it did not begin in the tier"
            work.await_acks(500)
            work.finish()

        acked = work.acked()
        found = read_all(cluster.bootstrap, TOPIC, PARTITIONS)
        assert violations(acked, found, work.sent) == []
        for node in cluster.brokers:
            # A follower learns of the high watermark with its next Fetch.
            what = f"{node} serves the same"
            eventually(what, lambda n=node: read_from_broker(n) == found)  # type: ignore[misc]
        flushed = json.loads(_tier(cluster, "flush", TOPIC, "--format", "json"))
        ends = {row["partition"]: row["highest_remote_offset"] for row in flushed}
        assert ends == {p: rows[-1][0] for p, rows in found.items()}
        assert "failing" not in _tier(cluster, "status", TOPIC)
        eventually("the store holds no orphan", lambda: orphans(cluster.bootstrap, tier) == [])
        cut.check()
    print(f"cluster: {time.monotonic() - began:.1f} s, {sum(map(len, found.values()))} records")

    rows = (
        spark.read.format("firnline")
        .options(**{"tier.uri": tier.as_uri(), "subscribe": TOPIC})
        .load()
        .selectExpr("partition", "offset", "cast(value as string) value")
        .collect()
    )
    table: Positions = {partition: [] for partition in range(PARTITIONS)}
    for row in sorted(rows, key=lambda row: (row["partition"], row["offset"])):
        table[row["partition"]].append((row["offset"], int(row["value"].partition(" ")[0])))
    assert table == found
