"""What of one log is compacted: where it goes on, whether it is due, and what a round brought. STORE.

A round may go up to the last stable offset, to the active segment, to a segment younger than
min.compaction.lag.ms, and to the recovery point as a checkpoint may say it: below that, recovery takes no gap
between two segments for lost bytes. It is due when the new part of the log is above
min.cleanable.dirty.ratio, or has waited for max.compaction.lag.ms. Source: KIP-58, KIP-354.
"""

import weakref
from collections.abc import Generator
from typing import NamedTuple, Protocol

from firnline.base.effects import Effects
from firnline.base.ids import NO_OFFSET
from firnline.base.ports import Fs
from firnline.base.units import INT64_MAX
from firnline.config.topic import TopicConfig, is_leased
from firnline.log import retention
from firnline.log.compaction.rounds import CleanedGroup, CompactionJob, RoundDone, SegmentToClean
from firnline.log.compaction.swap import is_complete, swap_in
from firnline.log.producer_state import ProducerStates, snapshot_path
from firnline.log.segment import Segment
from firnline.log.segments import Segments
from firnline.log.sparse_index import IndexDamaged
from firnline.log.sync_ledger import SyncLedger

# A millisecond or two of the loop.
_PRODUCERS_PER_STEP = 500


class RoundRules(NamedTuple):
    """What a node allows one round. Bytes of the table, the part of it that is used, bytes per second."""

    map_bytes: int
    load_factor: float
    bytes_per_second: float
    secret: bytes


class LogToClean(NamedTuple):
    """What there is to compact in a log. Offsets: the round would go over [first dirty, upto).

    delay_ms  how much longer than max.compaction.lag.ms something has waited, 0 for not longer
    """

    first_dirty_offset: int
    upto_offset: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


class CompactedLog(Protocol):
    """What a compaction asks the log that it belongs to. `Log` has one, so this module cannot import it."""

    path: str
    producers: ProducerStates
    log_end_offset: int
    log_start_offset: int

    @property
    def config(self) -> TopicConfig: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def recovery_start(self) -> int: ...
    @property
    def truncation(self) -> object: ...


class Compaction:
    """The compaction of one log.

    first_dirty_offset  below it no key has two records. -1 where neither this log nor a leader's that it
                        followed was ever compacted
    """

    __slots__ = (
        "_dirty_before",
        "_fs",
        "_ledger",
        "_log",
        "_reported_gap",
        "_segments",
        "_swapped_at",
        "first_dirty_offset",
        "swaps",
    )

    def __init__(self, log: CompactedLog, fs: Fs, segments: Segments, ledger: SyncLedger) -> None:
        self._log: CompactedLog = weakref.proxy(log)  # it has us: no cycle is to keep what it has
        self._fs = fs
        self._segments = segments
        self._ledger = ledger
        self.first_dirty_offset = NO_OFFSET
        self._dirty_before = NO_OFFSET  # the rounds whose swaps a power cut may undo
        self._swapped_at = 0  # the change of the directory by which the last round was whole
        self._reported_gap: tuple[int, int] | None = None
        self.swaps = 0  # groups that were put in, since the log was opened

    @property
    def may_have_gaps(self) -> bool:
        """False when the offsets of this log's batches follow one another without a gap.

        True for a log that was compacted once, or whose leader's was, whatever its topic's policy says today:
        it has an entry in `cleaner-offset-checkpoint`, which survives a restart.
        """
        return self.first_dirty_offset >= 0

    @property
    def kept_dirty_offset(self) -> int:
        """The first dirty offset that no power cut makes untrue; the entry in `cleaner-offset-checkpoint`.

        With the names of a round undone, and its checkpoint not, a tombstone would count as compacted beside
        the value that it deletes. It would go after delete.retention.ms, and the value stay.
        """
        if self._ledger.is_dir_synced(self._swapped_at):
            return self.first_dirty_offset
        return min(self._dirty_before, self.first_dirty_offset)

    @property
    def segments(self) -> int:
        """How many there are: what a look costs."""
        return len(self._segments)

    @property
    def cuts(self) -> int:
        """A number that changes when the log loses its end: a round that began before is void."""
        return self._segments.cuts

    def expect_gaps(self) -> None:
        """This log will be compacted, or takes batches of one that was."""
        self.first_dirty_offset = max(self.first_dirty_offset, 0)

    def takes_gap(self, expected_offset: int, base_offset: int) -> bool:
        """Whether a batch that a leader sent may follow there, with offsets missing before it.

        A base offset is outside its batch's CRC: one that was damaged on the way looks like a gap, and moves
        the end of the log with it. So a log that was never compacted believes a gap that is told twice.
        """
        gap = expected_offset, base_offset
        if not self.may_have_gaps and gap != self._reported_gap:
            self._reported_gap = gap
            return False
        self.expect_gaps()
        return True

    def found(self, first_dirty_offset: int) -> None:
        """Take over what the checkpoint says; an offset beyond the end says that everything is dirty."""
        if first_dirty_offset <= self._log.log_end_offset:
            self.first_dirty_offset = max(self.first_dirty_offset, first_dirty_offset)
        elif first_dirty_offset >= 0:
            self.expect_gaps()

    def truncated_to(self, end_offset: int) -> None:
        """What is appended from there on is dirty."""
        self.first_dirty_offset = min(self.first_dirty_offset, end_offset)
        self._dirty_before = min(self._dirty_before, end_offset)

    # -- what is due -------------------------------------------------------------------------------

    def log_to_clean(self, now_ms: int, *, limit_offset: int = INT64_MAX) -> LogToClean:
        """Say what a round would go over now, if it may go no further than `limit_offset`."""
        log, segments = self._log, self._segments
        start = max(self.first_dirty_offset, log.log_start_offset)
        limit = min(log.last_stable_offset, segments.active.base_offset, log.recovery_start)
        limit = start if is_leased(log.config, now_ms) else min(limit, limit_offset)
        dirty = [segment for segment in segments.from_offset(start) if segment.is_closed]
        lag_ms = log.config.min_compaction_lag_ms
        if lag_ms > 0:
            young = (s for s in dirty if self._is_younger(s, now_ms - lag_ms))
            limit = min(limit, next((s.base_offset for s in young), limit))
        upto = segments.from_offset(max(start, limit))[0].base_offset
        clean = cleanable = 0
        first_dirty_base = segments.from_offset(start)[0].base_offset
        for segment in segments.all():
            if segment.base_offset < start:
                clean += segment.size_bytes
            if first_dirty_base <= segment.base_offset < upto:
                cleanable += segment.size_bytes
        return LogToClean(start, max(start, upto), clean, cleanable, self._delay_ms(dirty, now_ms))

    def _is_younger(self, segment: Segment, time_ms: int) -> bool:
        try:
            return self._segments.time_of(segment) > time_ms
        except IndexDamaged:
            return True  # until it is built nobody knows

    def _delay_ms(self, dirty: list[Segment], now_ms: int) -> int:
        lag_ms = self._log.config.max_compaction_lag_ms
        if lag_ms == INT64_MAX:
            return 0
        times = [segment.first_batch_time_ms() for segment in dirty]
        oldest = min((time for time in times if time > 0), default=INT64_MAX)
        return max(0, now_ms - lag_ms - oldest)

    def is_due(self, log_to_clean: LogToClean) -> bool:
        """True when a round is worth its cost, or may wait no longer."""
        if (
            not log_to_clean.cleanable_bytes
            or log_to_clean.upto_offset <= log_to_clean.first_dirty_offset
        ):
            return False
        return (
            log_to_clean.delay_ms > 0
            or log_to_clean.ratio > self._log.config.min_cleanable_dirty_ratio
        )

    def job(self, log_to_clean: LogToClean, rules: RoundRules, now_ms: int) -> CompactionJob:
        """`job_steps`, all at once."""
        steps = self.job_steps(log_to_clean, rules, now_ms)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    def job_steps(
        self, log_to_clean: LogToClean, rules: RoundRules, now_ms: int
    ) -> Generator[None, None, CompactionJob]:
        """Return the round over `log_to_clean`, which is of this moment; yields after some producers.

        What they write meanwhile is not in the round. StorageError where files do not say what was aborted:
        those records would pass for committed.
        """
        log, config = self._log, self._log.config
        self._segments.active.txn_index.write()
        bases = [segment.base_offset for segment in self._segments.all()]
        job = CompactionJob(
            path=log.path,
            segments=tuple(
                SegmentToClean(segment.base_offset, end, segment.size_bytes)
                for segment, end in self._segments.closed()
                if segment.base_offset < log_to_clean.upto_offset
            ),
            later_bases=tuple(base for base in bases if base >= log_to_clean.upto_offset),
            first_dirty_offset=log_to_clean.first_dirty_offset,
            upto_offset=log_to_clean.upto_offset,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            delete_retention_ms=config.delete_retention_ms,
            now_ms=now_ms,
            last_batches=(),
            map_bytes=rules.map_bytes,
            load_factor=rules.load_factor,
            bytes_per_second=rules.bytes_per_second,
            secret=rules.secret,
        )
        last_batches = []
        for count, producer in enumerate(log.producers.known(), 1):
            last_offset = producer.last_offset
            if last_offset < log_to_clean.upto_offset:
                last_batches.append((producer.producer_id, last_offset, producer.producer_epoch))
            if count % _PRODUCERS_PER_STEP == 0:
                yield
        return job._replace(last_batches=tuple(last_batches))

    # -- what a round brought ----------------------------------------------------------------------

    def put(self, group: CleanedGroup, cuts: int, now_ms: int) -> Effects | None:
        """Let a compacted segment take the place of those it stands for.

        None when they changed meanwhile, or the new one is not there: then nothing has happened.

        cuts  what `cuts` was when the round began

        Returns the effects that remove the old files after file.delete.delay.ms. StorageError when a name
        could not be changed: the next start finishes what was begun.
        """
        log, bases = self._log, group.bases
        if cuts != self.cuts or not self._segments.has_run(bases) or log.truncation is not None:
            return None
        if not is_complete(self._fs, log.path, group):
            return None
        snapshots = [snapshot_path(log.path, base) for base in bases[1:]]
        gone = swap_in(self._fs, log.path, bases, snapshots)
        rules = self._segments.active.rules
        new = Segment.load(
            self._fs,
            log.path,
            bases[0],
            rules=rules,
            now_ms=now_ms,
            size_bytes=group.size_bytes,
        )
        self._ledger.removed(self._segments.replace_run(bases, new))
        self._ledger.dir_changes += 1
        self.swaps += 1
        return retention.removal(
            self._fs, gone, log.path, delay_ms=log.config.file_delete_delay_ms, now_ms=now_ms
        )

    def done(self, done: RoundDone, cuts: int) -> bool:
        """The round is over, and all its groups were put; False when the log lost its end meanwhile."""
        if cuts != self.cuts:
            return False
        self._dirty_before = max(self.kept_dirty_offset, 0)
        self._swapped_at = self._ledger.dir_changes
        self.first_dirty_offset = max(self.first_dirty_offset, done.first_dirty_offset)
        return True
