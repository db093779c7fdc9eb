"""The copy task of a partition's leader: copies closed segments to the tier, one at a time, in order. PURE.

Theory of operation. For each segment the task

1. verifies every batch and makes the remote objects, in a worker thread (objects/verified);
2. publishes COPY_STARTED in the metadata, before the first byte leaves (rel-T4);
3. puts the objects, in a worker thread;
4. publishes COPY_FINISHED, after the store has all of them (rel-T5). From then on the tier serves the
   segment, and the local one may be deleted.

Steps 1 to 3 need one of the node's copy slots, for which other due partitions wait. Every attempt has a
segment id of its own (rel-T12). The objects of a failed attempt are deleted at once, or later by `expiry`.
Nothing at or above the last stable offset is copied (X30). After a loss of the leadership the task ends with
the present segment (T8). Source: spec 3.4; F1-F10, F25, F30.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from firnline.base.background import SlicedTask
from firnline.base.effects import CancelTimer, Effects, SetTimer, Submit
from firnline.base.errors import Code, FirnlineError, KafkaError, StorageError, WorkTimedOut
from firnline.base.ids import TopicIdPartition, uuid_text
from firnline.base.log_lines.tier import (
    INDEXES_REBUILT_FOR_TIER,
    SEGMENT_COPIED,
    SEGMENT_NOT_COPIED,
)
from firnline.base.units import MINUTE_MS
from firnline.formats import leader_epoch_checkpoint
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.log.segments import ClosedSegment
from firnline.tiered import coroutines
from firnline.tiered.catalog.keeper import CatalogKeeper
from firnline.tiered.catalog.lineage_repair import LineageRepair
from firnline.tiered.circuits import Permit, StoreUnavailable
from firnline.tiered.coroutines import Begin, Run, Steps
from firnline.tiered.hosted import Hosted, Services, TaskCallback, closed_from
from firnline.tiered.lineage import segment_epochs
from firnline.tiered.metadata.log import HistoryUnknown
from firnline.tiered.objects.copies import copy_segment
from firnline.tiered.objects.verified import ToCopy, VerifiedSegment, read_verified
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import (
    CustomMetadataTooLarge,
    DamagedSegment,
    RemoteSegment,
    SegmentData,
    SegmentState,
    SegmentUpdate,
    as_error,
)
from firnline.tiered.unconfirmed_copies import UnconfirmedCopies

QUOTA_CHECK_MS = 1000
# The interval at which a damaged segment is read again: the error may have been in memory.
LOOK_AGAIN_MS = 10 * MINUTE_MS
# A segment that grows without a pause is closed after so many times the pause that would close it.
ROLL_AT_PAUSES = 6
# The pause is as long again for each so many segments in the tier. Otherwise a topic that gets a record a
# minute would have 43,200 segments after a month; so it has about 2,100.
SEGMENTS_PER_PAUSE = 50

Outcome = Steps[FirnlineError | None]
Flushed = Callable[[dict[int, FirnlineError | None], int], Effects]
Verified = VerifiedSegment | FirnlineError | None


class _Growth(NamedTuple):
    """What the last run saw of an active segment that is not empty.

    seen_ms   when a run first saw it
    grown_ms  when a run first saw this end offset
    """

    base_offset: int
    seen_ms: int
    end_offset: int
    grown_ms: int


class Copier:
    """Copies the due segments of one led partition. `run` calls back once; there is one run at a time."""

    def __init__(
        self,
        services: Services,
        hosted: Hosted,
        catalog: CatalogKeeper,
        unconfirmed: UnconfirmedCopies,
        repair: LineageRepair,
    ) -> None:
        self._services = services
        self._repair = repair
        self._unconfirmed = unconfirmed
        self._hosted = hosted
        self._catalog = catalog
        # There is one run at a time, so segments go in order.
        self.is_running = False
        # This leader has taken the log start from the tier, which it does once, before its first copy. It is
        # used only without a catalog; with one, the first comparison does it.
        self._has_adopted = False
        catalog.on_compared = self._adopt_log_start
        # A copy whose COPY_FINISHED may or may not have been committed (F10). It is settled before the next
        # copy begins, and stays in `copying` until then, so that nobody deletes it (rel-T13).
        self._unsure: RemoteSegment | None = None
        # Custom metadata was over the limit: no copy begins until the next change of role (T10), which makes
        # a new Copier. A retry would fail again, and leave another copy behind.
        self.is_stopped = False
        # The segment that is damaged here, why, and when it is read again. Nothing after it is copied, as the
        # tier has no gaps (T2). None once a segment was read undamaged.
        self._damaged: tuple[ClosedSegment, DamagedSegment, int] | None = None
        self._growth: _Growth | None = None

    def run(self, now_ms: int, done: TaskCallback) -> Effects:
        """Copy all due segments; then call `done(None, now_ms)`, or with the first error."""
        assert not self.is_running, "one run at a time"
        self.is_running = True
        return coroutines.run(self._copy_due, now_ms, partial(self._finish, done))

    def _finish(self, done: TaskCallback, error: FirnlineError | None, now_ms: int) -> Effects:
        self.is_running = False
        # Withheld metadata is checked again when it is reported: it may have been solved before the next run.
        is_reported = error is None or isinstance(error, HistoryUnknown)
        logged = self._hosted.note_outcome("copy", None if is_reported else error, now_ms)
        return logged + done(error, now_ms)

    def _copy_due(self, run: Run) -> Outcome:
        """Copy due segments, oldest first, until there is none, or until the first error."""
        hosted, services = self._hosted, self._services
        if not hosted.leads or not hosted.is_tiered:
            return None
        problem = self._close_idle(run.now_ms)
        if problem is not None:
            return problem
        if not services.metadata.is_ready(hosted.where):
            return KafkaError(Code.REPLICA_NOT_AVAILABLE, "metadata")
        withheld = services.withheld(hosted.where) or (yield from self._repair.run(run))
        if withheld is not None:
            return withheld
        if services.catalog is None and not self._has_adopted:
            run.emit(self._adopt_log_start(run.now_ms))
        error = yield from self._begin_catalog(run)
        while error is None and hosted.leads:
            if self._unsure is not None:
                error = yield from self._settle(run, self._unsure)
                continue
            due = self._next_due()
            if not isinstance(due, ClosedSegment):
                return due
            throttle_ms = services.copy_rate.throttle_ms(run.now_ms)
            if throttle_ms:
                services.copy_throttle.note(throttle_ms, run.now_ms)
                yield from run.call(self._wait_for_quota)
                continue
            error = yield from self._copy(run, due)
        return error

    def _close_idle(self, now_ms: int) -> StorageError | None:
        """Close the active segment if it does not grow, or is old, because only closed ones are copied."""
        log, pause_ms = self._hosted.log, self._services.settings.roll_idle_ms
        totals = self._services.metadata.totals(self._hosted.where)
        if not pause_ms or not self._hosted.may_copy or isinstance(totals, KafkaError):
            return None
        pause_ms *= 1 + totals.segments // SEGMENTS_PER_PAUSE
        closed, end, seen = log.closed_segments(), log.log_end_offset, self._growth
        base = closed[-1].end_offset + 1 if closed else log.local_log_start_offset
        if base == end:
            self._growth = None
        elif seen is None or seen.base_offset != base:
            self._growth = _Growth(base, now_ms, end, now_ms)
        elif now_ms - seen.seen_ms >= ROLL_AT_PAUSES * pause_ms or (
            seen.end_offset == end and now_ms - seen.grown_ms >= pause_ms
        ):
            try:
                log.roll(now_ms)
            except StorageError as problem:
                return problem
        elif seen.end_offset != end:
            self._growth = seen._replace(end_offset=end, grown_ms=now_ms)
        return None

    def _begin_catalog(self, run: Run) -> Outcome:
        """Compare the catalog with the metadata, and write its first head of this leader."""
        if not self._catalog.explains_all() and self._catalog.is_begun:
            return (yield from run.call(self._catalog.compare))
        if self._services.catalog is None:
            self._hosted.unexplained_segments = 0
            run.emit(self._hosted.note_outcome("catalog", None, run.now_ms))
        if self._catalog.is_begun:
            return None
        return (yield from run.call(self._catalog.request))

    def _wait_for_quota(self, then: Callable[[None, int], Effects], now_ms: int) -> Effects:
        key = ("tier-copy-quota", *self._hosted.where)
        return [SetTimer(key=key, at_ms=now_ms + QUOTA_CHECK_MS, then=partial(then, None))]

    def _adopt_log_start(self, now_ms: int) -> Effects:
        """Raise the log start to that of the tier, once the metadata has all that the catalog has."""
        hosted = self._hosted
        segments = self._services.metadata.segments(hosted.where)
        if isinstance(segments, KafkaError) or not hosted.is_tiered:
            return []
        self._has_adopted = True
        services = self._services
        has_catalog = services.catalog is not None
        steps = hosted.adopting(segments, services.metadata, has_catalog=has_catalog)
        try:
            next(steps)
        except StopIteration:
            return []
        return services.sliced_tasks.begin(_others(steps), now_ms)

    # ---------------------------------------------------------------------------- one segment

    def _next_due(self) -> ClosedSegment | FirnlineError | None:
        """Return the next segment to copy, or None."""
        hosted, services = self._hosted, self._services
        withheld = services.withheld(hosted.where)
        if withheld is not None:
            return withheld
        covered = hosted.covered_offset(services.metadata)
        if isinstance(covered, KafkaError):
            return covered
        hosted.log.set_highest_remote(covered)
        candidate = next(self.candidates(covered), None)
        if candidate is None or not hosted.may_copy or self.is_stopped:
            return None
        assert candidate.end_offset < hosted.log.last_stable_offset, (
            "records above the last stable offset stay local (X30)"
        )
        assert candidate.end_offset > covered, "offsets that the tier has are not copied again"
        return candidate

    def candidates(self, covered: int) -> Iterator[ClosedSegment]:
        """Iterate over local segments that are due, oldest first (3.4-2)."""
        log = self._hosted.log
        start, stable = max(covered + 1, log.log_start_offset), log.last_stable_offset
        for segment in closed_from(log, start):
            if segment.end_offset + 1 > stable:
                return
            yield segment

    def _copy(self, run: Run, local: ClosedSegment) -> Outcome:
        """Verify the segment, announce its copy, put its objects, and publish that they are all there."""
        services = self._services
        if self._damaged is not None:
            damaged, damage, again_ms = self._damaged
            if damaged == local and run.now_ms < again_ms:
                return damage
        refused = services.circuits.refusal("copy", run.now_ms)
        if refused is not None:
            return refused
        services.copy_rate.note(local.size_bytes, run.now_ms)
        yield from run.call(services.copy_slots.acquire)
        stored = yield from self._store(run, local)
        run.emit(services.copy_slots.release(run.now_ms))
        if not isinstance(stored, RemoteSegment):
            return stored
        return (yield from self._publish_finished(run, stored))

    def _store(self, run: Run, local: ClosedSegment) -> Steps[RemoteSegment | FirnlineError | None]:
        """Do all of a copy but its end: return the segment that the store has now.

        Or the error that ends the run, or None if there is nothing to copy any more.
        """
        hosted, services = self._hosted, self._services
        if not hosted.leads or self._next_due() != local:
            return None
        permit = services.circuits.admit("copy", run.now_ms)
        if isinstance(permit, StoreUnavailable):
            return permit
        epochs = self._epochs_of(local)
        verified = yield from self._verify(run, local, epochs)
        if not isinstance(verified, VerifiedSegment):
            return verified
        data = verified.data
        refused = services.circuits.void(permit)
        if refused is not None:
            return refused
        segment = self._new_segment(local, data, epochs, run.now_ms)
        if isinstance(segment, StorageError):
            return segment
        services.copying.add(segment)
        error: KafkaError | None = yield from run.call(partial(services.metadata.add, segment))
        if error is not None:
            # The record may be in the log nevertheless: then `expiry` deletes its objects (F1).
            services.copying.discard(segment)
            return error
        services.counters.add(segment.topic, "copy_requests")
        result = yield from run.call(self._put(permit, segment, data))
        if isinstance(result, WorkTimedOut):
            # The thread may still put objects: it stays in `copying`, so that nobody deletes it before.
            services.counters.add(segment.topic, "copy_errors")
            return result
        problem = self._problem_of_copy(segment, local, result)
        if problem is not None:
            services.counters.add(segment.topic, "copy_errors")
            yield from self._undo(segment, run)
            return problem
        assert not isinstance(result, Exception)
        services.counters.add(segment.topic, "copy_bytes", segment.size_bytes)
        self._catalog.note_details(segment.segment_id, verified.details)
        return segment._replace(custom_metadata=result)

    def _verify(self, run: Run, local: ClosedSegment, epochs: Epochs) -> Steps[Verified]:
        """Check every batch before anything is published or put.

        Returns what to put, the error that ends the run, or None if the segment was truncated or deleted
        meanwhile, with whatever is wrong with it.
        """
        hosted = self._hosted
        if not epochs:
            return StorageError(
                "the leader epochs of a segment are not known: it cannot be copied",
                partition=f"{hosted.topic}-{hosted.where.partition}",
                base_offset=local.base_offset,
            )
        work = partial(read_verified, self._services.fs, self._to_copy(local, epochs))
        name = f"check {hosted.topic}-{hosted.where.partition} at {local.base_offset}"

        def begin(then: Callable[[VerifiedSegment | Exception, int], Effects], _: int) -> Effects:
            return [Submit(name=name, pool="copy", work=work, then=then)]

        result = yield from run.call(begin)
        is_there = next(closed_from(hosted.log, local.base_offset), None) == local
        if not hosted.leads or not is_there or self._epochs_of(local) != epochs:
            return None
        if isinstance(result, DamagedSegment):
            run.emit(self._refuse(local, result, run.now_ms))
            return result
        if isinstance(result, Exception):
            return as_error(result)
        self._damaged = None
        if result.rebuilt:
            where = hosted.log.topic_partition._asdict()
            files = ",".join(result.rebuilt)
            run.emit([INDEXES_REBUILT_FOR_TIER(**where, segment=local.stem_path, files=files)])
        return result

    def _to_copy(self, local: ClosedSegment, epochs: Epochs) -> ToCopy:
        log = self._hosted.log
        closed = log.closed_segments()
        history = log.epochs.entries()
        return ToCopy(
            partition=log.topic_partition,
            directory=log.path,
            segment=local,
            before=closed[: bisect_left(closed, local.base_offset, key=attrgetter("base_offset"))],
            epochs=epochs,
            lineage=leader_epoch_checkpoint.encode(e for e in history if e[1] <= local.end_offset),
            index_interval_bytes=log.config.index_interval_bytes,
            may_have_gaps=log.compaction.may_have_gaps,
        )

    def _refuse(self, local: ClosedSegment, problem: DamagedSegment, now_ms: int) -> Effects:
        """Copy neither the segment nor any later one: the replicas keep their local segments."""
        is_new = self._damaged is None or self._damaged[0] != local
        self._damaged = (local, problem, now_ms + LOOK_AGAIN_MS)
        self._services.counters.add(self._hosted.topic, "damaged_segments", int(is_new))
        effects: Effects = []
        if is_new:
            where = self._hosted.log.topic_partition._asdict()
            effects = [
                SEGMENT_NOT_COPIED(**where, base_offset=local.base_offset, error=problem),
            ]
        if self._services.may_hand_over(self._hosted.where, local.base_offset, now_ms):
            effects += self._services.on_damaged(self._hosted.where, problem, now_ms)
        return effects

    def _new_segment(
        self, local: ClosedSegment, data: SegmentData, epochs: Epochs, now_ms: int
    ) -> RemoteSegment | StorageError:
        services, hosted = self._services, self._hosted
        try:
            largest_time_ms = local.largest_time_ms()
        except StorageError as problem:  # an index of it is being rebuilt, or cannot be
            return problem
        return RemoteSegment(
            topic_id=hosted.where.topic_id,
            topic=hosted.topic,
            partition=hosted.where.partition,
            segment_id=services.rng.uuid(),
            base_offset=local.base_offset,
            end_offset=local.end_offset,
            size_bytes=local.size_bytes,
            max_timestamp_ms=largest_time_ms,
            epochs=epochs,
            broker_id=services.settings.node_id,
            event_timestamp_ms=now_ms,
            txn_index_empty=data.txn_index is None,
        )

    def _epochs_of(self, local: ClosedSegment) -> Epochs:
        history = self._hosted.log.epochs.entries()
        return segment_epochs(history, local.base_offset, local.end_offset)

    def _put(
        self, permit: Permit, segment: RemoteSegment, data: SegmentData
    ) -> Begin[bytes | Exception | None]:
        services = self._services
        work = partial(
            copy_segment,
            services.storage,
            services.settings.custom_metadata_max_bytes,
            segment,
            data,
        )
        return lambda then, now_ms: services.circuits.submit(
            permit,
            now_ms,
            name=f"copy {segment.topic}-{segment.partition} at {segment.base_offset}",
            pool="copy",
            work=work,
            then=then,
            run_timeout_ms=store_timeout_ms(segment.size_bytes),
            ended=partial(self._ended_late, segment),
        )

    def _problem_of_copy(
        self, segment: RemoteSegment, local: ClosedSegment, result: bytes | Exception | None
    ) -> FirnlineError | None:
        """Return why the objects that were put have to be deleted again, or None."""
        if isinstance(result, Exception):
            self.is_stopped = isinstance(result, CustomMetadataTooLarge)
            return as_error(result)
        if not self._is_still_ours(segment, local):
            return StorageError("the log was truncated while its segment was copied")
        return None

    def _is_still_ours(self, segment: RemoteSegment, local: ClosedSegment) -> bool:
        """Whether the log still has the copied bytes. An unclean election may have truncated it."""
        if segment.end_offset >= self._hosted.log.log_end_offset:
            return False
        if segment.end_offset < self._hosted.log.log_start_offset:
            return True  # deleted meanwhile, as a whole: it expires in the tier, too (F30)
        return self._epochs_of(local)[-1:] == segment.epochs[-1:]

    def _publish_finished(self, run: Run, segment: RemoteSegment) -> Outcome:
        copying = self._services.copying.of(segment.topic_id_partition)
        assert segment.segment_id in copying, (
            "until it is settled no other task cleans it up (rel-T13)"
        )
        change = _change(self._services, segment, SegmentState.COPY_FINISHED, run.now_ms)
        publish = partial(self._services.metadata.update, change)
        error: KafkaError | None = yield from run.call(publish)
        if error is None:
            self._copy_counts(run, segment)
            return None
        self._unsure = segment
        if not self._hosted.leads:
            run.emit(self.give_up(run.now_ms))
        return error

    def _copy_counts(self, run: Run, segment: RemoteSegment) -> None:
        self._unsure = None
        self._services.copying.discard(segment)
        run.emit(
            [
                SEGMENT_COPIED(
                    topic=segment.topic,
                    partition=segment.partition,
                    base_offset=segment.base_offset,
                    end_offset=segment.end_offset,
                    bytes=segment.size_bytes,
                    segment_id=uuid_text(segment.segment_id),
                    leader_epoch=max(epoch for epoch, _ in segment.epochs),
                )
            ]
        )
        self._hosted.metadata_version += 1  # also if a metadata manager does not call back
        if self._hosted.leads:
            run.emit(self._catalog.request(_ignore, run.now_ms))

    def _settle(self, run: Run, segment: RemoteSegment) -> Outcome:
        """Check whether a COPY_FINISHED of unknown outcome is committed; if not, publish it again."""
        known = self._services.metadata.get(segment.topic_id_partition, segment.segment_id)
        if known is not None and known.state == SegmentState.COPY_STARTED:
            return (yield from self._publish_finished(run, segment))
        if known is None or known.state != SegmentState.COPY_FINISHED:
            run.emit(self.give_up(run.now_ms))
        else:
            self._copy_counts(run, segment)
        return None

    def give_up(self, now_ms: int) -> Effects:
        """Leave a copy of unknown outcome: the role has ended, or the segment is deleted."""
        segment, self._unsure = self._unsure, None
        if segment is None:
            return []
        self._services.copying.discard(segment)
        return self._unconfirmed.note(segment, now_ms)

    # -------------------------------------------------------------------------------- failure

    def _ended_late(self, segment: RemoteSegment, now_ms: int) -> Effects:
        """A copy that had timed out has ended, so that its objects can be deleted; another run may go on."""
        return coroutines.run(partial(self._undo, segment), now_ms, _ignore)

    def _undo(self, segment: RemoteSegment, run: Run) -> Steps[None]:
        """Undo a failed copy: DELETE_STARTED, delete, DELETE_FINISHED (3.4-6).

        While the store is down that is left to `expiry`: each attempt would leave records. So is what fails
        here: `expiry` finds it by the state of the segment.
        """
        services = self._services
        if services.circuits.refusal("delete", run.now_ms) is None:
            change = _change(services, segment, SegmentState.DELETE_STARTED, run.now_ms)
            error = yield from run.call(partial(services.metadata.update, change))
            if error is not None:
                run.emit(self._unconfirmed.note(segment, run.now_ms))
            elif not isinstance((yield from run.call(self._take_back(segment))), Exception):
                change = _change(services, segment, SegmentState.DELETE_FINISHED, run.now_ms)
                yield from run.call(partial(services.metadata.update, change))
        services.copying.discard(segment)

    def _take_back(self, segment: RemoteSegment) -> Begin[Exception | None]:
        return lambda then, now_ms: self._services.circuits.submit(
            "delete",
            now_ms,
            name=f"take back {segment.topic}-{segment.partition} at {segment.base_offset}",
            pool="copy",
            work=partial(self._services.storage.delete_segment, segment),
            then=then,
            run_timeout_ms=store_timeout_ms(),
        )


def _others(steps: Generator[None, None, None]) -> SlicedTask:
    while True:
        yield []
        try:
            next(steps)
        except StopIteration:
            return []


def _ignore(_error: FirnlineError | None, _now_ms: int) -> Effects:
    return []


def _change(
    services: Services, segment: RemoteSegment, state: SegmentState, now_ms: int
) -> SegmentUpdate:
    return SegmentUpdate(
        topic_id=segment.topic_id,
        topic=segment.topic,
        partition=segment.partition,
        segment_id=segment.segment_id,
        state=state,
        broker_id=services.settings.node_id,
        event_timestamp_ms=now_ms,
        custom_metadata=segment.custom_metadata if state == SegmentState.COPY_FINISHED else None,
    )


def task_key(what: str, where: TopicIdPartition) -> tuple[str, str, bytes, int]:
    """Return the timer key of a partition's task."""
    return ("tier", what, where.topic_id, where.partition)


# ----------------------------------------------------------------------------- requests to copy now


class Flush:
    """One request: `then` is called once, with an outcome for each partition; None: all of it is copied.

    It is called when all have one, or at the deadline with why the others have none: a store that hangs
    must not look like a broker that is dead.

    number  of this request, on this node
    """

    def __init__(self, number: int, partitions: Collection[int], then: Flushed) -> None:
        self.waiting = dict.fromkeys(partitions)
        self._outcomes: dict[int, FirnlineError | None] = {}
        self._then = then
        self._key = ("tier", "flush", number)

    def deadline(self, at_ms: int, late: Callable[["Flush", int], Effects]) -> Effects:
        """Have `late(flush, now_ms)` called at that time, unless all partitions have an outcome before."""
        if not self.waiting:
            return []
        return [SetTimer(key=self._key, at_ms=at_ms, then=partial(late, self))]

    def arrived(self, partition: int, error: FirnlineError | None, now_ms: int) -> Effects:
        """The partition has an outcome. One that comes after the deadline is nobody's."""
        if partition not in self.waiting:
            return []
        del self.waiting[partition]
        self._outcomes[partition] = error
        if self.waiting:
            return []
        return [CancelTimer(key=self._key), *self._then(self._outcomes, now_ms)]

    def end(self, errors: Mapping[int, FirnlineError], now_ms: int) -> Effects:
        """The deadline is over: answer with `errors` for the partitions that have no outcome."""
        self._outcomes |= {partition: errors[partition] for partition in self.waiting}
        self.waiting.clear()
        return self._then(self._outcomes, now_ms)


def why_late(
    services: Services, hosted: Hosted, *, is_copying: bool, timeout_ms: int, now_ms: int
) -> KafkaError:
    """Return which offsets of a partition were not copied in time, and why as far as that is known."""
    covered, end = hosted.covered_offset(services.metadata), hosted.log.log_end_offset - 1
    within = f"within {timeout_ms / 1000:g} s"
    if not isinstance(covered, int):
        why = "the metadata of the tier is not read yet"
        return KafkaError(Code.REQUEST_TIMED_OUT, f"nothing was copied {within}: {why}")
    why = _reason(services, hosted, covered, is_copying=is_copying, now_ms=now_ms)
    if covered >= end:
        said = f"all is copied, but the catalog of the tier does not say so {within}: {why}"
    else:
        said = f"offsets {covered + 1} to {end} were not copied {within}: {why}"
    return KafkaError(Code.REQUEST_TIMED_OUT, said)


def _reason(
    services: Services, hosted: Hosted, covered: int, *, is_copying: bool, now_ms: int
) -> str:
    failing = [circuit.problem for circuit in services.circuits.problems()]
    if failing:
        return f"the store fails: {failing[0]}"
    if hosted.problem is not None:
        return hosted.problem.text
    if not hosted.may_copy:
        return "copying to the tier is disabled for the topic"
    stable = hosted.log.last_stable_offset
    if covered + 1 >= stable and stable < hosted.log.log_end_offset:
        return f"from offset {stable} on, a transaction is open or a replica is behind"
    if services.copy_rate.throttle_ms(now_ms):
        return "remote.log.manager.copy.max.bytes.per.second delays copies"
    if is_copying:
        return "a copy is in progress, and goes on; the store has not answered"
    return "the copy has not begun"
