"""A complete broker, as the runtime, the handlers and the simulator use it. PURE.

A combined node has a controller in the same process; any other broker observes the metadata quorum. Every
call returns effects. The runtime carries them out, and calls their continuations. An effect of one part of
the node for another part comes back through `perform`. `broker/wiring.py` makes and connects the parts.
Source: house, sections 5 and 7.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from firnline.base.background import Background
from firnline.base.counting.machine import MachineFacts
from firnline.base.effects import Append, Effect, Effects, EnsureTopic, SetTimer
from firnline.base.errors import Bug, KafkaError
from firnline.base.ids import OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC, Uuid
from firnline.base.log_lines.tier import TIER_FORGEABLE
from firnline.base.ports import Loggers, NoLoggers, Rng
from firnline.broker.change_log.change_log import ChangeLog
from firnline.broker.change_log.recovered import recovered
from firnline.broker.controller_node import ControllerNode, NodeOwner
from firnline.broker.controller_port import ControllerPort
from firnline.broker.fetch import Fetching
from firnline.broker.hosting import Hosting
from firnline.broker.internal_topics import OPENING_WAIT_MS, InternalTopics, create_topics
from firnline.broker.leaders import Leaders
from firnline.broker.lifecycle import Lifecycle, Stage, StorageFailures
from firnline.broker.list_offsets import ListingOffsets
from firnline.broker.produce import Producing
from firnline.broker.quorum_setup import QuorumSetup
from firnline.broker.storage import Storage
from firnline.broker.tier import disabled
from firnline.config.broker import BrokerConfig
from firnline.controller.controller import Controller
from firnline.controller.topics import NewTopic
from firnline.coordinator.groups import GroupCoordinator
from firnline.coordinator.producer_ids import ProducerIds
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.features import SUPPORTED
from firnline.metadata.image import ClusterImage, FeatureRange, ResourceType
from firnline.metadata.quorum import R, WriteCallback
from firnline.metadata.result import ControllerResult
from firnline.replica.compacting import Compacting
from firnline.replica.hosted import ByName, HostedPartitions
from firnline.replica.isr import lag_text
from firnline.replica.partition import ACKS_ALL, Partition
from firnline.replica.replication import Replication

if TYPE_CHECKING:
    from firnline.broker.tier.adapter import TierAdapter
    from firnline.tiered.remote_log import RemoteLog

# How long the append of a coordinator of this node waits for followers.
_COORDINATOR_TIMEOUT_MS = 5_000
# How long a start waits for logs to open; the broker serves then, and the other logs follow.
_START_WAIT_MS = 500
_CLOSING = ("broker", "closing")
_CLOSING_CHECK_MS = 10
# Without authentication, only the listener distinguishes a broker from a client.


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of a node, by the names that handlers use."""

    config: BrokerConfig
    rng: Rng
    cluster_id: str
    storage: Storage
    storage_effects: Effects
    failures: StorageFailures
    quorum_setup: QuorumSetup
    port: ControllerPort
    controller_node: ControllerNode | None
    hosted: HostedPartitions
    hosting: Hosting
    replication: Replication
    leaders: Leaders
    producing: Producing
    fetching: Fetching
    listing_offsets: ListingOffsets
    present_config: Callable[[], BrokerConfig]  # with the dynamic configs of this broker
    groups: GroupCoordinator
    producer_ids: ProducerIds
    internal_topics: InternalTopics
    lifecycle: Lifecycle
    tier_adapter: "TierAdapter | None"
    compacting: Compacting


class BrokerNode:
    """The broker, and the only observer of its parts.

    It is made before its parts, which get it as their observer: the quorum (`metadata.delta.QuorumObserver`),
    the lifecycle (`LifecycleObserver`), the controller in this process (`NodeOwner`), and the lookup of
    partitions (`partition_missing`). None of them calls it before `start`.

    make_parts(node)  returns the complete parts of `node`: `broker/wiring.py`
    owner             is called when the node runs, and when it has stopped
    """

    # The endpoint type of a broker in DescribeCluster.
    endpoint_type = 1

    def __init__(self, make_parts: Callable[["BrokerNode"], Parts], owner: NodeOwner) -> None:
        self._owner = owner
        self.parts = parts = make_parts(self)
        own = parts.controller_node
        # One machine is under both halves of a combined node: whoever asks either is told the same.
        self.machine = MachineFacts() if own is None else own.machine
        self.sliced_tasks = Background("requests", is_round_robin=True)
        self.config = parts.config
        self.loggers: Loggers = NoLoggers()
        self.rng = parts.rng
        self.node_id: int = parts.config.node_id
        self.cluster_id = parts.cluster_id
        self.quorum = parts.quorum_setup.quorum
        self.port = parts.port
        self.controller_node = parts.controller_node
        self.hosted = parts.hosted
        self.leaders = parts.leaders
        self.producing = parts.producing
        self.fetching = parts.fetching
        self.listing_offsets = parts.listing_offsets
        self.groups = parts.groups
        self.producer_ids = parts.producer_ids
        self.internal_topics = parts.internal_topics
        self.storage = parts.storage
        self.lifecycle = parts.lifecycle
        self._change_log = ChangeLog(
            self.node_id,
            is_part=lambda: self.lifecycle.is_registered or self.quorum.is_active,
            decides=lambda: self.quorum.is_active,
            counts=lambda: self.quorum.partition_counts,
            lag_of=self._lag_of,
            is_registered=lambda: self.lifecycle.is_registered,
        )

    # ----------------------------------------------------------------------------- what handlers use

    @property
    def image(self) -> ClusterImage:
        """The committed image of the cluster."""
        return self.quorum.image

    @property
    def forwards(self) -> bool:
        """Whether another node decides changes of the cluster."""
        return not self.quorum.is_active

    @property
    def controller(self) -> Controller:
        """The controller in this process; only for a node that does not forward changes."""
        assert self.controller_node is not None, "this node has no controller in it"
        return self.controller_node.controller

    @property
    def partitions(self) -> ByName:
        """The hosted partitions by TopicPartition."""
        return self.hosted.by_name

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of this incarnation; -1 before its registration."""
        return self.lifecycle.broker_epoch

    @property
    def tier(self) -> "RemoteLog | None":
        """The remote log; None if remote.log.storage.system.enable is false."""
        adapter = self.parts.tier_adapter
        return None if adapter is None else adapter.tier

    @property
    def unreadable_records(self) -> list[tuple[str, int]]:
        """The number of unreadable records of each internal topic that this node has skipped."""
        rows = [(OFFSETS_TOPIC, self.groups.unreadable_records)]
        if self.tier is not None:
            rows.append((REMOTE_LOG_METADATA_TOPIC, self.tier.unreadable_offsets))
        return rows

    @property
    def supported_features(self) -> Mapping[str, FeatureRange]:
        """The feature levels that this release supports."""
        return SUPPORTED

    @property
    def is_ready(self) -> bool:
        """Whether the controller has unfenced this broker."""
        return self.lifecycle.stage is Stage.RUNNING

    @property
    def is_stopped(self) -> bool:
        """Whether `shutdown` is complete."""
        return self.lifecycle.stage is Stage.STOPPED

    # -------------------------------------------------------------------------------------- life

    def start(self, now_ms: int) -> Effects:
        """Start the node; the owner is called once it is registered and unfenced.

        Raises ConfigError and StorageError for problems that the operator has to solve.
        """
        quorum = self.quorum if self.controller_node is None else self.controller_node
        effects = [*self.parts.storage_effects]
        if self.controller_node is None:
            effects += self.parts.quorum_setup.effects
        effects += quorum.start(now_ms)
        return effects + self.lifecycle.start(now_ms)

    def broker_registered(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """`LifecycleObserver`: apply the complete image, then every change of it (rel-R4).

        Raises ConfigError for a broker without its tier, before any log is opened.
        """
        hosting = self.parts.hosting
        image = self.image
        disabled.refuse_start(self.config, image)

        def all_are_open(at_ms: int) -> Effects:
            # With the present image: a topic may have been deleted while the logs were opened.
            lines = recovered(each.log for each in self.partitions.values())
            return lines + self.storage.rename_strays(
                lambda found: found in self.image.topics_by_id, self._has_replica_here, at_ms
            )

        def taken(at_ms: int) -> Effects:
            return self.groups.start(at_ms) + replication.when_repaired(then, at_ms)

        replication = self.parts.replication
        effects = replication.start(now_ms) + self._apply_dynamic_configs(now_ms)
        effects += hosting.take(image, now_ms)
        effects += hosting.when_settled(all_are_open, now_ms)
        return effects + hosting.when_ready(taken, now_ms, at_most_ms=_START_WAIT_MS)

    def _has_replica_here(self, topic_id: Uuid, index: int) -> bool:
        state = self.image.topics_by_id[topic_id].partitions.get(index)
        return state is not None and self.node_id in state.replicas

    def broker_unfenced(self, now_ms: int) -> Effects:
        """`LifecycleObserver`: serve clients once the partitions that this node leads are open."""
        return self.parts.hosting.when_settled(self._serve, now_ms, at_most_ms=_START_WAIT_MS)

    def _serve(self, now_ms: int) -> Effects:
        """Call the owner, then start the periodic jobs."""
        self._owner.node_running(now_ms)
        failures = self.parts.failures
        jobs = (failures.partition_failed, failures.disk_failed)
        effects = self.storage.run_jobs(self.hosted, *jobs, now_ms)
        effects += self.hosted.rebuilds.start(now_ms)
        effects += self.parts.compacting.start(now_ms)
        if self.parts.tier_adapter is not None:
            effects += self.parts.tier_adapter.tier.start(now_ms)
            is_cluster = self.config.has_other_controllers or len(self.image.brokers) > 1
            if is_cluster and self.config.shares_broker_listener:
                effects.append(TIER_FORGEABLE(topic=REMOTE_LOG_METADATA_TOPIC))
        return effects

    def shutdown(self, now_ms: int) -> Effects:
        """Hand over leadership, close the logs, then call the owner. May be called again."""
        return self.lifecycle.leave(now_ms)

    def broker_released(self, now_ms: int) -> Effects:
        """`LifecycleObserver`: stop serving, sync all logs, stop the controller in this process, close."""
        return self.parts.hosting.leave(self._left, now_ms)

    def _left(self, now_ms: int) -> Effects:
        effects = self.parts.replication.stop()
        return effects + self.storage.settle(self._settled, now_ms)

    def _settled(self, now_ms: int) -> Effects:
        if self.controller_node is not None:
            return self.controller_node.shutdown(now_ms)
        if self.quorum.raft.is_writing:
            at_ms = now_ms + _CLOSING_CHECK_MS
            return [SetTimer(key=_CLOSING, at_ms=at_ms, then=self._settled)]
        self.node_stopped(now_ms)
        return []

    def node_running(self, now_ms: int) -> None:
        """`NodeOwner` of the controller in this process: clients are served once the broker is unfenced."""

    def node_stopped(self, now_ms: int) -> None:
        """`NodeOwner` of the controller in this process: it stops last; the broker closes."""
        self.close()
        self._owner.node_stopped(now_ms)

    def close(self) -> None:
        """Sync and close the logs, whether or not the controller knows. No call may follow."""
        if self.controller_node is not None:
            self.controller_node.close()
        else:
            self.quorum.close()
            self.parts.quorum_setup.close_files()
        self.parts.hosting.stop()
        if self.parts.tier_adapter is not None:
            self.parts.tier_adapter.tier.close()
        self.storage.close(self.broker_epoch)

    # ------------------------------------------------------------------------- between the parts

    def write_topics(
        self, result: ControllerResult[R], then: WriteCallback[R], now_ms: int
    ) -> Effects:
        """As `quorum.write`, for new partitions.

        `then` is called when they are open on this node, too, so that a client can use them at once; at the
        latest a second after the commit.
        """

        def committed(outcome: R | KafkaError, at_ms: int) -> Effects:
            return self.when_open(partial(then, outcome), at_ms)

        return self.quorum.write(result, committed, now_ms)

    def create_topics(
        self, wanted: Sequence[NewTopic], then: WriteCallback[list[KafkaError | None]], now_ms: int
    ) -> Effects:
        """Create topics on behalf of the node; `then` gets None or a KafkaError for each, or one for all."""
        return create_topics(self.port, self.parts.hosting, wanted, then, now_ms)

    def when_open(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """Call `then(now_ms)` when all partitions of this node are open, or after a second."""
        return self.parts.hosting.when_settled(then, now_ms, at_most_ms=OPENING_WAIT_MS)

    def partition_missing(self, topic: str, index: int) -> None:
        """A client has requested a partition that is not hosted: open its log next if it has one."""
        self.parts.hosting.asked_for(topic, index)

    def became_active(self, now_ms: int) -> Effects:
        """`QuorumObserver`: the controller in this process is active, and can register this broker."""
        assert self.controller_node is not None, "only voters lead, and each is a controller"
        return self.controller_node.became_active(now_ms) + self.lifecycle.register(now_ms)

    def became_inactive(self, now_ms: int) -> Effects:
        """`QuorumObserver`: the controller in this process is not active any more."""
        assert self.controller_node is not None, "only voters lead, and each is a controller"
        return self.controller_node.became_inactive(now_ms)

    def image_published(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        """`QuorumObserver`: a change of the cluster is committed. The controller applies it first."""
        effects: Effects = []
        if self.controller_node is not None:
            effects += self.controller_node.on_image(delta, now_ms)
        effects += self._on_metadata(delta, image, now_ms)
        # Whether this node tells it depends on the change itself, which may be its registration.
        return self._change_log.published(delta, now_ms) + effects

    def _on_metadata(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        if not self.lifecycle.is_registered:
            # The complete image is applied after the registration (rel-R4).
            return self.lifecycle.on_metadata(now_ms)
        effects = self.parts.hosting.apply(delta, image, now_ms)
        if any(each.resource_type == ResourceType.BROKER for each in delta.configs):
            effects += self._apply_dynamic_configs(now_ms)
        if delta.brokers:
            effects += self.lifecycle.on_metadata(now_ms)
        if delta.deleted_topics:
            names = [topic.name for topic in delta.deleted_topics]
            effects += self.groups.on_topics_deleted(names, now_ms)
            if self.parts.tier_adapter is not None:
                then = partial(self.parts.tier_adapter.on_topics, delta)
                effects += self.parts.hosting.when_applied(then, now_ms)
        return effects

    def _lag_of(self, topic: str, index: int, broker_id: int, now_ms: int) -> str | None:
        """How a follower of a partition that this node leads fell behind."""
        partition = self.hosted.find(topic, index)
        if not isinstance(partition, Partition) or broker_id not in partition.followers:
            return None
        lag_max_ms = self.config.replica_lag_time_max_ms
        return lag_text(partition.followers[broker_id], lag_max_ms=lag_max_ms, now_ms=now_ms)

    def _apply_dynamic_configs(self, now_ms: int) -> Effects:
        """Use the dynamic configs of this broker that concern no log: hosting looks up those that do."""
        config = self.parts.present_config()
        self.fetching.remote_max_wait_ms = config.remote_fetch_max_wait_ms
        self.listing_offsets.timeout_ms = config.remote_list_offsets_request_timeout_ms
        self.parts.replication.begins_at_last_tiered = (
            config.follower_fetch_last_tiered_offset_enable
        )
        adapter = self.parts.tier_adapter
        return [] if adapter is None else adapter.on_config(config, self.image, now_ms)

    def perform(self, effect: Effect, now_ms: int) -> Effects:
        """Carry out an effect for another part of this node."""
        if type(effect) is Append:
            return self._append(effect, now_ms)
        if type(effect) is EnsureTopic:
            return self.internal_topics.ensure(effect.name, effect.then, now_ms)
        raise Bug("nobody carries out this effect", effect=type(effect).__name__)

    def _append(self, effect: Append, now_ms: int) -> Effects:
        """Append for a coordinator or the tier, with acks=all."""
        topic, index = effect.topic_partition
        adapter = self.parts.tier_adapter
        if topic == REMOTE_LOG_METADATA_TOPIC and adapter is not None:
            sent = adapter.feed.append(index, effect.batch, effect.then, now_ms)
            if sent is not None:
                return sent
        return self.producing.produce(
            [(self.hosted.find(topic, index), effect.batch)],
            acks=ACKS_ALL,
            timeout_ms=_COORDINATOR_TIMEOUT_MS,
            answer=lambda outcomes, at_ms: effect.then(outcomes[0], at_ms),
            now_ms=now_ms,
            origin="coordinator",
        )
