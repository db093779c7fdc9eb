"""Where a follower begins when only the remote tier has its next records. PURE.

The follower asks the leader for its local log start offset and for the leader epoch of the record before
that. The remote segment with that record provides the leader epochs and producer state up to its end (the
auxiliary state), and the follower begins at that end. If the leader's lineage does not contain the segment's
end, the follower begins at the leader's local log start offset. All of this is fetched before the old log is
truncated, so nothing is lost while the tier is down (spec 3.19).

An empty follower may begin after the last offset in the tier instead, and then copies no records that are
both in the tier and on the leader's disk (follower.fetch.last.tiered.offset.enable).

A follower may also have lost leader epochs: if leader-epoch-checkpoint was damaged or lost, recovery
rebuilds them from the local batches, and those of records that only the tier has are missing. A follower
without them must not join the ISR: as leader it could neither serve nor delete these records (rel-T17). So
before its first Fetch it asks the leader for the leader epoch of the record right below its first known
one. The remote segment with that record has the lineage up to there. The local records stay, so that
nothing is lost while the tier is down. A leader cannot do this: nobody tells it which of several lineages
in the tier is its own. There an operator decides (OPERATIONS, 'the leader epochs of this replica begin
above'; rel-T14).

Source: KIP-405 'Follower fetch protocol'; KIP-1023; T30-T34, T51.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import NO_EPOCH
from firnline.base.ports import Buffer
from firnline.base.replicas import EARLIEST, EpochEnd, LeaderPort, Position
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.formats.producer_snapshot import SnapshotRows
from firnline.log.log import Log
from firnline.log.truncation import Truncation
from firnline.records.batch import HEADER_BYTES, parse_header
from firnline.replica.partition import Partition


class TierState(NamedTuple):
    """The auxiliary state at the end of the remote segment with a given offset.

    That is its end offset, the complete lineage up to there, and its producer snapshot file.
    """

    end_offset: int
    lineage: Epochs
    producer_snapshot: bytes


class Tier(Protocol):
    """Fetches the state at the end of the remote segment with `offset` in the leader epoch `epoch`."""

    def __call__(
        self,
        partition: Partition,
        *,
        epoch: int,
        offset: int,
        then: Callable[[TierState | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects: ...


class LeaderAnswers:
    """The questions of one follower, for its position at the time.

    Each `then` gets the answer, or the error, once.
    """

    def __init__(self, port: LeaderPort, leader_id: int, position: Position) -> None:
        self._port = port
        self._leader_id = leader_id
        self._position = position

    def local_start(
        self, then: Callable[[EpochEnd | KafkaError, int], Effects], now_ms: int
    ) -> Effects:
        """Ask for (leader epoch of the first local record, its offset)."""
        return self._port.local_start(self._leader_id, self._position, then, now_ms)

    def last_tiered(
        self, then: Callable[[EpochEnd | KafkaError, int], Effects], now_ms: int
    ) -> Effects:
        """Ask for (its leader epoch, the last offset in the tier)."""
        return self._port.last_tiered(self._leader_id, self._position, then, now_ms)

    def log_start(self, then: Callable[[int | KafkaError, int], Effects], now_ms: int) -> Effects:
        """Ask for the log start offset, the tier included."""
        return self._port.list_offset(self._leader_id, self._position, EARLIEST, then, now_ms)

    def epoch_end(
        self, epoch: int, then: Callable[[EpochEnd | KafkaError, int], Effects], now_ms: int
    ) -> Effects:
        """Ask for (the largest epoch <= `epoch`, its end offset) (T45)."""
        return self._port.epoch_end(self._leader_id, self._position, epoch, then, now_ms)


class Beginning(NamedTuple):
    """The offset and the state with which a follower begins anew."""

    offset: int
    log_start_offset: int
    lineage: Epochs
    producers: SnapshotRows

    def cut(self, log: Log, now_ms: int) -> Truncation:
        """Return the truncation that discards the local log and begins there. Then call `note_committed`."""
        return log.beginning_at(
            self.offset,
            log_start_offset=self.log_start_offset,
            lineage=self.lineage,
            producers=self.producers,
            now_ms=now_ms,
        )

    def note_committed(self, log: Log) -> None:
        """Advance the high watermark: the tier has only committed records (T2)."""
        log.advance_high_watermark(self.offset)


BeginningCallback = Callable[[Beginning | KafkaError, int], Effects]


class _Attempt:
    """Asks the tier for the state at the record right below an offset that the leader has.

    _above_offset  that offset
    _then          gets the result, or the first error, once
    """

    _then: Callable[[Any, int], Effects]

    def __init__(self, partition: Partition, leader: LeaderAnswers, tier: Tier) -> None:
        self._partition = partition
        self._leader = leader
        self._tier = tier
        self._above_offset = 0

    def _ask_below(self, epoch: int, now_ms: int) -> Effects:
        """`epoch` begins at the offset, or before: the record below may be of an earlier one."""
        if epoch <= 0:
            return self._ask_tier(max(epoch, 0), now_ms)
        then = partial(self._earlier_epoch_came, epoch)
        return self._leader.epoch_end(epoch - 1, then, now_ms)

    def _earlier_epoch_came(self, epoch: int, found: EpochEnd | KafkaError, now_ms: int) -> Effects:
        """Find the epoch of the record right below: the earlier one if it ends at the offset.

        The leader may name an older epoch than the one asked for, if epochs have no records (T32).
        """
        if isinstance(found, KafkaError):
            return self._then(found, now_ms)
        earlier, end_offset = found
        return self._ask_tier(earlier if end_offset >= self._above_offset else epoch, now_ms)

    def _ask_tier(self, epoch: int, now_ms: int) -> Effects:
        return self._tier(
            self._partition,
            epoch=epoch,
            offset=self._above_offset - 1,
            then=self._state_came,
            now_ms=now_ms,
        )

    def _state_came(self, state: TierState | KafkaError, now_ms: int) -> Effects:
        raise AssertionError("a subclass implements this")


class TierStart(_Attempt):
    """One attempt. `then` gets the beginning, or the first error, once.

    at_last_tiered  begin after the last offset in the tier, not above the leader's local log start
    """

    def __init__(
        self,
        partition: Partition,
        leader: LeaderAnswers,
        tier: Tier,
        then: BeginningCallback,
        *,
        at_last_tiered: bool = False,
    ) -> None:
        super().__init__(partition, leader, tier)
        self._then = then
        self._at_last_tiered = at_last_tiered

    def begin(self, now_ms: int) -> Effects:
        """Ask for the leader's local log start offset, or for the last offset in the tier."""
        if self._at_last_tiered:
            return self._leader.last_tiered(self._last_tiered_came, now_ms)
        return self._leader.local_start(self._local_start_came, now_ms)

    def _last_tiered_came(self, found: EpochEnd | KafkaError, now_ms: int) -> Effects:
        if isinstance(found, KafkaError):
            return self._then(found, now_ms)
        epoch, last_offset = found
        self._above_offset = last_offset + 1
        if epoch < 0 or self._above_offset <= self._partition.log.log_end_offset:
            return self._then(_NOTHING_NEW, now_ms)
        return self._ask_tier(epoch, now_ms)

    def _local_start_came(self, found: EpochEnd | KafkaError, now_ms: int) -> Effects:
        if isinstance(found, KafkaError):
            return self._then(found, now_ms)
        epoch, self._above_offset = found
        return self._ask_below(epoch, now_ms)

    def _state_came(self, state: TierState | KafkaError, now_ms: int) -> Effects:
        if isinstance(state, KafkaError):
            return self._then(state, now_ms)
        try:
            producers = SnapshotRows(state.producer_snapshot)
        except StorageError as problem:
            return self._then(KafkaError(Code.CORRUPT_MESSAGE, str(problem)), now_ms)
        if not state.lineage:
            return self._then(_NO_LINEAGE, now_ms)
        then = partial(self._last_epoch_came, state, producers)
        return self._leader.epoch_end(state.lineage[-1][0], then, now_ms)

    def _last_epoch_came(
        self,
        state: TierState,
        producers: SnapshotRows,
        found: EpochEnd | KafkaError,
        now_ms: int,
    ) -> Effects:
        """Check that the leader's log contains the segment up to its end, by the segment's last epoch."""
        if isinstance(found, KafkaError):
            return self._then(found, now_ms)
        offset = state.end_offset
        if found[0] != state.lineage[-1][0] or found[1] < offset:
            offset = self._above_offset
            # Beyond it these producers wrote other records than the leader has; its batches will tell.
            producers = producers.below(offset)
        return self._leader.log_start(
            partial(self._log_start_came, offset, state, producers), now_ms
        )

    def _log_start_came(
        self,
        offset: int,
        state: TierState,
        producers: SnapshotRows,
        found: int | KafkaError,
        now_ms: int,
    ) -> Effects:
        if isinstance(found, KafkaError):
            return self._then(found, now_ms)
        return self._then(Beginning(offset, min(found, offset), state.lineage, producers), now_ms)


NOTHING_LOCAL = KafkaError(Code.OFFSET_NOT_AVAILABLE, "there is no local record")
_NOTHING_NEW = KafkaError(Code.OFFSET_NOT_AVAILABLE, "the tier has nothing that is not here")
_NO_LINEAGE = KafkaError(Code.CORRUPT_MESSAGE, "the remote segment has no leader epochs")


def begins_within(log: Log, records: Buffer) -> int | None:
    """Return the base offset of the first batch if the log has no local record and ends within that batch."""
    end_offset = log.log_end_offset
    if log.local_log_start_offset != end_offset or len(records) < HEADER_BYTES:
        return None
    first = parse_header(records)
    return first.base_offset if first.base_offset < end_offset <= first.last_offset else None


# ---- lost leader epochs

# None: the follower may fetch now.
SearchCallback = Callable[[KafkaError | None, int], Effects]


def is_lineage_lost(log: Log) -> bool:
    """Whether the log does not know the leader epochs of its first records, which the tier alone may have."""
    entries = log.epochs.entries()
    begin = entries[0][1] if entries else log.log_end_offset
    return log.is_tiered and begin > log.log_start_offset


class LineageSearch(_Attempt):
    """Takes lost leader epochs from the tier: one attempt. Calls `then` once, with the first error or None.

    With NOTHING_LOCAL if the log has no local record, and begins above records that only the tier has.

    _epoch  the first leader epoch that is known; it begins at `_above_offset`. Without any it is the log end
    """

    def __init__(
        self, partition: Partition, leader: LeaderAnswers, tier: Tier, then: SearchCallback
    ) -> None:
        super().__init__(partition, leader, tier)
        self._then = then
        known = partition.log.epochs.entries() or ((NO_EPOCH, partition.log.log_end_offset),)
        self._epoch, self._above_offset = known[0]

    def begin(self, now_ms: int) -> Effects:
        """Ask for the leader's log start offset: a crash may have taken ours back below deleted records."""
        return self._leader.log_start(self._log_start_came, now_ms)

    def _log_start_came(self, found: int | KafkaError, now_ms: int) -> Effects:
        if isinstance(found, KafkaError):
            return self._then(found, now_ms)
        if found >= self._above_offset:
            return self._then(None, now_ms)
        if self._epoch == NO_EPOCH:
            return self._then(NOTHING_LOCAL, now_ms)
        return self._ask_below(self._epoch, now_ms)

    def _state_came(self, state: TierState | KafkaError, now_ms: int) -> Effects:
        if isinstance(state, KafkaError):
            # The tier does not have it either: following must not wait for that.
            is_missing = state.code == Code.OFFSET_OUT_OF_RANGE
            return self._then(None if is_missing else state, now_ms)
        log = self._partition.log
        is_same = log.epochs.entries()[:1] == ((self._epoch, self._above_offset),)
        earlier = tuple(row for row in state.lineage if row[1] < self._above_offset)
        # With higher epochs there, the leader has another history, and a Fetch tells where to truncate.
        if is_same and earlier and earlier[-1][0] <= self._epoch:
            log.epochs.complete(earlier)
            log.epochs.truncate_from_start(log.log_start_offset)
        return self._then(None, now_ms)
