"""One segment: a file of batches, with its offset, time and transaction index. STORE.

The active segment's file is open and its indexes are in memory. Of a closed segment only the size is known;
the first read opens its file and its offset index and checks the entries it uses. An index that is missing,
or does not belong to the batches, raises `IndexDamaged`: it has to be rebuilt (reliability d 91).

A FileSlice shares the open file, which closes itself after its last slice. So a segment can be removed while
its bytes are on their way to a socket. A truncation first forbids every open handle to read beyond the new
end, so that truncated bytes are sent to nobody (docs/decisions/0017). Where descriptors are scarce, the file
of the active segment is closed, too, and opened again on its next use (0032).
"""

import weakref
from collections.abc import Callable, Generator, Iterator
from itertools import takewhile
from typing import NamedTuple, TypeVar

from firnline.base.background import SliceBudget
from firnline.base.cold_pages import ColdSteps, PagesCold, take
from firnline.base.errors import SegmentDamaged, StorageError
from firnline.base.ids import METADATA_TOPIC
from firnline.base.ports import Buffer, File, Fs
from firnline.base.slices import FileSlice
from firnline.base.units import INT32_MAX, INT64_MAX
from firnline.config.topic import TopicConfig
from firnline.formats import names, offset_index, time_index
from firnline.log.checkpoint import DAMAGE_REMEDY
from firnline.log.file_syncs import PathSync, PathSyncs
from firnline.log.indexes import OffsetIndex, TimeIndex
from firnline.log.sparse_index import EntriesDamaged, IndexDamaged
from firnline.log.transaction_index import TransactionIndex
from firnline.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, PEEK, BatchHeader, parse_header
from firnline.records.file_scan import FoundBatch, complete_batches, good_batches

_METADATA_DIR = f"/{METADATA_TOPIC}-0"
WALK_BYTES = 4096
_HINTS_MAX = 64
_ENTRIES_AT_ONCE = 1024  # of an index, written with one call: 0.1 ms
_new_tuple = tuple.__new__  # takes half the time of the class's own constructor
_UNKNOWN = -2
T = TypeVar("T")


class IndexRules(NamedTuple):
    """Bytes of batches between two index entries, and the maximum numbers of entries."""

    interval_bytes: int
    entries_max: int  # of the offset index
    time_entries_max: int


def index_rules(config: TopicConfig) -> IndexRules:
    """Return how segments of a topic are indexed."""
    size = config.segment_index_bytes
    return IndexRules(
        config.index_interval_bytes,
        size // offset_index.ENTRY_BYTES,
        size // time_index.ENTRY_BYTES - 1,  # the roll adds one more entry
    )


class FileCut(NamedTuple):
    """A file, and the size that it is to be truncated to if it is larger."""

    path: str
    size_bytes: int


class Segment:
    """Batches from `base_offset` on. Invariant after recovery: a batch ends at `size_bytes`."""

    __slots__ = (
        "__weakref__",
        "_batch_ends",
        "_directory",
        "_fs",
        "_hints",
        "_is_index_due",
        "_is_indexed",
        "_max_time_ms",
        "_max_time_offset",
        "_older_files",
        "_unindexed_bytes",
        "base_offset",
        "created_ms",
        "file",
        "first_time_ms",
        "index",
        "is_closed",
        "is_full",
        "is_rebuilt",
        "rules",
        "size_bytes",
        "stem_path",
        "syncs",
        "time_index",
        "txn_index",
    )

    def __init__(
        self, fs: Fs, directory: str, base_offset: int, *, rules: IndexRules, now_ms: int
    ) -> None:
        self._fs = fs
        self.base_offset = base_offset
        self._directory = directory
        self.stem_path = f"{directory}/{names.stem(base_offset)}"
        self.rules = rules
        self.created_ms = now_ms
        self.file: File | None = None
        self._older_files: tuple[weakref.ref[File], ...] = ()  # slices may still hold one
        self.syncs = PathSyncs(fs)  # of what cannot be built again
        self.size_bytes = 0
        self.is_closed = False
        self.is_rebuilt = False  # the indexes on disk were of no use
        self.index = OffsetIndex(fs, self.stem_path + names.INDEX, base_offset)
        self.time_index = TimeIndex(fs, self.stem_path + names.TIME_INDEX, base_offset)
        self.txn_index = TransactionIndex(fs, self.stem_path + names.TXN_INDEX)
        # An index is full (segment.index.bytes): the segment has to roll. One without room for an entry is
        # so from the start: each batch gets a segment of its own.
        self.is_full = self._is_index_full(0)
        self.first_time_ms = -1  # of the first batch, -1 when it has none or is not known yet
        self._max_time_ms, self._max_time_offset = -1, base_offset
        self._unindexed_bytes = 0
        self._is_indexed = False
        self._is_index_due = False  # enough entries wait: the next append writes them
        self._hints: dict[int, int] = {}  # offset -> where the batch that holds it begins
        self._batch_ends: dict[int, int] = {}  # position -> end of the last batch that ends by it

    @classmethod
    def create(
        cls, fs: Fs, directory: str, base_offset: int, *, rules: IndexRules, now_ms: int
    ) -> "Segment":
        """Create the file of a new, active segment; remove files of its names that a crash left.

        The index files are created when the first entries are written.
        """
        segment = cls(fs, directory, base_offset, rules=rules, now_ms=now_ms)
        file = fs.open(segment.stem_path + names.LOG, create=True)
        if file.size():
            file.truncate(0)
        segment._keep(file)
        for suffix in (names.INDEX, names.TIME_INDEX, names.TXN_INDEX):
            fs.remove(segment.stem_path + suffix)
        segment._is_indexed = True
        return segment

    @classmethod
    def load(
        cls,
        fs: Fs,
        directory: str,
        base_offset: int,
        *,
        rules: IndexRules,
        now_ms: int,
        size_bytes: int | None = None,
        keeps_open: bool = False,
    ) -> "Segment":
        """Take over the files of a closed segment. Reads only the size, if it is not given.

        keeps_open  the file stays open, because the segment is used next
        """
        segment = cls(fs, directory, base_offset, rules=rules, now_ms=now_ms)
        segment.size_bytes = segment._opened().size() if size_bytes is None else size_bytes
        if not keeps_open:
            segment.file = None  # no slice refers to it
        segment.is_closed = True
        segment._max_time_ms = _UNKNOWN
        return segment

    def _opened(self) -> File:
        return self.file or self._keep(self._fs.open(self.stem_path + names.LOG))

    def _keep(self, file: File) -> File:
        self.file = file
        # A node stops where it cannot open a file of the metadata log: that one stays open.
        if not self._directory.endswith(_METADATA_DIR):
            self._fs.keep(file, self.let_go)
        return file

    def let_go(self) -> None:
        """Drop the open file: it closes itself after its last slice."""
        if self.file is not None:
            older = [each for each in self._older_files if each() is not None]
            self._older_files = (*older, weakref.ref(self.file))
            self.file = None

    def cut_off(self, position: int) -> None:
        """Make slices that reach beyond `position` unreadable: the file is about to be truncated there."""
        self.let_go()
        for each in self._older_files:
            file = each()
            if file is not None:
                file.cut_off(position)

    # -- append ----------------------------------------------------------------------------------

    def append(self, data: Buffer) -> int:
        """Write complete batches with one call; return their position. Call `note` for each afterwards."""
        if self._is_index_due:
            self._is_index_due = False
            self.index.write_early()
            self.time_index.write_early()
        position = (self.file or self._opened()).append(data)
        if position != self.size_bytes:
            path = self.stem_path + names.LOG
            raise StorageError("another writer used this file", path=path, remedy="start again")
        return position

    def note(self, position: int, size_bytes: int, last_offset: int, max_time_ms: int) -> None:
        """Note one batch that was appended at `position`; add index entries where one is due."""
        if max_time_ms > self._max_time_ms:
            self._max_time_ms, self._max_time_offset = max_time_ms, last_offset
        if position == 0:
            self.first_time_ms = max_time_ms
        if self._unindexed_bytes > self.rules.interval_bytes:
            self.index.add(last_offset, position)
            self.time_index.maybe_add(self._max_time_ms, self._max_time_offset)
            self._unindexed_bytes = 0
            count = len(self.index)
            self.is_full = self._is_index_full(count)
            self._is_index_due |= count % _ENTRIES_AT_ONCE == 0
        self._unindexed_bytes += size_bytes
        self.size_bytes = end = position + size_bytes
        # A consumer at the end of the log reads from this offset next.
        hints = self._hints
        if len(hints) >= _HINTS_MAX:
            hints.clear()
        hints[last_offset + 1] = end

    def waited_ms(self, now_ms: int, time_ms: int) -> int:
        """How long the segment has been open: by the timestamps of its batches, else by our clock."""
        if self.first_time_ms >= 0:
            return time_ms - self.first_time_ms
        return now_ms - self.created_ms

    def _is_index_full(self, count: int) -> bool:
        """Whether an index is full; the offset index has `count` entries."""
        rules = self.rules
        return count >= rules.entries_max or len(self.time_index) >= rules.time_entries_max

    def may_hold(self, offset: int) -> bool:
        """True when `offset` minus the base offset fits into an int32."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def finish(self) -> None:
        """Close the segment: add its greatest timestamp to the time index and write the indexes."""
        self.time_index.maybe_add(self._max_time_ms, self._max_time_offset)
        self.index.write()
        self.time_index.write()
        self.txn_index.write()
        self.is_closed = True

    def release(self) -> None:
        """Free the memory and the descriptor of a closed segment until its next read."""
        assert self.is_closed
        self.index.forget()
        self.time_index.forget()
        self._forget_places()
        self._is_indexed = False
        self.let_go()

    def data_to_sync(self) -> list[File]:
        """Return the active segment's file of batches; its indexes can be rebuilt after a crash (rel-P8)."""
        return [self._opened()]

    def files_to_sync(self) -> list[File]:
        """Return every file of the segment: it counts as durable once all are synced (rel-P5)."""
        self.index.write()
        self.time_index.write()
        self.txn_index.write()
        # The sync of a closed segment must not leave its file open.
        found = [self.file or self.syncs.of(self.stem_path + names.LOG)]
        found += [PathSync(self._fs, each.path) for each in (self.index, self.time_index)]
        return found + ([self.syncs.of(self.txn_index.path)] if self.txn_index.entries else [])

    # -- read ------------------------------------------------------------------------------------

    def slice(self, position: int, end: int) -> FileSlice:
        """Return the bytes from `position` to `end` without reading them."""
        return _new_tuple(FileSlice, (self.file or self._opened(), position, end - position))

    def known_slice(self, offset: int, max_bytes: int, upto_offset: int) -> FileSlice | None:
        """Return complete batches from the one that holds `offset` up to `upto_offset` or `max_bytes`.

        None where their positions are not in memory, or the first batch is larger than `max_bytes`.
        """
        position, end = self._hints.get(offset), self._hints.get(upto_offset)
        if position is None or end is None or self.file is None:
            return None
        if end - position > max_bytes:
            end = self._batch_ends.get(position + max_bytes, -1)
        found = (self.file, position, end - position)
        return _new_tuple(FileSlice, found) if end > position else None

    def locate(self, offset: int) -> int:
        """Return the position of the first batch whose last offset is at or above `offset`.

        The size of the segment where there is none. IndexDamaged where the index is missing or wrong.
        """
        position = self._hints.get(offset, -1)
        if position >= 0 and (not self.is_closed or self._begins_at(position, offset)):
            return position
        self.ensure_indexed()
        position, _ = self.walk(self._indexed_place(offset), until_offset=offset)
        self._check_found(position)
        self.hint(offset, position)
        return position

    def _indexed_place(self, offset: int) -> int:
        """Return the position that the index gives for `offset`, after a check of the batch there.

        IndexDamaged where it is another batch: a read from there would skip records.
        """
        return self._sound(*self._ask(self.index.entry_for, offset))

    def _sound(self, position: int, last_offset: int) -> int:
        """Return `position` if the batch there has that last offset; else IndexDamaged."""
        if position:
            named = self._peek(position)
            if named is None or named[0] + named[2] != last_offset:
                raise IndexDamaged(self)
        return position

    def _begins_at(self, position: int, offset: int) -> bool:
        """Whether `offset` is still the base offset of the batch at `position`, or the segment ends there.

        The file may have been damaged since. `locate` then searches, and checks the batches around.
        """
        found = self._peek(position)
        return found is None or found[0] == offset

    def _check_found(self, position: int) -> None:
        """Check that the batch at `position` ends before the next one begins.

        A base offset is not covered by the batch's CRC. One that bit rot made greater looks like a gap that
        compaction left, or like the batch that is searched; but then the batch overlaps the next one.
        """
        found = self._peek(position)
        if found is None:
            return
        following = self._peek(position + found[1] + LOG_OVERHEAD_BYTES)
        if found[0] < self.base_offset or (following and following[0] <= found[0] + found[2]):
            raise self._damaged(position)

    def _peek(self, position: int) -> tuple[int, int, int] | None:
        """Return base offset, length and last offset delta of the batch at `position`; None at the end."""
        if self.size_bytes - position < HEADER_BYTES:
            return None
        data = take(self._fs, self._opened(), position, PEEK.size)
        found: tuple[int, int, int] = PEEK.unpack_from(data)
        return found

    def last_batch_end(self, position: int, limit: int) -> int:
        """Return the end of the last complete batch from `position` on that ends at or before `limit`.

        A batch begins at `position`; `limit` is at most the size of the segment.
        """
        known = self._batch_ends.get(limit, -1)
        if known >= 0:
            return known
        self.ensure_indexed()
        start = max(position, self._sound(*self._ask(self.index.entry_below, limit)))
        end, next_offset = self.walk(start, until_position=limit)
        if next_offset >= 0:
            self.hint(next_offset, end)
        # Consumers of other groups soon read the same bytes with the same limits.
        if len(self._batch_ends) >= _HINTS_MAX:
            self._batch_ends.clear()
        self._batch_ends[limit] = end
        return end

    def _forget_places(self) -> None:
        self._hints.clear()
        self._batch_ends.clear()

    def hint(self, offset: int, position: int) -> None:
        """Remember the position of `offset` for the next read of the same consumer."""
        if len(self._hints) >= _HINTS_MAX:
            self._hints.clear()
        self._hints[offset] = position

    def walk(
        self, position: int, *, until_offset: int = 1 << 63, until_position: int = 1 << 63
    ) -> tuple[int, int]:
        """Skip batches from `position` to the first that holds `until_offset` or ends after
        `until_position`; return its position, and the offset after the last skipped batch, or -1."""
        file, size = self._opened(), self.size_bytes
        chunk: Buffer = b""
        chunk_start, next_offset = position, -1
        while size - position >= HEADER_BYTES:
            at = position - chunk_start
            if at + PEEK.size > len(chunk):
                chunk, chunk_start, at = take(self._fs, file, position, WALK_BYTES), position, 0
            base_offset, length, delta = PEEK.unpack_from(chunk, at)
            end = position + length + LOG_OVERHEAD_BYTES
            if base_offset < next_offset:
                raise self._damaged(position)
            if base_offset + delta >= until_offset or end > until_position:
                break
            if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or end > size:
                raise self._damaged(position)
            next_offset = base_offset + delta + 1
            position = end
        return position, next_offset

    def headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """Iterate over the batch headers from `position` on; `header.position` is that in the file."""
        file, size = self._opened(), self.size_bytes
        chunk: Buffer = b""
        chunk_start = position
        while size - position >= HEADER_BYTES:
            at = position - chunk_start
            if at + HEADER_BYTES > len(chunk):
                chunk, chunk_start, at = take(self._fs, file, position, WALK_BYTES), position, 0
            header = parse_header(chunk, at)._replace(position=position)
            if header.size_bytes < HEADER_BYTES or position + header.size_bytes > size:
                raise self._damaged(position)
            yield header
            position += header.size_bytes

    def read_batch(self, header: BatchHeader) -> Buffer:
        """Return the bytes of one batch that `headers` found; in them the batch begins at 0."""
        return take(self._fs, self._opened(), header.position, header.size_bytes)

    def _damaged(self, position: int) -> SegmentDamaged:
        return SegmentDamaged(
            "a segment is damaged below its recovery point",
            path=self.stem_path + names.LOG,
            position=position,
            remedy=DAMAGE_REMEDY,
        )

    # -- indexes and timestamps --------------------------------------------------------------------

    def ensure_indexed(self) -> None:
        """Load the offset index; IndexDamaged when it does not belong to this segment."""
        if self._is_indexed:
            return
        if not self._load_index():
            raise IndexDamaged(self)
        self._is_indexed = True

    def _load_index(self) -> bool:
        """Load the offset index; False when it does not belong to this segment, or lacks its entries."""
        if not self.index.load(self.size_bytes):
            return False
        if len(self.index) or self.size_bytes <= self.rules.interval_bytes:
            return True
        position, _ = self.walk(0, until_position=self.rules.interval_bytes)
        found = self._peek(position)  # `note` adds an entry for any batch after this one
        return found is None or position + found[1] + LOG_OVERHEAD_BYTES >= self.size_bytes

    def _ask(self, look: Callable[[int], T], wanted: int) -> T:
        """Look `wanted` up in an index; IndexDamaged where the index holds impossible entries."""
        try:
            return look(wanted)
        except EntriesDamaged:
            raise IndexDamaged(self) from None

    def rebuild_steps(self) -> ColdSteps:
        """Rebuild the indexes from the batches; yields after some batches, and before a read of cold pages.

        The old indexes stay until all batches were read, also those appended meanwhile. The caller must stop
        when the segment is deleted or truncated. StorageError: a batch is damaged, or a file fails.
        """
        new = Segment(self._fs, self._directory, self.base_offset, rules=self.rules, now_ms=0)
        position, expected, pace, end = 0, self.base_offset, SliceBudget(), -1
        while end != self.size_bytes:
            end = self.size_bytes
            try:
                for header in self.headers(position):
                    if header.base_offset < expected or not self.may_hold(header.last_offset):
                        raise self._damaged(header.position)
                    expected = header.next_offset
                    new.note(position, header.size_bytes, header.last_offset, header.max_timestamp)
                    position += header.size_bytes
                    if pace.is_over(0):
                        yield None
            except PagesCold as cold:
                end = -1
                yield cold.place
        self._take_indexes(new)
        self.index.write()
        if pace.is_over(position):
            yield None  # each write takes some milliseconds for a large segment
        self.time_index.write()
        self._drop_times()

    def _take_indexes(self, new: "Segment") -> None:
        self.is_rebuilt = self._is_indexed = True
        self._forget_places()
        new.time_index.maybe_add(new._max_time_ms, new._max_time_offset)
        self.index, self.time_index = new.index, new.time_index
        self.first_time_ms = new.first_time_ms
        self._max_time_ms, self._max_time_offset = new._max_time_ms, new._max_time_offset

    def _reset(self) -> None:
        self.index.clear_memory()
        self.time_index.clear_memory()
        self._forget_places()
        self.first_time_ms = -1
        self._max_time_ms, self._max_time_offset = -1, self.base_offset
        self._unindexed_bytes = 0
        self._is_indexed, self.is_full = True, self._is_index_full(0)

    def open_active(self) -> Generator[None, None, int]:
        """Make a segment that was closed cleanly the active one; return the offset after its last batch.

        Reads only the batches after the last index entry: each offset index entry was written together with
        the greatest timestamp up to there. Rebuilds damaged indexes in slices. StorageError when the file
        does not end with a batch.
        """
        self.is_closed = False  # the rebuild would drop the time index of a closed segment
        if not (self._load_index() and self.time_index.load()):
            yield from (None for _ in self.rebuild_steps())
        self._is_indexed = True
        return self._begin_active()

    def last_batch(self) -> tuple[int, BatchHeader | None]:
        """Return the offset after the last batch but one, and the last batch: None in an empty segment.

        For the active segment. Reads the headers from the last index entry but one on.
        """
        end, last = self.base_offset, None
        start, _ = self._ask(self.index.entry_below, self.index.last_position() - 1)
        for header in self.headers(start):
            end = last.next_offset if last else end
            last = header
        return end, last

    def _begin_active(self) -> int:
        self._opened()
        self._max_time_ms = self.time_index.last_time_ms
        self._max_time_offset = self.time_index.last_offset
        self._unindexed_bytes = 0
        self.is_full = self._is_index_full(len(self.index))
        position = end = self.index.last_position()
        next_offset = self.base_offset
        for header in self.headers(position):
            next_offset, end = header.next_offset, header.position + header.size_bytes
            if header.max_timestamp > self._max_time_ms:
                self._max_time_ms, self._max_time_offset = header.max_timestamp, header.last_offset
            self._unindexed_bytes += header.size_bytes
        if end != self.size_bytes:
            raise self._damaged(end)
        first = next(self.headers(), None)
        self.first_time_ms = first.max_timestamp if first else -1
        return next_offset

    @property
    def max_time_ms(self) -> int:
        """Greatest timestamp of the segment, -1 when no batch has one. May raise IndexDamaged."""
        if self._max_time_ms == _UNKNOWN:
            self._load_times()
            self._drop_times()
        return self._max_time_ms

    def _load_times(self) -> None:
        if not self.time_index.load() or (self.size_bytes and not len(self.time_index)):
            raise IndexDamaged(self)
        if self._max_time_ms == _UNKNOWN:
            self._max_time_ms = self.time_index.last_time_ms
            self._max_time_offset = self.time_index.last_offset

    def _drop_times(self) -> None:
        if self.is_closed:
            self.time_index.forget()

    @property
    def max_time_offset(self) -> int:
        """Last offset of the first batch that has the greatest timestamp."""
        return self._max_time_offset if self.max_time_ms >= 0 else self.base_offset

    def first_batch_time_ms(self) -> int:
        """Greatest timestamp of the first batch, -1 when there is none or it has none."""
        if self.first_time_ms < 0 and self.size_bytes:
            was_open = self.file is not None
            first = next(self.headers(), None)
            self.first_time_ms = first.max_timestamp if first else -1
            if self.is_closed and not was_open:
                self.file = None
        return self.first_time_ms

    def largest_time_ms(self) -> int:
        """The timestamp for retention: the greatest one, else the file's modification time. May raise
        IndexDamaged."""
        found = self.max_time_ms
        return found if found >= 0 else self._fs.modified_ms(self.stem_path + names.LOG)

    def start_for_time(self, time_ms: int) -> int:
        """Return a position at or before the first batch with a record of at least that timestamp.

        IndexDamaged where the batch that an index points to does not match its entry.
        """
        assert self.max_time_ms >= time_ms
        self.ensure_indexed()
        if self.is_closed:
            self._load_times()
        noted_ms, offset = self._ask(self.time_index.entry_before, time_ms)
        self._drop_times()
        position = self._indexed_place(offset)
        if noted_ms >= 0 and not self._has_time(position, offset, noted_ms):
            raise IndexDamaged(self)
        return position

    def _has_time(self, position: int, offset: int, time_ms: int) -> bool:
        """Whether that is the greatest timestamp of the batch with `offset`, at or after `position`."""
        place, _ = self.walk(position, until_offset=offset)
        found = next(self.headers(place), None)
        return found is not None and found.max_timestamp == time_ms

    # -- change ------------------------------------------------------------------------------------

    def recover(
        self, gaps_upto_offset: int = INT64_MAX, upto_offset: int = INT64_MAX
    ) -> Iterator[FoundBatch]:
        """Read, verify and index every batch; stop before the first that is damaged or ends beyond
        `upto_offset`. The caller consumes the iterator and then calls `cut_damage` (rel-P8).
        """
        file = self._opened()
        self._reset()
        self.txn_index.begin_rebuild()
        self.size_bytes = 0
        for found in good_batches(file, self.base_offset, gaps_upto_offset):
            header = found.header
            if not self.may_hold(header.last_offset) or header.next_offset > upto_offset:
                return
            self.note(found.position, header.size_bytes, header.last_offset, header.max_timestamp)
            yield found

    def after_good(self) -> BatchHeader | None:
        """Return the header of a complete batch after the last good one: valid, but with a wrong offset."""
        found = next(complete_batches(self._opened(), self.size_bytes), None)
        return None if found is None else found.header

    def file_size(self) -> int:
        """Bytes in the file; during recovery they include those after the last good batch."""
        return self._opened().size()

    def cut_damage(self) -> int:
        """Truncate what `recover` did not accept, and write the indexes; return how many bytes were lost."""
        gone = self.file_size() - self.size_bytes
        if gone:
            self.cut_off(self.size_bytes)
            self._opened().truncate(self.size_bytes)
        self._forget_places()
        self.index.write()
        self.time_index.write()
        self.txn_index.end_rebuild()
        return gone

    def cut_memory(self, offset: int) -> tuple[int, list[FileCut]]:
        """Drop every batch with an offset of at least `offset`, in memory only.

        Returns the new log end and the files to truncate. The new end is below `offset` where a batch spans
        it or offsets are missing. Dropped batches are unreadable at once. The caller truncates the files in
        that order, where it may wait for the disk, and then calls `cut_is_done`. IndexDamaged, and nothing is
        dropped, where an index is damaged.
        """
        self.ensure_indexed()
        if self.is_closed:
            self._load_times()
        position = self.locate(offset)
        end_offset = min(offset, self._end_before(position))
        cuts = [
            FileCut(self.index.path, self._ask(self.index.truncate_to, end_offset)),
            FileCut(self.time_index.path, self._ask(self.time_index.truncate_to, end_offset)),
            FileCut(self.txn_index.path, self.txn_index.truncate_to(end_offset)),
            FileCut(self.stem_path + names.LOG, position),
        ]
        self.cut_off(position)
        self.size_bytes = position
        self._forget_places()
        self.is_closed = False
        return end_offset, cuts

    def _end_before(self, position: int) -> int:
        """Return the offset after the last batch before `position`; the base offset where there is none."""
        end = self.base_offset
        start = self._ask(self.index.entry_below, position - 1)[0] if position else 0
        for header in takewhile(lambda each: each.position < position, self.headers(start)):
            end = header.next_offset
        return end

    def cut_is_done(self) -> None:
        """The files are truncated: accept batches again."""
        self.syncs = PathSyncs(self._fs)  # a sync that is under way may not cover the truncation
        self.let_go()
        self._begin_active()

    def all_files(self) -> list[str]:
        """Return the paths of the segment's files that exist."""
        paths = [self.stem_path + suffix for suffix in names.SEGMENT_SUFFIXES]
        return [path for path in paths if self._fs.exists(path)]

    def remove(self) -> None:
        """Remove the files; existing slices of them stay readable."""
        for path in self.all_files():
            self._fs.remove(path)
