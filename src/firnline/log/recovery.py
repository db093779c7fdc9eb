"""Open a partition's log, after a clean shutdown or a crash. STORE.

- After a clean shutdown only the batches after the last index entry are read.
- After a crash every batch from the segment of the recovery point on is verified. The log is truncated before
  the first damaged batch. Indexes, epochs, producer snapshots and aborted transactions are rebuilt (rel-P8).
- Damage below the recovery point is bit rot, not a torn write, because those bytes were synced. The log is
  then not opened: a truncation would lose acknowledged records (reliability d 92). No CRC covers base offsets
  and leader epochs, so each is compared with what follows it, and with the checkpoint of the epochs.
- Renames and removals that a crash interrupted are completed (rel-P11).
"""

from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar

from firnline.base.background import SliceBudget
from firnline.base.effects import Effects
from firnline.base.errors import StorageError
from firnline.base.ids import METADATA_TOPIC_ID, NO_OFFSET, TopicPartition, Uuid
from firnline.base.limits import PARTITION_PRODUCERS_MAX
from firnline.base.log_lines.storage import LOG_BEGINS_EMPTY, LOG_CUT
from firnline.base.ports import File, Fs
from firnline.base.units import INT64_MAX, KIB
from firnline.base.waits import At, Wait, off_loop
from firnline.config.topic import TopicConfig
from firnline.formats import names
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.log import retention
from firnline.log.checkpoint import DAMAGE_REMEDY, LEADER_EPOCHS, place_partition_metadata
from firnline.log.compaction.swap import finish_renames
from firnline.log.epochs import LeaderEpochs
from firnline.log.file_syncs import PathSync
from firnline.log.log import Log
from firnline.log.producer_state import (
    ProducerStates,
    ProducerTable,
    latest_snapshot,
    snapshot_path,
    write_snapshot_file,
)
from firnline.log.segment import IndexRules, Segment, index_rules
from firnline.log.segments import Segments, note_producer, remove_durably
from firnline.records.batch import BatchHeader, crc_is_right


@dataclass(slots=True)
class RecoveryReport:
    """What recovery did when it opened a log."""

    was_clean: bool = True
    segments_scanned: int = 0
    bytes_cut: int = 0
    segments_dropped: int = 0
    given_up_to: int = NO_OFFSET  # the log ended here, below its log start offset, and was emptied


class _Contradiction(Exception):
    """A batch, or a segment, begins at `offset`, below the end of the batch before it."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


T = TypeVar("T")
# Yields None after each slice of some milliseconds, and a Wait for each operation that waits for disk. Its
# error is thrown into the generator.
OpenSteps = Generator[Wait | None, None, T]
# Names of a directory, and segments with their files, in one slice.
_NAMES_PER_SLICE = 1_000
_SEGMENTS_PER_SLICE = 32
# To write the indexes of a scanned segment takes as long as to read so many bytes.
_FINISH_BYTES = 256 * KIB
# Segments that one sync covers.
_SYNCED_AT_ONCE = 16


def open_log(*args: Any, **options: Any) -> Log:
    """Run `opening_steps` to the end, blocking."""
    return at_once(opening_steps(*args, **options))


def at_once(steps: Generator[At | Wait | None, None, T]) -> T:
    """Run all steps, blocking where they wait; return their result."""
    problem: StorageError | None = None
    while True:
        try:
            wait = next(steps) if problem is None else steps.throw(problem)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        problem = None
        if isinstance(wait, Wait):
            try:
                wait.at_once()
            except StorageError as said:
                problem = said


def making_steps(fs: Fs, path: str, topic_id: Uuid, base_offset: int) -> OpenSteps[None]:
    """Create the directory of a new log and its empty files, off the event loop.

    To create a file changes the journal of the file system, which may wait for the disk.
    """

    def make() -> None:
        fs.make_dir(path)
        place_partition_metadata(fs, path, topic_id).close()
        for suffix in (names.LOG, names.INDEX, names.TIME_INDEX):
            fs.open(f"{path}/{names.stem(base_offset)}{suffix}", create=True).close()

    try:
        yield off_loop(f"make {path}", make, path=path)
    except StorageError:
        # Retry on the event loop, which can free descriptors; any other error occurs again here.
        fs.make_dir(path)


def opening_steps(
    fs: Fs,
    path: str,
    topic_partition: TopicPartition,
    *,
    topic_id: Uuid,
    config: TopicConfig,
    now_ms: int,
    was_clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    before_truncation: Callable[[], None] | None = None,
    producers: ProducerTable | None = None,
    first_dirty_offset: int = NO_OFFSET,
    is_recovery_point_known: bool = True,
    is_new: bool = False,
) -> OpenSteps[Log]:
    """Open the log in directory `path`, which is created if it is missing; the report is `log.recovery`.

    Yields after each slice, and returns the log. Nobody else uses the directory meanwhile.

    The three offsets are those of the checkpoints in the log directory, 0 without one. StorageError when the
    log is damaged below its recovery point or cannot be read.

    producers                bounds the producers of all partitions of the node; None: of this log only
    first_dirty_offset       that of the cleaner's checkpoint; -1: this log and its leader's are not compacted
    is_recovery_point_known  False when the recovery point checkpoint of the log directory is lost
    is_new                   the files may have been created a moment ago and not be synced
    """
    if not fs.exists(path):
        fs.make_dir(path)
    has_gaps = first_dirty_offset >= 0 or "compact" in config.cleanup_policy
    table = producers or ProducerTable(PARTITION_PRODUCERS_MAX)
    rules = index_rules(config)
    opening = _Opening(fs, path, rules, now_ms, was_clean, recovery_point, has_gaps, table)
    opening.is_new = is_new
    if first_dirty_offset >= 0:
        # Compaction ends below the recovery point, but a killed Kafka may have left an older one on disk.
        opening.gaps_upto = max(recovery_point, first_dirty_offset)
        if not is_recovery_point_known:
            opening.gaps_upto = INT64_MAX
    log = yield from opening.log(
        topic_partition,
        topic_id,
        config,
        log_start_offset,
        high_watermark,
        before_truncation,
    )
    log.compaction.found(first_dirty_offset)
    log.producers.expire(table.aging.time_ms(now_ms), table.expiration_ms)
    log.producers.on_high_watermark(log.high_watermark)
    return log


class _Opening:
    """The state of one `open_log`."""

    def __init__(
        self,
        fs: Fs,
        path: str,
        rules: IndexRules,
        now_ms: int,
        was_clean: bool,
        recovery_point: int,
        has_gaps: bool,
        producers: ProducerTable,
    ) -> None:
        self.fs = fs
        self.path = path
        self.rules = rules
        self.now_ms = now_ms
        self.was_clean = was_clean
        self.recovery_point = recovery_point
        self.has_gaps = has_gaps
        self.gaps_upto = recovery_point  # up to here there may be gaps between segments
        self.upto = INT64_MAX  # batches that end above it contradict others
        self.kept_epochs: Epochs = ()  # of the checkpoint: below the recovery point no batch has another
        self.report = RecoveryReport(was_clean)
        self.epochs = LeaderEpochs(fs, f"{path}/{LEADER_EPOCHS}")
        self.producers = ProducerStates(producers)
        self.unsynced: list[Segment] = []
        self.is_changed = self.is_new = False
        self.may_have_gaps = has_gaps  # or a batch began above the end of the batch before it
        self.found: dict[str, None] = {}  # the names in the directory before anything is opened
        self.snapshots: dict[int, None] = {}  # offsets of the existing producer snapshots
        self.snapshot_offset = NO_OFFSET
        self.pace = SliceBudget()

    def log(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: TopicConfig,
        log_start_offset: int,
        high_watermark: int,
        before_truncation: Callable[[], None] | None,
    ) -> OpenSteps[Log]:
        yield from self.list()
        if (yield from finish_renames(self.fs, self.path, self.found)):
            self.is_changed = True
            yield from self.list()
        segments = yield from self.segments(log_start_offset)
        end = yield from self.end_offset(segments)
        if end < log_start_offset:
            if end > segments.first_base_offset:
                self.report.given_up_to = end
            end = log_start_offset
            yield from self.start_over(segments, end)
        self.epochs.truncate_from_end(end)
        # A log with records was served, so its files were synced before.
        self.is_changed |= self.is_new and end == segments.first_base_offset
        is_tiered = retention.is_tiered(topic_partition.topic, config)
        is_empty = end == segments.first_base_offset and not (is_tiered and log_start_offset < end)
        if is_empty and not self.was_clean and topic_id != METADATA_TOPIC_ID:
            # No batch records the epoch of the log start, and the checkpoint may be outdated: with an epoch
            # that ended earlier, the leader would have this log truncated below its start.
            self.epochs.truncate_from_end(0)
        log = Log(
            self.fs,
            self.path,
            topic_partition,
            topic_id=topic_id,
            config=config,
            segments=segments,
            epochs=self.epochs,
            producers=self.producers,
            log_end_offset=end,
            recovery_point=end if self.was_clean else min(self.recovery_point, end),
            before_truncation=before_truncation,
        )
        log.recovered(
            self.report,
            self.unsynced,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            snapshot_offset=self.snapshot_offset,
            is_as_closed=self.was_clean and not self.is_changed,
        )
        return log

    def list(self) -> OpenSteps[None]:
        """Read the names in the directory."""
        self.found = {}
        for count, name in enumerate(self.fs.names(self.path), 1):
            self.found[name] = None
            if count % _NAMES_PER_SLICE == 0:
                yield None

    def segments(self, log_start_offset: int) -> OpenSteps[Segments]:
        """Find the files of the segments; remove indexes without a file of batches."""
        files: list[tuple[int, str]] = []
        bases: dict[int, None] = {}
        for count, name in enumerate(self.found, 1):
            pair = names.parse_segment_file(name)
            if pair is not None and pair[1] == names.SNAPSHOT:
                self.snapshots[pair[0]] = None
            elif pair is not None:
                files.append(pair)
                if pair[1] == names.LOG:
                    bases[pair[0]] = None
            if count % _NAMES_PER_SLICE == 0:
                yield None
        for base, suffix in files:
            if base not in bases:
                self.fs.remove(f"{self.path}/{names.stem(base)}{suffix}")
                self.is_changed = True
                yield None
        # A snapshot goes after all other files of its segment: a crash may have left it alone.
        first = min(bases, default=0)
        for offset in [each for each in sorted(self.snapshots) if each < first]:
            self.fs.remove(snapshot_path(self.path, offset))
            del self.snapshots[offset]
            yield None
        loaded = []
        for count, base in enumerate(sorted(bases), 1):
            is_last = count == len(bases)
            loaded.append(
                Segment.load(
                    self.fs,
                    self.path,
                    base,
                    rules=self.rules,
                    now_ms=self.now_ms,
                    keeps_open=is_last,
                )
            )
            if count % _SEGMENTS_PER_SLICE == 0:
                yield None
        if not loaded:
            loaded = [self.new_segment(log_start_offset)]
        return Segments([*loaded[:1], *filter(self.is_of_the_log, loaded[1:-1]), *loaded[1:][-1:]])

    def is_of_the_log(self, segment: Segment) -> bool:
        """False, and the segment is removed, if it is empty without an index: a power cut undid its removal.

        A segment that Kafka's compaction emptied has an index and stays.
        """
        if segment.size_bytes or f"{names.stem(segment.base_offset)}{names.INDEX}" in self.found:
            return True
        segment.remove()
        self.is_changed = True
        return False

    def new_segment(self, base_offset: int) -> Segment:
        self.is_changed = True
        return Segment.create(self.fs, self.path, base_offset, rules=self.rules, now_ms=self.now_ms)

    def end_offset(self, segments: Segments) -> OpenSteps[int]:
        """Recover what is needed and make the last segment the active one; return the log end."""
        first_bad = yield from self.first_to_scan(segments)
        if self.epochs.is_damaged or (not self.epochs.entries() and segments.active.size_bytes):
            yield from self.rebuild_epochs(segments)
        if first_bad is None:
            try:
                end = yield from segments.active.open_active()
                is_right = self.is_end_right(segments.active, end)
            except StorageError:
                is_right = False
            if not is_right:  # the shutdown was not clean for this log
                first_bad = segments.active
                self.was_clean = self.report.was_clean = False
        if first_bad is not None:
            return (yield from self.recover(segments, first_bad))
        self.is_changed |= segments.active.is_rebuilt
        yield from self.load_producers(segments, end)
        return end

    def is_end_right(self, active: Segment, end: int) -> bool:
        """Whether the log end that the headers give is right; if not, the segment is recovered.

        After a clean shutdown it is the recovery point. A header with another end may have a flipped bit:
        appends would then skip offsets, or assign them twice.
        """
        if end <= self.recovery_point:
            return end == self.recovery_point
        before, last = active.last_batch()
        if before < self.recovery_point:
            # The CRC does not cover a base offset, and in a log with gaps a batch may begin anywhere. But the
            # log once ended at the recovery point, so that must not be inside the last batch or the gap
            # before it.
            self.upto = self.recovery_point
            return False
        return last is None or crc_is_right(active.read_batch(last), last._replace(position=0))

    def first_to_scan(self, segments: Segments) -> OpenSteps[Segment | None]:
        """Return the oldest segment that has to be verified, None when there is none."""
        # Include the segment before the recovery point: an earlier recovery, or a failed write, may have
        # truncated it without a sync, and the truncated bytes are back.
        before = max(0, self.recovery_point - 1)
        wanted = None if self.was_clean else segments.from_offset(before)[0]
        for count, segment in enumerate(segments.all(), 1):
            if segment is wanted:
                break
            if count % _SEGMENTS_PER_SLICE == 0:
                yield None
            if not segment.txn_index.is_sane(segment.base_offset):
                self.was_clean = self.report.was_clean = False
                return segment
        return wanted

    def rebuild_epochs(self, segments: Segments) -> OpenSteps[None]:
        """Read the epochs from the batch headers of all segments; recovery adds the rest."""
        self.epochs.truncate_from_end(0)
        for segment in segments.all():
            try:
                for header in segment.headers():
                    self.note_epoch(header.leader_epoch, header.base_offset)
                    if self.pace.is_over(0):
                        yield None
            except StorageError as problem:
                if problem.facts.get("error") is not None:
                    raise  # the disk or the process cannot read the bytes now; they are not damaged
                break  # a torn write at the end, which recovery truncates
            segment.let_go()
        yield from self.write_epochs()
        self.is_changed = True

    def write_epochs(self) -> OpenSteps[None]:
        entries = self.epochs.entries()
        work = partial(self.epochs.replace_file, entries)
        yield off_loop(f"lineage of {self.path}", work, path=self.path)
        self.epochs.taken_over(entries)

    def note_epoch(self, epoch: int, offset: int) -> None:
        if epoch > self.epochs.latest_epoch:
            self.epochs.assign(epoch, offset)

    def load_producers(self, segments: Segments, end_offset: int) -> OpenSteps[None]:
        """Load the producer state up to `end_offset`: the newest snapshot and the headers after it."""
        latest = latest_snapshot(self.fs, self.path, self.snapshots, upto_offset=end_offset)
        self.snapshot_offset = latest[0] if latest else NO_OFFSET
        start = max(0, self.snapshot_offset)
        yield from self.producers.load_steps(latest[1] if latest else (), start)
        yield from segments.replay_steps(self.producers, end_offset)

    def remove_snapshots_after(self, offset: int) -> OpenSteps[None]:
        for found in [each for each in sorted(self.snapshots) if each > offset]:
            self.fs.remove(snapshot_path(self.path, found))
            del self.snapshots[found]
            yield None

    def recover(self, segments: Segments, first: Segment) -> OpenSteps[int]:
        """Verify and index every segment from `first` on; return the log end."""
        entries = self.kept_epochs = self.epochs.entries()
        while True:
            try:
                return (yield from self.verify(segments, first, entries))
            except _Contradiction as found:
                self.upto = found.offset

    def verify(self, segments: Segments, first: Segment, entries: Epochs) -> OpenSteps[int]:
        """Like `recover`. _Contradiction where the offsets of two batches overlap: either may be damaged.

        In a log with gaps a base offset that bit rot made too high shows only by the batch after it, because
        no CRC covers it. `recover` then tries again, and ends the log before both batches.

        entries  the epochs as read from the checkpoint, the same for every try
        """
        self.unsynced.clear()
        self.may_have_gaps = self.has_gaps
        yield from self.load_producers(segments, first.base_offset)
        end = first.base_offset
        # Later snapshots may be of batches that a truncation or the power cut removed; they are rewritten.
        yield from self.remove_snapshots_after(end)
        # `load_producers` has removed damaged ones.
        self.snapshots = {each: None for each in self.snapshots if each <= self.snapshot_offset}
        # Drop epochs from here on; those that have batches are added again.
        self.epochs.truncate_from_end(end)
        for segment in segments.from_offset(first.base_offset):
            if segment is not first:
                # A gap above `gaps_upto` means that the end of the segment before was lost: a new segment
                # begins at the log end, and compaction leaves gaps below the recovery point only. An empty
                # segment below the end had been removed, and a power cut undid that.
                is_stray = segment.base_offset < end and not segment.size_bytes
                if self.may_have_gaps and segment.base_offset < end and segment.size_bytes:
                    raise _Contradiction(segment.base_offset)
                is_gap = segment.base_offset != end and segment.base_offset > self.gaps_upto
                if is_stray or is_gap:
                    yield from self.drop_from(segments, segment.base_offset)
                    break
                end = segment.base_offset
                self.producers.end_offset = end
                write_snapshot_file(self.fs, self.path, end, self.producers.snapshot()).close()
                self.snapshots[end] = None
                if len(self.unsynced) >= _SYNCED_AT_ONCE:
                    yield from self.sync_recovered()
            end = yield from self.scan(segment, end)
            if segment.file_size() > segment.size_bytes:
                self.refuse_loss(segment, end)
                yield from self.drop_from(segments, segment.base_offset + 1)
                self.report.bytes_cut += segment.cut_damage()
                break
            segment.cut_damage()
            if segment is not segments.active:
                segment.finish()
                # Where checkpoints are lost, thousands of segments are recovered: none stays open.
                segment.release()
                self.unsynced.append(segment)
            if self.pace.is_over(_FINISH_BYTES):
                yield None
        yield from segments.active.open_active()
        self.unsynced = [segment for segment in self.unsynced if segment is not segments.active]
        if entries and entries[0][1] < end:
            # Batches before the checkpoint's first entry were below the log start offset, and stay so.
            self.epochs.truncate_from_start(entries[0][1])
        if self.epochs.entries() != entries:
            yield from self.write_epochs()
        self.snapshot_offset = max(self.snapshots, default=NO_OFFSET)
        return end

    def sync_recovered(self) -> OpenSteps[None]:
        """Sync the segments verified so far, with their snapshots: a list of all would take too long."""
        files = [file for segment in self.unsynced for file in segment.files_to_sync()]
        ends = [*(segment.base_offset for segment in self.unsynced[1:]), max(self.snapshots)]
        files += [PathSync(self.fs, snapshot_path(self.path, end)) for end in ends]
        yield off_loop(f"sync segments of {self.path}", partial(_sync, files), path=self.path)
        missing = [segment.syncs.missing_path for segment in self.unsynced]
        for path in filter(None, missing):
            raise StorageError("a file of a log disappeared before its sync", path=path)
        self.unsynced.clear()

    def scan(self, segment: Segment, expected: int) -> OpenSteps[int]:
        """Verify and index one segment up to its first damaged batch; return its end offset."""
        end = expected
        # A topic that is no longer compacted may still have gaps below its recovery point.
        gaps_upto = INT64_MAX if self.has_gaps else self.recovery_point
        for found in segment.recover(gaps_upto, self.upto):
            header = found.header
            self.may_have_gaps |= header.base_offset > end
            self.refuse_other_epoch(segment, header)
            self.note_epoch(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                note_producer(self.producers, segment, header, found.data)
            end = header.next_offset
            if self.pace.is_over(header.size_bytes):
                yield None
        after = segment.after_good() if self.may_have_gaps else None
        # A base offset below the segment's is wrong itself, and contradicts no other batch.
        if after is not None and segment.base_offset <= after.base_offset < end:
            raise _Contradiction(after.base_offset)
        self.producers.end_offset = end
        self.report.segments_scanned += 1
        return end

    def refuse_loss(self, segment: Segment, end: int) -> None:
        """Raise StorageError when the damage in `segment`, from `end` on, is below the recovery point."""
        if end < self.recovery_point:
            raise StorageError(
                "a log is damaged below its recovery point",
                path=segment.stem_path + names.LOG,
                offset=end,
                recovery_point=self.recovery_point,
                remedy=DAMAGE_REMEDY,
            )

    def refuse_other_epoch(self, segment: Segment, header: BatchHeader) -> None:
        """Raise StorageError when a synced batch has another leader epoch than the checkpoint has for it."""
        offset, epoch = header.base_offset, header.leader_epoch
        if offset >= self.recovery_point:
            return  # the checkpoint may be older than the batch
        slot = bisect_right(self.kept_epochs, offset, key=itemgetter(1)) - 1
        if slot >= 0 and self.kept_epochs[slot][0] != epoch:
            raise StorageError(
                "a log is damaged below its recovery point",
                path=segment.stem_path + names.LOG,
                offset=offset,
                epoch=epoch,
                epoch_of_checkpoint=self.kept_epochs[slot][0],
                remedy=DAMAGE_REMEDY,
            )

    def drop_from(self, segments: Segments, offset: int) -> OpenSteps[None]:
        """Remove the segments from `offset` on durably, before anything is written at these offsets."""
        gone = segments.drop_after(offset)
        if gone:
            self.report.segments_dropped += len(gone)
            work = partial(remove_durably, self.fs, self.path, gone)
            yield off_loop(f"drop segments of {self.path}", work, path=self.path)

    def start_over(self, segments: Segments, offset: int) -> OpenSteps[None]:
        """All local batches are below the log start offset: restart with an empty log there."""
        work = partial(remove_durably, self.fs, self.path, segments.all())
        yield off_loop(f"drop segments of {self.path}", work, path=self.path)
        segments.replace_all(self.new_segment(offset))
        yield from self.remove_snapshots_after(NO_OFFSET)
        self.snapshot_offset = NO_OFFSET
        self.producers.clear(offset)
        self.unsynced.clear()


def _sync(files: Sequence[File]) -> None:
    """Sync `files`; runs on a thread."""
    for file in files:
        file.sync()


def recovery_warnings(log: Log) -> Effects:
    """Return warnings about records that recovery dropped from a log."""
    found = log.recovery
    if not isinstance(found, RecoveryReport):
        return []
    if found.given_up_to != NO_OFFSET:
        return [
            LOG_BEGINS_EMPTY(
                **log.topic_partition._asdict(),
                log_start_offset=log.log_end_offset,
                files_end_offset=found.given_up_to,
            )
        ]
    if not (found.bytes_cut or found.segments_dropped):
        return []
    return [
        LOG_CUT(
            **log.topic_partition._asdict(),
            end_offset=log.log_end_offset,
            bytes_cut=found.bytes_cut,
            segments_dropped=found.segments_dropped,
        )
    ]
