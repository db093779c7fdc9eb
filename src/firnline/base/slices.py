"""Record bytes that stay in a file until the socket takes them. PURE."""

from collections.abc import Sequence
from typing import NamedTuple

from firnline.base.ports import Buffer, File


class FileSlice(NamedTuple):
    """`size_bytes` bytes of `file` from `position` on. The file outlives the slice (log/segment)."""

    file: File
    position: int
    size_bytes: int

    def read(self) -> bytes:
        return self.file.read(self.position, self.size_bytes)


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
