"""The leader's expiration task: what the remote tier no longer has to keep. PURE.

Order of a run (rel-T2, X33): decide; raise the log start; DELETE_STARTED for each; write the catalog
without them; delete each and say DELETE_FINISHED. Whoever leads next finds what was left by its state
or by the log start. `decide` is a function of the log and the metadata alone. Source: spec 3.7, T12,
T49; F21, F22, F31-F33.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from firnline.base.background import Work
from firnline.base.effects import Effects, Submit
from firnline.base.errors import Code, FirnlineError, KafkaError, StorageError
from firnline.log.log import Log
from firnline.tiered.catalog_writer import CatalogKeeper, as_error
from firnline.tiered.hosted import Done, Hosted, Services, closed_from
from firnline.tiered.metadata.log import HistoryUnknown
from firnline.tiered.retained import Key, Retained
from firnline.tiered.settings import NO_LIMIT
from firnline.tiered.spi import RemoteSegment, SegmentState, SegmentUpdate

# Segments that are judged in a step of the loop.
JUDGED_IN_STEP = 1000

Segments = Sequence[RemoteSegment]
Steps = Generator[None, None, "Decision | KafkaError"]


class Decision(NamedTuple):
    """What goes, oldest first, and where the log begins afterwards."""

    segments: Segments
    log_start_offset: int


# A protocol, because tests decide on a list of segments without a tier.
class Tier(Protocol):
    """What is asked of the tier, whenever it is: it may say more between two steps of a decision.

    unfinished      segments that are being copied or deleted
    copying         those that this node is copying: from the first of them on nothing is looked at
    covered_offset  the last local offset that the tier has (`Hosted.covered_offset`)
    is_dangling     a COPY_STARTED that nobody will finish
    """

    def unfinished(self) -> Segments | KafkaError: ...
    def copying(self) -> Segments: ...
    def covered_offset(self) -> int | KafkaError: ...
    def is_dangling(self, segment: RemoteSegment) -> bool: ...


def decide(
    log: Log,
    retained: Retained,
    tier: Tier,
    *,
    now_ms: int,
    late_put_ms: int = 0,
    applies_limits: bool = True,
) -> Steps:
    """Apply the limits of the whole log to the remote segments of one partition; yields now and then.

    It is decided on one moment: what changes between two steps has it decided anew, but for segments that
    were copied behind all others. Whoever acts on it does so in the last step.

    late_put_ms     so long after an abandoned copy was deleted it is deleted once more
    applies_limits  False: only what lies below the log start or was begun to be deleted goes
    """
    begun = yield from _begun(tier, now_ms, late_put_ms)
    if isinstance(begun, KafkaError):
        return begun
    while True:
        problem = yield from retained.bring_up_to_date()
        if problem is not None:
            return problem
        if (
            not retained.lineage.epochs
        ):  # an epoch cache that knows nothing decides nothing (rel-T14)
            return Decision(begun, log.log_start_offset)
        covered = tier.covered_offset()
        if isinstance(covered, KafkaError):
            return covered
        walk = _Walk(log, retained, tier, covered, now_ms, applies_limits=applies_limits)
        while not walk.is_over():
            yield
            problem = yield from retained.bring_up_to_date()
            if problem is not None:
                return problem
            if not walk.is_valid():
                break
        else:
            # With them what an unclean election left below every epoch we know (3.7-6).
            due = [*begun, *retained.own.rows[: walk.at], *retained.below.rows]
            return Decision(due, max(walk.log_start_offset, log.log_start_offset))


def _begun(
    tier: Tier, now_ms: int, late_put_ms: int
) -> Generator[None, None, list[RemoteSegment] | KafkaError]:
    """Return the deletions that were begun, and the copies that nobody will finish."""
    unfinished = tier.unfinished()
    if isinstance(unfinished, KafkaError):
        return unfinished
    chosen: list[RemoteSegment] = []
    for number, segment in enumerate(unfinished, 1):
        if number % JUDGED_IN_STEP == 0:
            yield
        if segment.is_abandoned and now_ms - segment.event_timestamp_ms < late_put_ms:
            continue
        if segment.state == SegmentState.DELETE_STARTED or tier.is_dangling(segment):
            chosen.append(segment)
    return chosen


class _Walk:
    """The limits of the whole log, and how far they move its start.

    at  so many of the log's own segments go: all before the first one that may stay
    """

    def __init__(
        self,
        log: Log,
        retained: Retained,
        tier: Tier,
        covered_offset: int,
        now_ms: int,
        *,
        applies_limits: bool,
    ) -> None:
        self._log = log
        self._retained = retained
        self._tier = tier
        self._now_ms = now_ms
        self._covered_offset = covered_offset
        self._config = config = log.config
        self._retention_ms = config.retention_ms if applies_limits else NO_LIMIT
        self._moves = retained.moves
        self._count = len(retained.own.rows)
        self.at = 0
        self.log_start_offset = log.log_start_offset
        self._limit_bytes = config.retention_bytes if applies_limits else NO_LIMIT
        self._breach_bytes = self._begun_with = self._all_breach_bytes()

    def _all_breach_bytes(self) -> int:
        if self._limit_bytes < 0:
            return 0
        total = self._retained.own_bytes + self._local_only_bytes()
        return max(total - self._limit_bytes, 0)

    def is_valid(self) -> bool:
        """Whether what was found so far is still so.

        No segment went, or came before others; what came behind all others has its turn another time.
        """
        if self._retained.moves != self._moves or self._log.config is not self._config:
            return False
        covered = self._tier.covered_offset()
        if isinstance(covered, KafkaError):
            return False
        self._covered_offset = covered
        if self._all_breach_bytes() < self._begun_with:
            return False
        stop = self._stop()
        return stop is None or not self.at or self._retained.own.keys[self.at - 1] < stop

    def _stop(self) -> Key | None:
        """Return where the first copy that is under way has its turn."""
        keys = [self._retained.key(segment) for segment in self._tier.copying()]
        return min((key for key in keys if key is not None), default=None)

    def is_over(self) -> bool:
        """Look at some more; whether the first one that may stay was found, or all go."""
        own, stop = self._retained.own, self._stop()
        end = self._count if stop is None else min(bisect_left(own.keys, stop), self._count)
        for segment in own.rows[self.at : min(end, self.at + JUDGED_IN_STEP)]:
            if not self._goes(segment):
                return True
            self.at += 1
        if self.at < end:
            return False
        if stop is None and self.at == len(own.rows):
            self._expire_local()
        return True

    def _goes(self, segment: RemoteSegment) -> bool:
        first_epoch = self._retained.lineage.epochs[0][0]
        is_below = segment.end_offset < self._log.log_start_offset
        if is_below and segment.epochs[-1][0] <= first_epoch:
            self._drop(segment.size_bytes)
            return True
        return self._is_in_breach(segment.largest_time_ms, segment.size_bytes, segment.end_offset)

    def _local_only_bytes(self) -> int:
        """Bytes of the local log that the tier does not count (rel-T15)."""
        return self._log.bytes_from(self._covered_offset + 1)

    def _drop(self, size_bytes: int) -> None:
        """A segment goes for another reason; its bytes count no more."""
        self._breach_bytes = max(self._breach_bytes - size_bytes, 0)

    def _is_in_breach(self, largest_time_ms: int, size_bytes: int, end_offset: int) -> bool:
        """Whether the oldest segment left must go, by time or size; if so the log starts after it."""
        by_time = (
            self._retention_ms != NO_LIMIT and largest_time_ms <= self._now_ms - self._retention_ms
        )
        by_size = 0 < size_bytes <= self._breach_bytes
        if not by_time and not by_size:
            return False
        self._drop(size_bytes)
        self.log_start_offset = max(self.log_start_offset, end_offset + 1)
        return True

    def _expire_local(self) -> None:
        """With nothing left in the tier: local segments that outlived the total limits are not kept for it.

        A store that is down longer than the retention must not fill the disk (F33). They are never
        copied, for the log now starts after them; the local log drops them.
        """
        if not self._log.config.remote_storage_enable:
            return
        for local in closed_from(self._log, max(self.log_start_offset, self._covered_offset + 1)):
            if local.end_offset >= self._log.high_watermark:
                return
            try:
                largest_time_ms = local.largest_time_ms()
            except StorageError:  # an index of it is built again, or cannot be: the next look sees
                return
            if not self._is_in_breach(largest_time_ms, local.size_bytes, local.end_offset):
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
        self._to_mark = deque(segments)
        self._to_delete: deque[RemoteSegment] = deque()
        self._may_go_on = may_go_on
        self._between = between
        self._done = done
        self._is_final = is_final
        self._error: FirnlineError | None = None

    def begin(self, now_ms: int) -> Effects:
        """Go on with the next segment that is to be marked."""
        if not self._may_go_on():
            return self._done(self._error, now_ms)
        for _ in range(min(len(self._to_mark), JUDGED_IN_STEP)):
            segment = self._to_mark.popleft()
            if segment.state == SegmentState.DELETE_STARTED:
                self._to_delete.append(segment)
            elif self._is_as_it_was(segment):
                then = partial(self._marked, segment)
                return self._publish(segment, SegmentState.DELETE_STARTED, then, now_ms)
        if self._to_mark:
            return self._services.in_turns.begin(self._go_on_marking(), now_ms)
        if not self._to_delete:
            return self._done(self._error, now_ms)
        return self._between(self._ready, now_ms)

    def _go_on_marking(self) -> Work:
        now_ms = yield []
        return self.begin(now_ms)

    def _is_as_it_was(self, segment: RemoteSegment) -> bool:
        """Whether it is still in the state in which its deletion was decided on, maybe hours ago."""
        where = segment.topic_id_partition
        known = self._services.metadata.get(where, segment.segment_id)
        return known is not None and known.state == segment.state

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
        segment = self._to_delete.popleft()
        self._services.counters.delete_requests += 1
        return [
            Submit(
                name=f"delete {segment.topic}-{segment.partition} at {segment.base_offset}",
                pool="expire",
                work=partial(self._services.storage.delete_segment, segment),
                then=partial(self._deleted, segment),
            )
        ]

    def _deleted(self, segment: RemoteSegment, result: Exception | None, now_ms: int) -> Effects:
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
        self._retained = Retained(services.metadata, hosted.where, hosted.log)
        self._done: Done | None = None
        self._limited_ms = 0  # when the limits were applied

    @property
    def is_running(self) -> bool:
        return self._done is not None

    def run(self, now_ms: int, done: Done) -> Effects:
        """Delete everything that is due; `done(None, now_ms)` when it is, or with the first error."""
        assert self._done is None, "one run at a time"
        self._done = done
        refused = self._refuse(now_ms)
        if refused is not None:
            return refused
        steps = self._steps(now_ms)
        try:
            next(steps)
        except StopIteration as end:
            return self._act(end.value, now_ms)
        return self._services.in_turns.begin(self._other_steps(steps), now_ms)

    def _refuse(self, now_ms: int) -> Effects | None:
        """Answer, or compare the catalog, where nothing may be decided now; None where it may."""
        hosted, metadata = self._hosted, self._services.metadata
        if not hosted.leads or not (hosted.is_tiered or hosted.is_emptied):
            return self._finish(None, now_ms)
        if not metadata.is_ready(hosted.where):
            return self._finish(_LOADING, now_ms)
        withheld = self._services.withheld(hosted.where)
        if withheld is not None:
            return self._finish(withheld, now_ms)
        if not self._catalog.explains_all():
            return self._catalog.compare(self._explained, now_ms)
        return None

    def _explained(self, error: FirnlineError | None, now_ms: int) -> Effects:
        """The catalog has been written, and with it compared; what it would lose, nobody decides on."""
        if error is None and not self._catalog.explains_all():
            error = KafkaError(Code.REPLICA_NOT_AVAILABLE, "metadata of the tier is changing")
        if error is not None:
            return self._finish(error, now_ms)
        done, self._done = self._done, None
        assert done is not None
        return self.run(now_ms, done)

    def _steps(self, now_ms: int) -> Steps:
        """Decide. Tiering may have been turned off: then the tier is emptied (T49)."""
        hosted, services = self._hosted, self._services
        if not hosted.is_tiered:
            return self._all_goes()
        return decide(
            hosted.log,
            self._retained,
            _AskedTier(services, hosted, now_ms),
            now_ms=now_ms,
            late_put_ms=services.settings.late_put_ms,
            applies_limits=self._is_limit_due(now_ms),
        )

    def _all_goes(self) -> Steps:
        """The log starts where local data does, and everything goes that is not being copied."""
        log, where = self._hosted.log, self._hosted.where
        segments = self._services.metadata.segments(where)
        if isinstance(segments, KafkaError):
            return segments
        due: list[RemoteSegment] = []
        for first in range(0, len(segments), JUDGED_IN_STEP):
            copying = self._services.copying.of(where)
            some = segments[first : first + JUDGED_IN_STEP]
            due += [s for s in some if s.segment_id not in copying]
            if first + JUDGED_IN_STEP < len(segments):
                yield
        return Decision(due, max(log.log_start_offset, log.local_log_start_offset))

    def _other_steps(self, steps: Steps) -> Work:
        """Go on deciding, a step a turn; what was decided on is acted on in the last one."""
        was_tiered = self._hosted.is_tiered
        while True:
            now_ms = yield []
            if not self._hosted.leads or self._hosted.is_tiered != was_tiered:
                return self._finish(None, now_ms)
            try:
                next(steps)
            except StopIteration as end:
                refused = self._refuse(now_ms)
                return self._act(end.value, now_ms) if refused is None else refused

    def _act(self, decision: Decision | KafkaError, now_ms: int) -> Effects:
        if isinstance(decision, KafkaError):
            return self._finish(decision, now_ms)
        hosted = self._hosted
        if decision.log_start_offset > hosted.log.log_start_offset:
            hosted.log.advance_log_start(decision.log_start_offset)
        assert hosted.log.log_start_offset >= decision.log_start_offset, (
            "first nobody reads it (rel-T2, X33)"
        )
        removal = SegmentRemoval(
            self._services,
            decision.segments,
            may_go_on=lambda: hosted.leads and self._services.withheld(hosted.where) is None,
            between=self._catalog.request,
            done=self._finish,
            is_final=False,
        )
        return removal.begin(now_ms)

    def _is_limit_due(self, now_ms: int) -> bool:
        """Whether it is time to apply the limits of the whole log again."""
        before_ms = max(self._limited_ms, self._services.started_ms)
        if now_ms - before_ms < self._services.settings.retention_interval_ms:
            return False
        self._limited_ms = now_ms
        return True

    def _finish(self, error: FirnlineError | None, now_ms: int) -> Effects:
        done, self._done = self._done, None
        assert done is not None
        # What is withheld is asked when it is told: it may be over before this task runs again.
        is_told = error is None or isinstance(error, HistoryUnknown)
        self._hosted.expiry_problem = None if is_told else str(error)
        return done(error, now_ms)


class _AskedTier:
    """What `decide` asks, of one partition."""

    def __init__(self, services: Services, hosted: Hosted, now_ms: int) -> None:
        self._services = services
        self._where = hosted.where
        self._hosted = hosted
        self._now_ms = now_ms

    def unfinished(self) -> Segments | KafkaError:
        return self._services.metadata.unfinished(self._where)

    def copying(self) -> Segments:
        ids = self._services.copying.of(self._where)
        found = (self._services.metadata.get(self._where, segment_id) for segment_id in ids)
        return [segment for segment in found if segment is not None]

    def covered_offset(self) -> int | KafkaError:
        return self._hosted.covered_offset(self._services.metadata)

    def is_dangling(self, segment: RemoteSegment) -> bool:
        """Whether nobody will finish a COPY_STARTED any more.

        One of this broker's from before its start is dead. One of this process may have a
        COPY_FINISHED under way until a publish times out; one of another broker may be a copy that
        is finishing: both get their time (T8, rel-T13).
        """
        services = self._services
        if segment.segment_id in services.copying.of(self._where):
            return False
        age_ms = self._now_ms - segment.event_timestamp_ms
        if segment.broker_id != services.settings.node_id:
            return age_ms >= services.settings.dangling_after_ms
        if segment.event_timestamp_ms < services.started_ms:
            return True
        return age_ms >= 2 * services.settings.metadata_consume_wait_ms


_LOADING = KafkaError(Code.REPLICA_NOT_AVAILABLE, "metadata of the tier is loading")
