"""The producer snapshot, `<offset>.snapshot`: the state of each producer. PURE.

Big endian: version 1 (int16), CRC-32C of the rest (uint32), number of entries (int32), entries of 46
bytes: producer id 8, epoch 2, last sequence 4, last data offset 8, offset delta 4, timestamp 8, coordinator
epoch 4, first offset of the open transaction or -1, 8. Source: Kafka's ProducerSnapshot v1.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from firnline.base.errors import StorageError
from firnline.base.units import INT64_MAX

VERSION = 1
ENTRY = Struct(">qhiqiqiq")  # the fields of SnapshotEntry
_HEAD = Struct(">hIi")
_START = Struct(">hI")
_COUNT = Struct(">i")


class SnapshotEntry(NamedTuple):
    """The state of one producer. A field is -1 where the producer has none; offsets are inclusive."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    txn_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """Return the file of `entries`, in the given order."""
    return encode_packed([ENTRY.pack(*entry) for entry in entries])


def encode_packed(rows: list[bytes]) -> bytes:
    """Return the file of entries that were packed before."""
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _START.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, *, path: str = "") -> list[SnapshotEntry]:
    """Return the entries of a snapshot file; StorageError when it is incomplete or not version 1."""
    return list(snapshot_entries(data, path=path))


def snapshot_entries(data: bytes, *, path: str = "") -> Iterator[SnapshotEntry]:
    """Like `decode_snapshot`: checks the file now, and decodes its entries one at a time."""
    if len(data) < _HEAD.size:
        raise StorageError("a producer snapshot is cut short", path=path, size=len(data))
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise StorageError("a producer snapshot of another version", path=path, version=version)
    if crc != crc32c(data[_START.size :]):
        raise StorageError("a producer snapshot with a wrong CRC", path=path)
    if len(data) != _HEAD.size + count * ENTRY.size:
        raise StorageError(
            "the size of a producer snapshot does not fit its entries", path=path, entries=count
        )
    return map(SnapshotEntry._make, ENTRY.iter_unpack(data[_HEAD.size :]))


class SnapshotRows:
    """The entries of a snapshot file; each iteration decodes them anew, one at a time.

    The constructor raises StorageError for a file that is incomplete or not version 1.
    """

    __slots__ = ("_below_offset", "_data")

    def __init__(self, data: bytes, *, below_offset: int = INT64_MAX) -> None:
        snapshot_entries(data)
        self._data = data
        self._below_offset = below_offset

    def __iter__(self) -> Iterator[SnapshotEntry]:
        below = self._below_offset
        return (entry for entry in snapshot_entries(self._data) if entry.last_offset < below)

    def below(self, offset: int) -> "SnapshotRows":
        """Return the entries whose last batch is below `offset`, or that have none."""
        return SnapshotRows(self._data, below_offset=offset)
