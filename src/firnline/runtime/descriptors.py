"""How many more files this process may open, and what is kept back of them. WORLD.

What is asked for from outside, a connection or a new partition, is refused while some descriptors are left:
a segment that has to roll, a checkpoint and the sync of a directory find one then, and no log directory is
taken for failed because of what clients did. Half of all are for files that logs keep open. There may be as
many logs as descriptors: the file that was opened first gives way (`base/open_files.py`).
"""

import os
import resource

from firnline.base.open_files import OpenFiles

RESERVED = 64
_OWN = "/proc/self/fd"


class Descriptors:
    """The open files of this process. Its limit may be changed while it runs (`prlimit`)."""

    @property
    def limit(self) -> int:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    @property
    def reserved(self) -> int:
        """Kept for what is not refused."""
        return min(RESERVED, self.limit // 4)

    def used(self) -> int:
        """How many are open now."""
        try:
            # Linux tells the count as the size since 6.2; else all are listed.
            return os.stat(_OWN).st_size or len(os.listdir(_OWN))
        except OSError:
            return self.limit

    def left(self) -> int:
        """How many may be opened for what can be refused; 0 and less: none."""
        return self.limit - self.reserved - self.used()

    def has_room(self) -> bool:
        return self.left() > 0


class LogFiles:
    """What logs have of the descriptors, `base.ports.LogFiles`: half of them for files that stay open.

    kept        the files that logs keep open
    """

    def __init__(self, descriptors: Descriptors, kept: OpenFiles) -> None:
        self._descriptors = descriptors
        self._kept = kept
        self.has_room()

    def has_room(self) -> bool:
        """Whether the files of one more log can be opened; others are closed for it. On the loop."""
        descriptors = self._descriptors
        self._kept.files_max = max(descriptors.limit // 2, 1)
        self._kept.trim()
        return descriptors.has_room() or self._kept.give_back(descriptors.reserved) > 0

    def logs_left(self, logs: int) -> int:
        """How many more logs there may be: as many as descriptors in all, though not each has one."""
        return self._descriptors.limit - logs if self.has_room() else 0
