"""A file system that can be taken away from who has it. PURE.

A log that is served no more may still be held, for a read or a sync that was under way. Its directory has
another name by then, or lies on a disk that failed, and the next topic of that name has a directory where its
own was: by its paths nothing is to be opened, renamed or removed any more. Files that are open stay so.
"""

from functools import partial
from typing import NoReturn, cast

from firnline.base.errors import RecordsCut
from firnline.base.ports import Fs


class RevocableFs:
    """`base.ports.Fs` over another one, until `revoke`."""

    __slots__ = ("_fs",)

    def __init__(self, fs: Fs) -> None:
        self._fs = fs

    def __getattr__(self, name: str) -> object:
        return getattr(self._fs, name)

    def revoke(self) -> None:
        """Nothing more is done with any path: whoever tries is told what is told of records that were cut."""
        self._fs = _NO_FILES


def revocable(fs: Fs) -> Fs:
    """Return `fs` as one log has it; `revoke` takes it away."""
    return cast("Fs", RevocableFs(fs))


def revoke(fs: Fs) -> None:
    """Take a `revocable` file system away; another one stays."""
    if isinstance(fs, RevocableFs):
        fs.revoke()


class _NoFiles:
    """No path is there, and nothing can be done with any."""

    def exists(self, path: str) -> bool:
        return False

    def __getattr__(self, name: str) -> object:
        return partial(_refuse, name)


def _refuse(name: str, path: str, *args: object, **more: object) -> NoReturn:
    # Not a failed disk: whoever asks again is told where the partition is, if it is anywhere.
    why = "the log is served no more"
    raise RecordsCut(why, path=path, attempted=name, error="EAGAIN")


_NO_FILES: Fs = cast("Fs", _NoFiles())
