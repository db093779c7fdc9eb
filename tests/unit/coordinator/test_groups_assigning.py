"""A large group takes its assignment in, writes and tells it in slices: it may change between two of them."""

from collections.abc import Callable

import pytest

from firnline.base.errors import Code
from firnline.coordinator import generation
from firnline.coordinator.group_members import GroupMembers
from firnline.coordinator.records import GroupMetadataValue, decode_key, decode_value
from tests.worlds.decoded import all_records
from tests.worlds.groups import GROUP, GroupWorld

COUNT = 1_000
LEADER, LAST = "c0", f"c{COUNT - 1}"


class LargeGroup(GroupWorld):
    """A group of a thousand members that have all joined, the last of them static. `ids` by who asked."""

    def __init__(self) -> None:
        super().__init__(group_initial_rebalance_delay_ms=0)
        self.ids = {f"c{n}": self.enter(f"c{n}") for n in range(COUNT - 1)}
        self.join(LAST, instance="static")
        self.pass_time(0)
        self.ids[LAST] = self.answer_to(LAST).member_id
        self.take_reported()

    def ask(self, who: str, generation: int = 1) -> None:
        instance = "static" if who == LAST else None
        parts = {member_id: name.encode() for name, member_id in self.ids.items() if name != "c1"}
        parts["nobody"] = b"of a member that has gone"
        self.sync(who, self.ids[who], generation, instance=instance, assignments=parts)

    def parts(self) -> list[bytes]:
        """What all have then, in their order: the leader forgot one."""
        return [b"" if who == "c1" else who.encode() for who in self.ids]

    def ask_all(self) -> None:
        """Have all wait for their parts, the leader at last."""
        for who in reversed(self.ids):
            self.ask(who)

    def background(self) -> bool:
        """Do one slice of what is done in the background; False where nothing is."""
        due = self.timers.pop(("group", "background"), None)
        if due is not None:
            self.run(due.then(self.now_ms))
        return due is not None

    def codes(self) -> set[Code]:
        return {each.result.code for each in self.take_reported()}


@pytest.fixture
def world() -> LargeGroup:
    return LargeGroup()


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The members that have their assignment."""
    members: list[str] = []
    assign = GroupMembers.assign

    def noted(self: GroupMembers, member: object, part: bytes) -> None:
        members.append(member.member_id)  # type: ignore[attr-defined]
        assign(self, member, part)  # type: ignore[arg-type]

    monkeypatch.setattr(GroupMembers, "assign", noted)
    return members


def test_no_step_has_more_than_some_hundred_members(world: LargeGroup, given: list[str]) -> None:
    """Goal: nobody waits for it. Method: count whom each step gives a part, and whom it tells."""
    world.ask_all()
    assert (given, world.reported) == ([], [])
    steps, reported = [], []
    seen = 0
    while world.background():
        some = world.take_reported()
        steps.append((len(given) - seen, len(some)))
        seen, reported = len(given), reported + some
    assert given == list(world.ids.values())
    assert max(steps)[0] == 250
    assert max(count for _, count in steps) == 100
    assert [each.who for each in reported] == list(world.ids)
    assert [each.result.assignment for each in reported] == world.parts()
    assert world.state() == "Stable"


def test_what_was_written_in_slices_is_read_by_the_next_coordinator(world: LargeGroup) -> None:
    world.ask_all()
    world.pass_time(0)
    before = world.groups.describe(GROUP)
    assert [m.assignment for m in before.members] == world.parts()
    world.crash()
    assert world.groups.describe(GROUP) == before


def leaves(world: LargeGroup) -> None:
    assert world.leave((world.ids["c7"], None)) == [Code.NONE]


def goes_silent(world: LargeGroup) -> None:
    due = world.timers.pop(("group", GROUP, "sync", ""))
    world.run(due.then(due.at_ms))


def comes_back(world: LargeGroup) -> None:
    world.join("again", instance="static")


def is_new(world: LargeGroup) -> None:
    world.enter("late")


def subscribes_anew(world: LargeGroup) -> None:
    world.join("again", world.ids["c7"], metadata=b"other")


@pytest.mark.parametrize(
    "changes", [leaves, goes_silent, comes_back, is_new, subscribes_anew], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("slices", [1, 2, 3])
def test_a_generation_that_is_over_meanwhile_is_not_written(
    world: LargeGroup, changes: Callable[[LargeGroup], None], slices: int
) -> None:
    """Goal: the log never says of a member that left that it has a part. All are told to join again."""
    size = len(world.log)
    asked = [who for who in world.ids if who not in ("c5", "c7")]
    for who in reversed(asked):
        world.ask(who)
    for _ in range(slices):
        world.background()
    assert (len(world.log), world.reported) == (size, [])
    changes(world)
    while world.background():
        pass
    assert len(world.log) == size
    reported = {each.who: each.result.code for each in world.take_reported() if each.who in asked}
    fenced = {LAST: Code.FENCED_INSTANCE_ID} if changes is comes_back else {}
    assert reported == dict.fromkeys(asked, Code.REBALANCE_IN_PROGRESS) | fenced
    assert world.state() == "PreparingRebalance"


@pytest.mark.parametrize("slices", [0, 2])
def test_an_assignment_of_the_generation_before_is_not_written_into_the_next(
    world: LargeGroup, slices: int
) -> None:
    size = len(world.log)
    world.ask_all()
    for _ in range(slices):
        world.background()
    world.join("late", instance="another")
    for who, member_id in world.ids.items():
        world.join(who, member_id, instance="static" if who == LAST else None)
    assert (world.state(), world.generation()) == ("CompletingRebalance", 2)
    while world.background():
        pass
    assert len(world.log) == size
    assert (world.state(), world.generation()) == ("CompletingRebalance", 2)


@pytest.mark.parametrize("slices", [0, 2])
def test_a_coordinator_that_goes_meanwhile_writes_nothing(world: LargeGroup, slices: int) -> None:
    size = len(world.log)
    world.ask_all()
    for _ in range(slices):
        world.background()
    world.unload()
    assert len(world.log) == size
    assert len(world.reported) == COUNT
    assert world.codes() == {Code.NOT_COORDINATOR}
    assert {key for key in world.timers if key[:2] == ("group", GROUP)} == set()


@pytest.mark.parametrize("is_written", [False, True])
def test_a_leader_that_asks_again_meanwhile_is_answered_and_nothing_is_written_twice(
    world: LargeGroup, is_written: bool
) -> None:
    world.holds_appends = True
    world.ask_all()
    world.background()
    while is_written and not world.appends:
        world.background()
    world.ask(LEADER)
    assert world.answer_to(LEADER).code is Code.REBALANCE_IN_PROGRESS
    while world.background():
        pass
    assert len(world.appends) == 1
    world.holds_appends = False
    world.commit_appends()
    while world.background():
        pass
    assert world.answer_to(LEADER).assignment == LEADER.encode()
    assert world.codes() == {Code.NONE}


def test_who_asks_while_others_are_given_their_parts_is_notified_with_them(
    world: LargeGroup,
) -> None:
    world.ask(LEADER)
    world.background()
    world.background()
    world.ask("c3")
    assert world.is_waiting("c3"), "nothing is written yet"
    while world.background():
        pass
    assert world.answer_to("c3").assignment == b"c3"
    world.ask("c4")
    assert world.answer_to("c4").assignment == b"c4"


def test_an_assignment_that_cannot_be_written_is_nobodys(world: LargeGroup) -> None:
    world.ask_all()
    world.holds_appends = True
    while world.background():
        pass
    assert world.reported == []
    world.fail_appends(Code.NOT_ENOUGH_REPLICAS)
    while world.background():
        pass
    assert len(world.reported) == COUNT
    assert world.codes() == {Code.COORDINATOR_NOT_AVAILABLE}
    assert world.state() == "PreparingRebalance"


def test_who_is_not_notified_yet_when_the_next_generation_begins_learns_nothing_of_its_parts(
    world: LargeGroup,
) -> None:
    """A static member stays, though it does not join: its sync of before is no wish for the part of after."""
    world.ask_all()
    while world.state() != "Stable":
        world.background()
    for who, member_id in list(world.ids.items())[:-1]:
        world.join(f"{who} again", member_id)
    assert world.reported == []
    due = world.timers.pop(("group", GROUP, "join", ""))
    world.run(due.then(due.at_ms))
    assert (world.state(), world.generation()) == ("CompletingRebalance", 2)
    world.background()
    world.ask(LAST, 2)
    while world.background():
        pass
    reported = {each.who: each.result for each in world.take_reported()}
    synced = {who: reported.pop(who).code for who in world.ids if who in reported}
    assert synced == dict.fromkeys(world.ids, Code.REBALANCE_IN_PROGRESS)
    assert {each.generation_id for each in reported.values()} == {2}
    assert len(reported) == COUNT - 1
    world.sync(LEADER, world.ids[LEADER], 2, assignments={world.ids[LAST]: b"new"})
    while world.background():
        pass
    assert world.answer_to(LAST).assignment == b"new"


def test_who_leaves_before_it_is_notified_of_its_part_has_no_session(world: LargeGroup) -> None:
    world.ask_all()
    while world.state() != "Stable":
        world.background()
    assert world.leave((world.ids["c500"], None)) == [Code.NONE]
    assert world.answer_to("c500").code is Code.UNKNOWN_MEMBER_ID
    while world.background():
        pass
    assert len(world.reported) == COUNT - 1
    assert world.codes() == {Code.NONE}
    assert ("group", GROUP, "member", world.ids["c500"]) not in world.timers
    assert ("group", GROUP, "member", world.ids["c501"]) in world.timers


def test_a_member_is_not_out_whose_part_only_waits_for_its_slice(world: LargeGroup) -> None:
    world.ask_all()
    while world.state() != "Stable":
        world.background()
    due = world.timers[("group", GROUP, "member", world.ids["c998"])]
    world.run(due.then(due.at_ms))
    while world.background():
        pass
    assert world.answer_to("c998").assignment == b"c998"
    assert world.state() == "Stable"


def all_static(world: GroupWorld, count: int = COUNT) -> dict[str, str]:
    """Make a stable group of so many static members."""
    for n in range(count):
        world.join(f"c{n}", instance=f"i{n}")
    world.pass_time(0)
    ids = {each.who: each.result.member_id for each in world.take_reported()}
    for who in reversed(ids):
        parts = {member_id: name.encode() for name, member_id in ids.items()}
        world.sync(who, ids[who], 1, assignments=parts)
    world.pass_time(0)
    assert {each.result.code for each in world.take_reported()} == {Code.NONE}
    assert world.state() == "Stable"
    return ids


@pytest.fixture
def static() -> GroupWorld:
    return GroupWorld(group_initial_rebalance_delay_ms=0)


def written_members(world: GroupWorld, size: int) -> list[str]:
    """Who is in the group as the record says that was written at that place of the log."""
    (record,) = all_records(world.log[size:])
    assert record.key is not None
    assert record.value is not None
    key = decode_key(record.key)
    assert key is not None
    value = decode_value(key, record.value)
    assert isinstance(value, GroupMetadataValue)
    assert value.leader in {m.member_id for m in value.members}
    return [m.member_id for m in value.members]


def test_a_static_member_that_returns_is_written_with_some_hundred_others_at_a_time(
    static: GroupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: nobody waits for the record of all. Method: count whom each step writes."""
    ids = all_static(static)
    counts: list[int] = []
    write = generation._write_members

    def counted(parts: object, name: object, members: list[object], known: object) -> None:
        counts.append(len(members))
        write(parts, name, members, known)  # type: ignore[arg-type]

    monkeypatch.setattr(generation, "_write_members", counted)
    size = len(static.log)
    static.join("c5 again", instance="i5")
    assert (counts, static.reported, len(static.log)) == ([], [], size)
    static.one_slice()
    assert counts == [250]
    static.pass_time(0)
    assert counts == [250] * 4
    answer = static.answer_to("c5 again")
    assert (answer.code, answer.generation_id) == (Code.NONE, 1)
    assert written_members(static, size) == [
        *(member_id for who, member_id in ids.items() if who != "c5"),
        answer.member_id,
    ]
    before = static.groups.describe(GROUP)
    assert {m.member_id: m.assignment for m in before.members}[answer.member_id] == b"c5"
    static.crash()
    assert static.groups.describe(GROUP) == before


@pytest.mark.parametrize("second", ["i5", "i7", "i0"])
def test_two_static_members_that_return_at_about_the_same_time_are_both_written(
    static: GroupWorld, second: str
) -> None:
    """Goal: each record is of one state of the group. Method: another one, the leader, or the same again."""
    all_static(static)
    sizes = [len(static.log)]
    static.join("one", instance="i5")
    static.join("two", instance=second)
    while static.is_waiting("two"):
        static.one_slice()
        if len(static.log) > sizes[-1]:
            written_members(static, sizes[-1])
            sizes.append(len(static.log))
    one, two = static.answer_to("one"), static.answer_to("two")
    assert one.code is (Code.FENCED_INSTANCE_ID if second == "i5" else Code.NONE)
    assert two.code is Code.NONE
    before = static.groups.describe(GROUP)
    assert static.groups._shards[0].groups[GROUP].members.instances[second] == two.member_id
    sessions = {key[3] for key in static.timers if key[:3] == ("group", GROUP, "member")}
    assert sessions == {member.member_id for member in before.members}
    static.crash()
    assert static.groups.describe(GROUP) == before


@pytest.mark.parametrize("slices", [0, 2])
def test_a_static_member_whose_record_is_not_needed_any_more_learns_of_the_next_generation(
    static: GroupWorld, slices: int
) -> None:
    ids = all_static(static)
    size = len(static.log)
    static.join("again", instance="i5")
    for _ in range(slices):
        static.one_slice()
    assert static.leave((ids["c9"], "i9")) == [Code.NONE]
    for who, member_id in ids.items():
        if who not in ("c5", "c9"):
            static.join(who, member_id, instance=f"i{who[1:]}")
    static.pass_time(0)
    assert len(static.log) == size
    answer = static.answer_to("again")
    assert (answer.code, answer.generation_id) == (Code.NONE, 2)


def test_a_static_member_learns_that_its_record_could_not_be_written(static: GroupWorld) -> None:
    all_static(static)
    static.join("again", instance="i5")
    static.holds_appends = True
    static.pass_time(0)
    assert static.reported == []
    static.fail_appends(Code.NOT_ENOUGH_REPLICAS)
    assert static.answer_to("again").code is Code.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("slices", [0, 2])
def test_a_static_member_of_a_coordinator_that_goes_learns_so(
    static: GroupWorld, slices: int
) -> None:
    all_static(static)
    size = len(static.log)
    static.join("again", instance="i5")
    for _ in range(slices):
        static.one_slice()
    static.unload()
    assert static.answer_to("again").code is Code.NOT_COORDINATOR
    assert len(static.log) == size
    assert {key for key in static.timers if key[:2] == ("group", GROUP)} == set()
