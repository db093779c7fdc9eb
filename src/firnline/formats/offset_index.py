"""The offset index of a segment, `<base offset>.index`: which batch begins where. PURE.

Entries of 8 bytes, big endian: offset relative to the segment's base (int32), position (int32). An entry
names the LAST offset of the batch that begins at its position, as Kafka writes it, so the batch that holds an
offset is never before the entry found for it. Both columns ascend. Source: Kafka's OffsetIndex.
"""

from array import array
from struct import Struct

from firnline.base.ports import Buffer
from firnline.base.units import INT32_MAX
from firnline.formats.words import WORD, Columns, ascends, read_words, write_words

ENTRY = Struct(">ii")  # relative offset, position
ENTRY_BYTES = ENTRY.size
# The same entry as the columns of a numpy dtype.
FIELDS = (("relative_offset", ">i4"), ("position", ">i4"))
CODES = (WORD, WORD)  # type codes of the columns


def columns() -> Columns:
    """Return empty columns of relative offsets and of positions."""
    return array(CODES[0]), array(CODES[1])


def decode(data: Buffer) -> Columns:
    """Return the relative offsets and the positions of the whole entries."""
    words = read_words(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])
    return words[0::2], words[1::2]


def encode(relative_offsets: "array[int]", positions: "array[int]") -> bytes:
    """Return the file of these entries."""
    words: array[int] = array(WORD, bytes(len(relative_offsets) * ENTRY_BYTES))
    words[0::2], words[1::2] = relative_offsets, positions
    return write_words(words)


def can_be(relative_offsets: "array[int]", positions: "array[int]") -> bool:
    """Whether an index can have these entries, one after the other."""
    is_in_range = not (relative_offsets and relative_offsets[-1] > INT32_MAX)
    return ascends(relative_offsets) and ascends(positions) and is_in_range
