"""Threads that sync files without the interpreter. WORLD.

1. The event loop writes (descriptor, number) into a pipe.
2. A thread reads it, syncs the file and writes (number, errno) into a second pipe.
3. The event loop watches that pipe, and reports the result.
`serve_syncs` of _native.c is step 2: it never takes the interpreter lock, so a sync does not compete for it.
`serve_syncs_python` is its reference implementation.
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
from firnline.runtime.threads.pool import have_ended

_JOB = Struct("ii")  # descriptor, number
_DONE = Struct("ii")  # number, errno or 0
# So many messages fit into both pipes even if each pipe holds only one page.
_OUTSTANDING_MAX = 256
Synced = Callable[[int, int], object]


def serve_syncs_python(jobs_fd: int, done_fd: int) -> None:
    """Sync the files named in one pipe and report in the other, until the first is closed."""
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

    They call `synced(number, errno)` on the event loop; errno 0: the file is synced. The caller keeps the
    descriptor open until then.
    """

    def __init__(self, loop: PollLoop, synced: Synced) -> None:
        self._loop = loop
        self._synced = synced
        self._waiting: deque[bytes] = deque()
        self._outstanding = 0
        self._threads: list[threading.Thread] = []
        self._jobs, self._asks = os.pipe2(os.O_CLOEXEC)
        self._done, self._results = os.pipe2(os.O_CLOEXEC)
        loop.watch(self._done, READABLE, self._on_done)

    def sync(self, fd: int, number: int) -> None:
        """Sync the file of a descriptor."""
        self._waiting.append(_JOB.pack(fd, number))
        self._ask()
        if len(self._threads) < min(self._outstanding, SYNC_THREADS):
            name = f"firnline-sync-{len(self._threads)}"
            ends = (self._jobs, self._results)
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
        """End the threads after their present sync; False where one still waits for a disk at `until_s`.

        Results are not reported any more.
        """
        os.close(self._asks)
        self._loop.unwatch(self._done)
        if not have_ended(self._threads, until_s):
            return False
        for fd in (self._jobs, self._done, self._results):
            os.close(fd)
        return True
