"""A Fetch of many partitions stops waiting at once; the partitions let go of it in slices."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.broker import large_fetch
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from firnline.replica.waiters import FetchWaiter, FetchWaiters
from tests.worlds.harness import Connection, batch

from .large import NAMES, PARTITIONS, LargeNode
from .test_large_requests import codes, fetch, read, resign, waiting

AT_ONCE = 100


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> LargeNode:
    monkeypatch.setattr(large_fetch, "_LEFT_PER_SLICE", AT_ONCE)
    return LargeNode(NAMES[:6])


@pytest.fixture
def left(small: LargeNode, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give how many partitions each step stopped waiting at."""
    counts: list[int] = []
    discard = FetchWaiters.discard
    step = small._step

    def counted(waiters: FetchWaiters, waiter: FetchWaiter) -> None:
        counts[-1] += 1
        discard(waiters, waiter)

    def stepping(call: Callable[..., Any], *args: Any) -> Any:
        counts.append(0)
        return step(call, *args)

    monkeypatch.setattr(FetchWaiters, "discard", counted)
    monkeypatch.setattr(small, "_step", stepping)
    return counts


def wait(node: LargeNode, epoch: int = -1, **more: Any) -> Connection:
    """Have a client wait at all partitions."""
    connection = node.begin(fetch(epoch, NAMES[:6], min_bytes=1, max_wait_ms=500, **more), 12)
    while node.one_more() and not is_waiting(node):
        pass
    assert is_waiting(node)
    assert waiting(node) == 6 * PARTITIONS
    return connection


def send_records(node: LargeNode, name: str, index: int) -> None:
    """Produce to one partition; of what that wakes no slice is done."""
    data = PartitionProduceData(index=index, records=bytes(batch("x")))
    topic = TopicProduceData(name=name, partition_data=[data])
    steps = node.steps
    node.begin(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)
    node.steps = steps


def is_waiting(node: LargeNode) -> bool:
    return node.node.fetching.large_waiters.partitions > 0


@pytest.mark.parametrize(
    "ends", ["records come", "time is over", "it hangs up", "it hangs up early"]
)
@pytest.mark.parametrize("replica_id", [-1, 2])
def test_a_fetch_stops_waiting_at_many_partitions_in_slices(
    small: LargeNode, left: list[int], ends: str, replica_id: int
) -> None:
    """Goal: whoever stops waiting holds up nobody. Method: count at how many partitions in each step."""
    connection: Any
    if ends == "it hangs up early":
        connection = small.begin(fetch(-1, NAMES[:6], min_bytes=1, max_wait_ms=500), 12)
        while waiting(small) < 4 * PARTITIONS:
            assert small.one_more()
        connection.closed = True
    else:
        notified: list[Callable[[int], Effects]] = []
        connection = small.begin(fetch(-1, NAMES[:6], min_bytes=1, max_wait_ms=500), 12)
        connection.when_gone = lambda turn, abandon: notified.append(abandon)
        while not is_waiting(small):
            assert small.one_more()
        if ends == "records come":
            send_records(small, NAMES[3], 5)
        elif ends == "time is over":
            small.now_ms += 500
        else:
            connection.closed = True
            small.run(small._step(notified.pop(), small.now_ms))
    small.finish()
    assert max(left) == AT_ONCE
    assert waiting(small) == small.node.fetching.large_waiters.partitions == 0
    assert len(connection.answers) == (not connection.closed)


def test_who_has_stopped_waiting_is_notified_of_nothing_more(small: LargeNode) -> None:
    """Goal: one answer to one request. Method: records come, and partitions are led elsewhere or go, before
    they have let go of the Fetch."""
    connection = wait(small)
    send_records(small, NAMES[0], 0)
    assert waiting(small) == 6 * PARTITIONS
    send_records(small, NAMES[1], 0)
    for partition in resign(small, NAMES[4]):
        small.run(partition.fetch_waiters.all_at_once(small.now_ms))
    small.begin(DeleteTopicsRequest(topic_names=[NAMES[5]], timeout_ms=1000), 4)
    small.finish()
    [answer] = connection.answers
    assert {(NAMES[0], 0), (NAMES[1], 0)} <= read(answer).keys()
    assert len(codes(answer)) == 6
    assert waiting_anywhere(small) == 0


def waiting_anywhere(node: LargeNode) -> int:
    hosted = node.node.hosted.by_name.values()
    return sum(len(getattr(partition, "fetch_waiters", ())) for partition in hosted)


def test_a_session_that_fetches_again_before_all_have_let_go_of_it_misses_nothing(
    small: LargeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_fetch, "_LEFT_PER_SLICE", 10)
    first = wait(small, epoch=0)
    send_records(small, NAMES[0], 0)
    while not first.answers:
        assert small.one_more()
    assert waiting(small) > 0, "it left faster than it was answered"
    news = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    again = FetchRequest(
        session_id=first.answers[0].session_id,
        session_epoch=1,
        min_bytes=1,
        max_bytes=1 << 20,
        max_wait_ms=500,
        topics=[FetchTopic(topic=NAMES[0], partitions=[news])],
    )
    second = small.begin(again, 12)
    small.finish()
    assert second.answers == []
    assert waiting(small) == 6 * PARTITIONS
    send_records(small, NAMES[5], 7)
    small.finish()
    assert read(second.answers[0]).keys() == {(NAMES[5], 7)}
    assert waiting(small) == 0
