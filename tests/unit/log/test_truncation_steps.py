"""A truncation by effects: the loop waits for no disk, and a crash at any step is mended."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import Code, KafkaError, RecordsTruncated, StorageError
from firnline.base.revocable import revocable
from firnline.formats import names
from firnline.formats.producer_snapshot import SnapshotEntry, SnapshotRows, encode_snapshot
from firnline.log.log import Log
from firnline.log.producer_state import ProducerStates, snapshot_offsets, write_snapshot
from firnline.log.segment import Segment
from firnline.log.sparse_index import IndexDamaged
from firnline.log.truncation import Truncation
from firnline.records.batch import headers
from firnline.sim.disk import CrashableFs
from tests.worlds.chance import SeededRng
from tests.worlds.effects import World, kept
from tests.worlds.log import (
    ABORT,
    NOW,
    PATH,
    append,
    batch,
    end_txn,
    fill,
    flush,
    found_records,
    opened,
    read_all,
    small,
)


class Run(World):
    """Carries a truncation out; the disk does its work when the test says so."""

    holds_work = True

    def __init__(self, log: Log, truncation: Truncation | None) -> None:
        assert truncation is not None
        super().__init__(NOW)
        self.log = log
        self.slices = 0
        self.outcome: list[StorageError | None] = []
        self.carry_out(truncation.run(kept(self.outcome), NOW))

    def on_set_timer(self, effect: SetTimer) -> None:
        self.slices += 1
        super().on_set_timer(effect)

    def go_on(self) -> "Run":
        """Do it to the end, however long that takes."""
        while self.work or self.timers:
            if self.work:
                self.work_once()
            while (timer := self.next_timer()) is not None:
                self.fire(timer.key)
        return self


def written(fs: CrashableFs, seed: int = 1) -> Log:
    """A log of several segments, with producers, transactions and epochs; flushed to some place."""
    dice = random.Random(seed)
    log = opened(fs, small(segment_bytes=700, index_interval_bytes=100))
    fs.sync_dir("/")
    fs.sync_dir("/data")
    for number in range(30):
        epoch = number // 10
        data = batch("x" * dice.randrange(60), pid=7, seq=number, is_transactional=True)
        append(log, data, epoch=epoch)
        if dice.random() < 0.5:
            end_txn(log, 7, ABORT, leader_epoch=epoch)
        if number == 20:
            flush(log)
    return log


def facts(log: Log) -> dict[str, Any]:
    """All that a log says of itself."""
    active = log._segments.active
    return {
        "ends": (log.log_start_offset, log.local_log_start_offset, log.log_end_offset),
        "marks": (log.high_watermark, log.last_stable_offset, log.recovery_point),
        "bytes": read_all(log).read(),
        "epochs": log.epochs.entries(),
        "producers": log.producers.entries(),
        "aborted": log.aborted_transactions(0, 1 << 40),
        "index": (active.index.entries(), active.time_index.entries(), active.max_time_offset),
        "closed": [each._replace(largest_time_ms=int) for each in log.closed_segments()],
        "snapshots": snapshot_offsets(log._fs, PATH),
    }


@pytest.mark.parametrize("offset", [0, 3, 11, 25, 33, 39])
def test_by_effects_or_at_once_a_truncation_leaves_the_same_log(offset: int) -> None:
    one, other = written(CrashableFs()), written(CrashableFs())
    one.truncate_to(offset)
    assert Run(other, other.truncation_to(offset)).go_on().outcome == [None]
    assert facts(one) == facts(other)
    for log in (one, other):
        for number in range(20):
            append(log, batch(f"new {number}"), epoch=5)
        flush(log)
        log.close()
    assert facts(one) == facts(other)
    again = opened(other._fs, was_clean=True, recovery_point=other.recovery_point)  # type: ignore[arg-type]
    assert facts(again)["bytes"] == facts(one)["bytes"]
    assert facts(again)["producers"] == facts(one)["producers"]


def test_by_effects_or_at_once_a_log_begins_anew_alike() -> None:
    one, other = written(CrashableFs()), written(CrashableFs())
    lineage = ((0, 0), (4, 60))
    one.truncate_fully(90, lineage=lineage, now_ms=NOW)
    run = Run(other, other.beginning_at(90, lineage=lineage, now_ms=NOW))
    assert not other.closed_segments(), "nobody finds segments whose files are going"
    assert not other.producers.entries(), "nor producers whose records are going"
    assert run.go_on().outcome == [None]
    assert facts(one) == facts(other)
    append(other, batch("a"), epoch=5)
    assert other.log_end_offset == 91


@pytest.mark.parametrize("kind", ["cut", "begin anew"])
def test_the_loop_syncs_nothing_while_a_log_is_cut(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = CrashableFs()
    log = written(fs)
    log.sync_now()
    waits: list[str] = []
    check = fs.check

    def counted(operation: Any, path: str) -> None:
        if operation in ("sync", "sync_dir", "truncate"):
            waits.append(f"{operation} {path}")
        check(operation, path)

    monkeypatch.setattr(fs, "check", counted)
    run = Run(log, log.truncation_to(3) if kind == "cut" else log.beginning_at(90))
    assert waits == []
    result = run.work[0].work()
    assert waits != []
    waits.clear()
    run.carry_out(run.work.pop().then(result, NOW))
    assert (run.outcome, waits) == ([None], [])


def test_a_log_that_is_being_cut_takes_nothing_and_is_not_closed() -> None:
    log = written(CrashableFs())
    log.advance_high_watermark(log.log_end_offset)
    run = Run(log, log.truncation_to(5))
    notified: list[int] = []
    assert log.after_truncation(lambda now_ms: notified.append(now_ms) or [], NOW) == []  # type: ignore[func-returns-value]
    assert not log.roll(NOW)
    assert log.dirty_files() == []
    assert log.delete_due_segments(NOW + (1 << 40)) == []
    with pytest.raises(StorageError, match="under way"):
        log.closing_files()
    with pytest.raises(AssertionError):
        log.append_as_follower(batch("a"), leader_epoch=9, now_ms=NOW)
    assert notified == []
    run.go_on()
    assert notified == [NOW]
    append(log, batch("b"), epoch=9)
    assert log.dirty_files() != []


def test_who_wants_to_change_a_log_that_is_not_being_truncated_does_not_wait() -> None:
    log = opened(CrashableFs())
    notified: Effects = [SetTimer(key=("told",), at_ms=NOW, then=lambda now_ms: [])]
    assert log.after_truncation(lambda now_ms: notified if now_ms == NOW else [], NOW) is notified


def test_a_long_segment_is_read_again_in_slices() -> None:
    log = opened(CrashableFs(), small(segment_bytes=1 << 20, segment_index_bytes=1 << 20))
    fill(log, 2_000, size=10)
    run = Run(log, log.truncation_to(1_900)).go_on()
    assert run.outcome == [None]
    assert run.slices >= 5


def a_long_segment(fs: Any) -> Log:
    """And a short one after it, which is the active one."""
    log = opened(fs, small(segment_bytes=1 << 20, segment_index_bytes=1 << 20))
    fill(log, 2_000, size=10)
    log.roll(NOW)
    fill(log, 10)
    return log


@pytest.mark.parametrize("suffix", [names.INDEX, names.TIME_INDEX])
def test_an_index_that_a_cut_needs_is_built_again_in_slices(suffix: str) -> None:
    """It took seconds of one step where the segment was full of small batches."""
    log, complete, seen = a_long_segment(CrashableFs()), a_long_segment(CrashableFs()), []
    before = facts(log)
    segment = log._segments.all()[0]
    log._fs.remove(segment.stem_path + suffix)
    segment.release()
    truncation = log.truncation_to(1_900)
    assert truncation is not None
    begun = truncation

    class Looking(Run):
        def call(self, then: Callable[..., Any], *results: Any) -> Any:
            if not begun.is_begun:
                seen.append(facts(log) == before | {"marks": facts(log)["marks"]})
            return super().call(then, *results)

    assert Looking(log, truncation).go_on().outcome == [None]
    assert len(seen) >= 5
    assert all(seen), "nothing is forgotten before"
    assert Run(complete, complete.truncation_to(1_900)).go_on().outcome == [None]
    assert facts(log) == facts(complete)
    log._fs.remove(segment.stem_path + suffix)
    segment.finish()
    segment.release()
    log._fs.remove(segment.stem_path + suffix)
    for each in (log, complete):
        each.truncate_to(100)
    assert facts(log) == facts(complete), "and at once, where nobody waits"


def test_a_log_with_an_index_that_cannot_be_built_again_is_not_cut() -> None:
    log = a_long_segment(CrashableFs())
    segment = log._segments.all()[0]
    log._fs.remove(segment.stem_path + names.INDEX)
    segment.release()
    file = log._fs.open(segment.stem_path + names.LOG)
    data = file.read(0, file.size())
    file.truncate(0)
    at = list(headers(data))[50].position
    file.append(data[:at] + bytes(12) + data[at + 12 :])
    truncation = log.truncation_to(1_900)
    assert truncation is not None
    (problem,) = Run(log, truncation).go_on().outcome
    assert problem is not None
    assert not truncation.is_begun
    assert not log.is_half_cut
    assert log.log_end_offset == 2_010


def test_nothing_is_written_for_a_log_that_is_given_up_while_an_index_of_it_is_built() -> None:
    """Another topic may have a directory of that name by then."""
    fs = CrashableFs()
    log = a_long_segment(revocable(fs))
    path = log._segments.all()[0].stem_path + names.INDEX
    log._fs.remove(path)
    log._segments.all()[0].release()

    class GivenUp(Run):
        def call(self, then: Callable[..., Any], *results: Any) -> Any:
            if self.slices == 2:
                log.give_up()
            return super().call(then, *results)

    (problem,) = GivenUp(log, log.truncation_to(1_900)).outcome
    assert isinstance(problem, RecordsTruncated)
    assert not fs.exists(path)


def test_an_index_that_is_damaged_whenever_it_was_built_ends_a_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = a_long_segment(CrashableFs())

    def damaged(segment: Segment, offset: int) -> None:
        raise IndexDamaged(segment)

    monkeypatch.setattr(Segment, "cut_memory", damaged)
    (problem,) = Run(log, log.truncation_to(1_900)).outcome
    assert isinstance(problem, IndexDamaged)


def test_a_large_snapshot_of_producers_is_loaded_in_slices() -> None:
    fs = CrashableFs()
    log = opened(fs)
    fill(log, 2)
    rows = [SnapshotEntry(number, 0, 1, 0, 0, NOW, -1, -1) for number in range(3_000)]
    write_snapshot(fs, PATH, 1, rows).close()
    run = Run(log, log.truncation_to(1)).go_on()
    assert run.outcome == [None]
    assert run.slices >= 5
    assert log.producers.entries() == rows


def test_many_producers_that_come_from_the_tier_are_taken_over_in_slices() -> None:
    log = written(CrashableFs())
    rows = [SnapshotEntry(number, 0, 1, number, 0, NOW, -1, -1) for number in range(4_000)]
    taken = SnapshotRows(encode_snapshot(rows)).below(3_000)
    run = Run(log, log.beginning_at(3_500, producers=taken, now_ms=NOW)).go_on()
    assert run.outcome == [None]
    assert run.slices >= 5
    assert log.producers.entries() == rows[:3_000]
    assert log.producers.end_offset == 3_500


@pytest.mark.parametrize("left", range(4))
@pytest.mark.parametrize("offset", [17, 0])
def test_a_log_is_cut_when_there_are_descriptors_again(
    offset: int, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that had none left the log half cut, and its directory was taken for failed."""

    def cut(log: Log) -> Truncation | None:
        return log.truncation_to(offset) if offset else log.beginning_at(0, now_ms=NOW)

    fs, wanted = CrashableFs(), written(CrashableFs())
    Run(wanted, cut(wanted)).go_on()
    log = written(fs)
    run, count, real = Run(log, cut(log)), [left], CrashableFs.open

    def none_left(fs: CrashableFs, path: str, **options: bool) -> Any:
        count[0] -= 1
        if count[0] == -1:
            raise StorageError("cannot open", path=path, error="EMFILE")
        return real(fs, path, **options)

    monkeypatch.setattr(CrashableFs, "open", none_left)
    run.go_on()
    assert (run.outcome, log.is_half_cut) == ([None], False)
    assert facts(log) == facts(wanted)


def test_a_full_pool_is_asked_again() -> None:
    log = written(CrashableFs())
    run = Run(log, log.truncation_to(5))
    submit = run.work.pop()
    run.carry_out(submit.then(KafkaError(Code.THROTTLING_QUOTA_EXCEEDED), NOW))
    assert run.go_on().outcome == [None]
    assert log.log_end_offset == 5


def test_a_cut_of_a_log_that_was_taken_away_meanwhile_ends() -> None:
    """Its files are another log's by then: asked again and again, the disk would never say anything else."""
    log = written(CrashableFs())
    run = Run(log, log.truncation_to(5))
    submit = run.work.pop()
    gone = RecordsTruncated("the log was given up", path=PATH)
    run.carry_out(submit.then(gone, NOW))
    assert run.outcome == [gone]
    assert not run.work


def test_a_recovery_point_that_cannot_be_lowered_leaves_the_log_as_it_is() -> None:
    log = written(CrashableFs())
    before = facts(log)
    full = StorageError("no room", error="ENOSPC")
    log.keep_lowered = lambda then, now_ms: then(full, now_ms)
    truncation = log.truncation_to(5)
    assert Run(log, truncation).outcome == [full]
    assert truncation is not None
    assert not truncation.is_begun
    after = facts(log)
    assert after.pop("marks") == (*before.pop("marks")[:2], 5), "it vouches for less, and no more"
    assert after == before
    append(log, batch("goes on"), epoch=3)
    log.keep_lowered = None
    assert Run(log, log.truncation_to(5)).go_on().outcome == [None]


@pytest.mark.parametrize("operation", ["truncate", "sync", "sync_dir"])
def test_files_that_cannot_be_cut_are_reported_and_the_log_is_not_gone_on_with(
    operation: Any,
) -> None:
    fs = CrashableFs()
    log = written(fs)
    truncation = log.truncation_to(5)
    run = Run(log, truncation)
    fs.fail(operation, PATH, "EIO")
    (problem,) = run.go_on().outcome
    assert problem is not None
    assert truncation is not None
    assert truncation.is_begun


def crashed_at(fs: CrashableFs, step: int, act: Callable[[], object]) -> bool:
    """Do `act` until the n-th change of the disk, then cut the power; True when it came to its end."""
    seen, check = [0], fs.check

    def counted(operation: Any, path: str) -> None:
        seen[0] += operation != "read"
        if seen[0] > step:
            raise StorageError("the power is off", path=path)
        check(operation, path)

    fs.check = counted  # type: ignore[method-assign]
    try:
        act()
    except StorageError:
        return False
    finally:
        del fs.check
    return seen[0] <= step


@pytest.mark.parametrize("offset", [5, 26])
def test_a_power_cut_at_any_step_leaves_one_lineage_and_what_was_acknowledged_below_the_cut(
    offset: int,
) -> None:
    """rel-P13. The recovery point is kept as `log/directory` does: before anything else, durably."""
    for step in range(200):
        fs = CrashableFs()
        log = written(fs)
        acknowledged, saved = log.recovery_point, [log.recovery_point]
        old = [(r.offset, r.value) for r in found_records(log)]

        def act(log: Log = log, saved: list[int] = saved) -> None:
            def keep(then: Any, now_ms: int) -> Effects:
                saved[0] = log.recovery_start
                return then(None, now_ms)  # type: ignore[no-any-return]

            log.keep_lowered = keep
            run = Run(log, log.truncation_to(offset)).go_on()
            if run.outcome != [None]:
                raise StorageError("the power is off")
            for number in range(8):
                append(log, batch("new", pid=8, seq=number), epoch=7)
            flush(log)
            saved[0] = log.recovery_start

        is_done = crashed_at(fs, step, act)
        new = [(r.offset, r.value) for r in found_records(log)] if is_done else []
        for seed in range(3):
            again = opened(fs.crash(SeededRng(seed)), recovery_point=saved[0])
            rows = [(r.offset, r.value) for r in found_records(again)]
            end = again.log_end_offset
            assert end >= min(acknowledged, offset)
            kept = [row for row in rows if row[1] != b"new"]
            assert kept == old[: len(kept)], "what is left of the old lineage is its beginning"
            if len(kept) < len(rows):
                assert len(kept) <= offset, "the new one does not follow what it replaced"
            if is_done:
                assert rows[: len(new)] == new
            replayed = ProducerStates()
            again._segments.replay(replayed, end)
            assert again.producers.entries() == replayed.entries()
            assert all(found <= end for found in snapshot_offsets(again._fs, PATH))
        if is_done:
            return
    raise AssertionError("it never came to an end")


def test_a_flush_that_is_under_way_vouches_for_nothing_that_is_being_cut() -> None:
    log = written(CrashableFs())
    end, files = log.log_end_offset, log.dirty_files()
    run = Run(log, log.truncation_to(5))
    for file in files:
        file.sync()
    log.flushed(end)
    assert log.recovery_point <= 5
    run.go_on()
    fill(log, 4)
    assert log.recovery_point <= 5
    flush(log)
    assert log.recovery_point == 9


def test_what_a_truncation_removed_is_logged() -> None:
    log = written(CrashableFs())
    end_offset = log.log_end_offset
    done = Run(log, log.truncation_to(end_offset - 3)).go_on()
    left = log.log_end_offset
    assert done.logged == [
        f"firnline.log info log truncated log={PATH.rpartition('/')[2]} from_offset={end_offset}"
        f" to_offset={left} records={end_offset - left}"
    ]
