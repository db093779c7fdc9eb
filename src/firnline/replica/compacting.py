"""Schedules log compaction: the dirtiest log first, `log.cleaner.threads` at a time. PURE.

A look visits all compacted logs in slices, every log.cleaner.backoff.ms and at once after a round. It begins
rounds for the dirtiest logs that are due. A round goes through these steps:

1. `_begin`: the disk learns that the log will have gaps, and the recovery point (`keep_for_compaction`).
2. `_give`: the job is put together in slices and handed to another process (effect `Compact`).
3. `_on_group`: each group of cleaned segments is swapped in, on the event loop.
4. `_done`: the round counts, fails or is void.

A round is void once its log was truncated, deleted, closed or replaced: then no more groups are swapped in.
Leaders and followers compact their own logs. A log with a damaged batch is uncleanable until the next start:
the operator gets a warning, and the other logs go on. Source: KIP-58, KIP-354.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from firnline.base.background import Background, SlicedTask
from firnline.base.counting.aging import Aging
from firnline.base.effects import Compact, Effects, SetTimer, with_cause
from firnline.base.errors import StorageError
from firnline.base.ids import NO_OFFSET
from firnline.base.log_lines.storage import NOT_COMPACTED
from firnline.base.ports import Rng
from firnline.config.broker import BrokerConfig
from firnline.log.compaction.cleaner import Damaged
from firnline.log.compaction.rounds import CleanedGroup, RoundDone
from firnline.log.compaction.state import LogToClean, RoundRules
from firnline.log.compaction.swap import SwapUndone
from firnline.log.log import Log
from firnline.log.truncation import Kept
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import Partition

# A slice of a look ends at this cost. A partition costs 1, a compacted log _LOOK_COST and 1 a segment.
_SLICE_COST = 1000
_LOOK_COST = 10
_LOOK = ("compaction", "look")


class Store(Protocol):
    """The part of `broker.storage.Storage` that compaction uses."""

    aging: Aging

    @property
    def is_settling(self) -> bool: ...

    def keep_for_compaction(self, log: Log, then: Kept) -> Effects: ...


@dataclass(slots=True)
class CompactionFacts:
    """Statistics of the rounds of this node, in the units of Kafka's metrics.

    uncleanable  by log directory: each log with a damaged batch, and its size in bytes
    """

    looked_ms: int = 0
    max_dirty_percent: int = 0
    max_delay_ms: int = 0
    uncleanable: dict[str, dict[Log, int]] = field(default_factory=dict)
    rounds: int = 0
    failed: int = 0
    void: int = 0
    last_seconds: float = 0.0
    last_map_percent: int = 0
    last_recopy_percent: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(slots=True)
class _Running:
    """A round, with the state of its log when it began."""

    partition: Partition
    log: Log
    cuts: int
    kept_offset: int  # the recovery point at the start; a round reads only below it
    since_ms: int
    is_void: bool = False
    first_base_offset: int = NO_OFFSET  # of the log, when the job was given
    effects: Effects = field(default_factory=list)


class Compacting:
    """Compacts the logs of one node.

    settings    returns the present settings
    on_failure  called when the disk of a partition failed
    """

    def __init__(
        self,
        settings: Callable[[], BrokerConfig],
        storage: Store,
        hosted: HostedPartitions,
        rng: Rng,
        on_failure: Callable[[Partition, int], Effects],
    ) -> None:
        self._settings = settings
        self._storage = storage
        self._hosted = hosted
        self._rng = rng
        self._on_failure = on_failure
        self._running: dict[str, _Running] = {}  # by the path of the log
        # Logs whose last round failed, with the problem of the last warning.
        self._failing: dict[Log, object] = {}
        self._works = Background("compaction")
        self.facts = CompactionFacts()

    def start(self, now_ms: int) -> Effects:
        """Schedule the first look, unless log.cleaner.enable is false."""
        if not self._settings().log_cleaner_enable:
            return []
        return self._look_later(now_ms)

    def _look_later(self, now_ms: int) -> Effects:
        at_ms = now_ms + max(1, self._settings().log_cleaner_backoff_ms)
        return [SetTimer(key=_LOOK, at_ms=at_ms, then=self._look)]

    # -- which log ---------------------------------------------------------------------------------

    def _look(self, now_ms: int) -> Effects:
        """Visit all logs, then begin rounds for the dirtiest."""
        if self._storage.is_settling:
            return []
        self.facts.looked_ms = now_ms
        self._forget_gone()
        return self._slice(iter(list(self._hosted)), [], now_ms)

    def _slice(
        self, rest: Iterator[Partition], found: list[tuple[Partition, LogToClean]], now_ms: int
    ) -> Effects:
        cost = 0
        effects: Effects = []
        for partition in rest:
            cost += 1
            if self._may_be_compacted(partition):
                log = partition.log
                cost += _LOOK_COST + log.compaction.segments
                try:
                    age_ms = self._storage.aging.time_ms(now_ms)
                    found.append((partition, log.compaction.log_to_clean(age_ms)))
                except StorageError as problem:
                    effects += self._failed(partition, log, problem)
            if cost >= _SLICE_COST:
                go_on = partial(self._slice, rest, found)
                return [*effects, SetTimer(key=_LOOK, at_ms=now_ms, then=go_on)]
        return effects + self._choose(found, now_ms)

    def _may_be_compacted(self, partition: Partition) -> bool:
        log = partition.log
        return (
            "compact" in log.config.cleanup_policy
            and not partition.is_offline
            and log.truncation is None
            and self._hosted.by_name.get(partition.topic_partition) is partition
            and log.path not in self._running
            and not self._is_uncleanable(log)
        )

    def _is_uncleanable(self, log: Log) -> bool:
        return log in self.facts.uncleanable.get(log.path.rpartition("/")[0], {})

    def _choose(self, found: list[tuple[Partition, LogToClean]], now_ms: int) -> Effects:
        facts = self.facts
        facts.max_dirty_percent = int(
            100 * max((log_to_clean.ratio for _, log_to_clean in found), default=0.0)
        )
        facts.max_delay_ms = max((log_to_clean.delay_ms for _, log_to_clean in found), default=0)
        due = [
            (partition, log_to_clean)
            for partition, log_to_clean in found
            if self._may_be_compacted(partition) and partition.log.compaction.is_due(log_to_clean)
        ]
        # A log that fails again and again comes last, so that no other waits for it.
        due.sort(
            key=lambda pair: (
                pair[0].log in self._failing,
                -pair[1].ratio,
                pair[0].topic_partition,
            )
        )
        free = self._settings().log_cleaner_threads - len(self._running)
        effects: Effects = []
        for partition, _ in due[: max(0, free)]:
            effects += self._begin(partition, now_ms)
        return effects + self._look_later(now_ms)

    @property
    def failing(self) -> int:
        """The number of logs whose last round failed."""
        return len(self._failing)

    def _forget_gone(self) -> None:
        """Forget deleted logs; a new log may have the same name by now."""
        hosted = self._hosted.by_name
        of_logs: list[dict[Log, int] | dict[Log, object]] = [
            *self.facts.uncleanable.values(),
            self._failing,
        ]
        for known in of_logs:
            for log in list(known):
                partition = hosted.get(log.topic_partition)
                if partition is None or partition.log is not log:
                    del known[log]

    # -- a round -----------------------------------------------------------------------------------

    def _begin(self, partition: Partition, now_ms: int) -> Effects:
        log = partition.log
        assert log.path not in self._running, "one round of a log at a time"
        running = _Running(partition, log, log.compaction.cuts, log.recovery_start, now_ms)
        self._running[log.path] = running
        return self._storage.keep_for_compaction(log, partial(self._kept, running))

    def _kept(self, running: _Running, problem: Exception | None, now_ms: int) -> Effects:
        """Continue a round once the disk has the recovery point and knows that the log will have gaps."""
        log = running.log
        log_to_clean = None
        try:
            if self._stands(running):
                age_ms = self._storage.aging.time_ms(now_ms)
                log_to_clean = log.compaction.log_to_clean(age_ms, limit_offset=running.kept_offset)
        except StorageError as refused:
            problem = problem or refused
        if problem is not None or log_to_clean is None or not log.compaction.is_due(log_to_clean):
            del self._running[log.path]
            if not isinstance(problem, StorageError) or not self._stands(running):
                return []
            if problem.is_passing:
                return self._failed(running.partition, log, problem)
            return with_cause(problem, self._on_failure(running.partition, now_ms))
        settings = self._settings()
        rules = RoundRules(
            map_bytes=settings.log_cleaner_dedupe_buffer_size // settings.log_cleaner_threads,
            load_factor=min(max(settings.log_cleaner_io_buffer_load_factor, 0.01), 1.0),
            bytes_per_second=settings.log_cleaner_io_max_bytes_per_second
            / settings.log_cleaner_threads,
            secret=self._rng.uuid(),
        )
        return self._works.begin(self._give(running, log_to_clean, rules), now_ms)

    def _give(self, running: _Running, log_to_clean: LogToClean, rules: RoundRules) -> SlicedTask:
        """Put the job together in slices and hand it to the other process."""
        now_ms = yield []
        log = running.log
        running.first_base_offset = log.first_base_offset
        steps = log.compaction.job_steps(log_to_clean, rules, self._storage.aging.time_ms(now_ms))
        try:
            while self._stands(running):
                next(steps)
                now_ms = yield []
        except StopIteration as end:
            on_group, then = partial(self._on_group, running), partial(self._done, running)
            return [Compact(job=end.value, on_group=on_group, then=then)]
        except StorageError as refused:
            del self._running[log.path]
            return self._failed(running.partition, log, refused)
        del self._running[log.path]
        self.facts.void += 1
        return []

    def _stands(self, running: _Running) -> bool:
        """Whether the log is still the one that the round began with, and still to be compacted."""
        partition = running.partition
        return (
            not running.is_void
            and not self._storage.is_settling
            and not partition.is_offline
            and partition.log is running.log
            and running.log.truncation is None
            and self._hosted.by_name.get(partition.topic_partition) is partition
            and running.log.compaction.cuts == running.cuts
            and "compact" in running.log.config.cleanup_policy
        )

    def _on_group(self, running: _Running, group: CleanedGroup, now_ms: int) -> Effects | None:
        """Swap a group in. If that fails, the round is void: no group above it may be swapped in."""
        put: Effects | None = None
        if self._stands(running):
            try:
                put = running.log.compaction.put(group, running.cuts, now_ms)
            except SwapUndone as problem:
                running.effects += self._failed(running.partition, running.log, problem)
            except StorageError as problem:
                running.effects += with_cause(problem, self._on_failure(running.partition, now_ms))
        if put is None:
            running.is_void = True
        return put

    def _done(self, running: _Running, result: RoundDone | Exception, now_ms: int) -> Effects:
        log, facts = running.log, self.facts
        self._running.pop(log.path, None)
        effects, running.effects = running.effects, []
        facts.last_seconds = (now_ms - running.since_ms) / 1000
        if not self._stands(running):
            facts.void += 1
            return effects
        if isinstance(result, RoundDone) and log.compaction.done(result, running.cuts):
            facts.rounds += 1
            facts.bytes_read += result.bytes_read
            facts.bytes_written += result.bytes_written
            facts.last_map_percent = int(100 * result.map_use)
            facts.last_recopy_percent = int(100 * result.bytes_written / max(1, result.bytes_read))
            self._failing.pop(log, None)
            return [*effects, SetTimer(key=_LOOK, at_ms=now_ms, then=self._look)]
        assert not isinstance(result, RoundDone), "the cuts were compared"
        if log.first_base_offset != running.first_base_offset and not isinstance(result, Damaged):
            facts.void += 1  # retention deleted files of the round: the next look tries again
            return effects
        return effects + self._failed(running.partition, log, result)

    def _failed(self, partition: Partition, log: Log, problem: Exception) -> Effects:
        """A damaged log becomes uncleanable; after any other problem the next look tries again.

        Warn once, until a round succeeds or fails in another way. On a full disk the failing file may differ
        each time: the error is compared, not the file.
        """
        self.facts.failed += 1
        if isinstance(problem, Damaged):
            directory = log.path.rpartition("/")[0]
            known = self.facts.uncleanable.setdefault(directory, {})
            known[log] = log.size_bytes
        said: object = str(problem)
        if isinstance(problem, StorageError) and "error" in problem.facts:
            said = problem.why, problem.facts["error"]
        if self._failing.get(log) == said:
            return []
        self._failing[log] = said
        return [
            NOT_COMPACTED(**log.topic_partition._asdict(), error=problem),
        ]
