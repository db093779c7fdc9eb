"""Looks at the machine under a node: how late its loop is, and how much space its disks have. WORLD.

The loop cannot say of itself that it is held up now: whoever asks it gets no answer. It can say how late it
was. Disks are asked on a thread of their own, because one that hangs would hold up the loop.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence

from firnline.base.counting.machine import DiskSpace, MachineFacts
from firnline.runtime.poll import PollLoop

LATE_EVERY_S = 0.25
DISKS_EVERY_S = 5.0
# The poller counts whole milliseconds and rounds up: that much later is punctual.
_ROUNDED_MS = 1.0


class MachineWatch:
    """Keeps `facts` up to date from its creation on; `close` ends it."""

    def __init__(
        self,
        loop: PollLoop,
        facts: MachineFacts,
        directories: Sequence[str],
        now_ms: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._facts = facts
        self._directories = tuple(dict.fromkeys(directories))
        self._now_ms = now_ms
        self._is_over = threading.Event()
        self._due_s = time.monotonic() + LATE_EVERY_S
        self._timer = loop.call_later(LATE_EVERY_S, self._look)
        # A daemon: it may wait for a disk that never answers.
        self._thread = threading.Thread(target=self._ask_disks, name="firnline-disks", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        now_s = time.monotonic()
        late_ms = max(0.0, (now_s - self._due_s) * 1000 - _ROUNDED_MS)
        self._facts.was_late(late_ms, self._now_ms())
        self._due_s = now_s + LATE_EVERY_S
        self._timer = self._loop.call_later(LATE_EVERY_S, self._look)

    def _ask_disks(self) -> None:
        while True:
            for path in self._directories:
                self._facts.silent_since_ms = self._now_ms()
                self._facts.silent_disk = path
                self._ask(path)
                self._facts.silent_disk = ""
            if self._is_over.wait(DISKS_EVERY_S):
                return

    def _ask(self, path: str) -> None:
        try:
            found = os.statvfs(path)
        except OSError:  # whoever writes to it says what is wrong with it
            self._facts.disks.pop(path, None)
            return
        size = found.f_frsize
        self._facts.disks[path] = DiskSpace(found.f_bavail * size, found.f_blocks * size)

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()
        self._is_over.set()
