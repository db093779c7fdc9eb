"""The parts of a node are made and connected here, and nowhere else. PURE.

Siblings never import each other: what one needs of another it gets as a callable from this page.
Source: house, section 5, rule 2.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import KafkaError
from firnline.base.ids import (
    OFFSETS_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
)
from firnline.base.ports import Fs, Rng
from firnline.base.units import MINUTE_MS
from firnline.broker.coordination import Coordination
from firnline.broker.fetch import Fetching
from firnline.broker.fetch_session import FetchSessions
from firnline.replica.hosted import HostedPartitions
from firnline.broker.hosting import Hosting
from firnline.broker.internal_topics import InternalTopics, Then
from firnline.broker.leaders import Leaders
from firnline.broker.lifecycle import Lifecycle
from firnline.broker.list_offsets import ListingOffsets
from firnline.broker.node import BrokerNode, Parts
from firnline.broker.produce import Producing
from firnline.broker.storage import Storage, read_cluster_id
from firnline.config.broker import BrokerConfig, parse_endpoint
from firnline.controller.brokers import Registration
from firnline.controller.controller import Controller
from firnline.controller.topics import NewTopic
from firnline.coordinator.groups import GroupCoordinator
from firnline.coordinator.producer_ids import Allocated, ProducerIdBlock, ProducerIds
from firnline.log.directory import LogDirectory
from firnline.metadata.features import SUPPORTED
from firnline.metadata.image import ControllerImage, Endpoint
from firnline.metadata.meta_log import QuorumStateFile, open_meta_log
from firnline.metadata.quorum import MetadataQuorum
from firnline.raft.voters import Voter, VoterSet, parse_voters
from firnline.replica.partition import FsyncRule, Partition
from firnline.tiered.spi import RemoteLogMetadata, RemoteStorage

if TYPE_CHECKING:
    from firnline.broker.tier_ground import TierGround
    from firnline.tiered.settings import TierSettings

# min.incremental.fetch.session.eviction.ms, which Kafka does not let be set either.
_SESSION_EVICTION_MS = 2 * MINUTE_MS


def build_node(
    config: BrokerConfig,
    fs: Fs,
    rng: Rng,
    *,
    now_ms: int,
    endpoints: Sequence[Endpoint] | None = None,
    remote_storage: RemoteStorage | None = None,
    remote_metadata: RemoteLogMetadata | None = None,
) -> BrokerNode:
    """Make a combined node on formatted directories, and take them into use.

    endpoints        what clients are told, where it is not what the configuration says: port 0
    remote_storage   configured, if remote.log.storage.system.enable
    remote_metadata  a metadata manager of the user's own instead of the topic-based one

    Raises ConfigError and StorageError for what the operator must mend; nothing is locked then.
    """
    cluster_id = read_cluster_id(fs, config.metadata_directory)
    storage = Storage(fs, config, rng=rng, cluster_id=cluster_id)
    storage_effects = storage.start()
    quorum, close_quorum = _quorum_or_let_go(config, fs, rng, cluster_id, storage, now_ms)
    controller = Controller(config=config, rng=rng, metadata=quorum)
    leaders = Leaders(lambda: quorum.image)
    hosted = HostedPartitions(exists=leaders.exists, name_of=leaders.name_of)
    tier_ground = _tier(config, fs, rng, hosted, quorum, storage, remote_storage, remote_metadata)
    groups = GroupCoordinator(config, rng)
    # The node comes last; what its parts tell it goes through here.
    late: list[BrokerNode] = []
    lifecycle = _lifecycle(
        config, controller, quorum, _registration(config, rng, storage, endpoints), late
    )
    node = BrokerNode(
        Parts(
            config=config,
            rng=rng,
            cluster_id=cluster_id,
            storage=storage,
            storage_effects=storage_effects,
            quorum=quorum,
            close_quorum=close_quorum,
            controller=controller,
            controller_image=_controller_image(config, rng),
            hosted=hosted,
            hosting=_hosting(config, hosted, storage, Coordination(groups), tier_ground),
            leaders=leaders,
            producing=Producing(lambda partition, at_ms: _failed(late[0], partition, at_ms)),
            fetching=_fetching(config, rng, hosted, tier_ground),
            listing_offsets=_listing_offsets(config, tier_ground),
            groups=groups,
            producer_ids=_producer_ids(config, controller, quorum, lifecycle),
            internal_topics=_internal_topics(config, controller, quorum, tier_ground, late),
            lifecycle=lifecycle,
            tier_ground=tier_ground,
        )
    )
    late.append(node)
    return node


def _lifecycle(
    config: BrokerConfig,
    controller: Controller,
    quorum: MetadataQuorum,
    registration: Registration,
    late: list[BrokerNode],
) -> Lifecycle:
    return Lifecycle(
        controller=controller,
        quorum=quorum,
        registration=registration,
        interval_ms=config.broker_heartbeat_interval_ms,
        on_registered=lambda then, now_ms: late[0].take_image(then, now_ms),
        on_running=lambda now_ms: late[0].begin_serving(now_ms),
        on_left=lambda now_ms: late[0].finish(now_ms),
    )


def _failed(node: BrokerNode, partition: Partition, now_ms: int) -> Effects:
    return node.on_storage_failure(partition, now_ms)


# ------------------------------------------------------------------------------------ the quorum


def _quorum_or_let_go(
    config: BrokerConfig, fs: Fs, rng: Rng, cluster_id: str, storage: Storage, now_ms: int
) -> tuple[MetadataQuorum, Callable[[], None]]:
    try:
        return _quorum(config, fs, rng, cluster_id, storage, now_ms)
    except BaseException:
        storage.abandon()
        raise


def _quorum(
    config: BrokerConfig, fs: Fs, rng: Rng, cluster_id: str, storage: Storage, now_ms: int
) -> tuple[MetadataQuorum, Callable[[], None]]:
    """Open the metadata log, in a directory of its own or beside the partitions."""
    path = config.metadata_directory
    own: LogDirectory | None = None
    if path in config.directories:
        directory = storage.directories[config.directories.index(path)]
    else:
        directory = own = LogDirectory(
            fs, path, cluster_id=cluster_id, node_id=config.node_id, unique=rng.uuid
        )
        own.start()
    try:
        voters = _voters(config)
        log = open_meta_log(fs, config, now_ms=now_ms, directory=directory)
    except BaseException:
        if own is not None:
            own.abandon()
        raise
    quorum = MetadataQuorum(
        node_id=config.node_id,
        cluster_id=cluster_id,
        directory_id=directory.directory_id,
        voters=voters,
        log=log,
        elections=QuorumStateFile(fs, log.log.path, voters.node_ids),
        rng=rng,
        idle_interval_ms=config.metadata_max_idle_interval_ms,
    )

    def close() -> None:
        log.close()
        if own is not None:
            own.close()

    return quorum, close


def _voters(config: BrokerConfig) -> VoterSet:
    """The voters that are configured; where none are, this node alone."""
    if config.controller_quorum_voters:
        return parse_voters(config.controller_quorum_voters)
    return VoterSet([Voter(config.node_id, "localhost", 0)])


def _controller_image(config: BrokerConfig, rng: Rng) -> ControllerImage:
    listeners = map(parse_endpoint, config.listeners)
    endpoints = tuple(
        Endpoint(each.listener, each.host, each.port)
        for each in listeners
        if each.listener in config.controller_listener_names
    )
    return ControllerImage(config.node_id, rng.uuid(), endpoints, SUPPORTED)


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
    coordination: Coordination,
    tier: "TierGround | None",
) -> Hosting:
    """What hosts partitions, and who is told of them."""
    fsync_rule: FsyncRule = config.firnline_acks_fsync  # type: ignore[assignment]
    hosting = Hosting(
        node_id=config.node_id, config=config, hosted=hosted, store=storage, fsync_rule=fsync_rule
    )
    hosting.on_leading.append(coordination.on_leading)
    hosting.on_not_leading.append(coordination.on_not_leading)
    if tier is not None:
        hosting.on_leading.append(tier.on_leading)
        hosting.on_not_leading.append(tier.on_not_leading)
        hosting.on_configured.append(tier.on_configured)
        hosting.on_dropped.append(tier.on_dropped)
    return hosting


def _listing_offsets(config: BrokerConfig, tier: "TierGround | None") -> ListingOffsets:
    return ListingOffsets(
        remote=None if tier is None else tier.offset_for_timestamp,
        timeout_ms=config.remote_list_offsets_request_timeout_ms,
    )


def _fetching(
    config: BrokerConfig, rng: Rng, hosted: HostedPartitions, tier: "TierGround | None"
) -> Fetching:
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
    )


def _tier(
    config: BrokerConfig,
    fs: Fs,
    rng: Rng,
    hosted: HostedPartitions,
    quorum: MetadataQuorum,
    storage: Storage,
    remote_storage: RemoteStorage | None,
    metadata: RemoteLogMetadata | None,
) -> "TierGround | None":
    if remote_storage is None:
        return None
    # A node without a tier starts without its code: a sixth of the time a start takes.
    from firnline.broker.tier_ground import MetadataFeed, TierGround
    from firnline.tiered.remote_log import RemoteLog
    from firnline.tiered.settings import tier_settings

    remote = RemoteLog(
        tier_settings(config),
        storage=remote_storage,
        feed=MetadataFeed(hosted, quorum),
        fs=fs,
        rng=rng,
        topic_exists=lambda topic_id: topic_id in quorum.image.topics_by_id,
        log_dir=storage.directories[0].path,
        metadata=metadata,
    )
    return TierGround(remote, config, partial(storage.on_failure, hosted))


def _internal_topics(
    config: BrokerConfig,
    controller: Controller,
    quorum: MetadataQuorum,
    tier: "TierGround | None",
    late: list[BrokerNode],
) -> InternalTopics:
    plans = {OFFSETS_TOPIC: _offsets_topic(config)}
    if tier is not None:
        plans[REMOTE_LOG_METADATA_TOPIC] = _tier_topic(tier.tier.services.settings)

    def create(name: str, then: Then, now_ms: int) -> Effects:
        result = controller.create_topics([plans[name]])

        def made(outcome: Any, at_ms: int) -> Effects:
            first = outcome if isinstance(outcome, KafkaError) else outcome[0]
            return then(first if isinstance(first, KafkaError) else None, at_ms)

        return late[0].write_topics(result, made, now_ms)

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


def _producer_ids(
    config: BrokerConfig, controller: Controller, quorum: MetadataQuorum, lifecycle: Lifecycle
) -> ProducerIds:
    ask = partial(_allocate_ids, controller, quorum, lifecycle, config.node_id)
    return ProducerIds(ask)


def _allocate_ids(
    controller: Controller,
    quorum: MetadataQuorum,
    lifecycle: Lifecycle,
    node_id: int,
    then: Allocated,
) -> Effects:
    """Ask the controller for a block of producer ids, as AllocateProducerIds does."""

    def allocated(outcome: Any, now_ms: int) -> Effects:
        if isinstance(outcome, KafkaError):
            return then(outcome, now_ms)
        return then(ProducerIdBlock(outcome.first_id, outcome.size), now_ms)

    def ask(now_ms: int) -> Effects:
        result = controller.allocate_producer_ids(
            broker_id=node_id, broker_epoch=lifecycle.broker_epoch
        )
        return quorum.write(result, allocated, now_ms)

    # The timer is due at once; it is here because whoever asks does not know the time.
    return [SetTimer(key=("producer ids", "allocate"), at_ms=0, then=ask)]
