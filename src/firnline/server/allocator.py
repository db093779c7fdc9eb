"""How much freed memory the C library keeps. WORLD.

The allocator of glibc gives large blocks pages of their own. It raises the size at which it does so to that
of the largest block that was freed, up to 32 MiB, and keeps twice as much free memory at the end of the heap.
One request of 30 MiB thus left a node with anything between 0 and 64 MiB that it did not use. Sizes that are
set stay.
"""

import ctypes
import logging

log = logging.getLogger(__name__)

# From malloc.h. The names are those of mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
# Frames of usual requests stay below this and come from the heap, which costs no page fault for each.
OWN_PAGES_FROM_BYTES = 4 << 20
KEPT_BYTES = 8 << 20


def bound_free_memory() -> None:
    """Give large blocks back when they are freed; keep at most `KEPT_BYTES` free at the end of the heap.

    Does nothing where the C library has no such settings (musl).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        log.debug("the C library has no mallopt: it decides how much free memory it keeps")
        return
    mallopt(_M_MMAP_THRESHOLD, OWN_PAGES_FROM_BYTES)
    mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
