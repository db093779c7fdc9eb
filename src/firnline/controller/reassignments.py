"""Reassignments of partitions to other brokers: begin, cancel, list. They complete by themselves. PURE.

A reassignment first adds the new replicas. Once all target replicas are in sync,
`partition_change` removes the others. Source: KIP-455, KIP-860; codes as Apache Kafka 4.3.1's.
"""

from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import Uuid
from firnline.base.limits import CHANGES_PER_REQUEST_MAX
from firnline.config.broker import BrokerConfig
from firnline.controller.partition_change import (
    CLEAN,
    RECOVERING,
    PartitionChanges,
    Target,
)
from firnline.controller.placement import assignment_problem
from firnline.metadata.image import ClusterImage, PartitionImage, TopicImage
from firnline.metadata.result import ControllerResult

# A millisecond each.
_LISTED_AT_ONCE = 500
_SEEN_AT_ONCE = 3_000


class Reassignment(NamedTuple):
    """The target replicas of a partition, preferred leader first; None cancels its reassignment."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


class Moving(NamedTuple):
    """A partition with a reassignment in progress."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def alter_reassignments(
    image: ClusterImage,
    config: BrokerConfig,
    wanted: Sequence[Reassignment],
    *,
    may_change_factor: bool = True,
    changes_before: int = 0,
) -> ControllerResult[list[KafkaError | None]]:
    """Begin, change or cancel reassignments. The answers are in the order of `wanted`; None means success.

    changes_before  the number of changes that the same request made already
    """
    changes_max = CHANGES_PER_REQUEST_MAX - changes_before
    changes = PartitionChanges(image, config)
    answers: list[KafkaError | None] = []
    for each in wanted:
        topic = image.topics_by_name.get(each.topic)
        before = None if topic is None else changes.partition(topic.topic_id, each.partition)
        if topic is None or before is None:
            answers.append(KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such partition"))
        elif len(changes.records) >= changes_max:
            why = "more than 10,000 changes in one request"
            answers.append(KafkaError(Code.POLICY_VIOLATION, why))
        elif each.replicas is None:
            answers.append(_call_off(changes, topic, each.partition, before))
        else:
            problem = assignment_problem(image.brokers, each.replicas)
            if problem is None and not may_change_factor:
                problem = _factor_problem(before, each.replicas)
            if problem is None:
                _move(changes, topic.topic_id, each.partition, before, each.replicas)
            answers.append(problem)
    return ControllerResult(changes.records, answers)


def list_reassignments(
    image: ClusterImage, wanted: Iterable[tuple[str, Sequence[int]]] | None
) -> Generator[list[Moving], None, None]:
    """Yield the reassignments in progress of (topic, numbers), or of all partitions; skip unknown ones.

    Each list takes about a millisecond and may be empty. If all are wanted, they are sorted by topic and
    number.
    """
    if wanted is None:
        wanted = yield from _all_moving(image)
    named = ((name, number) for name, numbers in wanted for number in numbers)
    while some := list(islice(named, _LISTED_AT_ONCE)):
        found = [_moving(name, number, image.partition(name, number)) for name, number in some]
        yield [each for each in found if each is not None]


def _all_moving(
    image: ClusterImage,
) -> Generator[list[Moving], None, list[tuple[str, list[int]]]]:
    """Return the topics with the numbers of their moving partitions; yields [] after each slice."""
    found = []
    count = 0
    for topic in image.topics_by_id.values():
        numbers = [number for number, each in topic.partitions.items() if is_moving(each)]
        if numbers:
            found.append((topic.name, sorted(numbers)))
        count += 1 + len(topic.partitions)
        if count >= _SEEN_AT_ONCE:
            count = 0
            yield []
    return sorted(found)


def is_moving(partition: PartitionImage) -> bool:
    """Whether a reassignment adds or removes replicas."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def _moving(name: str, number: int, partition: PartitionImage | None) -> Moving | None:
    if partition is None or not is_moving(partition):
        return None
    return Moving(
        name,
        number,
        partition.replicas,
        partition.adding_replicas,
        partition.removing_replicas,
    )


def _move(
    changes: PartitionChanges,
    topic_id: Uuid,
    number: int,
    before: PartitionImage,
    replicas: tuple[int, ...],
) -> None:
    removing = tuple(sorted(node_id for node_id in before.replicas if node_id not in replicas))
    adding = tuple(sorted(node_id for node_id in replicas if node_id not in before.replicas))
    # None leaves as it is what an earlier reassignment adds or removes and this one does not name.
    target = Target(
        replicas=(*replicas, *removing), removing=removing or None, adding=adding or None
    )
    changes.change(topic_id, number, target, CLEAN)


def _call_off(
    changes: PartitionChanges, topic: TopicImage, number: int, before: PartitionImage
) -> KafkaError | None:
    """Cancel: restore the earlier replicas. This is unclean if only added replicas are in sync."""
    if not is_moving(before):
        why = "no reassignment of this partition is in progress"
        return KafkaError(Code.NO_REASSIGNMENT_IN_PROGRESS, why)
    replicas = tuple(each for each in before.replicas if each not in before.adding_replicas)
    if not replicas:
        why = "all its replicas are being added"
        return KafkaError(Code.INVALID_REPLICA_ASSIGNMENT, why)
    isr = tuple(each for each in before.isr if each not in before.adding_replicas)
    target = Target(isr=isr, replicas=replicas, removing=(), adding=())
    if not isr:
        if not changes.is_unclean_allowed(topic.name):
            why = "only added replicas are in sync: cancelling would be an unclean election"
            return KafkaError(Code.INVALID_REPLICA_ASSIGNMENT, why)
        # Records may be lost here: the new leader reports when it has recovered (I26).
        target = target._replace(isr=replicas[:1], recovery_state=RECOVERING)
    changes.change(topic.topic_id, number, target, changes.election_of(topic.name))
    return None


def _factor_problem(before: PartitionImage, replicas: Sequence[int]) -> KafkaError | None:
    present = len(before.replicas) - len(before.removing_replicas)
    if len(replicas) == present:
        return None
    why = f"the partition has {present} replicas, and {len(replicas)} would be another number"
    return KafkaError(Code.INVALID_REPLICATION_FACTOR, why)
