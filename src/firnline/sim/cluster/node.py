"""One node of a simulated cluster, made of the production code: broker, controller, or both. SIM.

Requests go through the handlers of the API, as in production. Seven seeds of eight skip the encoding.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from firnline.api.dispatch import find_api
from firnline.base.effects import Effect, Effects
from firnline.base.ports import Fs, Rng
from firnline.broker.controller_node import ControllerNode
from firnline.broker.node import BrokerNode
from firnline.broker.wiring import build_controller, build_node
from firnline.config.broker import BrokerConfig
from firnline.config.load import load
from firnline.metadata.format import format_storage
from firnline.metadata.image import METADATA_VERSION
from firnline.metadata.meta_log import MetaLog
from firnline.outbound.remote_controller import RemoteController
from firnline.outbound.replica_fetch import ReplicaFetch
from firnline.protocol.session import Api
from firnline.protocol.versions import CONTROLLER_SERVED, PRIVATE, SERVED
from firnline.replica.partition import Partition
from firnline.sim.cluster.draw import broker_ids, log_directories
from firnline.sim.cluster.shape import TierShape
from firnline.sim.host import ReceivedRequest
from firnline.sim.net import BROKER_PORT, HOST_PREFIX, PORT
from firnline.sim.options import Options
from firnline.sim.quorum_node import CLUSTER_ID, DATA, node_settings
from firnline.tiered.spi import RemoteStorage

_ROWS = {
    PORT: {row.key: row for row in CONTROLLER_SERVED},
    BROKER_PORT: {row.key: row for row in SERVED + PRIVATE},
}
_apis: dict[tuple[int, int, int], Api] = {}


def cluster_config(options: Options, node_id: int) -> BrokerConfig:
    """The settings of one node, as an operator would write them."""
    shape = options.cluster
    assert shape is not None
    host = f"{HOST_PREFIX}{node_id}"
    is_voter, is_broker = node_id in options.voter_ids, node_id in broker_ids(options)
    roles = ["broker"] * is_broker + ["controller"] * is_voter
    listeners = [f"PLAINTEXT://{host}:{BROKER_PORT}"] * is_broker
    listeners += [f"CONTROLLER://{host}:{PORT}"] * is_voter
    settings = node_settings(options, node_id) | {
        "log.dirs": ",".join(log_directories(options)) if is_broker else DATA,
        "process.roles": ",".join(roles),
        "listeners": ",".join(listeners),
        "broker.session.timeout.ms": shape.session_timeout_ms,
        "broker.heartbeat.interval.ms": shape.heartbeat_ms,
        "auto.leader.rebalance.enable": str(shape.is_balanced).lower(),
        "leader.imbalance.check.interval.seconds": 5,
        # A patient operator: during faults there may be no leader for minutes.
        "initial.broker.registration.timeout.ms": 3_600_000,
        "auto.create.topics.enable": "false",
        "replica.lag.time.max.ms": shape.lag_max_ms,
        "replica.fetch.wait.max.ms": shape.fetch_wait_ms,
        "replica.fetch.backoff.ms": shape.backoff_ms,
        "replica.fetch.max.bytes": shape.partition_fetch_bytes,
        "log.retention.check.interval.ms": 5_000,
        "log.flush.offset.checkpoint.interval.ms": shape.flush_checkpoint_ms,
        "replica.high.watermark.checkpoint.interval.ms": 5_000,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": min(3, len(broker_ids(options))),
        "offsets.retention.minutes": 2_147_483_647,
        "group.initial.rebalance.delay.ms": 200,
        "min.insync.replicas": shape.min_isr,
        # Clocks jump by days; a producer that was forgotten meanwhile writes twice, as in Kafka.
        "producer.id.expiration.ms": 2_147_483_647,
    }
    if options.recompresses:
        # A level at which no batch is small enough to be compressed on the loop.
        settings |= {"compression.type": "zstd", "compression.zstd.level": 4}
    if shape.tier is not None:
        settings |= _tier_settings(shape.tier, len(broker_ids(options)))
    if any(topic.is_compacted for topic in shape.topics):
        settings["log.cleaner.backoff.ms"] = 500
    return load({key: str(value) for key, value in settings.items()})


def _tier_settings(tier: TierShape, brokers: int) -> dict[str, str | int | float]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "simulated",
        "remote.log.manager.task.interval.ms": tier.task_interval_ms,
        "firnline.remote.log.roll.idle.ms": tier.roll_idle_ms,
        "rlmm.config.remote.log.metadata.topic.num.partitions": tier.metadata_partitions,
        "rlmm.config.remote.log.metadata.topic.replication.factor": min(
            tier.metadata_replicas, brokers
        ),
        "rlmm.config.remote.partition.remover.task.interval.ms": tier.remover_interval_ms,
        "log.segment.delete.delay.ms": tier.delete_delay_ms,
        "rlmm.config.remote.log.metadata.consume.wait.ms": 10_000,
        "remote.list.offsets.request.timeout.ms": 5_000,
    }


class ClusterNode:
    """What runs on one machine. `broker` is None on one that is nothing but a controller.

    on_running()      told when the node takes part, or its broker is counted in
    watch(partition)  is shown each partition that is about to be removed
    """

    def __init__(
        self,
        fs: Fs,
        options: Options,
        node_id: int,
        rng: Rng,
        now_ms: int,
        *,
        on_running: Callable[[], None],
        watch: Callable[[Partition], None],
        remote_storage: RemoteStorage | None = None,
    ) -> None:
        config = cluster_config(options, node_id)
        assert options.cluster is not None
        # An operator formats a new directory, whenever that is.
        if not all(fs.exists(f"{path}/meta.properties") for path in config.directories):
            format_storage(
                fs,
                config,
                cluster_id=CLUSTER_ID,
                rng=rng,
                now_ms=now_ms,
                features=[f"{METADATA_VERSION}={options.cluster.levels[0]}"],
                ignore_formatted=True,
            )
        remote = partial(RemoteController, config) if config.has_other_controllers else None
        self._when_stopped: Callable[[], None] = _nothing  # of who asked it to stop
        self._on_running = on_running
        self.is_running = False
        self.broker: BrokerNode | None = None
        self._controller_node: ControllerNode | None
        if node_id in broker_ids(options):
            broker = self.broker = build_node(
                config,
                fs,
                rng,
                now_ms=now_ms,
                remote=remote,
                other_leaders=partial(ReplicaFetch, config),
                remote_storage=remote_storage,
                owner=self,
                watch=watch,
            )
            self.quorum = broker.quorum
            self._controller_node = broker.controller_node
        else:
            node = self._controller_node = build_controller(
                config, fs, rng, now_ms=now_ms, remote=remote, owner=self
            )
            self.quorum = node.quorum
        self.raft = self.quorum.raft
        log = self.raft.log
        assert isinstance(log, MetaLog)
        self.log: MetaLog = log
        # Both have what is used here.
        self._node: Any = self.broker or self._controller_node

    @property
    def controller(self) -> Any:
        """The controller; None on a node without one."""
        return None if self._controller_node is None else self._controller_node.controller

    def start(self, now_ms: int) -> Effects:
        """Start the node."""
        effects: Effects = self._node.start(now_ms)
        return effects

    def takes(self, port: int) -> bool:
        """Controllers accept requests from the start, brokers once they are unfenced."""
        return self.is_running if port == BROKER_PORT else self._controller_node is not None

    def on_request(self, request: Any, call: ReceivedRequest, now_ms: int) -> Effects:
        """Pass a request to its handler, as `api.dispatch` does."""
        key = (call.port, request.key, call.version)
        api = _apis.get(key)
        if api is None:
            api = _apis[key] = find_api(_ROWS[call.port], request.key, call.version)
        node = self.broker if call.port == BROKER_PORT else self._controller_node
        effects: Effects = api.handle(node, call.context(), request, now_ms)
        return effects

    def perform(self, effect: Effect, now_ms: int) -> Effects:
        """Perform an effect that one part has for another."""
        effects: Effects = self._node.perform(effect, now_ms)
        return effects

    def shutdown(self, then: Callable[[], None], now_ms: int) -> Effects:
        """Shut down in order; `then()` is called at the end."""
        self._when_stopped = then
        effects: Effects = self._node.shutdown(now_ms)
        return effects

    def node_running(self, now_ms: int) -> None:
        """`NodeOwner`: a broker that is counted in is asked from now on."""
        if self.broker is not None:
            self.is_running = True
            self._on_running()

    def node_stopped(self, now_ms: int) -> None:
        """`NodeOwner`: its files are closed."""
        self._when_stopped()


def _nothing() -> None:
    """Nobody waits."""
