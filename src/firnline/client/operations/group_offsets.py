"""Committed offsets of groups: read of many groups at once, commit, delete. WORLD.

Source: KIP-211 (a commit from outside a group), KIP-496 (delete), KIP-699 and KIP-709 (many groups in one
request).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from firnline.base.errors import Code, FirnlineError, KafkaError
from firnline.base.ids import TopicPartition
from firnline.client.admin import LATEST, Admin
from firnline.client.connection import Connection
from firnline.client.groups import LATER, find_coordinator, when_loaded
from firnline.client.operations.partitions import (
    OffsetAt,
    at_the_same_time,
    by_topic,
    error_of,
    offsets_at,
)
from firnline.client.operations.patience import GLANCE_S, repeat
from firnline.client.wire import refuse
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from firnline.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from firnline.protocol.messages.k16_list_groups import ListGroupsRequest
from firnline.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

# The last versions that name topics instead of giving their ids.
_COMMIT_BY_NAME, _FETCH_BY_NAME = 9, 9
# The first versions for many groups in one request.
_COORDINATORS, _GROUPS = 4, 8
_GROUPS_A_REQUEST = 200
Committed = dict[TopicPartition, int]


class GroupState(NamedTuple):
    """Whether a group is there, and who is in it: `client@host` of each member, if it is known."""

    is_there: bool
    state: str
    kind: str
    members: list[str]


class GroupLag(NamedTuple):
    """How far a group is behind in all. lag_records: over `partitions`, those of which both ends are known.

    unknown     partitions whose log end is not known
    """

    partitions: int
    lag_records: int
    unknown: int
    problem: str


# ---------------------------------------------------------------------------------- many groups at once


def committed_offsets(
    admin: Admin, groups: Collection[str], *, most_s: float = math.inf
) -> dict[str, Committed | KafkaError]:
    """Return what each group has committed. Each coordinator is asked once for some hundred groups.

    most_s  for how long a coordinator that is not ready is asked again
    """
    found: dict[str, Committed | KafkaError] = {}
    left = sorted(set(groups))

    def ask_those_left() -> Sequence[str]:
        found.update(_committed_once(admin, left))
        left[:] = [name for name in left if _is_later(found[name])]
        return left

    repeat(admin, ask_those_left, lambda later: not later, most_s=most_s)
    return found


def _is_later(outcome: object) -> bool:
    return isinstance(outcome, KafkaError) and outcome.code in LATER


def _committed_once(admin: Admin, groups: Sequence[str]) -> dict[str, Committed | KafkaError]:
    found: dict[str, Committed | KafkaError] = {}
    hosted: dict[Connection, list[str]] = {}
    for name, coordinator in _coordinators(admin, groups).items():
        if isinstance(coordinator, KafkaError):
            found[name] = coordinator
        else:
            hosted.setdefault(coordinator, []).append(name)

    def ask(coordinator: Connection) -> dict[str, Committed | KafkaError]:
        mine = hosted[coordinator]
        try:
            return _fetch(coordinator, mine)
        except FirnlineError as problem:
            return {name: KafkaError(Code.COORDINATOR_NOT_AVAILABLE, str(problem)) for name in mine}

    for some in at_the_same_time(ask, list(hosted)):
        found |= some
    return found


def _coordinators(admin: Admin, groups: Sequence[str]) -> dict[str, Connection | KafkaError]:
    if admin.first.spoken()[FindCoordinatorRequest.key].last < _COORDINATORS:
        return {name: _coordinator(admin, name) for name in groups}
    found: dict[str, Connection | KafkaError] = {}
    for begin in range(0, len(groups), _GROUPS_A_REQUEST):
        some = groups[begin : begin + _GROUPS_A_REQUEST]
        answer = admin.first.ask(FindCoordinatorRequest(coordinator_keys=some, key_type=0))
        for row in answer.coordinators:
            problem = error_of(row.error_code, row.error_message, f"group {row.key}")
            found[row.key] = problem or admin.node(row.node_id, row.host, row.port)
    return found


def _coordinator(admin: Admin, group: str) -> Connection | KafkaError:
    try:
        return find_coordinator(admin, group)
    except KafkaError as problem:
        return problem


def _fetch(coordinator: Connection, groups: Sequence[str]) -> dict[str, Committed | KafkaError]:
    version = min(coordinator.spoken()[OffsetFetchRequest.key].last, _FETCH_BY_NAME)
    size = _GROUPS_A_REQUEST if version >= _GROUPS else 1
    found: dict[str, Committed | KafkaError] = {}
    for begin in range(0, len(groups), size):
        some = groups[begin : begin + size]
        request = OffsetFetchRequest(
            group_id=some[0],
            topics=None,
            groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in some],
        )
        answer = coordinator.ask(request, version=version)
        rows = answer.groups if version >= _GROUPS else [answer]
        for name, row in zip(some, rows, strict=True):
            name = row.group_id if version >= _GROUPS else name
            found[name] = error_of(row.error_code, None, f"group {name}") or {
                TopicPartition(topic.name, part.partition_index): part.committed_offset
                for topic in row.topics
                for part in topic.partitions
                if part.committed_offset >= 0
            }
    return found


def lags(admin: Admin, groups: Collection[str]) -> dict[str, GroupLag]:
    """Return the total lag of each group. Each leader is asked once for all log ends that are needed."""
    committed = committed_offsets(admin, groups, most_s=GLANCE_S)
    places = {
        place
        for offsets in committed.values()
        if not isinstance(offsets, KafkaError)
        for place in offsets
    }
    ends = offsets_at(admin, dict.fromkeys(places, LATEST), most_s=GLANCE_S)
    return {name: _lag(offsets, ends) for name, offsets in committed.items()}


def _lag(
    offsets: Committed | KafkaError, ends: Mapping[TopicPartition, OffsetAt | KafkaError]
) -> GroupLag:
    if isinstance(offsets, KafkaError):
        return GroupLag(0, -1, 0, str(offsets))
    lag = unknown = 0
    for place, offset in offsets.items():
        end = ends[place]
        if isinstance(end, KafkaError):
            unknown += 1
        else:
            lag += max(0, end.offset - offset)
    return GroupLag(len(offsets), lag, unknown, "")


# ------------------------------------------------------------------------------------------- one group


def group_state(admin: Admin, group: str) -> GroupState:
    """Return whether a group is there, and its members."""
    return when_loaded(admin, lambda: _state(find_coordinator(admin, group), group))


def _state(coordinator: Connection, group: str) -> GroupState:
    (found,) = coordinator.ask(DescribeGroupsRequest(groups=[group])).groups
    if found.error_code != Code.GROUP_ID_NOT_FOUND:
        refuse(found.error_code, None, f"group {group}")
        if found.group_state != "Dead":
            members = [f"{row.client_id}@{row.client_host.strip('/')}" for row in found.members]
            return GroupState(True, found.group_state, "classic", members)
    # A group of another protocol is dead to DescribeGroups; ListGroups knows it.
    listed = coordinator.ask(ListGroupsRequest())
    refuse(listed.error_code, None, "groups")
    for row in listed.groups:
        if row.group_id == group:
            return GroupState(True, row.group_state, row.group_type, [])
    return GroupState(False, "Dead", "", [])


def refuse_members(state: GroupState, group: str) -> None:
    """Raise KafkaError(NON_EMPTY_GROUP), which says who is in the group, unless it is empty."""
    if not state.is_there or (state.state == "Empty" and not state.members):
        return
    count = len(state.members)
    who = f"{count} member{'s' if count > 1 else ''} ({', '.join(sorted(set(state.members)))})"
    if not count:
        who = f"members (it is {state.state}, a group of the {state.kind} protocol)"
    why = f"group {group} has {who}, who would commit over it: stop them first"
    raise KafkaError(Code.NON_EMPTY_GROUP, why)


def commit_offsets(
    admin: Admin, group: str, offsets: Mapping[TopicPartition, OffsetAt]
) -> dict[TopicPartition, KafkaError | None]:
    """Commit offsets for an empty group, from outside it; return the problem of each partition, or None."""

    def ask() -> dict[TopicPartition, KafkaError | None]:
        coordinator = find_coordinator(admin, group)
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[_committed(offsets, name, index) for index in indexes],
            )
            for name, indexes in by_topic(list(offsets)).items()
        ]
        request = OffsetCommitRequest(group_id=group, topics=topics)
        version = min(coordinator.spoken()[OffsetCommitRequest.key].last, _COMMIT_BY_NAME)
        answer = coordinator.ask(request, version=version)
        return _outcomes(answer, f"group {group}")

    return when_loaded(admin, ask)


def _committed(
    offsets: Mapping[TopicPartition, OffsetAt], name: str, index: int
) -> OffsetCommitRequestPartition:
    wish = offsets[TopicPartition(name, index)]
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=wish.offset,
        committed_leader_epoch=wish.leader_epoch,
        committed_metadata="",
    )


def delete_offsets(
    admin: Admin, group: str, places: Collection[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Forget committed offsets; return the problem of each partition, or None. KafkaError for the group."""

    def ask() -> dict[TopicPartition, KafkaError | None]:
        topics = [
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=x) for x in indexes],
            )
            for name, indexes in by_topic(places).items()
        ]
        request = OffsetDeleteRequest(group_id=group, topics=topics)
        answer = find_coordinator(admin, group).ask(request)
        refuse(answer.error_code, None, f"group {group}")
        return _outcomes(answer, f"group {group}")

    return when_loaded(admin, ask)


def _outcomes(answer: Any, what: str) -> dict[TopicPartition, KafkaError | None]:
    """Return the problem of each partition. KafkaError if the coordinator was not ready for any of them."""
    found = {}
    for topic in answer.topics:
        for part in topic.partitions:
            place = TopicPartition(topic.name, part.partition_index)
            problem = error_of(part.error_code, None, f"{what}, {place}")
            if problem is not None and problem.code in LATER:
                raise problem
            found[place] = problem
    return found
