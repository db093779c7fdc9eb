"""Kill brokers and the S3 server of their tier under load; then all is there, and nothing is left. WORLD.

A controller and three brokers share a tier in an S3 server. A producer with acks=all and a consumer from the
first offset go on through everything. At the end each record is there once and in order, most of them in the
tier alone; every object in the store is of a segment that the metadata has; and no upload is unfinished.
"""

import random
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from firnline.base.units import MIB
from firnline.stores.registry import open_store
from firnline.stores.uploads import Uploads
from tests.chaos.controllers import tracebacks
from tests.chaos.kill import Report
from tests.chaos.tiered_replicas import (
    PARTITIONS,
    REPLICAS,
    TOPIC,
    await_all_in_sync,
    known_segments,
    local_start,
    tiered_settings,
)
from tests.chaos.workload import PATIENCE_S, SILENT, Reader, Workload, read_all, violations
from tests.peers import s3
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, Cluster, eventually
from tests.peers.servers import Server

MEMBERS = [(FIRNLINE, CONTROLLER), *[(FIRNLINE, BROKER)] * REPLICAS]
# A segment takes more than one part of an upload, so that a kill may leave an unfinished one.
CONFIG = {
    "remote.storage.enable": "true",
    "min.insync.replicas": "2",
    "internal.segment.bytes": "6291456",
    "local.retention.bytes": "6291456",
    "retention.ms": "-1",
}
PART_BYTES = str(5 * MIB)  # the least that S3 takes
VALUE_BYTES = 2000
# The kinds of kills in a report.
OF_BROKER, OF_STORE = "of a broker", "of the store"
# Copies that a dead broker has left are deleted after this time.
CLEAN_S = 120.0


def run_tier_kills(directory: Path, cycles: int, seed: int) -> Report:
    """Kill -9 a broker, twice as often as the S3 server, `cycles` times."""
    rng, report = random.Random(seed), Report()
    server = s3.start(directory / "s3")
    with server, Cluster(directory / "nodes", MEMBERS, settings_for(server)) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **SILENT})
        topic = NewTopic(TOPIC, PARTITIONS, REPLICAS, config=CONFIG)
        admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
        await_all_in_sync(admin)
        with (
            Reader(cluster.bootstrap, TOPIC, PARTITIONS) as reader,
            Workload(
                cluster.bootstrap, TOPIC, PARTITIONS, value_bytes=VALUE_BYTES, rest_s=0.05
            ) as work,
        ):
            for _ in range(cycles):
                work.await_acks(200)
                time.sleep(rng.uniform(0, 0.5))
                if rng.randrange(3):
                    _kill_a_broker(cluster, work, rng, report)
                    report.kinds[OF_BROKER] += 1
                    await_all_in_sync(admin)
                else:
                    server.kill()
                    work.await_acks(1000)
                    server.start()
                    report.kinds[OF_STORE] += 1
                report.faults += 1
            work.await_acks(100)
            work.finish()
            acked = work.acked()
            found = read_all(cluster.bootstrap, TOPIC, PARTITIONS)
            reader.await_all(found)
        report.acked = sum(map(len, acked.values()))
        report.violations += violations(acked, found, work.sent) + reader.differences(found)
        report.violations += tracebacks(cluster) + left_over(cluster, server)
        if not any(local_start(node, p) for node in cluster.brokers for p in range(PARTITIONS)):
            report.violations.append("no segment was in the tier alone: nothing was tried")
        cluster.kill()
    return report


def settings_for(server: Server) -> dict[str, object]:
    """Return the settings of brokers whose tier is in the server."""
    store = {f"rsm.config.store.{key}": value for key, value in server.settings.items()}
    return {
        **tiered_settings(Path("/")),
        "rsm.config.uri": server.uri,
        **store,
        "rsm.config.store.part_size": PART_BYTES,
    }


def _kill_a_broker(cluster: Cluster, work: Workload, rng: random.Random, report: Report) -> None:
    victim = rng.choice(cluster.brokers)
    victim.kill()
    started = time.monotonic()
    work.await_acks(1000)
    report.back_ms.append((time.monotonic() - started) * 1000)
    victim.start()


def left_over(cluster: Cluster, server: Server) -> list[str]:
    """Return objects of no segment, and unfinished uploads, that are still there after the clean-up."""
    store = open_store(server.uri, server.settings)
    uploads = Uploads.of(s3.BUCKET, s3.PREFIX, server.settings)
    assert uploads is not None
    found: list[str] = []

    def is_clean() -> bool:
        known = known_segments(cluster.bootstrap)
        objects = [info.key for info in store.list_prefix("data/")]
        found[:] = [
            f"orphan {key}" for key in objects if key.rpartition("/")[2][21:43] not in known
        ]
        found.extend(f"unfinished upload of {each.key}" for each in uploads.found())
        return not found

    try:
        eventually("the store is clean", is_clean, within_s=CLEAN_S)
    except AssertionError:
        return list(found)
    return []
