"""One tiered partition on this node, and the services that tasks share. PURE.

`Services` are shared by all tasks of a node. `Hosted` is one partition in one role: a change of role makes a
new one, so that a task in progress can see that its role has ended. Source: spec 3.3, T8.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Literal, NamedTuple

from firnline.base.background import Background, SlicedTask
from firnline.base.counting.aging import NOT_DOUBTED, Aging
from firnline.base.effects import Effects
from firnline.base.errors import Code, FirnlineError, KafkaError, StorageError
from firnline.base.ids import NO_OFFSET, TopicIdPartition, Uuid
from firnline.base.log_lines.tier import TIER_TASK_FAILS, TIER_TASKS_RECOVERED
from firnline.base.ports import Fs, Rng
from firnline.base.units import HOUR_MS, INT64_MAX, MINUTE_MS, SECOND_MS
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.log.log import Log
from firnline.log.retention import is_tiered
from firnline.log.segments import ClosedSegment
from firnline.stores.port import ObjectStore
from firnline.tiered.circuits import (
    FAILURES_TO_OPEN,
    StoreCircuits,
    StoreUnavailable,
    is_failure_of_store,
)
from firnline.tiered.coroutines import Begin, Slots
from firnline.tiered.counters import NodeCounters, RecentTimes
from firnline.tiered.lineage import Lineage, first_served, highest_remote, ranges, segment_epochs
from firnline.tiered.settings import TierSettings
from firnline.tiered.spi import (
    DamagedSegment,
    Mark,
    RemoteLogMetadata,
    RemoteSegment,
    RemoteStorage,
    SegmentState,
)

TaskCallback = Callable[[FirnlineError | None, int], Effects]

# What a leader does for a tiered partition; in the order in which failures matter to the operator.
Task = Literal["copy", "expiry", "catalog"]
TASKS: tuple[Task, ...] = ("copy", "expiry", "catalog")
LOGGED_AT_FAILURE = FAILURES_TO_OPEN + 1
# The intervals at which a leader may hand over because of the same damaged segment, and the number it keeps.
HAND_OVER_AGAIN_MIN_MS, HAND_OVER_AGAIN_MAX_MS = 10 * MINUTE_MS, 24 * HOUR_MS
HANDED_OVER_KEPT = 1000
# Copies in progress for each thread that copies: while one is announced another one uses the thread. If all
# due partitions announced theirs at once, a store that hangs would get every one of them, and the metadata
# would have the records of each.
SLOTS_A_THREAD = 2


# Segments around one offset that may overlap: one for each change of the leader.
OVERLAPPING_MOST = 100
_LINEAGE_REMEDY = (
    "let another replica lead (restart this broker): a follower takes them from the tier; or bring"
    " leader-epoch-checkpoint back from a backup. Until then nothing of the partition is copied or deleted in"
    " the tier"
)

_START_REMEDY = (
    "if records up to the log start were deleted, delete them again (DeleteRecords); otherwise"
    " log-start-offset-checkpoint or leader-epoch-checkpoint is damaged: let another replica lead, and fetch"
    " this one again (stop the broker, move the directory away, start it)"
)


class LineageLost(StorageError):
    """A replica does not know the leader epochs of records that only the tier has."""


class StartUncertain(StorageError):
    """Only files of one replica say that records in the tier are deleted, or of another lineage."""


def _is_loading(problem: Exception) -> bool:
    return isinstance(problem, KafkaError) and problem.code == Code.REPLICA_NOT_AVAILABLE


def closed_from(log: Log, offset: int) -> Iterator[ClosedSegment]:
    """Iterate over the present closed segments, from the one with `offset` on."""
    closed = log.closed_segments()
    begin = bisect_left(closed, offset, key=attrgetter("end_offset"))
    return map(closed.__getitem__, range(begin, len(closed)))


class ByteRate:
    """A limit of bytes per second over sliding windows: call `note`, and ask `is_exceeded`. T48.

    bytes_per_second  the limit; it may be changed at any time
    """

    def __init__(self, bytes_per_second: int, windows: int, window_ms: int) -> None:
        self.bytes_per_second = bytes_per_second
        self._span_ms = windows * window_ms
        self._window_ms = window_ms
        self._moved: deque[tuple[int, int]] = deque()
        self._total = 0

    def note(self, size_bytes: int, now_ms: int) -> None:
        """Count bytes that are transferred now."""
        window = now_ms - now_ms % self._window_ms
        if self._moved and self._moved[-1][0] == window:
            self._moved[-1] = (window, self._moved[-1][1] + size_bytes)
        else:
            self._moved.append((window, size_bytes))
        self._total += size_bytes

    def throttle_ms(self, now_ms: int) -> int:
        """Return the time after which the bytes within the windows do not exceed the limit; 0: now."""
        while self._moved and self._moved[0][0] <= now_ms - self._span_ms:
            self._total -= self._moved.popleft()[1]
        return max(-(-self._total * 1000 // self.bytes_per_second) - self._span_ms, 0)


def _all_known(_where: TopicIdPartition) -> FirnlineError | None:
    return None


def _nobody(_where: TopicIdPartition, _problem: FirnlineError, _now_ms: int) -> Effects:
    return []


class Copying:
    """The segments that tasks of this process are copying, in any role: no other task cleans them up."""

    def __init__(self) -> None:
        self._ids: dict[TopicIdPartition, dict[Uuid, None]] = {}

    def add(self, segment: RemoteSegment) -> None:
        self._ids.setdefault(segment.topic_id_partition, {})[segment.segment_id] = None

    def discard(self, segment: RemoteSegment) -> None:
        where = segment.topic_id_partition
        ids = self._ids.get(where, {})
        ids.pop(segment.segment_id, None)
        if not ids:
            self._ids.pop(where, None)

    def of(self, where: TopicIdPartition) -> Collection[Uuid]:
        """Return the ids of one partition's segments."""
        return self._ids.get(where, {})


@dataclass(slots=True)
class Services:
    """The services of one node's tasks. `catalog` is None for a storage that is not an object store."""

    settings: TierSettings
    metadata: RemoteLogMetadata
    storage: RemoteStorage
    catalog: ObjectStore | None
    fs: Fs
    rng: Rng
    # Raises, in a worker thread, if the store belongs to another cluster; None if that cannot be checked.
    check_owner: Callable[[], None] | None = None
    started_ms: int = 0
    aging: Aging = NOT_DOUBTED
    counters: NodeCounters = field(default_factory=NodeCounters)
    # How long copies and reads were put off by their quotas (T48), and how long reads of the store took.
    copy_throttle: RecentTimes = field(default_factory=RecentTimes)
    fetch_throttle: RecentTimes = field(default_factory=RecentTimes)
    fetch_times: RecentTimes = field(default_factory=RecentTimes)
    # Returns an error if a partition has unreadable metadata, so that nothing of it may be copied or deleted.
    withheld: Callable[[TopicIdPartition], FirnlineError | None] = _all_known
    copying: Copying = field(default_factory=Copying)
    # Runs tasks of several steps; the partitions take turns.
    sliced_tasks: Background = field(
        default_factory=lambda: Background("tier", is_round_robin=True)
    )
    # Called for a damaged local segment, so that another replica leads.
    on_damaged: Callable[[TopicIdPartition, FirnlineError, int], Effects] = _nobody
    # By damaged segment: the time of the last hand-over, and the interval until the next one.
    handed_over: dict[tuple[TopicIdPartition, int], tuple[int, int]] = field(default_factory=dict)
    copy_rate: ByteRate = field(init=False)
    fetch_rate: ByteRate = field(init=False)
    # All work for the store goes through them.
    circuits: StoreCircuits = field(init=False)
    # A copy has a slot before it is announced (F3).
    copy_slots: Slots = field(init=False)

    def __post_init__(self) -> None:
        s = self.settings
        self.circuits = StoreCircuits(self.catalog, self.check_owner, self.backoff_ms)
        self.copy_slots = Slots(SLOTS_A_THREAD * s.copier_threads, self.sliced_tasks)
        self.copy_rate = ByteRate(
            s.copy_bytes_per_second, s.copy_quota_windows, s.copy_quota_window_ms
        )
        self.fetch_rate = ByteRate(
            s.fetch_bytes_per_second, s.fetch_quota_windows, s.fetch_quota_window_ms
        )

    def next_turn(self, name: str) -> Begin[None]:
        """Return an operation that ends in a later turn of the event loop; `name` is for slow steps."""

        def begin(then: Callable[[None, int], Effects], now_ms: int) -> Effects:
            def rest() -> SlicedTask:
                at_ms = yield []
                return then(None, at_ms)

            rest.__qualname__ = name
            return self.sliced_tasks.begin(rest(), now_ms)

        return begin

    def may_hand_over(self, where: TopicIdPartition, base_offset: int, now_ms: int) -> bool:
        """Whether another replica should lead because this node's copy of the segment is damaged.

        At first at once, then after an interval that doubles each time: if every replica has the damage, the
        leadership would move for ever otherwise.
        """
        key = (where, base_offset)
        before_ms, wait_ms = self.handed_over.pop(key, (0, 0))
        is_due = now_ms - before_ms >= wait_ms
        if is_due:
            wait_ms = min(max(2 * wait_ms, HAND_OVER_AGAIN_MIN_MS), HAND_OVER_AGAIN_MAX_MS)
        self.handed_over[key] = (now_ms if is_due else before_ms, wait_ms)
        if len(self.handed_over) > HANDED_OVER_KEPT:
            del self.handed_over[next(iter(self.handed_over))]
        return is_due

    def backoff_ms(self, failures: int, max_ms: int | None = None) -> int:
        """Return the backoff after that many failures in a row: doubling, bounded, with jitter.

        max_ms  another bound than that of the settings
        """
        s = self.settings
        limit = s.retry_backoff_max_ms if max_ms is None else max_ms
        wait = min(s.retry_backoff_ms << min(failures - 1, 20), limit)
        spread = int(wait * s.retry_jitter)
        return wait - spread + self.rng.below(2 * spread + 1)


class Problem(NamedTuple):
    """Why a task of a partition fails, and since when it has failed without a success in between."""

    text: str
    since_ms: int


class Hosted:
    """One partition on this node, in one role of one leader epoch."""

    def __init__(
        self,
        log: Log,
        *,
        is_leader: bool,
        leader_epoch: int,
        is_store_down: Callable[[], bool] = lambda: False,
    ) -> None:
        self.log = log
        self.where = TopicIdPartition(log.topic_id, log.topic_partition.partition)
        self.topic = log.topic_partition.topic
        self.is_leader = is_leader
        self.leader_epoch = leader_epoch
        self.is_over = False
        self._problems: dict[Task, Problem] = {}
        self._is_store_down = is_store_down
        # Since the partition began to fail: how often each task did, by the kind of error; what was logged.
        self._failing: dict[tuple[Task, str], int] = {}
        self._logged: dict[str, None] = {}
        self._failing_since_ms = 0
        # Segments in the tier that the metadata does not have; above 0 nothing is copied or deleted.
        self.unexplained_segments = 0
        # Of a leader: whether the metadata is known to have all segments of the catalog. Its keeper sets it.
        self.explains_all: Callable[[], bool] = lambda: False
        self.metadata_version = 0  # grows with each applied record about the partition
        self._covered: tuple[tuple[int, int, Epochs, int], int] | None = None
        # The last answer of `first_remote_below`, and what it was about.
        self._remote_below: tuple[tuple[int, int, int], int | None] | None = None
        # The remote segments that serve local offsets without a gap: their end, the epochs, and the ranges.
        self._mark: Mark | None = None
        self._served_start = self._served_end = 0
        self._served_by: Epochs = ()
        self._serving: dict[Uuid, tuple[int, int]] = {}

    def note_outcome(self, task: Task, problem: Exception | None, now_ms: int) -> Effects:
        """A run of the task has ended; with None it succeeded.

        The log gets a line for each kind of error, and one when nothing fails any more; none for a retry.
        What may pass by itself is logged once it has outlasted some retries. A store that fails as a whole
        has a line of its own (`circuits`), instead of one for each partition.
        """
        if problem is None:
            self._problems.pop(task, None)
            return [] if self._problems else self._log_recovery(now_ms)
        known = self._problems.get(task)
        since_ms = now_ms if known is None else known.since_ms
        self._problems[task] = Problem(str(problem), since_ms)
        return self._log_failure(task, problem, now_ms)

    def _log_failure(self, task: Task, problem: Exception, now_ms: int) -> Effects:
        if isinstance(problem, StoreUnavailable | DamagedSegment) or _is_loading(problem):
            return []  # there is a line about the store, or about the segment; loading is no failure
        # A plain StorageError is what a plug-in raised, or what was wrong with one attempt.
        is_plain = type(problem) is StorageError or isinstance(problem, KafkaError)
        may_pass = is_plain or is_failure_of_store(problem)
        if may_pass and self._is_store_down():
            return []
        if not self._failing:
            self._failing_since_ms = now_ms
        kind = (task, type(problem).__name__ if may_pass else str(problem))
        count = self._failing[kind] = self._failing.get(kind, 0) + 1
        if kind[1] in self._logged or (may_pass and count < LOGGED_AT_FAILURE):
            return []
        self._logged[kind[1]] = None
        where = self.log.topic_partition._asdict()
        return [TIER_TASK_FAILS(**where, task=task, is_retried=may_pass, error=problem)]

    def _log_recovery(self, now_ms: int) -> Effects:
        was_logged = bool(self._logged)
        self._failing.clear()
        self._logged.clear()
        if not was_logged:
            return []
        seconds = (now_ms - self._failing_since_ms) // SECOND_MS
        return [TIER_TASKS_RECOVERED(**self.log.topic_partition._asdict(), after_s=seconds)]

    @property
    def problem(self) -> Problem | None:
        """Why copies fail; else why deletions, or the catalog, do. None if nothing fails."""
        return next((self._problems[task] for task in TASKS if task in self._problems), None)

    @property
    def leads(self) -> bool:
        """Whether a new copy or delete may still begin."""
        return self.is_leader and not self.is_over

    @property
    def is_tiered(self) -> bool:
        """Whether the partition is tiered, given that the node has a tier (T4)."""
        return is_tiered(self.topic, self.log.config)

    @property
    def is_emptied(self) -> bool:
        """Whether tiering is disabled and the remote segments have to be deleted (T49)."""
        config = self.log.config
        return not config.remote_storage_enable and config.remote_log_delete_on_disable

    @property
    def may_copy(self) -> bool:
        return self.is_tiered and not self.log.config.remote_log_copy_disable

    def lineage_problem(self, metadata: RemoteLogMetadata) -> LineageLost | None:
        """Return an error if the tier has records below the first leader epoch that the log knows (rel-T14).

        The file of the leader epochs was damaged or lost then, and has been made again from local batches: it
        says nothing about records that only the tier has, and none of them may be deleted because of it.
        """
        begin = self.lineage_start
        if begin <= self.log.log_start_offset or not self.is_tiered:
            return None
        first = self.first_remote_below(begin, metadata)
        if first is None:
            return None
        return LineageLost(
            "the leader epochs of this replica begin above records that only the tier has",
            partition=str(self.log.topic_partition),
            first_epoch_offset=begin,
            log_start_offset=self.log.log_start_offset,
            first_remote_offset=first,
            remedy=_LINEAGE_REMEDY,
        )

    def begin_deciding(self, *, has_catalog: bool) -> None:
        """A leader epoch begins: nothing in the tier goes before more than a file says where the log starts.

        Without a catalog nothing else says it.
        """
        self.log.decided_start_offset = 0 if has_catalog else self.log.log_start_offset

    def on_earlier_catalog(self, log_start_offset: int | None) -> None:
        """The last catalog, which has a checksum, has this log start offset; None: there is no catalog."""
        log = self.log
        start = log.log_start_offset if log_start_offset is None else log_start_offset
        log.decided_start_offset = max(log.decided_start_offset, start)

    @property
    def deletes_below(self) -> int:
        """Up to where the tier may delete whatever it has: the log start offset, as far as it was decided.

        The files of log start offsets and of leader epochs have no checksum, as with Kafka. One wrong digit
        must not delete what the tier has (rel-T1).
        """
        return min(self.log.decided_start_offset, self.log.log_start_offset)

    def uncertain_start(self) -> StartUncertain:
        """Return the error for segments that stay although they seem to be deleted."""
        return StartUncertain(
            "segments below the log start, or below the first leader epoch, stay in the tier: only files of"
            " this replica say that they go",
            partition=str(self.log.topic_partition),
            log_start_offset=self.log.log_start_offset,
            decided_offset=self.deletes_below,
            remedy=_START_REMEDY,
        )

    @property
    def lineage_start(self) -> int:
        """The first offset whose leader epoch is known; without any, the local log start offset."""
        entries = self.log.epochs.entries()
        return entries[0][1] if entries else self.log.local_log_start_offset

    def adopting(
        self, segments: Sequence[RemoteSegment], metadata: RemoteLogMetadata, *, has_catalog: bool
    ) -> Generator[None, None, None]:
        """Raise the log start to the first offset that `segments` serve, usually of the first one, in slices.

        An earlier leader may have raised the log start, and deleted segments, before this replica heard of it
        (3.4-1, X42). Only once the metadata has been found to have all that the catalog has. Never above
        local records; and never to their start if the metadata does not show that the tier has had the
        records right below it: that is a loss to report, and not to act on (F28).
        """
        log = self.log
        while self.leads:
            local_start, history = log.local_log_start_offset, log.epochs.entries()
            finished = (s for s in segments if s.state == SegmentState.COPY_FINISHED)
            first = yield from first_served(finished, history)
            if (local_start, history) != (log.local_log_start_offset, log.epochs.entries()):
                continue
            if first is not None and first >= local_start:
                first = None
            start = local_start if first is None else first
            if first is None and not self.was_copied(local_start - 1, metadata):
                # The file of the leader epochs survived a crash that the log start offset did not.
                start = self.lineage_start
                if self.first_remote_below(start, metadata) is not None:
                    return
            if start > log.log_start_offset:
                log.advance_log_start(start, is_decided=not has_catalog)
            return

    def first_remote_below(self, offset: int, metadata: RemoteLogMetadata) -> int | None:
        """Return the first offset below `offset` of which the tier has a record, of whatever lineage.

        One that the known lineage continues does not count: DeleteRecords may move the log start into it.
        """
        key = (self.metadata_version, self.log.log_start_offset, offset)
        if self._remote_below is None or self._remote_below[0] != key:
            self._remote_below = key, self._find_remote_below(offset, metadata)
        return self._remote_below[1]

    def _find_remote_below(self, offset: int, metadata: RemoteLogMetadata) -> int | None:
        if offset != self.log.first_base_offset:
            # Epochs that were made again from local batches begin where these do, and not above either. So
            # the log began here, and a crash took the log start back, before the leader had deleted what
            # lies below in the tier.
            return None
        finished = metadata.finished(self.where, self.log.log_start_offset)
        if isinstance(finished, KafkaError):
            return None
        lineage = Lineage(self.log.epochs.entries())
        # They ascend by end offset, and overlap by a few: those that begin above `offset` are of no interest.
        for segment in islice(finished, OVERLAPPING_MOST):
            is_continued = (
                segment.end_offset >= offset and lineage.first_shared(segment) is not None
            )
            if segment.epochs[0][1] < offset and not is_continued:
                return segment.epochs[0][1]
        return None

    def covered_offset(self, metadata: RemoteLogMetadata) -> int | KafkaError:
        """Return the last offset, inclusive, up to which local segments may be deleted; -1: none.

        It is the highest offset of this lineage in the tier (spec 3.6), but below the first local offset that
        no finished segment of the lineage serves: so no local record is deleted that is not in the tier (T2,
        rel-P12).
        """
        log = self.log
        highest = self.highest_remote(metadata)[0]
        # With the highest remote offset: a follower's log may grow up to it while nothing else changes.
        key = (self.metadata_version, log.local_log_start_offset, log.epochs.entries(), highest)
        if self._covered is not None and self._covered[0] == key:
            return self._covered[1]
        unbroken = self._unbroken(metadata, highest)
        if isinstance(unbroken, KafkaError):
            return unbroken
        covered = min(highest, unbroken)
        self._covered = (key, covered)
        return covered

    def _unbroken(self, metadata: RemoteLogMetadata, highest: int) -> int | KafkaError:
        """Continue from the end of the earlier segments, as long as none of them is removed."""
        start, history = self.log.local_log_start_offset, self.log.epochs.entries()
        look = metadata.look(self.where, self._mark)
        if isinstance(look, KafkaError):
            return look
        if highest < start:
            return highest
        here = segment_epochs(history, start, INT64_MAX)
        is_same = here == segment_epochs(self._served_by, start, INT64_MAX)
        if look.everything is not None or not is_same or start < self._served_start:
            self._served_end = start
            self._serving = {}
        for segment_id, segment in look.changed.items():
            first, after = (0, 0) if segment else self._serving.pop(segment_id, (0, 0))
            if after > start:
                self._served_end = min(self._served_end, first)
        at = max(self._served_end, start)
        near = metadata.finished(self.where, at)
        if isinstance(near, KafkaError):
            return near
        for segment, first, after in ranges(near, history, start_offset=at, end_offset=highest + 1):
            if first != at:
                break
            known = self._serving.get(segment.segment_id, (first, after))
            self._serving[segment.segment_id] = min(known[0], first), max(known[1], after)
            at = after
        self._mark, self._served_end, self._served_by = look.mark, at, history
        self._served_start = start
        return at - 1

    def is_gone(self, offset: int, metadata: RemoteLogMetadata) -> bool:
        """Whether an offset of the log that no finished segment serves is known not to be in the tier.

        Otherwise the metadata may have lost its segment, until the leader has compared it with the catalog. A
        follower has no catalog, but it knows that the tier has had what is below its local log.
        """
        if self.unexplained_segments:
            return False
        return self.explains_all() if self.is_leader else self.was_copied(offset, metadata)

    def was_copied(self, offset: int, metadata: RemoteLogMetadata) -> bool:
        """Whether the metadata shows that the tier has, or has had, the offset."""
        epoch = self.log.epochs.epoch_at(offset)
        if epoch is None:
            return False
        highest = metadata.highest_offset(self.where, epoch)
        return isinstance(highest, int) and highest >= offset

    def highest_remote(self, metadata: RemoteLogMetadata) -> tuple[int, int]:
        """Return the highest remote offset of this lineage and its epoch; (-1, -1) if none or unknown."""

        def of_epoch(epoch: int) -> int | None:
            found = metadata.highest_offset(self.where, epoch)
            return None if isinstance(found, KafkaError) else found

        if not metadata.is_ready(self.where):
            return NO_OFFSET, -1
        return highest_remote(self.log.epochs.entries(), self.log.log_end_offset, of_epoch)
