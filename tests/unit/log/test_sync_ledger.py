"""The recovery point never passes what was synced, whatever happens while a sync is under way."""

import pytest

from firnline.base.errors import Bug, RecordsTruncated, StorageError
from firnline.base.ports import File
from firnline.base.revocable import revocable
from firnline.log.epochs import LeaderEpochs
from firnline.log.file_syncs import DirSync
from firnline.log.log import Log
from firnline.log.segment import IndexRules, Segment
from firnline.log.sync_ledger import SyncLedger
from firnline.sim.disk import CrashableFs
from tests.worlds.log import ABORT, NOW, PATH, append, batch, end_txn, fill, opened, small


def segment(base_offset: int) -> Segment:
    return Segment(CrashableFs(), "/t-0", base_offset, rules=IndexRules(1, 1, 1), now_ms=0)


def test_a_round_is_believed_when_it_is_reported() -> None:
    ledger = SyncLedger(0, LeaderEpochs(CrashableFs(), "/t-0/lineage"))
    ledger.open_round(10)
    assert (ledger.recovery_point, ledger.is_dir_dirty) == (0, True)
    ledger.close_round(10)
    assert (ledger.recovery_point, ledger.is_dir_dirty) == (10, False)


def test_a_report_without_a_round_is_not_believed() -> None:
    ledger = SyncLedger(0, LeaderEpochs(CrashableFs(), "/t-0/lineage"))
    ledger.close_round(10)
    assert ledger.recovery_point == 0


def test_a_segment_closed_after_the_listing_holds_the_recovery_point() -> None:
    ledger = SyncLedger(0, LeaderEpochs(CrashableFs(), "/t-0/lineage"))
    ledger.open_round(10)
    ledger.unsynced.append(segment(4))
    ledger.close_round(10)
    assert ledger.recovery_point == 4
    ledger.open_round(12)
    ledger.close_round(12)
    assert (ledger.recovery_point, ledger.unsynced) == (12, [])


def test_a_name_made_after_the_listing_is_still_to_be_synced() -> None:
    ledger = SyncLedger(0, LeaderEpochs(CrashableFs(), "/t-0/lineage"))
    ledger.open_round(1)
    ledger.dir_changes += 1
    ledger.close_round(1)
    assert ledger.is_dir_dirty


def test_a_late_report_of_an_early_round_vouches_for_no_other() -> None:
    """Two pools sync: the second round ends first. The first must not be taken for a third one."""
    ledger = SyncLedger(0, LeaderEpochs(CrashableFs(), "/t-0/lineage"))
    ledger.open_round(10)
    ledger.open_round(20)
    ledger.close_round(20)
    assert ledger.recovery_point == 20
    ledger.unsynced.append(segment(15))
    ledger.dir_changes += 1
    ledger.open_round(30)
    ledger.close_round(10)
    assert [s.base_offset for s in ledger.unsynced] == [15]
    assert ledger.is_dir_dirty
    assert ledger.recovery_point == 20
    ledger.close_round(30)
    assert (ledger.recovery_point, ledger.unsynced) == (30, [])


def test_a_truncation_takes_back_what_a_running_sync_would_vouch_for() -> None:
    ledger = SyncLedger(3, LeaderEpochs(CrashableFs(), "/t-0/lineage"))
    ledger.unsynced = [segment(0), segment(8)]
    ledger.open_round(10)
    ledger.truncated_to(5)
    assert ledger.recovery_point == 3
    assert [s.base_offset for s in ledger.unsynced] == [0]
    ledger.unsynced = []
    ledger.close_round(10)
    assert ledger.recovery_point == 5
    ledger.truncated_to(2)
    assert ledger.recovery_point == 2


def test_the_same_end_can_be_listed_twice() -> None:
    ledger = SyncLedger(0, LeaderEpochs(CrashableFs(), "/t-0/lineage"))
    ledger.open_round(10)
    ledger.unsynced.append(segment(2))
    ledger.open_round(10)
    ledger.close_round(10)
    assert ledger.recovery_point == 2
    ledger.close_round(10)
    assert ledger.recovery_point == 10


def test_a_directory_is_synced_and_nothing_else() -> None:
    fs = CrashableFs()
    fs.make_dir("/d")
    file = DirSync(fs, "/d")
    file.sync()
    file.close()
    assert (fs.syncs, file.size(), file.fileno(), file.read(0, 1)) == (1, 0, -1, b"")
    for wrong in (
        lambda: file.append(b""),
        lambda: file.truncate(0),
    ):
        with pytest.raises(Bug):
            wrong()


def unsynced(log: Log) -> list[File]:
    """What a round lists of a log with closed segments that nobody reads."""
    files = log.dirty_files()
    assert len(log.closed_segments()) > 2
    return list(files)


@pytest.mark.parametrize("name", [f"{0:020d}.log", f"{0:020d}.txnindex"])
def test_a_file_that_somebody_removed_is_not_taken_for_synced(name: str) -> None:
    """What came after it was acknowledged, and the next start found a hole that it believed."""
    fs = CrashableFs()
    log = opened(fs)
    append(log, batch("a", pid=7, seq=0, is_transactional=True))
    end_txn(log, 7, ABORT)
    fill(log, 30)
    files = unsynced(log)
    fs.remove(f"{PATH}/{name}")
    for file in files:
        file.sync()
    with pytest.raises(StorageError, match="disappeared before its sync"):
        log.flushed(log.log_end_offset)
    assert log.recovery_point == 0


def test_two_rounds_that_are_synced_in_one_run_both_learn_of_a_lost_file() -> None:
    """A run syncs each path once, with the `File` that was listed last."""
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 30)
    earlier, later, end = unsynced(log), unsynced(log), log.log_end_offset
    fs.remove(f"{PATH}/{0:020d}.log")
    for file in {file.path: file for file in earlier + later}.values():
        file.sync()
    for _ in range(2):
        with pytest.raises(StorageError, match="disappeared before its sync"):
            log.flushed(end)


def test_what_retention_or_a_cut_took_meanwhile_is_no_loss() -> None:
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 30)
    log.advance_high_watermark(30)
    files, end = unsynced(log), log.log_end_offset
    log.config = small(retention_ms=0)
    assert log.delete_due_segments(NOW + 10)
    for file in files:
        file.sync()
    log.flushed(end)
    log = opened(CrashableFs())
    fill(log, 30)
    files = unsynced(log)
    log.truncate_to(1)
    for file in files:
        file.sync()
    log.flushed(30)
    assert log.recovery_point <= 1


def test_a_sync_that_missed_what_a_cut_removed_is_no_loss_in_a_later_round() -> None:
    log = opened(CrashableFs())
    append(log, batch("a", pid=7, seq=0, is_transactional=True))
    end_txn(log, 7, ABORT)
    log.roll(NOW)
    fill(log, 1)
    files = list(log.dirty_files())
    log.truncate_to(1)
    for file in files:
        file.sync()
    fill(log, 30)
    later = unsynced(log)
    for file in later:
        file.sync()
    log.flushed(log.log_end_offset)
    assert log.recovery_point == log.log_end_offset


def test_a_log_that_was_taken_away_is_not_taken_for_synced() -> None:
    """Its directory failed, say, while acks=all waited for the sync of a closed segment."""
    log = opened(revocable(CrashableFs()))
    fill(log, 30)
    [file, *_] = [file for file in unsynced(log) if file.path == f"{PATH}/{0:020d}.log"]
    log.give_up()
    with pytest.raises(RecordsTruncated):
        file.sync()
