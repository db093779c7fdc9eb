"""A directory as the remote tier: what is put is durable when `put` returns. WORLD.

One object is one file below the root, its key the relative path. A file appears by rename only when
it is whole and on disk, and its directory is synced after: a power cut leaves all of it or nothing.
A mark in the root tells the tier's directory from an empty mount point. Source: ecosystem 1.1; F4-F6.
"""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from firnline.base.ports import Buffer
from firnline.tiered.objects.layout import CLUSTER_KEY
from firnline.tiered.spi import ObjectInfo, ObjectMissing, RemoteStorageError

MARK = ".firnline-tier"
_MARK_TEXT = "This directory is the remote tier of a Firnline cluster. docs/formats/tier.md\n"
# Where what is being put grows; on the tier's file system, so that a rename makes it an object.
PUTTING = ".firnline-putting"
_TEMPORARY = ".tmp"
_TRIAL = ".firnline-trial"
_ONE_FILE_SYSTEM = "mount the file system at the tier's directory itself: all of a tier lies on one"
# What was not written to for so long belongs to a process that died, wherever it ran.
_DEAD_S = 3600.0
_serial = count()


class DirectoryStore:
    """An `ObjectStore` in a directory.

    `is_writer` False: for readers beside the cluster; nothing is made or marked. `is_new` False: neither
    is for a writer, whose history lies in a directory that has the mark.
    """

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
            os.makedirs(os.path.join(self.root, PUTTING), exist_ok=True)
            mark = os.path.join(self.root, MARK)
            if not os.path.exists(mark):
                _write_durably(mark, (_MARK_TEXT.encode(),), self.root)
        except OSError as problem:
            raise RemoteStorageError(
                f"the tier's directory cannot be made or written: {problem.strerror}",
                path=self.root,
            ) from None

    def _try_folders(self) -> None:
        """See that what is put can be renamed into each folder: one on another mount would refuse it.

        By trying: two mounts of one file system have the same device number, and refuse it too.
        """
        path = self.root
        try:
            with os.scandir(self.root) as found:
                folders = [e.path for e in found if e.is_dir() and not e.name.startswith(".")]
            for folder in folders:
                path = os.path.join(folder, _TRIAL)
                _write_durably(path, (), os.path.join(self.root, PUTTING))
                with contextlib.suppress(FileNotFoundError):  # another node was trying, too
                    os.unlink(path)
        except OSError as problem:
            raise _not_written(problem, path) from None

    def _sweep(self) -> None:
        """Remove what dead processes were putting: those of this machine at once, others when it is old.

        One folder is looked at, however large the tier is; now and then, since other machines write there.
        """
        now_s = time.time()
        if now_s - self._swept_s < _DEAD_S:
            return
        self._swept_s = now_s
        with contextlib.suppress(OSError), os.scandir(os.path.join(self.root, PUTTING)) as found:
            for entry in found:
                with contextlib.suppress(OSError):
                    if _is_dead(entry.name, now_s - entry.stat().st_mtime):
                        os.unlink(entry.path)

    def put(self, key: str, chunks: Iterable[Buffer], *, size_bytes: int) -> None:
        """See `ObjectStore`. A full disk leaves nothing of the object behind."""
        path = self._path(key)
        putting = os.path.join(self.root, PUTTING)
        temporary: str | None = None
        self._sweep()
        try:
            for attempt in (1, 2):
                self._check_root()
                try:
                    self._make_folder(os.path.dirname(path))
                    self._make_folder(putting)
                    if temporary is None:
                        temporary = _write_aside(path, chunks, putting, size_bytes)
                    _rename(temporary, path)
                    return
                except FileNotFoundError:
                    # A delete next door took the empty folder away; `chunks` can be read only once.
                    if attempt == 2:
                        raise RemoteStorageError(
                            "the tier's directory vanished", path=path
                        ) from None
        except OSError as problem:
            raise _not_written(problem, path) from None
        finally:
            _remove_left(temporary)

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        """See `ObjectStore`."""
        path = self._path(key)
        try:
            with open(path, "rb", buffering=0) as file:
                if position:
                    file.seek(position)
                return _read(file.fileno(), size_bytes)
        except (FileNotFoundError, NotADirectoryError):
            self._check_root()
            raise ObjectMissing("no such object in the tier", key=key) from None
        except OSError as problem:
            raise RemoteStorageError(
                f"cannot read from the tier: {problem.strerror}", path=path
            ) from None

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        """See `ObjectStore`."""
        assert prefix.endswith("/"), "a prefix is a folder"
        top = self._path(prefix.rstrip("/"))
        found = []
        try:
            for folder, _, names in os.walk(top, onerror=_raise_unless_gone):
                for name in names:
                    if name.startswith("."):
                        continue
                    path = os.path.join(folder, name)
                    with contextlib.suppress(FileNotFoundError):
                        size = os.stat(path).st_size
                        key = os.path.relpath(path, self.root).replace(os.sep, "/")
                        found.append(ObjectInfo(key, size))
        except OSError as problem:
            raise RemoteStorageError(
                f"cannot list the tier: {problem.strerror}", path=top
            ) from None
        if not found:
            self._check_root()
        return sorted(found)

    def delete(self, key: str) -> None:
        """See `ObjectStore`. Folders that become empty go too."""
        path = self._path(key)
        self._check_root()
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as problem:
            raise RemoteStorageError(
                f"cannot delete from the tier: {problem.strerror}", path=path
            ) from None
        folder = os.path.dirname(path)
        with contextlib.suppress(OSError):
            _sync_folder(folder)
            while folder != self.root:
                os.rmdir(folder)
                folder = os.path.dirname(folder)

    def close(self) -> None:
        """Nothing is held open."""

    def _path(self, key: str) -> str:
        pieces = key.split("/")
        if any(piece in ("", ".", "..") for piece in pieces) or "\0" in key:
            raise RemoteStorageError("not the name of an object", key=key)
        return os.path.join(self.root, *pieces)

    def _check_root(self) -> None:
        """Refuse to take an unmounted directory for an empty tier."""
        if not os.path.isdir(self.root):
            raise RemoteStorageError("the tier's directory is not there", path=self.root)

    def _make_folder(self, folder: str) -> None:
        """Make the folders of an object, each entry durable in its parent. The root is never made."""
        if os.path.isdir(folder):
            return
        if not os.path.exists(os.path.join(self.root, MARK)):
            raise RemoteStorageError(
                f"the tier's directory lost its mark {MARK}: is the right file system mounted?",
                path=self.root,
            )
        missing = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
            _sync_folder(os.path.dirname(path))


def _not_written(problem: OSError, path: str) -> RemoteStorageError:
    if problem.errno == errno.EXDEV:
        return RemoteStorageError(
            "a part of the tier lies on another file system than its directory",
            path=path,
            remedy=_ONE_FILE_SYSTEM,
        )
    return RemoteStorageError(f"cannot write to the tier: {problem.strerror}", path=path)


def _raise_unless_gone(problem: OSError) -> None:
    if not isinstance(problem, FileNotFoundError | NotADirectoryError):
        raise problem


def _is_dead(name: str, age_s: float) -> bool:
    """Whether whoever was writing the temporary file `name` is gone."""
    host, _, rest = name.removesuffix(_TEMPORARY).rpartition("@")
    pid = rest.partition("-")[0]
    if not name.endswith(_TEMPORARY) or not pid.isdecimal():
        return False  # not one of ours
    if age_s >= _DEAD_S:
        return True
    if host != _host() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # somebody else's, and alive
    return False


def _host() -> str:
    return socket.gethostname().replace(os.sep, "_")


def _write_durably(path: str, chunks: Iterable[Buffer], putting: str) -> None:
    """Write in the folder `putting`, sync, rename to `path`, sync its folder."""
    temporary = _write_aside(path, chunks, putting)
    try:
        _rename(temporary, path)
    finally:
        _remove_left(temporary)


def _write_aside(
    path: str, chunks: Iterable[Buffer], putting: str, size_bytes: int | None = None
) -> str:
    """Write what is to be at `path` in the folder `putting`, sync, check the length; return where it is."""
    temporary = os.path.join(putting, f"{_host()}@{os.getpid()}-{next(_serial)}{_TEMPORARY}")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            written = 0
            for chunk in chunks:
                written += _write(file, chunk)
            if size_bytes is not None and written != size_bytes:
                raise RemoteStorageError(
                    "what was to be stored has another length than announced",
                    path=path,
                    announced=size_bytes,
                    got=written,
                )
            os.fsync(file)
        finally:
            os.close(file)
    except BaseException:
        _remove_left(temporary)
        raise
    return temporary


def _rename(temporary: str, path: str) -> None:
    os.replace(temporary, path)
    _sync_folder(os.path.dirname(path))


def _remove_left(temporary: str | None) -> None:
    """Remove what was not renamed."""
    if temporary is not None:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


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


def _sync_folder(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def path_of(uri: str) -> str | None:
    """Return the directory that `file:///path` or a plain path names; None for another scheme."""
    if uri.startswith("file:"):
        rest = uri.removeprefix("file:")
        if rest.startswith("//"):
            host, _, path = rest[2:].partition("/")
            if host not in ("", "localhost"):
                raise RemoteStorageError("a file URI names a path of this machine", uri=uri)
            rest = "/" + path
        return str(Path(rest))
    return None if "://" in uri else str(Path(uri).expanduser())
