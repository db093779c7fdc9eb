"""Opens logs in slices, so that ten thousand new partitions keep nobody waiting. PURE.

A slice is what the loop does in one go: make or open some logs. What then has to be on disk before a
partition is served is synced in the disk pool, that of each log on its own; while as many logs as a slice
has are synced, nothing else is opened. Requests are answered in between. What a client asked for is opened
first, then what is likely to be asked for, then the rest, each in the order it was added. A log that waits
for the disk, or whose recovery takes long, is set aside: it goes on in turns with those that clients ask
for, and before all others. All bounds are those of one log directory: what finds its own behind is held until
that has come on, and logs of others are opened meanwhile. Source: reliability d 50.
"""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Generic, TypeVar

from firnline.base.effects import CancelTimer, Effects, SetTimer, Submit
from firnline.base.errors import KafkaError, RecordsCut, StorageError
from firnline.base.ids import PartitionKey
from firnline.base.ports import File
from firnline.base.waits import At, Wait
from firnline.replica.partition import Partition

# As many logs wait for a disk together, or some more.
SLICE = 8
# And as many are opened in one go: some milliseconds of the loop.
_OPENED_AT_ONCE = 4
# A recovery of more slices is a long one.
_LONG_SLICES = 8
# So many logs of a directory at most are set aside: each holds what an open one does, and the files that are
# gone over.
_ASIDE_MAX = 9
# They have one turn of so many, whatever a client asks for.
_ASIDE_EVERY = 4
_RETRY_MS = 100
# So often without a descriptor: a stop is to come to its end.
_TRIES_MAX = 100
_T = TypeVar("_T")

LogsOpenCallback = Callable[[int], Effects]


class Urgency(IntEnum):
    """Who goes first."""

    ASKED_FOR = 0
    LIKELY = 1
    IDLE = 2


@dataclass(slots=True)
class Job:
    """One partition on its way to being served; `files` are to be synced before it is."""

    key: PartitionKey
    partition: Partition
    files: Sequence[File]


# Yields where the log is first, then after each slice of a recovery, and where it waits for the disk; returns
# what is to be synced, or the effects of what needs nothing.
Begun = Generator[At | Wait | None, None, Job | Effects]
_TIMER = ("opening", "go on")
_Queues = dict[Urgency, dict[PartitionKey, None]]


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A log that is being opened; `problem` is what went wrong with what it waited for."""

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
    """Someone who waits until every key is done with that was added by the time of `target`."""

    target: int
    then: LogsOpenCallback
    timer: tuple[str, int] | None = None


class Opening:
    """A queue of partitions.

    begin(key, now_ms)             open the log, in slices, and say what it needs; effects for nothing
    finish(job, problem, now_ms)   all of it is on disk, or not
    place(key)                     where its files are: no two logs of one place are under way together
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
        self._pending: dict[PartitionKey, int] = {}  # which addition it was, ascending
        self._places: dict[PartitionKey, Hashable] = {}  # of what is begun and not finished
        self._current: _UnderWay | None = None
        self._aside: list[_UnderWay] = []  # the first that can goes on first
        self._turns = 0
        self._begun = 0  # in this slice
        self._jobs: list[tuple[Job, str]] = []  # what it has come to, and in which directory
        self._is_due = False  # the next turn goes on
        self._unfinished: dict[PartitionKey, Job] = {}  # they are being synced
        self._syncing: Counter[str] = Counter()  # how many, by directory
        self._added = 0
        self._waiters: list[_Waiter] = []
        self._serial = 0
        self._is_stopped = False

    def __contains__(self, key: PartitionKey) -> bool:
        """Whether `key` waits to be begun, maybe once more."""
        return any(key in queues[urgency] for queues in self._all_queues() for urgency in Urgency)

    def _all_queues(self) -> Iterator[_Queues]:
        yield from self._held.values()
        yield self._queues

    def _unqueue(self, key: PartitionKey) -> None:
        for queues in self._all_queues():
            for queue in queues.values():
                queue.pop(key, None)

    def add(self, key: PartitionKey, urgency: Urgency = Urgency.LIKELY) -> None:
        """Open the partition in its turn; `go` has to follow."""
        if key not in self:
            self._queues[urgency][key] = None
            self._added += 1
            self._pending.setdefault(key, self._added)

    def prefer(self, key: PartitionKey) -> None:
        """A client asks for it: open it next, if it waits."""
        for queues in self._all_queues():
            for urgency in (Urgency.LIKELY, Urgency.IDLE):
                if key in queues[urgency]:
                    del queues[urgency][key]
                    queues[Urgency.ASKED_FOR][key] = None
        self._aside.sort(key=lambda each: each.key != key)

    def gives_up(self, key: PartitionKey) -> bool:
        """It is nobody's any more: True when its log is not open, and nobody has begun to open it."""
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
        """Open some logs, or do a slice of one that takes longer than others can wait."""
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
        """What goes on now; None where all wait for the disk."""
        self._turns += 1
        ready = self._ready_aside()
        if ready is not None and self._turns % _ASIDE_EVERY == 0:
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

    def _ready_aside(self) -> _UnderWay | None:
        for each in self._aside:
            if not each.is_waiting and self._syncing[each.disk] < SLICE:
                return each
        return None

    def _next(self) -> tuple[PartitionKey, Urgency] | None:
        """What may be begun next: nothing that nobody asked for while what was begun can go on."""
        full = [disk for disk in self._disks() if self._is_full(disk)]
        if full and len(full) == len(self._disks()):
            return None
        urgencies = Urgency if self._ready_aside() is None else (Urgency.ASKED_FOR,)
        for urgency in urgencies:
            for disk, queues in (*self._held.items(), ("", self._queues)):
                for key in queues[urgency] if disk not in full else ():
                    if key not in self._places and self._place(key) not in self._places.values():
                        return key, urgency
        return None

    def _is_full(self, disk: str) -> bool:
        """Whether so much is under way in a directory that nothing more is begun there."""
        if self._syncing[disk] >= SLICE:
            return True
        aside = self._aside
        return len(aside) >= _ASIDE_MAX and sum(e.disk == disk for e in aside) >= _ASIDE_MAX

    def _hold(self, log: _UnderWay, disk: str) -> None:
        """Begin it anew when its directory has come on."""
        log.steps.close()
        self._current = None
        self._begun -= 1
        del self._places[log.key]
        self._held.setdefault(disk, _queues())[log.urgency][log.key] = None

    def _is_opened(self, log: _UnderWay, effects: Effects, now_ms: int) -> bool:
        """Go on with a log; what there is to say of one that cannot be opened goes to `effects`.

        False when that takes longer: it goes on in another turn, or when the disk is done.
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
        self._set_aside()
        return False

    def _set_aside(self) -> None:
        """Others have their turn meanwhile, if the log that was begun last takes long."""
        current = self._current
        if current is not None and current.is_long:
            self._current = None
            self._aside.append(current)

    def _is_done_with(self, log: _UnderWay) -> None:
        if log is self._current:
            self._current = None
        else:
            self._aside.remove(log)

    def _is_dealt_with(self, key: PartitionKey) -> None:
        del self._places[key]
        if key not in self:  # it was added again while it was opened
            self._pending.pop(key, None)

    def _waited(self, log: _UnderWay, problem: Exception | None, now_ms: int) -> Effects:
        """The disk has done what a log that is opened asked for, or could not."""
        log.is_waiting, log.problem = False, problem
        return self._later(now_ms)

    def _is_slice_over(self) -> bool:
        """What is open is not to wait for a log that takes long."""
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
        """Tell who waited for what is done, and have the next turn go on if there is anything to do in it."""
        effects = self._tell_waiters(now_ms)
        if self._current is not None or self._ready_aside() is not None or self._next() is not None:
            effects += self._later(now_ms)
        return effects

    def stop(self) -> list[Job]:
        """Open nothing more; what is under way is forgotten. Return what may not be on disk."""
        self._is_stopped = True
        if self._current is not None:
            self._aside.append(self._current)
            self._current = None
        for log in self._aside:
            log.steps.close()
        self._queues = _queues()
        self._held.clear()
        self._aside.clear()
        self._waiters.clear()
        return [*(job for job, _ in self._jobs), *self._unfinished.values()]

    def when_done(
        self, then: LogsOpenCallback, now_ms: int, *, at_most_ms: int | None = None
    ) -> Effects:
        """Run `then(now_ms)` once all that was added so far is open, or after `at_most_ms`."""
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

    def _tell_waiters(self, now_ms: int) -> Effects:
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
    """Sync the files of each of `needs`, those of one log each, in the disk pool; a full pool is asked again.

    `then([(whose, what went wrong or None)], now_ms)` runs once all are done with. Nothing else is
    under way under the same `name`. Without a descriptor to sync with it is tried again for some seconds.
    """
    return _PoolSync(name, needs, then).begin()


class _PoolSync(Generic[_T]):
    """One `sync_in_pool`. It refers to nothing that refers to it: what it names is free when it is done."""

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
    """Whether there may be a descriptor soon. A log that was given up never has one again, and those that are
    synced with it, or after it, must not wait for it: the records of some are on no other disk."""
    return problem.has_lost_nothing and not isinstance(problem, RecordsCut)


def _sync_all(files: Sequence[File]) -> StorageError | None:
    """Sync them, none twice; return what went wrong first."""
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
