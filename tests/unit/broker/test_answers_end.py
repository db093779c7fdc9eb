"""Answers at their bound end: the node's handlers, and the real bound between them."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from firnline.api import forwarding
from firnline.api.context import RequestContext
from firnline.base.background import Background
from firnline.base.effects import CloseConnection, Effects, Reply
from firnline.base.errors import ProtocolError
from firnline.base.units import MIB
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
from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.protocol.messages.k19_create_topics import CreateTopicsRequest
from firnline.protocol.schema import Message
from firnline.replica.partition import Partition
from firnline.runtime.bounds.answers import Answers
from firnline.stores.memory import MemoryStore
from tests.unit.runtime.test_answers import Loop, World
from tests.worlds.harness import Connection, batch

from .large import NAMES, PARTITIONS, LargeNode
from .test_large_waits import Room, fetch
from .test_tiered_node import tiered

pytestmark = pytest.mark.slow


def test_a_fetch_that_goes_on_alone_does_not_wait_to_begin_again() -> None:
    """Its first slice counts nothing, and its second part begins anew: all others waited for it."""
    node = LargeNode(NAMES[:6])
    world = World()
    world.answers.bytes_max = 1_000_000
    world.answers._resume = lambda again: node.run(again(node.now_ms))
    full, me = world.peer("full"), world.peer("me")
    full.response_memory.grow(1_000_000)
    connection = node.begin(fetch(300, min_bytes=0), 12, memory=me.response_memory)
    full.response_memory.is_urgent = True
    full.response_memory.grow(500_000)  # a replica goes on to twice the bound
    node.finish()
    world.loop.run()
    node.finish()
    assert connection.answers


def test_a_consumer_that_hangs_up_while_the_tier_is_read_leaves_nothing_counted() -> None:
    harness = tiered(MemoryStore())
    world = World()
    world.answers.bytes_max = 512 * MIB
    harness.holds_work = True
    connection = Connection()
    connection.response_memory = world.peer("a").response_memory
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=MIB,
        topics=[FetchTopic(topic="t", partitions=[part])],
    )
    harness.send(request, 11, connection)
    assert connection.answers == []
    assert harness.work
    connection.closed = True
    connection.response_memory.close()
    while harness.work:
        harness.work_once()
    harness.pass_time(5_000)
    assert world.answers.held_bytes == 0


def test_a_produce_that_waits_for_its_acks_does_not_keep_other_answers_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to five minutes, as its client says. Followers that wait with them would have made a circle."""
    monkeypatch.setattr(Partition, "needs_flush", lambda self, acks: True)
    node = LargeNode(NAMES[:6])
    world = World()
    world.answers.bytes_max = 1_000_000
    full, other, producer = map(world.peer, ["full", "other", "producer"])
    full.response_memory.grow(1_000_000)
    node.holds_flushes = True
    connection = node.begin(produce(-1, 1_200), 9, memory=producer.response_memory)
    node.finish()
    assert connection.answers == []
    assert node.flushes, "all is appended, and not on disk"
    assert world.answers.one is not producer.response_memory
    assert not other.response_memory.must_wait()


@pytest.mark.parametrize(("timestamp", "times"), [(-1, 0), (1, 1)], ids=["here", "in the tier"])
def test_a_time_that_is_looked_for_in_the_tier_keeps_no_other_answer_waiting(
    timestamp: int, times: int
) -> None:
    harness = tiered(MemoryStore())
    harness.holds_work = True
    connection = Connection()
    connection.response_memory = room = Room()
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part])]
    )
    harness.send(request, 7, connection)
    assert len(connection.answers) == 1 - times
    assert room.ways_given == times


def test_what_waits_for_the_controller_keeps_no_other_answer_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half a minute, where there is none."""
    asked: list[Any] = []

    def attempt(self: object, now_ms: int) -> Effects:
        asked.append(room.ways_given)
        return []

    monkeypatch.setattr("firnline.api.forwarding._Forwarded.attempt", attempt)
    connection: Any = Connection()
    connection.response_memory = room = Room()
    context = RequestContext(connection, 19, 7, 1, None, 0)
    nothing: Any = None
    request = CreateTopicsRequest(topics=[])
    forwarding.forward(nothing, context, request, nothing, 0, here=lambda now_ms: [])
    assert asked == [1]


def produce(acks: int, count: int) -> ProduceRequest:
    """To as many partitions of one topic, most of which are not there."""
    data = bytes(batch("x"))
    rows = [
        PartitionProduceData(index=n, records=data if n < PARTITIONS else None)
        for n in range(count)
    ]
    topics = [TopicProduceData(name=NAMES[0], partition_data=rows)]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics)


def list_offsets(count: int) -> ListOffsetsRequest:
    rows = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(count // 4)]
    topics = [ListOffsetsTopic(name=name, partitions=rows) for name in NAMES[:4]]
    return ListOffsetsRequest(topics=topics)


class Reader:
    """A peer that reads all that it is sent."""

    def close_slow(self) -> None: ...


class Busy(LargeNode):
    """A node at whose answers' bound clients ask and hang up; encodes large answers as the runtime does."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(NAMES[:6])
        self.loop = Loop()
        self.answers = Answers(
            self.loop,  # type: ignore[arg-type]
            lambda again: self.run(again(self.now_ms)),
            bytes_max,
        )
        self.clients: list[Any] = []
        self._encoding = Background("answers", is_round_robin=True)

    def on_close(self, effect: CloseConnection) -> None:
        assert isinstance(effect.problem, ProtocolError), effect.problem
        self.hang_up(effect.context.connection)

    def on_reply(self, effect: Reply) -> None:
        client = effect.context.connection
        if client.closed:
            return
        if effect.context.is_large and hasattr(client, "ended"):
            self.run(self._encode_on(effect, self.dispatcher.encoding(effect), self.now_ms))
        else:
            self._answered(effect)

    def _answered(self, effect: Reply) -> None:
        client = effect.context.connection
        client.answers.append(effect.message)
        if hasattr(client, "ended"):
            client.waits = None
            client.response_memory.made()

    def _encode_on(self, effect: Reply, encoding: Any, now_ms: int) -> Effects:
        work = self._encode(effect, encoding)
        return self._encoding.begin(work, now_ms, is_urgent=effect.context.is_urgent)  # type: ignore[arg-type]

    def _encode(self, effect: Reply, encoding: Any) -> Iterator[Effects]:
        client, memory = effect.context.connection, effect.context.response_memory
        try:
            while not client.closed:
                yield []
                if memory is not None and memory.must_wait():
                    memory.wait(partial(self._encode_on, effect, encoding))
                    return
                size = next(encoding)
                if memory is not None:
                    memory.grow(size)
        except StopIteration:
            if not client.closed:
                self._answered(effect)

    def asks(self, request: Message, version: int) -> None:
        client: Any = self.begin(request, version, self.answers.memory_of(Reader()))
        client.waits, client.ended, client.name = None, 0, type(request).__name__

        def when_gone(turn: int, abandon: Callable[[int], Effects]) -> None:
            client.waits = abandon

        def ended() -> None:
            client.ended += 1

        client.when_gone = when_gone
        context = self.dispatcher.sliced_request
        client.has_slices_left = context is not None and context.connection is client
        if client.has_slices_left:
            assert context is not None
            context.on_end = ended
        self.clients.append(client)

    def hang_up(self, client: Any) -> None:
        if not client.closed:
            client.closed = True
            client.response_memory.close()
            if client.waits is not None:
                self.run(client.waits(self.now_ms))


def some_request(rng: random.Random) -> tuple[Message, int]:
    roll = rng.random()
    if roll < 0.55:
        waits = {"min_bytes": rng.choice([0, 1]), "max_wait_ms": rng.choice([1, 500, 5000])}
        count = rng.choice([300, 400, 1200, 4000])
        return fetch(count, replica_id=rng.choice([-1, 2]), **waits), 11
    if roll < 0.72:
        return list_offsets(rng.choice([400, 2000])), 7
    if roll < 0.83:
        return MetadataRequest(topics=None), 9
    return produce(rng.choice([1, -1]), rng.choice([5, 500, 2000])), 9


@pytest.mark.parametrize("seed", range(12))
def test_whoever_asks_and_stays_is_answered_once_and_nothing_stays_counted(seed: int) -> None:
    rng = random.Random(seed)
    node = Busy(rng.choice([300_000, 1_000_000, 3_000_000]))
    waiters = node.node.fetching.large_waiters
    waiters.partitions_max = 3_000
    for _ in range(120):
        roll = rng.random()
        if roll < 0.45:
            node.asks(*some_request(rng))
        elif roll < 0.55 and node.clients:
            node.hang_up(rng.choice(node.clients))
        elif roll < 0.6:
            node.now_ms += rng.choice([1, 100, 600])
        elif roll < 0.8:
            for _ in range(rng.randrange(20)):
                node.one_more()
        else:
            calls = node.loop.calls[: rng.randrange(4)]
            del node.loop.calls[: len(calls)]
            for call in calls:
                call()
    for _ in range(300):
        node.finish()
        node.loop.run()
        node.loop.seconds(1)
        node.now_ms += 100
    assert [c.name for c in node.clients if not c.closed and len(c.answers) != 1] == []
    assert (node.answers.making_bytes, node.answers.waiting) == (0, 0)
    assert (node.answers.freeing.held_bytes, node.answers.freeing.is_busy) == (0, False)
    assert all(
        c.response_memory.making_bytes == c.response_memory.asking_bytes == 0 for c in node.clients
    )
    assert waiters.partitions == 0
    hosted = [p for p in node.node.hosted.by_name.values() if isinstance(p, Partition)]
    assert sum(len(p.fetch_waiters) for p in hosted) == 0
    assert [c.name for c in node.clients if c.has_slices_left and c.ended != 1] == []
