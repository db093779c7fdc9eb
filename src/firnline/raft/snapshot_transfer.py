"""The follower's half of FetchSnapshot: a download, slice by slice, until it is installed. PURE.

Who drives it (`raft/follower.py`) sends what `request` returns, one at a time, and acts on what the answer
led to. Whatever goes wrong with a download, it is dropped and a Fetch says what to do next: slices of
two files, or of two leaders, are never mixed (rel-Q17, X12). Source: KIP-630; spec Q35-Q38.
"""

from typing import NamedTuple, Protocol

from firnline.base.effects import Effects
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import METADATA_TOPIC, OffsetAndEpoch, Uuid
from firnline.protocol.messages.k59_fetch_snapshot import (
    FetchSnapshotPartition,
    FetchSnapshotPartitionResult,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotTopic,
    SnapshotId,
)
from firnline.raft.ports import SnapshotPart

_PARTITION = 0
_CODES = frozenset(Code)


class PartTaker(Protocol):
    """Where a download goes; every `ReplicatedLog` is one."""

    @property
    def newest_snapshot_id(self) -> OffsetAndEpoch | None: ...

    def start_part(self, snapshot_id: OffsetAndEpoch) -> SnapshotPart: ...

    def install(self, part: SnapshotPart, *, now_ms: int) -> Effects: ...


class Ignored(NamedTuple):
    """An answer to nothing that is asked now: late, repeated, or of a download that was dropped."""


class More(NamedTuple):
    """A slice was taken: send the next `request`."""


class Complete(NamedTuple):
    """The part is whole and was checked: sync `part.files()`, then call `installed`."""

    part: SnapshotPart


class Dropped(NamedTuple):
    """The download is gone: Fetch again, after a wait where `problem` is not one of cleaning (Q36)."""

    problem: KafkaError


Outcome = Ignored | More | Complete | Dropped


class SnapshotTransfer:
    """At most one download. Invariants:

    I1  at most one request is unanswered, and only its answer counts.
    I2  what was taken is a prefix of one file of one leader.
    I3  a part is installed only after it was found whole and its files were synced.
    """

    __slots__ = (
        "_asked",
        "_cluster_id",
        "_directory_id",
        "_log",
        "_max_bytes",
        "_node_id",
        "_part",
        "_size_bytes",
        "_syncing",
    )

    def __init__(
        self,
        log: PartTaker,
        *,
        node_id: int,
        directory_id: Uuid,
        cluster_id: str,
        max_bytes: int,
    ) -> None:
        self._log = log
        self._node_id = node_id
        self._directory_id = directory_id
        self._cluster_id = cluster_id
        self._max_bytes = max_bytes
        self._part: SnapshotPart | None = None
        self._size_bytes: int | None = None  # of the whole file, once an answer told
        self._asked: FetchSnapshotRequest | None = None
        self._syncing: SnapshotPart | None = None

    @property
    def is_active(self) -> bool:
        """Is a snapshot on its way, or being synced? The log is not fetched then (Q35)."""
        return self._part is not None

    @property
    def snapshot_id(self) -> OffsetAndEpoch | None:
        """What is being downloaded; None for nothing."""
        return None if self._part is None else self._part.snapshot_id

    def start(self, snapshot_id: OffsetAndEpoch) -> bool:
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
        self._part = self._log.start_part(snapshot_id)
        return True

    def request(self, *, epoch: int) -> FetchSnapshotRequest | None:
        """The next request, of a follower in `epoch`; None while one is unanswered, or nothing is missing."""
        part = self._part
        if part is None or part is self._syncing or self._asked is not None:
            return None
        end_offset, snapshot_epoch = part.snapshot_id
        asked = FetchSnapshotPartition(
            partition=_PARTITION,
            current_leader_epoch=epoch,
            snapshot_id=SnapshotId(end_offset=end_offset, epoch=snapshot_epoch),
            position=part.size_bytes,
            replica_directory_id=self._directory_id,
        )
        self._asked = FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=self._node_id,
            max_bytes=self._max_bytes,
            topics=[FetchSnapshotTopic(name=METADATA_TOPIC, partitions=[asked])],
        )
        return self._asked

    def on_unanswered(self, request: FetchSnapshotRequest) -> Outcome:
        """No answer came: `request` asks for the same slice again, once the caller has waited."""
        if request is not self._asked:
            return Ignored()
        self._asked = None
        return More()

    def on_response(
        self, request: FetchSnapshotRequest, response: FetchSnapshotResponse
    ) -> Outcome:
        """Take what was answered to `request`. StorageError when it cannot be written."""
        part = self._part
        if request is not self._asked or part is None:
            return Ignored()
        self._asked = None
        found = partition_result(response)
        if isinstance(found, KafkaError):
            return self._dropped(found)
        taken = found.unaligned_records
        data = bytes(taken) if isinstance(taken, bytes | bytearray | memoryview) else b""
        problem = self._judge(part, found, len(data)) or part.append(data)
        if problem is not None:
            return self._dropped(problem)
        if part.size_bytes < found.size:
            return More()
        problem = part.problem()
        if problem is not None:
            return self._dropped(problem)
        self._syncing = part
        return Complete(part)

    def installed(self, part: SnapshotPart, *, now_ms: int) -> Effects | None:
        """The files of `part` are synced: install it and return the effects; None when it was dropped
        meanwhile. The next Fetch is from the part's end (Q38)."""
        if part is not self._part:
            part.discard()
            return None
        self._part = self._syncing = None
        self._size_bytes = None
        return self._log.install(part, now_ms=now_ms)

    def drop(self) -> None:
        """Forget the download: another leader, another role, the end. What comes of it later is ignored."""
        part = self._part
        self._part = self._asked = self._size_bytes = None
        # A part whose files are being synced is discarded by `installed`, after that.
        if part is not None and part is not self._syncing:
            part.discard()
        self._syncing = None

    def _dropped(self, problem: KafkaError) -> Dropped:
        self.drop()
        return Dropped(problem)

    def _judge(
        self, part: SnapshotPart, found: FetchSnapshotPartitionResult, data_bytes: int
    ) -> KafkaError | None:
        """Is the slice the one that was asked for, of the file the last one was of?"""
        got = OffsetAndEpoch(found.snapshot_id.end_offset, found.snapshot_id.epoch)
        size_bytes, self._size_bytes = self._size_bytes, found.size
        if got.offset < 0 or got.epoch < 0:
            why = "the leader has that snapshot no more"
            return KafkaError(Code.SNAPSHOT_NOT_FOUND, why, snapshot=part.snapshot_id)
        if got != part.snapshot_id or found.position != part.size_bytes:
            why = "the leader answered with another slice than was asked for"
        elif size_bytes is not None and size_bytes != found.size:
            why = "the leader's snapshot changed its size"
        elif not 0 < data_bytes <= found.size - found.position:
            why = "the leader sent nothing, or more than the snapshot has"
        else:
            return None
        return KafkaError(Code.CORRUPT_MESSAGE, why, snapshot=got, position=found.position)


def partition_result(
    response: FetchSnapshotResponse,
) -> FetchSnapshotPartitionResult | KafkaError:
    """Return what an answer says of the metadata partition, or the error it holds."""
    code = response.error_code
    for topic in response.topics if not code else ():
        for found in topic.partitions:
            if (topic.name, found.index) == (METADATA_TOPIC, _PARTITION):
                if not found.error_code:
                    return found
                code = found.error_code
    why = "the leader did not send a slice of its snapshot"
    return KafkaError(_code(code or Code.UNKNOWN_SERVER_ERROR), why, code=code)


def _code(number: int) -> Code:
    return Code(number) if number in _CODES else Code.UNKNOWN_SERVER_ERROR


def _order(snapshot_id: OffsetAndEpoch) -> tuple[int, int]:
    return snapshot_id.epoch, snapshot_id.offset
