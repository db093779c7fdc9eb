"""A log whose disk has no room, or whose process no descriptor, goes on as if it had not been asked."""

import gc
import os
import struct
from pathlib import Path

import pytest

from firnline.base.effects import Appended, Effects
from firnline.base.errors import StorageError
from firnline.formats.transaction_index import ENTRY_BYTES
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.runtime.disk import RealFs
from firnline.sim.disk import CrashableFs
from tests.worlds.compaction import compacted, round_of, settled
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
    marker,
    opened,
    small,
)


def _of_a_leader(data: bytearray, offset: int, epoch: int = 0) -> bytearray:
    struct.pack_into(">q", data, 0, offset)
    struct.pack_into(">i", data, 12, epoch)
    return data


def _follow(log: Log, *batches: bytearray, epoch: int = 0) -> object:
    return log.append_as_follower(b"".join(batches), leader_epoch=epoch, now_ms=NOW)


def test_a_follower_takes_again_what_a_full_disk_refused_over_a_change_of_leaders() -> None:
    """It claimed the newest epoch of what it had not written, and refused what was before that for ever."""
    fs = CrashableFs()
    log = opened(fs)
    _follow(log, _of_a_leader(batch("a"), 0, 4), epoch=6)
    missing = _of_a_leader(batch("b"), 1, 5), _of_a_leader(batch("c"), 2, 6)
    fs.fail("append", ".log", "ENOSPC")
    with pytest.raises(StorageError):
        _follow(log, *missing, epoch=6)
    assert log.epochs.entries() == ((4, 0),)
    assert isinstance(_follow(log, *missing, epoch=6), Appended)
    assert log.epochs.entries() == ((4, 0), (5, 1), (6, 2))


@pytest.mark.parametrize(("operation", "error"), [("open", "EMFILE"), ("append", "ENOSPC")])
def test_an_aborted_transaction_is_left_out_though_its_index_had_no_room(
    operation: str, error: str
) -> None:
    """The marker was in the log, its entry nowhere, and the next batch stopped the node."""
    fs = CrashableFs()
    log = opened(fs)
    _follow(log, _of_a_leader(batch("a", pid=7, seq=0, is_transactional=True), 0))
    fs.fail(operation, ".txnindex", error)  # type: ignore[arg-type]
    _follow(log, _of_a_leader(marker(7, ABORT), 1), _of_a_leader(batch("z"), 2))
    assert isinstance(_follow(log, _of_a_leader(batch("y"), 3)), Appended)
    reported = log.aborted_transactions(0, 4)
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in reported] == [(7, 0, 1)]
    log.close()
    assert opened(fs, was_clean=True).aborted_transactions(0, 4) == reported


def test_a_segment_is_not_closed_before_its_index_of_transactions_is_complete() -> None:
    fs = CrashableFs()
    log = opened(fs)
    _follow(log, _of_a_leader(batch("a", pid=7, seq=0, is_transactional=True), 0))
    fs.fail("open", ".txnindex", "EMFILE", times=2)
    _follow(log, _of_a_leader(marker(7, ABORT), 1))
    with pytest.raises(StorageError):
        log.roll(NOW)
    assert not log.closed_segments()
    assert log.roll(NOW)
    assert fs.open(f"{PATH}/{0:020d}.txnindex").size() == ENTRY_BYTES


def _retain(log: Log) -> Effects:
    return log.delete_due_segments(NOW + 10)


@pytest.mark.parametrize("skip", [0, 1, 4])
def test_retention_that_has_no_room_for_a_name_leaves_the_log_complete(skip: int) -> None:
    """Half of a segment's files had their new names, and where the log begins was nobody's."""
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 30)
    log.advance_high_watermark(log.log_end_offset)
    before = sorted(fs.list_dir(PATH))
    log.config = small(retention_ms=0)
    fs.fail("rename", PATH, "ENOSPC", skip=skip)
    with pytest.raises(StorageError):
        _retain(log)
    assert sorted(fs.list_dir(PATH)) == before
    assert log.read(0, max_bytes=1, upto_offset=30).read()
    assert _retain(log)
    assert log.log_start_offset == 30


def test_what_retention_renamed_is_removed_though_the_next_segment_has_no_room() -> None:
    """On a full disk nothing was ever freed: the files kept their new names until the next start."""
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 30)
    log.advance_high_watermark(log.log_end_offset)
    closed = len(log.closed_segments())
    log.config = small(retention_ms=0)
    fs.fail("open", f"{30:020d}.log", "ENOSPC")
    assert closed
    assert _retain(log)
    assert not log.closed_segments()


def test_retention_that_has_no_room_does_not_try_again_before_its_next_look() -> None:
    """A disk that stays full would keep the loop, and the node, for as long."""
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 30)
    log.advance_high_watermark(log.log_end_offset)
    log.config = small(retention_ms=0)
    fs.fail("open", f"{30:020d}.log", "ENOSPC", times=3)
    assert _retain(log)
    for _ in range(2):
        with pytest.raises(StorageError):
            _retain(log)
    assert log.size_bytes
    assert _retain(log)
    assert not log.size_bytes


def _descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("lineage", ["kept", "lost", "lost after a clean stop"])
def test_a_log_of_many_segments_is_recovered_with_a_few_descriptors(
    tmp_path: Path, lineage: str
) -> None:
    """Each segment stayed open: a start after lost checkpoints ran out of descriptors, and never ended."""

    def open_again(*, was_clean: bool = False) -> Log:
        path = str(tmp_path / "t-0")
        config, fs = small(), RealFs()
        return open_log(
            fs, path, TP, topic_id=TOPIC_ID, config=config, now_ms=NOW, was_clean=was_clean
        )

    log = open_again()
    fill(log, 400)
    log.close()
    del log
    if lineage != "kept":
        (tmp_path / "t-0" / "leader-epoch-checkpoint").unlink()
    before = _descriptors()
    log = open_again(was_clean=lineage == "lost after a clean stop")
    assert len(log.closed_segments()) > 40
    assert _descriptors() - before < 12
    flush(log)
    assert log.recovery_point == 400
    assert _descriptors() - before < 12


def test_a_lineage_is_not_cut_short_because_there_was_no_descriptor() -> None:
    """What could not be opened passed for a torn tail, and the epochs after it for never led."""
    fs = CrashableFs()
    log = opened(fs)
    for epoch in range(5):
        fill(log, 10, epoch=epoch)
    log.close()
    complete = log.epochs.entries()
    fs.remove(f"{PATH}/leader-epoch-checkpoint")
    segment = log.closed_segments()[2].stem_path
    fs.fail("read", f"{segment}.log", "EIO")
    with pytest.raises(StorageError):
        opened(fs, was_clean=True)
    assert opened(fs, was_clean=True).epochs.entries() == complete


def test_a_lineage_that_cannot_be_written_opens_no_log() -> None:
    """What follows would rest on a file that is not there."""
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 10, epoch=3)
    log.close()
    fs.remove(f"{PATH}/leader-epoch-checkpoint")
    fs.fail("rename", "leader-epoch-checkpoint", "EIO")
    with pytest.raises(StorageError):
        opened(fs, was_clean=True)
    assert opened(fs, was_clean=True).epochs.entries() == log.epochs.entries()


def test_a_compacted_segment_without_room_for_its_aborted_transactions_is_not_put_in() -> None:
    """The marker would be there, and the entry that hides what is before it would not."""
    fs = CrashableFs()
    log = opened(fs, compacted(delete_retention_ms=1 << 40))
    append(log, batch("bad", key=b"k", pid=7, seq=0, is_transactional=True))
    end_txn(log, 7, ABORT)
    append(log, batch("good", key=b"j", pid=7, seq=1))
    settled(log)
    reported = log.aborted_transactions(0, 3)
    fs.fail("append", ".txnindex.cleaned", "ENOSPC", times=2)
    with pytest.raises(StorageError):
        round_of(fs, log)
    assert log.aborted_transactions(0, 3) == reported
    fs.forgive()
    round_of(fs, log)
    markers = [header for header in found_headers(log) if header.is_control]
    assert len(log.aborted_transactions(0, 3)) == len(markers) == 1


def test_an_index_of_transactions_that_a_failed_disk_refused_stops_the_log() -> None:
    fs = CrashableFs()
    log = opened(fs)
    _follow(log, _of_a_leader(batch("a", pid=7, seq=0, is_transactional=True), 0))
    fs.fail("append", ".txnindex", "EIO")
    with pytest.raises(StorageError):
        _follow(log, _of_a_leader(marker(7, ABORT), 1))
