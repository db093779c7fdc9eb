"""Real clients that say where they are (`client.rack`) read from the replica in their rack (KIP-392)."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="NOT RUN: confluent-kafka is not installed")

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from firnline.client.connection import Connection
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.chaos.tiered_replicas import RACK_AWARE
from tests.chaos.workload import PATIENCE_S, SILENT
from tests.peers.nodes import (
    BROKER,
    COMBINED,
    CONTROLLER,
    FIRNLINE,
    KAFKA,
    QUICK,
    Cluster,
    eventually,
)
from tests.peers.proxy import Proxy
from tests.peers.topics import await_partition, is_complete, is_led

TOPIC, RECORDS = "near", 300


class RackCluster:
    """A controller and two brokers in racks r2 and r3, each behind a proxy that sees who asks what."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        members = [(FIRNLINE, CONTROLLER), (FIRNLINE, BROKER), (FIRNLINE, BROKER)]
        settings = {**QUICK, "replica.selector.class": RACK_AWARE}
        self.cluster = Cluster(directory, members, settings)
        self.proxies: dict[int, Proxy] = {}
        for node in self.cluster.brokers:
            node.settings["broker.rack"] = f"r{node.node_id}"
            self.proxies[node.node_id] = proxy = stack.enter_context(Proxy(node.address))
            self.cluster.advertised_ports[node.node_id] = proxy.port
        stack.enter_context(self.cluster)
        self.bootstrap = ",".join(f"127.0.0.1:{p.port}" for p in self.proxies.values())
        self.leader = self._make_topic()
        self.follower = 5 - self.leader

    def _make_topic(self) -> int:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **SILENT})
        admin.create_topics([NewTopic(TOPIC, 1, 2)])[TOPIC].result(PATIENCE_S)
        await_partition(admin, TOPIC, is_complete)
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", **SILENT})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0
        return int(await_partition(admin, TOPIC, is_led).leader)

    def bytes_read(self, node_id: int, rack: str) -> int:
        """How many bytes of records a broker gave to consumers of that rack."""
        return sum(
            len(row.records or b"")
            for passing in list(self.proxies[node_id].seen)
            if isinstance(passing.request, FetchRequest) and passing.request.rack_id == rack
            for topic in getattr(passing.answer, "responses", ())
            for row in topic.partitions
        )


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RackCluster]:
    with ExitStack() as stack:
        yield RackCluster(tmp_path_factory.mktemp("racks"), stack)


def read_with_librdkafka(bootstrap: str, rack: str) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "near", "client.rack": rack, **SILENT}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[int] = []
    while len(found) < RECORDS:
        messages = consumer.consume(RECORDS, PATIENCE_S)
        assert messages, "no record"
        found += [int(message.value()) for message in messages]
    consumer.close()
    return found


def read_with_kafka_python(bootstrap: str, rack: str) -> list[int]:
    kafka = pytest.importorskip("kafka", reason="NOT RUN: kafka-python is not installed")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        client_rack=rack,
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    where = kafka.TopicPartition(TOPIC, 0)
    consumer.assign([where])
    consumer.seek_to_beginning(where)
    found = []
    for message in consumer:
        found.append(int(message.value))
        if len(found) == RECORDS:
            break
    consumer.close()
    return found


def read_with_aiokafka(bootstrap: str, rack: str) -> list[int]:
    aiokafka = pytest.importorskip("aiokafka", reason="NOT RUN: aiokafka is not installed")

    async def read() -> list[int]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, client_rack=rack)
        await consumer.start()
        try:
            where = aiokafka.TopicPartition(TOPIC, 0)
            consumer.assign([where])
            await consumer.seek_to_beginning(where)
            found: list[int] = []
            while len(found) < RECORDS:
                message = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
                found.append(int(message.value))
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read())


@pytest.mark.parametrize("read", [read_with_librdkafka, read_with_kafka_python, read_with_aiokafka])
def test_clients_read_from_the_replica_in_their_rack(
    racks: RackCluster, read: Callable[[str, str], list[int]]
) -> None:
    for near, far in ((racks.follower, racks.leader), (racks.leader, racks.follower)):
        rack = f"r{near}"
        before = racks.bytes_read(near, rack), racks.bytes_read(far, rack)
        assert read(racks.bootstrap, rack) == list(range(RECORDS))
        assert racks.bytes_read(near, rack) > before[0]
        assert racks.bytes_read(far, rack) == before[1], "it read from afar, too"


# --------------------------------------------------------------------------------- beside Kafka


def questions(kind: str, directory: Path) -> dict[str, object]:
    """Ask leader and follower of a cluster of that kind the same, and return what they said."""
    settings = {
        **QUICK,
        "replica.selector.class": RACK_AWARE,
        "log.cleaner.dedupe.buffer.size": 2 << 20,  # Kafka's heap is small here
    }
    members = [(kind, COMBINED), (kind, BROKER)]
    cluster = Cluster(directory, members, settings)
    for node in cluster.nodes.values():
        node.settings["broker.rack"] = f"r{node.node_id}"
    with cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **SILENT})
        admin.create_topics([NewTopic(TOPIC, 1, 2)])[TOPIC].result(PATIENCE_S)
        await_partition(admin, TOPIC, is_complete)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **SILENT})
        producer.produce(TOPIC, b"a")
        assert producer.flush(PATIENCE_S) == 0
        leader = await_partition(admin, TOPIC, is_led).leader
        follower = 3 - leader
        links = {n: Connection(*node.address, timeout_s=60) for n, node in cluster.nodes.items()}

        def fetch(at: int, offset: int, version: int = 11, rack: str = "", epoch: int = -1) -> Any:
            part = FetchPartition(
                partition=0,
                fetch_offset=offset,
                partition_max_bytes=1 << 20,
                current_leader_epoch=epoch,
            )
            topics = [FetchTopic(topic=TOPIC, partitions=[part])]
            request = FetchRequest(topics=topics, rack_id=rack, max_bytes=1 << 20)
            [topic] = links[at].ask(request, version=version).responses
            [row] = topic.partitions
            chosen = {-1: "none", leader: "leader", follower: "follower"}
            return row.error_code, len(row.records or b""), chosen[row.preferred_read_replica]

        def latest(at: int) -> int:
            part = ListOffsetsPartition(partition_index=0, timestamp=-1)
            topic = ListOffsetsTopic(name=TOPIC, partitions=[part])
            answer = links[at].ask(ListOffsetsRequest(topics=[topic]), version=5)
            code: int = answer.topics[0].partitions[0].error_code
            return code

        # It learns of the high watermark with its next fetch.
        eventually("the follower serves the record", lambda: fetch(follower, 0)[1] > 0)
        near = f"r{follower}"
        found: dict[str, object] = {
            "follower, version 10": fetch(follower, 0, version=10),
            "follower, at the end": fetch(follower, 1),
            "follower, beyond the end": fetch(follower, 2),
            "follower, the epoch": fetch(follower, 0, epoch=0),
            "follower, a newer epoch": fetch(follower, 0, epoch=9),
            "follower, its rack": fetch(follower, 0, rack=near),
            "follower, ListOffsets": latest(follower),
            "leader, ListOffsets": latest(leader),
            "leader, its own rack": fetch(leader, 0, rack=f"r{leader}"),
            "leader, the rack of the follower": fetch(leader, 0, rack=near),
            "leader, that rack, version 10": fetch(leader, 0, version=10, rack=near),
            "leader, that rack, a newer epoch": fetch(leader, 0, rack=near, epoch=9),
            "leader, that rack, beyond the end": fetch(leader, 2, rack=near),
            "leader, no rack": fetch(leader, 0),
            "leader, nobody's rack": fetch(leader, 0, rack="r9"),
        }
        for link in links.values():
            link.close()
        cluster.kill()  # Kafka's broker does not stop without its controller
        return found


@pytest.mark.peer
def test_leaders_and_followers_say_what_kafkas_say(tmp_path: Path) -> None:
    ours = questions(FIRNLINE, tmp_path / "ours")
    theirs = questions(KAFKA, tmp_path / "theirs")
    assert ours == theirs
