"""All members of a large group wait for one event, and are answered in slices: nobody is lost between two."""

from itertools import pairwise
from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import Code
from firnline.coordinator.group_members import GroupMembers
from tests.worlds.groups import GROUP, GroupWorld, check_counts

COUNT = 250


class LargeGroup(GroupWorld):
    """A group of 250 members, all of whose joins wait. `ids` by who asked."""

    def __init__(self) -> None:
        super().__init__(group_initial_rebalance_delay_ms=0)
        self.ids = {f"c{n}": self.enter(f"c{n}") for n in range(COUNT)}

    def settle(self) -> None:
        """Have all joined and synced."""
        self.pass_time(0)
        self.take_reported()
        self.sync_all()
        self.pass_time(0)

    def sync_all(self, generation: int = 1) -> None:
        assignments = {member_id: who.encode() for who, member_id in self.ids.items()}
        for who, member_id in reversed(self.ids.items()):  # the leader, who came first, at last
            self.sync(who, member_id, generation, assignments=assignments)

    def begin(self) -> None:
        """End the join phase; nobody hears of it yet."""
        while not any(key[1] == "background" for key in self.timers):
            self.one_slice()
        assert self.reported == []

    def members(self) -> set[str]:
        return set(self.groups._shards[0].groups[GROUP].members.by_id)

    def sessions(self) -> set[str]:
        return {key[3] for key in self.timers if key[:3] == ("group", GROUP, "member")}


@pytest.fixture
def world() -> LargeGroup:
    return LargeGroup()


def test_members_learn_of_their_generation_some_at_a_time_in_their_order(world: LargeGroup) -> None:
    world.begin()
    reported = []
    while len(reported) < COUNT:
        world.one_slice()
        some = world.take_reported()
        assert 0 < len(some) <= 100
        reported += some
    assert [each.who for each in reported] == list(world.ids)
    assert {each.result.code for each in reported} == {Code.NONE}
    assert {each.result.generation_id for each in reported} == {1}
    assert [each.result.member_id for each in reported] == list(world.ids.values())
    assert [len(each.result.members) for each in reported] == [COUNT] + [0] * (COUNT - 1)


def test_members_learn_of_their_assignment_some_at_a_time(world: LargeGroup) -> None:
    world.pass_time(0)
    world.take_reported()
    world.sync_all()
    assert world.reported == []
    world.one_slice()
    assert len(world.reported) <= 100
    world.pass_time(0)
    reported = world.take_reported()
    assert [each.who for each in reported] == list(world.ids)
    assert [each.result.assignment for each in reported] == [who.encode() for who in world.ids]
    assert world.sessions() == set(world.ids.values())


def test_nobody_is_out_whose_answer_only_waits_for_its_slice(world: LargeGroup) -> None:
    """A member does not heartbeat before it is told."""
    world.settle()
    world.take_reported()
    for who, member_id in world.ids.items():  # the leader begins
        world.join(who, member_id)
    world.begin()
    world.one_slice()
    last = world.ids["c249"]
    due = world.timers.pop(("group", GROUP, "member", last))
    world.run(due.then(due.at_ms))
    assert last in world.members()
    world.pass_time(0)
    assert world.answer_to("c249").generation_id == 2
    assert last in world.sessions()
    world.sync_all(2)
    world.pass_time(0)
    world.take_reported()
    world.pass_time(30_001)
    assert world.members() == set(), "they are heard from no more, and are out in the end"


def test_who_leaves_before_it_is_notified_is_answered_and_has_no_session(world: LargeGroup) -> None:
    world.begin()
    last = world.ids["c249"]
    assert world.leave((last, None)) == [Code.NONE]
    world.pass_time(0)
    assert world.answer_to("c249").code is Code.UNKNOWN_MEMBER_ID
    assert last not in world.sessions()
    assert len(world.take_reported()) == COUNT - 1


def test_who_is_not_notified_when_a_rebalance_begins_has_joined_for_the_next_generation(
    world: LargeGroup,
) -> None:
    """Goal: nobody hears of a generation that is over. Method: a slice is told, then a newcomer joins."""
    world.begin()
    world.one_slice()
    first = world.take_reported()
    assert {each.result.generation_id for each in first} == {1}
    world.ids["late"] = world.enter("late")
    world.pass_time(0)
    assert world.reported == []
    assert world.heartbeat(first[0].result.member_id, 1) is Code.REBALANCE_IN_PROGRESS
    for each in first:
        world.join(each.who, each.result.member_id)
    world.pass_time(0)
    reported = world.take_reported()
    assert [each.who for each in reported] == list(world.ids)
    assert {(each.result.code, each.result.generation_id) for each in reported} == {(Code.NONE, 2)}
    world.sync_all(2)
    world.pass_time(0)
    assert world.state() == "Stable"
    assert world.sessions() == set(world.ids.values())


def test_who_is_notified_while_the_partition_is_left_begins_no_session(world: LargeGroup) -> None:
    """Timers of a group have the same names in the next term."""
    world.begin()
    world.unload()
    assert len(world.take_reported()) == COUNT
    assert world.sessions() == set()


class Looked(dict):  # type: ignore[type-arg]
    """Members, and how often somebody looked at all of them."""

    checks = 0

    def values(self):  # type: ignore[no-untyped-def]
        self.checks += 1
        return super().values()


def looked(world: LargeGroup) -> Looked:
    membership: GroupMembers = world.groups._shards[0].groups[GROUP].members
    members = Looked(membership.by_id)
    membership.by_id = members
    return members


def test_a_thousand_leave_without_a_look_at_all_members_for_each(world: LargeGroup) -> None:
    """Goal: no step of seconds. Method: the members are only ever asked for one by one."""
    world.settle()
    members = looked(world)
    assert set(world.leave(*[(each, None) for each in world.ids.values()])) == {Code.NONE}
    assert world.members() == set()
    assert members.checks < 10


def test_a_thousand_join_and_join_again_without_a_look_at_all_members_for_each(
    world: LargeGroup,
) -> None:
    members = looked(world)
    for n in range(COUNT, 2 * COUNT):  # in the first join phase
        world.ids[f"c{n}"] = world.enter(f"c{n}")
    assert members.checks == 0
    world.settle()
    world.take_reported()
    members.checks = 0
    for who, member_id in world.ids.items():  # the leader begins, the last one ends the join phase
        world.join(who, member_id)
        assert members.checks == 0 or who == list(world.ids)[-1]
    world.pass_time(0)
    assert {each.result.generation_id for each in world.take_reported()} == {2}
    for n in range(2 * COUNT, 3 * COUNT):  # while others are expected
        world.enter(f"c{n}")
    assert members.checks < 10
    check_counts(world.groups)


def slices(world: LargeGroup) -> list[int]:
    """Do what is to be done now; return how many members each slice took out."""
    counts = []
    while ("group", "background") in world.timers:
        before = len(world.members())
        one(world)
        check_counts(world.groups)
        counts.append(before - len(world.members()))
    return counts


def one(world: LargeGroup) -> None:
    """Do one slice, whatever timers are due."""
    world.run(world.timers.pop(("group", "background")).then(world.now_ms))


def fire(world: LargeGroup, what: str) -> None:
    """Let the join phase, or the wait for syncs, be over."""
    due = world.timers.pop(("group", GROUP, what, ""))
    world.now_ms = max(world.now_ms, due.at_ms)
    world.run(due.then(world.now_ms))


def test_who_does_not_come_again_is_out_some_at_a_time(world: LargeGroup) -> None:
    world.settle()
    world.take_reported()
    world.join("c0", world.ids["c0"])
    fire(world, "join")
    assert world.members() == set(world.ids.values()), "nothing is done in the step of the timer"
    counts = slices(world)
    assert sum(counts) == COUNT - 1
    assert max(counts) <= 100
    assert world.answer_to("c0").generation_id == 2
    assert world.members() == {world.ids["c0"]}


def test_who_comes_while_others_are_taken_out_stays(world: LargeGroup) -> None:
    world.settle()
    world.take_reported()
    world.join("c0", world.ids["c0"])
    fire(world, "join")
    one(world)
    world.join("c249", world.ids["c249"])
    world.enter("late")
    slices(world)
    reported = {each.who: each.result for each in world.take_reported()}
    assert reported.keys() == {"c0", "c249", "late"}
    assert {each.generation_id for each in reported.values()} == {2}
    assert len(world.members()) == 3


def test_a_join_phase_that_ends_while_others_are_taken_out_is_not_ended_twice(
    world: LargeGroup,
) -> None:
    """Goal: the generation of those who are there goes on. Method: who is left leaves or joins in between."""
    world.settle()
    world.take_reported()
    world.join("c0", world.ids["c0"])
    fire(world, "join")
    one(world)
    absent = world.members() - {world.ids["c0"]}
    world.leave(*[(each, None) for each in absent])
    assert world.generation() == 2
    assert world.answer_to("c0").generation_id == 2
    world.enter("late")  # a join phase of the next generation, in which c0 is absent
    slices(world)
    assert world.is_waiting("late")
    assert world.ids["c0"] in world.members()
    assert (world.state(), world.generation()) == ("PreparingRebalance", 2)


def test_who_came_in_time_is_not_taken_out_of_the_next_generation(world: LargeGroup) -> None:
    """Few are left, and told at once: what is left of the slices finds them absent in the next join phase."""
    world.settle()
    world.take_reported()
    world.join("c0", world.ids["c0"])
    fire(world, "join")
    one(world)
    one(world)
    for who in [who for who, member_id in world.ids.items() if member_id in world.members()]:
        if who != "c0":
            world.join(who, world.ids[who])
    assert {each.result.generation_id for each in world.take_reported()} == {2}
    world.enter("late")
    slices(world)
    assert len(world.members()) == 51


def test_a_group_that_is_left_while_absent_members_are_taken_out_writes_nothing_more(
    world: LargeGroup,
) -> None:
    world.settle()
    world.take_reported()
    world.join("c0", world.ids["c0"])
    fire(world, "join")
    one(world)
    size = len(world.log)
    world.unload()
    assert [each.who for each in world.reported] == ["c0"]
    assert len(world.log) == size
    assert {key for key in world.timers if key[:2] == ("group", GROUP)} == set()


def test_members_that_never_sync_are_out_some_at_a_time(world: LargeGroup) -> None:
    world.settle()
    world.take_reported()
    for who, member_id in world.ids.items():
        world.join(who, member_id)
    world.pass_time(0)
    world.take_reported()
    world.sync("c7", world.ids["c7"], 2)
    fire(world, "sync")
    assert world.state() == "PreparingRebalance", "members do not change in CompletingRebalance"
    assert len(world.members()) == COUNT
    world.join("c7 again", world.ids["c7"])
    counts = slices(world)
    assert sum(counts) == COUNT - 1
    assert max(counts) <= 100
    assert world.answer_to("c7").code is Code.REBALANCE_IN_PROGRESS
    assert world.answer_to("c7 again").generation_id == 3


def test_the_wait_for_joins_is_not_that_of_a_member_that_is_out(world: LargeGroup) -> None:
    """One that may take half an hour to join never synced."""
    world.settle()
    world.take_reported()
    for who, member_id in world.ids.items():
        world.join(who, member_id, rebalance_ms=1_800_000 if who == "c9" else 60_000)
    world.pass_time(0)
    world.take_reported()
    world.sync("c7", world.ids["c7"], 2)
    fire(world, "sync")
    slices(world)
    assert world.timers["group", GROUP, "join", ""].at_ms == world.now_ms + 60_000


def test_a_join_phase_that_is_over_before_all_who_never_synced_are_out_waits_for_nobody(
    world: LargeGroup,
) -> None:
    world.settle()
    world.take_reported()
    for who, member_id in world.ids.items():
        world.join(who, member_id)
    world.pass_time(0)
    world.take_reported()
    fire(world, "sync")
    for who, member_id in world.ids.items():
        world.join(who, member_id)
    assert (world.state(), world.generation()) == ("CompletingRebalance", 3)
    slices(world)
    assert {each.result.generation_id for each in world.take_reported()} == {3}
    assert ("group", GROUP, "join", "") not in world.timers
    assert len(world.members()) == COUNT


def test_members_are_taken_from_a_record_some_at_a_time(
    world: LargeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.settle()
    added: list[object] = []
    add = GroupMembers.add

    def noted(self: GroupMembers, member: Any) -> None:
        added.append(member)
        add(self, member)

    monkeypatch.setattr(GroupMembers, "add", noted)
    world.unload()
    world.run(world.groups.load_partition(0, [bytes(world.log)], lambda p, now: [], world.now_ms))
    counts = [0]
    while ("group", "background") in world.timers:
        one(world)
        counts.append(len(added))
    steps = [after - before for before, after in pairwise(counts)]
    assert (sum(steps), max(steps)) == (COUNT, 200)
    assert world.members() == set(world.ids.values())


def test_a_large_group_is_left_and_loaded_some_members_at_a_time(world: LargeGroup) -> None:
    """Goal: no step goes over all. Method: count the timers that each step sets or cancels."""
    world.settle()
    world.take_reported()
    counts: list[int] = []
    run = world.run

    def counted(effects: Effects) -> None:
        counts.append(len(effects))
        run(effects)

    world.run = counted  # type: ignore[method-assign]
    world.unload()
    assert world.sessions() == set()
    world.load(bytes(world.log))
    assert world.sessions() == set(world.ids.values())
    assert sum(counts) > 2 * COUNT
    assert max(counts) <= 205
