"""Each invariant that a docstring names is asserted where it could be broken: here it is broken."""

from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.base.ids import ProducerIdBlock, TopicPartition
from firnline.coordinator.commits import CommittedOffset
from firnline.coordinator.group import Group
from firnline.coordinator.group_members import GroupMembers
from firnline.coordinator.group_state import GroupState
from firnline.coordinator.membership import (
    Member,
    MemberCounts,
    Protocol,
    choose_protocol,
)
from firnline.coordinator.offsets import Offsets
from firnline.coordinator.producer_ids import ProducerIds
from firnline.coordinator.shard import Shard
from tests.worlds.groups import GROUP, GroupWorld

PLACE = TopicPartition("t", 0)


def nothing(*_: Any, **__: Any) -> Any:
    return None


def no_effects(*_: Any) -> Effects:
    return []


def member(name: str, instance: str | None = None) -> Member:
    return Member(
        name,
        instance_id=instance,
        client_id=name,
        client_host="/127.0.0.1",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocols=(Protocol("range", b""),),
    )


def members_of(*names: str) -> GroupMembers:
    members = GroupMembers(MemberCounts())
    for name in names:
        members.add(member(name))
    return members


def shard_of(world: GroupWorld) -> Shard:
    return world.groups._shards[0]


def stable() -> tuple[GroupWorld, Group]:
    world = GroupWorld()
    world.stable("a", "b")
    return world, shard_of(world).groups[GROUP]


def completing() -> tuple[GroupWorld, Group, dict[str, str]]:
    """A group whose leader, "a", is to send the assignment next."""
    world = GroupWorld()
    ids = {name: world.enter(name) for name in ("a", "b")}
    world.pass_time(12_000)
    group = shard_of(world).groups[GROUP]
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert group.members.leader == ids["a"]
    return world, group, ids


# ---------------------------------------------------------------------------------- the members


def test_the_leader_is_a_member() -> None:
    members = members_of("a", "b")
    members.leader = "c"
    with pytest.raises(AssertionError, match="I1"):
        members.remove("b")


def test_no_member_is_pending() -> None:
    members = members_of("a")
    members.pending["a"] = None
    with pytest.raises(AssertionError, match="I2"):
        members._check("a")


def test_an_instance_id_names_one_member() -> None:
    members = members_of()
    members.add(member("a", "i"))
    with pytest.raises(AssertionError, match="I2"):
        members.add(member("b", "i"))


def test_only_members_wait_for_a_join() -> None:
    members = members_of("a")
    members.joined_count = 2
    with pytest.raises(AssertionError, match="I3"):
        members._check()


def test_a_join_is_answered_before_its_member_goes() -> None:
    members = members_of()
    members.add(member("a", "i"))
    members.await_join(members.by_id["a"], nothing)
    with pytest.raises(AssertionError, match="answered before"):
        members.await_join(members.by_id["a"], nothing)
    with pytest.raises(AssertionError, match="answered first"):
        members.replace("a", member("b", "i"))
    members = members_of("a")
    members.await_join(members.by_id["a"], nothing)
    with pytest.raises(AssertionError, match="answered first"):
        members.remove("a")


def test_what_goes_was_counted_for_its_address() -> None:
    counts, one, other = MemberCounts(), member("a"), member("b")
    counts.count(one)
    counts.count(other)
    one.counted_bytes = 3 * one.counted_bytes
    with pytest.raises(AssertionError, match="for this address"):
        counts.discount(one)


def test_members_share_an_assignor() -> None:
    with pytest.raises(AssertionError, match="common protocol"):
        choose_protocol([(("range",), 1)], ["range"], ())


# ------------------------------------------------------------------------------------ the group


def test_a_join_waits_only_while_joining() -> None:
    _, group = stable()
    group._rebalance = no_effects  # type: ignore[method-assign]
    waiting = next(iter(group.members.by_id.values()))
    group.members.await_join(waiting, nothing)
    with pytest.raises(AssertionError, match="I3"):
        group._rebalance_or_settle(waiting, 0)


def test_a_sync_waits_only_for_an_assignment_that_is_to_come() -> None:
    world, group, ids = completing()
    group._sync_refusal = lambda request: Code.NONE  # type: ignore[method-assign]
    group.state = GroupState.PREPARING_REBALANCE
    with pytest.raises(AssertionError, match="I4"):
        world.sync("b", ids["b"], 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda members, ids: members.add(member("c")),
        lambda members, ids: members.remove(ids["b"]),
        lambda members, ids: (
            members.await_join(members.by_id[ids["b"]], nothing),
            members.elect_leader_that_joined(),
        ),
    ],
)
def test_members_and_leader_stay_while_the_leader_assigns(
    change: Callable[[GroupMembers, dict[str, str]], Any],
) -> None:
    world, group, ids = completing()
    world.holds_appends = True
    world.sync("a", ids["a"], 1)
    change(group.members, ids)
    with pytest.raises(AssertionError, match="I5"):
        world.commit_appends()


def test_no_member_has_an_assignment_before_it_is_written() -> None:
    world, group, ids = completing()
    with pytest.raises(AssertionError, match="I6"):
        group._synced(group.members.by_id[ids["b"]])
    world.sync("a", ids["a"], 1)
    group._synced(group.members.by_id[ids["b"]])


# --------------------------------------------------------------------------------- shard, offsets


def test_a_closed_shard_writes_nothing() -> None:
    shard = shard_of(GroupWorld())
    shard.is_closed = True
    with pytest.raises(AssertionError, match="another node"):
        shard._append(bytearray(), no_effects)


def test_a_group_with_members_is_not_deleted() -> None:
    world, group = stable()
    with pytest.raises(AssertionError, match="with members"):
        shard_of(world)._delete_all([(group, [])], no_effects, 0)


def test_a_group_is_deleted_once() -> None:
    world = GroupWorld()
    world.commit("a", ("t", 0, 1))
    shard = shard_of(world)
    group = shard.groups.pop(GROUP)
    shard.group(GROUP)
    with pytest.raises(AssertionError, match="once"):
        shard._delete_all([(group, [])], no_effects, 0)


def test_a_write_of_commits_ends_once() -> None:
    offsets = Offsets()
    offsets.begin(GROUP, [PLACE])
    offsets._under_way[GROUP][PLACE] = 0
    with pytest.raises(AssertionError, match="ends once"):
        offsets.end(GROUP, [PLACE])


def test_a_commit_that_is_applied_has_a_record() -> None:
    with pytest.raises(AssertionError, match="rel-C5"):
        Offsets().put(GROUP, PLACE, CommittedOffset(1, -1, "", 0))


def test_no_group_without_offsets_is_kept() -> None:
    offsets = Offsets()
    offsets.by_group[GROUP] = {}
    with pytest.raises(AssertionError, match="without offsets"):
        offsets.drop(GROUP, PLACE, 5)


def test_a_partition_has_one_load_and_one_shard() -> None:
    world = GroupWorld()
    groups = world.groups
    first = shard_of(world)
    world.run(groups.load_partition(0, [], no_effects, 0))
    groups._shards[0] = first
    with pytest.raises(AssertionError, match="before the next one"):
        world.pass_time(0)
    world = GroupWorld()
    world.run(world.groups.load_partition(0, [], no_effects, 0))
    world.groups._loads[0].shard = first
    with pytest.raises(AssertionError, match="one load"):
        world.pass_time(0)


def test_a_closed_shard_serves_nobody() -> None:
    world = GroupWorld()
    with pytest.raises(AssertionError, match="serves nobody"):
        world.groups._close(shard_of(world), 0)


# ------------------------------------------------------------------------------------ producer ids


def test_a_producer_id_is_given_once() -> None:
    ids = ProducerIds(no_effects)
    with pytest.raises(AssertionError, match="given once"):
        ids._take()
    ids._next, ids._end = 2**63 - 1, 2**63
    with pytest.raises(AssertionError, match="given once"):
        ids._take()


def test_a_block_is_asked_for_and_given_once() -> None:
    ids = ProducerIds(no_effects)
    with pytest.raises(AssertionError, match="ends once"):
        ids._on_allocated(ProducerIdBlock(0, 1000), 0)
    ids.init(producer_id=-1, producer_epoch=-1, answer=nothing)
    ids._end = 1
    with pytest.raises(AssertionError, match="used up"):
        ids._on_allocated(ProducerIdBlock(1000, 1000), 0)
