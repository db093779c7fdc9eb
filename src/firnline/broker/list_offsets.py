"""ListOffsets: either end of a log, either end of a tier, or the first record of a time. PURE.

A time is looked up in the tier first where it holds what local files no longer do; that answer comes
later, and not at all after the time-out. Source: spec 3.16; KIP-405, KIP-734, KIP-1005, KIP-1023.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from firnline.base.background import Beside
from firnline.base.cold_pages import ColdPages, Key, PagesCold
from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import NO_EPOCH, NO_OFFSET, TopicPartition, Uuid
from firnline.records.batch import NO_TIMESTAMP
from firnline.replica.partition import Partition
from firnline.replica.read import READ_COMMITTED, READ_LOG_END, unread

if TYPE_CHECKING:
    from firnline.log.log import Log

# By time, some 15 us each: a look at an index, and at the batch.
_ASKS_PER_SLICE = 100
# So often what was brought in may be gone when a search comes to it: where memory is so short, it waits.
_LOST_MAX = 16
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# What is asked -> first version of the request that may ask it; times from version 1.
VERSION_MIN = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


class OffsetAsk(NamedTuple):
    """One question. `timestamp` is a time in milliseconds, or one of the negative names above."""

    partition: Partition | KafkaError
    timestamp: int
    leader_epoch: int = NO_EPOCH


class OffsetFound(NamedTuple):
    """One answer; -1 for what there is none of."""

    offset: int
    timestamp: int
    leader_epoch: int


class RemoteOffset(Protocol):
    """The tier's search by time; `then` gets the place, None if only local files can have it, or an error."""

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
# Effects, or what threads are to do first, then the time; at last what was found.
Slices = Generator[Effects | Beside, int, Found]
LocalSteps = Generator[None, None, tuple[int, int] | None]
Answer = Callable[[list[Outcome], int], Effects]


class ListingOffsets:
    """Answers over the partitions of one request.

    pages       reads what is not in memory of local files
    remote      the tier, or None
    timeout_ms  remote.list.offsets.request.timeout.ms, for versions that do not say
    """

    __slots__ = ("_pages", "_serial", "remote", "timeout_ms")

    def __init__(self, *, remote: RemoteOffset | None, timeout_ms: int, pages: ColdPages) -> None:
        self._pages = pages
        self.remote = remote
        self.timeout_ms = timeout_ms
        self._serial = 0

    def list_offsets(
        self,
        asks: Iterable[OffsetAsk],
        *,
        isolation: int,
        version: int,
        timeout_ms: int | None,
        answer: Answer,
        now_ms: int,
    ) -> Slices[Effects]:
        """Answer all of `asks` in their order; each is taken when its turn comes, so many in a slice."""
        pending = _Pending(isolation, version, answer, self._pages)
        for index, ask in enumerate(asks):
            if index and index % _ASKS_PER_SLICE == 0:
                now_ms = yield []
            outcome = yield from self._one(ask, isolation, version)
            pending.add(ask, outcome)
        if not pending.remote:
            return pending.finish(now_ms)
        assert self.remote is not None
        self._serial += 1
        pending.timer = ("list-offsets", self._serial)
        wait_ms = self.timeout_ms if timeout_ms is None or timeout_ms <= 0 else timeout_ms
        effects: Effects = [
            SetTimer(key=pending.timer, at_ms=now_ms + wait_ms, then=pending.timed_out)
        ]
        for count, index in enumerate(list(pending.remote)):
            if count and count % _ASKS_PER_SLICE == 0:
                now_ms = yield effects
                effects = []
                if not pending.remote:
                    break  # it took too long
            ask = pending.remote[index]
            found = ask.partition
            assert isinstance(found, Partition)
            effects += self.remote(
                found.topic_partition,
                found.topic_id,
                ask.timestamp,
                partial(pending.came, index),
                now_ms,
            )
        return effects

    def _one(self, ask: OffsetAsk, isolation: int, version: int) -> Slices[Outcome | None]:
        """Return the outcome, or None when the tier must be asked."""
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
        # A disk may have been waited for, while others came to lead.
        return found.check_epoch(ask.leader_epoch) or _unless_behind(outcome, behind)


def _behind(partition: Partition, isolation: int, version: int) -> KafkaError | None:
    """Whether a new leader does not know yet all that was committed before it led: clients ask again."""
    if isolation == READ_LOG_END or partition.epoch_start_offset <= partition.log.high_watermark:
        return None
    return _NOT_AVAILABLE if version >= _NOT_AVAILABLE_VERSION else _NO_LEADER_YET


def _unless_behind(outcome: Outcome, behind: KafkaError | None) -> Outcome:
    """A record that was not found may be among those."""
    is_none = isinstance(outcome, OffsetFound) and outcome.offset == NO_OFFSET
    return behind if behind is not None and is_none else outcome


def search(
    log: "Log", begin: Callable[[], LocalSteps], isolation: int, pages: ColdPages
) -> Slices[Outcome]:
    """Search in local files; a batch that cannot be read, stored as it came, fails this partition alone.

    Where something is not in memory a thread reads it, and it begins anew: what it found is there by then.
    """
    lost, steps = 0, begin()
    brought: set[Key] = set()
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
            else:
                yield []
                continue
            beside = pages.beside(place)
            now_ms = yield beside
            pages.came(place.key, beside.result, now_ms)
    except StorageError as problem:
        found = unread(problem)
        assert isinstance(found, KafkaError)
        return found
    except KafkaError as problem:
        # A value from here on: with its traceback it would hold all that was decompressed.
        return KafkaError(problem.code, problem.why, **problem.facts)


def _readable(log: "Log", place: tuple[int, int] | None, isolation: int) -> OffsetFound:
    """A record above what the reader may see counts as none."""
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
    """The first epoch known, if it begins no later than the log does."""
    entries = log.epochs.entries()
    return entries[0][0] if entries and entries[0][1] <= log.log_start_offset else NO_EPOCH


def _earliest_pending_upload(log: "Log") -> OffsetFound:
    """Where copying to the tier goes on; nothing for a topic without one (KIP-1023)."""
    if not log.config.remote_storage_enable:
        return OffsetFound(NO_OFFSET, NO_TIMESTAMP, NO_EPOCH)
    offset = max(log.highest_remote_offset + 1, log.log_start_offset)
    return OffsetFound(offset, NO_TIMESTAMP, _epoch_at(log, offset))


class _Pending:
    """One request with partitions that the tier is searched for."""

    __slots__ = ("_answer", "_isolation", "_pages", "_version", "outcomes", "remote", "timer")

    def __init__(self, isolation: int, version: int, answer: Answer, pages: ColdPages) -> None:
        self._pages = pages
        self._isolation = isolation
        self._version = version
        self._answer = answer
        self.outcomes: list[Outcome] = []
        self.remote: dict[int, OffsetAsk] = {}  # what the tier is asked, by its place
        self.timer: tuple[str, int] | None = None

    def add(self, ask: OffsetAsk, outcome: Outcome | None) -> None:
        """Note one question with its outcome; None: the tier is to be asked."""
        if outcome is None:
            self.remote[len(self.outcomes)] = ask
        self.outcomes.append(_TIMED_OUT if outcome is None else outcome)

    def came(self, index: int, found: OffsetFound | KafkaError | None, now_ms: int) -> Effects:
        if index not in self.remote:
            return []  # after the time-out
        if found is not None:
            return self._done(index, found, now_ms)
        ask = self.remote[index]
        partition = ask.partition
        assert isinstance(partition, Partition)
        log = partition.log
        begin = partial(log.time_steps, ask.timestamp, may_wait=True)
        steps = search(log, begin, self._isolation, self._pages)
        return self._step(index, partition, steps, now_ms)

    def _step(
        self,
        index: int,
        partition: Partition,
        steps: Slices[Outcome],
        now_ms: int,
        is_begun: bool = False,
    ) -> Effects:
        """Search local files after the tier; others go first between two steps."""
        if index not in self.remote:
            return []
        try:
            effects = steps.send(now_ms) if is_begun else next(steps)
        except StopIteration as done:
            behind = _behind(partition, self._isolation, self._version)
            refusal = partition.check_epoch(self.remote[index].leader_epoch)
            return self._done(index, refusal or _unless_behind(done.value, behind), now_ms)
        assert self.timer is not None
        then = partial(self._step, index, partition, steps, is_begun=True)
        if isinstance(effects, Beside):
            return [effects.submit(then)]
        return [SetTimer(key=(*self.timer, index), at_ms=now_ms, then=then)]

    def _done(self, index: int, outcome: Outcome, now_ms: int) -> Effects:
        del self.remote[index]
        self.outcomes[index] = outcome
        if self.remote:
            return []
        return [CancelTimer(key=self.timer), *self.finish(now_ms)]

    def timed_out(self, now_ms: int) -> Effects:
        if not self.remote:
            return []
        self.remote.clear()
        return self.finish(now_ms)

    def finish(self, now_ms: int) -> Effects:
        return self._answer(self.outcomes, now_ms)


_NOT_AVAILABLE_VERSION = 5
_NOT_AVAILABLE = KafkaError(
    Code.OFFSET_NOT_AVAILABLE, "a new leader does not know yet how much was committed"
)
_NO_LEADER_YET = KafkaError(Code.LEADER_NOT_AVAILABLE, str(_NOT_AVAILABLE))
_UNSUPPORTED = KafkaError(Code.UNSUPPORTED_VERSION, "this version may not ask that")
_TIMED_OUT = KafkaError(Code.REQUEST_TIMED_OUT, "the tier did not answer in time")
