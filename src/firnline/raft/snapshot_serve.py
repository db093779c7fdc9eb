"""The leader's half of FetchSnapshot: a slice of a snapshot file, or why not. PURE.

Each request opens the file anew: a snapshot that went in the middle of a download, since it took longer than
it is kept (`raft/downloads.py`), is not found any more, and the follower starts over (X12). Source: KIP-630; spec 1.5, Q12, Q41.
"""

from typing import NamedTuple, Protocol

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.limits import SNAPSHOT_SLICE_BYTES_MAX
from firnline.raft.ports import SnapshotFile


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
