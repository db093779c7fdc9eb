"""Checkpoints that are written off the loop."""

import pytest

from firnline.base.effects import Effects, Flush, SetTimer, Submit
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import TopicPartition
from firnline.base.log_lines.line import Log as LoggedLine
from firnline.config.topic import TopicConfig
from firnline.log.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    format_directory,
    read_offsets,
    write_offsets,
)
from firnline.log.directory import LogDirectory
from firnline.log.log import Log
from firnline.log.recovery import OpenSteps
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.effects import World, carried_out, only, said
from tests.worlds.log import NOW, TOPIC_ID, TP, batch


def directory() -> LogDirectory:
    fs = CrashableFs()
    rng = SeededRng(1)
    format_directory(fs, "/data", cluster_id="c", node_id=1, directory_id=rng.uuid())
    made = LogDirectory(fs, "/data", cluster_id="c", node_id=1, unique=rng.uuid)
    made.start()
    log = made.open(TP, TOPIC_ID, TopicConfig(), NOW)
    log.append_as_leader(batch("a"), leader_epoch=0, now_ms=NOW)
    log.sync_now()
    for name in (LOG_STARTS, HIGH_WATERMARKS):  # until then nobody knows what the disk says of it
        made._write(name)
    return made


def points(found: LogDirectory) -> dict[TopicPartition, int]:
    return read_offsets(found._fs, f"/data/{RECOVERY_POINTS}")


def later(found: LogDirectory) -> Submit:
    """Note what is to be written, slice by slice."""
    [effect] = found.checkpoint_later(NOW)
    while isinstance(effect, SetTimer):
        assert effect.at_ms == NOW
        [effect] = effect.then(NOW)
    return only([effect], Submit)


def test_what_was_written_in_the_pool_takes_its_name_on_the_loop() -> None:
    found = directory()
    submit = later(found)
    submit.work()
    assert points(found) == {}
    submit.then(None, NOW)
    assert points(found) == {TP: 1}


def test_an_older_state_never_replaces_a_newer_one() -> None:
    """A truncation lowers the recovery point on disk; a slow writer must not raise it again (rel-P13)."""
    found = directory()
    slow = later(found)
    slow.work()
    found.logs[TP].truncate_to(0)
    assert points(found) == {TP: 0}
    slow.then(None, NOW)
    assert points(found) == {TP: 0}


def test_a_truncation_above_what_the_file_says_writes_none_and_none_that_says_more_comes_later() -> (
    None
):
    """A thousand partitions are cut when their broker comes back; each write would hold all of them."""
    found = directory()
    found.checkpoint()
    log = found.logs[TP]
    for _ in range(3):
        log.append_as_leader(batch("b"), leader_epoch=0, now_ms=NOW)
    log.sync_now()
    slow = later(found)
    slow.work()
    fs = found._fs
    assert isinstance(fs, CrashableFs)
    before = fs.syncs
    log.truncate_to(2)
    assert fs.syncs == before + 1, "that of the segment"
    assert points(found) == {TP: 1}
    slow.then(None, NOW)
    assert points(found) == {TP: 1}, "what was written in the pool says 4"


def test_one_writer_at_a_time_and_another_after_a_failure() -> None:
    found = directory()
    slow = later(found)
    assert found.checkpoint_later(NOW) == []
    slow.then(OSError("no space"), NOW)
    assert points(found) == {}
    again = later(found)
    again.work()
    again.then(None, NOW)
    assert points(found) == {TP: 1}


def test_a_name_that_the_disk_refuses_stops_nobody_and_is_asked_for_again() -> None:
    """The node has other directories (rel-P9), and the old checkpoint is as true as before."""
    found = directory()
    submit = later(found)
    submit.work()
    fs = found._fs
    assert isinstance(fs, CrashableFs)
    fs.fail("rename", RECOVERY_POINTS, "EIO")
    submit.then(None, NOW)
    assert points(found) == {}
    again = later(found)
    again.work()
    again.then(None, NOW)
    assert points(found) == {TP: 1}


@pytest.mark.parametrize("where", ["on the loop", "in the pool"])
def test_what_keeps_a_checkpoint_from_being_written_is_said_once_until_it_is_written(
    where: str,
) -> None:
    """Else the next start recovers hours of logs, and nobody knows why."""
    found = directory()
    fs = found._fs
    assert isinstance(fs, CrashableFs)

    def tried() -> list[str]:
        log = found.logs[TP]
        log.append_as_leader(batch("b"), leader_epoch=0, now_ms=NOW)
        log.sync_now()
        submit = later(found)
        try:
            result = submit.work()
        except StorageError as problem:
            result = problem
        return [
            said(effect) for effect in submit.then(result, NOW) if isinstance(effect, LoggedLine)
        ]

    # The first name is that of the file in the pool, the second the one that it takes on the loop.
    for skip in (0, 0) if where == "in the pool" else (1, 2):
        fs.fail("rename", RECOVERY_POINTS, "EIO", skip=skip)
    (line,) = tried()
    assert "tried again" in line
    assert RECOVERY_POINTS in line
    assert tried() == []
    assert not any(fault.times for fault in fs._faults), "it failed twice"
    assert tried() == []
    fs.fail("rename", RECOVERY_POINTS, "EIO", times=9)
    assert len(tried()) == 1


def test_a_directory_that_was_let_go_is_left_alone() -> None:
    """Another process may hold it by now."""
    found = directory()
    slow = later(found)
    slow.work()
    found.abandon()
    slow.then(None, NOW)
    assert points(found) == {}


def test_a_log_start_that_was_promised_is_not_undone_by_a_checkpoint_from_before() -> None:
    found = directory()
    slow = later(found)
    slow.work()
    found.logs[TP].advance_log_start(1)
    kept: list[object] = []
    promise = only(found.keep_log_starts(lambda problem, now: kept.append(problem) or []), Submit)  # type: ignore[func-returns-value]
    promise.work()
    flush = only(promise.then(None, NOW), Flush)
    slow.then(None, NOW)
    assert kept == []
    flush.files[0].sync()
    flush.then(None, NOW)
    assert kept == [None]
    assert read_offsets(found._fs, f"/data/{LOG_STARTS}") == {TP: 1}
    assert points(found) == {TP: 1}


def test_a_promise_is_not_overtaken_by_a_checkpoint_that_was_noted_before_it() -> None:
    """The older one took the name while the promise was being written, and nobody wrote the promise then."""
    found = directory()
    slow = later(found)
    slow.work()
    found.logs[TP].advance_log_start(1)
    kept: list[object] = []
    promise = only(found.keep_log_starts(lambda problem, now: kept.append(problem) or []), Submit)  # type: ignore[func-returns-value]
    slow.then(None, NOW)
    promise.work()
    flush = only(promise.then(None, NOW), Flush)
    flush.files[0].sync()
    flush.then(None, NOW)
    assert kept == [None]
    assert read_offsets(found._fs, f"/data/{LOG_STARTS}") == {TP: 1}


# -- recovery points before a truncation -----------------------------------------------------------


def cut(found: LogDirectory, topic_partition: TopicPartition, offset: int) -> Effects:
    truncation = found.logs[topic_partition].truncation_to(offset)
    assert truncation is not None
    return truncation.run(lambda problem, now: [], NOW)


def test_the_recovery_point_is_low_on_disk_before_anything_is_cut() -> None:
    """rel-P13: after a crash nobody must vouch for bytes that were replaced."""
    found = directory()
    found.write_recovery_points()
    syncs = found._fs.syncs  # type: ignore[attr-defined]
    keep = only(cut(found, TP, 0), Submit)
    assert found._fs.syncs == syncs, "the loop waits for no disk"  # type: ignore[attr-defined]
    keep.work()
    assert points(found) == {TP: 1}
    flush = only(keep.then(None, NOW), Flush)
    assert points(found) == {TP: 0}
    assert found.logs[TP].log_end_offset == 1, "its name may not survive the power yet"
    flush.files[0].sync()
    truncate = only(flush.then(None, NOW), Submit)
    assert points(found) == {TP: 0}
    truncate.then(truncate.work(), NOW)
    assert found.logs[TP].log_end_offset == 0


def test_a_recovery_point_that_is_low_enough_is_not_written_again() -> None:
    found = directory()
    found.logs[TP].append_as_leader(batch("b"), leader_epoch=0, now_ms=NOW)
    found.write_recovery_points()
    found.logs[TP].append_as_leader(batch("c"), leader_epoch=0, now_ms=NOW)
    assert only(cut(found, TP, 2), Submit).name.startswith("truncate")


def test_a_checkpoint_that_is_being_written_does_not_raise_the_point_of_a_log_that_is_cut() -> None:
    found = directory()
    slow = later(found)
    slow.work()
    keep = only(cut(found, TP, 0), Submit)
    slow.then(None, NOW)
    assert points(found) == {}
    keep.work()
    flush = only(keep.then(None, NOW), Flush)
    flush.files[0].sync()
    only(flush.then(None, NOW), Submit)
    assert points(found) == {TP: 0}


def test_logs_that_are_cut_at_a_time_share_the_writes_of_their_points() -> None:
    found = directory()
    others = [TopicPartition("t", number) for number in range(1, 9)]
    for each in others:
        log = found.open(each, TOPIC_ID, TopicConfig(), NOW)
        for value in "ab":
            log.append_as_leader(batch(value), leader_epoch=0, now_ms=NOW)
        log.sync_now()
    first = only(cut(found, TP, 0), Submit)
    assert [effect for each in others for effect in cut(found, each, 1)] == []
    first.work()
    flush = only(first.then(None, NOW), Flush)
    flush.files[0].sync()
    truncate, second = flush.then(None, NOW)
    assert isinstance(truncate, Submit)
    assert isinstance(second, Submit)
    assert truncate.name == "truncate /data/t-0"
    second.work()
    flush = only(second.then(None, NOW), Flush)
    flush.files[0].sync()
    cuts = flush.then(None, NOW)
    assert [only([each], Submit).name for each in cuts] == [
        f"truncate /data/{each}" for each in others
    ]
    assert points(found) == dict.fromkeys(others, 1) | {TP: 0}


def cuts_after(effects: Effects) -> list[str]:
    """Do what the disk is asked for, in turn, until a log would be cut; return the names of those cuts."""
    world = World(NOW)
    world.held = lambda effect: isinstance(effect, Submit) and effect.name.startswith("truncate")
    world.carry_out(effects)
    return [only([cut], Submit).name for cut in world.on_hold]


def test_a_hundred_logs_that_waited_for_one_write_do_not_all_go_on_in_one_step() -> None:
    found = directory()
    others = [TopicPartition("t", number) for number in range(1, 101)]
    for each in others:
        log = found.open(each, TOPIC_ID, TopicConfig(), NOW)
        log.append_as_leader(batch("a"), leader_epoch=0, now_ms=NOW)
        log.sync_now()
    first = only(cut(found, TP, 0), Submit)
    assert [effect for each in others for effect in cut(found, each, 0)] == []
    flush = only(first.then(first.work(), NOW), Flush)
    second = only(flush.then(None, NOW)[1:], Submit)
    flush = only(second.then(second.work(), NOW), Flush)
    *some, timer = flush.then(None, NOW)
    assert len(some) < 20
    assert len(some) + len(cuts_after([timer])) == 100


@pytest.mark.parametrize("is_cut_first", [True, False])
def test_a_compaction_and_a_truncation_both_have_on_disk_what_they_were_promised(
    is_cut_first: bool,
) -> None:
    """Whoever came first took the later write for one that says the same; but that was on its way still."""
    found = directory()
    found.checkpoint()
    other = TopicPartition("t", 1)
    compacted = found.open(other, TOPIC_ID, TopicConfig(cleanup_policy=("compact",)), NOW)
    compacted.append_as_leader(batch("a"), leader_epoch=0, now_ms=NOW)
    compacted.sync_now()
    promised: list[dict[TopicPartition, int]] = []

    def kept(problem: Exception | None, now_ms: int) -> Effects:
        assert problem is None
        promised.append(points(found))
        return []

    def both() -> Effects:
        if is_cut_first:
            first = cut(found, TP, 0)
            return [*first, *found.keep_for_compaction(compacted, kept)]
        first = found.keep_for_compaction(compacted, kept)
        return [*first, *cut(found, TP, 0)]

    first, *rest = both()
    assert cuts_after([*rest, first]) == ["truncate /data/t-0"], "the later one is faster"
    assert points(found) == {TP: 0, other: 1}
    assert [each[other] for each in promised] == [1]


def test_a_point_that_is_low_on_disk_is_written_again_while_one_that_says_more_is_on_its_way() -> (
    None
):
    found = directory()
    found.checkpoint()
    log = found.logs[TP]
    for value in "bc":
        log.append_as_leader(batch(value), leader_epoch=0, now_ms=NOW)
    log.sync_now()
    kept: list[object] = []
    higher = only(
        found.keep_for_compaction(log, lambda problem, now: kept.append(problem) or []), Submit
    )  # type: ignore[func-returns-value]
    cleaner_is_kept = higher.then(higher.work(), NOW)
    flush = only(cleaner_is_kept, Flush)
    flush.files[0].sync()
    [higher] = flush.then(None, NOW)
    assert cut(found, TP, 2) == [], "it waits for the write that is under way"
    assert cuts_after([higher]) == ["truncate /data/t-0"]
    assert points(found) == {TP: 2}
    assert kept == [None]


def test_a_point_that_cannot_be_written_cuts_nothing() -> None:
    found = directory()
    found.write_recovery_points()
    keep = only(cut(found, TP, 0), Submit)
    full = StorageError("no room", error="ENOSPC")
    assert keep.then(full, NOW) == []
    log = found.logs[TP]
    assert (log.log_end_offset, log.truncation) == (1, None)


def test_a_point_whose_sync_failed_does_not_take_the_name() -> None:
    found = directory()
    found.checkpoint()
    keep = only(cut(found, TP, 0), Submit)
    keep.work()
    keep.then(StorageError("cannot sync", error="EIO"), NOW)
    assert points(found) == {TP: 1}
    assert found.logs[TP].log_end_offset == 1


def test_what_says_the_same_as_before_is_not_written_again() -> None:
    """An idle node with ten thousand partitions would write them out every five seconds."""
    found = directory()
    first = later(found)
    first.work()
    first.then(None, NOW)
    assert only(found.checkpoint_later(NOW), SetTimer).then(NOW) == []
    found.logs[TP].append_as_leader(batch("b"), leader_epoch=0, now_ms=NOW)
    found.logs[TP].sync_now()
    second = later(found)
    second.work()
    second.then(None, NOW)
    assert points(found) == {TP: 2}


def test_an_entry_that_is_no_longer_true_is_written_over_though_nothing_is_left_to_say() -> None:
    """After a start nobody knows what the file says: an old log start must not stay in it."""
    found = directory()
    found.checkpoint()
    found.abandon()
    write_offsets(found._fs, f"/data/{LOG_STARTS}", {TopicPartition("gone", 0): 1})
    again = LogDirectory(found._fs, "/data", cluster_id="c", node_id=1, unique=SeededRng().uuid)
    again.start()
    again.open(TP, TOPIC_ID, TopicConfig(), NOW)
    submit = later(again)
    submit.work()
    submit.then(None, NOW)
    assert read_offsets(found._fs, f"/data/{LOG_STARTS}") == {}


def test_a_full_pool_delays_what_has_to_be_kept_and_stops_nobody() -> None:
    """After ten thousand partitions were deleted a log that was to be cut took the node down."""
    found = directory()
    log = found.logs[TP]
    notified: list[object] = []

    def over(problem: object, now_ms: int) -> Effects:
        notified.append(problem)
        return []

    truncation = log.truncation_to(0)
    assert truncation is not None
    found.checkpoint()  # vouches for more than what will be left
    submit = only(truncation.run(over, NOW), Submit)
    [timer] = submit.then(KafkaError(Code.THROTTLING_QUOTA_EXCEEDED, "full"), NOW)
    assert isinstance(timer, SetTimer)
    assert timer.at_ms > NOW
    assert not notified
    again = only(timer.then(timer.at_ms), Submit)
    again.work()
    again.then(None, NOW)
    assert points(found) == {TP: 0}


def test_no_recovery_point_is_written_before_the_gaps_below_it() -> None:
    """A start that finds the one and not the other takes what compaction left for lost bytes."""
    found = directory()
    log = found.logs[TP]
    log.compaction.expect_gaps()
    slow = later(found)
    slow.work()
    found.keep_for_compaction(log, lambda problem, now_ms: [])  # a newer one is on its way
    slow.then(None, NOW)
    gaps = read_offsets(found._fs, f"/data/{CLEANER_OFFSETS}")
    assert TP in gaps or TP not in points(found)


def dirty_from_two() -> LogDirectory:
    """A start finds on disk that the log is compacted below 2; it ends at 3."""
    found = directory()
    log = found.logs[TP]
    for value in "bc":
        log.append_as_leader(batch(value), leader_epoch=0, now_ms=NOW)
    log.sync_now()
    log.compaction.found(2)
    found.checkpoint()
    found.abandon()
    again = LogDirectory(found._fs, "/data", cluster_id="c", node_id=1, unique=SeededRng().uuid)
    again.start()
    again.open(TP, TOPIC_ID, TopicConfig(), NOW)
    again.write_recovery_points()
    assert gaps(again) == {TP: 2}
    return again


def gaps(found: LogDirectory) -> dict[TopicPartition, int]:
    return read_offsets(found._fs, f"/data/{CLEANER_OFFSETS}")


def test_a_truncation_that_is_tried_again_leaves_no_new_records_counted_as_compacted() -> None:
    """The first try failed to say so on disk; the second took what was noted for what the disk says."""
    found = dirty_from_two()
    assert found.logs[TP].compaction.first_dirty_offset == 2
    keep = only(cut(found, TP, 1), Submit)
    assert keep.then(StorageError("no room", error="ENOSPC"), NOW) == []
    assert cuts_after(cut(found, TP, 1)) == ["truncate /data/t-0"]
    assert gaps(found) == {TP: 1}


def test_a_checkpoint_whose_name_a_power_cut_may_undo_is_written_again_before_a_truncation() -> (
    None
):
    found = dirty_from_two()
    keep = only(cut(found, TP, 1), Submit)
    flush = only(keep.then(keep.work(), NOW), Flush)
    assert flush.then(StorageError("the disk failed"), NOW) == []
    assert only(cut(found, TP, 1), Submit).name == keep.name


def test_a_log_that_was_noted_lower_is_lowered_on_disk_before_it_is_cut() -> None:
    """A checkpoint that was being gathered noted the offset; it was not written yet."""
    found = dirty_from_two()
    found.logs[TP].compaction.truncated_to(1)
    found._note(found.logs.values())
    found.logs[TP].truncate_to(1)
    assert gaps(found) == {TP: 1}


def with_first_gap(found: LogDirectory) -> TopicPartition:
    """Another log took its first gap, from a leader that compacts; no checkpoint was written since."""
    other = TopicPartition("t", 1)
    log = found.open(other, TOPIC_ID, TopicConfig(), NOW)
    log.append_as_follower(batch("a"), leader_epoch=0, now_ms=NOW)
    for _ in range(2):
        log.append_as_follower(batch("b", base_offset=7), leader_epoch=0, now_ms=NOW)
    log.sync_now()
    assert log.compaction.may_have_gaps
    return other


def test_a_truncation_of_one_log_hides_the_first_gap_of_no_other() -> None:
    """After a crash its gap lay below its recovery point, nobody expected it, and a copy called it damage."""
    found = directory()
    found.checkpoint()
    other = with_first_gap(found)
    only(found.checkpoint_later(NOW), SetTimer).then(NOW)
    assert cuts_after(cut(found, TP, 0)) == ["truncate /data/t-0"]
    assert points(found)[other] == 8
    assert gaps(found) == {other: 0}


def test_who_waits_for_recovery_points_learns_of_a_cleaner_checkpoint_that_fails() -> None:
    """And who came later has a try of its own: nobody waits for ever."""
    found = directory()
    found.checkpoint()
    other = with_first_gap(found)
    only(found.checkpoint_later(NOW), SetTimer).then(NOW)
    first = only(cut(found, TP, 0), Submit)
    assert first.name.startswith("keep cleaner")
    assert cut(found, other, 1) == []
    again = only(first.then(StorageError("no room", error="ENOSPC"), NOW), Submit)
    assert (found.logs[TP].truncation, found.logs[TP].log_end_offset) == (None, 1)
    assert points(found) == {TP: 1}
    assert cuts_after([again]) == [f"truncate /data/{other}"]
    assert gaps(found) == {other: 0}
    assert cuts_after(cut(found, TP, 0)) == ["truncate /data/t-0"]


def test_recovery_points_that_are_written_on_the_spot_come_after_the_first_gaps_too() -> None:
    found = directory()
    found.checkpoint()
    other = with_first_gap(found)
    found.write_recovery_points()
    assert points(found)[other] == 8
    assert gaps(found) == {other: 0}


def test_a_topic_made_again_waits_for_no_disk_and_no_checkpoint_speaks_of_the_old_one() -> None:
    """The recovery point of the old log would vouch for what the new one has not."""
    found = directory()
    found.checkpoint()
    stale = later_at_once(found)
    found.drop(found.logs[TP], NOW)
    steps = found.open_steps(TP, bytes(15) + b"9", TopicConfig(), NOW)
    wait = next(steps)
    assert wait is not None
    notified: list[Exception | None] = []
    effects = wait.begin(lambda problem, now_ms: notified.append(problem) or [], NOW)  # type: ignore[func-returns-value]
    assert points(found) == {TP: 1}, "nothing is written on the loop"
    assert notified == []
    carried_out(effects, NOW)
    assert notified == [None]
    assert points(found) == {}
    carried_out(stale, NOW)
    assert points(found) == {}, "what was being written when it was dropped takes no name any more"
    assert names_of_waits(steps) == [f"make /data/{TP}"]
    again = found.open_steps(TopicPartition("t", 77), TOPIC_ID, TopicConfig(), NOW)
    assert names_of_waits(again) == ["make /data/t-77"], "nothing of it is in a checkpoint"


def names_of_waits(steps: OpenSteps[Log]) -> list[str]:
    """Open a log to the end; return what it had done by threads."""
    found = []
    for wait in steps:
        if wait is not None:
            found.append(only(wait.begin(lambda problem, now_ms: [], NOW), Submit).name)
            wait.at_once()
    return found


def later_at_once(found: LogDirectory) -> Effects:
    """Have the checkpoints written beside the loop, but not take their names yet."""
    log = found.logs[TP]
    log.append_as_leader(batch("b"), leader_epoch=0, now_ms=NOW)
    log.sync_now()
    submit = later(found)
    submit.work()
    return [submit]


def test_a_cut_that_has_to_write_no_point_lets_none_that_says_more_come_later() -> None:
    """As where it is cut at once: the pool's file would vouch for records that were replaced."""
    found = directory()
    found.checkpoint()
    log = found.logs[TP]
    for _ in range(3):
        log.append_as_leader(batch("b"), leader_epoch=0, now_ms=NOW)
    log.sync_now()
    slow = later(found)
    slow.work()
    assert only(cut(found, TP, 2), Submit).name.startswith("truncate")
    slow.then(None, NOW)
    assert points(found) == {TP: 1}, "what was written in the pool says 4"


def test_a_topic_made_again_receives_nothing_of_the_old_one_that_was_only_being_written() -> None:
    found = directory()
    found.checkpoint()
    other = TopicPartition("t", 1)
    log = found.open(other, TOPIC_ID, TopicConfig(), NOW)
    log.append_as_leader(batch("a"), leader_epoch=0, now_ms=NOW)
    log.sync_now()
    stale = later_at_once(found)
    found.drop(log, NOW)
    wait = next(found.open_steps(other, bytes(15) + b"9", TopicConfig(), NOW))
    assert wait is not None
    carried_out([*wait.begin(lambda problem, now_ms: [], NOW), *stale], NOW)
    assert points(found) == {TP: 1}


def test_a_topic_of_the_name_of_another_does_not_begin_where_that_one_began() -> None:
    found = directory()
    log = found.logs[TP]
    log.append_as_leader(batch("b"), leader_epoch=0, now_ms=NOW)
    log.advance_high_watermark(log.log_end_offset)
    log.advance_log_start(1)
    found.checkpoint()
    found.close()
    again = LogDirectory(found._fs, "/data", cluster_id="c", node_id=1, unique=SeededRng().uuid)
    again.start()
    new = again.open(TP, bytes(15) + b"9", TopicConfig(), NOW)
    assert (new.log_start_offset, new.log_end_offset) == (0, 0)
    assert len(again.stray_paths) == 1


def test_a_thread_without_a_descriptor_keeps_no_log_from_being_made() -> None:
    """The loop can give some back, a thread cannot."""
    found, other = directory(), TopicPartition("t", 77)
    steps = found.open_steps(other, TOPIC_ID, TopicConfig(), NOW)
    assert next(steps) is not None
    with pytest.raises(StopIteration) as end:
        steps.throw(StorageError("cannot open", error="EMFILE"))
    log = end.value.value
    assert found.logs[other] is log
    assert "/data" in {file.path for file in found.unsynced(log)}
