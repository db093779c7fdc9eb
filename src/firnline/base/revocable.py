"""A file system that can be revoked from the log that uses it. PURE.

After a log was deleted or moved, or its disk failed, a read or a sync that was under way may still refer to
it. By then its paths may belong to the next topic of the same name, so the log must not open, rename or
remove any of them. Files that are open stay open.
"""

from functools import partial
from typing import NoReturn, cast

from firnline.base.errors import RecordsTruncated
from firnline.base.ports import Fs


class RevocableFs:
    """A `base.ports.Fs` that passes all calls to another one, until `revoke`."""

    __slots__ = ("_fs",)

    def __init__(self, fs: Fs) -> None:
        self._fs = fs

    def __getattr__(self, name: str) -> object:
        return getattr(self._fs, name)

    def revoke(self) -> None:
        """From now on every call with a path fails with RecordsTruncated, as a read of truncated records."""
        self._fs = _NO_FILES


def revocable(fs: Fs) -> Fs:
    """Return `fs` for the use of one log; `revoke` takes it away."""
    return cast("Fs", RevocableFs(fs))


def revoke(fs: Fs) -> None:
    """Revoke a `revocable` file system; do nothing with any other."""
    if isinstance(fs, RevocableFs):
        fs.revoke()


class _NoFiles:
    """A file system in which no path exists and every operation fails."""

    def exists(self, path: str) -> bool:
        return False

    def __getattr__(self, name: str) -> object:
        return partial(_refuse, name)


def _refuse(name: str, path: str, *args: object, **more: object) -> NoReturn:
    # No failed disk: a client that asks again learns where the partition is now.
    why = "this broker does not serve the log any more"
    raise RecordsTruncated(why, path=path, attempted=name, error="EAGAIN")


_NO_FILES: Fs = cast("Fs", _NoFiles())
