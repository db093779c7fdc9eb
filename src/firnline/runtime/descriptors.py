"""How many more files this process may open, and what is kept back of them. WORLD.

What is asked for from outside, a connection or a new partition, is refused while some descriptors are left:
a segment that has to roll, a checkpoint and the sync of a directory find one then, and no log directory is
taken for failed because of what clients did.
"""

import os
import resource

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
