"""How a thread tells the loop that something is done. WORLD."""

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from firnline.base.effects import Effects
from firnline.runtime.poll import READABLE, PollLoop

T = TypeVar("T")
Then = Callable[[T, int], Effects]
Finish = Callable[[Then[Any], Any], None]

# How long a thread may hold the interpreter while the loop waits for it. CPython's own 5 ms are as long as a
# step of the loop may be, and it would wait so long after each look at its sockets.
HOLD_S = 0.000_5
# Hundreds of logs may be synced at about the same time, and each then renames a file.
_STEP_S = 0.002


class Doorbell:
    """Hands results of threads to the loop: a queue and an eventfd."""

    def __init__(self, loop: PollLoop, finish: Finish) -> None:
        self._loop = loop
        sys.setswitchinterval(HOLD_S)
        self._finish = finish
        self._done: queue.SimpleQueue[tuple[Then[Any], Any]] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._is_closed = False
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.watch(self._fd, READABLE, self._on_ring)

    def ring(self, then: Then[T], result: T) -> None:
        """Called on a worker thread. Once this is closed, nothing comes of it."""
        self._done.put((then, result))
        with self._closing:
            if not self._is_closed:
                os.eventfd_write(self._fd, 1)

    def _on_ring(self, _events: int) -> None:
        """Finish what is done, for some time; the rest in the next turn."""
        os.eventfd_read(self._fd)
        until = time.monotonic() + _STEP_S
        while not self._done.empty():
            self._finish(*self._done.get_nowait())
            if time.monotonic() >= until:
                os.eventfd_write(self._fd, 1)
                return

    def close(self) -> None:
        self._loop.unwatch(self._fd)
        with self._closing:
            self._is_closed = True
            os.close(self._fd)
