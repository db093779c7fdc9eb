"""The sparse offset index of a segment: which batch begins where. STORE.

File: entries of 8 bytes, big endian: offset relative to the segment's base (int32), position (int32). An
entry names the LAST offset of the batch that begins at its position, as Kafka writes it, so the batch that
holds an offset is never before the entry found for it. Entries are kept as two arrays of machine integers,
8 bytes an entry, and reach the file when the segment is finished: what a crash takes is built again from the
batches (rel-P8).
A tail of zeros, as Kafka leaves it in a preallocated file after a crash, is cut off (rel-P14).
"""

import sys
from array import array
from bisect import bisect_right
from itertools import pairwise

from firnline.base.ports import File, Fs
from firnline.base.units import INT32_MAX

ENTRY_BYTES = 8
# In place of a count of entries written: none are in memory, and none are missing in the file.
_AS_ON_DISK = -1
WORD = "I" if array("I").itemsize == 4 else "L"


def read_words(data: bytes) -> "array[int]":
    """Return the big endian 32-bit words of `data`."""
    words: array[int] = array(WORD)
    words.frombytes(data[: len(data) // 4 * 4])
    if sys.byteorder == "little":
        words.byteswap()
    return words


def write_words(words: "array[int]") -> bytes:
    """Return `words` as big endian bytes."""
    if sys.byteorder == "little":
        words = words[:]
        words.byteswap()
    return words.tobytes()


class OffsetIndex:
    """Offsets and positions of one segment, ascending. Invariant: both arrays have one length."""

    __slots__ = ("_fs", "_offsets", "_positions", "_written", "base_offset", "path")

    def __init__(self, fs: Fs, path: str, base_offset: int) -> None:
        self._fs = fs
        self.path = path
        self.base_offset = base_offset
        self._offsets: array[int] = array(WORD)
        self._positions: array[int] = array(WORD)
        self._written = 0  # entries that are in the file

    def __len__(self) -> int:
        return len(self._offsets)

    def load(self, segment_size_bytes: int) -> bool:
        """Read the file; False when it is missing or cannot be this segment's, and nothing is kept."""
        self.clear_memory()
        if not self._fs.exists(self.path):
            return False
        file = self._fs.open(self.path)
        try:
            words = read_words(file.read(0, file.size()))
            offsets, positions = words[0::2], words[1::2]
            if len(positions) < len(offsets):
                return False
            while positions and not positions[-1] and not offsets[-1]:
                positions.pop()
                offsets.pop()
            if len(offsets) * ENTRY_BYTES != file.size():
                file.truncate(len(offsets) * ENTRY_BYTES)
        finally:
            file.close()
        if not _ascends(offsets) or not _ascends(positions):
            return False
        if positions and (positions[-1] >= segment_size_bytes or offsets[-1] > INT32_MAX):
            return False
        self._offsets, self._positions, self._written = offsets, positions, len(offsets)
        return True

    def add(self, last_offset: int, position: int) -> None:
        """Note that the batch whose last record is `last_offset` begins at `position`."""
        self._offsets.append(last_offset - self.base_offset)
        self._positions.append(position)

    def position_for(self, offset: int) -> int:
        """Return a position at or before the batch that holds `offset`; scan forward from there."""
        slot = bisect_right(self._offsets, offset - self.base_offset) - 1
        return self._positions[slot] if slot >= 0 else 0

    def position_below(self, position: int) -> int:
        """Return the last indexed position that is not after `position`; 0 without one."""
        slot = bisect_right(self._positions, position) - 1
        return self._positions[slot] if slot >= 0 else 0

    def last_position(self) -> int:
        """Return the position of the last entry, 0 without one."""
        return self._positions[-1] if self._positions else 0

    def entries(self) -> list[tuple[int, int]]:
        """Return (offset, position) of every entry."""
        return [(self.base_offset + o, p) for o, p in zip(self._offsets, self._positions)]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or after `offset`."""
        keep = max(0, offset - self.base_offset)
        while self._offsets and self._offsets[-1] >= keep:
            self._offsets.pop()
            self._positions.pop()
        if self._written > len(self._offsets):
            self._written = len(self._offsets)
            file = self._fs.open(self.path, create=True)
            file.truncate(min(file.size(), self._written * ENTRY_BYTES))
            file.close()

    def clear_memory(self) -> None:
        """Forget the entries; the file stays."""
        del self._offsets[:]
        del self._positions[:]
        self._written = 0

    def forget(self) -> None:
        """Give the memory back; the file is right as it is, and `load` reads it again."""
        self.clear_memory()
        self._written = _AS_ON_DISK

    def write(self) -> None:
        """Append to the file what it does not have yet."""
        self.open_written().close()

    def open_written(self) -> File:
        """Write what waits and return the file, to be synced and closed by the caller."""
        file = self._fs.open(self.path, create=True)
        if self._written == _AS_ON_DISK:
            return file
        fresh = len(self._offsets) - self._written
        if self._written * ENTRY_BYTES != file.size():
            file.truncate(0)  # what is there is from before a rebuild
            fresh, self._written = len(self._offsets), 0
        if fresh:
            words: array[int] = array(WORD, bytes(fresh * ENTRY_BYTES))
            words[0::2] = self._offsets[self._written :]
            words[1::2] = self._positions[self._written :]
            file.append(write_words(words))
            self._written = len(self._offsets)
        return file


def _ascends(words: "array[int]") -> bool:
    return all(a < b for a, b in pairwise(words))
