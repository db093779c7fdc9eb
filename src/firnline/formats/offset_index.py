"""The offset index of a segment, `<base offset>.index`: positions of some batches by offset. PURE.

Entries of 8 bytes, big endian: offset relative to the base offset (int32), position (int32). As in Kafka, an
entry has the LAST offset of the batch that begins at its position. So the batch that contains an offset is
never before the last entry at or below that offset. Both columns ascend. Source: Kafka's OffsetIndex.
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
    """Return the relative offsets and the positions of the complete entries."""
    words = read_words(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])
    return words[0::2], words[1::2]


def encode(relative_offsets: "array[int]", positions: "array[int]") -> bytes:
    """Return the file of these entries."""
    words: array[int] = array(WORD, bytes(len(relative_offsets) * ENTRY_BYTES))
    words[0::2], words[1::2] = relative_offsets, positions
    return write_words(words)


def can_be(relative_offsets: "array[int]", positions: "array[int]") -> bool:
    """Whether an index can have these entries in this order."""
    is_in_range = not (relative_offsets and relative_offsets[-1] > INT32_MAX)
    return ascends(relative_offsets) and ascends(positions) and is_in_range
