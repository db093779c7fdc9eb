"""The follower's half of FetchSnapshot: a download, slice by slice, until it is installed. PURE.

Who drives it (`raft/follower.py`) asks for the slice at `position`, one request at a time, and gives it only
the answer to that one. Whatever goes wrong, the download is dropped and a Fetch says what to do next: slices
of two files, or of two leaders, are never mixed (rel-Q17, X12). Source: KIP-630; spec Q35-Q38.
"""

from enum import Enum
from typing import Protocol

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.raft.ports import SnapshotPart
from firnline.raft.snapshot_serve import Chunk


class PartTaker(Protocol):
    """Where a download goes; every `ReplicatedLog` is one."""

    @property
    def newest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    def start_part(self, snapshot_id: OffsetAndEpoch) -> SnapshotPart: ...


class Taken(Enum):
    """What a slice led to."""

    MORE = "more"  # ask for the next one
    COMPLETE = "complete"  # whole and checked: sync `part.files()`, then `install`
    RESTART = "restart"  # the download is gone: Fetch again, after a wait


class SnapshotTransfer:
    """At most one download. Invariants:

    I1  what was taken is a prefix of one file of one leader.
    I2  a part is installed only after it was found whole and its files were synced.
    I3  a part is not closed while its files are being synced.
    """

    __slots__ = ("_is_syncing", "_log", "_size_bytes", "part", "problem")

    def __init__(self, log: PartTaker) -> None:
        self._log = log
        self._size_bytes: int | None = None  # of the whole file, once a slice told
        self._is_syncing = False
        self.part: SnapshotPart | None = None
        self.problem: KafkaError | None = None  # why the last download was dropped by itself

    @property
    def snapshot_id(self) -> OffsetAndEpoch | None:
        """What is on its way, or being synced; the log is not fetched meanwhile (Q35). None: nothing."""
        return None if self.part is None else self.part.snapshot_id

    @property
    def position(self) -> int:
        """Bytes that are here: the position to ask for next."""
        return 0 if self.part is None else self.part.size_bytes

    def begin(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Begin to download; False for one that is no snapshot (0-0), or not newer than what is here.

        One that is on its way already goes on; another one is dropped for it. StorageError when the part
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
        """Take the answer to the request for `position`. StorageError when it cannot be written."""
        part = self.part
        assert part is not None, "only an answer that is waited for is given"
        assert not self._is_syncing, "nothing was missing"
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
        """The files of `part` are synced: it is to be installed. False when it was dropped meanwhile."""
        if part is not self.part:
            part.discard()
            return False
        self._forget()
        return True

    def drop(self) -> None:
        """Forget the download: another leader, another role, a refusal, the end."""
        part, is_syncing = self.part, self._is_syncing
        self._forget()
        # One whose files are being synced is discarded by `install`, after that.
        if part is not None and not is_syncing:
            part.discard()

    def _forget(self) -> None:
        self.part = self._size_bytes = None
        self._is_syncing = False

    def _check_chunk(self, part: SnapshotPart, chunk: Chunk) -> KafkaError | None:
        """Is the slice the one that was asked for, of the file the last one was of?"""
        size_bytes, self._size_bytes = self._size_bytes, chunk.size_bytes
        if chunk.snapshot_id != part.snapshot_id or chunk.position != part.size_bytes:
            why = "the leader answered with another slice than was asked for"
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
