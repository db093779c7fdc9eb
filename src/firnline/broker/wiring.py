"""The parts of a node are made and connected here, and nowhere else. PURE.

Siblings never import each other: what one needs of another it gets as a callable from this page.
Source: house, section 5, rule 2.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import ConfigError, FirnlineError, KafkaError
from firnline.base.ids import (
    OFFSETS_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    TopicIdPartition,
    TopicPartition,
    Uuid,
)
from firnline.base.ports import Fs, Rng
from firnline.base.replicas import DirectoryAssignment, IsrChange
from firnline.base.units import MINUTE_MS
from firnline.broker.controller_node import ControllerNode
from firnline.broker.controller_port import (
    AllocateProducerIds,
    AlterPartitions,
    AssignDirectories,
    ControllerPort,
)
from firnline.broker.coordination import Coordination
from firnline.broker.fetch import Fetching
from firnline.broker.fetch_session import FetchSessions
from firnline.broker.hosting import Hosting
from firnline.broker.internal_topics import InternalTopics, Then
from firnline.broker.leaders import Leaders, OtherBrokers, RackAware
from firnline.broker.lifecycle import Lifecycle
from firnline.broker.list_offsets import ListingOffsets
from firnline.broker.node import BrokerNode, Parts
from firnline.broker.produce import Producing
from firnline.broker.quorum_ground import (
    Ground,
    Remote,
    make_controller,
    open_quorum,
    stranger_problem,
)
from firnline.broker.storage import Storage
from firnline.config.broker import BrokerConfig
from firnline.config.layers import broker_config
from firnline.controller.brokers import Registration
from firnline.controller.topics import NewTopic
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
    from firnline.tiered.settings import TierSettings

    class OtherLeaders(LeaderPort, Elsewhere, Protocol):
        """What is asked of leaders on other brokers."""


# Makes the way to leaders of what it has to know: `outbound.replica_fetch.ReplicaFetch`.
Followed = Callable[..., "OtherLeaders"]
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
) -> ControllerNode:
    """Make a node that is a controller and nothing else, and take its directory into use.

    endpoints  where it listens, where that is not what the configuration says: port 0
    remote     makes the port to the active controller elsewhere; None in a quorum of one
    settings   of the quorum, instead of what the configuration says: for the simulator

    Raises ConfigError and StorageError for what the operator must mend; nothing is locked then.
    """
    cluster_id = read_cluster_id(fs, config.metadata_directory)
    ground = open_quorum(
        config, fs, rng, cluster_id=cluster_id, shared=None, now_ms=now_ms, settings=settings
    )
    return make_controller(
        config, rng, ground, cluster_id=cluster_id, endpoints=endpoints, remote=remote
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
) -> BrokerNode:
    """Make a broker, with a controller in it or not, on formatted directories; take them into use.

    endpoints        what clients are told, where it is not what the configuration says: port 0
    remote           makes the port to the active controller elsewhere; None in a quorum of one
    followed         makes the way to leaders on other brokers; None where there are none
    remote_storage   configured, if remote.log.storage.system.enable
    Raises ConfigError and StorageError for what the operator must mend; nothing is locked then.
    """
    cluster_id = read_cluster_id(fs, config.metadata_directory)
    storage, storage_effects = _storage(fs, config, rng, cluster_id)
    ground = _ground_or_let_go(config, fs, rng, cluster_id, storage, now_ms)
    quorum = ground.quorum
    controller_node = _controller(config, rng, ground, cluster_id, controller_endpoints, remote)
    port = _port(controller_node, ground, cluster_id, remote)
    leaders, hosted = _lookups(quorum)
    groups = GroupCoordinator(config, rng)
    late: list[BrokerNode] = []  # the node comes last; what its parts tell it goes through here
    lifecycle = _lifecycle(config, rng, port, quorum, storage, endpoints, late)
    others = _others(config, quorum, leaders, lifecycle, followed)
    spi = (remote_storage, remote_metadata)
    tier = _tier(config, fs, rng, hosted, quorum, storage, others, spi, late)
    replication = _replication(config, quorum, port, lifecycle, others, hosted, tier, storage, late)
    parts = Parts(
        config=config,
        rng=rng,
        cluster_id=cluster_id,
        storage=storage,
        storage_effects=storage_effects,
        quorum_ground=ground,
        port=port,
        controller_node=controller_node,
        hosted=hosted,
        hosting=_hosting(config, hosted, storage, replication, groups, tier, late),
        replication=replication,
        leaders=leaders,
        producing=Producing(partial(_failed, late), partial(_is_for_brokers, config, quorum)),
        fetching=_fetching(config, rng, hosted, quorum, tier, replication),
        listing_offsets=_listing_offsets(config, hosted, tier),
        groups=groups,
        producer_ids=_producer_ids(config, port, lifecycle),
        internal_topics=_internal_topics(config, quorum, tier, late),
        lifecycle=lifecycle,
        tier_ground=tier,
        compacting=_compacting(config, quorum, storage, hosted, rng, late),
    )
    late.append(BrokerNode(parts))
    return late[0]


def _storage(fs: Fs, config: BrokerConfig, rng: Rng, cluster_id: str) -> tuple[Storage, Effects]:
    """The log directories, in use from now on, and what that leaves to do."""
    storage = Storage(fs, config, rng=rng, cluster_id=cluster_id)
    return storage, storage.start()


def _compacting(
    config: BrokerConfig,
    quorum: MetadataQuorum,
    storage: Storage,
    hosted: HostedPartitions,
    rng: Rng,
    late: list[BrokerNode],
) -> Compacting:
    def settings() -> BrokerConfig:
        return _present(config, quorum.image)

    return Compacting(settings, storage, hosted, rng, partial(_failed, late))


def _controller(
    config: BrokerConfig,
    rng: Rng,
    ground: Ground,
    cluster_id: str,
    endpoints: Sequence[Endpoint] | None,
    remote: Remote | None,
) -> ControllerNode | None:
    """The controller inside a combined node."""
    if "controller" not in config.process_roles:
        return None
    return make_controller(
        config, rng, ground, cluster_id=cluster_id, endpoints=endpoints, remote=remote
    )


def _port(
    controller_node: ControllerNode | None, ground: Ground, cluster_id: str, remote: Remote | None
) -> ControllerPort:
    if controller_node is not None:
        return controller_node.port
    assert remote is not None, "a broker alone has its controller elsewhere"
    return remote(cluster_id, ground.quorum.raft.leader_peer)


def _lookups(quorum: MetadataQuorum) -> tuple[Leaders, HostedPartitions]:
    leaders = Leaders(lambda: quorum.image)
    return leaders, HostedPartitions(exists=leaders.exists, name_of=leaders.name_of)


def _lifecycle(
    config: BrokerConfig,
    rng: Rng,
    port: ControllerPort,
    quorum: MetadataQuorum,
    storage: Storage,
    endpoints: Sequence[Endpoint] | None,
    late: list[BrokerNode],
) -> Lifecycle:
    storage.is_failure_known = lambda: _knows_our_directories(config, quorum.image)
    storage.cordoned = lambda: _present(config, quorum.image).cordoned_log_dirs

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
        on_registered=lambda then, now_ms: late[0].take_image(then, now_ms),
        on_running=lambda now_ms: late[0].begin_serving(now_ms),
        on_left=lambda now_ms: late[0].finish(now_ms),
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


def _failed(late: list[BrokerNode], partition: Partition, now_ms: int) -> Effects:
    return late[0].on_storage_failure(partition, now_ms)


def _ground_or_let_go(
    config: BrokerConfig, fs: Fs, rng: Rng, cluster_id: str, storage: Storage, now_ms: int
) -> Ground:
    path = config.metadata_directory
    is_shared = path in config.directories
    shared = storage.directories[config.directories.index(path)] if is_shared else None
    try:
        return open_quorum(config, fs, rng, cluster_id=cluster_id, shared=shared, now_ms=now_ms)
    except BaseException:
        storage.abandon()
        raise


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


def _had_records(storage: Storage, name: TopicPartition) -> bool | None:
    """Whether a replica that lies here had records on disk when its node stopped; None: nothing lies here."""
    holders = [d for d in storage.directories if d.had(name)]
    return any(d.recovery_point(name) for d in holders) if holders else None


def _hosting(
    config: BrokerConfig,
    hosted: HostedPartitions,
    storage: Storage,
    replication: Replication,
    groups: GroupCoordinator,
    tier: "TierGround | None",
    late: list[BrokerNode],
) -> Hosting:
    """What hosts partitions, and who is told of them."""
    fsync_rule: FsyncRule = config.firnline_acks_fsync  # type: ignore[assignment]
    hosting = Hosting(
        node_id=config.node_id,
        config=config,
        hosted=hosted,
        store=storage,
        fsync_rule=fsync_rule,
        on_disk_failed=lambda said, now_ms: late[0].on_disk_failed(said, now_ms),
        brokers=replication.brokers,
        had_records=partial(_had_records, storage),
        is_in=lambda image: late[0].lifecycle.is_in(image),
    )
    hosting.on_updated.append(replication.on_update)
    hosting.on_dropped.append(replication.on_gone)
    hosting.on_lost.append(replication.on_lost)
    coordination = Coordination(groups)
    hosting.on_leading.append(coordination.on_leading)
    hosting.on_not_leading.append(coordination.on_not_leading)
    if tier is not None:
        hosting.on_updated.append(tier.on_updated)
        hosting.on_leading.append(tier.on_leading)
        hosting.on_not_leading.append(tier.on_not_leading)
        hosting.on_configured.append(tier.on_configured)
        hosting.on_dropped.append(tier.on_dropped)
        tier.tier.services.on_damaged = partial(_let_another_lead, hosted, replication)
    return hosting


def _let_another_lead(
    hosted: HostedPartitions,
    replication: Replication,
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
    return replication.on_lost((where.topic_id, where.partition), now_ms)


def _replication(
    config: BrokerConfig,
    quorum: MetadataQuorum,
    port: ControllerPort,
    lifecycle: Lifecycle,
    others: "OtherLeaders | None",
    hosted: HostedPartitions,
    tier: "TierGround | None",
    storage: Storage,
    late: list[BrokerNode],
) -> Replication:
    """Whom this node follows, and what it proposes to the controller as a leader."""

    def ask(wanted: Sequence[IsrChange], then: Any, now_ms: int) -> Effects:
        command = AlterPartitions(
            broker_id=config.node_id, broker_epoch=lifecycle.broker_epoch, changes=wanted
        )
        return port.ask(command, then, now_ms)

    lag_max_ms = config.replica_lag_time_max_ms
    replication = Replication(
        node_id=config.node_id,
        settings=ReplicaSettings(lag_max_ms, config.replica_fetch_backoff_ms),
        brokers=OtherBrokers(
            lambda: late[0].parts.hosting.acted_on,
            lambda: lifecycle.broker_epoch,
            lag_max_ms=lag_max_ms,
        ),
        hosted=lambda: hosted,
        leaders=NO_LEADERS if others is None else others,
        ask_controller=ask,
        on_storage_failure=partial(_failed, late),
        assignments=_assignments(config, quorum, port, lifecycle, storage),
    )
    if tier is not None:
        replication.tier = tier.state_above
    return replication


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
    fetching = Fetching(
        hosted,
        FetchSessions(
            sessions_max=config.max_incremental_fetch_session_cache_slots,
            eviction_ms=_SESSION_EVICTION_MS,
            rng=rng,
        ),
        max_bytes=config.fetch_max_bytes,
        remote_read=None if tier is None else tier.read,
        remote_max_wait_ms=config.remote_fetch_max_wait_ms,
    )
    fetching.on_follower = replication.on_follower
    selector = config.replica_selector_class
    if selector == _RACK_AWARE:
        fetching.prefer = RackAware(lambda: quorum.image)
    elif selector:
        raise ConfigError(f"replica.selector.class={selector}: only {_RACK_AWARE} is known here")
    return fetching


def _tier(
    config: BrokerConfig,
    fs: Fs,
    rng: Rng,
    hosted: HostedPartitions,
    quorum: MetadataQuorum,
    storage: Storage,
    others: "OtherLeaders | None",
    spi: tuple[RemoteStorage | None, RemoteLogMetadata | None],
    late: list[BrokerNode],
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
    )
    return TierGround(remote, feed, config, partial(_failed, late))


def _internal_topics(
    config: BrokerConfig,
    quorum: MetadataQuorum,
    tier: "TierGround | None",
    late: list[BrokerNode],
) -> InternalTopics:
    plans = {OFFSETS_TOPIC: _offsets_topic(config)}
    if tier is not None:
        plans[REMOTE_LOG_METADATA_TOPIC] = _tier_topic(tier.tier.services.settings)

    def create(name: str, then: Then, now_ms: int) -> Effects:
        def made(outcome: Any, at_ms: int) -> Effects:
            return then(outcome if isinstance(outcome, KafkaError) else outcome[0], at_ms)

        return late[0].create_topics([plans[name]], made, now_ms)

    return InternalTopics(
        names=tuple(plans),
        exists=lambda name: quorum.image.topic(name) is not None,
        create=create,
    )


def _offsets_topic(config: BrokerConfig) -> NewTopic:
    """`__consumer_offsets`, as Kafka makes it."""
    return NewTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def _tier_topic(settings: "TierSettings") -> NewTopic:
    return NewTopic(
        REMOTE_LOG_METADATA_TOPIC,
        settings.metadata_partitions,
        settings.metadata_replication_factor,
        configs=settings.metadata_topic_configs(),
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
