"""The replica fetcher: follows one leader and makes the local logs equal to the leader's. PURE.

One Fetch is under way at a time, in a fetch session that carries only changed positions (KIP-227). A followed
partition is in one stage: FETCHING; RESETTING while it asks the leader or the tier where its log has to begin
or end; TRUNCATING while a thread truncates it; FAILED until newer metadata. A response applies to a partition
only if its leader epoch and log end offset are still those of the request (rel-R19). If the logs diverge, the
response says where, and we truncate there (KIP-595). If our end is out of the leader's range, we ask for the
leader's end and start offsets. If only the tier has the next records, `tier_start` finds where to begin.
A follower syncs nothing: that the leader has the records too makes them safe (rel-P4). Source: KIP-227,
KIP-279, KIP-595; spec I23, I24; rel-R9 to R11.
"""

from collections import deque
from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from typing import NamedTuple, cast

from firnline.base.background import Background, SlicedTask
from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import NO_EPOCH, PartitionKey
from firnline.base.log_lines.storage import DOES_NOT_FOLLOW, RECORDS_LOST
from firnline.base.replicas import (
    EARLIEST,
    LATEST,
    Fetched,
    FetchReply,
    LeaderFetch,
    LeaderPort,
    Position,
)
from firnline.base.units import INT32_MAX
from firnline.log.truncation import Truncation
from firnline.records.portions import portions
from firnline.records.validate import check_fetched
from firnline.replica.partition import Partition
from firnline.replica.tier_start import (
    NOTHING_LOCAL,
    Beginning,
    LeaderAnswers,
    LineageSearch,
    Tier,
    TierStart,
    begins_within,
    is_lineage_lost,
)

_NO_SESSION, _FIRST_EPOCH = 0, 0
LOOK_AT_ALL_MS = 5_000
# A millisecond or two each: partitions of a response that are applied per slice, and partitions checked anew.
APPLIED_PER_SLICE = 100
# Batches of one partition, 8 us each. A partition costs as much as two of them, or as 16 KiB.
BATCHES_PER_SLICE = 200
_COST_SHIFT = 14
_CHECKS_PER_FETCH = 200
# Truncations at a time. Each costs 0.2 ms of the event loop; together they share one checkpoint write.
TRUNCATIONS_AT_ONCE = 16
# Errors that pass by themselves, of the leader or the tier: no warning.
_TRANSIENT = (
    Code.REPLICA_NOT_AVAILABLE,
    Code.FENCED_LEADER_EPOCH,
    Code.UNKNOWN_LEADER_EPOCH,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.NETWORK_EXCEPTION,
)
_LOST_SESSION = (
    Code.FETCH_SESSION_ID_NOT_FOUND,
    Code.INVALID_FETCH_SESSION_EPOCH,
    Code.FETCH_SESSION_TOPIC_ID_ERROR,
)


class _Stage(Enum):
    """The stage of a followed partition. See the module docstring."""

    FETCHING = "fetching"
    RESETTING = "resetting"
    TRUNCATING = "truncating"
    FAILED = "failed"


# FAILED ends only with newer metadata, which brings a new `_Followed` (I23).
_NEXT_STAGES = {
    _Stage.FETCHING: tuple(_Stage),
    _Stage.RESETTING: (_Stage.FETCHING, _Stage.TRUNCATING, _Stage.FAILED),
    _Stage.TRUNCATING: (_Stage.FETCHING, _Stage.FAILED),
    _Stage.FAILED: (),
}


class _Followed:
    """One partition, followed in one leader epoch.

    leader_epoch   that of the partition when it was added, for good: a newer one makes a new `_Followed`, so
                   that no answer of an older leader epoch is applied (rel-R19)
    stage          see the module docstring. Only FETCHING is fetched
    not_before_ms  the end of its backoff after an error; it holds up no other partition
    warned_of      the error of the last warning, so that a lasting error gives one warning
    may_skip       it may begin after the last offset in the tier; False once that has failed
    has_lineage    it knows its leader epochs, or the tier does not have them
    """

    __slots__ = (
        *("has_lineage", "leader_epoch", "may_skip"),
        *("not_before_ms", "partition", "stage", "warned_of"),
    )

    def __init__(self, partition: Partition, *, has_tier: bool = False) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.stage = _Stage.FETCHING
        self.not_before_ms = 0
        self.warned_of: Code | None = None
        self.may_skip = True
        self.has_lineage = not (has_tier and is_lineage_lost(partition.log))

    def enter(self, stage: _Stage) -> None:
        assert stage in _NEXT_STAGES[self.stage], f"{self.stage.value} never becomes {stage.value}"
        self.stage = stage

    @property
    def is_due(self) -> bool:
        """Whether to fetch it, once its backoff is over."""
        partition = self.partition
        is_idle = not partition.is_offline and partition.log.truncation is None
        return is_idle and self.stage is _Stage.FETCHING

    def position(self) -> Position:
        partition, log = self.partition, self.partition.log
        return Position(
            partition.topic_partition.topic,
            partition.topic_id,
            partition.topic_partition.partition,
            self.leader_epoch,
            log.log_end_offset,
            log.epochs.latest_epoch,
            log.log_start_offset,
        )


class _QueuedTruncation(NamedTuple):
    """A queued truncation and its continuation. `plan` runs when it begins, on the log as it is then."""

    found: _Followed
    plan: Callable[[], Truncation | None]
    then: Callable[[int], Effects]


class Fetcher:
    """Follows one leader.

    backoff_ms          replica.fetch.backoff.ms
    on_storage_failure  called with a partition whose files failed
    tier                the remote tier, for partitions whose next records only it has (T29); None: no tier
    begins_at_last_tiered()  whether empty replicas begin after the last offset in the tier (T51)

    _followed           the followed partitions. One that was removed and added again is another `_Followed`,
                        so what was under way for the old one is dropped
    _session_id, _session_epoch  of the leader's fetch session. Epoch 0: the next Fetch names all partitions
                        and begins a session. After an error of the whole request both begin anew
    _changed            partitions whose position or stage may have changed: `_look` checks only these, so a
                        Fetch costs what changed. Whoever changes one outside of `_look` puts it here
    _unlooked           of all: still to be checked, because the log start moves without notice
    _wanted             what the next Fetch would ask: the position of each partition that is due. A partition
                        is here or in `_paused`, never in both
    _paused             partitions in a backoff -> its end
    _unsent             partitions checked since the last Fetch: only these can differ from `_in_session`
    _in_session         what the leader's session has, so only differences are sent (KIP-227)
    _is_fetching        one Fetch at a time is under way, or its response is being applied
    _without_lineage    partitions that have to take leader epochs from the tier before they are fetched
    _truncations        queued truncations, oldest first; of a partition that is followed no more none begins
    _truncating         truncations under way, at most TRUNCATIONS_AT_ONCE
    _not_before_ms      the end of the backoff of the whole session
    """

    def __init__(
        self,
        leader_id: int,
        port: LeaderPort,
        *,
        backoff_ms: int,
        on_storage_failure: Callable[[Partition, int], Effects],
        tier: Tier | None = None,
        begins_at_last_tiered: Callable[[], bool] = lambda: False,
    ) -> None:
        self.leader_id = leader_id
        self._port = port
        self._backoff_ms = backoff_ms
        self._on_storage_failure = on_storage_failure
        self._tier = tier
        self._begins_at_last_tiered = begins_at_last_tiered
        self._followed: dict[PartitionKey, _Followed] = {}
        self._session_id = _NO_SESSION
        self._session_epoch = _FIRST_EPOCH
        self._changed: dict[PartitionKey, None] = {}
        self._unlooked: deque[PartitionKey] = deque()
        self._applying = Background(f"fetch from {leader_id}")
        self._wanted: dict[PartitionKey, Position] = {}
        self._paused: dict[PartitionKey, int] = {}
        self._unsent: dict[PartitionKey, None] = {}
        self._in_session: dict[PartitionKey, Position] = {}
        self._without_lineage: deque[_Followed] = deque()
        self._truncations: deque[_QueuedTruncation] = deque()
        self._truncating = self._not_before_ms = self._look_at_all_ms = 0
        self._is_fetching = self._is_stopped = False
        self._timer = ("replica", "fetch", leader_id)

    def __len__(self) -> int:
        return len(self._followed)

    def add(self, partition: Partition) -> None:
        """Follow the partition in its present leader epoch. The caller then calls `go`."""
        key = _key(partition)
        known = self._followed.get(key)
        is_same = known is not None and known.partition is partition
        if not is_same or known is None or known.leader_epoch != partition.leader_epoch:
            self._followed[key] = _Followed(partition, has_tier=self._tier is not None)
        self._changed[key] = None

    def remove(self, partition: Partition) -> None:
        """Stop following the partition."""
        key = _key(partition)
        self._followed.pop(key, None)
        self._changed[key] = None

    def stop(self) -> Effects:
        """Send nothing more, and ignore answers that still arrive."""
        self._is_stopped = True
        self._followed.clear()
        return [CancelTimer(key=self._timer)]

    # ------------------------------------------------------------------------------------ requests

    def go(self, now_ms: int) -> Effects:
        """Send the next Fetch, or set a timer for it."""
        if self._is_fetching or self._is_stopped:
            return []
        self._look(now_ms)
        begun = self._search_lineages(now_ms)
        return begun if self._is_fetching else begun + self._fetch_when_due(now_ms)

    def _fetch_when_due(self, now_ms: int) -> Effects:
        due_ms = 0 if self._wanted else min(self._paused.values(), default=None)
        if due_ms is None:
            return [CancelTimer(key=self._timer)]
        due_ms = max(due_ms, self._not_before_ms)
        if due_ms > now_ms:
            return [SetTimer(key=self._timer, at_ms=due_ms, then=self.go)]
        self._is_fetching = True
        cancel: Effects = [CancelTimer(key=self._timer)]
        ask, asked = self._next()
        return cancel + self._port.fetch(self.leader_id, ask, partial(self._came, asked), now_ms)

    def _look(self, now_ms: int) -> None:
        """Update the positions of changed partitions, so that a Fetch costs only what changed.

        All are checked periodically, some with each Fetch: the log changes by itself as well, above all its
        log start offset, without notice.
        """
        if now_ms >= self._look_at_all_ms and not self._unlooked:
            self._look_at_all_ms = now_ms + LOOK_AT_ALL_MS
            self._unlooked.extend(self._followed)
        for _ in range(min(len(self._unlooked), _CHECKS_PER_FETCH)):
            self._changed[self._unlooked.popleft()] = None
        if self._paused:
            over = [key for key, until_ms in self._paused.items() if until_ms <= now_ms]
            self._changed.update(dict.fromkeys(over))
        for key in self._changed:
            self._paused.pop(key, None)
            self._wanted.pop(key, None)
            each = self._followed.get(key)
            if each is None or not each.is_due:
                continue
            if each.not_before_ms > now_ms:
                self._paused[key] = each.not_before_ms
            elif not each.has_lineage:
                self._without_lineage.append(each)
            else:
                self._wanted[key] = each.position()
        self._unsent.update(self._changed)
        self._changed.clear()

    def _next(self) -> tuple[LeaderFetch, dict[PartitionKey, Position]]:
        wanted, in_session = self._wanted, self._in_session
        unsent, self._unsent = self._unsent, {}
        assert self._session_epoch == _FIRST_EPOCH or self._session_id != _NO_SESSION, (
            "a later epoch belongs to a session (KIP-227)"
        )
        changed: list[Position] = []
        forgotten: list[Position] = []
        if self._session_epoch == _FIRST_EPOCH:
            changed, self._in_session = list(wanted.values()), dict(wanted)
        else:
            for key in unsent:
                position = wanted.get(key)
                if position is None:
                    if key in in_session:
                        forgotten.append(in_session.pop(key))
                elif in_session.get(key) != position:
                    in_session[key] = position
                    changed.append(position)
        ask = LeaderFetch(self._session_id, self._session_epoch, tuple(changed), tuple(forgotten))
        return ask, self._in_session

    def _came(
        self, asked: dict[PartitionKey, Position], reply: FetchReply | KafkaError, now_ms: int
    ) -> Effects:
        """Handle the answer to the Fetch under way."""
        if self._is_stopped:
            return []
        assert self._is_fetching, "one Fetch is under way, and it is answered once"
        if isinstance(reply, KafkaError):
            self._is_fetching = False
            was_session = self._session_epoch != _FIRST_EPOCH
            self._session_id, self._session_epoch = _NO_SESSION, _FIRST_EPOCH
            if not (was_session and reply.code in _LOST_SESSION):
                self._not_before_ms = now_ms + self._backoff_ms
            return self.go(now_ms)
        if self._session_epoch == _FIRST_EPOCH:
            self._session_id = reply.session_id
        if self._session_id != _NO_SESSION:
            self._session_epoch = 1 + self._session_epoch % INT32_MAX
        slices = self._apply_in_slices(asked, reply.parts)
        if len(reply.parts) > APPLIED_PER_SLICE:  # decoding them took as long as a slice
            return self._applying.begin(slices, now_ms)
        next(slices)
        try:
            effects = slices.send(now_ms)
        except StopIteration as done:
            return cast(Effects, done.value)
        return effects + self._applying.begin(self._apply_rest(slices), now_ms)

    def _apply_rest(self, slices: SlicedTask) -> SlicedTask:
        now_ms = yield []
        try:
            while True:
                now_ms = yield slices.send(now_ms)
        except StopIteration as done:
            return cast(Effects, done.value)

    def _apply_in_slices(
        self, asked: dict[PartitionKey, Position], parts: Collection[Fetched]
    ) -> SlicedTask:
        """Apply the response in slices; then send the next Fetch.

        A partition may change between slices, so each is looked up when its turn comes.
        """
        now_ms = yield []
        cost = 0
        effects: Effects = []
        for part in parts:
            key = (part.topic_id, part.partition)
            position = asked.get(key)
            for records, batches in portions(part.records, BATCHES_PER_SLICE):
                found = self._current(position)
                if found is None or position is None:
                    break
                self._changed[key] = None
                is_complete = records is part.records
                some = part if is_complete else part._replace(records=records)
                effects += self._apply(position, some, now_ms)
                end_offset = found.partition.log.log_end_offset
                cost += 1 + (batches >> 1) + (len(records) >> _COST_SHIFT)
                if cost >= APPLIED_PER_SLICE:
                    self._look(now_ms)
                    now_ms = yield effects
                    cost, effects = 0, []
                if end_offset <= position.fetch_offset:
                    break  # not appended: the next Fetch asks for it again
                position = position._replace(fetch_offset=end_offset)
            self._changed[key] = None
        self._is_fetching = False
        return effects + self.go(now_ms)

    def _current(self, position: Position | None) -> _Followed | None:
        """Return the partition if its epoch and log end are still those of `position`, else None."""
        if position is None:
            return None
        found = self._followed.get((position.topic_id, position.partition))
        if found is None or found.leader_epoch != position.leader_epoch:
            return None
        if found.partition.is_offline or found.partition.log.truncation is not None:
            return None
        return found if found.partition.log.log_end_offset == position.fetch_offset else None

    # ------------------------------------------------------------------------------------ responses

    def _apply(self, position: Position | None, part: Fetched, now_ms: int) -> Effects:
        found = self._current(position)
        if found is None or position is None or found.stage is not _Stage.FETCHING:
            return []
        if part.error != Code.NONE:
            return self._refused(found, position, part.error, now_ms)
        try:
            if part.diverging is not None:
                return self._truncate(found, part.diverging, now_ms)
            return self._append(found, part, now_ms)
        except StorageError as problem:
            return self._files_failed(found, problem, now_ms)

    def _append(self, found: _Followed, part: Fetched, now_ms: int) -> Effects:
        partition, log = found.partition, found.partition.log
        assert not partition.is_leader, "a leader takes no other leader's records (R15)"
        before, stable_before = log.high_watermark, log.last_stable_offset
        if len(part.records):
            base_offset = begins_within(log, part.records)
            if base_offset is not None:
                later = part._replace(records=bytes(part.records))
                return self._begin_with(found, later, base_offset, now_ms)
            outcome = log.append_as_follower(
                part.records, leader_epoch=found.leader_epoch, now_ms=now_ms
            )
            if isinstance(outcome, KafkaError):
                # The records may arrive undamaged the next time.
                return self._retry(found, outcome.code, now_ms, why=str(outcome))
            partition.traffic.replicated_in_bytes += len(part.records)
        found.warned_of = None
        partition.lag = max(0, part.high_watermark - log.log_end_offset)
        # A new leader may know a lower high watermark than its predecessor: ours never falls.
        log.advance_high_watermark(min(part.high_watermark, log.log_end_offset))
        log.advance_log_start(min(part.log_start_offset, log.log_end_offset))
        # Consumers may wait at a follower as well (KIP-392).
        return partition.grown(0, stable_before, before, now_ms, end_bytes=0)

    def _begin_with(
        self, found: _Followed, part: Fetched, base_offset: int, now_ms: int
    ) -> Effects:
        """Begin an empty log with the batch that contains its end, as after DeleteRecords within a batch.

        The response that brought the batch then sets the leader's log start offset. Until then the log keeps
        its own, which a crash may have taken back. Source: KAFKA-6361.
        """
        log = found.partition.log
        outcome = check_fetched(part.records, base_offset, NO_EPOCH, found.leader_epoch)
        if isinstance(outcome, KafkaError):
            return self._retry(found, outcome.code, now_ms, why=str(outcome))

        def begun(now_ms: int) -> Effects:
            try:
                return self._append(found, part, now_ms)
            except StorageError as problem:
                return self._files_failed(found, problem, now_ms)

        start, lineage = min(log.log_start_offset, base_offset), log.epochs.entries()
        plan = partial(
            log.beginning_at, base_offset, log_start_offset=start, lineage=lineage, now_ms=now_ms
        )
        return self._begin_truncation(found, plan, begun, now_ms)

    def _truncate(self, found: _Followed, diverging: tuple[int, int], now_ms: int) -> Effects:
        """Truncate to the end of the newest epoch that both logs have (KIP-279)."""
        log = found.partition.log
        before = (log.log_end_offset, log.epochs.latest_epoch)
        epoch, end_offset = diverging
        our_epoch, our_end = log.epochs.end_offset_for(epoch, log.log_end_offset)
        if our_epoch == NO_EPOCH:
            target = end_offset
        else:
            target = our_end if our_epoch != epoch else min(our_end, end_offset)
        target = max(0, min(target, log.log_end_offset))
        if log.truncation_to(target) is not None:
            return self._discard(found, partial(log.truncation_to, target), now_ms)
        if (log.log_end_offset, log.epochs.latest_epoch) == before:
            why = f"its epoch {epoch} ends at {end_offset}, and there is nothing to cut off here"
            return self._retry(found, Code.FENCED_LEADER_EPOCH, now_ms, why=why)
        return []

    def _discard(
        self, found: _Followed, plan: Callable[[], Truncation | None], now_ms: int
    ) -> Effects:
        """Truncate as `plan` says; warn if committed records are lost, as after an unclean election."""
        log, high_watermark = found.partition.log, found.partition.log.high_watermark

        def warn_of_loss(now_ms: int) -> Effects:
            if log.log_end_offset >= high_watermark:
                return []
            return [
                RECORDS_LOST(
                    **found.partition.topic_partition._asdict(),
                    leader=self.leader_id,
                    from_offset=log.log_end_offset,
                    to_offset=high_watermark,
                )
            ]

        return self._begin_truncation(found, plan, warn_of_loss, now_ms)

    def _begin_truncation(
        self,
        found: _Followed,
        plan: Callable[[], Truncation | None],
        then: Callable[[int], Effects],
        now_ms: int,
    ) -> Effects:
        """Truncate the log, call `then`, and fetch from its new end. No fetching of it meanwhile."""
        assert found.partition.log.truncation is None, "one truncation of a log at a time"
        found.enter(_Stage.TRUNCATING)
        self._touch(found)
        self._truncations.append(_QueuedTruncation(found, plan, then))
        return self._next_truncations(now_ms)

    def _next_truncations(self, now_ms: int) -> Effects:
        effects: Effects = []
        while self._truncations and self._truncating < TRUNCATIONS_AT_ONCE:
            queued = self._truncations.popleft()
            if not self._is_current(queued.found):
                continue
            truncation = queued.plan()
            self._truncating += 1
            done = partial(self._truncated, queued, truncation)
            effects += done(None, now_ms) if truncation is None else truncation.run(done, now_ms)
        return effects

    def _is_current(self, found: _Followed) -> bool:
        """Whether it is still followed, in the same leader epoch."""
        partition = found.partition
        is_followed = self._followed.get(_key(partition)) is found
        return is_followed and not partition.is_offline and not self._is_stopped

    def _truncated(
        self,
        queued: _QueuedTruncation,
        truncation: Truncation | None,
        problem: StorageError | None,
        now_ms: int,
    ) -> Effects:
        found = queued.found
        assert self._truncating > 0, "a truncation ends once"
        self._truncating -= 1
        self._touch(found)
        effects: Effects = []
        if problem is not None:
            if not (found.partition.is_offline or self._is_stopped):
                is_half_done = truncation is not None and truncation.is_begun
                effects = self._files_failed(found, problem, now_ms, is_half_done=is_half_done)
        elif self._is_current(found):
            found.enter(_Stage.FETCHING)
            effects = queued.then(now_ms)
        return effects + self._next_truncations(now_ms) + self.go(now_ms)

    def _files_failed(
        self, found: _Followed, problem: StorageError, now_ms: int, *, is_half_done: bool = False
    ) -> Effects:
        """Handle a storage error. `is_half_done`: the log is damaged, so even a full disk is fatal."""
        if problem.is_passing and not is_half_done:
            found.enter(_Stage.FETCHING)
            found.partition.traffic.append_failed(now_ms)
            return self._retry(found, Code.KAFKA_STORAGE_ERROR, now_ms, why=str(problem))
        found.enter(_Stage.FAILED)
        found.partition.go_offline(problem)
        return self._on_storage_failure(found.partition, now_ms)

    # ------------------------------------------------------------------------------------ errors

    def _refused(self, found: _Followed, position: Position, code: Code, now_ms: int) -> Effects:
        if code == Code.FENCED_LEADER_EPOCH:
            found.enter(_Stage.FAILED)  # newer metadata is on its way (I23)
            return []
        if code == Code.OFFSET_OUT_OF_RANGE:
            found.enter(_Stage.RESETTING)
            then = partial(self._end_came, position)
            return self._port.list_offset(self.leader_id, position, LATEST, then, now_ms)
        if code == Code.OFFSET_MOVED_TO_TIERED_STORAGE:
            return self._to_the_tier(found, position, now_ms)
        return self._retry(found, code, now_ms)

    def _retry(self, found: _Followed, code: Code, now_ms: int, *, why: str = "") -> Effects:
        """Retry after the backoff. With `why`, warn, but not twice in a row of the same error."""
        self._touch(found)
        found.not_before_ms = now_ms + self._backoff_ms
        if not why or found.warned_of == code:
            return []
        found.warned_of = code
        where = found.partition.topic_partition._asdict()
        return [DOES_NOT_FOLLOW(**where, leader=self.leader_id, reason=why)]

    # -- out of range: our log ends before the leader's begins, or after the leader's ends

    def _end_came(self, position: Position, end: int | KafkaError, now_ms: int) -> Effects:
        found = self._resetting(position)
        if found is None:
            return []
        if isinstance(end, KafkaError):
            return self._reset_failed(found, end, now_ms)
        log = found.partition.log
        if end >= log.log_end_offset:
            then = partial(self._start_came, position)
            return self._port.list_offset(self.leader_id, position, EARLIEST, then, now_ms)
        return self._discard(found, partial(log.truncation_to, end), now_ms)

    def _start_came(self, position: Position, start: int | KafkaError, now_ms: int) -> Effects:
        found = self._resetting(position)
        if found is None:
            return []
        if isinstance(start, KafkaError):
            return self._reset_failed(found, start, now_ms)
        log = found.partition.log
        if start <= log.log_end_offset:
            found.not_before_ms = now_ms + self._backoff_ms
            return self._resume(found, now_ms)
        return self._discard(found, partial(log.beginning_at, start, now_ms=now_ms), now_ms)

    # -- moved to the tier: only the tier has the records that follow ours

    def _to_the_tier(self, found: _Followed, position: Position, now_ms: int) -> Effects:
        if self._tier is None:
            why = "only the remote tier has the next records, and this node has no tier"
            return self._retry(found, Code.OFFSET_MOVED_TO_TIERED_STORAGE, now_ms, why=why)
        found.enter(_Stage.RESETTING)
        return self._begin_above(found, self._tier, position, now_ms)

    def _begin_above(
        self, found: _Followed, tier: Tier, position: Position, now_ms: int
    ) -> Effects:
        leader = LeaderAnswers(self._port, self.leader_id, position)
        then, is_last = partial(self._beginning_found, position), self._skips(found)
        start = TierStart(found.partition, leader, tier, then, at_last_tiered=is_last)
        return start.begin(now_ms)

    def _skips(self, found: _Followed) -> bool:
        """Whether to begin after the last offset in the tier (T51). As in Kafka, only without any record."""
        log = found.partition.log
        is_empty = log.log_start_offset == log.log_end_offset
        return is_empty and found.may_skip and self._begins_at_last_tiered()

    def _beginning_found(
        self, position: Position, where: Beginning | KafkaError, now_ms: int
    ) -> Effects:
        """Begin there. After an error nothing changed: the leader will refer us to the tier again."""
        found = self._resetting(position)
        if found is None:
            return []
        if isinstance(where, KafkaError):
            effects: Effects = []
            if where.code not in _TRANSIENT and self._skips(found):
                found.may_skip = False
            elif where.code not in _TRANSIENT:
                effects = self._retry(found, where.code, now_ms, why=str(where))
            return effects + self._reset_failed(found, where, now_ms)
        log, found.has_lineage = found.partition.log, True

        def begun(now_ms: int) -> Effects:
            where.note_committed(log)
            return []

        return self._begin_truncation(found, partial(where.cut, log, now_ms), begun, now_ms)

    # -- lost leader epochs, of records that only the tier has

    def _search_lineages(self, now_ms: int) -> Effects:
        effects: Effects = []
        while self._without_lineage:
            found, tier = self._without_lineage.popleft(), self._tier
            assert tier is not None
            found.enter(_Stage.RESETTING)
            leader = LeaderAnswers(self._port, self.leader_id, found.position())
            then = partial(self._lineage_found, tier, found.position())
            effects += LineageSearch(found.partition, leader, tier, then).begin(now_ms)
        return effects

    def _lineage_found(
        self, tier: Tier, position: Position, problem: KafkaError | None, now_ms: int
    ) -> Effects:
        found = self._resetting(position)
        if found is None:
            return []
        if problem is NOTHING_LOCAL:
            return self._begin_above(found, tier, position, now_ms)
        if problem is None:
            found.has_lineage = True
            return self._resume(found, now_ms)
        why = "" if problem.code in _TRANSIENT else f"leader epochs: {problem}"
        warned = self._retry(found, problem.code, now_ms, why=why)
        return warned + self._reset_failed(found, problem, now_ms)

    def _resetting(self, position: Position) -> _Followed | None:
        found = None if self._is_stopped else self._current(position)
        return found if found is not None and found.stage is _Stage.RESETTING else None

    def _reset_failed(self, found: _Followed, problem: KafkaError, now_ms: int) -> Effects:
        if problem.code == Code.FENCED_LEADER_EPOCH:
            found.enter(_Stage.FAILED)
            return []
        found.not_before_ms = now_ms + self._backoff_ms
        return self._resume(found, now_ms)

    def _touch(self, found: _Followed) -> None:
        """Note a change of its stage or log outside of a Fetch response."""
        self._changed[_key(found.partition)] = None

    def _resume(self, found: _Followed, now_ms: int) -> Effects:
        self._touch(found)
        found.enter(_Stage.FETCHING)
        return self.go(now_ms)


def _key(partition: Partition) -> PartitionKey:
    return partition.topic_id, partition.topic_partition.partition
