"""Connections that end while a request comes, a page is read, a batch is compressed, or an answer waits.

A whole node behind real sockets, with bounds so small that connections are evicted, requests and answers
wait, and slow peers are closed all the time. All that is counted comes to nothing when they have gone.
"""

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.broker.wiring import build_node
from firnline.cli.dev import dev_config
from firnline.client.wire import encode_request
from firnline.metadata.format import format_storage
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from firnline.protocol.schema import Message
from firnline.records.build import NewRecord, build_batch
from firnline.runtime import disk
from firnline.runtime.bounds.connections import Connections, Limits
from firnline.runtime.disk import RealFs
from firnline.runtime.listener import Server, listen
from firnline.runtime.loop import Runtime
from firnline.runtime.poll import PollLoop
from firnline.runtime.rng import SystemRng
from tests.peers.nodes import eventually
from tests.wire.line import MIB, Line

KEPT, RECOMPRESSED, MANY = "kept", "recompressed", "many"
PARTITIONS = 150
CONNECTIONS_MAX = 24
ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
# Nobody sees that a client has gone whose end stands behind bytes that are not read yet: the wait ends then.
WAIT_MS = 2_000
# Three clients send and hang up for so long at a time.
ATTACK_S = 2.0


def frame(request: Message, version: int) -> bytes:
    return encode_request(request, version=version, correlation_id=1, client_id="attack")


def produce(topic: str, size: int, *, acks: int = -1, batches: int = 1) -> bytes:
    value = random.Random(size).randbytes(size // 2) + bytes(size // 2)
    batch = build_batch([NewRecord(b"k", value, int(time.time() * 1000))])
    rows = [PartitionProduceData(index=index, records=batch) for index in range(batches)]
    data = [TopicProduceData(name=topic, partition_data=rows)]
    return frame(ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=data), 9)


def fetch(topic: str, partitions: int, *, wait_ms: int = 0, offset: int = 0) -> bytes:
    rows = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=4 * MIB)
        for index in range(partitions)
    ]
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_id=0,
        session_epoch=0,
        topics=[FetchTopic(topic=topic, partitions=rows)],
    )
    return frame(request, 11)


def join(group: str) -> bytes:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(50_000))],
    )
    return frame(request, 3)


REQUESTS = (
    produce(RECOMPRESSED, 300_000),
    produce(RECOMPRESSED, 60_000, batches=8),
    produce(RECOMPRESSED, 300_000, acks=0),
    produce(MANY, 20_000, batches=120),
    fetch(KEPT, 1),
    fetch(KEPT, 1),
    fetch(MANY, PARTITIONS, wait_ms=WAIT_MS, offset=10**6),
    fetch(KEPT, 1, wait_ms=WAIT_MS, offset=32),
    frame(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12),
    join("group"),
    frame(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3),
)


class Intact:
    """A node, its runtime and one listener, on a thread of their own."""

    def __init__(self, directory: Path) -> None:
        stated = {"group.initial.rebalance.delay.ms": "50", "firnline.acks.fsync": "never"}
        config = dev_config(9092, str(directory), None, stated)
        fs, rng, now_ms = RealFs(), SystemRng(), time.time_ns() // 1_000_000
        format_storage(fs, config, cluster_id=None, rng=rng, now_ms=now_ms, ignore_formatted=True)
        self.ready = threading.Event()
        self.node = build_node(config, fs, rng, now_ms=now_ms, owner=self)
        self.loop = PollLoop()
        self.runtime = Runtime(
            self.node,
            self.loop,
            threads={"disk": 2},
            held_answers_bytes_max=MIB,
            incoming_bytes_max=MIB,
        )
        for room in (self.runtime.admission.clients, self.runtime.admission.brokers):
            room.bytes_max = 256 * 1024
        sock = listen("127.0.0.1", 0)
        self.address: tuple[str, int] = sock.getsockname()
        self.server = Server(
            self.runtime,
            self.loop,
            sock,
            listener="PLAINTEXT",
            frame_bytes_max=8 * MIB,
            idle_ms=600_000,
            counted=Connections(lambda: Limits(CONNECTIONS_MAX)),
        )
        self.runtime.servers.append(self.server)
        self.runtime.start()
        self.thread = threading.Thread(target=self.loop.run)
        self.thread.start()
        assert self.ready.wait(20)

    def node_running(self, now_ms: int) -> None:
        self.ready.set()

    def node_stopped(self, now_ms: int) -> None:
        """Nobody waits."""

    def on_loop(self, call: Callable[[], Any]) -> Any:
        return self.runtime.ask(call, 20)

    def counts(self) -> dict[str, object]:
        """All that is nothing when nobody is there."""
        runtime, counted = self.runtime, self.server.counted
        return {
            "connections": (self.server.connection_count, counted.count, counted._evictable.count),
            "streams": len(self.loop.streams),
            "requests": (runtime.incoming.held_bytes, len(runtime.incoming._holding)),
            "waiting to be received": (runtime.incoming.waiting, runtime.incoming.one),
            "answers": (runtime.answers.making_bytes, runtime.answers.unsent_bytes),
            "answers that wait": (runtime.answers.waiting, runtime.answers.one),
            "admitted": [
                (room.held_bytes, room.waiting)
                for room in (runtime.admission.clients, runtime.admission.brokers)
            ],
            "slices": len(self.node.sliced_tasks._usual) + len(self.node.sliced_tasks._urgent),
            "encodings": len(runtime._encoding._usual) + len(runtime._encoding._urgent),
            "work": [runtime._pools[name]._unfinished for name in ("codec", "pages")],
        }

    def close(self) -> None:
        self.on_loop(self.loop.stop)
        self.thread.join(20)
        self.node.close()
        self.runtime.close()
        self.loop.close()


@pytest.fixture
def intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Intact]:
    chance = random.Random(0)
    monkeypatch.setattr(disk, "in_memory", lambda fd, position, size: chance.random() < 0.3)
    made = Intact(tmp_path / "data")
    zstd = [CreatableTopicConfig(name="compression.type", value="zstd")]
    topics = [
        CreatableTopic(name=KEPT, num_partitions=1, replication_factor=1),
        CreatableTopic(name=RECOMPRESSED, num_partitions=8, replication_factor=1, configs=zstd),
        CreatableTopic(name=MANY, num_partitions=PARTITIONS, replication_factor=1),
    ]
    with Line(made.address) as line:
        answer = line.ask(CreateTopicsRequest(topics=topics, timeout_ms=15_000), 7)
        assert [each.error_code for each in answer.topics] == [0, 0, 0]
        for _ in range(32):
            line.send(produce(KEPT, 500_000))
            assert line.frame() is not None
    yield made
    made.close()


def one_attack(address: tuple[str, int], chance: random.Random) -> None:
    """Connect, send some requests or parts of them, read some of what comes, or nothing, and go."""
    with socket.create_connection(address, 5, source_address=(chance.choice(ADDRESSES), 0)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, chance.choice((4_096, 65_536)))
        data = b"".join(chance.choices(REQUESTS, k=chance.choice((1, 1, 2, 5))))
        if chance.random() < 0.4:
            data = data[: chance.randrange(1, len(data))]
        sock.settimeout(0.2)
        sock.sendall(data)
        if chance.random() < 0.2:
            sock.shutdown(socket.SHUT_WR)
        for _ in range(chance.choice((0, 0, 1, 5, 200))):
            time.sleep(chance.choice((0, 0, 0.002)))
            if not sock.recv(chance.choice((10, 65_536))):
                break


def attack(address: tuple[str, int], seed: int, until_s: float) -> None:
    chance = random.Random(seed)
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            one_attack(address, chance)


def open_sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


def test_whatever_meets_when_connections_end_all_that_is_counted_comes_back_to_nothing(
    intact: Intact,
) -> None:
    # Who has filled the topics is gone, and the node may not have noticed yet.
    eventually("nobody is there", lambda: not intact.on_loop(intact.counts)["streams"])
    before, sockets = intact.on_loop(intact.counts), open_sockets()
    until_s = time.monotonic() + ATTACK_S
    attackers = [
        threading.Thread(target=attack, args=(intact.address, number, until_s))
        for number in range(3)
    ]
    for thread in attackers:
        thread.start()
    idle = []
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            idle.append(socket.create_connection(intact.address, 5))
            time.sleep(0.02)
    for thread in attackers:
        thread.join(20)
    for sock in idle:
        sock.close()
    deadline = time.monotonic() + 30
    while (left := intact.on_loop(intact.counts)) != before:
        still = {what: each for what, each in left.items() if each != before[what]}
        assert time.monotonic() < deadline, still
        time.sleep(0.05)
    while open_sockets() > sockets:  # clients of earlier tests have some now and then
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert intact.runtime.failure is None
    assert not intact.runtime.failed_requests.counts
    # What is to meet was there.
    assert intact.server.counted.evicted
    assert all(intact.runtime._pools[name]._workers for name in ("codec", "pages"))
    with Line(intact.address) as line:
        line.send(fetch(KEPT, 1))
        assert len(line.frame() or b"") > MIB
