"""The leader's side of FetchSnapshot: it serves pieces of a snapshot, and holds what a replica needs. PURE.

Without a hold, cleaning would remove a snapshot during its download, or the log after it before the replica
has fetched it; with frequent snapshots the replica would begin anew for ever. So the leader keeps both until
the replica has caught up with the newest snapshot, for a limited time. After that the snapshot is not found,
and the follower starts over (X12). Source: KIP-630; spec 1.5, Q12, Q40, Q41, Q51.
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
# The most replicas that hold snapshots, those with the latest requests: a client may claim any id.
HOLDS_MAX = 1_000
# A replica that begins the same snapshot so often finds it damaged each time, and would do so for ever.
BEGUN_IN_VAIN = 3


class Chunk(NamedTuple):
    """A piece of a snapshot, without regard to batches. `size_bytes` is that of the whole file."""

    snapshot_id: OffsetAndEpoch
    size_bytes: int
    position: int
    data: bytes


class SnapshotSource(Protocol):
    """Opens snapshots; every `ReplicatedLog` is one."""

    def open_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotFile | None: ...


def serve_chunk(
    source: SnapshotSource, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int
) -> Chunk | KafkaError:
    """Return a piece of a snapshot, at most `max_bytes` and the limit of one response.

    SNAPSHOT_NOT_FOUND if it does not exist or is 0-0, POSITION_OUT_OF_RANGE for a position outside the file
    or at its end (X11). StorageError if the file cannot be read.
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
    """What each replica holds. A replica that is silent, or takes too long, loses its hold.

    Invariant: a replica holds for at most `HOLD_MAX_MS`, however often it begins anew, unless it caught up or
    fell silent in between.
    """

    def __init__(self) -> None:
        self._holds: dict[Hashable, _Hold] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def needs(self, replica: Hashable, snapshot_id: OffsetAndEpoch, now_ms: int) -> None:
        """The replica got the id of that snapshot from a Fetch, or fetches a piece of it."""
        hold = self._holds.pop(replica, None) or _Hold(snapshot_id.offset, now_ms)
        hold.offset, hold.last_request_ms = snapshot_id.offset, now_ms
        self._holds[replica] = hold
        if len(self._holds) > HOLDS_MAX:
            del self._holds[next(iter(self._holds))]

    def begins(self, replica: Hashable, snapshot_id: OffsetAndEpoch) -> int:
        """The replica asks for the first piece; return how often it has asked for the first piece of this
        snapshot."""
        hold = self._holds.get(replica)
        if hold is None:
            return 0
        hold.begun = hold.begun + 1 if hold.begun_id == snapshot_id else 1
        hold.begun_id = snapshot_id
        return hold.begun

    def reaches(self, replica: Hashable, offset: int, *, newest_snapshot: int, now_ms: int) -> None:
        """The replica fetches from the log again; at the newest snapshot's end it needs no hold any more."""
        hold = self._holds.get(replica)
        if hold is None:
            return
        if offset >= newest_snapshot:
            del self._holds[replica]
        else:
            hold.offset, hold.last_request_ms = offset, now_ms

    def of(self, replica: Hashable, now_ms: int) -> int | None:
        """Return the offset that the replica holds; None for none."""
        hold = self._holds.get(replica)
        return None if hold is None or not _counts(hold, now_ms) else hold.offset

    def lowest(self, now_ms: int) -> int | None:
        """Return the offset that the log start must not pass; None for none. Forgets silent replicas."""
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
