"""Elections that somebody asks for, or that come round: preferred leaders, and leaders at any price. PURE.

Source: KIP-460, KIP-631; spec I26, I27; codes as Apache Kafka 4.3.1's.
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

# What one round of our own changes: 3 ms with their writing.
CHANGES_PER_ROUND_MAX = 150


class ElectionType(IntEnum):
    """What is asked for, as ElectLeaders numbers it."""

    PREFERRED = 0
    UNCLEAN = 1


class Elected(NamedTuple):
    """What became of one election; no problem: the partition has a new leader."""

    topic: str
    partition: int
    problem: KafkaError | None

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is said of it where all are asked for: it needs nothing, or has gone."""
        return self.problem is _NOT_NEEDED or self.problem is _UNKNOWN


_UNAVAILABLE = {
    ElectionType.PREFERRED: KafkaError(
        Code.PREFERRED_LEADER_NOT_AVAILABLE, "the preferred replica is not in sync or cannot lead"
    ),
    ElectionType.UNCLEAN: KafkaError(
        Code.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica can lead at the moment"
    ),
}
_NOT_NEEDED = KafkaError(Code.ELECTION_NOT_NEEDED, "the partition has such a leader")
_UNKNOWN = KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")


def elect_leaders(
    newest: Newest,
    config: BrokerConfig,
    kind: int,
    wanted: Sequence[tuple[str, int]] | None,
) -> ControllerResult[list[Elected] | KafkaError]:
    """Elect for these partitions, in the order asked; None for all, with those left out that need none."""
    if kind not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        why = f"there is no election type {kind}"
        return ControllerResult([], KafkaError(Code.INVALID_REQUEST, why))
    changes = PartitionChanges(newest.image, config)
    elected = [
        Elected(name, number, _elect(changes, ElectionType(kind), name, number))
        for name, number in (in_need(newest, kind) if wanted is None else wanted)
    ]
    if wanted is None:
        elected = [each for each in elected if not each.is_at_rest]
    if len(changes.records) > CHANGES_PER_REQUEST_MAX:
        why = "more than 10,000 changes in one request"
        return ControllerResult([], KafkaError(Code.POLICY_VIOLATION, why))
    return ControllerResult(changes.records, elected, is_atomic=False)


def in_need(newest: Newest, kind: int) -> Iterator[tuple[str, int]]:
    """Yield the partitions, by topic name and number, that may need such an election, and some that do not.

    They are those of `newest` now, however long it takes; none for a kind that there is not.
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
    """Give leadership back to preferred replicas that are in sync; the answer: there may be more to do."""
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
    """Elect for leaderless partitions whose settings allow loss; the answer: there may be more to do."""
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
