"""Replicas that are moved to other brokers, and leaders that are elected. WORLD.

Source: KIP-455 (reassignments), KIP-460 (elections).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from firnline.base.errors import KafkaError
from firnline.base.ids import TopicPartition
from firnline.client.admin import Admin
from firnline.client.operations.brokers import directories
from firnline.client.operations.partitions import (
    by_topic,
    error_of,
    topics_named,
)
from firnline.client.operations.patience import ask_controller, ask_to_wait
from firnline.client.wire import refuse
from firnline.protocol.messages.k43_elect_leaders import ElectionTopic, ElectLeadersRequest
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from firnline.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)

PREFERRED, UNCLEAN = 0, 1


class Move(NamedTuple):
    """A partition on its way. copied_bytes, size_bytes: of the replicas that are added; -1 if unknown."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    copied_bytes: int = -1
    size_bytes: int = -1

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


def replicas_of(
    admin: Admin, places: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the brokers of each partition, the preferred leader first. KafkaError for an unknown topic."""
    topics = topics_named(admin, {place.topic for place in places})
    found = {
        TopicPartition(name, part.partition_index): tuple(part.replica_nodes)
        for name, topic in topics.items()
        for part in topic.partitions
    }
    return {place: found[place] for place in sorted(places)}


def list_moves(admin: Admin, *, most_s: float = math.inf) -> list[Move]:
    """Return the reassignments under way, in order of the partitions. most_s: how long to wait for that."""

    def ask() -> list[Move]:
        wait_ms = int(min(admin.wait_ms, most_s * 1000))
        request = ListPartitionReassignmentsRequest(timeout_ms=wait_ms)
        answer = ask_to_wait(admin, admin.controller(), request, most_s=most_s)
        refuse(answer.error_code, answer.error_message, "reassignments")
        return sorted(
            Move(
                topic.name,
                part.partition_index,
                tuple(part.replicas),
                tuple(part.adding_replicas),
                tuple(part.removing_replicas),
            )
            for topic in answer.topics
            for part in topic.partitions
        )

    return ask_controller(admin, ask, most_s=most_s)


def with_progress(admin: Admin, moves: Sequence[Move]) -> list[Move]:
    """Add to each move how much the new replicas have of the largest replica there is."""
    if not moves:
        return []
    sizes: dict[tuple[TopicPartition, int], int] = {}
    for each in directories(admin, None, [move.place for move in moves]):
        for row in each.replicas:
            if not row.is_future:
                sizes[row.place, each.broker] = row.size_bytes
    return [_measured(move, sizes) for move in moves]


def _measured(move: Move, sizes: Mapping[tuple[TopicPartition, int], int]) -> Move:
    known = {broker: sizes.get((move.place, broker), -1) for broker in move.replicas}
    largest = max(known.values(), default=-1)
    if largest < 0:
        return move
    copied = sum(min(largest, max(0, known[broker])) for broker in move.adding)
    return move._replace(copied_bytes=copied, size_bytes=largest * len(move.adding))


def reassign(
    admin: Admin, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, KafkaError | None]:
    """Move partitions to these brokers, preferred leader first; None cancels the move that is under way.

    Returns the problem of each partition, or None.
    """
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(
                    partition_index=index, replicas=wanted[TopicPartition(name, index)]
                )
                for index in indexes
            ],
        )
        for name, indexes in by_topic(list(wanted)).items()
    ]
    request = AlterPartitionReassignmentsRequest(timeout_ms=admin.wait_ms, topics=topics)

    def ask() -> dict[TopicPartition, KafkaError | None]:
        answer = ask_to_wait(admin, admin.controller(), request)
        refuse(answer.error_code, answer.error_message, "reassignment")
        return {
            TopicPartition(topic.name, part.partition_index): error_of(
                part.error_code, part.error_message, f"{topic.name}-{part.partition_index}"
            )
            for topic in answer.responses
            for part in topic.partitions
        }

    return ask_controller(admin, ask)


def elect(
    admin: Admin, kind: int, places: Collection[TopicPartition] | None
) -> dict[TopicPartition, KafkaError | None]:
    """Elect the PREFERRED leaders, or any replica (UNCLEAN) where no leader is; None: of all partitions.

    Returns the problem of each partition, or None. ELECTION_NOT_NEEDED is one of them: nothing is wrong. For
    all partitions the cluster answers only for those that had an election, or failed to have one.
    """
    topics = None
    if places is not None:
        topics = [
            ElectionTopic(topic=name, partitions=indexes)
            for name, indexes in by_topic(places).items()
        ]
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=topics, timeout_ms=admin.wait_ms
    )

    def ask() -> dict[TopicPartition, KafkaError | None]:
        answer = ask_to_wait(admin, admin.controller(), request)
        refuse(answer.error_code, None, "election")
        return {
            TopicPartition(topic.topic, part.partition_id): error_of(
                part.error_code, part.error_message, f"{topic.topic}-{part.partition_id}"
            )
            for topic in answer.replica_election_results
            for part in topic.partition_result
        }

    return ask_controller(admin, ask)
