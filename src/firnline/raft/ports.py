"""What the quorum asks of the world: a log, its snapshots, a place for votes, and somebody to tell. PURE.

`metadata/meta_log.py` supplies the stores; `metadata/quorum.py` listens. Source: KIP-595, KIP-630.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from firnline.base.effects import Effects
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.ports import File
from firnline.raft.election_state import ElectionState

# What runs when the disk has done what it was asked for, or could not: `then(problem or None, now_ms)`.
SaveCallback = Callable[[StorageError | None, int], Effects]


class SnapshotFile(Protocol):
    """A complete snapshot, open for reading; it stays readable until it is closed (Q41)."""

    @property
    def size_bytes(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position` on; cut anywhere."""
        ...

    def close(self) -> None: ...


class SnapshotPart(Protocol):
    """A snapshot on its way here: a `.part` file that nobody loads (Q9, Q35)."""

    @property
    def snapshot_id(self) -> OffsetAndEpoch: ...

    @property
    def size_bytes(self) -> int:
        """Bytes taken so far; the position to ask for next."""
        ...

    def append(self, data: bytes) -> KafkaError | None:
        """Take the next bytes, cut anywhere; each batch is checked as it becomes whole.

        Returns CORRUPT_MESSAGE for bytes that cannot be of a snapshot: the download is worth nothing.
        """
        ...

    def problem(self) -> KafkaError | None:
        """What is missing for a complete snapshot: header first, footer last, no cut batch; None: nothing."""
        ...

    def files(self) -> Sequence[File]:
        """What to sync before `ReplicatedLog.install`."""
        ...

    def discard(self) -> None:
        """Close and remove the part."""
        ...


class ReplicatedLog(Protocol):
    """The log of `__cluster_metadata-0` and its snapshots, as the quorum sees them.

    Damage and devices that fail raise StorageError: the node stops (rel-P9).
    """

    @property
    def start_offset(self) -> int:
        """First offset that is still here, inclusive; 0 or the end of a snapshot that is here (Q42)."""
        ...

    @property
    def end_offset(self) -> int:
        """Offset the next record gets."""
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
        """A place this log once reached, durably, and is short of now: its disk lost what it promised to
        have. None: it has all it ever had."""
        ...

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        """The largest epoch here that is at most `epoch`, and where it ends, exclusive (spec 1.7, 4).

        Where that end is the earliest snapshot's, its epoch is the snapshot's. (0, 0) for none.
        """
        ...

    def append(self, batch: bytearray, *, epoch: int, now_ms: int) -> int:
        """Append one whole batch as leader; return its base offset."""
        ...

    def append_fetched(self, data: bytes, *, now_ms: int) -> KafkaError | None:
        """Append whole batches of a leader as they are; a cut one at the end is left out.

        Returns CORRUPT_MESSAGE, nothing being written, for bytes that are damaged, leave a gap, or fall
        back in epoch: the peer is at fault.
        """
        ...

    def read(self, start_offset: int, *, max_bytes: int) -> bytes:
        """Whole batches from that of `start_offset` on, committed or not; one at least; empty at the end."""
        ...

    @property
    def lost_beginning(self) -> bool:
        """What is on disk begins in the middle, so that none of it counts: `start_offset` and `end_offset`
        are 0. `truncate_to(0)` drops it; nothing is appended before."""
        ...

    def truncate_to(self, offset: int, then: SaveCallback, now_ms: int) -> Effects:
        """Drop everything from `offset` on, off the loop; never below the high watermark (X8).

        `then(problem or None, now_ms)` once no power cut brings it back. Until then the log still says
        what it had, or already what it keeps; nothing is appended, and no snapshot is installed or retired.
        """
        ...

    def unsynced(self) -> Sequence[File]:
        """The files to sync so that everything below `end_offset` survives a power cut."""
        ...

    def synced(self, end_offset: int) -> None:
        """Hear that everything below `end_offset` survives now."""
        ...

    def advance_high_watermark(self, offset: int) -> None:
        """Hear that everything below `offset` is committed."""
        ...

    # --------------------------------------------------------------------------------- snapshots

    @property
    def newest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest complete snapshot but for the bootstrap one, 0-0 (Q12); None for none."""
        ...

    @property
    def earliest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The oldest complete snapshot but for the bootstrap one; None for none."""
        ...

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotFile | None:
        """Open a snapshot for reading; None when it is not here, or is 0-0."""
        ...

    def start_part(self, snapshot_id: OffsetAndEpoch) -> SnapshotPart:
        """Begin to take a snapshot from a leader, from its first byte."""
        ...

    def install(
        self, part: SnapshotPart, begun: Callable[[int], Effects], then: SaveCallback, now_ms: int
    ) -> Effects:
        """Give a complete and synced part its name, then start the log anew at its end, off the loop (Q37).

        `begun(now_ms)` runs in the step in which start and end become the snapshot's end, whose file and
        name are durable; `then(problem or None, now_ms)` once the log is, too. Nothing else is asked of the
        log in between but its offsets, and the snapshot. The effects remove the files of older snapshots
        after the delete delay, so that open readers finish (Q41).
        """
        ...

    def retire_snapshots(self, new_start_offset: int, *, now_ms: int) -> Effects:
        """Advance the log start to the end of a snapshot that is here; remove what lies before (Q40-Q42).

        Files are renamed once the start is durable, and removed after the delete delay, so that open readers
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
    """Where epoch and vote are kept."""

    def load(self) -> ElectionState | None:
        """The last saved state; None when there is none. StorageError for a damaged one."""
        ...

    def save(
        self, state: ElectionState, then: Callable[[Exception | None, int], Effects], now_ms: int
    ) -> Effects:
        """Keep `state` in the place of the last one, off the loop; one at a time.

        `then(problem or None, now_ms)` once it survives a power cut; before that either may be found.
        """
        ...


class RaftListener(Protocol):
    """Who applies what the quorum commits. Calls come in this order: what is committed, then who leads."""

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, now_ms: int) -> Effects:
        """A snapshot was installed in place of the log: load it; commits go on from its end (Q39)."""
        ...

    def on_useless_snapshot(
        self, snapshot_id: OffsetAndEpoch, replica_id: int, now_ms: int
    ) -> Effects:
        """A replica cannot load this snapshot of the leader's: its disk may have damaged it. Take another."""
        ...

    def on_committed(self, end_offset: int, now_ms: int) -> Effects:
        """Everything below `end_offset` is committed; it is in the log."""
        ...

    def on_leader(self, epoch: int, now_ms: int) -> Effects:
        """This node leads `epoch`, and everything before that epoch is committed and was told (Q39, X16)."""
        ...

    def on_leader_change(self, leader_id: int, epoch: int, now_ms: int) -> Effects:
        """Another node leads `epoch`, or nobody that is known (-1). If this node led, it does no more:
        what it proposed and did not hear committed may or may not survive."""
        ...
