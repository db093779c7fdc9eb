"""How a thread hands a result to the event loop. WORLD."""

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

# How long a thread may hold the interpreter lock while the event loop waits for it. CPython's default, 5 ms,
# is as long as a whole step may take, and the event loop would wait so long after each poll of its sockets.
HOLD_S = 0.000_5
# The time for results in one turn: hundreds of syncs may end together, and each result renames a file.
_STEP_S = 0.002


class Doorbell:
    """Hands results of threads to the event loop, through a queue and an eventfd."""

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
        """Have the event loop call `then(result, now_ms)`; runs on a thread. Does nothing after `close`."""
        self._done.put((then, result))
        with self._closing:
            if not self._is_closed:
                os.eventfd_write(self._fd, 1)

    def _on_ring(self, _events: int) -> None:
        """Deliver results for up to _STEP_S; the rest in the next turn."""
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
