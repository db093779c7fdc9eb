"""How much of a disk the records of topics may still take. PURE.

The rest is kept for the metadata log, checkpoints and indexes. A node stops if its metadata log cannot be
written, and does not start again: then nobody can shorten the retention of the topics that fill the disk.
"""

from firnline.base.counting.machine import DiskSpace
from firnline.base.units import INT64_MAX, MIB

# What is kept: days of metadata of a quiet cluster, and no large part of a small disk.
KEPT_PART, KEPT_BYTES = 50, 64 * MIB
# Other processes write to the disk, too: below this it is measured more often.
_SMALL_BYTES = 1024 * MIB


class Room:
    """The bytes of one file system that records may still take, by the last measurement.

    What this process appends is subtracted at once. Without a measurement there is no limit: what was freed
    since would not be counted.
    """

    __slots__ = ("_left_bytes", "kept_bytes")

    def __init__(self) -> None:
        self._left_bytes = INT64_MAX
        self.kept_bytes = 0

    def measured(self, space: DiskSpace) -> None:
        """The file system has so much space now. Any thread may call this."""
        self.kept_bytes = kept_bytes(space.total_bytes)
        self._left_bytes = space.free_bytes - self.kept_bytes

    def unknown(self) -> None:
        """The file system cannot be measured now. Any thread may call this."""
        self._left_bytes = INT64_MAX

    def take(self, size_bytes: int) -> bool:
        """Subtract what is about to be appended; False, and nothing is subtracted, if it does not fit."""
        if size_bytes > self._left_bytes:
            return False
        self._left_bytes -= size_bytes
        return True

    @property
    def is_small(self) -> bool:
        """Whether a few seconds of writing may take what is left."""
        return self._left_bytes < _SMALL_BYTES


def kept_bytes(total_bytes: int) -> int:
    """Return how much of a file system of that size records may not take."""
    return min(total_bytes // KEPT_PART, KEPT_BYTES)
