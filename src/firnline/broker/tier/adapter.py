"""Passes events of partitions to the tier, and reads of fetches. PURE.

Source: KIP-405; spec 3.3, T54.
"""

from collections.abc import Callable
from functools import partial

from firnline.base.background import SlicedTask
from firnline.base.effects import Effects, Flush, SetTimer
from firnline.base.errors import KafkaError, StorageError, some_of
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition, TopicPartition, Uuid
from firnline.base.log_lines.tier import TOPICS_OUTLIVE_METADATA
from firnline.broker.list_offsets import OffsetFound
from firnline.broker.tier.feed import MetadataFeed
from firnline.config.broker import BrokerConfig
from firnline.config.layers import topic_config
from firnline.controller.system_topics import outliving_topics
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import ClusterImage
from firnline.replica.partition import Partition
from firnline.replica.tier_start import TierState
from firnline.tiered.objects.aux_state import AuxState
from firnline.tiered.reads.reader import RemoteLogReadResult, RemoteOffset
from firnline.tiered.remote_log import RemoteLog
from firnline.tiered.settings import tier_settings

_AGAIN_MS = 1_000


class TierAdapter:
    """Connects the partitions and fetches of a broker to the tier.

    on_storage_error(partition, now_ms)  called for a metadata partition whose files failed
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
        self._outliving: list[str] = []  # the topics of the last warning

    # --------------------------------------------------------------------------------- events

    def on_config(self, config: BrokerConfig, image: ClusterImage, now_ms: int) -> Effects:
        """The broker starts with this configuration, or its dynamic configs have changed."""
        effects = self.tier.apply_settings(tier_settings(config), now_ms)
        look = self._warn_of_outliving(config, image)
        return [*effects, *self.tier.services.sliced_tasks.begin(look, now_ms)]

    def _warn_of_outliving(self, config: BrokerConfig, image: ClusterImage) -> SlicedTask:
        """Warn of topics that outlive the records about their segments (T52), once as long as they stay."""
        yield []
        steps, outliving = outliving_topics(image, config), None
        while outliving is None:
            try:
                next(steps)
            except StopIteration as end:
                outliving = end.value
            else:
                yield []
        before, self._outliving = self._outliving, outliving
        is_new = bool(outliving) and outliving != before
        if not is_new:
            return []
        topics = some_of(outliving)
        return [TOPICS_OUTLIVE_METADATA(topics=topics, metadata_topic=REMOTE_LOG_METADATA_TOPIC)]

    def on_leading(self, partition: Partition, now_ms: int) -> Effects:
        """This node leads the partition in a new epoch."""
        effects = self._update_leadership(partition, now_ms)
        topic, index = partition.topic_partition
        if topic == REMOTE_LOG_METADATA_TOPIC:
            effects += self._put_on_disk(partition, now_ms)
            effects += self.tier.on_metadata_leadership(index, now_ms)
        return effects

    def _put_on_disk(self, partition: Partition, now_ms: int) -> Effects:
        """Sync the records of a metadata partition: after a crash its end may not be on the disk."""
        log = partition.log
        end_offset = log.log_end_offset
        if not partition.is_leader or log.recovery_point >= end_offset:
            return []

        def synced(error: StorageError | None, now_ms: int) -> Effects:
            if error is None and partition.note_flushed(end_offset):
                index = partition.topic_partition.partition
                return self.tier.on_metadata_leadership(index, now_ms)
            if error is not None and error.has_lost_nothing:
                return self._later(partition, now_ms)
            return self._failed(partition, now_ms)

        try:
            return [Flush(files=log.dirty_files(), then=synced)]
        except StorageError as problem:
            if problem.is_passing:
                return self._later(partition, now_ms)
            return self._failed(partition, now_ms)

    def _later(self, partition: Partition, now_ms: int) -> Effects:
        """Retry later: there is no space or descriptor now."""
        key = ("tier metadata on disk", partition.topic_partition.partition)
        again = partial(self._again, partition)
        return [SetTimer(key=key, at_ms=now_ms + _AGAIN_MS, then=again)]

    def _again(self, partition: Partition, now_ms: int) -> Effects:
        """The records may be synced by now; wake the waiting readers in any case."""
        if not partition.is_leader or partition.is_offline:
            return []
        index = partition.topic_partition.partition
        effects = self._put_on_disk(partition, now_ms)
        return effects + self.tier.on_metadata_leadership(index, now_ms)

    def _failed(self, partition: Partition, now_ms: int) -> Effects:
        if partition.is_offline:
            return []
        partition.go_offline()
        return self._on_storage_error(partition, now_ms)

    on_not_leading = on_leading

    def on_updated(self, partition: Partition, now_ms: int) -> Effects:
        """The partition's leader, epoch or replicas have changed in the metadata."""
        return [] if partition.is_leader else self._update_leadership(partition, now_ms)

    def on_configured(self, partition: Partition, now_ms: int) -> Effects:
        """The topic has become tiered, or is not tiered any more."""
        return self._update_leadership(partition, now_ms)

    def _update_leadership(self, partition: Partition, now_ms: int) -> Effects:
        return self.tier.on_leadership(
            partition.log,
            is_leader=partition.is_leader,
            leader_epoch=partition.leader_epoch,
            now_ms=now_ms,
        )

    def on_dropped(self, partition: Partition, now_ms: int) -> Effects:
        """The partition has left this node; its remote segments stay (T28)."""
        where = TopicIdPartition(partition.topic_id, partition.topic_partition.partition)
        return self.tier.on_stop(where, now_ms)

    def on_topics(self, delta: ClusterDelta, now_ms: int) -> Effects:
        """Topics are deleted: their remote segments are deleted, too (T54)."""
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

    # ---------------------------------------------------------------------------------- reads

    def state_above(
        self,
        partition: Partition,
        *,
        epoch: int,
        offset: int,
        then: Callable[[TierState | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """See `replica.tier_start.Tier`."""

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
        then: Callable[[RemoteLogReadResult | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        """See `broker.tier.remote_read.RemoteRead`."""
        return self.tier.read(
            topic_partition, topic_id, offset, epoch, max_bytes, isolation, then, now_ms
        )

    def offset_for_timestamp(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        timestamp: int,
        then: Callable[[OffsetFound | KafkaError | None, int], Effects],
        now_ms: int,
    ) -> Effects:
        """See `broker.list_offsets.RemoteOffsetSearch`."""

        def found(result: RemoteOffset | KafkaError | None, at_ms: int) -> Effects:
            if isinstance(result, RemoteOffset):
                return then(OffsetFound(*result), at_ms)
            return then(result, at_ms)

        return self.tier.offset_for_timestamp(topic_partition, topic_id, timestamp, found, now_ms)
