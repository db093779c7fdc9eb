"""What was ever committed and acknowledged of each partition, and what of it may be lost by the rules. SIM.

The first leader that lets a high watermark pass a batch writes it here; every replica is compared with it.
Where the budget's exemption applies (the last replica standing lost data and leads all the same) the lineage
is cut there, and counted.
"""

from firnline.base.ids import Uuid
from firnline.records.batch import NO_PRODUCER_ID, BatchHeader
from firnline.sim.truth import CommittedLog

Key = tuple[Uuid, int]


class PartitionTruth(CommittedLog):
    """One partition. `acked_end`: everything below was promised; `cuts` counts the exemptions."""

    def __init__(self) -> None:
        super().__init__()
        self.acked_end = 0
        self.cuts = 0
        self.problem: str | None = None  # rel-R12
        self.times: list[tuple[int, int]] = []  # (offset, max timestamp) of each batch
        self._sequences: dict[tuple[int, int], int] = {}

    def on_batch(self, batch: bytes, header: BatchHeader) -> None:
        """rel-R12: a batch of an idempotent producer is there once, and in order."""
        super().on_batch(batch, header)
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
        """The lineage goes on from `offset`, a border; return how many acknowledged records are lost."""
        lost = max(0, self.acked_end - offset)
        self.cut(offset)
        while self.times and self.times[-1][0] >= offset:
            self.times.pop()
        self.acked_end = min(self.acked_end, offset)
        self.cuts += 1
        self._sequences.clear()
        return lost


def name(key: Key) -> str:
    """A partition as people read it."""
    return f"{key[0].hex()[:6]}-{key[1]}"


class Ledger:
    """All partitions, by topic id and number."""

    def __init__(self) -> None:
        self.partitions: dict[Key, PartitionTruth] = {}
        self.acknowledged = 0  # records, at acks=all
        self.acknowledged_by_one = 0
        self.exempt = 0  # records that the last replica standing lost

    def of(self, key: Key) -> PartitionTruth:
        """The partition, from its first mention on."""
        found = self.partitions.get(key)
        if found is None:
            found = self.partitions[key] = PartitionTruth()
        return found

    @property
    def records(self) -> int:
        """Committed records of all partitions."""
        return sum(each.records for each in self.partitions.values())
