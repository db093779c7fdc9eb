"""The snapshot of what each producer last wrote, `<offset>.snapshot`. PURE.

Big endian: version 1 (int16), CRC-32C over what follows it (uint32), number of entries (int32), entries of 46
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
    """What one producer had done. -1 where it had done nothing of the kind; offsets are inclusive."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    txn_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """Return the file of `entries`, which are written in the order given."""
    return encode_packed([ENTRY.pack(*entry) for entry in entries])


def encode_packed(rows: list[bytes]) -> bytes:
    """Return the file of entries that were packed before."""
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _START.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, *, path: str = "") -> list[SnapshotEntry]:
    """Return the entries of a snapshot file; StorageError when it is not whole or not version 1."""
    return list(snapshot_entries(data, path=path))


def snapshot_entries(data: bytes, *, path: str = "") -> Iterator[SnapshotEntry]:
    """As `decode_snapshot`; the file is judged now, its entries are decoded one at a time."""
    if len(data) < _HEAD.size:
        raise StorageError("a producer snapshot is cut short", path=path, size=len(data))
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise StorageError("a producer snapshot of another version", path=path, version=version)
    if crc != crc32c(data[_START.size :]):
        raise StorageError("a producer snapshot with a wrong CRC", path=path)
    if len(data) != _HEAD.size + count * ENTRY.size:
        raise StorageError(
            "a producer snapshot of another size than it says", path=path, entries=count
        )
    return map(SnapshotEntry._make, ENTRY.iter_unpack(data[_HEAD.size :]))


class SnapshotRows:
    """The entries of a snapshot file, decoded whenever somebody goes through them, one at a time.

    StorageError at once for a file that is not whole or not version 1.
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
        """Return those whose last batch lies below `offset`, or who have none."""
        return SnapshotRows(self._data, below_offset=offset)
