"""A topic that is in an S3 server alone, on two real brokers; tests harm its segments one by one. WORLD.

Node 1 leads the topic, and reads the S3 server through a proxy. Node 2 has all of the metadata, behind a
proxy of its own, so that it can stop, or lose records, while node 1 goes on. It leads a second topic, `slow`,
and gives its reads of the tier two seconds (tests/compat/impatient_storage.py).
"""

import contextlib
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.client.admin import Admin, BrokerTier
from firnline.protocol.messages.k01_fetch import FetchRequest
from firnline.stores.port import ObjectStore
from firnline.stores.registry import open_store
from firnline.tiered.objects.layout import LOG, segment_folder
from firnline.tiered.reads.index_cache import FOLDER
from tests.chaos.workload import SILENT
from tests.compat.tier_scenario import EARLIEST_LOCAL, LATEST, Play, Side
from tests.compat.tier_sides import settings_of_ours, stored_in
from tests.peers.nodes import BROKER, COMBINED, FIRNLINE, Cluster, eventually
from tests.peers.proxy import Passing, Proxy
from tests.peers.servers import Server
from tests.peers.store_proxy import StoreProxy
from tests.worlds.decoded import all_records

LEADER, KEEPER = 1, 2
TOPIC, SLOW_TOPIC = "cold", "slow"
PER_SEGMENT = 2
SEGMENTS, SLOW_SEGMENTS = 32, 2
WAIT_S = 0.5  # remote.fetch.max.wait.ms
LATEST_S = WAIT_S + 2.0  # a second of a busy machine's
READERS, PENDING_MAX = 2, 1
PATIENCE_S = 30.0
_SETTINGS = {
    "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
    "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
    "remote.fetch.max.wait.ms": int(WAIT_S * 1000),
    "remote.log.reader.threads": READERS,
    "remote.log.reader.max.pending.tasks": PENDING_MAX,
    # So that the end of a fault is noticed soon.
    "remote.log.manager.task.retry.backoff.max.ms": 500,
}


class Answer(NamedTuple):
    """What a Fetch of an offset is answered: the error code, the offsets of the records, and how soon."""

    code: int
    offsets: tuple[int, ...]
    took_s: float


class Segment(NamedTuple):
    """A remote segment: its first offset, the one after its last, and the key of its log in the store."""

    base: int
    end: int
    key: str

    @property
    def stem(self) -> str:
        """The name of its objects without what tells them apart; faults of the proxy go by it."""
        return self.key.rpartition("/")[2].removesuffix(LOG)


class ColdTopic:
    """The cluster, its store, and the segments that no test has used yet."""

    def __init__(self, cluster: Cluster, proxy: StoreProxy, line: Proxy, server: Server) -> None:
        self.cluster, self.proxy, self.line = cluster, proxy, line
        self.store: ObjectStore = open_store(server.uri, server.settings)
        self._side = Side(FIRNLINE, cluster, stored_in(server))
        self.play, self.slow = Play(self._side, TOPIC), Play(self._side, SLOW_TOPIC)
        self._unused: list[Segment] = []
        self.whole: Segment  # what no test harms

    def prepare(self) -> None:
        """Fill the topics, wait until all closed segments are in the tier alone, and drop their indexes."""
        for play, leader, count in (
            (self.play, LEADER, SEGMENTS),
            (self.slow, KEEPER, SLOW_SEGMENTS),
        ):
            play.create([leader], batches_per_segment=PER_SEGMENT)
            write(play, count)
        for play, count in ((self.play, SEGMENTS), (self.slow, SLOW_SEGMENTS)):
            play.expect_local_start(count * PER_SEGMENT)
        self.restart_leader()
        self.whole, *self._unused = self.segments(self.play)
        self.await_records(self.whole)

    def restart_leader(self) -> None:
        """Stop and start node 1; it has no index of a remote segment then."""
        self.play.stop(LEADER)
        shutil.rmtree(self.cluster[LEADER].data / FOLDER)
        self.play.start(LEADER)

    def segments(self, play: Play) -> list[Segment]:
        """Return the segments that are in the store, ascending."""
        found = self.store.list_prefix(segment_folder(play.topic_id, 0))
        keys = sorted(each.key for each in found if each.key.endswith(LOG))
        bases = [int(key.rpartition("/")[2][:20]) for key in keys]
        ends = [*bases[1:], bases[-1] + PER_SEGMENT]
        return [Segment(*each) for each in zip(bases, ends, keys, strict=True)]

    def put(self, key: str, data: bytes) -> None:
        """Put an object as it is to be."""
        self.store.put(key, iter([data]), size_bytes=len(data))

    def take(self) -> Segment:
        """Return a segment of which nothing was read yet."""
        return self._unused.pop()

    # ---- reading

    def ask(
        self,
        offset: int,
        *,
        play: Play | None = None,
        node: int = LEADER,
        within_s: float = LATEST_S,
        **fields: int,
    ) -> Answer:
        """Fetch once; the answer has to come soon, whatever it is."""
        began = time.monotonic()
        row = (play or self.play).fetch_row(offset, node=node, **fields)
        took_s = time.monotonic() - began
        assert took_s < within_s, f"{row.error_code} only after {took_s:.2f} s"
        found = (record.offset for record in all_records(bytes(row.records or b"")))
        return Answer(row.error_code, tuple(each for each in found if each >= offset), took_s)

    def ask_at_once(self, *offsets: int) -> list[Answer]:
        """Fetch each of the offsets, all at the same time."""

        def ask(offset: int) -> Answer:
            with contextlib.closing(Play(self._side, TOPIC)) as play:
                assert play.topic_id  # asked for before the time begins
                return self.ask(offset, play=play)

        with ThreadPoolExecutor(len(offsets)) as pool:
            return list(pool.map(ask, offsets))

    def await_records(self, segment: Segment) -> None:
        """Fetch until the records of a segment come; before, answers are empty or have a retriable code."""
        codes: list[int] = []

        def came() -> bool:
            answer = self.ask(segment.base)
            codes.append(answer.code)
            return answer.offsets[:1] == (segment.base,)

        eventually(f"the records from {segment.base} on", came, within_s=PATIENCE_S)
        assert set(codes) <= {0, 9, 56, 78}, f"on the way were {codes}"

    def await_index(self, play: Play, node: int, segment: Segment) -> None:
        """Read the last record, so that the broker has the indexes of the segment."""
        last = segment.end - 1
        eventually(
            f"the record {last}",
            lambda: last in self.ask(last, play=play, node=node).offsets,
            within_s=PATIENCE_S,
        )

    def await_leader(self) -> None:
        """Wait until node 1, after a start, leads the topic again."""
        self.play.until(
            "it leads", lambda: self.ask(self.play.offset(LATEST, node=LEADER)[1]).code == 0
        )

    # ---- the broker

    def failing_operations(self) -> list[str]:
        """Return the operations for which node 1 does not use the store."""
        return [each.operation for each in self._status().circuits]

    def knows_of_loss(self) -> bool:
        """Whether node 1 knows that the metadata lacks segments which are in the store."""
        (row,) = self._status().partitions
        return "its metadata does not know" in str(row["problem"])

    def _status(self) -> BrokerTier:
        host, port = self.cluster[LEADER].address
        with Admin(f"{host}:{port}") as admin:
            return admin.tier_status_of(admin.first, [TOPIC])

    def limit_reads(self, bytes_per_second: int | None) -> None:
        """Set the quota for reads of the tier; None: no limit."""
        self._alter("remote.log.manager.fetch.max.bytes.per.second", bytes_per_second)

    def set_wait(self, wait_s: float) -> None:
        """Set how long a Fetch waits for the tier."""
        self._alter("remote.fetch.max.wait.ms", int(wait_s * 1000))

    def _alter(self, name: str, value: int | None) -> None:
        kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, str(value or ""), incremental_operation=kind)
        broker = ConfigResource(ResourceType.BROKER, str(LEADER), incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, **SILENT})
        admin.incremental_alter_configs([broker])[broker].result(PATIENCE_S)

    # ---- metadata

    @contextlib.contextmanager
    def lost_metadata(self) -> Iterator[Segment]:
        """Put a copy of the metadata back that is older than a segment; yield that segment, the keeper down.

        In the end the metadata is as it was.
        """
        play, metadata = self.play, self.cluster[KEEPER].data / f"{REMOTE_LOG_METADATA_TOPIC}-0"
        old, new = (self.cluster.directory / f"metadata-{age}" for age in ("old", "new"))
        play.stop(KEEPER)
        shutil.copytree(metadata, old)
        play.start(KEEPER)
        before = self.segments(play)
        write(play, 2)
        play.until("there is a new segment", lambda: len(self.segments(play)) > len(before))
        lost = self.segments(play)[len(before)]
        play.until("it is in the tier alone", lambda: play.offset(EARLIEST_LOCAL)[1] > lost.base)
        play.stop(KEEPER)
        metadata.rename(new)
        old.rename(metadata)
        try:
            yield lost
        finally:
            if self.cluster[KEEPER].is_running:
                play.stop(KEEPER)
            shutil.rmtree(metadata)
            new.rename(metadata)
            play.start(KEEPER)
        self.await_records(lost)


def write(play: Play, segments: int) -> None:
    """Append so many segments, and the record that closes the last of them where none did yet."""
    begin = play.until("somebody leads", lambda: play.offset(LATEST))[1]
    count = segments * PER_SEGMENT + (begin == 0)
    play.produce(*(f"v{number}" for number in range(begin, begin + count)))


def reads_from_the_beginning(passing: Passing) -> bool:
    """Whether it is a Fetch of a partition's first record."""
    request = passing.request
    if not isinstance(request, FetchRequest):
        return False
    return any(part.fetch_offset == 0 for topic in request.topics for part in topic.partitions)


@contextlib.contextmanager
def cold_topic(directory: Path, server: Server) -> Iterator[ColdTopic]:
    """Start both nodes, and fill the topics."""
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(StoreProxy(server))
        settings = {**settings_of_ours(server.uri, proxy.settings), **_SETTINGS}
        cluster = Cluster(directory, [(FIRNLINE, COMBINED), (FIRNLINE, BROKER)], settings)
        line = stack.enter_context(Proxy(cluster[KEEPER].address))
        cluster.advertised_ports[KEEPER] = line.port
        cluster[KEEPER].settings |= {
            "remote.log.storage.manager.class.name": "tests.compat.impatient_storage:ImpatientStorage",
            "remote.log.reader.threads": 1,
        }
        cluster.__enter__()
        stack.callback(cluster.kill)
        topic = ColdTopic(cluster, proxy, line, server)
        stack.callback(topic.play.close)
        stack.callback(topic.slow.close)
        with contextlib.closing(Play(topic.play.side, REMOTE_LOG_METADATA_TOPIC)) as metadata:
            metadata.until("there is a topic for the metadata", metadata.described)
            metadata.reassign(KEEPER)
        topic.prepare()
        yield topic
