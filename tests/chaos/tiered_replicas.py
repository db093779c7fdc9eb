"""Three brokers and a tier that they share: brokers die, stop, lose their disks; what each serves. WORLD."""

import time
from collections.abc import Container, Iterator
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC, uuid_text
from firnline.client.connection import Connection
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.stores.directory import PUTTING
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.metadata.changes import from_record
from firnline.tiered.metadata.records import decode
from firnline.tiered.spi import RemoteSegment, SegmentUpdate
from tests.chaos.workload import PATIENCE_S, SILENT, Positions, offsets_of
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, QUICK, Cluster, Node, files_below
from tests.peers.topics import await_partitions, is_complete
from tests.worlds.decoded import all_records

TOPIC, PARTITIONS, REPLICAS = "cold", 2, 3
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
TIERED = {
    "remote.storage.enable": "true",
    "min.insync.replicas": "2",
    "internal.segment.bytes": "262144",
    "local.retention.bytes": "262144",
    "retention.ms": "-1",
}


def tiered_settings(tier: Path, *, metadata_replicas: int = 3) -> dict[str, object]:
    """Return the settings of brokers that share a directory as their tier, and look at it often."""
    return {
        **QUICK,
        "broker.session.timeout.ms": 3000,
        "replica.fetch.backoff.ms": 200,
        "log.retention.check.interval.ms": 300,
        "log.flush.offset.checkpoint.interval.ms": 300,
        "log.segment.delete.delay.ms": 0,
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "firnline.tiered.objects.storage.ObjectStorage",
        "remote.log.manager.task.interval.ms": 300,
        "rsm.config.uri": tier.as_uri(),
        "rlmm.config.remote.log.metadata.topic.num.partitions": 3,
        "rlmm.config.remote.log.metadata.topic.replication.factor": metadata_replicas,
        "replica.selector.class": RACK_AWARE,
    }


class TieredCluster(Cluster):
    """A controller and three brokers, each broker in a rack of its own: r2, r3, r4."""

    def __init__(self, directory: Path, tier: Path) -> None:
        members = [(FIRNLINE, CONTROLLER), *[(FIRNLINE, BROKER)] * REPLICAS]
        super().__init__(directory, members, tiered_settings(tier))
        for node in self.brokers:
            node.settings["broker.rack"] = f"r{node.node_id}"

    def make_topic(self) -> AdminClient:
        """Create the topic; return a client to ask about it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **SILENT})
        topic = NewTopic(TOPIC, PARTITIONS, REPLICAS, config=TIERED)
        admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
        await_all_in_sync(admin)
        return admin


def leaders(admin: AdminClient) -> dict[int, int]:
    """Return the leader of each partition, -1 where there is none."""
    found = await_partitions(admin, TOPIC, PARTITIONS, lambda _: True)
    return {index: each.leader for index, each in found.items()}


def await_all_in_sync(admin: AdminClient, topic: str = TOPIC) -> None:
    """Wait until every replica is in the ISR of its partition."""
    await_partitions(admin, topic, PARTITIONS, is_complete)


def local_start(node: Node, partition: int, topic: str = TOPIC) -> int:
    """Return where the local files of a replica begin."""
    folder = node.data / f"{topic}-{partition}"
    return min((int(path.stem) for path in folder.glob("*.log")), default=0)


def read_from_broker(node: Node, topic: str = TOPIC, also: Container[int] = (0, 78)) -> Positions:
    """Read all partitions from one broker, leader or not, to the high watermark that it knows.

    also  the error codes after which it asks again
    """
    connection = Connection(*node.address, timeout_s=PATIENCE_S)
    try:
        return {p: _read_partition(connection, topic, p, also) for p in range(PARTITIONS)}
    finally:
        connection.close()


def _read_partition(
    connection: Connection, name: str, partition: int, also: Container[int]
) -> list[tuple[int, int]]:
    rows: list[tuple[int, int]] = []
    at, deadline = 0, time.monotonic() + PATIENCE_S
    while True:
        wanted = FetchPartition(partition=partition, fetch_offset=at, partition_max_bytes=1 << 20)
        request = FetchRequest(
            topics=[FetchTopic(topic=name, partitions=[wanted])],
            max_bytes=1 << 20,
            max_wait_ms=100,
        )
        [topic] = connection.ask(request, version=12).responses
        [row] = topic.partitions
        assert row.error_code in also, f"{partition} at {at}: error {row.error_code}"
        for record in all_records(bytes(row.records or b"")):
            if record.offset >= at:
                rows.append((record.offset, int(bytes(record.value or b"").partition(b" ")[0])))
        if rows:
            at = rows[-1][0] + 1
        if row.error_code == 0 and at >= row.high_watermark:
            return rows
        assert time.monotonic() < deadline, f"partition {partition} ended at {at}"


def known_segments(bootstrap: str, metadata_partitions: int = 3) -> set[str]:
    """Return the ids of all segments that the metadata has, as text."""
    caches: dict[tuple[bytes, int], MetadataCache] = {}
    for value in _metadata_values(bootstrap, metadata_partitions):
        change = from_record(decode(value))
        if change is None:
            continue
        cache = caches.setdefault((change.topic_id, change.partition), MetadataCache())
        if isinstance(change, RemoteSegment):
            cache.add(change)
        elif isinstance(change, SegmentUpdate):
            cache.update(change)
    return {uuid_text(s.segment_id) for cache in caches.values() for s in cache.segments()}


def orphans(bootstrap: str, tier: Path, metadata_partitions: int = 3) -> list[str]:
    """List the store: what the metadata does not know, and what somebody was still putting."""
    known = known_segments(bootstrap, metadata_partitions)
    objects = files_below(tier / "data")
    putting = [str(path) for path in files_below(tier / PUTTING)]
    return [str(path) for path in objects if path.name[21:43] not in known] + putting


def _metadata_values(bootstrap: str, partitions: int) -> Iterator[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "auditor", "enable.auto.commit": False}
        | SILENT
    )
    try:
        for index in range(partitions):
            where = TopicPartition(REMOTE_LOG_METADATA_TOPIC, index, OFFSET_BEGINNING)
            low, end = offsets_of(consumer, where)
            consumer.assign([where] if end > low else [])
            at, deadline = low, time.monotonic() + PATIENCE_S
            while at < end:
                assert time.monotonic() < deadline, f"{where} is silent at {at}"
                for message in consumer.consume(500, 0.2):
                    assert message.error() is None, message.error()
                    at = message.offset() + 1
                    yield message.value()
    finally:
        consumer.close()
