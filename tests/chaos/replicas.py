"""Kill brokers and controllers in mid-produce, one cycle after the other, and read all the while. WORLD.

Within the budget of the promise: min.insync.replicas is 2, and the next broker dies when all are in sync
again. At the end each record is there once and in order, a consumer that read on through all of it has seen
just that, and the three copies of each partition are the same bytes.
"""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.controllers import tracebacks
from tests.chaos.kill import Report
from tests.chaos.workload import PATIENCE_S, SILENT, Reader, Workload, read_all, violations
from tests.peers.nodes import BROKER, COMBINED, CONTROLLER, FIRNLINE, QUICK, Cluster, Node

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


def run_cluster_kills(
    directory: Path, cycles: int, seed: int, members: Sequence[tuple[str, str]] = APART
) -> Report:
    """Kill -9 random nodes, `cycles` times: a broker, a controller, or one of each at once."""
    rng, report = random.Random(seed), Report()
    with Cluster(directory, members, SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **SILENT})
        topic = NewTopic(TOPIC, PARTITIONS, REPLICAS, config=_CONFIG)
        admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
        await_in_sync(admin)
        with (
            Reader(cluster.bootstrap, TOPIC, PARTITIONS) as reader,
            Workload(cluster.bootstrap, TOPIC, PARTITIONS, rest_s=0.05) as work,
        ):
            for _ in range(cycles):
                work.await_acks(100)
                time.sleep(rng.uniform(0, 0.3))
                victims = _victims(cluster, rng)
                for node in victims:
                    node.kill()
                report.faults += 1
                started = time.monotonic()
                work.await_acks(1000)
                report.back_ms.append((time.monotonic() - started) * 1000)
                for node in victims:
                    node.start(wait=False)
                for node in victims:
                    node.await_answer()
                await_in_sync(admin)
            work.await_acks(100)
            work.finish()
            acked = work.acked()
            report.acked = sum(len(rows) for rows in acked.values())
            found = read_all(cluster.bootstrap, TOPIC, PARTITIONS)
            reader.await_all(found)
        report.violations = violations(acked, found, work.sent) + reader.differences(found)
        report.violations += tracebacks(cluster)
        await_in_sync(admin)
        await_so(lambda: not differences(cluster.brokers), "the copies are the same")
        cluster.kill()
    return report


def _victims(cluster: Cluster, rng: random.Random) -> list[Node]:
    """One broker at a time, and one controller at a time: a majority of each goes on."""
    broker, controller = rng.choice(cluster.brokers), rng.choice(cluster.controllers)
    if COMBINED in (broker.role, controller.role):
        return [broker]
    return rng.choice(([broker], [broker], [controller], [broker, controller]))


def await_in_sync(admin: AdminClient) -> None:
    """Wait until all replicas of all partitions are in sync."""

    def is_so() -> bool:
        partitions = admin.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions
        return len(partitions) == PARTITIONS and all(
            len(each.isrs) == REPLICAS for each in partitions.values()
        )

    await_so(is_so, "all replicas are in sync")


def await_so(is_so: Callable[[], bool], what: str) -> None:
    """Look until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S:.0f} s"
        time.sleep(0.05)


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
