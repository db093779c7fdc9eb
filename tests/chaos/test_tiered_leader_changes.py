"""Leaders change and replicas begin anew while the store of the tier is slow or down: F25, F27, F40.

A controller and three brokers share an S3 server, each broker through a proxy of its own, so that the store
fails for one of them. A producer with acks=all goes on through everything.
"""

import contextlib
import os
import signal
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from firnline.base.errors import Code
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.stores.registry import open_store
from firnline.tiered.objects.layout import segment_folder
from firnline.tiered.spi import RemoteSegment, SegmentState
from tests.chaos.controllers import tracebacks
from tests.chaos.tier_kills import settings_for
from tests.chaos.tiered_replicas import (
    PARTITIONS,
    REPLICAS,
    TIERED,
    await_all_in_sync,
    known_segments,
    local_start,
    read_from_broker,
)
from tests.chaos.workload import PATIENCE_S, SILENT, Positions, Workload, violations
from tests.compat.tier_scenario import METADATA_PARTITIONS, Play, Side
from tests.compat.tier_sides import stored_in
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, Cluster, Node, eventually
from tests.peers.servers import Server
from tests.peers.store_proxy import Fault, StoreProxy
from tests.peers.topics import await_partition, await_partitions, is_complete, is_led

pytestmark = pytest.mark.peer
MEMBERS = [(FIRNLINE, CONTROLLER), *[(FIRNLINE, BROKER)] * REPLICAS]
# The last is stopped: whoever asks "any broker" asks the others first.
OTHER, THIRD, OLD = 2, 3, 4
PLAIN = "plain"
# A replica that hears of a change of the leader, or of the tier's metadata, a moment later than others; and a
# read of the tier that takes longer than two Fetches wait (T59), as on a busy machine.
_SOON = (
    Code.NONE,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.REPLICA_NOT_AVAILABLE,
    Code.OFFSET_NOT_AVAILABLE,
    Code.KAFKA_STORAGE_ERROR,
)


class Stage:
    """The cluster, its store, and a proxy before the store for each broker."""

    def __init__(self, directory: Path, server: Server, stack: contextlib.ExitStack) -> None:
        settings = {
            **settings_for(server),
            "rlmm.config.remote.log.metadata.topic.num.partitions": METADATA_PARTITIONS,
            "remote.log.manager.task.retry.backoff.max.ms": 500,
        }
        self.cluster = Cluster(directory, MEMBERS, settings)
        self.store = open_store(server.uri, server.settings)
        self.side = Side(FIRNLINE, self.cluster, stored_in(server))
        self.proxies: dict[int, StoreProxy] = {}
        for node in self.cluster.brokers:
            proxy = self.proxies[node.node_id] = stack.enter_context(StoreProxy(server))
            node.settings["rsm.config.store.endpoint"] = proxy.endpoint
        self.cluster.__enter__()
        stack.callback(self.cluster.kill)
        self.admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, **SILENT})


class Scene:
    """One test's topic, and the producer that writes to it."""

    def __init__(self, stage: Stage, topic: str) -> None:
        self.stage, self.topic = stage, topic
        self.cluster, self.proxies, self.admin = stage.cluster, stage.proxies, stage.admin
        # The old leader leads from the beginning: one that is replaced may leave a copy too many.
        order = [[OLD, OTHER, THIRD]] * PARTITIONS
        new = NewTopic(topic, PARTITIONS, replica_assignment=order, config=TIERED)
        stage.admin.create_topics([new])[topic].result(PATIENCE_S)
        await_all_in_sync(stage.admin, topic)
        self.play = Play(stage.side, topic)
        self.work = Workload(
            self.cluster.bootstrap, topic, PARTITIONS, value_bytes=1000, rest_s=0.05
        )

    def fill(self) -> None:
        """Wait until each broker has some records in the tier alone."""

        def is_cold() -> bool:
            places = ((node, p) for node in self.cluster.brokers for p in range(PARTITIONS))
            return all(local_start(*place, self.topic) > 0 for place in places)

        eventually("all replicas have records in the tier alone", is_cold, within_s=PATIENCE_S)

    def finish(self) -> None:
        """Everything acknowledged is there, for readers of any broker; each object is of a known segment."""
        self.work.finish()
        await_all_in_sync(self.admin, self.topic)
        acked = self.work.acked()
        for node in self.cluster.brokers:
            assert violations(acked, self.read(node), self.work.sent) == [], node
        assert tracebacks(self.cluster) == []
        eventually("no object is left over", lambda: not self.orphans(), within_s=PATIENCE_S)

    def read(self, node: Node) -> Positions:
        """Read all that has been acknowledged by now from one broker."""
        sent = {p: rows[-1][0] for p, rows in self.work.acked().items()}
        found: list[Positions] = []

        def has_all() -> bool:
            found[:] = [read_from_broker(node, self.topic, _SOON)]
            return all(found[0][p][-1][0] >= end for p, end in sent.items())

        eventually(f"{node} knows the high watermark", has_all, within_s=PATIENCE_S)
        return found[0]

    def others_lead(self) -> bool:
        """Whether the broker that stands still leads neither the topic nor the tier's metadata any more."""
        with contextlib.closing(Play(self.stage.side, REMOTE_LOG_METADATA_TOPIC)) as metadata:
            parts = [*metadata.described().values(), *self.play.described().values()]
        return all(part.leader_id not in (-1, OLD) for part in parts)

    def begun(self) -> list[RemoteSegment]:
        """The segments of partition 0 whose copy has begun, and not ended."""
        found = self.play.segments()
        return [each for each in found if each.state == SegmentState.COPY_STARTED]

    def keys(self) -> list[str]:
        """The objects of the topic's segments."""
        folders = (segment_folder(self.play.topic_id, p) for p in range(PARTITIONS))
        return [info.key for folder in folders for info in self.stage.store.list_prefix(folder)]

    def orphans(self) -> list[str]:
        """The objects of no segment that the metadata has."""
        keys = self.keys()
        known = known_segments(self.cluster.bootstrap, METADATA_PARTITIONS)
        return [key for key in keys if key.rpartition("/")[2][21:43] not in known]


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, start_store: Callable[[str], Server]
) -> Iterator[Stage]:
    with contextlib.ExitStack() as stack:
        yield Stage(tmp_path_factory.mktemp("leaders"), start_store("s3"), stack)


@pytest.fixture
def scene(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A topic; in the end it is deleted, and leaves nothing in the store."""
    made = Scene(stage, f"topic-{zlib.crc32(request.node.name.encode())}")
    with contextlib.closing(made.play):
        with made.work:
            yield made
        assert made.keys()
        stage.admin.delete_topics([made.topic])[made.topic].result(PATIENCE_S)
        eventually("the topic has left the tier", lambda: not made.keys(), within_s=PATIENCE_S)


# --------------------------------------------------------------------------- F25


@pytest.mark.parametrize("how", ["another is elected", "it stands still"])
def test_both_copies_of_an_old_and_a_new_leader_end_and_one_segment_is_too_many_at_most(
    scene: Scene, how: str
) -> None:
    """The store gets the objects of the old leader when the new one has copied the same segment."""
    play, old = scene.play, scene.cluster[OLD]
    scene.fill()
    folder = segment_folder(play.topic_id, 0)
    held = scene.proxies[OLD].add("held", Fault(method="PUT", key=folder, holds=True))
    eventually("its copy hangs", lambda: held.met, within_s=PATIENCE_S)
    (copy,) = scene.begun()
    assert copy.broker_id == OLD
    if how == "it stands still":
        os.kill(old.pid, signal.SIGSTOP)
        eventually("others lead", scene.others_lead, within_s=PATIENCE_S)
    else:
        play.lead(OTHER)
    eventually(
        f"another has copied from {copy.base_offset} on",
        lambda: copy.base_offset in [start for start, _, _ in play.remote()],
        within_s=PATIENCE_S,
    )
    scene.proxies[OLD].remove("held")
    os.kill(old.pid, signal.SIGCONT)
    scene.work.await_acks(500)
    scene.finish()
    if how == "another is elected":  # the copy of a broker that stood still may fail
        eventually("all copies have ended", lambda: not scene.begun(), within_s=PATIENCE_S)
    starts = [start for start, _, _ in play.remote()]
    assert len(starts) - len(set(starts)) <= 1, starts


# --------------------------------------------------------------------------- F27


def test_an_empty_replica_waits_for_the_store_while_others_go_on_and_then_has_the_same(
    scene: Scene,
) -> None:
    """Its first records are in the tier alone, and the store refuses each of its requests."""
    plain = NewTopic(PLAIN, 1, REPLICAS)
    scene.admin.create_topics([plain])[PLAIN].result(PATIENCE_S)
    node, proxy = scene.cluster[OLD], scene.proxies[OLD]
    scene.fill()
    for partition in range(PARTITIONS):
        scene.play.lead(OTHER, partition)
    node.kill()
    node.wipe()
    down = proxy.add("down", Fault(status=503))
    node.start()
    await_partition(scene.admin, PLAIN, is_complete)
    eventually("it says why", lambda: "does not follow" in node.log_text(), within_s=PATIENCE_S)
    before = down.met
    eventually("it asks the store again", lambda: down.met > before, within_s=PATIENCE_S)
    scene.work.await_acks(500)
    parts = await_partitions(scene.admin, scene.topic, PARTITIONS, is_led)
    assert all(OLD not in part.isrs for part in parts.values())
    assert node.log_text().count("does not follow") <= PARTITIONS
    proxy.remove("down")
    await_all_in_sync(scene.admin, scene.topic)
    scene.finish()
    scene.play.lead(OLD)
    assert violations(scene.work.acked(), scene.read(node), scene.work.sent) == []


# --------------------------------------------------------------------------- F40


def test_followers_serve_what_only_the_tier_has_while_the_leader_changes(scene: Scene) -> None:
    scene.fill()
    with contextlib.ExitStack() as stack:
        stack.enter_context(scene.work.paused())  # or each reading takes longer than the one before
        readers = [stack.enter_context(Rereader(scene, node)) for node in scene.cluster.brokers]
        for leader in (OTHER, THIRD, OLD):
            for partition in range(PARTITIONS):
                scene.play.lead(leader, partition)
            for reader in readers:
                reader.await_another()
    scene.finish()
    for reader in readers:
        assert reader.problem is None, reader.problem
        whole = scene.read(scene.cluster[OLD])
        for found in reader.found:
            for partition, rows in found.items():
                assert rows == whole[partition][: len(rows)]


class Rereader:
    """Reads a topic from one broker, whoever leads it, again and again from its first record."""

    def __init__(self, scene: Scene, node: Node) -> None:
        self._scene, self._node = scene, node
        self.found: list[Positions] = []
        self.problem: BaseException | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Rereader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def await_another(self) -> None:
        """Wait until it has read all once more, from the first record on."""
        wanted = len(self.found) + 2  # the next one to end may have begun already

        def has_come() -> bool:
            assert self.problem is None, self.problem
            return len(self.found) >= wanted

        eventually(f"{self._node} is read", has_come, within_s=PATIENCE_S)

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                start = [local_start(self._node, p, self._scene.topic) for p in range(PARTITIONS)]
                assert all(start), "nothing is in the tier alone"
                self.found.append(read_from_broker(self._node, self._scene.topic, _SOON))
        except BaseException as problem:  # noqa: BLE001 - the test asks for it
            self.problem = problem
