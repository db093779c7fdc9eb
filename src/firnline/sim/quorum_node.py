"""A node of the metadata quorum, made of the production code on a simulated disk. SIM."""

from collections.abc import Callable
from typing import Any

from firnline.base.effects import Effect, Effects
from firnline.base.errors import Bug
from firnline.base.ports import Fs, Rng
from firnline.config.broker import BrokerConfig
from firnline.config.load import load
from firnline.controller.controller import Controller
from firnline.log.directory import LogDirectory
from firnline.metadata.format import format_storage
from firnline.metadata.meta_log import MetaLog, QuorumStateFile, open_meta_log
from firnline.metadata.quorum import MetadataQuorum
from firnline.raft.voters import parse_voters
from firnline.sim.net import HOST_PREFIX, PORT
from firnline.sim.options import Options

DATA = "/data"
LOG = f"{DATA}/__cluster_metadata-0"
CLUSTER_ID = "SimulatedClusterAAAAAA"


def node_config(options: Options, node_id: int) -> BrokerConfig:
    """The settings of one node, as an operator would write them."""
    voters = ",".join(f"{each}@{HOST_PREFIX}{each}:{PORT}" for each in options.voter_ids)
    settings = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST_PREFIX}{node_id}:9092,CONTROLLER://{HOST_PREFIX}{node_id}:{PORT}",
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
        "metadata.max.retention.bytes": options.retention_bytes,
        "metadata.max.retention.ms": options.retention_ms,
    }
    return load({key: str(value) for key, value in settings.items()})


class QuorumNode:
    """What runs on one machine: the quorum, and the controller that decides when it leads."""

    def __init__(self, fs: Fs, options: Options, node_id: int, rng: Rng, now_ms: int) -> None:
        self.config = node_config(options, node_id)
        if not fs.exists(f"{DATA}/meta.properties"):
            format_storage(
                fs,
                self.config,
                cluster_id=CLUSTER_ID,
                rng=rng,
                now_ms=now_ms,
                ignore_formatted=True,
            )
        self._directory = LogDirectory(
            fs, DATA, cluster_id=CLUSTER_ID, node_id=node_id, unique=rng.uuid
        )
        self._directory.start()
        voters = parse_voters(self.config.controller_quorum_voters)
        self.log: MetaLog = open_meta_log(fs, self.config, now_ms=now_ms, directory=self._directory)
        self.quorum = MetadataQuorum(
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            directory_id=self._directory.directory_id,
            voters=voters,
            log=self.log,
            elections=QuorumStateFile(fs, LOG, voters.node_ids),
            rng=rng,
            idle_interval_ms=self.config.metadata_max_idle_interval_ms,
        )
        self.raft = self.quorum.raft
        self.controller = Controller(config=self.config, rng=rng, metadata=self.quorum)
        self.quorum.on_active = self._activate

    def start(self, now_ms: int) -> Effects:
        return self.quorum.start(now_ms)

    def on_request(self, request: Any, answer: Callable[[Any], Effect], now_ms: int) -> Effects:
        return self.raft.on_request(request, answer, now_ms)

    def perform(self, effect: Effect, now_ms: int) -> Effects:
        raise Bug("a controller asked for what only a broker can do", effect=type(effect).__name__)

    def shutdown(self, now_ms: int) -> Effects:
        return self.quorum.stop(now_ms)

    def close(self) -> None:
        self.quorum.close()
        self.log.close()
        self._directory.close()

    def _activate(self, now_ms: int) -> Effects:
        self.controller.activate(now_ms)
        return []
