"""The expiration task of a partition's leader: deletes remote segments beyond the retention. PURE.

Theory of operation. The order of a run (rel-T2, X33):

1. decide which segments to delete, and the new log start offset (`decide`, which depends only on the log
   and the metadata);
2. raise the log start offset, so that no consumer reads them any more;
3. publish DELETE_STARTED for each, write the catalog without them, delete the objects of each, and publish
   DELETE_FINISHED (`segment_removal`).

After a crash the next leader finds the remaining work by the states of the segments, or by the log start
offset. Source: spec 3.7, T12, T49; F21, F22, F31-F33.
"""

from bisect import bisect_left
from collections.abc import Generator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from firnline.base.effects import Effects
from firnline.base.errors import Code, FirnlineError, KafkaError, StorageError
from firnline.base.ids import Uuid
from firnline.config.topic import is_leased
from firnline.log.log import Log
from firnline.tiered import coroutines
from firnline.tiered.catalog.keeper import CatalogKeeper
from firnline.tiered.catalog.lineage_repair import LineageRepair
from firnline.tiered.coroutines import Run
from firnline.tiered.hosted import Hosted, Services, TaskCallback, closed_from
from firnline.tiered.lineage import shared_end
from firnline.tiered.metadata.log import HistoryUnknown
from firnline.tiered.retained import Retained, RetainedKey, is_copy
from firnline.tiered.segment_removal import CHECKED_IN_STEP, SegmentRemoval, Unlisted
from firnline.tiered.settings import NO_LIMIT
from firnline.tiered.spi import RemoteSegment, SegmentState

Segments = Sequence[RemoteSegment]
Steps = Generator[None, None, "Decision | KafkaError"]
Outcome = coroutines.Steps[FirnlineError | None]


class Decision(NamedTuple):
    """The segments to delete, oldest first, and the new log start offset.

    is_uncertain  segments stay that go as soon as more than a file of this replica says so
    """

    segments: Segments
    log_start_offset: int
    is_uncertain: bool = False


Change = tuple[Uuid, SegmentState]


# A protocol, because tests decide on a list of segments without a tier.
class Tier(Protocol):
    """The state of the tier, which may change between two steps of a decision.

    unfinished      segments that are being copied or deleted
    copying         those that this node is copying: the decision ends before the first of them
    covered_offset  the last local offset that the tier has (`Hosted.covered_offset`)
    highest_offset  the last offset of the lineage that the tier has, also above one that it lacks; -1: none
    is_dangling     whether a COPY_STARTED will never be finished
    age_ms          how long ago a change of a segment was, as far as this process can know
    deletes_below   the log start offset, as far as it was decided (`Hosted.deletes_below`)
    serves_all      whether segments of the lineage serve all offsets from there to the local log
    """

    def unfinished(self) -> Segments | KafkaError: ...
    def copying(self) -> Segments: ...
    def covered_offset(self) -> int | KafkaError: ...
    def highest_offset(self) -> int: ...
    def is_dangling(self, segment: RemoteSegment) -> bool: ...
    def age_ms(self, segment: RemoteSegment) -> int: ...
    def deletes_below(self) -> int: ...
    def serves_all(self) -> Generator[None, None, bool]: ...


def decide(
    log: Log,
    retained: Retained,
    tier: Tier,
    *,
    now_ms: int,
    late_put_ms: int = 0,
    applies_limits: bool = True,
) -> Steps:
    """Apply the limits of the complete log to the remote segments of one partition, in slices.

    The decision is about one moment: a change between two steps starts it again, except newly copied segments
    after all others. The caller acts on it in the last step.

    late_put_ms     delete an abandoned copy once more this long after its deletion
    applies_limits  False: delete only segments below the log start, and those whose deletion has begun
    """
    begun = yield from _begun(tier, late_put_ms)
    if isinstance(begun, KafkaError):
        return begun
    serves_all: bool | None = None
    while True:
        problem = yield from retained.bring_up_to_date()
        if problem is not None:
            return problem
        if not retained.lineage.epochs:  # without leader epochs nothing is decided (rel-T14)
            return Decision(begun, log.log_start_offset)
        if retained.below.rows and serves_all is None:
            serves_all = yield from tier.serves_all()
            continue
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
            # And segments of an unclean election below all known epochs (3.7-6). If the lineage lacks records
            # there, which only the tier can have, its first epoch is wrong, and they are not of another one.
            below, upto = retained.below.rows, tier.deletes_below()
            if not serves_all:
                below = [each for each in below if each.end_offset < upto]
            due = [*begun, *retained.own.rows[: walk.at], *below]
            is_uncertain = walk.is_uncertain or len(below) < len(retained.below.rows)
            return Decision(due, max(walk.log_start_offset, log.log_start_offset), is_uncertain)


def _begun(tier: Tier, late_put_ms: int) -> Generator[None, None, list[RemoteSegment] | KafkaError]:
    """Return the deletions that have begun, and the copies that will never be finished."""
    unfinished = tier.unfinished()
    if isinstance(unfinished, KafkaError):
        return unfinished
    chosen: list[RemoteSegment] = []
    for number, segment in enumerate(unfinished, 1):
        if number % CHECKED_IN_STEP == 0:
            yield
        if segment.is_abandoned and tier.age_ms(segment) < late_put_ms:
            continue
        if segment.state == SegmentState.DELETE_STARTED or tier.is_dangling(segment):
            chosen.append(segment)
    return chosen


class _Walk:
    """Applies the limits of the complete log.

    at            the number of the log's own segments to delete: all before the first one that may stay
    is_uncertain  that one stays because the log start above it was not decided
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
        self.is_uncertain = False
        self.log_start_offset = log.log_start_offset
        self._limit_bytes = config.retention_bytes if applies_limits else NO_LIMIT
        self._breach_bytes = self._begun_with = self._all_breach_bytes()

    def _all_breach_bytes(self) -> int:
        if self._limit_bytes < 0:
            return 0
        total = self._retained.own_bytes + self._local_only_bytes()
        return max(total - self._limit_bytes, 0)

    def is_valid(self) -> bool:
        """Whether the result so far is still valid.

        It is not if a segment was removed, or added before others. One added after all others is no reason.
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

    def _stop(self) -> RetainedKey | None:
        """Return the position of the first copy in progress."""
        keys = [self._retained.key(segment) for segment in self._tier.copying()]
        return min((key for key in keys if key is not None), default=None)

    def is_over(self) -> bool:
        """Check some more segments; whether the first one that may stay is found, or all are deleted."""
        own, stop = self._retained.own, self._stop()
        end = self._count if stop is None else min(bisect_left(own.keys, stop), self._count)
        for segment in own.rows[self.at : min(end, self.at + CHECKED_IN_STEP)]:
            if not self._is_copy_of_last() and not self._goes(segment):
                return True
            self.at += 1
        if self.at < end:
            return False
        if stop is None and self.at == len(own.rows):
            self._expire_local()
        return True

    def _is_copy_of_last(self) -> bool:
        """Whether the next segment has the offsets of the last: it goes too, and its bytes do not count."""
        keys = self._retained.own.keys
        return self.at > 0 and is_copy(keys[self.at - 1], keys[self.at])

    def _goes(self, segment: RemoteSegment) -> bool:
        first_epoch = self._retained.lineage.epochs[0][0]
        is_below = segment.end_offset < self._log.log_start_offset
        is_deleted = is_below and segment.epochs[-1][0] <= first_epoch
        if is_deleted and segment.end_offset < self._tier.deletes_below():
            self._drop(segment.size_bytes)
            return True
        if segment.end_offset < self.log_start_offset > self._log.log_start_offset:
            return True  # counted with the longer one that goes
        size_bytes = self._bytes_inside(segment)
        goes = self._is_in_breach(segment.largest_time_ms, size_bytes, segment.end_offset)
        self.is_uncertain = is_deleted and not goes
        return goes

    def _bytes_inside(self, segment: RemoteSegment) -> int:
        """The bytes of a segment, and of later ones that end where it ends or before: they go with it.

        Another leader has rolled at other offsets. If they counted as left, too much would go (rel-T15).
        """
        rows, keys = self._retained.own.rows, self._retained.own.keys
        size_bytes = segment.size_bytes
        for at in range(self.at + 1, len(rows)):
            if rows[at].base_offset > segment.end_offset:
                break
            if rows[at].end_offset <= segment.end_offset and not is_copy(keys[at - 1], keys[at]):
                size_bytes += rows[at].size_bytes
        return size_bytes

    def _local_only_bytes(self) -> int:
        """The bytes of local segments at or above the log start of which the tier has nothing (rel-T15).

        Files below the log start are there until the local log deletes them, which may be minutes later. The
        segments of a leader that was a follower begin elsewhere than those in the tier: one that is there in
        part is not counted, nor one below the highest offset that is there: so that nothing is counted twice
        (as Kafka).
        """
        begin = max(self._tier.highest_offset() + 1, self._log.log_start_offset)
        return self._log.bytes_beginning_at(begin)

    def _drop(self, size_bytes: int) -> None:
        """A segment is deleted for another reason: do not count its bytes."""
        self._breach_bytes = max(self._breach_bytes - size_bytes, 0)

    def _is_in_breach(self, largest_time_ms: int, size_bytes: int, end_offset: int) -> bool:
        """Whether the oldest remaining segment exceeds a limit; then the log starts after it."""
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
        """If no remote segment stays, also expire local segments beyond the total limits.

        A store that is down for longer than the retention must not fill the disk (F33). The segments are
        never copied, because the log start offset is above them now; the local log deletes them.
        """
        if not self._log.config.remote_storage_enable:
            return
        for local in closed_from(self._log, max(self.log_start_offset, self._covered_offset + 1)):
            if local.end_offset >= self._log.high_watermark:
                return
            try:
                largest_time_ms = local.largest_time_ms()
            except StorageError:
                return  # an index of it is being rebuilt, or cannot be: retry in the next run
            if not self._is_in_breach(largest_time_ms, local.size_bytes, local.end_offset):
                return


class Expiry:
    """Deletes the due segments of one led partition. `run` calls back once; there is one run at a time."""

    def __init__(
        self, services: Services, hosted: Hosted, catalog: CatalogKeeper, repair: LineageRepair
    ) -> None:
        self._services = services
        self._hosted = hosted
        self._catalog = catalog
        self._repair = repair
        self._retained = Retained(services.metadata, hosted.where, hosted.log)
        self.is_running = False
        # How long the last decision took, with the turns of others between its steps.
        self.decided_in_ms = 0
        # Changes by a broker whose clock is ahead, and when they were first seen here.
        self._first_seen_ms: dict[Change, int] = {}
        # The last time that the limits were applied. A run between two intervals only deletes segments below
        # the log start, and finishes deletions that have begun.
        self._limited_ms = 0
        self._unlisted = Unlisted()

    def run(self, now_ms: int, done: TaskCallback) -> Effects:
        """Delete all due segments; then call `done(None, now_ms)`, or with the first error."""
        assert not self.is_running, "one run at a time"
        self.is_running = True
        return coroutines.run(self._expire, now_ms, partial(self._finish, done))

    def _expire(self, run: Run) -> Outcome:
        while self._is_ours():
            refused = (
                self._withheld()
                or (yield from self._repair.run(run))
                or (yield from self._compare(run))
            )
            if refused is not None:
                return refused
            decision = yield from self._decide(run)
            if not isinstance(decision, Decision):
                return decision
            if self._may_act():
                return (yield from self._act(run, decision))
        return None

    def _is_ours(self) -> bool:
        return self._hosted.leads and (self._hosted.is_tiered or self._hosted.is_emptied)

    def _withheld(self) -> FirnlineError | None:
        """Return why the metadata says nothing now, or None."""
        where = self._hosted.where
        if not self._services.metadata.is_ready(where):
            return _LOADING
        return self._services.withheld(where)

    def _refusal(self) -> FirnlineError | None:
        """Return why nothing can be decided now, or None."""
        return self._withheld() or self._hosted.lineage_problem(self._services.metadata)

    def _may_act(self) -> bool:
        """Whether everything is as it was before the decision, which may have taken many turns."""
        return self._is_ours() and self._refusal() is None and self._catalog.explains_all()

    def _compare(self, run: Run) -> Outcome:
        """Let the catalog be compared and written, if it has to be; after an error nothing is decided."""
        if self._catalog.explains_all():
            return None
        error: FirnlineError | None = yield from run.call(self._catalog.compare)
        if error is None and not self._catalog.explains_all():
            return KafkaError(Code.REPLICA_NOT_AVAILABLE, "metadata of the tier is changing")
        return error

    def _decide(self, run: Run) -> coroutines.Steps[Decision | KafkaError | None]:
        """Decide, one step a turn; None if the role ends meanwhile, or tiering is turned on or off."""
        steps, begun_ms = self._steps(run.now_ms), run.now_ms
        was_tiered = self._hosted.is_tiered
        while True:
            try:
                next(steps)
            except StopIteration as end:
                self.decided_in_ms = run.now_ms - begun_ms
                decision: Decision | KafkaError = end.value
                return decision
            yield from run.call(self._services.next_turn("Expiry._decide"))
            if not self._hosted.leads or self._hosted.is_tiered != was_tiered:
                return None

    def _steps(self, now_ms: int) -> Steps:
        """Decide. If tiering has been disabled, everything in the tier is deleted (T49)."""
        if not self._hosted.is_tiered:
            return self._all_goes()
        return self._decide_tiered(now_ms)

    def _decide_tiered(self, now_ms: int) -> Steps:
        """Decide by the limits. First take over what a deposed leader has deleted meanwhile."""
        hosted, services = self._hosted, self._services
        problem = yield from self._retained.bring_up_to_date()
        if problem is not None:
            return problem
        if self._begins_in_gap():
            segments = services.metadata.segments(hosted.where)
            if isinstance(segments, KafkaError):
                return segments
            has_catalog = services.catalog is not None
            yield from hosted.adopting(segments, services.metadata, has_catalog=has_catalog)
        tier = _AskedTier(services, hosted, now_ms, self._first_seen_ms)
        return (
            yield from decide(
                hosted.log,
                self._retained,
                tier,
                now_ms=services.aging.time_ms(now_ms),
                late_put_ms=services.settings.late_put_ms,
                applies_limits=not is_leased(hosted.log.config, now_ms)
                and self._is_limit_due(now_ms),
            )
        )

    def _begins_in_gap(self) -> bool:
        """Whether neither the local log nor the first segment of the lineage has the log start.

        Then a consumer that begins there would get an error for ever.
        """
        log, own = self._hosted.log, self._retained.own.rows
        start = log.log_start_offset
        return log.local_log_start_offset > start and not (own and own[0].base_offset <= start)

    def _all_goes(self) -> Steps:
        """Move the log start to that of local records, and delete all segments that are not being copied."""
        log, where = self._hosted.log, self._hosted.where
        segments = self._services.metadata.segments(where)
        if isinstance(segments, KafkaError):
            return segments
        due: list[RemoteSegment] = []
        for first in range(0, len(segments), CHECKED_IN_STEP):
            copying = self._services.copying.of(where)
            some = segments[first : first + CHECKED_IN_STEP]
            due += [s for s in some if s.segment_id not in copying]
            if first + CHECKED_IN_STEP < len(segments):
                yield
        return Decision(due, max(log.log_start_offset, log.local_log_start_offset))

    def _act(self, run: Run, decision: Decision) -> Outcome:
        hosted = self._hosted
        if decision.log_start_offset > hosted.log.log_start_offset:
            hosted.log.advance_log_start(decision.log_start_offset)
        assert hosted.log.log_start_offset >= decision.log_start_offset, (
            "the log start is raised before a segment is deleted (rel-T2, X33)"
        )
        removal = SegmentRemoval(
            self._services,
            decision.segments,
            may_go_on=lambda: hosted.leads and self._services.withheld(hosted.where) is None,
            between=self._catalog.request,
            delay_ms=self._delay_ms(),
            unlisted=self._unlisted,
        )
        error: FirnlineError | None = yield from run.call(removal.begin)
        if error is None and decision.is_uncertain:
            return hosted.uncertain_start()
        return error

    def _delay_ms(self) -> int:
        """Return how long readers of an earlier catalog may need the objects; 0 if there is no catalog."""
        return 0 if self._services.catalog is None else self._hosted.log.config.file_delete_delay_ms

    def _is_limit_due(self, now_ms: int) -> bool:
        """Whether it is time to apply the limits of the whole log again."""
        before_ms = max(self._limited_ms, self._services.started_ms)
        if now_ms - before_ms < self._services.settings.retention_interval_ms:
            return False
        self._limited_ms = now_ms
        return True

    def _finish(self, done: TaskCallback, error: FirnlineError | None, now_ms: int) -> Effects:
        self.is_running = False
        # Withheld metadata is checked again when it is reported: it may have been solved before the next run.
        is_reported = error is None or isinstance(error, HistoryUnknown)
        logged = self._hosted.note_outcome("expiry", None if is_reported else error, now_ms)
        return logged + done(error, now_ms)


class _AskedTier:
    """`Tier` for one partition."""

    def __init__(
        self, services: Services, hosted: Hosted, now_ms: int, first_seen_ms: dict[Change, int]
    ) -> None:
        self._services = services
        self._where = hosted.where
        self._hosted = hosted
        self._now_ms = now_ms
        self._first_seen_ms = first_seen_ms

    def unfinished(self) -> Segments | KafkaError:
        found = self._services.metadata.unfinished(self._where)
        if self._first_seen_ms and not isinstance(found, KafkaError):
            known = {(each.segment_id, each.state) for each in found}
            for change in [each for each in self._first_seen_ms if each not in known]:
                del self._first_seen_ms[change]
        return found

    def copying(self) -> Segments:
        ids = self._services.copying.of(self._where)
        found = (self._services.metadata.get(self._where, segment_id) for segment_id in ids)
        return [segment for segment in found if segment is not None]

    def covered_offset(self) -> int | KafkaError:
        return self._hosted.covered_offset(self._services.metadata)

    def highest_offset(self) -> int:
        return self._hosted.highest_remote(self._services.metadata)[0]

    def deletes_below(self) -> int:
        return self._hosted.deletes_below

    def serves_all(self) -> Generator[None, None, bool]:
        log, metadata = self._hosted.log, self._services.metadata
        at, number = self._hosted.deletes_below, 0
        while at < log.local_log_start_offset:
            epoch = log.epochs.epoch_at(at)
            found = None if epoch is None else metadata.lookup(self._where, epoch=epoch, offset=at)
            after = at
            if isinstance(found, RemoteSegment):
                after = shared_end(found, log.epochs.entries(), at)
            if after <= at:
                return False
            at, number = after, number + 1
            if number % CHECKED_IN_STEP == 0:
                yield
        return True

    def is_dangling(self, segment: RemoteSegment) -> bool:
        """Whether a COPY_STARTED will never be finished.

        One of this broker from before its start will not. One of this process may have a COPY_FINISHED under
        way until the publish times out; one of another broker may be a copy that is about to finish: both get
        their time (T8, rel-T13).
        """
        services = self._services
        if segment.segment_id in services.copying.of(self._where):
            return False
        age_ms = self._stated_age_ms(segment)
        if segment.broker_id != services.settings.node_id:
            return age_ms >= services.settings.dangling_after_ms
        if segment.event_timestamp_ms < services.started_ms:
            return True
        return age_ms >= 2 * services.settings.metadata_consume_wait_ms

    def age_ms(self, segment: RemoteSegment) -> int:
        """Return how long ago a change of a segment was, at most since the start of this process.

        What is waited for by it must be over: before the start the clock may have jumped.
        """
        return min(self._stated_age_ms(segment), self._now_ms - self._services.started_ms)

    def _stated_age_ms(self, segment: RemoteSegment) -> int:
        """If the clock of the other broker is ahead, count from when this one first saw the change."""
        age_ms = self._now_ms - segment.event_timestamp_ms
        if age_ms >= 0:
            return age_ms
        change = (segment.segment_id, segment.state)
        return self._now_ms - self._first_seen_ms.setdefault(change, self._now_ms)


_LOADING = KafkaError(Code.REPLICA_NOT_AVAILABLE, "metadata of the tier is loading")
