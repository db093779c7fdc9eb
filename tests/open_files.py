"""Which files this process has open in a folder.

Not how many descriptors it has: clients of earlier tests have threads, which open and close sockets.
"""

import contextlib
import os
from pathlib import Path


def open_files(below: Path) -> list[str]:
    """Return the paths of the open files below a folder, one for each descriptor, sorted."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(path for path in found if path.startswith(f"{below}/"))
