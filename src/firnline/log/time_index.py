"""The sparse time index of a segment: the greatest timestamp up to an offset. STORE.

The layout of its file: `formats/time_index`. Timestamps ascend: an entry that is not above the last one is
left out.
"""

from firnline.formats import time_index
from firnline.log.sparse_index import SparseIndex


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
