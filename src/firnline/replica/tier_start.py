"""A follower whose next records only the tier has: how it comes to begin above them. PURE.

The leader says where its local log begins, and in which leader epoch the record before that was written; the
remote segment that holds that record brings the lineage and the producers up to its end, and there the
follower begins again. All of it is fetched before anything of the old log is given up, so nothing is lost
while the store is down (spec 3.19). Where the end of the segment is of a lineage that the leader lost, the
follower begins where the leader's local log does. Source: KIP-405 'Follower fetch protocol'; T30-T34.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.formats.producer_snapshot import SnapshotRows
from firnline.log.log import Log
from firnline.log.truncation import Truncation
from firnline.replica.partition import Partition

EpochEnd = tuple[int, int]  # leader epoch, and where it ends, exclusive; (-1, -1) for none


class TierState(NamedTuple):
    """What the tier has of the segment that holds an offset: its end, exclusive, the whole lineage up to
    there, and the file of its producers."""

    end_offset: int
    lineage: Epochs
    producer_snapshot: bytes


class Tier(Protocol):
    """The way to the tier: the state at the end of the segment that holds `offset` of that leader epoch."""

    def __call__(
        self,
        partition: Partition,
        *,
        epoch: int,
        offset: int,
        then: Callable[[TierState | KafkaError, int], Effects],
        now_ms: int,
    ) -> Effects: ...


class LeaderAnswers(Protocol):
    """What the leader is asked, about one partition, as long as we follow it there."""

    def local_start(
        self, then: Callable[[EpochEnd | KafkaError, int], Effects], now_ms: int
    ) -> Effects:
        """Ask for (leader epoch of the first local record, its offset)."""
        ...

    def log_start(self, then: Callable[[int | KafkaError, int], Effects], now_ms: int) -> Effects:
        """Ask where the log begins, the tier included."""
        ...

    def epoch_end(
        self, epoch: int, then: Callable[[EpochEnd | KafkaError, int], Effects], now_ms: int
    ) -> Effects:
        """Ask where the newest epoch not above `epoch` ends (T45)."""
        ...


class Beginning(NamedTuple):
    """Where a follower begins again, and with what."""

    offset: int
    log_start_offset: int
    lineage: Epochs
    producers: SnapshotRows

    def cut(self, log: Log, now_ms: int) -> Truncation:
        """Return how to give up what is local and begin there; `note_committed` after it."""
        return log.beginning_at(
            self.offset,
            log_start_offset=self.log_start_offset,
            lineage=self.lineage,
            producers=self.producers,
            now_ms=now_ms,
        )

    def note_committed(self, log: Log) -> None:
        """Only what is committed goes to the tier (T2)."""
        log.advance_high_watermark(self.offset)


Found = Callable[[Beginning | KafkaError, int], Effects]


class TierStart:
    """One try to find out where to begin; `then` gets the answer, or the first error, once."""

    def __init__(
        self, partition: Partition, leader: LeaderAnswers, tier: Tier, then: Found
    ) -> None:
        self._partition = partition
        self._leader = leader
        self._tier = tier
        self._then = then
        self._local_start = 0

    def begin(self, now_ms: int) -> Effects:
        """Ask where the leader's local log begins."""
        return self._leader.local_start(self._local_start_came, now_ms)

    def _local_start_came(self, found: EpochEnd | KafkaError, now_ms: int) -> Effects:
        if isinstance(found, KafkaError):
            return self._then(found, now_ms)
        epoch, self._local_start = found
        if epoch <= 0:
            return self._ask_tier(max(epoch, 0), now_ms)
        then = partial(self._earlier_epoch_came, epoch)
        return self._leader.epoch_end(epoch - 1, then, now_ms)

    def _earlier_epoch_came(self, epoch: int, found: EpochEnd | KafkaError, now_ms: int) -> Effects:
        """The record before the local start is of the earlier epoch if that ends where the local log begins.

        The epoch that the leader names may be older than what was asked for: epochs without records (T32).
        """
        if isinstance(found, KafkaError):
            return self._then(found, now_ms)
        earlier, end_offset = found
        return self._ask_tier(earlier if end_offset >= self._local_start else epoch, now_ms)

    def _ask_tier(self, epoch: int, now_ms: int) -> Effects:
        return self._tier(
            self._partition,
            epoch=epoch,
            offset=self._local_start - 1,
            then=self._state_came,
            now_ms=now_ms,
        )

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
        """The leader has the segment to its end if it has that much of the segment's last epoch."""
        if isinstance(found, KafkaError):
            return self._then(found, now_ms)
        offset = state.end_offset
        if found[0] != state.lineage[-1][0] or found[1] < offset:
            offset = self._local_start
            # What these wrote is not what the leader has of them: it tells with its batches.
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


_NO_LINEAGE = KafkaError(Code.CORRUPT_MESSAGE, "a remote segment without leader epochs")
