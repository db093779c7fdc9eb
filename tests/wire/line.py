"""A raw connection to a broker, and the server process at its other end. WORLD.

Nothing here is a Kafka client: `Line` sends any bytes and shows what comes back, a frame or a hang-up.
"""

import contextlib
import itertools
import socket
import struct
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from firnline.base.ids import Uuid
from firnline.client.wire import decode_answer, encode_request
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from firnline.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from firnline.protocol.schema import Message

MIB = 1 << 20
FRAME_LIMIT_BYTES = 32 * MIB  # what both servers are configured with
METADATA = 3
ANSWER_S = 20.0
_numbers = itertools.count(1000)


class Line:
    """One connection, byte by byte."""

    def __init__(self, address: tuple[str, int], timeout_s: float = ANSWER_S) -> None:
        self.timeout_s = timeout_s
        self.socket = socket.create_connection(address, timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes | bytearray) -> None:
        """Send all of it; a peer that hangs up meanwhile is no error, `frame` will show it."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def frame(self, timeout_s: float | None = None) -> bytes | None:
        """Return the next frame without its length; None when the peer closed. TimeoutError."""
        self.socket.settimeout(self.timeout_s if timeout_s is None else timeout_s)
        try:
            size = self._exactly(4)
            return None if size is None else self._exactly(struct.unpack(">i", size)[0])
        except (ConnectionResetError, BrokenPipeError):
            return None

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                return None
            data += piece
        return data

    def ask(self, request: Message, version: int) -> Any:
        """Send a proper request and return its decoded answer."""
        number = next(_numbers)
        self.send(encode_request(request, version=version, correlation_id=number, client_id="wire"))
        answer = self.frame()
        assert answer is not None, f"{type(request).__name__} v{version}: the connection was closed"
        return decode_answer(request, version, answer, correlation_id=number)


class Target:
    """A server under test: where it listens, what it costs, what it says."""

    def __init__(self, name: str, bootstrap: str, pid: int, log: Path) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.name = name
        self.address = (host, int(port))
        self.process = psutil.Process(pid)
        self.log = log
        self.parses_bodies = True
        self.fresh_bytes = self._settled_bytes()

    def _settled_bytes(self) -> int:
        """Its memory once that grows no more: a thread loads the code of all requests after the start."""
        before, found = 0, self.rss_bytes()
        for _ in range(50):
            if self.is_firnline and found > before:
                time.sleep(0.1)
                before, found = found, self.rss_bytes()
        return found

    @property
    def is_firnline(self) -> bool:
        return self.name == "firnline"

    def line(self) -> Line:
        return Line(self.address)

    def send(self, data: bytes | bytearray) -> bytes | None:
        """Send bytes on a connection of their own and return the first frame, None for a hang-up."""
        with self.line() as line:
            line.send(data)
            return line.frame()

    def ask(self, request: Message, version: int) -> Any:
        with self.line() as line:
            return line.ask(request, version)

    def rss_bytes(self) -> int:
        return int(self.process.memory_info().rss)

    def forget_peak(self) -> None:
        """Let the kernel count the peak of memory anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel states no VmHWM")

    # ---- what most tests need

    def topic(self, name: str, partitions: int = 1, **configs: str) -> Uuid:
        """Create a topic, wait until its partitions are led, return its id."""
        rows = [CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()]
        new = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=rows
        )
        (made,) = self.ask(CreateTopicsRequest(topics=[new], timeout_ms=20_000), 7).topics
        assert made.error_code == 0, made
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            (seen,) = self.ask(wanted, 12).topics
            if (
                seen.error_code == 0
                and len(seen.partitions) == partitions
                and all(p.error_code == 0 and p.leader_id >= 0 for p in seen.partitions)
                and self._leads(name, partitions)
            ):
                return made.topic_id
            time.sleep(0.05)
        raise AssertionError(f"topic {name} has no leader")

    def _leads(self, name: str, partitions: int) -> bool:
        """Whether the server knows that it leads; what it tells of leaders it may know before."""
        rows = [ListOffsetsPartition(partition_index=p, timestamp=-1) for p in range(partitions)]
        topics = [ListOffsetsTopic(name=name, partitions=rows)]
        answer = self.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5)
        return not any(row.error_code for row in answer.topics[0].partitions)

    def topic_names(self) -> set[str]:
        answer = self.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        return {topic.name for topic in answer.topics}

    def produce(self, topic: str, records: bytes | bytearray | None, *, version: int = 9) -> Any:
        """Produce these bytes as the records of partition 0 and return the partition's answer."""
        return (
            self.ask(produce_request(topic, records), version).responses[0].partition_responses[0]
        )


def produce_request(
    topic: str, records: bytes | bytearray | None, acks: int = -1
) -> ProduceRequest:
    """A Produce request for partition 0 of one topic."""
    data = PartitionProduceData(index=0, records=None if records is None else bytes(records))
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def framed(body: bytes | bytearray) -> bytes:
    """Prefix a body with its length."""
    return struct.pack(">i", len(body)) + body


def header(
    key: int,
    version: int,
    *,
    number: int = 7,
    client: bytes | None = b"wire",
    flexible: bool = False,
) -> bytes:
    """A request header, v2 when `flexible`, with any bytes as the client id."""
    start = struct.pack(">hhi", key, version, number)
    start += struct.pack(">h", -1) if client is None else struct.pack(">h", len(client)) + client
    return start + (b"\0" if flexible else b"")


def varint(value: int) -> bytes:
    """An unsigned varint, as compact lengths and tags are written."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
