"""A tier of many topics: to flush one of them, or to tell of it, costs what it has."""

import sys
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

from firnline.base.ids import TopicIdPartition, TopicPartition
from tests.worlds.tier import TOPIC_ID, Cluster, Node, topic_config

TOPICS = 2_000
LINES_MAX = 1_000


def lines_of(call: Callable[..., Any], *args: Any) -> tuple[Any, int]:
    """Return what `call` returns, and the lines of Python it takes: to go over a list calls no function."""
    count = 0

    def seen(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        return call(*args), count
    finally:
        sys.settrace(before)


def other_topics(node: Node) -> list[TopicIdPartition]:
    places = []
    for n in range(TOPICS):
        topic_id = n.to_bytes(16, "big")
        log: Any = SimpleNamespace(
            topic_id=topic_id, topic_partition=TopicPartition(f"o{n}", 0), config=topic_config()
        )
        node.tier.on_leadership(log, is_leader=False, leader_epoch=0, now_ms=0)
        places.append(TopicIdPartition(topic_id, 0))
    return places


def test_to_flush_or_to_report_one_topic_costs_nothing_for_others() -> None:
    """Goal: a request that names all of them takes as long as they are many, not that squared."""
    node = Node(Cluster())
    other_topics(node)
    node.role(is_leader=True, epoch=0)
    rows, lines = lines_of(node.tier.status, TOPIC_ID)
    assert [row.partition for row in rows] == [0]
    assert lines < LINES_MAX
    answers: list[Any] = []

    def then(outcomes: Any, now_ms: int) -> Any:
        answers.append(outcomes)
        return []

    _, lines = lines_of(node.tier.flush, b"n" * 16, then, 0)
    assert answers == [{}]
    assert lines < LINES_MAX
    _, lines = lines_of(node.tier.flush, TOPIC_ID, then, 0)
    assert len(answers) == 1  # it waits for the tier
    assert lines < LINES_MAX


def test_a_partition_that_leaves_is_neither_flushed_nor_reported() -> None:
    node = Node(Cluster())
    node.role(is_leader=True, epoch=0)
    for place in other_topics(node):
        node.tier.on_stop(place, 0)
    node.role(is_leader=True, epoch=1)  # its tasks are others from here on
    assert [row.partition for row in node.tier.status(TOPIC_ID)] == [0]
    node.tier.on_stop(TopicIdPartition(TOPIC_ID, 0), 0)
    answers: list[Any] = []
    node.tier.flush(TOPIC_ID, lambda outcomes, now_ms: answers.append(outcomes) or [], 0)  # type: ignore[func-returns-value]
    assert answers == [{}]
    assert node.tier.status(TOPIC_ID) == []
    assert not node.tier._by_topic  # topics that are gone hold nothing


def test_a_flush_of_one_partition_leaves_the_active_segments_of_the_others() -> None:
    """Each flush of a partition closed a small segment of every other one, for ever."""
    cluster = Cluster()
    node = Node(cluster).start().lead(0)
    node.produce(0, "a", roll=False)
    answers: list[Any] = []

    def flush(*partitions: int) -> None:
        def then(outcomes: Any, now_ms: int) -> Any:
            answers.append(outcomes)
            return []

        node.run(node.tier.flush(TOPIC_ID, then, cluster.now_ms, partitions=partitions))
        node.pass_time(5_000)

    flush(1)
    assert (answers, len(node.log.closed_segments())) == ([{}], 0)
    flush(1, 0)
    assert answers[1:] == [{0: None}]
