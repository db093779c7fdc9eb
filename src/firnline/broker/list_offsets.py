"""ListOffsets: the start or end of a log or its tier, or the first record at or after a time. PURE.

The ends of a log are answered at once. A search by time reads indexes and batches, in slices. It begins in
the tier if the tier has records that local files no longer have, and goes on in local files if the tier has
no such record. A search that meets a cold page waits until a thread has read it, then begins anew; the other
searches go on meanwhile. When all have ended, or at the time-out, the request is answered: a partition
without an outcome gets REQUEST_TIMED_OUT. Source: spec 3.16; KIP-405, KIP-734, KIP-1005, KIP-1023.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from firnline.base.background import Pause
from firnline.base.cold_pages import ColdPages, PageRange, PageRangeKey, PagesCold
from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import NO_EPOCH, NO_OFFSET, TopicPartition, Uuid
from firnline.records.batch import NO_TIMESTAMP
from firnline.replica.partition import Partition
from firnline.replica.read import READ_COMMITTED, READ_LOG_END, unread

if TYPE_CHECKING:
    from firnline.log.log import Log

# An end of a log takes some microseconds. A search takes some 30 us: it reads an index, a batch, and the next
# header.
_WORK_PER_SLICE, _SEARCH_WORK = 100, 3
_SEARCHES_PER_SLICE = _WORK_PER_SLICE // _SEARCH_WORK
# How long to wait for a disk if the request has no time-out. Clients give up then, too.
_DISK_MS = 30_000
# Searches of one request that wait for one log directory at a time.
_SEARCHES_MAX = 8
# Pages may be evicted again before the search reads them. After this many times the search reads the disk
# itself.
_LOST_MAX = 16
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# Special timestamp -> first version of the request that may contain it. Times need version 1.
VERSION_MIN = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


class OffsetAsk(NamedTuple):
    """A lookup in one partition. `timestamp`: milliseconds, or one of the negative constants above."""

    partition: Partition | KafkaError
    timestamp: int
    leader_epoch: int = NO_EPOCH


class OffsetFound(NamedTuple):
    """The result of one lookup. -1 stands for none."""

    offset: int
    timestamp: int
    leader_epoch: int


class RemoteOffsetSearch(Protocol):
    """Searches the tier by time. `then` gets the record's position, an error, or None: search local files."""

    def __call__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        timestamp: int,
        then: Callable[[OffsetFound | KafkaError | None, int], Effects],
        now_ms: int,
    ) -> Effects: ...


Outcome = OffsetFound | KafkaError
Found = TypeVar("Found")
# Yields effects or a pause, receives the time, returns the last effects.
Slices = Generator[Effects | Pause, int, Effects]
# Yields None at the end of a slice, or the pages that must come into memory first; returns the result.
SearchSteps = Generator[PageRange | None, None, Found]
LocalSteps = Generator[None, None, tuple[int, int] | None]
ListOffsetsCallback = Callable[[list[Outcome], int], Effects]


class ListingOffsets:
    """Looks up offsets for the partitions of a request.

    pages       reads cold pages of local files
    remote      searches the tier; None: no tier
    timeout_ms  remote.list.offsets.request.timeout.ms, for requests without a time-out
    """

    __slots__ = ("_pages", "_serial", "remote", "remote_expired", "timeout_ms")

    def __init__(
        self, *, remote: RemoteOffsetSearch | None, timeout_ms: int, pages: ColdPages
    ) -> None:
        self._pages = pages
        self.remote = remote
        self.timeout_ms = timeout_ms
        self._serial = 0
        self.remote_expired = 0  # requests that have waited for the tier for too long

    def list_offsets(
        self,
        asks: Iterable[OffsetAsk],
        *,
        isolation: int,
        version: int,
        timeout_ms: int | None,
        answer: ListOffsetsCallback,
        now_ms: int,
    ) -> Slices:
        """Look up all of `asks` in slices, then call `answer` with the outcomes in the same order.

        A lookup that waits for a disk or the tier does not hold up the others. One that has not ended in time
        is REQUEST_TIMED_OUT.
        """
        began_ms = now_ms
        effects: Effects = []
        self._serial += 1
        pending = _Pending(isolation, version, answer, self._pages, ("list-offsets", self._serial))
        try:
            work = 0
            for ask in asks:
                if work >= _WORK_PER_SLICE:
                    now_ms = yield effects
                    effects, work = [], 0
                is_search = ask.timestamp >= 0 or ask.timestamp == MAX_TIMESTAMP
                work += _SEARCH_WORK if is_search else 1
                steps = self._one(ask, isolation, version)
                found = yield from _until_cold(steps)
                effects += pending.add(ask, steps, found)
            if not pending.is_open:
                return pending.finish(now_ms)
            wait_ms = max(self.timeout_ms, _DISK_MS) if pending.cold else self.timeout_ms
            if timeout_ms is not None and timeout_ms > 0:
                wait_ms = timeout_ms
            at_ms = began_ms + wait_ms
            late = partial(self._timed_out, pending)
            timer = SetTimer(key=pending.timer, at_ms=at_ms, then=late)
            effects = [timer, *effects]
            for count, index in enumerate(list(pending.remote)):
                if count and count % _SEARCHES_PER_SLICE == 0:
                    now_ms = yield effects
                    effects = []
                    if not pending.remote:
                        break  # timed out
                effects += self._ask_remote(pending, index, now_ms)
            while pending.cold and not pending.is_late:
                now_ms = yield effects if pending.is_ready else pending.pause(effects)
                effects = yield from self._go_on(pending, now_ms)
            return effects + pending.end_local(now_ms)
        finally:
            pending.leave()

    def _timed_out(self, pending: "_Pending", now_ms: int) -> Effects:
        self.remote_expired += bool(pending.remote)
        return pending.timed_out(now_ms)

    def _ask_remote(self, pending: "_Pending", index: int, now_ms: int) -> Effects:
        assert self.remote is not None
        ask, then = pending.remote[index], partial(pending.came, index)
        found = ask.partition
        assert isinstance(found, Partition)
        return self.remote(found.topic_partition, found.topic_id, ask.timestamp, then, now_ms)

    def _go_on(self, pending: "_Pending", now_ms: int) -> Generator[Effects, int, Effects]:
        """Continue searches whose pages are in memory, and begin those next in the queues."""
        effects: Effects = []
        for count, index in enumerate(pending.take_ready()):
            if count and count % _SEARCHES_PER_SLICE == 0:
                now_ms = yield effects
                effects = []
            ask, steps = pending.cold[index]
            steps = steps or self._one(ask, pending.isolation, pending.version)
            found = yield from _until_cold(steps)
            effects += pending.note(index, ask, steps, found)
            if index in pending.remote:
                effects += self._ask_remote(pending, index, now_ms)
        return effects

    def _one(self, ask: OffsetAsk, isolation: int, version: int) -> SearchSteps[Outcome | None]:
        """Return the outcome. None: the tier must be searched first."""
        found, timestamp = ask.partition, ask.timestamp
        if isinstance(found, KafkaError):
            return found
        if timestamp < 0 and version < VERSION_MIN.get(timestamp, version + 1):
            return _UNSUPPORTED
        refusal = found.check_epoch(ask.leader_epoch)
        if refusal is not None:
            return refusal
        log = found.log
        behind = _behind(found, isolation, version)
        if timestamp == LATEST:
            return behind or OffsetFound(
                _readable_end(log, isolation), NO_TIMESTAMP, found.leader_epoch
            )
        if timestamp == EARLIEST:
            return OffsetFound(log.log_start_offset, NO_TIMESTAMP, _earliest_epoch(log))
        if timestamp == EARLIEST_LOCAL:
            start = log.local_log_start_offset
            return OffsetFound(start, NO_TIMESTAMP, _epoch_at(log, start))
        if timestamp == LATEST_TIERED:
            highest = log.highest_remote_offset
            return OffsetFound(highest, NO_TIMESTAMP, _epoch_at(log, highest))
        if timestamp == EARLIEST_PENDING_UPLOAD:
            return _earliest_pending_upload(log)
        if timestamp == MAX_TIMESTAMP:
            begin = partial(log.greatest_time_steps, may_wait=True)
        elif self.remote is not None and log.local_log_start_offset > log.log_start_offset:
            return None
        else:
            begin = partial(log.time_steps, timestamp, may_wait=True)
        outcome = yield from search(log, begin, isolation, self._pages)
        # Leadership may have changed while the search waited for a disk.
        return found.check_epoch(ask.leader_epoch) or _unless_behind(outcome, behind)


def _behind(partition: Partition, isolation: int, version: int) -> KafkaError | None:
    """Return an error while a new leader's high watermark is below its epoch start offset. Clients retry."""
    if isolation == READ_LOG_END or partition.epoch_start_offset <= partition.log.high_watermark:
        return None
    return _NOT_AVAILABLE if version >= _NOT_AVAILABLE_VERSION else _NO_LEADER_YET


def _unless_behind(outcome: Outcome, behind: KafkaError | None) -> Outcome:
    """Return `behind` if no record was found: it may be above the new leader's high watermark."""
    is_none = isinstance(outcome, OffsetFound) and outcome.offset == NO_OFFSET
    return behind if behind is not None and is_none else outcome


def search(
    log: "Log", begin: Callable[[], LocalSteps], isolation: int, pages: ColdPages
) -> SearchSteps[Outcome]:
    """Search local files. An unreadable batch fails this partition alone.

    The search yields cold pages and begins anew when they are in memory: the pages it has already read are in
    memory by then.
    """
    lost, steps = 0, begin()
    brought: set[PageRangeKey] = set()
    try:
        while True:
            try:
                with pages if lost < _LOST_MAX else nullcontext():
                    next(steps)
            except StopIteration as done:
                return _readable(log, done.value, isolation)
            except PagesCold as cold:
                place, steps = cold.place, begin()
                lost += place.key in brought
                brought.add(place.key)
                yield place
            else:
                yield None
    except StorageError as problem:
        found = unread(problem)
        assert isinstance(found, KafkaError)
        return found
    except KafkaError as problem:
        # A new error without the traceback, which would keep the decompressed records in memory.
        return KafkaError(problem.code, problem.why, **problem.facts)


def _until_cold(steps: SearchSteps[Found]) -> Generator[Effects, int, Found | PageRange]:
    """Run the steps, one per slice. Return their result, or the pages that must come into memory first."""
    while True:
        try:
            place = next(steps)
        except StopIteration as done:
            found: Found = done.value
            return found
        if place is not None:
            return place
        yield []


def _readable(log: "Log", place: tuple[int, int] | None, isolation: int) -> OffsetFound:
    """Return the record at `place`, or none if the reader may not see it yet."""
    if place is None or place[0] >= _readable_end(log, isolation):
        return OffsetFound(NO_OFFSET, NO_TIMESTAMP, NO_EPOCH)
    return OffsetFound(place[0], place[1], _epoch_at(log, place[0]))


def _readable_end(log: "Log", isolation: int) -> int:
    if isolation == READ_LOG_END:
        return log.log_end_offset
    return log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark


def _epoch_at(log: "Log", offset: int) -> int:
    epoch = log.epochs.epoch_at(offset) if offset >= log.log_start_offset else None
    return NO_EPOCH if epoch is None else epoch


def _earliest_epoch(log: "Log") -> int:
    """Return the first known epoch, if it begins at or below the log start offset."""
    entries = log.epochs.entries()
    return entries[0][0] if entries and entries[0][1] <= log.log_start_offset else NO_EPOCH


def _earliest_pending_upload(log: "Log") -> OffsetFound:
    """Return the next offset to copy to the tier; none for a topic without remote storage (KIP-1023)."""
    if not log.config.remote_storage_enable:
        return OffsetFound(NO_OFFSET, NO_TIMESTAMP, NO_EPOCH)
    offset = max(log.highest_remote_offset + 1, log.log_start_offset)
    return OffsetFound(offset, NO_TIMESTAMP, _epoch_at(log, offset))


class _Pending(Pause):
    """One request and its lookups that wait for a disk or the tier.

    cold    index -> search that waits for cold pages. The steps are None while it is queued behind others of
            its directory: a request of thousands must not occupy all threads
    remote  index -> lookup that waits for the tier
    """

    __slots__ = (
        "_answer",
        "_awaited",
        "_effects",
        "_is_over",
        "_pages",
        "_queues",
        "_ready",
        "_searching",
        "_then",
        "cold",
        "is_late",
        "isolation",
        "outcomes",
        "remote",
        "timer",
        "version",
    )
    waits_long = True

    def __init__(
        self,
        isolation: int,
        version: int,
        answer: ListOffsetsCallback,
        pages: ColdPages,
        timer: tuple[str, int],
    ) -> None:
        self.isolation = isolation
        self.version = version
        self.timer = timer
        self.outcomes: list[Outcome] = []
        self.remote: dict[int, OffsetAsk] = {}
        self.cold: dict[int, tuple[OffsetAsk, SearchSteps[Outcome | None] | None]] = {}
        self.is_late = self._is_over = False
        self._pages = pages
        self._answer = answer
        self._ready: list[int] = []  # of `cold`
        self._awaited: dict[int, PageRangeKey] = {}  # pages that threads are reading for us
        self._searching: dict[int, str] = {}  # begun ones of `cold` -> directory
        self._queues: dict[str, deque[int]] = {}  # the other ones of `cold`, by directory
        self._effects: Effects = []
        self._then: Callable[[int], Effects] | None = None

    @property
    def is_open(self) -> bool:
        return bool(self.remote or self.cold)

    def add(
        self, ask: OffsetAsk, steps: SearchSteps[Outcome | None], found: Outcome | PageRange | None
    ) -> Effects:
        """Add the next lookup and its outcome. None: the tier must be searched."""
        self.outcomes.append(_HANGS)
        return self.note(len(self.outcomes) - 1, ask, steps, found)

    def note(
        self,
        index: int,
        ask: OffsetAsk,
        steps: SearchSteps[Outcome | None],
        found: Outcome | PageRange | None,
    ) -> Effects:
        """Record what a lookup led to."""
        if isinstance(found, PageRange):
            return self._wait(index, ask, steps, found)
        self.cold.pop(index, None)
        queue = self._queues.get(self._searching.pop(index, ""))
        if queue:
            self._ready.append(queue.popleft())
        if found is None and not self.is_late:
            self.remote[index] = ask
        self.outcomes[index] = _TIMED_OUT if found is None else found
        return []

    def _wait(
        self, index: int, ask: OffsetAsk, steps: SearchSteps[Outcome | None], place: PageRange
    ) -> Effects:
        directory = _directory_of(place)
        self.cold[index] = ask, steps
        if index not in self._searching:
            if sum(each == directory for each in self._searching.values()) >= _SEARCHES_MAX:
                steps.close()
                self.cold[index] = ask, None
                self._queues.setdefault(directory, deque()).append(index)
                return []
            self._searching[index] = directory
        return self._bring(index, place, self._page_came)

    def _bring(self, index: int, place: PageRange, then: Callable[[int, int], Effects]) -> Effects:
        self._awaited[index] = place.key
        return self._pages.bring(place, (self, index), partial(then, index))

    def _page_came(self, index: int, now_ms: int) -> Effects:
        if self._awaited.pop(index, None) is None:
            return []  # timed out
        self._ready.append(index)
        return self._wake(now_ms)

    @property
    def is_ready(self) -> bool:
        return bool(self._ready)

    def take_ready(self) -> list[int]:
        """Take the indexes of `cold` that can continue now."""
        ready, self._ready = self._ready, []
        return ready

    def pause(self, effects: Effects) -> "_Pending":
        """Return what the request yields in order to wait until a search can continue."""
        self._effects = effects
        return self

    def begin(self, then: Callable[[int], Effects], owner: str = "") -> Effects:
        self._then = then
        effects, self._effects = self._effects, []
        return effects

    def _wake(self, now_ms: int) -> Effects:
        then, self._then = self._then, None
        return [] if then is None else then(now_ms)

    def leave(self) -> None:
        """Stop waiting for pages: the request is answered, or its client has gone."""
        for index in list(self._awaited):
            if index not in self.remote:
                self._pages.leave(self._awaited.pop(index), (self, index))

    def came(self, index: int, found: OffsetFound | KafkaError | None, now_ms: int) -> Effects:
        """Handle the tier's result. None: only local files can have the record."""
        if index not in self.remote:
            return []  # after the time-out
        if found is not None:
            return self._done(index, found, now_ms)
        ask = self.remote[index]
        partition = ask.partition
        assert isinstance(partition, Partition)
        log = partition.log
        begin = partial(log.time_steps, ask.timestamp, may_wait=True)
        steps = search(log, begin, self.isolation, self._pages)
        return self._step(partition, steps, index, now_ms)

    def _step(
        self, partition: Partition, steps: SearchSteps[Outcome], index: int, now_ms: int
    ) -> Effects:
        """Take one step of the search in local files that follows the tier's."""
        self._awaited.pop(index, None)
        if index not in self.remote:
            return []
        try:
            place = next(steps)
        except StopIteration as done:
            behind = _behind(partition, self.isolation, self.version)
            refusal = partition.check_epoch(self.remote[index].leader_epoch)
            return self._done(index, refusal or _unless_behind(done.value, behind), now_ms)
        then = partial(self._step, partition, steps)
        if place is not None:
            return self._bring(index, place, then)
        return [SetTimer(key=(*self.timer, index), at_ms=now_ms, then=partial(then, index))]

    def _done(self, index: int, outcome: Outcome, now_ms: int) -> Effects:
        del self.remote[index]
        self.outcomes[index] = outcome
        return self._finish_if_over(now_ms)

    def timed_out(self, now_ms: int) -> Effects:
        self.is_late = True
        self.remote.clear()
        self.leave()
        return self._wake(now_ms) + self._finish_if_over(now_ms)

    def end_local(self, now_ms: int) -> Effects:
        """End the lookups in local files: only the tier's are left."""
        self._is_over = True
        return self._finish_if_over(now_ms)

    def _finish_if_over(self, now_ms: int) -> Effects:
        if self.remote or not self._is_over:
            return []
        self._is_over = False  # answered once
        answered = self.finish(now_ms)
        return answered if self.is_late else [CancelTimer(key=self.timer), *answered]

    def finish(self, now_ms: int) -> Effects:
        return self._answer(self.outcomes, now_ms)


def _directory_of(place: PageRange) -> str:
    """Return the log directory of a partition's file."""
    return place.path.rsplit("/", 2)[0]


_NOT_AVAILABLE_VERSION = 5
_NOT_AVAILABLE = KafkaError(
    Code.OFFSET_NOT_AVAILABLE, "a new leader does not know its high watermark yet"
)
_NO_LEADER_YET = KafkaError(Code.LEADER_NOT_AVAILABLE, str(_NOT_AVAILABLE))
_UNSUPPORTED = KafkaError(
    Code.UNSUPPORTED_VERSION, "this request version does not support this timestamp"
)
_TIMED_OUT = KafkaError(Code.REQUEST_TIMED_OUT, "the tier did not answer in time")
_HANGS = KafkaError(Code.REQUEST_TIMED_OUT, "the disk did not answer in time")
