"""Opens folders below a root, one by one, and never through a symbolic link. WORLD.

Otherwise a user with write access to the directory of a tier could let a node read, overwrite or delete files
in other places. The root itself may be a symbolic link, because the operator chose it. Each folder is opened
relative to the one above it, so that none can be replaced between a check and its use.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence

from firnline.stores.port import RemoteStorageError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = _FOLDER | os.O_NOFOLLOW


class SymbolicLink(RemoteStorageError):
    """A path inside the tier is a symbolic link."""

    def __init__(self, path: str) -> None:
        super().__init__(
            "a symbolic link inside the tier is not followed",
            path=path,
            remedy="put what it points to in its place, or mount it there; only the tier's directory itself"
            " may be a link",
        )


@contextlib.contextmanager
def opened(root: str, pieces: Sequence[str], *, makes: bool = False) -> Iterator[int]:
    """Open the folder `pieces` below `root`, for the duration of the context.

    makes  create missing folders, and sync each into the one above it

    Raises SymbolicLink, and OSError of the system.
    """
    folder = os.open(root, _FOLDER)
    try:
        for count, name in enumerate(pieces, 1):
            path = os.path.join(root, *pieces[:count])
            if makes:
                below = _open_or_make(folder, name, path)
            else:
                below = _open_below(folder, name, path)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def open_file(folder: int, name: str, path: str) -> int:
    """Open a file in an open folder for reading; `path` is for messages. Raises SymbolicLink, OSError."""
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as problem:
        raise _open_error(problem, folder, name, path) from None


def walk(folder: int, path: str) -> Iterator[tuple[str, int]]:
    """Yield (path, size in bytes) of all files below an open folder whose names do not start with a dot.

    Files that are deleted meanwhile are left out. Raises SymbolicLink, because callers take files that are
    not listed for deleted.
    """
    with os.scandir(folder) as found:
        entries = [entry for entry in found if not entry.name.startswith(".")]
    for entry in entries:
        below = os.path.join(path, entry.name)
        if entry.is_symlink():
            raise SymbolicLink(below)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not entry.is_dir(follow_symlinks=False):
                yield below, os.stat(entry.name, dir_fd=folder, follow_symlinks=False).st_size
                continue
            inside = _open_below(folder, entry.name, below)
            try:
                yield from walk(inside, below)
            finally:
                os.close(inside)


def _open_or_make(folder: int, name: str, path: str) -> int:
    try:
        return _open_below(folder, name, path)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        os.fsync(folder)
        return _open_below(folder, name, path)


def _open_below(folder: int, name: str, path: str) -> int:
    try:
        return os.open(name, _NO_LINK, dir_fd=folder)
    except OSError as problem:
        raise _open_error(problem, folder, name, path) from None


def _open_error(problem: OSError, folder: int, name: str, path: str) -> OSError | SymbolicLink:
    """Return SymbolicLink for a link that was not followed, for which Linux returns ENOTDIR or ELOOP."""
    if problem.errno in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
        with contextlib.suppress(OSError):
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return SymbolicLink(path)
    return problem
