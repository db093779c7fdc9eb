"""What the cluster's metadata means for the partitions on this node: host, lead, follow, drop. PURE.

Each committed change names the topics it touched; only those are looked at. Nothing is acted on before
this node's own registration is in the image (rel-R4). Who needs to know that we lead a partition, or no
longer do, is told here: coordinators, the tier. Source: KIP-631; house, walks through the broker.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from firnline.base.effects import Effects, Warn
from firnline.base.errors import StorageError
from firnline.base.ids import TopicPartition, Uuid
from firnline.broker.hosted import HostedPartitions
from firnline.config.broker import BrokerConfig
from firnline.config.layers import topic_config
from firnline.config.topic import TopicConfig
from firnline.log.recovery import RecoveryReport
from firnline.metadata.delta import ClusterDelta, TopicDelta
from firnline.metadata.image import ClusterImage, PartitionImage, ResourceType, TopicImage
from firnline.replica.partition import FsyncRule, Partition

if TYPE_CHECKING:
    from firnline.log.log import Log

Told = Callable[[Partition, int], Effects]


class LogStore(Protocol):
    """Where logs are: `broker/storage.py`."""

    def open(
        self, topic_partition: TopicPartition, topic_id: Uuid, config: TopicConfig, now_ms: int
    ) -> "Log":
        """Return the log of a partition, made if it is not there. StorageError when it cannot be."""
        ...

    def drop(self, log: "Log", now_ms: int) -> Effects:
        """Delete a log, its files at leisure."""
        ...


class Hosting:
    """Keeps `hosted` as the committed image says.

    on_leading      told of each partition that we lead in a new epoch
    on_not_leading  told of each that we led and do not any more, deleted ones included
    on_dropped      told of each that is gone from this node
    on_configured   told of each whose topic's settings changed
    """

    def __init__(
        self,
        *,
        node_id: int,
        config: BrokerConfig,
        hosted: HostedPartitions,
        store: LogStore,
        fsync_rule: FsyncRule,
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._hosted = hosted
        self._store = store
        self._fsync_rule: FsyncRule = fsync_rule
        self.on_leading: list[Told] = []
        self.on_not_leading: list[Told] = []
        self.on_dropped: list[Told] = []
        self.on_configured: list[Told] = []
        # Partitions whose log could not be opened: (topic id, index) -> why. They are not served.
        self.failed: dict[tuple[Uuid, int], StorageError] = {}

    def apply(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        """Act on one committed change."""
        effects: Effects = []
        for gone in delta.deleted_topics:
            effects += self._drop_topic(gone, now_ms)
        for changed in delta.topics:
            effects += self._apply_topic(changed, image, now_ms)
        for resource in delta.configs:
            if resource.resource_type == ResourceType.TOPIC:
                effects += self._configure(resource.name, image, now_ms)
        return effects

    def _apply_topic(self, changed: TopicDelta, image: ClusterImage, now_ms: int) -> Effects:
        topic = changed.after
        effects: Effects = []
        for index in changed.partitions:
            state = topic.partitions[index]
            found = self._hosted.by_name.get((topic.name, index))
            if self._node_id not in state.replicas:
                if found is not None:
                    effects += self._drop(found, now_ms)
                continue
            if found is None:
                found = self._host(topic, index, image, now_ms)
                effects += self._told_of_opening(topic, index)
            if found is not None:
                effects += self._update(found, state, now_ms)
        return effects

    def _host(
        self, topic: TopicImage, index: int, image: ClusterImage, now_ms: int
    ) -> Partition | None:
        topic_partition = TopicPartition(topic.name, index)
        config = topic_config(self._config, image.topic_config_overrides(topic.name))
        try:
            log = self._store.open(topic_partition, topic.topic_id, config, now_ms)
        except StorageError as problem:
            self.failed[topic.topic_id, index] = problem
            return None
        partition = Partition(log, node_id=self._node_id, fsync_rule=self._fsync_rule)
        self._hosted.add(partition)
        return partition

    def _told_of_opening(self, topic: TopicImage, index: int) -> Effects:
        """Say what an operator has to know of a log that was opened, or could not be."""
        name = TopicPartition(topic.name, index)
        problem = self.failed.get((topic.topic_id, index))
        if problem is not None:
            return [Warn(line=f"{name} is not served: {problem}")]
        log = self._hosted.by_name[topic.name, index].log
        found = log.recovery
        if not isinstance(found, RecoveryReport) or not (found.bytes_cut or found.segments_dropped):
            return []
        lost = f"{found.bytes_cut} bytes and {found.segments_dropped} segments behind it"
        return [
            Warn(
                line=f"{name} ends at offset {log.log_end_offset}: {lost} were not whole, and cut off"
            )
        ]

    def _update(self, partition: Partition, state: PartitionImage, now_ms: int) -> Effects:
        was_leader = partition.is_leader
        high_before = partition.log.high_watermark
        leads_anew = partition.update(
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
            isr=state.isr,
        )
        effects: Effects = []
        if not partition.is_leader:
            effects += partition.produce_waiters.all_at_once(now_ms)
            effects += partition.fetch_waiters.all_at_once(now_ms)
        elif partition.log.high_watermark > high_before:
            effects += partition.produce_waiters.passed(partition.log.high_watermark, now_ms)
            effects += partition.fetch_waiters.all_at_once(now_ms)
        if leads_anew:
            effects += _tell(self.on_leading, partition, now_ms)
        elif was_leader and not partition.is_leader:
            effects += _tell(self.on_not_leading, partition, now_ms)
        return effects

    def _configure(self, topic: str, image: ClusterImage, now_ms: int) -> Effects:
        found = image.topics_by_name.get(topic)
        if found is None:
            return []
        config = topic_config(self._config, image.topic_config_overrides(topic))
        effects: Effects = []
        for index in sorted(found.partitions):
            partition = self._hosted.by_name.get((topic, index))
            if partition is not None and partition.log.config != config:
                partition.log.config = config
                effects += _tell(self.on_configured, partition, now_ms)
        return effects

    def _drop_topic(self, topic: TopicImage, now_ms: int) -> Effects:
        effects: Effects = []
        for index in sorted(topic.partitions):
            self.failed.pop((topic.topic_id, index), None)
            partition = self._hosted.by_name.get((topic.name, index))
            if partition is not None:
                assert partition.topic_id == topic.topic_id, "a name has one topic at a time"
                effects += self._drop(partition, now_ms)
        return effects

    def _drop(self, partition: Partition, now_ms: int) -> Effects:
        """Serve it no more, tell who waits for it, then give its files up."""
        self._hosted.remove(partition)
        was_leader = partition.is_leader
        partition.retire()
        effects = partition.produce_waiters.all_at_once(now_ms)
        effects += partition.fetch_waiters.all_at_once(now_ms)
        if was_leader:
            effects += _tell(self.on_not_leading, partition, now_ms)
        effects += _tell(self.on_dropped, partition, now_ms)
        return effects + self._store.drop(partition.log, now_ms)


def _tell(listeners: list[Told], partition: Partition, now_ms: int) -> Effects:
    effects: Effects = []
    for told in listeners:
        effects += told(partition, now_ms)
    return effects
