"""The tier's past and the brokers' tail are one table. The reader is called as Spark does, without Spark."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="NOT RUN: confluent-kafka is not installed")
pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

from pyspark.sql.datasource import CaseInsensitiveDict

from firnline.base.errors import ConfigError
from firnline.client.admin import Admin
from firnline.client.connection import Connection
from firnline.config.topic import LEASES
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from firnline.spark.brokers.cluster import NoAnswer
from firnline.spark.cuts import pin, release, renew
from firnline.spark.options.parse import parse_options
from firnline.spark.planning import rest
from firnline.spark.planning.plan import TailTask
from firnline.spark.schema import DataLoss
from firnline.spark.source import FirnlineReader, TaskPartition
from firnline.testing.plugin import Broker
from tests.peers.nodes import copy_while_used, eventually
from tests.spark import tiered_topic
from tests.spark.tiered_topic import HALF, PLAIN
from tests.spark.written_tier import T0

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "readFrom", "segmentId")
Row = dict[str, Any]


class Cluster:
    """A broker with a tier, and what a read needs to reach both."""

    def __init__(self, broker: Broker, tier: Path) -> None:
        self.broker, self.tier = broker, tier

    def options(self, topic: str = HALF, **more: str) -> dict[str, str]:
        """Return the options of a read of past and tail."""
        named = {"tier.uri": str(self.tier), "kafka.bootstrap.servers": self.broker.bootstrap}
        return named | {"subscribe": topic} | more

    def reader(self, topic: str = HALF, **more: str) -> FirnlineReader:
        given = CaseInsensitiveDict(self.options(topic, **more))
        return FirnlineReader(parse_options(given), COLUMNS)

    def read(self, topic: str = HALF, **more: str) -> list[Row]:
        """Return the rows of a read, by partition and offset."""
        reader = self.reader(topic, **more)
        return rows_of(reader, list(reader.partitions()))


def rows_of(reader: FirnlineReader, partitions: list[Any]) -> list[Row]:
    found = [row for p in partitions for batch in reader.read(p) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def records(rows: list[Row]) -> list[tuple[object, ...]]:
    """Return what a record is, wherever it was read."""
    return [tuple(row[name] for name in COLUMNS[:6]) for row in rows]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with tiered_topic.tiered_topic(tmp_path_factory.mktemp("tail")) as (broker, tier):
        tiered_topic.half_tiered(broker)
        yield Cluster(broker, tier)


def make_topic(cluster: Cluster, name: str, **configs: str) -> None:
    kept = {"remote.storage.enable": "true", "retention.ms": "-1"}
    with Admin(cluster.broker.bootstrap) as admin:
        admin.create_topic(name, partitions=1, configs=kept | configs)


def flush(cluster: Cluster, name: str) -> None:
    with Admin(cluster.broker.bootstrap) as admin:
        admin.tier_flush(name, [], timeout_s=60)


def delete_below(cluster: Cluster, name: str, offset: int) -> None:
    host, _, port = cluster.broker.bootstrap.rpartition(":")
    below = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=[below])], timeout_ms=10_000
    )
    with Connection(host, int(port)) as connection:
        connection.ask(request)


def test_past_and_tail_have_every_record_once(cluster: Cluster) -> None:
    rows = cluster.read()
    assert [row["offset"] for row in rows] == list(range(200))
    assert [row["key"] for row in rows] == [b"key-%d" % n for n in range(200)]
    assert Counter(row["readFrom"] for row in rows) == {"tier": 180, "broker": 20}
    assert all((row["segmentId"] is None) == (row["readFrom"] == "broker") for row in rows)
    assert records(cluster.read(readFrom="broker")) == records(rows)
    assert len(cluster.read(readFrom="tier")) == 180


def test_a_record_of_the_tier_costs_the_brokers_no_request(cluster: Cluster) -> None:
    """Fears a backfill that reads history through the brokers: no task asks them for what the tier has."""
    plan = cluster.reader().partitions()
    asked = [t for p in plan for t in p.tasks if isinstance(t, TailTask)]  # type: ignore[attr-defined]
    assert [(task.start_offset, task.end_offset) for task in asked] == [(180, 200)]
    until = json.dumps({HALF: {"0": 180}})
    plan = cluster.reader(endingOffsets=until).partitions()
    assert not any(isinstance(t, TailTask) for p in plan for t in p.tasks)  # type: ignore[attr-defined]


def test_a_cut_gives_the_same_rows_after_more_was_written_and_segments_moved(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    make_topic(cluster, "moves")
    tiered_topic.write(cluster.broker.bootstrap, "moves", 0, 60)
    before = cluster.read("moves")
    [line] = [x for x in capfd.readouterr().err.splitlines() if x.startswith("firnline: asOf=")]
    cut = line.removeprefix("firnline: asOf=")
    assert {row["readFrom"] for row in before} == {"broker"}
    tiered_topic.write(cluster.broker.bootstrap, "moves", 60, 90)
    flush(cluster, "moves")
    after = cluster.read("moves", asOf=cut)
    assert {row["readFrom"] for row in after} == {"tier"}
    assert records(after) == records(before)
    assert len(before) == 60
    assert records(cluster.read("moves", asOf=cut, readFrom="broker")) == records(before)
    assert records(cluster.read("moves", asOf=cut, readFrom="tier")) == records(before)
    assert len(cluster.read("moves")) == 90


def test_a_pinned_cut_is_the_one_that_a_read_takes(cluster: Cluster) -> None:
    options = cluster.options()
    cut = json.loads(pin(options))
    partition = cut["topics"][HALF]["partitions"]["0"]
    assert (partition["start"], partition["end"]) == (0, 200)
    assert json.loads(pin(options | {"asOf": json.dumps(cut)})) == cut


def test_a_cut_of_a_topic_that_was_created_again_is_data_loss(cluster: Cluster) -> None:
    make_topic(cluster, "again")
    tiered_topic.write(cluster.broker.bootstrap, "again", 0, 10)
    cut = pin(cluster.options("again"))
    with Admin(cluster.broker.bootstrap) as admin:
        admin.delete_topic("again")
    make_topic(cluster, "again")
    tiered_topic.write(cluster.broker.bootstrap, "again", 0, 10)
    with pytest.raises(DataLoss, match="was deleted; another one has its name"):
        cluster.read("again", asOf=cut)
    assert cluster.read("again", asOf=cut, failOnDataLoss="false") == []
    assert len(cluster.read("again")) == 10


def test_a_cut_that_was_edited_is_refused_in_words(cluster: Cluster) -> None:
    """Fears a KeyError, and a wait for the leader of a partition that never was."""
    cut = json.loads(pin(cluster.options()))
    named = {**cut, "topics": {"another": cut["topics"][HALF]}}
    with pytest.raises(ConfigError, match=f"asOf has the id of another topic.*topic_of_id={HALF}"):
        cluster.read("another", asOf=json.dumps(named), readFrom="tier")
    cut["topics"][HALF]["partitions"] = {"7": cut["topics"][HALF]["partitions"]["0"]}
    for way in ("auto", "broker"):
        with pytest.raises(ConfigError, match=r"partitions that the topic never had.*\[7\]"):
            cluster.read(asOf=json.dumps(cut), readFrom=way)


def test_deleted_records_of_a_cut_are_data_loss_and_not_fewer_rows(cluster: Cluster) -> None:
    make_topic(cluster, "shortened")
    tiered_topic.write(cluster.broker.bootstrap, "shortened", 0, 30)
    cut = pin(cluster.options("shortened"))
    delete_below(cluster, "shortened", 12)
    gone = r"below the log start.*from_offset=0.*log_start=12.*lease_s=.*failOnDataLoss=false reads"
    with pytest.raises(DataLoss, match=gone):
        cluster.read("shortened", asOf=cut)
    rest = cluster.read("shortened", asOf=cut, failOnDataLoss="false")
    assert [row["offset"] for row in rest] == list(range(12, 30))
    assert [row["offset"] for row in cluster.read("shortened")] == list(range(12, 30))


def test_records_that_go_after_the_plan_are_data_loss(cluster: Cluster) -> None:
    """Fears a task that waits for, or leaves out, what retention took between plan and read."""
    make_topic(cluster, "goes")
    tiered_topic.write(cluster.broker.bootstrap, "goes", 0, 30)
    reader, lenient = cluster.reader("goes"), cluster.reader("goes", failOnDataLoss="false")
    plan = list(reader.partitions())
    delete_below(cluster, "goes", 12)
    with pytest.raises(DataLoss, match=r"does not have these offsets.*log_start=12"):
        rows_of(reader, plan)
    assert [row["offset"] for row in rows_of(lenient, plan)] == list(range(12, 30))


def test_a_topic_that_is_deleted_after_the_plan_is_data_loss_and_no_endless_wait(
    cluster: Cluster,
) -> None:
    make_topic(cluster, "deleted")
    tiered_topic.write(cluster.broker.bootstrap, "deleted", 0, 10)
    reader = cluster.reader("deleted")
    plan = list(reader.partitions())
    with Admin(cluster.broker.bootstrap) as admin:
        admin.delete_topic("deleted")
    began = time.monotonic()
    with pytest.raises(DataLoss, match="the topic is gone, or is another one"):
        rows_of(reader, plan)
    assert time.monotonic() - began < 20


def test_a_segment_that_left_the_tier_is_read_from_the_broker(cluster: Cluster) -> None:
    make_topic(cluster, "leaves")  # keeps its local files
    tiered_topic.write(cluster.broker.bootstrap, "leaves", 0, 30)
    flush(cluster, "leaves")
    reader = cluster.reader("leaves")
    plan = list(reader.partitions())
    before = rows_of(reader, plan)
    assert {row["readFrom"] for row in before} == {"tier"}
    [task] = [task for partition in plan for task in partition.tasks]  # type: ignore[attr-defined]
    moved = cluster.tier.with_name("elsewhere")
    copy_while_used(cluster.tier, moved)
    aside = Cluster(cluster.broker, moved).reader("leaves")
    for path in sorted(moved.rglob("*")):
        if path.is_file() and any(
            part in str(path) for part in ("catalog", task.pieces[0].segment.stem)
        ):
            path.unlink()
    after = rows_of(aside, [TaskPartition((task,))])
    assert {row["readFrom"] for row in after} == {"broker"}
    assert records(after) == records(before)


def test_times_and_offsets_are_those_of_the_partition_and_not_of_the_tier(cluster: Cluster) -> None:
    late = cluster.read(startingTimestamp=str(T0 + 190_000))
    assert [row["offset"] for row in late] == list(range(190, 200))
    over = cluster.read(startingOffsets=json.dumps({HALF: {"0": 170}}))
    assert [row["offset"] for row in over] == list(range(170, 200))
    with pytest.raises(ConfigError, match="must name every partition"):
        cluster.read(startingOffsets=json.dumps({HALF: {"0": 1, "1": 1}}))
    with pytest.raises(DataLoss, match="is not in the partition, or not yet"):
        cluster.read(startingOffsets=json.dumps({HALF: {"0": 201}}))
    with pytest.raises(ConfigError, match="no record is at or after the starting time"):
        cluster.read(startingTimestamp=str(T0 + 900_000))


def test_a_topic_that_is_not_there_is_named(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"no such topic in the cluster.*nobody-made-it"):
        cluster.read("nobody-made-it")
    with pytest.raises(ConfigError, match=f"did you mean {HALF}\\?.*there=.*{HALF}"):
        cluster.read(HALF[:-1])


def test_a_pattern_without_a_topic_reads_nothing_and_says_so(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    options = cluster.options() | {"subscribePattern": "^halve"}
    del options["subscribe"]
    for read_from in ("auto", "tier"):
        caplog.clear()
        parsed = parse_options(CaseInsensitiveDict(options | {"readFrom": read_from}))
        assert FirnlineReader(parsed, COLUMNS).partitions() == []
        (line,) = [each for each in caplog.messages if "no topic matches" in each]
        assert "^halve" in line


def test_the_tail_is_divided_as_offsets_are(cluster: Cluster) -> None:
    plan = cluster.reader(maxRecordsPerPartition="15").partitions()
    tasks = [task for partition in plan for task in partition.tasks]  # type: ignore[attr-defined]
    assert len(tasks) >= 13
    tails = [t.end_offset - t.start_offset for t in tasks if isinstance(t, TailTask)]
    assert sum(tails) == 20
    assert max(tails) <= 15
    reader = cluster.reader(maxRecordsPerPartition="15")
    assert [r["offset"] for r in rows_of(reader, list(reader.partitions()))] == list(range(200))


def test_a_tier_of_another_cluster_is_told_and_not_taken_for_one_without_the_topic(
    cluster: Cluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fears a typing error in `tier.uri`: all of history comes from the brokers, and nobody is told."""
    (foreign := tmp_path / "foreign").mkdir()
    (foreign / "cluster.json").write_text('{"clusterId": "another"}')
    (nothing := tmp_path / "nothing").mkdir()
    for uri, owner in ((foreign, "another"), (nothing, "none")):
        caplog.clear()
        rows = cluster.read(**{"tier.uri": str(uri)})
        assert len(rows) == 200
        (line,) = [each for each in caplog.messages if "no tier of this cluster" in each]
        assert f"tier_of={owner}" in line
    caplog.clear()
    monkeypatch.setattr(rest, "_looked_at", set())
    assert len(cluster.read(PLAIN)) == 50
    assert [each for each in caplog.messages if "no tier of this cluster" in each] == []


def test_without_brokers_that_answer_the_error_says_what_helps(cluster: Cluster) -> None:
    began = time.monotonic()
    with pytest.raises(NoAnswer, match="readFrom=tier reads without them"):
        cluster.read(**{"kafka.bootstrap.servers": "127.0.0.1:1"})
    assert time.monotonic() - began < 10


def test_a_broker_that_restarts_while_it_is_read_is_waited_for(cluster: Cluster) -> None:
    reader = cluster.reader(PLAIN)
    plan = list(reader.partitions())
    cluster.broker.stop()
    found: list[list[Row]] = []
    task = threading.Thread(target=lambda: found.append(rows_of(reader, plan)))
    task.start()
    cluster.broker.start()
    task.join(60)
    assert [row["offset"] for row in found[0]] == list(range(50))


def test_a_leader_that_does_not_come_back_ends_the_task_with_an_error(cluster: Cluster) -> None:
    reader = cluster.reader(PLAIN, **{"kafkaConsumer.pollTimeoutMs": "500"})
    plan = list(reader.partitions())
    cluster.broker.stop()
    try:
        with pytest.raises(NoAnswer, match=r"pollTimeoutMs.*topic=not-copied.*offset=0"):
            rows_of(reader, plan)
    finally:
        cluster.broker.start()
    eventually("the broker answers", lambda: len(cluster.read(PLAIN)) == 50)


def leases(cluster: Cluster, topic: str) -> list[str]:
    with Admin(cluster.broker.bootstrap) as admin:
        value = admin.topic_configs(topic, only_changed=False).get(LEASES)
    return [item for item in (value or "").split(",") if item]


@pytest.mark.parametrize("remote", ["true", "false"])
def test_a_cut_with_a_lease_outlives_the_retention_and_without_one_it_does_not(
    cluster: Cluster, remote: str
) -> None:
    """Fears a long job whose rows expire under it, from a tier and from a topic that has none."""
    name = f"leased-{remote}"
    make_topic(cluster, name, **{"remote.storage.enable": remote})
    tiered_topic.write(cluster.broker.bootstrap, name, 0, 60)
    if remote == "true":
        flush(cluster, name)
    options = cluster.options(name)
    cut = pin(options, lease_s=60)
    with Admin(cluster.broker.bootstrap) as admin:
        admin.alter_topic(name, changes={"retention.ms": "1", "segment.ms": "1"})
    time.sleep(3)  # retention runs every 100 ms, the tier's every second
    before = cluster.read(name, asOf=cut)
    assert [row["offset"] for row in before] == list(range(60))
    longer = renew(options, cut, lease_s=120)
    (lease,) = leases(cluster, name)
    assert json.loads(longer)["lease"] == lease != json.loads(cut)["lease"]
    assert cluster.read(name, asOf=longer) == before
    release(options, longer)
    assert leases(cluster, name) == []

    def is_gone() -> bool:
        try:
            return cluster.read(name, asOf=cut) == []
        except DataLoss:
            return True

    eventually("the records expire after the lease", is_gone)


def test_a_lease_that_cannot_be_had_says_why(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="at most 7 days"):
        pin(cluster.options(), lease_s=8 * 24 * 3600)
    tier_only = {"tier.uri": str(cluster.tier), "subscribe": HALF}
    with pytest.raises(ConfigError, match=r"give kafka\.bootstrap\.servers"):
        pin(tier_only, lease_s=60)
    with pytest.raises(ConfigError, match="has no lease"):
        release(cluster.options(), pin(cluster.options()))
    with pytest.raises(ConfigError, match="no such topic"):
        pin(cluster.options("nowhere"), lease_s=60)


def test_a_plan_that_fails_leaves_no_lease(cluster: Cluster) -> None:
    wrong = json.dumps({HALF: {"0": 100_000}})
    with pytest.raises(DataLoss):
        pin(cluster.options(startingOffsets=wrong), lease_s=60)
    assert leases(cluster, HALF) == []


def test_leases_that_ended_long_ago_are_removed_by_the_next_one(cluster: Cluster) -> None:
    make_topic(cluster, "old-leases", **{LEASES: "crashed:1,other:2"})
    cut = pin(cluster.options("old-leases"), lease_s=60)
    assert leases(cluster, "old-leases") == [json.loads(cut)["lease"]]


def test_a_read_of_the_tier_alone_can_have_a_lease(cluster: Cluster) -> None:
    cut = pin(cluster.options(readFrom="tier"), lease_s=60)
    assert leases(cluster, HALF) == [json.loads(cut)["lease"]]
    release(cluster.options(readFrom="tier"), cut)
    assert leases(cluster, HALF) == []
