"""A metadata log as the rules of the quorum see it: epochs, two ends, and ids of snapshots."""

from dataclasses import dataclass

from firnline.base.ids import OffsetAndEpoch
from firnline.raft.fetch_rules import end_offset_for


@dataclass
class PaperLog:
    """A log as the rules see it: (epoch, start offset) pairs, two ends, ids of snapshots, oldest first."""

    epochs: tuple[tuple[int, int], ...]
    end_offset: int
    start_offset: int = 0
    snapshots: tuple[OffsetAndEpoch, ...] = ()

    @property
    def newest_snapshot_id(self) -> OffsetAndEpoch | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        return self.snapshots[0] if self.snapshots else None

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        return end_offset_for(
            epoch,
            epochs=self.epochs,
            end_offset=self.end_offset,
            newest_snapshot_id=self.newest_snapshot_id,
            earliest_snapshot_id=self.earliest_snapshot_id,
        )


# Epoch 2 wrote 0-9, epoch 4 wrote 10-29, epoch 7 wrote 30-39.
COMPLETE = PaperLog(((2, 0), (4, 10), (7, 30)), 40)
OLD, NEW = OffsetAndEpoch(20, 4), OffsetAndEpoch(35, 7)
COVERED = PaperLog(COMPLETE.epochs, 40, 0, (OLD, NEW))
CLEANED = PaperLog(((4, 20), (7, 30)), 40, 20, (OLD, NEW))
# Nothing but a snapshot, as right after a download.
INSTALLED = PaperLog((), 35, 35, (NEW,))
# Cleaned up to where an epoch ended: the log knows nothing of epoch 4.
AT_EPOCH = PaperLog(((7, 30),), 40, 30, (OffsetAndEpoch(30, 4),))
