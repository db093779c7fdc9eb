"""Topics made on demand: once, for everybody who waits."""

from typing import Any

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.log_lines.line import Log
from firnline.broker.internal_topics import InternalTopics, TopicCreatedCallback
from tests.worlds.effects import said as text


class Cluster:
    """Creates topics when told to."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.creating: list[tuple[str, TopicCreatedCallback]] = []
        self.reported: list[Any] = []
        self.internal = InternalTopics(
            names=["__groups"], exists=lambda name: name in self.topics, create=self._create
        )

    def _create(self, name: str, then: TopicCreatedCallback, now_ms: int) -> Effects:
        self.creating.append((name, then))
        return []

    def ensure(self, name: str = "__groups") -> None:
        self.internal.ensure(name, self._then, 0)

    def _then(self, error: KafkaError | None, now_ms: int) -> Effects:
        self.reported.append(None if error is None else error.code)
        return []

    def finish(self, error: KafkaError | None = None) -> Effects:
        return self.creating.pop()[1](error, 0)


def test_a_topic_that_is_there_is_not_made_again() -> None:
    cluster = Cluster()
    cluster.topics.append("__groups")
    cluster.ensure()
    assert cluster.reported == [None]
    assert cluster.creating == []


def test_all_who_ask_meanwhile_wait_for_one_creation() -> None:
    cluster = Cluster()
    for _ in range(3):
        cluster.ensure()
    assert [name for name, _ in cluster.creating] == ["__groups"]
    assert cluster.reported == []
    cluster.finish()
    assert cluster.reported == [None] * 3


def test_a_failure_is_reported_and_the_next_who_asks_tries_again() -> None:
    cluster = Cluster()
    cluster.ensure()
    cluster.finish(KafkaError(Code.INVALID_REPLICATION_FACTOR))
    assert cluster.reported == [Code.INVALID_REPLICATION_FACTOR]
    cluster.ensure()
    assert len(cluster.creating) == 1


def test_a_topic_that_another_node_made_first_is_there() -> None:
    cluster = Cluster()
    cluster.ensure()
    cluster.finish(KafkaError(Code.TOPIC_ALREADY_EXISTS))
    assert cluster.reported == [None]


def test_a_name_nobody_planned_is_not_made() -> None:
    cluster = Cluster()
    cluster.ensure("orders")
    assert cluster.reported == [Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert cluster.creating == []


def test_why_a_topic_cannot_be_made_is_said_once_until_it_changes() -> None:
    """Clients hear that there is no coordinator, for ever; nobody could know why."""
    cluster = Cluster()
    few = KafkaError(Code.INVALID_REPLICATION_FACTOR, "1 broker for 3 replicas")
    said = []
    for error in (few, few, KafkaError(Code.NOT_CONTROLLER), None, few):
        cluster.ensure()
        said += [text(effect) for effect in cluster.finish(error) if isinstance(effect, Log)]
    assert len(said) == 2
    assert said[0].startswith("an internal topic could not be created topic=__groups")
    assert "1 broker for 3 replicas" in said[0]
