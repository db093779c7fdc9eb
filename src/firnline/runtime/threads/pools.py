"""Pools of threads for long work. WORLD.

Calls in these threads spend their time in the kernel or in native code (performance page, section 7).
Where one is in Python all the same, as the catalog of a tier with many segments is, it keeps the
interpreter from the loop for no more than `doorbell.HOLD_S`.
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

# Calls that may wait in one pool; more are refused at once (T36).
POOL_QUEUE_MAX = {
    "disk": 10_000,
    "copy": 10_000,
    "read": 100,
    "expire": 10_000,
    "names": 1_000,
    "codec": 20_000,  # one of each connection
    "pages": 10_000,
    "votes": 10,  # one is under way at a time; other disks of the node hold none up
}

# What these make is for the loop alone: when that has ended, nobody has any use for it.
_FOR_THE_LOOP = frozenset(("read", "names", "codec", "pages"))
# How long an end waits for what their threads are at: at its highest level a codec may take minutes.
_LEAVE_S = 1.0
# And for those that store something: a disk may hang, and the process is to end all the same. What is not
# done by then is as after a kill; the lock of a directory is kept until the process has ended (`RealFs`).
END_S = 10.0

# Batches that are compressed again at the same time. Each may open to DECOMPRESSED_BATCH_BYTES_MAX.
CODEC_THREADS = max(1, min(4, os.cpu_count() or 1))


def have_ended(threads: list[threading.Thread], until_s: float) -> bool:
    """Wait for threads to end, no longer than until `until_s` of `time.monotonic`. False: one runs still."""
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


class Directories:
    """Which log directory a path is in; a node with one has no use for that, and is told "" of all."""

    def __init__(self, paths: Iterable[str]) -> None:
        known = sorted(set(paths), key=len, reverse=True)  # one may lie in another
        self._prefixes = [f"{path}/" for path in known] if len(known) > 1 else []
        self.is_one = not self._prefixes

    def of(self, path: str) -> str:
        within = f"{path}/"
        return next((prefix for prefix in self._prefixes if within.startswith(prefix)), "")


class Pool:
    """Up to `threads` threads, started when there is work for them, with a bounded queue.

    Owners of work take turns: whoever has much to be done keeps nobody waiting for all of it.
    """

    def __init__(self, name: str, threads: int, doorbell: Doorbell) -> None:
        self._name = name
        self._doorbell = doorbell
        self._queue_max = POOL_QUEUE_MAX[name]
        self._threads_max = threads
        self._work: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True for each that waits
        self._waiting: dict[str, deque[Submit[Any]]] = {}  # by owner; the first has the next turn
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0

    def add(self, submit: Submit[Any]) -> KafkaError | None:
        """Queue the work; return the refusal when the queue is full."""
        if self._work.qsize() >= self._queue_max:
            return KafkaError(
                Code.THROTTLING_QUOTA_EXCEEDED, "too much waits here", work=submit.name
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
            del submit, result  # as above

    def close(self, until_s: float) -> bool:
        """End the threads after what waits; at `until_s` leave those that are at a work still.

        Nothing more is begun then, and at once where it is for the loop alone. False: one that is left may
        wait for a disk, or store something.
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
        """Begin nothing of what waits."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._work.get_nowait()


class Pools:
    """The pools of a node, by name; of those that wait for disks, one for each log directory besides.

    All are like one where there is one directory. A pool of another directory is made for its first work.
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
        """The one of that name, of no directory."""
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
