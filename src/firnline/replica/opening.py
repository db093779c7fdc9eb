"""Opens logs in slices, so that ten thousand new partitions delay no request. PURE.

A slice makes or opens some logs on the event loop. The disk pool then syncs what must be on disk before a
partition is served, each log on its own; meanwhile at most one more slice of a directory is opened. Logs that
a client asked for are opened first, then those likely to be asked for, then the rest, each in the order
added. A log that waits for the disk, or has a long recovery, is suspended: it takes turns with logs that
clients ask for, and precedes all others. All bounds are per log directory: a log of a busy directory is held
back while logs of others are opened. Source: reliability d 50.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Generic, TypeVar

from firnline.base.effects import CancelTimer, Effects, SetTimer, Submit
from firnline.base.errors import KafkaError, RecordsTruncated, StorageError
from firnline.base.ids import PartitionKey
from firnline.base.ports import File
from firnline.base.waits import At, Wait
from firnline.replica.partition import Partition

# The logs of one slice, synced together; a directory may exceed it by a few.
SLICE = 8
# Logs opened in one turn of the event loop: some milliseconds.
_OPENED_AT_ONCE = 4
# A recovery of more slices than this is long.
_LONG_SLICES = 8
# The most suspended logs of a directory: each holds the memory of an open log, and open files.
_SUSPENDED_MAX = 9
# Suspended logs get one of so many turns, even while clients ask for others.
_SUSPENDED_EVERY = 4
_RETRY_MS = 100
# Attempts without a free descriptor: a stop must end some time.
_TRIES_MAX = 100
_T = TypeVar("_T")

LogsOpenCallback = Callable[[int], Effects]


class Urgency(IntEnum):
    """The order of opening."""

    ASKED_FOR = 0
    LIKELY = 1
    IDLE = 2


@dataclass(slots=True)
class Job:
    """One partition to be served once `files` are synced."""

    key: PartitionKey
    partition: Partition
    files: Sequence[File]


# Yields the log's directory first, then after each slice of a recovery and at each wait for the disk. Returns
# the job to sync, or effects if there is nothing to serve.
Begun = Generator[At | Wait | None, None, Job | Effects]
_TIMER = ("opening", "go on")
_Queues = dict[Urgency, dict[PartitionKey, None]]


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A log that is being opened; `problem` is the failure of its last wait."""

    key: PartitionKey
    urgency: Urgency
    steps: Begun
    disk: str = ""  # the path of its log directory
    slices: int = 0
    is_waiting: bool = False  # for the disk
    problem: Exception | None = None

    @property
    def is_long(self) -> bool:
        return self.is_waiting or self.slices > _LONG_SLICES


@dataclass(slots=True)
class _Waiter:
    """A callback that waits until all keys up to addition number `target` are opened."""

    target: int
    then: LogsOpenCallback
    timer: tuple[str, int] | None = None


class Opening:
    """A queue of partitions.

    begin(key, now_ms)             returns the steps that open the log
    finish(job, problem, now_ms)   called when its files are synced, or failed with `problem`
    place(key)                     its directory: no two logs with one place are opened at a time
    disks()                        the paths of the log directories that have not failed
    """

    def __init__(
        self,
        begin: Callable[[PartitionKey, int], Begun],
        finish: Callable[[Job, StorageError | None, int], Effects],
        place: Callable[[PartitionKey], Hashable] = lambda key: key,
        disks: Callable[[], Collection[str]] = lambda: ("",),
    ) -> None:
        self._begin = begin
        self._finish = finish
        self._place = place
        self._disks = disks
        self._queues = _queues()
        self._held: dict[
            str, _Queues
        ] = {}  # by the directory that was behind when they had their turn
        self._pending: dict[PartitionKey, int] = {}  # the number of its addition, ascending
        self._places: dict[PartitionKey, Hashable] = {}  # of those begun and not finished
        self._current: _UnderWay | None = None
        self._suspended: list[_UnderWay] = []  # the first that is ready continues first
        self._turns = 0
        self._begun = 0  # in this slice
        self._jobs: list[tuple[Job, str]] = []  # the results of this slice, with their directories
        self._is_due = False  # a timer for the next turn is set
        self._unfinished: dict[PartitionKey, Job] = {}  # they are being synced
        self._syncing: Counter[str] = Counter()  # how many, by directory
        self._added = 0
        self._waiters: list[_Waiter] = []
        self._serial = 0
        self._is_stopped = False

    def __contains__(self, key: PartitionKey) -> bool:
        """Whether `key` is queued, perhaps for the second time."""
        return any(key in queues[urgency] for queues in self._all_queues() for urgency in Urgency)

    def _all_queues(self) -> Iterator[_Queues]:
        yield from self._held.values()
        yield self._queues

    def _unqueue(self, key: PartitionKey) -> None:
        for queues in self._all_queues():
            for queue in queues.values():
                queue.pop(key, None)

    def add(self, key: PartitionKey, urgency: Urgency = Urgency.LIKELY) -> None:
        """Queue the partition. The caller then calls `go`."""
        if key not in self:
            self._queues[urgency][key] = None
            self._added += 1
            self._pending.setdefault(key, self._added)

    def prefer(self, key: PartitionKey) -> None:
        """Open it next if it is queued: a client asks for it."""
        for queues in self._all_queues():
            for urgency in (Urgency.LIKELY, Urgency.IDLE):
                if key in queues[urgency]:
                    del queues[urgency][key]
                    queues[Urgency.ASKED_FOR][key] = None
        self._suspended.sort(key=lambda each: each.key != key)

    def gives_up(self, key: PartitionKey) -> bool:
        """Drop a removed partition from the queue; False if its opening has begun or it is not queued."""
        if key in self._places or key not in self:
            return False
        self._unqueue(key)
        self._pending.pop(key, None)
        return True

    def go(self, now_ms: int) -> Effects:
        """Begin the next slice, unless one is under way."""
        return [] if self._is_due else self._go_on(now_ms)

    def _later(self, now_ms: int) -> Effects:
        if self._is_due or self._is_stopped:
            return []
        self._is_due = True
        return [SetTimer(key=_TIMER, at_ms=now_ms, then=self._go_on)]

    def _go_on(self, now_ms: int) -> Effects:
        """Do one turn: open some logs, or do a slice of a long recovery."""
        self._is_due = False
        effects: Effects = []
        if self._is_stopped:
            return effects
        for _ in range(_OPENED_AT_ONCE):
            chosen = self._choose(now_ms)
            if chosen is None or not self._is_opened(chosen, effects, now_ms):
                break
        if self._is_slice_over():
            effects += self._end_slice(now_ms)
        return effects + self._end_turn(now_ms)

    def _choose(self, now_ms: int) -> _UnderWay | None:
        """The log that continues now, or None if all wait for the disk."""
        self._turns += 1
        ready = self._ready_suspended()
        if ready is not None and self._turns % _SUSPENDED_EVERY == 0:
            return ready
        if self._current is not None:
            return self._current
        found = self._next()
        if found is None:
            return ready
        key, urgency = found
        self._unqueue(key)
        self._begun += 1
        self._places[key] = self._place(key)
        self._current = _UnderWay(key, urgency, self._begin(key, now_ms))
        return self._current

    def _ready_suspended(self) -> _UnderWay | None:
        for each in self._suspended:
            if not each.is_waiting and self._syncing[each.disk] < SLICE:
                return each
        return None

    def _next(self) -> tuple[PartitionKey, Urgency] | None:
        """The next log to begin. While suspended logs are ready, only one that a client asked for."""
        full = [disk for disk in self._disks() if self._is_full(disk)]
        if full and len(full) == len(self._disks()):
            return None
        urgencies = Urgency if self._ready_suspended() is None else (Urgency.ASKED_FOR,)
        for urgency in urgencies:
            for disk, queues in (*self._held.items(), ("", self._queues)):
                for key in queues[urgency] if disk not in full else ():
                    if key not in self._places and self._place(key) not in self._places.values():
                        return key, urgency
        return None

    def _is_full(self, disk: str) -> bool:
        """Whether a directory is too busy to begin another log in it."""
        if self._syncing[disk] >= SLICE:
            return True
        suspended = self._suspended
        return (
            len(suspended) >= _SUSPENDED_MAX
            and sum(e.disk == disk for e in suspended) >= _SUSPENDED_MAX
        )

    def _hold(self, log: _UnderWay, disk: str) -> None:
        """Hold the log back: begin it anew when its directory is less busy."""
        log.steps.close()
        self._current = None
        self._begun -= 1
        del self._places[log.key]
        self._held.setdefault(disk, _queues())[log.urgency][log.key] = None

    def _is_opened(self, log: _UnderWay, effects: Effects, now_ms: int) -> bool:
        """Continue to open a log; return False if it needs another turn or waits for the disk.

        The effects of one that cannot be opened are added to `effects`.
        """
        problem, log.problem = log.problem, None
        try:
            wait = next(log.steps) if problem is None else log.steps.throw(problem)
            if isinstance(wait, At):
                if self._is_full(wait.path):
                    self._hold(log, wait.path)
                    return True
                log.disk = wait.path
                wait = next(log.steps)
        except StopIteration as end:
            self._is_done_with(log)
            if isinstance(end.value, Job):
                self._jobs.append((end.value, log.disk))
            else:
                self._is_dealt_with(log.key)
                effects += end.value
            return True
        log.slices += 1
        if isinstance(wait, Wait):
            log.is_waiting = True
            effects += wait.begin(partial(self._waited, log), now_ms)
        self._suspend_long()
        return False

    def _suspend_long(self) -> None:
        """Suspend the current log if it takes long, so that others get turns."""
        current = self._current
        if current is not None and current.is_long:
            self._current = None
            self._suspended.append(current)

    def _is_done_with(self, log: _UnderWay) -> None:
        if log is self._current:
            self._current = None
        else:
            self._suspended.remove(log)

    def _is_dealt_with(self, key: PartitionKey) -> None:
        del self._places[key]
        if key not in self:  # it was added again while it was opened
            self._pending.pop(key, None)

    def _waited(self, log: _UnderWay, problem: Exception | None, now_ms: int) -> Effects:
        """The wait of a log for the disk ended, or failed with `problem`."""
        log.is_waiting, log.problem = False, problem
        return self._later(now_ms)

    def _is_slice_over(self) -> bool:
        """Whether to end the slice: opened logs must not wait for a long recovery."""
        return self._current is None and (self._begun >= SLICE or self._next() is None)

    def _end_slice(self, now_ms: int) -> Effects:
        jobs, self._jobs, self._begun = self._jobs, [], 0
        effects: Effects = []
        for job, disk in jobs:
            if job.files:
                self._unfinished[job.key] = job
                self._syncing[disk] += 1
                name = f"open {job.key[0].hex()}-{job.key[1]}"
                effects += sync_in_pool(name, [(job, job.files)], partial(self._synced, disk))
            else:
                effects += self._serve(job, None, now_ms)
        return effects

    def _synced(
        self, disk: str, jobs: list[tuple[Job, StorageError | None]], now_ms: int
    ) -> Effects:
        if self._is_stopped:
            return []
        effects: Effects = []
        for job, problem in jobs:
            del self._unfinished[job.key]
            self._syncing[disk] -= 1
            effects += self._serve(job, problem, now_ms)
        return effects + self._end_turn(now_ms)

    def _serve(self, job: Job, problem: StorageError | None, now_ms: int) -> Effects:
        self._is_dealt_with(job.key)
        return self._finish(job, problem, now_ms)

    def _end_turn(self, now_ms: int) -> Effects:
        """Call back the waiters that are done, and set a timer if another turn has work."""
        effects = self._call_back_waiters(now_ms)
        if (
            self._current is not None
            or self._ready_suspended() is not None
            or self._next() is not None
        ):
            effects += self._later(now_ms)
        return effects

    def stop(self) -> list[Job]:
        """Open nothing more. Return the jobs whose files may not be on disk yet."""
        self._is_stopped = True
        if self._current is not None:
            self._suspended.append(self._current)
            self._current = None
        for log in self._suspended:
            log.steps.close()
        self._queues = _queues()
        self._held.clear()
        self._suspended.clear()
        self._waiters.clear()
        return [*(job for job, _ in self._jobs), *self._unfinished.values()]

    def when_done(
        self, then: LogsOpenCallback, now_ms: int, *, at_most_ms: int | None = None
    ) -> Effects:
        """Call `then(now_ms)` once all partitions added so far are open, or after `at_most_ms`."""
        if self._is_stopped:
            return []
        if not self._pending:
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

    def _call_back_waiters(self, now_ms: int) -> Effects:
        first = next(iter(self._pending.values()), self._added + 1)
        due = [waiter for waiter in self._waiters if waiter.target < first]
        self._waiters = [waiter for waiter in self._waiters if waiter.target >= first]
        effects: Effects = []
        for waiter in due:
            if waiter.timer is not None:
                effects.append(CancelTimer(key=waiter.timer))
            effects += waiter.then(now_ms)
        return effects


def _queues() -> _Queues:
    return {urgency: {} for urgency in Urgency}


def sync_in_pool(
    name: str,
    needs: Sequence[tuple[_T, Sequence[File]]],
    then: Callable[[list[tuple[_T, StorageError | None]], int], Effects],
) -> Effects:
    """Sync files in the disk pool. Each of `needs` has the files of one log.

    `then([(owner, error or None)], now_ms)` is called once all are done. No two syncs of one `name` may be
    under way. A full pool, or no free descriptor, is tried again for some seconds.
    """
    return _PoolSync(name, needs, then).begin()


class _PoolSync(Generic[_T]):
    """One `sync_in_pool`. It is in no reference cycle, so it is freed as soon as it is done."""

    def __init__(
        self,
        name: str,
        needs: Sequence[tuple[_T, Sequence[File]]],
        then: Callable[[list[tuple[_T, StorageError | None]], int], Effects],
    ) -> None:
        self._name = name
        self._then = then
        self._needs = needs
        self._tries = [0] * len(needs)
        self._done: list[tuple[_T, StorageError | None]] = []

    def begin(self) -> Effects:
        return [self._submit(place) for place in range(len(self._needs))]

    def _submit(self, place: int) -> Submit[StorageError | None]:
        files, then = self._needs[place][1], partial(self._synced, place)
        path, work = files[0].path, partial(_sync_all, files)
        return Submit(name=self._name, pool="disk", path=path, work=work, then=then)

    def _is_to_be_tried_again(self, place: int, result: StorageError | Exception | None) -> bool:
        if not isinstance(result, StorageError):
            return isinstance(result, KafkaError)  # the pool is full
        if not _may_come(result):
            return False
        self._tries[place] += 1
        return self._tries[place] < _TRIES_MAX

    def _synced(self, place: int, result: StorageError | Exception | None, now_ms: int) -> Effects:
        if self._is_to_be_tried_again(place, result):
            at_ms = now_ms + _RETRY_MS
            again = partial(self._again, place)
            return [SetTimer(key=(self._name, place), at_ms=at_ms, then=again)]
        if isinstance(result, Exception) and not isinstance(result, StorageError):
            raise result
        self._done.append((self._needs[place][0], result))
        return self._then(self._done, now_ms) if len(self._done) == len(self._needs) else []

    def _again(self, place: int, now_ms: int) -> Effects:
        return [self._submit(place)]


def _may_come(problem: StorageError) -> bool:
    """Whether a retry may find a free descriptor.

    A deleted log never gets one again. Logs synced with it must not wait: some are the only copy.
    """
    return problem.has_lost_nothing and not isinstance(problem, RecordsTruncated)


def _sync_all(files: Sequence[File]) -> StorageError | None:
    """Sync the files, each path once; return the first error."""
    synced: dict[str, StorageError | None] = {}
    for file in files:
        if file.path not in synced:
            synced[file.path] = _sync(file)
    return next((problem for problem in synced.values() if problem is not None), None)


def _sync(file: File) -> StorageError | None:
    try:
        file.sync()
    except StorageError as problem:
        return problem
    return None
