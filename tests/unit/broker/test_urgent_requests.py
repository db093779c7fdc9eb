"""Replicas do not wait behind clients that ask for much: an ISR would shrink because of consumers."""

from typing import Any

import pytest

from firnline.api.context import RequestContext
from firnline.base.background import Background, SlicedTask
from firnline.base.effects import Effects, SetTimer
from firnline.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from tests.worlds.harness import Connection

from .large import NAMES, PARTITIONS, LargeNode

CONSUMERS = 20
FOLLOWER = 2


@pytest.fixture(scope="module")
def node() -> LargeNode:
    return LargeNode(NAMES[:4])


def fetch(replica_id: int, version: int) -> tuple[FetchRequest, int]:
    parts = [
        FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20)
        for n in range(PARTITIONS)
    ]
    topics = [
        FetchTopic(topic=name, topic_id=bytes([n]) * 16, partitions=parts)
        for n, name in enumerate(NAMES[:4], 1)
    ]
    who = (
        {"replica_id": replica_id}
        if version < 15
        else {"replica_state": ReplicaState(replica_id=replica_id)}
    )
    limits = {"max_bytes": 50 << 20, "min_bytes": 0, "session_epoch": -1}
    return FetchRequest(topics=topics, **limits, **who), version


def slices_until_answered(node: LargeNode, asked: Connection) -> int:
    count = 0
    while not asked.answers:
        assert node.one_more()
        count += 1
    return count


@pytest.mark.parametrize("version", [12, 15])
def test_a_follower_does_not_wait_for_consumers_that_fetch_everything(
    node: LargeNode, version: int
) -> None:
    alone = slices_until_answered(node, node.begin(*fetch(FOLLOWER, version)))
    assert alone > 2, "it is not large"
    crowd = [node.begin(*fetch(-1, version)) for _ in range(CONSUMERS)]
    follower = node.begin(*fetch(FOLLOWER, version))
    assert slices_until_answered(node, follower) <= 1 + alone * 4 // 3
    assert not any(each.answers for each in crowd)
    node.finish()
    assert all(each.answers for each in crowd)


def test_consumers_are_answered_though_followers_never_rest(node: LargeNode) -> None:
    alone = slices_until_answered(node, node.begin(*fetch(-1, 12)))
    consumer = node.begin(*fetch(-1, 12))
    followers = [node.begin(*fetch(each, 12)) for each in (2, 3)]
    count = 0
    while not consumer.answers:
        assert node.one_more()
        count += 1
        for each, follower in enumerate(followers, 2):
            if follower.answers:
                followers[each - 2] = node.begin(*fetch(each, 12))
    assert count <= 4 * (alone + 1)
    node.finish()


def test_what_brokers_ask_of_controllers_goes_before_what_clients_ask() -> None:
    def context(api_key: int) -> RequestContext:
        connection: Any = None
        return RequestContext(connection, api_key, 0, 1, None, 0)

    urgent = {key for key in range(100) if context(key).is_urgent}
    assert urgent == {56, 62, 63, 67, 73}


def work(name: str, slices: int, done: list[str]) -> SlicedTask:
    yield []
    for _ in range(slices):
        done.append(name)
        yield []
    return []


def run(background: Background, effects: Effects) -> None:
    due = list(effects)
    while due:
        timer = due.pop(0)
        assert isinstance(timer, SetTimer)
        due += timer.then(0)


def test_urgent_works_that_are_not_round_robin_are_all_done_first() -> None:
    """Groups rely on it: a partition is left before it is loaded again."""
    done: list[str] = []
    background = Background("any")
    effects = background.begin(work("usual", 2, done), 0)
    background.begin(work("urgent", 9, done), 0, is_urgent=True)
    run(background, effects)
    assert done == ["urgent"] * 9 + ["usual"] * 2


def test_where_works_are_round_robin_urgent_ones_have_most_of_the_slices_and_not_all() -> None:
    done: list[str] = []
    background = Background("any", is_round_robin=True)
    effects = background.begin(work("usual", 3, done), 0)
    background.begin(work("urgent", 12, done), 0, is_urgent=True)
    run(background, effects)
    assert "".join(name[1] for name in done) == "rrrsrrrsrrrsrrr"
