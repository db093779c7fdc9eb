"""Topics that are made because Metadata asks for them: very many make nobody wait."""

from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.broker.controller_port import CreateTopics
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from tests.worlds.harness import Connection

from .large import NAMES, LargeNode

# Calls of functions: some five to ten thousand of them are a millisecond.
CALLS_MAX = 15_000


@pytest.fixture
def small() -> LargeNode:
    return LargeNode(NAMES[:1])


def asking(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


def answered_later(node: LargeNode, connection: Connection) -> dict[str, int]:
    """Have partitions opened, and return the codes of the answer."""
    for _ in range(100):
        node.finish()
        if connection.answers:
            break
        node.pass_time(200)
    [answer] = connection.answers
    return {topic.name: topic.error_code for topic in answer.topics}


def test_topics_that_are_asked_for_are_made_in_slices(small: LargeNode) -> None:
    """Goal: the controller serves others meanwhile. Method: count the calls of each step; of two names that
    collide, the later one, in another portion, is told so, as in one decision."""
    answered_later(small, small.begin(asking("warm"), 12))
    names = [f"c{n:03d}" for n in range(600)]
    reported = answered_later(
        small, small.begin(asking("a_b", "warm", *names, "a.b", "no/name"), 12)
    )
    assert max(small.steps) < CALLS_MAX, sorted(small.steps)[-5:]
    assert reported.pop("a.b") == reported.pop("no/name") == Code.INVALID_TOPIC_EXCEPTION
    assert reported == dict.fromkeys(["a_b", "warm", *names], Code.NONE)
    assert set(reported) <= set(small.node.image.topics_by_name)


def test_more_names_than_may_be_made_at_once_are_looked_up_in_slices(small: LargeNode) -> None:
    names = [f"c{n:05d}" for n in range(10_001)]
    for _ in range(2):  # the first time its classes are compiled
        connection = small.begin(asking(*names, NAMES[0], "no/name", "__cluster_metadata"), 12)
        reported = answered_later(small, connection)
    assert max(small.steps) < CALLS_MAX, sorted(small.steps)[-5:]
    assert reported.pop(NAMES[0]) == Code.NONE
    assert reported.pop("no/name") == Code.INVALID_TOPIC_EXCEPTION
    assert reported.pop("__cluster_metadata") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert set(reported.values()) == {Code.POLICY_VIOLATION}
    assert names[0] not in small.node.image.topics_by_name


def test_no_more_topics_are_made_for_a_client_that_has_hung_up(small: LargeNode) -> None:
    names = [f"c{n:03d}" for n in range(100)]
    connection = small.begin(asking(*names), 12)
    connection.closed = True
    small.finish()
    small.pass_time(5_000)
    made = [name for name in names if name in small.node.image.topics_by_name]
    assert 0 < len(made) < 50
    assert connection.answers == []


def test_while_no_controller_is_active_nothing_is_asked_again_and_again(
    small: LargeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A portion that nobody decides on ends it: each might take as long as the time to wait for an answer."""
    asked: list[int] = []

    def nobody(command: CreateTopics, then: Any, now_ms: int) -> Any:
        asked.append(len(command.topics))
        return then(KafkaError(Code.NOT_CONTROLLER, "nobody"), now_ms)

    monkeypatch.setattr(small.node.port, "ask", nobody)
    reported = answered_later(small, small.begin(asking(*[f"c{n:03d}" for n in range(600)]), 12))
    assert len(asked) == 1
    assert set(reported.values()) == {Code.LEADER_NOT_AVAILABLE}


def test_portions_of_names_that_are_all_refused_are_no_deep_recursion(
    small: LargeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused without a write is answered within the call that asks."""

    def refuses(command: CreateTopics, then: Any, now_ms: int) -> Any:
        return then([KafkaError(Code.POLICY_VIOLATION, "no")] * len(command.topics), now_ms)

    monkeypatch.setattr(small.node.port, "ask", refuses)
    reported = answered_later(small, small.begin(asking(*[f"c{n:04d}" for n in range(6_000)]), 12))
    assert set(reported.values()) == {Code.POLICY_VIOLATION}
    assert max(small.steps) < CALLS_MAX
