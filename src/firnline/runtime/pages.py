"""Is what is about to be sent in the page cache, or would the loop wait for the disk? WORLD.

`sendfile` of a cold page waits until the disk has read it, and with a hundred consumers of old segments that
is a hundred waits in one turn of the loop. So a few bytes of the range are read with RWF_NOWAIT, which the
kernel refuses where it would have to wait; a thread then reads the range, and the page cache has it. Source:
preadv2(2); docs/decisions/0029.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from functools import partial

from firnline.base.effects import Effects, Submit
from firnline.base.errors import StorageError
from firnline.base.slices import FileSlice
from firnline.base.units import KIB

# One look for each: the kernel reads ahead as much at a time.
_EVERY_BYTES = 128 * KIB
_is_supported = [hasattr(os, "RWF_NOWAIT")]


class Pages:
    """What one connection knows of the pages that it sends next."""

    __slots__ = ("_begin", "_end", "_path", "are_awaited")

    def __init__(self) -> None:
        self.are_awaited = False  # a thread reads them
        self._path, self._begin, self._end = "", 0, 0  # these are here, or were a moment ago

    def are_here(
        self,
        part: FileSlice,
        size: int,
        execute: Callable[[Effects], None],
        then: Callable[[], None],
    ) -> bool:
        """Whether the first `size` bytes of a slice are sent without a wait for the disk.

        If not, a thread reads them first, and `then()` is called once. What was read is sent without another
        look: where memory is short it may be gone by then, and would never be sent.
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
        read = partial(_bring_in, part, size)
        done = partial(self._arrived, then)
        execute([Submit(name="read cold pages", pool="pages", work=read, then=done)])
        return False

    def _arrived(self, then: Callable[[], None], result: object, now_ms: int) -> Effects:
        """They were read, or cannot be, or too many wait for theirs: whoever sends them finds out."""
        self.are_awaited = False
        then()
        return []


def in_memory(fd: int, position: int, size: int) -> bool:
    """Whether the page cache has the bytes of a file, as far as looks at some of them tell.

    True as well where the file system cannot say. What is wrong with the file is found by whoever sends it.
    """
    if not _is_supported[0]:
        return True
    room = [bytearray(1)]
    last = position + size - 1
    try:
        for place in (*range(position, last, _EVERY_BYTES), last):
            os.preadv(fd, room, place, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as problem:
        if problem.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            _is_supported[0] = False
    return True


def _bring_in(part: FileSlice, size: int) -> None:
    with contextlib.suppress(StorageError):
        part.file.read(part.position, size)
