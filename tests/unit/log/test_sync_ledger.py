"""The recovery point never passes what was synced, whatever happens while a sync is under way."""

import pytest

from firnline.base.errors import Bug
from firnline.log.epochs import LeaderEpochs
from firnline.log.segment import IndexRules, Segment
from firnline.log.sync_ledger import DirSync, SyncLedger
from firnline.sim.disk import CrashableFs


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
        lambda: file.append_all([b""]),
        lambda: file.truncate(0),
    ):
        with pytest.raises(Bug):
            wrong()
