"""A group of hundreds of members: whatever they do at once, no step of it holds up the node."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from firnline.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from firnline.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from firnline.protocol.messages.k15_describe_groups import DescribeGroupsRequest

from .large import NAMES, LargeNode

MEMBERS = 500
CALLS_MAX = 15_000


@pytest.fixture
def small() -> LargeNode:
    return LargeNode(NAMES[:1])


def begin_members(node: LargeNode, count: int) -> list[str]:
    """Have a group of so many members, who have all joined; return their ids."""
    node.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    node.pass_time(2_000)
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    connections = [node.begin(request, 3) for _ in range(count)]
    node.pass_time(20_000)
    return [connection.answers[0].member_id for connection in connections]


def leave(ids: Sequence[str]) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=i) for i in ids])


def members(node: LargeNode) -> list[Any]:
    [group] = node.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
    return list(group.members)


@pytest.mark.parametrize("hangs_up", [False, True])
def test_hundreds_of_members_leave_in_one_request(small: LargeNode, hangs_up: bool) -> None:
    """Goal: who stops a large application stops nobody else. Method: count the calls of each step."""
    ids = begin_members(small, MEMBERS)
    connection = small.begin(leave(["nobody", *ids[1:]]), 5)
    connection.closed = hangs_up
    small.finish()
    assert max(small.steps) < 8_000, small.steps
    assert [member.member_id for member in members(small)] == ids[:1]
    if not hangs_up:
        [answer] = connection.answers
        reported = [(row.member_id, row.error_code) for row in answer.members]
        assert reported == [("nobody", Code.UNKNOWN_MEMBER_ID), *((i, Code.NONE) for i in ids[1:])]


def test_a_coordinator_that_goes_says_of_nobody_that_it_left(small: LargeNode) -> None:
    """Goal: a member that the next coordinator still knows is taken out by another request."""
    ids = begin_members(small, 250)
    connection = small.begin(leave(ids), 5)
    groups = small.node.groups
    small.run(groups.unload_partition(groups.partition_for("g"), small.now_ms))
    small.finish()
    [answer] = connection.answers
    assert (answer.error_code, answer.members) == (Code.NOT_COORDINATOR, [])


@pytest.mark.parametrize("goes", [None, "a member", "the coordinator"])
def test_an_assignment_of_very_many_members_is_taken_out_of_its_request_in_slices(
    small: LargeNode, goes: str | None
) -> None:
    """Goal: nobody waits for it. Method: count the calls of each step; the group changes in between."""
    ids = begin_members(small, 3)
    rows = [*ids, *(f"nobody-{n}" for n in range(30_000))]

    def sync(member_id: str, *assigned: str) -> SyncGroupRequest:
        parts = [
            SyncGroupRequestAssignment(member_id=each, assignment=each.encode())
            for each in assigned
        ]
        return SyncGroupRequest(
            group_id="g", generation_id=1, member_id=member_id, assignments=parts
        )

    others = [small.begin(sync(each), 3) for each in ids[1:]]
    leader = small.begin(sync(ids[0], *rows), 3)
    while not small.node.sliced_tasks.step_name().startswith("_sync_many"):
        assert small.one_more()
    assert leader.answers == []
    if goes == "a member":
        small.send_only(leave(ids[2:]), 5)
    elif goes == "the coordinator":
        groups = small.node.groups
        small.run(groups.unload_partition(groups.partition_for("g"), small.now_ms))
    small.finish()
    assert max(small.steps) < CALLS_MAX, sorted(small.steps)[-5:]
    reported = [connection.answers[0] for connection in (leader, *others) if connection.answers]
    if goes is None:
        assert [answer.assignment for answer in reported] == [each.encode() for each in ids]
    elif goes == "a member":
        assert leader.answers[0].error_code == Code.REBALANCE_IN_PROGRESS
    else:
        assert {answer.error_code for answer in reported} == {Code.NOT_COORDINATOR}


def test_an_assignment_of_a_thousand_members_is_no_long_step(small: LargeNode) -> None:
    """Goal: nobody waits for it. Method: count the calls of each step: 35 for each member in one step."""
    ids = begin_members(small, 1_500)
    parts = [SyncGroupRequestAssignment(member_id=i, assignment=i.encode()) for i in ids]
    others = [
        small.begin(SyncGroupRequest(group_id="g", generation_id=1, member_id=each), 3)
        for each in ids[1:]
    ]
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=ids[0], assignments=parts)
    leader = small.begin(request, 3)
    small.finish()
    assert max(small.steps) < CALLS_MAX, sorted(small.steps)[-5:]
    reported = [connection.answers[0].assignment for connection in (leader, *others)]
    assert reported == [each.encode() for each in ids]


@pytest.mark.parametrize("unknown_members", [0, 2_000])
def test_what_members_may_hold_bounds_what_a_leader_gives_them(
    small: LargeNode, unknown_members: int
) -> None:
    """Goal: memory is bounded. Of rows of the same member, which holds the last of them, one counts."""
    [leader] = begin_members(small, 1)
    groups = small.node.groups

    def sync(size: int) -> Code:
        rows = [
            SyncGroupRequestAssignment(member_id=each, assignment=bytes(size))
            for each in (leader, *([leader] * 20), *(f"nobody-{n}" for n in range(unknown_members)))
        ]
        request = SyncGroupRequest(
            group_id="g", generation_id=1, member_id=leader, assignments=rows
        )
        return Code(small.ask(request, 3).error_code)

    room = 400_000
    groups.policy = replace(groups.policy, members_bytes_max=2 * groups.members_held_bytes + room)
    names = unknown_members + 1
    assert sync(room // names + 1) is Code.COORDINATOR_NOT_AVAILABLE
    assert groups.refused_members == 1
    assert sync(room // names) is Code.NONE
    if not unknown_members:  # it replaces what it gave: as much again is no more
        assert sync(room) is Code.NONE
        assert sync(room + 1) is Code.COORDINATOR_NOT_AVAILABLE


def test_very_many_members_leave_in_slices(small: LargeNode) -> None:
    """Each is answered, though none of them is there."""
    small.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    small.pass_time(2_000)
    names = [f"member-{n}" for n in range(15_000)]
    members = [MemberIdentity(member_id=name) for name in names]
    small.ask(LeaveGroupRequest(group_id="g", members=members[:2]), 5)
    answer = small.ask(LeaveGroupRequest(group_id="g", members=members), 5)
    assert max(small.steps) < CALLS_MAX, sorted(small.steps)[-9:]
    assert [each.member_id for each in answer.members] == names
    assert {each.error_code for each in answer.members} == {Code.UNKNOWN_MEMBER_ID}
    alone = small.ask(LeaveGroupRequest(group_id="g", member_id="member-1"), 2)
    assert alone.error_code == Code.UNKNOWN_MEMBER_ID
