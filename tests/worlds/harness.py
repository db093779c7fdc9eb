"""A whole node on a disk in memory, asked through wire bytes, with time and disk in the test's hands."""

from collections.abc import Iterator
from typing import Any

from firnline.api.dispatch import Dispatcher, frame_bytes
from firnline.base.counting.aging import NOT_DOUBTED, Aging
from firnline.base.effects import (
    Append,
    CloseConnection,
    Effect,
    EnsureTopic,
    Reply,
)
from firnline.base.ports import EnoughFiles, LogFiles
from firnline.broker.node import BrokerNode
from firnline.broker.wiring import build_node
from firnline.config.broker import BrokerConfig
from firnline.config.load import load
from firnline.log.checkpoint import format_directory
from firnline.metadata import records as r
from firnline.metadata.snapshot_file import BOOTSTRAP, snapshot_batches, write_snapshot
from firnline.protocol.messages import messages_of
from firnline.protocol.messages.headers import RequestHeader
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from firnline.protocol.schema import Message, Part
from firnline.records.build import NewRecord, build_batch
from firnline.sim.disk import CrashableFs
from firnline.stores.port import ObjectStore
from firnline.tiered.objects.storage import ObjectStorage
from tests.worlds.chance import SeededRng
from tests.worlds.decoded import all_records
from tests.worlds.effects import World

DATA = "/data"
START_MS = 1_700_000_000_000
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAg"
METADATA_VERSION = 30
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "log.dirs": DATA,
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}
TIER_SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "firnline.tiered.objects.storage.ObjectStorage",
    "remote.log.manager.task.interval.ms": "1000",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "log.retention.check.interval.ms": "5000",
}


class Connection:
    """Who asks: what `runtime.net.Connection` is to a request."""

    listener = "PLAINTEXT"
    peer_host = "127.0.0.1"
    principal = "User:ANONYMOUS"

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.closed = False
        self.response_memory: Any = None  # where the bytes of its answers are counted


def format_disk(fs: CrashableFs, rng: SeededRng, path: str = DATA) -> None:
    """What `firnline storage format` leaves."""
    format_directory(fs, path, cluster_id=CLUSTER_ID, node_id=1, directory_id=rng.uuid())
    levels = [r.FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION)]
    batches = snapshot_batches(
        levels, epoch=0, metadata_version=METADATA_VERSION, last_contained_ms=0, now_ms=START_MS
    )
    write_snapshot(fs, path, BOOTSTRAP, batches)


class Harness(World):
    """Runs one node. Flushes and work for the pools are done at once, unless held back.

    What is acknowledged while a Flush is held was not waited for.
    """

    def __init__(
        self,
        fs: CrashableFs | None = None,
        *,
        seed: int = 0,
        now_ms: int = START_MS,
        store: ObjectStore | None = None,
        files: LogFiles | None = None,
        aging: Aging = NOT_DOUBTED,
        **settings: str,
    ) -> None:
        super().__init__(now_ms)
        self.rng = SeededRng(seed)
        if fs is None:
            fs = CrashableFs(clock_ms=lambda: self.now_ms)
            format_disk(fs, self.rng)
        self.fs: CrashableFs = fs
        tier = {} if store is None else TIER_SETTINGS
        stated = SETTINGS | tier | {key.replace("_", "."): value for key, value in settings.items()}
        self.config: BrokerConfig = load(stated)
        self.stopped_ms: int | None = None
        self.running_ms: int | None = None
        self._correlation = 0
        self.node: BrokerNode = build_node(
            self.config,
            fs,
            self.rng,
            now_ms=self.now_ms,
            remote_storage=None if store is None else ObjectStorage(store),
            owner=self,
            files=EnoughFiles() if files is None else files,
            aging=aging,
        )
        self.dispatcher = Dispatcher(self.node)
        self.run(self.node.start(self.now_ms))
        self.pass_time(0)  # what only waits for its turn

    def node_running(self, now_ms: int) -> None:
        self.running_ms = now_ms

    def node_stopped(self, now_ms: int) -> None:
        self.stopped_ms = now_ms

    # ------------------------------------------------------------------------------------ effects

    def on_close(self, effect: CloseConnection) -> None:
        effect.context.connection.closed = True
        super().on_close(effect)

    def on_append(self, effect: Append) -> None:
        self.on_other(effect)

    def on_ensure_topic(self, effect: EnsureTopic) -> None:
        self.on_other(effect)

    def on_other(self, effect: Effect) -> None:
        self.run(self.node.perform(effect, self.now_ms))

    def on_reply(self, effect: Reply) -> None:
        context = effect.context
        if effect.message is None:
            context.connection.answers.append(None)
            return
        frame = frame_bytes(self.encode(effect))
        response = messages_of(context.api_key)[1]
        is_flexible = context.api_version in response.flexible and context.api_key != 18
        body = frame[8 + (1 if is_flexible else 0) :]
        read, end = response.read(body, context.api_version)
        assert end == len(body), "an answer that is longer than its message"
        context.connection.answers.append(read)

    def encode(self, reply: Reply) -> list[Part]:
        """Return the frame of an answer."""
        return self.dispatcher.encode(reply)

    # ----------------------------------------------------------------------------------- requests

    def send(
        self, request: Message, version: int, connection: Connection | None = None
    ) -> Connection:
        """Send one request as bytes; the answer, if there is one yet, is in the connection's."""
        connection = connection or Connection()
        self._correlation += 1
        header = RequestHeader(
            request_api_key=request.key,
            request_api_version=version,
            correlation_id=self._correlation,
            client_id="harness",
        )
        header_version = 2 if version in type(request).flexible else 1
        frame = bytearray(header.write(header_version) + request.write(version))
        view = memoryview(frame)
        self.run(self.dispatcher.on_frame(connection, view, self.now_ms))
        view.release()
        frame.clear()  # BufferError if anybody kept a view of the receive buffer
        self.pass_time(0)
        return connection

    def ask(self, request: Message, version: int) -> Any:
        """Send one request and return its answer, which must have come."""
        connection = self.send(request, version)
        assert not connection.closed, "the connection was closed"
        assert len(connection.answers) == 1, "no answer yet"
        return connection.answers[0]

    def create_topic(self, name: str = "t", partitions: int = 1, **configs: str) -> bytes:
        """Create a topic; return its id."""
        rows = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ]
        wanted = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=rows
        )
        [made] = self.ask(CreateTopicsRequest(topics=[wanted]), 7).topics
        assert made.error_code == 0, made
        return bytes(made.topic_id)

    def produce(
        self, *values: str, topic: str = "t", index: int = 0, acks: int = -1, data: Any = None
    ) -> Connection:
        """Send one batch; the answer comes when `acks` is reached."""
        part = PartitionProduceData(index=index, records=batch(*values) if data is None else data)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=[part])],
        )
        return self.send(request, 9)

    def produced(self, *values: str, **more: Any) -> Any:
        """Send one batch; return its partition's answer, which must have come."""
        connection = self.produce(*values, **more)
        assert connection.answers, "no answer yet"
        return connection.answers[0].responses[0].partition_responses[0]

    def fetch(
        self, offset: int = 0, *, topic: str = "t", index: int = 0, version: int = 12, **more: Any
    ) -> Connection:
        """Fetch one partition; `more` are fields of the request."""
        part = FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20,
            current_leader_epoch=-1,
        )  # fmt: skip
        topics = [FetchTopic(topic=topic, partitions=[part])]
        return self.send(FetchRequest(topics=topics, **more), version)

    def fetched(self, offset: int = 0, **more: Any) -> Any:
        """Fetch one partition; return its answer, which must have come."""
        connection = self.fetch(offset, **more)
        assert connection.answers, "no answer yet"
        return connection.answers[0].responses[0].partitions[0]

    def values(self, offset: int = 0, **more: Any) -> list[str]:
        """The values of all records that a consumer gets from `offset` on."""
        return list(values_of(self.fetched(offset, **more).records))

    def offset(self, timestamp: int, *, topic: str = "t", version: int = 11) -> tuple[int, int]:
        """(error code, offset) of ListOffsets."""
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])]
        )
        found = self.ask(request, version).topics[0].partitions[0]
        return found.error_code, found.offset

    # --------------------------------------------------------------------------------------- ends

    def stop(self) -> CrashableFs:
        """Stop in order; return the disk for the next start."""
        self.run(self.node.shutdown(self.now_ms))
        self.pass_time(1000)
        assert self.stopped_ms is not None, "the node did not stop"
        return self.fs

    def cut_power(self, seed: int = 0, **more: Any) -> CrashableFs:
        """Lose power; return the disk as the next start finds it."""
        return self.fs.crash(SeededRng(seed), **more)


def batch(*values: str, time_ms: int = START_MS, **more: Any) -> bytearray:
    """One batch as a producer sends it."""
    return build_batch([NewRecord(None, v.encode(), time_ms) for v in values], **more)


def values_of(data: Any) -> Iterator[str]:
    """The values of the records in the batches of `data`."""
    for record in all_records(bytes(data)):
        assert record.value is not None
        yield record.value.decode()
