"""Limit how much freed memory the C library keeps. WORLD.

The allocator of glibc maps large blocks separately. It raises the threshold for "large" to the size of the
largest block that was freed, up to 32 MiB, and keeps twice as much free memory at the end of the heap. One
request of 30 MiB could thus leave a node with up to 64 MiB of unused memory. Thresholds that are set
explicitly stay.
"""

import ctypes

from firnline.base.log_lines.process import NO_MALLOPT
from firnline.runtime.logs.lines import log_line

# From malloc.h. The names are those of mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Most frames are smaller than this and come from the heap, which costs no page fault for each.
OWN_PAGES_FROM_BYTES = 4 << 20
KEPT_BYTES = 8 << 20


def bound_free_memory() -> None:
    """Return large blocks to the kernel when they are freed; keep at most `KEPT_BYTES` at the end of the
    heap.

    Does nothing where the C library has no such settings (musl).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        log_line(NO_MALLOPT())
        return
    mallopt(_M_MMAP_THRESHOLD, OWN_PAGES_FROM_BYTES)
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
