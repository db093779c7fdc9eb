"""Makes and connects the parts of a node. PURE.

Sibling modules do not import one another: this module passes callables between them. Each part is complete
when it is made, from the parts before it. Events go through three observers: those of partitions through
`PartitionEvents`, those of failed disks through `StorageFailures`, and those for the node as a whole to the
node itself, which is made before its parts (`BrokerNode`). Source: house, section 5, rule 2.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from firnline.base.counting.aging import NOT_DOUBTED, Aging
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
from firnline.base.replicas import DirectoryAssignment, IsrChange, LeaderPort
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
from firnline.broker.quorum_setup import (
    Directories,
    QuorumSetup,
    Remote,
    foreign_cluster_problem,
    make_controller,
    open_broker_quorum,
    open_directories,
    open_quorum,
)
from firnline.broker.storage import Storage
from firnline.config.broker import BrokerConfig
from firnline.config.layers import broker_config
from firnline.controller.brokers import Registration
from firnline.coordinator.groups import GroupCoordinator
from firnline.coordinator.producer_ids import Allocated, ProducerIds
from firnline.log.checkpoint import read_cluster_id
from firnline.metadata.features import CORDONED_SINCE, DIRECTORIES_SINCE, SUPPORTED
from firnline.metadata.image import ClusterImage, Endpoint, ResourceType
from firnline.metadata.quorum import MetadataQuorum
from firnline.raft.settings import QuorumSettings
from firnline.replica.compacting import Compacting
from firnline.replica.directories import DirectoryAssignments
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import FsyncRule, Partition
from firnline.replica.replication import NO_LEADERS, ReplicaSettings, Replication
from firnline.tiered.spi import RemoteLogMetadata, RemoteStorage

if TYPE_CHECKING:
    from firnline.broker.tier.adapter import TierAdapter
    from firnline.broker.tier.feed import TopicClientPort

    class OtherLeaders(LeaderPort, TopicClientPort, Protocol):
        """The requests to leaders on other brokers."""


# Makes the requests to leaders on other brokers: `outbound.replica_fetch.ReplicaFetch`.
MakesOtherLeaders = Callable[..., "OtherLeaders"]
# Gets a partition that is not hosted any more, while its log can still be read.
PartitionWatch = Callable[[Partition], None]
UNOWNED = Unowned()
# min.incremental.fetch.session.eviction.ms, which cannot be configured in Kafka either.
_SESSION_EVICTION_MS = 2 * MINUTE_MS
# The value of replica.selector.class: the name of Kafka's class.
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
    """Make a node that is only a controller, and lock its directory.

    endpoints  its addresses, if they differ from the configuration: port 0
    remote     makes the port to an active controller on another node; None in a quorum of one
    settings   of the quorum, instead of those of the configuration: for the simulator
    owner      is called when the node runs, and when it has stopped

    Raises ConfigError and StorageError for problems that the operator has to solve; no lock is held then.
    """
    cluster_id = read_cluster_id(fs, config.metadata_directory)
    setup = partial(
        open_quorum, config, fs, rng, cluster_id=cluster_id, now_ms=now_ms, settings=settings
    )
    return make_controller(
        config,
        rng,
        setup,
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
    other_leaders: MakesOtherLeaders | None = None,
    remote_storage: RemoteStorage | None = None,
    remote_metadata: RemoteLogMetadata | None = None,
    owner: NodeOwner = UNOWNED,
    files: LogFiles = EnoughFiles(),  # noqa: B008 - the object has no state
    watch: PartitionWatch | None = None,
    aging: Aging = NOT_DOUBTED,
) -> BrokerNode:
    """Make a broker, with or without a controller, on formatted directories, and lock them.

    endpoints             the addresses for clients, if they differ from the configuration: port 0
    controller_endpoints  the addresses of its controller, in the same way
    remote                makes the port to an active controller on another node; None in a quorum of one
    other_leaders         makes the requests to leaders on other brokers; None if there are no others
    remote_storage        the configured store, if remote.log.storage.system.enable
    owner                 is called when the node runs, and when it has stopped
    files                 tells how many files may still be opened for logs
    watch                 gets each partition before it is removed from this node: for the simulator
    aging                 by which time records age

    Raises ConfigError and StorageError for problems that the operator has to solve; no lock is held then.
    """
    given = _Given(
        now_ms,
        endpoints,
        controller_endpoints,
        remote,
        other_leaders,
        (remote_storage, remote_metadata),
        files,
        watch,
        aging,
    )
    return BrokerNode(partial(_parts, config, fs, rng, given), owner)


class _Given(NamedTuple):
    """The arguments of `build_node` for the parts."""

    now_ms: int
    endpoints: Sequence[Endpoint] | None
    controller_endpoints: Sequence[Endpoint] | None
    remote: Remote | None
    other_leaders: MakesOtherLeaders | None
    spi: tuple[RemoteStorage | None, RemoteLogMetadata | None]
    files: LogFiles
    watch: PartitionWatch | None
    aging: Aging


def _parts(config: BrokerConfig, fs: Fs, rng: Rng, given: _Given, node: BrokerNode) -> Parts:
    """Make the parts of a node, each from the parts before it. `node` is their observer."""
    now_ms, endpoints, controller_endpoints, remote, other_leaders, spi, files, watch, aging = given
    cluster_id = read_cluster_id(fs, config.metadata_directory)
    opened = open_directories(fs, config, rng=rng, cluster_id=cluster_id)
    setup = open_broker_quorum(
        config, fs, rng, node, cluster_id=cluster_id, opened=opened, now_ms=now_ms
    )
    quorum = setup.quorum
    storage = _storage(fs, config, opened, quorum, given)
    controller_node = _controller(
        config, rng, setup, cluster_id, controller_endpoints, remote, storage, files, node
    )
    port = _port(controller_node, setup, cluster_id, remote)
    leaders, hosted = _lookups(quorum, node)
    groups = GroupCoordinator(config, rng, aging)
    lifecycle = _lifecycle(config, rng, port, quorum, storage, endpoints, node)
    assignments = _assignments(config, quorum, port, lifecycle, storage)
    failures = StorageFailures(storage, hosted, lifecycle, assignments.lose)
    others = _others(config, quorum, leaders, lifecycle, other_leaders)
    tier = _tier(config, fs, rng, hosted, quorum, storage, others, spi, failures, assignments)
    acted_on = ActedOn()
    brokers = OtherBrokers(
        acted_on, lambda: lifecycle.broker_epoch, lag_max_ms=config.replica_lag_time_max_ms
    )
    replication = _replication(
        config, port, lifecycle, brokers, others, hosted, tier, failures, assignments
    )
    events = PartitionEvents(replication, Coordination(groups), tier, failures, watch)
    hosting = _hosting(config, hosted, storage, brokers, acted_on, lifecycle, events)
    return Parts(
        config=config,
        rng=rng,
        cluster_id=cluster_id,
        storage=storage,
        storage_effects=opened.effects,
        failures=failures,
        quorum_setup=setup,
        port=port,
        controller_node=controller_node,
        hosted=hosted,
        hosting=hosting,
        replication=replication,
        leaders=leaders,
        producing=Producing(failures.partition_failed, partial(_is_for_brokers, config, quorum)),
        fetching=_fetching(config, rng, hosted, quorum, tier, replication),
        listing_offsets=_listing_offsets(config, hosted, tier),
        present_config=lambda: _present(config, quorum.image),
        groups=groups,
        producer_ids=_producer_ids(config, port, lifecycle),
        internal_topics=_internal_topics(config, quorum, tier, port, hosting),
        lifecycle=lifecycle,
        tier_adapter=tier,
        compacting=_compacting(config, quorum, storage, hosted, rng, failures),
    )


class PartitionEvents:
    """Passes events of partitions on, in a fixed order: `replica.hosted.PartitionObserver`.

    Replication follows the leaders in the metadata, and reports lost replicas to the controller. The
    coordinator loads the groups of partitions that this node leads. The tier copies the segments of
    partitions that it leads, and reads the metadata of the others. A failed disk concerns the whole node.
    """

    def __init__(
        self,
        replication: Replication,
        coordination: Coordination,
        tier: "TierAdapter | None",
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
        """To replication, then the tier, then `watch`."""
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
        """To replication, which reports it to the controller."""
        return self._replication.on_lost(key, now_ms)

    def disk_failed(self, said: StorageError, now_ms: int) -> Effects:
        """To the node's log directories, and the controller."""
        return self._failures.disk_failed(said, now_ms)


def _storage(
    fs: Fs, config: BrokerConfig, opened: Directories, quorum: MetadataQuorum, given: _Given
) -> Storage:
    opened.producers.aging = given.aging
    return Storage(
        fs,
        config,
        opened.all,
        opened.producers,
        cordoned=lambda: _present(config, quorum.image).cordoned_log_dirs,
        is_failure_known=lambda: _knows_our_directories(config, quorum.image),
        files=given.files,
        aging=given.aging,
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
    setup: QuorumSetup,
    cluster_id: str,
    endpoints: Sequence[Endpoint] | None,
    remote: Remote | None,
    storage: Storage,
    files: LogFiles,
    node: BrokerNode,
) -> ControllerNode | None:
    """Make the controller of a combined node; the node observes the quorum, and passes its events on."""
    if "controller" not in config.process_roles:
        return None

    def room_for_logs() -> int:
        return files.logs_left(sum(len(directory.logs) for directory in storage.directories))

    return make_controller(
        config,
        rng,
        lambda _: setup,
        cluster_id=cluster_id,
        endpoints=endpoints,
        remote=remote,
        owner=node,
        room_for_logs=room_for_logs,
    )


def _port(
    controller_node: ControllerNode | None,
    setup: QuorumSetup,
    cluster_id: str,
    remote: Remote | None,
) -> ControllerPort:
    if controller_node is not None:
        return controller_node.port
    assert remote is not None, "a node with only the broker role has a remote controller"
    return remote(cluster_id, setup.quorum.raft.leader_peer)


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
        foreign_cluster_problem=partial(foreign_cluster_problem, quorum),
        registration=_registration(config, rng, storage, endpoints),
        config=config,
        observer=node,
        failed_directories=lambda: storage.failed_directories,
        cordoned_directories=cordoned,
    )


def _present(config: BrokerConfig, image: ClusterImage) -> BrokerConfig:
    """Return the configuration with its dynamic configs."""
    cluster, node = (image.config(ResourceType.BROKER, name) for name in ("", str(config.node_id)))
    return broker_config(config, cluster, node) if cluster or node else config


def _knows_our_directories(config: BrokerConfig, image: ClusterImage) -> bool:
    """Whether the controller can act on a failed directory of this broker.

    It does not know the directories of a broker that registered at an older metadata.version, until that
    broker restarts.
    """
    broker = image.brokers.get(config.node_id)
    return (
        image.metadata_version >= DIRECTORIES_SINCE and broker is not None and bool(broker.log_dirs)
    )


def _is_for_brokers(config: BrokerConfig, quorum: MetadataQuorum, listener: str) -> bool:
    """Whether other brokers connect to that listener. A single node writes to itself without one."""
    return listener in config.broker_listeners and len(quorum.image.brokers) > 1


def _registration(
    config: BrokerConfig, rng: Rng, storage: Storage, endpoints: Sequence[Endpoint] | None
) -> Registration:
    addresses = endpoints or [Endpoint(e.listener, e.host, e.port) for e in config.advertised]
    return Registration(
        broker_id=config.node_id,
        incarnation_id=rng.uuid(),
        endpoints=tuple(addresses),
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
    events: PartitionEvents,
) -> Hosting:
    """Make the part that hosts partitions."""
    fsync_rule: FsyncRule = config.firnline_acks_fsync  # type: ignore[assignment]
    return Hosting(
        node_id=config.node_id,
        config=config,
        hosted=hosted,
        store=storage,
        fsync_rule=fsync_rule,
        observer=events,
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
    """Report a partition with a damaged segment as lost, so that another replica leads it (KIP-858).

    This node follows it again after the election. Nothing is reported if no other replica is in sync: then
    the undamaged segments are still served.
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
    tier: "TierAdapter | None",
    failures: StorageFailures,
    assignments: DirectoryAssignments,
) -> Replication:
    """Make replication: following leaders, and proposing ISRs as a leader."""

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
    """Make the reports of this broker's directories to the controller."""

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

    def actual(partition: Partition) -> Uuid | None:
        return None if partition.is_damaged else storage.directory_of(partition.log)

    return DirectoryAssignments(
        said=said,
        actual=actual,
        is_failed=lambda directory: directory in storage.failed_directories,
        assign=assign,
    )


def _others(
    config: BrokerConfig,
    quorum: MetadataQuorum,
    leaders: Leaders,
    lifecycle: Lifecycle,
    other_leaders: MakesOtherLeaders | None,
) -> "OtherLeaders | None":
    """Make the requests to leaders on other brokers."""
    if other_leaders is None:
        return None
    listener = (config.inter_broker_listener_name or "PLAINTEXT").upper()
    return other_leaders(
        peer=partial(leaders.peer, listener),
        broker_epoch=lambda: lifecycle.broker_epoch,
        metadata_version=lambda: quorum.image.metadata_version,
    )


def _listing_offsets(
    config: BrokerConfig, hosted: HostedPartitions, tier: "TierAdapter | None"
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
    tier: "TierAdapter | None",
    replication: Replication,
) -> Fetching:
    prefer: Prefer | None = None
    selector = config.replica_selector_class
    if selector == _RACK_AWARE:
        prefer = RackAware(lambda: quorum.image)
    elif selector:
        raise ConfigError(f"replica.selector.class={selector}: only {_RACK_AWARE} is supported")
    return Fetching(
        hosted,
        FetchSessions(
            sessions_max=config.max_incremental_fetch_session_cache_slots,
            eviction_ms=_SESSION_EVICTION_MS,
            rng=rng,
        ),
        max_bytes=config.fetch_max_bytes,
        remote_read=None if tier is None else tier.read,
        stop_remote_read=None if tier is None else tier.tier.stop_read,
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
) -> "TierAdapter | None":
    remote_storage, metadata = spi
    if remote_storage is None:
        return None
    # A node without a tier does not import its code, which would take a sixth of the start.
    from firnline.broker.tier.adapter import TierAdapter
    from firnline.broker.tier.feed import MetadataFeed
    from firnline.tiered.remote_log import RemoteLog
    from firnline.tiered.settings import tier_settings

    def given_up() -> tuple[str, ...]:
        return _present(config, quorum.image).firnline_remote_log_metadata_given_up

    feed = MetadataFeed(hosted, quorum, others, given_up, failures.partition_failed)
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
        aging=storage.aging,
    )
    return TierAdapter(remote, feed, config, failures.partition_failed)


def _internal_topics(
    config: BrokerConfig,
    quorum: MetadataQuorum,
    tier: "TierAdapter | None",
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
    """Make the source of producer ids, which gets blocks from the controller."""

    def allocate(then: Allocated) -> Effects:
        def ask(now_ms: int) -> Effects:
            command = AllocateProducerIds(
                broker_id=config.node_id, broker_epoch=lifecycle.broker_epoch
            )
            return port.ask(command, then, now_ms)

        # A timer that is due at once, because the caller does not know the time.
        return [SetTimer(key=("producer ids", "allocate"), at_ms=0, then=ask)]

    return ProducerIds(allocate)
