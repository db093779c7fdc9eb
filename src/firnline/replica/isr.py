"""What a leader knows of its followers, and the ISR changes that it proposes. PURE.

A leader learns from each Fetch which records a follower has and which incarnation of the broker it is. It
never changes its ISR itself: it proposes a change to the controller. Until that is decided, the members of
both ISRs, old and proposed, count for the high watermark (the maximal ISR). Invariants:

  R6  the high watermark passes only what every member of the maximal ISR has
  R7  only a definite answer or newer metadata ends a proposal, never the passing of time
  R8  a follower is proposed only if its fetch offset in this leader epoch has reached the high watermark and
      the start offset of the leader epoch

Source: KIP-497, KIP-841, KIP-903; spec I12-I21; rel-R1, rel-R6 to rel-R8.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from firnline.base.errors import Code
from firnline.base.ids import NO_BROKER_EPOCH, NO_OFFSET
from firnline.base.replicas import IsrChange, IsrMember

# Earlier than any time.
_NEVER_MS = -(1 << 62)
# The controller refused the change for good: the old ISR stays (I19).
_REFUSED = (Code.INELIGIBLE_REPLICA, Code.OPERATION_NOT_ATTEMPTED)
# Only newer metadata can tell the state of the partition (I19).
_METADATA_DECIDES = (
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_TOPIC_ID,
    Code.FENCED_LEADER_EPOCH,
    Code.INVALID_UPDATE_VERSION,
    Code.INVALID_REQUEST,
    Code.NEW_LEADER_ELECTED,
)


class BrokerFact(NamedTuple):
    """A broker in the committed image. `is_active`: neither fenced nor in controlled shutdown."""

    epoch: int
    is_active: bool


class Brokers(Protocol):
    """What a leader needs to know of the other brokers.

    lag_max_ms  replica.lag.time.max.ms
    """

    lag_max_ms: int

    def fact(self, broker_id: int) -> BrokerFact | None:
        """Return the state of a broker in the image, or None if it is unknown."""
        ...

    @property
    def own_epoch(self) -> int:
        """The broker epoch of this broker, or -1."""
        ...


class NoBrokers:
    """No other brokers: for a node that is alone, and for tests."""

    lag_max_ms = 30_000
    own_epoch = NO_BROKER_EPOCH

    def fact(self, broker_id: int) -> BrokerFact | None:
        return None


NO_BROKERS: Brokers = NoBrokers()


class FetchClock:
    """The time of the last Fetch in a follower's fetch session. It counts for every resting partition in it.

    A partition rests while its follower has every record, every record is committed, and the follower knows
    the high watermark. Its Fetches would then change only the time, which is kept here, once per session.
    """

    __slots__ = ("_broker_epoch", "_brokers", "_replica_id", "ms")

    def __init__(self) -> None:
        self.ms = _NEVER_MS
        self._replica_id = -1
        self._broker_epoch = NO_BROKER_EPOCH
        self._brokers = NO_BROKERS

    def fetched(self, replica_id: int, broker_epoch: int, now_ms: int) -> None:
        """Note a Fetch. Partitions that rest no more were settled before."""
        self._replica_id, self._broker_epoch, self.ms = replica_id, broker_epoch, now_ms

    def holds(self, replica_id: int, broker_epoch: int) -> bool:
        """Whether a Fetch is of the same incarnation as the last, and that is the newest known (I14)."""
        if (replica_id, broker_epoch) != (self._replica_id, self._broker_epoch):
            return False
        return not is_stale(self._brokers, replica_id, broker_epoch)

    def begin_rest(self, follower: "ReplicaState", brokers: Brokers) -> None:
        """Let `follower` rest: until it is settled, each Fetch of the session counts for it."""
        self._brokers = brokers
        follower.clock = self


class ReplicaState:
    """The state of one follower, from its Fetches in the present leader epoch (I13); offsets are -1 before.

    end_offset         its fetch offset: it has every record below. It may fall, for it may truncate, and what
                       it claims is not checked: the high watermark never follows it beyond our own log
    log_start_offset   its log start offset. The lowest of all is the low watermark of DeleteRecords
    leader_end_offset  our log end offset at its last Fetch; never falls within the epoch. A follower that
                       reaches it was caught up at that Fetch, however much was appended since
    fetched_ms         the time of its last Fetch
    broker_epoch       of the incarnation that fetched: only that one may join the ISR (I15, I17). None before
                       its first Fetch; -1 if its protocol version has none
    clock              of the session in which it rests, and which has the time of its last Fetch; None if it
                       does not rest
    _caught_up_ms      when it last had every record, as far as known without `clock`; never falls within the
                       epoch. It leaves the ISR when that is longer ago than replica.lag.time.max.ms (I20)
    """

    __slots__ = (
        "_caught_up_ms",
        "broker_epoch",
        "broker_id",
        "clock",
        "end_offset",
        "fetched_ms",
        "leader_end_offset",
        "log_start_offset",
    )

    broker_epoch: int | None

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.clock: FetchClock | None = None
        self.begin(is_in_sync=False, is_new_leader=True, now_ms=0)

    def begin(self, *, is_in_sync: bool, is_new_leader: bool, now_ms: int) -> None:
        """Reset for a new leader epoch: the follower may have truncated what it had.

        A member of the ISR counts as caught up now, and so has replica.lag.time.max.ms to fetch.
        """
        self.log_start_offset = NO_OFFSET
        self.end_offset = NO_OFFSET
        self.leader_end_offset = NO_OFFSET
        self.fetched_ms = _NEVER_MS
        self._caught_up_ms = now_ms if is_in_sync else _NEVER_MS
        if is_new_leader:
            self.broker_epoch = None

    @property
    def caught_up_ms(self) -> int:
        """The latest time at which it is known to have had every record of the leader."""
        clock = self.clock
        return self._caught_up_ms if clock is None else max(self._caught_up_ms, clock.ms)

    def settle(self) -> None:
        """End the rest: it had every record when its session last fetched."""
        clock = self.clock
        if clock is not None:
            self._caught_up_ms = max(self._caught_up_ms, clock.ms)
            self.clock = None

    def fetched(
        self,
        fetch_offset: int,
        *,
        log_start_offset: int,
        leader_end_offset: int,
        broker_epoch: int,
        now_ms: int,
    ) -> None:
        """Note one Fetch: the follower has every record below `fetch_offset`."""
        self.settle()
        if fetch_offset >= leader_end_offset:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
        elif self.leader_end_offset != NO_OFFSET and fetch_offset >= self.leader_end_offset:
            # It had every record at its previous Fetch; new ones arrived since, as in a busy partition.
            self._caught_up_ms = max(self._caught_up_ms, self.fetched_ms)
        self.end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_offset = max(self.leader_end_offset, leader_end_offset)
        self.fetched_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end_offset: int, *, lag_max_ms: int, now_ms: int) -> bool:
        """Whether it has every record, or had every record within the allowed lag."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_max_ms

    def is_eligible(self, fact: BrokerFact | None) -> bool:
        """Whether the incarnation that fetched may join an ISR, by our image (I15)."""
        if fact is None or not fact.is_active or self.broker_epoch is None:
            return False
        return self.broker_epoch in (NO_BROKER_EPOCH, fact.epoch)


def lag_text(follower: ReplicaState, *, lag_max_ms: int, now_ms: int) -> str | None:
    """Return how a follower fell behind; None if it did not."""
    clock = follower.clock
    fetched_ms = follower.fetched_ms if clock is None else max(follower.fetched_ms, clock.ms)
    if fetched_ms == _NEVER_MS:
        return "no fetch in this leader epoch"
    if now_ms - fetched_ms > lag_max_ms:
        return f"no fetch for {(now_ms - fetched_ms) // 1000} s"
    if now_ms - follower.caught_up_ms > lag_max_ms:
        return f"not caught up for {(now_ms - follower.caught_up_ms) // 1000} s"
    return None


def proposal(
    members: Sequence[int],
    followers: dict[int, ReplicaState],
    *,
    node_id: int,
    own_epoch: int,
) -> tuple[IsrMember, ...]:
    """Return `members` with their known broker epochs (I17)."""
    found: list[IsrMember] = []
    for broker_id in sorted(members):
        if broker_id == node_id:
            found.append(IsrMember(broker_id, own_epoch))
            continue
        follower = followers.get(broker_id)
        epoch = None if follower is None else follower.broker_epoch
        found.append(IsrMember(broker_id, NO_BROKER_EPOCH if epoch is None else epoch))
    return tuple(found)


def assert_maximal(
    isr: Sequence[int], maximal_isr: Sequence[int], proposed: IsrChange | None
) -> None:
    """Assert, at each change of them, that every replica counts that may be in the committed ISR (R6, R7)."""
    assert all(each in maximal_isr for each in isr), "the maximal ISR holds all of the ISR (R6)"
    assert proposed is None or all(each in maximal_isr for each, _ in proposed.new_isr), (
        "a proposed member counts until the proposal is decided (R7)"
    )


def assert_known(
    maximal_isr: Sequence[int], followers: dict[int, ReplicaState], node_id: int
) -> None:
    """Assert that a leader has the state of each member: without it, none would hold the high watermark."""
    assert all(each in followers for each in maximal_isr if each != node_id), (
        "a leader knows how far each member of the maximal ISR is (R6)"
    )


def assert_committed(
    end_offset: int, maximal_isr: Sequence[int], followers: dict[int, ReplicaState]
) -> None:
    """Assert R6 for a new high watermark. Skips a member that only the controller's answer names."""
    known = (followers.get(broker_id) for broker_id in maximal_isr)
    assert all(each is None or each.end_offset >= end_offset for each in known), (
        "each member of the maximal ISR has what is committed (R6)"
    )


def assert_may_join(
    members: Sequence[int],
    isr: Sequence[int],
    followers: dict[int, ReplicaState],
    needed_offset: int,
) -> None:
    """Assert R8 for a proposal. `needed_offset`: what a member that is not in `isr` must have fetched."""
    new = (followers[broker_id] for broker_id in members if broker_id not in isr)
    assert all(each.end_offset >= needed_offset for each in new), (
        "a replica that joins has every committed record, in this leader epoch (R8)"
    )


def is_stale(brokers: Brokers, replica_id: int, broker_epoch: int) -> bool:
    """Whether a newer incarnation of the broker than the sender is known."""
    fact = brokers.fact(replica_id)
    return broker_epoch != NO_BROKER_EPOCH and fact is not None and fact.epoch > broker_epoch


def lowest_start(own_start: int, followers: Iterable["ReplicaState"], brokers: Brokers) -> int:
    """Return the lowest log start offset of us and all active followers; -1 while one is unknown."""
    lowest = own_start
    for follower in followers:
        fact = brokers.fact(follower.broker_id)
        if fact is not None and fact.is_active:
            lowest = min(lowest, follower.log_start_offset)
    return lowest


def is_refused(code: Code) -> bool:
    """Whether the controller definitely did not make the change (I19)."""
    return code in _REFUSED


def metadata_decides(code: Code) -> bool:
    """Whether a retry is useless and only newer metadata tells the state (I19)."""
    return code in _METADATA_DECIDES
