"""When a segment is closed, what is there then, and what a roll that fails leaves behind."""

import contextlib
import os
import struct
from pathlib import Path

import pytest

from firnline.base.effects import Appended
from firnline.base.errors import StorageError
from firnline.log import names
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.log.segments import OPEN_SEGMENTS_MAX
from firnline.log.txn_index import AbortedTxn, encode_entries
from firnline.runtime.disk import RealFs
from firnline.sim.disk import CrashableFs
from tests.log_world import (
    ABORT,
    NOW,
    PATH,
    TOPIC_ID,
    TP,
    append,
    batch,
    end_txn,
    fill,
    flush,
    found_headers,
    found_records,
    offset_at_time,
    opened,
    small,
)


def test_a_segment_rolls_before_it_exceeds_its_size(log: Log) -> None:
    fill(log, 30)
    assert all(s.size_bytes <= 1000 for s in log.closed_segments())
    bases = [s.base_offset for s in log.closed_segments()]
    ends = [s.end_offset for s in log.closed_segments()]
    assert bases[1:] == [end + 1 for end in ends[:-1]]


def test_a_segment_rolls_by_the_times_of_its_records() -> None:
    log = opened(CrashableFs(), small(segment_ms=1000))
    for time_ms in (0, 1000, 1001, 1500, 2002):
        append(log, batch("a", time_ms=NOW + time_ms))
    assert [s.base_offset for s in log.closed_segments()] == [0, 2]
    log = opened(CrashableFs(), small(segment_ms=1000))
    append(log, batch("a", time_ms=-1), now_ms=NOW)
    append(log, batch("a", time_ms=-1), now_ms=NOW + 1000)
    append(log, batch("a", time_ms=-1), now_ms=NOW + 1001)
    assert [s.base_offset for s in log.closed_segments()] == [0]


def test_a_segment_rolls_when_an_index_is_full() -> None:
    log = opened(CrashableFs(), small(segment_bytes=10**6, segment_index_bytes=120))
    for number in range(100):
        append(log, batch(b"x" * 300, time_ms=NOW + number))
    assert len(log.closed_segments()) == 9


def test_a_segment_rolls_when_an_offset_cannot_be_told_from_its_base() -> None:
    log = opened(CrashableFs(), small(cleanup_policy="compact"))
    far = batch("b")
    struct.pack_into(">q", far, 0, 2**31)
    assert isinstance(log.append_as_follower(batch("a"), leader_epoch=0, now_ms=NOW), Appended)
    assert isinstance(log.append_as_follower(far, leader_epoch=0, now_ms=NOW), Appended)
    assert [s.base_offset for s in log.closed_segments()] == [0]
    assert log.closed_segments()[0].end_offset == 0
    assert log.log_end_offset == 2**31 + 1
    assert [r.offset for r in found_records(log)] == [0, 2**31]


def test_an_idle_segment_rolls_when_asked() -> None:
    log = opened(CrashableFs(), small(segment_ms=1000))
    append(log, batch("a"))
    assert not log.roll_if_due(NOW + 1000)
    assert log.roll_if_due(NOW + 1001)
    assert not log.roll_if_due(NOW + 5000), "an empty segment is never rolled"


def test_what_a_copier_needs_is_there_after_a_roll() -> None:
    fs = CrashableFs()
    log = opened(fs)
    append(log, batch("a", pid=7, seq=0, is_transactional=True))
    end_txn(log, 7, ABORT)
    assert log.roll(NOW)
    (closed,) = log.closed_segments()
    assert (closed.base_offset, closed.end_offset, closed.largest_time_ms()) == (0, 1, NOW)
    assert closed.has_txn_index
    for path in (
        *(closed.stem_path + suffix for suffix in (".log", ".index", ".timeindex", ".txnindex")),
        closed.snapshot_path,
    ):
        assert fs.open(path).size() > 0 or path.endswith(".index")
    assert closed.snapshot_path == f"{PATH}/00000000000000000002.snapshot"


def test_a_rolled_segment_is_dirty_until_its_indexes_are_synced(log: Log) -> None:
    """The log is synced, then it rolls while the report is on its way: the indexes were not in it."""
    fill(log, 5)
    end = log.log_end_offset
    log.dirty_files()
    log.roll(NOW)
    log.flushed(end)
    assert log.recovery_point == 0
    names = [file.path.rpartition("/")[2] for file in log.dirty_files()]
    assert names == [
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000005.snapshot",
        "t-0",
    ]
    log.flushed(end)
    assert log.recovery_point == 5


def test_a_lookup_between_the_roll_and_the_sync_does_not_empty_the_indexes() -> None:
    """Goal: what is synced, copied to the tier and given to Kafka is the index, not an empty file.
    Method: roll, let a time lookup load and drop the closed segment's indexes, then sync and close."""
    fs = CrashableFs()
    log = opened(fs, small(segment_bytes=2000, index_interval_bytes=100))
    for number in range(60):
        append(log, batch("x" * 40, time_ms=1000 + number))
    assert len(log.closed_segments()) >= 2
    assert offset_at_time(log, 1001) == (1, 1001)
    flush(log)
    log.close()
    for segment in log.closed_segments():
        for suffix in (".index", ".timeindex"):
            assert fs.open(segment.stem_path + suffix).size() > 0, segment.stem_path + suffix


def test_a_roll_that_finds_the_disk_full_can_be_tried_again() -> None:
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 8)
    fs.fail("append", ".snapshot", "ENOSPC")
    with pytest.raises(StorageError):
        log.roll(NOW)
    assert log.closed_segments() == []
    fill(log, 20)
    assert [h.base_offset for h in found_headers(log)] == list(range(28))


@pytest.mark.parametrize("full", [".snapshot", ".index", ".timeindex"])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_disk_that_was_full_at_a_roll_hides_no_record_from_the_next_start(
    full: str, is_clean: bool
) -> None:
    """The segment that was to be is empty; left there it would end the log, or make a gap in it."""
    fs = CrashableFs()
    log = opened(fs, small(segment_bytes=10**6, index_interval_bytes=1))
    fill(log, 8)
    fs.fail("append", full, "ENOSPC")
    with pytest.raises(StorageError):
        log.roll(NOW)
    fill(log, 3)
    if is_clean:
        log.close()
    else:
        log.roll(NOW)
        fs = fs.kill()
    again = opened(fs, small(segment_bytes=10**6), was_clean=is_clean)
    assert [h.base_offset for h in found_headers(again)] == list(range(11))
    assert again.log_end_offset == 11


def test_what_a_crash_left_under_the_names_of_a_new_segment_is_not_taken_for_its_own() -> None:
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 3)
    left = fs.open(f"{PATH}/{names.stem(3)}{names.TXN_INDEX}", create=True)
    left.append(encode_entries([AbortedTxn(7, 3, 4, 5)]))
    log.roll(NOW)
    fill(log, 3)
    assert log.aborted_transactions(0, 6) == []


def open_files(path: str) -> set[str]:
    """Names of files in a directory that this process has open."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{fd}"))
    return {name.rpartition("/")[2] for name in found if name.startswith(path)}


def on_real_files(tmp_path: Path) -> Log:
    path = str(tmp_path / "t-0")
    RealFs().make_dir(path)
    return open_log(RealFs(), path, TP, topic_id=TOPIC_ID, config=small(), now_ms=NOW)


def test_a_log_that_grows_for_a_month_keeps_one_file_open(tmp_path: Path) -> None:
    """Each closed segment that was kept open was a descriptor, in each of thousands of logs."""
    log = on_real_files(tmp_path)
    fill(log, 200)
    closed = [names.stem(segment.base_offset) + names.LOG for segment in log.closed_segments()]
    assert len(closed) > 10
    [active] = open_files(log.path)
    assert active not in closed
    found_headers(log)
    assert 1 < len(open_files(log.path)) <= 1 + OPEN_SEGMENTS_MAX
    log.delete_due_segments(NOW)
    log.read(0, max_bytes=1, upto_offset=200)  # somebody still reads the first one
    log.delete_due_segments(NOW)
    assert open_files(log.path) == {closed[0], active}
    log.delete_due_segments(NOW)
    assert open_files(log.path) == {active}
    assert len(found_headers(log)) == 200


def test_a_segment_that_retention_takes_is_closed_though_somebody_read_it(tmp_path: Path) -> None:
    """Its room came back with the look after the next one: five minutes later."""
    log = on_real_files(tmp_path)
    fill(log, 30)
    log.advance_high_watermark(30)
    found_headers(log)
    assert len(open_files(log.path)) > 1
    log.config = small(retention_ms=0)
    assert log.delete_due_segments(NOW + 10)
    assert open_files(log.path) == {f"{30:020d}.log"}
