"""A replica is damaged where it was synced: others serve it until it is mended. Real processes."""

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from tests.chaos.replicas import SETTINGS
from tests.chaos.workload import PATIENCE_S, SILENT, Workload, read_all, violations
from tests.peers.nodes import (
    BROKER,
    CONTROLLER,
    FIRNLINE,
    KAFKA,
    QUICK,
    Cluster,
    Node,
    eventually,
)
from tests.peers.topics import await_partition, is_complete, is_led
from tests.wire.line import Line

TOPIC, ALONE = "damaged", "alone"
BROKERS = (2, 3, 4)
_SYNCED = {"log.flush.offset.checkpoint.interval.ms": 300}
_CONFIG = {"min.insync.replicas": "2"}


@pytest.mark.parametrize(
    "controller", [FIRNLINE, pytest.param(KAFKA, marks=pytest.mark.peer)], ids=str
)
def test_a_damaged_replica_is_led_by_others_and_comes_back_repaired(
    tmp_path: Path, controller: str
) -> None:
    """Each of these brokers has one log directory: Kafka's controller takes LOST from it all the same.

    A partition that nobody else has waits for it, and is led again when a whole copy of it is put back.
    """
    members = [(controller, CONTROLLER), *[(FIRNLINE, BROKER)] * 3]
    with Cluster(tmp_path, members, {**QUICK, **SETTINGS, **_SYNCED}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **SILENT})
        topic = NewTopic(TOPIC, 1, replica_assignment=[list(BROKERS)], config=_CONFIG)
        alone = NewTopic(ALONE, 1, replica_assignment=[[BROKERS[0]]])
        for made in admin.create_topics([topic, alone]).values():
            made.result(PATIENCE_S)
        await_partition(admin, ALONE, is_led)
        with Workload(cluster.bootstrap, ALONE, 1) as work:
            work.await_acks(200)
            work.finish()
        of_the_last, sent_to_it = work.acked(), work.sent
        await_partition(admin, TOPIC, lambda it: it.leader == BROKERS[0])
        damaged = cluster[BROKERS[0]]
        with Workload(cluster.bootstrap, TOPIC, 1) as work:
            work.await_acks(500)
            for name in (TOPIC, ALONE):
                await_synced(damaged, name)
            damaged.kill()
            for name in (TOPIC, ALONE):
                flip_a_byte(damaged, name)
            damaged.start()
            for name in (TOPIC, ALONE):
                await_offline(cluster, name, [damaged.node_id])
                said = f"partition is not served topic={name} partition=0"
                eventually("it says so", lambda said=said: said in damaged.log_text())
            await_partition(admin, ALONE, lambda it: not is_led(it))
            led = await_partition(admin, TOPIC, is_led)
            assert led.leader != damaged.node_id
            assert damaged.node_id not in led.isrs
            work.await_acks(500)
            damaged.stop()
            (damaged.data / f"{TOPIC}-0").rename(tmp_path / "away")
            flip_a_byte(damaged, ALONE)
            damaged.start()
            await_partition(admin, TOPIC, is_complete)
            await_partition(admin, ALONE, is_led)
            for name in (TOPIC, ALONE):
                await_offline(cluster, name, [])
            work.await_acks(100)
            work.finish()
        acked = work.acked()
        assert violations(acked, read_all(cluster.bootstrap, TOPIC, 1), work.sent) == []
        found = read_all(cluster.bootstrap, ALONE, 1)
        assert violations(of_the_last, found, sent_to_it) == []
        eventually("the copies are equal", lambda: are_equal(cluster), within_s=PATIENCE_S)
        assert [n for n in cluster.brokers if "Traceback" in n.log_text()] == []


def await_synced(node: Node, topic: str) -> None:
    """Return when the disk has enough of the topic for a byte in the middle to be below that."""

    def recovery_point() -> int:
        checkpoint = node.data / "recovery-point-offset-checkpoint"
        found = re.search(rf"^{topic} 0 (\d+)$", checkpoint.read_text(), re.M)
        return int(found[1]) if found else 0

    eventually("a checkpoint says it", lambda: recovery_point() >= 100, within_s=PATIENCE_S)


def flip_a_byte(node: Node, topic: str) -> None:
    """... of the first batch, which is synced for sure; twice, and it is as before."""
    path = node.data / f"{topic}-0" / f"{0:020}.log"
    with path.open("r+b") as file:
        file.seek(65)
        byte = file.read(1)
        file.seek(65)
        file.write(bytes([byte[0] ^ 1]))


def await_offline(cluster: Cluster, topic: str, wanted: list[int]) -> None:
    """Return when a sound broker tells that these replicas are offline."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])

    def is_so() -> bool:
        with Line(cluster[BROKERS[1]].address) as line:
            answer: Any = line.ask(request, 12)
        [partition] = answer.topics[0].partitions
        return list(partition.offline_replicas) == wanted

    eventually(f"offline of {topic} are {wanted}", is_so, within_s=PATIENCE_S)


def are_equal(cluster: Cluster) -> bool:
    return len({log_bytes(node) for node in cluster.brokers}) == 1


def log_bytes(node: Node) -> bytes:
    paths = sorted((node.data / f"{TOPIC}-0").glob("*.log"))
    return b"".join(path.read_bytes() for path in paths)
