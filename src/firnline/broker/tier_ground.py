"""What the tier stands on: the metadata topic as this node has it, and who leads what. PURE.

The tier believes a metadata record when it can no longer be lost here: on disk where we are alone in
the ISR and answers wait for the disk, else when it is committed (rel-T2, rel-P12).
Source: KIP-405; spec 3.3, 3.12, T54.
"""

from collections.abc import Callable

from firnline.base.effects import Effects, Flush
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition, TopicPartition, Uuid
from firnline.broker.fetch import RemoteData
from firnline.broker.list_offsets import OffsetFound
from firnline.config.broker import BrokerConfig
from firnline.config.layers import topic_config
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.quorum import MetadataQuorum
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import ACKS_ALL, Partition
from firnline.tiered.reader import RemoteData as TierData
from firnline.tiered.reader import RemoteOffset
from firnline.tiered.remote_log import RemoteLog


class MetadataFeed:
    """The partitions of `__remote_log_metadata` on this node; `tiered.metadata_log.MetadataFeed`."""

    __slots__ = ("_hosted", "_quorum")

    def __init__(self, hosted: HostedPartitions, quorum: MetadataQuorum) -> None:
        self._hosted = hosted
        self._quorum = quorum

    def partition_count(self) -> int | None:
        """Partitions of the topic in the committed image; None while there is none."""
        topic = self._quorum.image.topic(REMOTE_LOG_METADATA_TOPIC)
        return None if topic is None else len(topic.partitions)

    def bounds(self, partition: int) -> tuple[int, int] | None:
        """(log start, where what may be believed ends).

        None when the partition is not led here, and while some of what the epochs before ours left in it
        is not on disk: who is told less than that copies a segment twice.
        """
        found = self._led(partition)
        if found is None:
            return None
        end = _believed_end(found)
        return (found.log.log_start_offset, end) if end >= _inherited_end(found) else None

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on; empty where there is nothing to believe."""
        found = self._led(partition)
        if found is None or offset >= _believed_end(found):
            return b""
        records = found.log.read(offset, max_bytes=max_bytes, upto_offset=_believed_end(found))
        return records.read()

    def leads(self, partition: int) -> bool:
        """Whether this node leads that metadata partition."""
        return self._led(partition) is not None

    def _led(self, partition: int) -> Partition | None:
        found = self._hosted.by_name.get((REMOTE_LOG_METADATA_TOPIC, partition))
        return None if found is None or found.refusal is not None else found


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
        config: BrokerConfig,
        on_storage_error: Callable[[Partition, int], Effects],
    ) -> None:
        self.tier = tier
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
