"""What recovery leaves: for the next flush and the power cut after it, for the tier, for the operator."""

from typing import Any

import pytest

from firnline.base.errors import StorageError
from firnline.base.log_lines.line import Log
from firnline.formats import names
from firnline.log import recovery
from firnline.log.recovery import recovery_warnings
from firnline.log.segments import OPEN_SEGMENTS_MAX
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.effects import said
from tests.worlds.log import (
    NOW,
    PATH,
    append,
    batch,
    fill,
    flush,
    found_headers,
    found_records,
    opened,
    small,
)
from tests.worlds.recovery import filled, overwrite, read_file, report, segment_files


def on_disk(fs: CrashableFs) -> None:
    """The directory of the partition survives a power cut."""
    fs.sync_dir("/data")
    fs.sync_dir("/")


def test_what_a_killed_process_wrote_survives_a_power_cut_after_the_next_flush() -> None:
    fs = CrashableFs()
    filled(fs)
    on_disk(fs)
    fs = fs.kill()
    log = opened(fs)
    flush(log)
    again = opened(fs.crash(SeededRng(), keep="none"), recovery_point=log.recovery_point)
    assert [record.offset for record in found_records(again)] == list(range(40))


def lines(fs: CrashableFs) -> dict[str, bytes]:
    """What is in the files of the log, but for indexes of the active segment, which no flush syncs."""
    found = [name for name in fs.list_dir(PATH) if name[0] == "0"]
    active = [f"{max(found)[:20]}{suffix}" for suffix in (names.INDEX, names.TIME_INDEX)]
    return {name: read_file(fs, f"{PATH}/{name}") for name in found if name not in active}


@pytest.mark.parametrize("at_once", [1, 2, 3, 1000])
def test_what_is_synced_while_a_recovery_goes_on_survives_with_the_rest(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is left for the first flush is no longer than that."""
    monkeypatch.setattr(recovery, "_SYNCED_AT_ONCE", at_once)
    fs = CrashableFs()
    filled(fs)
    on_disk(fs)
    fs = fs.kill()
    log = opened(fs)
    assert len(log.closed_segments()) == 4
    assert len([f for f in log.dirty_files() if f.path.endswith(".log")]) <= at_once + 1
    flush(log)
    flush(log)
    wanted, kept = lines(fs), fs.crash(SeededRng(), keep="none")
    assert lines(kept) == wanted
    assert [r.offset for r in found_records(opened(kept, recovery_point=40))] == list(range(40))


def test_a_recovery_whose_files_cannot_be_synced_ends_with_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "_SYNCED_AT_ONCE", 2)
    fs = CrashableFs()
    filled(fs)
    fs.fail("sync", f"{PATH}/{0:020d}.log", "EIO")
    with pytest.raises(StorageError, match="sync"):
        opened(fs)


def test_a_segment_that_somebody_takes_away_while_it_is_synced_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "_SYNCED_AT_ONCE", 2)
    fs = CrashableFs()
    filled(fs)
    real = recovery._sync

    def moved_away(files: Any) -> None:
        fs.remove(f"{PATH}/{0:020d}.log")
        real(files)

    monkeypatch.setattr(recovery, "_sync", moved_away)
    with pytest.raises(StorageError, match="disappeared before its sync"):
        opened(fs)


def test_the_tier_finds_the_producers_at_the_end_of_each_segment_that_was_recovered() -> None:
    fs = CrashableFs()
    before = filled(fs)
    for segment in before.closed_segments():
        fs.remove(segment.snapshot_path)
    log = opened(fs)
    assert len(log.closed_segments()) > 2
    assert all(fs.exists(segment.snapshot_path) for segment in log.closed_segments())


def test_segments_behind_a_damaged_one_do_not_come_back_after_what_is_written_in_their_place() -> (
    None
):
    """The power goes before the next flush is through: the log is to have one lineage."""
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 40)
    flush(log)
    flush(log)  # the name of the lineage's file, too: recovery is to have nothing else to sync
    on_disk(fs)
    damaged, later = log.closed_segments()[1], log.closed_segments()[2:]
    data = bytearray(read_file(fs, damaged.stem_path + ".log"))
    data[-1] ^= 1
    overwrite(fs, damaged.stem_path + ".log", bytes(data))
    assert report(opened(fs)).segments_dropped == len(later) + 1
    after = fs.crash(SeededRng(), keep="none")
    assert after.exists(damaged.stem_path + ".log")
    assert not any(after.exists(segment.stem_path + ".log") for segment in later)


def test_the_flush_after_a_recovery_syncs_no_index_of_the_segment_that_became_active() -> None:
    fs = CrashableFs()
    first, second, *_ = filled(fs).closed_segments()
    fs.remove(second.stem_path + ".log")
    log = opened(fs)
    assert log.log_end_offset == second.base_offset
    assert [file.path for file in log.dirty_files()].count(first.stem_path + ".index") == 0


def test_an_operator_is_notified_of_what_recovery_cut_off_and_of_nothing_else() -> None:
    fs = CrashableFs()
    filled(fs)
    fs.open(segment_files(fs, ".log")[-1]).append(b"garbage")
    (reported,) = recovery_warnings(opened(fs))
    assert isinstance(reported, Log)
    cut = "log cut off topic=t partition=0 end_offset=40 bytes_cut=7 segments_dropped=0"
    assert said(reported) == cut
    assert recovery_warnings(opened(fs)) == []


def test_an_index_that_was_built_again_survives_a_power_cut_after_the_next_clean_stop() -> None:
    """Else each start would build it again, or go by half of it."""
    fs = CrashableFs()
    filled(fs, 60).close()
    path = segment_files(fs, ".index")[-1]
    good = read_file(fs, path)
    assert good
    overwrite(fs, path, b"\xfe" * len(good))
    fs.open(path).sync()
    on_disk(fs)
    opened(fs, was_clean=True).close()
    assert read_file(fs.crash(SeededRng(), keep="none"), path) == good


@pytest.mark.parametrize("was_clean", [True, False])
def test_reads_of_others_do_not_close_the_segment_that_a_start_made_the_active_one(
    was_clean: bool,
) -> None:
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 121)
    log.close()
    again = opened(fs, was_clean=was_clean)
    closed = again.closed_segments()
    assert len(closed) > OPEN_SEGMENTS_MAX + 2
    assert closed[-1].end_offset < 120
    again.read(120, max_bytes=1, upto_offset=121)
    for segment in closed:
        again.read(segment.base_offset, max_bytes=1, upto_offset=120)
    append(again, batch("a"))
    assert found_headers(again)[-1].next_offset == 122


def test_a_recovery_that_has_to_begin_again_lists_no_segment_twice() -> None:
    """Nor one that the second try found beyond the end of the log: its files are gone."""
    fs = CrashableFs()
    config = small(cleanup_policy="compact")
    log = opened(fs, config)
    for number in range(6):
        append(log, batch(f"{number}"))
        log.roll(NOW)
    path = log.closed_segments()[3].stem_path + ".log"
    data = bytearray(read_file(fs, path))
    data[7] = 4  # its only batch says that it is at 4, where the next segment begins
    overwrite(fs, path, bytes(data))
    again = opened(fs, config)
    assert report(again).segments_scanned > 6, "it began again"
    unsynced = [segment.base_offset for segment in again._ledger.unsynced]
    assert unsynced == [segment.base_offset for segment in again.closed_segments()]
