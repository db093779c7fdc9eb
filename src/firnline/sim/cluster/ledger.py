"""What was ever committed and acknowledged in each partition, and which losses the rules allow. SIM.

The first leader whose high watermark passes a batch writes it here; every replica is compared with it. Where
an exemption applies (the last replica standing lost data and still leads; a leader was elected from outside
the ISR, as its topic allows), the lineage is truncated there, and the loss is counted.
"""

import sys
from collections.abc import Callable

from firnline.base.ids import Uuid
from firnline.records.batch import NO_PRODUCER_ID, BatchHeader
from firnline.sim.cluster.compaction_checks import KeyedHistory
from firnline.sim.history import CommittedLog

PartitionKey = tuple[Uuid, int]


class PartitionHistory(CommittedLog):
    """One partition.

    acked_end  everything below was acknowledged
    cut_at     where the lineage was truncated, each time
    lost       acknowledged records that were lost where that is allowed
    """

    def __init__(self) -> None:
        super().__init__()
        self.acked_end = 0
        self.cut_at: list[int] = []
        self.lost = 0
        # Epochs of leaders from outside the ISR that have not been seen to lead yet.
        self._unclean: list[int] = []
        # (first epoch, epoch after the last, offset) abandoned by an unclean election: a log whose newest
        # batch has such an epoch may differ from that offset on.
        self._left: list[tuple[int, int, int]] = []
        # (leader epoch, offset): the last replica standing lost what earlier leaders have from there on.
        self._given_up: list[tuple[int, int]] = []
        self.problem: str | None = None  # rel-R12
        self.is_compacted = False  # replicas may have less
        self.is_tiered = False  # replicas may begin later
        self.start_offset = 0  # of a tiered log: the highest that any leader had
        self.keyed = KeyedHistory(self)
        self.times: list[tuple[int, int]] = []  # (offset, max timestamp) of each batch
        self._sequences: dict[tuple[int, int], int] = {}
        self._skipped: list[tuple[int, int]] = []
        # Hears of each batch when it is committed.
        self.on_committed: Callable[[bytes, BatchHeader], None] | None = None

    def bytes_from(self, offset: int) -> int | None:
        """The bytes of the committed batches from `offset` on; None if no batch begins there."""
        at = self.position(offset)
        return None if at is None else self._positions[-1] - at

    def on_batch(self, batch: bytes, header: BatchHeader) -> None:
        """rel-R12: a batch of an idempotent producer is there once, and in order."""
        super().on_batch(batch, header)
        if self.on_committed is not None:
            self.on_committed(batch, header)
        self.times.append((header.base_offset, header.max_timestamp))
        if header.producer_id == NO_PRODUCER_ID:
            return
        producer = (header.producer_id, header.producer_epoch)
        known = self._sequences.get(producer, -1)
        if header.base_sequence <= known:
            self.problem = (
                f"sequence {header.base_sequence} of producer {producer} is at {header.base_offset};"
                f" {known} was committed before"
            )
        self._sequences[producer] = header.last_sequence

    def lose(self, offset: int) -> int:
        """Truncate the lineage at `offset`, a batch border; return how many acknowledged records are lost."""
        lost = max(0, self.acked_end - offset)
        self.lost += lost
        if self.is_compacted:
            self.keyed.lose(offset)
        self.cut(offset)
        self._skipped = [(at, min(end, offset)) for at, end in self._skipped if at < offset]
        while self.times and self.times[-1][0] >= offset:
            self.times.pop()
        self.acked_end = min(self.acked_end, offset)
        self.cut_at.append(offset)
        self._sequences.clear()
        return lost

    @property
    def cuts(self) -> int:
        return len(self.cut_at)

    # ---- unclean elections

    @property
    def is_open(self) -> bool:
        """Whether a leader from outside the ISR was elected that has not been seen to lead yet.

        Until then the lineage is the old one: the new leader may still fetch more of it.
        """
        return bool(self._unclean)

    @property
    def has_past(self) -> bool:
        """Whether an unclean election abandoned anything."""
        return bool(self._left)

    def elected(self, leader_epoch: int) -> None:
        """The leader of that epoch is allowed to be from outside the ISR."""
        self._unclean.append(leader_epoch)

    def is_taken_over(self, leader_epoch: int) -> bool:
        """Whether the leader of that epoch is the first to be seen after an unclean election."""
        return bool(self._unclean) and self._unclean[0] <= leader_epoch

    def take_over(self, leader_epoch: int, border: int) -> None:
        """From `border` on the lineage is this leader's; those of older epochs are abandoned."""
        self.cut_at.append(border)
        over = [each for each in self._unclean if each <= leader_epoch]
        self._unclean = self._unclean[len(over) :]
        self._left.append((-1, over[-1], border))
        if len(over) > 1:
            # Leaders that may still be seen: nobody knows what they have.
            self._left.append((over[0], over[-1], 0))

    def give_up(self, leader_epoch: int, border: int) -> None:
        """The last replica standing leads that epoch, without what was committed from `border` on."""
        self._given_up.append((leader_epoch, border))

    def is_given_up(self, leader_epoch: int, offset: int) -> bool:
        """Whether a leader that has not heard of it acknowledges what the last replica standing lost."""
        return any(leader_epoch < epoch and offset >= at for epoch, at in self._given_up)

    def skip(self, offset: int, log_start_offset: int) -> None:
        """The leader's local log begins there; everything between the lineage and there was deleted.

        Only the tier knows which records the leader has between its log start offset and there.
        """
        if offset <= self.end_offset:
            return
        self._skipped.append((min(self.end_offset, log_start_offset), offset))
        self._sequences.clear()  # of a history that this leader does not have
        self._ends.append(offset)
        self._positions.append(len(self._data))
        self._epochs.append(self._epochs[-1])
        self._committed_in.append(self._committed_in[-1])
        self.end_offset = offset

    def is_skipped(self, offset: int) -> bool:
        """Whether only the tier knows the record, as `skip` says."""
        return self.is_tiered and any(first <= offset < end for first, end in self._skipped)

    def has_skipped(self, start_offset: int) -> bool:
        """Whether only the tier knows some record from there on."""
        return self.is_tiered and any(end > start_offset for _, end in self._skipped)

    def known(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """The ranges of these offsets without those that only the tier knows."""
        found, at = [], start_offset
        for first, end in sorted(self._skipped) if self.is_tiered else ():
            if at < min(first, end_offset):
                found.append((at, min(first, end_offset)))
            at = max(at, end)
        if at < end_offset:
            found.append((at, end_offset))
        return found

    def checked_to(self, epoch: int) -> int:
        """The end of the lineage for a log, or a leader, whose newest epoch is this one."""
        return min(
            (at for first, end, at in self._left if first <= epoch < end), default=sys.maxsize
        )


def name(key: PartitionKey) -> str:
    """A partition as people read it."""
    return f"{key[0].hex()[:6]}-{key[1]}"


class Ledger:
    """All partitions, by topic id and number."""

    def __init__(self) -> None:
        self.partitions: dict[PartitionKey, PartitionHistory] = {}
        self.acknowledged = 0  # records, with acks=all
        self.acknowledged_by_one = 0
        self.exempt = 0  # acknowledged records that were lost where that is allowed

    def of(self, key: PartitionKey) -> PartitionHistory:
        """The partition; created when it is first used."""
        found = self.partitions.get(key)
        if found is None:
            found = self.partitions[key] = PartitionHistory()
        return found

    @property
    def records(self) -> int:
        """Committed records of all partitions."""
        return sum(each.records for each in self.partitions.values())
