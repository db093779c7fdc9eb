"""Asks the brokers of a cluster for topics, for offsets and for the ends of leader epochs. SPARK.

One request to each leader answers for all of its partitions. While leaders move, the metadata is read again.
Source: KIP-79 (offsets by time), KIP-207 (an offset is not available yet), KIP-320 (ends of leader epochs).
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from firnline.base.errors import (
    Code,
    ConfigError,
    FirnlineError,
    KafkaError,
    ProtocolError,
    some_of,
)
from firnline.base.ids import Uuid
from firnline.client.admin import TOPIC_RESOURCE, Admin
from firnline.client.connection import Connection, Unreachable
from firnline.client.wire import refuse
from firnline.config.parse import nearest
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from firnline.spark.options.brokers import BrokerSettings

T = TypeVar("T")
Key = tuple[str, int]  # topic and partition
UNDEFINED = -1
CLEANUP_POLICY = "cleanup.policy"
# What explains that offsets are missing.
GAP_SETTINGS = (CLEANUP_POLICY, "retention.ms", "retention.bytes")
_TOPICS_IN_REQUEST = 500
_CONSUMER = -1
_ABSENT = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION)
# What passes when metadata is read again: leaders move, brokers start, high watermarks catch up.
PASSING = frozenset(
    {
        Code.FENCED_LEADER_EPOCH,
        Code.KAFKA_STORAGE_ERROR,
        Code.LEADER_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.OFFSET_NOT_AVAILABLE,
        Code.REPLICA_NOT_AVAILABLE,
        Code.REQUEST_TIMED_OUT,
        Code.UNKNOWN_LEADER_EPOCH,
    }
)


class LiveTopic(NamedTuple):
    """A topic that exists now, and its partitions, ascending."""

    name: str
    topic_id: Uuid
    partitions: tuple[int, ...]


class Found(NamedTuple):
    """An offset of a partition and the leader epoch that a broker names with it; -1: none, unknown."""

    offset: int
    leader_epoch: int


class NoAnswer(FirnlineError):
    """Brokers gave no answer that can be used: whoever runs them must act."""


class NotReached(ConfigError):
    """None of the addresses has a broker: they are wrong, or all brokers are away."""


class Brokers:
    """The cluster behind some bootstrap addresses. Not thread-safe. Use as a context manager.

    Methods raise NoAnswer if a leader does not answer, or has only errors that pass, in all attempts;
    KafkaError for any other refusal.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._admin = self._connect()

    def __enter__(self) -> "Brokers":
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def topics(self, names: Sequence[str] | None) -> dict[str, LiveTopic]:
        """Return topics by name, None for all that exist. ConfigError if one of `names` does not exist."""

        def ask() -> dict[str, LiveTopic]:
            found = self._admin.metadata(names).topics
            for topic in found:
                if topic.error_code in _ABSENT:
                    raise self._no_such_topic(topic.name)
            return {topic.name: topic for topic in map(_live, found)}

        return self._until_answered(ask)

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        return self._until_answered(lambda: str(self._admin.metadata([]).cluster_id))

    def _no_such_topic(self, name: str) -> ConfigError:
        there = [each.name for each in self._admin.metadata(None).topics if not each.is_internal]
        near = nearest(name, there)
        hint = f"; did you mean {near}?" if near else ""
        return ConfigError(
            f"no such topic in the cluster{hint}", topic=name, there=some_of(sorted(there))
        )

    def offsets(self, wishes: Mapping[Key, int], *, read_committed: bool) -> dict[Key, Found]:
        """Return the offset at each wish: EARLIEST, LATEST, or a timestamp in ms. -1: no such record."""

        def ask(leader: Connection, keys: list[Key]) -> Iterator[tuple[Key, int, Found]]:
            topics = [
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=p, timestamp=wishes[topic, p])
                        for p in partitions
                    ],
                )
                for topic, partitions in _by_topic(keys).items()
            ]
            request = ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=int(read_committed),
                topics=topics,
                timeout_ms=int(self._settings.timeout_s * 1000),
            )
            for topic in leader.ask(request).topics:
                for row in topic.partitions:
                    found = Found(row.offset, row.leader_epoch)
                    yield (topic.name, row.partition_index), row.error_code, found

        return self.ask_leaders(list(wishes), ask)

    def topic_settings(
        self, topics: Collection[str], keys: Collection[str] = GAP_SETTINGS
    ) -> dict[str, dict[str, str]]:
        """Return settings of topics, as far as a broker says them."""

        def ask() -> dict[str, dict[str, str]]:
            found: dict[str, dict[str, str]] = {}
            names = sorted(topics)
            for at in range(0, len(names), _TOPICS_IN_REQUEST):
                resources = [
                    DescribeConfigsResource(
                        resource_type=TOPIC_RESOURCE, resource_name=name,
                        configuration_keys=list(keys),
                    )
                    for name in names[at : at + _TOPICS_IN_REQUEST]
                ]  # fmt: skip
                answer = self._admin.first.ask(DescribeConfigsRequest(resources=resources))
                for result in answer.results:
                    found[result.resource_name] = {
                        each.name: each.value
                        for each in result.configs
                        if each.name in keys and each.value is not None
                    }
            return found

        return self._until_answered(ask)

    def epoch_ends(self, epochs: Mapping[Key, int]) -> dict[Key, Found]:
        """Return for each partition the greatest epoch at or below the given one, and where it ends.

        Both are -1 if the leader knows neither.
        """

        def ask(leader: Connection, keys: list[Key]) -> Iterator[tuple[Key, int, Found]]:
            topics = [
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(partition=p, leader_epoch=epochs[topic, p])
                        for p in partitions
                    ],
                )
                for topic, partitions in _by_topic(keys).items()
            ]
            request = OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics)
            for topic in leader.ask(request).topics:
                for row in topic.partitions:
                    found = Found(row.end_offset, row.leader_epoch)
                    yield (topic.topic, row.partition), row.error_code, found

        return self.ask_leaders(list(epochs), ask)

    def alter_topic(
        self,
        name: str,
        *,
        appends: Mapping[str, str] = MappingProxyType({}),
        removals: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Append items to settings that are lists, or remove some. To do so twice changes nothing."""
        self._until_answered(
            lambda: self._admin.alter_topic(name, changes={}, appends=appends, removals=removals)
        )

    # ------------------------------------------------------------------------------- attempts

    def ask_leaders(
        self,
        keys: Sequence[Key],
        ask: Callable[[Connection, list[Key]], Iterator[tuple[Key, int, T]]],
    ) -> dict[Key, T]:
        """Ask the leader of each partition; after an error that passes, the rest once more.

        ask  asks one leader about its partitions, and yields for each an error code and what it said
        """
        found: dict[Key, T] = {}

        def attempt() -> dict[Key, T]:
            problem: FirnlineError | None = None
            missing = [key for key in keys if key not in found]
            for leader, its in self._leaders(missing):
                try:
                    for key, code, value in ask(leader, its):
                        if code in PASSING:
                            problem = KafkaError(Code(code), _partition(key))
                            continue
                        refuse(code, None, _partition(key))
                        found[key] = value
                except Unreachable as silent:
                    problem = silent
            absent = [key for key in keys if key not in found]
            if absent:
                why = f"no answer for {_partition(absent[0])}"
                raise problem or KafkaError(Code.LEADER_NOT_AVAILABLE, why)
            return found

        return self._until_answered(attempt) if keys else {}

    def _leaders(self, keys: Sequence[Key]) -> Iterator[tuple[Connection, list[Key]]]:
        """Yield the leaders of some partitions, each with those that it leads."""
        answer = self._admin.metadata(sorted({topic for topic, _ in keys}))
        leaders = {
            (topic.name, part.partition_index): part.leader_id
            for topic in answer.topics
            for part in topic.partitions
        }
        addresses = {row.node_id: (row.host, row.port) for row in answer.brokers}
        led: dict[int, list[Key]] = {}
        for key in keys:
            led.setdefault(leaders.get(key, UNDEFINED), []).append(key)
        for leader_id, its in led.items():
            if leader_id in addresses:
                yield self._admin.node(leader_id, *addresses[leader_id]), its

    def _until_answered(self, attempt: Callable[[], T]) -> T:
        settings = self._settings
        for left in range(settings.attempts - 1, -1, -1):
            try:
                return attempt()
            except (Unreachable, ProtocolError) as silent:
                problem: FirnlineError = silent
            except KafkaError as refused:
                if refused.code not in PASSING:
                    raise
                problem = refused
            if left:
                time.sleep(settings.retry_interval_ms / 1000)
                # A broker may have come back at another address.
                self._admin.close()
                self._admin = self._connect()
        raise NoAnswer(
            "the brokers gave no answer; readFrom=tier reads without them what the tier has",
            servers=settings.servers, attempts=settings.attempts, problem=problem,
        ) from None  # fmt: skip

    def _connect(self) -> Admin:
        try:
            return Admin(self._settings.servers, timeout_s=self._settings.timeout_s)
        except Unreachable as problem:
            raise NotReached(f"kafka.bootstrap.servers: {problem}") from None


def _live(topic: Any) -> LiveTopic:
    refuse(topic.error_code, None, f"topic {topic.name}")
    partitions = sorted(part.partition_index for part in topic.partitions)
    return LiveTopic(topic.name, topic.topic_id, tuple(partitions))


def _by_topic(keys: Sequence[Key]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in keys:
        found.setdefault(topic, []).append(partition)
    return found


def _partition(key: Key) -> str:
    return f"partition {key[1]} of topic {key[0]}"
