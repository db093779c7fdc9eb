"""`firnline broker` and `firnline log-dirs`: live and fenced brokers, offline and silent directories."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from firnline.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from firnline.protocol.messages.k64_unregister_broker import UnregisterBrokerResponse
from tests.unit.cli.fake_cluster import FakeCluster, fake_cluster, once


def registered(request: Any) -> DescribeClusterResponse:
    rows = [
        DescribeClusterBroker(broker_id=n, host="h", port=9092 + n, is_fenced=n == 3)
        for n in (3, 1, 2)
    ]
    if not request.include_fenced_brokers:
        rows = [row for row in rows if not row.is_fenced]
    return DescribeClusterResponse(cluster_id="c", brokers=rows)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as made:
        made.answer(60, registered)
        made.answer(64, lambda request: UnregisterBrokerResponse(error_message=None))
        yield made


def test_fenced_brokers_are_listed_too(cluster: FakeCluster) -> None:
    rows = json.loads(cluster.run("broker", "list", "--format", "json").stdout)
    assert [(row["broker"], row["is_fenced"]) for row in rows] == [
        (1, False),
        (2, False),
        (3, True),
    ]
    assert "fenced" in cluster.run("broker", "list").stdout


def test_a_cluster_that_does_not_tell_of_fenced_brokers(cluster: FakeCluster) -> None:
    for broker in cluster.brokers:
        broker.versions[60] = 1
    assert "registered" in cluster.run("broker", "list").stdout


def test_a_live_broker_is_not_unregistered(cluster: FakeCluster) -> None:
    """Kafka does it, and the broker serves nothing from then on."""
    done = cluster.run("broker", "unregister", "1", "--yes")
    assert "broker 1 is alive at h:9093: stop it first" in str(done.exception)
    done = cluster.run("broker", "unregister", "77", "--yes")
    assert "broker 77 is not registered: there are 1, 2, 3" in str(done.exception)
    assert not cluster.asked("UnregisterBrokerRequest")


def test_a_broker_that_is_gone_is_unregistered_once_agreed_to(cluster: FakeCluster) -> None:
    assert "Agree with --yes" in cluster.run("broker", "unregister", "3").stderr
    assert not cluster.asked("UnregisterBrokerRequest")

    def nobody(request: Any) -> UnregisterBrokerResponse:
        return UnregisterBrokerResponse(error_code=Code.NOT_CONTROLLER, error_message="not now")

    then = cluster.brokers[0].answers[64]
    cluster.answer(64, once(nobody, then))
    done = cluster.run("broker", "unregister", "3", "--yes")
    assert done.stdout == "broker 3 is no longer registered\n"
    assert [each.broker_id for each in cluster.asked("UnregisterBrokerRequest")] == [3, 3]


# ------------------------------------------------------------------------------------- directories


def directories(*results: DescribeLogDirsResult) -> Any:
    return lambda request: DescribeLogDirsResponse(results=list(results))


def full(path: str, *, is_future: bool = False, lag: int = 0) -> DescribeLogDirsResult:
    part = DescribeLogDirsPartition(
        partition_index=1, partition_size=3400, offset_lag=lag, is_future_key=is_future
    )
    topic = DescribeLogDirsTopic(name="events", partitions=[part])
    return DescribeLogDirsResult(
        log_dir=path, topics=[topic], total_bytes=2_000_000, usable_bytes=1_000_000
    )


def test_a_directory_has_its_size_lag_and_volume(cluster: FakeCluster) -> None:
    one, other = cluster.brokers
    one.answers[35] = directories(full("/a"), full("/b", is_future=True, lag=7))
    other.answers[35] = directories(full("/c"))
    rows = json.loads(cluster.run("log-dirs", "--format", "json").stdout)
    assert [(r["broker"], r["path"], r["usable_bytes"]) for r in rows] == [
        (1, "/a", 1_000_000), (1, "/b", 1_000_000), (2, "/c", 1_000_000),
    ]  # fmt: skip
    assert rows[1]["replicas"] == [
        {
            "topic": "events", "partition": 1, "size_bytes": 3400, "offset_lag_records": 7,
            "is_future": True,
        }
    ]  # fmt: skip
    table = cluster.run("log-dirs").stdout
    assert "3.4 kB" in table
    assert "1.0 MB" in table
    assert cluster.run("log-dirs", "--by", "topic").stdout.count("events") == 3
    assert cluster.run("log-dirs", "--by", "partition").stdout.count("yes") == 1


def test_an_offline_directory_is_told_with_the_exit_code(cluster: FakeCluster) -> None:
    dead = DescribeLogDirsResult(error_code=Code.KAFKA_STORAGE_ERROR, log_dir="/b")
    cluster.brokers[0].answers[35] = directories(full("/a"), dead)
    cluster.brokers[1].answers[35] = directories(full("/c"))
    done = cluster.run("log-dirs")
    assert done.exit_code == 3
    assert "offline" in done.stdout
    assert done.stderr == "broker 1: directory /b: KAFKA_STORAGE_ERROR\n"
    assert cluster.run("log-dirs", "--broker", "2").exit_code == 0


def test_a_broker_that_does_not_answer_hides_no_other(cluster: FakeCluster) -> None:
    cluster.brokers[0].answers[35] = directories(full("/a"))
    done = cluster.run("log-dirs", "--format", "json")
    assert done.exit_code == 3
    rows = json.loads(done.stdout)
    assert [(row["broker"], row["path"], row["is_offline"]) for row in rows] == [
        (1, "/a", False), (2, None, False),
    ]  # fmt: skip
    assert "broker 2: directories: " in done.stderr
    assert " 0 B" not in cluster.run("log-dirs").stdout.splitlines()[2], "nobody knows"


def test_only_the_partitions_that_are_named_are_asked_for(cluster: FakeCluster) -> None:
    cluster.answer(35, directories(full("/a")))
    assert cluster.run("log-dirs", "--topic", "events:1").exit_code == 0
    (request, _) = cluster.asked("DescribeLogDirsRequest")
    assert [(each.topic, each.partitions) for each in request.topics] == [("events", (1,))]
    done = cluster.run("log-dirs", "--topic", "evnts")
    assert "did you mean events?" in str(done.exception)
    done = cluster.run("log-dirs", "--broker", "9")
    assert "no broker 9 is alive" in str(done.exception)
