"""Opens logs in slices, so that ten thousand new partitions keep nobody waiting. PURE.

A slice is what the loop does in one go: make or open some logs. What then has to be on disk before a
partition is served is synced in the disk pool, and the next slice begins when that is done; requests are
answered in between. A slice ends before the next one begins. What a client asked for meanwhile is opened
first, then what is likely to be asked for, then the rest, each in the order it was added. Source:
reliability d 50.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from firnline.base.effects import SYNC_THREADS, CancelTimer, Effects, SetTimer, Submit
from firnline.base.errors import KafkaError, RecordsCut, StorageError
from firnline.base.ids import Uuid
from firnline.base.ports import File
from firnline.base.waits import Wait
from firnline.replica.partition import Partition

# As many logs wait for the disk together.
SLICE = 8
# And as many are opened in one go: some milliseconds of the loop.
_OPENED_AT_ONCE = 4
_RETRY_MS = 100
# So often without a descriptor: a stop is to come to its end.
_TRIES_MAX = 100
_T = TypeVar("_T")

Key = tuple[Uuid, int]  # topic id, partition
Then = Callable[[int], Effects]


class Urgency(IntEnum):
    """Who goes first."""

    ASKED_FOR = 0
    LIKELY = 1
    IDLE = 2


@dataclass(slots=True)
class Job:
    """One partition on its way to being served; `files` are to be synced before it is."""

    key: Key
    partition: Partition
    files: Sequence[File]


# Yields after each slice of a recovery, and where it waits for the disk; returns what is to be synced, or the
# effects of what needs nothing.
Begun = Generator[Wait | None, None, Job | Effects]
_TIMER = ("opening", "go on")


@dataclass(slots=True)
class _Waiter:
    """Someone who waits until every key is done with that was added by the time of `target`."""

    target: int
    then: Then
    timer: tuple[str, int] | None = None


class Opening:
    """A queue of partitions.

    begin(key, now_ms)             open the log, in slices, and say what it needs; effects for nothing
    finish(job, problem, now_ms)   all of it is on disk, or not
    """

    def __init__(
        self,
        begin: Callable[[Key, int], Begun],
        finish: Callable[[Job, StorageError | None, int], Effects],
    ) -> None:
        self._begin = begin
        self._finish = finish
        self._queues: dict[Urgency, dict[Key, None]] = {urgency: {} for urgency in Urgency}
        self._pending: dict[Key, int] = {}  # which addition it was, ascending
        self._keys: deque[Key] = deque()  # of the slice that is being opened
        self._jobs: list[Job] = []  # what it has come to
        self._current: Begun | None = None  # the log that is recovered, a slice at a time
        self._problem: Exception | None = None  # with what that one waited for
        self._is_waiting = False  # it waits for the disk
        self._is_due = False  # the next turn goes on
        self._unfinished: list[Job] = []  # of the slice that is being synced
        self._added = 0
        self._waiters: list[_Waiter] = []
        self._serial = 0
        self._is_stopped = False

    def __contains__(self, key: Key) -> bool:
        """Whether `key` waits for a slice that has not begun."""
        return any(key in queue for queue in self._queues.values())

    def add(self, key: Key, urgency: Urgency = Urgency.LIKELY) -> None:
        """Open the partition in its turn; `go` has to follow."""
        if key not in self:
            self._queues[urgency][key] = None
            self._added += 1
            self._pending.setdefault(key, self._added)

    def prefer(self, key: Key) -> None:
        """A client asks for it: open it next, if it waits."""
        for urgency in (Urgency.LIKELY, Urgency.IDLE):
            if key in self._queues[urgency]:
                del self._queues[urgency][key]
                self._queues[Urgency.ASKED_FOR][key] = None

    def gives_up(self, key: Key) -> bool:
        """It is nobody's any more: True when its log is not open, and nobody has begun to open it."""
        for queue in self._queues.values():
            if key in queue and key not in self._keys:
                del queue[key]
                self._pending.pop(key, None)
                return True
        # What is next in its slice is begun in vain.
        return key in islice(self._keys, self._current is not None, None)

    @property
    def _waits(self) -> bool:
        return any(self._queues.values())

    def _take_slice(self) -> None:
        for queue in self._queues.values():
            while queue and len(self._keys) < SLICE:
                key = next(iter(queue))
                del queue[key]
                self._keys.append(key)

    def go(self, now_ms: int) -> Effects:
        """Begin the next slice, unless one is under way."""
        return [] if self._is_due or self._is_waiting else self._go_on(now_ms)

    def _later(self, now_ms: int) -> Effects:
        self._is_due = True
        return [SetTimer(key=_TIMER, at_ms=now_ms, then=self._go_on)]

    def _go_on(self, now_ms: int) -> Effects:
        self._is_due = False
        effects: Effects = []
        while (self._waits or self._keys) and not self._unfinished and not self._is_stopped:
            if not self._open_slice(effects, now_ms):
                return effects if self._is_waiting else effects + self._later(now_ms)
            jobs, self._jobs = self._jobs, []
            if not any(job.files for job in jobs):
                for job in jobs:
                    effects += self._finish(job, None, now_ms)
                jobs.clear()
            self._unfinished = jobs
            needs = [(job, job.files) for job in jobs]
            effects += sync_in_pool("open logs", needs, self._synced)
            if self._waits and not jobs:
                return effects + self._later(now_ms)
        return effects if self._unfinished else effects + self._tell_waiters(now_ms)

    def _open_slice(self, effects: Effects, now_ms: int) -> bool:
        """Open some logs; what there is to say of those that cannot be goes to `effects`.

        False when that takes longer than others can wait: it goes on in the next turn, or when the disk is
        done.
        """
        if not self._keys:
            self._take_slice()
        for _ in range(_OPENED_AT_ONCE):
            current = self._current or self._begin(self._keys[0], now_ms)
            problem, self._problem = self._problem, None
            try:
                wait = next(current) if problem is None else current.throw(problem)
            except StopIteration as end:
                self._current = None
                begun = end.value
            else:
                self._current = current
                if wait is not None:
                    self._is_waiting = True
                    effects += wait.begin(self._waited, now_ms)
                return False
            self._is_done_with(self._keys.popleft())
            if isinstance(begun, Job):
                self._jobs.append(begun)
            else:
                effects += begun
            if not self._keys:
                return True
        return False

    def _is_done_with(self, key: Key) -> None:
        if key not in self:  # it was added again while it was opened
            self._pending.pop(key, None)

    def _waited(self, problem: Exception | None, now_ms: int) -> Effects:
        """The disk has done what the log that is opened asked for, or could not."""
        self._is_waiting, self._problem = False, problem
        return [] if self._is_stopped or self._is_due else self._go_on(now_ms)

    def _synced(self, jobs: list[tuple[Job, StorageError | None]], now_ms: int) -> Effects:
        if self._is_stopped:
            return []
        effects: Effects = []
        for job, problem in jobs:
            effects += self._finish(job, problem, now_ms)
        self._unfinished = []
        effects += self._tell_waiters(now_ms)
        return effects + self._later(now_ms) if self._waits and not self._is_due else effects

    def stop(self) -> list[Job]:
        """Open nothing more; what is under way is forgotten. Return what may not be on disk."""
        self._is_stopped = True
        if self._current is not None:
            self._current.close()
        for queue in self._queues.values():
            queue.clear()
        self._keys.clear()
        self._waiters.clear()
        return [*self._jobs, *self._unfinished]

    def when_done(self, then: Then, now_ms: int, *, at_most_ms: int | None = None) -> Effects:
        """Run `then(now_ms)` once all that was added so far is open, or after `at_most_ms`."""
        if self._is_stopped:
            return []
        if not self._waits and not self._keys and not self._unfinished:
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


def sync_in_pool(
    name: str,
    needs: Sequence[tuple[_T, Sequence[File]]],
    then: Callable[[list[tuple[_T, StorageError | None]], int], Effects],
) -> Effects:
    """Sync the files of each of `needs` in the disk pool; a full pool is asked again.

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
        self._count = len(needs)
        self._tries = [0] * SYNC_THREADS
        self._shares = [s for first in range(SYNC_THREADS) if (s := needs[first::SYNC_THREADS])]
        self._done: list[tuple[_T, StorageError | None]] = []

    def begin(self) -> Effects:
        return [self._submit(place) for place in range(len(self._shares))]

    def _submit(self, place: int) -> Submit:
        work = partial(_sync_all, [files for _, files in self._shares[place]])
        return Submit(name=self._name, pool="disk", work=work, then=partial(self._synced, place))

    def _is_to_be_tried_again(
        self, place: int, result: list[StorageError | None] | Exception
    ) -> bool:
        if isinstance(result, Exception):
            return isinstance(result, KafkaError)  # the pool is full
        if not any(problem and _may_come(problem) for problem in result):
            return False
        self._tries[place] += 1
        return self._tries[place] < _TRIES_MAX

    def _synced(
        self, place: int, result: list[StorageError | None] | Exception, now_ms: int
    ) -> Effects:
        if self._is_to_be_tried_again(place, result):
            at_ms = now_ms + _RETRY_MS
            again = partial(self._again, place)
            return [SetTimer(key=(self._name, place), at_ms=at_ms, then=again)]
        if isinstance(result, Exception):
            raise result
        share = self._shares[place]
        self._done.extend((whose, r) for (whose, _), r in zip(share, result, strict=True))
        return self._then(self._done, now_ms) if len(self._done) == self._count else []

    def _again(self, place: int, now_ms: int) -> Effects:
        return [self._submit(place)]


def _may_come(problem: StorageError) -> bool:
    """Whether there may be a descriptor soon. A log that was given up never has one again, and those that are
    synced with it, or after it, must not wait for it: the records of some are on no other disk."""
    return problem.is_want_of_descriptors and not isinstance(problem, RecordsCut)


def _sync_all(needs: Sequence[Sequence[File]]) -> list[StorageError | None]:
    """Sync the files of each, none twice; return what went wrong with each."""
    synced: dict[str, StorageError | None] = {}
    problems: list[StorageError | None] = []
    for files in needs:
        problem: StorageError | None = None
        for file in files:
            if file.path not in synced:
                synced[file.path] = _sync(file)
            problem = problem or synced[file.path]
        problems.append(problem)
    return problems


def _sync(file: File) -> StorageError | None:
    try:
        file.sync()
    except StorageError as problem:
        return problem
    return None
