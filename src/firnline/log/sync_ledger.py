"""The recovery point of a log, and what a Flush still has to sync. STORE.

1. `Log.dirty_files` lists everything that is unsynced, and opens a round.
2. The caller syncs the files.
3. `Log.flushed` closes the round: only now its files count as durable, and the recovery point rises.
So the recovery point never passes what was synced, even if the log was rolled or truncated during the sync,
or if two rounds end in another order than they began (rel-P5, rel-P10).

A new leader epoch checkpoint is written to a temporary file, which belongs to a round like the rest. When
that round is closed the file is renamed; the rename is durable once a later round has synced the directory
(`LeaderEpochs.unkept_from`).
"""

from dataclasses import dataclass, field

from firnline.base.errors import StorageError
from firnline.base.ports import File
from firnline.log.epochs import LeaderEpochs
from firnline.log.segment import Segment


@dataclass(slots=True)
class _Round:
    end_offset: int  # what the caller will pass to `flushed`
    covered_offset: int  # how far the round covers the log: a truncation lowers it
    segments: list[Segment]
    dir_changes: int
    lineage: File | None


@dataclass(slots=True)
class SyncLedger:
    """The recovery point of one log: every batch below it is durable.

    Invariant: `recovery_point` never exceeds the base of the oldest closed segment in `unsynced`.
    """

    recovery_point: int
    epochs: LeaderEpochs
    unsynced: list[Segment] = field(default_factory=list)  # closed, oldest first
    dir_changes: int = 1
    _dir_synced: int = 0
    _placed_at: int = 0  # the directory change that renamed the epoch checkpoint
    _rounds: list[_Round] = field(default_factory=list)

    @property
    def is_dir_dirty(self) -> bool:
        """True when the last change of names in the directory may not survive a power cut."""
        return not self.is_dir_synced(self.dir_changes)

    def is_dir_synced(self, change: int) -> bool:
        """True when the directory was synced after that change of its names."""
        return self._dir_synced >= change

    def open_round(self, end_offset: int, lineage: File | None = None) -> None:
        """Open a round for all that is unsynced now, for a Flush up to `end_offset`."""
        changes = self.dir_changes
        self._rounds.append(_Round(end_offset, end_offset, list(self.unsynced), changes, lineage))

    def close_round(self, end_offset: int) -> None:
        """Close the oldest round up to `end_offset`, and drop the rounds that began before it.

        Does nothing where there is none: a later round has ended already and covered more. StorageError,
        and nothing counts as durable, where a file of the log was missing when it was to be synced.
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
        """Raise StorageError if a file of a segment was missing that still belongs to the log."""
        known = {segment.base_offset: segment for segment in self.unsynced}
        for segment in segments:
            path = segment.syncs.missing_path
            if path is not None and known.get(segment.base_offset) is segment:
                raise StorageError(
                    "a file of a log disappeared before its sync", path=path, error="ENOENT"
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
        """Lower the recovery point to `offset`; a Flush under way will not raise it above that."""
        self.recovery_point = min(self.recovery_point, offset)
        for one in self._rounds:
            one.covered_offset = min(one.covered_offset, offset)
            one.segments = []

    def truncated_to(self, offset: int) -> None:
        """The log was truncated to `offset`."""
        self.lower(offset)
        self.unsynced = [segment for segment in self.unsynced if segment.base_offset < offset]

    def removed(self, segments: list[Segment]) -> None:
        """These segments need no sync any more: their files are synced or deleted."""
        gone = {segment.base_offset for segment in segments}
        self.unsynced = [kept for kept in self.unsynced if kept.base_offset not in gone]
