"""A partition of a million commits is loaded and left without anybody else waiting for it. Decision 0018."""

from collections.abc import Iterator
from typing import Any

import pytest

from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, StorageError
from firnline.base.ids import TopicPartition
from firnline.coordinator import loading, shard
from firnline.coordinator.commits import CommittedOffset, read_commit
from firnline.coordinator.loading import RECORDS_PER_SLICE
from firnline.coordinator.records import (
    GroupMember,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from firnline.coordinator.rows import commit_row, tombstone
from firnline.records.batch import set_offset_and_epoch
from firnline.records.build import NewRecord, build_batch
from tests.unit.coordinator.test_groups_loading import ask_everything
from tests.worlds.groups import GroupWorld

BACKGROUND = ("group", "background")


def commits(count: int, *, groups: int = 10, partitions: int = 7) -> Iterator[NewRecord]:
    for number in range(count):
        tp = TopicPartition("t", number % partitions)
        yield commit_row(f"g{number % groups}", tp, CommittedOffset(number, 0, "", 1), 1)


def batches(rows: Iterator[NewRecord], *, first_offset: int = 0, **more: Any) -> bytes:
    """A batch for each row, as commits are written."""
    log = bytearray()
    for offset, row in enumerate(rows, first_offset):
        batch = build_batch([row], **more)
        set_offset_and_epoch(batch, 0, offset, 0)
        log += batch
    return bytes(log)


def generation(group_id: str, members: int) -> NewRecord:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m0",
        current_state_timestamp=1,
        members=[
            GroupMember(member_id=f"m{n}", client_id="c", client_host="/h", session_timeout=6_000)
            for n in range(members)
        ],
    )
    return NewRecord(encode_key(GroupMetadataKey(group=group_id)), encode_value(value, 3), 1)


class Watched(GroupWorld):
    """Counts what each step in the background does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: int) -> None:
        self.rows = self.checks = 0
        usual, read = loading.common_records, loading.read_commit  # type: ignore[attr-defined]

        def counted(data: Any, position: int, at_most: int) -> Any:
            found = usual(data, position, at_most)
            self.rows += len(found[0])
            return found

        def counted_read(value: bytes) -> CommittedOffset:
            self.checks += 1
            return read(value)

        monkeypatch.setattr(loading, "common_records", counted)
        monkeypatch.setattr(loading, "read_commit", counted_read)
        super().__init__(**settings)
        self.said: list[StorageError | None] = []

    def begin_load(self, *data: bytes) -> None:
        def loaded(problem: StorageError | None, now_ms: int) -> Effects:
            self.said.append(problem)
            return []

        self.run(self.groups.load_partition(0, data, loaded, self.now_ms))

    def step(self) -> tuple[int, int, int]:
        """Do one slice; return how many records, last looks and timers it took."""
        self.rows = self.checks = 0
        timer = self.timers.pop(BACKGROUND)
        assert timer.at_ms <= self.now_ms
        effects = timer.then(self.now_ms)
        timers = sum(isinstance(e, SetTimer | CancelTimer) for e in effects)
        self.run(effects)
        return self.rows, self.checks, timers

    def finish(self) -> list[tuple[int, int, int]]:
        steps = []
        while BACKGROUND in self.timers:
            steps.append(self.step())
        return steps


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_no_step_of_a_long_load_does_more_than_a_slice_and_all_is_answered_in_between(
    world: Watched,
) -> None:
    world.unload()
    world.begin_load(batches(commits(3_000)), batches(commits(3_000), first_offset=3_000))
    assert (world.rows, world.said) == (0, [])  # taking it over is no work
    for _ in range(20):
        rows, _, _ = world.step()
        assert 0 < rows <= RECORDS_PER_SLICE
        answers = ask_everything(world)
        assert answers.pop("heartbeat") == [Code.NONE]
        assert answers == {what: [Code.COORDINATOR_LOAD_IN_PROGRESS] for what in answers}
    steps = world.finish()
    assert max(rows for rows, _, _ in steps) <= RECORDS_PER_SLICE
    assert world.said == [None]
    assert sum(len(world.fetched(f"g{n}")) for n in range(10)) == 70
    assert world.groups.group_count == 10


def test_a_load_that_waits_for_an_index_takes_no_step_for_many(world: Watched) -> None:
    world.unload()
    world.begin_load(*[b""] * 5, batches(commits(10)))
    assert [world.step()[0] for _ in range(6)] == [0, 0, 0, 0, 0, 10]
    world.finish()
    assert world.said == [None]


def test_a_batch_of_ten_thousand_commits_is_taken_in_slices_too(world: Watched) -> None:
    rows = list(commits(10_000, groups=3, partitions=20_000))
    world.begin_load(bytes(build_batch(rows)), bytes(build_batch(rows[:3_000])))
    assert len(world.finish()) > 13_000 / RECORDS_PER_SLICE
    assert sum(len(world.fetched(f"g{n}")) for n in range(3)) == 10_000


def test_commits_are_looked_at_and_sessions_begun_in_slices(world: Watched) -> None:
    rows = [generation(f"s{n}", members=20) for n in range(100)]
    rows += commits(3_000, groups=1, partitions=3_000)
    world.begin_load(batches(iter(rows)))
    steps = world.finish()
    assert world.said == [None]
    assert max(checks for _, checks, _ in steps) <= 500
    assert sum(checks for _, checks, _ in steps) == 3_000
    assert max(timers for _, _, timers in steps) <= shard._EFFECTS_PER_SLICE + 20
    assert sum(key[0] == "group" and key[2:3] == ("member",) for key in world.timers) == 2_000


def test_sessions_run_from_the_end_of_the_load(world: Watched) -> None:
    world.begin_load(batches(iter([generation("s", members=1), *commits(1_000)])))
    world.step()
    world.now_ms += 5_000
    world.finish()
    assert world.timers["group", "s", "member", "m0"].at_ms == world.now_ms + 6_000


def test_a_partition_that_moves_away_while_it_is_loaded_is_not_served_nor_reported(
    world: Watched,
) -> None:
    world.begin_load(batches(iter([generation("s", members=1), *commits(2_000)])))
    world.step()
    world.run(world.groups.unload_partition(0, world.now_ms))
    world.finish()
    assert world.said == []
    assert world.groups.describe("s").code is Code.NOT_COORDINATOR
    assert list(world.timers) == [("group", "expiry")]


def test_a_partition_that_comes_back_is_loaded_anew(world: Watched) -> None:
    world.begin_load(batches(commits(2_000)))
    for _ in range(3):
        world.step()
    world.run(world.groups.unload_partition(0, world.now_ms))
    world.begin_load(batches(commits(10)))
    world.finish()
    assert world.said == [None]
    assert world.fetched("g0") == {("t", 0): 0}


def test_a_session_of_the_last_term_does_not_end_one_of_this(world: Watched) -> None:
    """The timers of a group have the same names in both; the old ones are cancelled first."""
    log = batches(iter([generation(f"s{n}", members=3) for n in range(300)]))
    world.begin_load(log)
    world.finish()
    world.run(world.groups.unload_partition(0, world.now_ms))
    world.begin_load(log)
    world.finish()
    keys = {("group", f"s{n}", "member", f"m{m}") for n in range(300) for m in range(3)}
    assert keys <= world.timers.keys()


def test_nobody_writes_for_groups_of_which_the_partition_has_gone(world: Watched) -> None:
    """The last session of a group ends between the moment it goes and the moment the group is closed: what it
    would write is of an old term, and the partition may be led here again."""
    ids = world.stable("a")
    timer = world.timers["group", "g", "member", ids["a"]]
    world.holds_appends = True
    world.run(world.groups.unload_partition(0, world.now_ms))
    world.run(timer.then(world.now_ms))
    assert world.appends == []


def test_whoever_waits_is_not_kept_by_the_load_of_another_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Watched(monkeypatch, offsets_topic_num_partitions=2)
    mine = next(name for name in "abcdef" if world.groups.partition_for(name) == 0)
    world.enter("a", group=mine)
    world.run(
        world.groups.load_partition(
            1, [batches(commits(2_000))], lambda said, now_ms: [], world.now_ms
        )
    )
    world.step()
    world.run(world.groups.unload_partition(0, world.now_ms))
    world.step()
    assert world.answer_to("a").code is Code.NOT_COORDINATOR


def test_a_commit_on_its_way_for_the_next_topic_of_that_name_is_not_deleted(
    world: Watched,
) -> None:
    world.commit("a", ("t", 0, 5))
    world.holds_appends = True
    world.run(world.groups.on_topics_deleted(["t"], world.now_ms))
    world.commit("b", ("t", 0, 1))
    world.finish()
    world.commit_appends()
    assert world.fetched() == {("t", 0): 1}


def test_a_large_partition_is_left_in_slices(world: Watched) -> None:
    rows = [generation(f"s{n}", members=20) for n in range(100)]
    world.begin_load(batches(iter(rows)))
    world.finish()
    world.run(world.groups.unload_partition(0, world.now_ms))
    assert world.groups.describe("s0").code is Code.NOT_COORDINATOR
    steps = world.finish()
    assert len(steps) > 10
    assert max(timers for _, _, timers in steps) <= shard._EFFECTS_PER_SLICE + 22
    assert list(world.timers) == [("group", "expiry")]


def test_offsets_of_a_topic_that_is_deleted_while_they_are_loaded_go_with_it(
    world: Watched,
) -> None:
    world.begin_load(batches(commits(600)))
    world.step()
    world.run(world.groups.on_topics_deleted(["t"], world.now_ms))
    world.finish()
    assert world.said == [None]
    assert [world.fetched(f"g{n}") for n in range(10)] == [{}] * 10


def test_a_commit_for_the_next_topic_of_that_name_outlives_the_deletion(world: Watched) -> None:
    world.commit("a", ("t", 0, 5), ("t", 1, 6))
    world.run(world.groups.on_topics_deleted(["t"], world.now_ms))
    world.commit("a", ("t", 0, 1))  # before the slice that forgets
    world.pass_time(0)
    assert world.fetched() == {("t", 0): 1}


def test_a_damaged_batch_is_not_served(world: Watched) -> None:
    log = bytearray(batches(commits(500)))
    log[-10] ^= 1
    world.begin_load(bytes(log))
    world.finish()
    (said,) = world.said
    assert "CRC" in str(said)
    assert world.groups.describe("g0").code is Code.NOT_COORDINATOR


@pytest.mark.parametrize("codec", [0, 1])
def test_what_a_tombstone_deleted_stays_deleted_and_its_group_is_known(
    world: Watched, codec: int
) -> None:
    tp = TopicPartition("t", 0)
    rows = [*commits(3, groups=3, partitions=1), tombstone("g0", tp, 1)]
    rows += [tombstone("g1", tp, 1), tombstone("g1", None, 1)]
    world.begin_load(batches(iter(rows), codec=codec))
    world.finish()
    assert [len(world.fetched(f"g{n}")) for n in range(3)] == [0, 0, 1]
    assert {g.group_id for g in world.listed()[1]} == {"g0", "g2"}


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("metadata", ["", "x", "sn\u00f6w", "y" * 200])
@pytest.mark.parametrize("topic_id", [bytes(16), bytes(range(16))])
def test_a_commit_of_every_version_is_read_as_its_schema_says(
    version: int, metadata: str, topic_id: bytes
) -> None:
    row = OffsetCommitValue(
        offset=2**40,
        leader_epoch=7 if version >= 3 else -1,
        metadata=metadata,
        commit_timestamp=1_700_000_000_000,
        expire_timestamp=99 if version == 1 else -1,
        topic_id=topic_id if version == 4 else bytes(16),
    )
    found = read_commit(encode_value(row, version))
    assert found == CommittedOffset(
        row.offset,
        row.leader_epoch,
        metadata,
        row.commit_timestamp,
        row.expire_timestamp,
        bytes(row.topic_id),
    )


@pytest.mark.parametrize("cut", [1, 5, 20])
@pytest.mark.parametrize("version", range(5))
def test_a_commit_that_is_cut_is_skipped_by_name(world: Watched, version: int, cut: int) -> None:
    row = OffsetCommitValue(offset=1, metadata="abc", commit_timestamp=2)
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    value = encode_value(row, version)[:-cut]
    world.begin_load(batches(iter([NewRecord(encode_key(key), value, 1)])))
    world.finish()
    assert world.said == [None]
    [line] = world.warnings
    assert "offset 0 " in line or "group 'g' for t-0" in line
    assert world.fetched("g") == {}
