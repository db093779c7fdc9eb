"""The sparse time index of a segment: by when had which offset been reached. STORE.

File: entries of 12 bytes, big endian: timestamp (int64), offset relative to the segment's base (int32). An
entry (t, o) says that no batch up to the one whose last offset is `o` has a timestamp above `t`. Timestamps
and offsets ascend; an entry whose timestamp is not above the last one's is left out.
"""

import sys
from array import array
from bisect import bisect_right
from itertools import pairwise

from firnline.base.ports import File, Fs
from firnline.base.units import INT32_MAX
from firnline.log.offset_index import WORD, read_words, write_words

ENTRY_BYTES = 12
# In place of a count of entries written: none are in memory, and none are missing in the file.
_AS_ON_DISK = -1
# Which word of a 64-bit integer comes first in memory: 1 the low one, 0 the high one.
_HIGH = 1 if sys.byteorder == "little" else 0


class TimeIndex:
    """Timestamps in milliseconds and the offsets they belong to, of one segment."""

    __slots__ = ("_fs", "_offsets", "_times", "_written", "base_offset", "last_time_ms", "path")

    def __init__(self, fs: Fs, path: str, base_offset: int) -> None:
        self._fs = fs
        self.path = path
        self.base_offset = base_offset
        self._times: array[int] = array("q")
        self._offsets: array[int] = array("q")
        self._written = 0
        self.last_time_ms = -1

    def __len__(self) -> int:
        return len(self._times)

    def load(self) -> bool:
        """Read the file; False when it is missing or damaged, and nothing is kept."""
        self.clear_memory()
        if not self._fs.exists(self.path):
            return False
        file = self._fs.open(self.path)
        try:
            data = file.read(0, file.size())
            if len(data) % ENTRY_BYTES:
                return False
            times, offsets = _decode(data)
            while times and not times[-1] and not offsets[-1]:
                times.pop()
                offsets.pop()
            if len(times) * ENTRY_BYTES != file.size():
                file.truncate(len(times) * ENTRY_BYTES)
        finally:
            file.close()
        if not _is_sane(times, offsets):
            return False
        self._times, self._offsets = times, offsets
        self._written = len(times)
        self.last_time_ms = times[-1] if times else -1
        return True

    def maybe_add(self, time_ms: int, offset: int) -> None:
        """Note the greatest timestamp so far, reached at `offset`, if it is above the last one noted."""
        if time_ms <= self.last_time_ms:
            return
        self._times.append(time_ms)
        self._offsets.append(offset - self.base_offset)
        self.last_time_ms = time_ms

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, the base without one."""
        return self.base_offset + (self._offsets[-1] if self._offsets else 0)

    def offset_before(self, time_ms: int) -> int:
        """Return an offset at or before the first record with at least that timestamp."""
        slot = bisect_right(self._times, time_ms) - 1
        return self.base_offset + (self._offsets[slot] if slot >= 0 else 0)

    def entries(self) -> list[tuple[int, int]]:
        """Return (timestamp, offset) of every entry."""
        return [(t, self.base_offset + o) for t, o in zip(self._times, self._offsets)]

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or after `offset`."""
        keep = offset - self.base_offset
        while self._offsets and self._offsets[-1] >= keep:
            self._offsets.pop()
            self._times.pop()
        self.last_time_ms = self._times[-1] if self._times else -1
        if self._written > len(self._times):
            self._written = len(self._times)
            file = self._fs.open(self.path, create=True)
            file.truncate(min(file.size(), self._written * ENTRY_BYTES))
            file.close()

    def clear_memory(self) -> None:
        """Forget the entries; the file stays."""
        del self._times[:]
        del self._offsets[:]
        self._written = 0
        self.last_time_ms = -1

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
        if self._written * ENTRY_BYTES != file.size():
            file.truncate(0)
            self._written = 0
        if self._written < len(self._times):
            file.append(_encode(self._times[self._written :], self._offsets[self._written :]))
            self._written = len(self._times)
        return file


def _is_sane(times: "array[int]", offsets: "array[int]") -> bool:
    if any(not 0 <= offset <= INT32_MAX for offset in offsets):
        return False
    return all(a < b for a, b in pairwise(times)) and all(a <= b for a, b in pairwise(offsets))


# An entry is three 32-bit words: slices of arrays are a hundred times as fast as a loop, and a large
# segment writes a quarter of a million entries when it rolls.
def _decode(data: bytes) -> "tuple[array[int], array[int]]":
    words = read_words(data)
    pairs: array[int] = array(words.typecode, bytes(len(words) // 3 * 8))
    pairs[0::2], pairs[1::2] = words[_HIGH::3], words[1 - _HIGH :: 3]
    return array("q", pairs.tobytes()), array("q", words[2::3])


def _encode(times: "array[int]", offsets: "array[int]") -> bytes:
    pairs = array(WORD, times.tobytes())
    words: array[int] = array(WORD, bytes(len(times) * ENTRY_BYTES))
    words[_HIGH::3], words[1 - _HIGH :: 3] = pairs[0::2], pairs[1::2]
    words[2::3] = array(WORD, offsets)
    return write_words(words)
