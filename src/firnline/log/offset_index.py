"""The sparse offset index of a segment: which batch begins where. STORE.

File: entries of 8 bytes, big endian: offset relative to the segment's base (int32), position (int32). An
entry names the LAST offset of the batch that begins at its position, as Kafka writes it, so the batch that
holds an offset is never before the entry found for it.
"""

from array import array
from bisect import bisect_right

from firnline.base.units import INT32_MAX
from firnline.log.sparse_index import WORD, SparseIndex, ascends, read_words, write_words

ENTRY_BYTES = 8


class OffsetIndex(SparseIndex):
    """Offsets, relative to the base, and positions of one segment; both ascend."""

    __slots__ = ()
    entry_bytes = ENTRY_BYTES
    codes = (WORD, WORD)

    def load(self, segment_size_bytes: int) -> bool:
        """Read the file; False when it is missing or cannot be this segment's, and nothing is kept."""
        self.clear_memory()
        found = self._read()
        if found is None:
            return False
        offsets, positions = found
        if positions and (positions[-1] >= segment_size_bytes or offsets[-1] > INT32_MAX):
            return False
        return ascends(positions) and self._take(offsets, positions)

    def add(self, last_offset: int, position: int) -> None:
        """Note that the batch whose last record is `last_offset` begins at `position`."""
        self._add(last_offset - self.base_offset, position)

    def position_for(self, offset: int) -> int:
        """Return a position at or before the batch that holds `offset`; scan forward from there."""
        slot = bisect_right(self._keys, offset - self.base_offset) - 1
        return self._values[slot] if slot >= 0 else 0

    def entry_for(self, offset: int) -> tuple[int, int]:
        """Return `position_for(offset)` and the last offset of the batch there; (0, -1) without an entry."""
        slot = bisect_right(self._keys, offset - self.base_offset) - 1
        return (self._values[slot], self.base_offset + self._keys[slot]) if slot >= 0 else (0, -1)

    def entry_below(self, position: int) -> tuple[int, int]:
        """Return the last indexed position that is not after `position`, and the last offset of its batch."""
        slot = bisect_right(self._values, position) - 1
        return (self._values[slot], self.base_offset + self._keys[slot]) if slot >= 0 else (0, -1)

    def last_position(self) -> int:
        """Return the position of the last entry, 0 without one."""
        return self._values[-1] if self._values else 0

    def entries(self) -> list[tuple[int, int]]:
        """Return (offset, position) of every entry."""
        return [(self.base_offset + o, p) for o, p in zip(self._keys, self._values)]

    def truncate_to(self, offset: int) -> int:
        """Drop the entries at or after `offset`; return the size that the file is to be cut to."""
        return self._drop_from(self._keys, offset)

    def decode(self, data: bytes) -> "tuple[array[int], array[int]]":
        words = read_words(data)
        return words[0::2], words[1::2]

    def encode(self, keys: "array[int]", values: "array[int]") -> bytes:
        words: array[int] = array(WORD, bytes(len(keys) * ENTRY_BYTES))
        words[0::2], words[1::2] = keys, values
        return write_words(words)
