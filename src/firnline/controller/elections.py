"""Elections on request (ElectLeaders) and periodic ones: preferred and unclean leaders. PURE.

Source: KIP-460, KIP-631; spec I26, I27; error codes as in Apache Kafka 4.3.1.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import Uuid
from firnline.base.limits import CHANGES_PER_REQUEST_MAX
from firnline.config.broker import BrokerConfig
from firnline.controller.partition_change import (
    AS_IT_IS,
    PREFERRED,
    UNCLEAN,
    PartitionChanges,
)
from firnline.controller.sweeps import Newest
from firnline.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from firnline.metadata.result import ControllerResult

# The changes of one periodic round: 3 ms with their write.
CHANGES_PER_ROUND_MAX = 150


class ElectionType(IntEnum):
    """The election types of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


class Elected(NamedTuple):
    """The result of one election; no problem: the partition has a new leader."""

    topic: str
    partition: int
    problem: KafkaError | None

    @property
    def is_omitted(self) -> bool:
        """Whether a request for all partitions leaves it out: it needs no election, or was deleted."""
        return self.problem is _NOT_NEEDED or self.problem is _UNKNOWN


_UNAVAILABLE = {
    ElectionType.PREFERRED: KafkaError(
        Code.PREFERRED_LEADER_NOT_AVAILABLE, "the preferred replica is not in sync or cannot lead"
    ),
    ElectionType.UNCLEAN: KafkaError(
        Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica can lead at the moment"
    ),
}
_NOT_NEEDED = KafkaError(Code.ELECTION_NOT_NEEDED, "the partition already has such a leader")
_UNKNOWN = KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")


def elect_leaders(
    newest: Newest,
    config: BrokerConfig,
    kind: int,
    wanted: Sequence[tuple[str, int]] | None,
) -> ControllerResult[list[Elected] | KafkaError]:
    """Elect leaders of these partitions, in this order; None: of all, without those that need no election."""
    if kind not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        why = f"unknown election type {kind}"
        return ControllerResult([], KafkaError(Code.INVALID_REQUEST, why))
    changes = PartitionChanges(newest.image, config)
    elected = [
        Elected(name, number, _elect(changes, ElectionType(kind), name, number))
        for name, number in (in_need(newest, kind) if wanted is None else wanted)
    ]
    if wanted is None:
        elected = [each for each in elected if not each.is_omitted]
    if len(changes.records) > CHANGES_PER_REQUEST_MAX:
        why = "more than 10,000 changes in one request"
        return ControllerResult([], KafkaError(Code.POLICY_VIOLATION, why))
    return ControllerResult(changes.records, elected, is_atomic=False)


def in_need(newest: Newest, kind: int) -> Iterator[tuple[str, int]]:
    """Yield the partitions of all topics in which some need such an election, by topic name and number.

    They are those of `newest` at the time of the call. An unknown kind yields none.
    """
    topics: Iterable[Uuid] = ()
    if kind == ElectionType.PREFERRED:
        topics = newest.lookup.imbalanced
    elif kind == ElectionType.UNCLEAN:
        topics = newest.lookup.leaderless
    found = [newest.image.topics_by_id[topic_id] for topic_id in topics]
    found.sort(key=lambda topic: topic.name)
    return ((topic.name, number) for topic in found for number in sorted(topic.partitions))


def balance_leaders(newest: Newest, config: BrokerConfig) -> ControllerResult[bool]:
    """Move leadership to preferred replicas that are in sync; the answer: whether more may be left."""
    changes = PartitionChanges(newest.image, config)
    for topic, number, partition in _parts(newest.image, newest.lookup.imbalanced):
        preferred = partition.replicas[0]
        may_lead = preferred in partition.isr and changes.may_lead(partition, preferred)
        if may_lead and partition.leader != preferred:
            changes.change(topic.topic_id, number, AS_IT_IS, PREFERRED)
            if len(changes.records) >= CHANGES_PER_ROUND_MAX:
                return ControllerResult(changes.records, True, is_atomic=False)
    return ControllerResult(changes.records, False, is_atomic=False)


def elect_unclean_leaders(newest: Newest, config: BrokerConfig) -> ControllerResult[bool]:
    """Elect unclean leaders where the settings allow it; the answer: whether more may be left."""
    changes = PartitionChanges(newest.image, config)
    for topic, number, partition in _parts(newest.image, newest.lookup.leaderless):
        if partition.leader == NO_LEADER and changes.is_unclean_allowed(topic.name):
            changes.change(topic.topic_id, number, AS_IT_IS, UNCLEAN)
            if len(changes.records) >= CHANGES_PER_ROUND_MAX:
                return ControllerResult(changes.records, True, is_atomic=False)
    return ControllerResult(changes.records, False, is_atomic=False)


def _parts(
    image: ClusterImage, topics: Iterable[Uuid]
) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    """Yield the partitions of some topics as (topic, number, partition)."""
    for topic_id in topics:
        topic = image.topics_by_id[topic_id]
        for number, partition in sorted(topic.partitions.items()):
            yield topic, number, partition


def _elect(
    changes: PartitionChanges, kind: ElectionType, name: str, number: int
) -> KafkaError | None:
    topic = changes.image.topics_by_name.get(name)
    topic_id: Uuid | None = None if topic is None else topic.topic_id
    partition = None if topic_id is None else changes.partition(topic_id, number)
    if topic_id is None or partition is None:
        return _UNKNOWN
    if kind is ElectionType.PREFERRED:
        election, is_done = PREFERRED, partition.leader == partition.replicas[0]
    else:
        election, is_done = UNCLEAN, partition.leader != NO_LEADER
    if is_done:
        return _NOT_NEEDED
    after = changes.change(topic_id, number, AS_IT_IS, election)
    return _UNAVAILABLE[kind] if after is None else None
