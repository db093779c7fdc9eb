"""Steps of a scenario on a tiered topic, played on one cluster, and what was observed. WORLD.

    play.create([2, 3])                        # topic, one partition on brokers 2 and 3
    play.produce("a", "b", "c")                # a batch for each value
    play.expect_remote((0, 0), (1, 1))         # finished segments in the tier, and their objects
    play.expect_local_start(2)
    play.consume(0, "a", "b", "c", from_tier=2)

Every step asks over the wire, raw requests of fixed versions, so that Apache Kafka and Firnline are asked
the same. What a step observes goes into `play.seen`; by it, two clusters that played the same are compared.
Like Kafka's own TieredStorageTestBuilder, whose scenarios these are.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition, Uuid
from firnline.client.admin import Admin
from firnline.client.connection import Connection
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from firnline.protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from firnline.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from firnline.protocol.messages.k35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from firnline.protocol.messages.k43_elect_leaders import ElectionTopic, ElectLeadersRequest
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from firnline.records.build import NewRecord, build_batch
from firnline.tiered.metadata.cache import MetadataCache
from firnline.tiered.metadata.changes import from_record
from firnline.tiered.metadata.partitioner import metadata_partition_of
from firnline.tiered.metadata.records import decode
from firnline.tiered.spi import RemoteSegment, SegmentState, SegmentUpdate
from tests.peers.nodes import KAFKA, Cluster, Node, eventually
from tests.worlds.decoded import all_records

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -3, -4, -5
METADATA_PARTITIONS = 2
PATIENCE_S = 60.0
_ANY_EPOCH = -1
_PREFERRED, _UNCLEAN = 0, 1


class Side(NamedTuple):
    """A cluster that scenarios are played on.

    stored  base offsets of the segments of a partition whose log is in the store: topic, its id, partition
    """

    name: str
    cluster: Cluster
    stored: Callable[[str, Uuid, int], list[int]]


class Fetched(NamedTuple):
    """What a Fetch of one offset was answered: error code, diverging (epoch, end offset), first record."""

    error: int
    diverging: tuple[int, int]
    first: tuple[int, str] | None


class Play:
    """A scenario on one cluster with one topic."""

    def __init__(self, side: Side, topic: str) -> None:
        self.side, self.cluster, self.topic = side, side.cluster, topic
        self.seen: list[tuple[str, object]] = []
        self.admin = Admin(side.cluster.bootstrap, timeout_s=PATIENCE_S)
        self.begun_ms = int(time.time() * 1000)
        self._connections: dict[int, Connection] = {}
        self._id: Uuid | None = None

    def close(self) -> None:
        """Close its connections."""
        self.admin.close()
        for connection in self._connections.values():
            connection.close()

    def see(self, what: str, found: object) -> None:
        """Note what was observed, to be compared with the other cluster."""
        self.seen.append((what, found))

    # ------------------------------------------------------------------------------- topic

    def create(
        self,
        *replicas: Sequence[int],
        batches_per_segment: int = 1,
        is_tiered: bool = True,
        configs: Mapping[str, str] = {},
    ) -> None:
        """Create the topic, a partition for each list of replicas; wait until all are in sync.

        Segments end when their indexes are full, after so many batches.
        """
        every = {
            "remote.storage.enable": str(is_tiered).lower(),
            "local.retention.bytes": "1",
            "index.interval.bytes": "1",
            "segment.index.bytes": str(12 * batches_per_segment),
        }
        self.admin.create_topic(self.topic, configs={**every, **configs}, assignments=replicas)
        for partition, each in enumerate(replicas):
            self.await_replicas(partition, each)

    def configure(self, **changes: str) -> None:
        """Change settings of the topic; `_` stands for a dot."""
        self.admin.alter_topic(
            self.topic, changes={key.replace("_", "."): value for key, value in changes.items()}
        )

    def add_partitions(self, *replicas: Sequence[int]) -> None:
        """Add partitions with these replicas."""
        before = len(self.described())
        self.admin.set_partitions(self.topic, before + len(replicas), assignments=replicas)
        for partition, each in enumerate(replicas, before):
            self.await_replicas(partition, each)

    def described(self) -> dict[int, Any]:
        """Return what any broker tells of each partition."""
        for node in self.cluster.brokers:
            if node.is_running:
                with Admin(f"127.0.0.1:{node.port}", timeout_s=5) as admin:
                    (topic,) = admin.metadata([self.topic]).topics
                if topic.error_code == 0:
                    self._id = topic.topic_id
                    return {part.partition_index: part for part in topic.partitions}
        raise OSError(f"nobody knows {self.topic}")

    @property
    def topic_id(self) -> Uuid:
        """The id of the topic."""
        if self._id is None:
            self.described()
        assert self._id is not None
        return self._id

    def epoch(self, partition: int = 0) -> int:
        """Return the leader epoch that brokers tell."""
        return int(self.described()[partition].leader_epoch)

    def lead_uncleanly(self, leader: int, partition: int = 0) -> int:
        """Let a replica that is not in sync lead; return the leader epoch."""

        def leads() -> bool:
            self.elect(partition, _UNCLEAN)
            return bool(self.described()[partition].leader_id == leader)

        self.until(f"{leader} leads", leads)
        self.await_leader(leader, partition)
        return self.epoch(partition)

    def await_replicas(self, partition: int, replicas: Sequence[int], leader: int = -1) -> None:
        """Wait until the partition has just these replicas, all in sync and up, and is led (by `leader`)."""

        def are_there() -> bool:
            part = self.described().get(partition)
            return (
                part is not None
                and not part.offline_replicas
                and sorted(part.replica_nodes) == sorted(part.isr_nodes) == sorted(replicas)
                and part.leader_id in ([leader] if leader >= 0 else replicas)
            )

        self.until(f"{self.topic}-{partition} is on {replicas}", are_there)

    def await_leader(self, leader: int, partition: int = 0) -> None:
        """Wait until that broker leads, and says so itself."""
        self.until(
            f"{leader} leads {self.topic}-{partition}",
            lambda: (
                self.described()[partition].leader_id == leader and self.offset(LATEST, partition)
            ),
        )

    def reassign(self, *replicas: int, partition: int = 0) -> None:
        """Give the partition these replicas, and wait until they are in sync and the others gone."""
        self._reassign(replicas, partition)
        self.await_replicas(partition, replicas)

    def lead(self, leader: int, partition: int = 0) -> None:
        """Let another replica lead: make it the preferred one, then elect it."""
        replicas = self.described()[partition].replica_nodes
        self._reassign([leader, *(each for each in replicas if each != leader)], partition)
        self.until(
            "the order of replicas is known",
            lambda: self.described()[partition].replica_nodes[0] == leader,
        )
        self.elect(partition, _PREFERRED)
        self.await_replicas(partition, replicas, leader)
        self.await_leader(leader, partition)

    def elect(self, partition: int, kind: int = _UNCLEAN) -> None:
        """Ask for an election; an answer that none is needed is taken."""
        topics = [ElectionTopic(topic=self.topic, partitions=[partition])]
        request = ElectLeadersRequest(election_type=kind, topic_partitions=topics)
        self.live_admin().controller().ask(request, version=2)

    def _reassign(self, replicas: Sequence[int], partition: int) -> None:
        row = ReassignablePartition(partition_index=partition, replicas=list(replicas))
        topics = [ReassignableTopic(name=self.topic, partitions=[row])]
        request = AlterPartitionReassignmentsRequest(topics=topics)
        answer = self.live_admin().controller().ask(request, version=0)
        assert answer.error_code == 0, answer
        assert answer.responses[0].partitions[0].error_code == 0, answer

    def live_admin(self) -> Admin:
        """A client to ask now, whatever was down before."""
        self.admin.close()
        alive = (node for node in self.cluster.brokers if node.is_running)
        self.admin = Admin(",".join(f"127.0.0.1:{n.port}" for n in alive), timeout_s=PATIENCE_S)
        return self.admin

    # ------------------------------------------------------------------------------- records

    def produce(self, *values: str, partition: int = 0, timestamps_ms: Sequence[int] = ()) -> None:
        """Append a batch of one record for each value, acks=all."""
        times = timestamps_ms or [self.begun_ms] * len(values)
        for value, at_ms in zip(values, times, strict=True):
            record = NewRecord(b"k", value.encode(), at_ms)
            self.append(bytes(build_batch([record])), partition)

    def append(self, batch: bytes, partition: int = 0, transactional_id: str | None = None) -> int:
        """Append a batch, acks=all; return its offset."""
        data = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=data)],
        )

        def answered() -> Any:
            answer = self.leader(partition).ask(request, version=9)
            row = answer.responses[0].partition_responses[0]
            if row.error_code in (3, 5, 6, 19, 20):  # not yet: no leader, no replicas
                raise OSError(f"produce: error {row.error_code}")
            return row

        row = self.until("a batch is appended", answered)
        assert row.error_code == 0, row
        return int(row.base_offset)

    def consume(
        self, begin: int, *values: str, partition: int = 0, from_tier: int | None = None
    ) -> None:
        """Read from `begin` to the high watermark; `from_tier` is how many of them are in the tier alone."""
        found = self.read(begin, partition)
        assert [value for _, value in found] == list(values), f"{self.side.name}: {found}"
        self.see(f"consume {partition}", found)
        if from_tier is not None:
            start = self.offset(EARLIEST_LOCAL, partition)[1]
            remote = sum(offset < start for offset, _ in found)
            assert remote == from_tier, f"{self.side.name}: {found} with a local start of {start}"

    def read(self, begin: int, partition: int = 0) -> list[tuple[int, str]]:
        """Return offset and value of each record from `begin` to the high watermark.

        As consumers do, it starts at the log start offset when `begin` is no longer there.
        """
        rows: list[tuple[int, str]] = []
        at, deadline = begin, time.monotonic() + PATIENCE_S
        while True:
            row = self.until("a fetch", lambda: self.fetch_row(at, partition))  # noqa: B023
            if row.error_code == 1 and at == begin:
                self.see("out of range", begin)
                at = self.offset(EARLIEST, partition)[1]
            else:
                # Kafka says -1 while it loads the tier's metadata after a start (T41).
                soon = (6, 9, 78, *((-1,) if self.side.name == KAFKA else ()))
                assert row.error_code in (0, *soon), f"{self.side.name}: {at}: {row.error_code}"
                for record in all_records(bytes(row.records or b"")):
                    if record.offset >= at:
                        rows.append((record.offset, bytes(record.value or b"").decode()))
                        at = record.offset + 1
            if row.error_code == 0 and at >= row.high_watermark:
                return rows
            assert time.monotonic() < deadline, f"{self.side.name}: nothing at {at}: {row}"

    def fetch_row(
        self,
        offset: int,
        partition: int = 0,
        *,
        node: int = -1,
        current_epoch: int = -1,
        last_epoch: int = -1,
        replica: int = -1,
        isolation: int = 0,
    ) -> Any:
        """Ask the leader, or `node`, for one byte at least from `offset`; return the row of the answer."""
        wanted = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            current_leader_epoch=current_epoch,
            last_fetched_epoch=last_epoch,
            log_start_offset=0 if replica >= 0 else -1,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            replica_id=replica,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=[wanted])],
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
        )
        connection = self.leader(partition) if node < 0 else self.connection(node)
        answer = connection.ask(
            request, version=14
        )  # the first that has OFFSET_MOVED_TO_TIERED_STORAGE
        return answer.responses[0].partitions[0]

    def fetch(self, offset: int, **fields: int) -> Fetched:
        """Return what a Fetch of that offset is answered, once the answer is a record or an error."""
        last: list[Any] = [None]

        def said() -> bool:
            last[0] = row = self.fetch_row(offset, **fields)
            return bool(
                row.error_code not in (0, 9) or row.records or row.diverging_epoch.epoch >= 0
            )

        with contextlib.suppress(AssertionError):
            eventually("an answer", said, within_s=5)
        row = last[0]
        there = [r for r in all_records(bytes(row.records or b"")) if r.offset >= offset]
        first = (there[0].offset, bytes(there[0].value or b"").decode()) if there else None
        diverging = (row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
        found = Fetched(row.error_code, diverging, first)
        self.see(f"fetch {offset} {sorted(fields.items())}", found)
        return found

    # ------------------------------------------------------------------------------- offsets

    def offset(
        self, wish: int, partition: int = 0, *, node: int = -1, isolation: int = 0
    ) -> tuple[int, int, int]:
        """Return error, offset and leader epoch that ListOffsets answers. OSError while there is none."""
        row = ListOffsetsPartition(partition_index=partition, timestamp=wish)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=self.topic, partitions=[row])],
            timeout_ms=10_000,
        )
        connection = self.leader(partition) if node < 0 else self.connection(node)
        answer = connection.ask(request, version=10).topics[0].partitions[0]
        if answer.error_code in (3, 5, 6, 78):  # not yet
            raise OSError(f"ListOffsets: error {answer.error_code}")
        return answer.error_code, answer.offset, answer.leader_epoch

    def expect_offset(
        self, wish: int, offset: int, epoch: int | None = None, partition: int = 0
    ) -> None:
        """Wait until ListOffsets answers that offset (and epoch) for that wish."""
        last: list[object] = [None]

        def is_so() -> bool:
            last[0] = found = self.offset(wish, partition)
            return found[:2] == (0, offset) and epoch in (None, found[2])

        try:
            self.until(f"ListOffsets({wish}) is {offset}", is_so)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; answered was {last[0]}") from None
        asked = wish if wish < 0 else f"begin + {wish - self.begun_ms}"
        self.see(f"offset {asked} of {partition}", last[0])

    def expect_local_start(self, offset: int, partition: int = 0) -> None:
        """Wait until the leader's local log starts there."""
        self.expect_offset(EARLIEST_LOCAL, offset, partition=partition)

    def delete_records(self, before: int, partition: int = 0) -> None:
        """Delete the records below an offset."""
        row = DeleteRecordsPartition(partition_index=partition, offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=self.topic, partitions=[row])], timeout_ms=20_000
        )
        answer = self.leader(partition).ask(request, version=2).topics[0].partitions[0]
        self.see(f"delete records {before}", (answer.error_code, answer.low_watermark))
        assert (answer.error_code, answer.low_watermark) == (0, before), self.side.name

    def epoch_end(self, epoch: int, partition: int = 0) -> tuple[int, int, int]:
        """Return error, epoch and end offset that OffsetsForLeaderEpoch answers."""
        row = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=self.topic, partitions=[row])]
        )
        answer = self.leader(partition).ask(request, version=4).topics[0].partitions[0]
        found = (answer.error_code, answer.leader_epoch, answer.end_offset)
        self.see(f"end of epoch {epoch}", found)
        return found

    # ------------------------------------------------------------------------------- tier

    def remote(self, partition: int = 0) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
        """Return (start, end, leader epochs) of each finished segment, as the tier's metadata tells."""
        segments = self.segments(partition)
        done = (each for each in segments if each.state == SegmentState.COPY_FINISHED)
        return sorted(
            (s.base_offset, s.end_offset, tuple((e, start) for e, start in s.epochs)) for s in done
        )

    def segments(self, partition: int = 0) -> list[RemoteSegment]:
        """Return the segments that the tier's metadata has, in any state."""
        cache = MetadataCache()
        for change in self._changes(partition):
            if isinstance(change, RemoteSegment):
                cache.add(change)
            elif isinstance(change, SegmentUpdate):
                cache.update(change)
        return list(cache.segments())

    def expect_remote(self, *segments: tuple[int, int], partition: int = 0) -> None:
        """Wait until just these segments (start, end) are finished, and their objects in the store."""
        last: list[Any] = [None, None]

        def is_so() -> bool:
            last[0] = found = [(start, end) for start, end, _ in self.remote(partition)]
            last[1] = stored = self.stored(partition)
            return found == list(segments) and stored == [start for start, _ in segments]

        try:
            self.until("segments are in the tier", is_so)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; there are {last}, not {segments}") from None
        self.see(f"remote {partition}", self.remote(partition))

    def stored(self, partition: int = 0) -> list[int]:
        """Return the base offsets of the segments whose log is in the store."""
        return self.side.stored(self.topic, self.topic_id, partition)

    def expect_nothing_stored(self, partition: int = 0) -> None:
        """Wait until the store has nothing of the partition."""
        self.until("the store is empty", lambda: not self.stored(partition))
        self.see(f"stored {partition}", [])

    def _changes(self, partition: int) -> list[Any]:
        where = metadata_partition_of(
            TopicIdPartition(self.topic_id, partition), METADATA_PARTITIONS
        )
        with contextlib.closing(Play(self.side, REMOTE_LOG_METADATA_TOPIC)) as reader:
            records = reader.read_records(where)
        changes = (from_record(decode(value)) for value in records)
        return [
            each
            for each in changes
            if each is not None and (each.topic_id, each.partition) == (self.topic_id, partition)
        ]

    def read_records(self, partition: int) -> list[bytes]:
        """Return the values of all records of a partition of its topic."""
        values: list[bytes] = []
        at = 0
        while True:
            row = self.fetch_row(at, partition)
            if row.error_code != 0:
                raise OSError(f"{self.topic}-{partition}: error {row.error_code}")
            for record in all_records(bytes(row.records or b"")):
                if record.offset >= at:
                    values.append(bytes(record.value or b""))
                    at = record.offset + 1
            if at >= row.high_watermark:
                return values

    # ------------------------------------------------------------------------------- brokers

    def directory(self, node: int, partition: int = 0) -> tuple[str, list[str]]:
        """Return the log directory of a replica, once it does not move, and the broker's other ones."""

        def holders() -> list[tuple[bool, str]]:
            topics = [DescribableLogDirTopic(topic=self.topic, partitions=[partition])]
            answer = self.connection(node).ask(DescribeLogDirsRequest(topics=topics), version=2)
            rows = [
                (any(t.partitions for t in result.topics), result.log_dir)
                for result in answer.results
            ]
            return rows if sum(is_held for is_held, _ in rows) == 1 else []

        found = self.until("a replica is in one directory", holders)
        (mine,) = (path for is_held, path in found if is_held)
        return mine, [path for is_held, path in found if not is_held]

    def move_to(self, path: str, node: int, partition: int = 0) -> int:
        """Ask a broker to move its replica to another log directory; return the error code."""
        topics = [AlterReplicaLogDirTopic(name=self.topic, partitions=[partition])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
        answer = self.connection(node).ask(request, version=2)
        return int(answer.results[0].partitions[0].error_code)

    def bounce(self, *nodes: int, while_down: Callable[[Node], object] = lambda node: None) -> None:
        """Stop brokers, let something happen to each, and start them again."""
        for number in nodes:
            self.stop(number)
        for number in nodes:
            while_down(self.node(number))
        for number in nodes:
            self.node(number).start(wait=False)
        for number in nodes:
            self.node(number).await_answer()

    def stop(self, number: int) -> None:
        """Stop a broker."""
        self.node(number).stop()
        if (connection := self._connections.pop(number, None)) is not None:
            connection.close()

    def start(self, number: int, *, is_wiped: bool = False) -> None:
        """Start a broker that was stopped, on an empty disk if it `is_wiped`."""
        if is_wiped:
            self.node(number).wipe()
        self.node(number).start()

    def node(self, number: int) -> Node:
        """Return a node of the cluster."""
        return self.cluster[number]

    def connection(self, node: int) -> Connection:
        """Return a connection to a broker, kept for later."""
        if node not in self._connections:
            self._connections[node] = Connection(*self.node(node).address, timeout_s=PATIENCE_S)
        return self._connections[node]

    def leader(self, partition: int = 0) -> Connection:
        """Return a connection to the leader. OSError while there is none."""
        part = self.described().get(partition)
        if part is None or part.leader_id < 0:
            raise OSError(f"nobody leads {self.topic}-{partition}")
        return self.connection(part.leader_id)

    def until(self, what: str, look: Callable[[], Any]) -> Any:
        """Return the first true answer of `look`."""
        return eventually(f"{self.side.name}: {what}", look, within_s=PATIENCE_S)
