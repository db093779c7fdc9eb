"""The sparse time index of a segment: by when had which offset been reached. STORE.

File: entries of 12 bytes, big endian: timestamp (int64), offset relative to the segment's base (int32). An
entry (t, o) says that no batch up to the one whose last offset is `o` has a timestamp above `t`. Timestamps
and offsets ascend; an entry whose timestamp is not above the last one's is left out.
"""

import sys
from array import array
from itertools import islice
from operator import le

from firnline.base.ports import Buffer
from firnline.base.units import INT32_MAX
from firnline.log.sparse_index import WORD, Columns, SparseIndex, ascends, read_words, write_words

ENTRY_BYTES = 12
# Which word of a 64-bit integer comes first in memory: 1 the low one, 0 the high one.
_HIGH = 1 if sys.byteorder == "little" else 0


class TimeIndex(SparseIndex):
    """Timestamps in milliseconds and the offsets, relative to the base, that they belong to."""

    __slots__ = ()
    entry_bytes = ENTRY_BYTES
    codes = ("q", "q")

    def load(self) -> bool:
        """Take the file into use; False when it is missing or damaged, and nothing is kept."""
        return self._load()

    def can_be(self, keys: "array[int]", values: "array[int]") -> bool:
        # One without a timestamp is never noted, and would not be held to the batch that it names.
        return not (keys and keys[0] < 0) and ascends(keys) and _are_offsets(values)

    @property
    def last_time_ms(self) -> int:
        """The greatest timestamp noted, -1 without one."""
        return self._keys[-1] if self._keys else -1

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, the base without one."""
        return self.base_offset + (self._values[-1] if self._values else 0)

    def maybe_add(self, time_ms: int, offset: int) -> None:
        """Note the greatest timestamp so far, reached at `offset`, if it is above the last one noted."""
        if time_ms > self.last_time_ms:
            self._add(time_ms, offset - self.base_offset)

    def offset_before(self, time_ms: int) -> int:
        """Return an offset at or before the first record with at least that timestamp."""
        return self.entry_before(time_ms)[1]

    def entry_before(self, time_ms: int) -> tuple[int, int]:
        """Return the entry that `offset_before` goes by; (-1, base) without one."""
        found = self._at_most(0, time_ms)
        return (found[0], self.base_offset + found[1]) if found else (-1, self.base_offset)

    def entries(self) -> list[tuple[int, int]]:
        """Return (timestamp, offset) of every entry."""
        return [(t, self.base_offset + o) for t, o in zip(*self.columns())]

    def truncate_to(self, offset: int) -> int:
        """Drop the entries at or after `offset`; return the size that the file is to be cut to."""
        return self._drop_from(1, offset)

    # An entry is three 32-bit words: slices of arrays are a hundred times as fast as a loop, and a large
    # segment writes a quarter of a million entries when it rolls.
    def decode(self, data: Buffer) -> Columns:
        words = read_words(data)
        pairs: array[int] = array(words.typecode, bytes(len(words) // 3 * 8))
        pairs[0::2], pairs[1::2] = words[_HIGH::3], words[1 - _HIGH :: 3]
        return array("q", pairs.tobytes()), array("q", words[2::3])

    def encode(self, keys: "array[int]", values: "array[int]") -> bytes:
        pairs = array(WORD, keys.tobytes())
        words: array[int] = array(WORD, bytes(len(keys) * ENTRY_BYTES))
        words[_HIGH::3], words[1 - _HIGH :: 3] = pairs[0::2], pairs[1::2]
        words[2::3] = array(WORD, values)
        return write_words(words)


def _are_offsets(words: "array[int]") -> bool:
    """True when none is above what fits and they do not descend."""
    if not words:
        return True
    return words[0] >= 0 and words[-1] <= INT32_MAX and all(map(le, words, islice(words, 1, None)))
