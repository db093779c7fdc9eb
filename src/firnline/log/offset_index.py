"""The sparse offset index of a segment: positions of some batches by offset. STORE.

The layout of its file: `formats/offset_index`.
"""

from firnline.formats import offset_index
from firnline.log.sparse_index import SparseIndex


class OffsetIndex(SparseIndex):
    """Offsets, relative to the base, and positions of one segment; both ascend."""

    __slots__ = ()
    entry_bytes = offset_index.ENTRY_BYTES
    codes = offset_index.CODES
    decode = staticmethod(offset_index.decode)
    encode = staticmethod(offset_index.encode)
    can_be = staticmethod(offset_index.can_be)

    def load(self, segment_size_bytes: int) -> bool:
        """Load the file; False, and the index is empty, where it is missing or of another segment."""
        if not self._load():
            return False
        if self._values and self._values[-1] >= segment_size_bytes:
            self.clear_memory()
            return False
        return True

    def add(self, last_offset: int, position: int) -> None:
        """Add the batch with `last_offset`, which begins at `position`."""
        self._add(last_offset - self.base_offset, position)

    def entry_for(self, offset: int) -> tuple[int, int]:
        """Return a position at or before the batch that holds `offset`, to scan forward from.

        And the last offset of the batch there. (0, -1) without an entry.
        """
        found = self._at_most(0, offset - self.base_offset)
        return (found[1], self.base_offset + found[0]) if found else (0, -1)

    def entry_below(self, position: int) -> tuple[int, int]:
        """Return the last indexed position that is not after `position`, and the last offset of its batch."""
        found = self._at_most(1, position)
        return (found[1], self.base_offset + found[0]) if found else (0, -1)

    def last_position(self) -> int:
        """Return the position of the last entry, 0 without one."""
        return self._values[-1] if self._values else 0

    def entries(self) -> list[tuple[int, int]]:
        """Return (offset, position) of every entry."""
        return [(self.base_offset + o, p) for o, p in zip(*self.columns())]

    def truncate_to(self, offset: int) -> int:
        """Drop the entries at or after `offset`; return the size to truncate the file to."""
        return self._drop_from(0, offset)
