"""A directory as the remote tier: an object is durable when `put` returns. WORLD.

An object is a file below the root, and its key the relative path. A file is renamed to that path only when it
is complete and synced, and then its directory is synced: after a power cut it is complete or absent. Files
of one segment are written and synced side by side, so that they share commits of the file system's journal.
A mark file in the root distinguishes the tier's directory from an empty mount point. Symbolic links below the
root are not followed, but are an error (`stores/folders`). Source: ecosystem 1.1; F4-F6.
"""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count

from firnline.base.ports import Buffer, File
from firnline.base.units import MIB
from firnline.stores.folders import SymbolicLink, open_file, opened, walk
from firnline.stores.port import (
    CLUSTER_KEY,
    NewObject,
    ObjectInfo,
    ObjectMissing,
    ObjectStat,
    RemoteStorageError,
    in_pages,
)
from firnline.stores.side_by_side import run_side_by_side

MARK = ".firnline-tier"
_MARK_TEXT = "This directory is the remote tier of a Firnline cluster. docs/formats/tier.md\n"
# The folder of files that are being written; on the tier's file system, so that a rename can publish them.
PUTTING = ".firnline-putting"
_TEMPORARY = ".tmp"
_TRIAL = ".firnline-trial"
_ONE_FILE_SYSTEM = (
    "mount the file system at the tier's directory itself: a tier is on one file system"
)
# A temporary file without writes for this long belongs to a dead process, on whatever machine.
_DEAD_S = 3600.0
# How many files of one segment are written at the same time.
_WRITTEN_AT_ONCE = 6
# Of a large file so many bytes are synced at a time. Other syncs of the file system, as those of the log,
# wait for what is not written yet of any file (docs/decisions/0043-syncs-in-pieces.md).
SYNCED_BYTES = MIB
# Copies within the kernel, where the system has them, and why it refuses one between two files.
_copy_file_range = getattr(os, "copy_file_range", None)
_NOT_IN_KERNEL = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
_serial = count()


class DirectoryStore:
    """An `ObjectStore` in a directory.

    `is_writer` False: for readers outside the cluster; nothing is created or marked. `is_new` False: nothing
    is for a writer either, because the tier exists already, in a directory with the mark.
    """

    calls_at_once = 1
    is_distant = False
    has_uploads = False

    def __init__(self, root: str, *, is_writer: bool = True, is_new: bool = True) -> None:
        self.root = os.path.abspath(root)
        marks = [os.path.join(self.root, name) for name in (MARK, CLUSTER_KEY)]
        if is_writer and not is_new and not any(map(os.path.exists, marks)):
            raise RemoteStorageError(
                "the tier that this node has used is not there: is its disk mounted?",
                path=self.root,
                remedy="mount it, or name the directory that this cluster has used; or, to go on without that"
                f" history, put {CLUSTER_KEY} there, as docs/formats/tier.md says",
            )
        self._swept_s = 0.0
        if is_writer:
            self._make_root()
            self._sweep()
            self._try_folders()
        elif not os.path.isdir(self.root):
            raise RemoteStorageError("there is no such tier directory", path=self.root)

    def _make_root(self) -> None:
        try:
            os.makedirs(self.root, exist_ok=True)
            with opened(self.root, (PUTTING,), makes=True):
                pass
            mark = os.path.join(self.root, MARK)
            if not os.path.exists(mark):
                with opened(self.root, ()) as root:
                    _rename(_write_temporary(mark, (_MARK_TEXT.encode(),), root), root, MARK, root)
        except OSError as problem:
            raise RemoteStorageError(
                f"the tier's directory cannot be created or written: {problem.strerror}",
                path=self.root,
            ) from None

    def _try_folders(self) -> None:
        """Check that a file can be renamed into each folder, which fails for a folder on another mount.

        It tries a rename, because two mounts of one file system have the same device number, and fail, too.
        """
        path = self.root
        try:
            with os.scandir(self.root) as found:
                entries = [entry for entry in found if not entry.name.startswith(".")]
            for entry in entries:
                if entry.is_symlink():
                    raise SymbolicLink(entry.path)
            with opened(self.root, (PUTTING,)) as putting:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        continue
                    path = os.path.join(entry.path, _TRIAL)
                    with opened(self.root, (entry.name,)) as folder:
                        temporary = _write_temporary(path, (), putting)
                        try:
                            _rename(temporary, putting, _TRIAL, folder)
                        finally:
                            _remove_left(temporary, putting)
                        with contextlib.suppress(
                            FileNotFoundError
                        ):  # another node was checking, too
                            os.unlink(_TRIAL, dir_fd=folder)
        except OSError as problem:
            raise _not_written(problem, path) from None

    def _sweep(self) -> None:
        """Delete temporary files of dead processes: those of this machine at once, others when they are old.

        Examines one folder, however large the tier is; repeatedly, because other machines write there.
        """
        now_s = time.time()
        if now_s - self._swept_s >= _DEAD_S:
            self._swept_s = now_s
            self.abort_unfinished(_DEAD_S)

    def abort_unfinished(self, older_than_s: float, prefix: str = "") -> int:
        """See `ObjectStore`. Those of dead processes of this machine go at once."""
        if prefix:
            return 0
        now_s, count = time.time(), 0
        with (
            contextlib.suppress(OSError),
            opened(self.root, (PUTTING,)) as putting,
            os.scandir(putting) as found,
        ):
            for entry in found:
                with contextlib.suppress(OSError):
                    age_s = now_s - entry.stat(follow_symlinks=False).st_mtime
                    if _is_dead(entry.name, age_s, older_than_s):
                        os.unlink(entry.name, dir_fd=putting)
                        count += 1
        return count

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        """See `ObjectStore`. After a full disk no part of the object remains."""
        self.put_together((NewObject(key, chunks, size_bytes),))

    def put_together(self, objects: Sequence[NewObject]) -> None:
        """See `ObjectStore`. All files are complete and synced before the first of them is renamed."""
        folders = _pieces(objects[0].key)[:-1]
        assert all(_pieces(each.key)[:-1] == folders for each in objects), "objects of one folder"
        path = os.path.join(self.root, *_pieces(objects[-1].key))
        written: list[str | None] = [None] * len(objects)
        self._sweep()
        self._check_root()
        try:
            with self._made(PUTTING) as putting:
                try:
                    for attempt in (1, 2):
                        try:
                            with self._made(*folders) as folder:
                                if not any(written):
                                    self._write_temporaries(objects, putting, written)
                                _rename_all(objects, written, putting, folder)
                                return
                        except FileNotFoundError:
                            # A concurrent delete has removed the empty folder; `chunks` can be read only
                            # once. No node removes a folder that has an object: those that are renamed are
                            # not put again.
                            self._check_root()
                            if attempt == 2 or (any(written) and not all(written)):
                                raise RemoteStorageError(
                                    "the tier's directory vanished", path=path
                                ) from None
                except BaseException:
                    self._remove_empty(folders)
                    raise
                finally:
                    for temporary in written:
                        _remove_left(temporary, putting)
        except OSError as problem:
            raise _not_written(problem, path) from None

    def _write_temporaries(
        self, objects: Sequence[NewObject], putting: int, written: list[str | None]
    ) -> None:
        """Write all objects into the folder `putting`, and note the name of each in `written`.

        The last one, which is the largest of a segment, begins first.
        """

        def write(number: int) -> None:
            key, chunks, size_bytes, open_file = objects[number]
            path = os.path.join(self.root, key)
            written[number] = _write_temporary(path, chunks, putting, size_bytes, open_file)

        calls = [partial(write, number) for number in reversed(range(len(objects)))]
        run_side_by_side(calls, _WRITTEN_AT_ONCE)

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        """See `ObjectStore`."""
        with self._object(key) as file:
            if position:
                os.lseek(file, position, os.SEEK_SET)
            return _read(file, size_bytes)

    def stat(self, key: str) -> ObjectStat:
        """See `ObjectStore`."""
        with self._object(key) as file:
            found = os.fstat(file)
            return ObjectStat(found.st_size, found.st_mtime_ns // 1_000_000, None)

    @contextlib.contextmanager
    def _object(self, key: str) -> Iterator[int]:
        """Open an object for reading."""
        *folders, name = pieces = _pieces(key)
        path = os.path.join(self.root, *pieces)
        try:
            with opened(self.root, folders) as folder:
                file = open_file(folder, name, path)
            try:
                yield file
            finally:
                os.close(file)
        except (FileNotFoundError, NotADirectoryError):
            self._check_root()
            raise ObjectMissing("no such object in the tier", key=key) from None
        except OSError as problem:
            raise RemoteStorageError(
                f"cannot read from the tier: {problem.strerror}", path=path
            ) from None

    def pages(self, folder: str, after: str = "") -> Iterator[list[ObjectInfo]]:
        """See `ObjectStore`. A directory has no order: the first page costs the complete listing."""
        yield from in_pages(self.list_prefix(folder), after)

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        """See `ObjectStore`."""
        assert prefix.endswith("/"), "a prefix is a folder"
        pieces = _pieces(prefix.rstrip("/"))
        found = []
        try:
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError),
                opened(self.root, pieces) as top,
            ):
                for path, size in walk(top, "/".join(pieces)):
                    found.append(ObjectInfo(path, size))
        except OSError as problem:
            raise RemoteStorageError(
                f"cannot list the tier: {problem.strerror}", path=os.path.join(self.root, *pieces)
            ) from None
        if not found:
            self._check_root()
        return sorted(found)

    def delete(self, key: str) -> None:
        """See `ObjectStore`. Folders that are empty then are deleted, too."""
        self.delete_many((key,))

    def delete_many(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`. Each folder is synced once."""
        self._check_root()
        names: dict[tuple[str, ...], list[str]] = {}
        for key in keys:
            *folders, name = _pieces(key)
            names.setdefault(tuple(folders), []).append(name)
        failure: RemoteStorageError | None = None
        for where, inside in names.items():
            failure = self._delete_in(list(where), inside) or failure
        if failure is not None:
            raise failure

    def _delete_in(self, folders: list[str], names: list[str]) -> RemoteStorageError | None:
        """Delete files of one folder, and those folders that are empty then; return a failure."""
        failure = None
        path = os.path.join(self.root, *folders)
        try:
            with opened(self.root, folders) as folder:
                for name in names:
                    try:
                        os.unlink(name, dir_fd=folder)
                    except FileNotFoundError:
                        continue
                    except OSError as problem:
                        failure = _not_deleted(problem, os.path.join(path, name))
                with contextlib.suppress(OSError):
                    os.fsync(folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            return _not_deleted(problem, path)
        self._remove_empty(folders)
        return failure

    def _remove_empty(self, folders: list[str]) -> None:
        """Delete a folder of objects and those above it, as far as they are empty."""
        with contextlib.suppress(OSError):
            while folders:
                empty = folders.pop()
                with opened(self.root, folders) as folder:
                    os.rmdir(empty, dir_fd=folder)

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _check_root(self) -> None:
        """Raise if the directory is not mounted, instead of treating the tier as empty."""
        if not os.path.isdir(self.root):
            raise RemoteStorageError("the tier's directory is not there", path=self.root)

    @contextlib.contextmanager
    def _made(self, *pieces: str) -> Iterator[int]:
        """Open a folder of objects; create it if necessary, but never the root."""
        if not os.path.isdir(os.path.join(self.root, *pieces)) and not os.path.exists(
            os.path.join(self.root, MARK)
        ):
            raise RemoteStorageError(
                f"the tier's directory lost its mark {MARK}: is the right file system mounted?",
                path=self.root,
            )
        with opened(self.root, pieces, makes=True) as folder:
            yield folder


def _pieces(key: str) -> list[str]:
    pieces = key.split("/")
    if any(piece in ("", ".", "..") for piece in pieces) or "\0" in key:
        raise RemoteStorageError("not the name of an object", key=key)
    return pieces


def _not_deleted(problem: OSError, path: str) -> RemoteStorageError:
    return RemoteStorageError(f"cannot delete from the tier: {problem.strerror}", path=path)


def _not_written(problem: OSError, path: str) -> RemoteStorageError:
    if problem.errno == errno.EXDEV:
        return RemoteStorageError(
            "a part of the tier is on another file system than its directory",
            path=path,
            remedy=_ONE_FILE_SYSTEM,
        )
    return RemoteStorageError(f"cannot write to the tier: {problem.strerror}", path=path)


def _is_dead(name: str, age_s: float, dead_s: float) -> bool:
    """Whether the process that wrote the temporary file `name` is dead."""
    host, _, rest = name.removesuffix(_TEMPORARY).rpartition("@")
    pid = rest.partition("-")[0]
    if not name.endswith(_TEMPORARY) or not pid.isdecimal():
        return False  # not a temporary file of a tier
    if age_s >= dead_s:
        return True
    if host != _host() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # of another process, which is alive
    return False


def _host() -> str:
    return socket.gethostname().replace(os.sep, "_")


def _write_temporary(
    path: str,
    chunks: Iterable[Buffer],
    putting: int,
    size_bytes: int | None = None,
    open_file: Callable[[], File] | None = None,
) -> str:
    """Write the object of `path` into the folder `putting`, sync it, check its length; return its name."""
    temporary = f"{_host()}@{os.getpid()}-{next(_serial)}{_TEMPORARY}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(temporary, flags, 0o644, dir_fd=putting)
    try:
        try:
            written = 0
            if open_file is not None and size_bytes:
                written = _copy_in_kernel(open_file, file, size_bytes)
            if not written:
                written = _write_all(file, chunks)
            if size_bytes is not None and written != size_bytes:
                raise RemoteStorageError(
                    "the object has another length than announced",
                    path=path,
                    announced=size_bytes,
                    got=written,
                )
            os.fsync(file)
        finally:
            os.close(file)
    except BaseException:
        _remove_left(temporary, putting)
        raise
    return temporary


def _copy_in_kernel(open_file: Callable[[], File], target: int, size_bytes: int) -> int:
    """Have the kernel copy the beginning of a file, and return how much it copied; 0 where it cannot.

    It costs the process no memory, and its other threads no turn of the interpreter.
    """
    if _copy_file_range is None:
        return 0
    source, copied = open_file(), 0
    try:
        fd = source.fileno()
        while fd >= 0 and copied < size_bytes:
            piece_bytes = min(size_bytes - copied, SYNCED_BYTES)
            done = _copy_file_range(fd, target, piece_bytes, offset_src=copied)
            if not done:
                break  # the file is shorter
            copied += done
            os.fdatasync(target)
    except OSError as problem:
        if copied or problem.errno not in _NOT_IN_KERNEL:
            raise
    finally:
        source.close()
    return copied


def _rename(temporary: str, putting: int, name: str, folder: int) -> None:
    os.replace(temporary, name, src_dir_fd=putting, dst_dir_fd=folder)
    os.fsync(folder)


def _rename_all(
    objects: Sequence[NewObject], written: list[str | None], putting: int, folder: int
) -> None:
    """Rename temporary files to their objects, the last when the names of the others are synced.

    Forgets each in `written` that is renamed.
    """
    for number, each in enumerate(objects):
        temporary, is_last = written[number], number == len(objects) - 1
        assert temporary is not None
        if is_last and number:
            os.fsync(folder)
        name = each.key.rpartition("/")[2]
        os.replace(temporary, name, src_dir_fd=putting, dst_dir_fd=folder)
        written[number] = None
    os.fsync(folder)


def _remove_left(temporary: str | None, putting: int) -> None:
    """Delete a temporary file that was not renamed."""
    if temporary is not None:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=putting)


def _write_all(file: int, chunks: Iterable[Buffer]) -> int:
    written = synced = 0
    for chunk in chunks:
        written += _write(file, chunk)
        if written - synced >= SYNCED_BYTES:
            os.fdatasync(file)
            synced = written
    return written


def _write(file: int, chunk: Buffer) -> int:
    with memoryview(chunk) as view:
        done = 0
        while done < len(view):
            with view[done:] as rest:
                done += os.write(file, rest)
        return done


def _read(file: int, size_bytes: int | None) -> bytes:
    if size_bytes is None:
        size_bytes = max(os.fstat(file).st_size - os.lseek(file, 0, os.SEEK_CUR), 0)
    parts = []
    while size_bytes > 0:
        part = os.read(file, min(size_bytes, 8 << 20))
        if not part:
            break
        parts.append(part)
        size_bytes -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
