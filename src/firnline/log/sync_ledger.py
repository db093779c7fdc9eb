"""What of a log has really reached the disk: the recovery point, and what a Flush still has to sync. STORE.

Rounds: `dirty_files` of the log lists files and opens a round; when their sync is reported the round is
closed, and only then is anything in it believed. So the recovery point never passes what was synced, also
when the log rolled or was truncated while the sync was under way, and when two rounds end in another order
than they began: each lists everything that was unsynced at its time (rel-P5, rel-P10).

A new leader epoch is written beside its file and listed like the rest; it takes the name when its round is
closed, and is kept once a later round has synced the directory (`LeaderEpochs.unkept_from`).
"""

from dataclasses import dataclass, field

from firnline.base.errors import StorageError
from firnline.base.ports import File
from firnline.log.epochs import LeaderEpochs
from firnline.log.segment import Segment


@dataclass(slots=True)
class _Round:
    end_offset: int  # what the caller will report
    covered_offset: int  # what of it is still in the log: a truncation lowers it
    segments: list[Segment]
    dir_changes: int
    lineage: File | None


@dataclass(slots=True)
class SyncLedger:
    """Recovery point of one log: every batch below it is on disk.

    Invariant: `recovery_point` never exceeds the base of the oldest closed segment in `unsynced`.
    """

    recovery_point: int
    epochs: LeaderEpochs
    unsynced: list[Segment] = field(default_factory=list)  # closed, oldest first
    dir_changes: int = 1
    _dir_synced: int = 0
    _placed_at: int = 0  # the change of the directory by which a lineage took its name
    _rounds: list[_Round] = field(default_factory=list)

    @property
    def is_dir_dirty(self) -> bool:
        """True when a name in the directory may not survive a power cut."""
        return not self.is_dir_synced(self.dir_changes)

    def is_dir_synced(self, change: int) -> bool:
        """True when the directory was synced after that change of its names."""
        return self._dir_synced >= change

    def open_round(self, end_offset: int, lineage: File | None = None) -> None:
        """Note that what is unsynced now is listed for a Flush that reaches `end_offset`."""
        changes = self.dir_changes
        self._rounds.append(_Round(end_offset, end_offset, list(self.unsynced), changes, lineage))

    def close_round(self, end_offset: int) -> None:
        """Believe the oldest round that reached `end_offset`, and forget those that began before it.

        Without one nothing is believed: a later round has ended, and vouched for more. StorageError, and
        nothing is believed, where a file of the log was not there to be synced.
        """
        wanted = [i for i, r in enumerate(self._rounds) if r.end_offset == end_offset]
        if not wanted:
            return
        done = self._rounds[wanted[0]]
        del self._rounds[: wanted[0] + 1]
        if done.segments:
            self._refuse_loss(done.segments)
        self._dir_is_synced(done.dir_changes)
        if done.lineage is not None and self.epochs.place(done.lineage):
            self.dir_changes += 1
            self._placed_at = self.dir_changes
        if done.segments:
            self.removed(done.segments)
        self._advance(done.covered_offset)

    def _refuse_loss(self, segments: list[Segment]) -> None:
        """What was taken out of the log meanwhile may be gone; a file of any other is lost."""
        known = {segment.base_offset: segment for segment in self.unsynced}
        for segment in segments:
            path = segment.syncs.missing_path
            if path is not None and known.get(segment.base_offset) is segment:
                raise StorageError(
                    "a file of a log is gone before it was synced", path=path, error="ENOENT"
                )

    def _dir_is_synced(self, changes: int) -> None:
        self._dir_synced = max(self._dir_synced, changes)
        if self._dir_synced >= self._placed_at:
            self.epochs.placed_is_kept()

    def _advance(self, offset: int) -> None:
        if self.unsynced:
            offset = min(offset, self.unsynced[0].base_offset)
        self.recovery_point = max(self.recovery_point, offset)

    def lower(self, offset: int) -> None:
        """Vouch for nothing at or after `offset`, whatever a Flush under way reports."""
        self.recovery_point = min(self.recovery_point, offset)
        for one in self._rounds:
            one.covered_offset = min(one.covered_offset, offset)
            one.segments = []

    def truncated_to(self, offset: int) -> None:
        """Nothing at or after `offset` is in the log any more."""
        self.lower(offset)
        self.unsynced = [segment for segment in self.unsynced if segment.base_offset < offset]

    def removed(self, segments: list[Segment]) -> None:
        """Nothing of those segments is left to sync: their files are synced, or gone."""
        gone = {segment.base_offset for segment in segments}
        self.unsynced = [kept for kept in self.unsynced if kept.base_offset not in gone]
