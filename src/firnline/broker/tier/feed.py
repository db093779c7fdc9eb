"""Reads `__remote_log_metadata`: the partitions that this node leads, and those of other leaders. PURE.

The tier acts on a metadata record once the record cannot be lost any more: when it is committed, and, if this
node is the only one in the ISR and answers wait for the disk, synced (rel-T2, rel-P12). A partition may have
lost records and grown again; so the epochs of what was read before are compared with the leader's history.
Source: KIP-405, KIP-320, KIP-595; spec 3.12.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from firnline.base.effects import Appended, Effects
from firnline.base.errors import Code, ConfigError, KafkaError, StorageError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC, TopicPartition, Uuid
from firnline.broker.list_offsets import EARLIEST, LATEST
from firnline.config.tiered import parse_given_up
from firnline.metadata.image import NO_LEADER
from firnline.metadata.quorum import MetadataQuorum
from firnline.records.batch import headers
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import ACKS_ALL, Partition

NO_EPOCH = -1


class Fork(NamedTuple):
    """The leader's history differs from what was read; both agree at most up to `offset`."""

    offset: int


class TopicClientPort(Protocol):
    """Reads and appends at other brokers: `outbound.topic_client.TopicClient`."""

    def offsets(
        self,
        leader_id: int,
        topic: str,
        partitions: Mapping[int, int],
        which: int,
        then: Callable[[Mapping[int, int | KafkaError], int], Effects],
        now_ms: int,
    ) -> Effects:
        """Find the start (EARLIEST) or the committed end (LATEST) of each partition.

        `partitions` has the leader epochs in which this node believes.
        """
        ...

    def read_committed_records(
        self,
        leader_id: int,
        where: TopicPartition,
        topic_id: Uuid,
        offset: int,
        then: Callable[[tuple[int, bytes] | Fork | KafkaError, int], Effects],
        now_ms: int,
        *,
        leader_epoch: int,
        last_epoch: int,
    ) -> Effects:
        """Read (log start offset, complete batches from the one with `offset` on).

        leader_epoch  the epoch in which the broker is believed to lead
        last_epoch    of the record before `offset`, or -1
        """
        ...

    def append(
        self,
        leader_id: int,
        where: TopicPartition,
        topic_id: Uuid,
        batch: bytearray,
        then: Callable[[Appended | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Append one batch with acks=all."""
        ...


Grown = Callable[[int, int], Effects]
AppendThen = Callable[[Appended | KafkaError, int], Effects]
Leader = tuple[int, int]  # node id, leader epoch


class _Mirror:
    """The state of a metadata partition that another broker leads.

    end             the committed end in the last response of `leader`; None while unknown
    unverified_end  the same, before it is known that what was read is part of the leader's history
    records         the last complete batches that were read, from offset `at` on
    epoch           of the record before `position`
    verified        the leader that has confirmed that this is its history
    fork            the offset at which the leader's history differs
    is_busy         a request is under way
    is_again        another request follows it
    """

    __slots__ = (
        *("at", "end", "epoch", "fork", "is_again", "is_busy", "leader", "log_start", "position"),
        *("records", "unverified_end", "verified"),
    )

    def __init__(self) -> None:
        self.leader: Leader | None = None
        self.log_start = 0
        self.end: int | None = None
        self.unverified_end = 0
        self.at = self.position = 0
        self.epoch = NO_EPOCH
        self.verified: Leader | None = None
        self.fork: int | None = None
        self.records = b""
        self.is_busy = self.is_again = False


class MetadataFeed:
    """Reads the partitions of `__remote_log_metadata`: `tiered.metadata.topic_reader.MetadataTopicReader`.

    A follower of a partition also reads from its leader: its own copy may lack the newest records, and the
    segments they describe would be copied to the tier twice.

    topic_client  reads and appends at other brokers, or None
    given_up      the present value of firnline.remote.log.metadata.given.up
    on_storage_error(partition, now_ms)  called for a partition whose disk has failed
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        quorum: MetadataQuorum,
        topic_client: TopicClientPort | None = None,
        given_up: Callable[[], Iterable[str]] = tuple,
        on_storage_error: Callable[[Partition, int], Effects] = lambda *_: [],
    ) -> None:
        self._hosted = hosted
        self._quorum = quorum
        self._topic_client = topic_client
        self._given_up = given_up
        self._on_storage_error = on_storage_error
        self._mirrors: dict[int, _Mirror] = {}
        self._greatest_ends: dict[int, int] = {}  # of partitions that this node leads

    def partition_count(self) -> int | None:
        """The number of partitions in the committed image; None while the topic does not exist."""
        topic = self._quorum.image.topic(REMOTE_LOG_METADATA_TOPIC)
        return None if topic is None else len(topic.partitions)

    def bounds(self, partition: int) -> tuple[int, int] | None:
        """Return (log start offset, end of the records that cannot be lost).

        None while that is not certain: another leader has not answered yet, or records of earlier epochs are
        not synced. With an end that is too low the tier would copy segments twice.
        """
        found = self._led(partition)
        if found is None:
            mirror = self._mirrors.get(partition)
            if mirror is None or mirror.end is None or mirror.leader != self._leader(partition):
                return None
            return mirror.log_start, mirror.end
        end = _believed_end(found)
        if end < _inherited_end(found):
            return None
        # The end does not fall when followers leave the ISR, while the records are in the log.
        greatest = self._greatest_ends.get(partition, 0)
        if end < greatest <= found.log.log_end_offset:
            end = greatest
        self._greatest_ends[partition] = end
        return found.log.log_start_offset, end

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Return complete batches from the one with `offset` on; empty at the end. See the protocol."""
        bounds = self.bounds(partition)
        if bounds is None or offset >= bounds[1]:
            return b""
        found = self._led(partition)
        if found is None:
            return _batches(self._mirrors[partition], offset, max_bytes)
        return found.log.read(offset, max_bytes=max_bytes, upto_offset=bounds[1]).read()

    def read_failed(self, partition: int, problem: StorageError, now_ms: int) -> Effects:
        """Take the directory offline after an error of the disk: then another replica leads.

        Bytes that are not as they were written are no error of the disk.
        """
        found = self._led(partition)
        if found is None or "error" not in problem.facts:
            return []
        found.go_offline(problem)
        return self._on_storage_error(found, now_ms)

    def given_up(self, partition: int) -> list[tuple[int, int]]:
        """The unreadable offsets that the operator has given up."""
        spans: list[tuple[int, int]] = []
        for text in self._given_up():
            try:
                index, first, last = parse_given_up(text)
            except ConfigError:  # written by another release: this one refuses such a value
                continue
            if index == partition:
                spans.append((first, last))
        return spans

    def leads(self, partition: int) -> bool:
        """Whether this node leads that metadata partition."""
        return self._led(partition) is not None

    def fork(self, partition: int, offset: int, epoch: int) -> int | None:
        """Return where the records up to `offset`, the last in `epoch`, leave the leader's history, or None.

        After an unclean election, or with an old disk, a partition loses records and grows again beyond its
        earlier end: only epochs show that (KIP-595).
        """
        found = self._led(partition)
        if found is None:
            mirror = self._mirrors.get(partition)
            return None if mirror is None or mirror.position != offset else mirror.fork
        entries = found.log.epochs.entries()
        if epoch == NO_EPOCH or not entries:
            return None
        own_epoch, end = found.log.epochs.end_offset_for(epoch, found.log.log_end_offset)
        if own_epoch == NO_EPOCH:  # of a leader that this node does not know
            return min(offset, found.log.log_end_offset)
        return None if own_epoch == epoch and end >= offset else min(end, offset)

    def _led(self, partition: int) -> Partition | None:
        found = self._hosted.by_name.get((REMOTE_LOG_METADATA_TOPIC, partition))
        return None if found is None or found.refusal is not None else found

    def _leader(self, partition: int) -> Leader | None:
        """The leader on another broker in the image, or None."""
        found = self._quorum.image.partition(REMOTE_LOG_METADATA_TOPIC, partition)
        if found is None or found.leader == NO_LEADER:
            return None
        return found.leader, found.leader_epoch

    # ------------------------------------------------------------------------ led by other brokers

    def catch_up(
        self,
        positions: Mapping[int, tuple[int, int]],
        then: Grown,
        now_ms: int,
        *,
        is_fresh: bool = False,
    ) -> Effects:
        """Read from other leaders what each partition has from an offset on; see the protocol."""
        if self._topic_client is None:
            return []
        by_leader: dict[int, dict[int, int]] = {}
        for partition, (offset, epoch) in positions.items():
            if self._led(partition) is not None:
                self._mirrors.pop(partition, None)
                continue
            self._greatest_ends.pop(partition, None)
            mirror = self._mirrors.setdefault(partition, _Mirror())
            leader = self._leader(partition)
            if mirror.is_busy and leader is not None and leader != mirror.leader:
                # The broker that was asked does not lead any more: ignore its response.
                mirror = self._mirrors[partition] = _Mirror()
            if offset < mirror.position:  # everything is read again
                mirror = self._mirrors[partition] = _Mirror()
            mirror.position, mirror.epoch = offset, epoch
            if is_fresh:
                mirror.end = None
            if mirror.is_busy:
                mirror.is_again = True
            elif leader is not None:
                mirror.is_busy = True
                if mirror.leader != leader:
                    mirror.leader, mirror.end = leader, None
                by_leader.setdefault(leader[0], {})[partition] = leader[1]
        effects: Effects = []
        for leader_id, asked in by_leader.items():
            came = partial(self._ends_came, leader_id, asked, then)
            effects += self._topic_client.offsets(
                leader_id, REMOTE_LOG_METADATA_TOPIC, asked, LATEST, came, now_ms
            )
        return effects

    def _ends_came(
        self,
        leader_id: int,
        asked: Mapping[int, int],
        then: Grown,
        ends: Mapping[int, int | KafkaError],
        now_ms: int,
    ) -> Effects:
        effects: Effects = []
        for partition, leader_epoch in asked.items():
            mirror = self._mirrors.get(partition)
            if mirror is None or mirror.leader != (leader_id, leader_epoch):
                continue  # this node or another broker leads it by now
            end = ends[partition]
            if mirror.is_again or isinstance(end, KafkaError):
                # The next poll sees an error; a response to an earlier request does not count.
                effects += self._done(partition, mirror, then, now_ms)
                continue
            mirror.unverified_end = end
            is_verified = mirror.epoch == NO_EPOCH or mirror.verified == mirror.leader
            if end <= mirror.position and is_verified:
                mirror.end = end
                effects += self._done(partition, mirror, then, now_ms, is_news=True)
            else:
                effects += self._read_on(mirror.leader, partition, mirror, then, now_ms)
        return effects

    def _read_on(
        self, leader: Leader, partition: int, mirror: _Mirror, then: Grown, now_ms: int
    ) -> Effects:
        topic = self._quorum.image.topic(REMOTE_LOG_METADATA_TOPIC)
        if topic is None or self._topic_client is None:
            return self._done(partition, mirror, then, now_ms)
        where = TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition)
        came = partial(self._records_came, partition, mirror, mirror.position, leader, then)
        return self._topic_client.read_committed_records(
            leader[0],
            where,
            topic.topic_id,
            mirror.position,
            came,
            now_ms,
            leader_epoch=leader[1],
            last_epoch=mirror.epoch,
        )

    def _records_came(
        self,
        partition: int,
        mirror: _Mirror,
        offset: int,
        leader: Leader,
        then: Grown,
        found: tuple[int, bytes] | Fork | KafkaError,
        now_ms: int,
    ) -> Effects:
        if mirror.leader != leader:  # another broker leads it by now
            return self._done(partition, mirror, then, now_ms)
        if isinstance(found, Fork):
            mirror.fork, mirror.end = found.offset, None
            return self._done(partition, mirror, then, now_ms, is_news=True)
        if isinstance(found, KafkaError):
            if found.code == Code.OFFSET_OUT_OF_RANGE and self._topic_client and mirror.leader:
                leader_id, leader_epoch = mirror.leader
                begins = partial(self._start_found, partition, mirror, then)
                asked = {partition: leader_epoch}
                return self._topic_client.offsets(
                    leader_id, REMOTE_LOG_METADATA_TOPIC, asked, EARLIEST, begins, now_ms
                )
            return self._done(partition, mirror, then, now_ms)
        try:
            ends = [header.next_offset for header in headers(found[1])]
        except KafkaError:  # no valid batches: as without a response
            return self._done(partition, mirror, then, now_ms)
        mirror.log_start = min(found[0], offset)  # it has just been read from there
        mirror.records = found[1]
        mirror.at = offset
        mirror.verified = leader
        is_checked = mirror.end is None
        mirror.end = mirror.unverified_end
        # More records may have been committed since the end was read.
        if ends:
            mirror.end = max(mirror.end, ends[-1])
        return self._done(partition, mirror, then, now_ms, is_news=is_checked or bool(ends))

    def _start_found(
        self,
        partition: int,
        mirror: _Mirror,
        then: Grown,
        found: Mapping[int, int | KafkaError],
        now_ms: int,
    ) -> Effects:
        """Retention has deleted the requested records: continue at the log start offset."""
        start = found[partition]
        # No log begins above its end.
        if isinstance(start, KafkaError) or start > mirror.unverified_end:
            return self._done(partition, mirror, then, now_ms)
        mirror.log_start = start
        is_news = start > mirror.position
        if is_news:  # what was read is below everything that the leader can compare
            mirror.end, mirror.verified = mirror.unverified_end, mirror.leader
        return self._done(partition, mirror, then, now_ms, is_news=is_news)

    def _done(
        self,
        partition: int,
        mirror: _Mirror,
        then: Grown,
        now_ms: int,
        *,
        is_news: bool = False,
    ) -> Effects:
        """A response is handled; send the request that was made meanwhile, if any."""
        if self._mirrors.get(partition) is not mirror:
            return []
        is_again = mirror.is_again
        mirror.is_busy = mirror.is_again = False
        effects = then(partition, now_ms) if is_news else []
        if is_again and not mirror.is_busy:
            place = mirror.position, mirror.epoch
            effects += self.catch_up({partition: place}, then, now_ms)
        return effects

    def append(
        self, partition: int, batch: bytearray, then: AppendThen, now_ms: int
    ) -> Effects | None:
        """Append to a metadata partition that another broker leads; None if none does."""
        leader = self._leader(partition)
        topic = self._quorum.image.topic(REMOTE_LOG_METADATA_TOPIC)
        if self._topic_client is None or leader is None or topic is None or self.leads(partition):
            return None
        where = TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition)
        return self._topic_client.append(leader[0], where, topic.topic_id, batch, then, now_ms)


def _batches(mirror: _Mirror, offset: int, max_bytes: int) -> bytes:
    """Return some of the batches that were read, from the one with `offset` on."""
    start = end = None
    for header in headers(mirror.records):
        if header.next_offset <= offset:
            continue
        if start is None:
            start = header.position
        elif header.position + header.size_bytes - start > max_bytes:
            break
        end = header.position + header.size_bytes
    return b"" if start is None else mirror.records[start:end]


def _believed_end(partition: Partition) -> int:
    log = partition.log
    if partition.needs_flush(ACKS_ALL):
        return min(log.high_watermark, log.recovery_point)
    return log.high_watermark


def _inherited_end(partition: Partition) -> int:
    """The start offset of the epoch in which this node leads."""
    entries = partition.log.epochs.entries()
    return entries[-1][1] if entries and entries[-1][0] == partition.leader_epoch else 0
