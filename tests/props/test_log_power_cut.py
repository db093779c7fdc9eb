"""What was acknowledged after a flush survives any power cut, and the test would see it if it did not."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.errors import StorageError
from firnline.log.log import Log
from firnline.sim.disk import CrashableFile, CrashableFs
from tests.log_world import (
    ABORT,
    COMMIT,
    NOW,
    SeededRng,
    append,
    batch,
    end_txn,
    found_records,
    opened,
    small,
)

CONFIG = small(segment_bytes=500, index_interval_bytes=100)
STEPS = st.lists(
    st.sampled_from(["append", "append", "txn", "roll", "flush", "lead"]), min_size=3, max_size=30
)


def story(fs: CrashableFs, steps: list[str]) -> tuple[Log, int, int]:
    """Run the steps; return the log, the end offset that was acknowledged, and the point that was saved."""
    log = opened(fs, CONFIG)
    fs.sync_dir("/")
    fs.sync_dir("/data")
    acknowledged = sequence = epoch = 0
    for step in steps:
        if step == "append":
            append(log, batch("x" * 50), epoch=epoch)
        elif step == "txn":
            data = batch("y", pid=7, seq=sequence, is_transactional=True)
            append(log, data, epoch=epoch)
            end_txn(log, 7, ABORT if sequence % 2 else COMMIT, leader_epoch=epoch)
            sequence += 1
        elif step == "lead":
            epoch += 1
            log.epochs.assign(epoch, log.log_end_offset)
        elif step == "roll":
            log.roll(NOW)
        else:
            end = log.log_end_offset
            for file in log.dirty_files():
                file.sync()
            log.flushed(end)
            acknowledged = end
    return log, acknowledged, log.recovery_start


def survives(steps: list[str], rng: random.Random) -> bool:
    fs = CrashableFs()
    log, acknowledged, point = story(fs, steps)
    before = [(r.offset, r.value) for r in found_records(log)]
    aborted = log.aborted_transactions(0, log.log_end_offset)
    point = rng.choice([0, point])  # the checkpoint may be old, never too new
    try:
        again = opened(fs.crash(SeededRng(rng)), CONFIG, recovery_point=point)
        found = [(r.offset, r.value) for r in found_records(again)]
    except StorageError:
        return False
    end = again.log_end_offset
    lineage = [log.epochs.epoch_at(offset) for offset in range(end)]
    return (
        end >= acknowledged
        and [again.epochs.epoch_at(offset) for offset in range(end)] == lineage
        and found == [row for row in before if row[0] < end]
        and again.aborted_transactions(0, end) == [t for t in aborted if t.last_offset < end]
    )


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, rng=st.randoms(use_true_random=False))
def test_an_acknowledged_record_survives_any_power_cut(
    steps: list[str], rng: random.Random
) -> None:
    assert survives(steps, rng)


@pytest.mark.parametrize(
    "forgotten", ["the data", "the directory", "what a roll left behind", "the lineage"], ids=str
)
def test_the_property_sees_a_sync_that_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, forgotten: str
) -> None:
    """Planted: one kind of sync does nothing. Some story then has to lose what was acknowledged."""
    if forgotten == "the directory":
        monkeypatch.setattr("firnline.log.sync_ledger.DirSync.sync", lambda self: None)
    elif forgotten == "the data":
        real: Callable[[CrashableFile], None] = CrashableFile.sync
        monkeypatch.setattr(
            CrashableFile, "sync", lambda self: None if self.path.endswith(".log") else real(self)
        )
    elif forgotten == "the lineage":
        monkeypatch.setattr(Log, "recovery_start", Log.recovery_point)
    else:
        monkeypatch.setattr("firnline.log.segment.Segment.files_to_sync", lambda self: [])
    rng = random.Random(1)
    steps = ["append", "append", "roll", "append", "append", "append", "flush", "append"]
    if forgotten == "the lineage":
        steps = ["append", "flush", "flush", "lead", *["append"] * 9, "flush"]
    assert not all(survives(steps, rng) for _ in range(60))


@settings(max_examples=100, deadline=None)
@given(rng=st.randoms(use_true_random=False), cuts=st.integers(2, 4))
def test_a_power_cut_while_recovering_is_recovered_from(rng: random.Random, cuts: int) -> None:
    fs = CrashableFs()
    log, acknowledged, _ = story(fs, ["append"] * 12 + ["flush"] + ["append", "txn"] * 8)
    before = [(r.offset, r.value) for r in found_records(log)]
    end = log.log_end_offset
    for _ in range(cuts):
        fs = fs.crash(SeededRng(rng))
        log = opened(fs, CONFIG)
        assert acknowledged <= log.log_end_offset <= end
        end = log.log_end_offset
        found = [(r.offset, r.value) for r in found_records(log)]
        assert found == [row for row in before if row[0] < end]
