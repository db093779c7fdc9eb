"""What a node knows of the machine under it: the space on its disks, and how long its loop was held up. PURE.

`runtime/machine` writes it. Status and metrics read it; nothing that the node decides depends on it.
"""

from typing import NamedTuple

from firnline.base.counting.times import Times

# For how long a loop that was held up is reported.
HELD_UP_REPORTED_MS = 60_000


class DiskSpace(NamedTuple):
    """The file system of a log directory. `free_bytes` are those that this process may use."""

    free_bytes: int
    total_bytes: int


class MachineFacts:
    """What is known now.

    disks        by path of the directory; a directory that cannot be asked is missing
    silent_disk  the directory that has been asked, without an answer, since `silent_since_ms`; "" for none
    lateness     how much later than due the loop ran a timer: what a request waits for the loop
    held_up_ms   the longest time that the loop was held up, until `held_up_at_ms`, within the last minute
    """

    __slots__ = (
        *("disks", "held_up_at_ms", "held_up_ms", "lateness", "silent_disk"),
        "silent_since_ms",
    )

    def __init__(self) -> None:
        self.disks: dict[str, DiskSpace] = {}
        self.silent_disk, self.silent_since_ms = "", 0
        self.lateness = Times()
        self.held_up_ms, self.held_up_at_ms = 0, -HELD_UP_REPORTED_MS

    def was_late(self, late_ms: float, now_ms: int) -> None:
        """A timer of the loop ran `late_ms` after it was due."""
        self.lateness.add(late_ms)
        if late_ms >= self.held_up_ms or now_ms - self.held_up_at_ms >= HELD_UP_REPORTED_MS:
            self.held_up_ms, self.held_up_at_ms = int(late_ms), now_ms
