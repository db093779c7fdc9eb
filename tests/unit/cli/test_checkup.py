"""`firnline doctor` on a running cluster: each finding, its remedy, and what is no finding."""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.cli.operations import checkup
from firnline.cli.operations.checkup import check_cluster
from firnline.cli.operations.checkup_groups import Trouble
from firnline.client.admin import Admin
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from firnline.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from firnline.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    MovingPartition,
    MovingTopic,
)
from tests.unit.cli.fake_cluster import FakeCluster, fake_cluster
from tests.unit.cli.fake_groups import FakeGroups


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as made:
        made.answer(32, described)
        made.answer(46, moving())
        made.answer(35, directories(DescribeLogDirsResult(log_dir="/d")))
        yield made


def described(request: Any, *, min_isr: str = "2", factor: str = "1") -> DescribeConfigsResponse:
    settings = {"min.insync.replicas": min_isr, "default.replication.factor": factor}
    rows = [
        DescribeConfigsResourceResult(name=name, value=value, documentation=None)
        for name, value in settings.items()
    ]
    return DescribeConfigsResponse(
        results=[DescribeConfigsResult(configs=rows, error_message=None, resource_name="")]
    )


def moving(*rows: MovingPartition) -> Any:
    topics = [MovingTopic(name="events", partitions=list(rows))] if rows else []
    return lambda request: ListPartitionReassignmentsResponse(topics=topics, error_message=None)


def directories(*rows: DescribeLogDirsResult) -> Any:
    return lambda request: DescribeLogDirsResponse(results=list(rows))


def check(cluster: FakeCluster, *, watch_s: float = 0.0) -> list[Trouble]:
    """Return what is found; without groups these brokers do not serve that check."""
    with Admin(cluster.bootstrap, timeout_s=5) as admin:
        return check_cluster(admin, [], watch_s, Counter())


def only(cluster: FakeCluster, kind: str, *, watch_s: float = 0.0) -> Trouble:
    """Return the one finding of that kind."""
    (found,) = [each for each in check(cluster, watch_s=watch_s) if each.kind == kind]
    return found


def test_a_cluster_in_good_order_has_no_finding(cluster: FakeCluster) -> None:
    assert check(cluster) == []


def test_what_brokers_do_not_serve_is_counted_apart(cluster: FakeCluster) -> None:
    for broker in cluster.brokers:
        del broker.answers[46]
    looked: Counter[str] = Counter()
    with Admin(cluster.bootstrap, timeout_s=5) as admin:
        assert check_cluster(admin, [], 0, looked) == []
    assert looked["checks that these brokers do not serve"] == 2  # moves, and groups


def test_what_is_refused_is_a_finding(cluster: FakeCluster) -> None:
    denied = Code.CLUSTER_AUTHORIZATION_FAILED
    answer = ListPartitionReassignmentsResponse(error_code=denied, error_message="no")
    cluster.answer(46, lambda request: answer)
    found = only(cluster, "not-checked")
    assert (found.where, found.what) == ("moves", "CLUSTER_AUTHORIZATION_FAILED: reassignments: no")


def test_a_lost_quorum_is_a_finding_and_not_waited_for(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a deadline of ten minutes the doctor asked for moves for ten minutes."""
    monkeypatch.setattr(checkup, "_CONTROLLER_S", 0.3)
    answer = ListPartitionReassignmentsResponse(
        error_code=Code.REQUEST_TIMED_OUT, error_message=None
    )
    cluster.answer(46, lambda request: answer)
    began_s = time.monotonic()
    with Admin(cluster.bootstrap, timeout_s=60) as admin:
        found = check_cluster(admin, [], 0, Counter())
    assert time.monotonic() - began_s < 30
    assert found[0].kind == "no-controller"
    assert "firnline cluster status" in found[0].remedy
    assert {each.timeout_ms for each in cluster.asked("ListPartitionReassignmentsRequest")} == {300}


def test_a_partition_without_a_leader(cluster: FakeCluster) -> None:
    cluster.leaderless = {("events", 1), ("events", 3)}
    cluster.replicas = {("events", 1): [9], ("events", 3): [8]}
    found = only(cluster, "no-leader")
    assert (found.where, found.what) == ("topic events", "nobody leads partitions 1, 3")
    assert found.remedy.startswith("start brokers 8, 9")
    assert "`firnline partition elect events:1,3 --unclean`" in found.remedy


def test_a_partition_without_a_leader_whose_brokers_all_run_is_not_mended_by_a_start(
    cluster: FakeCluster,
) -> None:
    cluster.leaderless = {("events", 1)}
    cluster.replicas = {("events", 1): [1]}
    remedy = only(cluster, "no-leader").remedy
    assert remedy.startswith("broker 1 cannot serve it, and no other replica is in sync: the log")
    assert "all acknowledged records are there" not in remedy


def test_a_broker_that_has_replicas_and_is_not_there(cluster: FakeCluster) -> None:
    cluster.replicas = {("events", 0): [1, 9], ("events", 1): [2, 9]}
    found = only(cluster, "broker-not-alive")
    assert (found.where, found.what) == ("broker 9", "2 partitions should have a replica on it")
    assert "`firnline partition move events --brokers 1,2`, then" in found.remedy
    assert found.remedy.endswith("`firnline broker unregister 9`")
    with Admin(cluster.bootstrap, timeout_s=5) as admin:
        rows = check_cluster(admin, [], 0, Counter(), ways_back={9: "let it go on"})
    (known,) = [each for each in rows if each.kind == "broker-not-alive"]
    assert known.remedy.startswith("let it go on; or, if it never comes back: ")
    cluster.replicas["events", 2] = [1, 2, 9]
    remedy = only(cluster, "broker-not-alive").remedy
    assert "start 1 new broker, then `firnline partition move events --brokers 1,2,ID`" in remedy


def test_partitions_under_min_isr(cluster: FakeCluster) -> None:
    cluster.replicas["events", 0] = [1, 2]
    cluster.isrs["events", 0] = [1]
    found = only(cluster, "under-min-isr")
    assert found.what == "acks=all is refused for partition 0: fewer than 2 replicas are in sync"
    assert found.remedy.startswith("broker 2 must catch up")
    cluster.replicas["events", 0] = [1, 9]
    found = only(cluster, "under-min-isr")
    assert "start broker 9; or" in found.remedy
    cluster.answer(32, lambda request: described(request, min_isr="1"))
    assert not [each for each in check(cluster) if each.kind == "under-min-isr"]


def test_leaders_that_are_not_the_preferred_ones(cluster: FakeCluster) -> None:
    cluster.replicas["events", 0] = [2, 1]  # led by 1
    found = only(cluster, "leaders-elsewhere")
    assert (found.where, found.what) == (
        "broker 2", "of the 3 partitions for which it is preferred, others lead 1",
    )  # fmt: skip
    assert found.remedy.startswith("`firnline partition elect --all`")
    cluster.isrs["events", 0] = [1]
    kinds = [each.kind for each in check(cluster)]
    assert "leaders-elsewhere" not in kinds, "an election would not help while it is behind"


def test_a_topic_with_fewer_replicas_than_a_new_one_gets(cluster: FakeCluster) -> None:
    cluster.answer(32, lambda request: described(request, factor="2"))
    found = only(cluster, "few-replicas")
    assert found.what.startswith("1 replica, where a new topic gets 2")
    assert found.remedy == "`firnline partition move events --brokers 1,2 --replication-factor 2`"
    cluster.answer(32, lambda request: described(request, factor="3"))
    remedy = "start 1 new broker, then `firnline partition move events --brokers 1,2,ID"
    assert only(cluster, "few-replicas").remedy.startswith(remedy)


def test_directories_that_are_offline_and_brokers_that_are_silent(cluster: FakeCluster) -> None:
    dead = DescribeLogDirsResult(error_code=Code.KAFKA_STORAGE_ERROR, log_dir="/b")
    cluster.brokers[0].answers[35] = directories(DescribeLogDirsResult(log_dir="/a"), dead)
    found = only(cluster, "directory-offline")
    assert (found.where, found.what) == ("broker 1", "/b: KAFKA_STORAGE_ERROR")
    cluster.brokers[0].answers[35] = lambda request: DescribeLogDirsResponse(
        error_code=Code.CLUSTER_AUTHORIZATION_FAILED
    )
    assert only(cluster, "not-asked").where == "broker 1"


def test_a_move_to_a_broker_that_is_not_alive(cluster: FakeCluster) -> None:
    row = MovingPartition(
        partition_index=0, replicas=[1, 9], adding_replicas=[9], removing_replicas=[1]
    )
    cluster.answer(46, moving(row))
    found = only(cluster, "move-to-dead-broker")
    assert found.remedy == "start it, or `firnline partition cancel events:0`"


def test_a_move_that_copies_nothing_stands_still(cluster: FakeCluster) -> None:
    row = MovingPartition(
        partition_index=0, replicas=[1, 2], adding_replicas=[2], removing_replicas=[1]
    )
    cluster.answer(46, moving(row))
    copied = [100]

    def size(size_bytes: int) -> DescribeLogDirsResponse:
        part = DescribeLogDirsPartition(partition_index=0, partition_size=size_bytes)
        topic = DescribeLogDirsTopic(name="events", partitions=[part])
        return DescribeLogDirsResponse(
            results=[DescribeLogDirsResult(log_dir="/d", topics=[topic])]
        )

    cluster.brokers[0].answers[35] = lambda request: size(1000)
    cluster.brokers[1].answers[35] = lambda request: size(copied[0])
    found = only(cluster, "move-stands-still", watch_s=0.05)
    assert found.what == "nothing was copied in 0.05 s: 100 B of 1.0 kB"

    def more(request: Any) -> DescribeLogDirsResponse:
        copied[0] += 100
        return size(copied[0])

    cluster.brokers[1].answers[35] = more
    assert check(cluster, watch_s=0.05) == []


# ------------------------------------------------------------------------------------------- groups


def test_committed_offsets_that_the_log_does_not_have(cluster: FakeCluster) -> None:
    FakeGroups(cluster).committed["shop"] = {0: 5, 1: 101, 2: 10, 3: 100}
    found = only(cluster, "offset-out-of-range")
    assert found.where == "group shop, topic events"
    assert "0: 5, but the log begins at 10, 1: 101, but the log ends at 100;" in found.what
    assert "firnline group reset shop --topic events:0,1 --to-current --execute" in found.remedy


@pytest.mark.parametrize(
    ("written", "read", "grows"),
    [
        ((20, 20), (0, 0), True),  # it stands
        ((20, 20), (5, 5), True),  # it reads less than half of what is written
        ((20, 20), (15, 15), False),  # slower than what is written, and hard to tell from chance
        ((20, 20), (0, 50), False),  # it commits now and then
        ((0, 20), (0, 0), False),  # once: a topic in which little is written
        ((0, 0), (0, 0), False),  # it is behind, and nothing is written
    ],
)
def test_a_lag_that_grows(
    cluster: FakeCluster, written: tuple[int, int], read: tuple[int, int], grows: bool
) -> None:
    groups = FakeGroups(cluster)
    groups.committed["shop"] = {0: 20}
    looks = iter(range(3))

    def fetch(request: Any) -> Any:
        look = next(looks)
        groups.committed["shop"][0] = 20 + sum(read[:look])
        cluster.offsets["events", 0, -1] = 100 + sum(written[:look])
        return groups.fetch(request)

    cluster.answer(9, fetch)
    kinds = [each.kind for each in check(cluster, watch_s=0.05)]
    assert ("lag-grows" in kinds) is grows


def test_the_remedy_of_a_growing_lag_depends_on_who_reads(cluster: FakeCluster) -> None:
    groups = FakeGroups(cluster)
    groups.committed["shop"] = {0: 20}
    ends = iter(range(100, 1000, 10))
    then = groups.fetch

    def fetch(request: Any) -> Any:
        cluster.offsets["events", 0, -1] = next(ends)
        return then(request)

    cluster.answer(9, fetch)
    found = only(cluster, "lag-grows", watch_s=0.05)
    assert found.what == "100 records behind, 20 more than 0.05 s ago"
    assert "firnline group describe shop" in found.remedy
    groups.state = "Empty"
    assert "nobody reads: start its consumers" in only(cluster, "lag-grows", watch_s=0.05).remedy


def test_only_the_topics_that_are_named_are_looked_at(cluster: FakeCluster) -> None:
    FakeGroups(cluster).committed["shop"] = {0: 5}
    cluster.topics["other"] = 1
    cluster.leaderless = {("events", 0)}
    with Admin(cluster.bootstrap, timeout_s=5) as admin:
        assert check_cluster(admin, ["other"], 0, Counter()) == []
