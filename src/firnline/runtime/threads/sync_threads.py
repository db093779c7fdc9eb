"""Threads that sync files: no Python runs between a write and its fdatasync. WORLD.

The loop writes (descriptor, number) into a pipe. A thread reads it, syncs the file and writes (number, errno)
into a second pipe, which the loop watches. `serve_syncs` of _native.c does that without the interpreter, so
that a sync costs no switch of threads that want it: `serve_syncs_python` is its twin.
"""

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from struct import Struct

from firnline.base.effects import SYNC_THREADS
from firnline.base.native import native
from firnline.runtime.poll import READABLE, PollLoop
from firnline.runtime.threads.pools import have_ended

_JOB = Struct("ii")  # descriptor, number
_DONE = Struct("ii")  # number, errno or 0
# Of these both pipes have room, however small: a page each.
_OUTSTANDING_MAX = 256
Synced = Callable[[int, int], object]


def serve_syncs_python(jobs_fd: int, done_fd: int) -> None:
    """Sync what is asked for in one pipe, and tell in the other, until nobody asks any more."""
    while len(job := os.read(jobs_fd, _JOB.size)) == _JOB.size:
        fd, number = _JOB.unpack(job)
        failed = 0
        try:
            os.fdatasync(fd)
        except OSError as problem:
            failed = problem.errno or errno.EIO
        os.write(done_fd, _DONE.pack(number, failed))


serve_syncs: Callable[[int, int], None] = (
    serve_syncs_python if native is None else native.serve_syncs
)


class SyncThreads:
    """Up to SYNC_THREADS threads, started when there is work for them.

    `synced(number, errno)` is called on the loop; errno 0: it is on disk. Whoever asks keeps the descriptor
    open until then.
    """

    def __init__(self, loop: PollLoop, synced: Synced) -> None:
        self._loop = loop
        self._synced = synced
        self._waiting: deque[bytes] = deque()
        self._outstanding = 0
        self._threads: list[threading.Thread] = []
        self._jobs, self._asks = os.pipe2(os.O_CLOEXEC)
        self._done, self._tells = os.pipe2(os.O_CLOEXEC)
        loop.watch(self._done, READABLE, self._on_done)

    def sync(self, fd: int, number: int) -> None:
        """Have a file synced."""
        self._waiting.append(_JOB.pack(fd, number))
        self._ask()
        if len(self._threads) < min(self._outstanding, SYNC_THREADS):
            name = f"firnline-sync-{len(self._threads)}"
            ends = (self._jobs, self._tells)
            thread = threading.Thread(target=serve_syncs, args=ends, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _ask(self) -> None:
        while self._waiting and self._outstanding < _OUTSTANDING_MAX:
            self._outstanding += 1
            os.write(self._asks, self._waiting.popleft())

    def _on_done(self, _events: int) -> None:
        done = os.read(self._done, _OUTSTANDING_MAX * _DONE.size)
        self._outstanding -= len(done) // _DONE.size
        self._ask()
        for number, failed in _DONE.iter_unpack(done):
            self._synced(number, failed)

    def close(self, until_s: float) -> bool:
        """End the threads when what they are at is synced; at `until_s` leave those that a disk holds: False.

        Nobody hears of it any more.
        """
        os.close(self._asks)
        self._loop.unwatch(self._done)
        if not have_ended(self._threads, until_s):
            return False
        for fd in (self._jobs, self._done, self._tells):
            os.close(fd)
        return True
