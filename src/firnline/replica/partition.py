"""One partition's replica on this node, seen by its leader: epochs, ISR, watermark, who waits. PURE.

The high watermark is the least end of the in-sync replicas; with an ISR of ourselves alone it is the
log end, at once. An acks=all answer is never only in one machine's page cache: with followers,
replication covers it; alone, it waits for an fdatasync (`firnline.acks.fsync`). Invariants:

  R13  acks=all succeeds only if |ISR| >= min.insync.replicas before the append and when it is committed
  R15  only the leader appends; an older epoch is fenced, a newer one unknown
  P9   a partition whose files failed once takes and gives nothing more in this run

Source: rel-R6, rel-R13, rel-R15, rel-P9; spec C13, C14, T45.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from firnline.base.effects import Appended, Effects
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import NO_EPOCH, NO_OFFSET, TopicPartition, Uuid
from firnline.base.ports import File
from firnline.base.slices import EMPTY_RECORDS, FileSlice
from firnline.base.units import INT64_MAX
from firnline.replica.read import (
    READ_COMMITTED,
    AbortedTransaction,
    BelowLocalStart,
    Diverging,
    Local,
    ReadOutcome,
)
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

    node_id       ours
    fsync_rule    when an answer waits for the disk: firnline.acks.fsync
    """

    __slots__ = (
        "_replica_ends",
        "fetch_waiters",
        "fsync_rule",
        "is_offline",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "node_id",
        "partition_epoch",
        "produce_waiters",
        "refusal",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(self, log: "Log", *, node_id: int, fsync_rule: FsyncRule) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id: Uuid = log.topic_id
        self.node_id = node_id
        self.fsync_rule = fsync_rule
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.replicas: Sequence[int] = ()
        self.isr: Sequence[int] = ()
        self.is_offline = False
        self.refusal: KafkaError | None = _NOT_LEADER
        self.fetch_waiters = FetchWaiters()
        self.produce_waiters = ProduceWaiters()
        self._replica_ends: dict[int, int] = {}

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
    ) -> bool:
        """Take what the controller decided; return whether we lead in a new epoch now.

        News older than what is known changes nothing (rel-R4, rel-R16).
        """
        if leader_epoch < self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = leader_epoch > self.leader_epoch
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = replicas
        self.isr = isr
        self._set_refusal()
        if leader_id != self.node_id:
            self._replica_ends.clear()
            return False
        if is_new_epoch:
            self._replica_ends.clear()
            self.log.epochs.assign(leader_epoch, self.log.log_end_offset)
        self._advance_high_watermark()
        return is_new_epoch

    def go_offline(self) -> None:
        """The files can no longer be trusted: refuse everything from here on (rel-P9)."""
        self.is_offline = True
        self._set_refusal()

    def retire(self) -> None:
        """The replica leaves this node: whoever still holds it is told to look elsewhere."""
        self.leader_id = -1
        self._set_refusal()

    def _set_refusal(self) -> None:
        if self.is_offline:
            self.refusal = _STORAGE_FAILED
        elif self.leader_id != self.node_id:
            self.refusal = _NOT_LEADER
        else:
            self.refusal = None

    def check_epoch(self, leader_epoch: int) -> KafkaError | None:
        """Judge the epoch a client believes in; -1 says nothing. Kafka fences first, then asks who leads."""
        if leader_epoch != NO_EPOCH and leader_epoch != self.leader_epoch:
            return _FENCED if leader_epoch < self.leader_epoch else _UNKNOWN_EPOCH
        return self.refusal

    # --------------------------------------------------------------------------------- append

    def append(
        self,
        data: bytearray | memoryview,
        *,
        acks: int,
        now_ms: int,
        origin: Literal["client", "coordinator"] = "client",
    ) -> Appended | KafkaError:
        """Append as leader; the caller then asks `grown` for the readers to answer (rel-R15).

        A file that cannot be written takes the partition offline: KAFKA_STORAGE_ERROR from then on. A
        full disk refuses this append alone: the log is as before, and readers go on (reliability d 85).
        """
        refusal = self.refusal
        if refusal is not None:
            return refusal
        log = self.log
        if acks == ACKS_ALL and len(self.isr) < log.config.min_insync_replicas:
            return _TOO_FEW_BEFORE
        try:
            outcome = log.append_as_leader(
                data,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
            )
        except StorageError as problem:
            return self._cannot_write(problem)
        if len(self.isr) == 1:
            log.advance_high_watermark(log.log_end_offset)
        return outcome

    def append_at_once(
        self, data: memoryview, fields: tuple[int, ...], acks: int, now_ms: int
    ) -> tuple[int, int, int, int] | KafkaError | None:
        """Append a client's batch whose answer waits for nothing, and which nobody waits for; else None.

        Returns its first and last offset, its time of append, or -1, and the log start. `fields` are those
        of its header, whose shape and CRC are known to be right.
        """
        if not self.answers_at_once(acks):
            return None
        log = self.log
        if acks == ACKS_ALL and log.config.min_insync_replicas > 1:
            return None
        try:
            placed = log.append_batch(data, fields, self.leader_epoch, now_ms)
        except StorageError as problem:
            return self._cannot_write(problem)
        if len(self.isr) == 1:
            log.advance_high_watermark(log.log_end_offset)
        return placed

    def _cannot_write(self, problem: StorageError) -> KafkaError:
        if problem.facts.get("error") != "ENOSPC":
            self.go_offline()
        return _STORAGE_FAILED

    def grown(self, size_bytes: int, stable_before: int, high_before: int, now_ms: int) -> Effects:
        """Answer the readers whom an append of `size_bytes` made content.

        stable_before, high_before  last stable offset and high watermark before the append
        """
        log = self.log
        if log.high_watermark == high_before:
            return []
        stable = log.last_stable_offset
        if stable == stable_before:
            stable_bytes = 0
        else:
            stable_bytes = size_bytes if stable_before == high_before else _MUCH_BYTES
        return self.fetch_waiters.grown(size_bytes, stable_bytes=stable_bytes, now_ms=now_ms)

    def answers_at_once(self, acks: int) -> bool:
        """Whether an append at this level of `acks` waits for nothing, and nobody waits for it."""
        if self.refusal is not None or self.fetch_waiters.waiting:
            return False
        if acks == ACKS_ALL:
            if self.fsync_rule != "never" or len(self.isr) != 1:
                return False
        elif acks != 1 or self.fsync_rule == "always":
            return False
        return self.log.config.flush_messages == INT64_MAX

    def needs_flush(self, acks: int) -> bool:
        """Whether an answer at this level of `acks` waits for the disk.

        Asked after the append: `firnline.acks.fsync`, and flush.messages where a topic has it.
        """
        if acks == 0:
            return False
        rule = self.fsync_rule
        if rule == "always" or (rule == "auto" and acks == ACKS_ALL and len(self.isr) == 1):
            return True
        log = self.log
        flush_messages = log.config.flush_messages
        return (
            flush_messages != INT64_MAX
            and log.log_end_offset - log.recovery_point >= flush_messages
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
        if len(self.isr) < self.log.config.min_insync_replicas:
            return _TOO_FEW_AFTER
        return None

    def follower_fetched(self, replica_id: int, fetch_offset: int, now_ms: int) -> Effects:
        """Note how far a follower came; release what is committed by it (rel-R6)."""
        assert replica_id != self.node_id
        if self.refusal is not None or replica_id not in self.replicas:
            return []
        self._replica_ends[replica_id] = fetch_offset
        before, stable_before = self.log.high_watermark, self.log.last_stable_offset
        self._advance_high_watermark()
        high_watermark = self.log.high_watermark
        if high_watermark == before:
            return []
        effects = self.produce_waiters.passed(high_watermark, now_ms)
        if self.fetch_waiters:
            # How many bytes lie between two offsets is not worth a lookup: let them read.
            effects += self.grown(_MUCH_BYTES, stable_before, before, now_ms)
        return effects

    def _advance_high_watermark(self) -> None:
        end = self.log.log_end_offset
        for replica_id in self.isr:
            if replica_id != self.node_id:
                end = min(end, self._replica_ends.get(replica_id, NO_OFFSET))
        if end > self.log.high_watermark:
            self.log.advance_high_watermark(end)

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
    ) -> ReadOutcome:
        """Read for a consumer: up to the high watermark, or the last stable offset if committed.

        max_bytes           soft cap; with `min_one_batch` a larger first batch is returned whole (KIP-74)
        leader_epoch        what the client believes in, or -1; fenced as C14 says
        last_fetched_epoch  epoch of the last record it has, or -1; leads to `Diverging`
        """
        if self.refusal is not None or leader_epoch != NO_EPOCH:
            refusal = self.check_epoch(leader_epoch)
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
            return _OUT_OF_RANGE
        if fetch_offset < log.local_log_start_offset:
            epoch = log.epochs.epoch_at(fetch_offset)
            return BelowLocalStart(
                fetch_offset, NO_EPOCH if epoch is None else epoch, high_watermark, stable, start
            )
        upto = stable if isolation == READ_COMMITTED else high_watermark
        aborted: Sequence[AbortedTransaction] | None = () if isolation == READ_COMMITTED else None
        if fetch_offset >= upto:
            return Local(EMPTY_RECORDS, high_watermark, stable, start, aborted)
        try:
            records = log.read(
                fetch_offset, max_bytes=max_bytes, upto_offset=upto, min_one_batch=min_one_batch
            )
            if isolation == READ_COMMITTED and records:
                aborted = log.aborted_transactions(fetch_offset, upto)
        except StorageError:
            return _STORAGE_FAILED
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
            return _OUT_OF_RANGE
        if our_epoch >= epoch and end_offset >= fetch_offset:
            return None
        return Diverging(
            our_epoch, end_offset, log.high_watermark, log.last_stable_offset, log.log_start_offset
        )

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch not above `epoch`, where it ends), or (-1, -1) (T45)."""
        if epoch == self.leader_epoch:
            # The current epoch ends where the log does, also while nothing was written in it.
            return epoch, self.log.log_end_offset
        if epoch > self.leader_epoch or epoch < 0:
            return NO_EPOCH, NO_OFFSET
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)


_NOT_LEADER = KafkaError(Code.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")
_STORAGE_FAILED = KafkaError(Code.KAFKA_STORAGE_ERROR, "the log directory failed")
_FENCED = KafkaError(Code.FENCED_LEADER_EPOCH, "the client's leader epoch is older than ours")
_UNKNOWN_EPOCH = KafkaError(
    Code.UNKNOWN_LEADER_EPOCH, "the client's leader epoch is newer than ours"
)
_OUT_OF_RANGE = KafkaError(Code.OFFSET_OUT_OF_RANGE, "no such offset in the log")
_TOO_FEW_BEFORE = KafkaError(
    Code.NOT_ENOUGH_REPLICAS, "fewer in-sync replicas than min.insync.replicas"
)
_TOO_FEW_AFTER = KafkaError(
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "in-sync replicas fell below min.insync.replicas"
)
