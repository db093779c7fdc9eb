"""Fetch sessions: a client names its partitions once, later requests and responses only changes. PURE.

A session has the partitions of one client, and the offsets that its last response stated for each. An
incremental request has only changed partitions; its response only those with news. Partitions that returned
records go to the end of the order, so that a small response starves no partition. In a follower's session,
partitions without activity rest: its next Fetch neither reads them nor notes more than the time. Source:
KIP-227; spec C14 (70/71/106).
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Protocol

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import NO_BROKER_EPOCH, NO_EPOCH, NO_OFFSET, Uuid
from firnline.base.limits import (
    ALL_SESSION_PARTITIONS_MAX,
    SESSION_PARTITIONS_MAX,
    TOPIC_NAME_CHARS_MAX,
)
from firnline.base.owners import Owners
from firnline.base.ports import Rng
from firnline.base.units import INT32_MAX
from firnline.replica.isr import FetchClock, ReplicaState
from firnline.replica.partition import Partition
from firnline.replica.read import Local, ReadOutcome

CONSUMER_REPLICA = -1
NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
# Takes a millisecond.
_UPDATED_PER_SLICE = 1_000

SessionPartitionKey = tuple[str | Uuid, int]
# Principal and address of the client that created a session: only it may use or close the session. Kafka
# 4.3.1 serves every client that knows the id and the epoch.
Owner = tuple[str, str]
NOBODY: Owner = ("", "")


class Wanted:
    """One partition of a Fetch, and in a session the offsets that the last response stated.

    topic, topic_id   one of them: names up to version 12, ids from 13 on (the other is None / zero)
    max_bytes         the limit for this partition; the first batch may be larger (KIP-74)
    log_start_offset  the follower's own; -1 for a consumer
    resting           the follower's state in the partition while it rests; None: read it
    """

    __slots__ = (
        "fetch_offset",
        "hosted",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "resting",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str | None,
        topic_id: Uuid,
        index: int,
        *,
        fetch_offset: int,
        max_bytes: int,
        leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        log_start_offset: int = NO_OFFSET,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = NO_OFFSET
        self.sent_log_start = NO_OFFSET
        self.hosted: Partition | KafkaError | None = None  # every Fetch that reads it looks it up
        self.resting: ReplicaState | None = None

    @property
    def key(self) -> SessionPartitionKey:
        return (self.topic_id if self.topic is None else self.topic, self.index)

    def ask_again(self, news: "Wanted") -> None:
        """Take the position of a later request; keep the offsets of the last response.

        In a new leader epoch, a follower has not applied those of the epoch before.
        """
        self.wake()
        if news.leader_epoch != self.leader_epoch:
            self.sent_high_watermark = NO_OFFSET
        self.fetch_offset = news.fetch_offset
        self.max_bytes = news.max_bytes
        self.leader_epoch = news.leader_epoch
        self.last_fetched_epoch = news.last_fetched_epoch
        self.log_start_offset = news.log_start_offset

    def rest(self, replica_id: int, clock: FetchClock) -> None:
        """Let the partition rest, if the last response showed the follower that there is nothing more.

        Not if the high watermark has risen since the slice that read the partition.
        """
        partition = self.hosted
        if (
            isinstance(partition, Partition)
            and self.sent_high_watermark == partition.log.high_watermark
        ):
            self.resting = partition.rest(replica_id, self.fetch_offset, clock)

    def still_rests(self, clock: FetchClock) -> bool:
        """Whether another read would return the same; if not, the partition does not rest any more."""
        follower = self.resting
        if follower is None:
            return False
        if follower.clock is clock:
            # The high watermark was at the log end when the partition began to rest, and is never above it.
            log = self.hosted.log  # type: ignore[union-attr]
            if (
                log.log_end_offset == self.fetch_offset
                and log.log_start_offset == self.sent_log_start
            ):
                return True
        self.wake()
        return False

    def wake(self) -> None:
        """Read it again from here on. The follower's last Fetch counts as noted."""
        if self.resting is not None:
            self.resting.settle()
            self.resting = None

    def has_news(self, outcome: ReadOutcome) -> bool:
        """Whether an incremental response must have `outcome`; notes the offsets it states."""
        if isinstance(outcome, KafkaError):
            self.sent_high_watermark = NO_OFFSET  # the next success has everything
            return True
        if not isinstance(outcome, Local):
            # After a truncation the follower knows less than the last response stated.
            self.sent_high_watermark = NO_OFFSET
            return True
        news = (
            len(outcome.records) > 0
            or outcome.high_watermark != self.sent_high_watermark
            or outcome.log_start_offset != self.sent_log_start
        )
        self.sent_high_watermark = outcome.high_watermark
        self.sent_log_start = outcome.log_start_offset
        return news


WhenGone = Callable[[Callable[[int], Effects]], None]


class Held(Protocol):
    """Counts the memory of a response until it is made: `ResponseMemory` of runtime/bounds/answers."""

    def grow(self, size_bytes: int) -> None:
        """Count more bytes. ProtocolError: more than one response may have."""
        ...

    def waits(self) -> None:
        """Count nothing while the Fetch waits: it holds no records."""
        ...


class FetchAsk:
    """One Fetch request, independent of its version. Bytes and milliseconds.

    replica_id, replica_epoch  of a follower; its epoch is -1 in versions without one; -1 for consumers
    session_id, session_epoch  (0, -1): no session (KIP-227); only the `owner` may use a session
    uses_ids                   topics are named by id: version 13 and later
    is_any_replica             a consumer that may read from followers, or be sent to one: from version 11
    rack, listener             the rack of the consumer, and the listener of its connection
    when_gone                  registers a callback for a client that disconnects while the request waits
    held                       counts the memory of outcomes while others are read; None: not counted
    """

    __slots__ = (
        "forgotten",
        "held",
        "is_any_replica",
        "isolation",
        "listener",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "owner",
        "rack",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
        "uses_ids",
        "wanted",
        "when_gone",
    )

    def __init__(
        self,
        wanted: Sequence[Wanted],
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int,
        isolation: int = 0,
        replica_id: int = CONSUMER_REPLICA,
        replica_epoch: int = NO_BROKER_EPOCH,
        session_id: int = 0,
        session_epoch: int = -1,
        owner: Owner = NOBODY,
        forgotten: Sequence[SessionPartitionKey] = (),
        uses_ids: bool = False,
        is_any_replica: bool = False,
        rack: str = "",
        listener: str = "",
        when_gone: WhenGone | None = None,
        held: Held | None = None,
    ) -> None:
        self.when_gone = when_gone
        self.held = held
        self.is_any_replica = is_any_replica
        self.rack = rack
        self.listener = listener
        self.wanted = wanted
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation = isolation
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.owner = owner
        self.forgotten = forgotten
        self.uses_ids = uses_ids


Answered = list[tuple[Wanted, ReadOutcome]]


def weight_of(partitions: Iterable[Wanted]) -> int:
    """Return the weight of partitions for the bound: one each, more for a name that no topic can have."""
    names = [each.topic for each in partitions]
    return len(names) + sum([len(name) // (TOPIC_NAME_CHARS_MAX + 1) for name in names if name])


class Sessionless:
    """A Fetch without a session: the response has every partition."""

    session_id = NO_SESSION
    clock: FetchClock | None = None

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self.wanted: Sequence[Wanted] = wanted

    def answer(self, outcomes: Answered) -> Answered | KafkaError:
        return outcomes


class FetchSession:
    """The partitions of one client, in the order in which they are read.

    clock        the times of a follower's Fetches
    weight       of all its partitions
    is_changing  a request is changing it, in steps: no other request may use it
    """

    __slots__ = (
        "_partitions",
        "clock",
        "created_ms",
        "epoch",
        "is_changing",
        "owner",
        "session_id",
        "used_ms",
        "uses_ids",
        "weight",
    )

    def __init__(
        self,
        session_id: int,
        wanted: Sequence[Wanted],
        *,
        uses_ids: bool,
        now_ms: int,
        owner: Owner = NOBODY,
    ) -> None:
        self.session_id = session_id
        self.owner = owner
        self.clock = FetchClock()
        self.epoch = 1
        self.is_changing = False
        self.uses_ids = uses_ids
        self.created_ms = now_ms
        self.used_ms = now_ms
        self._partitions: dict[SessionPartitionKey, Wanted] = {w.key: w for w in wanted}
        self.weight = weight_of(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def wanted(self) -> Iterable[Wanted]:
        return self._partitions.values()

    def update(self, wanted: Sequence[Wanted], forgotten: Sequence[SessionPartitionKey]) -> None:
        """Apply the changes of an incremental request."""
        for news in wanted:
            known = self._partitions.get(news.key)
            if known is None:
                self._partitions[news.key] = news
                self.weight += weight_of([news])
            else:
                known.ask_again(news)
        for key in forgotten:
            gone = self._partitions.pop(key, None)
            if gone is not None:
                self.weight -= weight_of([gone])
                gone.wake()

    def update_in_steps(
        self, wanted: Sequence[Wanted], forgotten: Sequence[SessionPartitionKey]
    ) -> Generator[None, None, None]:
        """As `update`, in slices."""
        for first in range(0, len(wanted), _UPDATED_PER_SLICE):
            self.update(wanted[first : first + _UPDATED_PER_SLICE], ())
            yield
        for first in range(0, len(forgotten), _UPDATED_PER_SLICE):
            self.update((), forgotten[first : first + _UPDATED_PER_SLICE])
            yield

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == INT32_MAX else self.epoch + 1

    def to_the_end(self, wanted: Wanted) -> None:
        """Read the partition last next time."""
        moved = self._partitions.pop(wanted.key, None)
        if moved is not None:
            self._partitions[wanted.key] = moved


class Full:
    """The first Fetch of a session: the response has every partition, and the session keeps them."""

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self.session_id = session.session_id
        self.clock: FetchClock | None = session.clock
        self.wanted: Sequence[Wanted] = list(session.wanted)

    def answer(self, outcomes: Answered) -> Answered | KafkaError:
        for wanted, outcome in outcomes:
            wanted.has_news(outcome)
        return outcomes


class Incremental:
    """A later Fetch of a session: the response has only partitions with news."""

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch
        self.session_id = session.session_id
        self.clock: FetchClock | None = session.clock
        self.wanted: Sequence[Wanted] = list(session.wanted)

    def answer(self, outcomes: Answered) -> Answered | KafkaError:
        if self._session.epoch != self._epoch:
            return _BAD_EPOCH  # a later request of the session was faster
        changed = []
        for wanted, outcome in outcomes:
            if wanted.has_news(outcome):
                changed.append((wanted, outcome))
                if isinstance(outcome, Local) and len(outcome.records) > 0:
                    self._session.to_the_end(wanted)
        return changed


FetchContext = Sessionless | Full | Incremental


class FetchSessions:
    """All sessions of the node, at most `sessions_max`.

    As in Kafka, a new session evicts one that is unused for `eviction_ms`, or that is smaller and old enough.
    If there is none, the client gets no session, and continues with full requests. Two rules more keep one
    address from having all sessions. A client whose address has fewer than half as many sessions as the
    address with most evicts the least used session of that one. And no session of an address with fewer is
    evicted for being small.

    The partitions in all sessions are bounded, too. An address may have as many as are left for the others;
    sessions unused for `eviction_ms` are evicted first. A session that would exceed the bound is closed, and
    its client gets an error.

    evicted  sessions that were evicted
    refused  clients that got no session, or whose session exceeded the bound
    """

    def __init__(self, *, sessions_max: int, eviction_ms: int, rng: Rng) -> None:
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._by_address: Owners[int] = Owners()
        self._weights: Owners[int] = Owners()
        self.evicted = self.refused = 0
        self._sessions_max = sessions_max
        self._eviction_ms = eviction_ms
        self._rng = rng

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """The number of partitions in all sessions."""
        return self._weights.size

    def context(
        self,
        session_id: int,
        session_epoch: int,
        wanted: Sequence[Wanted],
        forgotten: Sequence[SessionPartitionKey],
        *,
        uses_ids: bool,
        now_ms: int,
        owner: Owner = NOBODY,
    ) -> FetchContext | KafkaError:
        """Return the session context of a request.

        Or an error of the whole request: FETCH_SESSION_ID_NOT_FOUND, also for a session of another owner,
        INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(session_id, owner)
            if session_epoch == FINAL_EPOCH or not wanted:
                return Sessionless(wanted)
            new = FetchSession(NO_SESSION, wanted, uses_ids=uses_ids, now_ms=now_ms, owner=owner)
            return self._begun(new, wanted, now_ms)
        session = self._go_on(session_id, session_epoch, uses_ids, now_ms, owner)
        if isinstance(session, KafkaError):
            return session
        weight = session.weight
        session.update(wanted, forgotten)
        return self._changed(session, weight, now_ms)

    def context_in_steps(
        self,
        session_id: int,
        session_epoch: int,
        wanted: Sequence[Wanted],
        forgotten: Sequence[SessionPartitionKey],
        *,
        uses_ids: bool,
        now_ms: int,
        owner: Owner = NOBODY,
    ) -> Generator[None, None, FetchContext | KafkaError]:
        """As `context`, in slices.

        A new session exists once all its partitions are in it. While a request changes a session, no other
        may use it. If the client disconnects meanwhile, the session is closed.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(session_id, owner)
            if session_epoch == FINAL_EPOCH or not wanted:
                return Sessionless(wanted)
            new = FetchSession(NO_SESSION, (), uses_ids=uses_ids, now_ms=now_ms, owner=owner)
            yield from new.update_in_steps(wanted, ())
            return self._begun(new, wanted, now_ms)
        session = self._go_on(session_id, session_epoch, uses_ids, now_ms, owner)
        if isinstance(session, KafkaError):
            return session
        weight = session.weight
        session.is_changing = True
        try:
            yield from session.update_in_steps(wanted, forgotten)
            session.is_changing = False
        finally:
            if session.is_changing and self._has(session):
                self._drop(session)
        return self._changed(session, weight, now_ms) if self._has(session) else _NOT_FOUND

    def _has(self, session: FetchSession) -> bool:
        return self._sessions.get(session.session_id) is session

    def _end(self, session_id: int, owner: Owner) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session.owner == owner:
            self._drop(session)

    def _begun(self, session: FetchSession, wanted: Sequence[Wanted], now_ms: int) -> FetchContext:
        return Full(session) if self._add(session, now_ms) else Sessionless(wanted)

    def _go_on(
        self, session_id: int, session_epoch: int, uses_ids: bool, now_ms: int, owner: Owner
    ) -> FetchSession | KafkaError:
        """Find the session of an incremental request, and check its epoch."""
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            return _NOT_FOUND
        if session.epoch != session_epoch or session.is_changing:
            return _BAD_EPOCH
        if session.uses_ids != uses_ids:
            return _TOPIC_IDS
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        session.advance()
        return session

    def _changed(
        self, session: FetchSession, weight_before: int, now_ms: int
    ) -> FetchContext | KafkaError:
        if session.weight != weight_before and not self._weigh_again(session, now_ms):
            return _NOT_FOUND
        if not len(session):
            self._drop(session)
            return Sessionless(())
        return Incremental(session)

    def of_one(
        self, session_id: int, session_epoch: int, *, uses_ids: bool, owner: Owner
    ) -> Wanted | None:
        """Return the partition of a session that has one, if the epoch is its next. Changes nothing."""
        session = self._sessions.get(session_id)
        if (
            session is None
            or len(session) != 1
            or session.epoch != session_epoch
            or session.is_changing
            or session.uses_ids != uses_ids
            or session.owner != owner
        ):
            return None
        return next(iter(session.wanted))

    def took_turn(self, session_id: int, now_ms: int) -> None:
        """The Fetch for which `of_one` was called is answered."""
        session = self._sessions.pop(session_id)
        session.used_ms = now_ms
        session.advance()
        self._sessions[session_id] = session

    def _add(self, session: FetchSession, now_ms: int) -> bool:
        """Add a new session; False: the bounds do not allow it."""
        address = session.owner[1]
        if not (
            self._has_room_for(session.weight, address, now_ms)
            and self._has_place(len(session), address, now_ms)
        ):
            self.refused += 1
            return False
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = 1 + self._rng.below(INT32_MAX)
        session.session_id = session_id
        self._sessions[session_id] = session
        self._by_address.add(address, session_id)
        self._weights.add(address, session_id, session.weight)
        return True

    def _drop(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self._by_address.remove(session.owner[1], session.session_id)
        self._weights.remove(session.owner[1], session.session_id)

    def _push_out(self, session: FetchSession) -> None:
        self.evicted += 1
        self._drop(session)

    def _weigh_again(self, session: FetchSession, now_ms: int) -> bool:
        """Count the partitions of a changed session; False: they were too many, and it was closed."""
        address, session_id = session.owner[1], session.session_id
        is_more = session.weight > self._weights.remove(address, session_id)
        fits = not is_more or self._has_room_for(session.weight, address, now_ms)
        self._weights.add(address, session_id, session.weight)
        if not fits:
            self.refused += 1
            self._drop(session)
        return fits

    def _has_room_for(self, weight: int, address: str, now_ms: int) -> bool:
        """Whether an address may have `weight` more partitions, perhaps after evictions."""
        if weight > SESSION_PARTITIONS_MAX:
            return False
        weights = self._weights
        while weights.size_of(address) + 2 * weight > ALL_SESSION_PARTITIONS_MAX - weights.size:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms <= self._eviction_ms:
                return False
            self._push_out(oldest)
        return True

    def _has_place(self, size: int, address: str, now_ms: int) -> bool:
        """Whether a session of `size` partitions may be added, perhaps after an eviction."""
        if len(self._sessions) < self._sessions_max:
            return True
        if not self._sessions:
            return False
        gone = self._to_push_out(size, self._by_address.size_of(address), now_ms)
        if gone is not None:
            self._push_out(gone)
        return gone is not None

    def _to_push_out(self, size: int, has: int, now_ms: int) -> FetchSession | None:
        """Return the session to evict for one of `size` partitions; its address has `has` sessions."""
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > self._eviction_ms:
            return oldest
        smaller = (
            s
            for s in self._sessions.values()
            if len(s) < size
            and now_ms - s.created_ms > self._eviction_ms
            and self._by_address.size_of(s.owner[1]) >= has
        )
        found = min(smaller, key=len, default=None)
        largest = self._by_address.largest()
        if found is not None or largest is None or 2 * has >= self._by_address.size_of(largest):
            return found
        return next(s for s in self._sessions.values() if s.owner[1] == largest)


_NOT_FOUND = KafkaError(Code.FETCH_SESSION_ID_NOT_FOUND, "no such fetch session")
_BAD_EPOCH = KafkaError(Code.INVALID_FETCH_SESSION_EPOCH, "not the next epoch of the session")
_TOPIC_IDS = KafkaError(
    Code.FETCH_SESSION_TOPIC_ID_ERROR, "the session began with topic names, or with ids"
)
