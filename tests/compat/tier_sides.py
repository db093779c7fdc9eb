"""Two clusters of three brokers with a tier: Firnline's in an S3 server, Kafka's in a directory. WORLD.

Node 1 is the controller too, and goes on through every scenario; brokers 2 and 3 are stopped, wiped and
reassigned. A scenario is played on both at the same time, and what both observed has to be the same.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from firnline.base.ids import Uuid
from firnline.stores.registry import open_store
from firnline.tiered.objects.layout import LOG, segment_folder
from tests.compat.tier_scenario import METADATA_PARTITIONS, Play, Side
from tests.peers.nodes import (
    BROKER,
    COMBINED,
    FIRNLINE,
    KAFKA,
    QUICK,
    Cluster,
    KafkaNode,
    files_below,
)
from tests.peers.ports import free_ports
from tests.peers.servers import Server

_REMOTE = "org.apache.kafka.server.log.remote"
_LOOK_MS = 300
_TIERED = {
    **QUICK,
    "broker.session.timeout.ms": 4000,
    "replica.fetch.backoff.ms": 100,
    "log.retention.check.interval.ms": _LOOK_MS,
    "log.initial.task.delay.ms": _LOOK_MS,
    # Ours keeps local segments until the leader epochs of their records are synced.
    "log.flush.offset.checkpoint.interval.ms": _LOOK_MS,
    # Kafka deletes expired objects at once; ours stay so long after the catalog is without them.
    "log.segment.delete.delay.ms": 0,
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": _LOOK_MS,
    "rlmm.config.remote.log.metadata.topic.num.partitions": METADATA_PARTITIONS,
    "rlmm.config.remote.log.metadata.topic.replication.factor": 3,
}
Scenario = Callable[[Play], None]


class Sides:
    """Both clusters, and what is played on them."""

    def __init__(self, sides: list[Side]) -> None:
        self.sides = sides

    def play(self, topic: str, scenario: Scenario) -> dict[str, list[tuple[str, object]]]:
        """Play the scenario on both; assert that they observed the same, and return what each observed."""
        with ThreadPoolExecutor() as pool:
            futures = {s.name: pool.submit(_observed, s, topic, scenario) for s in self.sides}
        seen = {name: future.result() for name, future in futures.items()}
        ours, theirs = seen[FIRNLINE], seen[KAFKA]
        unlike = [pair for pair in zip(ours, theirs) if pair[0] != pair[1]]
        assert not unlike, f"{topic}: ours and Kafka's: {unlike}"
        assert len(ours) == len(theirs)
        return seen


def _observed(side: Side, topic: str, scenario: Scenario) -> list[tuple[str, object]]:
    for node in side.cluster.nodes.values():
        if not node.is_running:  # another scenario failed
            node.start()
    with contextlib.closing(Play(side, topic)) as play:
        scenario(play)
        return play.seen


@contextlib.contextmanager
def two_sides(base: Path, server: Server, directories: Mapping[int, int] = {}) -> Iterator[Sides]:
    """Start both clusters; ours has its tier in the server of an object store.

    directories  how many log directories a node has, where it is not one
    """
    members = [COMBINED, BROKER, BROKER]
    ours = Cluster(
        base / "ours",
        [(FIRNLINE, m) for m in members],
        settings_of_ours(server.uri, server.settings),
    )
    tier = base / "kafka-tier"
    theirs = Cluster(base / "kafka", [(KAFKA, m) for m in members], _settings_of_kafka(tier))
    for cluster in (ours, theirs):
        for number, count in directories.items():
            node = cluster[number]
            others = (node.base / f"data-{each}" for each in range(1, count))
            node.settings["log.dirs"] = ",".join(map(str, (node.data, *others)))

    def in_directory(topic: str, _: Uuid, partition: int) -> list[int]:
        found = files_below(tier, f"{topic}-{partition}-*/*.log")
        return sorted(_base_offset(path.name) for path in found)

    with contextlib.ExitStack() as stack:
        with ThreadPoolExecutor() as pool:
            for each in pool.map(lambda cluster: cluster.__enter__(), (ours, theirs)):
                stack.callback(each.kill)
        yield Sides([Side(FIRNLINE, ours, stored_in(server)), Side(KAFKA, theirs, in_directory)])


def stored_in(server: Server) -> Callable[[str, Uuid, int], list[int]]:
    """Return a function that lists the segments of a partition in the store; see `Side.stored`."""
    store = open_store(server.uri, server.settings)

    def stored(_: str, topic_id: Uuid, partition: int) -> list[int]:
        keys = (info.key for info in store.list_prefix(segment_folder(topic_id, partition)))
        return sorted(_base_offset(key) for key in keys if key.endswith(LOG))

    return stored


@contextlib.contextmanager
def kafka_broker(cluster: Cluster) -> Iterator[int]:
    """Add a broker of Kafka's without a tier to the cluster; yield its node id."""
    number = len(cluster.nodes) + 1
    node = KafkaNode(cluster, number, BROKER)
    node.port, node.controller_port = free_ports(2)
    node.settings |= {
        "remote.log.storage.system.enable": "false",
        "transaction.partition.verification.enable": "false",
    }
    cluster.nodes[number], cluster.advertised_ports[number] = node, node.port
    try:
        node.start()
        yield number
    finally:
        node.kill()
        del cluster.nodes[number]


def _base_offset(key: str) -> int:
    return int(key.rpartition("/")[2][:20])


def settings_of_ours(uri: str, settings: Mapping[str, str]) -> dict[str, object]:
    """Return the settings of a cluster of ours with its tier in that store."""
    store = {f"rsm.config.store.{key}": value for key, value in settings.items()}
    return {
        **_TIERED,
        "remote.log.storage.manager.class.name": "firnline.tiered.objects.storage.ObjectStorage",
        "rsm.config.uri": uri,
        **store,
    }


def _settings_of_kafka(tier: Path) -> dict[str, object]:
    return {
        **_TIERED,
        "remote.log.storage.manager.class.name": f"{_REMOTE}.storage.LocalTieredStorage",
        "remote.log.metadata.manager.class.name": (
            f"{_REMOTE}.metadata.storage.TopicBasedRemoteLogMetadataManager"
        ),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": tier,
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "transaction.partition.verification.enable": "false",
    }
