"""Kill one broker of three after the other while records are written to partitions on all of them. WORLD.

Within the budget of the promise: min.insync.replicas is 2, and the next one dies when all are in sync again.
At the end each record is there once and in order, and the three copies of each partition are the same bytes.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.controllers import tracebacks
from tests.chaos.kill import Report
from tests.chaos.workload import PATIENCE_S, SILENT, Workload, read_all, violations
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, QUICK, Cluster, Node

TOPIC, PARTITIONS, REPLICAS = "copied", 3, 3
SETTINGS = {**QUICK, "broker.session.timeout.ms": 3000, "offsets.topic.replication.factor": 1}
_CONFIG = {"min.insync.replicas": "2", "internal.segment.bytes": "65536"}


def run_broker_kills(directory: Path, cycles: int, seed: int) -> Report:
    """Kill -9 random brokers, `cycles` times."""
    rng, report = random.Random(seed), Report()
    members = [(FIRNLINE, CONTROLLER), *[(FIRNLINE, BROKER)] * REPLICAS]
    with Cluster(directory, members, SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **SILENT})
        topic = NewTopic(TOPIC, PARTITIONS, REPLICAS, config=_CONFIG)
        admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
        await_in_sync(admin)
        with Workload(cluster.bootstrap, TOPIC, PARTITIONS) as work:
            for _ in range(cycles):
                work.await_acks(100)
                time.sleep(rng.uniform(0, 0.3))
                victim = rng.choice(cluster.brokers)
                victim.kill()
                report.faults += 1
                started = time.monotonic()
                work.await_acks(1000)
                report.back_ms.append((time.monotonic() - started) * 1000)
                victim.start()
                await_in_sync(admin)
            work.await_acks(100)
            work.finish()
        acked = work.acked()
        report.acked = sum(len(rows) for rows in acked.values())
        found = read_all(cluster.bootstrap, TOPIC, PARTITIONS)
        report.violations = violations(acked, found, work.sent) + tracebacks(cluster)
        await_in_sync(admin)
        await_so(lambda: not differences(cluster.brokers), "the copies are the same")
    return report


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
