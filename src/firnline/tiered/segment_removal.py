"""Deletes remote segments of one partition: for `expiry`, and for the `remover` of deleted topics. PURE.

The order (rel-T2): DELETE_STARTED for all of them, then the catalog without them, then the objects of each,
then its DELETE_FINISHED. Who has read an earlier catalog may still read the objects. So those of a segment
that was in it stay for `file.delete.delay.ms` after the catalog without them was written. Segments are
marked and deleted together, in steps of a bounded number, because each record and each request costs a
round trip: one at a time, a partition of 60,000 segments takes hours. Source: spec 3.7, T12; F21.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from firnline.base.effects import Effects
from firnline.base.errors import FirnlineError, KafkaError
from firnline.base.ids import Uuid, uuid_text
from firnline.base.log_lines.line import Fields
from firnline.base.log_lines.tier import SEGMENT_REMOVED
from firnline.tiered import coroutines
from firnline.tiered.circuits import StoreUnavailable
from firnline.tiered.coroutines import Begin, Run, Steps, together
from firnline.tiered.hosted import Services, TaskCallback
from firnline.tiered.settings import store_timeout_ms
from firnline.tiered.spi import (
    DeletesSegments,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    as_error,
)

# Segments that one step looks at.
CHECKED_IN_STEP = 1000
# Records about segments that are published together.
MARKED_TOGETHER = 64
# Segments of one call, if the storage can delete several: their objects fit into one request to S3.
DELETED_TOGETHER = 64
# Calls at a time, if the storage deletes one segment at a time.
CALLS_AT_ONCE = 4


class Unlisted:
    """Since when segments are in no catalog, as far as this process knows. One for each leader epoch."""

    def __init__(self) -> None:
        self._since_ms: dict[Uuid, int] = {}

    def __len__(self) -> int:
        return len(self._since_ms)

    def forget(self, segment: RemoteSegment) -> None:
        """Its objects are deleted."""
        self._since_ms.pop(segment.segment_id, None)

    def for_ms(self, segment: RemoteSegment, now_ms: int) -> int:
        """Return for how long the catalog has been without a segment; 0 when it is asked first."""
        since_ms = self._since_ms.setdefault(segment.segment_id, now_ms)
        if (
            since_ms > now_ms
        ):  # the clock was set back, and must not keep the objects until it is there again
            since_ms = self._since_ms[segment.segment_id] = now_ms
        return now_ms - since_ms


class SegmentRemoval:
    """One removal: DELETE_STARTED for all, `between`, then the objects and DELETE_FINISHED of each.

    A segment that cannot be deleted stays DELETE_STARTED, and does not block the others (F21); the first
    error is reported. `may_go_on` is checked before each step. Unfinished copies stay DELETE_STARTED, too,
    because a late put may create their objects again: the caller deletes them once more.

    delay_ms  how long the catalog must have been without a finished segment before its objects are deleted;
              one that has to wait stays DELETE_STARTED
    unlisted  since when it has been; shared by the removals of a partition
    """

    def __init__(
        self,
        services: Services,
        segments: Sequence[RemoteSegment],
        *,
        may_go_on: Callable[[], bool],
        between: Callable[[TaskCallback, int], Effects],
        delay_ms: int = 0,
        unlisted: Unlisted | None = None,
    ) -> None:
        self._services = services
        self._delay_ms = delay_ms
        self._unlisted = Unlisted() if unlisted is None else unlisted
        # Segments that have not been checked yet. Nothing is deleted before it is empty: readers and the
        # catalog must not have any of the segments by then (rel-T2).
        self._to_mark = deque(segments)
        # Segments whose DELETE_STARTED is committed, and whose objects have not been deleted yet.
        self._to_delete: deque[RemoteSegment] = deque()
        self._may_go_on = may_go_on
        self._between = between
        storage = services.storage
        self._bulk = storage if isinstance(storage, DeletesSegments) else None
        self._most = DELETED_TOGETHER if self._bulk is not None else CALLS_AT_ONCE
        # Segments of the next step. It doubles with each success. After a failure it is one: so the segment
        # that cannot be deleted is found, and a call that takes too long is not repeated.
        self._count = 1
        # The first error. It does not end the removal, and is reported at its end (F21).
        self._error: FirnlineError | None = None

    def begin(self, done: TaskCallback, now_ms: int) -> Effects:
        """Delete the segments; then call `done(None, now_ms)`, or with the first error."""
        return coroutines.run(self._remove, now_ms, done)

    def _remove(self, run: Run) -> Steps[FirnlineError | None]:
        while self._to_mark and self._goes_on(run):
            yield from self._mark_some(run)
        if self._to_mark or not self._to_delete:
            return self._error
        error: FirnlineError | None = yield from run.call(self._between)
        if error is not None:
            return error  # the catalog may have the segments still
        yield from self._leave_those_that_wait(run)
        while self._to_delete and self._goes_on(run):
            yield from self._delete_some(run)
        return self._error

    def _leave_those_that_wait(self, run: Run) -> Steps[None]:
        """Delete only segments that nobody can have found in the catalog for `delay_ms`.

        A copy that was never finished was in no catalog.
        """
        if not self._delay_ms:
            return
        marked, self._to_delete = self._to_delete, deque()
        for number, segment in enumerate(marked, 1):
            was_listed = not segment.is_abandoned and segment.state != SegmentState.COPY_STARTED
            if not was_listed or self._unlisted.for_ms(segment, run.now_ms) >= self._delay_ms:
                self._to_delete.append(segment)
            if number % CHECKED_IN_STEP == 0:
                yield from run.call(self._services.next_turn("SegmentRemoval._leave"))

    def _goes_on(self, run: Run) -> bool:
        """Whether there may be another step: the role is the same, and the store is not known to be down."""
        if not self._may_go_on():
            return False
        refused = self._services.circuits.refusal("delete", run.now_ms)
        self._error = refused or self._error
        return refused is None

    # ----------------------------------------------------------------------------------- marks

    def _mark_some(self, run: Run) -> Steps[None]:
        due: list[RemoteSegment] = []
        for _ in range(min(len(self._to_mark), CHECKED_IN_STEP)):
            segment = self._to_mark.popleft()
            if segment.state == SegmentState.DELETE_STARTED:
                self._to_delete.append(segment)
            elif self._is_as_it_was(segment):
                due.append(segment)
                if len(due) == MARKED_TOGETHER:
                    break
        if due:
            self._to_delete += yield from self._publish(run, due, SegmentState.DELETE_STARTED)
        elif self._to_mark:
            yield from run.call(self._services.next_turn("SegmentRemoval._mark_some"))

    def _is_as_it_was(self, segment: RemoteSegment) -> bool:
        """Whether its state is still that of the decision, which may be hours old."""
        where = segment.topic_id_partition
        known = self._services.metadata.get(where, segment.segment_id)
        return known is not None and known.state == segment.state

    def _publish(
        self, run: Run, segments: Sequence[RemoteSegment], state: SegmentState
    ) -> Steps[list[RemoteSegment]]:
        """Publish a state of several segments; return those for which that succeeded."""
        changes = [
            SegmentUpdate(
                topic_id=segment.topic_id,
                topic=segment.topic,
                partition=segment.partition,
                segment_id=segment.segment_id,
                state=state,
                broker_id=self._services.settings.node_id,
                event_timestamp_ms=run.now_ms,
                # Its COPY_FINISHED may be committed before this record is.
                only_if_unfinished=segment.state == SegmentState.COPY_STARTED
                and state == SegmentState.DELETE_STARTED,
            )
            for segment in segments
        ]
        publish: list[Begin[KafkaError | None]]
        publish = [partial(self._services.metadata.update, change) for change in changes]
        errors = yield from run.call(together(publish))
        self._error = self._error or next(filter(None, errors), None)
        return [segment for segment, error in zip(segments, errors) if error is None]

    # ------------------------------------------------------------------------------- deletions

    def _delete_some(self, run: Run) -> Steps[None]:
        due = [self._to_delete.popleft() for _ in range(min(self._count, len(self._to_delete)))]
        calls = [due] if self._bulk is not None else [[segment] for segment in due]
        results = yield from run.call(together([self._call(call) for call in calls]))
        deleted: list[RemoteSegment] = []
        for call, result in zip(calls, results):
            if isinstance(result, Exception):
                self._failed(call, result)
            else:
                for segment in call:
                    self._unlisted.forget(segment)
                deleted += [each for each in call if each.state != SegmentState.COPY_STARTED]
        is_failed = any(isinstance(result, Exception) for result in results)
        self._count = 1 if is_failed else min(2 * self._count, self._most)
        if deleted:
            yield from self._publish(run, deleted, SegmentState.DELETE_FINISHED)
            run.emit([SEGMENT_REMOVED.detail(partial(_fields_of, each)) for each in deleted])

    def _call(self, segments: Sequence[RemoteSegment]) -> Begin[Exception | None]:
        """Delete the objects of segments in a worker thread; of several only if the storage can do that."""
        services, first = self._services, segments[0]
        if len(segments) > 1:
            assert self._bulk is not None
            work = partial(self._bulk.delete_segments, segments)
        else:
            work = partial(services.storage.delete_segment, first)
        services.counters.add(first.topic, "delete_requests", len(segments))
        return lambda then, now_ms: services.circuits.submit(
            "delete",
            now_ms,
            name=f"delete {first.topic}-{first.partition} at {first.base_offset}",
            pool="expire",
            work=work,
            then=then,
            run_timeout_ms=store_timeout_ms(),
        )

    def _failed(self, segments: Sequence[RemoteSegment], problem: Exception) -> None:
        if isinstance(problem, StoreUnavailable):
            self._error = problem  # the store was not asked; `_goes_on` ends the removal
            return
        self._services.counters.add(segments[0].topic, "delete_errors")
        if len(segments) > 1:
            self._to_delete.extendleft(reversed(segments))  # to be deleted one at a time
        else:
            self._error = self._error or as_error(problem)


def _fields_of(segment: RemoteSegment) -> Fields:
    return {
        "topic": segment.topic,
        "partition": segment.partition,
        "base_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "segment_id": uuid_text(segment.segment_id),
    }
