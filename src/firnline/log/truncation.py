"""One truncation of a log, without blocking the event loop. STORE.

Its steps, in an order (rel-P13) in which a crash at any moment leaves the log as it was, or one that recovery
can repair:

  1  lower the checkpoints on disk to what will be left of the log
  2  drop the batches in memory; from here on no file handle reads them
  3  remove files, newest first; truncate and sync the last one; remove producer snapshots above the new end
  4  load the producer state again; only then appends are allowed

Steps 1 and 3 run in the disk pool, step 4 in slices. If step 2 finds a damaged index, that is rebuilt in
slices first. During a truncation the log accepts no appends and serves no reads; code that wants to change it
waits with `Log.after_truncation`. After an error before step 2 the log is unchanged; after a later one it
must not be used. Source: docs/decisions/0017.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from firnline.base.effects import Effects, SetTimer, Submit
from firnline.base.errors import KafkaError, RecordsTruncated, StorageError
from firnline.base.ids import NO_OFFSET
from firnline.base.log_lines.line import Log
from firnline.base.log_lines.storage import LOG_BEGUN_ANEW, LOG_TRUNCATED
from firnline.base.ports import Fs
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.formats.producer_snapshot import SnapshotEntry
from firnline.log.compaction.state import Compaction
from firnline.log.epochs import LeaderEpochs
from firnline.log.producer_state import (
    ProducerStates,
    latest_snapshot,
    remove_snapshots_after,
    snapshot_offsets,
    write_snapshot,
)
from firnline.log.segment import FileCut, Segment
from firnline.log.segments import Segments, remove_durably
from firnline.log.sparse_index import IndexDamaged, Rebuildable, at_once
from firnline.log.sync_ledger import SyncLedger

TruncationCallback = Callable[[StorageError | None, int], Effects]
Kept = Callable[[Exception | None, int], Effects]
_AGAIN_MS = 100  # where the pool is full, or the process has no descriptor


class Cut(Protocol):
    """The work of a truncation: `CutTo` or `StartOver`."""

    @property
    def keeps_below(self) -> int:
        """Offsets from here on are dropped."""
        ...

    @property
    def log_start_offset(self) -> int:
        """The log start offset afterwards, unless it was lower before."""
        ...

    def forget(self) -> None:
        """Step 2, in memory only. StorageError when a file cannot be read.

        IndexDamaged, and nothing is dropped, where an index has to be rebuilt first.
        """
        ...

    def cut_files(self) -> None:
        """Step 3, on any thread."""
        ...

    def end(self) -> Iterator[None]:
        """Step 4, in slices."""
        ...


class TruncatedLog(Protocol):
    """What a truncation needs of its log. `Log` makes truncations, so this module cannot import it."""

    path: str
    epochs: LeaderEpochs
    producers: ProducerStates
    compaction: Compaction
    log_end_offset: int
    log_start_offset: int
    local_log_start_offset: int
    high_watermark: int
    truncation: "Truncation | None"
    is_half_cut: bool
    before_truncation: Callable[[], None] | None
    keep_lowered: Callable[[Kept, int], Effects] | None

    def note_cut(self, end_offset: int, *, log_start_offset: int | None = None) -> None: ...


class Truncation:
    """Runs a cut, with effects (`run`) or blocking (`at_once`)."""

    def __init__(self, log: TruncatedLog, ledger: SyncLedger, cut: Cut) -> None:
        self.is_begun = False  # step 2 has begun: the state in memory has changed
        self._was_offset = NO_OFFSET
        self._log = log
        self._ledger = ledger
        self._cut = cut
        self._waiters: list[Callable[[int], Effects]] = []
        self._when_begun: Callable[[int], Effects] = _not_asked
        self._then: TruncationCallback = _nothing
        self._steps: Iterator[object] = iter(())
        self._then_do: Callable[[int], Effects] = self._end
        self._rebuilt: Rebuildable | None = None

    def at_once(self) -> None:
        """Run all steps, blocking; StorageError when the files fail."""
        self._log.truncation = self
        try:
            self._vouch_for_less()
            if self._log.before_truncation is not None:
                self._log.before_truncation()
            at_once(self._cut.forget)
            self._cut.cut_files()
            for _ in self._cut.end():
                pass
        finally:
            self._log.truncation = None

    def run(
        self,
        then: TruncationCallback,
        now_ms: int,
        *,
        when_begun: Callable[[int], Effects] | None = None,
    ) -> Effects:
        """Run it off the loop; call `then(problem or None, now_ms)` at the end.

        `when_begun(now_ms)` is called in step 2, when the batches are dropped.
        """
        self._then = then
        self._when_begun = when_begun or _not_asked
        self._log.truncation = self
        self._was_offset = self._log.log_end_offset
        self._vouch_for_less()
        keep = self._log.keep_lowered
        return self._lowered(None, now_ms) if keep is None else keep(self._lowered, now_ms)

    @property
    def keeps_below(self) -> int:
        """Offsets from here on are dropped, or will be."""
        return self._cut.keeps_below

    @property
    def log_start_offset(self) -> int:
        """The highest log start offset that a checkpoint may have, before the cut and after it."""
        return min(self._log.log_start_offset, self._cut.log_start_offset)

    def _vouch_for_less(self) -> None:
        self._ledger.lower(self._cut.keeps_below)
        self._log.compaction.truncated_to(self._cut.keeps_below)

    def when_done(self, then: Callable[[int], Effects]) -> None:
        """Call `then(now_ms)` when it is over, also after an error."""
        self._waiters.append(then)

    def _lowered(self, problem: Exception | None, now_ms: int) -> Effects:
        if problem is not None:
            return self._over(problem, now_ms)
        return self._forget(now_ms)

    def _forget(self, now_ms: int) -> Effects:
        self.is_begun = True
        try:
            self._cut.forget()
        except IndexDamaged as found:
            self.is_begun = False
            return self._build(found, now_ms)
        except StorageError as damage:
            return self._over(damage, now_ms)
        return self._when_begun(now_ms) + self._submit(now_ms)

    def _build(self, found: IndexDamaged, now_ms: int) -> Effects:
        """Rebuild an index first, in slices; nobody else changes the log meanwhile."""
        if self._rebuilt is found.segment:
            return self._over(found, now_ms)
        self._rebuilt = found.segment
        return self._take(found.segment.rebuild_steps(), self._forget, now_ms)

    def _submit(self, now_ms: int) -> Effects:
        path, work, then = self._log.path, self._cut.cut_files, self._files_are_cut
        return [Submit(name=f"truncate {path}", pool="disk", path=path, work=work, then=then)]

    def _files_are_cut(self, result: Exception | None, now_ms: int) -> Effects:
        if isinstance(result, KafkaError) or _may_come(result):
            return [SetTimer(key=self._timer, at_ms=now_ms + _AGAIN_MS, then=self._submit)]
        if isinstance(result, Exception):
            return self._over(result, now_ms)
        return self._take(self._cut.end(), self._end, now_ms)

    def _take(
        self, steps: Iterator[object], then_do: Callable[[int], Effects], now_ms: int
    ) -> Effects:
        """Run `steps`, one in each turn of the event loop, then `then_do`."""
        self._steps, self._then_do = steps, then_do
        return self._go_on(now_ms)

    @property
    def _timer(self) -> tuple[str, str]:
        return ("truncate", self._log.path)

    def _go_on(self, now_ms: int) -> Effects:
        try:
            for _ in self._steps:
                return [SetTimer(key=self._timer, at_ms=now_ms, then=self._go_on)]
        except StorageError as damage:
            return self._over(damage, now_ms)
        return self._then_do(now_ms)

    def _end(self, now_ms: int) -> Effects:
        return self._over(None, now_ms)

    def _report(self, problem: Exception | None) -> Effects:
        line = None if problem is not None else _line(self._log, self._was_offset)
        return [] if line is None else [line]

    def _over(self, problem: Exception | None, now_ms: int) -> Effects:
        if problem is not None and not isinstance(problem, StorageError):
            raise problem
        self._log.truncation = None
        self._log.is_half_cut = problem is not None and self.is_begun
        effects = self._report(problem) + self._then(problem, now_ms)
        for then in self._waiters:
            effects += then(now_ms)
        return effects


def _line(log: TruncatedLog, was_offset: int) -> Log | None:
    """Return what to tell of a truncation that has ended; None if nothing is gone."""
    name, end_offset = log.path.rpartition("/")[2], log.log_end_offset
    if end_offset < was_offset:
        gone = was_offset - end_offset
        return LOG_TRUNCATED(log=name, from_offset=was_offset, to_offset=end_offset, records=gone)
    if end_offset > was_offset:
        return LOG_BEGUN_ANEW(log=name, was_offset=was_offset, at_offset=end_offset)
    return None


def _may_come(result: Exception | None) -> bool:
    """Whether the thread had no descriptor: the disk has not failed, and the step can be repeated."""
    if isinstance(result, RecordsTruncated):
        return False
    return isinstance(result, StorageError) and result.has_lost_nothing


def _nothing(problem: StorageError | None, now_ms: int) -> Effects:
    return []


def _not_asked(now_ms: int) -> Effects:
    return []


class CutTo:
    """Drops every batch whose last offset is at or above `offset`; the first segment stays."""

    def __init__(
        self, log: TruncatedLog, fs: Fs, segments: Segments, ledger: SyncLedger, offset: int
    ) -> None:
        self.keeps_below = self.log_start_offset = offset
        self._log = log
        self._fs = fs
        self._segments = segments
        self._ledger = ledger
        self._gone: list[Segment] = []
        self._cuts: list[FileCut] = []
        self._snapshots: list[int] = []  # offsets of the remaining producer snapshots, after step 3
        self._end_offset = offset

    def forget(self) -> None:
        # The future last segment first: if its index is damaged, nothing has changed yet.
        last = self._segments.from_offset(self.keeps_below - 1)[0]
        end_offset, self._cuts = last.cut_memory(self.keeps_below)
        self._end_offset = max(end_offset, min(self._log.log_start_offset, self.keeps_below))
        self._ledger.truncated_to(self._end_offset)
        self._gone = self._segments.drop_after(self.keeps_below)
        self._ledger.removed([*self._gone, last])
        self._log.note_cut(self._end_offset)
        _assert_in_order(self._log)

    def cut_files(self) -> None:
        fs, path = self._fs, self._log.path
        remove_durably(fs, path, self._gone)
        for place, size_bytes in self._cuts[:-1]:
            _cut_file(fs, place, size_bytes)
        batches = fs.open(self._cuts[-1].path)
        try:
            batches.truncate(min(batches.size(), self._cuts[-1].size_bytes))
            batches.sync()
        finally:
            batches.close()
        if remove_snapshots_after(fs, path, self._end_offset):
            fs.sync_dir(path)
        self._snapshots = snapshot_offsets(fs, path)

    def end(self) -> Iterator[None]:
        """Load the producer state up to the log end, from the newest snapshot and the batches after it."""
        self._ledger.dir_changes += 1
        self._segments.active.cut_is_done()
        end, path = self._end_offset, self._log.path
        latest = latest_snapshot(self._fs, path, self._snapshots, upto_offset=end)
        found = ProducerStates(self._log.producers.table)
        if latest is not None:
            yield from found.load_steps(latest[1], latest[0])
        yield from self._segments.replay_steps(found, self._end_offset)
        found.on_high_watermark(self._log.high_watermark)
        self._log.producers = found


class StartOver:
    """Drops everything and restarts the log at `offset`, which is also the log start offset by default.

    For a follower whose log ends before the leader's begins, or that begins with the local part of a tiered
    log. The auxiliary state of the remote tier is durable before the new segment exists: after a crash there
    is all of it, or an empty log that takes it over again.
    """

    keeps_below = 0

    def __init__(
        self,
        log: TruncatedLog,
        fs: Fs,
        segments: Segments,
        ledger: SyncLedger,
        offset: int,
        *,
        log_start_offset: int | None,
        lineage: Epochs,
        producers: Iterable[SnapshotEntry],
        now_ms: int,
    ) -> None:
        self._log = log
        self._fs = fs
        self._segments = segments
        self._ledger = ledger
        self._offset = offset
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self._lineage = lineage
        self._producers = producers
        self._now_ms = now_ms
        self._gone: list[Segment] = []
        self._write_lineage: Callable[[], None] | None = None
        self._lineage_written: Epochs = ()
        self._new: Segment | None = None

    def forget(self) -> None:
        log, segments, offset = self._log, self._segments, self._offset
        self._ledger.truncated_to(0)
        rules = segments.active.rules
        # No file yet, and nobody reads before there is one; the dropped segments are not counted any more.
        empty = Segment(self._fs, log.path, offset, rules=rules, now_ms=self._now_ms)
        self._gone = segments.replace_all(empty)
        self._write_lineage = log.epochs.take_over(self._lineage, offset)
        self._lineage_written = log.epochs.entries()
        log.note_cut(offset, log_start_offset=self.log_start_offset)
        _assert_in_order(log)
        log.producers.clear(offset)

    def cut_files(self) -> None:
        fs, path = self._fs, self._log.path
        remove_durably(fs, path, self._gone)
        if remove_snapshots_after(fs, path, NO_OFFSET):
            fs.sync_dir(path)
        producers = list(self._producers)
        if producers:
            snapshot = write_snapshot(fs, path, self._offset, producers)
            snapshot.sync()
            snapshot.close()
        if self._write_lineage is not None:
            self._write_lineage()
        rules = self._segments.active.rules
        self._new = Segment.create(fs, path, self._offset, rules=rules, now_ms=self._now_ms)
        # While the segment is empty, only its name records the offset: if a power cut lost the name, the log
        # would restart at 0 and assign offsets a second time.
        fs.sync_dir(path)

    def end(self) -> Iterator[None]:
        new, ledger = self._new, self._ledger
        assert new is not None, "the files are cut first"
        if self._write_lineage is not None:
            self._log.epochs.taken_over(self._lineage_written)
        self._segments.replace_all(new)
        ledger.recovery_point = self._offset
        ledger.dir_changes += 1
        found = ProducerStates(self._log.producers.table)
        yield from found.load_steps(self._producers, self._offset)
        self._log.producers = found


def _cut_file(fs: Fs, path: str, size_bytes: int) -> None:
    """Truncate an index, without a sync because it can be rebuilt; remove it if it has no entries."""
    if not fs.exists(path):
        return
    if not size_bytes:
        fs.remove(path)
        return
    file = fs.open(path)
    if file.size() > size_bytes:
        file.truncate(size_bytes)
    file.close()


def _assert_in_order(log: TruncatedLog) -> None:
    """Assert the order of the log's offsets (T3), and that no dropped offset counts as committed."""
    end = log.log_end_offset
    assert 0 <= log.log_start_offset <= log.local_log_start_offset <= end, (
        "starts never pass the end (T3)"
    )
    assert log.high_watermark <= end, "a dropped offset is not committed"
