"""A metadata quorum in memory for tests: the log is a list, and a sync happens when the test says so."""

from collections.abc import Callable, Sequence
from typing import Any

from firnline.base.effects import Effect, Effects, Submit
from firnline.base.errors import StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.config.broker import BrokerConfig
from firnline.config.load import load
from firnline.controller.brokers import Heartbeat, HeartbeatAnswer, Registration
from firnline.controller.controller import Controller
from firnline.metadata import records as r
from firnline.metadata.delta import ClusterDelta, Unobserved
from firnline.metadata.features import SUPPORTED
from firnline.metadata.image import ClusterImage, Endpoint
from firnline.metadata.quorum import MetadataQuorum
from firnline.metadata.result import ControllerResult
from firnline.metadata.snapshot_file import Snapshot, snapshot_batches
from firnline.protocol.schema import Message
from firnline.raft.election_state import ElectionState
from firnline.raft.voters import Voter, VoterSet
from firnline.records.batch import headers, set_offset_and_epoch
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import ControlType, KRaftVersionRecord, encode_key, encode_value
from tests.worlds.chance import CountingRng
from tests.worlds.effects import World, kept

NODE = 1
VOTERS = VoterSet([Voter(NODE, "localhost", 9093)])
BOOTSTRAP = (r.FeatureLevelRecord(name="metadata.version", feature_level=30),)
STATIC = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "log.dirs": "/data",
}


def broker_config(**overrides: str) -> BrokerConfig:
    """A combined node's settings; keys with '_' for '.'."""
    return load(STATIC | {key.replace("_", "."): value for key, value in overrides.items()})


class MemoryLog:
    """The log and the vote of one node. `crash` forgets what was not synced."""

    path = "/data/__cluster_metadata-0"
    forgotten: OffsetAndEpoch | None = None
    damaged_ids: Sequence[OffsetAndEpoch] = ()

    def __init__(self, bootstrap: Sequence[Message] = BOOTSTRAP) -> None:
        self.batches: list[bytes] = []
        self.saved: list[ElectionState] = []
        self.high_watermark = 0
        self.synced_offset = 0
        self.snapshot: tuple[int, int, Snapshot] | None = None
        self.bootstrap = bootstrap

    @property
    def start_offset(self) -> int:
        if self.batches:
            return next(headers(self.batches[0])).base_offset
        return self.snapshot[0] if self.snapshot else 0

    @property
    def end_offset(self) -> int:
        if self.batches:
            return next(headers(self.batches[-1])).next_offset
        return self.snapshot[0] if self.snapshot else 0

    @property
    def last_epoch(self) -> int:
        if self.batches:
            return next(headers(self.batches[-1])).leader_epoch
        return self.snapshot[1] if self.snapshot else 0

    def append(self, batch: bytearray, *, epoch: int, now_ms: int) -> int:
        offset = self.end_offset
        set_offset_and_epoch(batch, 0, offset, epoch)
        self.batches.append(bytes(batch))
        return offset

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.batches))

    def unsynced(self) -> Sequence[Any]:
        return ()

    def synced(self, end_offset: int) -> None:
        self.synced_offset = max(self.synced_offset, end_offset)

    def advance_high_watermark(self, offset: int) -> None:
        assert offset >= self.high_watermark
        self.high_watermark = offset

    def read(self, start_offset: int, *, max_bytes: int) -> bytes:
        wanted = [b for b in self.batches if next(headers(b)).last_offset >= start_offset]
        return b"".join(wanted[:2])

    @property
    def newest_snapshot_id(self) -> OffsetAndEpoch | None:
        return OffsetAndEpoch(*self.snapshot[:2]) if self.snapshot else None

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> "SnapshotBytes | None":
        if self.snapshot is None or self.newest_snapshot_id != snapshot_id:
            return None
        content = self.snapshot[2]
        return SnapshotBytes(snapshot_bytes(content, snapshot_id.epoch))

    def bootstrap_records(self) -> Sequence[Message]:
        return self.bootstrap

    def load(self) -> ElectionState | None:
        return self.saved[-1] if self.saved else None

    def save(self, state: ElectionState, then: Any, now_ms: int) -> Effects:
        self.saved.append(state)
        return then(None, now_ms)

    def crash(self) -> None:
        self.batches = [
            b for b in self.batches if next(headers(b)).next_offset <= self.synced_offset
        ]


class SnapshotBytes:
    """A snapshot that is open for reading."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size_bytes = len(data)
        self.is_closed = False

    def read(self, position: int, size: int) -> bytes:
        assert not self.is_closed
        return self.data[position : position + size]

    def close(self) -> None:
        self.is_closed = True


def snapshot_bytes(content: Snapshot, epoch: int, metadata_version: int = 30) -> bytes:
    """What the file of a snapshot holds."""
    kraft = [content.kraft_version] if content.kraft_version else []
    batches = snapshot_batches(
        content.records,
        epoch=epoch,
        metadata_version=metadata_version,
        last_contained_ms=content.last_contained_ms,
        now_ms=1,
    )
    header = next(batches)
    for level in kraft:
        value = encode_value(KRaftVersionRecord(kraft_version=level))
        row = NewRecord(encode_key(ControlType.KRAFT_VERSION), value, 1)
        header += build_batch([row], base_offset=1, leader_epoch=epoch, is_control=True)
    return b"".join([bytes(header), *map(bytes, batches)])


class Loop(World):
    """Saves votes at once. Flushes wait for `sync`, other work for whoever takes it out of `work`, timers for
    `fire`; what is not for a loop is kept in `others`."""

    holds_flushes = True

    def __init__(self) -> None:
        super().__init__(1_000)
        self.others: list[Any] = []

    def on_submit(self, effect: Submit) -> None:
        self.wait_or_do(effect, None if effect.pool == "votes" else self.work)

    def on_other(self, effect: Effect) -> None:
        self.others.append(effect)

    def sync(self, problem: StorageError | None = None) -> None:
        """Report every flush that waits, oldest first, and those that follow from them."""
        while self.flushes:
            self.flush(problem)


class RecordingObserver(Unobserved):
    """The observer of a quorum in tests: it tells whoever they name."""

    def __init__(self) -> None:
        self.publishers: list[Callable[[ClusterDelta, ClusterImage, int], Effects]] = []
        self.on_active: Callable[[int], Effects] = super().became_active
        self.on_inactive: Callable[[int], Effects] = super().became_inactive

    def image_published(self, delta: ClusterDelta, image: ClusterImage, now_ms: int) -> Effects:
        return [effect for reported in self.publishers for effect in reported(delta, image, now_ms)]

    def became_active(self, now_ms: int) -> Effects:
        return self.on_active(now_ms)

    def became_inactive(self, now_ms: int) -> Effects:
        return self.on_inactive(now_ms)


class Cluster:
    """One controller on one quorum of one, and as many registered brokers as a test wants."""

    def __init__(self, config: BrokerConfig | None = None, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.loop = Loop()
        self.config = config or broker_config()
        self.reported = RecordingObserver()
        self.quorum = make_quorum(self.log, observer=self.reported)
        self.controller = Controller(
            config=self.config, rng=CountingRng(1_001), metadata=self.quorum
        )
        self.is_ready = False

    def start(self) -> "Cluster":
        def ready(now_ms: int) -> Effects:
            self.is_ready = True
            self.controller.activate(now_ms)
            return []

        self.reported.on_active = ready
        self.loop.run(self.quorum.start(self.loop.now_ms))
        self.loop.sync()
        assert self.is_ready
        return self

    def write(self, result: ControllerResult[Any]) -> Any:
        """Write, sync, and return what the writer was answered."""
        answers: list[Any] = []
        self.loop.run(self.quorum.write(result, kept(answers), self.loop.now_ms))
        self.loop.sync()
        (answer,) = answers
        return answer

    def register(self, node_id: int, incarnation: int = 1, **options: Any) -> Any:
        wanted = registration(node_id, incarnation)
        return self.write(self.controller.register_broker(wanted, self.loop.now_ms, **options))

    def heartbeat(self, node_id: int, **wants: Any) -> HeartbeatAnswer:
        broker = self.quorum.image.brokers[node_id]
        offset = self.quorum.image.offset
        heartbeat = Heartbeat(node_id, broker.epoch, offset, **wants)
        answer = self.write(self.controller.heartbeat(heartbeat, self.loop.now_ms))
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    def with_brokers(self, *node_ids: int) -> "Cluster":
        """Start, register and unfence."""
        self.start()
        for node_id in node_ids:
            self.register(node_id)
            self.heartbeat(node_id)
        return self


def make_quorum(log: MemoryLog, **options: Any) -> MetadataQuorum:
    """A quorum of one on a log in memory."""
    given: dict[str, Any] = {
        "node_id": NODE,
        "cluster_id": "c",
        "directory_id": bytes(16),
        "voters": VOTERS,
        "rng": CountingRng(1_001),
        "idle_interval_ms": 500,
    }
    return MetadataQuorum(log=log, elections=log, **(given | options))  # type: ignore[arg-type]


def registration(node_id: int, incarnation: int = 1) -> Registration:
    """What a broker of this release says at its start."""
    return Registration(
        broker_id=node_id,
        incarnation_id=(node_id * 100 + incarnation).to_bytes(16, "big"),
        endpoints=(Endpoint("PLAINTEXT", "localhost", 9000 + node_id),),
        features=SUPPORTED,
        rack=None,
        log_dirs=((10_000 + node_id).to_bytes(16, "big"),),
    )
