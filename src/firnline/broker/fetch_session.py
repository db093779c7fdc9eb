"""Fetch sessions: a Fetch request and its response contain only what changed. PURE.

A session remembers the partitions of one client and what the last response said of each. A request is one of
three: a sessionless Fetch; a full Fetch, which may begin a session and gets every partition in its response;
or an incremental Fetch, which names only changed positions and gets only changed partitions. Each incremental
request has the next epoch of the session: a lost or repeated one is INVALID_FETCH_SESSION_EPOCH, and the
client begins anew.

A partition that returned records goes to the end of the order, so that a small byte limit starves none. In a
follower's session an idle partition rests: the next Fetch does not read it, and only the session's clock
records that the follower has fetched. Source: KIP-227; spec C14 (70/71/106).
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
# Some millisecond of work.
_UPDATED_PER_SLICE = 1_000

SessionPartitionKey = tuple[str | Uuid, int]
# Principal and address of the client that began a session. Only that client may continue or end it. Kafka
# 4.3.1 accepts any client that knows its id and epoch.
Owner = tuple[str, str]
NOBODY: Owner = ("", "")


class Wanted:
    """One partition of a Fetch: its position, and in a session what the last response said.

    topic, topic_id  one of them: names up to version 12, ids from 13 on (the other is None / zero)
    max_bytes        of this partition; the first batch may be larger (KIP-74)
    log_start_offset a follower's own; -1 for a consumer
    resting          our partition's state of the follower that rests here; None: the partition must be read
    sent_*           in the last response; NO_OFFSET: the next response contains the partition
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
        self.hosted: Partition | KafkaError | None = None  # set by each Fetch that reads it
        self.resting: ReplicaState | None = None

    @property
    def key(self) -> SessionPartitionKey:
        return (self.topic_id if self.topic is None else self.topic, self.index)

    def update(self, changed: "Wanted") -> None:
        """Take the position of a later request. What the last response said stays.

        In a new leader epoch the follower may not have applied the high watermark of the old one: send it
        again.
        """
        self.wake()
        if changed.leader_epoch != self.leader_epoch:
            self.sent_high_watermark = NO_OFFSET
        self.fetch_offset = changed.fetch_offset
        self.max_bytes = changed.max_bytes
        self.leader_epoch = changed.leader_epoch
        self.last_fetched_epoch = changed.last_fetched_epoch
        self.log_start_offset = changed.log_start_offset

    def rest(self, replica_id: int, clock: FetchClock) -> None:
        """Let the partition rest: the follower has received everything there is.

        The high watermark may have risen since an earlier slice read the partition. Then it does not rest.
        """
        partition = self.hosted
        if (
            isinstance(partition, Partition)
            and self.sent_high_watermark == partition.log.high_watermark
        ):
            self.resting = partition.rest(replica_id, self.fetch_offset, clock)

    def still_rests(self, clock: FetchClock) -> bool:
        """Whether reading it would find no change. If not, it stops resting."""
        follower = self.resting
        if follower is None:
            return False
        if follower.clock is clock:
            # The high watermark was at the log end offset when the rest began, and cannot pass it.
            log = self.hosted.log  # type: ignore[union-attr]
            if (
                log.log_end_offset == self.fetch_offset
                and log.log_start_offset == self.sent_log_start
            ):
                return True
        self.wake()
        return False

    def wake(self) -> None:
        """End the rest: the next Fetch reads the partition. Records the follower's last Fetch first."""
        if self.resting is not None:
            self.resting.settle()
            self.resting = None

    def update_sent(self, outcome: ReadOutcome) -> bool:
        """Remember what the response says. Returns whether an incremental response must contain it."""
        if isinstance(outcome, KafkaError):
            self.sent_high_watermark = NO_OFFSET  # send everything when the error is over
            return True
        if not isinstance(outcome, Local):
            # A follower that truncates loses what the last response told it.
            self.sent_high_watermark = NO_OFFSET
            return True
        is_changed = (
            len(outcome.records) > 0
            or outcome.high_watermark != self.sent_high_watermark
            or outcome.log_start_offset != self.sent_log_start
        )
        self.sent_high_watermark = outcome.high_watermark
        self.sent_log_start = outcome.log_start_offset
        return is_changed


WhenGone = Callable[[Callable[[int], Effects]], None]


class Held(Protocol):
    """Counts the bytes of an answer until it is made: a share of runtime/bounds/answers."""

    def grow(self, size_bytes: int) -> None:
        """Add bytes that the answer holds. ProtocolError: that is above the limit of one answer."""
        ...

    def waits(self) -> None:
        """The answer holds no bytes while its request waits."""
        ...

    def reserve(self, size_bytes: int) -> bool:
        """Set bytes aside for records that a thread is to read; False: there is no room for them now."""
        ...

    def release(self, size_bytes: int) -> None:
        """The records have come, or nobody waits for them."""
        ...


class ReservedMemory:
    """The memory that one Fetch has reserved for records of the tier that it waits for (decision 0026)."""

    __slots__ = ("_held", "_reserved_bytes")

    def __init__(self, held: Held | None) -> None:
        self._held = held
        self._reserved_bytes = 0

    def reserve(self, size_bytes: int) -> bool:
        """Reserve memory for one read; False: there is none now."""
        if self._held is None:
            return True
        if not self._held.reserve(size_bytes):
            return False
        self._reserved_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """A read has ended."""
        self._reserved_bytes -= size_bytes
        if size_bytes and self._held is not None:
            self._held.release(size_bytes)

    def release_all(self) -> None:
        """Nobody waits for the reads that are left."""
        self.release(self._reserved_bytes)


class FetchAsk:
    """One Fetch request. Sizes are in bytes, times in milliseconds.

    replica_id, replica_epoch  of a follower, the epoch -1 before version 15; -1 for consumers
    session_id, session_epoch  (0, -1): no session (KIP-227)
    owner                      the client; it can use only its own sessions
    uses_ids                   topics are named by id: version 13 and later
    is_any_replica             the consumer can read from followers: version 11 and later
    rack, listener             the consumer's rack, and the listener of its connection
    when_gone                  registers a callback for a client that disconnects while the request waits
    held                       counts bytes that were read and not yet sent; None: they are not counted
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
    """What partitions count towards the limits: one each, and more for a name too long for a topic."""
    names = [each.topic for each in partitions]
    return len(names) + sum([len(name) // (TOPIC_NAME_CHARS_MAX + 1) for name in names if name])


class Sessionless:
    """A Fetch without a session: the response contains every partition."""

    session_id = NO_SESSION
    clock: FetchClock | None = None

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self.wanted: Sequence[Wanted] = wanted

    def answer(self, outcomes: Answered) -> Answered | KafkaError:
        return outcomes


class FetchSession:
    """The partitions of one client, in the order they are served.

    clock        a follower's last Fetch
    weight       of all its partitions: see `weight_of`
    is_changing  a request is changing it in steps; other requests are refused
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
        for changed in wanted:
            known = self._partitions.get(changed.key)
            if known is None:
                self._partitions[changed.key] = changed
                self.weight += weight_of([changed])
            else:
                known.update(changed)
        for key in forgotten:
            gone = self._partitions.pop(key, None)
            if gone is not None:
                self.weight -= weight_of([gone])
                gone.wake()

    def update_in_steps(
        self, wanted: Sequence[Wanted], forgotten: Sequence[SessionPartitionKey]
    ) -> Generator[None, None, None]:
        """Do the same as `update`; yields after every slice of partitions."""
        for first in range(0, len(wanted), _UPDATED_PER_SLICE):
            self.update(wanted[first : first + _UPDATED_PER_SLICE], ())
            yield
        for first in range(0, len(forgotten), _UPDATED_PER_SLICE):
            self.update((), forgotten[first : first + _UPDATED_PER_SLICE])
            yield

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == INT32_MAX else self.epoch + 1

    def move_to_end(self, wanted: Wanted) -> None:
        """Serve the partition last in the next Fetch."""
        moved = self._partitions.pop(wanted.key, None)
        if moved is not None:
            self._partitions[wanted.key] = moved


class Full:
    """The first Fetch of a new session: the response contains every partition."""

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self.session_id = session.session_id
        self.clock: FetchClock | None = session.clock
        self.wanted: Sequence[Wanted] = list(session.wanted)

    def answer(self, outcomes: Answered) -> Answered | KafkaError:
        for wanted, outcome in outcomes:
            wanted.update_sent(outcome)
        return outcomes


class Incremental:
    """A later Fetch of a session: the response contains only changed partitions."""

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch
        self.session_id = session.session_id
        self.clock: FetchClock | None = session.clock
        self.wanted: Sequence[Wanted] = list(session.wanted)

    def answer(self, outcomes: Answered) -> Answered | KafkaError:
        if self._session.epoch != self._epoch:
            return _BAD_EPOCH  # a later request of the session overtook this one
        included = []
        for wanted, outcome in outcomes:
            if wanted.update_sent(outcome):
                included.append((wanted, outcome))
                if isinstance(outcome, Local) and len(outcome.records) > 0:
                    self._session.move_to_end(wanted)
        return included


FetchContext = Sessionless | Full | Incremental


class FetchSessions:
    """All sessions of the node, at most `sessions_max`.

    A new session evicts another only if that was unused for `eviction_ms`, or is smaller and older than that.
    If none can be evicted, the client gets no session and keeps sending full requests.

    Two rules go beyond Kafka, so that one address cannot have all sessions. An address with less than half as
    many sessions as the address with the most evicts the least recently used one of that address. And a
    smaller session is only evicted if its address has no fewer sessions than the new one's.

    The remembered partitions are limited as well: an address gets as many as it then leaves to others.
    Sessions unused for `eviction_ms` are evicted to make room. A session that grows beyond the limit is
    dropped, and its client gets FETCH_SESSION_ID_NOT_FOUND.

    evicted  sessions that made room for others
    refused  requests that got no session, or whose session grew beyond the limit
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
        """The number of partitions in all sessions, as `weight_of` counts them."""
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
        """Return the context of a request, or an error of the whole request.

        The errors are FETCH_SESSION_ID_NOT_FOUND, also for a session of another owner,
        INVALID_FETCH_SESSION_EPOCH and FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(session_id, owner)
            if session_epoch == FINAL_EPOCH or not wanted:
                return Sessionless(wanted)
            new = FetchSession(NO_SESSION, wanted, uses_ids=uses_ids, now_ms=now_ms, owner=owner)
            return self._begin(new, wanted, now_ms)
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
        """Do the same as `context`; yields after every slice of partitions.

        A new session is registered after the last slice. While a session is changing, other requests of it
        are refused. If the client hangs up before the last slice, the session is dropped.
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(session_id, owner)
            if session_epoch == FINAL_EPOCH or not wanted:
                return Sessionless(wanted)
            new = FetchSession(NO_SESSION, (), uses_ids=uses_ids, now_ms=now_ms, owner=owner)
            yield from new.update_in_steps(wanted, ())
            return self._begin(new, wanted, now_ms)
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

    def _begin(self, session: FetchSession, wanted: Sequence[Wanted], now_ms: int) -> FetchContext:
        return Full(session) if self._add(session, now_ms) else Sessionless(wanted)

    def _go_on(
        self, session_id: int, session_epoch: int, uses_ids: bool, now_ms: int, owner: Owner
    ) -> FetchSession | KafkaError:
        """Find the session whose next request this is, and advance its epoch."""
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
        if session.weight != weight_before and not self._update_weight(session, now_ms):
            return _NOT_FOUND
        if not len(session):
            self._drop(session)
            return Sessionless(())
        return Incremental(session)

    def of_one(
        self, session_id: int, session_epoch: int, *, uses_ids: bool, owner: Owner
    ) -> Wanted | None:
        """Return the only partition of a session, if this is its next epoch. Changes nothing."""
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

    def record_fetch(self, session_id: int, now_ms: int) -> None:
        """Record that the Fetch of the session in `of_one` is answered."""
        session = self._sessions.pop(session_id)
        session.used_ms = now_ms
        session.advance()
        self._sessions[session_id] = session

    def _add(self, session: FetchSession, now_ms: int) -> bool:
        """Register a new session and give it an id. False: there is no room for it."""
        address = session.owner[1]
        if not (
            self._has_room_for(session.weight, address, now_ms)
            and self._has_slot(len(session), address, now_ms)
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

    def _evict(self, session: FetchSession) -> None:
        self.evicted += 1
        self._drop(session)

    def _update_weight(self, session: FetchSession, now_ms: int) -> bool:
        """Update the session's weight. False: it is above the limit, and the session was dropped."""
        address, session_id = session.owner[1], session.session_id
        is_more = session.weight > self._weights.remove(address, session_id)
        fits = not is_more or self._has_room_for(session.weight, address, now_ms)
        self._weights.add(address, session_id, session.weight)
        if not fits:
            self.refused += 1
            self._drop(session)
        return fits

    def _has_room_for(self, weight: int, address: str, now_ms: int) -> bool:
        """Find or make room for `weight` more partitions of an address."""
        if weight > SESSION_PARTITIONS_MAX:
            return False
        weights = self._weights
        while weights.size_of(address) + 2 * weight > ALL_SESSION_PARTITIONS_MAX - weights.size:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms <= self._eviction_ms:
                return False
            self._evict(oldest)
        return True

    def _has_slot(self, size: int, address: str, now_ms: int) -> bool:
        """Find or make room for one more session, of `size` partitions."""
        if len(self._sessions) < self._sessions_max:
            return True
        if not self._sessions:
            return False
        evicted = self._eviction_candidate(size, self._by_address.size_of(address), now_ms)
        if evicted is not None:
            self._evict(evicted)
        return evicted is not None

    def _eviction_candidate(self, size: int, has: int, now_ms: int) -> FetchSession | None:
        """Return the session to evict for one of `size` partitions, whose address `has` so many sessions."""
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
