"""Sessions, leaving, and static members. Spec C15; KIP-345, KIP-814."""

import pytest

from firnline.base.errors import Code
from tests.worlds.groups import GroupWorld


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_a_silent_member_is_out_after_its_session(world: GroupWorld) -> None:
    world.stable("a", session_ms=10_000)
    world.pass_time(9_999)
    assert world.state() == "Stable"
    world.pass_time(1)
    assert world.state() == "Empty"
    assert world.generation() == 2


def test_heartbeats_and_commits_keep_a_member_alive(world: GroupWorld) -> None:
    ids = world.stable("a", session_ms=10_000)
    world.pass_time(9_000)
    assert world.heartbeat(ids["a"], 1) is Code.NONE
    world.pass_time(9_000)
    world.commit("a", ("t", 0, 1), member_id=ids["a"], generation=1)
    world.pass_time(9_000)
    assert world.state() == "Stable"
    world.pass_time(1_000)
    assert world.state() == "Empty"


def test_a_member_that_waits_for_us_cannot_heartbeat_and_is_not_thrown_out(
    world: GroupWorld,
) -> None:
    ids = world.stable("a", "b", session_ms=10_000)
    world.join("a", ids["a"], metadata=b"new")
    world.pass_time(9_000)
    assert world.heartbeat(ids["b"], 1) is Code.REBALANCE_IN_PROGRESS
    world.pass_time(9_000)
    world.join("b", ids["b"])
    assert len(world.answer_to("a").members) == 2


def test_a_new_member_that_never_learns_of_a_generation_is_given_up(world: GroupWorld) -> None:
    """Goal: defunct joins do not pile up. Method: a rebalance that cannot end for ten minutes."""
    world.stable("a", session_ms=1_800_000, rebalance_ms=1_200_000)
    b = world.enter("b")
    world.pass_time(300_000)
    assert world.answer_to("b").code is Code.UNKNOWN_MEMBER_ID
    assert b not in [m.member_id for m in world.groups.describe("g").members]


@pytest.mark.parametrize(
    ("member", "generation", "instance", "code"),
    [
        ("a", 1, None, Code.NONE),
        ("a", 2, None, Code.ILLEGAL_GENERATION),
        ("nobody", 1, None, Code.UNKNOWN_MEMBER_ID),
        ("", 1, None, Code.UNKNOWN_MEMBER_ID),
        ("a", 1, "i", Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeats_of_unknown_brokers_are_refused(
    world: GroupWorld, member: str, generation: int, instance: str | None, code: Code
) -> None:
    ids = world.stable("a")
    assert world.heartbeat(ids.get(member, member), generation, instance=instance) is code


def test_heartbeats_to_groups_that_are_not_there(world: GroupWorld) -> None:
    assert world.heartbeat("a", 1, group="none") is Code.UNKNOWN_MEMBER_ID
    assert world.heartbeat("a", 1, group="") is Code.INVALID_GROUP_ID
    ids = world.stable("a")
    world.leave((ids["a"], None))
    assert world.heartbeat(ids["a"], 2) is Code.UNKNOWN_MEMBER_ID


def test_a_leaver_starts_a_rebalance_and_the_last_one_empties_the_group(world: GroupWorld) -> None:
    ids = world.stable("a", "b")
    assert world.leave((ids["b"], None)) == [Code.NONE]
    assert world.state() == "PreparingRebalance"
    assert world.leave((ids["a"], None)) == [Code.NONE]
    assert world.state() == "Empty"
    world.crash()
    assert (world.state(), world.generation()) == ("Empty", 2)


def test_a_batch_of_leavers_is_checked_one_by_one_and_rebalances_once(world: GroupWorld) -> None:
    ids = world.stable("a", "b", "c")
    codes = world.leave((ids["a"], None), ("nobody", None), (ids["b"], None))
    assert codes == [Code.NONE, Code.UNKNOWN_MEMBER_ID, Code.NONE]
    world.join("c", ids["c"])
    assert world.answer_to("c").generation_id == 2


def test_a_leaver_that_waits_for_an_answer_gets_one(world: GroupWorld) -> None:
    ids = world.stable("a", "b")
    world.join("a", ids["a"], metadata=b"new")
    world.leave((ids["a"], None))
    assert world.answer_to("a").code is Code.UNKNOWN_MEMBER_ID


def test_an_id_nobody_has_used_may_leave_without_disturbing_the_group(world: GroupWorld) -> None:
    world.stable("a")
    world.join("b")
    assert world.leave((world.answer_to("b").member_id, None)) == [Code.NONE]
    assert world.state() == "Stable"


def test_leaving_a_group_that_is_not_there(world: GroupWorld) -> None:
    assert world.leave(("a", None), group="none") == [Code.UNKNOWN_MEMBER_ID]
    assert world.leave(("a", None), group="") == [Code.INVALID_GROUP_ID]


# ------------------------------------------------------------------------------- static members


def static(world: GroupWorld, *names: str) -> dict[str, str]:
    """A Stable group of static members; each one's instance id is its name."""
    for name in names:
        world.join(name, instance=name)
    world.pass_time(20_000)
    results = {name: world.answer_to(name) for name in names}
    ids = {name: r.member_id for name, r in results.items()}
    parts = {member: name.encode() for name, member in ids.items()}
    for name in reversed(names):
        world.sync(name, ids[name], 1, instance=name, assignments=parts)
    for name in names:
        assert world.answer_to(name).assignment == name.encode()
    return ids


def test_a_static_member_needs_no_second_join_and_is_named_after_its_instance(
    world: GroupWorld,
) -> None:
    world.join("client", instance="rack-1")
    world.pass_time(3_000)
    assert world.answer_to("client").member_id.startswith("rack-1-")


def test_a_static_member_that_restarts_takes_its_place_without_a_rebalance(
    world: GroupWorld,
) -> None:
    ids = static(world, "a", "b")
    world.join("b", instance="b")
    back = world.answer_to("b")
    assert (back.code, back.generation_id) == (Code.NONE, 1)
    assert back.member_id != ids["b"]
    assert world.state() == "Stable"
    world.sync("b", back.member_id, 1, instance="b")
    assert world.answer_to("b").assignment == b"b"
    assert world.heartbeat(ids["b"], 1, instance="b") is Code.FENCED_INSTANCE_ID
    assert world.heartbeat(ids["b"], 1) is Code.UNKNOWN_MEMBER_ID


def test_a_restarted_static_member_is_known_by_its_new_id_after_a_crash(world: GroupWorld) -> None:
    static(world, "a", "b")
    world.join("b", instance="b")
    new = world.answer_to("b").member_id
    world.crash()
    assert world.heartbeat(new, 1, instance="b") is Code.NONE


def test_a_restarted_static_member_waits_until_its_new_id_is_committed(world: GroupWorld) -> None:
    static(world, "a")
    world.holds_appends = True
    world.join("a", instance="a")
    assert world.is_waiting("a")
    world.commit_appends()
    assert world.answer_to("a").code is Code.NONE


def test_a_restarted_static_member_whose_id_took_long_to_write_still_has_a_session(
    world: GroupWorld,
) -> None:
    static(world, "a")
    world.holds_appends = True
    world.join("a", instance="a")
    world.pass_time(31_000)
    world.commit_appends()
    assert world.answer_to("a").code is Code.NONE
    world.pass_time(29_999)
    assert world.state() == "Stable"
    world.pass_time(1)
    assert world.state() == "Empty"


def test_a_restarted_static_member_must_still_sync_in_time(world: GroupWorld) -> None:
    for name in "ab":
        world.join(name, instance=name, session_ms=300_000)
    world.pass_time(6_000)
    a = world.answer_to("a").member_id
    world.take_reported()
    world.sync("a", a, 1, instance="a")
    world.join("b", instance="b", session_ms=300_000)
    back = world.answer_to("b").member_id
    assert world.state() == "Stable"
    world.pass_time(60_000)
    assert world.heartbeat(back, 1) is Code.UNKNOWN_MEMBER_ID


def test_a_new_id_that_cannot_be_written_is_not_handed_out(world: GroupWorld) -> None:
    static(world, "a")
    world.holds_appends = True
    world.join("a", instance="a")
    world.fail_appends(Code.NOT_ENOUGH_REPLICAS)
    assert world.answer_to("a").code is Code.COORDINATOR_NOT_AVAILABLE
    world.holds_appends = False
    world.join("a", instance="a")
    assert world.answer_to("a").code is Code.NONE


def test_a_restarted_leader_shall_skip_the_assignment_or_learns_that_another_leads(
    world: GroupWorld,
) -> None:
    """Goal: no second plan for one generation. Method: the leader restarts, with v9 and with v8."""
    ids = static(world, "a", "b")
    world.join("a", instance="a", version=9)
    modern = world.answer_to("a")
    assert modern.leader == modern.member_id
    assert modern.skip_assignment
    assert {m.member_id for m in modern.members} == {modern.member_id, ids["b"]}
    world.join("a", instance="a", version=8)
    old = world.answer_to("a")
    assert old.leader == modern.member_id != old.member_id
    assert not old.skip_assignment
    assert old.members == ()


def test_a_restart_during_the_sync_phase_needs_a_new_generation(world: GroupWorld) -> None:
    for name in "ab":
        world.join(name, instance=name)
    world.pass_time(20_000)
    a, b = (world.answer_to(name).member_id for name in "ab")
    world.sync("b", b, 1, instance="b")
    world.join("b again", instance="b")
    assert world.answer_to("b").code is Code.FENCED_INSTANCE_ID
    assert world.state() == "PreparingRebalance"
    world.join("a", a, instance="a")
    assert world.answer_to("a").generation_id == world.answer_to("b again").generation_id == 2


def test_a_restart_while_joining_fences_the_older_request(world: GroupWorld) -> None:
    world.join("first", instance="i")
    world.join("second", instance="i")
    assert world.answer_to("first").code is Code.FENCED_INSTANCE_ID
    world.pass_time(20_000)
    assert world.answer_to("second").code is Code.NONE


def test_a_restart_with_another_protocol_rebalances(world: GroupWorld) -> None:
    world.join("a", instance="a", protocols=("range", "sticky"))
    world.pass_time(3_000)
    a = world.answer_to("a").member_id
    world.sync("a", a, 1, instance="a", assignments={})
    world.take_reported()
    world.join("a", instance="a", protocols=("sticky", "range"))
    assert world.answer_to("a").generation_id == 2


@pytest.mark.parametrize(
    ("member", "instance", "code"),
    [
        ("a-old", "a", Code.FENCED_INSTANCE_ID),
        ("a", "other", Code.UNKNOWN_MEMBER_ID),
        ("a", "a", Code.NONE),
    ],
)
def test_a_static_member_must_come_with_its_own_id(
    world: GroupWorld, member: str, instance: str, code: Code
) -> None:
    ids = static(world, "a")
    member_id = ids.get(member, member)
    assert world.heartbeat(member_id, 1, instance=instance) is code
    world.sync("s", member_id, 1, instance=instance)
    assert world.answer_to("s").code is code
    world.commit("c", ("t", 0, 1), member_id=member_id, generation=1, instance=instance)
    assert world.answer_to("c") == [code]
    world.join("j", member_id, instance=instance)
    assert world.answer_to("j").code is code
    assert world.leave((member_id, instance)) == [code]


def test_static_members_survive_a_rebalance_they_miss_until_their_session_ends(
    world: GroupWorld,
) -> None:
    ids = static(world, "a", "b")
    world.join("a", ids["a"], instance="a", metadata=b"new", session_ms=300_000)
    world.pass_time(9_000)
    world.heartbeat(ids["b"], 1, instance="b")
    group = world.groups._shards[0].groups["g"]
    group.members.by_id[ids["b"]].session_timeout_ms = 300_000
    world.heartbeat(ids["b"], 1, instance="b")
    world.pass_time(60_000)
    assert {m.member_id for m in world.answer_to("a").members} == set(ids.values())


def test_when_no_static_member_comes_the_join_phase_goes_on(world: GroupWorld) -> None:
    world.join("s", instance="s", session_ms=300_000)
    d = world.enter("d", session_ms=300_000)
    world.pass_time(20_000)
    s = world.answer_to("s").member_id
    world.take_reported()
    world.sync("d", d, 1)
    world.sync("s", s, 1, instance="s", assignments={})
    world.take_reported()
    world.leave((d, None))
    world.pass_time(60_000)
    assert (world.state(), world.generation()) == ("PreparingRebalance", 1)
    world.join("s", s, instance="s", session_ms=300_000)
    assert world.answer_to("s").generation_id == 2


def test_an_administrator_removes_a_static_member_by_its_instance(world: GroupWorld) -> None:
    static(world, "a", "b")
    assert world.leave(("", "b"), ("", "nobody")) == [Code.NONE, Code.UNKNOWN_MEMBER_ID]
    assert world.state() == "PreparingRebalance"
