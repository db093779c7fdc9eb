"""Carry out one round of compaction: read a log's closed segments, write what survives beside them. STORE.

A round knows the last offset of each key from the first dirty offset on, as far as its table holds them,
and goes over the whole log below that place, a group of segments at a time. Each group becomes one segment
under the name of its first one, `.cleaned`, with its indexes, all synced. Whoever runs the round swaps it in
before the next group is begun: what lies lower is always as new as what lies above it, so that a crash
between two groups brings no deleted key back. Nothing here changes a file that is part of the log.
Source: KIP-58, KIP-534.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from firnline.base.effects import Compact
from firnline.base.errors import StorageError
from firnline.base.native import native
from firnline.base.ports import Buffer, File, Fs
from firnline.base.units import INT32_MAX
from firnline.formats import names
from firnline.formats.offset_index import ENTRY_BYTES as INDEX_ENTRY_BYTES
from firnline.formats.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from firnline.formats.transaction_index import AbortedTxn
from firnline.log.compaction.cleaner import (
    BatchCleaner,
    LastBatch,
    body_of,
    control_kind,
    damaged,
    map_body,
)
from firnline.log.compaction.offset_map import SLOT_BYTES, OffsetMap
from firnline.log.compaction.transactions import CleanedTransactions
from firnline.log.compaction.walk import CHUNK_BYTES, SegmentWalk
from firnline.log.indexes import OffsetIndex, TimeIndex
from firnline.log.transaction_index import TransactionIndex
from firnline.records.batch import BatchHeader

# A swap changes some names for each segment of a group, on the loop: a millisecond or two.
GROUP_SEGMENTS_MAX = 50


class SegmentToClean(NamedTuple):
    """A closed segment; `end_offset` is exclusive: where the next one begins."""

    base_offset: int
    end_offset: int
    size_bytes: int


class CompactionJob(NamedTuple):
    """One round for one log: plain values, so that another process can do it.

    segments             every segment below `upto_offset`, oldest first
    later_bases          those from there on: their indexes say of transactions that began before
    first_dirty_offset   below it no key has two records
    upto_offset          the round goes no further: a segment begins here
    last_batches         (producer id, last offset or -1, producer epoch) of every producer that is known
    map_bytes            the table of keys takes no more
    load_factor          the part of it that may be used
    bytes_per_second     what the round may read and write
    """

    path: str
    segments: tuple[SegmentToClean, ...]
    later_bases: tuple[int, ...]
    first_dirty_offset: int
    upto_offset: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    now_ms: int
    last_batches: tuple[tuple[int, int, int], ...]
    map_bytes: int
    load_factor: float
    bytes_per_second: float
    secret: bytes


class CleanedGroup(NamedTuple):
    """Segments that one new one stands for. Its files are synced, and named `.cleaned`."""

    bases: tuple[int, ...]  # of the old ones, oldest first
    size_bytes: int  # of the new one


class RoundDone(NamedTuple):
    """What a round did. Records and bytes; `map_use` is the used part of the table, 0 to 1."""

    first_dirty_offset: int  # of the next round
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    map_use: float


Compaction = Compact[CompactionJob, CleanedGroup, RoundDone]
Throttle = Callable[[int], None]
Round = Generator[CleanedGroup, None, RoundDone]


def compact(fs: Fs, job: CompactionJob, pace: Throttle = lambda size_bytes: None) -> Round:
    """Do one round: yield each group when its files are synced, return what was done.

    pace  is told of bytes that were read or written, and may wait

    StorageError when a segment is damaged or the disk fails; the groups that were yielded stand. The next
    group is not begun before the last one was swapped in; whoever gives up closes the generator.
    """
    if not job.segments:
        return RoundDone(job.first_dirty_offset, 0, 0, 0, 0, 0.0)
    remove_leftovers(fs, job.path)
    aborted = _aborted(fs, job)
    offsets = _mapped(fs, job, aborted, pace)
    end_offset = max(offsets.latest_offset + 1, job.first_dirty_offset)
    if end_offset == job.first_dirty_offset < job.upto_offset:
        raise StorageError(
            "the keys of one batch do not fit into the compaction's table",
            path=job.path,
            offset=end_offset,
            remedy="raise log.cleaner.dedupe.buffer.size or lower log.cleaner.threads",
        )
    cleaner = BatchCleaner(
        offsets,
        CleanedTransactions(aborted),
        last_batches={pid: LastBatch(offset, epoch) for pid, offset, epoch in job.last_batches},
        upto_offset=job.upto_offset,
        now_ms=job.now_ms,
        delete_retention_ms=job.delete_retention_ms,
    )
    bytes_read = bytes_written = 0
    wanted = [segment for segment in job.segments if segment.base_offset < end_offset]
    for group in grouped(fs, job, wanted):
        size_bytes = _clean(fs, job, group, cleaner, pace)
        bytes_read += sum(segment.size_bytes for segment in group)
        bytes_written += size_bytes
        yield CleanedGroup(tuple(segment.base_offset for segment in group), size_bytes)
    return RoundDone(
        end_offset,
        bytes_read,
        bytes_written,
        cleaner.records_read,
        cleaner.records_kept,
        offsets.count / offsets.slots,
    )


def remove_leftovers(fs: Fs, path: str) -> None:
    """Remove what a round that was given up had begun to write.

    To a start it says that no swap above it was decided. After a swap that failed half-way it stays:
    the next start needs it to undo that swap.
    """
    found = fs.list_dir(path)
    if any(name.endswith(names.SWAP) for name in found):
        return
    for name in found:
        if name.endswith(names.CLEANED):
            fs.remove(f"{path}/{name}")


def grouped(
    fs: Fs, job: CompactionJob, segments: Sequence[SegmentToClean]
) -> list[list[SegmentToClean]]:
    """Put neighbours together as long as they fit one segment, its indexes, and 31 bits of offsets."""
    groups: list[list[SegmentToClean]] = []
    room = room_index = room_times = -1
    for segment in segments:
        index, times = _index_sizes(fs, job.path, segment.base_offset)
        room, room_index = room - segment.size_bytes, room_index - index
        room_times -= times
        fits = groups and min(room, room_index, room_times) >= 0
        fits = fits and len(groups[-1]) < GROUP_SEGMENTS_MAX
        if fits and segment.end_offset - 1 - groups[-1][0].base_offset <= INT32_MAX:
            groups[-1].append(segment)
            continue
        groups.append([segment])
        room = job.segment_bytes - segment.size_bytes
        room_index = job.segment_index_bytes - index
        room_times = job.segment_index_bytes - times
    return groups


def _index_sizes(fs: Fs, path: str, base_offset: int) -> tuple[int, int]:
    """Bytes of whole entries in the offset and the time index of a segment."""
    sizes = []
    for suffix, entry in (
        (names.INDEX, INDEX_ENTRY_BYTES),
        (names.TIME_INDEX, TIME_ENTRY_BYTES),
    ):
        place = f"{path}/{names.stem(base_offset)}{suffix}"
        size = 0
        if fs.exists(place):
            file = fs.open(place)
            size = file.size() // entry * entry
            file.close()
        sizes.append(size)
    return sizes[0], sizes[1]


def _aborted(fs: Fs, job: CompactionJob) -> list[AbortedTxn]:
    """Every aborted transaction with a record below the end of the round."""
    found: list[AbortedTxn] = []
    for base in (*(segment.base_offset for segment in job.segments), *job.later_bases):
        index = TransactionIndex(fs, f"{job.path}/{names.stem(base)}{names.TXN_INDEX}")
        if index.collect(0, job.upto_offset, found):
            break
    return found


def slots_for(job: CompactionJob) -> int:
    """As many slots as the round can need, and no more than it may have."""
    wanted = int((job.upto_offset - job.first_dirty_offset) / job.load_factor) + 2
    return max(2, min(wanted, job.map_bytes // SLOT_BYTES))


def _mapped(fs: Fs, job: CompactionJob, aborted: list[AbortedTxn], pace: Throttle) -> OffsetMap:
    """Build the table of the last offsets from the first dirty offset on."""
    offsets = OffsetMap(slots_for(job), job.secret)
    keys_max = min(int(offsets.slots * job.load_factor), offsets.slots - 1)
    transactions = CleanedTransactions(
        txn for txn in aborted if txn.last_offset >= job.first_dirty_offset
    )
    mapper = _Mapper(offsets, transactions, job.first_dirty_offset, keys_max)
    for segment in job.segments:
        if segment.end_offset <= job.first_dirty_offset:
            continue
        with closing(_walk(fs, job.path, segment)) as walk:
            while walk.has_more():
                begun = walk.position
                if mapper.many(walk) or (walk.position == begun and mapper.one(walk)):
                    return offsets
                pace(walk.position - begun)
        offsets.latest_offset = segment.end_offset - 1
    return offsets


class _Mapper:
    """Puts keys into the table. Its methods return True when that is full."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        start_offset: int,
        keys_max: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._start_offset = start_offset
        self._keys_max = keys_max

    def many(self, walk: SegmentWalk) -> bool:
        """Pass the batches that need no decision, as many as follow one another; none without native code."""
        if native is None:
            return False
        offsets = self._offsets
        at, expected, epoch, offsets.count, offsets.latest_offset, is_full = native.map_batches(
            walk.chunk,
            walk.at,
            walk.expected,
            walk.epoch,
            walk.end_offset,
            offsets.table,
            offsets.secret,
            offsets.count,
            offsets.latest_offset,
            self._start_offset,
            self._keys_max,
        )
        walk.moved(at, expected, epoch)
        return bool(is_full)

    def one(self, walk: SegmentWalk) -> bool:
        """Pass one batch, whatever it is."""
        header, data = walk.take()
        if header.last_offset < self._start_offset:
            return False
        if header.is_control:
            self._transactions.is_spent(header, control_kind(walk.path, header, data))
        elif not self._transactions.is_aborted(header):
            done = map_body(
                body_of(walk.path, header, data),
                header.record_count,
                header.base_offset,
                header.last_offset_delta,
                self._offsets,
                self._start_offset,
                self._keys_max,
            )
            if done < 0:
                damaged(walk.path, header, "its records are not what its header says")
            if not done:
                return True
        self._offsets.latest_offset = header.last_offset
        return False


def _log_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{names.stem(base_offset)}{names.LOG}"


def _walk(fs: Fs, directory: str, segment: SegmentToClean) -> SegmentWalk:
    path = _log_path(directory, segment.base_offset)
    return SegmentWalk(fs, path, segment.base_offset, segment.end_offset, segment.size_bytes)


def _clean(
    fs: Fs,
    job: CompactionJob,
    group: Sequence[SegmentToClean],
    cleaner: BatchCleaner,
    pace: Throttle,
) -> int:
    """Write what survives of a group, and sync it; return the bytes of the new segment."""
    new = _CleanedSegment(fs, job, group[0].base_offset)
    try:
        for segment in group:
            with closing(_walk(fs, job.path, segment)) as walk:
                while walk.has_more():
                    position, size = walk.position, new.size_bytes
                    new.append_many(walk, cleaner)
                    if walk.position == position:
                        header, data = walk.take()
                        kept = cleaner.clean(walk.path, header, data)
                        if kept is not None:
                            new.append(kept, header, cleaner.max_time_ms)
                    pace(walk.position - position + new.size_bytes - size)
        modified_ms = fs.modified_ms(_log_path(job.path, group[-1].base_offset))
        new.finish(cleaner.transactions.kept, modified_ms)
        cleaner.transactions.kept = []
    except BaseException:
        new.remove()
        raise
    return new.size_bytes


class _CleanedSegment:
    """A segment that is being written under its names to come, with `.cleaned` behind them."""

    def __init__(self, fs: Fs, job: CompactionJob, base_offset: int) -> None:
        self._fs = fs
        self._stem = f"{job.path}/{names.stem(base_offset)}"
        self._interval_bytes = job.index_interval_bytes
        self._has_old_txns = fs.exists(self._stem + names.TXN_INDEX)
        self.remove()
        self._file: File = fs.open(self._path(names.LOG), create=True)
        self._index = OffsetIndex(fs, self._path(names.INDEX), base_offset)
        self._times = TimeIndex(fs, self._path(names.TIME_INDEX), base_offset)
        # What is written with one call: at least the chunk of a walk has room after it.
        self._waiting = memoryview(bytearray(2 * CHUNK_BYTES))
        self._waiting_bytes = 0
        self._unindexed_bytes = 0
        self._max_time_ms = -1
        self._max_time_offset = base_offset
        self.size_bytes = 0

    def _path(self, suffix: str) -> str:
        return self._stem + suffix + names.CLEANED

    def append(self, data: Buffer, header: BatchHeader, max_time_ms: int) -> None:
        """Write one batch; index it when it is time, as `Segment.note` does."""
        if max_time_ms > self._max_time_ms:
            self._max_time_ms, self._max_time_offset = max_time_ms, header.last_offset
        if self._unindexed_bytes > self._interval_bytes:
            self._index.add(header.last_offset, self.size_bytes)
            self._times.maybe_add(self._max_time_ms, self._max_time_offset)
            self._unindexed_bytes = 0
        self._unindexed_bytes += len(data)
        self.size_bytes += len(data)
        self._make_room(len(data))
        if len(data) > len(self._waiting):
            self._file.append(data)
            return
        end = self._waiting_bytes + len(data)
        self._waiting[self._waiting_bytes : end] = data
        self._waiting_bytes = end

    def append_many(self, walk: SegmentWalk, cleaner: BatchCleaner) -> None:
        """Write what survives of the batches that need no decision, as many as follow one another."""
        if native is None:
            return
        self._make_room(CHUNK_BYTES)
        found = native.filter_batches(
            walk.chunk,
            walk.at,
            walk.expected,
            walk.epoch,
            walk.end_offset,
            cleaner.offsets.table,
            cleaner.offsets.secret,
            cleaner.offsets.latest_offset,
            cleaner.now_ms,
            cleaner.upto_offset,
            cleaner.last_offsets,
            self._waiting,
            self._waiting_bytes,
            self.size_bytes,
            self._unindexed_bytes,
            self._interval_bytes,
            self._max_time_ms,
            self._max_time_offset,
        )
        at, expected, epoch, written_bytes, entries, self._unindexed_bytes, *rest = found
        self._max_time_ms, self._max_time_offset, read, kept = rest
        for last_offset, position, time_ms, time_offset in entries:
            self._index.add(last_offset, position)
            self._times.maybe_add(time_ms, time_offset)
        cleaner.records_read += read
        cleaner.records_kept += kept
        walk.moved(at, expected, epoch)
        self._waiting_bytes += written_bytes
        self.size_bytes += written_bytes

    def _make_room(self, size_bytes: int) -> None:
        """Write what waits where so many bytes do not fit behind it."""
        if self._waiting_bytes + size_bytes > len(self._waiting):
            self._write()

    def _write(self) -> None:
        if self._waiting_bytes:
            self._file.append(self._waiting[: self._waiting_bytes])
        self._waiting_bytes = 0

    def finish(self, aborted: Sequence[AbortedTxn], modified_ms: int) -> None:
        """Write and sync everything."""
        self._write()
        self._times.maybe_add(self._max_time_ms, self._max_time_offset)
        files = [self._file, self._index.open_written(), self._times.open_written()]
        if aborted or self._has_old_txns:
            # An empty one stands in for that of the old segment, wherever a crash stops the swap.
            self._fs.open(self._path(names.TXN_INDEX), create=True).close()
            index = TransactionIndex(self._fs, self._path(names.TXN_INDEX))
            for txn in aborted:
                index.add(txn)
            index.write()  # what `add` kept back on a full disk is not left out
            files.append(self._fs.open(self._path(names.TXN_INDEX)))
        # What has no timestamp is as old as its file.
        self._fs.set_modified_ms(self._path(names.LOG), modified_ms)
        for file in files:
            file.sync()
            file.close()

    def remove(self) -> None:
        """Take it back: nothing knows of it yet."""
        for suffix in names.SEGMENT_SUFFIXES:
            self._fs.remove(self._path(suffix))


def job_from(fields: dict[str, Any]) -> CompactionJob:
    """Return a job from what `fields_of` made of it."""
    return CompactionJob(
        **{
            **fields,
            "segments": tuple(SegmentToClean(*segment) for segment in fields["segments"]),
            "later_bases": tuple(fields["later_bases"]),
            "last_batches": tuple(tuple(row) for row in fields["last_batches"]),
            "secret": bytes.fromhex(fields["secret"]),
        }
    )


def fields_of(job: CompactionJob) -> dict[str, Any]:
    """Return the job as JSON can say it."""
    return {**job._asdict(), "secret": job.secret.hex()}
