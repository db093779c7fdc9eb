"""The leader's expiration task: what the remote tier no longer has to keep. PURE.

Order of a run (rel-T2, X33): decide; raise the log start; DELETE_STARTED for each; write the catalog
without them; delete each and say DELETE_FINISHED. Whoever leads next finds what was left by its state
or by the log start. `decide` is a function of the log and the metadata alone. Source: spec 3.7, T12,
T49; F21, F22, F31-F33.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from firnline.base.effects import Effects, Submit
from firnline.base.errors import Code, FirnlineError, KafkaError, StorageError
from firnline.tiered.catalog_writer import CatalogKeeper, as_error
from firnline.tiered.hosted import Done, Hosted, LogView, Services
from firnline.tiered.lineage import filled, is_within_lineage
from firnline.tiered.metadata.log import HistoryUnknown
from firnline.tiered.settings import NO_LIMIT
from firnline.tiered.spi import RemoteSegment, SegmentState, SegmentUpdate


class Decision(NamedTuple):
    """What goes, oldest first, and where the log begins afterwards."""

    segments: tuple[RemoteSegment, ...]
    log_start_offset: int


def decide(
    log: LogView,
    segments: Sequence[RemoteSegment],
    *,
    covered_offset: int,
    now_ms: int,
    is_copying: Callable[[RemoteSegment], bool],
    is_dangling: Callable[[RemoteSegment], bool],
    late_put_ms: int = 0,
    applies_limits: bool = True,
) -> Decision:
    """Apply the limits of the whole log to the remote segments of one partition.

    covered_offset  the last local offset that the tier has (`Hosted.covered_offset`)
    is_copying      being copied by this node now: nothing from it on is looked at
    is_dangling     a COPY_STARTED that nobody will finish
    late_put_ms     so long after an abandoned copy was deleted it is deleted once more
    applies_limits  False: only what lies below the log start or was begun to be deleted goes
    """
    epochs = filled(log.epochs.entries())
    chosen: dict[bytes, RemoteSegment] = {}
    finished = SegmentState.COPY_FINISHED  # nearly all are: these lines look at each of them
    for segment in [s for s in segments if s.state != finished]:
        left_over = segment.state == SegmentState.DELETE_STARTED
        if segment.is_abandoned and now_ms - segment.event_timestamp_ms < late_put_ms:
            continue
        if left_over or (segment.state == SegmentState.COPY_STARTED and is_dangling(segment)):
            chosen[segment.segment_id] = segment
    if not epochs:  # an epoch cache that knows nothing decides nothing (rel-T14)
        return Decision(tuple(chosen.values()), log.log_start_offset)
    walk = _Walk(log, segments, covered_offset, now_ms, applies_limits=applies_limits)
    first_epoch = epochs[0][0]
    is_finished = True
    for segment in _by_epoch(segments, [epoch for epoch, _ in epochs]):
        if is_copying(segment):
            is_finished = False
            break
        if segment.segment_id in chosen or segment.state == SegmentState.COPY_STARTED:
            continue
        if segment.state == SegmentState.DELETE_STARTED:
            continue
        if segment.epochs[-1][0] <= first_epoch and segment.end_offset < log.log_start_offset:
            walk.drop(segment.size_bytes)
            chosen[segment.segment_id] = segment
        elif walk.is_in_lineage(segment):
            if not walk.is_in_breach(
                segment.largest_time_ms, segment.size_bytes, segment.end_offset
            ):
                is_finished = False
                break
            chosen[segment.segment_id] = segment
    if is_finished:
        walk.expire_local()
    # What an unclean election left below every epoch we know (3.7-6).
    for segment in [s for s in segments if s.epochs[-1][0] < first_epoch]:
        if segment.state == finished:
            chosen.setdefault(segment.segment_id, segment)
    return Decision(tuple(chosen.values()), walk.log_start_offset)


def _by_epoch(segments: Sequence[RemoteSegment], epochs: Sequence[int]) -> Iterator[RemoteSegment]:
    """Iterate over the segments, each once, in the order of the epochs of the log and of offsets in each.

    Most of the time the first one stays, and no other is looked for.
    """
    seen: dict[bytes, None] = {}
    for epoch in epochs:
        for segment in segments:
            if segment.segment_id not in seen and any(e == epoch for e, _ in segment.epochs):
                seen[segment.segment_id] = None
                yield segment


class _Walk:
    """The limits of the whole log, and how far they moved its start."""

    def __init__(
        self,
        log: LogView,
        segments: Sequence[RemoteSegment],
        covered_offset: int,
        now_ms: int,
        *,
        applies_limits: bool,
    ) -> None:
        self._log = log
        self._now_ms = now_ms
        self._covered_offset = covered_offset
        self._history = log.epochs.entries()
        self._retention_ms = log.config.retention_ms if applies_limits else NO_LIMIT
        self.log_start_offset = log.log_start_offset
        limit = log.config.retention_bytes if applies_limits else NO_LIMIT
        # Mostly there is no limit, and no need to look at each of tens of thousands.
        self._breach_bytes = 0 if limit < 0 else max(self._total_bytes(segments) - limit, 0)

    def _total_bytes(self, segments: Sequence[RemoteSegment]) -> int:
        counted = [
            s.size_bytes
            for s in segments
            if s.state == SegmentState.COPY_FINISHED and self.is_in_lineage(s)
        ]
        return sum(counted) + self._local_only_bytes()

    def is_in_lineage(self, segment: RemoteSegment) -> bool:
        return is_within_lineage(
            segment, log_end_offset=self._log.log_end_offset, history=self._history
        )

    def _local_only_bytes(self) -> int:
        """Bytes of the local log that the tier does not count (rel-T15)."""
        both = sum(
            s.size_bytes
            for s in self._log.closed_segments()
            if s.end_offset <= self._covered_offset
        )
        return self._log.size_bytes - both

    def drop(self, size_bytes: int) -> None:
        """A segment goes for another reason; its bytes count no more."""
        self._breach_bytes = max(self._breach_bytes - size_bytes, 0)

    def is_in_breach(self, largest_time_ms: int, size_bytes: int, end_offset: int) -> bool:
        """Whether the oldest segment left must go, by time or size; if so the log starts after it."""
        by_time = (
            self._retention_ms != NO_LIMIT and largest_time_ms <= self._now_ms - self._retention_ms
        )
        by_size = 0 < size_bytes <= self._breach_bytes
        if not by_time and not by_size:
            return False
        self.drop(size_bytes)
        self.log_start_offset = max(self.log_start_offset, end_offset + 1)
        return True

    def expire_local(self) -> None:
        """With nothing left in the tier: local segments that outlived the total limits are not kept for it.

        A store that is down longer than the retention must not fill the disk (F33). They are never
        copied, for the log now starts after them; the local log drops them.
        """
        if not self._log.config.remote_storage_enable:
            return
        for local in self._log.closed_segments():
            if local.end_offset < max(self.log_start_offset, self._covered_offset + 1):
                continue
            if local.end_offset >= self._log.high_watermark:
                return
            try:
                largest_time_ms = local.largest_time_ms()
            except StorageError:  # an index of it is built again, or cannot be: the next look sees
                return
            if not self.is_in_breach(largest_time_ms, local.size_bytes, local.end_offset):
                return


class SegmentRemoval:
    """Deletes given segments: all DELETE_STARTED first, `between`, then each object and DELETE_FINISHED.

    A segment that cannot be deleted stays DELETE_STARTED and does not hold up the others (F21); the
    first error is reported. `may_go_on` is asked before each step. `is_final` False: unfinished copies of
    other brokers stay DELETE_STARTED as well, for a put may bring their objects back.
    """

    def __init__(
        self,
        services: Services,
        segments: Sequence[RemoteSegment],
        *,
        may_go_on: Callable[[], bool],
        between: Callable[[Done, int], Effects],
        done: Done,
        is_final: bool = True,
    ) -> None:
        self._services = services
        self._to_mark = list(segments)
        self._to_delete: list[RemoteSegment] = []
        self._may_go_on = may_go_on
        self._between = between
        self._done = done
        self._is_final = is_final
        self._error: FirnlineError | None = None

    def begin(self, now_ms: int) -> Effects:
        """Go on with the next segment that is to be marked."""
        while self._to_mark:
            if not self._may_go_on():
                return self._done(self._error, now_ms)
            segment = self._to_mark.pop(0)
            if segment.state == SegmentState.DELETE_STARTED:
                self._to_delete.append(segment)
                continue
            then = partial(self._marked, segment)
            return self._publish(segment, SegmentState.DELETE_STARTED, then, now_ms)
        if not self._to_delete:
            return self._done(self._error, now_ms)
        return self._between(self._ready, now_ms)

    def _publish(
        self,
        segment: RemoteSegment,
        state: SegmentState,
        then: Callable[[KafkaError | None, int], Effects],
        now_ms: int,
    ) -> Effects:
        change = SegmentUpdate(
            topic_id=segment.topic_id,
            topic=segment.topic,
            partition=segment.partition,
            segment_id=segment.segment_id,
            state=state,
            broker_id=self._services.settings.node_id,
            event_timestamp_ms=now_ms,
        )
        return self._services.metadata.update(change, then, now_ms)

    def _marked(self, segment: RemoteSegment, error: KafkaError | None, now_ms: int) -> Effects:
        if error is None:
            self._to_delete.append(segment)
        self._error = self._error or error
        return self.begin(now_ms)

    def _ready(self, error: FirnlineError | None, now_ms: int) -> Effects:
        """Readers no longer hear of the segments; without that nothing is deleted yet."""
        if error is not None:
            return self._done(error, now_ms)
        return self._delete_next(now_ms)

    def _delete_next(self, now_ms: int) -> Effects:
        if not self._to_delete or not self._may_go_on():
            return self._done(self._error, now_ms)
        segment = self._to_delete.pop(0)
        self._services.counters.delete_requests += 1
        return [
            Submit(
                name=f"delete {segment.topic}-{segment.partition} at {segment.base_offset}",
                pool="expire",
                work=partial(self._services.storage.delete_segment, segment),
                then=partial(self._deleted, segment),
            )
        ]

    def _deleted(self, segment: RemoteSegment, result: Any, now_ms: int) -> Effects:
        if isinstance(result, Exception):
            self._services.counters.delete_errors += 1
            self._error = self._error or as_error(result)
            return self._delete_next(now_ms)
        is_others = segment.broker_id != self._services.settings.node_id
        if segment.state == SegmentState.COPY_STARTED and is_others and not self._is_final:
            return self._delete_next(now_ms)
        then = partial(self._unnamed)
        return self._publish(segment, SegmentState.DELETE_FINISHED, then, now_ms)

    def _unnamed(self, error: KafkaError | None, now_ms: int) -> Effects:
        self._error = self._error or error
        return self._delete_next(now_ms)


class Expiry:
    """Expires what is due of one led partition. `run` answers once; one run at a time."""

    def __init__(self, services: Services, hosted: Hosted, catalog: CatalogKeeper) -> None:
        self._services = services
        self._hosted = hosted
        self._catalog = catalog
        self._done: Done | None = None
        self._limited_ms = 0  # when the limits were applied

    @property
    def is_running(self) -> bool:
        return self._done is not None

    def run(self, now_ms: int, done: Done) -> Effects:
        """Delete everything that is due; `done(None, now_ms)` when it is, or with the first error."""
        assert self._done is None, "one run at a time"
        self._done = done
        hosted, metadata = self._hosted, self._services.metadata
        if not hosted.leads or not (hosted.is_tiered or hosted.is_emptied):
            return self._finish(None, now_ms)
        segments = metadata.segments(hosted.where)
        covered = hosted.covered_offset(metadata)
        if isinstance(segments, KafkaError) or isinstance(covered, KafkaError):
            error = KafkaError(Code.REPLICA_NOT_AVAILABLE, "metadata of the tier is loading")
            return self._finish(error, now_ms)
        withheld = self._services.withheld(hosted.where)
        if withheld is not None:
            return self._finish(withheld, now_ms)
        if not self._catalog.explains_all():
            return self._catalog.compare(self._explained, now_ms)
        decision = self._decide(segments, covered, now_ms)
        if decision.log_start_offset > hosted.log.log_start_offset:
            hosted.log.advance_log_start(decision.log_start_offset)
        removal = SegmentRemoval(
            self._services,
            decision.segments,
            may_go_on=lambda: hosted.leads and self._services.withheld(hosted.where) is None,
            between=self._catalog.request,
            done=self._finish,
            is_final=False,
        )
        return removal.begin(now_ms)

    def _explained(self, error: FirnlineError | None, now_ms: int) -> Effects:
        """The catalog has been written, and with it compared; what it would lose, nobody decides on."""
        if error is None and not self._catalog.explains_all():
            error = KafkaError(Code.REPLICA_NOT_AVAILABLE, "metadata of the tier is changing")
        if error is not None:
            return self._finish(error, now_ms)
        done, self._done = self._done, None
        assert done is not None
        return self.run(now_ms, done)

    def _decide(self, segments: Sequence[RemoteSegment], covered: int, now_ms: int) -> Decision:
        hosted, log = self._hosted, self._hosted.log
        if hosted.is_tiered:
            return decide(
                log,
                segments,
                covered_offset=covered,
                now_ms=now_ms,
                is_copying=lambda s: s.segment_id in self._services.copying,
                is_dangling=lambda s: self.is_dangling(s, now_ms),
                late_put_ms=self._services.settings.late_put_ms,
                applies_limits=self._is_limit_due(now_ms),
            )
        # Tiering was turned off: the log starts where local data does, and the tier is emptied (T49).
        free = [s for s in segments if s.segment_id not in self._services.copying]
        return Decision(tuple(free), max(log.log_start_offset, log.local_log_start_offset))

    def _is_limit_due(self, now_ms: int) -> bool:
        """Whether it is time to apply the limits of the whole log again."""
        before_ms = max(self._limited_ms, self._services.started_ms)
        if now_ms - before_ms < self._services.settings.retention_interval_ms:
            return False
        self._limited_ms = now_ms
        return True

    def is_dangling(self, segment: RemoteSegment, now_ms: int) -> bool:
        """Whether nobody will finish a COPY_STARTED any more.

        One of this broker's from before its start is dead. One of this process may have a
        COPY_FINISHED under way until a publish times out; one of another broker may be a copy that
        is finishing: both get their time (T8, rel-T13).
        """
        services = self._services
        if segment.segment_id in services.copying:
            return False
        age_ms = now_ms - segment.event_timestamp_ms
        if segment.broker_id != services.settings.node_id:
            return age_ms >= services.settings.dangling_after_ms
        if segment.event_timestamp_ms < services.started_ms:
            return True
        return age_ms >= 2 * services.settings.metadata_consume_wait_ms

    def _finish(self, error: FirnlineError | None, now_ms: int) -> Effects:
        done, self._done = self._done, None
        assert done is not None
        # What is withheld is asked when it is told: it may be over before this task runs again.
        is_told = error is None or isinstance(error, HistoryUnknown)
        self._hosted.expiry_problem = None if is_told else str(error)
        return done(error, now_ms)
