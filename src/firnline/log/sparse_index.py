"""What the offset index and the time index of a segment share: two columns, in memory and in a file. STORE.

Entries are kept as two arrays of machine integers. They are written to the file a block at a time, and the
last ones when the segment is finished: to write all of a full segment then took 20 ms of the loop. Until the
closed segment is synced no start after a crash believes the file: it is built again from the batches
(rel-P8). A tail of zeros, as Kafka leaves it in a preallocated file after a crash, is cut off (rel-P14). An
index of a full segment has a quarter of a million entries, and up to five times as many: of one that is read
again only those around a place that somebody looks for are taken from the file, and checked.

To build the indexes of a full segment again takes as long as to look at each of its batches: seconds. Whoever
may wait is told so with `IndexDamaged`, and asks again; whoever may not has it done at once
(docs/decisions/0018).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Protocol, TypeVar

from firnline.base.cold_pages import INDEX_WINDOW_BYTES, ColdSteps, take, waiting
from firnline.base.errors import StorageError
from firnline.base.ports import Buffer, File, Fs
from firnline.formats.words import Columns

T = TypeVar("T")

# In place of a count of entries written: none are in memory, and none are missing in the file.
_AS_ON_DISK = -1
# Entries that are read and checked together, 4 MiB of a segment: some 0.1 ms.
_BLOCK = 1024
_BLOCKS_MAX = 64


class SparseIndex:
    """Keys, strictly ascending, and a value of each; `base_offset` is the segment's.

    Of an index that was read from a file the last entries are in memory, and those that were added. What is
    before them, `_below` entries, is read where somebody looks for it, a block at a time.

    Invariants: both columns have one length; with entries below them they are not empty. A kind of index
    says how its entries lie in the file, and which can be.
    """

    __slots__ = (
        "_below",
        "_blocks",
        "_firsts",
        "_fs",
        "_keys",
        "_values",
        "_written",
        "base_offset",
        "path",
    )

    # Of a kind: bytes of one entry, and the type codes of the arrays of keys and values.
    entry_bytes: int
    codes: tuple[str, str]
    # How entries lie in the file, and which can follow one another: firnline/formats.
    decode: Callable[[Buffer], Columns]
    encode: Callable[["array[int]", "array[int]"], bytes]
    can_be: Callable[["array[int]", "array[int]"], bool]

    def __init__(self, fs: Fs, path: str, base_offset: int) -> None:
        self._fs = fs
        self.path = path
        self.base_offset = base_offset
        self._keys: array[int] = array(self.codes[0])
        self._values: array[int] = array(self.codes[1])
        self._written = 0  # entries that are in the file
        self._below = 0  # of these, how many are nowhere else: whole blocks
        self._blocks: dict[int, Columns] = {}  # of them, by number
        self._firsts: dict[int, tuple[int, int]] = {}  # by block: its first entry

    def __len__(self) -> int:
        return self._below + len(self._keys)

    def _load(self) -> bool:
        """Take the file into use, of which the end is read; False when it is missing, torn or cannot be.

        A tail of zeros is cut off. Where the read has to wait for the disk the file stays right as it is: it
        may be synced before the next try.
        """
        self.forget()
        if not self._read_end():
            self.clear_memory()
            return False
        return True

    def _read_end(self) -> bool:
        if not self._fs.exists(self.path):
            return False
        file = self._fs.open(self.path)
        try:
            size = file.size()
            if size % self.entry_bytes:
                return False
            count = self._without_zeros(file, size // self.entry_bytes)
            if count * self.entry_bytes != size:
                file.truncate(count * self.entry_bytes)
            # A block at least is in memory, so that what the last entry says is held to those before it.
            below = max(0, count // _BLOCK - 1) * _BLOCK
            keys, values = self._entries(file, below, count)
        finally:
            file.close()
        if not self.can_be(keys, values):
            return False
        self._keys, self._values, self._written, self._below = keys, values, count, below
        return True

    def _without_zeros(self, file: File, count: int) -> int:
        """Return how many of the first `count` entries are left without those of zeros at their end."""
        width, zeros = self.entry_bytes, bytes(_BLOCK * self.entry_bytes)
        while count:
            first = max(0, count - _BLOCK)
            data = take(self._fs, file, first * width, (count - first) * width, INDEX_WINDOW_BYTES)
            if data != zeros[: len(data)]:
                while data[(count - first - 1) * width : (count - first) * width] == zeros[:width]:
                    count -= 1
                break
            count = first
        return count

    def _entries(self, file: File, first: int, end: int) -> Columns:
        """Read the entries from `first` up to `end`, exclusive; EntriesDamaged where some are not there."""
        size = (end - first) * self.entry_bytes
        data = take(self._fs, file, first * self.entry_bytes, size, INDEX_WINDOW_BYTES)
        if len(data) != size:
            raise EntriesDamaged("an index is shorter than it was", path=self.path)
        return self.decode(data)

    def _add(self, key: int, value: int) -> None:
        self._keys.append(key)
        self._values.append(value)

    def _at_most(self, column: int, wanted: int) -> tuple[int, int] | None:
        """Return the last entry whose key (column 0) or value (1) is at most `wanted`; None for none.

        EntriesDamaged where the entries around it cannot be.
        """
        columns = self._keys, self._values
        if self._below and columns[column][0] > wanted:
            columns = self._block(self._block_with(column, wanted))
        slot = bisect_right(columns[column], wanted) - 1
        return (columns[0][slot], columns[1][slot]) if slot >= 0 else None

    def _block_with(self, column: int, wanted: int) -> int:
        """Return the number of the last block that begins with an entry of at most `wanted`, or 0."""
        file: File | None = None
        low, high = 0, self._below // _BLOCK
        while high - low > 1:
            middle = (low + high) // 2
            first = self._firsts.get(middle)
            if first is None:
                file = file or self._reopened()
                keys, values = self._entries(file, middle * _BLOCK, middle * _BLOCK + 1)
                first = self._firsts[middle] = keys[0], values[0]
            low, high = (middle, high) if first[column] <= wanted else (low, middle)
        return low

    def _block(self, number: int) -> Columns:
        """Return a block, and two entries more: a wrong one that led here from places above shows by them.

        One that led here from places below is in the block, and names no batch.
        """
        found = self._blocks.get(number)
        if found is None:
            first = number * _BLOCK
            end = min(first + _BLOCK + 2, self._written)
            found = self._entries(self._reopened(), first, end)
            if not self.can_be(*found):
                raise EntriesDamaged("an index has entries that cannot be", path=self.path)
            if len(self._blocks) >= _BLOCKS_MAX:
                self._blocks.clear()
            self._blocks[number] = found
        return found

    def _reopened(self) -> File:
        if not self._fs.exists(self.path):
            raise EntriesDamaged("an index is gone", path=self.path)
        return self._fs.open(self.path)

    def _drop_from(self, column: int, offset: int) -> int:
        """Drop the entries at or after `offset` in memory; return the bytes of the file that hold still.

        Offsets are the keys (column 0) or the values (1). EntriesDamaged, and nothing is dropped, where
        those around it cannot be.
        """
        wanted = max(0, offset - self.base_offset)
        columns, below = (self._keys, self._values), self._below
        if below and columns[column][0] >= wanted:
            below = self._block_with(column, wanted - 1) * _BLOCK
            keys, values = self._block(below // _BLOCK)
            columns = keys[:_BLOCK], values[:_BLOCK]
        keep = bisect_left(columns[column], wanted)
        if below and keep == 1:  # one that is too low for its place shows by those before it
            self._block(below // _BLOCK - 1)
        (self._keys, self._values), self._below = columns, below
        del self._keys[keep:], self._values[keep:]
        self._written = min(self._written, self._below + keep)
        return self._written * self.entry_bytes

    def columns(self) -> Columns:
        """Return all keys and all values: a copy, as long as the index."""
        keys, values = self._keys[:], self._values[:]
        if not self._below:
            return keys, values
        below = self._entries(self._reopened(), 0, self._below)
        return below[0] + keys, below[1] + values

    def encoded(self) -> bytes:
        """Return what the file would hold."""
        return self.encode(*self.columns())

    def clear_memory(self) -> None:
        """Forget the entries; the file stays."""
        del self._keys[:], self._values[:]
        self._blocks.clear()
        self._firsts.clear()
        self._written = self._below = 0

    def forget(self) -> None:
        """Give the memory back; the file is right as it is, and `load` reads it again."""
        self.clear_memory()
        self._written = _AS_ON_DISK

    def write_early(self) -> None:
        """Append what waits, if the file is as it was left, and has room; else `write` does it, and says so.

        More entries may follow, and are in no hurry: what would hold an append up, or refuse it, is left.
        """
        try:
            file = self._fs.open(self.path, create=True)
            try:
                if file.size() == self._written * self.entry_bytes:
                    self._append_to(file)
            finally:
                file.close()
        except StorageError as problem:
            if not problem.is_passing:
                raise

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
            if (
                self._below
            ):  # or somebody took away what is nowhere else: who reads it next has it built
                self._fs.remove(self.path)
                self.forget()
                return file
        self._append_to(file)
        return file

    def _append_to(self, file: File) -> None:
        new = self._written - self._below
        if new < len(self._keys):
            file.append(self.encode(self._keys[new:], self._values[new:]))
            self._written = len(self)


class EntriesDamaged(StorageError):
    """Entries of an index are missing, or cannot be: a `Segment` says IndexDamaged in its place."""


class Rebuildable(Protocol):
    """A segment, as far as its indexes are built again from the batches; `segment.Segment` is one."""

    @property
    def stem_path(self) -> str: ...

    def rebuild_steps(self) -> ColdSteps:
        """Build them, and say between two steps what has to be read next."""
        ...


class IndexDamaged(StorageError):
    """An index of `segment` is missing, or says what its batches do not. Nothing is lost: they say it all."""

    def __init__(self, segment: Rebuildable) -> None:
        super().__init__("an index of a segment has to be built again", path=segment.stem_path)
        self.segment = segment
        # Builds it, for who takes the steps in turns of the loop: where the segment has left the log, none.
        self.steps: Callable[[], ColdSteps] = segment.rebuild_steps

    @property
    def is_passing(self) -> bool:
        """True: it will be built."""
        return True


def at_once(ask: Callable[[], T]) -> T:
    """Return what `ask` returns; indexes that it finds damaged are built again here and now."""
    built: dict[Rebuildable, None] = {}
    while True:
        try:
            return ask()
        except IndexDamaged as found:
            if found.segment in built:
                raise
            built[found.segment] = None
            with waiting():
                for _ in found.segment.rebuild_steps():
                    pass
