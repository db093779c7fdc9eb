"""One pool of threads for long work. It survives work that hangs, or that raises whatever it likes. WORLD.

Theory of operation. The event loop calls the methods of `Pool`; its threads run `_run`. A thread whose work
exceeds its `run_timeout_ms` is abandoned: the work counts as failed, another thread takes the place, and the
abandoned one ends once its work returns. The lock decides which comes first, the end of the work or the
timeout, so that a continuation is called once. A pool that has abandoned too many threads refuses work until
some of them return.
"""

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Hashable
from functools import partial
from typing import Any

from firnline.base.effects import Effects, Submit
from firnline.base.errors import Code, KafkaError, WorkTimedOut, as_exception
from firnline.base.log_lines.line import Log
from firnline.base.log_lines.process import NO_THREAD, POOL_ACCEPTS, POOL_REFUSES, WORK_TIMED_OUT
from firnline.runtime.logs.lines import log_line
from firnline.runtime.threads.doorbell import Doorbell

# How many threads a pool may abandon, for each thread that it has.
ABANDONED_PER_THREAD = 2
# The results of these pools are for the event loop only: once that has ended, nobody needs them.
_FOR_THE_LOOP = frozenset(("read", "ahead", "index", "probe", "names", "codec", "pages"))
# How long the end of the process waits for the threads of those: at its highest level a codec may take
# minutes.
_LEAVE_S = 1.0
# How long it waits for threads that change the remote store. What they have not done by then is as after a
# kill: the metadata names what was begun, and a later run of the tier's tasks ends it.
_STORE_END_S = 2.0
_WAIT_S = dict.fromkeys(_FOR_THE_LOOP, _LEAVE_S) | dict.fromkeys(("copy", "expire"), _STORE_END_S)


def have_ended(threads: list[threading.Thread], until_s: float) -> bool:
    """Wait for threads to end, until `until_s` of `time.monotonic`. False: one still runs."""
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


class _Job:
    """Work from its Submit to its result."""

    __slots__ = ("is_cancelled", "queued_s", "submit")

    def __init__(self, submit: Submit[Any]) -> None:
        self.submit = submit
        self.queued_s = time.monotonic() if submit.queue_timeout_ms else 0.0
        self.is_cancelled = False

    def run(self) -> Any:
        """Do the work; return its result, or an exception. Runs on a thread."""
        submit = self.submit
        if submit.queue_timeout_ms:
            waited_ms = int((time.monotonic() - self.queued_s) * 1000)
            if waited_ms > submit.queue_timeout_ms:
                return WorkTimedOut("work waited too long", work=submit.name, waited_ms=waited_ms)
        try:
            return submit.work()
        except BaseException as problem:  # noqa: BLE001 - the continuation decides what it means
            return as_exception(problem)


class _Worker:
    """One thread. `job` is what it runs, since `began_s`; the pool's lock guards all fields.

    slow_count  how many times it has been told of the job that it is slow
    """

    __slots__ = ("began_s", "is_abandoned", "job", "slow_count", "thread")

    def __init__(self) -> None:
        self.thread: threading.Thread
        self.job: _Job | None = None
        self.began_s = 0.0
        self.slow_count = 0
        self.is_abandoned = False

    def is_slow(self, submit: Submit[Any], now_s: float) -> bool:
        """Whether `slow` is due; once for each `slow_ms`."""
        if not submit.slow_ms:
            return False
        count = int((now_s - self.began_s) * 1000) // submit.slow_ms
        is_due, self.slow_count = count > self.slow_count, count
        return is_due


class Pool:
    """Up to `threads` threads, started when there is work for them, with a queue of up to `queue_max`.

    It serves the owners of work in round robin, so that nobody waits for all the work of another owner.
    """

    def __init__(
        self, name: str, threads: int, doorbell: Doorbell, queue_max: int = 10_000
    ) -> None:
        self._name = name
        self._doorbell = doorbell
        self._queue_max = queue_max
        self._threads_max = threads
        self._abandoned_max = ABANDONED_PER_THREAD * threads
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True: look for work; False: end
        self._waiting: dict[str, deque[_Job]] = {}  # by owner; the first owner is next
        self._waiting_count = 0
        self._by_key: dict[Hashable, _Job] = {}  # only the event loop uses it
        self._workers: list[_Worker] = []
        self._abandoned: list[_Worker] = []  # their work may end some day
        self._started = 0
        self._closing_s = 0.0
        self._lock = threading.Lock()
        self._unfinished = 0  # jobs that wait, or run on a thread that is not abandoned

    @property
    def abandoned(self) -> int:
        """The number of threads whose work has timed out and has not ended yet."""
        return len(self._abandoned)

    @property
    def waiting(self) -> int:
        """How much work waits for a thread."""
        return self._waiting_count

    @property
    def running(self) -> int:
        """How many threads work, without those that are abandoned."""
        return max(self._unfinished - self._waiting_count, 0)

    @property
    def is_idle(self) -> bool:
        """Whether no work waits or runs, except on abandoned threads."""
        return not self._unfinished

    @property
    def _is_stuck(self) -> bool:
        return len(self._abandoned) >= self._abandoned_max

    def add(self, submit: Submit[Any]) -> KafkaError | None:
        """Queue the work; return the refusal when the queue is full, or too many threads hang."""
        key = submit.key
        if key is not None and key in self._by_key:
            return None
        if self._waiting_count >= self._queue_max:
            return _refusal("too much work waits", submit)
        if self._is_stuck:
            return _refusal("too much work hangs", submit)
        if self._unfinished >= len(self._workers) < self._threads_max:
            self._start()
            if not self._workers:
                return _refusal("the system gives no thread", submit)
        job = _Job(submit)
        if key is not None:
            self._by_key[key] = job
        with self._lock:
            self._waiting.setdefault(submit.owner, deque()).append(job)
            self._waiting_count += 1
            self._unfinished += 1
        self._wake.put(True)
        return None

    def cancel(self, key: Hashable, *, only_waiting: bool = False) -> None:
        """Carry out CancelSubmit."""
        job = self._by_key.get(key)
        if job is None:
            return
        owner = job.submit.owner
        with self._lock:
            waiting = self._waiting.get(owner, deque())
            is_waiting = job in waiting
            if is_waiting:
                waiting.remove(job)
                if not waiting:
                    del self._waiting[owner]
                self._waiting_count -= 1
                self._unfinished -= 1
        if is_waiting or not only_waiting:
            job.is_cancelled = True
            del self._by_key[key]

    def abandon_overdue(self, now_s: float) -> None:
        """Abandon the threads whose work has exceeded its time, and tell whose work is slow.

        The cost follows the number of threads.
        """
        overdue: list[tuple[_Worker, _Job]] = []
        slow: list[_Job] = []
        with self._lock:
            for worker in self._workers:
                job = worker.job
                limit_ms = job.submit.run_timeout_ms if job is not None else 0
                if job is not None and limit_ms and now_s - worker.began_s > limit_ms / 1000:
                    worker.is_abandoned = True
                    self._unfinished -= 1
                    overdue.append((worker, job))
                elif job is not None and worker.is_slow(job.submit, now_s):
                    slow.append(job)
        for job in slow:
            self._doorbell.ring(_slow, job.submit)
        for worker, job in overdue:
            self._workers.remove(worker)
            self._abandoned.append(worker)
            problem = WorkTimedOut(
                "work did not end in time", work=job.submit.name, limit_ms=job.submit.run_timeout_ms
            )
            # A store that hangs is probed again and again; its circuits log that, once.
            log_line(
                Log(
                    line=WORK_TIMED_OUT,
                    fields={"pool": self._name, **problem.facts},
                    is_detail=self._name == "probe",
                )
            )
            self._give(job, problem)
        if not overdue:
            return
        if self._is_stuck:
            log_line(POOL_REFUSES(pool=self._name, hanging=self.abandoned))
            self._refuse_waiting()
        while not self._is_stuck and self._unfinished > len(self._workers) < self._threads_max:
            if not self._start():
                break  # the next work that comes tries again

    def _refuse_waiting(self) -> None:
        with self._lock:
            refused = [job for waiting in self._waiting.values() for job in waiting]
            self._forget_waiting()
        for job in refused:
            self._give(job, _refusal("too much work hangs", job.submit))

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        self._unfinished -= self._waiting_count
        self._waiting_count = 0

    def _give(self, job: _Job, result: Any) -> None:
        """Have the event loop call the continuation. Runs on any thread."""
        keyed = job.submit.key is not None
        self._doorbell.ring(partial(self._deliver, job) if keyed else job.submit.then, result)

    def _deliver(self, job: _Job, result: Any, now_ms: int) -> Effects:
        """Call the continuation of work with a key, unless the work was cancelled meanwhile."""
        if job.is_cancelled:
            return []
        del self._by_key[job.submit.key]
        return job.submit.then(result, now_ms)

    # ------------------------------------------------------------------------------------ threads

    def _start(self) -> bool:
        """Start a thread; False where the system gives none."""
        worker = _Worker()
        name = f"firnline-{self._name}-{self._started}"
        self._started += 1
        worker.thread = threading.Thread(target=self._run, args=(worker,), name=name, daemon=True)
        try:
            worker.thread.start()
        except RuntimeError as problem:
            log_line(NO_THREAD(pool=self._name, error=problem))
            return False
        self._workers.append(worker)
        return True

    def _run(self, worker: _Worker) -> None:
        while self._wake.get():
            job = self._take(worker)
            if job is None:
                continue  # it was cancelled
            result = job.run()
            if not self._finish(worker):
                self._doorbell.ring(partial(self._returned, worker), job.submit)
                return
            self._give(job, result)
            del job, result  # an idle thread must not keep files open

    def _take(self, worker: _Worker) -> _Job | None:
        with self._lock:
            owner = next(iter(self._waiting), None)
            if owner is None:
                return None
            waiting = self._waiting.pop(owner)
            if len(waiting) > 1:
                self._waiting[owner] = waiting  # behind all others
            self._waiting_count -= 1
            worker.job = job = waiting.popleft()
            worker.began_s = time.monotonic()
            worker.slow_count = 0
            return job

    def _finish(self, worker: _Worker) -> bool:
        """The work has returned. False: its thread is abandoned, and its result is ignored."""
        with self._lock:
            worker.job = None
            if not worker.is_abandoned:
                self._unfinished -= 1
            return not worker.is_abandoned

    def _returned(self, worker: _Worker, submit: Submit[Any], now_ms: int) -> Effects:
        """The work of an abandoned thread has ended after all."""
        if self._is_stuck:
            log_line(POOL_ACCEPTS(pool=self._name))
        self._abandoned.remove(worker)
        return [] if submit.ended is None else submit.ended(now_ms)

    # -------------------------------------------------------------------------------------- close

    def begin_close(self) -> None:
        """Do the waiting work and end the threads; drop work whose result is for the event loop only."""
        self._closing_s = time.monotonic()
        if self._name in _FOR_THE_LOOP:
            self._drop()
        self._end_threads()

    def end_close(self, until_s: float) -> bool:
        """Wait for the threads until `until_s` at the latest, then begin nothing more.

        False: a thread still runs that may wait for a disk or a store, or change something.
        """
        until_s = min(until_s, self._closing_s + _WAIT_S.get(self._name, math.inf))
        if have_ended([worker.thread for worker in self._workers], until_s):
            is_left = any(worker.thread.is_alive() for worker in self._abandoned)
            return not is_left
        self._drop()
        self._end_threads()
        # Otherwise the end of the process waits for no disk.
        return self._name in ("names", "codec")

    def close(self, until_s: float) -> bool:
        """`begin_close`, then `end_close`."""
        self.begin_close()
        return self.end_close(until_s)

    def _end_threads(self) -> None:
        for _ in self._workers:
            self._wake.put(False)

    def _drop(self) -> None:
        """Drop the waiting work."""
        with self._lock:
            self._forget_waiting()


def _slow(submit: Submit[Any], now_ms: int) -> Effects:
    return [] if submit.slow is None else submit.slow(now_ms)


def _refusal(why: str, submit: Submit[Any]) -> KafkaError:
    return KafkaError(Code.THROTTLING_QUOTA_EXCEEDED, why, work=submit.name)
