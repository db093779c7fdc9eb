"""One partition's log: append, read, truncate; its start, end, high watermark and last stable offset. STORE.

The hot path is `append_as_leader` with one batch of a client: validate its header, stamp it in place, write.
Only truncations sync by themselves (`log/truncation`). Else the caller syncs `dirty_files` with a Flush, then
calls `flushed` (rel-P4, rel-P5). Source: spec C13, T1-T5, T12-T16; KIP-98, KIP-101.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Literal

from firnline.base.counting.aging import NOT_DOUBTED, Aging
from firnline.base.effects import Appended, Effects
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import NO_EPOCH, NO_OFFSET, TopicPartition, Uuid
from firnline.base.ports import Buffer, File, Fs
from firnline.base.revocable import revoke
from firnline.base.slices import FileRecords, FileSlice
from firnline.base.units import INT32_MAX
from firnline.config.topic import TopicConfig
from firnline.formats import names
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.formats.producer_snapshot import SnapshotEntry
from firnline.formats.transaction_index import AbortedTxn
from firnline.log import retention
from firnline.log.compaction.state import Compaction
from firnline.log.epochs import LeaderEpochs
from firnline.log.file_syncs import DirSync, PathSync
from firnline.log.producer_state import BatchMark, ProducerStates, write_snapshot_file
from firnline.log.segment import Segment
from firnline.log.segments import ClosedSegment, Run, Segments, WantIndex, note_producer
from firnline.log.settings import log_settings
from firnline.log.sync_ledger import SyncLedger
from firnline.log.truncation import CutTo, Kept, StartOver, Truncation
from firnline.records.batch import STAMP, BatchHeader, set_log_append_time, set_offset_and_epoch
from firnline.records.validate import (
    as_create_time,
    check_batches,
    check_fetched,
    check_limits,
    check_shape,
)

_new_tuple = tuple.__new__  # takes half the time of the class's own constructor
Origin = Literal["client", "coordinator"]
Fields = tuple[int, ...]  # of a BatchHeader


class Log:
    """One partition directory.

    Invariants: log_start_offset <= local_log_start_offset <= log_end_offset; recovery_point and
    high_watermark <= log_end_offset; every batch below it is valid. `recovery.open_log` opens it.
    """

    def __init__(
        self,
        fs: Fs,
        path: str,
        topic_partition: TopicPartition,
        *,
        topic_id: Uuid,
        config: TopicConfig,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        log_end_offset: int,
        recovery_point: int,
        before_truncation: Callable[[], None] | None = None,
    ) -> None:
        self._fs = fs
        self.path = path
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.epochs = epochs
        self.producers = producers
        self.log_end_offset = log_end_offset
        self.log_start_offset = self.local_log_start_offset = segments.first_base_offset
        self.high_watermark, self.highest_remote_offset, self.decided_start_offset = 0, NO_OFFSET, 0
        # Lowers the checkpoints on disk before a truncation: after a crash no checkpoint may claim bytes that
        # the truncation replaced (rel-P13).
        self.before_truncation = before_truncation
        self.keep_lowered: Callable[[Kept, int], Effects] | None = None  # the same, off the loop
        self.truncation: Truncation | None = None  # the one that runs off the loop
        self.is_half_cut = False  # a truncation failed half-way: the files do not match this state
        self._segments = segments
        self._ledger = SyncLedger(recovery_point, epochs)
        self._closed_at: tuple[int, int] | None = None  # end and dir changes at a clean close
        self._snapshot_offset = NO_OFFSET
        self.recovery: object = None  # recovery.RecoveryReport
        self.compaction = Compaction(self, fs, segments, self._ledger)
        self._latest_epoch = epochs.latest_epoch
        self.config = config

    def recovered(
        self,
        report: object,
        unsynced: list[Segment],
        *,
        log_start_offset: int,
        high_watermark: int,
        snapshot_offset: int,
        is_as_closed: bool,
    ) -> None:
        """Take over what recovery found: offsets from the checkpoints, segments that may not be synced (T5),
        the newest producer snapshot or -1, and whether all is synced and as a clean shutdown left it."""
        self.recovery = report
        self._ledger.unsynced = unsynced
        if is_as_closed:
            self._ledger.dir_changes = 0
            self._closed_at = self.log_end_offset, 0
        start = self.local_log_start_offset = max(log_start_offset, self.first_base_offset)
        self.log_start_offset = log_start_offset if self.is_tiered else start
        self.high_watermark = min(max(high_watermark, start), self.log_end_offset)
        self.epochs.truncate_from_start(self.log_start_offset)
        self._snapshot_offset = snapshot_offset

    # -- settings ----------------------------------------------------------------------------------

    @property
    def config(self) -> TopicConfig:
        return self.settings.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self.settings = log_settings(config, self.path)
        if self.settings.limits.is_compacted:
            self.compaction.expect_gaps()
        self._segments.active.rules = self.settings.index_rules

    @property
    def is_tiered(self) -> bool:
        """Whether the topic has remote storage enabled (T4), even on a broker without a remote tier."""
        return retention.is_tiered(self.topic_partition.topic, self.config)

    @property
    def recovery_point(self) -> int:
        """Every batch below it is durable: it survives a power cut (rel-P5)."""
        return self._ledger.recovery_point

    @property
    def recovery_start(self) -> int:
        """The recovery point for the checkpoint: below it the epoch checkpoint is durable, too (rel-P5)."""
        return min(self._ledger.recovery_point, self.epochs.unkept_from)

    @property
    def last_stable_offset(self) -> int:
        """The first offset of an open transaction, at most the high watermark: read_committed ends here."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def first_base_offset(self) -> int:
        """Base offset of the oldest local segment; the local log start offset can be above it."""
        return self._segments.first_base_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in the local segments."""
        return self.bytes_from(self.first_base_offset)

    def bytes_from(self, offset: int) -> int:
        """Bytes of batches in the segment that holds `offset`, and in all later ones."""
        return self._segments.bytes_from(offset)

    def bytes_beginning_at(self, offset: int) -> int:
        """Bytes of batches in the segments that begin at `offset` or after it."""
        return self._segments.bytes_beginning_at(offset)

    # -- append ------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        data: bytearray | memoryview,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = "client",
    ) -> Appended | KafkaError:
        """Append one batch of a producer, or complete batches that one of our coordinators built.

        The log stamps `data` in place: base offset, leader epoch, under LogAppendTime the time. It does not
        write a duplicate of one of the producer's last five batches, but returns the offsets of the first
        copy. A refusal is returned, with Kafka's code; StorageError means that the write failed and the log
        is unchanged. Source: spec C13; reliability d 31-44.
        """
        if origin != "client":
            return self._append_own(data, leader_epoch, now_ms)
        fields = check_shape(data, self.settings.limits)
        if type(fields) is KafkaError:
            return fields
        return self.append_checked(data, fields, leader_epoch, now_ms)  # type: ignore[arg-type]

    def append_checked(
        self, data: bytearray | memoryview, fields: Fields, leader_epoch: int, now_ms: int
    ) -> Appended | KafkaError:
        """As `append_as_leader`, a producer's batch whose shape and CRC the caller has checked.

        fields  those of its header
        """
        settings = self.settings
        if problem := check_limits(fields, data, settings.limits, now_ms):
            return problem
        _, length, _, _, _, attributes, delta, _, max_time, producer_id, _, _, _, _ = fields
        if (size := length + 12) != len(data):
            data = memoryview(data)[:size]
        if producer_id >= 0:
            verdict = self.producers.check(_new_tuple(BatchHeader, fields), is_client=True)
            if verdict is not None:
                return self._repeat(verdict) if isinstance(verdict, BatchMark) else verdict
        if size > settings.segment_bytes:
            return KafkaError(Code.RECORD_LIST_TOO_LARGE, "the batch exceeds segment.bytes")
        if leader_epoch != self._latest_epoch and (problem := self._fenced(leader_epoch)):
            return problem
        base_offset = self.log_end_offset
        STAMP.pack_into(data, 0, base_offset, length, leader_epoch)
        if settings.is_log_append_time:
            max_time = now_ms
            set_log_append_time(data, _new_tuple(BatchHeader, fields), now_ms)
        elif attributes & 8:
            as_create_time(data, _new_tuple(BatchHeader, fields))
        if leader_epoch != self._latest_epoch:
            self._assign_epoch(leader_epoch, base_offset)
        last_offset = base_offset + delta
        segment = self._segments.active
        if (
            segment.size_bytes + size > settings.segment_bytes
            or segment.waited_ms(now_ms, max_time) > settings.segment_ms
            or last_offset - segment.base_offset > INT32_MAX
            or segment.is_full
        ) and segment.size_bytes:
            segment = self._roll(None, now_ms)
        segment.note(segment.append(data), size, last_offset, max_time)
        self.log_end_offset = self.producers.end_offset = last_offset + 1
        if producer_id >= 0:
            self.producers.note_batch(_new_tuple(BatchHeader, fields), base_offset, max_time)
        time_ms = max_time if settings.is_log_append_time else -1
        return _new_tuple(Appended, (base_offset, last_offset, time_ms, self.log_start_offset))

    def _repeat(self, mark: BatchMark) -> Appended:
        first, last = mark.first_offset, mark.last_offset
        return Appended(first, last, mark.timestamp_ms, self.log_start_offset)

    def _append_own(
        self, data: bytearray | memoryview, leader_epoch: int, now_ms: int
    ) -> Appended | KafkaError:
        """Assign offsets to a coordinator's batches and append them; an oversize batch gets a segment."""
        found = check_batches(data, self.settings.limits)
        if isinstance(found, KafkaError):
            return found
        if problem := self._fenced(leader_epoch):
            return problem
        first_offset = offset = self.log_end_offset
        stamped: list[BatchHeader] = []
        for header in found:
            if problem := self.producers.check_own(data, header):
                return problem
            set_offset_and_epoch(data, header.position, offset, leader_epoch)
            header = header._replace(base_offset=offset, leader_epoch=leader_epoch)
            if self.settings.is_log_append_time:
                set_log_append_time(data, header, now_ms)
                header = header._replace(max_timestamp=now_ms)
            stamped.append(header)
            offset = header.next_offset
        self._write(data, stamped, now_ms)
        time_ms = now_ms if self.settings.is_log_append_time else -1
        return Appended(first_offset, offset - 1, time_ms, self.log_start_offset)

    def append_as_follower(
        self, data: bytearray | memoryview | bytes, *, leader_epoch: int, now_ms: int
    ) -> Appended | KafkaError:
        """Append complete batches that were fetched from the leader of `leader_epoch`; none is partial.

        Returns a KafkaError, and appends nothing, for bytes that no leader has: see `check_fetched`.
        """
        assert self.truncation is None, "a follower does not append during a truncation"
        found = check_fetched(data, self.log_end_offset, self._latest_epoch, leader_epoch)
        if isinstance(found, KafkaError):
            return found
        expected = self.log_end_offset
        for header in found:
            base = header.base_offset
            if base > expected and not self.compaction.takes_gap(expected, base):
                return KafkaError(Code.CORRUPT_MESSAGE, f"{expected} to {base - 1} are missing")
            expected = header.next_offset
        self._write(data, found, now_ms)
        first, last = found[0].base_offset, found[-1].last_offset
        return Appended(first, last, -1, self.log_start_offset)

    def _write(self, data: Buffer, found: list[BatchHeader], now_ms: int) -> None:
        """Write validated and stamped batches: one call for all that go into the same segment."""
        begin = 0
        while begin < len(found):
            segment = self._segments.active
            if segment.size_bytes and self._has_to_roll(segment, found[begin], now_ms):
                segment = self._roll(found[begin], now_ms)
            end, room = begin + 1, self.settings.segment_bytes - segment.size_bytes
            room -= found[begin].size_bytes
            while end < len(found) and found[end].size_bytes <= room:
                if not segment.may_hold(found[end].last_offset):
                    break
                room -= found[end].size_bytes
                end += 1
            self._write_run(data, segment, found[begin:end])
            begin = end

    def _has_to_roll(self, segment: Segment, header: BatchHeader, now_ms: int) -> bool:
        return (
            segment.size_bytes + header.size_bytes > self.settings.segment_bytes
            or segment.waited_ms(now_ms, header.max_timestamp) > self.settings.segment_ms
            or not segment.may_hold(header.last_offset)
            or segment.is_full
        )

    def _write_run(self, data: Buffer, segment: Segment, run: list[BatchHeader]) -> None:
        start, stop = run[0].position, run[-1].position + run[-1].size_bytes
        with memoryview(data) as view, view[start:stop] as part:
            position = segment.append(part)
        for header in run:
            # Only after the write: if a full disk refused a batch whose epoch is assigned already, the log
            # would refuse all batches of earlier epochs from then on.
            if header.leader_epoch != self._latest_epoch and header.leader_epoch >= 0:
                self._assign_epoch(header.leader_epoch, header.base_offset)
            at = position + header.position - start
            segment.note(at, header.size_bytes, header.last_offset, header.max_timestamp)
            self.log_end_offset = self.producers.end_offset = header.next_offset
            if header.producer_id >= 0:
                note_producer(self.producers, segment, header, data)

    def _fenced(self, leader_epoch: int) -> KafkaError | None:
        """Refuse an epoch below the latest one: along the log, epochs never decrease (rel-R11)."""
        if NO_EPOCH < leader_epoch < self._latest_epoch:
            return KafkaError(
                Code.FENCED_LEADER_EPOCH,
                "the log has batches of a newer leader epoch",
                epoch=leader_epoch,
                newest=self._latest_epoch,
            )
        return None

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch != NO_EPOCH:
            self.epochs.assign(epoch, start_offset)
            self._latest_epoch = self.epochs.latest_epoch

    # -- read --------------------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        *,
        max_bytes: int,
        upto_offset: int,
        min_one_batch: bool = True,
        may_wait: bool = False,
    ) -> FileRecords:
        """Return complete batches of the local segments, from the one that holds `start_offset` on.

        The caller checks local_log_start_offset <= start_offset <= log_end_offset. The first batch may begin
        before `start_offset`. `upto_offset` is exclusive. With `min_one_batch` the first batch is returned
        even if it is larger than `max_bytes` (KIP-74). Decodes and verifies nothing. Empty where nothing is
        readable yet. StorageError: a file is damaged. IndexDamaged, only with `may_wait`: its index is being
        rebuilt.
        """
        if upto_offset > self.log_end_offset:
            upto_offset = self.log_end_offset
        if start_offset >= upto_offset:
            return FileRecords(())
        return self._segments.read(
            start_offset,
            max_bytes=max_bytes,
            upto_offset=upto_offset,
            min_one_batch=min_one_batch,
            may_wait=may_wait,
        )

    def have_indexes_built(self, want: WantIndex | None) -> None:
        """Set who rebuilds damaged indexes while callers with `may_wait` wait; None: nobody, they block."""
        self._segments.want_index = want

    def slice_at_once(
        self, start_offset: int, max_bytes: int, upto_offset: int
    ) -> FileSlice | None:
        """Like `read`, if earlier appends and reads left both positions in memory; None: use `read`."""
        return self._segments.active.known_slice(start_offset, max_bytes, upto_offset)

    def read_batches(self, start_offset: int, *, max_bytes: int) -> bytes:
        """Return complete batches up to the log end as bytes, for coordinators and loaders."""
        return self.read(start_offset, max_bytes=max_bytes, upto_offset=self.log_end_offset).read()

    def time_steps(
        self, timestamp_ms: int, *, may_wait: bool = False
    ) -> Generator[None, None, tuple[int, int] | None]:
        """Return (offset, timestamp) of the first local record whose timestamp is at least that."""
        return self._segments.first_at_time_steps(self, timestamp_ms, may_wait=may_wait)

    def greatest_time_steps(
        self, *, may_wait: bool = False
    ) -> Generator[None, None, tuple[int, int] | None]:
        """Return (offset, timestamp) of the first local record with the greatest timestamp."""
        return self._segments.of_greatest_time_steps(self, may_wait=may_wait)

    def aborted_transactions(self, start_offset: int, upto_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records in [start, upto), in the order of their markers."""
        return self._segments.aborted(start_offset, upto_offset)

    # -- marks -------------------------------------------------------------------------------------

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`, at most to the log end; True when it moved."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark(offset)
        return True

    def advance_log_start(self, offset: int, *, is_decided: bool = True) -> bool:
        """Raise the log start offset, for DeleteRecords or to follow the leader's; True when it moved.

        It raises the local log start offset, too (T3); `delete_due_segments` deletes the files later. An
        offset found in a file is not decided. At most the high watermark, on a follower the log end.
        """
        assert offset <= self.log_end_offset, "the log start never passes the log end"
        if is_decided:
            self.decided_start_offset = max(self.decided_start_offset, offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        self.high_watermark = max(self.high_watermark, offset)
        self.epochs.truncate_from_start(offset)
        return True

    def set_highest_remote(self, offset: int) -> None:
        """Set the last offset in the remote tier, inclusive; -1 for none. It is never persisted (T1)."""
        self.highest_remote_offset = offset

    # -- segments ----------------------------------------------------------------------------------

    def closed_segments(self) -> Sequence[ClosedSegment]:
        """Return the closed segments, oldest first."""
        return self._segments.describe_closed(self.path)

    def closed_between(self, start_offset: int, end_offset: int) -> Run:
        """Return the closed segments from the one with `start_offset` on that end by `end_offset`."""
        return self._segments.closed_between(start_offset, end_offset)

    def roll(self, now_ms: int) -> bool:
        """Close the active segment and begin a new one at the log end; False when it is empty."""
        if not self._segments.active.size_bytes or self.truncation is not None:
            return False
        self._roll(None, now_ms)
        return True

    def _roll(self, header: BatchHeader | None, now_ms: int) -> Segment:
        """Begin a segment at the log end: recovery would take a gap between two segments for lost bytes.

        Only before a leader's batch that is more than 2^31 offsets above the log end it begins at that batch.
        """
        old, base_offset = self._segments.active, self.log_end_offset
        if header is not None and header.last_offset - base_offset > INT32_MAX:
            base_offset = header.base_offset
        new = Segment.create(
            self._fs, self.path, base_offset, rules=self.settings.index_rules, now_ms=now_ms
        )
        self._ledger.dir_changes += 1
        try:
            self._take_snapshot(base_offset).close()
            old.finish()
        except StorageError:
            new.remove()  # else the next recovery would take its base offset for the log end
            raise
        self._ledger.unsynced.append(old)
        self._segments.add(new)
        return new

    def _take_snapshot(self, offset: int) -> File:
        file = write_snapshot_file(self._fs, self.path, offset, self.producers.snapshot())
        self._snapshot_offset = offset
        return file

    def delete_due_segments(self, now_ms: int, aging: Aging = NOT_DOUBTED) -> Effects:
        """Apply retention: drop the segments that are due from the log, rename their files to `.deleted`.

        Returns the effects that remove these files after file.delete.delay.ms; empty where nothing was due.
        A tiered topic's local log start offset moves, that of any other topic is its log start offset (T16).
        """
        gone: list[str] = []
        age_ms = aging.time_ms(now_ms)
        self._segments.release_idle()
        if retention.removable_below(self) < self.local_log_start_offset:
            self.epochs.keep_start()  # then the next round removes the rest
        while self.truncation is None and len(gone) < retention.NAMES_AT_ONCE:
            try:
                decision = retention.decide(self._retention_view(), self.config, age_ms)
                if decision.segments:
                    gone += self._mark_deleted(decision.segments)
                if decision.roll_active:
                    self.roll(now_ms)
            except StorageError:
                if not gone:
                    raise
                break  # what was renamed must still be removed; the next call meets the error again
            if not (decision.roll_active or decision.segments):
                break
        effects = retention.removal(
            self._fs, gone, self.path, delay_ms=self.config.file_delete_delay_ms, now_ms=now_ms
        )
        again = partial(self.delete_due_segments, aging=aging)
        return effects + retention.next_step(self.path, again, len(gone), now_ms)

    def overdue(self, now_ms: int) -> retention.Overdue | None:
        """See `retention.overdue`."""
        view = self._retention_view()._replace(highest_remote_offset=self.highest_remote_offset)
        return retention.overdue(view, self.config, now_ms)

    def _retention_view(self) -> retention.LogView:
        return retention.LogView(
            self._segments.ages(self.log_end_offset),
            self.log_start_offset,
            retention.removable_below(self),
            self.high_watermark,
            # Batches that the epoch checkpoint does not cover yet stay: only they record their epoch.
            min(self.highest_remote_offset, self.epochs.unkept_from - 1),
            self.is_tiered,
            lambda: self.size_bytes,
        )

    def _mark_deleted(self, count: int) -> list[str]:
        """Drop the oldest `count` segments from the log and rename their files; return the new paths.

        StorageError when a rename failed. If the disk was full, the log is then unchanged.
        """
        paths = self._segments.first_files(self._fs, self.path, count)
        self._ledger.dir_changes += 1
        retention.rename_all(self._fs, [(path, path + names.DELETED) for path in paths])
        self._ledger.removed(self._segments.drop_first(count))
        first = self._segments.first_base_offset
        self.local_log_start_offset = max(self.local_log_start_offset, first)
        if not self.is_tiered:
            self.advance_log_start(max(first, self.log_start_offset))
        return [path + names.DELETED for path in paths]

    # -- truncation --------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Run `truncation_to` to its end, blocking: for the metadata log."""
        truncation = self.truncation_to(offset)
        if truncation is not None:
            truncation.at_once()

    def truncation_to(self, offset: int) -> Truncation | None:
        """Return the truncation that drops every batch whose last offset is at or above `offset`.

        A follower so returns to the leader's lineage. None where only the epoch cache has to change.
        """
        assert offset >= 0
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(offset)
            self._latest_epoch = self.epochs.latest_epoch
            return None
        if offset < self._segments.first_base_offset:
            # The remote segments below stay, and with them the log start offset and the lineage.
            start = min(self.log_start_offset, offset)
            lineage = self.epochs.entries() if start < offset else ()
            return self.beginning_at(offset, log_start_offset=start, lineage=lineage)
        cut = CutTo(self, self._fs, self._segments, self._ledger, offset)
        return Truncation(self, self._ledger, cut)

    def truncate_fully(self, offset: int, *, now_ms: int = 0, **what: Any) -> None:
        """Run `beginning_at` to its end, blocking."""
        self.beginning_at(offset, now_ms=now_ms, **what).at_once()

    def beginning_at(
        self,
        offset: int,
        *,
        log_start_offset: int | None = None,
        lineage: Epochs = (),
        producers: Iterable[SnapshotEntry] = (),
        now_ms: int = 0,
    ) -> Truncation:
        """Return the truncation that drops every batch and restarts at `offset`: see `StartOver`."""
        cut = StartOver(
            self,
            self._fs,
            self._segments,
            self._ledger,
            offset,
            log_start_offset=log_start_offset,
            lineage=lineage,
            producers=producers,
            now_ms=now_ms,
        )
        return Truncation(self, self._ledger, cut)

    def after_truncation(self, then: Callable[[int], Effects], now_ms: int) -> Effects:
        """Call `then(now_ms)` now, or after the truncation that is under way."""
        if self.truncation is None:
            return then(now_ms)
        self.truncation.when_done(then)
        return []

    def note_cut(self, end_offset: int, *, log_start_offset: int | None = None) -> None:
        """For a truncation: set the log end; with `log_start_offset` no local batch is left below it."""
        self.log_end_offset = end = end_offset
        self._snapshot_offset = min(self._snapshot_offset, end)
        if log_start_offset is not None:
            self.log_start_offset, self.local_log_start_offset = log_start_offset, end
            self._snapshot_offset = NO_OFFSET
        self.epochs.truncate_from_end(end)
        self._latest_epoch = self.epochs.latest_epoch
        self.high_watermark = min(self.high_watermark, end)
        self.log_start_offset = min(self.log_start_offset, end)
        self.local_log_start_offset = min(self.local_log_start_offset, end)
        self.highest_remote_offset = min(self.highest_remote_offset, end - 1)
        self.compaction.truncated_to(end)
        self._segments.active.rules = self.settings.index_rules
        if log_start_offset is not None:
            self.epochs.truncate_from_start(self.log_start_offset)
            self.high_watermark = max(self.high_watermark, self.log_start_offset)

    # -- durability --------------------------------------------------------------------------------

    @property
    def unsynced_segments(self) -> int:
        """How many closed segments are not synced yet."""
        return len(self._ledger.unsynced)

    def dirty_files(self) -> list[File]:
        """Return the files that must be synced, in any order, to make everything below the log end durable.

        After success call `flushed` with the present log end. Empty where all is synced.
        """
        ledger, active = self._ledger, self._segments.active
        has_news = self.log_end_offset > ledger.recovery_point and active.size_bytes > 0
        is_behind = self.epochs.is_behind(self.log_end_offset)
        if not (has_news or is_behind or ledger.unsynced or ledger.is_dir_dirty):
            return []
        if self.truncation is not None:
            return []  # the files are being truncated: the next call lists what remains
        files = active.data_to_sync() if has_news else []
        if ledger.unsynced:
            files += [file for segment in ledger.unsynced for file in segment.files_to_sync()]
            snapshots = self._segments.snapshots_after(ledger.unsynced, self.path)
            files += [PathSync(self._fs, path) for path in snapshots if self._fs.exists(path)]
        lineage = self.epochs.write_temporary() if is_behind else None
        files += [lineage] if lineage else []
        if ledger.is_dir_dirty:
            files.append(DirSync(self._fs, self.path))
        ledger.open_round(self.log_end_offset, lineage)
        return files

    def flushed(self, upto_offset: int) -> None:
        """The files that `dirty_files` returned when the log end was `upto_offset` are synced."""
        self._ledger.close_round(upto_offset)

    def sync_now(self) -> None:
        """Sync everything, blocking; StorageError when that failed. For `close` and for the metadata log."""
        while files := self.dirty_files():
            for file in files:
                file.sync()
            self.flushed(self.log_end_offset)

    def closing_files(self) -> list[File]:
        """Write what the next start needs; return the files to sync before `closed`. Appends are over.

        The log has no `dirty_files` left. Empty where nothing has changed since the last clean shutdown.
        """
        active, end = self._segments.active, self.log_end_offset
        if self.truncation is not None or self.is_half_cut:
            raise StorageError("a truncation is under way, or failed", path=self.path)
        if self._closed_at == (end, self._ledger.dir_changes):
            return []
        active.finish()
        files = active.files_to_sync() if active.size_bytes else []
        if self._snapshot_offset != end > self._segments.first_base_offset:
            files.append(self._take_snapshot(end))
        return [*files, DirSync(self._fs, self.path)] if files else []

    def closed(self) -> None:
        """The `closing_files` are synced: the next start needs no recovery (rel-P7)."""
        self._closed_at = self.log_end_offset, self._ledger.dir_changes
        for segment in self._segments.all():
            segment.let_go()

    def give_up(self) -> list[File]:
        """Stop serving the log: open no file any more, and return the open ones for the caller to close."""
        revoke(self._fs)
        return self._segments.give_up()

    def close(self) -> None:
        """Write and sync, blocking, what is not synced yet; then close."""
        self.sync_now()
        for file in self.closing_files():
            file.sync()
        self.closed()
