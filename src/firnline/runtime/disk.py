"""The real file system behind `base.ports.Fs`. WORLD.

Writes go to the end that this object knows, not to that of the kernel: so the bytes of a failed write are
overwritten by the next one, and never become part of the log.

`sendfile` of a cold page waits until the disk has read it; with a hundred consumers of old segments that
would be a hundred waits in one turn of the loop. So a few bytes of the range are read with RWF_NOWAIT first,
which fails if the kernel had to wait. Then a thread reads the range into the page cache: `Pages`. Source:
rel-P9, rel-P10; preadv2(2); docs/decisions/0029.
"""

import contextlib
import errno
import fcntl
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from firnline.base.counting.room import Room
from firnline.base.effects import Effects, Submit
from firnline.base.errors import StorageError, records_cut
from firnline.base.ids import METADATA_TOPIC
from firnline.base.log_lines.storage import DISK_ERROR
from firnline.base.open_files import LetGo, OpenFiles
from firnline.base.ports import Buffer, File
from firnline.base.slices import FileSlice
from firnline.base.units import INT64_MAX, KIB, MIB
from firnline.formats import names
from firnline.runtime.logs.lines import log_line

# A full disk fails every append: log one line for each kind of failure in this time.
_QUIET_S = 10.0
_logged_at: dict[int, float] = {}
_GIVEN_BACK = 16  # files to close, of those kept open, if no file can be opened
_REMEDIES = {
    errno.ENOSPC: "free space on this disk, or shorten retention",
    errno.EDQUOT: "raise the disk quota of the user that runs the server",
    errno.EIO: "the device failed: look at the kernel's log and replace the disk",
    errno.EROFS: "the file system is mounted read-only: repair and remount it",
    errno.EACCES: "give the user that runs the server access to the log directory",
    errno.EPERM: "give the user that runs the server access to the log directory",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
    errno.ENOENT: "the path is gone: is the disk mounted?",
    errno.ENOTDIR: "a file is where a directory was: mount the disk, or put the directory back",
}
_NO_ROOM_FOR_METADATA = (
    "free space on this disk, or mount a larger one, and start the node again: docs/OPERATIONS.md, When a"
    " disk is full"
)


# The flag for reads that do not wait for the disk; 0: not supported.
_nowait = [getattr(os, "RWF_NOWAIT", 0)]
_preadv = os.preadv
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
# Closing the last descriptor of a deleted file frees its space, which takes longer for larger files.
_CLOSED_AT_ONCE_BYTES = MIB
_to_close: queue.SimpleQueue[int] = queue.SimpleQueue()
_closing: list[threading.Thread] = []


def storage_error(
    what: str, path: str, problem: OSError, *, remedy: str | None = None
) -> StorageError:
    """Return the error with the operation, the path and the remedy."""
    number = problem.errno or 0
    said = StorageError(
        f"cannot {what}",
        path=path,
        error=errno.errorcode.get(number, str(problem)),
        remedy=remedy or _remedy(path, number),
    )
    # Errors that take a directory offline are logged there. A missing file may be no failure.
    is_logged = said.is_passing or (_closing and number != errno.ENOENT)
    return _log_failure(said, number) if is_logged else said


def _remedy(path: str, number: int) -> str:
    if number == errno.ENOSPC and _is_of_metadata(path):
        return _NO_ROOM_FOR_METADATA  # the node stops: it deletes nothing any more
    return _REMEDIES.get(number, os.strerror(number))


def _is_of_metadata(path: str) -> bool:
    return os.path.basename(os.path.dirname(path)).rpartition("-")[0] == METADATA_TOPIC


def _log_failure(problem: StorageError, number: int) -> StorageError:
    """Log a failed write or sync that takes no directory offline, at most once in `_QUIET_S`.

    The client gets only an error code, or the operation is retried.
    """
    now = time.monotonic()
    if now - _logged_at.get(number, -_QUIET_S) >= _QUIET_S:
        _logged_at[number] = now
        log_line(DISK_ERROR(operation=problem.why, **problem.facts))
    return problem


def close_off_the_loop() -> None:
    """From here on, a thread closes large deleted files. Called by a server at its start."""
    if not _closing:
        _closing.append(threading.Thread(target=_close_all, name="firnline-close", daemon=True))
        _closing[0].start()


def _close_all() -> None:
    while True:
        fd = _to_close.get()
        os.close(fd)


def _close_waiting() -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            os.close(_to_close.get_nowait())


class RealFile:
    """One open descriptor, which is closed when nothing refers to the object any more.

    So a slice of a deleted segment that waits to be sent keeps its bytes.
    """

    __slots__ = (
        "__weakref__", "_cut", "_fd", "_lost", "_room", "_size", "_syncing_fd", "_syncs", "path",
    )  # fmt: skip

    def __init__(self, path: str, fd: int, room: Room | None = None) -> None:
        self.path = path
        self._fd = fd
        self._room = room  # None: it may take all of the disk
        self._size = os.fstat(fd).st_size
        self._lost = False
        self._cut = INT64_MAX  # no read goes beyond
        self._syncs = 0  # running in threads, which have only the descriptor
        self._syncing_fd = -1

    def size(self) -> int:
        return self._size

    def append(self, data: Buffer) -> int:
        position = self._size
        if self._room is not None and not self._room.take(len(data)):
            raise self._no_room(self._room)
        try:
            written = os.pwrite(self._fd, data, position)
            if written != len(data):
                written += self._finish(data, position, written)
        except OSError as problem:
            raise self._broken("append to", problem) from problem
        self._size = position + written
        return position

    def _no_room(self, room: Room) -> StorageError:
        problem = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        kept = f"its last {-(-room.kept_bytes // MIB)} MiB are kept for the metadata"
        remedy = f"{_REMEDIES[errno.ENOSPC]}; {kept}"
        return storage_error("append to", self.path, problem, remedy=remedy)

    def _finish(self, data: Buffer, position: int, done: int) -> int:
        """Write the rest after a short write; return its size."""
        begun = done
        with memoryview(data) as view:
            while done < len(view):
                written = os.pwrite(self._fd, view[done:], position + done)
                if written == 0:
                    raise OSError(errno.EIO, "a write of nothing")
                done += written
        return done - begun

    def _broken(self, what: str, problem: OSError) -> StorageError:
        # A recovery must not take a partial write for acknowledged bytes.
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._lost = True
        return _log_failure(storage_error(what, self.path, problem), problem.errno or 0)

    def read(self, position: int, size: int) -> bytes:
        try:
            data = os.pread(self._fd, size, position)
            if len(data) < size and data:
                chunks, got = [data], len(data)
                while got < size and (data := os.pread(self._fd, size - got, position + got)):
                    chunks.append(data)
                    got += len(data)
                data = b"".join(chunks)
        except OSError as problem:
            raise storage_error("read", self.path, problem) from problem
        # Checked afterwards: the loop may have truncated the file while a thread was reading.
        if position + size > self._cut:
            raise records_cut(self.path, position + size, self._cut)
        return data

    def read_ready(self, position: int, size: int) -> Buffer | None:
        room = bytearray(size)
        try:
            got = _preadv(self._fd, (room,), position, _nowait[0])
            if got < size:
                got += self._more_ready(room, position, got)
        except BlockingIOError:
            return None
        except OSError as problem:
            if problem.errno not in _NOT_SUPPORTED or not _nowait[0]:
                raise storage_error("read", self.path, problem) from problem
            found = self.read(position, size)
            _nowait[0] = 0  # the file system does not support it: from now on reads wait
            return found
        if position + size > self._cut:
            raise records_cut(self.path, position + size, self._cut)
        return room if got == size else room[:got]

    def _more_ready(self, room: bytearray, position: int, got: int) -> int:
        """Read on after a short read: some pages are cold, or the file ends."""
        begun = got
        with memoryview(room) as view:
            while got < len(room):
                with view[got:] as rest:
                    more = _preadv(self._fd, (rest,), position + got, _nowait[0])
                if not more:
                    break
                got += more
        return got - begun

    def read_into(self, position: int, room: memoryview) -> int:
        got = 0
        try:
            while got < len(room) and (size := os.preadv(self._fd, [room[got:]], position + got)):
                got += size
        except OSError as problem:
            raise storage_error("read", self.path, problem) from problem
        if position + len(room) > self._cut:
            raise records_cut(self.path, position + len(room), self._cut)
        return got

    def truncate(self, size: int) -> None:
        assert size <= self._size, "a truncation makes a file shorter"
        try:
            os.ftruncate(self._fd, size)
        except OSError as problem:
            raise storage_error("truncate", self.path, problem) from problem
        self._size = size

    def sync(self) -> None:
        self._check_not_lost()
        try:
            os.fdatasync(self._fd)
        except OSError as problem:
            raise self._sync_failed(problem) from problem

    def begin_sync(self) -> int:
        """Return the descriptor for a thread to sync; it stays open until `end_sync`.

        Raises StorageError if the file is lost.
        """
        self._check_not_lost()
        if self._fd < 0:
            raise self._sync_failed(OSError(errno.EBADF, os.strerror(errno.EBADF)))
        self._syncs += 1
        self._syncing_fd = self._fd
        return self._fd

    def end_sync(self, failed: int) -> StorageError | None:
        """A thread has synced the file; `failed` is the errno, or 0. Return the error, if any."""
        self._syncs -= 1
        if not self._syncs and self._fd < 0:
            os.close(self._syncing_fd)
        return self._sync_failed(OSError(failed, os.strerror(failed))) if failed else None

    def _check_not_lost(self) -> None:
        if self._lost:
            raise StorageError(
                "an earlier sync of this file failed",
                path=self.path,
                remedy="restart on a good disk",
            )

    def _sync_failed(self, problem: OSError) -> StorageError:
        # The kernel marks dirty pages as clean after a failed sync: a second one would succeed wrongly.
        self._lost = True
        return _log_failure(storage_error("sync", self.path, problem), problem.errno or 0)

    def fileno(self) -> int:
        return self._fd if self._cut == INT64_MAX else -1

    def cut_off(self, size: int) -> None:
        self._cut = min(self._cut, size)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0 and not self._syncs:
            os.close(fd)

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd < 0:
            return
        self._fd = -1
        if _closing and getattr(self, "_size", 0) >= _CLOSED_AT_ONCE_BYTES:
            _to_close.put(fd)
        else:
            os.close(fd)


def _opened(path: str, flags: int, room: Room | None = None) -> RealFile:
    try:
        return RealFile(path, os.open(path, flags | os.O_CLOEXEC, 0o644), room)
    except OSError as problem:
        raise storage_error("open", path, problem) from problem


class RealFs:
    """`base.ports.Fs` of the operating system. It is made on the thread of the event loop.

    keeps_locks  keep a released lock until the process ends: threads may still use a directory that the
                 node has closed, and no other process may use it before they have ended
    """

    def __init__(self, *, keeps_locks: bool = False) -> None:
        self.kept = OpenFiles()
        self._rooms: dict[str, Room] = {}
        self._keeps_locks = keeps_locks
        self._loop_thread = threading.get_ident()

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        room = self._room_of(path) if self._rooms else None
        try:
            return _opened(path, flags, room)
        except StorageError as problem:
            if not problem.has_lost_nothing or not self._give_back():
                raise
        return _opened(path, flags, room)

    def keep_room(self, directories: Iterable[str]) -> dict[str, Room]:
        """Limit what records in these log directories take; return the room of each directory's disk.

        It applies to files that are opened afterwards. The caller measures the disks.
        """
        by_device: dict[int, Room] = {}
        found: dict[str, Room] = {}
        for path in directories:
            with contextlib.suppress(OSError):  # whoever opens it says what is wrong
                found[path] = by_device.setdefault(os.stat(path).st_dev, Room())
        self._rooms = {os.path.normpath(path): room for path, room in found.items()}
        return found

    def _room_of(self, path: str) -> Room | None:
        """Return what limits a file: only files of records are limited, and not those of the metadata log."""
        if not path.endswith(names.LOG) or _is_of_metadata(path):
            return None
        return self._rooms.get(os.path.normpath(os.path.dirname(os.path.dirname(path))))

    def _give_back(self) -> bool:
        """No descriptor is left: close some files that are open without need."""
        is_of_the_loop = threading.get_ident() == self._loop_thread
        if not is_of_the_loop or not self.kept.give_back(_GIVEN_BACK):
            return False
        _close_waiting()  # the thread would do so too late
        return True

    def keep(self, file: File, let_go: LetGo) -> None:
        self.kept.keep(file, let_go)
        if threading.get_ident() == self._loop_thread:
            self.kept.trim()

    def open_to_read(self, path: str) -> RealFile:
        return _opened(path, os.O_RDONLY)

    def make_read_only(self, path: str) -> None:
        try:
            os.chmod(path, os.stat(path).st_mode & ~0o222)
        except OSError as problem:
            raise storage_error("make read-only", path, problem) from problem

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except OSError as problem:
            raise storage_error("list", path, problem) from problem

    def names(self, path: str) -> Iterator[str]:
        try:
            with os.scandir(path) as found:
                for entry in found:
                    yield entry.name
        except OSError as problem:
            raise storage_error("list", path, problem) from problem

    def make_dir(self, path: str) -> None:
        try:
            os.makedirs(path, mode=0o755, exist_ok=True)
        except OSError as problem:
            raise storage_error("make the directory", path, problem) from problem

    def rename(self, old_path: str, new_path: str) -> None:
        try:
            os.replace(old_path, new_path)
        except OSError as problem:
            raise storage_error("rename", old_path, problem) from problem

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise storage_error("remove", path, problem) from problem

    def remove_dir(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise storage_error("remove", path, problem) from problem

    def sync_dir(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as problem:
            raise storage_error("sync the directory", path, problem) from problem

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as problem:
            raise storage_error("look at", path, problem) from problem

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        try:
            os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))
        except OSError as problem:
            raise storage_error("set the time of", path, problem) from problem

    def volume_bytes(self, path: str) -> tuple[int, int]:
        try:
            found = os.statvfs(path)
        except OSError as problem:
            raise storage_error("look at", path, problem) from problem
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def lock(self, path: str) -> Callable[[], None]:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise storage_error("open", path, problem) from problem
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kind of lock that a JVM uses
        except OSError as problem:
            os.close(fd)
            if problem.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise StorageError(
                    "the log directory is in use by another process",
                    path=path,
                    remedy="stop the other server, or give this one a log.dirs of its own",
                ) from problem
            raise storage_error("lock", path, problem) from problem
        held = [fd]
        if self._keeps_locks:
            held.clear()

        def release() -> None:
            while held:
                os.close(held.pop())

        return release


# One check for each range of this size, which is the read-ahead of the kernel.
_EVERY_BYTES = 128 * KIB


class Pages:
    """Tracks whether the pages that a connection sends next are in memory."""

    __slots__ = ("_begin", "_end", "_is_given_up", "_path", "are_awaited")

    def __init__(self) -> None:
        self.are_awaited = False  # a thread is reading them
        self._is_given_up = False
        self._path, self._begin, self._end = (
            "",
            0,
            0,
        )  # the range that is in memory, or was a moment ago

    def are_here(
        self,
        part: FileSlice,
        size: int,
        execute: Callable[[Effects], None],
        then: Callable[[], None],
    ) -> bool:
        """Whether the first `size` bytes of a slice can be sent without waiting for the disk.

        If not, a thread reads them first, and `then()` is called once. Bytes that were read are sent without
        another check: if memory is short they may be evicted again, and would never be sent.
        """
        if self.are_awaited:
            return False
        position = part.position
        if self._path == part.file.path and self._begin <= position < self._end:
            return True
        self._path, self._begin, self._end = part.file.path, position, position + size
        if in_memory(part.file.fileno(), position, size):
            return True
        self.are_awaited = True
        read = partial(self._read, part, size)
        done = partial(self._arrived, then)
        path = part.file.path
        execute([Submit(name="read cold pages", pool="pages", path=path, work=read, then=done)])
        return False

    def give_up(self) -> None:
        """The connection is closed: cancel reads that no thread has begun."""
        self._is_given_up = True

    def _read(self, part: FileSlice, size: int) -> None:
        """Read the bytes, on a thread."""
        if not self._is_given_up:
            _bring_in(part, size)

    def _arrived(self, then: Callable[[], None], result: object, now_ms: int) -> Effects:
        """The read has ended, failed or was refused; sending the bytes shows which."""
        self.are_awaited = False
        then()
        return []


def in_memory(fd: int, position: int, size: int) -> bool:
    """Whether the page cache has the bytes of a file, judging by some of them.

    Also True if the file system cannot tell. Sending the bytes finds any error of the file.
    """
    if not _nowait[0]:
        return True
    room = [bytearray(1)]
    last = position + size - 1
    try:
        for place in (*range(position, last, _EVERY_BYTES), last):
            os.preadv(fd, room, place, _nowait[0])
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno in _NOT_SUPPORTED:
            _nowait[0] = 0
    return True


def _bring_in(part: FileSlice, size: int) -> None:
    with contextlib.suppress(StorageError):
        part.file.read(part.position, size)
