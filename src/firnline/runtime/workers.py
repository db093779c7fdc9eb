"""Threads for what must not run on the loop: group fdatasync and long work. WORLD.

Calls in these threads spend their time in the kernel or in native code (performance page, section 7).
Where one is in Python all the same, as the catalog of a tier with many segments is, it keeps the
interpreter from the loop for no more than HOLD_S.
"""

import contextlib
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from firnline.base.effects import BY_DIRECTORY, SYNC_THREADS, Effects, Flush, Submit
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ports import File
from firnline.runtime.poll import READABLE, PollLoop

Finish = Callable[[Callable[..., Any], Any], None]

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
        self._done: queue.SimpleQueue[tuple[Callable[..., Any], Any]] = queue.SimpleQueue()
        self._closing = threading.Lock()
        self._is_closed = False
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.watch(self._fd, READABLE, self._on_ring)

    def ring(self, then: Callable[..., Any], result: Any) -> None:
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


class _Run:
    """Files that are synced together; the thread that is done last reports what failed, by path."""

    def __init__(self, files: list[File], shares: int) -> None:
        self.shares = [files[first::shares] for first in range(shares)]
        self.problems: dict[str, StorageError] = {}
        self._left = shares
        self._lock = threading.Lock()

    def do(self, share: list[File]) -> bool:
        """Sync one share; True when it was the last."""
        for file in share:
            try:
                file.sync()
            except StorageError as problem:
                self.problems[file.path] = problem
        with self._lock:
            self._left -= 1
            return self._left == 0


class FlushGroup:
    """One run of syncs in flight; whoever asks meanwhile waits for the next one, together.

    The files of a run are synced side by side: the file system commits once for those that wait at the same
    time, and once for each where they come one after the other. Nothing is believed before all are done, so
    their order does not matter.
    """

    def __init__(self, doorbell: Doorbell) -> None:
        self._doorbell = doorbell
        self._waiting: list[Flush] = []
        self._in_flight: list[Flush] = []
        self._work: queue.SimpleQueue[tuple[_Run, list[File]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def add(self, flush: Flush) -> None:
        self._waiting.append(flush)
        if not self._in_flight:
            self._start()

    def take_finished(self) -> list[Flush]:
        """Return the flushes of the run that ended and start the next run."""
        finished, self._in_flight = self._in_flight, []
        if self._waiting:
            self._start()
        return finished

    def _start(self) -> None:
        self._in_flight, self._waiting = self._waiting, []
        files = {file.path: file for flush in self._in_flight for file in flush.files}
        run = _Run(list(files.values()), shares=min(max(len(files), 1), SYNC_THREADS))
        while len(self._threads) < len(run.shares):
            name = f"firnline-flush-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()
        for share in run.shares:
            self._work.put((run, share))

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            run, share = work
            if run.do(share):
                self._doorbell.ring(self.take_finished, run.problems)
            # A thread that waits keeps no file open: it may be of a topic that is deleted meanwhile.
            del work, run, share

    def close(self, until_s: float) -> bool:
        """End the threads after the run in flight; at `until_s` leave those that a disk holds: False."""
        for _ in self._threads:
            self._work.put(None)
        return _have_ended(self._threads, until_s)


def _have_ended(threads: list[threading.Thread], until_s: float) -> bool:
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def problem_of(flush: Flush, problems: dict[str, StorageError]) -> StorageError | None:
    """What went wrong with the files of one flush: those of others in its run are not its own.

    problems  by path, of the whole run; the log of a topic that was deleted meanwhile may be among them
    """
    if not problems:
        return None
    return _worst([problems[file.path] for file in flush.files if file.path in problems])


def _worst(problems: Sequence[StorageError]) -> StorageError | None:
    """A failed disk counts before a want of descriptors."""
    return min(problems, key=lambda problem: problem.has_lost_nothing, default=None)


class Directories:
    """Which log directory a path is in; a node with one has no use for that, and is told "" of all."""

    def __init__(self, paths: Iterable[str]) -> None:
        known = sorted(set(paths), key=len, reverse=True)  # one may lie in another
        self._prefixes = [f"{path}/" for path in known] if len(known) > 1 else []
        self.is_one = not self._prefixes

    def of(self, path: str) -> str:
        within = f"{path}/"
        return next((prefix for prefix in self._prefixes if within.startswith(prefix)), "")


class FlushGroups:
    """A FlushGroup for each log directory: none waits for the disk of another one."""

    def __init__(self, doorbell: Doorbell, directories: Directories) -> None:
        self._doorbell = doorbell
        self._directories = directories
        self._groups: dict[str, FlushGroup] = {}

    def add(self, flush: Flush) -> None:
        if self._directories.is_one:
            self._group("").add(flush)
            return
        shares: dict[str, list[File]] = {}
        for file in flush.files:
            shares.setdefault(self._directories.of(file.path), []).append(file)
        if len(shares) > 1:
            joined = _Joined(flush, len(shares))
            for directory, files in shares.items():
                self._group(directory).add(Flush(files=files, then=joined.one_is_done))
        else:
            self._group(next(iter(shares), "")).add(flush)

    def _group(self, directory: str) -> FlushGroup:
        found = self._groups.get(directory)
        if found is None:
            found = self._groups[directory] = FlushGroup(self._doorbell)
        return found

    def close(self, until_s: float) -> bool:
        """See `FlushGroup.close`."""
        ended = [group.close(until_s) for group in self._groups.values()]
        return all(ended)


class _Joined:
    """A Flush of files in several directories: what went wrong in any did so for who asked."""

    def __init__(self, flush: Flush, shares: int) -> None:
        self._flush = flush
        self._left = shares
        self._problems: list[StorageError] = []

    def one_is_done(self, problem: StorageError | None, now_ms: int) -> Effects:
        self._left -= 1
        self._problems += [] if problem is None else [problem]
        return [] if self._left else self._flush.then(_worst(self._problems), now_ms)


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
        self._waiting: dict[str, deque[Submit]] = {}  # by owner; the first has the next turn
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._unfinished = 0

    def add(self, submit: Submit) -> KafkaError | None:
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

    def _take(self) -> Submit:
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
        if _have_ended(self._threads, until_s):
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

    def add(self, submit: Submit) -> KafkaError | None:
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
