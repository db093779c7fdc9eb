"""One partition's replica on this node, seen by its leader: epochs, ISR, watermark, who waits. PURE.

The high watermark is the least end of the maximal ISR (`replica/isr`), and of those about to join it; with
no other replica it is the log end, at once. An acks=all answer is never only in one machine's page cache:
with followers, replication covers it; alone, it waits for an fdatasync (`firnline.acks.fsync`). Invariants:

  R6   the high watermark passes only what all of the maximal ISR have
  R13  acks=all succeeds only if |ISR| >= `min_isr` before the append and when it is committed
  R15  only the leader appends; an older epoch is fenced, a newer one unknown
  P9   a partition whose files failed once takes and gives nothing more in this run

Source: rel-R6 to R8, rel-R13, rel-R15, rel-P9; spec C13, C14, I12-I24, T45.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from firnline.base.effects import Appended, Effects
from firnline.base.errors import KafkaError, StorageError
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
# More than any Fetch waits for: "read again, much may have become stable".
_MUCH_BYTES = 1 << 62
_new_tuple = tuple.__new__  # half the price of the class's own constructor


class Partition:
    """One hosted partition. `refusal` is None while we lead it and its files are sound.

    node_id          ours
    fsync_rule       when an answer waits for the disk: firnline.acks.fsync
    brokers          the others
    leader_epoch     never falls (rel-R16): what an older leader wrote is older than what a newer one did
    partition_epoch  never falls (rel-R16): the controller takes a proposal only of the state that it has
    isr              as the controller has it, as far as we know
    maximal_isr      who has to have a record before it is committed. It holds all of `isr`, and whoever a
                     change of ours that may have been taken would add (rel-R7): else a record could be
                     called committed that a member of the ISR lacks
    proposed         the change of the ISR that is under way; None for none. One at a time (I15): two of one
                     partition epoch could both be taken for what we are
    unanswered_proposals  those that brought no answer and that the controller may still apply
    followers        the other replicas, and members of the ISR, by id, while we lead; without ourselves
    is_alone         no other replica counts: what is appended is committed
    refusal          None exactly while we lead and the files are sound: the one thing that an append asks
    """

    __slots__ = (
        "brokers",
        "deletion_waiters",
        "epoch_start_offset",
        "failed_by",
        "fetch_waiters",
        "followers",
        "fsync_rule",
        "is_alone",
        "is_offline",
        "isr",
        "unanswered_proposals",
        "leader_epoch",
        "leader_id",
        "log",
        "maximal_isr",
        "node_id",
        "partition_epoch",
        "produce_waiters",
        "proposed",
        "refusal",
        "replicas",
        "topic_id",
        "topic_partition",
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
        self.is_offline = False
        self.failed_by = ""  # in words: the error itself would hold the buffers of its frames
        self.refusal: KafkaError | None = NOT_LEADER
        self.fetch_waiters = FetchWaiters()
        self.produce_waiters = ProduceWaiters()
        self.deletion_waiters = ProduceWaiters()

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
        """Take what the controller decided; return whether we lead in a new epoch now.

        News older than what is known changes nothing (rel-R4, rel-R16). A proposal of ours falls with newer
        metadata, and with nothing that is not newer: it may have been taken meanwhile (rel-R7).
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
        self._advance_high_watermark(now_ms)
        return is_new_epoch

    def _set_isr(self, isr: tuple[int, ...]) -> None:
        """This is what the controller has; of ours nothing is under way but copies that come late."""
        self._wake()
        self.isr = self.maximal_isr = isr
        self.proposed = None
        if self.unanswered_proposals:
            self._drop_impossible_proposals()
        self.is_alone = len(self.replicas) <= 1 and isr == (self.node_id,)
        self._assert_isr()

    def _assert_isr(self) -> None:
        """rel-R7: a member of the ISR never lacks what is called committed. For changes, not for requests."""
        assert all(each in self.maximal_isr for each in self.isr), (
            "the maximal ISR holds all of the ISR"
        )
        assert not self.is_alone or self.maximal_isr == (self.node_id,), "nobody else counts"

    def _drop_impossible_proposals(self) -> None:
        """Forget those that cannot be taken any more; whom the others name counts (rel-R7)."""
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
        """The files can no longer be trusted: refuse everything from here on (rel-P9). `problem` says why."""
        self.is_offline, self.failed_by = True, str(problem or self.failed_by)
        self._wake()
        self._set_refusal()

    def retire(self) -> None:
        """The replica leaves this node: whoever still holds it is told to look elsewhere."""
        self.leader_id = -1
        self._wake()
        self.refusal = RETIRED

    def _wake(self) -> None:
        """Something is decided here: no follower rests any more."""
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
        """Judge the epoch a client believes in; -1 says nothing. Kafka fences first, then asks who leads.

        is_any_replica  whoever asks takes a follower's answer, too (KIP-392)
        """
        if leader_epoch != NO_EPOCH and leader_epoch != self.leader_epoch:
            return FENCED if leader_epoch < self.leader_epoch else UNKNOWN_EPOCH
        return of_any_replica(self.refusal, self.log) if is_any_replica else self.refusal

    @property
    def min_isr(self) -> int:
        """How many in-sync replicas acks=all asks for: min.insync.replicas, or all where there are fewer."""
        wanted = self.log.config.min_insync_replicas
        return wanted if wanted <= 1 else min(wanted, len(self.replicas))

    # --------------------------------------------------------------------------------- append

    def append(
        self,
        data: bytearray | memoryview,
        *,
        acks: int,
        now_ms: int,
        origin: Literal["client", "coordinator"] = "client",
        header: tuple[int, ...] | None = None,
    ) -> Appended | KafkaError:
        """Append as leader; the caller then asks `grown` for the readers to answer (rel-R15).

        A file that cannot be written takes the partition offline: KAFKA_STORAGE_ERROR from then on. A
        full disk refuses this append alone: the log is as before, and readers go on (reliability d 85).

        header  as in `Log.append_as_leader`
        """
        refusal = self.refusal
        if refusal is not None:
            return refusal
        log = self.log
        if acks == ACKS_ALL and len(self.isr) < self.min_isr:
            return TOO_FEW_BEFORE
        try:
            outcome = log.append_as_leader(
                data,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                header=header,
            )
        except StorageError as problem:
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
        """Answer those whom `size_bytes` more below the high watermark made content.

        stable_before, high_before  last stable offset and high watermark before
        end_bytes                   what came to the end of the log; None: as much
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
                # How many bytes lie between two offsets is not worth a lookup: let them read.
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
        """Whether an answer at this level of `acks` waits for the disk.

        Asked after the append: `firnline.acks.fsync`, and flush.messages where a topic has it.
        """
        if acks == 0:
            return False
        rule = self.fsync_rule
        if rule == "always" or (rule == "auto" and acks == ACKS_ALL and len(self.maximal_isr) == 1):
            return True
        log = self.log
        flush_messages = log.config.flush_messages
        return (
            flush_messages != INT64_MAX
            and log.log_end_offset - log.recovery_point >= flush_messages
        )

    @property
    def is_sole_replica(self) -> bool:
        """Whether what was acknowledged counts on us alone, and is to outlive a power cut (rel-P4)."""
        return len(self.maximal_isr) == 1 and self.fsync_rule != "never" and self.refusal is None

    @property
    def is_durable(self) -> bool:
        """Whether all below the log end survives a power cut."""
        return self.log.recovery_point >= self.log.log_end_offset

    def note_flushed(self, end_offset: int) -> bool:
        """Note that all below `end_offset` is on disk; False where that failed, as in a deleted log."""
        try:
            self.log.flushed(end_offset)
        except StorageError as problem:
            self.failed_by = str(problem)
            return False
        return True

    def must_wait(self, acks: int, next_offset: int) -> bool:
        """Whether an answer at this level of `acks` waits for the disk or for followers. After the append."""
        return self.needs_flush(acks) or (
            acks == ACKS_ALL and self.log.high_watermark < next_offset
        )

    def dirty_files(self) -> Sequence[File]:
        """What a flush must sync so that all below the log end survives a power cut."""
        return self.log.dirty_files()

    def is_committed(self, next_offset: int) -> bool:
        """Whether all below `next_offset` is on every in-sync replica."""
        return self.log.high_watermark >= next_offset

    def commit_error(self) -> KafkaError | None:
        """What an acks=all append that is committed by now must be told all the same (rel-R13)."""
        if self.refusal is not None:
            return self.refusal
        if len(self.isr) < self.min_isr:
            return TOO_FEW_AFTER
        return None

    # ----------------------------------------------------------------------------- followers

    def follower_refusal(
        self, replica_id: int, *, leader_epoch: int, broker_epoch: int
    ) -> KafkaError | None:
        """Judge who wants to follow; whoever is refused leaves no trace (I14).

        The late Fetch of an incarnation that died must not make us believe that the new one has its records.
        """
        refusal = self.check_epoch(leader_epoch)
        if refusal is not None:
            return refusal
        if replica_id not in self.followers:
            # With an epoch that is ours it may know of a reassignment before we do: it is to ask again.
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
        """Note how far a follower came that was not refused; release what is committed by it (rel-R6).

        `proposed` may be a new one afterwards: the follower is to join the ISR.
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
        # Nearly always, of a thousand in a session, a follower is in sync, and all is committed.
        if self.log.high_watermark != self.log.log_end_offset or replica_id not in self.isr:
            self._expand(follower)
            effects = self._released(now_ms)
        if self.deletion_waiters:
            effects += self.deletion_waiters.passed(self.low_watermark, now_ms)
        return effects

    def rest(self, replica_id: int, fetch_offset: int, clock: FetchClock) -> ReplicaState | None:
        """Let a follower rest that was told all there is, and return it; None: its Fetches are to be noted.

        From then on they change nothing but the time, until we or its session settle it.
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
        """What no live replica has records below. KIP-107; -1 while one of them did not say yet."""
        return lowest_start(self.log.log_start_offset, self.followers.values(), self.brokers)

    def release_all(self, now_ms: int) -> Effects:
        """Answer everybody who waits, in good or bad: each looks at the partition as it is now."""
        effects = self.produce_waiters.all_at_once(now_ms)
        effects += self.fetch_waiters.all_at_once(now_ms)
        return effects + self.deletion_waiters.all_at_once(now_ms)

    def _released(self, now_ms: int) -> Effects:
        """Advance the high watermark, and answer those whom that made content."""
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
        """Look at the followers without being asked: who fell behind holds up nobody for long.

        `proposed` may be a new one afterwards.
        """
        if self.unanswered_proposals and self.proposed is None:
            self._drop_impossible_proposals()
        self.shrink(now_ms)
        if self.unanswered_proposals and self.proposed is None and self.refusal is None:
            self._propose_anew()
        return [] if self.refusal is not None else self._released(now_ms)

    def shrink(self, now_ms: int) -> None:
        """Propose to go on without those who have not caught up for replica.lag.time.max.ms (I20)."""
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
            self._propose(stay)  # who is to go counts until the controller agrees

    def _propose(self, members: Sequence[int]) -> None:
        self._wake()
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
        """Propose what is: written down again, it has a new epoch, and no late copy can be taken."""
        self._propose(self.isr)
        assert self.proposed is not None
        self.proposed = in_another_order(self.proposed, self.isr)

    def unanswered(self, change: IsrChange) -> None:
        """Note that `change` was sent and brought no answer: another copy of it will be sent (rel-R7)."""
        if self.proposed is change and len(change.new_isr) > len(self.isr):
            self.unanswered_proposals = tuple(dict.fromkeys((*self.unanswered_proposals, change)))

    def altered(
        self, change: IsrChange, outcome: IsrAnswer | KafkaError, now_ms: int
    ) -> Effects | None:
        """Take the controller's answer to `change`; None: it is to be asked again (I19)."""
        if self.proposed is not change:
            return []  # metadata overtook it
        if isinstance(outcome, KafkaError):
            if is_refused(outcome.code):
                self._set_isr(self.isr)
                if self.unanswered_proposals and len(change.new_isr) > len(self.isr):
                    self._propose_anew()  # what is refused is this copy of it
                return self._released(now_ms)
            return [] if metadata_decides(outcome.code) else None
        if (
            outcome.leader_epoch != self.leader_epoch
            or outcome.partition_epoch < self.partition_epoch
        ):
            return []  # of another time: metadata is on its way
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
            # One that is about to catch up must not see the high watermark run away from it (I21).
            if follower.end_offset < end and (
                follower.broker_id in self.maximal_isr
                or (
                    follower.is_caught_up(log_end, lag_max_ms=lag_max_ms, now_ms=now_ms)
                    and follower.is_eligible(self.brokers.fact(follower.broker_id))
                )
            ):
                end = follower.end_offset
        if end > log.high_watermark:
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
        """Read for a consumer: up to the high watermark, or the last stable offset if committed.

        A follower reads to the end of the log. `is_any_replica`: we need not lead, and then it is as much as
        we know to be committed (KIP-392).

        max_bytes           soft cap; with `min_one_batch` a larger first batch is returned whole (KIP-74)
        leader_epoch        what the client believes in, or -1; fenced as C14 says
        last_fetched_epoch  epoch of the last record it has, or -1; leads to `Diverging`
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
        """Read what a consumer asks for, as `read` does, where the place is known and something is there.

        Returns it with high watermark, last stable offset and log start; None: `read` is to be asked.
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
        """Return (largest epoch not above `epoch`, where it ends), or (-1, -1) (T45)."""
        if epoch > self.leader_epoch or epoch < 0:
            return NO_EPOCH, NO_OFFSET
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
