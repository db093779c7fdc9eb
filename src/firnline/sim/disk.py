"""A disk in memory that can lose power. SIM.

What POSIX leaves open after a power cut is drawn from the seeded Rng. Bytes that were not synced survive up
to some position, or block by block in any mixture of old, new and zero. Names that were not synced with their
directory survive up to some change. Synced data always survives. Full disks and failing devices are injected.
Source: reliability (f) 1, rel-P9, rel-P10.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from firnline.base.errors import StorageError, records_cut
from firnline.base.open_files import LetGo, OpenFiles
from firnline.base.ports import Buffer, File, Rng
from firnline.base.units import INT64_MAX
from firnline.formats.names import LOG

BLOCK_BYTES = 512
PAGE_BYTES = 4096
_VOLUME_BYTES = 1 << 40
_KEPT_MAX = (
    3  # far fewer than there are logs, so that files are closed and opened again all the time
)
Keep = Literal["none", "some", "all"]
Operation = Literal["append", "sync", "read", "open", "rename", "sync_dir", "truncate"]


@dataclass(slots=True)
class Inode:
    """The bytes of one file: as programs see them, and as the platter has them."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    changed_from: int = 0  # below it, both are the same
    modified_ms: int = 0
    is_read_only: bool = False
    # Bits that flipped, by byte: the errors in `data` and `durable`.
    flipped: dict[int, int] = field(default_factory=dict)
    in_memory: set[int] | None = None  # pages that nobody waits for who reads them; None: all

    def flip(self, at: int, bit: int) -> None:
        """Flip one bit of a synced byte; a second flip restores it."""
        mask = self.flipped.pop(at, 0) ^ 1 << bit
        if mask:
            self.flipped[at] = mask
        for data in (self.data, self.durable):
            data[at] ^= 1 << bit

    def repaired(self, data: bytearray, position: int = 0) -> bytes:
        """Return what was written, given what is there from `position` on."""
        repaired = bytearray(data)
        for at, mask in self.flipped.items():
            if position <= at < position + len(repaired):
                repaired[at - position] ^= mask
        return bytes(repaired)

    def is_in_memory(self, position: int, size: int) -> bool:
        """Whether a read of these bytes does not wait for the disk."""
        return self.in_memory is None or self.in_memory.issuperset(self._pages(position, size))

    def bring(self, position: int, size: int) -> None:
        """These bytes were read from the disk."""
        if self.in_memory is not None:
            self.in_memory.update(self._pages(position, size))

    def _pages(self, position: int, size: int) -> range:
        end = min(position + size, len(self.data))
        return range(position // PAGE_BYTES, -(-end // PAGE_BYTES))

    def shorten(self, size: int) -> None:
        """Truncate the file to `size`."""
        self.changed(size)
        del self.data[size:]
        if self.flipped:
            self.flipped = {at: mask for at, mask in self.flipped.items() if at < size}

    def changed(self, position: int) -> None:
        self.changed_from = min(self.changed_from, position)

    def sync(self) -> None:
        self.durable[self.changed_from :] = self.data[self.changed_from :]
        self.changed_from = len(self.data)

    @property
    def surviving_bytes(self) -> int:
        """How many bytes from the start survive any power cut."""
        return min(self.changed_from, len(self.durable))


@dataclass(slots=True)
class _Directory:
    """The names in one directory: as programs see them, and the changes that are not durable."""

    names: "dict[str, Inode | _Directory]" = field(default_factory=dict)
    durable: "dict[str, Inode | _Directory]" = field(default_factory=dict)
    pending: "list[dict[str, Inode | _Directory]]" = field(default_factory=list)
    changes: int = 0

    def changed(self) -> None:
        self.changes += 1
        self.pending.append(dict(self.names))

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.pending.clear()


@dataclass(slots=True)
class _Fault:
    operation: Operation
    path_part: str
    error: str
    skip: int
    times: int


class CrashableFile:
    """One open file of a `CrashableFs`."""

    __slots__ = ("__weakref__", "_cut", "_fs", "_inode", "_is_lost", "path")

    def __init__(self, fs: "CrashableFs", path: str, inode: Inode) -> None:
        self._fs = fs
        self._inode = inode
        self._is_lost = False
        self._cut = INT64_MAX  # nobody reads beyond
        self.path = path

    def size(self) -> int:
        return len(self._inode.data)

    def append(self, data: Buffer) -> int:
        self._fs.check("append", self.path)
        self._fs.take(len(data), self.path)
        inode = self._inode
        position = len(inode.data)
        inode.changed(position)
        inode.data += data
        inode.bring(position, len(data))
        inode.modified_ms = self._fs.clock_ms()
        return position

    def read(self, position: int, size: int) -> bytes:
        self._fs.check("read", self.path)
        if position + size > self._cut:
            raise records_cut(self.path, position + size, self._cut)
        if not self._inode.is_in_memory(position, size):
            self._fs.cold_reads.append(self.path)
            self._inode.bring(position, size)
        found = self._inode.data[position : position + size]
        if self._inode.flipped and self._fs.is_examined and self.path.endswith(LOG):
            return self._inode.repaired(
                found, position
            )  # who judges a replica knows what was written
        self._fs.count_read(len(found))
        return bytes(found)

    def read_ready(self, position: int, size: int) -> Buffer | None:
        if self._fs.is_cold() or not self._inode.is_in_memory(position, size):
            return None
        return self.read(position, size)

    def read_into(self, position: int, room: memoryview) -> int:
        data = self.read(position, len(room))
        room[: len(data)] = data
        return len(data)

    def truncate(self, size: int) -> None:
        self._fs.check("truncate", self.path)
        assert size <= len(self._inode.data), "a truncation makes a file shorter"
        self._inode.shorten(size)

    def sync(self) -> None:
        if self._is_lost:
            raise StorageError("an earlier sync of this file failed", path=self.path)
        try:
            self._fs.check("sync", self.path)
        except StorageError:
            self._is_lost = True
            raise
        self._inode.sync()
        self._fs.syncs += 1

    def fileno(self) -> int:
        return -1

    def cut_off(self, size: int) -> None:
        self._cut = min(self._cut, size)

    def close(self) -> None:
        """Nothing is held open."""


class CrashableFs:
    """`base.ports.Fs` in memory. `crash` cuts the power and returns the disk as the next start finds it."""

    def __init__(
        self, *, clock_ms: Callable[[], int] = lambda: 0, capacity_bytes: int | None = None
    ) -> None:
        self.clock_ms = clock_ms
        self.capacity_bytes = capacity_bytes
        self.syncs = 0
        self.read_bytes = 0  # by the node, so far
        self.cold_reads: list[str] = []  # of what was read that was not in memory
        self.is_cold: Callable[[], bool] = bool  # whether the next read would wait
        # Whoever looks at the disk from outside of the machine meets no fault, and uses none up.
        self.is_examined = False
        self.kept = OpenFiles(_KEPT_MAX)
        self._root = _Directory()
        self._places: dict[str, _Directory] = {}  # directories by path, as they were found
        self._locked: dict[str, bool] = {}
        self._faults: list[_Fault] = []
        self._is_off = False

    # -- faults ------------------------------------------------------------------------------------

    def fail(
        self, operation: Operation, path_part: str, error: str, *, skip: int = 0, times: int = 1
    ) -> None:
        """Let `operation` on a path that contains `path_part` fail `times` times, after `skip` more."""
        self._faults.append(_Fault(operation, path_part, error, skip, times))

    def forgive(self) -> None:
        """Let nothing more fail that was to fail."""
        self._faults.clear()

    def chill(self, path_part: str) -> None:
        """Let nothing of the files whose path contains `path_part` be in memory any more."""
        waiting = [("", self._root)]
        while waiting:
            path, directory = waiting.pop()
            for name, found in directory.names.items():
                if isinstance(found, _Directory):
                    waiting.append((f"{path}/{name}", found))
                elif path_part in f"{path}/{name}":
                    found.in_memory = set()

    def check(self, operation: Operation, path: str) -> None:
        """Raise what was injected for this operation; StorageError after a power cut."""
        if self._is_off:
            raise StorageError("the power is off", path=path)
        if self.is_examined or not self._faults:
            return
        for fault in self._faults:
            if fault.operation == operation and fault.path_part in path and fault.times:
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                raise StorageError(f"cannot {operation}", path=path, error=fault.error)

    def count_read(self, size_bytes: int) -> None:
        """Somebody reads: whoever looks from outside costs the node nothing."""
        if not self.is_examined:
            self.read_bytes += size_bytes

    def take(self, size_bytes: int, path: str) -> None:
        """Raise ENOSPC when `size_bytes` more do not fit."""
        if self.capacity_bytes is not None and self.used_bytes() + size_bytes > self.capacity_bytes:
            raise StorageError("cannot append", path=path, error="ENOSPC")

    def used_bytes(self) -> int:
        """Bytes of all files."""
        total, waiting = 0, [self._root]
        while waiting:
            for found in waiting.pop().names.values():
                if isinstance(found, _Directory):
                    waiting.append(found)
                else:
                    total += len(found.data)
        return total

    def crash(self, rng: Rng, *, keep: Keep = "some") -> "CrashableFs":
        """Cut the power: this disk is off, the returned one is what the next start finds.

        keep: nothing that was not synced, a random part of it, or everything (a killed process).
        """
        after = CrashableFs(clock_ms=self.clock_ms, capacity_bytes=self.capacity_bytes)
        after._root = _directory_after(self._root, rng, keep)
        self._is_off = True
        return after

    def kill(self) -> "CrashableFs":
        """End the process on this disk: its handles fail, the page cache stays, still not synced."""
        after = CrashableFs(clock_ms=self.clock_ms, capacity_bytes=self.capacity_bytes)
        after._root = self._root
        self._is_off = True
        return after

    def lose(self, path: str, rng: Rng) -> None:
        """Lose a part of what was not synced in one directory: a device that failed is there again."""
        found = self._directory(path)
        after = _directory_after(found, rng, "some")
        found.names, found.durable = after.names, after.durable
        found.pending.clear()
        found.changes += 1
        self._places.clear()

    # -- what checkers look at ---------------------------------------------------------------------

    def name_changes(self, path: str) -> int:
        """How often names in the directory changed; 0 for a missing one."""
        found = self._place(path)
        return found.changes if found is not None else 0

    def files(self, path: str) -> dict[str, Inode]:
        """The files in a directory as programs see them; empty for a missing one."""
        found = self._place(path)
        names = found.names if found is not None else {}
        return {name: each for name, each in names.items() if isinstance(each, Inode)}

    def surviving_names(self, path: str) -> "dict[str, Inode | _Directory]":
        """The names in that directory that any power cut leaves: the same object until they change."""
        found: Inode | _Directory | None = self._root
        for name in path.strip("/").split("/"):
            if not isinstance(found, _Directory):
                return {}
            found = found.durable.get(name)
        return found.durable if isinstance(found, _Directory) else {}

    def surviving_files(self, path: str) -> dict[str, Inode]:
        """The files whose names in that directory any power cut leaves; empty for a missing one."""
        names = self.surviving_names(path)
        return {name: each for name, each in names.items() if isinstance(each, Inode)}

    # -- Fs ----------------------------------------------------------------------------------------

    def _find(self, path: str) -> Inode | _Directory | None:
        parent, _, name = path.rstrip("/").rpartition("/")
        directory = self._place(parent)
        return None if directory is None else directory.names.get(name)

    def _place(self, path: str) -> _Directory | None:
        """The directory of that path; None when there is none."""
        known = self._places.get(path)
        if known is not None:
            return known
        found = self._find(path) if path.strip("/") else self._root
        if not isinstance(found, _Directory):
            return None
        self._places[path] = found
        return found

    def _directory(self, path: str) -> _Directory:
        found = self._place(path)
        if found is None:
            raise StorageError("no such directory", path=path, error="ENOENT")
        return found

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def open(self, path: str, *, create: bool = False) -> CrashableFile:
        self.check("open", path)
        directory, name = self._parent(path)
        inode = directory.names.get(name)
        if inode is None and create:
            inode = directory.names[name] = Inode(modified_ms=self.clock_ms())
            directory.changed()
        if not isinstance(inode, Inode):
            raise StorageError("cannot open", path=path, error="ENOENT")
        if inode.is_read_only:
            raise StorageError("cannot open", path=path, error="EACCES")
        return CrashableFile(self, path, inode)

    def keep(self, file: File, let_go: LetGo) -> None:
        self.kept.keep(file, let_go)
        self.kept.trim()

    def open_to_read(self, path: str) -> CrashableFile:
        self.check("open", path)
        return CrashableFile(self, path, self._inode(path, "open"))

    def make_read_only(self, path: str) -> None:
        self._inode(path, "make read-only").is_read_only = True

    def _inode(self, path: str, what: str) -> Inode:
        directory, name = self._parent(path)
        inode = directory.names.get(name)
        if not isinstance(inode, Inode):
            raise StorageError(f"cannot {what}", path=path, error="ENOENT")
        return inode

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._directory(path).names)

    def names(self, path: str) -> Iterator[str]:
        yield from sorted(self._directory(path).names, reverse=True)  # on which nobody may count

    def make_dir(self, path: str) -> None:
        directory = self._root
        for name in path.strip("/").split("/"):
            found = directory.names.get(name)
            if found is None:
                found = directory.names[name] = _Directory()
                directory.changed()
            if not isinstance(found, _Directory):
                raise StorageError("cannot make the directory", path=path, error="ENOTDIR")
            directory = found

    def rename(self, old_path: str, new_path: str) -> None:
        self.check("rename", old_path)
        old, old_name = self._parent(old_path)
        new, new_name = self._parent(new_path)
        if old_name not in old.names:
            raise StorageError("cannot rename", path=old_path, error="ENOENT")
        if isinstance(old.names[old_name], _Directory):
            self._places.clear()
        new.names[new_name] = old.names.pop(old_name)
        if old is not new:
            old.changed()
        new.changed()

    def remove(self, path: str) -> None:
        directory, name = self._parent(path)
        removed = directory.names.pop(name, None)
        if isinstance(removed, _Directory):
            self._places.clear()
        if removed is not None:
            directory.changed()

    def remove_dir(self, path: str) -> None:
        if self._find(path) is not None:
            self.remove(path)

    def sync_dir(self, path: str) -> None:
        self.check("sync_dir", path)
        self._directory(path).sync()
        self.syncs += 1

    def volume_bytes(self, path: str) -> tuple[int, int]:
        total = _VOLUME_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return total, max(0, total - self.used_bytes())

    def modified_ms(self, path: str) -> int:
        return self._inode(path, "look at").modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self._inode(path, "set the time of").modified_ms = time_ms

    def lock(self, path: str) -> Callable[[], None]:
        self.open(path, create=True)
        if self._locked.get(path):
            raise StorageError("the log directory is in use by another process", path=path)
        self._locked[path] = True

        def release() -> None:
            self._locked[path] = False

        return release


def _directory_after(directory: _Directory, rng: Rng, keep: Keep) -> _Directory:
    after = _Directory()
    names = _names_after(directory, rng, keep)
    for name in sorted(names):
        found = names[name]
        after.names[name] = (
            _directory_after(found, rng, keep)
            if isinstance(found, _Directory)
            else _inode_after(found, rng, keep)
        )
    after.durable = dict(after.names)
    return after


def _names_after(directory: _Directory, rng: Rng, keep: Keep) -> dict[str, Inode | _Directory]:
    """A journal keeps name changes in order: some first part of them."""
    if keep == "all" or not directory.pending:
        return directory.names
    count = 0 if keep == "none" else rng.below(len(directory.pending) + 1)
    return directory.pending[count - 1] if count else directory.durable


def _inode_after(inode: Inode, rng: Rng, keep: Keep) -> Inode:
    if keep == "all" or inode.changed_from == len(inode.data) == len(inode.durable):
        data = inode.data
    elif keep == "none":
        data = inode.durable
    else:
        data = _torn(inode, rng)
    flipped = {at: mask for at, mask in inode.flipped.items() if at < len(data)}
    return Inode(
        bytearray(data),
        bytearray(data),
        len(data),
        inode.modified_ms,
        inode.is_read_only,
        flipped,
    )


def _torn(inode: Inode, rng: Rng) -> bytearray:
    """Nothing of what was not synced, all of it, a first part of it, or a mixture of blocks."""
    old, new, start = inode.durable, inode.data, inode.changed_from
    fate = rng.below(4)
    if fate < 2:
        return (old, new)[fate]
    longest = max(len(old), len(new))
    size = start + rng.below(longest - start + 1)
    if fate == 2 and len(new) >= len(old):
        return new[: max(size, len(old))]
    size = max(size, min(len(old), len(new)))
    data = bytearray(size)
    data[:start] = new[:start]
    position = start
    while position < size:
        end = min(size, (position // BLOCK_BYTES + 1) * BLOCK_BYTES)
        source = (new, old, b"")[rng.below(3)]
        block = bytes(source[position:end])
        # A hole is only where nothing had been synced: a disk does not forget a block by itself.
        if len(block) < end - position and position < len(old):
            block = bytes(old[position:end])
        data[position : position + len(block)] = block
        position = end
    return data
