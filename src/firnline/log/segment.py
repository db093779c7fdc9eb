"""One segment: a file of batches, and its offset, time and transaction index. STORE.

The active segment is open and its indexes are in memory. Of a closed one only the size is known until
somebody reads it: then its file is opened and its offset index, of which what is used is checked. One that is
missing or cannot be this segment's has to be built again from the batches (reliability d 91): `IndexDamaged`.
A file that was opened is shared with the slices that were cut from it and closes itself after the last of
them, so a segment can be removed while its bytes are still on their way to a socket. Before a file is cut in
its place, every handle of it is told to read no further: what was cut is sent to nobody any more
(docs/decisions/0017). Where descriptors are few the active segment's file is closed, too, and opened again
when it is used (0032).
"""

import weakref
from collections.abc import Callable, Generator, Iterator
from itertools import takewhile
from typing import NamedTuple, TypeVar

from firnline.base.background import Pace
from firnline.base.cold_pages import ColdSteps, PagesCold, take
from firnline.base.errors import StorageError
from firnline.base.ids import METADATA_TOPIC
from firnline.base.ports import Buffer, File, Fs
from firnline.base.slices import FileSlice
from firnline.base.units import INT32_MAX, INT64_MAX
from firnline.config.topic import TopicConfig
from firnline.formats import names, offset_index, time_index
from firnline.log.checkpoint import DAMAGE_REMEDY
from firnline.log.file_syncs import PathSync, PathSyncs
from firnline.log.offset_index import OffsetIndex
from firnline.log.sparse_index import EntriesDamaged, IndexDamaged
from firnline.log.time_index import TimeIndex
from firnline.log.transaction_index import TransactionIndex
from firnline.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, PEEK, BatchHeader, parse_header
from firnline.records.file_scan import FoundBatch, good_batches, whole_batches

_METADATA_DIR = f"/{METADATA_TOPIC}-0"
WALK_BYTES = 4096
_HINTS_MAX = 64
_ENTRIES_AT_ONCE = 1024  # of an index, written with one call: 0.1 ms
_new_tuple = tuple.__new__  # half the price of the class's own constructor
_UNKNOWN = -2
T = TypeVar("T")


class IndexRules(NamedTuple):
    """How densely a segment is indexed, in bytes of batches between entries, and how far."""

    interval_bytes: int
    entries_max: int  # of the offset index
    time_entries_max: int


def index_rules(config: TopicConfig) -> IndexRules:
    """Return how segments of a topic are indexed."""
    size = config.segment_index_bytes
    return IndexRules(
        config.index_interval_bytes,
        size // offset_index.ENTRY_BYTES,
        size // time_index.ENTRY_BYTES - 1,  # one entry is kept for the roll
    )


class FileCut(NamedTuple):
    """A file, and the size that it is to be cut to; none where it has no more."""

    path: str
    size_bytes: int


class Segment:
    """Batches from `base_offset` on. Invariant: `size_bytes` ends at a batch's end once recovered."""

    __slots__ = (
        "__weakref__",
        "_directory",
        "_fs",
        "_hints",
        "_is_index_due",
        "_is_indexed",
        "_max_time_ms",
        "_max_time_offset",
        "_older_files",
        "_unindexed_bytes",
        "_whole_ends",
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
        self.is_full = False  # an index is: the segment has to roll (segment.index.bytes)
        self.is_rebuilt = False  # the indexes on disk were of no use
        self.index = OffsetIndex(fs, self.stem_path + names.INDEX, base_offset)
        self.time_index = TimeIndex(fs, self.stem_path + names.TIME_INDEX, base_offset)
        self.txn_index = TransactionIndex(fs, self.stem_path + names.TXN_INDEX)
        self.first_time_ms = -1  # of the first batch, -1 when it has none or is not known yet
        self._max_time_ms, self._max_time_offset = -1, base_offset
        self._unindexed_bytes = 0
        self._is_indexed = False
        self._is_index_due = False  # that many entries wait: the next append writes them
        self._hints: dict[int, int] = {}  # offset -> where the batch that holds it begins
        self._whole_ends: dict[int, int] = {}  # position -> end of the last batch that ends by it

    @classmethod
    def create(
        cls, fs: Fs, directory: str, base_offset: int, *, rules: IndexRules, now_ms: int
    ) -> "Segment":
        """Make the file of a new, active segment; what a crash left under its names goes.

        The index files come with the first entries that are written.
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
        """Take over the files of a segment as they are; only the size is looked at, if it is not given.

        keeps_open  it is used next: its file stays open
        """
        segment = cls(fs, directory, base_offset, rules=rules, now_ms=now_ms)
        segment.size_bytes = segment._opened().size() if size_bytes is None else size_bytes
        if not keeps_open:
            segment.file = None  # nothing was cut from it
        segment.is_closed = True
        segment._max_time_ms = _UNKNOWN
        return segment

    def _opened(self) -> File:
        return self.file or self._keep(self._fs.open(self.stem_path + names.LOG))

    def _keep(self, file: File) -> File:
        self.file = file
        # Without a file for the log of the metadata a node ends: that one gives way to nobody.
        if not self._directory.endswith(_METADATA_DIR):
            self._fs.keep(file, self.let_go)
        return file

    def let_go(self) -> None:
        """Keep the file open no longer than the slices need it that were cut from it."""
        if self.file is not None:
            older = [each for each in self._older_files if each() is not None]
            self._older_files = (*older, weakref.ref(self.file))
            self.file = None

    def cut_off(self, position: int) -> None:
        """Let no slice that reaches beyond `position` be read any more: the file is about to be cut there."""
        self.let_go()
        for each in self._older_files:
            file = each()
            if file is not None:
                file.cut_off(position)

    # -- append ----------------------------------------------------------------------------------

    def append(self, data: Buffer) -> int:
        """Write whole batches with one call; return where they begin. Tell `note` of each after it."""
        if self._is_index_due:
            self._is_index_due = False
            self.index.write_early()
            self.time_index.write_early()
        position = (self.file or self._opened()).append(data)
        if position != self.size_bytes:
            path = self.stem_path + names.LOG
            raise StorageError("somebody else wrote to this file", path=path, remedy="start again")
        return position

    def note(self, position: int, size_bytes: int, last_offset: int, max_time_ms: int) -> None:
        """Take note of one batch that was appended at `position`; index it when it is time."""
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
        # A reader at the tail asks for exactly this next.
        hints = self._hints
        if len(hints) >= _HINTS_MAX:
            hints.clear()
        hints[last_offset + 1] = end

    def waited_ms(self, now_ms: int, time_ms: int) -> int:
        """How long the segment has been open, by the times of its batches, or ours without any."""
        if self.first_time_ms >= 0:
            return time_ms - self.first_time_ms
        return now_ms - self.created_ms

    def _is_index_full(self, count: int) -> bool:
        """Whether an index takes no more entries; that of offsets has `count`."""
        rules = self.rules
        return count >= rules.entries_max or len(self.time_index) >= rules.time_entries_max

    def may_hold(self, offset: int) -> bool:
        """True when `offset` can be expressed relative to the base."""
        return 0 <= offset - self.base_offset <= INT32_MAX

    def finish(self) -> None:
        """The segment takes no more batches: note its greatest timestamp, write out the indexes."""
        self.time_index.maybe_add(self._max_time_ms, self._max_time_offset)
        self.index.write()
        self.time_index.write()
        self.txn_index.write()
        self.is_closed = True

    def release(self) -> None:
        """Give back the memory and the descriptor of a closed segment until somebody reads it again."""
        assert self.is_closed
        self.index.forget()
        self.time_index.forget()
        self._forget_places()
        self._is_indexed = False
        self.let_go()

    def data_to_sync(self) -> list[File]:
        """Return what has to be synced of the active segment: its indexes can be built again (rel-P8)."""
        return [self._opened()]

    def files_to_sync(self) -> list[File]:
        """Return every file of the segment: all are synced before one is believed (rel-P5)."""
        self.index.write()
        self.time_index.write()
        self.txn_index.write()
        # A closed segment is not opened to stay so until somebody reads it.
        found = [self.file or self.syncs.of(self.stem_path + names.LOG)]
        found += [PathSync(self._fs, each.path) for each in (self.index, self.time_index)]
        return found + ([self.syncs.of(self.txn_index.path)] if self.txn_index.entries else [])

    # -- read ------------------------------------------------------------------------------------

    def slice(self, position: int, end: int) -> FileSlice:
        """Return the bytes from `position` to `end` without reading them."""
        return _new_tuple(FileSlice, (self.file or self._opened(), position, end - position))

    def known_slice(self, offset: int, max_bytes: int, upto_offset: int) -> FileSlice | None:
        """Return whole batches from the one that holds `offset` up to `upto_offset` or `max_bytes`.

        None where it takes a look into index or file to find them, or none is so small.
        """
        position, end = self._hints.get(offset), self._hints.get(upto_offset)
        if position is None or end is None or self.file is None:
            return None
        if end - position > max_bytes:
            end = self._whole_ends.get(position + max_bytes, -1)
        found = (self.file, position, end - position)
        return _new_tuple(FileSlice, found) if end > position else None

    def locate(self, offset: int) -> int:
        """Return where the first batch begins whose last offset is at or after `offset`; else the size.

        IndexDamaged where the index is missing, or names a batch that is not there.
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
        """Return the position that the index gives for `offset`, if the batch there is the one it names.

        An index that names another one would pass over records: IndexDamaged.
        """
        return self._sound(*self._ask(self.index.entry_for, offset))

    def _sound(self, position: int, last_offset: int) -> int:
        """Return `position` if the batch there ends so; else IndexDamaged."""
        if position:
            named = self._peek(position)
            if named is None or named[0] + named[2] != last_offset:
                raise IndexDamaged(self)
        return position

    def _begins_at(self, position: int, offset: int) -> bool:
        """What was remembered may be damaged since: anything else is looked for, with those around it."""
        found = self._peek(position)
        return found is None or found[0] == offset

    def _check_found(self, position: int) -> None:
        """The batch that was found ends before the next one begins.

        A base offset is outside its batch's CRC. One that was damaged upwards passes for a hole that a
        compaction left, or for the batch that was looked for, but reaches into the one that follows.
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

    def last_whole(self, position: int, limit: int) -> int:
        """Return the end of the last whole batch from `position` on that ends at or before `limit`.

        `position` is where a batch begins, and `limit` is not after the end of the segment.
        """
        known = self._whole_ends.get(limit, -1)
        if known >= 0:
            return known
        self.ensure_indexed()
        start = max(position, self._sound(*self._ask(self.index.entry_below, limit)))
        end, next_offset = self.walk(start, until_position=limit)
        if next_offset >= 0:
            self.hint(next_offset, end)
        # Other groups read the same bytes soon, with the same limits.
        if len(self._whole_ends) >= _HINTS_MAX:
            self._whole_ends.clear()
        self._whole_ends[limit] = end
        return end

    def _forget_places(self) -> None:
        self._hints.clear()
        self._whole_ends.clear()

    def hint(self, offset: int, position: int) -> None:
        """Remember a place for the reader that comes back for what follows."""
        if len(self._hints) >= _HINTS_MAX:
            self._hints.clear()
        self._hints[offset] = position

    def walk(
        self, position: int, *, until_offset: int = 1 << 63, until_position: int = 1 << 63
    ) -> tuple[int, int]:
        """Pass over batches from `position` to the first that holds `until_offset` or ends after
        `until_position`; return where that one begins, and the offset after the last one passed, or -1."""
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
        """Iterate over the batch headers from `position` on; their positions are in the file."""
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
        """Return the bytes of one batch that `headers` found; its own position is then 0."""
        return take(self._fs, self._opened(), header.position, header.size_bytes)

    def _damaged(self, position: int) -> StorageError:
        return StorageError(
            "a segment is damaged below its recovery point",
            path=self.stem_path + names.LOG,
            position=position,
            remedy=DAMAGE_REMEDY,
        )

    # -- what is known of it -----------------------------------------------------------------------

    def ensure_indexed(self) -> None:
        """Load the offset index; IndexDamaged when it cannot be this segment's."""
        if self._is_indexed:
            return
        if not self._load_index():
            raise IndexDamaged(self)
        self._is_indexed = True

    def _load_index(self) -> bool:
        """Load the offset index; False when it cannot be this segment's, or is empty and should not be."""
        if not self.index.load(self.size_bytes):
            return False
        if len(self.index) or self.size_bytes <= self.rules.interval_bytes:
            return True
        position, _ = self.walk(0, until_position=self.rules.interval_bytes)
        found = self._peek(position)  # a batch after this one has an entry: `note`
        return found is None or position + found[1] + LOG_OVERHEAD_BYTES >= self.size_bytes

    def _ask(self, look: Callable[[int], T], wanted: int) -> T:
        """Return what an index has of `wanted`; IndexDamaged where what it would say cannot be."""
        try:
            return look(wanted)
        except EntriesDamaged:
            raise IndexDamaged(self) from None

    def rebuild_steps(self) -> ColdSteps:
        """Build the indexes again from the batches; yields after some, and what is to be read in first.

        What the segment has stays until all batches were read, also those that are appended meanwhile. Nobody
        goes on once it has left the log, or lost its end. StorageError: a batch is damaged, or a file fails.
        """
        new = Segment(self._fs, self._directory, self.base_offset, rules=self.rules, now_ms=0)
        position, expected, pace, end = 0, self.base_offset, Pace(), -1
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
            yield None  # of a large segment either takes some milliseconds
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
        self._is_indexed, self.is_full = True, False

    def open_active(self) -> Generator[None, None, int]:
        """Make a segment that was closed cleanly the active one; return the offset after its last batch.

        Reads what follows the last index entry only: every entry of the offset index was written together
        with the greatest timestamp so far. Indexes of no use are built again, in slices. StorageError when
        the file does not end with a batch.
        """
        self.is_closed = False  # of a closed one, what is built of the times would be forgotten
        if not (self._load_index() and self.time_index.load()):
            yield from (None for _ in self.rebuild_steps())
        self._is_indexed = True
        return self._begin_active()

    def last_batch(self) -> tuple[int, BatchHeader | None]:
        """Return where the batch before the last one ends, and the last one; an empty segment has none.

        Of the active segment. Reads the headers from the last index entry but one on.
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
        """Greatest timestamp of a batch in the segment, -1 when none has one; IndexDamaged."""
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
        """Its age for retention: its greatest timestamp, else when its file was written; IndexDamaged."""
        found = self.max_time_ms
        return found if found >= 0 else self._fs.modified_ms(self.stem_path + names.LOG)

    def start_for_time(self, time_ms: int) -> int:
        """Return a position at or before the first batch with a record of at least that timestamp.

        IndexDamaged where an index names a batch that says something else.
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
        """Whether the batch that holds `offset`, at `position` or after it, has that greatest timestamp."""
        place, _ = self.walk(position, until_offset=offset)
        found = next(self.headers(place), None)
        return found is not None and found.max_timestamp == time_ms

    # -- change ------------------------------------------------------------------------------------

    def recover(
        self, gaps_upto_offset: int = INT64_MAX, upto_offset: int = INT64_MAX
    ) -> Iterator[FoundBatch]:
        """Read every batch, verify it, and index it anew; stop before the first that is not good.

        And before the first that ends beyond `upto_offset`. The caller consumes all of it and then calls
        `cut_damage`: rel-P8.
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
        """Return the header of a batch behind the last good one, if it is whole, only not in its place."""
        found = next(whole_batches(self._opened(), self.size_bytes), None)
        return None if found is None else found.header

    def file_size(self) -> int:
        """Bytes in the file, also those after the last good batch while it is being recovered."""
        return self._opened().size()

    def cut_damage(self) -> int:
        """Cut off what `recover` did not take, and write the indexes; return how many bytes went."""
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
        """Forget every batch that reaches `offset` or beyond; return (where the log then ends, what to cut).

        A batch that holds `offset` in its middle goes as a whole. The log ends with what is left, before
        `offset` where some are missing there. Nothing that was cut is read from now on. Whoever may wait for
        the disk cuts the files, that of the batches last; `cut_is_done` then. IndexDamaged, and nothing is
        forgotten, where an index is of no use.
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
        """Take batches again, at the end of the file as it is now."""
        self.syncs = PathSyncs(self._fs)  # one under way may have missed what was removed
        self.let_go()
        self._begin_active()

    def all_files(self) -> list[str]:
        """Return the paths of the segment's files that exist."""
        paths = [self.stem_path + suffix for suffix in names.SEGMENT_SUFFIXES]
        return [path for path in paths if self._fs.exists(path)]

    def remove(self) -> None:
        """Remove its files; slices that were cut from them stay readable."""
        for path in self.all_files():
            self._fs.remove(path)
