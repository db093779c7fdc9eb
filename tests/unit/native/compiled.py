"""The compiled kernel, and memory with an end, for tests that compare it with its twins."""

import ctypes
import mmap
import os
from typing import Any

import pytest

try:
    from firnline import _native
except ImportError:
    _native = None  # type: ignore[assignment]

native: Any = _native
needs_native = pytest.mark.skipif(
    _native is None or os.environ.get("FIRNLINE_NATIVE") == "0",
    reason="NOT RUN: firnline._native was not built (no C compiler?), or is not to be used",
)


class Guarded:
    """Memory that ends where the process may not read: one byte too far is a crash."""

    def __init__(self) -> None:
        size = 4 * mmap.PAGESIZE
        self.memory = mmap.mmap(-1, size)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        libc = ctypes.CDLL(None, use_errno=True)
        guard = ctypes.c_void_p(start + size - mmap.PAGESIZE)
        assert libc.mprotect(guard, mmap.PAGESIZE, 0) == 0
        self.room = memoryview(self.memory)[: size - mmap.PAGESIZE]

    def at_the_end(self, data: bytes) -> memoryview:
        view = self.room[len(self.room) - len(data) :]
        view[:] = data
        return view
