"""Threads for what must not run on the loop: group fdatasync and long work. WORLD.

No Python loop ever runs here: calls in these threads spend their time in the kernel or in native
code (performance page, section 7).
"""

import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from firnline.base.effects import Flush, Submit
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ports import File
from firnline.runtime.poll import READABLE, PollLoop

Finish = Callable[[Callable[..., Any], Any], None]

# Calls that may wait in one pool; more are refused at once (T36).
POOL_QUEUE_MAX = {"disk": 10_000, "copy": 10_000, "read": 100, "expire": 10_000, "names": 1_000}


class Doorbell:
    """Hands results of threads to the loop: a queue and an eventfd."""

    def __init__(self, loop: PollLoop, finish: Finish) -> None:
        self._loop = loop
        self._finish = finish
        self._done: queue.SimpleQueue[tuple[Callable[..., Any], Any]] = queue.SimpleQueue()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.watch(self._fd, READABLE, self._on_ring)

    def ring(self, then: Callable[..., Any], result: Any) -> None:
        """Called on a worker thread."""
        self._done.put((then, result))
        os.eventfd_write(self._fd, 1)

    def _on_ring(self, _events: int) -> None:
        os.eventfd_read(self._fd)
        while not self._done.empty():
            self._finish(*self._done.get_nowait())

    def close(self) -> None:
        self._loop.unwatch(self._fd)
        os.close(self._fd)


class FlushGroup:
    """One fdatasync run in flight; whoever asks meanwhile waits for the next one, together."""

    def __init__(self, doorbell: Doorbell) -> None:
        self._doorbell = doorbell
        self._waiting: list[Flush] = []
        self._in_flight: list[Flush] = []
        self._work: queue.SimpleQueue[list[File] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="firnline-flush", daemon=True)
        self._thread.start()

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
        self._work.put(list(files.values()))

    def _run(self) -> None:
        while (files := self._work.get()) is not None:
            problems: dict[str, StorageError] = {}
            for file in files:
                try:
                    file.sync()
                except StorageError as problem:
                    problems[file.path] = problem
            self._doorbell.ring(self.take_finished, problems)

    def close(self) -> None:
        """End the thread after the run in flight."""
        self._work.put(None)
        self._thread.join()


def problem_of(flush: Flush, problems: dict[str, StorageError]) -> StorageError | None:
    """What went wrong with the files of one flush: those of others in its run are not its own.

    problems  by path, of the whole run; the log of a topic that was deleted meanwhile may be among them
    """
    if not problems:
        return None
    return next((problems[file.path] for file in flush.files if file.path in problems), None)


class Pool:
    """Up to `threads` threads, started when there is work for them, with a bounded queue."""

    def __init__(self, name: str, threads: int, doorbell: Doorbell) -> None:
        self._name = name
        self._doorbell = doorbell
        self._queue_max = POOL_QUEUE_MAX[name]
        self._threads_max = threads
        self._work: queue.SimpleQueue[Submit | None] = queue.SimpleQueue()
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
            self._unfinished += 1
            is_short = self._unfinished > len(self._threads) < self._threads_max
        if is_short:
            name = f"firnline-{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.put(submit)
        return None

    def _run(self) -> None:
        while (submit := self._work.get()) is not None:
            try:
                result = submit.work()
            except Exception as problem:  # noqa: BLE001 - the continuation decides what it means
                result = problem
            with self._lock:
                self._unfinished -= 1
            self._doorbell.ring(submit.then, result)

    def close(self) -> None:
        """End the threads after what they are at."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()
