"""What the offset index and the time index of a segment share: two columns, in memory and in a file. STORE.

Entries are kept as two arrays of machine integers and reach the file when the segment is finished: what a
crash takes is built again from the batches (rel-P8). A tail of zeros, as Kafka leaves it in a preallocated
file after a crash, is cut off (rel-P14).

To build the indexes of a full segment again takes as long as to look at each of its batches: seconds. Whoever
may wait is told so with `IndexDamaged`, and asks again; whoever may not has it done at once
(docs/decisions/0018).
"""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from firnline.base.errors import StorageError
from firnline.base.ports import File, Fs

if TYPE_CHECKING:
    from firnline.log.segment import Segment

T = TypeVar("T")

WORD = "I" if array("I").itemsize == 4 else "L"
# In place of a count of entries written: none are in memory, and none are missing in the file.
_AS_ON_DISK = -1


def read_words(data: bytes) -> "array[int]":
    """Return the big endian 32-bit words of `data`."""
    words: array[int] = array(WORD)
    words.frombytes(data[: len(data) // 4 * 4])
    if sys.byteorder == "little":
        words.byteswap()
    return words


def write_words(words: "array[int]") -> bytes:
    """Return `words` as big endian bytes; the array is of no use afterwards."""
    if sys.byteorder == "little":
        words.byteswap()
    return words.tobytes()


class SparseIndex:
    """Keys, strictly ascending, and a value of each; `base_offset` is the segment's.

    Invariant: both columns have one length. A kind of index says how its entries lie in the file.
    """

    __slots__ = ("_fs", "_keys", "_values", "_written", "base_offset", "path")

    # Of a kind: bytes of one entry, and the type codes of the arrays of keys and values.
    entry_bytes: int
    codes: tuple[str, str]

    def __init__(self, fs: Fs, path: str, base_offset: int) -> None:
        self._fs = fs
        self.path = path
        self.base_offset = base_offset
        self._keys: array[int] = array(self.codes[0])
        self._values: array[int] = array(self.codes[1])
        self._written = 0  # entries that are in the file

    def __len__(self) -> int:
        return len(self._keys)

    def decode(self, data: bytes) -> "tuple[array[int], array[int]]":
        """Return keys and values of whole entries."""
        raise AssertionError("a kind of index does")

    def encode(self, keys: "array[int]", values: "array[int]") -> bytes:
        """Return entries as they lie in the file."""
        raise AssertionError("a kind of index does")

    def _read(self) -> "tuple[array[int], array[int]] | None":
        """Read the file without a tail of zeros, which is cut off; None when it is missing or torn."""
        if not self._fs.exists(self.path):
            return None
        file = self._fs.open(self.path)
        try:
            size = file.size()
            if size % self.entry_bytes:
                return None
            keys, values = self.decode(file.read(0, size))
            while keys and not keys[-1] and not values[-1]:
                keys.pop()
                values.pop()
            if len(keys) * self.entry_bytes != size:
                file.truncate(len(keys) * self.entry_bytes)
        finally:
            file.close()
        return (keys, values) if ascends(keys) else None

    def _take(self, keys: "array[int]", values: "array[int]") -> bool:
        """What was read is right; True, for `load` to return."""
        self._keys, self._values, self._written = keys, values, len(keys)
        return True

    def _add(self, key: int, value: int) -> None:
        self._keys.append(key)
        self._values.append(value)

    def _drop_from(self, offsets: "array[int]", offset: int) -> int:
        """Drop the entries at or after `offset` in memory; return the bytes of the file that hold still.

        `offsets` is one of the columns.
        """
        keep = bisect_left(offsets, max(0, offset - self.base_offset))
        del self._keys[keep:], self._values[keep:]
        self._written = min(self._written, keep)
        return self._written * self.entry_bytes

    def encoded(self) -> bytes:
        """Return what the file would hold."""
        return self.encode(self._keys, self._values)

    def clear_memory(self) -> None:
        """Forget the entries; the file stays."""
        del self._keys[:], self._values[:]
        self._written = 0

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
        if self._written * self.entry_bytes != file.size():
            file.truncate(0)  # what is there is from before a rebuild
            self._written = 0
        if self._written < len(self._keys):
            file.append(self.encode(self._keys[self._written :], self._values[self._written :]))
            self._written = len(self._keys)
        return file


def ascends(words: "array[int]") -> bool:
    """True when each is above the one before."""
    return all(a < b for a, b in pairwise(words))


class IndexDamaged(StorageError):
    """An index of `segment` is missing, or says what its batches do not. Nothing is lost: they say it all."""

    def __init__(self, segment: "Segment") -> None:
        super().__init__("an index of a segment has to be built again", path=segment.stem_path)
        self.segment = segment

    @property
    def is_passing(self) -> bool:
        """True: it will be built."""
        return True


def at_once(ask: Callable[[], T]) -> T:
    """Return what `ask` returns; indexes that it finds damaged are built again here and now."""
    built: dict[Segment, None] = {}
    while True:
        try:
            return ask()
        except IndexDamaged as found:
            if found.segment in built:
                raise
            built[found.segment] = None
            found.segment.rebuild()
