"""Following a leader: what is asked, what an answer does to our log, and what it must not do."""

from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError, SegmentDamaged, StorageError
from firnline.base.replicas import EARLIEST, LATEST, Fetched, LeaderFetch, Position
from firnline.replica import follower
from firnline.replica.follower import TRUNCATIONS_AT_ONCE
from firnline.replica.partition import Partition
from firnline.replica.read import Local
from firnline.sim.disk import CrashableFs
from tests.unit.replica.scripted_leader import (
    BACKOFF_MS,
    SELF,
    Leader,
    asked_offsets,
    fetched,
    lead,
    many,
    records,
    replica,
)
from tests.worlds.log import NOW, TOPIC_ID, batch, opened, small

# ------------------------------------------------------------------------------------- following


def test_the_first_fetch_says_where_our_log_ends_and_in_which_epoch() -> None:
    leader = Leader(replica((1, "a"), (2, "b")))
    position = Position("t", TOPIC_ID, 0, 3, 2, 2, 0)
    assert leader.ask == LeaderFetch(0, 0, (position,), ())


def test_what_comes_is_appended_with_watermark_and_log_start() -> None:
    p = replica()
    leader = Leader(p)
    data = records((1, "a"), (3, "b"))
    leader.answer(fetched(data=data, high_watermark=1, log_start_offset=0))
    assert p.log.read_batches(0, max_bytes=1 << 20) == data
    assert (p.log.log_end_offset, p.log.high_watermark) == (2, 1)
    assert p.log.epochs.entries() == ((1, 0), (3, 1)), "rel-R11: the lineage comes with the batches"
    assert asked_offsets(leader.ask) == [2]


def test_a_watermark_beyond_our_log_is_taken_as_far_as_we_have_it() -> None:
    p = replica()
    leader = Leader(p)
    leader.answer(fetched(data=records((3, "a")), high_watermark=99, log_start_offset=0))
    assert p.log.high_watermark == 1


def test_a_new_leader_that_does_not_know_the_watermark_yet_takes_none_from_us() -> None:
    p = replica((1, "a"), (1, "b"))
    p.log.advance_high_watermark(2)
    leader = Leader(p)
    leader.answer(fetched(high_watermark=0, log_start_offset=0))
    assert p.log.high_watermark == 2


@pytest.mark.parametrize("own_start", [7, 0])
def test_a_log_start_within_a_batch_does_not_keep_a_new_replica_away(own_start: int) -> None:
    """Goal: after DeleteRecords the leader's log may begin within a batch; a replica that lost all, and
    begins there, is sent that batch whole, takes it, and goes on (KAFKA-6361). Also if a crash took the log
    start of its tiered log back."""
    p = replica()
    p.log.truncate_fully(7, log_start_offset=own_start)
    source = opened(CrashableFs(), small())
    for size in (5, 4, 1):
        source.append_as_leader(batch(*["v"] * size), leader_epoch=3, now_ms=NOW)
    data = source.read_batches(7, max_bytes=1 << 20)
    leader = Leader(p)
    leader.answer(fetched(data=data, high_watermark=9, log_start_offset=7))
    assert p.log.read_batches(5, max_bytes=1 << 20) == data
    assert (p.log.log_start_offset, p.log.log_end_offset, p.log.high_watermark) == (7, 10, 9)
    assert leader.ask.positions[0].fetch_offset == 10


def test_records_below_the_end_of_a_log_are_not_taken_for_its_first_batch() -> None:
    p = replica((3, "kept"))
    leader = Leader(p)
    leader.answer(fetched(data=records((3, "other"))))
    assert p.log.log_end_offset == 1
    assert leader.warnings != []


def test_the_log_start_follows_the_leader() -> None:
    p = replica((1, "a"), (1, "b"))
    leader = Leader(p)
    leader.answer(fetched(high_watermark=2, log_start_offset=1))
    assert p.log.log_start_offset == 1


def test_a_session_carries_changes_alone() -> None:
    p = replica()
    leader = Leader(p)
    leader.answer(fetched(high_watermark=0, log_start_offset=0), session_id=7)
    assert leader.ask == LeaderFetch(7, 1, (), ())
    leader.answer(fetched(data=records((3, "a")), high_watermark=0, log_start_offset=0))
    assert leader.ask[:2] == (7, 2)
    assert asked_offsets(leader.ask) == [1]
    leader.answer()
    assert leader.ask == LeaderFetch(7, 3, (), ())


def test_a_fetch_costs_what_changed_and_not_what_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Partition] = []
    position = follower._Followed.position
    monkeypatch.setattr(
        follower._Followed, "position", lambda each: looked.append(each.partition) or position(each)
    )
    followed = many(50)
    leader = Leader(*followed)
    assert len(looked) == len(leader.ask.positions) == 50
    leader.answer()
    looked.clear()
    for number in range(10):
        leader.answer(fetched(data=records((3, "a"), start=number)))
        assert asked_offsets(leader.ask) == [number + 1]
    assert looked == [followed[0]] * 10


def test_what_a_log_does_by_itself_is_reported_to_the_leader_in_time() -> None:
    """Retention moves its start, and nobody tells."""
    p = replica((3, "a"), (3, "b"))
    p.log.advance_high_watermark(2)
    leader = Leader(p)
    p.log.advance_log_start(1)
    leader.answer()
    assert leader.ask.positions == ()
    leader.now_ms += follower.LOOK_AT_ALL_MS
    leader.answer()
    assert [each.log_start_offset for each in leader.ask.positions] == [1]


def test_a_partition_that_went_offline_is_left_out_in_time() -> None:
    p, other = many(2)
    leader = Leader(p, other)
    leader.answer()
    p.go_offline()
    leader.now_ms += follower.LOOK_AT_ALL_MS
    leader.answer()
    assert [each.topic_id for each in leader.ask.forgotten] == [TOPIC_ID]


def test_what_is_followed_no_more_is_forgotten_by_the_session() -> None:
    p = replica()
    leader = Leader(p)
    other = replica()
    other.topic_id = b"o" * 16
    leader.fetcher.add(other)
    leader.answer()
    leader.fetcher.remove(p)
    leader.answer()
    assert [position.topic_id for position in leader.ask.forgotten] == [TOPIC_ID]


def test_without_a_session_each_fetch_is_complete() -> None:
    leader = Leader(replica())
    leader.answer(session_id=0)
    assert leader.ask[:2] == (0, 0)
    assert len(leader.ask.positions) == 1


@pytest.mark.parametrize(
    "code",
    [
        Code.FETCH_SESSION_ID_NOT_FOUND,
        Code.INVALID_FETCH_SESSION_EPOCH,
        Code.FETCH_SESSION_TOPIC_ID_ERROR,
    ],
)
def test_a_session_that_was_pushed_out_begins_again_at_once(code: Code) -> None:
    leader = Leader(replica())
    leader.answer()
    leader.fail(code)
    assert leader.ask[:2] == (0, 0)
    assert len(leader.ask.positions) == 1
    leader.fail(code)
    assert leader.asked == [], "but it does not spin"


def test_a_leader_that_does_not_answer_is_asked_again_after_a_pause_for_everything() -> None:
    leader = Leader(replica())
    leader.answer()
    leader.fail(Code.NETWORK_EXCEPTION)
    assert leader.asked == []
    leader.pass_time(BACKOFF_MS - 1)
    assert leader.asked == []
    leader.pass_time(1)
    assert leader.ask[:2] == (0, 0)


# ---------------------------------------------------------------------- answers that do not count


def test_an_answer_of_another_leader_epoch_is_not_applied() -> None:
    """rel-R19: it may be from a leader that was deposed since."""
    p = replica((1, "a"))
    leader = Leader(p)
    lead(p, 4)
    leader.fetcher.add(p)
    leader.answer(fetched(diverging=(0, 0)))
    assert p.log.log_end_offset == 1
    assert leader.ask.positions[0].leader_epoch == 4


def test_an_answer_for_another_place_is_not_applied() -> None:
    """rel-R19: a doubled divergence truncated a good log."""
    p = replica((1, "a"))
    leader = Leader(p)
    p.log.append_as_follower(records((3, "b"), start=1), leader_epoch=3, now_ms=NOW)
    leader.answer(fetched(diverging=(1, 0)))
    assert p.log.log_end_offset == 2


def test_an_answer_after_the_end_is_not_applied() -> None:
    p = replica()
    leader = Leader(p)
    leader.run(leader.fetcher.stop())
    leader.answer(fetched(data=records((3, "a"))))
    assert (p.log.log_end_offset, leader.asked) == (0, [])


def test_what_we_lead_ourselves_by_now_is_not_touched() -> None:
    p = replica((1, "a"))
    leader = Leader(p)
    lead(p, 4, leader=SELF)
    leader.fetcher.remove(p)
    leader.answer(fetched(diverging=(0, 0)))
    assert p.log.log_end_offset == 1


# ------------------------------------------------------------------------------------ divergence


@pytest.mark.parametrize(
    ("ours", "diverging", "end"),
    [
        ([1, 1, 1], (1, 2), 2),
        ([1, 1, 2, 2], (1, 2), 2),
        ([1, 1, 2, 2], (1, 5), 2),
        ([1, 3, 3], (2, 9), 1),
        ([2, 2], (1, 1), 0),
    ],
    ids=[
        "the leader's part of the epoch is shorter",
        "our later epoch is none of its",
        "our part of the epoch is shorter",
        "an epoch that we never saw",
        "nothing in common",
    ],
)
def test_a_history_that_differs_is_cut_where_it_parts(
    ours: list[int], diverging: tuple[int, int], end: int
) -> None:
    p = replica(*((epoch, "v") for epoch in ours))
    leader = Leader(p)
    leader.answer(fetched(diverging=diverging))
    assert p.log.log_end_offset == end
    assert all(start < end for _, start in p.log.epochs.entries())
    assert asked_offsets(leader.ask) == [end]


def test_an_epoch_without_records_of_ours_is_given_up_too() -> None:
    """We led, wrote nothing, and the leader never heard of that epoch: without this we would ask for ever."""
    p = replica((1, "a"))
    p.log.epochs.assign(2, 1)
    leader = Leader(p)
    assert leader.ask.positions[0].last_fetched_epoch == 2
    leader.answer(fetched(diverging=(1, 1)))
    assert leader.ask.positions[0].last_fetched_epoch == 1
    assert leader.warnings == []


def diverged(p: Partition) -> Fetched:
    return fetched(diverging=(1, 1))._replace(partition=p.topic_partition.partition)


def test_the_cuts_of_a_thousand_partitions_do_not_hold_the_loop_at_once() -> None:
    """Each takes a little of the loop and much of the disk: some at a time, and nothing is asked of them."""
    followed = [replica((1, "a"), (2, "b"), partition=number) for number in range(50)]
    leader = Leader(*followed)
    leader.holds_work = True
    leader.answer(*map(diverged, followed))
    assert len(leader.work) == TRUNCATIONS_AT_ONCE
    assert leader.asked == [], "there is nothing to ask for"
    most = 0
    while leader.work:
        submit = leader.work.pop(0)
        leader.run(submit.then(submit.work(), 0))
        most = max(most, len(leader.work))
    assert most == TRUNCATIONS_AT_ONCE
    assert [p.log.log_end_offset for p in followed] == [1] * 50


def test_nothing_is_asked_of_a_log_that_is_being_cut_and_no_answer_changes_it() -> None:
    cut, other = replica((1, "a"), (2, "b")), replica((1, "a"), partition=1)
    leader = Leader(cut, other)
    leader.holds_work = True
    leader.answer(diverged(cut))
    assert [position.partition for position in leader.ask.forgotten] == [0]
    leader.answer(fetched(data=records((3, "c"), start=1), high_watermark=2, log_start_offset=0))
    assert cut.log.log_end_offset == 1
    leader.do_work()
    assert cut.log.truncation is None
    leader.answer()
    assert asked_offsets(leader.ask) == [1]
    leader.answer(fetched(data=records((3, "c"), start=1), high_watermark=2, log_start_offset=0))
    assert (cut.log.log_end_offset, cut.log.high_watermark) == (2, 2)


def test_a_partition_that_is_followed_elsewhere_by_then_is_not_cut_for_the_leader_it_had() -> None:
    followed = [
        replica((1, "a"), (2, "b"), partition=number) for number in range(TRUNCATIONS_AT_ONCE + 1)
    ]
    last = followed[-1]
    leader = Leader(*followed)
    leader.holds_work = True
    leader.answer(*map(diverged, followed))
    assert last.log.truncation is None, "it waits for its turn"
    leader.fetcher.remove(last)
    lead(last, 4, leader=SELF)
    leader.do_work()
    assert [p.log.log_end_offset for p in followed] == [1] * TRUNCATIONS_AT_ONCE + [2]


def test_a_log_whose_segments_went_while_it_waited_for_its_turn_begins_anew() -> None:
    """Where it is to end may lie before all that is left by then."""
    followed = [
        replica((1, "a"), (2, "b"), partition=number) for number in range(TRUNCATIONS_AT_ONCE + 1)
    ]
    last = followed[-1]
    leader = Leader(*followed)
    leader.holds_work = True
    leader.answer(*map(diverged, followed))
    last.log.roll(NOW)
    last.log.advance_high_watermark(2)
    last.log.advance_log_start(2)
    leader.run(last.log.delete_due_segments(NOW)[:0])
    assert last.log.first_base_offset == 2
    leader.do_work()
    assert (last.log.first_base_offset, last.log.log_end_offset) == (1, 1)


def test_a_log_that_is_being_cut_is_not_fetched_in_a_new_epoch_before_it_is_complete() -> None:
    p = replica((1, "a"), (2, "b"))
    leader = Leader(p)
    leader.holds_work = True
    leader.answer(diverged(p))
    lead(p, 4)
    leader.fetcher.add(p)
    leader.go()
    assert leader.asked == []
    leader.do_work()
    [position] = leader.ask.positions
    assert (position.leader_epoch, position.fetch_offset) == (4, 1)


def test_a_disk_that_fails_in_a_cut_ends_the_partition_also_when_it_is_full() -> None:
    """What is in memory is cut, what is on disk is not: the log is not to be gone on with."""
    p = replica((1, "a"), (2, "b"))
    leader = Leader(p)
    fs: Any = p.log._fs
    fs.fail("sync", ".log", "ENOSPC")
    leader.answer(diverged(p))
    assert p.is_offline
    assert (leader.failed, leader.asked) == ([p], [])


def test_consumers_get_nothing_from_a_replica_that_is_being_cut() -> None:
    """KIP-392: neither the records that go, nor a last stable offset that is of no log."""
    p = replica((1, "a"), (2, "b"))
    p.log.advance_high_watermark(1)
    leader = Leader(p)
    leader.holds_work = True
    leader.answer(diverged(p))
    found = p.read(0, max_bytes=1 << 20, isolation=0, is_any_replica=True)
    assert isinstance(found, KafkaError)
    assert found.code == Code.REPLICA_NOT_AVAILABLE
    leader.do_work()
    assert isinstance(p.read(0, max_bytes=1 << 20, isolation=0, is_any_replica=True), Local)


def test_epochs_without_records_are_given_up_all_at_once() -> None:
    """No disk is asked: every partition whose leader wrote nothing has one after each change of leader."""
    followed = [replica((1, "a"), partition=number) for number in range(50)]
    for p in followed:
        p.log.epochs.assign(2, 1)
    leader = Leader(*followed)
    leader.answer(
        *(
            fetched(diverging=(1, 1))._replace(partition=p.topic_partition.partition)
            for p in followed
        )
    )
    assert {position.last_fetched_epoch for position in leader.ask.positions} == {1}
    assert len(leader.ask.positions) == 50


def test_a_divergence_that_leads_nowhere_does_not_spin() -> None:
    leader = Leader(replica((1, "a")))
    leader.answer(fetched(diverging=(1, 9)))
    assert leader.asked == []
    assert "nothing to cut off" in leader.warnings[0]
    leader.pass_time()
    assert leader.ask.forgotten == ()


def test_records_that_were_committed_are_not_given_up_silently() -> None:
    p = replica((1, "a"), (1, "b"))
    p.log.advance_high_watermark(2)
    leader = Leader(p)
    leader.answer(fetched(diverging=(1, 1)))
    assert len(leader.warnings) == 1
    assert "committed records were lost" in leader.warnings[0]


def test_the_watermark_of_a_divergence_is_not_taken() -> None:
    p = replica((1, "a"), (1, "b"), (1, "c"))
    leader = Leader(p)
    leader.answer(fetched(diverging=(1, 1), high_watermark=3, log_start_offset=3))
    assert (p.log.high_watermark, p.log.log_start_offset) == (0, 0)


# ---------------------------------------------------------------------------------- out of range


def test_a_log_that_ends_before_the_leaders_begins_is_begun_anew_there() -> None:
    p = replica((1, "a"))
    leader = Leader(p)
    leader.answer(fetched(Code.OFFSET_OUT_OF_RANGE))
    assert leader.offset(500) == LATEST
    assert leader.offset(400) == EARLIEST
    assert (p.log.log_start_offset, p.log.log_end_offset) == (400, 400)
    assert asked_offsets(leader.ask) == [400]


def test_a_log_that_ends_after_the_leaders_is_cut_there() -> None:
    p = replica((1, "a"), (1, "b"), (1, "c"))
    leader = Leader(p)
    leader.answer(fetched(Code.OFFSET_OUT_OF_RANGE))
    leader.offset(1)
    assert p.log.log_end_offset == 1
    assert leader.offsets == []


def test_a_log_that_overlaps_the_leaders_is_kept() -> None:
    p = replica((1, "a"), (1, "b"))
    leader = Leader(p)
    leader.answer(fetched(Code.OFFSET_OUT_OF_RANGE))
    leader.offset(9)
    leader.offset(1)
    assert (p.log.log_start_offset, p.log.log_end_offset) == (0, 2)


def test_offsets_of_a_leader_that_was_deposed_meanwhile_cut_nothing() -> None:
    p = replica((1, "a"), (1, "b"))
    leader = Leader(p)
    leader.answer(fetched(Code.OFFSET_OUT_OF_RANGE))
    lead(p, 4)
    leader.fetcher.add(p)
    leader.offset(0)
    assert p.log.log_end_offset == 2


def test_offsets_that_cannot_be_had_are_asked_for_again_later() -> None:
    p = replica((1, "a"))
    leader = Leader(p)
    leader.answer(fetched(Code.OFFSET_OUT_OF_RANGE), session_id=0)
    leader.offset(KafkaError(Code.NETWORK_EXCEPTION))
    assert leader.asked == []
    leader.pass_time()
    assert asked_offsets(leader.ask) == [1]


# ---------------------------------------------------------------------------------------- errors


def test_a_fenced_partition_waits_for_metadata() -> None:
    """I23."""
    p = replica()
    leader = Leader(p)
    leader.answer(fetched(Code.FENCED_LEADER_EPOCH))
    leader.pass_time(100 * BACKOFF_MS)
    assert leader.asked == []
    lead(p, 4)
    leader.fetcher.add(p)
    leader.go()
    assert leader.ask.positions[0].leader_epoch == 4


@pytest.mark.parametrize(
    "code",
    [
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_refused_partition_is_asked_for_again_after_a_pause(code: Code) -> None:
    leader = Leader(replica())
    leader.answer(fetched(code))
    assert leader.asked == []
    leader.pass_time()
    assert leader.ask == LeaderFetch(7, 1, (), ()), "the session still has it"


def test_a_refused_partition_does_not_hold_up_the_others() -> None:
    p, other = replica(), replica()
    other.topic_id = b"o" * 16
    leader = Leader(p, other)
    leader.answer(fetched(Code.NOT_LEADER_OR_FOLLOWER))
    assert [position.topic_id for position in leader.ask.forgotten] == [TOPIC_ID]


def test_damaged_records_are_not_written_and_are_asked_for_again() -> None:
    p = replica()
    leader = Leader(p)
    data = bytearray(records((3, "a")))
    data[-1] ^= 1
    leader.answer(fetched(data=bytes(data), high_watermark=1, log_start_offset=0))
    assert (p.log.log_end_offset, p.log.high_watermark) == (0, 0)
    assert "CRC" in leader.warnings[0]
    leader.pass_time()
    leader.answer(fetched(data=records((3, "a")), high_watermark=1, log_start_offset=0))
    assert (p.log.log_end_offset, p.log.high_watermark) == (1, 1)


def test_a_damaged_base_offset_costs_another_question_and_no_record() -> None:
    """The follower went on behind what it had not got, and its leader took it for acknowledged."""
    p = replica((3, "a"))
    leader = Leader(p)
    leader.answer(fetched(data=records((3, "b"), start=9), high_watermark=1))
    assert "1 to 8 are missing" in leader.warnings[0]
    leader.pass_time()
    leader.answer(fetched(data=records((3, "b"), start=1), high_watermark=2))
    assert (p.log.log_end_offset, p.log.high_watermark) == (2, 2)


def test_batches_of_a_leader_that_came_later_are_not_taken() -> None:
    """KAFKA-18723: a leader that was deposed while it sent its answer had its log cut and filled again by its
    successor. What the follower got of both would look like one history to the successor later on."""
    p = replica((1, "a"))
    leader = Leader(p)
    mixed = records((3, "stale"), (4, "of the successor"), start=1)
    leader.answer(fetched(data=mixed, high_watermark=3, log_start_offset=0))
    assert (p.log.log_end_offset, p.log.high_watermark) == (1, 0)
    assert p.log.epochs.entries() == ((1, 0),)
    assert "newer epoch than its own" in leader.warnings[0]
    assert leader.asked == [], "it pauses before it asks again"
    leader.pass_time()
    leader.answer(fetched(data=mixed, high_watermark=3, log_start_offset=0))
    assert (len(leader.warnings), leader.asked) == (1, []), "and says so once"
    lead(p, 4)
    leader.fetcher.add(p)
    leader.pass_time()
    leader.answer(fetched(data=mixed, high_watermark=3, log_start_offset=0))
    assert p.log.log_end_offset == 3, "once we follow the successor, they are its own"


def test_batches_whose_epochs_fall_within_one_answer_are_not_taken() -> None:
    p = replica()
    leader = Leader(p)
    newer, older = records((3, "a")), records((2, "b"), start=1)
    leader.answer(fetched(data=newer + older, high_watermark=2, log_start_offset=0))
    assert p.log.log_end_offset == 0
    assert "does not follow its leader topic=t partition=0 leader=1" in leader.warnings[0]


@pytest.mark.parametrize("garbage", [b"x", b"\0" * 61, records((3, "a"))[:-1]])
def test_garbage_for_records_is_an_error_and_no_crash(garbage: bytes) -> None:
    p = replica()
    Leader(p).answer(fetched(data=garbage))
    assert p.log.log_end_offset == 0


@pytest.mark.parametrize("error", [StorageError("gone", error="EIO"), SegmentDamaged("flipped")])
def test_failed_files_end_the_partition_and_are_reported(
    error: StorageError, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = replica()
    leader = Leader(p)

    def fail(data: object, *, leader_epoch: int, now_ms: int) -> None:
        raise error

    monkeypatch.setattr(p.log, "append_as_follower", fail)
    leader.answer(fetched(data=records((3, "a"))))
    assert (p.is_offline, p.is_damaged) == (True, isinstance(error, SegmentDamaged))
    assert (leader.failed, leader.asked) == ([p], [])


def test_a_full_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    p = replica()
    leader = Leader(p)

    def fail(data: object, *, leader_epoch: int, now_ms: int) -> None:
        raise StorageError("full", error="ENOSPC")

    monkeypatch.setattr(p.log, "append_as_follower", fail)
    leader.answer(fetched(data=records((3, "a"))))
    assert not p.is_offline
    leader.pass_time()
    assert leader.ask.forgotten == ()
