"""Record bytes that stay in a file until the socket takes them. PURE."""

from collections.abc import Sequence
from typing import NamedTuple

from firnline.base.limits import JOIN_BYTES_MAX
from firnline.base.ports import Buffer, File


class FileSlice(NamedTuple):
    """`size_bytes` bytes of `file` from `position` on. The file outlives the slice (log/segment)."""

    file: File
    position: int
    size_bytes: int

    def read(self) -> bytes:
        return self.file.read(self.position, self.size_bytes)

    def read_ready(self) -> Buffer | None:
        """As `read`, but None where that would wait for the disk."""
        return self.file.read_ready(self.position, self.size_bytes)


class FileRecords:
    """Whole record batches as slices of segment files, in offset order.

    A message writer takes it wherever it takes bytes, so that `sendfile` stays possible.
    """

    __slots__ = ("size_bytes", "slices")

    def __init__(self, slices: Sequence[FileSlice]) -> None:
        self.slices = slices
        size = 0
        for _, _, part_bytes in slices:
            size += part_bytes
        self.size_bytes = size

    def __len__(self) -> int:
        return self.size_bytes

    def read(self) -> bytes:
        """Return the bytes; for tests, followers and coordinators, never for a consumer's answer."""
        return b"".join(s.read() for s in self.slices)


Records = Buffer | FileRecords
EMPTY_RECORDS = b""


def joined(parts: Sequence[Buffer | FileSlice], parts_max: int) -> bytes | None:
    """Join up to JOIN_BYTES_MAX, slices read; None where they are larger, or more than `parts_max`, or to
    read them would wait for the disk."""
    if len(parts) > parts_max:
        return None
    size = 0
    for part in parts:
        size += part.size_bytes if isinstance(part, FileSlice) else len(part)
    if size > JOIN_BYTES_MAX:
        return None
    found: list[Buffer] = []
    for part in parts:
        data = part.read_ready() if isinstance(part, FileSlice) else part
        if data is None:
            return None
        found.append(data)
    return b"".join(found)


def held_bytes(part: Buffer | FileSlice) -> int:
    """What a part of an answer holds of memory: what stays in a file until it is sent holds none."""
    return 0 if isinstance(part, FileSlice) else len(part)


def read_part(part: Buffer | FileSlice) -> Buffer:
    """Return the bytes of a part of an answer."""
    return part.read() if isinstance(part, FileSlice) else part
