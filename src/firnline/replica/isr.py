"""What a leader knows of its followers, and how it asks for another in-sync replica set. PURE.

A leader never changes its ISR: it proposes, and until the controller answers it counts with the larger of
the two sets, old and proposed (the maximal ISR). Which incarnation of a broker a follower is, is learnt from
its own Fetch and from nowhere else. Invariants:

  R6  the high watermark passes only what all of the maximal ISR have
  R7  a proposal is given up on a definite answer or on newer metadata, never because time passed
  R8  a follower is proposed only when what it asked for in this leader epoch is at the high watermark or
      beyond, and at the start of the leader epoch or beyond

Source: KIP-497, KIP-841, KIP-903; spec I12-I21; rel-R1, rel-R6 to rel-R8.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from firnline.base.errors import Code
from firnline.base.ids import NO_BROKER_EPOCH, NO_OFFSET
from firnline.base.replicas import IsrMember

# Long before any time there is.
_NEVER_MS = -(1 << 62)
# The controller says that it did not take the change and will not: the old set stands (I19).
_REFUSED = (Code.INELIGIBLE_REPLICA, Code.OPERATION_NOT_ATTEMPTED)
# What became of the partition only newer metadata can tell (I19).
_METADATA_DECIDES = (
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_TOPIC_ID,
    Code.FENCED_LEADER_EPOCH,
    Code.INVALID_UPDATE_VERSION,
    Code.INVALID_REQUEST,
    Code.NEW_LEADER_ELECTED,
)


class BrokerFact(NamedTuple):
    """What the committed image says of a broker. `is_active`: neither fenced nor on its way out."""

    epoch: int
    is_active: bool


class Brokers(Protocol):
    """The other brokers, as a leader has to know them.

    lag_max_ms  replica.lag.time.max.ms
    """

    lag_max_ms: int

    def fact(self, broker_id: int) -> BrokerFact | None:
        """Return what the image says of a broker; None where it knows none."""
        ...

    @property
    def own_epoch(self) -> int:
        """The epoch of this broker's registration, or -1."""
        ...


class NoBrokers:
    """Nobody else is there: for a node of its own, and for the brokers of a test."""

    lag_max_ms = 30_000
    own_epoch = NO_BROKER_EPOCH

    def fact(self, broker_id: int) -> BrokerFact | None:
        return None


NO_BROKERS: Brokers = NoBrokers()


class FetchClock:
    """When a fetch session of a follower fetched last; it counts for each partition that rests in it.

    A partition rests while nothing happens in it: its follower has all, all is committed, and it was told so.
    What its Fetches would say is then the same each time but for the time, which is kept here, once.
    """

    __slots__ = ("_broker_epoch", "_brokers", "_replica_id", "ms")

    def __init__(self) -> None:
        self.ms = _NEVER_MS
        self._replica_id = -1
        self._broker_epoch = NO_BROKER_EPOCH
        self._brokers = NO_BROKERS

    def fetched(self, replica_id: int, broker_epoch: int, now_ms: int) -> None:
        """A Fetch came. What does not rest any more was settled before."""
        self._replica_id, self._broker_epoch, self.ms = replica_id, broker_epoch, now_ms

    def holds(self, replica_id: int, broker_epoch: int) -> bool:
        """Whether a Fetch is of the same incarnation as the last one, and no newer one is known (I14)."""
        if (replica_id, broker_epoch) != (self._replica_id, self._broker_epoch):
            return False
        return not is_stale(self._brokers, replica_id, broker_epoch)

    def begin_rest(self, follower: "ReplicaState", brokers: Brokers) -> None:
        """From here on `follower` fetches whenever the session does, until it is settled."""
        self._brokers = brokers
        follower.clock = self


class ReplicaState:
    """One remote replica, from its Fetches in the present leader epoch (I13). Offsets are -1 before any.

    leader_end_offset  where our log ended when it fetched last
    fetched_ms         when that was
    broker_epoch       None before its first Fetch; -1 where its protocol does not say
    clock              of the session that it rests in; None: each of its Fetches is noted
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
        """A leader epoch begins: what the replica said before may be truncated by now, and does not count.

        A member of the ISR has the time of a lag to say something.
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
        """The latest time at which it is known to have had all that we had then."""
        clock = self.clock
        return self._caught_up_ms if clock is None else max(self._caught_up_ms, clock.ms)

    def settle(self) -> None:
        """Something happens in the partition: note that it had all when its session fetched last."""
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
        """Note one Fetch: it has all below `fetch_offset`."""
        self.settle()
        if fetch_offset >= leader_end_offset:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
        elif self.leader_end_offset != NO_OFFSET and fetch_offset >= self.leader_end_offset:
            # Then it had all; records came meanwhile, as they do on a busy partition.
            self._caught_up_ms = max(self._caught_up_ms, self.fetched_ms)
        self.end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_offset = max(self.leader_end_offset, leader_end_offset)
        self.fetched_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end_offset: int, *, lag_max_ms: int, now_ms: int) -> bool:
        """Whether it has all, or had all a short time ago."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_max_ms

    def is_eligible(self, fact: BrokerFact | None) -> bool:
        """Whether the incarnation that fetched may be in an ISR, as far as our image tells (I15)."""
        if fact is None or not fact.is_active or self.broker_epoch is None:
            return False
        return self.broker_epoch in (NO_BROKER_EPOCH, fact.epoch)


def proposal(
    members: Sequence[int],
    followers: dict[int, ReplicaState],
    *,
    node_id: int,
    own_epoch: int,
) -> tuple[IsrMember, ...]:
    """Return `members` with the epochs that are known of them (I17)."""
    found: list[IsrMember] = []
    for broker_id in sorted(members):
        if broker_id == node_id:
            found.append(IsrMember(broker_id, own_epoch))
            continue
        follower = followers.get(broker_id)
        epoch = None if follower is None else follower.broker_epoch
        found.append(IsrMember(broker_id, NO_BROKER_EPOCH if epoch is None else epoch))
    return tuple(found)


def is_stale(brokers: Brokers, replica_id: int, broker_epoch: int) -> bool:
    """Whether a newer incarnation of a broker is known than the one that asks."""
    fact = brokers.fact(replica_id)
    return broker_epoch != NO_BROKER_EPOCH and fact is not None and fact.epoch > broker_epoch


def lowest_start(own_start: int, followers: Iterable["ReplicaState"], brokers: Brokers) -> int:
    """Return the lowest log start of ours and of the followers that live; -1 while one did not say yet."""
    lowest = own_start
    for follower in followers:
        fact = brokers.fact(follower.broker_id)
        if fact is not None and fact.is_active:
            lowest = min(lowest, follower.log_start_offset)
    return lowest


def is_refused(code: Code) -> bool:
    """Whether the change was definitely not made (I19)."""
    return code in _REFUSED


def metadata_decides(code: Code) -> bool:
    """Whether asking again is of no use, and only newer metadata tells what is (I19)."""
    return code in _METADATA_DECIDES
