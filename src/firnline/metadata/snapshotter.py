"""When this node takes a snapshot of its image, and how: a few milliseconds at a time. PURE.

The image is immutable, so the log goes on while its records are written; nothing is read back from the log,
and a snapshot that fails is told, counted and forgotten: it never holds up what it was to make shorter.
Syncs go to a thread of their own, beside those that commits wait for.
Source: KIP-630, KIP-876; spec Q9, Q30-Q34, Q48, Q50, Q53.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from firnline.base.effects import Effects, SetTimer, Submit, Warn
from firnline.base.errors import Bug, FirnlineError, KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.ports import File
from firnline.base.units import HOUR_MS, MIB
from firnline.config.broker import BrokerConfig
from firnline.metadata.census import Latencies
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import NO_PRODUCER_IDS, ClusterImage
from firnline.metadata.snapshot_file import snapshot_steps
from firnline.metadata.snapshot_records import image_steps
from firnline.protocol.schema import Message
from firnline.raft.fetch_rules import Lineage
from firnline.raft.ports import SnapshotPart
from firnline.raft.snapshot_rules import judge_creation

_TIMER = ("metadata", "snapshot")


class SnapshotSettings(NamedTuple):
    """When a snapshot is due. `max_interval_ms` 0 and `min_changed_ratio` 0: that rule is off."""

    max_new_record_bytes: int = 20 * MIB
    max_interval_ms: int = HOUR_MS
    min_changed_ratio: float = 0.0


def snapshot_settings(config: BrokerConfig) -> SnapshotSettings:
    """Return what the configuration says."""
    return SnapshotSettings(
        config.metadata_log_max_record_bytes_between_snapshots,
        config.metadata_log_max_snapshot_interval_ms,
        config.metadata_snapshot_min_changed_records_ratio,
    )


class SnapshotLog(Lineage, Protocol):
    """Where snapshots go, and what may be one; `MetaLog` has it."""

    @property
    def high_watermark(self) -> int: ...

    def start_part(self, snapshot_id: OffsetAndEpoch) -> SnapshotPart: ...

    def give_name(self, part: SnapshotPart) -> File: ...

    def register(self, part: SnapshotPart) -> None: ...

    def withdraw(self, part: SnapshotPart) -> None: ...


class SnapshotCounters(NamedTuple):
    """What this node did since it started. Sizes in bytes, times in ms; -1: no snapshot yet."""

    generated: int = 0
    failed: int = 0
    latest_size_bytes: int = -1
    latest_generated_at_ms: int = -1
    latest_latency_ms: int = -1
    total_latency_ms: int = 0


class _Emission(NamedTuple):
    """A snapshot on its way to the disk."""

    part: SnapshotPart
    batches: Iterator[bytearray | None]
    began_at_ms: int


class Snapshotter:
    """Takes one snapshot at a time. Invariants:

    I1  a snapshot is of a committed image at the end of a batch (Q31, Q33, X14).
    I2  it is synced before it has its name, and has its name durably before it counts (Q9).
    I3  a part is not closed while its files are being synced.
    """

    def __init__(self, log: SnapshotLog, settings: SnapshotSettings) -> None:
        self.counters = SnapshotCounters()
        self.latencies = Latencies()
        self._log = log
        self._settings = settings
        self._emission: _Emission | None = None
        self._is_syncing = False
        self._bytes = 0
        self._since_ms: int | None = None
        # For the ratio of changed records alone: what the last snapshot had, and what of it is different.
        self._record_count = 0
        self._changed: set[Hashable] = set()
        # The same of the snapshot on its way: until it is there it does not count.
        self._emitted_count = 0
        self._changed_before: set[Hashable] = set()

    @property
    def is_emitting(self) -> bool:
        return self._emission is not None

    def on_applied(
        self,
        delta: ClusterDelta,
        *,
        bytes_applied: int,
        last_timestamp_ms: int,
        is_batch_end: bool,
        now_ms: int,
    ) -> Effects:
        """Hear what became committed and was applied, and begin a snapshot when one is due.

        bytes_applied      of batches since the last call
        last_timestamp_ms  append time of the last record applied
        is_batch_end       `delta.after` is the state at the end of a batch
        """
        if self._since_ms is None:
            self._since_ms = now_ms
        self._bytes += bytes_applied
        if self._settings.min_changed_ratio > 0:
            self._changed.update(changed_records(delta))
        if self._emission is not None or not is_batch_end or not self._is_due(now_ms):
            return []
        return self._begin(delta.after, last_timestamp_ms, now_ms)

    def on_loaded(self, image: ClusterImage, *, now_ms: int) -> Effects:
        """A snapshot replaced the image: what was counted, and what was on its way, is out of date."""
        self.stop()
        self._start_counting(now_ms)
        self._changed_before.clear()
        if self._settings.min_changed_ratio > 0:
            self._record_count = sum(map(len, image_steps(image)))
        return []

    def stop(self) -> None:
        """Forget a snapshot that is on its way."""
        emission, self._emission = self._emission, None
        # One that is being synced is discarded after that.
        if emission is not None and not self._is_syncing:
            _try(emission.part.discard)
        self._is_syncing = False

    def _is_due(self, now_ms: int) -> bool:
        rules = self._settings
        assert self._since_ms is not None
        if rules.max_interval_ms > 0 and now_ms - self._since_ms >= rules.max_interval_ms:
            return True
        has_changed = len(self._changed) >= rules.min_changed_ratio * self._record_count
        return self._bytes >= rules.max_new_record_bytes and has_changed

    def _start_counting(self, now_ms: int) -> None:
        self._bytes = 0
        self._since_ms = now_ms
        self._changed, self._changed_before = set(), self._changed

    # -- one snapshot ------------------------------------------------------------------------------

    def _begin(self, image: ClusterImage, last_contained_ms: int, now_ms: int) -> Effects:
        self._start_counting(now_ms)
        snapshot_id = OffsetAndEpoch(image.offset + 1, image.epoch)
        verdict = judge_creation(self._log, snapshot_id, high_watermark=self._log.high_watermark)
        if verdict is False:
            return []
        if isinstance(verdict, KafkaError):
            return self._failed(verdict)
        try:
            part = self._log.start_part(snapshot_id)
        except FirnlineError as problem:
            return self._failed(problem)
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
        """Do one step, and let everybody else have a turn (Q53)."""
        emission = self._emission
        if emission is None or self._is_syncing:
            return []
        try:
            for batch in emission.batches:
                problem = emission.part.append(bytes(batch)) if batch else None
                if problem is not None:
                    return self._failed(problem)
                return [self._next_slice(now_ms)]
        except Bug:
            raise
        except Exception as problem:  # noqa: BLE001 - whatever it is, the log goes on (Q34)
            return self._failed(problem)
        return self._sync(emission.part.files(), self._on_synced, emission.part.discard)

    def _sync(
        self, files: Sequence[File], then: Callable[[int], Effects], undo: Callable[[], None]
    ) -> Effects:
        """Sync off the loop, then go on; `undo` for a snapshot that was given up or failed meanwhile."""
        emission = self._emission
        self._is_syncing = True

        def work() -> None:
            for file in files:
                file.sync()

        def synced(result: Any, now_ms: int) -> Effects:
            if self._emission is not emission:
                _try(undo)
                return []
            self._is_syncing = False
            if isinstance(result, Exception):
                return self._failed(result, undo)
            return then(now_ms)

        return [Submit(name="sync a snapshot", pool="disk", work=work, then=synced)]

    def _on_synced(self, now_ms: int) -> Effects:
        assert self._emission is not None
        part = self._emission.part
        problem = part.problem()
        if problem is not None:
            return self._failed(problem)
        try:
            name = self._log.give_name(part)
        except FirnlineError as failure:
            return self._failed(failure)
        return self._sync([name], self._on_named, partial(self._log.withdraw, part))

    def _on_named(self, now_ms: int) -> Effects:
        assert self._emission is not None
        part, _, began_at_ms = self._emission
        self._emission = None
        self._log.register(part)
        self._record_count = self._emitted_count
        self._changed_before.clear()
        counters = self.counters
        self.latencies.add(now_ms - began_at_ms)
        self.counters = counters._replace(
            generated=counters.generated + 1,
            latest_size_bytes=part.size_bytes,
            latest_generated_at_ms=now_ms,
            latest_latency_ms=now_ms - began_at_ms,
            total_latency_ms=counters.total_latency_ms + now_ms - began_at_ms,
        )
        return []

    def _failed(self, problem: object, undo: Callable[[], None] | None = None) -> Effects:
        """Q34: tell it, count it, and try again when the next one is due."""
        emission, self._emission = self._emission, None
        if emission is not None:
            _try(undo or emission.part.discard)
        self._changed |= self._changed_before
        self.counters = self.counters._replace(failed=self.counters.failed + 1)
        line = f"no snapshot of the metadata was taken: {problem}; the log is kept, and grows, until one is"
        return [Warn(line=line)]


def _try(undo: Callable[[], None]) -> None:
    """Remove what is left of a snapshot; where that fails too, the next start does."""
    with suppress(FirnlineError):
        undo()


def changed_records(delta: ClusterDelta) -> Iterator[Hashable]:
    """Say which records that were there before are different or gone now; new ones do not count (Q50)."""
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
