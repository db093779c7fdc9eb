"""Opens a node's directories, its metadata log and quorum, and makes its controller. PURE.

The metadata log is in one of the broker's log directories, or in a directory of its own. Source:
KIP-631; spec 1.4, Q5, Q11.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from firnline.base.effects import Effects, Peer
from firnline.base.errors import Code, ConfigError, KafkaError, StorageError
from firnline.base.ports import Fs, Rng
from firnline.base.units import INT32_MAX
from firnline.broker.controller_node import ControllerNode, ControllerParts, NodeOwner
from firnline.broker.controller_port import ControllerPort
from firnline.config.broker import BrokerConfig
from firnline.controller.controller import Controller
from firnline.log.directory import LogDirectory
from firnline.log.producer_state import ProducerTable
from firnline.log.recovery import recovery_warnings
from firnline.metadata.delta import QuorumObserver
from firnline.metadata.features import SUPPORTED
from firnline.metadata.image import ControllerImage, Endpoint
from firnline.metadata.meta_log import QuorumStateFile, open_meta_log
from firnline.metadata.quorum import MetadataQuorum
from firnline.metadata.snapshot_damage import damage_warnings
from firnline.metadata.snapshotter import snapshot_settings
from firnline.raft.settings import QuorumSettings
from firnline.raft.voters import Voter, VoterSet, parse_voters

# (cluster id, address of the active controller) -> the port to an active controller on another node.
Remote = Callable[[str, Callable[[], Peer | None]], ControllerPort]


class Directories(NamedTuple):
    """All entries of `log.dirs`, with their locks held, and the effects of opening them."""

    all: list[LogDirectory]
    producers: ProducerTable
    effects: Effects

    def abandon(self) -> None:
        """Release the locks without changes: a later part of the start has failed."""
        for directory in self.all:
            directory.abandon()


def open_directories(fs: Fs, config: BrokerConfig, *, rng: Rng, cluster_id: str) -> Directories:
    """Lock and open the log directories; StorageError if one cannot be used (rel d 89, 90)."""
    ids_max = config.firnline_producer_ids_max
    opened = Directories([], ProducerTable(ids_max, config.producer_id_expiration_ms), [])
    for path in config.directories:
        directory = LogDirectory(
            fs,
            path,
            cluster_id=cluster_id,
            node_id=config.node_id,
            unique=rng.uuid,
            producers=opened.producers,
        )
        try:
            opened.effects.extend(directory.start())
        except StorageError:
            opened.abandon()
            raise
        opened.all.append(directory)
    return opened


class QuorumSetup(NamedTuple):
    """An open quorum.

    effects      the effects of opening its directory
    close_files  syncs and closes its files
    """

    quorum: MetadataQuorum
    voters: VoterSet
    effects: Effects
    close_files: Callable[[], None]


def open_quorum(
    config: BrokerConfig,
    fs: Fs,
    rng: Rng,
    observer: QuorumObserver,
    *,
    cluster_id: str,
    shared: LogDirectory | None = None,
    now_ms: int,
    settings: QuorumSettings | None = None,
) -> QuorumSetup:
    """Open the metadata log; `shared` is its directory if partitions are in it, too, and it is locked.

    observer  is called when the metadata or the role of this node changes
    settings  replaces those of the configuration: for the simulator
    """
    effects: Effects = []
    own: LogDirectory | None = None
    if shared is None:
        own = LogDirectory(
            fs,
            config.metadata_directory,
            cluster_id=cluster_id,
            node_id=config.node_id,
            unique=rng.uuid,
        )
        effects = own.start()
    directory = shared or own
    assert directory is not None
    try:
        voters = voters_of(config)
        has_peers = not voters.is_sole(config.node_id)
        log = open_meta_log(fs, config, now_ms=now_ms, directory=directory, has_peers=has_peers)
        effects += recovery_warnings(log.log) + damage_warnings(log.path, log.damaged)
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
        settings=settings or quorum_settings(config),
        snapshotting=snapshot_settings(config),
        bootstrap=_bootstrap(config),
        observer=observer,
    )

    def close_files() -> None:
        log.close()
        if own is not None:
            own.close()

    return QuorumSetup(quorum, voters, effects, close_files)


def open_broker_quorum(
    config: BrokerConfig,
    fs: Fs,
    rng: Rng,
    observer: QuorumObserver,
    *,
    cluster_id: str,
    opened: Directories,
    now_ms: int,
) -> QuorumSetup:
    """As `open_quorum`, for a broker with locked log directories; releases them after an error."""
    path = config.metadata_directory
    shared = opened.all[config.directories.index(path)] if path in config.directories else None
    try:
        return open_quorum(
            config, fs, rng, observer, cluster_id=cluster_id, shared=shared, now_ms=now_ms
        )
    except BaseException:
        opened.abandon()
        raise


def foreign_cluster_problem(quorum: MetadataQuorum) -> KafkaError | None:
    """Return an error if every other voter belongs to another cluster."""
    raft = quorum.raft
    others = [node_id for node_id in raft.voters.node_ids if node_id != raft.node_id]
    refused = [raft.refusals[node_id].code for node_id in others if node_id in raft.refusals]
    if not others or refused != [Code.INCONSISTENT_CLUSTER_ID] * len(others):
        return None
    return KafkaError(Code.INCONSISTENT_CLUSTER_ID, "the voters belong to another cluster")


def quorum_settings(config: BrokerConfig) -> QuorumSettings:
    """Return the quorum's settings from the configuration."""
    return QuorumSettings(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        retention_max_bytes=config.metadata_max_retention_bytes,
        retention_max_ms=config.metadata_max_retention_ms,
        start_offset_lag_time_max_ms=config.metadata_start_offset_lag_time_max_ms,
        listener_name=config.controller_listener_names[0],
    )


def voters_of(config: BrokerConfig) -> VoterSet:
    """Return the configured voters; this node alone if there are none."""
    if config.controller_quorum_voters:
        return parse_voters(config.controller_quorum_voters)
    return VoterSet([Voter(config.node_id, "localhost", 0)])


def _bootstrap(config: BrokerConfig) -> list[Peer]:
    """Return the bootstrap servers of the quorum, if they are configured."""
    return [
        Peer(-2 - place, *_address(text))
        for place, text in enumerate(config.controller_quorum_bootstrap_servers)
    ]


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.strip().rpartition(":")
    if not (colon and host) or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"controller.quorum.bootstrap.servers: {text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def make_controller(
    config: BrokerConfig,
    rng: Rng,
    setup: Callable[[QuorumObserver], QuorumSetup],
    *,
    cluster_id: str,
    endpoints: Sequence[Endpoint] | None,
    remote: Remote | None,
    owner: NodeOwner,
    room_for_logs: Callable[[], int] = lambda: INT32_MAX,
) -> ControllerNode:
    """Make the controller of a quorum.

    setup(observer)   returns the open quorum; one that is opened now calls `observer`
    endpoints         the addresses of its listeners, if they differ from the configuration
    owner             is called when the controller runs, and when it has stopped
    room_for_logs()   how many more logs this process may open as a broker
    """

    def parts(observer: QuorumObserver) -> ControllerParts:
        quorum, voters, first_effects, close_files = setup(observer)
        controller = Controller(
            config=config, rng=rng, metadata=quorum, room_for_logs=room_for_logs
        )
        addresses = endpoints or [
            Endpoint(e.listener, e.host, e.port) for e in config.controller_listeners
        ]
        return ControllerParts(
            quorum=quorum,
            controller=controller,
            registration=ControllerImage(config.node_id, rng.uuid(), tuple(addresses), SUPPORTED),
            is_sole=voters.is_sole(config.node_id),
            remote=None if remote is None else remote(cluster_id, quorum.raft.leader_peer),
            foreign_cluster_problem=partial(foreign_cluster_problem, quorum),
            first_effects=first_effects,
            close_files=close_files,
        )

    return ControllerNode(config=config, cluster_id=cluster_id, make_parts=parts, owner=owner)
