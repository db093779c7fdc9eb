"""Takes snapshots of the committed image, in time slices of a few milliseconds. PURE.

Theory of operation. After each batch the node calls `on_applied`; a snapshot is due after so many bytes of
log or so much time. The image is immutable, so the log goes on while the snapshot is written from it; nothing
is read back from the log. Steps: write records to a part, a slice in each turn; sync the part on a thread of
its own, beside the syncs that commits wait for; rename it; sync the directory; register it. A snapshot that
fails is logged, counted and tried again later; it never delays the log. Guarantees: I1 to I3 below.

Source: KIP-630, KIP-876; spec Q9, Q30-Q34, Q48, Q50, Q53.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from firnline.base.effects import Effects, SetTimer, Submit
from firnline.base.errors import Bug, Code, FirnlineError, KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.log_lines.quorum import SNAPSHOT_FAILED, SNAPSHOT_TAKEN
from firnline.base.ports import File
from firnline.base.units import HOUR_MS, MIB, MINUTE_MS
from firnline.config.broker import BrokerConfig
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import NO_PRODUCER_IDS, ClusterImage
from firnline.metadata.partition_counts import Latencies
from firnline.metadata.snapshot_file import snapshot_name, snapshot_steps
from firnline.metadata.snapshot_records import image_steps
from firnline.protocol.schema import Message
from firnline.raft.fetch_rules import Lineage
from firnline.raft.ports import SnapshotPart
from firnline.raft.snapshot_rules import check_creation

_TIMER = ("metadata", "snapshot")
_RETRY_TIMER = ("metadata", "snapshot again")
# The wait after a failure; it doubles with each further one.
_RETRY_MIN_MS, _RETRY_MAX_MS = 1_000, 5 * MINUTE_MS

# Called with the id of the snapshot, or with the reason why there is none.
SnapshotCallback = Callable[[OffsetAndEpoch | KafkaError, int], Effects]


class SnapshotSettings(NamedTuple):
    """When a snapshot is due. `max_interval_ms` 0 or `min_changed_ratio` 0 turns that rule off."""

    max_new_record_bytes: int = 20 * MIB
    max_interval_ms: int = HOUR_MS
    min_changed_ratio: float = 0.0


def snapshot_settings(config: BrokerConfig) -> SnapshotSettings:
    """Return the settings in the configuration."""
    return SnapshotSettings(
        config.metadata_log_max_record_bytes_between_snapshots,
        config.metadata_log_max_snapshot_interval_ms,
        config.metadata_snapshot_min_changed_records_ratio,
    )


class SnapshotLog(Lineage, Protocol):
    """Stores snapshots, and knows which are possible; `MetaLog` implements it."""

    @property
    def high_watermark(self) -> int: ...

    def start_part(self, snapshot_id: OffsetAndEpoch) -> SnapshotPart: ...

    def give_name(self, part: SnapshotPart) -> File: ...

    def register(self, part: SnapshotPart) -> None: ...

    def withdraw(self, part: SnapshotPart) -> None: ...


class SnapshotCounters(NamedTuple):
    """Counters since the start. Sizes in bytes, times in ms; -1: no snapshot yet."""

    generated: int = 0
    failed: int = 0
    latest_size_bytes: int = -1
    latest_generated_at_ms: int = -1
    latest_latency_ms: int = -1
    total_latency_ms: int = 0


class SnapshotState(NamedTuple):
    """The snapshots of a node and its log, at one moment. End offsets are exclusive."""

    snapshots: Sequence[tuple[OffsetAndEpoch, int, int]]  # id, bytes, last contained log time in ms
    damaged_ids: Sequence[OffsetAndEpoch]  # for damage
    forgotten: OffsetAndEpoch | None
    fetching: OffsetAndEpoch | None
    log_start_offset: int
    log_end_offset: int
    log_bytes: int


class _Emission(NamedTuple):
    """The snapshot that is being written."""

    part: SnapshotPart
    batches: Iterator[bytearray | None]
    began_at_ms: int


class _Counted(NamedTuple):
    """What makes a snapshot due: bytes, time and changed records since the last one."""

    bytes: int
    since_ms: int
    changed: set[Hashable]


class Snapshotter:
    """Takes one snapshot at a time. Invariants:

    I1  a snapshot is of a committed image at the end of a batch (Q31, Q33, X14).
    I2  it is synced before it is renamed, and its name is durable before it counts (Q9).
    I3  a part is not closed while its files are being synced.
    """

    def __init__(self, log: SnapshotLog, settings: SnapshotSettings) -> None:
        self.counters = SnapshotCounters()
        self.latencies = Latencies()
        self._log = log
        self._settings = settings
        self._emission: _Emission | None = None
        self._is_syncing = False
        self._latest: tuple[ClusterImage, int] | None = (
            None  # at a batch's end; its last record's time
        )
        self._callbacks: list[SnapshotCallback] = []
        self._failures = 0  # since the last success
        self.problem: str | None = None  # why the last one was not taken
        self._retry_at_ms = 0
        self._bytes = 0
        self._since_ms: int | None = None
        # For the ratio of changed records: the size of the last snapshot, and which of its records changed.
        self.record_count = 0
        self._changed: set[Hashable] = set()
        # The same for the snapshot that is being written: it does not count until it is complete.
        self._emitted_count = 0
        self._before: _Counted | None = None

    @property
    def is_emitting(self) -> bool:
        return self._emission is not None

    @property
    def bytes_until_due(self) -> int:
        """Bytes of log that may still be applied before the next snapshot is due by size."""
        return max(self._settings.max_new_record_bytes - self._bytes, 0)

    def on_applied(
        self,
        delta: ClusterDelta,
        *,
        bytes_applied: int,
        last_timestamp_ms: int,
        is_batch_end: bool,
        now_ms: int,
        changes: Iterable[ClusterDelta] | None = None,
    ) -> Effects:
        """Count committed records that were applied, and begin a snapshot if one is due.

        bytes_applied      of batches since the last call
        last_timestamp_ms  append time of the last record applied
        is_batch_end       `delta.after` is the state at the end of a batch
        changes            the single deltas since the last call, if `delta` is not the only one
        """
        if self._since_ms is None:
            self._since_ms = now_ms
        self._bytes += bytes_applied
        if self._settings.min_changed_ratio > 0:
            for change in (delta,) if changes is None else changes:
                self._changed.update(changed_records(change))
        if is_batch_end:
            self._latest = (delta.after, last_timestamp_ms)
        if not is_batch_end or now_ms < self._retry_at_ms:
            return []
        return self._begin_if_due(now_ms)

    def on_loaded(self, *, record_count: int, now_ms: int) -> Effects:
        """A snapshot of so many records replaced the image: drop the counts and the snapshot being
        written."""
        callbacks, self._callbacks = self._callbacks, []
        self.stop()
        self._start_counting(now_ms)
        self._before = None
        self.record_count = record_count
        error = KafkaError(Code.REQUEST_TIMED_OUT, "a snapshot of the leader's came instead")
        return _notify(callbacks, error, now_ms)

    def take(self, then: SnapshotCallback, now_ms: int) -> Effects:
        """Take a snapshot now, due or not; `then` gets the outcome. One that is being written will do."""
        if self._latest is None:
            error = KafkaError(Code.COORDINATOR_LOAD_IN_PROGRESS, "no metadata is applied yet")
            return then(error, now_ms)
        self._callbacks.append(then)
        return [] if self._emission is not None else self._begin(now_ms)

    def stop(self) -> None:
        """Drop the snapshot that is being written."""
        emission, self._emission = self._emission, None
        self._latest = None
        self._callbacks.clear()
        # A part that is being synced is discarded after the sync.
        if emission is not None and not self._is_syncing:
            _try(emission.part.discard)
        self._is_syncing = False

    def _is_due(self, now_ms: int) -> bool:
        rules = self._settings
        assert self._since_ms is not None
        if rules.max_interval_ms > 0 and now_ms - self._since_ms >= rules.max_interval_ms:
            return True
        has_changed = len(self._changed) >= rules.min_changed_ratio * self.record_count
        return self._bytes >= rules.max_new_record_bytes and has_changed

    def _start_counting(self, now_ms: int) -> None:
        since_ms = now_ms if self._since_ms is None else self._since_ms
        self._before = _Counted(self._bytes, since_ms, self._changed)
        self._bytes, self._since_ms, self._changed = 0, now_ms, set()

    def _begin_if_due(self, now_ms: int) -> Effects:
        is_free = self._emission is None and self._latest is not None
        return self._begin(now_ms) if is_free and self._is_due(now_ms) else []

    # -- one snapshot ------------------------------------------------------------------------------

    def _begin(self, now_ms: int) -> Effects:
        assert self._latest is not None
        image, last_contained_ms = self._latest
        self._start_counting(now_ms)
        snapshot_id = OffsetAndEpoch(image.offset + 1, image.epoch)
        verdict = check_creation(self._log, snapshot_id, high_watermark=self._log.high_watermark)
        if verdict is False:
            self._before = None
            newest = self._log.newest_snapshot_id
            return self._notify_callbacks(
                newest or KafkaError(Code.SNAPSHOT_NOT_FOUND, "no place"), now_ms
            )
        if isinstance(verdict, KafkaError):
            return self._failed(verdict, now_ms)
        try:
            part = self._log.start_part(snapshot_id)
        except FirnlineError as problem:
            return self._failed(problem, now_ms)
        batches = snapshot_steps(
            self._counted(image_steps(image)),
            epoch=image.epoch,
            metadata_version=image.metadata_version,
            last_contained_ms=last_contained_ms,
            now_ms=now_ms,
        )
        self._emission = _Emission(part, batches, now_ms)
        return [self._next_slice(now_ms)]

    def _counted(self, steps: Iterable[list[Message]]) -> Iterator[list[Message]]:
        self._emitted_count = 0
        for step in steps:
            self._emitted_count += len(step)
            yield step

    def _next_slice(self, now_ms: int) -> SetTimer:
        return SetTimer(key=_TIMER, at_ms=now_ms, then=self._write_slice)

    def _write_slice(self, now_ms: int) -> Effects:
        """Write one slice; other tasks have their turn before the next (Q53)."""
        emission = self._emission
        if emission is None or self._is_syncing:
            return []
        try:
            for batch in emission.batches:
                problem = emission.part.append(bytes(batch)) if batch else None
                if problem is not None:
                    return self._failed(problem, now_ms)
                return [self._next_slice(now_ms)]
        except Bug:
            raise
        except Exception as problem:  # noqa: BLE001 - the log goes on after any failure (Q34)
            return self._failed(problem, now_ms)
        return self._sync(emission.part.files(), self._on_synced, emission.part.discard)

    def _sync(
        self, files: Sequence[File], then: Callable[[int], Effects], undo: Callable[[], None]
    ) -> Effects:
        """Sync off the event loop, then call `then`; or `undo`, if the snapshot was dropped or failed
        meanwhile."""
        emission = self._emission
        self._is_syncing = True

        def work() -> None:
            for file in files:
                file.sync()

        def synced(result: Exception | None, now_ms: int) -> Effects:
            if self._emission is not emission:
                _try(undo)
                return []
            self._is_syncing = False
            if isinstance(result, Exception):
                return self._failed(result, now_ms, undo)
            return then(now_ms)

        path = files[0].path
        return [Submit(name="sync a snapshot", pool="disk", path=path, work=work, then=synced)]

    def _on_synced(self, now_ms: int) -> Effects:
        assert self._emission is not None
        part = self._emission.part
        problem = part.problem()
        if problem is not None:
            return self._failed(problem, now_ms)
        try:
            name = self._log.give_name(part)
        except FirnlineError as failure:
            return self._failed(failure, now_ms)
        return self._sync([name], self._on_named, partial(self._log.withdraw, part))

    def _on_named(self, now_ms: int) -> Effects:
        assert self._emission is not None
        part, _, began_at_ms = self._emission
        self._emission = None
        self._log.register(part)
        self.record_count = self._emitted_count
        self._before = None
        self._failures = self._retry_at_ms = 0
        self.problem = None
        took_ms = now_ms - began_at_ms
        counters = self.counters
        self.latencies.add(took_ms)
        self.counters = counters._replace(
            generated=counters.generated + 1,
            latest_size_bytes=part.size_bytes,
            latest_generated_at_ms=now_ms,
            latest_latency_ms=took_ms,
            total_latency_ms=counters.total_latency_ms + took_ms,
        )
        note = SNAPSHOT_TAKEN(
            snapshot=snapshot_name(part.snapshot_id),
            bytes=part.size_bytes,
            records=self.record_count,
            took_ms=took_ms,
        )
        return [note, *self._notify_callbacks(part.snapshot_id, now_ms)]

    def _failed(
        self, problem: object, now_ms: int, undo: Callable[[], None] | None = None
    ) -> Effects:
        """Q34: log and count the failure, and try again after a wait. The counts since the last snapshot are
        kept."""
        emission, self._emission = self._emission, None
        if emission is not None:
            _try(undo or emission.part.discard)
        if self._before is not None:
            self._bytes += self._before.bytes
            self._since_ms = self._before.since_ms
            self._changed |= self._before.changed
            self._before = None
        self.counters = self.counters._replace(failed=self.counters.failed + 1)
        wait_ms = min(_RETRY_MIN_MS << min(self._failures, 20), _RETRY_MAX_MS)
        self._failures += 1
        self.problem = str(problem)
        self._retry_at_ms = now_ms + wait_ms
        warning = SNAPSHOT_FAILED(error=problem, next_try_s=wait_ms // 1000)
        timer = SetTimer(key=_RETRY_TIMER, at_ms=self._retry_at_ms, then=self._begin_if_due)
        error = problem if isinstance(problem, KafkaError) else None
        error = error or KafkaError(Code.KAFKA_STORAGE_ERROR, str(problem))
        return [warning, timer, *self._notify_callbacks(error, now_ms)]

    def _notify_callbacks(self, outcome: OffsetAndEpoch | KafkaError, now_ms: int) -> Effects:
        callbacks, self._callbacks = self._callbacks, []
        return _notify(callbacks, outcome, now_ms)


def _notify(
    callbacks: Iterable[SnapshotCallback], outcome: OffsetAndEpoch | KafkaError, now_ms: int
) -> Effects:
    effects: Effects = []
    for then in callbacks:
        effects += then(outcome, now_ms)
    return effects


def _try(undo: Callable[[], None]) -> None:
    """Remove the rest of a snapshot; if that fails too, the next start does it."""
    with suppress(FirnlineError):
        undo()


def changed_records(delta: ClusterDelta) -> Iterator[Hashable]:
    """Yield the records of the older image that were changed or removed; new ones do not count (Q50)."""
    before, after = delta.before, delta.after
    for topic in delta.topics:
        old = topic.before.partitions if topic.before is not None else {}
        yield from ((topic.after.topic_id, n) for n in topic.partitions if n in old)
    for gone in delta.deleted_topics:
        if gone.topic_id in before.topics_by_id:
            yield gone.topic_id
            yield from ((gone.topic_id, n) for n in gone.partitions)
    yield from (("broker", n) for n in delta.brokers if n in before.brokers)
    yield from (("feature", name) for name in delta.features if name in before.features)
    for resource in delta.configs:
        was: Mapping[str, str] = before.configs.get(resource, {})
        now: Mapping[str, str] = after.configs.get(resource, {})
        yield from ((resource, key) for key in was if was[key] != now.get(key))
    if before.next_producer_id not in (NO_PRODUCER_IDS, after.next_producer_id):
        yield "producer ids"
    for name in ("controllers", "kept"):
        old, new = getattr(before, name), getattr(after, name)
        if old is not new:
            yield from ((name, key) for key in old if old[key] is not new.get(key))
