"""The leader's half of FetchSnapshot: a slice of a snapshot file, and what is kept meanwhile. PURE.

Cleaning would take a snapshot away in the middle of its download, and the log behind it before the replica
has read it: with snapshots in quick succession it would begin anew for ever. So both stay until it has caught
up with the newest snapshot, for a bounded time. One that is gone after that is not found any more, and the
follower starts over (X12). Source: KIP-630; spec 1.5, Q12, Q40, Q41, Q51.
"""

from collections.abc import Hashable
from typing import NamedTuple, Protocol

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.limits import SNAPSHOT_SLICE_BYTES_MAX
from firnline.base.units import HOUR_MS
from firnline.raft.ports import SnapshotFile
from firnline.raft.settings import OBSERVER_SILENCE_MAX_MS

HOLD_MAX_MS = HOUR_MS
# So many replicas hold something, those heard of last: a client may claim any id.
HOLDS_MAX = 1_000
# A replica that begins the same snapshot so often found it damaged: it would for ever.
BEGUN_IN_VAIN = 3


class Chunk(NamedTuple):
    """A slice of a snapshot, cut anywhere. `size_bytes` is that of the whole file."""

    snapshot_id: OffsetAndEpoch
    size_bytes: int
    position: int
    data: bytes


class SnapshotSource(Protocol):
    """Where snapshots are; every `ReplicatedLog` is one."""

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotFile | None: ...


def serve_chunk(
    source: SnapshotSource, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int
) -> Chunk | KafkaError:
    """Return what of a snapshot a follower asked for, at most `max_bytes` and the cap of one answer.

    SNAPSHOT_NOT_FOUND for one that is not here or is 0-0, POSITION_OUT_OF_RANGE for a position outside of
    the file, its end included (X11). StorageError when the file cannot be read.
    """
    if max_bytes < 0:
        return KafkaError(Code.INVALID_REQUEST, "a negative size", max_bytes=max_bytes)
    file = source.open_snapshot(snapshot_id)
    if file is None:
        return KafkaError(Code.SNAPSHOT_NOT_FOUND, "no such snapshot", snapshot=snapshot_id)
    try:
        size_bytes = file.size_bytes
        if not 0 <= position < size_bytes:
            return KafkaError(
                Code.POSITION_OUT_OF_RANGE,
                "a position outside of the snapshot",
                position=position,
                size_bytes=size_bytes,
            )
        data = file.read(position, min(max_bytes, SNAPSHOT_SLICE_BYTES_MAX))
    finally:
        file.close()
    return Chunk(snapshot_id, size_bytes, position, data)


class _Hold:
    __slots__ = ("began_ms", "begun", "begun_id", "last_request_ms", "offset")

    def __init__(self, offset: int, now_ms: int) -> None:
        self.offset = offset  # the log must not begin after it
        self.begun_id: OffsetAndEpoch | None = None
        self.begun = 0  # how often it began to fetch that snapshot
        self.began_ms = self.last_request_ms = now_ms


class Downloads:
    """What is held, by replica. One that is silent, or takes too long, loses its claim.

    Invariant: a replica holds for `HOLD_MAX_MS` in all, however often it begins anew, until it was caught up
    or silent in between.
    """

    def __init__(self) -> None:
        self._holds: dict[Hashable, _Hold] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def needs(self, replica: Hashable, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """It was told to fetch that snapshot, or it fetches a piece of it."""
        hold = self._holds.pop(replica, None) or _Hold(snapshot_id.offset, now_ms)
        hold.offset, hold.last_request_ms = snapshot_id.offset, now_ms
        self._holds[replica] = hold
        if len(self._holds) > HOLDS_MAX:
            del self._holds[next(iter(self._holds))]

    def begins(self, replica: Hashable, snapshot_id: OffsetAndEpoch) -> int:
        """It asks for the first piece; return how often it has done so, of this snapshot."""
        hold = self._holds.get(replica)
        if hold is None:
            return 0
        hold.begun = hold.begun + 1 if hold.begun_id == snapshot_id else 1
        hold.begun_id = snapshot_id
        return hold.begun

    def reaches(self, replica: Hashable, offset: int, *, newest_snapshot: int, now_ms: int) -> None:
        """It fetches from the log again: it has caught up where no cleaning can outrun it."""
        hold = self._holds.get(replica)
        if hold is None:
            return
        if offset >= newest_snapshot:
            del self._holds[replica]
        else:
            hold.offset, hold.last_request_ms = offset, now_ms

    def of(self, replica: Hashable, now_ms: int) -> int | None:
        """Return what that replica holds, an offset; None for nothing."""
        hold = self._holds.get(replica)
        return None if hold is None or not _counts(hold, now_ms) else hold.offset

    def lowest(self, now_ms: int) -> int | None:
        """Return the offset after which the log must not begin; None where nobody holds it. Forgets who is
        silent."""
        self._holds = {
            replica: hold
            for replica, hold in self._holds.items()
            if now_ms - hold.last_request_ms < OBSERVER_SILENCE_MAX_MS
        }
        held = [hold.offset for hold in self._holds.values() if _counts(hold, now_ms)]
        return min(held, default=None)


def _counts(hold: _Hold, now_ms: int) -> bool:
    is_live = now_ms - hold.last_request_ms < OBSERVER_SILENCE_MAX_MS
    return is_live and now_ms - hold.began_ms < HOLD_MAX_MS
