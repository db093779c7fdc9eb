"""The quorum in metrics: every family has its row in the documentation, and says what is true."""

import re
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric

from firnline.base.ids import OffsetAndEpoch
from firnline.metadata import records as r
from firnline.metadata.result import ControllerResult
from firnline.raft.role import Role
from firnline.raft.voters import Voter, VoterSet
from firnline.server.quorum_metrics import QuorumFacts, QuorumFamilies, look
from tests.worlds.effects import kept
from tests.worlds.quorum import Cluster, MemoryLog, make_quorum

ROOT = Path(__file__).parents[3]
RAFT, CONTROLLER = "kafka_server_raft_metrics_", "kafka_controller_kafkacontroller_"


class SizedLog(MemoryLog):
    """With a snapshot of 400 bytes that ends at offset 3."""

    def snapshot_sizes(self) -> Any:
        return [(OffsetAndEpoch(3, 1), 400, 0)]


def values(families: list[Metric]) -> dict[str, float]:
    return {sample.name: sample.value for family in families for sample in family.samples}


def a_cluster() -> Cluster:
    cluster = Cluster(log=SizedLog()).with_brokers(1, 2)
    topic = r.TopicRecord(name="t", topic_id=b"t" * 16)
    partitions = [
        r.PartitionRecord(
            partition_id=n, topic_id=b"t" * 16, replicas=[1, 2], isr=[1], leader=leader
        )
        for n, leader in enumerate((1, 2, -1))
    ]
    cluster.write(ControllerResult([topic, *partitions], None))
    fenced = r.BrokerRegistrationChangeRecord(
        broker_id=2, broker_epoch=cluster.quorum.image.brokers[2].epoch, fenced=1
    )
    cluster.write(ControllerResult([fenced], None))
    return cluster


def test_the_active_controller_says_so_and_counts_the_cluster() -> None:
    quorum = a_cluster().quorum
    found = values(list(QuorumFamilies().families(look(quorum, 9_000))))
    expected = {
        "activecontrollercount": 1,
        "newactivecontrollerscount": 1,
        "globaltopiccount": 1,
        "globalpartitioncount": 3,
        "offlinepartitionscount": 1,
        "preferredreplicaimbalancecount": 2,
        "fencedbrokercount": 1,
        "activebrokercount": 1,
        "lastappliedrecordlagms": 0,
        "lastcommittedrecordoffset": quorum.next_offset - 1,
        "snapshotsizebytes": 400,
        "snapshotlag": quorum.next_offset - 3,
    }
    assert {name: found[CONTROLLER + name] for name in expected} == expected
    assert found["kafka_server_metadataloader_currentmetadataversion"] == 30
    assert found["kafka_server_metadataloader_currentcontrollerid"] == 1
    assert found[RAFT + "current_epoch"] == 1
    assert found[RAFT + "high_watermark"] == quorum.next_offset
    assert found[RAFT + "current_state"] == 1


def test_an_observer_is_no_controller() -> None:
    """A broker alone has the quorum's beans, and of the controller's what is about its own snapshots."""
    others = VoterSet([Voter(8, "localhost", 9093), Voter(9, "localhost", 9094)])
    quorum = make_quorum(SizedLog(), voters=others)
    quorum.start(1)
    families = list(QuorumFamilies().families(look(quorum, 1)))
    assert {family.name for family in families if family.name.startswith("kafka_controller")} == {
        CONTROLLER + name
        for name in (
            "gensnapshotlatencyms",
            "loadsnapshotlatencyms",
            "snapshotlag",
            "snapshotsizebytes",
        )
    }
    (state,) = [family for family in families if family.name == RAFT + "current_state"]
    assert state.samples[0].labels == {"current_state": "observer"}


def at(facts: QuorumFacts, now_ms: int, **counted: Any) -> QuorumFacts:
    return facts._replace(now_ms=now_ms, raft=facts.raft._replace(**counted))


def test_rates_and_averages_are_those_of_the_last_minute() -> None:
    facts, families = look(a_cluster().quorum, 0), QuorumFamilies()
    zero = {"appended_records": 0, "commits": 0, "commit_ms_sum": 0}

    def reported(now_ms: int, **counted: int) -> tuple[float, float]:
        found = values(list(families.families(at(facts, now_ms, **(zero | counted)))))
        return found[RAFT + "append_records_rate"], found[RAFT + "commit_latency_avg"]

    assert reported(0, appended_records=100, commits=4, commit_ms_sum=40) == (0.0, 10.0)
    rate, mean = reported(10_000, appended_records=150, commits=6, commit_ms_sum=100)
    assert (rate, mean) == (5.0, 30.0)
    rate, _ = reported(65_000, appended_records=150, commits=6, commit_ms_sum=100)
    assert rate == 0.0, "the first look is older than a minute"


def test_a_histogram_counts_upwards() -> None:
    quorum = a_cluster().quorum
    for took_ms in (1, 7, 70_000):
        quorum.load_latencies.add(took_ms)
    found = [
        sample
        for family in QuorumFamilies().families(look(quorum, 1))
        if family.name == CONTROLLER + "loadsnapshotlatencyms"
        for sample in family.samples
    ]
    buckets = {s.labels["le"]: s.value for s in found if s.name.endswith("_bucket")}
    assert (buckets["1"], buckets["5"], buckets["10"], buckets["+Inf"]) == (1, 1, 2, 3)
    sums = {s.name.rpartition("_")[2]: s.value for s in found if "le" not in s.labels}
    assert sums == {"count": 3, "sum": 70_008}


def test_snapshots_that_were_taken_failed_or_are_damaged_are_counted() -> None:
    quorum = a_cluster().quorum
    made = quorum.snapshotter
    made.counters = made.counters._replace(generated=4, failed=2)
    for took_ms in (30, 700):
        made.latencies.add(took_ms)
    found = values(list(QuorumFamilies().families(look(quorum, 1))))
    assert found["firnline_metadata_snapshots_taken_total"] == 4
    assert found["firnline_metadata_snapshots_failed_total"] == 2
    assert found[CONTROLLER + "gensnapshotlatencyms_sum"] == 730
    assert found[CONTROLLER + "gensnapshotlatencyms_count"] == 2
    names = ("firnline_metadata_snapshots_damaged", "firnline_metadata_lacks_promised_records")
    assert [found[name] for name in names] == [0, 0]
    log: Any = quorum.raft.log
    log.damaged_ids, log.forgotten = [OffsetAndEpoch(3, 1)], OffsetAndEpoch(9, 1)
    found = values(list(QuorumFamilies().families(look(quorum, 1))))
    assert [found[name] for name in names] == [1, 1]


def test_every_role_has_a_name_that_kafka_gives_it() -> None:
    known = {"unattached", "follower", "candidate", "leader", "resigned", "prospective"}
    assert {role.value for role in Role} <= known


def test_a_look_while_nothing_is_committed_is_no_error() -> None:
    quorum = make_quorum(SizedLog())
    quorum.start(1)
    answers: list[Any] = []
    quorum.write(ControllerResult([], None), kept(answers), 1)
    found = values(list(QuorumFamilies().families(look(quorum, 1))))
    assert found[RAFT + "high_watermark"] == -1
    assert found[CONTROLLER + "activecontrollercount"] == 0


def test_every_family_is_in_the_documentation_and_nothing_else() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    reported = set(
        re.findall(
            r"^\| `((?:kafka_(?:server_raft|server_snap|server_meta|con)|firnline_(?:con|meta))\w+)`",
            page,
            re.M,
        )
    )
    families = QuorumFamilies().families(look(a_cluster().quorum, 1))
    assert reported == {family.name for family in families}
