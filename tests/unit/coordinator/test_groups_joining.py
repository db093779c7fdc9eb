"""Joining, syncing and the generations of a group. Spec C15; KIP-394, KIP-134, KIP-814."""

from dataclasses import replace
from time import thread_time

import pytest

from firnline.base.errors import Code
from firnline.coordinator.membership import choose_protocol
from tests.worlds.groups import GroupWorld


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_the_first_join_only_gets_an_id_so_that_a_lost_answer_leaves_no_ghost(
    world: GroupWorld,
) -> None:
    world.join("a")
    asked = world.answer_to("a")
    assert asked.code is Code.MEMBER_ID_REQUIRED
    assert asked.member_id == "a-00000000-0000-0000-0000-000000000001"
    assert world.groups.describe("g").members == ()


def test_versions_below_4_are_let_in_without_a_second_join(world: GroupWorld) -> None:
    world.join("a", version=3)
    world.pass_time(3_000)
    assert world.answer_to("a").generation_id == 1


@pytest.mark.parametrize("letter", ["c", "ä", "\N{SNOWFLAKE}", "\N{GRINNING FACE}"])
@pytest.mark.parametrize("static", [None, "instance"])
def test_a_client_with_the_longest_name_gets_an_id_that_can_be_sent_and_stored(
    world: GroupWorld, letter: str, static: str | None
) -> None:
    """Kafka 4.3.1 lets it in and cannot tell it so: a member that nobody is."""
    name = letter * (32_767 // len(letter.encode()))
    world.join(name, version=3, instance=static and name)
    world.pass_time(3_000)
    joined = world.answer_to(name)
    assert 32_700 < len(joined.member_id.encode()) <= 32_767
    assert joined.member_id.endswith("-00000000-0000-0000-0000-000000000001")
    world.sync(name, joined.member_id, 1, assignments={joined.member_id: b"all"})
    assert world.answer_to(name).assignment == b"all"
    world.crash()
    (member,) = world.groups.describe("g").members
    assert member.member_id == joined.member_id


def test_an_id_nobody_comes_with_is_forgotten_and_so_is_its_group(world: GroupWorld) -> None:
    world.join("a", session_ms=6_000)
    given = world.answer_to("a").member_id
    world.pass_time(6_000)
    assert world.listed()[1] == []
    world.join("a", given)
    assert world.answer_to("a").code is Code.UNKNOWN_MEMBER_ID
    world.crash()
    assert world.listed()[1] == []


def bound(world: GroupWorld, name: str, value: int) -> None:
    object.__setattr__(world.groups.policy, name, value)


def test_who_joins_new_groups_and_never_goes_on_locks_nobody_out(world: GroupWorld) -> None:
    """Goal: rel d 55. Method: a bound of 30; one address floods, others join meanwhile and afterwards."""
    bound(world, "pending_members_max", 30)
    world.join("early", group="early", host="/10.0.0.2")
    early = world.answer_to("early").member_id
    for number in range(200):
        world.join("flood", group=f"flood {number}", host="/10.0.0.1")
        assert world.answer_to("flood").code is Code.MEMBER_ID_REQUIRED
        assert world.groups.pending_members <= 30
    assert world.groups.group_count <= 30
    assert world.groups.evicted_members == 171
    world.join("early", early, group="early", host="/10.0.0.2")
    world.join("late", group="late", host="/10.0.0.3")
    world.join("late", world.answer_to("late").member_id, group="late", host="/10.0.0.3")
    world.pass_time(3_000)
    assert world.answer_to("early").generation_id == world.answer_to("late").generation_id == 1
    (line,) = world.warnings
    assert " host=10.0.0.1 " in line
    world.pass_time(30_000)
    assert world.groups.pending_members == 0
    world.crash()
    assert {row.group_id for row in world.listed()[1]} == {"early", "late"}


def test_an_id_that_made_room_for_others_is_unknown_and_its_client_begins_anew(
    world: GroupWorld,
) -> None:
    bound(world, "pending_members_max", 1)
    world.join("a", group="one")
    given = world.answer_to("a").member_id
    world.join("b", group="two")
    assert world.answer_to("b").code is Code.MEMBER_ID_REQUIRED
    world.join("a", given, group="one")
    assert world.answer_to("a").code is Code.UNKNOWN_MEMBER_ID
    world.enter("a", group="one")
    world.pass_time(3_000)
    assert world.answer_to("a").generation_id == 1


def test_ids_of_thirty_kilobytes_each_hold_no_more_than_the_bound(world: GroupWorld) -> None:
    bound(world, "pending_bytes_max", 1_000_000)
    for number in range(100):
        world.join("x" * 32_000, group=f"{number}")
        world.take_reported()
    assert 20 < world.groups.pending_members < 32


def test_a_flood_of_ids_in_one_group_forgets_its_oldest_and_keeps_its_members(
    world: GroupWorld,
) -> None:
    bound(world, "pending_of_group_max", 10)
    member = world.enter("a")
    world.pass_time(3_000)
    assert world.answer_to("a").generation_id == 1
    world.sync("a", member, 1, assignments={member: b"all"})
    assert world.answer_to("a").assignment == b"all"
    for _ in range(100):
        world.join("flood")
        assert world.answer_to("flood").code is Code.MEMBER_ID_REQUIRED
    assert world.groups.pending_members == 10
    assert world.heartbeat(member, 1) is Code.NONE


def test_members_with_huge_subscriptions_hold_a_bound_and_leave_room_for_others() -> None:
    """Goal: a member of 90 MB for each group took all memory. Method: 100 of 100 KB, 1 MB in all."""
    world = GroupWorld(group_initial_rebalance_delay_ms=0)
    bound(world, "members_bytes_max", 1_000_000)
    codes = []
    for number in range(100):
        name = f"flood {number}"
        world.join(name, group=name, metadata=b"x" * 100_000, version=3, host="/10.0.0.1")
        world.pass_time(0)
        codes.append(world.answer_to(name).code)
    assert codes.count(Code.NONE) == 5
    assert set(codes[5:]) == {Code.COORDINATOR_NOT_AVAILABLE}
    world.join("friend", version=3, host="/10.0.0.2", metadata=b"x" * 10_000)
    world.pass_time(0)
    friend = world.answer_to("friend")
    assert friend.code is Code.NONE
    # It goes on with what it has, and may not be told of an assignment that is too large.
    everything = {friend.member_id: b"x" * 600_000}
    world.sync("friend", friend.member_id, 1, assignments=everything)
    assert world.answer_to("friend").code is Code.COORDINATOR_NOT_AVAILABLE
    world.sync("friend", friend.member_id, 1, assignments={friend.member_id: b"x" * 60_000})
    assert world.answer_to("friend").code is Code.NONE
    assert world.groups.refused_members == 96
    assert " host=10.0.0.1 " in world.warnings[0]
    held = world.groups.members_held_bytes
    world.crash()
    bound(world, "members_bytes_max", 1_000_000)
    assert world.groups.members_held_bytes <= held
    world.pass_time(60 * 60_000)
    assert world.groups.members_held_bytes == 0


def test_the_first_member_waits_for_the_others_and_each_newcomer_prolongs_it(
    world: GroupWorld,
) -> None:
    world.enter("a")
    world.pass_time(2_000)
    world.enter("b")
    world.pass_time(1_500)
    assert world.is_waiting("a")
    world.pass_time(1_500)
    assert world.is_waiting("a")
    world.pass_time(1_000)
    assert world.answer_to("a").generation_id == world.answer_to("b").generation_id == 1


def test_waiting_for_more_members_ends_with_the_rebalance_timeout() -> None:
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    world.enter("a", rebalance_ms=7_000)
    for name in "bcdefghij":
        world.pass_time(1_000)
        world.enter(name, rebalance_ms=7_000)
    assert not world.is_waiting("a")


def test_only_the_leader_sees_the_members_and_their_subscriptions(world: GroupWorld) -> None:
    a = world.enter("a", metadata=b"of a")
    b = world.enter("b", metadata=b"of b")
    world.pass_time(10_000)
    leader, other = world.answer_to("a"), world.answer_to("b")
    assert leader.leader == other.leader == a
    assert [(m.member_id, m.metadata) for m in leader.members] == [(a, b"of a"), (b, b"of b")]
    assert other.members == ()
    assert (other.protocol_type, other.protocol_name) == ("consumer", "range")


def test_the_protocol_most_members_prefer_among_the_shared_ones_wins(world: GroupWorld) -> None:
    world.enter("a", protocols=("fast", "range", "sticky"))
    world.enter("b", protocols=("sticky", "range"))
    world.enter("c", protocols=("range", "sticky"))
    world.pass_time(20_000)
    # `fast` is a's alone; a and c vote for range, b for sticky.
    assert world.answer_to("b").protocol_name == "range"


def test_votes_decide_before_the_leaders_taste_and_the_leaders_taste_before_any_order() -> None:
    xy, yx, shared = ("x", "y"), ("y", "x"), {"x", "y"}
    assert choose_protocol([(xy, 1), (yx, 2)], xy, shared) == "y"
    assert choose_protocol([(xy, 1), (yx, 1)], xy, shared) == "x"
    assert choose_protocol([(xy, 1), (yx, 1)], yx, shared) == "y"
    assert choose_protocol([(("z", *xy), 2), (yx, 1)], yx, shared) == "x", "not all can run z"


def test_what_is_counted_of_members_goes_with_the_partition_and_comes_back_with_it(
    world: GroupWorld,
) -> None:
    groups = world.groups
    world.stable("a", "b", session_ms=1_800_000)
    world.join("pending")
    held_bytes = groups.members_held_bytes
    for _ in range(3):
        assert groups.members_held_bytes == held_bytes > 0
        world.unload()
        assert (groups.members_held_bytes, groups.pending_members) == (0, 0)
        world.load(bytes(world.log))
    # Another load begins before this one ends.
    world.run(groups.load_partition(0, [bytes(world.log)], lambda *_: [], world.now_ms))
    world.unload()
    assert (groups.members_held_bytes, groups.group_count) == (0, 0)
    assert not groups._member_counts._held_of


def test_who_names_more_assignors_than_there_can_be_is_refused(world: GroupWorld) -> None:
    """Kafka has no bound: a request of 450,000 held the loop for a second."""
    world.join("a", version=3, protocols=[f"{number}" for number in range(1_001)])
    assert world.answer_to("a").code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.groups.group_count == 0
    world.join("a", version=3, protocols=[f"{number}" for number in range(1_000)])
    world.pass_time(3_000)
    assert world.answer_to("a").protocol_name == "0"


def test_twenty_thousand_assignors_of_a_member_hold_up_nobody(world: GroupWorld) -> None:
    """Goal: 100 KB held the loop for 7 s, each name looked for among all others, and took 30 times what was
    counted. Method: the processor's time, for twice as much."""
    bound(world, "protocols_max", 20_002)
    names = [f"a{number}" for number in range(20_000)]
    began_s = thread_time()
    world.join("one", version=3, protocols=[*names, "shared"])
    world.join("two", version=3, protocols=["other", *reversed(names), "shared"])
    world.join("three", version=3, protocols=[name + "?" for name in names])
    assert world.answer_to("three").code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.groups.members_held_bytes > 2 * 20_000 * 150
    world.join("four", version=3, protocols=["shared"])
    world.pass_time(12_000)
    assert thread_time() - began_s < 3
    assert {world.answer_to(who).protocol_name for who in ("one", "two", "four")} == {"shared"}


def test_a_draw_between_protocols_goes_to_the_leader(world: GroupWorld) -> None:
    world.enter("a", protocols=("sticky", "range"))
    world.enter("b", protocols=("range", "sticky"))
    world.pass_time(20_000)
    assert world.answer_to("b").protocol_name == "sticky"


@pytest.mark.parametrize(
    ("protocols", "protocol_type"),
    [(("other",), "consumer"), (("range",), "connect"), ((), "consumer")],
)
def test_a_member_that_shares_no_protocol_is_refused(
    world: GroupWorld, protocols: tuple[str, ...], protocol_type: str
) -> None:
    world.stable("a")
    world.join("b", protocols=protocols, protocol_type=protocol_type)
    assert world.answer_to("b").code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.state() == "Stable"


def test_a_first_member_without_protocols_leaves_no_group(world: GroupWorld) -> None:
    world.join("a", protocols=())
    assert world.answer_to("a").code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.listed()[1] == []
    assert world.log == b""


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_sessions_out_of_bounds_are_refused(world: GroupWorld, session_ms: int) -> None:
    world.join("a", session_ms=session_ms)
    assert world.answer_to("a").code is Code.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_sessions_at_the_bounds_are_accepted(world: GroupWorld, session_ms: int) -> None:
    world.join("a", session_ms=session_ms)
    assert world.answer_to("a").code is Code.MEMBER_ID_REQUIRED


def test_a_join_without_a_group_id_is_refused(world: GroupWorld) -> None:
    world.join("a", group="")
    assert world.answer_to("a").code is Code.INVALID_GROUP_ID


def test_a_full_stable_group_takes_nobody_new_and_keeps_its_own() -> None:
    world = GroupWorld(group_max_size=2)
    ids = world.stable("a", "b")
    world.join("c")
    assert world.answer_to("c").code is Code.GROUP_MAX_SIZE_REACHED
    world.join("a", ids["a"])  # the leader may rebalance all the same
    world.join("b", ids["b"])
    assert world.answer_to("a").code is Code.NONE
    assert world.answer_to("b").code is Code.NONE


def test_while_joining_the_last_one_too_many_is_turned_away() -> None:
    world = GroupWorld(group_max_size=2)
    ids = {name: world.enter(name) for name in "ab"}
    world.join("c", version=3)
    assert world.answer_to("c").code is Code.GROUP_MAX_SIZE_REACHED
    world.pass_time(20_000)
    assert {world.answer_to(name).member_id for name in "ab"} == set(ids.values())


def test_a_loaded_group_that_is_too_large_now_loses_its_last() -> None:
    world = GroupWorld()
    ids = world.stable("a", "b", "c")
    world.settings = replace(world.settings, group_max_size=2)
    world.crash()
    assert world.state() == "PreparingRebalance"
    for name in "abc":
        world.join(name, ids[name])
    assert world.answer_to("c").code is Code.GROUP_MAX_SIZE_REACHED
    assert world.answer_to("a").generation_id == world.answer_to("b").generation_id == 2


def test_a_member_of_a_group_that_is_not_here_is_unknown(world: GroupWorld) -> None:
    world.join("a", "a-of-another-life")
    assert world.answer_to("a").code is Code.UNKNOWN_MEMBER_ID
    assert world.listed()[1] == []


def test_a_newcomer_sends_a_stable_group_into_a_rebalance(world: GroupWorld) -> None:
    ids = world.stable("a", "b")
    c = world.enter("c")
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(ids["a"], 1) is Code.REBALANCE_IN_PROGRESS
    world.join("a", ids["a"])
    world.join("b", ids["b"])
    assert {world.answer_to(n).generation_id for n in "abc"} == {2}
    assert world.heartbeat(c, 1) is Code.ILLEGAL_GENERATION


def test_a_follower_that_joins_again_with_the_same_subscription_disturbs_nobody(
    world: GroupWorld,
) -> None:
    ids = world.stable("a", "b")
    world.join("b", ids["b"])
    again = world.answer_to("b")
    assert (again.code, again.generation_id, again.members) == (Code.NONE, 1, ())
    assert world.state() == "Stable"


def test_a_follower_with_another_subscription_and_a_leader_in_any_case_rebalance(
    world: GroupWorld,
) -> None:
    ids = world.stable("a", "b")
    world.join("b", ids["b"], metadata=b"new topics")
    assert world.state() == "PreparingRebalance"
    world.join("a", ids["a"])
    parts = {ids["a"]: b"", ids["b"]: b""}
    world.sync("b", ids["b"], world.answer_to("b").generation_id)
    world.sync("a", ids["a"], world.answer_to("a").generation_id, assignments=parts)
    assert world.state() == "Stable"
    world.join("a", ids["a"])
    assert world.state() == "PreparingRebalance"


def test_a_join_whose_answer_was_lost_gets_the_same_generation_again(world: GroupWorld) -> None:
    a = world.enter("a")
    world.pass_time(3_000)
    first = world.answer_to("a")
    world.join("a", a)
    assert world.answer_to("a") == first
    assert world.state() == "CompletingRebalance"


def test_a_second_join_of_one_member_frees_the_first_request(world: GroupWorld) -> None:
    """Goal: no connection waits for ever. Method: the same member joins twice while joining."""
    a = world.enter("a")
    world.join("a again", a)
    assert world.answer_to("a").code is Code.REBALANCE_IN_PROGRESS
    world.pass_time(3_000)
    assert world.answer_to("a again").code is Code.NONE


def test_members_that_do_not_come_back_in_time_are_out(world: GroupWorld) -> None:
    ids = world.stable("a", "b", session_ms=300_000)
    world.join("a", ids["a"], metadata=b"new")
    world.pass_time(59_999)
    assert world.is_waiting("a")
    world.pass_time(1)
    joined = world.answer_to("a")
    assert [m.member_id for m in joined.members] == [ids["a"]]
    assert world.heartbeat(ids["b"], 2) is Code.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_come_back_is_succeeded(world: GroupWorld) -> None:
    ids = world.stable("a", "b", session_ms=300_000)
    world.join("b", ids["b"], metadata=b"new")
    world.pass_time(60_000)
    assert world.answer_to("b").leader == ids["b"]


def test_followers_wait_for_the_leader_and_members_without_a_part_get_none(
    world: GroupWorld,
) -> None:
    a, b = world.enter("a"), world.enter("b")
    world.pass_time(20_000)
    world.take_reported()
    world.sync("b", b, 1)
    assert world.is_waiting("b")
    world.sync("a", a, 1, assignments={a: b"all", "stranger": b"x"})
    assert world.answer_to("a").assignment == b"all"
    assert world.answer_to("b").assignment == b""


def test_nobody_learns_of_an_assignment_before_it_is_committed(world: GroupWorld) -> None:
    a = world.enter("a")
    world.pass_time(3_000)
    world.take_reported()
    world.holds_appends = True
    world.sync("a", a, 1, assignments={a: b"all"})
    assert world.is_waiting("a")
    assert world.state() == "CompletingRebalance"
    world.commit_appends()
    assert world.answer_to("a").assignment == b"all"
    assert world.state() == "Stable"


def test_a_leader_that_syncs_again_while_it_is_written_writes_once(world: GroupWorld) -> None:
    """Goal: log and memory never hold two plans of one generation. Method: two plans in a row."""
    a = world.enter("a")
    world.pass_time(3_000)
    world.take_reported()
    world.holds_appends = True
    world.sync("a", a, 1, assignments={a: b"first"})
    world.sync("a again", a, 1, assignments={a: b"second"})
    assert len(world.appends) == 1
    assert world.answer_to("a").code is Code.REBALANCE_IN_PROGRESS
    world.commit_appends()
    assert world.answer_to("a again").assignment == b"first"


def test_an_assignment_that_cannot_be_written_leads_to_a_new_generation(world: GroupWorld) -> None:
    a, b = world.enter("a"), world.enter("b")
    world.pass_time(20_000)
    world.take_reported()
    world.holds_appends = True
    world.sync("b", b, 1)
    world.sync("a", a, 1, assignments={a: b"", b: b""})
    world.fail_appends(Code.NOT_ENOUGH_REPLICAS)
    assert world.answer_to("a").code is Code.COORDINATOR_NOT_AVAILABLE
    assert world.answer_to("b").code is Code.COORDINATOR_NOT_AVAILABLE
    assert world.state() == "PreparingRebalance"


def test_an_assignment_committed_after_a_rebalance_began_changes_nothing(
    world: GroupWorld,
) -> None:
    a = world.enter("a")
    world.pass_time(3_000)
    world.take_reported()
    world.holds_appends = True
    world.sync("a", a, 1, assignments={a: b"old"})
    world.enter("b")
    assert world.answer_to("a").code is Code.REBALANCE_IN_PROGRESS
    world.commit_appends()
    assert world.state() == "PreparingRebalance"


def test_an_assignment_of_an_older_generation_is_not_taken_for_the_running_one(
    world: GroupWorld,
) -> None:
    a = world.enter("a")
    world.pass_time(3_000)
    world.take_reported()
    world.holds_appends = True
    world.sync("a", a, 1, assignments={a: b"old"})
    world.enter("b")
    world.take_reported()
    world.join("a", a)
    assert (world.state(), world.generation()) == ("CompletingRebalance", 2)
    world.commit_appends()
    assert world.state() == "CompletingRebalance"


def test_members_that_join_and_never_sync_are_out_after_the_rebalance_timeout(
    world: GroupWorld,
) -> None:
    a, b = (world.enter(n, session_ms=300_000) for n in "ab")
    world.pass_time(6_000)
    world.take_reported()
    world.sync("a", a, 1, assignments={a: b"", b: b""})
    assert world.answer_to("a").code is Code.NONE
    world.pass_time(59_999)
    assert world.state() == "Stable"
    world.pass_time(1)
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(b, 1) is Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member", "generation", "options", "code"),
    [
        ("a", 2, {}, Code.ILLEGAL_GENERATION),
        ("a", 0, {}, Code.ILLEGAL_GENERATION),
        ("nobody", 1, {}, Code.UNKNOWN_MEMBER_ID),
        ("a", 1, {"instance": "i"}, Code.UNKNOWN_MEMBER_ID),
        ("a", 1, {"protocol_type": "connect"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ("a", 1, {"protocol_name": "sticky"}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ("a", 1, {"group": "other"}, Code.UNKNOWN_MEMBER_ID),
        ("a", 1, {"group": ""}, Code.INVALID_GROUP_ID),
        ("a", 1, {"protocol_type": "consumer", "protocol_name": "range"}, Code.NONE),
    ],
)
def test_a_sync_must_name_the_member_its_generation_and_its_protocol(
    world: GroupWorld, member: str, generation: int, options: dict[str, str], code: Code
) -> None:
    ids = world.stable("a")
    world.sync("s", ids.get(member, member), generation, **options)  # type: ignore[arg-type]
    assert world.answer_to("s").code is code


def test_a_sync_during_the_join_phase_sends_the_member_to_join(world: GroupWorld) -> None:
    ids = world.stable("a")
    world.enter("b")
    world.sync("a", ids["a"], 1)
    assert world.answer_to("a").code is Code.REBALANCE_IN_PROGRESS


def test_generations_wrap_before_they_leave_int32(world: GroupWorld) -> None:
    ids = world.stable("a")
    world.groups._shards[0].groups["g"].generation = 2**31 - 1
    world.join("a", ids["a"])
    assert world.answer_to("a").generation_id == 1


def test_a_group_at_rest_keeps_no_timer_but_its_members_sessions(world: GroupWorld) -> None:
    world.stable("a", "b")
    assert sorted(key[2] for key in world.timers if len(key) == 4) == ["member", "member"]
    assert len(world.timers) == 3
