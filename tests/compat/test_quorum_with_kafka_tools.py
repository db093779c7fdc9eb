"""Kafka's own tools on a quorum of ours: they describe it, and read its log and its snapshots."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.chaos.controllers import TopicMaker
from tests.peers import kafka
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, KAFKA, Cluster, Node, eventually
from tests.peers.quorum import View, await_caught_up, shell_output

pytestmark = pytest.mark.peer
COMPLAINTS = ("isvalid: false", "Error", "error", "Could not", "corrupt", "Exception", "mismatch")


class Lived:
    """Three controllers of ours and a broker that made topics, a leader later; `view` is of the end."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        with TopicMaker(cluster.bootstrap) as maker:
            maker.await_more(3)
            first = await_caught_up(cluster)
            cluster[first.leader].stop()
            maker.await_more(2)
            cluster[first.leader].start()
        self.made = list(maker.made)
        self.view: View = await_caught_up(cluster)

    def controllers_at(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.cluster.controllers)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    members = [(FIRNLINE, CONTROLLER)] * 3 + [(FIRNLINE, BROKER)]
    with Cluster(tmp_path_factory.mktemp("lived"), members) as cluster:
        yield Lived(cluster)


def value(text: str, name: str) -> str:
    found = re.search(rf"^{name}:\s+(.*)$", text, re.MULTILINE)
    assert found, text
    return found[1]


def test_kafkas_quorum_tool_describes_ours(lived: Lived) -> None:
    """By way of the broker, and of the controllers themselves."""
    for way in (
        ("--bootstrap-server", lived.cluster.bootstrap),
        ("--bootstrap-controller", lived.controllers_at()),
    ):
        # The leader may be another one by the time that a JVM takes to ask.
        eventually("it is described as it is", lambda: _is_described(lived, way), within_s=90)  # noqa: B023
    eventually("each node's standing", lambda: _stands(lived), within_s=90)


def _is_described(lived: Lived, way: tuple[str, str]) -> bool:
    view = await_caught_up(lived.cluster)
    reported = kafka.tool("metadata-quorum", *way, "describe", "--status")
    assert value(reported, "ClusterId") == lived.cluster.cluster_id
    voters = json.loads(value(reported, "CurrentVoters"))
    assert [voter["id"] for voter in voters] == [1, 2, 3]
    ports = [re.findall(r"\d+$", voter["endpoints"][0])[0] for voter in voters]
    assert ports == [str(node.port) for node in lived.cluster.controllers]
    assert int(value(reported, "HighWatermark")) >= lived.view.high_watermark
    observers = [seen["id"] for seen in json.loads(value(reported, "CurrentObservers"))]
    leads = value(reported, "LeaderId"), value(reported, "LeaderEpoch")
    return (*leads, observers) == (str(view.leader), str(view.epoch), [4])


def _stands(lived: Lived) -> bool:
    leader = await_caught_up(lived.cluster).leader
    at = ("--bootstrap-server", lived.cluster.bootstrap)
    reported = kafka.tool("metadata-quorum", *at, "describe", "--replication")
    rows = [line.split() for line in reported.splitlines()[1:] if line.strip()]
    standing = {int(row[0]): row[-1] for row in rows}
    followers = {n: "Follower" for n in (1, 2, 3) if n != leader}
    return standing == {leader: "Leader", 4: "Observer"} | followers and all(
        int(row[2]) >= lived.view.high_watermark for row in rows
    )


def dumped(path: Path) -> list[dict[str, object]]:
    """The records DumpLogSegments finds; it complains about nothing."""
    text = kafka.tool("dump", str(path), "--cluster-metadata-decoder")
    assert not [word for word in COMPLAINTS if word in text], text
    return [json.loads(found) for found in re.findall(r"payload: (\{.*\})", text)]


def newest_snapshot(node: Node, into: Path) -> Path:
    """Copy the newest snapshot of a node: it takes another one soon, and retires those before it."""

    def look() -> Path | None:
        there = node.metadata.glob("*-*.checkpoint")
        taken = (path for path in there if int(path.stem[:20]) > 0)  # at 0 lies that of the format
        newest = max(taken, key=lambda path: path.stem[21:] + path.stem[:20], default=None)
        return newest and Path(shutil.copy(newest, into))

    found = eventually(f"a snapshot of {node}", look)
    assert isinstance(found, Path)
    return found


def topics_in(rows: Sequence[dict[str, object]]) -> set[str]:
    data = [row["data"] for row in rows if row["type"] == "TOPIC_RECORD"]
    return {str(each["name"]) for each in data if isinstance(each, dict)}


def test_kafkas_dump_tool_reads_our_log_and_our_snapshots(lived: Lived, tmp_path: Path) -> None:
    """Of the leader, of a follower, and of the broker, which observes."""
    node = lived.cluster[lived.view.leader]
    segments = sorted(node.metadata.glob("*.log"))
    rows = [row for segment in segments for row in dumped(segment)]
    assert topics_in(rows) >= set(lived.made)
    for each in lived.cluster.nodes.values():
        snapshot = newest_snapshot(each, tmp_path)
        rows = dumped(snapshot)
        kinds = {str(row["type"]) for row in rows}
        assert {"FEATURE_LEVEL_RECORD", "REGISTER_CONTROLLER_RECORD"} <= kinds
        text = kafka.tool("dump", str(snapshot), "--cluster-metadata-decoder")
        assert "SnapshotHeader" in text
        assert "SnapshotFooter" in text


def test_kafkas_metadata_shell_loads_our_snapshot(lived: Lived, tmp_path: Path) -> None:
    questions = (
        *("ls /image/topics/byName", "ls /image/cluster/controllers", "ls /image/cluster/brokers"),
        *("cat /image/cluster/brokers/4", "cat /image/features/metadataVersion"),
    )

    def is_reported() -> bool:
        # An older one lacks topics; in one of a bad moment the broker is fenced, and in the next it is not.
        reported = shell_output(newest_snapshot(lived.cluster[4], tmp_path), *questions)
        print(reported)
        topics, controllers, brokers, broker, level = reported
        return (
            set(topics.split()) >= set(lived.made)
            and set(controllers.split()) >= {"1", "2", "3"}
            and "4" in brokers.split()
            and "fenced=false" in broker.replace("(", ",")
            and "4.3-IV0" in level
        )

    eventually("a snapshot with all topics and a broker that serves", is_reported, within_s=90)


def test_firnline_dump_prints_kafkas_files_as_its_own(tmp_path: Path) -> None:
    """Goal: an operator reads a cluster of either kind the same way. Method: a log and a snapshot of Kafka's
    controller through `firnline dump`, record by record what Kafka's own tool finds in them."""
    with Cluster(tmp_path, [(KAFKA, CONTROLLER), (KAFKA, BROKER)]) as cluster:
        with TopicMaker(cluster.bootstrap) as maker:
            maker.await_more(3)
        snapshot = newest_snapshot(cluster[1], tmp_path)
        cluster.stop()
    (segment,) = cluster[1].metadata.glob("*.log")
    seen: set[str] = set()
    for path in (segment, snapshot):
        done = subprocess.run(
            [sys.executable, "-m", "firnline", "dump", str(path), "--format", "json"],
            capture_output=True,
            text=True,
            check=True,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert not [line for line in lines if "damage" in line]
        ours = [line["type"] for line in lines if "record" in line and "type" in line]
        seen |= set(ours)
        theirs = [str(row["type"]) for row in dumped(path)]
        assert [name.replace("_", "").lower() for name in theirs] == [n.lower() for n in ours]
    assert {"TopicRecord", "PartitionRecord", "RegisterBrokerRecord", "FeatureLevelRecord"} <= seen
