"""Record bytes that stay in a file until the socket takes them. PURE."""

from collections.abc import Sequence
from typing import NamedTuple

from firnline.base.limits import JOIN_BYTES_MAX
from firnline.base.ports import Buffer, File


class FileSlice(NamedTuple):
    """`size_bytes` bytes of `file` from `position` on. It keeps the file open (log/segment)."""

    file: File
    position: int
    size_bytes: int

    def read(self) -> bytes:
        return self.file.read(self.position, self.size_bytes)

    def read_ready(self) -> Buffer | None:
        """Like `read`, but None where that would wait for the disk."""
        return self.file.read_ready(self.position, self.size_bytes)


class FileRecords:
    """Complete record batches as slices of segment files, in offset order.

    The message encoder accepts it wherever it accepts bytes, so that `sendfile` can send the records.
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
        """Read the bytes; for tests, followers and coordinators, never for a response to a consumer."""
        return b"".join(s.read() for s in self.slices)


Records = Buffer | FileRecords
EMPTY_RECORDS = b""


def joined(parts: Sequence[Buffer | FileSlice], parts_max: int) -> bytes | None:
    """Read the slices and join all parts.

    None where they exceed JOIN_BYTES_MAX or `parts_max`, or a read would wait for the disk.
    """
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
    """How much memory a part of a response holds: a file slice holds none until it is sent."""
    return 0 if isinstance(part, FileSlice) else len(part)


def read_part(part: Buffer | FileSlice) -> Buffer:
    """Return the bytes of a part of a response."""
    return part.read() if isinstance(part, FileSlice) else part
