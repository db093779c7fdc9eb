"""A node of the metadata quorum, made of the production code on a simulated disk. SIM.

A voter is a complete controller in its own process; an observer is the quorum part of a broker.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from firnline.api.handlers import k70_controller_registration
from firnline.base.effects import Effect, Effects, SetTimer
from firnline.base.errors import Bug
from firnline.base.ports import Fs, Rng
from firnline.broker.controller_node import ControllerNode
from firnline.broker.quorum_setup import QuorumSetup, open_quorum, quorum_settings
from firnline.broker.wiring import build_controller
from firnline.config.broker import BrokerConfig
from firnline.config.load import load
from firnline.controller.controller import Controller
from firnline.metadata.delta import Unobserved
from firnline.metadata.format import format_storage
from firnline.metadata.meta_log import MetaLog
from firnline.metadata.quorum import MetadataQuorum
from firnline.outbound.remote_controller import RemoteController
from firnline.protocol.messages.k70_controller_registration import ControllerRegistrationRequest
from firnline.sim.host import ReceivedRequest
from firnline.sim.net import HOST_PREFIX, PORT
from firnline.sim.options import Options

DATA = "/data"
LOG = f"{DATA}/__cluster_metadata-0"
CLUSTER_ID = "SimulatedClusterAAAAAA"
_CLOSING = ("quorum", "closing")


def node_config(options: Options, node_id: int) -> BrokerConfig:
    """The settings of one node, as an operator would write them."""
    return load({key: str(value) for key, value in node_settings(options, node_id).items()})


def node_settings(options: Options, node_id: int) -> dict[str, str | int | float]:
    """The settings for `node_config`."""
    voters = ",".join(f"{each}@{HOST_PREFIX}{each}:{PORT}" for each in options.voter_ids)
    host = f"{HOST_PREFIX}{node_id}"
    votes = node_id in options.voter_ids
    return {
        "process.roles": "controller" if votes else "broker",
        "node.id": node_id,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://{host}:{PORT}" if votes else f"PLAINTEXT://{host}:9092",
        "log.dirs": DATA,
        "controller.quorum.election.timeout.ms": options.election_timeout_ms,
        "controller.quorum.fetch.timeout.ms": options.fetch_timeout_ms,
        "controller.quorum.election.backoff.max.ms": options.election_timeout_ms,
        "controller.quorum.request.timeout.ms": options.fetch_timeout_ms,
        "controller.quorum.fetch.max.bytes": options.fetch_max_bytes,
        "controller.quorum.fetch.snapshot.max.bytes": options.fetch_snapshot_max_bytes,
        "internal.metadata.log.segment.bytes": options.segment_bytes,
        "internal.metadata.delete.delay.millis": options.delete_delay_ms,
        "metadata.max.idle.interval.ms": options.idle_interval_ms,
        "metadata.log.max.record.bytes.between.snapshots": options.snapshot_bytes,
        "metadata.log.max.snapshot.interval.ms": options.snapshot_interval_ms,
        "metadata.snapshot.min.changed_records.ratio": options.min_changed_percent / 100,
        "metadata.start.offset.lag.time.max.ms": options.start_offset_lag_ms,
        "metadata.max.retention.bytes": options.retention_bytes,
        "metadata.max.retention.ms": options.retention_ms,
    }


class QuorumNode:
    """What runs on one machine: a controller, or the quorum of a broker that observes."""

    broker: Any = None

    def __init__(self, fs: Fs, options: Options, node_id: int, rng: Rng, now_ms: int) -> None:
        config = node_config(options, node_id)
        if not fs.exists(f"{DATA}/meta.properties"):
            format_storage(
                fs, config, cluster_id=CLUSTER_ID, rng=rng, now_ms=now_ms, ignore_formatted=True
            )
        settings = quorum_settings(config)._replace(
            cleaning_interval_ms=options.cleaning_interval_ms
        )
        self._when_stopped: Callable[[], None] = _nothing  # of who asked it to stop
        self._node: ControllerNode | None = None
        self._setup: QuorumSetup | None = None
        if node_id in options.voter_ids:
            node = self._node = build_controller(
                config,
                fs,
                rng,
                now_ms=now_ms,
                remote=partial(RemoteController, config),
                settings=settings,
                owner=self,
            )
            self.quorum: MetadataQuorum = node.quorum
            self.controller: Controller = node.controller
        else:
            setup = self._setup = open_quorum(
                config,
                fs,
                rng,
                Unobserved(),
                cluster_id=CLUSTER_ID,
                now_ms=now_ms,
                settings=settings,
            )
            self.quorum = setup.quorum
            self.controller = Controller(config=config, rng=rng, metadata=self.quorum)
        self.raft = self.quorum.raft
        log = self.raft.log
        assert isinstance(log, MetaLog)
        self.log: MetaLog = log

    def start(self, now_ms: int) -> Effects:
        """Start the node."""
        if self._node is not None:
            return self._node.start(now_ms)
        assert self._setup is not None
        return self._setup.effects + self.quorum.start(now_ms)

    def takes(self, port: int) -> bool:
        return True

    def on_request(self, request: Any, call: ReceivedRequest, now_ms: int) -> Effects:
        """Handle a request of another node to the quorum or the controller."""
        if isinstance(request, ControllerRegistrationRequest):
            assert self._node is not None, "nobody takes a broker for the active controller"
            return k70_controller_registration.handle(self._node, call.context(), request, now_ms)
        return self.raft.on_request(request, call.answer, now_ms)

    def perform(self, effect: Effect, now_ms: int) -> Effects:
        """A controller has no parts that use one another."""
        raise Bug("nobody carries out this effect", effect=type(effect).__name__)

    def shutdown(self, then: Callable[[], None], now_ms: int) -> Effects:
        """Shut down in order; `then()` is called at the end."""
        self._when_stopped = then
        if self._node is not None:
            return self._node.shutdown(now_ms)
        assert self._setup is not None
        return [*self.quorum.stop(now_ms), *self._close(now_ms)]

    def _close(self, now_ms: int) -> Effects:
        assert self._setup is not None
        self.quorum.close()
        if self.raft.is_writing:
            return [SetTimer(key=_CLOSING, at_ms=now_ms + 10, then=self._close)]
        self._setup.close_files()
        self.node_stopped(now_ms)
        return []

    def node_running(self, now_ms: int) -> None:
        """`NodeOwner`: it takes part, which nobody waits for."""

    def node_stopped(self, now_ms: int) -> None:
        """`NodeOwner`: its files are closed."""
        self._when_stopped()


def _nothing() -> None:
    """Nobody waits."""
