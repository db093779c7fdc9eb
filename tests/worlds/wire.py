"""A node of a few partitions on lists, asked through wire bytes at any version."""

import struct
from itertools import count
from types import SimpleNamespace
from typing import Any

from immutables import Map

from firnline.api.context import RequestContext
from firnline.api.fast_path import common_request
from firnline.base.background import Background
from firnline.base.effects import CloseConnection, Effects
from firnline.base.slices import FileSlice
from firnline.base.units import MIB
from firnline.broker.fetch import Fetching
from firnline.broker.fetch_session import FetchSessions
from firnline.broker.leaders import Leaders
from firnline.broker.list_offsets import ListingOffsets
from firnline.broker.produce import Producing
from firnline.metadata.image import (
    BrokerImage,
    ClusterImage,
    Endpoint,
    FeatureRange,
    PartitionImage,
    TopicImage,
)
from firnline.protocol.messages import messages_of
from firnline.protocol.schema import Message
from firnline.protocol.session import header_tail
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import Partition
from tests.worlds.chance import CountingRng
from tests.worlds.hosting import Calls
from tests.worlds.list_log import NODE_ID, TOPIC_ID

OTHER_NODE, ELSEWHERE_ID = 2, b"\x09" * 16
NODE_CLOSED = "closed"
SILENCE = "no answer"
CORRELATION_ID = 0x0102_0304


def connection() -> SimpleNamespace:
    """What `runtime.net.Connection` is to a request."""
    return SimpleNamespace(
        listener="PLAIN", closed=False, principal="User:ANONYMOUS", peer_host="127.0.0.1"
    )


class Context(RequestContext):
    """Who asks; an answer that cannot be made fails the test."""

    __slots__ = ()

    def __init__(self, key: int, version: int) -> None:
        super().__init__(connection(), key, version, CORRELATION_ID, "test", 0)

    def failed(self, problem: Exception) -> CloseConnection:
        raise problem


def _partition(leader: int) -> PartitionImage:
    return PartitionImage((leader,), (bytes(16),), (leader,), leader, 7, 1)


def _broker(node_id: int) -> BrokerImage:
    endpoints = (Endpoint("PLAIN", f"host{node_id}", 9092),)
    return BrokerImage(node_id, 5, bytes(16), endpoints, Map(), "rack", False, False, ())


def image() -> ClusterImage:
    """Topic "t" here, topic "elsewhere" on node 2."""
    t = TopicImage("t", TOPIC_ID, Map({0: _partition(NODE_ID), 1: _partition(NODE_ID)}))
    elsewhere = TopicImage("elsewhere", ELSEWHERE_ID, Map({0: _partition(OTHER_NODE)}))
    return ClusterImage(
        offset=99,
        epoch=3,
        features=Map({"metadata.version": 30}),
        brokers=Map({n: _broker(n) for n in (NODE_ID, OTHER_NODE)}),
        topics_by_name=Map({"t": t, "elsewhere": elsewhere}),
        topics_by_id=Map({TOPIC_ID: t, ELSEWHERE_ID: elsewhere}),
    )


def frame_of(request: Message, version: int) -> memoryview:
    """A whole request frame as the receive buffer holds it."""
    head = struct.pack(">hhih", request.key, version, CORRELATION_ID, 4) + b"test"
    body = head + (b"\0" if version in request.flexible else b"") + request.write(version)
    return memoryview(bytearray(struct.pack(">i", len(body)) + body))


def read_frame(frame: bytes, key: int, version: int) -> Any:
    """Return the answer in a whole frame."""
    assert frame[:8] == struct.pack(">ii", len(frame) - 4, CORRELATION_ID)
    request, response = messages_of(key)
    start = 8 + len(header_tail(request, version))
    said, end = response.read(frame[start:], version)
    assert end == len(frame) - start
    return said


class Wire:
    """Sends requests as bytes and reads answers from bytes."""

    def __init__(self, *partitions: Partition) -> None:
        self.world = Calls()
        self.answers: list[Any] = []
        self.was_common = self.was_at_once = False
        leaders = Leaders(image)
        hosted = HostedPartitions(exists=leaders.exists, name_of=leaders.name_of)
        for p in partitions:
            hosted.add(p)
        self.node = SimpleNamespace(
            sliced_tasks=Background("requests", is_round_robin=True),
            endpoint_type=1,
            image=image(),
            supported_features={"metadata.version": FeatureRange(7, 30), "x": FeatureRange(0, 1)},
            hosted=hosted,
            leaders=leaders,
            producing=Producing(lambda p, now: []),
            fetching=Fetching(
                hosted,
                FetchSessions(sessions_max=9, eviction_ms=1000, rng=CountingRng(numbers=count(1))),
                max_bytes=50 * MIB,
                remote_read=None,
                remote_max_wait_ms=500,
                on_follower=lambda partition, now_ms: [],
            ),
            listing_offsets=ListingOffsets(remote=None, timeout_ms=1000, pages=hosted.pages),
            storage=SimpleNamespace(keep_log_starts=lambda logs, then, now_ms: then([], now_ms)),
        )

    def send(self, module: Any, request: Message, version: int) -> list[Any]:
        """Send `request` at `version`; return the answers there are so far."""
        # A buffer that may be written to, as the receive buffer is.
        data = memoryview(bytearray(request.write(version)))
        read, position = type(request).read(data, version)
        assert position == len(data)
        context: Any = Context(request.key, version)
        self.run(module.handle(self.node, context, read, self.world.now_ms))
        # The buffer is used for the next request at once: nobody may hold a view of it.
        data.release()
        return self.answers

    def send_common(self, module: Any, request: Message, version: int) -> list[Any]:
        """As `send`, by the way of whole frames: is it a usual one? Only then it is handled at once."""
        data = frame_of(request, version)
        asked = common_request(data, len(data))
        self.was_common = asked is not None
        answer = asked and module.at_once(self.node, connection(), asked, self.world.now_ms)
        self.was_at_once = answer is not None
        if answer is None:
            return self.send(module, request, version)
        if isinstance(answer, list):
            self.run(answer)
        else:
            parts = (answer,) if isinstance(answer, bytes) else answer
            frame = b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
            self.answers.append(read_frame(frame, request.key, version))
        return self.answers

    def run(self, effects: Effects) -> None:
        """Carry effects out; answers go through bytes."""
        self.world.run(effects)
        said, self.world.said = self.world.said, []
        for effect in said:
            if isinstance(effect, CloseConnection):
                self.answers.append(NODE_CLOSED)
            elif effect.message is None:
                self.answers.append(SILENCE)
            else:
                key, version = effect.context.api_key, effect.context.api_version
                if isinstance(effect.message, bytes):
                    self.answers.append(read_frame(effect.message, key, version))
                    continue
                response = messages_of(key)[1]
                self.answers.append(response.read(effect.message.write(version), version)[0])
