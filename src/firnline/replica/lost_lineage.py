"""A follower takes leader epochs that it lost from the tier, before it follows. PURE.

If leader-epoch-checkpoint was damaged or lost, recovery rebuilds the leader epochs from the local batches.
The epochs of records that only the tier has are missing then. A follower without them must not join the ISR:
as leader it could neither serve nor delete these records (rel-T17). So before its first Fetch it asks the
leader for the leader epoch of the record right below its first known one. The remote segment with that record
has the lineage up to there. The local records stay, so that nothing is lost while the tier is down.

A leader cannot do this: nobody tells it which of several lineages in the tier is its own. There an operator
decides (OPERATIONS, 'the leader epochs of this replica begin above'). Source: rel-T14, rel-T17; spec 3.19.
"""

from collections.abc import Callable

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import EpochEnd
from firnline.log.log import Log
from firnline.replica.leader_answers import LeaderAnswers
from firnline.replica.partition import Partition
from firnline.replica.tier_start import Tier, TierState

# None: the follower may fetch now.
Found = Callable[[KafkaError | None, int], Effects]


def is_lost(log: Log) -> bool:
    """Whether the log does not know the leader epochs of its first records, which the tier alone may have."""
    entries = log.epochs.entries()
    begin = entries[0][1] if entries else log.log_end_offset
    return log.is_tiered and begin > log.log_start_offset


class LineageSearch:
    """One attempt. It changes the log, and calls `then` once, with the first error or None.

    _begin  the first offset whose leader epoch is known, and that epoch
    """

    def __init__(
        self, partition: Partition, leader: LeaderAnswers, tier: Tier, then: Found
    ) -> None:
        self._partition = partition
        self._leader = leader
        self._tier = tier
        self._then = then
        self._epoch, self._begin = partition.log.epochs.entries()[0]

    def begin(self, now_ms: int) -> Effects:
        """Ask for the leader's log start offset: a crash may have taken ours back below deleted records."""
        return self._leader.log_start(self._log_start_came, now_ms)

    def _log_start_came(self, found: int | KafkaError, now_ms: int) -> Effects:
        if isinstance(found, KafkaError):
            return self._then(found, now_ms)
        if found >= self._begin:
            return self._then(None, now_ms)
        if self._epoch == 0:
            return self._ask_tier(0, now_ms)
        return self._leader.epoch_end(self._epoch - 1, self._earlier_epoch_came, now_ms)

    def _earlier_epoch_came(self, found: EpochEnd | KafkaError, now_ms: int) -> Effects:
        """Find the leader epoch of the record right below: the earlier one if it reaches there (T32)."""
        if isinstance(found, KafkaError):
            return self._then(found, now_ms)
        earlier, end_offset = found
        return self._ask_tier(earlier if end_offset >= self._begin else self._epoch, now_ms)

    def _ask_tier(self, epoch: int, now_ms: int) -> Effects:
        return self._tier(
            self._partition,
            epoch=epoch,
            offset=self._begin - 1,
            then=self._state_came,
            now_ms=now_ms,
        )

    def _state_came(self, state: TierState | KafkaError, now_ms: int) -> Effects:
        if isinstance(state, KafkaError):
            # The tier does not have it either: following must not wait for that.
            is_missing = state.code == Code.OFFSET_OUT_OF_RANGE
            return self._then(None if is_missing else state, now_ms)
        log = self._partition.log
        is_same = log.epochs.entries()[:1] == ((self._epoch, self._begin),)
        earlier = tuple(row for row in state.lineage if row[1] < self._begin)
        # With higher epochs there, the leader has another history, and a Fetch tells where to truncate.
        if is_same and earlier and earlier[-1][0] <= self._epoch:
            log.epochs.complete(earlier)
            log.epochs.truncate_from_start(log.log_start_offset)
        return self._then(None, now_ms)
