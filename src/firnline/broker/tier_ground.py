"""What the tier stands on: the metadata topic as this node has it, and who leads what. PURE.

The tier believes a metadata record when it can no longer be lost here: on disk where we are alone in
the ISR and answers wait for the disk, else when it is committed (rel-T2, rel-P12).
Source: KIP-405; spec 3.3, 3.12, T54.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from firnline.base.effects import Appended, Effects, Flush
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition, TopicPartition, Uuid
from firnline.broker.fetch import RemoteData
from firnline.broker.list_offsets import EARLIEST, LATEST, OffsetFound
from firnline.config.broker import BrokerConfig
from firnline.config.layers import topic_config
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import NO_LEADER
from firnline.metadata.quorum import MetadataQuorum
from firnline.records.batch import headers
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import ACKS_ALL, Partition
from firnline.replica.tier_start import TierState
from firnline.tiered.reader import AuxState, RemoteOffset
from firnline.tiered.reader import RemoteData as TierData
from firnline.tiered.remote_log import RemoteLog


class Elsewhere(Protocol):
    """A topic's records at other brokers: `api.topic_elsewhere.TopicElsewhere`."""

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
        then: Callable[[tuple[int, bytes] | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Read (log start, whole batches from the one that holds `offset` on)."""
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
    records  the whole batches that came last, from offset `at` on
    is_busy  it is being asked; is_again: and is to be asked once more
    """

    __slots__ = ("at", "end", "is_again", "is_busy", "leader", "log_start", "position", "records")

    def __init__(self) -> None:
        self.leader: Leader | None = None
        self.log_start = 0
        self.end: int | None = None
        self.at = self.position = 0
        self.records = b""
        self.is_busy = self.is_again = False


class MetadataFeed:
    """The partitions of `__remote_log_metadata`: ours, and those led elsewhere, as their leaders tell.

    `tiered.metadata_log.MetadataFeed`. Followers ask the leader as any node does: what their own copy lacks
    of the newest records would be copied to the tier twice.

    elsewhere  the way to other brokers, or None
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        quorum: MetadataQuorum,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._hosted = hosted
        self._quorum = quorum
        self._elsewhere = elsewhere
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

    def leads(self, partition: int) -> bool:
        """Whether this node leads that metadata partition."""
        return self._led(partition) is not None

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
        positions: Mapping[int, int],
        then: Grown,
        now_ms: int,
        *,
        is_fresh: bool = False,
    ) -> Effects:
        """Ask the leaders elsewhere what each partition has from an offset on; see the protocol."""
        if self._elsewhere is None:
            return []
        by_leader: dict[int, dict[int, int]] = {}
        for partition, offset in positions.items():
            if self._led(partition) is not None:
                self._mirrors.pop(partition, None)
                continue
            self._told.pop(partition, None)
            mirror = self._mirrors.setdefault(partition, _Mirror())
            leader = self._leader(partition)
            if mirror.is_busy and leader is not None and leader != mirror.leader:
                # Who was asked does not lead any more: nobody waits for its answer.
                mirror = self._mirrors[partition] = _Mirror()
            mirror.position = offset
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
            mirror.end = end
            if end <= mirror.position:
                effects += self._done(partition, mirror, then, now_ms, is_news=True)
            else:
                effects += self._read_on(leader_id, partition, mirror, then, now_ms)
        return effects

    def _read_on(
        self, leader_id: int, partition: int, mirror: _Mirror, then: Grown, now_ms: int
    ) -> Effects:
        topic = self._quorum.image.topic(REMOTE_LOG_METADATA_TOPIC)
        if topic is None or self._elsewhere is None:
            return self._done(partition, mirror, then, now_ms)
        where = TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition)
        came = partial(self._records_came, partition, mirror, mirror.position, then)
        return self._elsewhere.read_committed_records(
            leader_id, where, topic.topic_id, mirror.position, came, now_ms
        )

    def _records_came(
        self,
        partition: int,
        mirror: _Mirror,
        offset: int,
        then: Grown,
        found: tuple[int, bytes] | KafkaError,
        now_ms: int,
    ) -> Effects:
        if isinstance(found, KafkaError):
            if found.code == Code.OFFSET_OUT_OF_RANGE and self._elsewhere and mirror.leader:
                leader_id, leader_epoch = mirror.leader
                begins = partial(self._start_came, partition, mirror, then)
                asked = {partition: leader_epoch}
                return self._elsewhere.offsets(
                    leader_id, REMOTE_LOG_METADATA_TOPIC, asked, EARLIEST, begins, now_ms
                )
            return self._done(partition, mirror, then, now_ms)
        mirror.log_start, mirror.records = found
        mirror.at = offset
        # More may have been committed since it was asked where that ends.
        ends = [header.next_offset for header in headers(mirror.records)]
        if ends and mirror.end is not None:
            mirror.end = max(mirror.end, ends[-1])
        return self._done(partition, mirror, then, now_ms, is_news=len(mirror.records) > 0)

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
            effects += self.catch_up({partition: mirror.position}, then, now_ms)
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


class TierGround:
    """Tells the tier what happens to partitions, and opens its doors to fetches.

    on_storage_error(partition, now_ms)  is told of a metadata partition whose files failed
    """

    def __init__(
        self,
        tier: RemoteLog,
        feed: MetadataFeed,
        config: BrokerConfig,
        on_storage_error: Callable[[Partition, int], Effects],
    ) -> None:
        self.tier = tier
        self.feed = feed
        self._config = config
        self._on_storage_error = on_storage_error

    # ----------------------------------------------------------------------------------- told

    def on_leading(self, partition: Partition, now_ms: int) -> Effects:
        """We lead it in a new epoch."""
        effects = self._tell(partition, now_ms)
        topic, index = partition.topic_partition
        if topic == REMOTE_LOG_METADATA_TOPIC:
            effects += self._put_on_disk(partition)
            effects += self.tier.on_metadata_leadership(index, now_ms)
        return effects

    def _put_on_disk(self, partition: Partition) -> Effects:
        """Sync what was found in a metadata partition: after a crash nobody vouches for its end."""
        log = partition.log
        end_offset = log.log_end_offset
        if not partition.is_leader or log.recovery_point >= end_offset:
            return []

        def synced(error: StorageError | None, now_ms: int) -> Effects:
            if error is None:
                log.flushed(end_offset)
                index = partition.topic_partition.partition
                return self.tier.on_metadata_leadership(index, now_ms)
            if partition.is_offline:
                return []
            partition.go_offline()
            return self._on_storage_error(partition, now_ms)

        return [Flush(files=log.dirty_files(), then=synced)]

    on_not_leading = on_leading

    def on_updated(self, partition: Partition, now_ms: int) -> Effects:
        """Metadata said something of it: whom we follow from now on, and in which epoch."""
        return [] if partition.is_leader else self._tell(partition, now_ms)

    def on_configured(self, partition: Partition, now_ms: int) -> Effects:
        """Its topic was tiered, or is no longer."""
        return self._tell(partition, now_ms)

    def _tell(self, partition: Partition, now_ms: int) -> Effects:
        return self.tier.on_leadership(
            partition.log,
            is_leader=partition.is_leader,
            leader_epoch=partition.leader_epoch,
            now_ms=now_ms,
        )

    def on_dropped(self, partition: Partition, now_ms: int) -> Effects:
        """It left this node; what the tier has of it stays (T28)."""
        where = TopicIdPartition(partition.topic_id, partition.topic_partition.partition)
        return self.tier.on_stop(where, now_ms)

    def on_topics(self, delta: ClusterDelta, now_ms: int) -> Effects:
        """Topics left the image: what the tier has of them goes too (T54)."""
        effects: Effects = []
        for topic in delta.deleted_topics:
            overrides = delta.before.topic_config_overrides(topic.name)
            effects += self.tier.on_topic_deleted(
                topic.topic_id,
                topic.name,
                len(topic.partitions),
                was_tiered=topic_config(self._config, overrides).remote_storage_enable,
                now_ms=now_ms,
            )
        return effects

    # ------------------------------------------------------------------------------------ doors

    def state_above(
        self,
        partition: Partition,
        *,
        epoch: int,
        offset: int,
        then: Callable[[TierState | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """`replica.tier_start.Tier`."""

        def came(found: AuxState | KafkaError, at_ms: int) -> Effects:
            if isinstance(found, KafkaError):
                return then(found, at_ms)
            end_offset = found.segment.end_offset + 1
            return then(TierState(end_offset, found.epochs, found.producer_snapshot), at_ms)

        where = TopicIdPartition(partition.topic_id, partition.topic_partition.partition)
        return self.tier.aux_state(where, epoch=epoch, offset=offset, then=came, now_ms=now_ms)

    def read(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        offset: int,
        epoch: int,
        max_bytes: int,
        isolation: int,
        then: Callable[[RemoteData | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """`broker.fetch.RemoteRead`."""
        self.tier.services.now_ms = now_ms

        def came(result: TierData | KafkaError, at_ms: int) -> Effects:
            if isinstance(result, KafkaError):
                return then(result, at_ms)
            return then(RemoteData(result.records, result.aborted), at_ms)

        return self.tier.read(topic_partition, topic_id, offset, epoch, max_bytes, isolation, came)

    def offset_for_timestamp(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        timestamp: int,
        then: Callable[[OffsetFound | KafkaError | None, int], Effects],
        now_ms: int,
    ) -> Effects:
        """`broker.list_offsets.RemoteOffset`."""
        self.tier.services.now_ms = now_ms

        def found(result: RemoteOffset | KafkaError | None, at_ms: int) -> Effects:
            if isinstance(result, RemoteOffset):
                return then(OffsetFound(*result), at_ms)
            return then(result, at_ms)

        return self.tier.offset_for_timestamp(topic_partition, topic_id, timestamp, found)
