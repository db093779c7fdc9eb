"""Consumer groups as the command line shows them: members, offsets, lag. WORLD."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from firnline.base.errors import Code, KafkaError
from firnline.client.admin import LATEST, Admin
from firnline.client.connection import Connection, NoAnswer, Unreachable
from firnline.client.deadline import Deadline, at_once
from firnline.client.wire import refuse
from firnline.protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from firnline.protocol.messages.k16_list_groups import ListGroupsRequest
from firnline.protocol.messages.k42_delete_groups import DeleteGroupsRequest

# The last version that names topics instead of giving their ids.
_OFFSET_FETCH_BY_NAME = 9
# Errors of a coordinator that has just taken over, or is about to: retried for a while.
LATER = (
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
)
_RETRY_S = 0.1
_T = TypeVar("_T")


class GroupRow(NamedTuple):
    """One group as `group list` shows it."""

    group: str
    state: str
    kind: str
    protocol_type: str


class OffsetRow(NamedTuple):
    """How far a group has read one partition. `lag_records` is -1 if the log end is unknown."""

    topic: str
    partition: int
    committed_offset: int
    log_end_offset: int
    lag_records: int


class GroupDescription(NamedTuple):
    """One group, its members and its offsets."""

    row: GroupRow
    coordinator: str
    members: list[dict[str, str]]
    offsets: list[OffsetRow]


def list_groups(admin: Admin) -> list[GroupRow]:
    """Return the groups of all brokers, by name."""
    rows = []
    brokers = admin.brokers()
    for groups in at_once(lambda each: when_loaded(admin, partial(_groups_of, each)), brokers):
        for found in groups:
            rows.append(
                GroupRow(found.group_id, found.group_state, found.group_type, found.protocol_type)
            )
    return sorted(rows)


def _groups_of(broker: Connection) -> Any:
    answer = broker.ask(ListGroupsRequest())
    refuse(answer.error_code, None, "groups")
    return answer.groups


def describe_group(admin: Admin, group: str) -> GroupDescription:
    """Return one group. Raises KafkaError(GROUP_ID_NOT_FOUND) for an unknown group."""
    return when_loaded(admin, lambda: _describe(admin, group))


def _describe(admin: Admin, group: str) -> GroupDescription:
    coordinator = find_coordinator(admin, group)
    (found,) = coordinator.ask(DescribeGroupsRequest(groups=[group])).groups
    refuse(found.error_code, None, f"group {group}")
    offsets = _offsets(admin, coordinator, group)
    if found.group_state == "Dead" and not offsets:
        raise KafkaError(Code.GROUP_ID_NOT_FOUND, f"group {group}")
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.client_host,
        }
        for member in found.members
    ]
    row = GroupRow(group, found.group_state, "classic", found.protocol_type)
    return GroupDescription(row, coordinator.address, members, offsets)


def delete_group(admin: Admin, group: str) -> None:
    """Delete an empty group and its offsets."""
    when_loaded(admin, lambda: _delete(admin, group))


def _delete(admin: Admin, group: str) -> None:
    coordinator = find_coordinator(admin, group)
    (result,) = coordinator.ask(DeleteGroupsRequest(groups_names=[group])).results
    refuse(result.error_code, None, f"group {group}")


def when_loaded(admin: Admin, ask: Callable[[], _T]) -> _T:
    """Retry while the coordinator is loading, for as long as `admin` waits."""
    deadline = Deadline(admin.left_s)
    while True:
        try:
            return ask()
        except KafkaError as problem:
            if problem.code not in LATER or deadline.is_over:
                raise
        deadline.pause(_RETRY_S)


def find_coordinator(admin: Admin, group: str) -> Connection:
    """Return a connection to the coordinator of `group`."""
    request = FindCoordinatorRequest(coordinator_key=group, coordinator_keys=[group], key_type=0)
    asked = admin.first
    try:
        answer: Any = asked.ask(request)
    except NoAnswer:
        # For the first group of a cluster a broker waits for a controller, which makes the topic of offsets.
        why = f"{asked.address} found no coordinator of group {group} in time"
        raise NoAnswer(f"{why}; `firnline cluster status` shows what is wrong") from None
    for found in answer.coordinators or [answer]:
        refuse(found.error_code, None, f"group {group}")
        return admin.node(found.node_id, found.host, found.port)
    raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE, f"group {group}")


def _offsets(admin: Admin, coordinator: Connection, group: str) -> list[OffsetRow]:
    spoken = coordinator.spoken()[OffsetFetchRequest.key]
    request = OffsetFetchRequest(
        group_id=group,
        topics=None,
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)],
    )
    answer = coordinator.ask(request, version=min(spoken.last, _OFFSET_FETCH_BY_NAME))
    committed: dict[str, dict[int, int]] = {}
    for found in answer.groups or [answer]:
        refuse(found.error_code, None, f"group {group}")
        for topic in found.topics:
            for part in topic.partitions:
                if part.committed_offset >= 0:
                    offsets = committed.setdefault(topic.name, {})
                    offsets[part.partition_index] = part.committed_offset
    rows = []
    for name in sorted(committed):
        ends = _ends(admin, name)
        for partition, offset in sorted(committed[name].items()):
            end = ends.get(partition, -1)
            rows.append(OffsetRow(name, partition, offset, end, end - offset if end >= 0 else -1))
    return rows


def _ends(admin: Admin, topic: str) -> dict[int, int]:
    """Return the log ends of a topic by partition; empty if the topic is gone."""
    answer = admin.metadata([topic])
    brokers = {each.node_id: each for each in answer.brokers}
    by_leader: dict[int, list[int]] = {}
    for part in answer.topics[0].partitions:
        by_leader.setdefault(part.leader_id, []).append(part.partition_index)
    leaders = [
        (admin.node(leader_id, brokers[leader_id].host, brokers[leader_id].port), partitions)
        for leader_id, partitions in sorted(by_leader.items())
        if leader_id in brokers
    ]
    deadline = admin.share()

    def ends_at(led: tuple[Connection, list[int]]) -> dict[int, int]:
        """Return what one leader says; nothing if it is silent, as the lag of the others is known."""
        try:
            return admin.offsets(led[0], topic, led[1], LATEST, deadline=deadline)
        except Unreachable:
            return {}

    return dict(chain.from_iterable(ends.items() for ends in at_once(ends_at, leaders)))
