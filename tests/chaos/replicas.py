"""Kill brokers and controllers in mid-produce, one cycle after the other, and read all the while. WORLD.

Within the budget of the promise: min.insync.replicas is 2, and the next broker dies when all are in sync
again. At the end each record is there once and in order, a consumer that read on through all of it has seen
just that, and the three copies of each partition are the same bytes.
"""

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.clients import Client
from tests.chaos.controllers import tracebacks
from tests.chaos.image import copy_of_the_disk, make_image, mounted
from tests.chaos.kill import Report
from tests.chaos.workload import PATIENCE_S, SILENT, Reader, Workload, read_all, violations
from tests.peers.nodes import (
    BROKER,
    COMBINED,
    CONTROLLER,
    FIRNLINE,
    QUICK,
    Cluster,
    Node,
    bytes_in,
    eventually,
)
from tests.peers.stopped import stop_at_once
from tests.peers.topics import await_partitions, cluster_of, is_complete

TOPIC, PARTITIONS, REPLICAS = "copied", 3, 3
SETTINGS = {
    **QUICK,
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "offsets.topic.replication.factor": 3,
}
_CONFIG = {"min.insync.replicas": "2", "internal.segment.bytes": "65536"}
APART: Sequence[tuple[str, str]] = [(FIRNLINE, CONTROLLER)] * 3 + [(FIRNLINE, BROKER)] * REPLICAS
TOGETHER: Sequence[tuple[str, str]] = [(FIRNLINE, COMBINED)] * REPLICAS
Step = Callable[[Cluster, Workload], None]
_LONG_SESSION_S = 60
_LEARNT_WITHIN_S = _LONG_SESSION_S / 3  # much longer than anybody needs to hear of a change


def run_cluster_kills(
    directory: Path,
    cycles: int,
    seed: int,
    members: Sequence[tuple[str, str]] = APART,
    clients: Sequence[type[Client]] = (),
) -> Report:
    """Kill -9 random nodes, `cycles` times: a broker, a controller, or one of each at once."""
    rng, report = random.Random(seed), Report()

    def kill_and_start(cluster: Cluster, work: Workload) -> None:
        time.sleep(rng.uniform(0, 0.3))
        victims = _victims(cluster, rng)
        for node in victims:
            node.kill()
        started = time.monotonic()
        work.await_acks(1000)
        report.back_ms.append((time.monotonic() - started) * 1000)
        for node in victims:
            node.start(wait=False)
        for node in victims:
            node.await_answer()

    with Cluster(directory, members, SETTINGS) as cluster:
        _run(cluster, [kill_and_start] * cycles, report, clients)
        cluster.kill()
    return report


def run_clean_restarts(
    directory: Path,
    members: Sequence[tuple[str, str]] = APART,
    clients: Sequence[type[Client]] = (),
) -> Report:
    """Stop each broker in order and start it again, one after the other.

    A session is long here: who waits for one to end instead of being told is seen.
    """
    report = Report()

    def restart(broker: Node) -> Step:
        def step(cluster: Cluster, work: Workload) -> None:
            broker.stop()
            report.violations += _still_counts_on(cluster, broker)
            work.await_acks(1000)
            broker.start()

        return step

    settings = {**SETTINGS, "broker.session.timeout.ms": _LONG_SESSION_S * 1000}
    with Cluster(directory, members, settings) as cluster:
        steps = [restart(broker) for broker in cluster.brokers]
        report.back_ms.append(1000 * _run(cluster, steps, report, clients))
        cluster.kill()
    return report


def run_broker_power_cuts(directory: Path, cuts: int, seed: int) -> Report:
    """Cut the power of one broker at a time, `cuts` times: what only its page cache had is lost."""
    rng, report = random.Random(seed), Report()
    with contextlib.ExitStack() as stack:
        cluster = Cluster(directory, APART[2:], SETTINGS)
        disks = {n.node_id: NodeDisk(directory, n) for n in cluster.brokers}
        for disk in disks.values():
            stack.callback(disk.close)
        stack.callback(cluster.kill)
        lost: list[int] = []

        def cut(cluster: Cluster, work: Workload) -> None:
            time.sleep(rng.uniform(0, 0.3))
            victim = rng.choice(cluster.brokers)
            lost.append(disks[victim.node_id].cut_power())
            started = time.monotonic()
            work.await_acks(1000)
            report.back_ms.append((time.monotonic() - started) * 1000)
            victim.start()

        stack.enter_context(cluster)
        _run(cluster, [cut] * cuts, report, ())
        if not any(lost):
            report.violations.append("no cut lost anything: nothing was tried")
        cluster.kill()
    return report


class NodeDisk:
    """The mounted image under one broker, replaced by a copy of itself when its power is cut."""

    def __init__(self, directory: Path, node: Node) -> None:
        self._node = node
        base = directory / f"disk-{node.node_id}"
        base.mkdir(parents=True)
        self._image, self._copy, self._at = base / "disk.img", base / "copy.img", base / "mnt"
        make_image(self._image)
        self._mount = contextlib.ExitStack()
        self._mount.enter_context(mounted(self._image, self._at))
        node.data = self._at / "data"

    def cut_power(self) -> int:
        """Stop the broker, take the disk as it is, end the broker; return how many bytes of logs are lost."""
        stop_at_once(self._node.pid)
        before = self._log_bytes()
        copy_of_the_disk(self._image, self._copy)
        self._node.kill()
        self._mount.close()
        self._copy.rename(self._image)
        self._mount.enter_context(mounted(self._image, self._at))
        return before - self._log_bytes()

    def _log_bytes(self) -> int:
        return bytes_in(self._node.data, f"{TOPIC}-*/*.log")

    def close(self) -> None:
        self._mount.close()


def _run(
    cluster: Cluster, steps: Sequence[Step], report: Report, kinds: Sequence[type[Client]]
) -> float:
    """Take the steps under load, each when all are in sync, and judge; return the longest gap in seconds."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **SILENT})
    topics = [NewTopic(TOPIC, PARTITIONS, REPLICAS, config=_CONFIG)]
    topics += [NewTopic(f"of-{kind.name}", 1, REPLICAS, config=_CONFIG) for kind in kinds]
    for made in admin.create_topics(topics).values():
        made.result(PATIENCE_S)
    await_in_sync(admin)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(kind(cluster.bootstrap)) for kind in kinds]
        reader = stack.enter_context(Reader(cluster.bootstrap, TOPIC, PARTITIONS))
        work = stack.enter_context(Workload(cluster.bootstrap, TOPIC, PARTITIONS, rest_s=0.05))
        for step in steps:
            work.await_acks(100)
            step(cluster, work)
            report.faults += 1
            await_in_sync(admin)
        work.await_acks(100)
        work.finish()
        acked = work.acked()
        found = read_all(cluster.bootstrap, TOPIC, PARTITIONS)
        reader.await_all(found)
        for client in clients:
            report.violations += client.finish()
            report.acked += client.acked
    report.acked += sum(len(rows) for rows in acked.values())
    report.violations += violations(acked, found, work.sent) + reader.differences(found)
    report.violations += tracebacks(cluster)
    await_in_sync(admin)
    what = "the copies are the same"
    eventually(what, lambda: not differences(cluster.brokers), within_s=PATIENCE_S)
    return work.longest_gap_s


def _still_counts_on(cluster: Cluster, gone: Node) -> list[str]:
    """Say which partitions keep a broker that left in order as their leader, or in their ISR.

    The others hear of it in their own time, but long before a session is over.
    """
    others = ",".join(f"127.0.0.1:{n.port}" for n in cluster.brokers if n is not gone)
    admin = AdminClient({"bootstrap.servers": others, **SILENT})
    faults: list[str] = []

    def nobody_does() -> bool:
        faults[:] = [
            f"{gone} left, and {name}-{number} has leader {state.leader} and ISR {state.isrs}"
            for name, topic in cluster_of(admin).topics.items()
            for number, state in topic.partitions.items()
            if gone.node_id in (state.leader, *state.isrs)
        ]
        return not faults

    with contextlib.suppress(AssertionError):
        eventually(f"nobody counts on {gone}", nobody_does, within_s=_LEARNT_WITHIN_S)
    return faults


def _victims(cluster: Cluster, rng: random.Random) -> list[Node]:
    """One broker at a time, and one controller at a time: a majority of each goes on."""
    broker, controller = rng.choice(cluster.brokers), rng.choice(cluster.controllers)
    if COMBINED in (broker.role, controller.role):
        return [broker]
    return rng.choice(([broker], [broker], [controller], [broker, controller]))


def await_in_sync(admin: AdminClient) -> None:
    """Wait until all replicas of all partitions are in sync."""

    await_partitions(admin, TOPIC, PARTITIONS, is_complete)


def differences(nodes: list[Node]) -> list[str]:
    """Say which partitions are not the same bytes on all nodes."""
    found = []
    for partition in range(PARTITIONS):
        copies = {
            b"".join(
                path.read_bytes()
                for path in sorted((node.data / f"{TOPIC}-{partition}").glob("*.log"))
            )
            for node in nodes
        }
        if len(copies) != 1:
            found.append(f"partition {partition}: {sorted(map(len, copies))} bytes")
    return found
