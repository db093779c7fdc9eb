"""Incremental Fetch: what a client asked for before need not be asked, nor answered, again. PURE.

A session remembers the partitions of one client and what it was last told about each. An incremental
request names only changes; its answer only partitions with news. Partitions that brought records go
to the end of the order, so that a small answer starves nobody. Of a follower's session, partitions in
which nothing happens rest: its next Fetch neither reads them nor notes anything of them but the time.
Source: KIP-227; spec C14 (70/71/106).
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
# A millisecond.
_UPDATED_PER_SLICE = 1_000

Key = tuple[str | Uuid, int]
# Principal and address of who began a session: nobody else may go on with it, or end it. Kafka 4.3.1 serves
# whoever names its id and epoch.
Owner = tuple[str, str]
NOBODY: Owner = ("", "")


class Wanted:
    """One partition of a Fetch: what is asked, and in a session what was last told.

    topic, topic_id  one of them: names up to version 12, ids from 13 on (the other is None / zero)
    max_bytes        of this partition; the first batch may be larger (KIP-74)
    log_start_offset a follower's own; -1 of a consumer
    resting          the follower that rests in it, as our partition knows it; None: it is to be read
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
        self.hosted: Partition | KafkaError | None = None  # looked up by each Fetch that reads it
        self.resting: ReplicaState | None = None

    @property
    def key(self) -> Key:
        return (self.topic_id if self.topic is None else self.topic, self.index)

    def ask_again(self, news: "Wanted") -> None:
        """Take the position of a later request; what was told stays.

        In another leader epoch a follower has not taken what it was told in the one before.
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
        """Rest in a follower's session, where it was told that there is nothing more for it.

        Since it was read for, in a slice before this one, the high watermark may have risen: then it was not.
        """
        partition = self.hosted
        if (
            isinstance(partition, Partition)
            and self.sent_high_watermark == partition.log.high_watermark
        ):
            self.resting = partition.rest(replica_id, self.fetch_offset, clock)

    def still_rests(self, clock: FetchClock) -> bool:
        """Whether to read it would be to tell what was told; else it is awake from here on."""
        follower = self.resting
        if follower is None:
            return False
        if follower.clock is clock:
            # The high watermark was there when it came to rest, and goes no further than the end.
            log = self.hosted.log  # type: ignore[union-attr]
            if (
                log.log_end_offset == self.fetch_offset
                and log.log_start_offset == self.sent_log_start
            ):
                return True
        self.wake()
        return False

    def wake(self) -> None:
        """It is to be read again. What its last Fetch was counts as noted then."""
        if self.resting is not None:
            self.resting.settle()
            self.resting = None

    def has_news(self, outcome: ReadOutcome) -> bool:
        """Whether an incremental answer must carry `outcome`; notes what is told."""
        if isinstance(outcome, KafkaError):
            self.sent_high_watermark = NO_OFFSET  # tell everything once it is well again
            return True
        if not isinstance(outcome, Local):
            # Whoever truncates knows less afterwards than it was told with that.
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
    """Where the bytes of an answer are counted until it is made: a share of runtime/bounds/answers."""

    def grow(self, size_bytes: int) -> None:
        """The answer holds so many more. ProtocolError: more than one may."""
        ...

    def waits(self) -> None:
        """It holds none any more, for the time being."""
        ...


class FetchAsk:
    """One Fetch request in our terms. Bytes and milliseconds.

    replica_id, replica_epoch  of a follower, its epoch -1 where the protocol has none; -1 for consumers
    session_id, session_epoch  (0, -1): no session (KIP-227); a session is the `owner`'s alone, who asks
    uses_ids                   topics are named by id: version 13 and later
    is_any_replica             of a consumer that may be answered by followers, or sent to one: version 11 on
    rack, listener             where that consumer is, and by what listener it came
    when_gone                  is told what to do if whoever asked hangs up while the request waits
    held                       where bytes are counted that were read and wait for the rest; None: nowhere
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
        forgotten: Sequence[Key] = (),
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
    """As how many they count where all are bounded: one, and more for a name that no topic can have."""
    names = [each.topic for each in partitions]
    return len(names) + sum([len(name) // (TOPIC_NAME_CHARS_MAX + 1) for name in names if name])


class Sessionless:
    """A Fetch that stands for itself: everything asked is answered."""

    session_id = NO_SESSION
    clock: FetchClock | None = None

    def __init__(self, wanted: Sequence[Wanted]) -> None:
        self.wanted: Sequence[Wanted] = wanted

    def answer(self, outcomes: Answered) -> Answered | KafkaError:
        return outcomes


class FetchSession:
    """The partitions of one client, in the order they are served.

    clock        when it fetched, if it follows
    weight       of all its partitions
    is_changing  a request changes it, in steps: nobody else goes on with it
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
        self._partitions: dict[Key, Wanted] = {w.key: w for w in wanted}
        self.weight = weight_of(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def wanted(self) -> Iterable[Wanted]:
        return self._partitions.values()

    def update(self, wanted: Sequence[Wanted], forgotten: Sequence[Key]) -> None:
        """Take the changes of an incremental request."""
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
        self, wanted: Sequence[Wanted], forgotten: Sequence[Key]
    ) -> Generator[None, None, None]:
        """As `update`; yields after some partitions at a time."""
        for first in range(0, len(wanted), _UPDATED_PER_SLICE):
            self.update(wanted[first : first + _UPDATED_PER_SLICE], ())
            yield
        for first in range(0, len(forgotten), _UPDATED_PER_SLICE):
            self.update((), forgotten[first : first + _UPDATED_PER_SLICE])
            yield

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == INT32_MAX else self.epoch + 1

    def to_the_end(self, wanted: Wanted) -> None:
        """Serve it last next time."""
        moved = self._partitions.pop(wanted.key, None)
        if moved is not None:
            self._partitions[wanted.key] = moved


class Full:
    """The first Fetch of a new session: everything is answered, and remembered."""

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
    """A later Fetch of a session: only news is answered."""

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch
        self.session_id = session.session_id
        self.clock: FetchClock | None = session.clock
        self.wanted: Sequence[Wanted] = list(session.wanted)

    def answer(self, outcomes: Answered) -> Answered | KafkaError:
        if self._session.epoch != self._epoch:
            return _BAD_EPOCH  # a later request of the session overtook this one
        told = []
        for wanted, outcome in outcomes:
            if wanted.has_news(outcome):
                told.append((wanted, outcome))
                if isinstance(outcome, Local) and len(outcome.records) > 0:
                    self._session.to_the_end(wanted)
        return told


FetchContext = Sessionless | Full | Incremental


class FetchSessions:
    """All sessions of the node, at most `sessions_max`.

    A new session pushes one out only if that was unused for `eviction_ms`, or is smaller and old
    enough; with nobody to push out the client gets no session and keeps sending full requests. Beyond Kafka's
    rule, so that one address cannot have all: one with less than half as many as the address with most takes
    the place of that one's least used, and nobody pushes out a small one of who has fewer. What sessions
    remember is bounded, too: an address is given as much as is then left for others. What was unused for
    `eviction_ms` makes room for it. A session that would outgrow that is forgotten, and its client hears so.

    evicted  sessions that made room for others
    refused  clients that asked for a session and were given none, or outgrew theirs
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
        """How many partitions they remember."""
        return self._weights.size

    def context(
        self,
        session_id: int,
        session_epoch: int,
        wanted: Sequence[Wanted],
        forgotten: Sequence[Key],
        *,
        uses_ids: bool,
        now_ms: int,
        owner: Owner = NOBODY,
    ) -> FetchContext | KafkaError:
        """Return what this request stands in; FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH
        or FETCH_SESSION_TOPIC_ID_ERROR for the whole request. A session of another owner is not found."""
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
        forgotten: Sequence[Key],
        *,
        uses_ids: bool,
        now_ms: int,
        owner: Owner = NOBODY,
    ) -> Generator[None, None, FetchContext | KafkaError]:
        """Return what `context` does; yields after some partitions at a time.

        A session begins when all of it is there. One that is changed is nobody else's meanwhile; where that
        is not done to its end, as whoever asked has hung up, it is forgotten.
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
        """Find the session of which this is the next request."""
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
        """Return the partition of a session that holds one, if this is its next epoch. Changes nothing."""
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
        """The Fetch that `of_one` was asked for is answered."""
        session = self._sessions.pop(session_id)
        session.used_ms = now_ms
        session.advance()
        self._sessions[session_id] = session

    def _add(self, session: FetchSession, now_ms: int) -> bool:
        """Give a new session its id; False: there is no room for it."""
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
        """Count what it remembers now; False: that is too much, and it was forgotten."""
        address, session_id = session.owner[1], session.session_id
        is_more = session.weight > self._weights.remove(address, session_id)
        fits = not is_more or self._has_room_for(session.weight, address, now_ms)
        self._weights.add(address, session_id, session.weight)
        if not fits:
            self.refused += 1
            self._drop(session)
        return fits

    def _has_room_for(self, weight: int, address: str, now_ms: int) -> bool:
        """Find or make room for so many partitions more of an address."""
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
        """Find or make a place for a session of `size` partitions."""
        if len(self._sessions) < self._sessions_max:
            return True
        if not self._sessions:
            return False
        gone = self._to_push_out(size, self._by_address.size_of(address), now_ms)
        if gone is not None:
            self._push_out(gone)
        return gone is not None

    def _to_push_out(self, size: int, has: int, now_ms: int) -> FetchSession | None:
        """Return whose place a session of `size` partitions takes; its address `has` so many."""
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
