"""Opens logs in slices, so that ten thousand new partitions keep nobody waiting. PURE.

A slice is what the loop does in one go: make or open some logs. What then has to be on disk before a
partition is served is synced in the disk pool, and the next slice begins when that is done; requests are
answered in between. Order is kept: what was added first is opened first, and a slice ends before the next
one begins. Source: reliability d 50.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

from firnline.base.effects import CancelTimer, Effects, SetTimer, Submit
from firnline.base.errors import KafkaError, StorageError
from firnline.base.ids import Uuid
from firnline.base.ports import File
from firnline.replica.partition import Partition

# About 5 ms of the loop.
SLICE = 16
# A slice is synced by as many threads as the disk pool has.
_SHARES = 2
_RETRY_MS = 100

Key = tuple[Uuid, int]  # topic id, partition
Then = Callable[[int], Effects]


@dataclass(slots=True)
class Job:
    """One partition on its way to being served.

    write_epochs  writes the log's lineage durably, which syncs its directory too
    files         what else is to be synced
    """

    key: Key
    partition: Partition
    is_new: bool
    write_epochs: Callable[[], None] | None = None
    files: Sequence[File] = ()


@dataclass(slots=True)
class _Waiter:
    """Someone who waits until `target` keys are done with."""

    target: int
    then: Then
    timer: tuple[str, int] | None = None


class Opening:
    """A queue of partitions.

    begin(key, now_ms)             open the log and say what it needs; effects when it needs nothing
    finish(job, problem, now_ms)   all of it is on disk, or not
    """

    def __init__(
        self,
        begin: Callable[[Key, int], Job | Effects],
        finish: Callable[[Job, StorageError | None, int], Effects],
    ) -> None:
        self._begin = begin
        self._finish = finish
        self._queue: dict[Key, None] = {}
        self._unfinished = 0  # jobs of the slice that is being synced
        self._added = self._done = 0
        self._waiters: list[_Waiter] = []
        self._serial = 0
        self._is_stopped = False

    def __contains__(self, key: Key) -> bool:
        """Whether `key` waits for a slice that has not begun."""
        return key in self._queue

    def add(self, key: Key) -> None:
        """Open the partition in its turn; `go` has to follow."""
        if key not in self._queue:
            self._queue[key] = None
            self._added += 1

    def go(self, now_ms: int) -> Effects:
        """Begin the next slice, unless one is under way."""
        effects: Effects = []
        while self._queue and not self._unfinished and not self._is_stopped:
            jobs = self._begin_slice(effects, now_ms)
            self._unfinished = len(jobs)
            shares = (jobs[first::_SHARES] for first in range(_SHARES))
            effects += [self._sync(share) for share in shares if share]
        return effects if self._unfinished else effects + self._tell_waiters(now_ms)

    def _begin_slice(self, effects: Effects, now_ms: int) -> list[Job]:
        """Open some logs; what there is to say of those that cannot be goes to `effects`."""
        keys = list(islice(self._queue, SLICE))
        jobs: list[Job] = []
        for key in keys:
            del self._queue[key]
            begun = self._begin(key, now_ms)
            if isinstance(begun, Job):
                jobs.append(begun)
            else:
                effects += begun
        self._done += len(keys)
        return jobs

    def _sync(self, jobs: list[Job]) -> Submit:
        needs = [_Need(job.partition.log.path, job.write_epochs, job.files) for job in jobs]
        work = partial(_make_durable, needs)
        return Submit(name="open logs", pool="disk", work=work, then=partial(self._synced, jobs))

    def _synced(
        self, jobs: list[Job], result: list[StorageError | None] | Exception, now_ms: int
    ) -> Effects:
        if self._is_stopped:
            return []
        if isinstance(result, KafkaError):  # the pool is full
            timer = ("opening", jobs[0].key)
            return [
                SetTimer(key=timer, at_ms=now_ms + _RETRY_MS, then=lambda _: [self._sync(jobs)])
            ]
        if isinstance(result, Exception):
            raise result
        effects: Effects = []
        for job, problem in zip(jobs, result, strict=True):
            effects += self._finish(job, problem, now_ms)
        self._unfinished -= len(jobs)
        if not self._unfinished:
            effects += self._tell_waiters(now_ms)
            effects += self.go(now_ms)
        return effects

    def stop(self) -> None:
        """Open nothing more; what is under way is forgotten."""
        self._is_stopped = True
        self._queue.clear()
        self._waiters.clear()

    def when_done(self, then: Then, now_ms: int, *, at_most_ms: int | None = None) -> Effects:
        """Run `then(now_ms)` once all that was added so far is open, or after `at_most_ms`."""
        if self._is_stopped:
            return []
        if not self._queue and not self._unfinished:
            return then(now_ms)
        waiter = _Waiter(self._added, then)
        self._waiters.append(waiter)
        if at_most_ms is None:
            return []
        self._serial += 1
        waiter.timer = ("opening", self._serial)

        def give_up(at_ms: int) -> Effects:
            if waiter not in self._waiters:
                return []
            self._waiters.remove(waiter)
            return then(at_ms)

        return [SetTimer(key=waiter.timer, at_ms=now_ms + at_most_ms, then=give_up)]

    def _tell_waiters(self, now_ms: int) -> Effects:
        due = [waiter for waiter in self._waiters if waiter.target <= self._done]
        self._waiters = [waiter for waiter in self._waiters if waiter.target > self._done]
        effects: Effects = []
        for waiter in due:
            if waiter.timer is not None:
                effects.append(CancelTimer(key=waiter.timer))
            effects += waiter.then(now_ms)
        return effects


class _Need(NamedTuple):
    """What one partition needs from the disk; the thread gets nothing else of it."""

    directory: str
    write_epochs: Callable[[], None] | None
    files: Sequence[File]


def _make_durable(needs: Sequence[_Need]) -> list[StorageError | None]:
    """Write and sync, each file and directory once; return what went wrong with each."""
    synced: dict[str, StorageError | None] = {}
    problems: list[StorageError | None] = []
    for need in needs:
        problem: StorageError | None = None
        if need.write_epochs is not None:
            problem = synced[need.directory] = _problem(need.write_epochs)
        for file in need.files:
            if file.path not in synced:
                synced[file.path] = _problem(file.sync)
            problem = problem or synced[file.path]
        problems.append(problem)
    return problems


def _problem(work: Callable[[], None]) -> StorageError | None:
    try:
        work()
    except StorageError as problem:
        return problem
    return None
