"""The copy task of a partition's leader: copies closed segments to the tier, one at a time, in order. PURE.

Theory of operation. For each segment the task

1. verifies every batch and makes the remote objects, in a worker thread (objects/verified);
2. publishes COPY_STARTED in the metadata, before the first byte leaves (rel-T4);
3. puts the objects, in a worker thread;
4. publishes COPY_FINISHED, after the store has all of them (rel-T5). From then on the tier serves the
   segment, and the local one may be deleted.

Every attempt has a segment id of its own (rel-T12). The objects of a failed attempt are deleted at once, or
later by `expiry`. Nothing at or above the last stable offset is copied (X30). After a loss of the leadership
the task ends with the present segment (T8). Source: spec 3.4; F1-F10, F25, F30.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from operator import attrgetter

from firnline.base.background import SlicedTask
from firnline.base.effects import Effects, SetTimer, Submit, Warn
from firnline.base.errors import Code, FirnlineError, KafkaError, StorageError, WorkTimedOut
from firnline.base.ids import TopicIdPartition
from firnline.base.units import MINUTE_MS
from firnline.formats import leader_epoch_checkpoint
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.log.segments import ClosedSegment
from firnline.tiered.catalog.keeper import CatalogKeeper
from firnline.tiered.circuits import Permit, StoreUnavailable
from firnline.tiered.hosted import Hosted, Services, TaskCallback, closed_from
from firnline.tiered.lineage import first_served, segment_epochs
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


class Copier:
    """Copies the due segments of one led partition. `run` calls back once; there is one run at a time."""

    def __init__(
        self,
        services: Services,
        hosted: Hosted,
        catalog: CatalogKeeper,
        unconfirmed: UnconfirmedCopies,
    ) -> None:
        self._services = services
        self._unconfirmed = unconfirmed
        self._hosted = hosted
        self._catalog = catalog
        # The continuation of the run under way; None: no run. One at a time, so segments go in order.
        self._done: TaskCallback | None = None
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
        # For the segment that is being checked or copied.
        self._permit: Permit | None = None

    @property
    def is_running(self) -> bool:
        return self._done is not None

    def run(self, now_ms: int, done: TaskCallback) -> Effects:
        """Copy all due segments; then call `done(None, now_ms)`, or with the first error."""
        assert self._done is None, "one run at a time"
        self._done = done
        hosted, services, metadata = self._hosted, self._services, self._services.metadata
        if not hosted.leads or not hosted.is_tiered:
            return self._finish(None, now_ms)
        if not metadata.is_ready(hosted.where):
            return self._finish(KafkaError(Code.REPLICA_NOT_AVAILABLE, "metadata"), now_ms)
        withheld = services.withheld(hosted.where)
        if withheld is not None:
            return self._finish(withheld, now_ms)
        if services.catalog is None and not self._has_adopted:
            return [*self._adopt_log_start(now_ms), *self._compare(now_ms)]
        return self._compare(now_ms)

    def _compare(self, now_ms: int) -> Effects:
        """Copy after the catalog has been compared with the metadata."""
        hosted, services = self._hosted, self._services
        if not self._catalog.explains_all() and self._catalog.is_begun:
            return self._catalog.compare(self._catalog_begun, now_ms)
        if services.catalog is None:
            hosted.unexplained_segments = 0
            hosted.note_outcome("catalog", None, now_ms)
        if not self._catalog.is_begun:
            return self._catalog.request(self._catalog_begun, now_ms)
        return self._next(now_ms)

    def _catalog_begun(self, error: FirnlineError | None, now_ms: int) -> Effects:
        return self._finish(error, now_ms) if error else self._next(now_ms)

    def _finish(self, error: FirnlineError | None, now_ms: int) -> Effects:
        done, self._done = self._done, None
        assert done is not None
        # Withheld metadata is checked again when it is reported: it may have been solved before the next run.
        is_reported = error is None or isinstance(error, HistoryUnknown)
        self._hosted.note_outcome("copy", None if is_reported else error, now_ms)
        return done(error, now_ms)

    def _adopt_log_start(self, now_ms: int) -> Effects:
        """Raise the log start to that of the tier, which earlier leaders may have raised (3.4-1, X42).

        Only after the metadata has been found to have all that the catalog has. Never above local records;
        and never to their start if the metadata does not show that the tier has had the records right below
        it: that is a loss to report, and not to act on (F28).
        """
        hosted = self._hosted
        segments = self._services.metadata.segments(hosted.where)
        if isinstance(segments, KafkaError) or not hosted.is_tiered:
            return []
        self._has_adopted = True
        steps = self._adopting(segments)
        try:
            next(steps)
        except StopIteration:
            return []
        return self._services.sliced_tasks.begin(_others(steps), now_ms)

    def _adopting(self, segments: Sequence[RemoteSegment]) -> Generator[None, None, None]:
        """Find the first offset that is served, usually in the first segment; again if the log changes."""
        hosted, log = self._hosted, self._hosted.log
        while hosted.leads:
            local_start, history = log.local_log_start_offset, log.epochs.entries()
            finished = (s for s in segments if s.state == SegmentState.COPY_FINISHED)
            first = yield from first_served(finished, history)
            if (local_start, history) != (log.local_log_start_offset, log.epochs.entries()):
                continue
            if first is not None and first >= local_start:
                first = None
            if first is None and not self._was_copied(local_start - 1):
                return
            start = local_start if first is None else first
            if start > log.log_start_offset:
                log.advance_log_start(start)
            return

    def _was_copied(self, offset: int) -> bool:
        """Whether the metadata shows that the tier has, or has had, the offset."""
        epoch = self._hosted.log.epochs.epoch_at(offset)
        if epoch is None:
            return False
        highest = self._services.metadata.highest_offset(self._hosted.where, epoch)
        return isinstance(highest, int) and highest >= offset

    # ---------------------------------------------------------------------------- one segment

    def _next(self, now_ms: int) -> Effects:
        hosted, services = self._hosted, self._services
        if not hosted.leads:
            return self._finish(None, now_ms)
        if self._unsure is not None:
            return self._settle(self._unsure, now_ms)
        withheld = services.withheld(hosted.where)
        if withheld is not None:
            return self._finish(withheld, now_ms)
        covered = hosted.covered_offset(services.metadata)
        if isinstance(covered, KafkaError):
            return self._finish(covered, now_ms)
        hosted.log.set_highest_remote(covered)
        candidate = next(self.candidates(covered), None)
        if candidate is None or not hosted.may_copy or self.is_stopped:
            return self._finish(None, now_ms)
        if services.copy_rate.is_exceeded(now_ms):
            key = ("tier-copy-quota", *hosted.where)
            return [SetTimer(key=key, at_ms=now_ms + QUOTA_CHECK_MS, then=self._next)]
        if self._damaged is not None:
            local, problem, again_ms = self._damaged
            if local == candidate and now_ms < again_ms:
                return self._finish(problem, now_ms)
        assert candidate.end_offset < hosted.log.last_stable_offset, (
            "records above the last stable offset stay local (X30)"
        )
        assert candidate.end_offset > covered, "offsets that the tier has are not copied again"
        permit = services.circuits.admit("copy", now_ms)
        if isinstance(permit, StoreUnavailable):
            return self._finish(permit, now_ms)
        self._permit = permit
        services.copy_rate.note(candidate.size_bytes, now_ms)
        return self._check(candidate, now_ms)

    def candidates(self, covered: int) -> Iterator[ClosedSegment]:
        """Iterate over local segments that are due, oldest first (3.4-2)."""
        log = self._hosted.log
        start, stable = max(covered + 1, log.log_start_offset), log.last_stable_offset
        for segment in closed_from(log, start):
            if segment.end_offset + 1 > stable:
                return
            yield segment

    def _check(self, local: ClosedSegment, now_ms: int) -> Effects:
        """Verify every batch before anything is published or put."""
        services, hosted, log = self._services, self._hosted, self._hosted.log
        epochs, history = self._epochs_of(local), log.epochs.entries()
        closed = log.closed_segments()
        if not epochs:
            return self._finish(
                StorageError(
                    "the leader epochs of a segment are not known: it cannot be copied",
                    partition=f"{hosted.topic}-{hosted.where.partition}",
                    base_offset=local.base_offset,
                ),
                now_ms,
            )
        due = ToCopy(
            partition=log.topic_partition,
            directory=log.path,
            segment=local,
            before=closed[: bisect_left(closed, local.base_offset, key=attrgetter("base_offset"))],
            epochs=epochs,
            lineage=leader_epoch_checkpoint.encode(e for e in history if e[1] <= local.end_offset),
            index_interval_bytes=log.config.index_interval_bytes,
            may_have_gaps=log.compaction.may_have_gaps,
        )
        return [
            Submit(
                name=f"check {hosted.topic}-{hosted.where.partition} at {local.base_offset}",
                pool="copy",
                work=partial(read_verified, services.fs, due),
                then=partial(self._checked, local, epochs),
            )
        ]

    def _checked(
        self, local: ClosedSegment, epochs: Epochs, result: VerifiedSegment | Exception, now_ms: int
    ) -> Effects:
        hosted = self._hosted
        is_there = next(closed_from(hosted.log, local.base_offset), None) == local
        is_as_it_was = is_there and self._epochs_of(local) == epochs
        if not hosted.leads or not is_as_it_was:
            return self._finish(None, now_ms)  # truncated or deleted meanwhile, with the damage
        if isinstance(result, DamagedSegment):
            return self._refuse(local, result, now_ms)
        if isinstance(result, Exception):
            return self._finish(as_error(result), now_ms)
        verified = result
        self._damaged = None
        warnings: Effects = []
        if verified.rebuilt:
            files = ", ".join(verified.rebuilt)
            warnings = [Warn(line=f"{local.stem_path}: {files} damaged here, rebuilt for the tier")]
        return [*warnings, *self._begin(local, verified.data, epochs, now_ms)]

    def _refuse(self, local: ClosedSegment, problem: DamagedSegment, now_ms: int) -> Effects:
        """Copy neither the segment nor any later one: the replicas keep their local segments."""
        is_new = self._damaged is None or self._damaged[0] != local
        self._damaged = (local, problem, now_ms + LOOK_AGAIN_MS)
        self._services.counters.damaged_segments += is_new
        effects: Effects = []
        if is_new:
            effects = [Warn(line=f"not copied to the tier, nor anything after it: {problem}")]
        if self._services.may_hand_over(self._hosted.where, local.base_offset, now_ms):
            effects += self._services.on_damaged(self._hosted.where, problem, now_ms)
        return [*effects, *self._finish(problem, now_ms)]

    def _begin(
        self, local: ClosedSegment, data: SegmentData, epochs: Epochs, now_ms: int
    ) -> Effects:
        services, hosted = self._services, self._hosted
        assert self._permit is not None
        refused = services.circuits.void(self._permit)
        if refused is not None:
            return self._finish(refused, now_ms)
        try:
            largest_time_ms = local.largest_time_ms()
        except StorageError as problem:  # an index of it is being rebuilt, or cannot be
            return self._finish(problem, now_ms)
        segment = RemoteSegment(
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
        services.copying.add(segment)
        then = partial(self._started, segment, local, data)
        return services.metadata.add(segment, then, now_ms)

    def _epochs_of(self, local: ClosedSegment) -> Epochs:
        history = self._hosted.log.epochs.entries()
        return segment_epochs(history, local.base_offset, local.end_offset)

    def _started(
        self,
        segment: RemoteSegment,
        local: ClosedSegment,
        data: SegmentData,
        error: KafkaError | None,
        now_ms: int,
    ) -> Effects:
        services = self._services
        if error is not None:
            # The record may be in the log nevertheless: then `expiry` deletes its objects (F1).
            services.copying.discard(segment)
            return self._finish(error, now_ms)
        services.counters.copy_requests += 1
        assert self._permit is not None
        return services.circuits.submit(
            self._permit,
            now_ms,
            name=f"copy {segment.topic}-{segment.partition} at {segment.base_offset}",
            pool="copy",
            work=partial(
                copy_segment,
                services.storage,
                services.settings.custom_metadata_max_bytes,
                segment,
                data,
            ),
            then=partial(self._copied, segment, local),
            run_timeout_ms=store_timeout_ms(segment.size_bytes),
            ended=partial(self._ended_late, segment),
        )

    def _copied(
        self,
        segment: RemoteSegment,
        local: ClosedSegment,
        result: bytes | Exception | None,
        now_ms: int,
    ) -> Effects:
        services = self._services
        if isinstance(result, WorkTimedOut):
            # The thread may still put objects: it stays in `copying`, so that nobody deletes it before.
            services.counters.copy_errors += 1
            return self._finish(result, now_ms)
        if isinstance(result, Exception):
            self.is_stopped = isinstance(result, CustomMetadataTooLarge)
            return self._failed(segment, as_error(result), now_ms)
        if not self._is_still_ours(segment, local):
            problem = StorageError("the log was truncated while its segment was copied")
            return self._failed(segment, problem, now_ms)
        services.counters.copy_bytes += segment.size_bytes
        return self._publish_finished(segment._replace(custom_metadata=result), now_ms)

    def _is_still_ours(self, segment: RemoteSegment, local: ClosedSegment) -> bool:
        """Whether the log still has the copied bytes. An unclean election may have truncated it."""
        if segment.end_offset >= self._hosted.log.log_end_offset:
            return False
        if segment.end_offset < self._hosted.log.log_start_offset:
            return True  # deleted meanwhile, as a whole: it expires in the tier, too (F30)
        return self._epochs_of(local)[-1:] == segment.epochs[-1:]

    def _publish_finished(self, segment: RemoteSegment, now_ms: int) -> Effects:
        copying = self._services.copying.of(segment.topic_id_partition)
        assert segment.segment_id in copying, (
            "until it is settled no other task cleans it up (rel-T13)"
        )
        change = _change(self._services, segment, SegmentState.COPY_FINISHED, now_ms)
        return self._services.metadata.update(change, partial(self._finished, segment), now_ms)

    def _finished(self, segment: RemoteSegment, error: KafkaError | None, now_ms: int) -> Effects:
        if error is not None:
            self._unsure = segment
            effects = [] if self._hosted.leads else self.give_up(now_ms)
            return [*effects, *self._finish(error, now_ms)]
        return self._copy_counts(segment, now_ms)

    def _copy_counts(self, segment: RemoteSegment, now_ms: int) -> Effects:
        self._unsure = None
        self._services.copying.discard(segment)
        self._hosted.metadata_version += 1  # also if a metadata manager does not call back
        effects = self._catalog.request(_ignore, now_ms) if self._hosted.leads else []
        return effects + self._next(now_ms)

    def _settle(self, segment: RemoteSegment, now_ms: int) -> Effects:
        """Check whether a COPY_FINISHED of unknown outcome is committed; if not, publish it again."""
        known = self._services.metadata.get(segment.topic_id_partition, segment.segment_id)
        if known is not None and known.state == SegmentState.COPY_STARTED:
            return self._publish_finished(segment, now_ms)
        if known is None or known.state != SegmentState.COPY_FINISHED:
            return [*self.give_up(now_ms), *self._next(now_ms)]
        return self._copy_counts(segment, now_ms)

    def give_up(self, now_ms: int) -> Effects:
        """Leave a copy of unknown outcome: the role has ended, or the segment is deleted."""
        segment, self._unsure = self._unsure, None
        if segment is None:
            return []
        self._services.copying.discard(segment)
        return self._unconfirmed.note(segment, now_ms)

    # -------------------------------------------------------------------------------- failure

    def _failed(self, segment: RemoteSegment, error: FirnlineError, now_ms: int) -> Effects:
        """Undo a failed copy; then report the error."""
        self._services.counters.copy_errors += 1
        return self._undo(segment, partial(self._finish, error), now_ms)

    def _ended_late(self, segment: RemoteSegment, now_ms: int) -> Effects:
        """A copy that had timed out has ended, so that its objects can be deleted; another run may go on."""
        return self._undo(segment, _nothing, now_ms)

    def _undo(self, segment: RemoteSegment, done: Callable[[int], Effects], now_ms: int) -> Effects:
        """Undo a failed copy: DELETE_STARTED, delete, DELETE_FINISHED (3.4-6); then call `done`.

        While the store is down that is left to `expiry`: each attempt would leave records.
        """
        if self._services.circuits.refusal("delete", now_ms) is not None:
            return self._left_behind(segment, done, now_ms)
        change = _change(self._services, segment, SegmentState.DELETE_STARTED, now_ms)
        then = partial(self._taking_back, segment, done)
        return self._services.metadata.update(change, then, now_ms)

    def _taking_back(
        self,
        segment: RemoteSegment,
        done: Callable[[int], Effects],
        problem: KafkaError | None,
        now_ms: int,
    ) -> Effects:
        if problem is not None:
            effects = self._unconfirmed.note(segment, now_ms)
            return [*effects, *self._left_behind(segment, done, now_ms)]
        return self._services.circuits.submit(
            "delete",
            now_ms,
            name=f"take back {segment.topic}-{segment.partition} at {segment.base_offset}",
            pool="copy",
            work=partial(self._services.storage.delete_segment, segment),
            then=partial(self._taken_back, segment, done),
            run_timeout_ms=store_timeout_ms(),
        )

    def _taken_back(
        self,
        segment: RemoteSegment,
        done: Callable[[int], Effects],
        result: Exception | None,
        now_ms: int,
    ) -> Effects:
        if isinstance(result, Exception):
            return self._left_behind(segment, done, now_ms)
        change = _change(self._services, segment, SegmentState.DELETE_FINISHED, now_ms)
        then = partial(self._gone, segment, done)
        return self._services.metadata.update(change, then, now_ms)

    def _gone(
        self,
        segment: RemoteSegment,
        done: Callable[[int], Effects],
        _problem: KafkaError | None,
        now_ms: int,
    ) -> Effects:
        return self._left_behind(segment, done, now_ms)

    def _left_behind(
        self, segment: RemoteSegment, done: Callable[[int], Effects], now_ms: int
    ) -> Effects:
        """The objects could not be deleted: `expiry` finds them by the segment's state."""
        self._services.copying.discard(segment)
        return done(now_ms)


def _others(steps: Generator[None, None, None]) -> SlicedTask:
    while True:
        yield []
        try:
            next(steps)
        except StopIteration:
            return []


def _nothing(_now_ms: int) -> Effects:
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
