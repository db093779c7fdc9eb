"""A small world for the tier: nodes with real logs on a disk in memory, one metadata topic, one store.

Effects are carried out one by one and counted, so that a test can stop a node before or after any of
them. Appends to `__remote_log_metadata` are committed at once unless a plan says otherwise.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from firnline.base.effects import (
    Append,
    Appended,
    Effect,
    Effects,
    EnsureTopic,
    Submit,
)
from firnline.base.errors import Code, KafkaError, ProtocolError, StorageError
from firnline.base.ids import TopicIdPartition, TopicPartition, Uuid, uuid_text
from firnline.config.topic import TopicConfig
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.records.batch import headers, set_offset_and_epoch
from firnline.records.build import NewRecord, build_batch
from firnline.records.record import records
from firnline.sim.disk import CrashableFs
from firnline.stores.memory import MemoryStore
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.metadata.changes import from_record
from firnline.tiered.metadata.records import decode
from firnline.tiered.objects.layout import DATA_FOLDER
from firnline.tiered.objects.storage import ObjectStorage
from firnline.tiered.remote_log import RemoteLog
from firnline.tiered.settings import TierSettings
from firnline.tiered.spi import IndexKind, RemoteSegment, SegmentData, SegmentState, SegmentUpdate
from tests.worlds.chance import CountingRng, SeededRng
from tests.worlds.clock import FakeClock
from tests.worlds.effects import World

TOPIC_ID = bytes(15) + b"\x07"
WHERE = TopicIdPartition(TOPIC_ID, 0)
TP = TopicPartition("t", 0)


class Crash(BaseException):
    """The node is gone in the middle of an effect."""


# Those of the test that runs; `tests/unit/tiered/conftest.py` looks for orphans in each when it is over.
CLUSTERS: deque["Cluster"] = deque(maxlen=200)


@dataclass
class Cluster:
    """What outlives every node: the metadata topic, the store, the image."""

    partitions: int = 3
    store: MemoryStore = field(default_factory=MemoryStore)
    metadata: dict[int, list[bytes]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    topics: dict[Uuid, str] = field(default_factory=lambda: {TOPIC_ID: "t"})
    has_topic: bool = True
    leads: dict[int, int] = field(default_factory=dict)  # metadata partition -> node; default: all
    clock: FakeClock = field(default_factory=lambda: FakeClock(1_000_000))
    given_up: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        CLUSTERS.append(self)

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self.clock.now_ms = now_ms

    def known(self) -> dict[bytes, SegmentState]:
        """What the metadata topic says of each segment that is not deleted."""
        caches: dict[tuple[bytes, int], MetadataCache] = {}
        for batch in (batch for batches in self.metadata.values() for batch in batches):
            (header,) = headers(batch)
            for record in records(batch, header):
                try:
                    change = None if record.value is None else from_record(decode(record.value))
                except (ProtocolError, ValueError):
                    continue
                if change is not None:
                    cache = caches.setdefault((change.topic_id, change.partition), MetadataCache())
                    if isinstance(change, RemoteSegment):
                        cache.add(change)
                    elif isinstance(change, SegmentUpdate):
                        cache.update(change)
        return {s.segment_id: s.state for cache in caches.values() for s in cache.segments()}

    def orphans(self) -> list[str]:
        """Objects of segments that the metadata does not know: nobody will ever delete them."""
        known = {uuid_text(segment_id) for segment_id in self.known()}
        found = [key for key in self.store.objects if key.startswith(DATA_FOLDER)]
        return [key for key in found if key.rpartition("/")[2][21:43] not in known]

    def append(self, partition: int, batch: bytearray) -> Appended:
        base = self.ends.get(partition, 0)
        set_offset_and_epoch(batch, 0, base, 0)
        (header,) = headers(batch)
        self.metadata.setdefault(partition, []).append(bytes(batch))
        self.ends[partition] = header.next_offset
        return Appended(
            base_offset=base,
            last_offset=header.last_offset,
            log_append_time_ms=-1,
            log_start_offset=0,
        )


class Feed:
    """`MetadataTopicReader` on the cluster's topic, for one node."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster, self.node_id = cluster, node_id
        self.hidden: dict[int, int] = {}  # high watermarks this node knows, where they lag

    def partition_count(self) -> int | None:
        return self.cluster.partitions if self.cluster.has_topic else None

    def bounds(self, partition: int) -> tuple[int, int] | None:
        end = self.cluster.ends.get(partition, 0)
        return 0, min(end, self.hidden.get(partition, end))

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        bounds = self.bounds(partition)
        assert bounds is not None
        out = b""
        batches = self.cluster.metadata.get(partition, [])
        first = bisect_right(batches, offset, key=lambda each: next(headers(each)).next_offset)
        for batch in islice(batches, first, None):
            (header,) = headers(batch)
            if header.last_offset >= bounds[1]:
                break
            if out and len(out) + len(batch) > max_bytes:
                break
            out += batch
        return out

    def read_failed(self, partition: int, problem: Any, now_ms: int) -> Effects:
        raise problem

    def given_up(self, partition: int) -> list[tuple[int, int]]:
        return self.cluster.given_up.get(partition, [])

    def fork(self, partition: int, offset: int, epoch: int) -> int | None:
        return None  # one log, which only grows

    def catch_up(
        self, positions: Any, then: Any, now_ms: int, *, is_fresh: bool = False
    ) -> Effects:
        return []  # all is read as if it were led here

    def leads(self, partition: int) -> bool:
        return self.cluster.leads.get(partition, self.node_id) == self.node_id


class FaultyStorage:
    """A RemoteStorage whose next calls fail, before or after they did their work."""

    def __init__(self, inner: ObjectStorage) -> None:
        self.inner = inner
        self.faults: dict[str, list[tuple[Exception, str]]] = {}
        self.custom_metadata: bytes | None = None
        self.calls: list[str] = []

    def fail(self, call: str, error: Exception, when: str = "before", times: int = 1) -> None:
        self.faults.setdefault(call, []).extend([(error, when)] * times)

    def _do(self, call: str, work: Callable[[], Any]) -> Any:
        self.calls.append(call)
        waiting = self.faults.get(call)
        if not waiting:
            return work()
        error, when = waiting.pop(0)
        if when == "after":
            work()
        raise error

    def configure(self, settings: Any) -> None:
        pass

    def copy_segment(self, segment: RemoteSegment, data: SegmentData) -> bytes | None:
        known: bytes | None = self._do("copy", lambda: self.inner.copy_segment(segment, data))
        return known if self.custom_metadata is None else self.custom_metadata

    def fetch_segment(self, segment: RemoteSegment, position: int, size_bytes: int) -> bytes:
        return self._do("fetch", lambda: self.inner.fetch_segment(segment, position, size_bytes))

    def fetch_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        return self._do("index", lambda: self.inner.fetch_index(segment, kind))

    def delete_segment(self, segment: RemoteSegment) -> None:
        self._do("delete", lambda: self.inner.delete_segment(segment))

    def delete_segments(self, segments: Sequence[RemoteSegment]) -> None:
        self._do("delete", lambda: self.inner.delete_segments(segments))

    def close(self) -> None:
        pass


SETTINGS = {
    "metadata_partitions": 3,
    "task_interval_ms": 1000,
    "retry_backoff_ms": 100,
    "dangling_after_ms": 60_000,
    "late_put_ms": 10_000,
    "metadata_consume_wait_ms": 5_000,
    "remover_interval_ms": 5_000,
    "fetch_max_wait_ms": 2_000,
    "delete_delay_ms": 0,
}


def topic_config(**changes: Any) -> TopicConfig:
    values: dict[str, Any] = {
        "remote_storage_enable": True,
        "retention_ms": -1,
        "index_interval_bytes": 1,
        "local_retention_bytes": 0,
        "local_retention_ms": -1,
        "file_delete_delay_ms": 0,
    }
    return TopicConfig(**{**values, **changes})


class Node(World):
    """One broker's tier, with the log of t-0, and its effects."""

    def __init__(
        self,
        cluster: Cluster,
        node_id: int = 1,
        *,
        fs: CrashableFs | None = None,
        config: TopicConfig | None = None,
        rng: CountingRng | None = None,
        is_plugin: bool = False,
        **settings: Any,
    ) -> None:
        """With `is_plugin` the storage is no object store: it has no catalog, and nothing to probe."""
        super().__init__(cluster.clock)
        self.cluster, self.node_id = cluster, node_id
        self.fs: CrashableFs = fs or CrashableFs()
        self.fs.make_dir("/data")
        self.config = config or topic_config()
        self.log: Log = open_log(
            self.fs,
            "/data/t-0",
            TP,
            topic_id=TOPIC_ID,
            config=self.config,
            now_ms=cluster.now_ms,
            was_clean=False,
        )
        self.feed = Feed(cluster, node_id)
        # Ids tell who made them. A node that comes back goes on with the `rng` it had: an id is used once.
        self.rng = rng or CountingRng(((0x40 + node_id) << 120) + 1)
        self.storage = FaultyStorage(ObjectStorage(cluster.store))
        self.tier = RemoteLog(
            TierSettings(node_id=node_id, **{**SETTINGS, **settings}),
            storage=self.storage,
            feed=self.feed,
            fs=self.fs,
            rng=self.rng,
            topic_exists=lambda topic_id: topic_id in cluster.topics,
            log_dir="/data",
            catalog=None if is_plugin else cluster.store,
        )
        self.append_faults: list[str] = []  # "refused", "lost": committed but not answered
        self.steps = 0
        self.crash_at: tuple[int, str] | None = None
        self.trace: list[str] = []

    # ------------------------------------------------------------------------------------ effects

    def result_of(self, effect: Effect) -> Any:
        """Carry out what touches the world: a step that a crash can come before or after."""
        if isinstance(effect, EnsureTopic):
            return super().result_of(effect)
        self.steps += 1
        if isinstance(effect, Submit):
            name = effect.name
        else:
            assert isinstance(effect, Append)
            name = f"append {effect.topic_partition}"
        self.trace.append(name)
        if self.crash_at == (self.steps, "before"):
            raise Crash(name)
        result = super().result_of(effect)
        if self.crash_at == (self.steps, "after"):
            raise Crash(name)
        return result

    def appended(self, effect: Append) -> Appended | KafkaError:
        fault = self.append_faults.pop(0) if self.append_faults else "none"
        if fault == "refused":
            return KafkaError(Code.NOT_ENOUGH_REPLICAS, "refused")
        appended = self.cluster.append(effect.topic_partition.partition, effect.batch)
        if fault == "lost":
            return KafkaError(Code.REQUEST_TIMED_OUT, "the answer was lost")
        return appended

    # ---------------------------------------------------------------------------------------- log

    def start(self) -> "Node":
        self.run(self.tier.start(self.cluster.now_ms))
        return self

    def lead(self, epoch: int) -> "Node":
        self.log.epochs.assign(epoch, self.log.log_end_offset)
        self.role(is_leader=True, epoch=epoch)
        return self

    def role(self, *, is_leader: bool, epoch: int) -> None:
        self.run(
            self.tier.on_leadership(
                self.log, is_leader=is_leader, leader_epoch=epoch, now_ms=self.cluster.now_ms
            )
        )

    def produce(self, epoch: int, *texts: str, roll: bool = True, **batch: Any) -> None:
        """Append one batch per text, commit it, and close the segment."""
        rows = [NewRecord(None, text.encode(), self.cluster.now_ms) for text in texts]
        self.append(epoch, *rows, roll=roll, **batch)

    def end_transaction(
        self, epoch: int, producer_id: int, *, is_commit: bool, roll: bool = True
    ) -> None:
        """Append the marker of a coordinator, commit it, and close the segment."""
        row = NewRecord(b"\0\0\0\1" if is_commit else bytes(4), bytes(6), self.cluster.now_ms)
        self.append(
            epoch,
            row,
            roll=roll,
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )

    def append(self, epoch: int, *rows: NewRecord, roll: bool, **batch: Any) -> None:
        """Append one batch per row, commit it, and maybe close the segment."""
        for row in rows:
            data = build_batch([row], **batch)
            result = self.log.append_as_leader(
                data,
                leader_epoch=epoch,
                now_ms=self.cluster.now_ms,
                origin="coordinator" if batch.get("is_control") else "client",
            )
            assert isinstance(result, Appended), result
        self.log.sync_now()
        self.log.advance_high_watermark(self.log.log_end_offset)
        if roll:
            self.log.roll(self.cluster.now_ms)

    def follow(self, leader: "Node") -> None:
        """Replicate what the leader has locally."""
        log = leader.log
        at = max(self.log.log_end_offset, log.local_log_start_offset)
        while at < log.log_end_offset:
            data = bytearray(log.read_batches(at, max_bytes=1 << 20))
            result = self.log.append_as_follower(
                data, leader_epoch=log.epochs.latest_epoch, now_ms=self.cluster.now_ms
            )
            assert isinstance(result, Appended), result
            at = self.log.log_end_offset
        for epoch, start in log.epochs.entries():
            if epoch > self.log.epochs.latest_epoch:
                self.log.epochs.assign(epoch, start)
        self.log.sync_now()
        self.log.advance_high_watermark(log.high_watermark)
        self.log.advance_log_start(log.log_start_offset)

    def poll_metadata(self, partition: int) -> Effects:
        """Have the tier read on in a partition of its metadata now, before the timer does."""
        metadata = self.tier._topic_metadata
        assert metadata is not None
        return metadata.poll(partition, self.cluster.now_ms)

    def expire_local(self) -> None:
        """All that is due; the log itself gives up so many segments a turn."""
        self.run(self.log.delete_due_segments(self.cluster.now_ms))
        while ("retention", self.log.path) in self.timers:
            self.fire(("retention", self.log.path))

    def damage(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Change the bytes of a file behind the node's back."""
        file = self.fs.open(path)
        data = change(file.read(0, file.size()))
        file.truncate(0)
        if data:
            file.append(data)
        file.close()

    def crash(self) -> CrashableFs:
        return self.fs.crash(SeededRng(0), keep="all")

    # -------------------------------------------------------------------------------------- reads

    def read(self, offset: int, max_bytes: int = 1 << 20, isolation: int = 0) -> Any:
        """Return RemoteLogReadResult or KafkaError."""
        answers: list[Any] = []

        def then(result: Any, now_ms: int) -> Effects:
            answers.append(result)
            return []

        self.run(
            self.tier.read(
                TP,
                TOPIC_ID,
                offset,
                self.log.epochs.epoch_at(offset) or 0,
                max_bytes,
                isolation,
                then,
                self.cluster.now_ms,
            )
        )
        for _ in range(50):
            if answers:
                break
            self.pass_time(100)
        assert len(answers) == 1, "a read is answered once"
        return answers[0]

    def read_all(self) -> dict[int, bytes]:
        """Return {base offset: batch bytes} of the whole log, from whichever tier has it."""
        found: dict[int, bytes] = {}
        at = self.log.log_start_offset
        while at < self.log.high_watermark:
            if at < self.log.local_log_start_offset:
                result = self.read(at, max_bytes=1)
                assert not isinstance(result, KafkaError), (at, result)
                data = bytes(result.records)
            else:
                data = self.log.read_batches(at, max_bytes=1)
            assert data, f"nothing at {at}"
            for header in headers(data):
                found[header.base_offset] = bytes(
                    data[header.position : header.position + header.size_bytes]
                )
                assert header.next_offset > at, "reads go on"
                at = header.next_offset
        return found

    def segments(self) -> list[RemoteSegment]:
        found = self.tier.services.metadata.segments(WHERE)
        assert not isinstance(found, KafkaError), found
        return list(found)


def with_ten_of_which_six_may_stay(cluster: Cluster) -> Node:
    """A leader with ten segments of one record each; the store is down, and retention.bytes is of six."""
    node = Node(cluster).start().lead(0)
    node.storage.fail("copy", StorageError("503"), times=10_000)
    for number in range(10):
        node.produce(0, f"m{number}")
    each_bytes = node.log.closed_segments()[0].size_bytes
    node.log.config = topic_config(retention_bytes=6 * each_bytes)
    return node
