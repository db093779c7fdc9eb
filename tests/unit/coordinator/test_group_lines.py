"""What the log says of groups: who made a rebalance begin, and when it ended."""

import pytest

from firnline.base.errors import Code
from tests.worlds.groups import GROUP, GroupWorld


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def said(world: GroupWorld) -> list[str]:
    """The lines since the last call."""
    found, world.logged[:] = list(world.logged), []
    return [line.removeprefix("firnline.coordinator info ") for line in found]


def began(reason: str, who: str, member_id: str, members: int, generation: int) -> str:
    return (
        f'group rebalance began group={GROUP} reason="{reason}" member={member_id} client_id={who}'
        f" host=127.0.0.1 members={members} generation={generation}"
    )


def test_a_group_is_formed(world: GroupWorld) -> None:
    ids = world.stable("a", "b")
    first, ended = said(world)
    assert first == began("member joined", "a", ids["a"], 1, 0), "the second came in the delay"
    assert ended.startswith(f"group rebalance ended group={GROUP} generation=1 members=2 ")
    assert " protocol=range took_ms=" in ended


def test_members_join_leave_fall_silent_and_change_their_subscriptions(world: GroupWorld) -> None:
    ids = world.stable("a", "b")
    said(world)
    late = world.enter("c")
    assert said(world) == [began("member joined", "c", late, 3, 1)]

    world = GroupWorld()
    ids = world.stable("a", "b")
    said(world)
    world.leave((ids["b"], None))
    assert said(world) == [began("member left", "b", ids["b"], 1, 1)]

    world = GroupWorld()
    ids = world.stable("a", "b", session_ms=10_000)
    said(world)
    world.pass_time(6_000)
    assert world.heartbeat(ids["a"], 1) is Code.NONE
    world.pass_time(5_000)
    assert said(world) == [began("session expired", "b", ids["b"], 1, 1)]

    world = GroupWorld()
    ids = world.stable("a", "b")
    said(world)
    world.join("b", ids["b"], metadata=b"other topics")
    assert said(world) == [began("subscription changed", "b", ids["b"], 2, 1)]


def test_the_leader_asks_for_a_rebalance(world: GroupWorld) -> None:
    """As it does when the partitions of a topic change."""
    ids = world.stable("a", "b")
    said(world)
    leader = next(iter(ids))
    world.join(leader, ids[leader])
    assert said(world) == [began("member joined again", leader, ids[leader], 2, 1)]


def test_a_member_that_joined_and_does_not_sync_is_named(world: GroupWorld) -> None:
    a, b = world.enter("a", rebalance_ms=5_000), world.enter("b", rebalance_ms=5_000)
    world.pass_time(6_000)
    generation = world.answer_to("a").generation_id
    said(world)
    world.sync("a", a, generation)
    world.pass_time(5_000)
    assert began("member did not sync", "b", b, 2, 1) in said(world)


def test_the_last_member_leaves(world: GroupWorld) -> None:
    ids = world.stable("a")
    said(world)
    world.leave((ids["a"], None))
    assert said(world) == [
        began("member left", "a", ids["a"], 0, 1),
        f"group is empty group={GROUP} generation=2",
    ]


def test_a_member_that_went_is_not_kept_for_the_log(world: GroupWorld) -> None:
    ids = world.stable("a", "b")
    world.leave((ids["b"], None))
    (group,) = [g for shard in world.groups._shards.values() for g in shard.groups.values()]
    assert group._cause == ("", None)
