"""Thread pools for long work. WORLD.

The work spends its time in the kernel or in native code (performance page, section 7). Where it runs Python
after all, for instance to write the catalog of many remote segments, it keeps the interpreter lock from the
event loop for no longer than `doorbell.HOLD_S`.
"""

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from firnline.base.effects import BY_DIRECTORY, Submit
from firnline.base.errors import Code, KafkaError
from firnline.runtime.threads.doorbell import Doorbell

# How much work may wait in each pool; more is refused at once (T36).
POOL_QUEUE_MAX = {
    "disk": 10_000,
    "copy": 10_000,
    "read": 100,
    "expire": 10_000,
    "names": 1_000,
    "codec": 20_000,  # one for each connection
    "pages": 10_000,
    "votes": 10,  # one is under way at a time; a pool of its own, so that no other disk delays it
}

# The results of these pools are for the event loop only: once that has ended, nobody needs them.
_FOR_THE_LOOP = frozenset(("read", "names", "codec", "pages"))
# How long `close` waits for the threads of those: at its highest level a codec may take minutes.
_LEAVE_S = 1.0
# How long it waits for pools that store something: a disk may hang, and the process must end all the same.
# Work not done by then is lost as after a kill. The lock of the directory is kept until the process has ended
# (`RealFs`).
END_S = 10.0

# How many batches are recompressed at the same time; each may hold DECOMPRESSED_BATCH_BYTES_MAX.
CODEC_THREADS = max(1, min(4, os.cpu_count() or 1))


def have_ended(threads: list[threading.Thread], until_s: float) -> bool:
    """Wait for threads to end, until `until_s` of `time.monotonic`. False: one still runs."""
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


class Directories:
    """Maps a path to its log directory; on a node with a single log directory to ""."""

    def __init__(self, paths: Iterable[str]) -> None:
        known = sorted(set(paths), key=len, reverse=True)  # one may be inside of another
        self._prefixes = [f"{path}/" for path in known] if len(known) > 1 else []
        self.is_one = not self._prefixes

    def of(self, path: str) -> str:
        within = f"{path}/"
        return next((prefix for prefix in self._prefixes if within.startswith(prefix)), "")


class Pool:
    """Up to `threads` threads, started when there is work for them, with a bounded queue.

    It serves the owners of work in round robin, so that nobody waits for all the work of another owner.
    """

    def __init__(self, name: str, threads: int, doorbell: Doorbell) -> None:
        self._name = name
        self._doorbell = doorbell
        self._queue_max = POOL_QUEUE_MAX[name]
        self._threads_max = threads
        self._work: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True: work waits; False: end
        self._waiting: dict[str, deque[Submit[Any]]] = {}  # by owner; the first owner is next
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0

    def add(self, submit: Submit[Any]) -> KafkaError | None:
        """Queue the work; return the refusal when the queue is full."""
        if self._work.qsize() >= self._queue_max:
            return KafkaError(
                Code.THROTTLING_QUOTA_EXCEEDED, "too much work waits", work=submit.name
            )
        with self._lock:
            self._waiting.setdefault(submit.owner, deque()).append(submit)
            self._unfinished += 1
            is_short = self._unfinished > len(self._threads) < self._threads_max
        if is_short:
            name = f"firnline-{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put(True)
        return None

    def _take(self) -> Submit[Any]:
        with self._lock:
            owner = next(iter(self._waiting))
            waiting = self._waiting.pop(owner)
            if len(waiting) > 1:
                self._waiting[owner] = waiting  # behind all others
            return waiting.popleft()

    def _run(self) -> None:
        while self._work.get():
            submit = self._take()
            try:
                result = submit.work()
            except Exception as problem:  # noqa: BLE001 - the continuation decides what it means
                result = problem
            with self._lock:
                self._unfinished -= 1
            self._doorbell.ring(submit.then, result)
            del submit, result  # an idle thread must not keep files open

    def close(self, until_s: float) -> bool:
        """Do the waiting work and end the threads; at `until_s` begin nothing more.

        A pool whose results are for the event loop only begins nothing more at once. False: a thread still
        runs that may wait for a disk or store something.
        """
        is_useless = self._name in _FOR_THE_LOOP
        if is_useless:
            self._drop()
            until_s = min(until_s, time.monotonic() + _LEAVE_S)
        for _ in self._threads:
            self._work.put(False)
        if have_ended(self._threads, until_s):
            return True
        self._drop()
        for _ in self._threads:
            self._work.put(False)
        return is_useless and self._name != "pages"  # the end of the process waits for no disk

    def _drop(self) -> None:
        """Drop the waiting work."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._work.get_nowait()


class Pools:
    """The pools of a node, by name; pools that wait for disks also by log directory.

    A directory's pool is made for its first work. A node with one log directory has one pool of each name.
    """

    def __init__(
        self, threads: dict[str, int], doorbell: Doorbell, directories: Directories
    ) -> None:
        self._threads = threads
        self._doorbell = doorbell
        self._directories = directories
        self._pools = {(name, ""): self._made(name) for name in threads}

    def _made(self, name: str) -> Pool:
        return Pool(name, self._threads[name], self._doorbell)

    def __getitem__(self, name: str) -> Pool:
        """Return the pool of that name that belongs to no directory."""
        return self._pools[name, ""]

    def add(self, submit: Submit[Any]) -> KafkaError | None:
        """See `Pool.add`."""
        name, directory = submit.pool, ""
        if submit.path and name in BY_DIRECTORY:
            directory = self._directories.of(submit.path)
        pool = self._pools.get((name, directory))
        if pool is None:
            pool = self._pools[name, directory] = self._made(name)
        return pool.add(submit)

    def close(self, until_s: float) -> bool:
        """See `Pool.close`."""
        ended = [pool.close(until_s) for pool in self._pools.values()]
        return all(ended)
