"""The descriptors of this process, and the reserve that clients cannot use. WORLD.

Connections and new partitions are refused while RESERVED descriptors are left. So rolls, checkpoints and
syncs of directories always find one, and no log directory counts as failed because of what clients do. Logs
keep open as many files as half of all descriptors. There may be more logs than that: then the file that was
opened first is closed (`base/open_files.py`).
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
        """How many are kept for what must not be refused."""
        return min(RESERVED, self.limit // 4)

    def used(self) -> int:
        """How many are open now."""
        try:
            # Since Linux 6.2 the size of the directory is their number; before, list them.
            return os.stat(_OWN).st_size or len(os.listdir(_OWN))
        except OSError:
            return self.limit

    def left(self) -> int:
        """How many may be opened for what can be refused; 0 or less: none."""
        return self.limit - self.reserved - self.used()

    def has_room(self) -> bool:
        return self.left() > 0


class LogFiles:
    """Implements `base.ports.LogFiles`: logs may keep open as many files as half of the descriptors.

    kept        the files that logs keep open
    """

    def __init__(self, descriptors: Descriptors, kept: OpenFiles) -> None:
        self._descriptors = descriptors
        self._kept = kept
        self.has_room()

    def has_room(self) -> bool:
        """Whether the files of one more log can be opened; closes others for it. Called on the event loop."""
        descriptors = self._descriptors
        self._kept.files_max = max(descriptors.limit // 2, 1)
        self._kept.trim()
        return descriptors.has_room() or self._kept.give_back(descriptors.reserved) > 0

    def logs_left(self, logs: int) -> int:
        """How many more logs there may be: in all as many as descriptors, though not each keeps one."""
        return self._descriptors.limit - logs if self.has_room() else 0
