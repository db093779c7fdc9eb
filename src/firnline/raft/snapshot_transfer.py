"""The follower's side of FetchSnapshot: one download, piece by piece, until it is installed. PURE.

`raft/follower.py` asks for the piece at `position`, one request at a time, and passes on only the response to
that request. After any failure the download is dropped, and a Fetch finds out how to go on: pieces of two
files, or of two leaders, are never mixed (rel-Q17, X12). Source: KIP-630; spec Q35-Q38.
"""

from enum import Enum
from typing import Protocol

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.raft.ports import SnapshotPart
from firnline.raft.snapshot_serve import Chunk


class PartTaker(Protocol):
    """Receives a download; every `ReplicatedLog` is one."""

    @property
    def newest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    def start_part(self, snapshot_id: OffsetAndEpoch) -> SnapshotPart: ...


class Taken(Enum):
    """The state of the download after a piece."""

    MORE = "more"  # ask for the next one
    COMPLETE = "complete"  # complete and checked: sync `part.files()`, then `install`
    RESTART = "restart"  # the download was dropped: Fetch again, after a wait


class SnapshotTransfer:
    """At most one download. Invariants:

    I1  the received bytes are a prefix of one file of one leader.
    I2  a part is installed only if it is complete and its files were synced.
    I3  a part is not closed while its files are being synced.
    """

    __slots__ = ("_is_syncing", "_log", "_size_bytes", "part", "problem")

    def __init__(self, log: PartTaker) -> None:
        self._log = log
        self._size_bytes: int | None = None  # of the whole file, from the first piece
        self._is_syncing = False
        self.part: SnapshotPart | None = None
        self.problem: KafkaError | None = None  # why `take` dropped the last download

    @property
    def snapshot_id(self) -> OffsetAndEpoch | None:
        """The snapshot that is being received or synced; the log is not fetched meanwhile (Q35). None for
        none."""
        return None if self.part is None else self.part.snapshot_id

    @property
    def position(self) -> int:
        """The bytes received: the position to ask for next."""
        return 0 if self.part is None else self.part.size_bytes

    def begin(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Begin a download; False for one that is no snapshot (0-0), or not newer than the newest local one.

        A download of the same snapshot goes on; one of another snapshot is dropped. StorageError if the part
        cannot be written.
        """
        newest = self._log.newest_snapshot_id
        if snapshot_id.offset <= 0 or snapshot_id.epoch < 0:
            return False
        if newest is not None and _order(snapshot_id) <= _order(newest):
            return False
        if self.snapshot_id == snapshot_id:
            return True
        self.drop()
        self.part = self._log.start_part(snapshot_id)
        self.problem = None
        return True

    def take(self, chunk: Chunk) -> Taken:
        """Take the response to the request for `position`. StorageError if it cannot be written."""
        part = self.part
        assert part is not None, "there is a request for this piece"
        assert not self._is_syncing, "the snapshot was incomplete"
        self.problem = self._check_chunk(part, chunk) or part.append(chunk.data)
        if self.problem is None:
            if part.size_bytes < chunk.size_bytes:
                return Taken.MORE
            self.problem = part.problem()
        if self.problem is not None:
            self.drop()
            return Taken.RESTART
        self._is_syncing = True
        return Taken.COMPLETE

    def end(self, part: SnapshotPart) -> bool:
        """The files of `part` are synced. True if it is to be installed; False if it was dropped
        meanwhile."""
        if part is not self.part:
            part.discard()
            return False
        self._forget()
        return True

    def drop(self) -> None:
        """Drop the download: the leader or the role changed, the leader refused, or the node stops."""
        part, is_syncing = self.part, self._is_syncing
        self._forget()
        # A part whose files are being synced is discarded by `end`, after the sync.
        if part is not None and not is_syncing:
            part.discard()

    def _forget(self) -> None:
        self.part = self._size_bytes = None
        self._is_syncing = False

    def _check_chunk(self, part: SnapshotPart, chunk: Chunk) -> KafkaError | None:
        """Is this the piece that was asked for, and of the same file as the last one?"""
        size_bytes, self._size_bytes = self._size_bytes, chunk.size_bytes
        if chunk.snapshot_id != part.snapshot_id or chunk.position != part.size_bytes:
            why = "the leader answered with another piece than was asked for"
        elif size_bytes is not None and size_bytes != chunk.size_bytes:
            why = "the leader's snapshot changed its size"
        elif not 0 < len(chunk.data) <= chunk.size_bytes - chunk.position:
            why = "the leader sent nothing, or more than the snapshot has"
        else:
            return None
        return KafkaError(
            Code.CORRUPT_MESSAGE, why, snapshot=chunk.snapshot_id, position=chunk.position
        )


def _order(snapshot_id: OffsetAndEpoch) -> tuple[int, int]:
    return snapshot_id.epoch, snapshot_id.offset
