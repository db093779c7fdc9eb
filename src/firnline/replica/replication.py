"""All replicas of this node: which leader each follows, and the ISR changes they propose as leaders. PURE.

Each hosted partition is led here, follows its leader, or has no leader; metadata decides which. One fetcher
per leader follows all partitions of that leader (`follower`). A follower's Fetch, or the periodic check, may
make a partition propose an ISR change, which goes to the controller from here (`alter`). Source: KIP-497,
KIP-595, KIP-903; spec I18-I24.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from firnline.base.background import Background, SlicedTask
from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import PartitionKey, TopicPartition
from firnline.base.log_lines.storage import ISR_CHANGE_UNANSWERED
from firnline.base.replicas import EpochEnd, FetchReply, LeaderFetch, LeaderPort, Position
from firnline.replica.alter import AlterPartitions, AskController, IsrCounters
from firnline.replica.directories import DirectoryAssignments
from firnline.replica.follower import Fetcher
from firnline.replica.isr import Brokers
from firnline.replica.partition import Partition
from firnline.replica.sole_replicas import SoleReplicas
from firnline.replica.tier_start import Tier

_SHRINK_TIMER = ("replica", "shrink")
# Some 3 us each.
_CHECKS_PER_SLICE = 300
NO_LEADER = -1


class ReplicaSettings(NamedTuple):
    """The settings of replication.

    lag_max_ms  replica.lag.time.max.ms
    backoff_ms  replica.fetch.backoff.ms
    """

    lag_max_ms: int
    backoff_ms: int


class Replication:
    """All replicas of a node.

    hosted()            the hosted partitions
    on_storage_failure  called with a partition whose files failed
    assignments         checks the log directory of each replica that metadata updates
    tier                the remote tier, for followers that begin above it; None: no tier
    """

    def __init__(
        self,
        *,
        node_id: int,
        settings: ReplicaSettings,
        brokers: Brokers,
        hosted: Callable[[], Iterable[Partition]],
        leaders: LeaderPort,
        ask_controller: AskController,
        on_storage_failure: Callable[[Partition, int], Effects],
        assignments: DirectoryAssignments,
        tier: Tier | None = None,
    ) -> None:
        self.brokers = brokers
        self._tier = tier
        self._node_id = node_id
        self._settings = settings
        self._hosted = hosted
        self._leaders = leaders
        self._on_storage_failure = on_storage_failure
        self._sole_replicas = SoleReplicas(on_storage_failure)
        self._alter = AlterPartitions(ask_controller, self._sole_replicas.look)
        self._assignments = assignments
        self._fetchers: dict[int, Fetcher] = {}
        self._following: dict[PartitionKey, int] = {}
        # Partitions with unanswered proposals at the last check; those of which we have warned.
        self._unanswered: set[TopicPartition] = set()
        self._warned_of: set[TopicPartition] = set()
        self._looking = Background("isr")
        self._is_stopped = False
        # follower.fetch.last.tiered.offset.enable, which may change at any time.
        self.begins_at_last_tiered = False

    @property
    def isr_counters(self) -> IsrCounters:
        """The results of our proposals."""
        return self._alter.counters

    @property
    def unassigned(self) -> int:
        """The number of replicas whose directory the controller does not know yet."""
        return len(self._assignments)

    def start(self, now_ms: int) -> Effects:
        """Begin to check periodically for followers that fell behind."""
        return [self._look_later(now_ms)]

    def stop(self) -> Effects:
        """Stop all fetchers, and propose nothing more."""
        self._is_stopped = True
        self._alter.stop()
        self._sole_replicas.stop()
        effects: Effects = [CancelTimer(key=_SHRINK_TIMER), *self._assignments.stop()]
        for fetcher in self._fetchers.values():
            effects += fetcher.stop()
        self._fetchers.clear()
        self._following.clear()
        return effects

    # ----------------------------------------------------------------------------------- leading

    def on_follower(self, partition: Partition, now_ms: int) -> Effects:
        """Send the proposal of a partition after a follower's Fetch."""
        return self._alter.propose(partition, now_ms)

    def _look_later(self, now_ms: int) -> SetTimer:
        # As in Kafka: a follower stays in the ISR for at most one and a half times the lag.
        at_ms = now_ms + max(1, self._settings.lag_max_ms // 2)
        return SetTimer(key=_SHRINK_TIMER, at_ms=at_ms, then=self._look)

    def _look(self, now_ms: int) -> Effects:
        return [] if self._is_stopped else self._looking.begin(self._look_at_all(), now_ms)

    def _look_at_all(self) -> SlicedTask:
        now_ms = yield []
        effects: Effects = []
        unanswered: dict[TopicPartition, Partition] = {}
        for count, partition in enumerate(self._hosted(), 1):
            if partition.is_leader and not partition.is_alone:
                had = partition.proposed
                effects += partition.look(now_ms)
                if partition.proposed is not had:
                    effects += self._alter.propose(partition, now_ms)
                if partition.unanswered_proposals:
                    unanswered[partition.topic_partition] = partition
            if count % _CHECKS_PER_SLICE == 0:
                now_ms = yield effects
                effects = []
                if self._is_stopped:
                    return []
        return [*effects, *self._warn_of_unanswered(unanswered), self._look_later(now_ms)]

    def _warn_of_unanswered(self, unanswered: dict[TopicPartition, Partition]) -> Effects:
        """Warn once of partitions that still have unanswered proposals since the last check (rel-R7)."""
        lasting = {place: p for place, p in unanswered.items() if place in self._unanswered}
        self._unanswered = set(unanswered)
        new = [place for place in lasting if place not in self._warned_of]
        self._warned_of = set(lasting)
        if not new:
            return []
        partition = lasting[new[0]]
        joining = sorted(set(partition.maximal_isr) - set(partition.isr))
        more = len(new) - 1 or None
        return [ISR_CHANGE_UNANSWERED(**new[0]._asdict(), more=more, joining=joining)]

    # --------------------------------------------------------------------------------- following

    def on_update(self, partition: Partition, now_ms: int) -> Effects:
        """Follow the leader that new metadata names."""
        if self._is_stopped:
            return []
        key = (partition.topic_id, partition.topic_partition.partition)
        leader_id = partition.leader_id
        if leader_id == self._node_id or partition.is_offline:
            leader_id = NO_LEADER
        effects = self._assignments.look(partition, now_ms)
        if self._following.get(key, NO_LEADER) != leader_id:
            effects += self.on_gone(partition, now_ms)
        if leader_id == NO_LEADER:
            return effects + self._sole_replicas.look(partition, now_ms)
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(
                leader_id,
                self._leaders,
                backoff_ms=self._settings.backoff_ms,
                on_storage_failure=self._on_storage_failure,
                tier=self._tier,
                begins_at_last_tiered=lambda: self.begins_at_last_tiered,
            )
        self._following[key] = leader_id
        fetcher.add(partition)
        return effects + fetcher.go(now_ms)

    def when_repaired(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """See `DirectoryAssignments`."""
        return self._assignments.when_repaired(then, now_ms)

    def on_lost(self, key: PartitionKey, now_ms: int) -> Effects:
        """Report that a replica of this node cannot be served."""
        return self._assignments.lose(key, now_ms)

    def on_gone(self, partition: Partition, now_ms: int) -> Effects:
        """Stop following the partition: its leader changed, or it was removed."""
        key = (partition.topic_id, partition.topic_partition.partition)
        leader_id = self._following.pop(key, NO_LEADER)
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            return []
        fetcher.remove(partition)
        if len(fetcher):
            return []
        # A Fetch to a dead broker may be pending; the fetcher of its next incarnation must not wait for it.
        del self._fetchers[leader_id]
        return fetcher.stop()


_NOBODY = KafkaError(Code.BROKER_NOT_AVAILABLE, "this node has no other brokers")


class _NoLeaders:
    """Reaches no broker: for a node that is alone."""

    def fetch(
        self,
        leader_id: int,
        ask: LeaderFetch,
        then: Callable[[FetchReply | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        return then(_NOBODY, now_ms)

    def list_offset(
        self,
        leader_id: int,
        position: Position,
        which: int,
        then: Callable[[int | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        return then(_NOBODY, now_ms)

    def local_start(
        self,
        leader_id: int,
        position: Position,
        then: Callable[[EpochEnd | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        return then(_NOBODY, now_ms)

    def last_tiered(
        self,
        leader_id: int,
        position: Position,
        then: Callable[[EpochEnd | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        return then(_NOBODY, now_ms)

    def epoch_end(
        self,
        leader_id: int,
        position: Position,
        epoch: int,
        then: Callable[[EpochEnd | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects:
        return then(_NOBODY, now_ms)


NO_LEADERS: LeaderPort = _NoLeaders()
