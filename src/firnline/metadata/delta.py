"""Replays records onto an image and computes the delta. PURE.

`Replay` is the only place that knows what a record means. It works on mutable copies of the maps that it
changes, so a batch of 10,000 partitions does not make 10,000 images. Source: KIP-631; spec Q14.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from immutables import Map

from firnline.base.background import run_to_completion
from firnline.base.effects import Effects
from firnline.base.errors import StorageError
from firnline.base.ids import MIGRATING_DIRECTORY, Uuid
from firnline.metadata import records as r
from firnline.metadata.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    ControllerImage,
    Endpoint,
    FeatureRange,
    KeptKey,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from firnline.protocol.schema import Message

_LEADER_UNCHANGED = -2
_RECOVERY_UNCHANGED = -1
# A step takes a few milliseconds.
TOPICS_PER_STEP = 500
Found = TypeVar("Found")


class TopicDelta(NamedTuple):
    """The change of one topic that still exists: its image before, if any, and after."""

    before: TopicImage | None
    after: TopicImage
    partitions: tuple[int, ...]  # numbers of new or changed ones, ascending

    @property
    def is_new(self) -> bool:
        return self.before is None


class ClusterDelta(NamedTuple):
    """The difference of two images, in the order in which records first changed things.

    A topic that was deleted and created again under its name is in `deleted_topics` with the old id and in
    `topics` with the new one. `brokers` and `configs` are the keys to look up in `after`: one that is absent
    there was removed.
    """

    before: ClusterImage
    after: ClusterImage
    topics: tuple[TopicDelta, ...]
    deleted_topics: tuple[TopicImage, ...]
    brokers: tuple[int, ...]
    configs: tuple[ConfigResource, ...]
    features: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return not (
            self.topics or self.deleted_topics or self.brokers or self.configs or self.features
        )


class Replay:
    """Applies records to an image. A record that does not fit is damage of the log."""

    def __init__(self, before: ClusterImage) -> None:
        self._before = before
        self._features = before.features.mutate()
        self._brokers = before.brokers.mutate()
        self._controllers = before.controllers.mutate()
        self._configs = before.configs.mutate()
        self._kept = before.kept.mutate()
        self._names: Any = before.topics_by_name.mutate()
        self._topics: Any = before.topics_by_id.mutate()
        self._partitions: dict[Uuid, Any] = {}  # topics being changed -> their partitions, mutable
        self._touched: dict[Uuid, dict[int, None]] = {}
        self._same: dict[Any, Any] = {}  # equal values -> the one that is kept
        self._deleted: dict[Uuid, TopicImage] = {}
        self._touched_brokers: dict[int, None] = {}
        self._touched_configs: dict[ConfigResource, None] = {}
        self._touched_features: dict[str, None] = {}
        self._next_producer_id = before.next_producer_id

    def apply(self, record: Message) -> None:
        """Apply one record. StorageError if it names something that does not exist."""
        _ACTIONS[type(record)](self, record)

    def finish(self, *, offset: int, epoch: int) -> ClusterDelta:
        """Return the delta; `offset` and `epoch` are those of the last record applied."""
        return run_to_completion(self.finish_steps(offset=offset, epoch=epoch))

    def finish_steps(self, *, offset: int, epoch: int) -> Generator[None, None, ClusterDelta]:
        """Return the delta; yields after some topics at a time. The caller applies nothing meanwhile."""
        topics: list[TopicDelta] = []
        for topic_id, partitions in self._partitions.items():
            topic = self._topics[topic_id]._replace(partitions=partitions.finish())
            self._topics[topic_id] = topic
            self._names[topic.name] = topic
            before = self._before.topics_by_id.get(topic_id)
            topics.append(TopicDelta(before, topic, tuple(sorted(self._touched[topic_id]))))
            if len(topics) % TOPICS_PER_STEP == 0:
                yield
        after = ClusterImage(
            offset=offset,
            epoch=epoch,
            features=self._features.finish(),
            brokers=self._brokers.finish(),
            controllers=self._controllers.finish(),
            topics_by_name=self._names.finish(),
            topics_by_id=self._topics.finish(),
            configs=self._configs.finish(),
            next_producer_id=self._next_producer_id,
            kept=self._kept.finish(),
        )
        return ClusterDelta(
            before=self._before,
            after=after,
            topics=tuple(topics),
            deleted_topics=tuple(self._deleted.values()),
            brokers=tuple(self._touched_brokers),
            configs=tuple(self._touched_configs),
            features=tuple(self._touched_features),
        )

    # ------------------------------------------------------------------------------- topics

    def _topic(self, record: r.TopicRecord) -> None:
        if record.topic_id in self._topics or record.name in self._names:
            raise StorageError("the metadata log creates a topic twice", topic=record.name)
        topic = TopicImage(record.name, record.topic_id, Map())
        self._topics[record.topic_id] = topic
        self._names[record.name] = topic
        self._open(record.topic_id)

    def _open(self, topic_id: Uuid) -> Any:
        """Return the partitions of an existing topic, mutable."""
        found = self._partitions.get(topic_id)
        if found is None:
            topic = self._topics.get(topic_id)
            if topic is None:
                raise StorageError("the metadata log names an unknown topic id", id=topic_id.hex())
            found = self._partitions[topic_id] = topic.partitions.mutate()
            self._touched[topic_id] = {}
        return found

    def _partition(self, record: r.PartitionRecord) -> None:
        # An image may have a million of these: equal tuples and ids are stored once, as far as they are
        # replayed together, and the tuple is made by position.
        topic_id, number = record.topic_id, record.partition_id
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            partitions = self._open(topic_id)
        same = self._same.setdefault
        replicas = tuple(record.replicas)
        replicas = same(replicas, replicas)
        isr = tuple(record.isr)
        directories = tuple([same(d, d) for d in record.directories])
        if not directories:
            directories = (MIGRATING_DIRECTORY,) * len(replicas)
        partitions[number] = PartitionImage._make(
            (
                replicas,
                same(directories, directories),
                same(isr, isr),
                record.leader,
                record.leader_epoch,
                record.partition_epoch,
                tuple(record.removing_replicas),
                tuple(record.adding_replicas),
                record.leader_recovery_state,
                tuple(record.eligible_leader_replicas or ()),
                tuple(record.last_known_elr or ()),
            )
        )
        self._touched[topic_id][number] = None

    def _partition_change(self, record: r.PartitionChangeRecord) -> None:
        partitions = self._open(record.topic_id)
        before = partitions.get(record.partition_id)
        if before is None:
            raise StorageError(
                "the metadata log changes an unknown partition", partition=record.partition_id
            )
        partitions[record.partition_id] = changed_partition(before, record)
        self._touched[record.topic_id][record.partition_id] = None

    def _remove_topic(self, record: r.RemoveTopicRecord) -> None:
        topic = self._topics.pop(record.topic_id, None)
        if topic is None:
            raise StorageError("the metadata log removes an unknown topic")
        del self._names[topic.name]
        self._partitions.pop(record.topic_id, None)
        self._touched.pop(record.topic_id, None)
        before = self._before.topics_by_id.get(record.topic_id)
        if before is not None:
            self._deleted[record.topic_id] = before
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        if self._configs.pop(resource, None) is not None:
            self._touched_configs[resource] = None

    def _clear_elr(self, record: r.ClearElrRecord) -> None:
        for topic in self._named(record.topic_name):
            changing = self._partitions.get(topic.topic_id, topic.partitions)
            numbers = {**topic.partitions, **self._touched.get(topic.topic_id, {})}
            for number in sorted(numbers):
                partition: PartitionImage = changing[number]
                if partition.elr or partition.last_known_elr:
                    cleared = partition._replace(
                        elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                    )
                    changing = self._open(topic.topic_id)
                    changing[number] = cleared
                    self._touched[topic.topic_id][number] = None

    def _named(self, name: str) -> list[TopicImage]:
        """The topic of that name, as it was opened; all topics for the empty name."""
        if name:
            topic = self._names.get(name)
            if topic is None:
                raise StorageError("the metadata log names an unknown topic", topic=name)
            return [topic]
        ids = sorted({**self._before.topics_by_id, **self._touched})
        return [self._topics[topic_id] for topic_id in ids if topic_id in self._topics]

    # ------------------------------------------------------------------------------- nodes

    def _register_broker(self, record: r.RegisterBrokerRecord) -> None:
        self._brokers[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=_given(record.cordoned_log_dirs),
            is_migrating_zk_broker=record.is_migrating_zk_broker,
        )
        self._touched_brokers[record.broker_id] = None

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker: BrokerImage | None = self._brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise StorageError(
                "the metadata log names an unknown registration", broker=broker_id, epoch=epoch
            )
        self._touched_brokers[broker_id] = None
        return broker

    def _unregister_broker(self, record: r.UnregisterBrokerRecord) -> None:
        del self._brokers[self._broker(record.broker_id, record.broker_epoch).broker_id]

    def _fence_broker(self, record: r.FenceBrokerRecord) -> None:
        self._brokers[record.id] = self._broker(record.id, record.epoch)._replace(fenced=True)

    def _unfence_broker(self, record: r.UnfenceBrokerRecord) -> None:
        self._brokers[record.id] = self._broker(record.id, record.epoch)._replace(fenced=False)

    def _broker_change(self, record: r.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = broker._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        if record.log_dirs:
            broker = broker._replace(log_dirs=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_log_dirs=tuple(record.cordoned_log_dirs))
        self._brokers[record.broker_id] = broker

    def _register_controller(self, record: r.RegisterControllerRecord) -> None:
        self._controllers[record.controller_id] = ControllerImage(
            record.controller_id,
            record.incarnation_id,
            _endpoints(record.end_points),
            _features(record.features),
            record.zk_migration_ready,
        )

    # ------------------------------------------------------------------------------- the rest

    def _config(self, record: r.ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        settings: Map[str, str] = self._configs.get(resource, Map())
        if record.value is not None:
            settings = settings.set(record.name, record.value)
        elif record.name in settings:
            settings = settings.delete(record.name)
        if settings:
            self._configs[resource] = settings
        else:
            self._configs.pop(resource, None)
        self._touched_configs[resource] = None

    def _feature_level(self, record: r.FeatureLevelRecord) -> None:
        if record.feature_level:
            self._features[record.name] = record.feature_level
        else:
            self._features.pop(record.name, None)
        self._touched_features[record.name] = None

    def _producer_ids(self, record: r.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _keep(self, record: Message) -> None:
        self._kept[kept_key(record)] = record

    def _client_quota(self, record: r.ClientQuotaRecord) -> None:
        if record.remove:
            self._kept.pop(kept_key(record), None)
        else:
            self._keep(record)

    def _drop(self, kind: type[Message], *identity: object) -> None:
        self._kept.pop((kind.key, identity), None)

    def _ignore(self, record: Message) -> None:
        """No effect on the image: NoOpRecord, leftovers of ZooKeeper, and transaction marks, which the loader
        handles."""


def changed_partition(before: PartitionImage, record: r.PartitionChangeRecord) -> PartitionImage:
    """Return the partition after a change record: a leader that is named, even the same, has a new epoch."""
    directories = before.directories
    if record.directories is not None:
        directories = tuple(record.directories)
    elif record.replicas is not None:
        known = dict(zip(before.replicas, before.directories, strict=True))
        directories = tuple(known.get(node_id, MIGRATING_DIRECTORY) for node_id in record.replicas)
    leader, leader_epoch = record.leader, before.leader_epoch + 1
    if leader == _LEADER_UNCHANGED:
        leader, leader_epoch = before.leader, before.leader_epoch
    recovery_state = record.leader_recovery_state
    if recovery_state == _RECOVERY_UNCHANGED:
        recovery_state = before.leader_recovery_state
    return PartitionImage(
        _else(record.replicas, before.replicas),
        directories,
        _else(record.isr, before.isr),
        leader,
        leader_epoch,
        before.partition_epoch + 1,
        _else(record.removing_replicas, before.removing_replicas),
        _else(record.adding_replicas, before.adding_replicas),
        recovery_state,
        _else(record.eligible_leader_replicas, before.elr),
        _else(record.last_known_elr, before.last_known_elr),
    )


def _given(ids: Sequence[Uuid] | None) -> tuple[Uuid, ...] | None:
    return None if ids is None else tuple(ids)


def _else(new: Sequence[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def kept_key(record: Any) -> KeptKey:
    """Return what tells a kept record from the others."""
    return (record.key, _IDENTITY[type(record)](record))


def _quota_identity(record: r.ClientQuotaRecord) -> tuple[object, ...]:
    """Whom a quota is for is a map: the order in which a record names its parts says nothing."""
    entity = {part.entity_type: part.entity_name for part in record.entity}
    return (tuple((kind, entity[kind]) for kind in sorted(entity)), record.quota_key)


_IDENTITY: dict[type[Message], Callable[[Any], tuple[object, ...]]] = {
    r.DelegationTokenRecord: lambda record: (record.token_id,),
    r.UserScramCredentialRecord: lambda record: (record.name, record.mechanism),
    r.ClientQuotaRecord: _quota_identity,
    r.AccessControlEntryRecord: lambda record: (record.id,),
}


def _endpoints(rows: Iterable[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(row.name, row.host, row.port, row.security_protocol) for row in rows)


def _features(rows: Iterable[Any]) -> Map[str, FeatureRange]:
    return Map(
        {
            row.name: FeatureRange(row.min_supported_version, row.max_supported_version)
            for row in rows
        }
    )


class QuorumObserver(Protocol):
    """What `MetadataQuorum` calls, on the event loop, when the metadata or its own role changes: the node.

    The methods return effects, and may write to the quorum. They must not raise for a peer's data.
    """

    def image_published(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        """`image` is committed, is now the quorum's `image`, and differs from the last one by `delta`.

        This is called once for each image, in order, before the writer of the records gets its response.
        """
        ...

    def became_active(self, now_ms: int) -> Effects:
        """This node leads, has applied all records, and is the active controller; the bootstrap records of a
        new cluster are committed. This is called once in each epoch that the node leads."""
        ...

    def became_inactive(self, now_ms: int) -> Effects:
        """This node is no longer active. `newest` is the committed image; uncommitted writes are answered
        NOT_CONTROLLER right after this."""
        ...


class Unobserved:
    """The observer of a quorum without a node, for tools and tests."""

    def image_published(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        return []

    def became_active(self, now_ms: int) -> Effects:
        return []

    def became_inactive(self, now_ms: int) -> Effects:
        return []


_ACTIONS: dict[type[Message], Callable[[Replay, Any], None]] = {
    r.RegisterBrokerRecord: Replay._register_broker,
    r.UnregisterBrokerRecord: Replay._unregister_broker,
    r.TopicRecord: Replay._topic,
    r.PartitionRecord: Replay._partition,
    r.ConfigRecord: Replay._config,
    r.PartitionChangeRecord: Replay._partition_change,
    r.FenceBrokerRecord: Replay._fence_broker,
    r.UnfenceBrokerRecord: Replay._unfence_broker,
    r.RemoveTopicRecord: Replay._remove_topic,
    r.DelegationTokenRecord: Replay._keep,
    r.UserScramCredentialRecord: Replay._keep,
    r.FeatureLevelRecord: Replay._feature_level,
    r.ClientQuotaRecord: Replay._client_quota,
    r.ProducerIdsRecord: Replay._producer_ids,
    r.BrokerRegistrationChangeRecord: Replay._broker_change,
    r.AccessControlEntryRecord: Replay._keep,
    r.RemoveAccessControlEntryRecord: lambda replay, record: replay._drop(
        r.AccessControlEntryRecord, record.id
    ),
    r.NoOpRecord: Replay._ignore,
    r.ZkMigrationStateRecord: Replay._ignore,
    r.RemoveUserScramCredentialRecord: lambda replay, record: replay._drop(
        r.UserScramCredentialRecord, record.name, record.mechanism
    ),
    r.BeginTransactionRecord: Replay._ignore,
    r.EndTransactionRecord: Replay._ignore,
    r.AbortTransactionRecord: Replay._ignore,
    r.RemoveDelegationTokenRecord: lambda replay, record: replay._drop(
        r.DelegationTokenRecord, record.token_id
    ),
    r.RegisterControllerRecord: Replay._register_controller,
    r.ClearElrRecord: Replay._clear_elr,
}
assert len(_ACTIONS) == len(r.TYPES), "a record type without a meaning"
