"""Looks at the machine under a node: how late its loop is, and how much space its disks have. WORLD.

The loop cannot say of itself that it is held up now: whoever asks it gets no answer. It can say how late it
was. Disks are asked on a thread of their own, because one that hangs would hold up the loop.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from firnline.base.counting.aging import Aging
from firnline.base.counting.machine import DiskSpace, MachineFacts
from firnline.base.counting.room import Room
from firnline.runtime.clock import KEPT_EVERY_MS, keep_last_run
from firnline.runtime.poll import PollLoop

LATE_EVERY_S = 0.25
DISKS_EVERY_S = 5.0
# While little is left, which other processes may take as fast as this one.
SMALL_DISKS_EVERY_S = 0.25
# A disk that has not answered for so long limits nothing until it does.
_HANGS_MS = 2_000
_NO_ROOMS: Mapping[str, Room] = MappingProxyType({})
# The poller counts whole milliseconds and rounds up: that much later is punctual.
_ROUNDED_MS = 1.0


class MachineWatch:
    """Keeps `facts`, and the rooms of directories, up to date from its creation on; `close` ends it.

    aging  while it does not doubt the clock, the present time is written into each directory; None: never
    """

    def __init__(
        self,
        loop: PollLoop,
        facts: MachineFacts,
        directories: Sequence[str],
        now_ms: Callable[[], int],
        rooms: Mapping[str, Room] = _NO_ROOMS,
        aging: Aging | None = None,
    ) -> None:
        self._loop = loop
        self._facts = facts
        self._directories = tuple(dict.fromkeys(directories))
        self._now_ms = now_ms
        self._rooms = rooms
        self._aging = aging
        self._kept_ms: dict[str, int] = {}  # by directory: the time that was written last
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
        if self._facts.silent_disk and self._now_ms() - self._facts.silent_since_ms > _HANGS_MS:
            for room in self._rooms.values():  # the disks behind the one that hangs are not asked
                room.unknown()
        self._due_s = now_s + LATE_EVERY_S
        self._timer = self._loop.call_later(LATE_EVERY_S, self._look)

    def _ask_disks(self) -> None:
        while True:
            for path in self._directories:
                self._facts.silent_since_ms = self._now_ms()
                self._facts.silent_disk = path
                self._ask(path)
                self._keep_last_run(path)
                self._facts.silent_disk = ""
            is_small = any(room.is_small for room in self._rooms.values())
            if self._is_over.wait(SMALL_DISKS_EVERY_S if is_small else DISKS_EVERY_S):
                return

    def _ask(self, path: str) -> None:
        try:
            found = os.statvfs(path)
        except OSError:  # whoever writes to it says what is wrong with it
            self._facts.disks.pop(path, None)
            if path in self._rooms:
                self._rooms[path].unknown()
            return
        size = found.f_frsize
        space = DiskSpace(found.f_bavail * size, found.f_blocks * size)
        self._facts.disks[path] = space
        if path in self._rooms:
            self._rooms[path].measured(space)

    def _keep_last_run(self, path: str) -> None:
        now_ms = self._now_ms()
        if self._aging is None or self._aging.is_doubted(now_ms):
            return
        if now_ms - self._kept_ms.get(path, -KEPT_EVERY_MS) >= KEPT_EVERY_MS:
            keep_last_run(path, now_ms)
            self._kept_ms[path] = now_ms

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()
        self._is_over.set()
