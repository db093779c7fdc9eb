"""What a checkpoint said of a log that was cut does not hold for the log that takes the place of the rest."""

from typing import Any

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import StorageError
from firnline.base.log_lines.line import Log as LoggedLine
from firnline.log.checkpoint import HIGH_WATERMARKS, LOG_STARTS, format_directory, read_offsets
from firnline.log.directory import LogDirectory
from firnline.log.log import Log
from firnline.log.recovery import recovery_warnings
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.effects import carried_out, said
from tests.worlds.log import NOW, TOPIC_ID, TP, append, batch, flush, found_records, small


def started(fs: CrashableFs) -> LogDirectory:
    found = LogDirectory(fs, "/data", cluster_id="c", node_id=1, unique=SeededRng(1).uuid)
    found.start()
    return found


def opened(found: LogDirectory, segment_bytes: int = 10**6, partition: int = 0) -> Log:
    log = found.open(
        TP._replace(partition=partition), TOPIC_ID, small(segment_bytes=segment_bytes), NOW
    )
    for file in found.unsynced(log):
        file.sync()
    return log


def deleted_below_20(fs: CrashableFs, segment_bytes: int) -> tuple[LogDirectory, Log]:
    """A log of 30 records whose first 20 were deleted by request, all of it on disk."""
    format_directory(fs, "/data", cluster_id="c", node_id=1, directory_id=SeededRng(2).uuid())
    found = started(fs)
    log = opened(found, segment_bytes)
    for _ in range(30):
        append(log, batch("x" * 100))
    log.advance_high_watermark(30)
    log.advance_log_start(20)
    log.delete_due_segments(NOW)
    flush(log)
    found.checkpoint()
    return found, log


def cut_off_the_loop(log: Log, offset: int) -> None:
    outcome: list[StorageError | None] = []

    def over(problem: StorageError | None, now_ms: int) -> Effects:
        outcome.append(problem)
        return []

    truncation = log.truncation_to(offset)
    assert truncation is not None
    carried_out(truncation.run(over, NOW), NOW)
    assert outcome == [None]


@pytest.mark.parametrize("is_off_loop", [True, False])
@pytest.mark.parametrize("segment_bytes", [10**6, 700])
def test_a_log_start_above_a_cut_does_not_delete_what_came_after_the_cut(
    segment_bytes: int, is_off_loop: bool
) -> None:
    """The last replica standing lost data, and leads from 6; what it acknowledges now is not to be lost."""
    fs = CrashableFs()
    _, log = deleted_below_20(fs, segment_bytes)
    if is_off_loop:
        cut_off_the_loop(log, 6)
    else:
        log.truncate_to(6)
    for _ in range(3):
        append(log, batch("new"), epoch=1)
    flush(log)
    for seed in range(10):
        again = opened(started(fs.crash(SeededRng(seed))), segment_bytes)
        assert (again.log_start_offset <= 6, again.log_end_offset) == (True, 9)
        assert [r.offset for r in found_records(again) if r.value == b"new"] == [6, 7, 8]
        assert again.high_watermark <= 6, "nobody said that more is committed"


def test_a_cut_above_the_log_start_writes_no_log_starts() -> None:
    """A thousand logs are cut when their broker comes back; each file speaks of all of them."""
    fs = CrashableFs()
    found, log = deleted_below_20(fs, 10**6)
    before = dict(found._writes)
    log.advance_high_watermark(30)
    for name in (LOG_STARTS, HIGH_WATERMARKS):
        fs.remove(f"/data/{name}")
    cut_off_the_loop(log, 30 - 1)
    assert not fs.exists(f"/data/{LOG_STARTS}")
    assert before[LOG_STARTS] < found._writes[LOG_STARTS], "none on its way says more"


def test_a_checkpoint_that_was_noted_before_a_cut_does_not_raise_the_log_start_again() -> None:
    fs = CrashableFs()
    found, log = deleted_below_20(fs, 10**6)
    log.advance_log_start(25)
    on_its_way = found.checkpoint_later(NOW)
    cut_off_the_loop(log, 6)
    carried_out(on_its_way, NOW)
    assert read_offsets(fs, f"/data/{LOG_STARTS}").get(TP, 0) <= 6


def test_a_checkpoint_while_a_log_is_being_cut_says_what_will_be_left() -> None:
    fs = CrashableFs()
    found, log = deleted_below_20(fs, 10**6)
    truncation = log.truncation_to(6)
    assert truncation is not None
    truncation.run(lambda problem, now_ms: [], NOW)
    found.checkpoint()
    assert log.log_start_offset == 20, "nothing is cut before the disk says less"
    assert read_offsets(fs, f"/data/{LOG_STARTS}").get(TP, 0) == 6
    assert read_offsets(fs, f"/data/{HIGH_WATERMARKS}")[TP] == 6


def test_a_log_that_begins_empty_at_its_start_says_what_its_files_held() -> None:
    """Records were deleted up to 20, and the power took those that were not synced yet."""
    fs = CrashableFs()
    found, log = deleted_below_20(fs, 10**6)
    for _ in range(5):
        append(log, batch("x" * 100))
    log.advance_high_watermark(35)
    log.advance_log_start(35)
    found.checkpoint()
    again = opened(started(fs.crash(SeededRng(), keep="none")))
    assert (again.log_start_offset, again.log_end_offset) == (35, 35)
    [line] = recovery_warnings(again)
    assert isinstance(line, LoggedLine)
    assert "topic=t partition=0 log_start_offset=35 files_end_offset=30" in said(line)


def committed_but_lost() -> CrashableFs:
    """What a power cut left of a log of 10 committed records: the first 4, which were synced."""
    fs = CrashableFs()
    format_directory(fs, "/data", cluster_id="c", node_id=1, directory_id=SeededRng(2).uuid())
    found = started(fs)
    log = opened(found)
    for number in range(10):
        append(log, batch("old"))
        if number == 3:
            flush(log)
    log.advance_high_watermark(10)
    found.checkpoint()
    return fs.crash(SeededRng(), keep="none")


def test_what_replaces_records_that_a_power_cut_took_is_not_committed_by_their_watermark() -> None:
    """The last replica standing lost data and leads; it is killed before its next checkpoint."""
    fs = committed_but_lost()
    log = opened(started(fs))
    assert (log.log_end_offset, log.high_watermark) == (4, 4)
    for _ in range(3):
        append(log, batch("new"), epoch=1)
    flush(log)
    again = opened(started(fs.kill()))
    assert (again.log_end_offset, again.high_watermark) == (7, 4)


def test_one_write_lowers_the_watermarks_of_all_logs_that_a_power_cut_has_shortened() -> None:
    """It says nothing too high of a log that is opened later, whose watermark is not forgotten."""
    fs = CrashableFs()
    format_directory(fs, "/data", cluster_id="c", node_id=1, directory_id=SeededRng(2).uuid())
    found = started(fs)
    for partition, synced in enumerate((4, 4, 10)):
        log = opened(found, partition=partition)
        for number in range(10):
            append(log, batch("old"))
            if number == synced - 1:
                flush(log)
        log.advance_high_watermark(10)
    found.checkpoint()
    found = started(fs.crash(SeededRng(), keep="none"))
    assert opened(found, partition=0).high_watermark == 4
    writes = found._writes[HIGH_WATERMARKS]
    found.checkpoint()
    again = opened(found, partition=1)
    assert again.high_watermark == 4
    assert opened(found, partition=2).high_watermark == 10
    assert found._writes[HIGH_WATERMARKS] == writes + 1, "that of the checkpoint"
    for _ in range(3):
        append(again, batch("new"), epoch=1)
    flush(again)
    after = opened(started(found._fs.kill()), partition=1)  # type: ignore[attr-defined]
    assert (after.log_end_offset, after.high_watermark <= 4) == (7, True)


def test_two_logs_that_are_opened_alternately_both_have_their_watermark_lowered() -> None:
    """One of them is gone: its recovery point says more than it has."""
    fs = CrashableFs()
    format_directory(fs, "/data", cluster_id="c", node_id=1, directory_id=SeededRng(2).uuid())
    found = started(fs)
    for partition, synced in ((0, 10), (1, 4)):
        log = opened(found, partition=partition)
        for number in range(10):
            append(log, batch("old"))
            if number < synced:
                flush(log)
        log.advance_high_watermark(10)
    found.checkpoint()
    fs = fs.crash(SeededRng(), keep="none")
    fs.remove("/data/t-0/00000000000000000000.log")
    found = started(fs)
    waiting: list[tuple[Any, Effects]] = []
    for partition in (0, 1):
        tp = TP._replace(partition=partition)
        steps = found.open_steps(tp, TOPIC_ID, small(), NOW)
        for wait in filter(None, steps):
            effects = wait.begin(lambda problem, now_ms: [], NOW)
            if HIGH_WATERMARKS in found._keeping:
                waiting.append((steps, effects))
                break
            carried_out(effects, NOW)
    assert len(waiting) == 2
    for steps, effects in waiting:
        carried_out(effects, NOW)
        assert list(steps) == []
    assert [log.high_watermark for log in found.logs.values()] == [0, 4]
    said = read_offsets(fs, f"/data/{HIGH_WATERMARKS}")
    assert [said[TP._replace(partition=partition)] for partition in (0, 1)] == [0, 4]


def test_a_log_whose_watermark_cannot_be_lowered_is_not_served() -> None:
    fs = committed_but_lost()
    found = started(fs)
    fs.fail("append", path_part=HIGH_WATERMARKS, error="ENOSPC")
    with pytest.raises(StorageError):
        opened(found)
    assert not found.logs
    assert opened(found).high_watermark == 4, "there is room again"
    assert read_offsets(fs, f"/data/{HIGH_WATERMARKS}")[TP] <= 4


def test_a_node_that_was_killed_knows_what_was_committed() -> None:
    """Nothing is lost with the process alone: consumers read on at once."""
    fs = CrashableFs()
    format_directory(fs, "/data", cluster_id="c", node_id=1, directory_id=SeededRng(2).uuid())
    found = started(fs)
    log = opened(found)
    for _ in range(5):
        append(log, batch("old"))
    log.advance_high_watermark(5)
    found.checkpoint()
    assert opened(started(fs.kill())).high_watermark == 5
