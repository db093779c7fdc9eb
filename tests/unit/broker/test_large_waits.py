"""What requests of very many things hold while they are read, or wait: bounded, whoever asks."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.limits import ELEMENT_HELD_BYTES
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.replica.partition import Partition
from tests.worlds.harness import Connection

from .large import NAMES, PARTITIONS, LargeNode

COUNT = 4 * PARTITIONS


@pytest.fixture
def small() -> LargeNode:
    return LargeNode(NAMES[:6])


class Room:
    """Stands for the memory of a connection: the test says whether there is room."""

    def __init__(self) -> None:
        self.making_bytes = self.most_bytes = self.ways_given = 0
        self.is_urgent = self.is_full = False
        self.waiting: list[Callable[[int], Effects]] = []

    def grow(self, size_bytes: int) -> None:
        self.making_bytes += size_bytes
        self.most_bytes = max(self.most_bytes, self.making_bytes)

    def hold(self, size_bytes: int) -> None:
        self.grow(size_bytes)

    def give_way(self) -> None:
        self.ways_given += 1

    def keeps(self, container: Any) -> None: ...

    def made(self) -> None:
        self.making_bytes = 0

    waits = made

    def reserve(self, size_bytes: int) -> bool:
        return True

    def release(self, size_bytes: int) -> None: ...

    def must_wait(self) -> bool:
        return self.is_full

    def must_wait_to_begin(self) -> bool:
        return False

    def wait(self, again: Callable[[int], Effects], *, to_begin: bool = False) -> None:
        self.waiting.append(again)


def fetch(count: int, **more: Any) -> FetchRequest:
    """A Fetch of the partitions of four topics, and of some that are not there, up to `count`."""
    topics = [
        FetchTopic(
            topic=name,
            partitions=[
                FetchPartition(partition=n, partition_max_bytes=1 << 20) for n in range(count // 4)
            ],
        )
        for name in NAMES[:4]
    ]
    fields: dict[str, Any] = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 500} | more
    return FetchRequest(topics=topics, **fields)


def waiting(node: LargeNode) -> int:
    hosted = node.node.hosted.by_name.values()
    return sum(len(p.fetch_waiters) for p in hosted if isinstance(p, Partition))


def test_a_large_fetch_that_many_others_leave_no_room_is_answered_and_does_not_wait(
    small: LargeNode,
) -> None:
    """It keeps what it asks for while it waits: 40 clients with 200,000 partitions each held 2 GB."""
    waiters = small.node.fetching.large_waiters
    waiters.partitions_max = 3 * COUNT - 1
    first, second = small.begin(fetch(COUNT), 12), small.begin(fetch(COUNT), 12)
    small.finish()
    assert (first.answers, second.answers) == ([], [])
    assert waiters.partitions == 2 * COUNT
    third = small.begin(fetch(COUNT), 12)
    small.finish()
    assert sum(len(t.partitions) for t in third.answers[0].responses) == COUNT
    assert waiting(small) == 2 * COUNT
    small.pass_time(500)
    assert len(first.answers) == len(second.answers) == 1
    assert waiters.partitions == waiting(small) == 0


def test_an_address_that_took_all_the_room_to_wait_in_makes_room_for_another(
    small: LargeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiters = small.node.fetching.large_waiters
    waiters.partitions_max = 3 * COUNT
    greedy = [small.begin(fetch(COUNT), 12) for _ in range(3)]
    small.finish()
    monkeypatch.setattr(Connection, "peer_host", "10.0.0.7")
    other = small.begin(fetch(COUNT), 12)
    small.finish()
    assert [len(each.answers) for each in greedy] == [1, 0, 0]
    assert other.answers == []
    assert waiters.partitions == 3 * COUNT
    small.pass_time(500)
    assert waiters.partitions == waiting(small) == 0
    assert len(other.answers) == 1


def test_a_large_fetch_whose_client_hangs_up_gives_its_room_back(small: LargeNode) -> None:
    connection: Any = small.begin(fetch(COUNT), 12)
    notified: list[Callable[[int], Effects]] = []
    connection.when_gone = lambda turn, abandon: notified.append(abandon)
    small.finish()
    assert small.node.fetching.large_waiters.partitions == COUNT
    connection.closed = True
    small.run(notified.pop()(small.now_ms))
    assert small.node.fetching.large_waiters.partitions == 0
    small.finish()
    assert waiting(small) == 0


@pytest.mark.parametrize("replica_id", [-1, 2])
def test_the_objects_of_a_large_request_are_counted_from_its_reading_on(
    small: LargeNode, replica_id: int
) -> None:
    """Anybody may say that he is a replica: it counts, too, and has room of its own."""
    room = Room()
    connection = small.begin(fetch(4_000, replica_id=replica_id, min_bytes=0), 12, memory=room)
    assert room.is_urgent, "as far as is known"
    small.finish()
    assert len(connection.answers) == 1
    assert room.is_urgent == (replica_id >= 0)
    answer_bytes = 4_000 * 500  # what is wanted, and what was found
    assert room.most_bytes > 4_000 * ELEMENT_HELD_BYTES * 3 / 4 + answer_bytes


def test_what_waits_for_minutes_keeps_no_room_of_answers() -> None:
    """As a member with a large assignment that waits for the others of its group."""
    connection: Any = Connection()
    connection.response_memory = room = Room()
    context = RequestContext(connection, 14, 5, 1, None, 0)
    context.hold(1_000)
    assert room.making_bytes == 1_000
    context.when_gone(lambda now_ms: [])
    assert room.making_bytes == 0


def test_a_large_request_is_read_on_when_there_is_room(small: LargeNode) -> None:
    room = Room()
    room.is_full = True
    connection = small.begin(fetch(4_000, min_bytes=0), 12, memory=room)
    small.finish()
    assert connection.answers == []
    assert room.making_bytes == 0, "nothing is read while there is no room"
    room.is_full = False
    [again] = room.waiting
    small.run(again(small.now_ms))
    small.finish()
    assert len(connection.answers) == 1
