"""The partitions of a cluster as their leaders report them. WORLD.

Uses Kafka's public APIs where they suffice, so this works with Apache Kafka too. Partition epochs and the
progress of followers come from an API of our own (ClusterStatus); if a node does not serve it, they are -1 or
None. What only a leader knows that does not answer is unknown.
"""

from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from firnline.base.errors import FirnlineError
from firnline.base.ids import uuid_text
from firnline.client.admin import EARLIEST, LATEST, Admin
from firnline.client.connection import Connection, NoAnswer, Unreachable
from firnline.client.deadline import Deadline, at_once, attempts
from firnline.client.wire import refuse_topic
from firnline.protocol.messages.k32003_cluster_status import ClusterStatusRequest

# A broker that was just elected may know it later than the one whose metadata names it.
ELECTED_S = 3.0
OK, OFFLINE = "ok", "offline"
UNDER_REPLICATED, UNDER_MIN_ISR = "under-replicated", "under-min-isr"


def last_known(state: str) -> str:
    """Return what is said of something whose node does not answer."""
    return f"unknown (last known {state})"


class FollowerStatus(NamedTuple):
    """A replica as the leader knows it. `lag` in records; `behind_ms` since it had everything; -1: never."""

    broker_id: int
    broker_epoch: int
    log_end_offset: int
    lag: int
    behind_ms: int


class PartitionState(NamedTuple):
    """One partition; unknown offsets and epochs are -1."""

    topic: str
    partition: int
    state: str
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    min_insync_replicas: int
    followers: tuple[FollowerStatus, ...]

    @property
    def is_complete(self) -> bool:
        """Does every replica have everything that is committed?"""
        return self.leader >= 0 and len(self.isr) >= len(self.replicas)


class TopicState(NamedTuple):
    """One topic with its partitions, by number."""

    name: str
    topic_id: str
    is_internal: bool
    partitions: list[PartitionState]


# --------------------------------------------------------------------------------- partitions


def describe_topics(admin: Admin, names: Sequence[str] | None) -> list[TopicState]:
    """Return topics with their partitions, by name; None for all. KafkaError for an unknown topic.

    A leader that was just elected, or leads no more, is asked again, and so is the metadata.
    """
    reported: dict[tuple[str, int], dict[str, Any]] = {}
    silent: set[int] = set()
    answer = _metadata(admin, names)
    for attempt in attempts(admin.share(ELECTED_S).left_s()):
        if attempt:
            with suppress(Unreachable):
                answer = _metadata(admin, names)
        _ask_leaders(admin, answer, _led(answer.topics, reported, silent), reported, silent)
        if not _led(answer.topics, reported, silent):
            break
    return [
        TopicState(
            topic.name,
            uuid_text(topic.topic_id),
            topic.is_internal,
            [
                _partition(topic.name, part, reported.get((topic.name, part.partition_index)))
                for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
            ],
        )
        for topic in sorted(answer.topics, key=lambda topic: str(topic.name))
    ]


def _metadata(admin: Admin, names: Sequence[str] | None) -> Any:
    answer = admin.metadata(names)
    for topic in answer.topics:
        refuse_topic(topic.error_code, topic.name)
    return answer


def _led(
    topics: Iterable[Any], reported: Container[tuple[str, int]], silent: Container[int]
) -> dict[int, dict[str, list[int]]]:
    """Return the partitions nobody has reported yet, by leader and topic, without leaders that are silent."""
    led: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for part in topic.partitions:
            leader_id, index = int(part.leader_id), int(part.partition_index)
            if leader_id >= 0 and leader_id not in silent and (topic.name, index) not in reported:
                led.setdefault(leader_id, {}).setdefault(topic.name, []).append(index)
    return led


def _ask_leaders(
    admin: Admin,
    answer: Any,
    led: dict[int, dict[str, list[int]]],
    reported: dict[tuple[str, int], dict[str, Any]],
    silent: set[int],
) -> None:
    """Add what each leader reports of its partitions, from ClusterStatus or else from ListOffsets.

    Leaders that do not answer, or whose address nobody knows, are added to `silent`.
    """
    addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    silent |= led.keys() - addresses.keys()
    deadline = admin.share()

    def ask(leader_id: int) -> tuple[int, dict[tuple[str, int], Any] | None]:
        node = admin.node(leader_id, *addresses[leader_id])
        mine = led[leader_id]
        try:
            return leader_id, _status_of(node, sorted(mine), deadline)
        except NoAnswer:
            return leader_id, None
        except FirnlineError:
            return leader_id, _offsets_of(admin, node, mine, deadline)

    for leader_id, found in at_once(ask, led.keys() & addresses.keys()):
        if found is None:
            silent.add(leader_id)
        else:
            reported |= found


def _status_of(
    node: Connection, names: Sequence[str], deadline: Deadline
) -> dict[tuple[str, int], dict[str, Any]]:
    answer = node.ask(ClusterStatusRequest(topics=names, only_led=True), deadline=deadline)
    return {
        (topic.name, part.partition): {
            "partition_epoch": part.partition_epoch,
            "log_start_offset": part.log_start_offset,
            "high_watermark": part.high_watermark,
            "log_end_offset": part.log_end_offset,
            "min_insync_replicas": part.min_insync_replicas,
            "followers": tuple(_follower(each, part.log_end_offset) for each in part.followers),
        }
        for topic in answer.topics
        for part in topic.partitions
        if part.log_end_offset >= 0  # else it does not know yet that it leads, or cannot serve it
    }


def _follower(row: Any, leader_end_offset: int) -> FollowerStatus:
    is_known = row.log_end_offset >= 0 and leader_end_offset >= 0
    lag = max(0, leader_end_offset - row.log_end_offset) if is_known else -1
    return FollowerStatus(row.broker_id, row.broker_epoch, row.log_end_offset, lag, row.behind_ms)


def _offsets_of(
    admin: Admin, node: Connection, mine: dict[str, list[int]], deadline: Deadline
) -> dict[tuple[str, int], dict[str, Any]] | None:
    """Return what any broker reports; None for one that does not answer."""
    reported: dict[tuple[str, int], dict[str, Any]] = {}
    try:
        for name, partitions in sorted(mine.items()):
            starts = admin.offsets(node, name, partitions, EARLIEST, deadline=deadline)
            ends = admin.offsets(node, name, partitions, LATEST, deadline=deadline)
            for index in partitions:
                reported[name, index] = {
                    "log_start_offset": starts.get(index, -1),
                    "high_watermark": ends.get(index, -1),
                }
    except Unreachable:
        return None
    return reported


def _partition(topic: str, part: Any, reported: dict[str, Any] | None) -> PartitionState:
    found = {
        "partition_epoch": -1,
        "log_start_offset": -1,
        "high_watermark": -1,
        "log_end_offset": -1,
        "min_insync_replicas": -1,
        "followers": (),
        **(reported or {}),
    }
    replicas, isr = tuple(part.replica_nodes), tuple(part.isr_nodes)
    if part.leader_id < 0:
        state = OFFLINE
    elif len(isr) < found["min_insync_replicas"]:
        state = UNDER_MIN_ISR
    else:
        state = UNDER_REPLICATED if len(isr) < len(replicas) else OK
    if reported is None and part.leader_id >= 0:
        state = last_known(state)
    return PartitionState(
        topic=topic,
        partition=part.partition_index,
        state=state,
        leader=part.leader_id,
        leader_epoch=part.leader_epoch,
        replicas=replicas,
        isr=isr,
        offline=tuple(part.offline_replicas),
        **found,
    )
