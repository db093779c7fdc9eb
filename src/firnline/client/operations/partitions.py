"""Requests about many partitions: each leader is asked once, all leaders at the same time. WORLD.

The outcome of a partition is a value or its KafkaError, so that one refusal hides no other outcome.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from firnline.base.errors import Code, FirnlineError, KafkaError
from firnline.base.ids import TopicPartition
from firnline.client.admin import Admin
from firnline.client.connection import Connection
from firnline.client.operations.patience import ask_to_wait, repeat
from firnline.client.wire import refuse, refuse_topic
from firnline.config.parse import nearest
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

_T = TypeVar("_T")
HIGH_WATERMARK = -1
_ASKED_AT_ONCE = 16
# The leader has changed, or is about to: the next metadata may tell who leads.
_MOVED = (
    *(Code.NOT_LEADER_OR_FOLLOWER, Code.LEADER_NOT_AVAILABLE, Code.REPLICA_NOT_AVAILABLE),
    *(Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH, Code.OFFSET_NOT_AVAILABLE),
)


class OffsetAt(NamedTuple):
    """The offset of the first record at or after some time; -1 if there is none."""

    offset: int
    leader_epoch: int


# ------------------------------------------------------------------------------------------- names


def topics_named(admin: Admin, names: Collection[str]) -> dict[str, Any]:
    """Return the metadata of topics by name. KafkaError, with the nearest name, for an unknown one."""
    answer = admin.metadata(sorted(names))
    for topic in answer.topics:
        if topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            close = nearest(topic.name, (row.name for row in admin.topics()))
            hint = f": did you mean {close}?" if close else ""
            raise KafkaError(
                Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name}{hint}"
            )
        refuse_topic(topic.error_code, topic.name)
    return {topic.name: topic for topic in answer.topics}


def partitions_named(
    admin: Admin, wanted: Mapping[str, Collection[int] | None]
) -> list[TopicPartition]:
    """Return partitions in order; None stands for all of a topic. KafkaError for one that does not exist."""
    found = []
    for name, topic in topics_named(admin, wanted).items():
        present = sorted(part.partition_index for part in topic.partitions)
        asked = wanted[name]
        for index in present if asked is None else sorted(asked):
            if index not in present:
                why = f"{name} has no partition {index}: it has {len(present)}, from 0"
                raise KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, why)
            found.append(TopicPartition(name, index))
    return sorted(found)


def by_topic(places: Collection[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers of each topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        found.setdefault(topic, []).append(partition)
    return found


def numbers_of(places: Collection[TopicPartition]) -> dict[str, set[int] | None]:
    """Return the partition numbers of each topic, as `partitions_named` takes them."""
    return {name: set(indexes) for name, indexes in by_topic(places).items()}


# ----------------------------------------------------------------------------------------- leaders


def ask_leaders(
    admin: Admin,
    places: Collection[TopicPartition],
    ask: Callable[[Connection, Sequence[TopicPartition]], Mapping[TopicPartition, _T | KafkaError]],
    *,
    most_s: float = math.inf,
) -> dict[TopicPartition, _T | KafkaError]:
    """Ask the leader of each partition; ask again, as `repeat` does, where it has moved.

    A leader that does not answer is asked again too: `ask` must be safe to repeat.
    """
    outcomes: dict[TopicPartition, _T | KafkaError] = {}
    left = sorted(places)

    def ask_those_left() -> Sequence[TopicPartition]:
        outcomes.update(_ask_once(admin, left, ask))
        left[:] = [place for place in left if _has_moved(outcomes[place])]
        return left

    repeat(admin, ask_those_left, lambda moved: not moved, most_s=most_s)
    return {place: outcomes[place] for place in sorted(outcomes)}


def _has_moved(outcome: object) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code in _MOVED


def _ask_once(
    admin: Admin,
    places: Sequence[TopicPartition],
    ask: Callable[[Connection, Sequence[TopicPartition]], Mapping[TopicPartition, _T | KafkaError]],
) -> dict[TopicPartition, _T | KafkaError]:
    answer = admin.metadata(sorted({place.topic for place in places}))
    nodes = {row.node_id: admin.node(row.node_id, row.host, row.port) for row in answer.brokers}
    leaders: dict[TopicPartition, int] = {}
    outcomes: dict[TopicPartition, _T | KafkaError] = {}
    for topic in answer.topics:
        for part in topic.partitions:
            leaders[TopicPartition(topic.name, part.partition_index)] = part.leader_id
    led: dict[int, list[TopicPartition]] = {}
    for place in places:
        if place not in leaders:
            outcomes[place] = KafkaError(
                Code.UNKNOWN_TOPIC_OR_PARTITION, f"{place}: no such partition"
            )
        elif leaders[place] not in nodes:
            outcomes[place] = KafkaError(Code.LEADER_NOT_AVAILABLE, f"{place}: no broker leads it")
        else:
            led.setdefault(leaders[place], []).append(place)

    def ask_one(leader_id: int) -> Mapping[TopicPartition, _T | KafkaError]:
        mine = led[leader_id]
        try:
            found = ask(nodes[leader_id], mine)
        except FirnlineError as problem:
            code = problem.code if isinstance(problem, KafkaError) else Code.LEADER_NOT_AVAILABLE
            said = f"broker {leader_id}, its leader: {problem}"
            return {place: KafkaError(code, said) for place in mine}
        missing = KafkaError(Code.UNKNOWN_SERVER_ERROR, f"broker {leader_id} did not answer for it")
        return {place: found.get(place, missing) for place in mine}

    for found in at_the_same_time(ask_one, sorted(led)):
        outcomes |= found
    return outcomes


def at_the_same_time(ask: Callable[[Any], _T], items: Sequence[Any]) -> list[_T]:
    """Return what `ask` returns for each item, in order, with a bounded number of them under way."""
    if len(items) < 2:
        return [ask(item) for item in items]
    with ThreadPoolExecutor(min(len(items), _ASKED_AT_ONCE)) as pool:
        return list(pool.map(ask, items))


# ----------------------------------------------------------------------------------------- offsets


def offsets_at(
    admin: Admin, wanted: Mapping[TopicPartition, int], *, most_s: float = math.inf
) -> dict[TopicPartition, OffsetAt | KafkaError]:
    """Return the offset of each partition at a time in ms since 1970, or at EARLIEST or LATEST.

    most_s  for how long a partition without a leader is asked again
    """

    def ask(
        leader: Connection, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAt | KafkaError]:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index, timestamp=wanted[TopicPartition(name, index)]
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(places).items()
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=topics, timeout_ms=admin.wait_ms)
        return {
            TopicPartition(topic.name, part.partition_index): (
                error_of(part.error_code, None, f"{topic.name}-{part.partition_index}")
                or OffsetAt(part.offset, part.leader_epoch)
            )
            for topic in leader.ask(request).topics
            for part in topic.partitions
        }

    return ask_leaders(admin, list(wanted), ask, most_s=most_s)


def delete_records(
    admin: Admin, before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KafkaError]:
    """Delete the records below an offset, HIGH_WATERMARK for all; return where each log begins then."""

    def ask(
        leader: Connection, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError]:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(
                        partition_index=index, offset=before[TopicPartition(name, index)]
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(places).items()
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=admin.wait_ms)
        answer = ask_to_wait(admin, leader, request)  # it waits for the followers
        found: dict[TopicPartition, int | KafkaError] = {}
        for topic in answer.topics:
            for part in topic.partitions:
                place = TopicPartition(topic.name, part.partition_index)
                problem = error_of(part.error_code, None, str(place))
                found[place] = part.low_watermark if problem is None else problem
        return found

    return ask_leaders(admin, list(before), ask)


def error_of(code: int, message: str | None, what: str) -> KafkaError | None:
    """Return the KafkaError for an error code in a response, None for 0."""
    try:
        refuse(code, message, what)
    except KafkaError as problem:
        return problem
    return None
