"""`firnline cluster status`, `topic describe` and `quorum status` at a cluster of Kafka's own.

Kafka does not know our ClusterStatus: what only that tells is left out, and the rest is as at one of ours.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.workload import PATIENCE_S, SILENT
from tests.peers.nodes import BROKER, COMBINED, KAFKA, QUICK, Cluster, eventually
from tests.peers.topics import await_partitions, is_complete

pytestmark = pytest.mark.peer
PARTITIONS, RECORDS = 2, 7
WELL, WRONG = 0, 3


def ask(cluster: Cluster, *words: str) -> tuple[int, Any]:
    """Run a command; return its exit code and what it printed."""
    at = ("--bootstrap-server", cluster.bootstrap, "--format", "json")
    line = [sys.executable, "-m", "firnline", *words, *at]
    done = subprocess.run(line, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode in (WELL, WRONG), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes of Kafka's, the first one with the controller, and a topic on both with records in it."""
    directory = tmp_path_factory.mktemp("status")
    with Cluster(directory, [(KAFKA, COMBINED), (KAFKA, BROKER)], QUICK) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap, **SILENT})
        admin.create_topics([NewTopic("t", PARTITIONS, 2)])["t"].result(PATIENCE_S)
        await_partitions(admin, "t", PARTITIONS, is_complete)
        producer = Producer({"bootstrap.servers": made.bootstrap, "acks": "all", **SILENT})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        yield made
        made.kill()  # Kafka's broker does not stop without its controller


def test_the_status_of_a_cluster_is_reported_without_what_only_ours_report(
    cluster: Cluster,
) -> None:
    def is_well() -> Any:
        code, reported = ask(cluster, "cluster", "status", "--brokers", "2")
        return reported if code == WELL else None

    reported: Any = eventually("all is well", is_well, within_s=PATIENCE_S)
    assert reported["cluster_id"] == cluster.cluster_id
    assert (reported["topics"], reported["partitions"], reported["problems"]) == (1, PARTITIONS, [])
    rows = [(r["broker_id"], r["state"], r["broker_epoch"]) for r in reported["brokers"]]
    assert rows == [(1, "alive", -1), (2, "alive", -1)]
    assert [(r["replicas"], r["in_sync"]) for r in reported["brokers"]] == [
        (PARTITIONS, PARTITIONS)
    ] * 2
    assert sum(row["leads"] for row in reported["brokers"]) == PARTITIONS
    assert reported["quorum"]["leader_id"] == 1
    assert reported["features"]["metadata.version"] == 30


def test_topics_are_described_with_what_any_broker_reports(cluster: Cluster) -> None:
    def is_committed() -> Any:
        _, (reported,) = ask(cluster, "topic", "describe", "t")
        found = [part["high_watermark"] for part in reported["partitions"]]
        return reported if found == [RECORDS, 0] else None

    reported: Any = eventually("the records are committed", is_committed, within_s=PATIENCE_S)
    for part in reported["partitions"]:
        assert sorted(part["isr"]) == sorted(part["replicas"]) == [1, 2]
        assert part["leader"] in (1, 2)
        assert (part["log_start_offset"], part["followers"]) == (0, [])
        # Not what a client may ask of Kafka.
        unknown = ("log_end_offset", "partition_epoch", "min_insync_replicas")
        assert [part[name] for name in unknown] == [-1] * 3


def test_the_quorum_is_reported(cluster: Cluster) -> None:
    def look() -> bool:
        code, reported = ask(cluster, "quorum", "status")
        facts = (reported["leader_id"], reported["voters"], reported["observers"])
        return code == WELL and facts == (1, [1], [2])

    eventually("the quorum is told", look, within_s=PATIENCE_S)


def test_a_broker_that_died_is_reported_and_the_exit_code_says_so(cluster: Cluster) -> None:
    """The last test of the file: the broker does not come back."""
    cluster[2].kill()

    def is_reported() -> bool:
        code, reported = ask(cluster, "cluster", "status")
        states = [row["state"] for row in reported["brokers"]]
        return (code, states, reported["under_replicated"]) == (
            WRONG,
            ["alive", "fenced"],
            PARTITIONS,
        )

    eventually("broker 2 is fenced", is_reported, within_s=PATIENCE_S)
    _, reported = ask(cluster, "cluster", "status")
    assert any(line.startswith("broker 2 is fenced") for line in reported["problems"])
    code, thin = ask(cluster, "topic", "describe", "t", "--under-replicated")
    assert code == WRONG
    assert [(part["leader"], part["isr"]) for part in thin] == [(1, [1])] * PARTITIONS
