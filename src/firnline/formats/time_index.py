"""The time index of a segment, `<base offset>.timeindex`: the greatest timestamp up to an offset. PURE.

Entries of 12 bytes, big endian: timestamp in milliseconds (int64), offset relative to the base offset
(int32). An entry (t, o) says that no batch up to the one with the last offset `o` has a timestamp above `t`.
Timestamps ascend, offsets do not descend. Source: Kafka's TimeIndex.
"""

import sys
from array import array
from struct import Struct

from firnline.base.ports import Buffer
from firnline.base.units import INT32_MAX
from firnline.formats.words import (
    WORD,
    Columns,
    ascends,
    does_not_descend,
    read_words,
    write_words,
)

ENTRY = Struct(">qi")  # timestamp, relative offset
ENTRY_BYTES = ENTRY.size
# The same entry as the columns of a numpy dtype.
FIELDS = (("timestamp", ">i8"), ("relative_offset", ">i4"))
CODES = ("q", "q")  # type codes of the columns
# Which word of a 64-bit integer comes first in memory: 1 the low one, 0 the high one.
_HIGH = 1 if sys.byteorder == "little" else 0


def columns() -> Columns:
    """Return empty columns of timestamps and of relative offsets."""
    return array(CODES[0]), array(CODES[1])


def decode(data: Buffer) -> Columns:
    """Return the timestamps and the relative offsets of the complete entries."""
    words = read_words(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES])  # three are an entry
    pairs: array[int] = array(words.typecode, bytes(len(words) // 3 * 8))
    pairs[0::2], pairs[1::2] = words[_HIGH::3], words[1 - _HIGH :: 3]
    return array("q", pairs.tobytes()), array("q", words[2::3])


def encode(timestamps_ms: "array[int]", relative_offsets: "array[int]") -> bytes:
    """Return the file of these entries."""
    pairs = array(WORD, timestamps_ms.tobytes())
    words: array[int] = array(WORD, bytes(len(timestamps_ms) * ENTRY_BYTES))
    words[_HIGH::3], words[1 - _HIGH :: 3] = pairs[0::2], pairs[1::2]
    words[2::3] = array(WORD, relative_offsets)
    return write_words(words)


def is_ordered(timestamps_ms: "array[int]", relative_offsets: "array[int]") -> bool:
    """Whether neither column descends: the least that an index of another writer must satisfy."""
    return does_not_descend(timestamps_ms) and does_not_descend(relative_offsets)


def can_be(timestamps_ms: "array[int]", relative_offsets: "array[int]") -> bool:
    """Whether an index can have these entries in this order."""
    # An entry without a timestamp is never written, and could not be checked against its batch.
    if timestamps_ms and timestamps_ms[0] < 0:
        return False
    if relative_offsets and not 0 <= relative_offsets[0] <= relative_offsets[-1] <= INT32_MAX:
        return False
    return ascends(timestamps_ms) and does_not_descend(relative_offsets)
