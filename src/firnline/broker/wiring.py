"""The parts of a node are made and connected here, and nowhere else. PURE.

Siblings never import each other: what one needs of another it gets as a callable from this page. Each part is
whole when it is made, of the parts before it. Who tells whom: what becomes of partitions goes through
`PartitionEvents`, a disk that failed through `StorageFailures`, and what a part has to tell its node to the
node itself, which is there before its parts (`BrokerNode`). Source: house, section 5, rule 2.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import ConfigError, FirnlineError, KafkaError, StorageError
from firnline.base.ids import (
    OFFSETS_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    PartitionKey,
    TopicIdPartition,
    Uuid,
)
from firnline.base.ports import EnoughFiles, Fs, LogFiles, Rng
from firnline.base.replicas import DirectoryAssignment, IsrChange
from firnline.base.units import MINUTE_MS
from firnline.broker.controller_node import ControllerNode, NodeOwner, Unowned
from firnline.broker.controller_port import (
    AllocateProducerIds,
    AlterPartitions,
    AssignDirectories,
    ControllerPort,
)
from firnline.broker.coordination import Coordination
from firnline.broker.fetch import Fetching, Prefer
from firnline.broker.fetch_session import FetchSessions
from firnline.broker.hosting import Hosting
from firnline.broker.internal_topics import (
    InternalTopics,
    TopicCreatedCallback,
    create_topics,
    offsets_topic,
    tier_topic,
)
from firnline.broker.leaders import ActedOn, Leaders, OtherBrokers, RackAware
from firnline.broker.lifecycle import Lifecycle, StorageFailures
from firnline.broker.list_offsets import ListingOffsets
from firnline.broker.node import BrokerNode, Parts
from firnline.broker.produce import Producing
from firnline.broker.quorum_ground import (
    Directories,
    Ground,
    Remote,
    make_controller,
    open_directories,
    open_quorum,
    open_quorum_beside,
    stranger_problem,
)
from firnline.broker.storage import Storage
from firnline.config.broker import BrokerConfig
from firnline.config.layers import broker_config
from firnline.controller.brokers import Registration
from firnline.coordinator.groups import GroupCoordinator
from firnline.coordinator.producer_ids import Allocated, ProducerIdBlock, ProducerIds
from firnline.log.checkpoint import read_cluster_id
from firnline.metadata.features import CORDONED_SINCE, DIRECTORIES_SINCE, SUPPORTED
from firnline.metadata.image import ClusterImage, Endpoint, ResourceType
from firnline.metadata.quorum import MetadataQuorum
from firnline.raft.settings import QuorumSettings
from firnline.replica.compacting import Compacting
from firnline.replica.directories import DirectoryAssignments
from firnline.replica.follower import LeaderPort
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import FsyncRule, Partition
from firnline.replica.replication import NO_LEADERS, ReplicaSettings, Replication
from firnline.tiered.spi import RemoteLogMetadata, RemoteStorage

if TYPE_CHECKING:
    from firnline.broker.tier.feed import Elsewhere
    from firnline.broker.tier.ground import TierGround

    class OtherLeaders(LeaderPort, Elsewhere, Protocol):
        """What is asked of leaders on other brokers."""


# Makes the way to leaders of what it has to know: `outbound.replica_fetch.ReplicaFetch`.
Followed = Callable[..., "OtherLeaders"]
# Is shown a partition that is hosted no more, while its log can be read.
PartitionWatch = Callable[[Partition], None]
UNOWNED = Unowned()
# min.incremental.fetch.session.eviction.ms, which Kafka does not let be set either.
_SESSION_EVICTION_MS = 2 * MINUTE_MS
# replica.selector.class, by the name of Kafka's class.
_RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def build_controller(
    config: BrokerConfig,
    fs: Fs,
    rng: Rng,
    *,
    now_ms: int,
    endpoints: Sequence[Endpoint] | None = None,
    remote: Remote | None = None,
    settings: QuorumSettings | None = None,
    owner: NodeOwner = UNOWNED,
) -> ControllerNode:
    """Make a node that is a controller and nothing else, and take its directory into use.

    endpoints  where it listens, where that is not what the configuration says: port 0
    remote     makes the port to the active controller elsewhere; None in a quorum of one
    settings   of the quorum, instead of what the configuration says: for the simulator
    owner      is told of the node's life

    Raises ConfigError and StorageError for what the operator must mend; nothing is locked then.
    """
    cluster_id = read_cluster_id(fs, config.metadata_directory)
    ground = partial(
        open_quorum, config, fs, rng, cluster_id=cluster_id, now_ms=now_ms, settings=settings
    )
    return make_controller(
        config,
        rng,
        ground,
        cluster_id=cluster_id,
        endpoints=endpoints,
        remote=remote,
        owner=owner,
    )


def build_node(
    config: BrokerConfig,
    fs: Fs,
    rng: Rng,
    *,
    now_ms: int,
    endpoints: Sequence[Endpoint] | None = None,
    controller_endpoints: Sequence[Endpoint] | None = None,
    remote: Remote | None = None,
    followed: Followed | None = None,
    remote_storage: RemoteStorage | None = None,
    remote_metadata: RemoteLogMetadata | None = None,
    owner: NodeOwner = UNOWNED,
    files: LogFiles = EnoughFiles(),  # noqa: B008 - it has no state
    watch: PartitionWatch | None = None,
) -> BrokerNode:
    """Make a broker, with a controller in it or not, on formatted directories; take them into use.

    endpoints        what clients are told, where it is not what the configuration says: port 0
    remote           makes the port to the active controller elsewhere; None in a quorum of one
    followed         makes the way to leaders on other brokers; None where there are none
    remote_storage   configured, if remote.log.storage.system.enable
    owner            is told of the node's life
    files            says how many files may still be opened for logs
    watch            is shown each partition that is about to be removed here: for the simulator
    Raises ConfigError and StorageError for what the operator must mend; nothing is locked then.
    """
    given = _Given(
        now_ms,
        endpoints,
        controller_endpoints,
        remote,
        followed,
        (remote_storage, remote_metadata),
        files,
        watch,
    )
    return BrokerNode(partial(_parts, config, fs, rng, given), owner)


class _Given(NamedTuple):
    """What `build_node` is given for the parts."""

    now_ms: int
    endpoints: Sequence[Endpoint] | None
    controller_endpoints: Sequence[Endpoint] | None
    remote: Remote | None
    followed: Followed | None
    spi: tuple[RemoteStorage | None, RemoteLogMetadata | None]
    files: LogFiles
    watch: PartitionWatch | None


def _parts(config: BrokerConfig, fs: Fs, rng: Rng, given: _Given, node: BrokerNode) -> Parts:
    """Make the parts of a node, each of those before it. What they have to tell it they tell `node`."""
    now_ms, endpoints, controller_endpoints, remote, followed, spi, files, watch = given
    cluster_id = read_cluster_id(fs, config.metadata_directory)
    opened = open_directories(fs, config, rng=rng, cluster_id=cluster_id)
    ground = open_quorum_beside(
        config, fs, rng, node, cluster_id=cluster_id, opened=opened, now_ms=now_ms
    )
    quorum = ground.quorum
    storage = _storage(fs, config, opened, quorum, files)
    controller_node = _controller(
        config, rng, ground, cluster_id, controller_endpoints, remote, storage, files, node
    )
    port = _port(controller_node, ground, cluster_id, remote)
    leaders, hosted = _lookups(quorum, node)
    groups = GroupCoordinator(config, rng)
    lifecycle = _lifecycle(config, rng, port, quorum, storage, endpoints, node)
    failures = StorageFailures(storage, hosted, lifecycle)
    assignments = _assignments(config, quorum, port, lifecycle, storage)
    others = _others(config, quorum, leaders, lifecycle, followed)
    tier = _tier(config, fs, rng, hosted, quorum, storage, others, spi, failures, assignments)
    acted_on = ActedOn()
    brokers = OtherBrokers(
        acted_on, lambda: lifecycle.broker_epoch, lag_max_ms=config.replica_lag_time_max_ms
    )
    replication = _replication(
        config, port, lifecycle, brokers, others, hosted, tier, failures, assignments
    )
    told = PartitionEvents(replication, Coordination(groups), tier, failures, watch)
    hosting = _hosting(config, hosted, storage, brokers, acted_on, lifecycle, told)
    return Parts(
        config=config,
        rng=rng,
        cluster_id=cluster_id,
        storage=storage,
        storage_effects=opened.effects,
        failures=failures,
        quorum_ground=ground,
        port=port,
        controller_node=controller_node,
        hosted=hosted,
        hosting=hosting,
        replication=replication,
        leaders=leaders,
        producing=Producing(failures.partition_failed, partial(_is_for_brokers, config, quorum)),
        fetching=_fetching(config, rng, hosted, quorum, tier, replication),
        listing_offsets=_listing_offsets(config, hosted, tier),
        groups=groups,
        producer_ids=_producer_ids(config, port, lifecycle),
        internal_topics=_internal_topics(config, quorum, tier, port, hosting),
        lifecycle=lifecycle,
        tier_ground=tier,
        compacting=_compacting(config, quorum, storage, hosted, rng, failures),
    )


class PartitionEvents:
    """Who is told what becomes of partitions, in which order: `replica.hosted.PartitionObserver`.

    Replication follows whom metadata names, and tells the controller of what is lost; the coordinator loads
    groups where we lead them; the tier copies where we lead, and follows its metadata elsewhere; a disk that
    failed concerns the whole node.
    """

    def __init__(
        self,
        replication: Replication,
        coordination: Coordination,
        tier: "TierGround | None",
        failures: StorageFailures,
        watch: PartitionWatch | None,
    ) -> None:
        self._replication = replication
        self._coordination = coordination
        self._tier = tier
        self._failures = failures
        self._watch = watch

    def partition_updated(self, partition: Partition, now_ms: int) -> Effects:
        """To replication, then the tier."""
        effects = self._replication.on_update(partition, now_ms)
        return effects if self._tier is None else effects + self._tier.on_updated(partition, now_ms)

    def leadership_began(self, partition: Partition, now_ms: int) -> Effects:
        """To the coordinator, then the tier."""
        effects = self._coordination.on_leading(partition, now_ms)
        return effects if self._tier is None else effects + self._tier.on_leading(partition, now_ms)

    def leadership_ended(self, partition: Partition, now_ms: int) -> Effects:
        """To the coordinator, then the tier."""
        effects = self._coordination.on_not_leading(partition, now_ms)
        if self._tier is not None:
            effects += self._tier.on_not_leading(partition, now_ms)
        return effects

    def partition_dropped(self, partition: Partition, now_ms: int) -> Effects:
        """To replication, then the tier, then who watches."""
        effects = self._replication.on_gone(partition, now_ms)
        if self._tier is not None:
            effects += self._tier.on_dropped(partition, now_ms)
        if self._watch is not None:
            self._watch(partition)
        return effects

    def partition_configured(self, partition: Partition, now_ms: int) -> Effects:
        """To the tier."""
        return [] if self._tier is None else self._tier.on_configured(partition, now_ms)

    def partition_lost(self, key: PartitionKey, now_ms: int) -> Effects:
        """To replication, which tells the controller."""
        return self._replication.on_lost(key, now_ms)

    def disk_failed(self, said: StorageError, now_ms: int) -> Effects:
        """To the node's log directories, and the controller."""
        return self._failures.disk_failed(said, now_ms)


def _storage(
    fs: Fs, config: BrokerConfig, opened: Directories, quorum: MetadataQuorum, files: LogFiles
) -> Storage:
    return Storage(
        fs,
        config,
        opened.all,
        opened.producers,
        cordoned=lambda: _present(config, quorum.image).cordoned_log_dirs,
        is_failure_known=lambda: _knows_our_directories(config, quorum.image),
        files=files,
    )


def _compacting(
    config: BrokerConfig,
    quorum: MetadataQuorum,
    storage: Storage,
    hosted: HostedPartitions,
    rng: Rng,
    failures: StorageFailures,
) -> Compacting:
    def settings() -> BrokerConfig:
        return _present(config, quorum.image)

    return Compacting(settings, storage, hosted, rng, failures.partition_failed)


def _controller(
    config: BrokerConfig,
    rng: Rng,
    ground: Ground,
    cluster_id: str,
    endpoints: Sequence[Endpoint] | None,
    remote: Remote | None,
    storage: Storage,
    files: LogFiles,
    node: BrokerNode,
) -> ControllerNode | None:
    """The controller inside a combined node, which is told what the quorum says, and passes it on."""
    if "controller" not in config.process_roles:
        return None

    def room_for_logs() -> int:
        return files.logs_left(sum(len(directory.logs) for directory in storage.directories))

    return make_controller(
        config,
        rng,
        lambda _: ground,
        cluster_id=cluster_id,
        endpoints=endpoints,
        remote=remote,
        owner=node,
        room_for_logs=room_for_logs,
    )


def _port(
    controller_node: ControllerNode | None, ground: Ground, cluster_id: str, remote: Remote | None
) -> ControllerPort:
    if controller_node is not None:
        return controller_node.port
    assert remote is not None, "a broker alone has its controller elsewhere"
    return remote(cluster_id, ground.quorum.raft.leader_peer)


def _lookups(quorum: MetadataQuorum, node: BrokerNode) -> tuple[Leaders, HostedPartitions]:
    leaders = Leaders(lambda: quorum.image)
    hosted = HostedPartitions(
        exists=leaders.exists, name_of=leaders.name_of, on_missing=node.partition_missing
    )
    return leaders, hosted


def _lifecycle(
    config: BrokerConfig,
    rng: Rng,
    port: ControllerPort,
    quorum: MetadataQuorum,
    storage: Storage,
    endpoints: Sequence[Endpoint] | None,
    node: BrokerNode,
) -> Lifecycle:
    def cordoned() -> tuple[Uuid, ...] | None:
        is_known = quorum.image.metadata_version >= CORDONED_SINCE
        return storage.cordoned_directories if is_known else None

    return Lifecycle(
        port=port,
        image=lambda: quorum.image,
        is_cut_off=lambda: quorum.raft.is_cut_off,
        stranger_problem=partial(stranger_problem, quorum),
        registration=_registration(config, rng, storage, endpoints),
        config=config,
        observer=node,
        failed_directories=lambda: storage.failed_directories,
        cordoned_directories=cordoned,
    )


def _present(config: BrokerConfig, image: ClusterImage) -> BrokerConfig:
    """The settings with what was altered at run time."""
    cluster, node = (image.config(ResourceType.BROKER, name) for name in ("", str(config.node_id)))
    return broker_config(config, cluster, node) if cluster or node else config


def _knows_our_directories(config: BrokerConfig, image: ClusterImage) -> bool:
    """Whether the controller acts on a directory of ours that fails.

    One that registered at an older metadata.version is not known by its directories until it starts again.
    """
    broker = image.brokers.get(config.node_id)
    return (
        image.metadata_version >= DIRECTORIES_SINCE and broker is not None and bool(broker.log_dirs)
    )


def _is_for_brokers(config: BrokerConfig, quorum: MetadataQuorum, listener: str) -> bool:
    """Whether another broker may be who connects there: a node that is alone writes in itself."""
    return listener in config.broker_listeners and len(quorum.image.brokers) > 1


def _registration(
    config: BrokerConfig, rng: Rng, storage: Storage, endpoints: Sequence[Endpoint] | None
) -> Registration:
    told = endpoints or [Endpoint(e.listener, e.host, e.port) for e in config.advertised]
    return Registration(
        broker_id=config.node_id,
        incarnation_id=rng.uuid(),
        endpoints=tuple(told),
        features=SUPPORTED,
        rack=config.broker_rack,
        log_dirs=storage.directory_ids,
    )


# --------------------------------------------------------------------------------- the other parts


def _hosting(
    config: BrokerConfig,
    hosted: HostedPartitions,
    storage: Storage,
    brokers: OtherBrokers,
    acted_on: ActedOn,
    lifecycle: Lifecycle,
    told: PartitionEvents,
) -> Hosting:
    """What hosts partitions, as the image says."""
    fsync_rule: FsyncRule = config.firnline_acks_fsync  # type: ignore[assignment]
    return Hosting(
        node_id=config.node_id,
        config=config,
        hosted=hosted,
        store=storage,
        fsync_rule=fsync_rule,
        observer=told,
        acted_on=acted_on,
        brokers=brokers,
        had_records=storage.had_records,
        is_in=lifecycle.is_in,
    )


def _let_another_lead(
    hosted: HostedPartitions,
    assignments: DirectoryAssignments,
    where: TopicIdPartition,
    _problem: FirnlineError,
    now_ms: int,
) -> Effects:
    """A segment of a partition that is led here is damaged: told as lost, it is led by another (KIP-858).

    It is followed here again as soon as the controller has elected. Nothing is told where nobody else is in
    sync: what is sound is served on.
    """
    partition = hosted.by_id.get((where.topic_id, where.partition))
    if partition is None or not partition.is_leader or len(partition.isr) < 2:
        return []
    return assignments.lose((where.topic_id, where.partition), now_ms)


def _replication(
    config: BrokerConfig,
    port: ControllerPort,
    lifecycle: Lifecycle,
    brokers: OtherBrokers,
    others: "OtherLeaders | None",
    hosted: HostedPartitions,
    tier: "TierGround | None",
    failures: StorageFailures,
    assignments: DirectoryAssignments,
) -> Replication:
    """Whom this node follows, and what it proposes to the controller as a leader."""

    def ask(wanted: Sequence[IsrChange], then: Any, now_ms: int) -> Effects:
        command = AlterPartitions(
            broker_id=config.node_id, broker_epoch=lifecycle.broker_epoch, changes=wanted
        )
        return port.ask(command, then, now_ms)

    return Replication(
        node_id=config.node_id,
        settings=ReplicaSettings(config.replica_lag_time_max_ms, config.replica_fetch_backoff_ms),
        brokers=brokers,
        hosted=lambda: hosted,
        leaders=NO_LEADERS if others is None else others,
        ask_controller=ask,
        on_storage_failure=failures.partition_failed,
        assignments=assignments,
        tier=None if tier is None else tier.state_above,
    )


def _assignments(
    config: BrokerConfig,
    quorum: MetadataQuorum,
    port: ControllerPort,
    lifecycle: Lifecycle,
    storage: Storage,
) -> DirectoryAssignments:
    """What the controller is to know of our directories."""

    def said(topic_id: Uuid, number: int) -> Uuid | None:
        topic = quorum.image.topics_by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(number)
        if partition is None or quorum.image.metadata_version < DIRECTORIES_SINCE:
            return None
        if config.node_id not in partition.replicas:
            return None
        return partition.directories[partition.replicas.index(config.node_id)]

    def assign(wanted: Sequence[DirectoryAssignment], then: Any, now_ms: int) -> Effects:
        command = AssignDirectories(
            broker_id=config.node_id, broker_epoch=lifecycle.broker_epoch, assignments=wanted
        )
        return port.ask(command, then, now_ms)

    return DirectoryAssignments(
        said=said,
        actual=lambda partition: storage.directory_of(partition.log),
        is_failed=lambda directory: directory in storage.failed_directories,
        assign=assign,
    )


def _others(
    config: BrokerConfig,
    quorum: MetadataQuorum,
    leaders: Leaders,
    lifecycle: Lifecycle,
    followed: Followed | None,
) -> "OtherLeaders | None":
    """The way to leaders on other brokers."""
    if followed is None:
        return None
    listener = (config.inter_broker_listener_name or "PLAINTEXT").upper()
    return followed(
        peer=partial(leaders.peer, listener),
        broker_epoch=lambda: lifecycle.broker_epoch,
        metadata_version=lambda: quorum.image.metadata_version,
    )


def _listing_offsets(
    config: BrokerConfig, hosted: HostedPartitions, tier: "TierGround | None"
) -> ListingOffsets:
    return ListingOffsets(
        remote=None if tier is None else tier.offset_for_timestamp,
        timeout_ms=config.remote_list_offsets_request_timeout_ms,
        pages=hosted.pages,
    )


def _fetching(
    config: BrokerConfig,
    rng: Rng,
    hosted: HostedPartitions,
    quorum: MetadataQuorum,
    tier: "TierGround | None",
    replication: Replication,
) -> Fetching:
    prefer: Prefer | None = None
    selector = config.replica_selector_class
    if selector == _RACK_AWARE:
        prefer = RackAware(lambda: quorum.image)
    elif selector:
        raise ConfigError(f"replica.selector.class={selector}: only {_RACK_AWARE} is known here")
    return Fetching(
        hosted,
        FetchSessions(
            sessions_max=config.max_incremental_fetch_session_cache_slots,
            eviction_ms=_SESSION_EVICTION_MS,
            rng=rng,
        ),
        max_bytes=config.fetch_max_bytes,
        remote_read=None if tier is None else tier.read,
        remote_max_wait_ms=config.remote_fetch_max_wait_ms,
        on_follower=replication.on_follower,
        prefer=prefer,
    )


def _tier(
    config: BrokerConfig,
    fs: Fs,
    rng: Rng,
    hosted: HostedPartitions,
    quorum: MetadataQuorum,
    storage: Storage,
    others: "OtherLeaders | None",
    spi: tuple[RemoteStorage | None, RemoteLogMetadata | None],
    failures: StorageFailures,
    assignments: DirectoryAssignments,
) -> "TierGround | None":
    remote_storage, metadata = spi
    if remote_storage is None:
        return None
    # A node without a tier starts without its code: a sixth of the time a start takes.
    from firnline.broker.tier.feed import MetadataFeed
    from firnline.broker.tier.ground import TierGround
    from firnline.tiered.remote_log import RemoteLog
    from firnline.tiered.settings import tier_settings

    def given_up() -> tuple[str, ...]:
        return _present(config, quorum.image).firnline_remote_log_metadata_given_up

    feed = MetadataFeed(hosted, quorum, others, given_up)
    remote = RemoteLog(
        tier_settings(config),
        storage=remote_storage,
        feed=feed,
        fs=fs,
        rng=rng,
        topic_exists=lambda topic_id: topic_id in quorum.image.topics_by_id,
        log_dir=storage.directories[0].path,
        metadata=metadata,
        on_damaged=partial(_let_another_lead, hosted, assignments),
    )
    return TierGround(remote, feed, config, failures.partition_failed)


def _internal_topics(
    config: BrokerConfig,
    quorum: MetadataQuorum,
    tier: "TierGround | None",
    port: ControllerPort,
    hosting: Hosting,
) -> InternalTopics:
    plans = {OFFSETS_TOPIC: offsets_topic(config)}
    if tier is not None:
        plans[REMOTE_LOG_METADATA_TOPIC] = tier_topic(tier.tier.services.settings)

    def create(name: str, then: TopicCreatedCallback, now_ms: int) -> Effects:
        def made(outcome: Any, at_ms: int) -> Effects:
            return then(outcome if isinstance(outcome, KafkaError) else outcome[0], at_ms)

        return create_topics(port, hosting, [plans[name]], made, now_ms)

    return InternalTopics(
        names=tuple(plans),
        exists=lambda name: quorum.image.topic(name) is not None,
        create=create,
    )


def _producer_ids(config: BrokerConfig, port: ControllerPort, lifecycle: Lifecycle) -> ProducerIds:
    """Ask the controller for a block of producer ids when one is used up."""

    def allocate(then: Allocated) -> Effects:
        def allocated(outcome: Any, now_ms: int) -> Effects:
            if isinstance(outcome, KafkaError):
                return then(outcome, now_ms)
            return then(ProducerIdBlock(outcome.first_id, outcome.size), now_ms)

        def ask(now_ms: int) -> Effects:
            command = AllocateProducerIds(
                broker_id=config.node_id, broker_epoch=lifecycle.broker_epoch
            )
            return port.ask(command, allocated, now_ms)

        # The timer is due at once; it is here because whoever asks does not know the time.
        return [SetTimer(key=("producer ids", "allocate"), at_ms=0, then=ask)]

    return ProducerIds(allocate)
