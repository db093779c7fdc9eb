"""The interfaces that the quorum needs: a log, its snapshots, a store for votes, and a listener. PURE.

`metadata/meta_log.py` implements the stores, `metadata/quorum.py` the listener. Source: KIP-595, KIP-630.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from firnline.base.effects import Effects
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.ports import File
from firnline.raft.election_state import ElectionState

# Runs when the disk has done what it was asked for, or has failed: `then(problem or None, now_ms)`.
SaveCallback = Callable[[StorageError | None, int], Effects]


class SnapshotFile(Protocol):
    """A complete snapshot, open for reading; it is readable until it is closed (Q41)."""

    @property
    def size_bytes(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`, without regard to batches."""
        ...

    def close(self) -> None: ...


class SnapshotPart(Protocol):
    """A snapshot that is being received or written: a `.part` file that is never loaded (Q9, Q35)."""

    @property
    def snapshot_id(self) -> OffsetAndEpoch: ...

    @property
    def size_bytes(self) -> int:
        """The bytes received so far; the position to ask for next."""
        ...

    def append(self, data: bytes) -> KafkaError | None:
        """Append the next bytes, without regard to batches; each batch is checked when it is complete.

        Returns CORRUPT_MESSAGE for bytes that cannot be part of a snapshot: the download has failed.
        """
        ...

    def problem(self) -> KafkaError | None:
        """What a complete snapshot needs and this lacks: header first, footer last, complete batches. None if
        it is complete."""
        ...

    def files(self) -> Sequence[File]:
        """The files to sync before `ReplicatedLog.install`."""
        ...

    def discard(self) -> None:
        """Close and remove the part."""
        ...


class ReplicatedLog(Protocol):
    """The log of `__cluster_metadata-0` and its snapshots, as the quorum uses them.

    Damage and failing devices raise StorageError: the node stops (rel-P9).
    """

    @property
    def start_offset(self) -> int:
        """The first offset of the log, inclusive; 0, or the end of a snapshot that is on this disk (Q42)."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    @property
    def synced_offset(self) -> int:
        """Everything below survives a power cut; at most `end_offset`."""
        ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, or of the snapshot the log starts at; 0 for neither (Q4)."""
        ...

    @property
    def forgotten(self) -> OffsetAndEpoch | None:
        """A place that this log once reached durably and has lost since. None: it has all records that it
        ever had."""
        ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch of this log that is at most `epoch`, and its end offset, exclusive (spec 1.7, 4).

        If that is the end of the earliest snapshot, the epoch is the snapshot's. (0, 0) for none.
        """
        ...

    def append(self, batch: bytearray, *, epoch: int, now_ms: int) -> int:
        """Append one complete batch as leader; return its base offset."""
        ...

    def append_fetched(self, data: bytes, *, now_ms: int) -> KafkaError | None:
        """Append complete batches of a leader unchanged; an incomplete one at the end is left out.

        Returns CORRUPT_MESSAGE and writes nothing for bytes that are damaged, leave a gap, or fall back in
        epoch: the peer is at fault.
        """
        ...

    def read(self, start_offset: int, *, max_bytes: int) -> bytes:
        """Return complete batches from the one with `start_offset` on, committed or not; at least one; none
        at the end."""
        ...

    @property
    def lost_beginning(self) -> bool:
        """Is the beginning of the log lost, so that no record counts? Then `start_offset` and `end_offset`
        are 0, and `truncate_to(0)` must remove the rest before anything is appended."""
        ...

    def truncate_to(self, offset: int, then: SaveCallback, now_ms: int) -> Effects:
        """Remove everything from `offset` on, off the event loop; never below the high watermark (X8).

        `then(problem or None, now_ms)` runs when no power cut can bring it back. Until then the offsets are
        those before or those after the truncation; the caller appends nothing, and installs or retires no
        snapshot.
        """
        ...

    def unsynced(self) -> Sequence[File]:
        """The files to sync so that everything below `end_offset` is durable."""
        ...

    def synced(self, end_offset: int) -> None:
        """Note that everything below `end_offset` is durable."""
        ...

    def advance_high_watermark(self, offset: int) -> None:
        """Note that everything below `offset` is committed."""
        ...

    # --------------------------------------------------------------------------------- snapshots

    @property
    def newest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest complete snapshot except the bootstrap one, 0-0 (Q12); None for none."""
        ...

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The oldest complete snapshot except the bootstrap one; None for none."""
        ...

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotFile | None:
        """Open a snapshot for reading; None if it does not exist, or is 0-0."""
        ...

    def start_part(self, snapshot_id: OffsetAndEpoch) -> SnapshotPart:
        """Begin to receive a snapshot from a leader, at its first byte."""
        ...

    def install(
        self, part: SnapshotPart, begun: Callable[[int], Effects], then: SaveCallback, now_ms: int
    ) -> Effects:
        """Rename a complete and synced part, then begin the log anew at its end, off the event loop (Q37).

        `begun(now_ms)` runs when log start and log end become the snapshot's end; file and name are durable
        then. `then(problem or None, now_ms)` runs when the log is durable, too. In between the caller uses
        only the offsets and the snapshot. The effects remove the files of older snapshots after the delete
        delay, so that readers can finish (Q41).
        """
        ...

    def retire_snapshots(self, new_start_offset: int, *, now_ms: int) -> Effects:
        """Raise the log start to the end of a snapshot on this disk, and remove everything before it
        (Q40-Q42).

        Files are renamed when the start is durable, and removed after the delete delay, so that readers can
        finish.
        """
        ...

    def snapshot_sizes(self) -> Sequence[tuple[OffsetAndEpoch, int, int]]:
        """Id, size and last contained log time in ms of each complete snapshot, oldest first (Q40)."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of the log's segments, without snapshots."""
        ...


class ElectionStore(Protocol):
    """Stores epoch, vote and leader."""

    def load(self) -> ElectionState | None:
        """Return the last saved state; None if there is none. StorageError for a damaged one."""
        ...

    def save(
        self, state: ElectionState, then: Callable[[Exception | None, int], Effects], now_ms: int
    ) -> Effects:
        """Replace the saved state, off the event loop; one save at a time.

        `then(problem or None, now_ms)` runs when it is durable; until then a crash may leave either state.
        """
        ...


class RaftListener(Protocol):
    """Applies what the quorum commits. The order of calls: first what is committed, then who leads."""

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> Effects:
        """A snapshot replaced the log: load it; commits continue at its end (Q39)."""
        ...

    def on_useless_snapshot(
        self, snapshot_id: OffsetAndEpoch, replica_id: int, now_ms: int
    ) -> Effects:
        """A replica cannot load this snapshot of the leader; this disk may have damaged it. Take another
        one."""
        ...

    def on_committed(self, end_offset: int, now_ms: int) -> Effects:
        """Everything below `end_offset` is committed, and is in the log."""
        ...

    def on_leader(self, epoch: int, now_ms: int) -> Effects:
        """This node leads `epoch`; the listener was notified of all commits before that epoch (Q39, X16)."""
        ...

    def on_leader_change(self, leader_id: int, epoch: int, now_ms: int) -> Effects:
        """Another node leads `epoch`, or no known node (-1).

        If this node led, it leads no more: its uncommitted proposals may or may not survive.
        """
        ...
