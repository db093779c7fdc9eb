"""Commits, fetches, expiry and deletion. Spec C15; KIP-211; rel-C5, rel-C6, rel d 56."""

from itertools import pairwise

import pytest

from firnline.base.errors import Code
from firnline.base.units import DAY_MS
from firnline.records.batch import headers
from tests.worlds.groups import GroupWorld, subscription

WEEK_MS = 7 * DAY_MS
CHECK_MS = 600_000


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_a_simple_consumer_commits_without_a_group(world: GroupWorld) -> None:
    world.commit("a", ("t", 0, 5), ("t", 1, 6))
    assert world.answer_to("a") == [Code.NONE, Code.NONE]
    assert world.fetched() == {("t", 0): 5, ("t", 1): 6}
    assert world.listed()[1][0][1:3] == ("", "Empty")


def test_a_commit_is_neither_answered_nor_read_before_it_is_committed(world: GroupWorld) -> None:
    world.holds_appends = True
    world.commit("a", ("t", 0, 5))
    assert world.is_waiting("a")
    assert world.fetched() == {}
    world.commit_appends()
    assert world.answer_to("a") == [Code.NONE]
    assert world.fetched() == {("t", 0): 5}


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (Code.NOT_ENOUGH_REPLICAS, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.REQUEST_TIMED_OUT, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_COORDINATOR),
        (Code.KAFKA_STORAGE_ERROR, Code.NOT_COORDINATOR),
        (Code.MESSAGE_TOO_LARGE, Code.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_a_commit_that_cannot_be_written_is_refused_in_words_clients_retry_by(
    world: GroupWorld, problem: Code, code: Code
) -> None:
    world.holds_appends = True
    world.commit("a", ("t", 0, 5))
    world.fail_appends(problem)
    assert world.answer_to("a") == [code]
    assert world.fetched() == {}
    assert world.listed()[1] == []


def test_the_record_further_on_in_the_log_wins_whatever_order_answers_come_in(
    world: GroupWorld,
) -> None:
    world.commit("a", ("t", 0, 4))
    world.commit("a", ("t", 0, 5))
    offsets = world.groups._shards[0].offsets
    ((place, newest),) = offsets.of("g")
    earlier = newest.record_offset - 1
    assert earlier >= 0
    offsets.put("g", place, newest._replace(offset=1, record_offset=earlier))
    assert world.fetched() == {("t", 0): 5}
    offsets.drop("g", place, earlier)
    assert world.fetched() == {("t", 0): 5}


@pytest.mark.parametrize(
    ("member", "generation", "code"),
    [
        ("a", 1, Code.NONE),
        ("a", 0, Code.ILLEGAL_GENERATION),
        ("a", 2, Code.ILLEGAL_GENERATION),
        ("a", -1, Code.ILLEGAL_GENERATION),
        ("zombie", 1, Code.UNKNOWN_MEMBER_ID),
        ("", -1, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_the_running_generation_commit_to_a_group_in_use(
    world: GroupWorld, member: str, generation: int, code: Code
) -> None:
    ids = world.stable("a")
    world.commit("c", ("t", 0, 5), member_id=ids.get(member, member), generation=generation)
    assert world.answer_to("c") == [code]
    assert world.fetched() == ({("t", 0): 5} if code is Code.NONE else {})


def test_members_may_commit_while_joining_but_not_between_join_and_sync(world: GroupWorld) -> None:
    ids = world.stable("a")
    world.enter("b")
    world.commit("c", ("t", 0, 5), member_id=ids["a"], generation=1)
    assert world.answer_to("c") == [Code.NONE]
    world.join("a", ids["a"])
    assert world.state() == "CompletingRebalance"
    world.commit("c", ("t", 0, 6), member_id=ids["a"], generation=2)
    assert world.answer_to("c") == [Code.REBALANCE_IN_PROGRESS]


def test_a_generation_of_a_group_that_is_not_there_is_refused(world: GroupWorld) -> None:
    world.commit("a", ("t", 0, 5), member_id="m", generation=3)
    assert world.answer_to("a") == [Code.ILLEGAL_GENERATION]


def test_simple_commits_are_taken_again_once_the_members_are_gone(world: GroupWorld) -> None:
    ids = world.stable("a")
    world.leave((ids["a"], None))
    world.commit("reset", ("t", 0, 0))
    assert world.answer_to("reset") == [Code.NONE]


@pytest.mark.parametrize(
    ("chars", "code"),
    [
        (4096, Code.NONE),
        (4097, Code.OFFSET_METADATA_TOO_LARGE),
        (2**20, Code.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_of_a_mebibyte_is_refused(world: GroupWorld, chars: int, code: Code) -> None:
    world.commit("a", ("t", 0, 5), metadata="x" * chars)
    assert world.answer_to("a") == [code]
    assert bool(world.fetched()) == (code is Code.NONE)


def test_metadata_is_measured_in_utf16_units_as_kafka_does(world: GroupWorld) -> None:
    world.commit("a", ("t", 0, 5), metadata="\N{SNOWFLAKE}" * 4096)
    assert world.answer_to("a") == [Code.NONE]
    world.commit("a", ("t", 0, 6), metadata="\N{SNOWMAN WITHOUT SNOW}" * 4095 + "\U0001f9ca")
    assert world.answer_to("a") == [Code.OFFSET_METADATA_TOO_LARGE]


def test_unknown_partitions_and_groups_have_no_offset_and_no_error(world: GroupWorld) -> None:
    world.commit("a", ("t", 0, 5))
    for group in ("g", "none"):
        found = world.groups.fetch(group, [("t", [7]), ("u", [0])], require_stable=True)
        assert found.code is Code.NONE
        assert [row.commit for _, rows in found.topics for row in rows] == [None, None]


def test_answered_commits_survive_a_crash(world: GroupWorld) -> None:
    world.commit("a", ("t", 0, 5), metadata="note")
    world.crash()
    row = world.groups.fetch("g", [("t", [0])], require_stable=False).topics[0][1][0]
    assert row.commit is not None
    assert (row.commit.offset, row.commit.metadata) == (5, "note")


# -------------------------------------------------------------------------------------- deletion


def test_a_group_with_members_cannot_be_deleted_and_one_without_goes_with_its_offsets(
    world: GroupWorld,
) -> None:
    ids = world.stable("a")
    world.commit("a", ("t", 0, 5), member_id=ids["a"], generation=1)
    world.delete("g", "none")
    assert world.answer_to("delete") == [
        ("g", Code.NON_EMPTY_GROUP),
        ("none", Code.GROUP_ID_NOT_FOUND),
    ]
    world.leave((ids["a"], None))
    world.delete("g")
    assert world.answer_to("delete") == [("g", Code.NONE)]
    for _ in range(2):
        assert world.fetched() == {}
        assert world.listed()[1] == []
        world.crash()


def test_a_deletion_is_answered_once_all_its_groups_are_gone_from_the_log(
    world: GroupWorld,
) -> None:
    for group in "gh":
        world.commit("a", ("t", 0, 5), group=group)
    world.holds_appends = True
    world.delete("g", "h", "h")
    assert world.is_waiting("delete")
    assert world.fetched("g") == {("t", 0): 5}
    world.commit_appends(1)
    assert world.is_waiting("delete")
    world.commit_appends()
    assert world.answer_to("delete") == [("g", Code.NONE), ("h", Code.NONE)]


MANY = [("t", number, 5) for number in range(450)]


def written(world: GroupWorld) -> list[int]:
    """How many records each append that is held has."""
    return [header.record_count for append in world.appends for header in headers(append.batch)]


def test_a_group_with_many_offsets_is_deleted_in_slices(world: GroupWorld) -> None:
    world.commit("a", *MANY)
    world.holds_appends = True
    world.delete("g")
    counts = [sum(written(world))]
    for _ in range(4):
        world.one_slice()
        counts.append(sum(written(world)))
    assert max(b - a for a, b in pairwise(counts)) <= 201
    assert counts[-1] == 451  # and the group's own
    assert world.is_waiting("delete")
    world.commit_appends()
    assert world.answer_to("delete") == [("g", Code.NONE)]
    for _ in range(2):
        assert world.fetched() == {}
        assert world.listed()[1] == []
        world.crash()


def test_what_is_committed_while_a_large_group_is_deleted_stays(world: GroupWorld) -> None:
    """Goal: no acknowledged commit is lost. Method: one comes between two slices, for a partition whose
    old offset is not deleted yet."""
    world.commit("a", *MANY)
    world.holds_appends = True
    world.delete("g")
    world.one_slice()
    world.commit("b", ("t", 449, 9))
    world.pass_time(0)
    world.commit_appends()
    assert world.answer_to("delete") == [("g", Code.NONE)]
    assert world.answer_to("b") == [Code.NONE]
    for _ in range(2):
        assert world.fetched() == {("t", 449): 9}
        world.crash()


@pytest.mark.parametrize("committed", [1, 0])
def test_a_large_group_goes_with_a_commit_that_was_on_its_way_before(
    world: GroupWorld, committed: int
) -> None:
    """Goal: who is told that a group has gone does not find it. Method: a commit from before the deletion
    is answered between two slices of it, or after all of them."""
    ids = world.stable("a")
    world.commit("a", *MANY, member_id=ids["a"], generation=1)
    world.leave((ids["a"], None))
    world.holds_appends = True
    world.commit("before", ("t", 7, 9))
    world.delete("g")
    world.one_slice()
    world.commit_appends(committed)
    world.pass_time(0)
    world.commit_appends()
    assert world.answer_to("before") == [Code.NONE]
    assert world.answer_to("delete") == [("g", Code.NONE)]
    for _ in range(2):
        assert world.fetched() == {}
        assert world.listed()[1] == []
        world.crash()


def test_a_group_that_is_begun_anew_while_a_large_one_is_deleted_stays(world: GroupWorld) -> None:
    """Goal: no group that somebody is in is forgotten. Method: one joins between two slices."""
    world.commit("a", *MANY)
    world.delete("g")
    world.one_slice()
    world.join("b")
    world.pass_time(0)
    assert world.answer_to("delete") == [("g", Code.NONE)]
    for _ in range(2):
        assert world.fetched() == {}
        assert [group.group_id for group in world.listed()[1]] == ["g"]
        world.crash()


def test_a_large_deletion_that_fails_half_way_says_so_and_the_rest_is_found(
    world: GroupWorld,
) -> None:
    world.commit("a", *MANY)
    world.holds_appends = True
    world.delete("g")
    world.one_slice()
    world.commit_appends()
    world.pass_time(0)
    world.fail_appends(Code.NOT_ENOUGH_REPLICAS)
    assert world.answer_to("delete") == [("g", Code.COORDINATOR_NOT_AVAILABLE)]
    for _ in range(2):
        assert len(world.fetched()) == 250
        assert [group.group_id for group in world.listed()[1]] == ["g"]
        world.crash()


def test_a_large_deletion_ends_where_its_coordinator_does(world: GroupWorld) -> None:
    world.commit("a", *MANY)
    world.holds_appends = True
    world.delete("g")
    world.unload()
    world.pass_time(0)
    assert world.answer_to("delete") == [("g", Code.NOT_COORDINATOR)]
    assert world.appends == []


def test_a_deletion_that_cannot_be_written_leaves_the_group_as_it_was(world: GroupWorld) -> None:
    ids = world.stable("a")
    world.commit("a", ("t", 0, 5), member_id=ids["a"], generation=1)
    world.leave((ids["a"], None))
    world.holds_appends = True
    world.delete("g")
    world.fail_appends(Code.NOT_LEADER_OR_FOLLOWER)
    assert world.answer_to("delete") == [("g", Code.NOT_COORDINATOR)]
    assert world.fetched() == {("t", 0): 5}
    assert (world.state(), world.generation()) == ("Empty", 2)


def test_a_commit_on_its_way_is_deleted_too_and_one_after_the_tombstone_is_not(
    world: GroupWorld,
) -> None:
    """Goal: memory and log agree. Method: commit, delete, commit, all before any is committed."""
    world.commit("before", ("t", 0, 1))
    world.holds_appends = True
    world.commit("during", ("t", 1, 2))
    world.delete("g")
    world.commit("after", ("t", 2, 3))
    world.commit_appends()
    assert world.fetched() == {("t", 2): 3}
    world.crash()
    assert world.fetched() == {("t", 2): 3}


def test_a_group_that_a_commit_made_anew_before_its_tombstone_goes_with_it(
    world: GroupWorld,
) -> None:
    world.commit("before", ("t", 0, 1))
    world.holds_appends = True
    world.commit("during", ("t", 1, 2))
    world.delete("g")
    world.commit_appends()
    for _ in range(2):
        assert world.listed()[1] == []
        world.crash()


def test_offsets_survive_a_member_that_never_came(world: GroupWorld) -> None:
    world.commit("simple", ("t", 0, 1))
    world.join("a")
    world.pass_time(30_000)
    for _ in range(2):
        assert [g.group_id for g in world.listed()[1]] == ["g"]
        assert world.fetched() == {("t", 0): 1}
        world.crash()


def test_who_joins_while_the_group_is_deleted_finds_a_new_group(world: GroupWorld) -> None:
    ids = world.stable("a")
    world.leave((ids["a"], None))
    world.holds_appends = True
    world.delete("g")
    world.join("b", version=3)
    world.commit_appends()
    world.holds_appends = False
    world.pass_time(3_000)
    assert world.answer_to("b").generation_id == 1


# ---------------------------------------------------------------------------------------- expiry


def test_offsets_live_while_the_group_has_members_and_a_week_after_the_last_has_gone(
    world: GroupWorld,
) -> None:
    ids = world.stable("a", session_ms=1_800_000)
    world.commit("a", ("t", 0, 5), member_id=ids["a"], generation=1)
    for _ in range(15 * 96):
        world.pass_time(DAY_MS // 96)
        assert world.heartbeat(ids["a"], 1) is Code.NONE
    assert world.fetched() == {("t", 0): 5}
    world.leave((ids["a"], None))
    world.pass_time(WEEK_MS - CHECK_MS)
    assert world.fetched() == {("t", 0): 5}
    world.pass_time(2 * CHECK_MS)
    for _ in range(2):
        assert world.fetched() == {}
        assert world.listed()[1] == []
        world.crash()


@pytest.mark.parametrize(
    ("metadata", "kept"),
    [
        (subscription("t"), {("t", 0)}),
        (subscription("u"), {("u", 0)}),
        (subscription("t", "u"), {("t", 0), ("u", 0)}),
        (b"nothing a consumer sends", {("t", 0), ("u", 0)}),
        (b"\0\0\x7f\xff\xff\xff", {("t", 0), ("u", 0)}),
        (b"", {("t", 0), ("u", 0)}),
    ],
)
def test_a_stable_group_loses_old_offsets_of_topics_it_no_longer_reads(
    world: GroupWorld, metadata: bytes, kept: set[tuple[str, int]]
) -> None:
    ids = world.stable("a", session_ms=1_800_000, metadata=metadata)
    world.commit("a", ("t", 0, 5), ("u", 0, 6), member_id=ids["a"], generation=1)
    for _ in range(8 * 96):
        world.pass_time(DAY_MS // 96)
        assert world.heartbeat(ids["a"], 1) is Code.NONE
    assert world.fetched().keys() == kept


def test_simple_offsets_live_a_week_from_their_own_commit(world: GroupWorld) -> None:
    world.commit("a", ("t", 0, 5))
    world.pass_time(DAY_MS)
    world.commit("a", ("t", 1, 6))
    world.pass_time(WEEK_MS - DAY_MS + CHECK_MS)
    assert world.fetched() == {("t", 1): 6}
    world.pass_time(DAY_MS)
    assert world.listed()[1] == []


def test_old_clients_may_say_how_long_an_offset_lives(world: GroupWorld) -> None:
    world.commit("a", ("t", 0, 5), retention_ms=3 * CHECK_MS)
    world.crash()
    world.pass_time(3 * CHECK_MS - 1)
    assert world.fetched() == {("t", 0): 5}
    world.pass_time(CHECK_MS)
    assert world.fetched() == {}


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 2_000_000_000_000])
def test_an_offset_may_be_kept_for_ever(world: GroupWorld, retention_ms: int) -> None:
    """In Kafka 4.3.1 that sum runs over, and the offset expires at the next look."""
    world.commit("a", ("t", 0, 5), retention_ms=retention_ms)
    world.crash()
    world.pass_time(10 * WEEK_MS)
    assert world.fetched() == {("t", 0): 5}


def test_an_offset_is_not_expired_while_a_new_commit_of_it_is_on_its_way(
    world: GroupWorld,
) -> None:
    """Goal: rel-C5. Method: the expiry would write its tombstone behind the answered commit."""
    world.commit("a", ("t", 0, 5))
    world.pass_time(WEEK_MS - CHECK_MS)
    world.holds_appends = True
    world.commit("a", ("t", 0, 6))
    world.pass_time(2 * CHECK_MS)
    world.commit_appends()
    assert world.fetched() == {("t", 0): 6}
    world.crash()
    assert world.fetched() == {("t", 0): 6}


def test_a_group_is_not_expired_while_a_commit_is_on_its_way(world: GroupWorld) -> None:
    ids = world.stable("a")
    world.leave((ids["a"], None))
    world.holds_appends = True
    world.commit("a", ("t", 0, 6))
    world.pass_time(2 * CHECK_MS)
    world.commit_appends()
    world.crash()
    assert (world.generation(), world.fetched()) == (2, {("t", 0): 6})


def test_ten_thousand_offsets_are_expired_in_batches_that_fit_a_log(world: GroupWorld) -> None:
    topic = "t" * 200
    for first in range(0, 4_000, 1_000):
        world.commit("a", *((topic, p, 1) for p in range(first, first + 1_000)))
    world.pass_time(WEEK_MS - CHECK_MS)
    world.holds_appends = True
    world.pass_time(2 * CHECK_MS)
    assert len(world.appends) > 1
    assert max(len(a.batch) for a in world.appends) < 1_048_588
    world.holds_appends = False
    world.commit_appends()
    world.pass_time(CHECK_MS)  # a group of so many offsets goes after them
    world.crash()
    assert world.listed()[1] == []


@pytest.mark.parametrize("rejoins", [False, True])
def test_subscriptions_to_thousands_of_topics_are_read_in_slices_when_offsets_expire(
    world: GroupWorld, rejoins: bool
) -> None:
    """200 groups of 300,000 names each were one slice, half a minute long."""
    names = [f"n{number}" for number in range(700)]
    ids = {}
    for group in ("one", "two", "three", "four", "five"):
        ids[group] = world.stable(
            "a", group=group, metadata=subscription("t", *names), session_ms=1_800_000
        )["a"]
        world.commit(
            "a", ("t", 0, 5), ("u", 0, 6), member_id=ids[group], generation=1, group=group,
            retention_ms=1,
        )  # fmt: skip
        world.take_reported()
    due = world.timers["group", "expiry"]
    world.now_ms = due.at_ms
    world.run(due.then(world.now_ms))
    slices = 0
    while any(timer.at_ms <= world.now_ms for timer in world.timers.values()):
        if rejoins and slices == 1:  # in the middle of the second group
            world.enter("b", group="two", metadata=subscription("u"))
        world.one_slice()
        slices += 1
    assert slices > 3
    for group in ids:
        stays = rejoins and group == "two"
        assert world.fetched(group) == {("t", 0): 5, **({("u", 0): 6} if stays else {})}


def test_offsets_of_a_deleted_topic_go_even_while_the_group_is_in_use(world: GroupWorld) -> None:
    ids = world.stable("a")
    world.commit("a", ("t", 0, 5), ("u", 0, 6), member_id=ids["a"], generation=1)
    world.run(world.groups.on_topics_deleted(["t", "never"], world.now_ms))
    world.pass_time(0)
    assert world.fetched() == {("u", 0): 6}
    world.crash()
    assert world.fetched() == {("u", 0): 6}
    assert world.state() == "Stable"


def test_an_address_that_commits_for_new_groups_without_end_leaves_room_for_others() -> None:
    """Such a group stays for a week, and each made the node larger. Method: at most 100."""
    world = GroupWorld(firnline_groups_max=100)
    codes = []
    for number in range(200):
        world.commit("flood", ("t", 0, 1), group=f"flood {number}", host="/10.0.0.1")
        codes += world.answer_to("flood")
    assert codes.count(Code.NONE) == 50
    assert set(codes[50:]) == {Code.COORDINATOR_NOT_AVAILABLE}
    assert world.groups.group_count == 50
    world.commit("friend", ("t", 0, 1), group="new", host="/10.0.0.2")
    assert world.answer_to("friend") == [Code.NONE]
    # Its own groups are served as before.
    world.commit("flood", ("t", 0, 2), group="flood 0", host="/10.0.0.1")
    assert world.answer_to("flood") == [Code.NONE]
    assert " host=10.0.0.1 " in world.warnings[0]


def test_an_address_that_joins_and_leaves_new_groups_without_end_leaves_room_for_others() -> None:
    """A group that its members have left stays until the next look: 20,000 of them took all of 100."""
    world = GroupWorld(firnline_groups_max=100)
    codes = []
    for number in range(200):
        name = f"flood {number}"
        world.join(name, group=name, version=3, host="/10.0.0.1")
        for member in world.groups.describe(name).members:
            world.leave((member.member_id, None), group=name)
        world.pass_time(12_000 if number == 199 else 0)
    codes = [reported.result.code for reported in world.take_reported()]
    assert codes.count(Code.COORDINATOR_NOT_AVAILABLE) == 150
    assert world.groups.group_count == 50
    world.commit("friend", ("t", 0, 1), group="new", host="/10.0.0.2")
    assert world.answer_to("friend") == [Code.NONE]
    world.stable("friend", group="another", host="/10.0.0.2", session_ms=1_800_000)
    world.pass_time(CHECK_MS)
    assert {row.group_id for row in world.listed()[1]} == {"new", "another"}
    # They have gone, and are forgotten.
    world.join("flood", group="once more", version=3, host="/10.0.0.1")
    world.pass_time(3_000)
    assert world.answer_to("flood").generation_id == 1


def test_commits_for_groups_that_were_only_announced_count_too() -> None:
    world = GroupWorld(firnline_groups_max=100)
    codes = []
    for number in range(200):
        world.join("flood", group=f"flood {number}", host="/10.0.0.1")
        world.take_reported()
        world.commit("flood", ("t", 0, 1), group=f"flood {number}", host="/10.0.0.1")
        codes += world.answer_to("flood")
    assert codes.count(Code.NONE) <= 50
    world.commit("friend", ("t", 0, 1), group="new", host="/10.0.0.2")
    assert world.answer_to("friend") == [Code.NONE]


def test_commits_that_could_not_be_written_take_no_room() -> None:
    world = GroupWorld(firnline_groups_max=10)
    for number in range(100):
        world.holds_appends = True
        world.commit("a", ("t", 0, 1), group=f"g {number % 2}")
        world.fail_appends(Code.NOT_ENOUGH_REPLICAS)
        assert world.answer_to("a") == [Code.COORDINATOR_NOT_AVAILABLE]
    world.holds_appends = False
    for number in range(5):
        world.commit("a", ("t", 0, 1), group=f"g {number}")
        assert world.answer_to("a") == [Code.NONE]
    assert not any("refused" in line for line in world.warnings)
