"""`__remote_log_metadata` as this node has it: what it leads, and what the leaders elsewhere tell. PURE.

The tier believes a metadata record when it can no longer be lost here: on disk where we are alone in the ISR
and answers wait for the disk, else when it is committed (rel-T2, rel-P12). What was read before is compared
with the leader's history by epoch, for a partition may have lost records and grown again. Source: KIP-405,
KIP-320, KIP-595; spec 3.12.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from firnline.base.effects import Appended, Effects
from firnline.base.errors import Code, ConfigError, KafkaError
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
    """The leader's history is not the one that was read; `offset`: up to where it is at most."""

    offset: int


class Elsewhere(Protocol):
    """A topic's records at other brokers: `outbound.topic_client.TopicClient`."""

    def offsets(
        self,
        leader_id: int,
        topic: str,
        partitions: Mapping[int, int],
        which: int,
        then: Callable[[Mapping[int, int | KafkaError], int], Effects],
        now_ms: int,
    ) -> Effects:
        """Ask where each begins (EARLIEST), or what is committed ends (LATEST).

        `partitions` with the leader epochs that we believe in.
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
        """Read (log start, whole batches from the one that holds `offset` on).

        leader_epoch  in which we believe that it leads; last_epoch: of the record before `offset`, or -1
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
        """Append one batch, acks=all."""
        ...


Grown = Callable[[int, int], Effects]
AppendThen = Callable[[Appended | KafkaError, int], Effects]
Leader = tuple[int, int]  # node id, leader epoch


class _Mirror:
    """What is known here of a metadata partition that another broker leads.

    end      where what is committed ended when `leader` was asked; None while that is not known
    told_end the same, before it is known that what was read is of its history
    records  the whole batches that came last, from offset `at` on
    epoch    of the record before `position`; verified: who was asked whether that is its history
    fork     where it is not
    is_busy  it is being asked; is_again: and is to be asked once more
    """

    __slots__ = (
        *("at", "end", "epoch", "fork", "is_again", "is_busy", "leader", "log_start", "position"),
        *("records", "told_end", "verified"),
    )

    def __init__(self) -> None:
        self.leader: Leader | None = None
        self.log_start = 0
        self.end: int | None = None
        self.told_end = 0
        self.at = self.position = 0
        self.epoch = NO_EPOCH
        self.verified: Leader | None = None
        self.fork: int | None = None
        self.records = b""
        self.is_busy = self.is_again = False


class MetadataFeed:
    """The partitions of `__remote_log_metadata`: ours, and those led elsewhere, as their leaders tell.

    `tiered.metadata.log.MetadataTopicReader`. Followers ask the leader as any node does: what their own copy
    lacks of the newest records would be copied to the tier twice.

    elsewhere  the way to other brokers, or None
    given_up   the setting firnline.remote.log.metadata.given.up, as it is now
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        quorum: MetadataQuorum,
        elsewhere: Elsewhere | None = None,
        given_up: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._hosted = hosted
        self._quorum = quorum
        self._elsewhere = elsewhere
        self._given_up = given_up
        self._mirrors: dict[int, _Mirror] = {}
        self._told: dict[int, int] = {}  # of ours: where it ended at most

    def partition_count(self) -> int | None:
        """Partitions of the topic in the committed image; None while there is none."""
        topic = self._quorum.image.topic(REMOTE_LOG_METADATA_TOPIC)
        return None if topic is None else len(topic.partitions)

    def bounds(self, partition: int) -> tuple[int, int] | None:
        """(log start, where what may be believed ends).

        None while that is not known for certain: the leader elsewhere was not asked yet, or some of what the
        epochs before ours left is not on disk. Who is told less than that copies a segment twice.
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
        # Followers that leave the ISR take nothing back: what was believed once stays, while it is there.
        told = self._told.get(partition, 0)
        if end < told <= found.log.log_end_offset:
            end = told
        self._told[partition] = end
        return found.log.log_start_offset, end

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on; empty where there is nothing to believe."""
        bounds = self.bounds(partition)
        if bounds is None or offset >= bounds[1]:
            return b""
        found = self._led(partition)
        if found is None:
            return _batches(self._mirrors[partition], offset, max_bytes)
        return found.log.read(offset, max_bytes=max_bytes, upto_offset=bounds[1]).read()

    def given_up(self, partition: int) -> list[tuple[int, int]]:
        """Offsets that the operator gave up, as they cannot be read."""
        spans: list[tuple[int, int]] = []
        for text in self._given_up():
            try:
                index, first, last = parse_given_up(text)
            except ConfigError:  # of another release: this one took no such text
                continue
            if index == partition:
                spans.append((first, last))
        return spans

    def leads(self, partition: int) -> bool:
        """Whether this node leads that metadata partition."""
        return self._led(partition) is not None

    def fork(self, partition: int, offset: int, epoch: int) -> int | None:
        """Where what was read up to `offset`, in `epoch` last, left the leader's history; None: nowhere.

        A partition that lost records and grew again, by an unclean election or an old disk, ends where it
        ended, or later: only epochs tell (KIP-595).
        """
        found = self._led(partition)
        if found is None:
            mirror = self._mirrors.get(partition)
            return None if mirror is None or mirror.position != offset else mirror.fork
        entries = found.log.epochs.entries()
        if epoch == NO_EPOCH or not entries:
            return None
        own_epoch, end = found.log.epochs.end_offset_for(epoch, found.log.log_end_offset)
        if own_epoch == NO_EPOCH:  # of a leader that we never heard of
            return min(offset, found.log.log_end_offset)
        return None if own_epoch == epoch and end >= offset else min(end, offset)

    def _led(self, partition: int) -> Partition | None:
        found = self._hosted.by_name.get((REMOTE_LOG_METADATA_TOPIC, partition))
        return None if found is None or found.refusal is not None else found

    def _leader(self, partition: int) -> Leader | None:
        """Who leads it elsewhere, as far as the image says."""
        found = self._quorum.image.partition(REMOTE_LOG_METADATA_TOPIC, partition)
        if found is None or found.leader == NO_LEADER:
            return None
        return found.leader, found.leader_epoch

    # ------------------------------------------------------------------------------ led elsewhere

    def catch_up(
        self,
        positions: Mapping[int, tuple[int, int]],
        then: Grown,
        now_ms: int,
        *,
        is_fresh: bool = False,
    ) -> Effects:
        """Ask the leaders elsewhere what each partition has from an offset on; see the protocol."""
        if self._elsewhere is None:
            return []
        by_leader: dict[int, dict[int, int]] = {}
        for partition, (offset, epoch) in positions.items():
            if self._led(partition) is not None:
                self._mirrors.pop(partition, None)
                continue
            self._told.pop(partition, None)
            mirror = self._mirrors.setdefault(partition, _Mirror())
            leader = self._leader(partition)
            if mirror.is_busy and leader is not None and leader != mirror.leader:
                # Who was asked does not lead any more: nobody waits for its answer.
                mirror = self._mirrors[partition] = _Mirror()
            if offset < mirror.position:  # all of it is read again
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
            effects += self._elsewhere.offsets(
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
                continue  # it is led here by now, or by another broker
            end = ends[partition]
            if mirror.is_again or isinstance(end, KafkaError):
                # Of an error the next poll hears; an answer from before the question is none.
                effects += self._done(partition, mirror, then, now_ms)
                continue
            mirror.told_end = end
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
        if topic is None or self._elsewhere is None:
            return self._done(partition, mirror, then, now_ms)
        where = TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition)
        came = partial(self._records_came, partition, mirror, mirror.position, leader, then)
        return self._elsewhere.read_committed_records(
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
        if mirror.leader != leader:  # it is led elsewhere by now
            return self._done(partition, mirror, then, now_ms)
        if isinstance(found, Fork):
            mirror.fork, mirror.end = found.offset, None
            return self._done(partition, mirror, then, now_ms, is_news=True)
        if isinstance(found, KafkaError):
            if found.code == Code.OFFSET_OUT_OF_RANGE and self._elsewhere and mirror.leader:
                leader_id, leader_epoch = mirror.leader
                begins = partial(self._start_came, partition, mirror, then)
                asked = {partition: leader_epoch}
                return self._elsewhere.offsets(
                    leader_id, REMOTE_LOG_METADATA_TOPIC, asked, EARLIEST, begins, now_ms
                )
            return self._done(partition, mirror, then, now_ms)
        try:
            ends = [header.next_offset for header in headers(found[1])]
        except KafkaError:  # no batches: as if it had not answered
            return self._done(partition, mirror, then, now_ms)
        mirror.log_start, mirror.records = found
        mirror.at = offset
        mirror.verified = leader
        is_checked = mirror.end is None
        mirror.end = mirror.told_end
        # More may have been committed since it was asked where that ends.
        if ends:
            mirror.end = max(mirror.end, ends[-1])
        return self._done(partition, mirror, then, now_ms, is_news=is_checked or bool(ends))

    def _start_came(
        self,
        partition: int,
        mirror: _Mirror,
        then: Grown,
        found: Mapping[int, int | KafkaError],
        now_ms: int,
    ) -> Effects:
        """Retention took what was asked for: go on where the partition begins."""
        start = found[partition]
        is_news = not isinstance(start, KafkaError) and start > mirror.position
        if not isinstance(start, KafkaError):
            mirror.log_start = start
        if is_news:  # what was read is below all that the leader can compare
            mirror.end, mirror.verified = mirror.told_end, mirror.leader
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
        """An answer is dealt with; ask again who was asked meanwhile."""
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
        """Append to a metadata partition that another broker leads; None: that is not so."""
        leader = self._leader(partition)
        topic = self._quorum.image.topic(REMOTE_LOG_METADATA_TOPIC)
        if self._elsewhere is None or leader is None or topic is None or self.leads(partition):
            return None
        where = TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition)
        return self._elsewhere.append(leader[0], where, topic.topic_id, batch, then, now_ms)


def _batches(mirror: _Mirror, offset: int, max_bytes: int) -> bytes:
    """Return some of the batches that came, from the one that holds `offset` on."""
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
    """Where the epoch in which we lead began."""
    entries = partition.log.epochs.entries()
    return entries[-1][1] if entries and entries[-1][0] == partition.leader_epoch else 0
