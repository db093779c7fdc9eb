"""All members of a large group wait for one event, and are answered in slices: nobody is lost between two."""

import pytest

from firnline.base.errors import Code
from firnline.coordinator.roster import Roster
from tests.unit.coordinator.group_world import GROUP, GroupWorld

COUNT = 250


class LargeGroup(GroupWorld):
    """A group of 250 members, all of whose joins wait. `ids` by who asked."""

    def __init__(self) -> None:
        super().__init__(group_initial_rebalance_delay_ms=0)
        self.ids = {f"c{n}": self.enter(f"c{n}") for n in range(COUNT)}

    def settle(self) -> None:
        """Have all joined and synced."""
        self.advance(0)
        self.take_told()
        self.sync_all()
        self.advance(0)

    def sync_all(self, generation: int = 1) -> None:
        assignments = {member_id: who.encode() for who, member_id in self.ids.items()}
        for who, member_id in reversed(self.ids.items()):  # the leader, who came first, at last
            self.sync(who, member_id, generation, assignments=assignments)

    def begin(self) -> None:
        """End the join phase; nobody hears of it yet."""
        while not any(key[1] == "background" for key in self.timers):
            self.one_slice()
        assert self.told == []

    def members(self) -> set[str]:
        return set(self.groups._shards[0].groups[GROUP].roster.members)

    def sessions(self) -> set[str]:
        return {key[3] for key in self.timers if key[:3] == ("group", GROUP, "member")}


@pytest.fixture
def world() -> LargeGroup:
    return LargeGroup()


def test_members_hear_of_their_generation_some_at_a_time_in_their_order(world: LargeGroup) -> None:
    world.begin()
    told = []
    while len(told) < COUNT:
        world.one_slice()
        some = world.take_told()
        assert 0 < len(some) <= 100
        told += some
    assert [each.who for each in told] == list(world.ids)
    assert {each.result.code for each in told} == {Code.NONE}
    assert {each.result.generation_id for each in told} == {1}
    assert [each.result.member_id for each in told] == list(world.ids.values())
    assert [len(each.result.members) for each in told] == [COUNT] + [0] * (COUNT - 1)


def test_members_hear_of_their_assignment_some_at_a_time(world: LargeGroup) -> None:
    world.advance(0)
    world.take_told()
    world.sync_all()
    assert world.told == []
    world.one_slice()
    assert len(world.told) <= 100
    world.advance(0)
    told = world.take_told()
    assert [each.who for each in told] == list(world.ids)
    assert [each.result.assignment for each in told] == [who.encode() for who in world.ids]
    assert world.sessions() == set(world.ids.values())


def test_nobody_is_out_whose_answer_only_waits_for_its_slice(world: LargeGroup) -> None:
    """A member does not heartbeat before it is told."""
    world.settle()
    world.take_told()
    for who, member_id in world.ids.items():  # the leader begins
        world.join(who, member_id)
    world.begin()
    world.one_slice()
    last = world.ids["c249"]
    due = world.timers.pop(("group", GROUP, "member", last))
    world.run(due.then(due.at_ms))
    assert last in world.members()
    world.advance(0)
    assert world.answer_to("c249").generation_id == 2
    assert last in world.sessions()
    world.sync_all(2)
    world.advance(0)
    world.take_told()
    world.advance(30_001)
    assert world.members() == set(), "they are heard from no more, and are out in the end"


def test_who_leaves_before_it_is_told_is_answered_and_has_no_session(world: LargeGroup) -> None:
    world.begin()
    last = world.ids["c249"]
    assert world.leave((last, None)) == [Code.NONE]
    world.advance(0)
    assert world.answer_to("c249").code is Code.NONE
    assert last not in world.sessions()
    assert len(world.take_told()) == COUNT - 1


def test_a_rebalance_that_begins_meanwhile_comes_after_what_was_told(world: LargeGroup) -> None:
    world.begin()
    world.enter("late")
    world.advance(0)
    told = world.take_told()
    assert [each.who for each in told] == list(world.ids)
    assert {each.result.generation_id for each in told} == {1}
    assert world.heartbeat(world.ids["c249"], 1) is Code.REBALANCE_IN_PROGRESS


def test_who_is_told_while_the_partition_is_left_begins_no_session(world: LargeGroup) -> None:
    """Timers of a group have the same names in the next term."""
    world.begin()
    world.unload()
    assert len(world.take_told()) == COUNT
    assert world.sessions() == set()


def test_a_thousand_leave_without_a_look_at_all_members_for_each(
    world: LargeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no step of seconds. Method: the roster's members are only ever asked for one by one."""
    looks = []

    class Members(dict):  # type: ignore[type-arg]
        def values(self):  # type: ignore[no-untyped-def]
            looks.append(1)
            return super().values()

    world.settle()
    roster: Roster = world.groups._shards[0].groups[GROUP].roster
    roster.members = Members(roster.members)
    assert set(world.leave(*[(each, None) for each in world.ids.values()])) == {Code.NONE}
    assert world.members() == set()
    assert len(looks) < 10
