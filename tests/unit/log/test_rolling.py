"""When a segment is closed, what is there then, and what a roll that fails leaves behind."""

import contextlib
import os
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from firnline.base.effects import Appended
from firnline.base.errors import StorageError
from firnline.config.topic import TopicConfig
from firnline.formats import names, transaction_index
from firnline.formats.transaction_index import AbortedTxn
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.log.segments import OPEN_SEGMENTS_MAX
from firnline.runtime.disk import RealFs
from firnline.sim.disk import CrashableFs, Keep
from tests.worlds.chance import SeededRng
from tests.worlds.log import (
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
    patched,
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


def test_a_batch_has_a_segment_of_its_own_when_an_index_has_no_room_for_an_entry() -> None:
    """As with Kafka, whose time index of 12 bytes is full before its first entry."""
    log = opened(CrashableFs(), small(segment_index_bytes=12, index_interval_bytes=1))
    for number in range(4):
        append(log, batch("a", time_ms=NOW + number))
    assert [s.base_offset for s in log.closed_segments()] == [0, 1, 2]


def test_a_segment_rolls_when_an_offset_cannot_be_distinguished_from_its_base() -> None:
    log = opened(CrashableFs(), small(cleanup_policy="compact"))
    far = batch("b")
    struct.pack_into(">q", far, 0, 2**31)
    assert isinstance(log.append_as_follower(batch("a"), leader_epoch=0, now_ms=NOW), Appended)
    assert isinstance(log.append_as_follower(far, leader_epoch=0, now_ms=NOW), Appended)
    assert [s.base_offset for s in log.closed_segments()] == [0]
    assert log.closed_segments()[0].end_offset == 0
    assert log.log_end_offset == 2**31 + 1
    assert [r.offset for r in found_records(log)] == [0, 2**31]


def test_an_empty_segment_is_never_rolled() -> None:
    log = opened(CrashableFs())
    append(log, batch("a"))
    assert log.roll(NOW)
    assert not log.roll(NOW)


def test_what_a_copier_needs_is_there_after_a_roll() -> None:
    fs = CrashableFs()
    log = opened(fs)
    append(log, batch("a", pid=7, seq=0, is_transactional=True))
    end_txn(log, 7, ABORT)
    assert log.roll(NOW)
    (closed,) = log.closed_segments()
    assert (closed.base_offset, closed.end_offset, closed.largest_time_ms()) == (0, 1, NOW)
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
    assert not log.closed_segments()
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
    left.append(transaction_index.encode([AbortedTxn(7, 3, 4, 5)]))
    log.roll(NOW)
    fill(log, 3)
    assert log.aborted_transactions(0, 6) == []


# -- indexes, on their way to the disk -------------------------------------------------------------

BLOCK = 4  # entries that are written at a time


def one_entry_each(monkeypatch: pytest.MonkeyPatch, fs: CrashableFs) -> Log:
    """A log of which nearly every batch has an entry in either index; they are written in small blocks."""
    monkeypatch.setattr("firnline.log.segment._ENTRIES_AT_ONCE", BLOCK)
    return opened(fs, one_entry())


def one_entry() -> TopicConfig:
    return small(segment_bytes=10**6, segment_index_bytes=10**6, index_interval_bytes=1)


def grow(log: Log, count: int) -> None:
    """Append so many batches, each with a time of its own, for an entry."""
    for _ in range(count):
        append(log, batch("x", time_ms=NOW + log.log_end_offset))


def index_bytes(fs: CrashableFs, base_offset: int = 0) -> list[bytes]:
    """The two index files of a segment; b"" for one that is not there."""
    paths = [PATH + "/" + names.stem(base_offset) + end for end in (".index", ".timeindex")]
    return [fs.open(path).read(0, 1 << 20) if fs.exists(path) else b"" for path in paths]


def expected(fs: CrashableFs, log: Log) -> list[bytes]:
    """What they have to be, by the batches."""
    rows = [(each.last_offset, each.position) for each in found_headers(log, 0)]
    offsets = b"".join(struct.pack(">ii", *row) for row in rows[1:])
    times = b"".join(struct.pack(">qi", NOW + offset, offset) for offset, _ in rows[1:])
    return [offsets, times]


def test_no_append_writes_the_indexes_of_a_full_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that rolled wrote half a million entries: 20 ms in which nobody else was served."""
    fs = CrashableFs()
    log = one_entry_each(monkeypatch, fs)
    sizes = [0]
    for _ in range(10 * BLOCK):
        grow(log, 1)
        sizes.append(sum(map(len, index_bytes(fs))))
    assert log.roll(NOW)
    sizes.append(sum(map(len, index_bytes(fs))))
    steps = [after - before for before, after in pairwise(sizes)]
    assert max(steps) == BLOCK * (8 + 12)
    assert sum(step > 0 for step in steps) == 10, "and most append nothing but their batch"
    assert index_bytes(fs) == expected(fs, log)


def test_what_a_follower_appends_at_once_is_written_with_its_next_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = CrashableFs()
    log = one_entry_each(monkeypatch, fs)
    for first, end in ((0, 2 * BLOCK + 2), (2 * BLOCK + 2, 2 * BLOCK + 3)):
        data = bytearray()
        for offset in range(first, end):
            data += patched(batch("x", time_ms=NOW + offset), ">q", 0, offset, fix_crc=False)
        assert isinstance(log.append_as_follower(data, leader_epoch=0, now_ms=NOW), Appended)
    assert len(index_bytes(fs)[0]) == (2 * BLOCK + 1) * 8


@pytest.mark.parametrize("index", [".index", ".timeindex"])
@pytest.mark.parametrize("error", ["ENOSPC", "EMFILE"])
def test_an_append_goes_on_where_only_its_index_finds_no_room(
    monkeypatch: pytest.MonkeyPatch, index: str, error: str
) -> None:
    """The roll is told of it, as ever, and the next one makes up for it."""
    fs = CrashableFs()
    log = one_entry_each(monkeypatch, fs)
    fs.fail("append" if error == "ENOSPC" else "open", index, error, times=1000)
    grow(log, 5 * BLOCK)
    with pytest.raises(StorageError):
        log.roll(NOW)
    grow(log, BLOCK)
    fs.forgive()
    assert log.roll(NOW)
    assert index_bytes(fs) == expected(fs, log)
    assert log.log_end_offset == 6 * BLOCK


@pytest.mark.parametrize("index", [".index", ".timeindex"])
def test_an_append_whose_index_finds_a_failed_disk_is_refused_and_not_half_done(
    monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    fs = CrashableFs()
    log = one_entry_each(monkeypatch, fs)
    fs.fail("append", index, "EIO")
    with pytest.raises(StorageError):
        grow(log, 2 * BLOCK)
    end = log.log_end_offset
    assert len(found_headers(log)) == end
    grow(log, 3 * BLOCK)
    assert log.roll(NOW)
    assert index_bytes(fs) == expected(fs, log)


@pytest.mark.parametrize("keep", ["none", "some", "all"])
def test_an_index_of_which_a_crash_left_the_first_blocks_is_built_anew(
    monkeypatch: pytest.MonkeyPatch, keep: Keep
) -> None:
    """One that ends early would have retention take the segment for older than it is."""
    fs = CrashableFs()
    log = one_entry_each(monkeypatch, fs)
    for path in ("/", "/data"):
        fs.sync_dir(path)
    grow(log, 2 * BLOCK)
    flush(log)
    grow(log, 3 * BLOCK)
    recovery_point = log.recovery_point
    fs = fs.crash(SeededRng(3), keep=keep)
    again = opened(fs, one_entry(), recovery_point=recovery_point)
    assert 2 * BLOCK <= again.log_end_offset <= 5 * BLOCK
    assert index_bytes(fs) == expected(fs, again)
    grow(again, 2 * BLOCK)
    assert again.roll(NOW)
    assert index_bytes(fs) == expected(fs, again)
    assert again.closed_segments()[0].largest_time_ms() == NOW + again.log_end_offset - 1


def test_an_index_that_is_cut_grows_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept in range(1, 4 * BLOCK):
        fs = CrashableFs()
        log = one_entry_each(monkeypatch, fs)
        grow(log, 4 * BLOCK + 1)
        log.truncate_to(kept)
        grow(log, 2 * BLOCK + 1)
        assert log.roll(NOW)
        assert index_bytes(fs) == expected(fs, log)


@pytest.mark.parametrize("is_removed", [True, False])
def test_who_takes_an_index_away_from_an_open_segment_has_all_of_it_written_at_its_end(
    monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    """And not in the append that comes next, which would write all there was."""
    fs = CrashableFs()
    log = one_entry_each(monkeypatch, fs)
    grow(log, 4 * BLOCK)
    path = f"{PATH}/{names.stem(0)}.index"
    if is_removed:
        fs.remove(path)
    else:
        fs.open(path).truncate(8)
    grow(log, 2 * BLOCK)
    assert len(index_bytes(fs)[0]) <= 8
    assert log.roll(NOW)
    assert index_bytes(fs) == expected(fs, log)


@pytest.mark.parametrize("is_closed", [True, False])
def test_an_empty_index_beside_a_large_segment_is_not_believed(is_closed: bool) -> None:
    """Each look for a place would go over the segment from its beginning, for seconds."""
    fs = CrashableFs()
    log = opened(fs, one_entry())
    grow(log, 20)
    if is_closed:
        log.roll(NOW)
    log.close()
    complete = index_bytes(fs)
    fs.open(f"{PATH}/{names.stem(0)}.index").truncate(0)
    again = opened(fs, one_entry(), was_clean=True, recovery_point=20)
    assert [each.base_offset for each in found_headers(again, 15)] == [15, 16, 17, 18, 19]
    assert index_bytes(fs) == complete


def test_the_empty_index_of_a_segment_that_needs_none_is_left_alone() -> None:
    """Batches up to the first interval, and the one that goes beyond it, have no entry."""
    fs = CrashableFs()
    config = small(segment_bytes=10**6, index_interval_bytes=200)
    log = opened(fs, config)
    fill(log, 1, size=40)
    fill(log, 1, size=1000)
    log.roll(NOW)
    log.close()
    assert index_bytes(fs)[0] == b""
    again = opened(fs, config, was_clean=True, recovery_point=2)
    assert len(found_headers(again)) == 2
    assert not any(segment.is_rebuilt for segment in again._segments.all())


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
