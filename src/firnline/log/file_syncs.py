"""Files and directories as `File` objects that can only be synced and are not kept open. STORE."""

from firnline.base.errors import Bug, StorageError
from firnline.base.ports import Buffer, Fs


class DirSync:
    """A directory as a `File` that can only be synced, to make changed names durable (rel-P10)."""

    __slots__ = ("_fs", "path")

    def __init__(self, fs: Fs, path: str) -> None:
        self._fs = fs
        self.path = path

    def sync(self) -> None:
        self._fs.sync_dir(self.path)

    def size(self) -> int:
        return 0

    def append(self, data: Buffer) -> int:
        raise Bug("a directory is not written to", path=self.path)

    def read(self, position: int, size: int) -> bytes:
        return b""

    def read_ready(self, position: int, size: int) -> Buffer | None:
        return b""

    def read_into(self, position: int, room: memoryview) -> int:
        return 0

    def truncate(self, size: int) -> None:
        raise Bug("a directory is not truncated", path=self.path)

    def fileno(self) -> int:
        return -1

    def cut_off(self, size: int) -> None:
        raise Bug("a directory is not truncated", path=self.path)

    def close(self) -> None:
        """Nothing is held open."""


class PathSync(DirSync):
    """A file that is opened for its sync only: a log may have any number of them.

    A missing file is no error here, because retention or a truncation may have removed it.
    `SyncLedger.close_round` decides whether it should have been there.
    """

    __slots__ = ("was_missing",)

    def __init__(self, fs: Fs, path: str) -> None:
        super().__init__(fs, path)
        self.was_missing = False

    def sync(self) -> None:
        try:
            file = self._fs.open(self.path)
        except StorageError as problem:
            if problem.facts.get("error") != "ENOENT":
                raise
            self.was_missing = True
            return
        self.was_missing = False
        try:
            file.sync()
        finally:
            file.close()


class PathSyncs:
    """The PathSync objects of one segment, the same in each round: two rounds may share one sync."""

    __slots__ = ("_fs", "_syncs")

    def __init__(self, fs: Fs) -> None:
        self._fs = fs
        self._syncs: tuple[PathSync, ...] = ()

    def of(self, path: str) -> PathSync:
        """Return the PathSync of a file of the segment."""
        found = next((sync for sync in self._syncs if sync.path == path), None)
        if found is None:
            found = PathSync(self._fs, path)
            self._syncs += (found,)
        return found

    @property
    def missing_path(self) -> str | None:
        """A file that was missing when it was to be synced; None where all were there."""
        return next((sync.path for sync in self._syncs if sync.was_missing), None)
