"""One replica of a partition: its leader epoch, ISR, high watermark and waiters. PURE.

A replica leads, follows, or is offline, as the newest metadata and its disk decide. Only the leader appends.
A follower reports by its fetch offset what it has. The high watermark is the lowest log end offset of the
maximal ISR (`replica/isr`), and of followers about to join; a leader without other replicas commits at once.
The leader proposes ISR changes, one at a time; the controller's answer, or newer metadata, ends a proposal.
An acks=all response never depends on one page cache: with followers, replication makes the record durable;
without, the response waits for an fdatasync (`firnline.acks.fsync`). Invariants:

  R6   the high watermark passes only what every member of the maximal ISR has
  R13  acks=all succeeds only if |ISR| >= `min_isr`, both before the append and when it is committed
  R15  only the leader appends; an older leader epoch is fenced, a newer one is unknown
  P9   a partition whose files failed once serves nothing more in this run

Source: rel-R6 to R8, rel-R13, rel-R15, rel-P9; spec C13, C14, I12-I24, T45.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from firnline.base.counting.traffic import UNHOSTED
from firnline.base.effects import Appended, Effects
from firnline.base.errors import KafkaError, SegmentDamaged, StorageError
from firnline.base.ids import NO_BROKER_EPOCH, NO_EPOCH, NO_OFFSET, TopicPartition, Uuid
from firnline.base.ports import File
from firnline.base.replicas import IsrAnswer, IsrChange
from firnline.base.slices import EMPTY_RECORDS, FileSlice
from firnline.base.units import INT64_MAX
from firnline.formats.transaction_index import AbortedTxn
from firnline.replica.isr import (
    NO_BROKERS,
    Brokers,
    FetchClock,
    ReplicaState,
    assert_committed,
    assert_known,
    assert_maximal,
    assert_may_join,
    is_refused,
    is_stale,
    lowest_start,
    metadata_decides,
    proposal,
)
from firnline.replica.read import (
    FENCED,
    NOT_LEADER,
    OUT_OF_RANGE,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RETIRED,
    STALE_BROKER,
    STORAGE_FAILED,
    TOO_FEW_AFTER,
    TOO_FEW_BEFORE,
    UNKNOWN_EPOCH,
    BelowLocalStart,
    Diverging,
    Local,
    ReadOutcome,
    of_any_replica,
    unread,
)
from firnline.replica.unanswered_proposals import in_another_order, still_possible, widened
from firnline.replica.waiters import FetchWaiters, ProduceWaiters

if TYPE_CHECKING:
    from firnline.log.log import Log

ACKS_ALL = -1
FsyncRule = Literal["auto", "always", "never"]
# More than any Fetch waits for. It stands for an unknown size and makes waiters read again.
_MUCH_BYTES = 1 << 62
_new_tuple = tuple.__new__  # half the cost of the class's constructor


class Partition:
    """One hosted partition.

    log              the records. Only its leader, or the fetcher of its leader epoch, appends to it
    node_id          this broker
    fsync_rule       when a response waits for the disk: firnline.acks.fsync
    brokers          what metadata says of the other brokers
    leader_id        the leader in the newest metadata; -1: none, or the replica was removed
    leader_epoch     never falls (rel-R16): records of an older leader carry an older epoch
    partition_epoch  never falls (rel-R16): the controller accepts a proposal only for its own partition epoch
    replicas         the assignment, preferred leader first
    isr              the ISR that the controller committed, as far as this broker knows
    maximal_isr      the replicas that must have a record before it is committed: `isr`, and those that our
                     unanswered proposals would add (rel-R7). The controller may have added them already
    proposed         the ISR change under way, or None. One at a time (I15): of two with one partition epoch
                     the controller could apply either
    unanswered_proposals  those that brought no answer and that the controller may still apply
    followers        the other replicas and members of the ISR, by id, while this broker leads; else empty
    epoch_start_offset  where this leader epoch begins. No follower below joins: it may truncate (R8)
    is_alone         no other replica counts: an append is committed at once
    is_offline       the files failed; for good in this run (P9). `failed_by` says why, for the operator
    is_damaged       only the files of this replica did: other replicas of the directory are served
    refusal          None exactly while this broker leads and the files are intact; an append checks only this
    ..._waiters      delayed fetches; produce requests until a high watermark; DeleteRecords until a low one
    """

    __slots__ = (
        *("brokers", "deletion_waiters", "epoch_start_offset"),
        "failed_by",
        "fetch_waiters",
        "followers",
        "fsync_rule",
        *("is_alone", "is_damaged", "is_offline"),
        "isr",
        "unanswered_proposals",
        "leader_epoch",
        "leader_id",
        "log",
        "maximal_isr",
        "node_id",
        *("partition_epoch", "produce_waiters", "proposed"),
        "refusal",
        "replicas",
        *("lag", "topic_id", "topic_partition", "traffic"),
    )

    def __init__(
        self, log: "Log", *, node_id: int, fsync_rule: FsyncRule, brokers: Brokers = NO_BROKERS
    ) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id: Uuid = log.topic_id
        self.node_id = node_id
        self.fsync_rule = fsync_rule
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.replicas: Sequence[int] = ()
        self.isr: tuple[int, ...] = ()
        self.maximal_isr: tuple[int, ...] = ()
        self.proposed: IsrChange | None = None
        self.unanswered_proposals: tuple[IsrChange, ...] = ()
        self.followers: dict[int, ReplicaState] = {}
        self.epoch_start_offset = NO_OFFSET
        self.brokers = brokers
        self.is_alone = False
        self.is_offline = self.is_damaged = False
        self.failed_by = ""  # text: the exception would keep the buffers of its frames alive
        self.refusal: KafkaError | None = NOT_LEADER
        self.fetch_waiters = FetchWaiters()
        self.produce_waiters = ProduceWaiters()
        self.deletion_waiters = ProduceWaiters()
        self.traffic = UNHOSTED  # the counters of its topic, from `HostedPartitions.add` on
        self.lag = (
            0  # records that a follower lacked of the leader's high watermark at its last Fetch
        )

    # ----------------------------------------------------------------------------- leadership

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    def update(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        now_ms: int = 0,
    ) -> bool:
        """Apply committed metadata; return whether this broker leads in a new leader epoch now.

        Older metadata changes nothing (rel-R4, rel-R16). Newer metadata ends our proposal. Metadata of the
        same epochs does not: the controller may have applied the proposal meanwhile (rel-R7).
        """
        if leader_epoch < self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = leader_epoch > self.leader_epoch
        is_newer = is_new_epoch or partition_epoch > self.partition_epoch
        was_leader = self.is_leader
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        if is_newer or self.proposed is None:
            self._set_isr(tuple(isr))
        self._set_refusal()
        if leader_id != self.node_id:
            self.followers.clear()
            return False
        self._set_followers()
        if is_new_epoch:
            self._begin_epoch(is_new_leader=not was_leader, now_ms=now_ms)
        assert_known(self.maximal_isr, self.followers, self.node_id)
        self._advance_high_watermark(now_ms)
        return is_new_epoch

    def _set_isr(self, isr: tuple[int, ...]) -> None:
        """Set the committed ISR. No proposal is under way now, except unanswered ones."""
        self._settle_followers()
        self.isr = self.maximal_isr = isr
        self.proposed = None
        if self.unanswered_proposals:
            self._drop_impossible_proposals()
        self.is_alone = len(self.replicas) <= 1 and isr == (self.node_id,)
        self._assert_isr()

    def _assert_isr(self) -> None:
        """Called at each change of the ISR, not at each request."""
        assert_maximal(self.isr, self.maximal_isr, self.proposed)
        assert not self.is_alone or self.maximal_isr == (self.node_id,), "no other replica counts"
        assert not self.is_alone or self.min_isr <= 1, "alone, it commits without a look at R13"

    def _drop_impossible_proposals(self) -> None:
        """Drop those that no controller can apply any more; members of the others count (rel-R7)."""
        self.unanswered_proposals = still_possible(
            self.unanswered_proposals,
            node_id=self.node_id,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            brokers=self.brokers,
        )
        self.maximal_isr = widened(self.isr, self.unanswered_proposals)

    def _set_followers(self) -> None:
        others = dict.fromkeys([*self.replicas, *self.isr])
        others.pop(self.node_id, None)
        known = self.followers
        self.followers = {
            broker_id: known.get(broker_id) or ReplicaState(broker_id) for broker_id in others
        }

    def _begin_epoch(self, *, is_new_leader: bool, now_ms: int) -> None:
        self.epoch_start_offset = self.log.log_end_offset
        self.log.epochs.assign(self.leader_epoch, self.epoch_start_offset)
        for follower in self.followers.values():
            follower.begin(
                is_in_sync=follower.broker_id in self.isr,
                is_new_leader=is_new_leader,
                now_ms=now_ms,
            )

    def go_offline(self, problem: StorageError | None = None) -> None:
        """The files failed, for the reason `problem`: refuse every request from now on (rel-P9)."""
        self.is_damaged |= isinstance(problem, SegmentDamaged)
        self.is_offline, self.failed_by = True, str(problem or self.failed_by)
        self._settle_followers()
        self._set_refusal()

    def retire(self) -> None:
        """The replica leaves this broker: requests that still refer to it fail with NOT_LEADER."""
        self.leader_id = -1
        self._settle_followers()
        self.refusal = RETIRED

    def _settle_followers(self) -> None:
        """End the rest of all followers before a decision, so that their times are current."""
        for follower in self.followers.values():
            follower.settle()

    def _set_refusal(self) -> None:
        if self.is_offline:
            self.refusal = STORAGE_FAILED
        elif self.leader_id != self.node_id:
            self.refusal = NOT_LEADER
        else:
            self.refusal = None

    def check_epoch(self, leader_epoch: int, *, is_any_replica: bool = False) -> KafkaError | None:
        """Check a client's leader epoch (-1: none). As in Kafka, fencing comes before NOT_LEADER.

        is_any_replica  the client accepts a follower's response (KIP-392)
        """
        if leader_epoch != NO_EPOCH and leader_epoch != self.leader_epoch:
            return FENCED if leader_epoch < self.leader_epoch else UNKNOWN_EPOCH
        return of_any_replica(self.refusal, self.log) if is_any_replica else self.refusal

    @property
    def min_isr(self) -> int:
        """The ISR size that acks=all requires: min.insync.replicas, at most the number of replicas."""
        wanted = self.log.config.min_insync_replicas
        return wanted if wanted <= 1 else min(wanted, len(self.replicas))

    # --------------------------------------------------------------------------------- append

    def append(
        self,
        data: bytearray | memoryview,
        acks: int,
        now_ms: int,
        origin: Literal["client", "coordinator"] = "client",
        header: tuple[int, ...] | None = None,
    ) -> Appended | KafkaError:
        """Append as leader (rel-R15). The caller then calls `grown` to answer waiting readers.

        A write error takes the partition offline: KAFKA_STORAGE_ERROR from then on. A full disk fails
        only this append: the log is unchanged, and reads go on (reliability d 85).

        header  the fields of a producer's batch whose shape and CRC are checked
        """
        refusal = self.refusal
        if refusal is not None:
            return refusal
        assert self.leader_id == self.node_id, "only the leader appends (R15)"
        assert not self.is_offline, "files that failed once take no record (P9)"
        log = self.log
        if acks == ACKS_ALL and len(self.isr) < self.min_isr:
            return TOO_FEW_BEFORE
        try:
            if header is None:
                outcome = log.append_as_leader(data, self.leader_epoch, now_ms, origin)
            else:
                outcome = log.append_checked(data, header, self.leader_epoch, now_ms)
        except StorageError as problem:
            self.traffic.append_failed(now_ms)
            if not problem.is_passing:
                self.go_offline(problem)
            return STORAGE_FAILED
        if self.is_alone:
            log.advance_high_watermark(log.log_end_offset)
        elif len(self.maximal_isr) == 1:
            self._advance_high_watermark(now_ms)
        return outcome

    def grown(
        self,
        size_bytes: int,
        stable_before: int,
        high_before: int,
        now_ms: int,
        *,
        end_bytes: int | None = None,
    ) -> Effects:
        """Answer the waiters that have enough, now that `size_bytes` more are below the high watermark.

        stable_before, high_before  the last stable offset and the high watermark before
        end_bytes                   bytes appended to the log; None: `size_bytes`
        """
        log = self.log
        end_bytes = size_bytes if end_bytes is None else end_bytes
        effects: Effects = []
        stable_bytes = 0
        if log.high_watermark == high_before:
            size_bytes = 0
        else:
            if self.produce_waiters:
                effects += self.produce_waiters.passed(log.high_watermark, now_ms)
            if not self.is_alone:
                # The bytes between two offsets would cost a lookup: let the waiters read.
                size_bytes = _MUCH_BYTES
            stable = log.last_stable_offset
            if stable != stable_before:
                stable_bytes = size_bytes if stable_before == high_before else _MUCH_BYTES
        if not self.fetch_waiters.waiting or not (size_bytes or end_bytes):
            return effects
        return effects + self.fetch_waiters.grown(
            size_bytes, stable_bytes=stable_bytes, end_bytes=end_bytes, now_ms=now_ms
        )

    def needs_flush(self, acks: int) -> bool:
        """Whether the response to an append with these `acks` waits for a sync. Call it after the append.

        `firnline.acks.fsync` decides, and the topic's flush.messages.
        """
        if acks == 0:
            return False
        rule = self.fsync_rule
        if rule == "always" or (rule == "auto" and acks == ACKS_ALL and len(self.maximal_isr) == 1):
            return True
        log = self.log
        flush_messages = log.settings.flush_messages
        return (
            flush_messages != INT64_MAX
            and log.log_end_offset - log.recovery_point >= flush_messages
        )

    @property
    def is_sole_replica(self) -> bool:
        """Whether acknowledged records are here alone and must survive a power cut (rel-P4)."""
        return len(self.maximal_isr) == 1 and self.fsync_rule != "never" and self.refusal is None

    @property
    def is_durable(self) -> bool:
        """Whether every record of the log survives a power cut."""
        return self.log.recovery_point >= self.log.log_end_offset

    def note_flushed(self, end_offset: int) -> bool:
        """Note that the log is synced up to `end_offset`; False if that failed, as in a deleted log."""
        try:
            self.log.flushed(end_offset)
        except StorageError as problem:
            self.failed_by = str(problem)
            return False
        return True

    def dirty_files(self) -> Sequence[File]:
        """The files that a flush must sync so that every record survives a power cut."""
        return self.log.dirty_files()

    def is_committed(self, next_offset: int) -> bool:
        """Whether every record below `next_offset` is on all in-sync replicas."""
        return self.log.high_watermark >= next_offset

    def commit_error(self) -> KafkaError | None:
        """The error for an acks=all append although it is committed by now, or None (rel-R13)."""
        if self.refusal is not None:
            return self.refusal
        if len(self.isr) < self.min_isr:
            return TOO_FEW_AFTER
        return None

    # ----------------------------------------------------------------------------- followers

    def follower_refusal(
        self, replica_id: int, *, leader_epoch: int, broker_epoch: int
    ) -> KafkaError | None:
        """The error for a follower's Fetch, or None. A refused Fetch changes no state (I14).

        A late Fetch of a dead incarnation must not count for the new one, which may lack the records.
        """
        refusal = self.check_epoch(leader_epoch)
        if refusal is not None:
            return refusal
        if replica_id not in self.followers:
            # With our leader epoch it may know of a reassignment before we do: let it retry.
            return NOT_LEADER if leader_epoch == NO_EPOCH else UNKNOWN_EPOCH
        return STALE_BROKER if is_stale(self.brokers, replica_id, broker_epoch) else None

    def follower_fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        now_ms: int,
        *,
        broker_epoch: int = NO_BROKER_EPOCH,
        log_start_offset: int = NO_OFFSET,
    ) -> Effects:
        """Record the fetch offset of a follower that was not refused; advance the high watermark (rel-R6).

        Sets `proposed` if the follower may join the ISR now.
        """
        assert replica_id != self.node_id
        follower = self.followers.get(replica_id)
        if self.refusal is not None or follower is None:
            return []
        follower.fetched(
            fetch_offset,
            log_start_offset=log_start_offset,
            leader_end_offset=self.log.log_end_offset,
            broker_epoch=broker_epoch,
            now_ms=now_ms,
        )
        effects: Effects = []
        # The common case: the follower is in sync, and every record is committed.
        if self.log.high_watermark != self.log.log_end_offset or replica_id not in self.isr:
            self._expand(follower)
            effects = self._released(now_ms)
        if self.deletion_waiters:
            effects += self.deletion_waiters.passed(self.low_watermark, now_ms)
        return effects

    def rest(self, replica_id: int, fetch_offset: int, clock: FetchClock) -> ReplicaState | None:
        """Let a follower rest that has every record and knows the high watermark; else return None.

        Its Fetches then change only the time, until this partition or its session settles it.
        """
        log, follower = self.log, self.followers.get(replica_id)
        if (
            follower is None
            or self.refusal is not None
            or self.proposed is not None
            or not fetch_offset == log.high_watermark == log.log_end_offset == follower.end_offset
            or replica_id not in self.isr
        ):
            return None
        clock.begin_rest(follower, self.brokers)
        return follower

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of all live replicas (KIP-107); -1 while one is not known."""
        return lowest_start(self.log.log_start_offset, self.followers.values(), self.brokers)

    def release_all(self, now_ms: int) -> Effects:
        """Call back every waiter: each looks at the partition and decides its response."""
        effects = self.produce_waiters.all_at_once(now_ms)
        effects += self.fetch_waiters.all_at_once(now_ms)
        return effects + self.deletion_waiters.all_at_once(now_ms)

    def _released(self, now_ms: int) -> Effects:
        """Advance the high watermark, and answer the waiters that have enough now."""
        before, stable_before = self.log.high_watermark, self.log.last_stable_offset
        self._advance_high_watermark(now_ms)
        return self.grown(0, stable_before, before, now_ms, end_bytes=0)

    def _expand(self, follower: ReplicaState) -> None:
        """Propose the follower for the ISR if it may join (I15)."""
        broker_id = follower.broker_id
        if self.proposed is not None or broker_id in self.isr:
            return
        if follower.end_offset < max(self.log.high_watermark, self.epoch_start_offset):
            return
        if broker_id in self.replicas and follower.is_eligible(self.brokers.fact(broker_id)):
            self._propose((*self.isr, broker_id))
            self.maximal_isr = tuple(dict.fromkeys((*self.maximal_isr, broker_id)))
            self._assert_isr()

    def look(self, now_ms: int) -> Effects:
        """Check the followers periodically, so that one that fell behind leaves the ISR.

        May set `proposed`.
        """
        if self.unanswered_proposals and self.proposed is None:
            self._drop_impossible_proposals()
            self._assert_isr()
        self.shrink(now_ms)
        if self.unanswered_proposals and self.proposed is None and self.refusal is None:
            self._propose_anew()
        return [] if self.refusal is not None else self._released(now_ms)

    def shrink(self, now_ms: int) -> None:
        """Propose an ISR without followers that lag for replica.lag.time.max.ms (I20)."""
        if self.refusal is not None or self.proposed is not None:
            return
        end, lag_max_ms = self.log.log_end_offset, self.brokers.lag_max_ms
        stay = [
            broker_id
            for broker_id in self.isr
            if broker_id == self.node_id
            or self.followers[broker_id].is_caught_up(end, lag_max_ms=lag_max_ms, now_ms=now_ms)
        ]
        if len(stay) < len(self.isr):
            self._propose(stay)  # a member counts until the controller removed it

    def _propose(self, members: Sequence[int]) -> None:
        assert self.proposed is None, "one proposal at a time (I15)"
        needed_offset = max(self.log.high_watermark, self.epoch_start_offset)
        assert_may_join(members, self.isr, self.followers, needed_offset)
        self._settle_followers()
        self.proposed = IsrChange(
            self.topic_id,
            self.topic_partition.partition,
            self.leader_epoch,
            self.partition_epoch,
            proposal(
                members, self.followers, node_id=self.node_id, own_epoch=self.brokers.own_epoch
            ),
        )

    def _propose_anew(self) -> None:
        """Propose the present ISR: its new partition epoch makes older proposals impossible."""
        self._propose(self.isr)
        assert self.proposed is not None
        self.proposed = in_another_order(self.proposed, self.isr)

    def unanswered(self, change: IsrChange) -> None:
        """Note that `change` brought no answer and will be sent again: the first may be applied (rel-R7)."""
        if self.proposed is change and len(change.new_isr) > len(self.isr):
            self.unanswered_proposals = tuple(dict.fromkeys((*self.unanswered_proposals, change)))

    def altered(
        self, change: IsrChange, outcome: IsrAnswer | KafkaError, now_ms: int
    ) -> Effects | None:
        """Handle the controller's answer to `change`; return None if it must be sent again (I19)."""
        if self.proposed is not change:
            return []  # newer metadata ended it
        if isinstance(outcome, KafkaError):
            if is_refused(outcome.code):
                self._set_isr(self.isr)
                if self.unanswered_proposals and len(change.new_isr) > len(self.isr):
                    self._propose_anew()  # only this request was refused, an earlier one may be applied
                return self._released(now_ms)
            return [] if metadata_decides(outcome.code) else None
        if (
            outcome.leader_epoch != self.leader_epoch
            or outcome.partition_epoch < self.partition_epoch
        ):
            return []  # outdated: newer metadata is on its way
        self.partition_epoch = outcome.partition_epoch
        self._set_isr(outcome.isr)
        return self._released(now_ms)

    def _advance_high_watermark(self, now_ms: int) -> None:
        log = self.log
        if len(self.isr) < self.min_isr:
            return
        log_end = end = log.log_end_offset
        lag_max_ms = self.brokers.lag_max_ms
        for follower in self.followers.values():
            # A follower about to join holds the high watermark, else it would never catch up (I21).
            if follower.end_offset < end and (
                follower.broker_id in self.maximal_isr
                or (
                    follower.is_caught_up(log_end, lag_max_ms=lag_max_ms, now_ms=now_ms)
                    and follower.is_eligible(self.brokers.fact(follower.broker_id))
                )
            ):
                end = follower.end_offset
        if end > log.high_watermark:
            assert_committed(end, self.maximal_isr, self.followers)
            log.advance_high_watermark(end)

    # ----------------------------------------------------------------------------------- read

    def read(
        self,
        fetch_offset: int,
        *,
        max_bytes: int,
        isolation: int,
        leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        min_one_batch: bool = True,
        is_follower: bool = False,
        is_any_replica: bool = False,
    ) -> ReadOutcome:
        """Read for a consumer up to the high watermark, or, with read_committed, the last stable offset.

        A follower reads up to the log end offset.

        max_bytes           soft limit; with `min_one_batch` a larger first batch is returned whole (KIP-74)
        leader_epoch        the client's, or -1; checked as C14 says
        last_fetched_epoch  the epoch of the reader's last record, or -1; may give `Diverging`
        is_any_replica      a follower may serve this too, up to the high watermark it knows (KIP-392)
        """
        if self.refusal is not None or leader_epoch != NO_EPOCH:
            refusal = self.check_epoch(leader_epoch, is_any_replica=is_any_replica)
            if refusal is not None:
                return refusal
        log = self.log
        high_watermark = log.high_watermark
        stable = log.last_stable_offset
        start = log.log_start_offset
        if last_fetched_epoch != NO_EPOCH:
            diverging = self._divergence(last_fetched_epoch, fetch_offset)
            if diverging is not None:
                return diverging
        if fetch_offset < start or fetch_offset > log.log_end_offset:
            return OUT_OF_RANGE
        if fetch_offset < log.local_log_start_offset:
            epoch = log.epochs.epoch_at(fetch_offset)
            return BelowLocalStart(
                fetch_offset, NO_EPOCH if epoch is None else epoch, high_watermark, stable, start
            )
        upto = stable if isolation == READ_COMMITTED else high_watermark
        if is_follower:
            upto, isolation = log.log_end_offset, READ_UNCOMMITTED
        aborted: Sequence[AbortedTxn] | None = () if isolation == READ_COMMITTED else None
        if fetch_offset >= upto:
            return Local(EMPTY_RECORDS, high_watermark, stable, start, aborted)
        try:
            records = log.read(
                fetch_offset,
                max_bytes=max_bytes,
                upto_offset=upto,
                min_one_batch=min_one_batch,
                may_wait=True,
            )
            if isolation == READ_COMMITTED and records:
                aborted = log.aborted_transactions(fetch_offset, upto)
        except StorageError as problem:
            return unread(problem)
        return _new_tuple(Local, (records, high_watermark, stable, start, aborted))

    def read_at_once(
        self, fetch_offset: int, max_bytes: int, leader_epoch: int
    ) -> tuple[FileSlice, int, int, int] | None:
        """The fast path of `read`, for a consumer whose position in the files is cached.

        Returns records, high watermark, last stable offset and log start offset; None: call `read`.
        """
        log = self.log
        high_watermark = log.high_watermark
        if (
            self.refusal is not None
            or (leader_epoch != NO_EPOCH and leader_epoch != self.leader_epoch)
            or not log.local_log_start_offset <= fetch_offset < high_watermark
        ):
            return None
        found = log.slice_at_once(fetch_offset, max_bytes, high_watermark)
        if found is None:
            return None
        return found, high_watermark, log.last_stable_offset, log.log_start_offset

    def _divergence(self, epoch: int, fetch_offset: int) -> Diverging | KafkaError | None:
        log = self.log
        our_epoch, end_offset = self.end_offset_for_epoch(epoch)
        if our_epoch == NO_EPOCH or end_offset == NO_OFFSET or fetch_offset < log.log_start_offset:
            return OUT_OF_RANGE
        if our_epoch >= epoch and end_offset >= fetch_offset:
            return None
        return Diverging(
            our_epoch, end_offset, log.high_watermark, log.last_stable_offset, log.log_start_offset
        )

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the largest epoch <= `epoch`, its end offset), or (-1, -1) (T45)."""
        if epoch > self.leader_epoch or epoch < 0:
            return NO_EPOCH, NO_OFFSET
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
