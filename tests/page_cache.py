"""Have the page cache forget a file, for tests of what is not in memory.

A look at a page that is not in memory may have the kernel begin to read it, and pages that are being
read are not dropped. So the file under test is not looked at: another one beside it shows whether this
file system drops pages at all.
"""

import itertools
import os
from pathlib import Path

import pytest

from firnline.runtime.disk import in_memory

_SIZE_BYTES = 64 * 1024
_numbers = itertools.count()


def forget(path: Path) -> None:
    """Drop all pages of a file; skips the test where the file system keeps them, or cannot say."""
    beside = path.with_name(f"beside-{next(_numbers)}")
    beside.write_bytes(bytes(_SIZE_BYTES))
    _drop(beside)
    with beside.open("rb") as file:
        keeps = in_memory(file.fileno(), 0, _SIZE_BYTES)
    beside.unlink()
    if keeps:
        pytest.skip("NOT RUN: this file system keeps its pages, or cannot say")
    _drop(path)


def _drop(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
