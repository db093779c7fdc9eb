"""Controllers and a broker as processes of their own: leaders killed, a disk lost, tools that ask them.

With FIRNLINE_PEERS=1 Kafka's own tool describes our quorum, and our broker meets a cluster of Kafka's.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from firnline.base.ids import uuid_text
from firnline.client.admin import Admin
from firnline.runtime.rng import SystemRng
from tests.peers import kafka
from tests.peers.nodes import (
    BROKER,
    CONTROLLER,
    FIRNLINE,
    QUICK,
    Cluster,
    Node,
    eventually,
)
from tests.peers.quorum import await_caught_up, await_leader

VOTERS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three controllers and a broker, on loopback; a snapshot after every thousand bytes."""
    members = [(FIRNLINE, CONTROLLER)] * 3 + [(FIRNLINE, BROKER)]
    made = Cluster(tmp_path_factory.mktemp("controllers"), members, QUICK)
    with made:
        await_leader(made)
        yield made


def create(cluster: Cluster, name: str) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(name, partitions=1, replication_factor=1, configs={})


def firnline(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "firnline", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def status(cluster: Cluster) -> Any:
    done = firnline("quorum", "status", "--bootstrap-server", cluster.bootstrap, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def snapshots(node: Node) -> set[str]:
    return {path.name for path in node.metadata.glob("*.checkpoint")}


def test_topics_are_made_under_each_leader_and_the_next_one(cluster: Cluster) -> None:
    """Each leader is killed -9 in its turn; the broker goes on to the next, and clients only wait."""
    epoch, led = 0, []
    for turn in range(3):
        view = await_leader(cluster, after_epoch=epoch)
        epoch = view.epoch
        led.append(view.leader)
        create(cluster, f"under-{turn}")
        cluster[view.leader].kill()
        killed_s = time.monotonic()
        create(cluster, f"after-{turn}")
        print(
            f"leader {view.leader} killed, a topic made {time.monotonic() - killed_s:.2f} s later"
        )
        cluster[view.leader].start()
        await_caught_up(cluster)
    assert len(dict.fromkeys(led)) > 1
    made = {f"{when}-{turn}" for turn in range(3) for when in ("under", "after")}
    with Admin(cluster.bootstrap) as admin:
        eventually("the broker knows all", lambda: made <= {row.name for row in admin.topics()})


def test_a_wiped_controller_comes_back_over_a_snapshot(cluster: Cluster) -> None:
    """What the others had before their snapshots is in no log any more that it could have read."""
    for number in range(25):
        create(cluster, f"many-{number}")
    view = await_leader(cluster)
    eventually("a snapshot of the leader", lambda: snapshots(cluster[view.leader]))
    wiped = next(n for n in VOTERS if n != view.leader)
    before = await_caught_up(cluster).ends[wiped]
    assert before > 0
    cluster[wiped].kill()
    cluster[wiped].wipe()
    cluster[wiped].start()
    await_caught_up(cluster)
    eventually("a snapshot that was fetched", lambda: snapshots(cluster[wiped]))
    assert await_caught_up(cluster).ends[wiped] >= before
    # The first thing its log has is what follows the snapshot.
    logs = sorted(cluster[wiped].metadata.glob("*.log"))
    first = min(int(path.stem) for path in logs)
    assert first > 0
    assert first in {int(name.split("-")[0]) for name in snapshots(cluster[wiped])}


def test_the_status_of_the_quorum_is_reported_by_brokers_and_controllers(cluster: Cluster) -> None:
    await_caught_up(cluster)
    controllers = ",".join(f"127.0.0.1:{node.port}" for node in cluster.controllers)
    said = firnline("quorum", "status", "--bootstrap-controller", controllers)
    assert said.returncode == 0, said.stderr
    assert "high watermark" in said.stdout
    assert status(cluster)["voters"] == list(VOTERS)
    # A leader that is new has yet to hear of the broker.
    eventually("the broker observes", lambda: status(cluster)["observers"] == [4])
    wrong = firnline("quorum", "status", "--bootstrap-server", controllers)
    assert wrong.returncode == 1
    assert "an address of a controller" in wrong.stderr


def test_every_node_reports_its_snapshots_and_takes_one_when_it_is_asked(cluster: Cluster) -> None:
    """Voters and the broker; by way of brokers, or of controllers, who do not know where brokers listen."""
    await_caught_up(cluster)
    eventually("the broker observes", lambda: status(cluster)["observers"] == [4])
    where = ("--bootstrap-server", cluster.bootstrap)
    taken = firnline("quorum", "snapshots", *where, "take", "--all")
    assert taken.returncode == 0, taken.stdout + taken.stderr
    assert [line.partition(":")[0] for line in taken.stdout.splitlines()] == [
        f"node {n}" for n in (1, 2, 3, 4)
    ]
    reported = firnline("quorum", "snapshots", *where, "--format", "json")
    assert reported.returncode == 0, reported.stdout + reported.stderr
    for row in json.loads(reported.stdout):
        node = cluster[row["node_id"]]
        newest = row["snapshots"][-1]
        path = node.metadata / f"{newest['end_offset']:020d}-{newest['epoch']:010d}.checkpoint"
        assert path.stat().st_size == newest["size_bytes"]
        assert row["log_start_offset"] <= newest["end_offset"] <= row["log_end_offset"]
        assert 0 <= row["now_ms"] - newest["last_contained_ms"] < 600_000
        assert row["failed"] == 0
        assert (row["damaged"], row["forgotten_offset"]) == ([], -1)
    controllers = ",".join(f"127.0.0.1:{node.port}" for node in cluster.controllers)
    said = firnline("quorum", "snapshots", "--bootstrap-controller", controllers)
    assert said.returncode == 3, "the broker was not asked"
    assert "use --bootstrap-server" in said.stdout
    wrong = firnline("quorum", "snapshots", *where, "take", "--node", "77")
    assert wrong.returncode == 1
    assert "77" in wrong.stderr


@pytest.mark.peer
def test_kafkas_own_tool_describes_our_quorum(cluster: Cluster) -> None:
    """Asked again where the leader was another one by the time that a JVM takes to ask."""
    controllers = ",".join(f"127.0.0.1:{node.port}" for node in cluster.controllers)
    last = ""

    def is_described() -> bool:
        nonlocal last
        leader = await_caught_up(cluster).leader
        by = ("--bootstrap-controller", controllers, "describe", "--status")
        last = kafka.tool("metadata-quorum", *by)
        facts = {k: v.strip() for k, v in (row.split(":", 1) for row in last.splitlines() if row)}
        observers = [each["id"] for each in json.loads(facts["CurrentObservers"])]
        if (facts["LeaderId"], observers) != (str(leader), [4]):
            return False
        assert facts["ClusterId"] == cluster.cluster_id
        by = ("--bootstrap-server", cluster.bootstrap, "describe", "--replication")
        last = kafka.tool("metadata-quorum", *by)
        table = [line.split() for line in last.splitlines()[1:] if line.strip()]
        return sorted((int(row[0]), row[-1]) for row in table) == [
            *((n, "Leader" if n == leader else "Follower") for n in VOTERS), (4, "Observer")
        ]  # fmt: skip

    try:
        eventually("the quorum is described as it is", is_described, within_s=90)
    except AssertionError as problem:
        raise AssertionError(f"{problem}:\n{last}") from None


# ---------------------------------------------------------------------------------- starts refused


def run_node(base: Path, settings: Mapping[str, object], cluster_id: str) -> tuple[int, str]:
    """Format a node and run it until it gives up; return its exit code and what it said."""
    base.mkdir(parents=True, exist_ok=True)
    path = base / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    made = firnline("storage", "format", "-t", cluster_id, "-c", str(path), "-g")
    assert made.returncode == 0, made.stderr
    done = firnline("server", "-c", str(path))
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    return done.returncode, done.stderr.splitlines()[-1]


@pytest.mark.parametrize("role", [BROKER, CONTROLLER])
def test_a_node_of_another_cluster_does_not_join(
    cluster: Cluster, tmp_path: Path, role: str
) -> None:
    """A controller among voters, or a broker, whose directories say another cluster.id."""
    if role == CONTROLLER:
        cluster[3].kill()
        settings = cluster.settings_of(cluster[3]) | {"log.dirs": tmp_path / "data"}
    else:
        settings = cluster.settings_of(cluster[4])
        settings |= {"node.id": 5, "log.dirs": tmp_path / "data"}
        settings |= dict.fromkeys(("listeners", "advertised.listeners"), "PLAINTEXT://127.0.0.1:0")
    code, said = run_node(tmp_path, settings, uuid_text(SystemRng().uuid()))
    if role == CONTROLLER:
        cluster[3].start()
    assert code == 1
    assert "INCONSISTENT_CLUSTER_ID" in said
    assert "meta.properties" in said
    assert "controller.quorum.voters" in said


def test_a_directory_of_another_node_is_refused_by_name(cluster: Cluster) -> None:
    """Method: start node 5's settings on the disk of node 4, which is down."""
    cluster[4].stop()
    settings = cluster.settings_of(cluster[4]) | {"node.id": 5}
    path = cluster.directory / "other.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    done = firnline("server", "-c", str(path))
    cluster[4].start()
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    for part in (str(cluster[4].data), "key=node.id", "found=4", "expected=5", "remedy="):
        assert part in said


@pytest.mark.peer
def test_a_cluster_with_features_we_lack_is_refused_with_the_command_that_helps(
    tmp_path: Path,
) -> None:
    """Apache Kafka's default: group, share, streams, transaction and ELR above 0 (I33)."""
    with kafka.start(tmp_path / "kafka") as theirs:
        settings = {
            "process.roles": "broker",
            "node.id": 9,
            "controller.quorum.voters": f"1@127.0.0.1:{theirs.ports[0][1]}",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": tmp_path / "ours" / "data",
        }
        code, said = run_node(tmp_path / "ours", settings, theirs.cluster_id)
    assert code == 1
    assert "kafka-features.sh --bootstrap-server HOST:PORT downgrade" in said
    assert "--feature transaction.version=0" in said


def test_all_stop_in_order_and_say_so(cluster: Cluster) -> None:
    """The last test of the file: every process ends with 0 when it is asked to."""
    processes = [cluster[n].process for n in (4, *VOTERS)]
    for process in processes:
        assert process is not None
        process.terminate()
        process.wait(30)
    assert [process.returncode for process in processes if process is not None] == [0] * 4
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log_text()
        node.process = None


def test_a_controller_that_everybody_can_reach_says_so_once_at_its_start(tmp_path: Path) -> None:
    """And one that is bound to an address says nothing of it."""
    made = Cluster(tmp_path, [(FIRNLINE, CONTROLLER)], QUICK)
    node = made[1]
    line = "a controller listens on all addresses of this machine"
    for host, count in (("127.0.0.1", 0), ("", 1)):
        node.settings["listeners"] = f"CONTROLLER://{host}:{node.port}"
        node.start()
        node.stop()
        assert node.log_text().count(line) == count
