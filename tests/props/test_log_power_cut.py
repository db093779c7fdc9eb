"""What was acknowledged after a flush survives any power cut, and the test would see it if it did not."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.base.errors import StorageError
from firnline.formats.producer_snapshot import SnapshotEntry
from firnline.log.log import Log
from firnline.log.producer_state import ProducerStates, snapshot_offsets
from firnline.sim.disk import CrashableFile, CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.log import (
    ABORT,
    COMMIT,
    NOW,
    PATH,
    append,
    batch,
    end_txn,
    flush,
    found_records,
    newest_snapshot,
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
        monkeypatch.setattr("firnline.log.file_syncs.DirSync.sync", lambda self: None)
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


def lost_lineage(fs: CrashableFs, rng: random.Random) -> tuple[Log, int]:
    """A log that was cut, and went on in another lineage; with the recovery point that was saved before."""
    log = opened(fs, small(segment_bytes=1 << 20))
    fs.sync_dir("/")
    fs.sync_dir("/data")
    for epoch in range(last := rng.randint(2, 3)):
        rolls = 0.3 if epoch == 0 else 0.05
        for _ in range(rng.randint(6, 14)):
            # Each lineage has other sequences at the same offsets.
            sequence = log.log_end_offset + 100 * epoch
            data = batch("x", pid=epoch % 2, epoch=epoch, seq=sequence)
            append(log, data, epoch=epoch, origin="coordinator")  # no client's order of sequences
            if rng.random() < rolls:
                log.roll(NOW)
        if rng.random() < 0.5:
            flush(log)
        if epoch < last - 1:
            log.truncate_to(rng.randint(0, log.log_end_offset // 2))
    return log, log.recovery_start


def replayed(log: Log, upto_offset: int) -> list[SnapshotEntry]:
    """What the producers had done below an offset, by the batches alone."""
    found = ProducerStates()
    log._segments.replay(found, upto_offset)
    return found.entries()


def stale_snapshots(rng: random.Random) -> list[int]:
    """Cut the power of a log that had been cut; return the snapshots that its log then contradicts."""
    fs = CrashableFs()
    _, point = lost_lineage(fs, rng)
    log = opened(fs.crash(SeededRng(rng)), recovery_point=point)
    assert log.producers.entries() == replayed(log, log.log_end_offset)
    kept = snapshot_offsets(log._fs, PATH)
    stale = []
    for offset in kept:
        found = newest_snapshot(log._fs, upto_offset=offset)
        if found is not None and found[1] != replayed(log, found[0]):
            stale.append(offset)
    return stale


def test_no_power_cut_leaves_a_producer_snapshot_of_a_lost_lineage() -> None:
    """A later truncation, or a start after a clean stop, would believe it: sequences that are in no batch."""
    stale = {seed: stale_snapshots(random.Random(seed)) for seed in range(400)}
    assert {seed: offsets for seed, offsets in stale.items() if offsets} == {}
