"""A swap that ends at any of its steps: the next start finds the old segments or the new one, whole."""

import pytest

from firnline.base.errors import StorageError
from firnline.formats import names
from firnline.log.compaction.rounds import compact
from firnline.log.log import Log
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.compaction import RULES, compacted, put, round_of, settled
from tests.worlds.log import (
    ABORT,
    NOW,
    PATH,
    append,
    batch,
    end_txn,
    found_headers,
    found_records,
    opened,
)

HOUR = 3_600_000
STEM = f"{0:020d}"


def swapped(fs: CrashableFs, log: Log, now_ms: int, renames: int) -> bool:
    """Do a round whose swap ends after so many changes of names; True when it came to its end."""
    job, cuts = (
        log.compaction.job(log.compaction.log_to_clean(now_ms), RULES, now_ms),
        log.compaction.cuts,
    )
    fs.fail("rename", PATH, "EIO", skip=renames, times=1000)
    try:
        for group in compact(fs, job):
            assert log.compaction.put(group, cuts, now_ms) is not None
    except StorageError:
        return False
    finally:
        fs.forgive()
    return True


@pytest.mark.parametrize("delay_ms", [0, 2 * HOUR], ids=["the marker stays", "the marker goes"])
def test_markers_and_their_index_come_and_go_together(delay_ms: int) -> None:
    """An entry without its marker would hide what the producer commits later."""
    renames, ended = 0, False
    while not ended:
        fs = CrashableFs()
        log = opened(fs, compacted(delete_retention_ms=HOUR))
        append(log, batch("bad", key=b"k", pid=7, seq=0, is_transactional=True))
        end_txn(log, 7, ABORT)
        append(log, batch("good", key=b"j", pid=7, seq=1))
        settled(log)
        if delay_ms:
            round_of(fs, log)
            put(log, "a", "v")
            settled(log)
            round_of(fs, log, now_ms=NOW + 1)
            put(log, "b", "v")
            settled(log)
        assert fs.exists(f"{PATH}/{STEM}.txnindex")
        ended = swapped(fs, log, NOW + delay_ms, renames)
        again = opened(
            fs.crash(SeededRng(), keep="all"),
            compacted(),
            recovery_point=log.log_end_offset,
            first_dirty_offset=log.compaction.first_dirty_offset,
        )
        markers = [header for header in found_headers(again) if header.is_control]
        entries = again.aborted_transactions(0, again.log_end_offset)
        # A recovery that reads the segment again finds no record that the entry would be for.
        assert len(entries) <= len(markers)
        assert not (delay_ms and ended and markers)
        renames += 1
    assert renames > 8


def directory(fs: CrashableFs) -> dict[str, bytes]:
    files = fs.files(PATH).items()
    old = (name for name, _ in files if name.endswith(names.LOG) or name.startswith(STEM))
    return {name: bytes(fs.files(PATH)[name].data) for name in old}


def test_a_swap_without_its_batches_is_undone() -> None:
    fs = CrashableFs()
    log = opened(fs, compacted())
    for number in range(12):
        put(log, "k", f"{number}")
    settled(log)
    before = directory(fs)
    assert not swapped(fs, log, NOW, 1)
    found = fs.list_dir(PATH)
    assert f"{STEM}.index{names.SWAP}" in found
    assert f"{STEM}.log{names.CLEANED}" in found
    after = fs.crash(SeededRng(), keep="all")
    opened(after, compacted(), recovery_point=12)
    assert directory(after) == before


def test_an_empty_segment_takes_the_place_of_an_old_one() -> None:
    """All of the first segment was overwritten: the swap then says no offset at all."""
    for renames in range(10):
        fs = CrashableFs()
        log = opened(fs, compacted())
        for number in range(12):
            put(log, "k", f"{number}")
        settled(log)
        swapped(fs, log, NOW, renames)
        after = fs.crash(SeededRng(), keep="all")
        again = opened(after, compacted(), recovery_point=12)
        assert again.log_end_offset == 12
        assert [record.value for record in found_records(again)][-1] == b"11"
        left = after.list_dir(PATH)
        assert not any(name.endswith((names.SWAP, names.CLEANED, names.DELETED)) for name in left)


def test_a_swap_of_kafkas_takes_the_old_index_of_transactions_with_it() -> None:
    """Its cleaner writes none where nothing aborted is left; an empty segment says no offset."""
    fs = CrashableFs()
    log = opened(fs, compacted())
    append(log, batch("bad", key=b"k", pid=7, seq=0, is_transactional=True))
    end_txn(log, 7, ABORT)
    settled(log)
    put(log, "k", "v")
    settled(log)
    for suffix in (".log", ".index", ".timeindex"):
        fs.open(f"{PATH}/{STEM}{suffix}{names.SWAP}", create=True)
    again = opened(fs.crash(SeededRng(), keep="all"), compacted(), recovery_point=3)
    assert again.aborted_transactions(0, 3) == []
    assert [record.value for record in found_records(again)] == [b"v"]


def test_what_a_killed_round_left_undoes_no_later_swap() -> None:
    """Its segments are gone by retention: no later round would write under that name again."""
    for renames in range(8):
        fs = CrashableFs()
        log = opened(fs, compacted())
        for number in range(12):
            put(log, f"k{number}", "v")
        settled(log)
        log.advance_log_start(5)
        log.delete_due_segments(NOW)
        assert log.first_base_offset == 5
        fs.open(f"{PATH}/{STEM}.log{names.CLEANED}", create=True).append(b"half")
        swapped(fs, log, NOW, renames)
        after = fs.crash(SeededRng(), keep="all")
        again = opened(after, compacted(), recovery_point=12, log_start_offset=5)
        assert [record.offset for record in found_records(again)] == list(range(5, 12))


@pytest.mark.parametrize("how", ["gone", "short", "no descriptor"])
def test_nothing_is_given_up_for_a_segment_that_is_not_there(how: str) -> None:
    """The old segments were removed a minute later, and what was in them was nowhere."""
    fs = CrashableFs()
    log = opened(fs, compacted())
    for number in range(12):
        put(log, f"k{number}", "v")
    settled(log)
    before = directory(fs)
    job, cuts = (
        log.compaction.job(log.compaction.log_to_clean(NOW), RULES, NOW),
        log.compaction.cuts,
    )
    running = compact(fs, job)
    group = next(running)
    place = f"{PATH}/{STEM}.log.cleaned"
    if how == "gone":
        fs.remove(place)
    elif how == "short":
        fs.open(place).truncate(group.size_bytes - 1)
    else:
        fs.fail("open", ".cleaned", "EMFILE")
    assert log.compaction.put(group, cuts, NOW) is None
    fs.forgive()
    running.close()
    kept = {name: data for name, data in directory(fs).items() if not name.endswith(".cleaned")}
    assert kept == before
    round_of(fs, log)
    assert len(found_records(log)) == 12
