"""The offset index and the time index of a segment. STORE.

Both are sparse: they have an entry for some of the batches. The offset index has their positions by offset;
the time index has the greatest timestamp up to an offset. Timestamps ascend: an entry that is not above the
last one is left out. The layouts of the files: `formats/offset_index`, `formats/time_index`.
"""

from firnline.formats import offset_index, time_index
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


class TimeIndex(SparseIndex):
    """Timestamps in milliseconds and the offsets, relative to the base, that they belong to."""

    __slots__ = ()
    entry_bytes = time_index.ENTRY_BYTES
    codes = time_index.CODES
    decode = staticmethod(time_index.decode)
    encode = staticmethod(time_index.encode)
    can_be = staticmethod(time_index.can_be)

    def load(self) -> bool:
        """Load the file; False, and the index is empty, when it is missing or damaged."""
        return self._load()

    @property
    def last_time_ms(self) -> int:
        """The timestamp of the last entry, -1 without one."""
        return self._keys[-1] if self._keys else -1

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, the base without one."""
        return self.base_offset + (self._values[-1] if self._values else 0)

    def maybe_add(self, time_ms: int, offset: int) -> None:
        """Add the greatest timestamp so far, that of `offset`, if it is above the last entry's."""
        if time_ms > self.last_time_ms:
            self._add(time_ms, offset - self.base_offset)

    def entry_before(self, time_ms: int) -> tuple[int, int]:
        """Return the last (timestamp, offset) entry of at most that time; (-1, base) without one.

        The first record whose timestamp is at least `time_ms` is there or later.
        """
        found = self._at_most(0, time_ms)
        return (found[0], self.base_offset + found[1]) if found else (-1, self.base_offset)

    def entries(self) -> list[tuple[int, int]]:
        """Return (timestamp, offset) of every entry."""
        return [(t, self.base_offset + o) for t, o in zip(*self.columns())]

    def truncate_to(self, offset: int) -> int:
        """Drop the entries at or after `offset`; return the size to truncate the file to."""
        return self._drop_from(1, offset)
