"""Fetch: reads the partitions of one request and answers, or waits for more bytes. PURE.

The order of events is: find the fetch session, read local files, read the tier, wait, read again, answer.
Partitions are read in the order of the request, within its byte limit. The first batch is returned complete
whatever its size (KIP-74).

Offsets that only the tier has are read through a port, all partitions in parallel (better than T37). After
`remote.fetch.max.wait.ms` the answer has what came, and errors of reads that earlier Fetches waited for, too.
A request with too few bytes becomes a delayed fetch in `replica/waiters`: an append, a high watermark, a
change of the partition or a timer completes it. Then all partitions are read again.

A thread brings cold pages into memory first (decision 0029). If other partitions have records, the request is
answered with those; else it waits for the disk. Source: spec C14, T35-T42.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from firnline.base.cold_pages import PageRange, PageRangeKey
from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, KafkaError, ProtocolError
from firnline.base.ids import NO_EPOCH, NO_OFFSET
from firnline.base.limits import WAITING_PARTITIONS_MAX
from firnline.base.slices import EMPTY_RECORDS, FileSlice
from firnline.broker.fetch_session import (
    Answered,
    FetchAsk,
    FetchContext,
    FetchSessions,
    Owner,
    ReservedMemory,
    Wanted,
)
from firnline.replica.hosted import HostedPartitions
from firnline.replica.partition import Partition
from firnline.replica.read import (
    INDEX_IS_BUILT,
    MOVED_TO_TIER,
    NO_TIER,
    READ_COMMITTED,
    BelowLocalStart,
    Cold,
    Local,
    PreferredReadReplica,
    ReadOutcome,
)
from firnline.replica.waiters import FetchWaiter, FetchWaiters, LargeWaiters

if TYPE_CHECKING:
    # A node without a tier does not load it.
    from firnline.broker.tier.remote_read import RemoteRead, RemoteReadCallback, StopRemoteRead
    from firnline.tiered.reads.reader import RemoteLogReadResult

# Partitions read without letting others run: a millisecond and a half.
PARTITIONS_PER_SLICE = 200
# A Fetch that has found nothing waits at least this long for a disk, whatever its `max_wait_ms`.
_DISK_MS = 500
# Pages of one disk wait this long for pages of the other disks, one of which may hang.
_OTHERS_MS = 20


# max_bytes, min_bytes, whether topics are named by id, and the owner of the session.
FetchLimits = tuple[int, int, bool, Owner]


class FetchAnswer(NamedTuple):
    """An `error` of the whole request, or one outcome for each partition in the response."""

    error: KafkaError | None
    session_id: int
    outcomes: Answered


FetchCallback = Callable[[FetchAnswer], Effects]
# (partition, rack, listener, offset) -> the preferred read replica of a consumer, or None. We lead the
# partition.
Prefer = Callable[[Partition, str, str, int], int | None]


class Fetching:
    """Reads for consumers and followers.

    on_follower         called with a partition whose ISR a follower's Fetch may change
    max_bytes           fetch.max.bytes: upper limit of any answer
    remote_read         the tier, or None where there is none
    stop_remote_read    called with the callback of a read that is not waited for any more
    remote_max_wait_ms  remote.fetch.max.wait.ms
    prefer              replica.selector.class: finds the preferred read replica; None: always the leader
    large_waiters       delayed fetches of many partitions
    """

    def __init__(
        self,
        hosted: HostedPartitions,
        sessions: FetchSessions,
        *,
        max_bytes: int,
        remote_read: "RemoteRead | None",
        remote_max_wait_ms: int,
        stop_remote_read: "StopRemoteRead | None" = None,
        on_follower: Callable[[Partition, int], Effects],
        prefer: Prefer | None = None,
    ) -> None:
        self.hosted = hosted
        self.sessions = sessions
        self.remote_read = remote_read
        self.stop_remote_read = stop_remote_read
        self.remote_max_wait_ms = remote_max_wait_ms
        self.prefer = prefer
        self._on_follower = on_follower
        self.large_waiters = LargeWaiters(WAITING_PARTITIONS_MAX)
        self._max_bytes = max_bytes
        self._serial = 0
        self.remote_expired = 0  # fetches that have waited for the tier for too long

    def fetch(
        self,
        ask: FetchAsk,
        answer: FetchCallback,
        now_ms: int,
        large: "Large | None" = None,
        context: FetchContext | KafkaError | None = None,
    ) -> Effects:
        """Read, wait if need be, then `answer`. `large` handles a request of many partitions."""
        if context is None:
            context = self.sessions.context(
                ask.session_id, ask.session_epoch, ask.wanted, ask.forgotten,
                uses_ids=ask.uses_ids, now_ms=now_ms, owner=ask.owner,
            )  # fmt: skip
        if isinstance(context, KafkaError):
            return answer(FetchAnswer(context, 0, []))
        if large is not None and len(context.wanted) > PARTITIONS_PER_SLICE:
            return large(self, ask, context, answer).begin(now_ms)
        return OneFetch(self, ask, context, answer).begin(now_ms)

    def read_at_once(
        self,
        partition: Partition,
        fetch_offset: int,
        max_bytes: int,
        min_bytes: int,
        leader_epoch: int,
    ) -> tuple[FileSlice, int, int, int] | None:
        """Read the one partition of a request without a session, by `Partition.read_at_once`.

        None: there is no answer yet, or it is not the common case. Call `fetch`, which handles all cases.
        """
        if self.prefer is not None:
            return None  # the consumer's rack is not known here
        if max_bytes > self._max_bytes:
            max_bytes = self._max_bytes
        found = partition.read_at_once(fetch_offset, max_bytes, leader_epoch)
        if found is None or found[0][2] < min_bytes:
            return None
        traffic = partition.traffic
        traffic.fetches += 1
        traffic.bytes_out += found[0][2]
        return found

    def follower_fetched(
        self, partition: Partition, wanted: Wanted, ask: FetchAsk, now_ms: int
    ) -> Effects:
        """Record a follower's fetch offset. Returns the effects, such as a change of the ISR."""
        effects = partition.follower_fetched(
            ask.replica_id,
            wanted.fetch_offset,
            now_ms,
            broker_epoch=ask.replica_epoch,
            log_start_offset=wanted.log_start_offset,
        )
        return (
            effects
            if partition.proposed is None
            else effects + self._on_follower(partition, now_ms)
        )

    def read_in_session(
        self,
        session_id: int,
        session_epoch: int,
        changed: Wanted | None,
        ask: FetchLimits,
        now_ms: int,
    ) -> tuple[Wanted, tuple[FileSlice, int, int, int]] | None:
        """Do the same as `read_at_once` in a session of one partition. `changed` is its new position, if any.

        Returns the session's partition and what was read. None: nothing was done.
        """
        max_bytes, min_bytes, uses_ids, owner = ask
        known = self.sessions.of_one(session_id, session_epoch, uses_ids=uses_ids, owner=owner)
        if known is None or (changed is not None and changed.key != known.key):
            return None
        wanted = changed or known
        hosted = self.hosted
        partition = (
            hosted.by_id.get((known.topic_id, known.index))
            if known.topic is None
            else hosted.by_name.get((known.topic, known.index))
        )
        if partition is None or wanted.last_fetched_epoch != NO_EPOCH:
            return None
        limit = min(wanted.max_bytes, max_bytes)
        found = self.read_at_once(
            partition, wanted.fetch_offset, limit, min_bytes, wanted.leader_epoch
        )
        if found is None:
            return None
        if changed is not None:
            known.update(changed)
        _, known.sent_high_watermark, _, known.sent_log_start = found
        self.sessions.record_fetch(session_id, now_ms)
        return known, found

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def bytes_limit(self, ask: FetchAsk) -> int:
        asked, limit = ask.max_bytes, self._max_bytes
        return asked if asked < limit else limit


# Creates the fetch of a request or session of many partitions: `broker/large_fetch`.
Large = Callable[[Fetching, FetchAsk, FetchContext, FetchCallback], "OneFetch"]


class OneFetch:
    """One request from its first read to its answer."""

    __slots__ = (
        "_answer",
        "_ask",
        "_awaited",
        "_began_ms",
        "_below",
        "_bytes_left",
        "_clock",
        "_cold",
        "_context",
        "_fetching",
        "_is_answered",
        "_is_first",
        "_may_wait",
        "_must_answer",
        "_outcomes",
        *("_remote", "_remote_asked", "_remote_left", "_reserved", "_resting", "_serial"),
        *("_total_bytes", "_until_ms", "_waiter", "_waits_at", "_wanted"),
    )

    def __init__(
        self, fetching: Fetching, ask: FetchAsk, context: FetchContext, answer: FetchCallback
    ) -> None:
        self._fetching = fetching
        self._ask = ask
        self._context = context
        self._answer = answer
        self._clock = context.clock if ask.replica_id >= 0 else None
        self._wanted: Sequence[Wanted] = context.wanted  # without the resting ones
        self._resting: Sequence[Wanted] = ()
        self._waits_at: list[FetchWaiters] = []
        self._outcomes: list[ReadOutcome] = []
        self._remote: dict[int, ReadOutcome] = {}
        self._remote_asked: list[RemoteReadCallback] = []
        self._remote_left = 0
        self._reserved: ReservedMemory  # from the first read of the tier on
        self._waiter: FetchWaiter | None = None
        self._is_answered = False
        self._below: list[tuple[int, BelowLocalStart, int]] = []
        self._cold: dict[Wanted, PageRange] = {}
        self._awaited: dict[PageRangeKey, None] = {}  # pages that threads are reading for us
        self._serial = 0
        self._began_ms = self._until_ms = 0

    def begin(self, now_ms: int) -> Effects:
        self._began_ms = now_ms
        self._begin_reading()
        return self._go_on(now_ms)

    def _go_on(self, now_ms: int, *, is_noted: bool = False) -> Effects:
        """Read every partition without a pause; then answer, or wait."""
        ask = self._ask
        self._read_some(self._wanted)
        if self._below:
            return [*self._have_read(waits=False), *self._read_remote(now_ms)]
        # A follower's positions count when its request arrives. After a wait they have not changed.
        noted = [] if ask.replica_id < 0 or is_noted else self._note_follower(0, now_ms)
        until_ms = self._began_ms + max(ask.max_wait_ms, _DISK_MS if self._cold else 0)
        if self._is_enough():
            return [*self._finish(now_ms), *noted]
        return [*self._wait(max(1, self._missing_bytes()), until_ms - now_ms, now_ms), *noted]

    def _missing_bytes(self) -> int:
        ask = self._ask
        return min(ask.min_bytes, self._fetching.bytes_limit(ask)) - self._total_bytes

    def _is_enough(self) -> bool:
        """Whether to answer now with what was read."""
        ask = self._ask
        if self._must_answer or (ask.replica_id >= 0 and self._owes_high_watermark()):
            return True
        if (self._cold or self._awaited) and not self._total_bytes:
            return False
        return not self._may_wait or ask.max_wait_ms <= 0 or self._missing_bytes() <= 0

    def _note_follower(self, first: int, now_ms: int) -> Effects:
        """Record the follower's position in each partition that was just read, from index `first` on."""
        ask = self._ask
        if self._clock is not None:
            self._clock.fetched(ask.replica_id, ask.replica_epoch, now_ms)
        effects: Effects = []
        outcomes = self._outcomes
        for place in range(first, len(outcomes)):
            wanted, outcome = self._wanted[place], outcomes[place]
            partition = wanted.hosted
            if type(outcome) is not Local or not isinstance(partition, Partition):
                continue
            effects += self._fetching.follower_fetched(partition, wanted, ask, now_ms)
            # The answer contains the high watermark that this Fetch itself has moved.
            high_watermark = partition.log.high_watermark
            if high_watermark != outcome.high_watermark:
                outcomes[place] = outcome._replace(high_watermark=high_watermark)
        return effects

    def _owes_high_watermark(self) -> bool:
        """Whether a high watermark rose: consumers may be waiting for it at the follower (KIP-392)."""
        return self._fetching.prefer is not None and any(
            NO_OFFSET < wanted.sent_high_watermark < outcome.high_watermark
            for wanted, outcome in zip(self._wanted, self._outcomes, strict=True)
            if type(outcome) is Local
        )

    # ------------------------------------------------------------------------------- reading

    def _begin_reading(self) -> None:
        self._leave_out_resting()
        self._bytes_left = self._fetching.bytes_limit(self._ask)
        self._total_bytes = 0
        self._is_first = True
        self._may_wait, self._must_answer = bool(self._resting), False
        self._outcomes = []
        self._below = []
        self._cold = {}

    def _read_some(self, portion: Sequence[Wanted]) -> None:
        """Read `portion`, the next part of `_wanted`. Note what only the tier has, and whether to wait."""
        with self._fetching.hosted.pages:
            self._read_in_memory(portion)

    def _read_in_memory(self, portion: Sequence[Wanted]) -> None:
        ask = self._ask
        hosted, isolation = self._fetching.hosted, ask.isolation
        left = self._bytes_left
        is_consumer = ask.replica_id < 0
        prefers = self._fetching.prefer is not None and ask.is_any_replica
        is_first = self._is_first
        total = 0
        may_wait, must_answer = self._may_wait, self._must_answer
        outcomes, below = self._outcomes, self._below
        for wanted in portion:
            found = wanted.hosted = _find(hosted, wanted)
            if isinstance(found, KafkaError):
                outcomes.append(found)
                must_answer = must_answer or found.code == Code.NOT_LEADER_OR_FOLLOWER
                continue
            max_bytes, found.traffic.fetches = wanted.max_bytes, found.traffic.fetches + 1
            look = self._preferred_replica if is_consumer else self._refusal
            instead = look(found, wanted) if prefers or not is_consumer else None
            outcome: ReadOutcome = instead or found.read(
                wanted.fetch_offset,
                max_bytes=max_bytes if max_bytes < left else left,
                isolation=isolation,
                leader_epoch=wanted.leader_epoch,
                last_fetched_epoch=wanted.last_fetched_epoch,
                min_one_batch=is_first,
                is_follower=not is_consumer,
                is_any_replica=ask.is_any_replica,
            )
            if type(outcome) is Local:
                may_wait = True
                size = len(outcome.records)
                if size:
                    is_first = False
                    total += size
                    left = left - size if size < left else 0
            elif type(outcome) is Cold:
                self._cold[wanted] = outcome.place
                may_wait, outcome = True, _nothing_yet(found, isolation)
            elif type(outcome) is BelowLocalStart and (
                not is_consumer or self._fetching.remote_read is None
            ):
                outcome = NO_TIER if is_consumer else MOVED_TO_TIER
                must_answer = True
            elif type(outcome) is BelowLocalStart:
                allotted = min(max_bytes, left)
                if allotted > 0 or is_first:
                    below.append((len(outcomes), outcome, allotted))
                    left = max(0, left - allotted)
                    is_first = False
                else:  # the other partitions used up the byte limit
                    outcome = self._nothing_of(outcome)
            else:
                is_to_wait = is_consumer and outcome is INDEX_IS_BUILT  # it would only retry
                may_wait, must_answer = may_wait or is_to_wait, must_answer or not is_to_wait
            outcomes.append(outcome)
        self._total_bytes += total
        self._bytes_left = left
        self._is_first = is_first
        self._may_wait, self._must_answer = may_wait, must_answer

    def _leave_out_resting(self) -> None:
        """Leave out resting partitions: they have nothing to read, and the clock covers them all."""
        clock, ask = self._clock, self._ask
        if clock is None:
            return
        wanted = self._context.wanted
        if not clock.holds(ask.replica_id, ask.replica_epoch):
            for each in wanted:
                each.wake()
        self._resting = [each for each in wanted if each.still_rests(clock)]
        if self._resting:
            self._wanted = [each for each in wanted if each.resting is None]
        else:
            self._wanted = wanted

    def _preferred_replica(
        self, partition: Partition, wanted: Wanted
    ) -> PreferredReadReplica | KafkaError | None:
        """Return the consumer's preferred read replica, unless that is this broker."""
        ask, prefer = self._ask, self._fetching.prefer
        if prefer is None or not partition.is_leader:
            return None
        found = prefer(partition, ask.rack, ask.listener, wanted.fetch_offset)
        if found is None:
            return None
        log = partition.log
        marks = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
        return partition.check_epoch(wanted.leader_epoch) or PreferredReadReplica(found, *marks)

    def _refusal(self, partition: Partition, wanted: Wanted) -> KafkaError | None:
        ask = self._ask
        return partition.follower_refusal(
            ask.replica_id, leader_epoch=wanted.leader_epoch, broker_epoch=ask.replica_epoch
        )

    def _read_remote(self, now_ms: int) -> Effects:
        """Read all offsets that only the tier has. Those that come too late, or for which there is no memory
        (decision 0026), have no records: the client asks again."""
        return self._begin_remote(now_ms) + self._ask_remote(self._below, now_ms)

    def _begin_remote(self, now_ms: int) -> Effects:
        self._serial = self._fetching.next_serial()
        self._remote_left = len(self._below)
        self._reserved = ReservedMemory(self._ask.held)
        if self._ask.when_gone is not None:
            self._ask.when_gone(self._abandon)
        at_ms = now_ms + self._fetching.remote_max_wait_ms
        return [SetTimer(key=("fetch", self._serial), at_ms=at_ms, then=self._remote_late)]

    def _ask_remote(self, below: list[tuple[int, BelowLocalStart, int]], now_ms: int) -> Effects:
        remote_read = self._fetching.remote_read
        assert remote_read is not None
        effects: Effects = []
        asked = self._wanted
        for index, outcome, max_bytes in below:
            partition = asked[index].hosted
            assert isinstance(partition, Partition)
            if not self._reserved.reserve(max_bytes):
                effects += self._remote_came(index, outcome, 0, self._nothing_of(outcome), now_ms)
                continue
            then = partial(self._remote_came, index, outcome, max_bytes)
            self._remote_asked.append(then)
            effects += remote_read(
                partition.topic_partition,
                partition.topic_id,
                outcome.offset,
                outcome.epoch,
                max_bytes,
                self._ask.isolation,
                then,
                now_ms,
            )
        return effects

    def _remote_came(
        self,
        index: int,
        below: BelowLocalStart,
        reserved_bytes: int,
        result: "RemoteLogReadResult | Local | KafkaError",
        now_ms: int,
    ) -> Effects:
        if self._is_answered or index in self._remote:
            return []
        self._reserved.release(reserved_bytes)
        if isinstance(result, KafkaError | Local):
            self._remote[index] = result
        else:
            self._remote[index] = below.with_records(result.records, result.aborted)
            if self._ask.held is not None:
                with suppress(ProtocolError):  # fetch.max.bytes is the limit of one Fetch
                    self._ask.held.grow(len(result.records))
        self._remote_left -= 1
        if self._remote_left:
            return []
        cancel: Effects = [CancelTimer(key=("fetch", self._serial))]
        return cancel + self._after_remote(now_ms)

    def _remote_late(self, now_ms: int) -> Effects:
        if self._is_answered:
            return []
        self._fetching.remote_expired += 1
        stopped = self._stop_remote(now_ms)  # reads that are late again answer with an error
        return stopped if self._is_answered else stopped + self._finish(now_ms)

    def _stop_remote(self, now_ms: int) -> Effects:
        """Leave the reads of the tier that have not come."""
        asked, self._remote_asked = self._remote_asked, []
        if not self._remote_left:
            return []
        stop = self._fetching.stop_remote_read
        left = [effect for then in asked for effect in stop(then, now_ms)] if stop else []
        self._reserved.release_all()
        return left

    def _after_remote(self, now_ms: int) -> Effects:
        """Answer; but if nothing came, wait as a local read would: clients must not spin (T38)."""
        self._put_remote()
        waited_ms = now_ms - self._began_ms
        has_any = any(not isinstance(o, Local) or len(o.records) > 0 for o in self._outcomes)
        if has_any or waited_ms >= self._ask.max_wait_ms or self._ask.min_bytes <= 0:
            return self._finish(now_ms)
        return self._wait(self._ask.min_bytes, self._ask.max_wait_ms - waited_ms, now_ms)

    def _put_remote(self) -> None:
        """Replace outcomes below the local log start offset by those of the tier, or by no records."""
        if not self._below:
            return
        for index, outcome in enumerate(self._outcomes):
            if type(outcome) is BelowLocalStart:
                self._outcomes[index] = self._remote.get(index) or self._nothing_of(outcome)

    def _nothing_of(self, below: BelowLocalStart) -> Local:
        aborted = () if self._ask.isolation == READ_COMMITTED else None
        return below.with_records(EMPTY_RECORDS, aborted)

    # ------------------------------------------------------------------------------- waiting

    def _have_read(self, *, waits: bool) -> Effects:
        """Start reads of cold pages, and wait for them if `waits`; else the next Fetch finds them."""
        pages = self._fetching.hosted.pages
        effects: Effects = []
        for place in self._cold.values():
            then = None
            if waits:
                self._awaited[place.key] = None
                then = partial(self._page_came, place.key)
            effects += pages.bring(place, self, then)
        self._cold = {}
        return effects

    def _page_came(self, key: PageRangeKey, now_ms: int) -> Effects:
        if key not in self._awaited:
            return []
        del self._awaited[key]
        timer = ("fetch", self._serial)
        if not self._awaited:
            return [CancelTimer(key=timer), *self._pages_came(now_ms)]
        if not self._until_ms:
            return []  # a large fetch that has not read all its partitions yet
        at_ms = min(self._until_ms, now_ms + _OTHERS_MS)
        return [SetTimer(key=timer, at_ms=at_ms, then=self._others_are_late)]

    def _others_are_late(self, now_ms: int) -> Effects:
        return [] if self._waiter is None else self._pages_came(now_ms)

    def _pages_came(self, now_ms: int) -> Effects:
        """Read again. The pages may lead to others that are cold."""
        self._stop_waiting()
        self._begin_reading()
        return self._go_on(now_ms, is_noted=True)

    def _wait(self, missing_bytes: int, wait_ms: int, now_ms: int) -> Effects:
        self._new_waiter(missing_bytes, self._notified)
        self._wait_at(self._wanted)
        self._wait_at(self._resting)
        return self._wait_until(now_ms + wait_ms)

    def _new_waiter(self, missing_bytes: int, complete: Callable[[int], Effects]) -> None:
        self._serial = self._fetching.next_serial()
        self._until_ms = 0
        self._waits_at = []
        self._waiter = FetchWaiter(
            serial=self._serial,
            missing_bytes=missing_bytes,
            wants_committed=self._ask.isolation == READ_COMMITTED,
            is_follower=self._ask.replica_id >= 0,
            wants_high=self._fetching.prefer is not None,
            complete=complete,
        )

    def _wait_at(self, portion: Sequence[Wanted]) -> None:
        """Register the waiter at these partitions, except at those that wait for a disk."""
        assert self._waiter is not None
        some = (w.hosted for w in portion if w not in self._cold)
        more = [p.fetch_waiters for p in some if isinstance(p, Partition)]
        for waiters in more:
            waiters.add(self._waiter)
        self._waits_at += more

    def _wait_until(self, at_ms: int) -> Effects:
        self._until_ms = at_ms
        # Everything is read again later. The client may wait for minutes, so hold no memory for it.
        self._outcomes = []
        if self._ask.held is not None:
            self._ask.held.waits()
        if self._ask.when_gone is not None:
            self._ask.when_gone(self._abandon)
        timer = SetTimer(key=("fetch", self._serial), at_ms=at_ms, then=self._wait_over)
        return [timer, *self._have_read(waits=True)]

    def _stop_waiting(self) -> None:
        waiter = self._waiter
        if waiter is None:
            return
        waiter.is_done = True
        for waiters in self._waits_at:
            waiters.discard(waiter)
        self._waits_at = []
        self._waiter = None
        for key in self._awaited:
            self._fetching.hosted.pages.leave(key, self)
        self._awaited = {}

    def _stop_waiting_in_slices(self, now_ms: int) -> Effects:
        """Stop waiting. A large fetch does most of it in later slices."""
        self._stop_waiting()
        return []

    def _abandon(self, now_ms: int) -> Effects:
        """The client has gone: drop the request."""
        if self._is_answered:
            return []
        self._is_answered = True
        return [
            CancelTimer(key=("fetch", self._serial)),
            *self._stop_remote(now_ms),
            *self._stop_waiting_in_slices(now_ms),
        ]

    def _notified(self, now_ms: int) -> Effects:
        """There are enough bytes, or a partition changed: read again and answer."""
        effects: Effects = [CancelTimer(key=("fetch", self._serial))]
        return effects + self._wait_over(now_ms)

    def _wait_over(self, now_ms: int) -> Effects:
        if self._is_answered:
            return []
        self._stop_waiting()
        self._begin_reading()
        self._read_some(self._wanted)
        return self._finish(now_ms)

    def _finish(self, now_ms: int) -> Effects:
        """Answer with what was read."""
        assert not self._is_answered
        self._is_answered = True
        self._put_remote()
        read = self._have_read(waits=False) + self._stop_remote(now_ms)
        included = self._included(list(zip(self._wanted, self._outcomes, strict=True)))
        if isinstance(included, KafkaError):
            return [*self._answer(FetchAnswer(included, 0, [])), *read]
        return [*self._answer(FetchAnswer(None, self._context.session_id, included)), *read]

    def _included(self, outcomes: Answered) -> Answered | KafkaError:
        """Return the outcomes that the response must contain. Updates the session."""
        included = self._context.answer(outcomes)
        if self._clock is not None and not isinstance(included, KafkaError):
            for wanted, outcome in outcomes:
                if type(outcome) is Local and not len(outcome.records):
                    wanted.rest(self._ask.replica_id, self._clock)
        return included


def _find(hosted: HostedPartitions, wanted: Wanted) -> Partition | KafkaError:
    if wanted.topic is None:
        return hosted.find_by_id(wanted.topic_id, wanted.index)
    return hosted.find(wanted.topic, wanted.index)


def _nothing_yet(partition: Partition, isolation: int) -> Local:
    log = partition.log
    aborted = () if isolation == READ_COMMITTED else None
    marks = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
    return Local(EMPTY_RECORDS, *marks, aborted)
