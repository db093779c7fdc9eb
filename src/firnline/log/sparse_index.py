"""What the offset index and the time index of a segment share: two columns, in memory and in a file. STORE.

Entries are two arrays of machine integers. The active segment writes them to the file a block at a time and
the rest on its roll: to write all of them then would take 20 ms. Recovery after a crash rebuilds the indexes
of segments that were not synced (rel-P8). A tail of zeros, which Kafka leaves in a preallocated file after a
crash, is removed (rel-P14).

The index of a full segment has 250,000 entries, or up to five times as many. So a closed segment's index
reads and checks only the blocks around the entries that a lookup needs.

To rebuild the indexes of a full segment takes seconds. A caller that may wait gets `IndexDamaged` and asks
again later; for any other caller they are rebuilt at once (docs/decisions/0018).
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

# Value of `_written` where the file is complete and no entry is in memory.
_AS_ON_DISK = -1
# Entries that are read and checked together, in about 0.1 ms; they cover 4 MiB of a segment.
_BLOCK = 1024
_BLOCKS_MAX = 64


class SparseIndex:
    """Keys, strictly ascending, with a value each; `base_offset` is the segment's.

    After `_load` only the last entries of the file are in memory, with those added since. The `_below`
    entries before them are read on demand, a block at a time.

    Invariants: both columns have the same length; if `_below` > 0 they are not empty. A subclass defines the
    layout of the entries and which entries are possible.
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

    # Of a subclass: bytes of one entry, and the type codes of the arrays of keys and values.
    entry_bytes: int
    codes: tuple[str, str]
    # Layout of entries in the file, and whether entries are possible in that order: firnline/formats.
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
        self._below = 0  # of these, how many are not in memory: complete blocks
        self._blocks: dict[int, Columns] = {}  # cache of them, by number
        self._firsts: dict[int, tuple[int, int]] = {}  # by block: its first entry

    def __len__(self) -> int:
        return self._below + len(self._keys)

    def _load(self) -> bool:
        """Read the end of the file; False when the file is missing, torn or has impossible entries.

        Removes a tail of zeros. After PagesCold the object still counts the file as complete: a sync may
        come before the retry, and must not rewrite it.
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
            # At least one block is in memory, so that the last entry is checked against those before it.
            below = max(0, count // _BLOCK - 1) * _BLOCK
            keys, values = self._entries(file, below, count)
        finally:
            file.close()
        if not self.can_be(keys, values):
            return False
        self._keys, self._values, self._written, self._below = keys, values, count, below
        return True

    def _without_zeros(self, file: File, count: int) -> int:
        """Return `count` without the entries at the end that are all zeros."""
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
        """Read the entries from `first` up to `end`, exclusive; EntriesDamaged where some are missing."""
        size = (end - first) * self.entry_bytes
        data = take(self._fs, file, first * self.entry_bytes, size, INDEX_WINDOW_BYTES)
        if len(data) != size:
            raise EntriesDamaged("an index file has shrunk", path=self.path)
        return self.decode(data)

    def _add(self, key: int, value: int) -> None:
        self._keys.append(key)
        self._values.append(value)

    def _at_most(self, column: int, wanted: int) -> tuple[int, int] | None:
        """Return the last entry whose key (column 0) or value (1) is at most `wanted`; None for none.

        EntriesDamaged where the entries around it are impossible.
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
        """Read and check a block with the two entries after it.

        A damaged entry may have led the binary search to this block. If it is the first entry of the next
        block, the check of the two entries more finds it. If it is in this block, it names no batch, which
        the segment finds.
        """
        found = self._blocks.get(number)
        if found is None:
            first = number * _BLOCK
            end = min(first + _BLOCK + 2, self._written)
            found = self._entries(self._reopened(), first, end)
            if not self.can_be(*found):
                raise EntriesDamaged("an index has impossible entries", path=self.path)
            if len(self._blocks) >= _BLOCKS_MAX:
                self._blocks.clear()
            self._blocks[number] = found
        return found

    def _reopened(self) -> File:
        if not self._fs.exists(self.path):
            raise EntriesDamaged("an index file is missing", path=self.path)
        return self._fs.open(self.path)

    def _drop_from(self, column: int, offset: int) -> int:
        """Drop the entries at or after `offset` in memory; return how many bytes of the file stay valid.

        Offsets are the keys (column 0) or the values (1). EntriesDamaged, and nothing is dropped, where the
        entries around `offset` are impossible.
        """
        wanted = max(0, offset - self.base_offset)
        columns, below = (self._keys, self._values), self._below
        if below and columns[column][0] >= wanted:
            below = self._block_with(column, wanted - 1) * _BLOCK
            keys, values = self._block(below // _BLOCK)
            columns = keys[:_BLOCK], values[:_BLOCK]
        keep = bisect_left(columns[column], wanted)
        if below and keep == 1:  # check the only entry kept against the block before it
            self._block(below // _BLOCK - 1)
        (self._keys, self._values), self._below = columns, below
        del self._keys[keep:], self._values[keep:]
        self._written = min(self._written, self._below + keep)
        return self._written * self.entry_bytes

    def columns(self) -> Columns:
        """Return a copy of all keys and all values."""
        keys, values = self._keys[:], self._values[:]
        if not self._below:
            return keys, values
        below = self._entries(self._reopened(), 0, self._below)
        return below[0] + keys, below[1] + values

    def encoded(self) -> bytes:
        """Return the bytes of the complete file."""
        return self.encode(*self.columns())

    def clear_memory(self) -> None:
        """Forget the entries; the file stays."""
        del self._keys[:], self._values[:]
        self._blocks.clear()
        self._firsts.clear()
        self._written = self._below = 0

    def forget(self) -> None:
        """Free the memory; the file is complete, and `load` reads it again."""
        self.clear_memory()
        self._written = _AS_ON_DISK

    def write_early(self) -> None:
        """Append the unwritten entries to the file if that works at once; otherwise leave them to `write`.

        This runs before an append to the log, which must not fail or wait for the index's sake.
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
        """Append the unwritten entries to the file."""
        self.open_written().close()

    def open_written(self) -> File:
        """Append the unwritten entries; return the file, which the caller syncs and closes."""
        file = self._fs.open(self.path, create=True)
        if self._written == _AS_ON_DISK:
            return file
        if self._written * self.entry_bytes != file.size():
            file.truncate(0)  # its content is older than the rebuild
            self._written = 0
            if (
                self._below
            ):  # or entries were lost that are not in memory: the next read has the index rebuilt
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
    """Entries of an index are missing or impossible. `Segment` turns it into IndexDamaged."""


class Rebuildable(Protocol):
    """A segment whose indexes can be rebuilt from its batches. `segment.Segment` implements it."""

    @property
    def stem_path(self) -> str: ...

    def rebuild_steps(self) -> ColdSteps:
        """Rebuild the indexes; yields between steps, with the pages to be read next."""
        ...


class IndexDamaged(StorageError):
    """An index of `segment` is missing or contradicts the batches. Nothing is lost: it can be rebuilt."""

    def __init__(self, segment: Rebuildable) -> None:
        super().__init__("an index of a segment has to be rebuilt", path=segment.stem_path)
        self.segment = segment
        # The steps that rebuild it, in slices; they raise RecordsTruncated once the segment has left the log.
        self.steps: Callable[[], ColdSteps] = segment.rebuild_steps

    @property
    def is_passing(self) -> bool:
        """True: the index will be rebuilt."""
        return True


def at_once(ask: Callable[[], T]) -> T:
    """Return the result of `ask`; rebuild the indexes that it finds damaged, blocking."""
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
