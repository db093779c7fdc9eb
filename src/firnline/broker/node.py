"""One broker, whole: what the runtime, the handlers and the simulator see of it. PURE.

A combined node has a controller in the same process; any other one observes the metadata quorum. Everything
happens in calls that return effects; who carries them out calls their continuations. An effect that one
part of the node has for another comes back through `perform`. `broker/wiring.py` puts the parts together.
Source: house, sections 5 and 7.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from firnline.base.background import Background
from firnline.base.effects import Append, Effect, Effects, EnsureTopic, SetTimer, Warn
from firnline.base.errors import Bug, KafkaError
from firnline.base.ids import OFFSETS_TOPIC, REMOTE_LOG_METADATA_TOPIC, Uuid
from firnline.base.ports import Rng
from firnline.broker.controller_node import ControllerNode, NodeOwner
from firnline.broker.controller_port import ControllerPort
from firnline.broker.fetch import Fetching
from firnline.broker.hosting import Hosting
from firnline.broker.internal_topics import OPENING_WAIT_MS, InternalTopics, create_topics
from firnline.broker.leaders import Leaders
from firnline.broker.lifecycle import Lifecycle, Stage, StorageFailures
from firnline.broker.list_offsets import ListingOffsets
from firnline.broker.produce import Producing
from firnline.broker.quorum_ground import Ground
from firnline.broker.storage import Storage
from firnline.broker.tier import absence
from firnline.config.broker import BrokerConfig
from firnline.controller.controller import Controller
from firnline.controller.topics import NewTopic
from firnline.coordinator.groups import GroupCoordinator
from firnline.coordinator.producer_ids import ProducerIds
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.features import SUPPORTED
from firnline.metadata.image import ClusterImage, FeatureRange
from firnline.metadata.quorum import R, WriteCallback
from firnline.metadata.result import ControllerResult
from firnline.replica.compacting import Compacting
from firnline.replica.hosted import ByName, HostedPartitions
from firnline.replica.partition import ACKS_ALL
from firnline.replica.replication import Replication

if TYPE_CHECKING:
    from firnline.broker.tier.ground import TierGround
    from firnline.tiered.remote_log import RemoteLog

# How long an append of one of our own coordinators waits for followers.
_COORDINATOR_TIMEOUT_MS = 5_000
# How long a start waits for logs: those that are open by then are served, the others follow.
_START_WAIT_MS = 500
_CLOSING = ("broker", "closing")
_CLOSING_LOOK_MS = 10
# Until there is security, an address is all that tells a broker from a client.
_FORGEABLE = (
    f"brokers and clients share a listener: whoever reaches it can forge {REMOTE_LOG_METADATA_TOPIC}, and"
    " have the tier deleted; give brokers a listener of their own (inter.broker.listener.name) that no client"
    " can reach"
)


@dataclass(slots=True, kw_only=True)
class Parts:
    """What a node is made of, by the names that handlers use."""

    config: BrokerConfig
    rng: Rng
    cluster_id: str
    storage: Storage
    storage_effects: Effects
    failures: StorageFailures
    quorum_ground: Ground
    port: ControllerPort
    controller_node: ControllerNode | None
    hosted: HostedPartitions
    hosting: Hosting
    replication: Replication
    leaders: Leaders
    producing: Producing
    fetching: Fetching
    listing_offsets: ListingOffsets
    groups: GroupCoordinator
    producer_ids: ProducerIds
    internal_topics: InternalTopics
    lifecycle: Lifecycle
    tier_ground: "TierGround | None"
    compacting: Compacting


class BrokerNode:
    """The broker, and the one observer of its parts.

    It is there before them and is given to those that have something to tell: the quorum
    (`metadata.delta.QuorumObserver`), the lifecycle (`LifecycleObserver`), the controller in this process
    (`NodeOwner`), and the lookup of partitions (`partition_missing`). None tells anything before `start`.

    make_parts(node)  returns the parts of `node`, each whole: `broker/wiring.py`
    owner             is told of this node's life
    """

    # What DescribeCluster calls a broker's listener.
    endpoint_type = 1

    def __init__(self, make_parts: Callable[["BrokerNode"], Parts], owner: NodeOwner) -> None:
        self._owner = owner
        self.parts = parts = make_parts(self)
        self.in_turns = Background("requests", takes_turns=True)
        self.config = parts.config
        self.rng = parts.rng
        self.node_id: int = parts.config.node_id
        self.cluster_id = parts.cluster_id
        self.quorum = parts.quorum_ground.quorum
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

    # ----------------------------------------------------------------------------- what handlers use

    @property
    def image(self) -> ClusterImage:
        """The committed image of the cluster."""
        return self.quorum.image

    @property
    def forwards(self) -> bool:
        """Whether changes of the cluster are decided elsewhere."""
        return not self.quorum.is_active

    @property
    def controller(self) -> Controller:
        """What decides changes of the cluster; only for a node that does not forward them."""
        assert self.controller_node is not None, "this node has no controller in it"
        return self.controller_node.controller

    @property
    def partitions(self) -> ByName:
        """Hosted partitions by TopicPartition."""
        return self.hosted.by_name

    @property
    def broker_epoch(self) -> int:
        """Epoch of this incarnation's registration; -1 before it."""
        return self.lifecycle.broker_epoch

    @property
    def tier(self) -> "RemoteLog | None":
        """The remote log; None where remote.log.storage.system.enable is false."""
        ground = self.parts.tier_ground
        return None if ground is None else ground.tier

    @property
    def unreadable_records(self) -> list[tuple[str, int]]:
        """How many records of each system topic this node went on without."""
        rows = [(OFFSETS_TOPIC, self.groups.unreadable_records)]
        if self.tier is not None:
            rows.append((REMOTE_LOG_METADATA_TOPIC, self.tier.unreadable_offsets))
        return rows

    @property
    def supported_features(self) -> Mapping[str, FeatureRange]:
        """Feature levels this release acts on."""
        return SUPPORTED

    @property
    def is_ready(self) -> bool:
        """Whether the controller counts this broker in."""
        return self.lifecycle.stage is Stage.RUNNING

    @property
    def is_stopped(self) -> bool:
        """Whether `shutdown` has come to its end."""
        return self.lifecycle.stage is Stage.STOPPED

    # -------------------------------------------------------------------------------------- life

    def start(self, now_ms: int) -> Effects:
        """Begin; when the node is registered and unfenced its owner is told.

        Raises ConfigError and StorageError for what the operator must mend.
        """
        quorum = self.quorum if self.controller_node is None else self.controller_node
        effects = [*self.parts.storage_effects]
        if self.controller_node is None:
            effects += self.parts.quorum_ground.effects
        effects += quorum.start(now_ms)
        return effects + self.lifecycle.start(now_ms)

    def broker_registered(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """`LifecycleObserver`: the image is acted on from here on, all of it first (rel-R4).

        Raises ConfigError for a broker without its tier: no log is open by then.
        """
        hosting = self.parts.hosting
        image = self.image
        absence.refuse_start(self.config, image)

        def all_are_open(at_ms: int) -> Effects:
            # By what the cluster is now: a topic may have gone while the logs were opened.
            return self.storage.put_strays_aside(
                lambda found: found in self.image.topics_by_id, self._has_replica_here, at_ms
            )

        def taken(at_ms: int) -> Effects:
            return self.groups.start(at_ms) + replication.when_mended(then, at_ms)

        replication = self.parts.replication
        effects = replication.start(now_ms)
        effects += hosting.take(image, now_ms)
        effects += hosting.when_settled(all_are_open, now_ms)
        return effects + hosting.when_ready(taken, now_ms, at_most_ms=_START_WAIT_MS)

    def _has_replica_here(self, topic_id: Uuid, index: int) -> bool:
        state = self.image.topics_by_id[topic_id].partitions.get(index)
        return state is not None and self.node_id in state.replicas

    def broker_unfenced(self, now_ms: int) -> Effects:
        """`LifecycleObserver`: once we lead what we should, take clients."""
        return self.parts.hosting.when_settled(self._serve, now_ms, at_most_ms=_START_WAIT_MS)

    def _serve(self, now_ms: int) -> Effects:
        """Say so, then begin what runs beside the requests."""
        self._owner.node_running(now_ms)
        failed = self.parts.failures.partition_failed
        effects = self.storage.run_jobs(self.hosted, failed, now_ms)
        effects += self.hosted.rebuilds.start(now_ms)
        effects += self.parts.compacting.start(now_ms)
        if self.parts.tier_ground is not None:
            effects += self.parts.tier_ground.tier.start(now_ms)
            is_cluster = self.config.has_other_controllers or len(self.image.brokers) > 1
            if is_cluster and self.config.shares_broker_listener:
                effects.append(Warn(line=_FORGEABLE))
        return effects

    def shutdown(self, now_ms: int) -> Effects:
        """Leave in order: hand over what is led, close the logs, tell the owner. May be called again."""
        return self.lifecycle.leave(now_ms)

    def broker_released(self, now_ms: int) -> Effects:
        """`LifecycleObserver`: lead nothing, put all on disk, let the controller here go, close."""
        return self.parts.hosting.leave(self._left, now_ms)

    def _left(self, now_ms: int) -> Effects:
        effects = self.parts.replication.stop()
        return effects + self.storage.settle(self._settled, now_ms)

    def _settled(self, now_ms: int) -> Effects:
        if self.controller_node is not None:
            return self.controller_node.shutdown(now_ms)
        if self.quorum.raft.is_writing:
            at_ms = now_ms + _CLOSING_LOOK_MS
            return [SetTimer(key=_CLOSING, at_ms=at_ms, then=self._settled)]
        self.node_stopped(now_ms)
        return []

    def node_running(self, now_ms: int) -> None:
        """`NodeOwner` of the controller in this process: clients are served when the broker is counted in."""

    def node_stopped(self, now_ms: int) -> None:
        """`NodeOwner` of the controller in this process: it went last, and the broker closes."""
        self.close()
        self._owner.node_stopped(now_ms)

    def close(self) -> None:
        """Close the logs, durably, whether or not the controller knows; then nothing may follow."""
        if self.controller_node is not None:
            self.controller_node.close()
        else:
            self.quorum.close()
            self.parts.quorum_ground.close_files()
        self.parts.hosting.stop()
        if self.parts.tier_ground is not None:
            self.parts.tier_ground.tier.close()
        self.storage.close(self.broker_epoch)

    # ------------------------------------------------------------------------- between the parts

    def write_topics(
        self, result: ControllerResult[R], then: WriteCallback[R], now_ms: int
    ) -> Effects:
        """`quorum.write` of new partitions: `then` runs when they are open too, so that whoever is told
        of them can use them at once, but no later than a second after the commit."""

        def committed(outcome: R | KafkaError, at_ms: int) -> Effects:
            return self.when_open(partial(then, outcome), at_ms)

        return self.quorum.write(result, committed, now_ms)

    def create_topics(
        self, wanted: Sequence[NewTopic], then: WriteCallback[list[KafkaError | None]], now_ms: int
    ) -> Effects:
        """Have topics made that nobody created; `then(None or KafkaError of each, or one for all)`."""
        return create_topics(self.port, self.parts.hosting, wanted, then, now_ms)

    def when_open(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """Run `then(now_ms)` when the partitions this node knows of are open, or after a second."""
        return self.parts.hosting.when_settled(then, now_ms, at_most_ms=OPENING_WAIT_MS)

    def partition_missing(self, topic: str, index: int) -> None:
        """A client asked for a partition that is not here: if it waits to be opened, it is opened soon."""
        self.parts.hosting.asked_for(topic, index)

    def became_active(self, now_ms: int) -> Effects:
        """`QuorumObserver`: the controller in this process decides, and can be asked to register us."""
        assert self.controller_node is not None, "only voters lead, and each is a controller"
        return self.controller_node.became_active(now_ms) + self.lifecycle.register(now_ms)

    def became_inactive(self, now_ms: int) -> Effects:
        """`QuorumObserver`: it decides no longer."""
        assert self.controller_node is not None, "only voters lead, and each is a controller"
        return self.controller_node.became_inactive(now_ms)

    def image_published(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        """`QuorumObserver`: a change of the cluster is committed. The controller is told first."""
        if self.controller_node is None:
            return self._on_metadata(delta, image, now_ms)
        effects = self.controller_node.image_published(delta, image, now_ms)
        return effects + self._on_metadata(delta, image, now_ms)

    def _on_metadata(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        if not self.lifecycle.is_registered:
            # It is acted on as a whole after the registration (rel-R4).
            return self.lifecycle.on_metadata(now_ms)
        effects = self.parts.hosting.apply(delta, image, now_ms)
        if delta.brokers:
            effects += self.lifecycle.on_metadata(now_ms)
        if delta.deleted_topics:
            names = [topic.name for topic in delta.deleted_topics]
            effects += self.groups.on_topics_deleted(names, now_ms)
            if self.parts.tier_ground is not None:
                then = partial(self.parts.tier_ground.on_topics, delta)
                effects += self.parts.hosting.when_applied(then, now_ms)
        return effects

    def perform(self, effect: Effect, now_ms: int) -> Effects:
        """Carry out an effect that concerns another part of this node."""
        if type(effect) is Append:
            return self._append(effect, now_ms)
        if type(effect) is EnsureTopic:
            return self.internal_topics.ensure(effect.name, effect.then, now_ms)
        raise Bug("nobody carries out this effect", effect=type(effect).__name__)

    def _append(self, effect: Append, now_ms: int) -> Effects:
        """Append for a coordinator or the tier, as acks=all."""
        topic, index = effect.topic_partition
        ground = self.parts.tier_ground
        if topic == REMOTE_LOG_METADATA_TOPIC and ground is not None:
            sent = ground.feed.append(index, effect.batch, effect.then, now_ms)
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
