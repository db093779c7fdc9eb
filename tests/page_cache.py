"""Have the page cache forget a file, for tests of what is not in memory."""

import ctypes
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

_WITHIN_S = 10
_LOOKS = 100


def _forget(path: Path) -> None:
    """Drop all pages of a file; skips the test where the file system keeps them.

    The kernel does not drop a page that it has in its hands at that moment, so it is asked until all are
    gone. The question which are there reads none of them.
    """
    until_s = time.monotonic() + _WITHIN_S
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        while True:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            kept = _pages_in_memory(file.fileno())
            if not kept:
                return
            if time.monotonic() > until_s:
                pytest.skip(f"NOT RUN: this file system keeps {kept} pages in memory")
            time.sleep(0.01)


def was_missed(look: Callable[[], bool], *paths: Path) -> bool:
    """Whether one look of many says that pages of the files were missing, which are dropped before each.

    A look has the kernel begin to read them, and a fast disk may have done that before the look ends: then
    they are there, and nobody waited.
    """
    for _ in range(_LOOKS):
        for path in paths:
            _forget(path)
        if look():
            return True
    return False


def _pages_in_memory(fd: int) -> int:
    size = os.fstat(fd).st_size
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with mmap.mmap(fd, size) as mapped:
        begin = ctypes.c_ubyte.from_buffer(mapped)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            address = ctypes.c_void_p(ctypes.addressof(begin))
            if libc.mincore(address, ctypes.c_size_t(size), pages):
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error))
        finally:
            del begin
    return sum(page & 1 for page in pages)
