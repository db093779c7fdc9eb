"""Big-endian 32-bit words, of which the sparse indexes of a segment consist, as arrays. PURE.

Slices of arrays are a hundred times as fast as a loop over entries, and a full segment has a quarter of a
million entries.
"""

import sys
from array import array
from itertools import islice
from operator import le, lt

from firnline.base.ports import Buffer

# Type code of an array of unsigned 32-bit words.
WORD = "I" if array("I").itemsize == 4 else "L"
Columns = tuple["array[int]", "array[int]"]  # what the entries begin with, and what they end with


def read_words(data: Buffer) -> "array[int]":
    """Return the big-endian 32-bit words of `data`; what is not a whole one at the end is left out."""
    words: array[int] = array(WORD)
    words.frombytes(data[: len(data) // 4 * 4])
    if sys.byteorder == "little":
        words.byteswap()
    return words


def write_words(words: "array[int]") -> bytes:
    """Return `words` as big-endian bytes; the array is of no use afterwards."""
    if sys.byteorder == "little":
        words.byteswap()
    return words.tobytes()


def ascends(words: "array[int]") -> bool:
    """True when each is above the one before."""
    return all(map(lt, words, islice(words, 1, None)))


def does_not_descend(words: "array[int]") -> bool:
    """True when none is below the one before."""
    return all(map(le, words, islice(words, 1, None)))


def without_zeros(data: bytes, entry_bytes: int) -> bytes:
    """Leave out the entries of zeros at the end: Kafka makes an index in full length while it is in use.

    A file that is no whole number of entries is returned as it is.
    """
    end = len(data)
    while end >= entry_bytes and not end % entry_bytes and not any(data[end - entry_bytes : end]):
        end -= entry_bytes
    return data[:end]
