"""The segments of one log in order: find them, read across them, look up by time. STORE.

A read returns slices of the files, complete batches only. A segment remembers where reads ended, so that the
next read of the same consumer needs no lookup.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import NamedTuple, Protocol, TypeVar, overload

from firnline.base.background import SliceBudget
from firnline.base.cold_pages import ColdSteps
from firnline.base.errors import RecordsTruncated, SegmentDamaged
from firnline.base.ports import Buffer, File, Fs
from firnline.base.slices import FileRecords, FileSlice
from firnline.base.units import KIB
from firnline.formats import names
from firnline.formats.transaction_index import AbortedTxn
from firnline.log.checkpoint import DAMAGE_REMEDY
from firnline.log.indexes import OffsetIndex
from firnline.log.producer_state import ProducerStates, read_marker, snapshot_path
from firnline.log.retention import SegmentAge
from firnline.log.segment import WALK_BYTES, Segment
from firnline.log.sparse_index import IndexDamaged, at_once
from firnline.records.batch import BatchHeader
from firnline.records.times import OffsetAndTimestamp, first_at_time_steps

T = TypeVar("T")
# Starts the rebuild of a segment's index, in slices, with the steps that the second argument returns.
# StorageError where that failed a moment ago.
WantIndex = Callable[[Segment, Callable[[], ColdSteps]], None]
# Closed segments of one log whose file and index stay open after a read.
OPEN_SEGMENTS_MAX = 8
# To open a segment and its index takes as long as to read so many bytes.
_OPENING_BYTES = 32 * KIB


class ClosedSegment(NamedTuple):
    """A closed segment. Offsets are inclusive; `stem_path` + suffix are the paths of its files."""

    base_offset: int
    end_offset: int
    stem_path: str
    size_bytes: int
    largest_time_ms: Callable[[], int]  # of its records, else of its file; may raise IndexDamaged
    snapshot_path: str  # producer state at `end_offset + 1`


class Run(NamedTuple):
    """Neighbouring closed segments: how many, their bytes, and the timestamp of the first."""

    segments: int
    size_bytes: int
    first_time_ms: Callable[[], int] | None


@dataclass(frozen=True, slots=True)
class SegmentTime:
    """Returns the timestamp of a segment for retention. Two objects for the same segment are equal."""

    segments: "Segments"
    segment: Segment

    def __call__(self) -> int:
        return self.segments.time_of(self.segment)


class Described(Sequence[T]):
    """The segments of a log at one moment, oldest first, each described on access.

    There may be tens of thousands: a caller that needs only the first, or the number, does not pay for all.

    bases     the base offsets of the segments, and the end offset of the last one
    describe  called with a segment and its end offset, exclusive
    """

    __slots__ = ("_bases", "_describe", "_segments")

    def __init__(
        self, segments: list[Segment], bases: list[int], describe: Callable[[Segment, int], T]
    ) -> None:
        assert len(bases) == len(segments) + 1
        self._segments = segments
        self._bases = bases
        self._describe = describe

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> "Described[T]": ...
    def __getitem__(self, at: int | slice) -> "T | Described[T]":
        if not isinstance(at, slice):
            return self._describe(self._segments[at], self._bases[range(1, len(self._bases))[at]])
        begin, end, step = at.indices(len(self._segments))
        assert step == 1, "neighbours, in their order"
        end = max(begin, end)
        return Described(self._segments[begin:end], self._bases[begin : end + 1], self._describe)


class Gaps(Protocol):
    """Whether offsets may be missing in a log."""

    @property
    def may_have_gaps(self) -> bool: ...


class Bounds(Protocol):
    """Which offsets of a log are in its segments."""

    local_log_start_offset: int
    log_end_offset: int

    @property
    def compaction(self) -> Gaps: ...


class Segments:
    """At least one segment; the last one is active. Invariant: base offsets ascend."""

    __slots__ = ("_bases", "_begins", "_recent", "_segments", "active", "cuts", "want_index")

    def __init__(self, segments: list[Segment]) -> None:
        assert segments, "a log has at least its active segment"
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        # The bytes of all segments before each one, counted from some earlier segment on, so that the bytes
        # between two segments need no walk. None until somebody asks: recovery changes sizes.
        self._begins: list[int] | None = None
        # Closed segments with an open file, in the order of their last read; True: not read since the last
        # `release_idle`.
        self._recent: dict[Segment, bool] = {}
        self.active = segments[-1]
        self.want_index: WantIndex | None = None  # None: a caller rebuilds the index it needs
        self.cuts = 0  # how often the log was truncated: batches read before may be gone
        assert self._bases == sorted(self._bases)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first_base_offset(self) -> int:
        return self._bases[0]

    def all(self) -> list[Segment]:
        """Return every segment, oldest first."""
        return list(self._segments)

    def closed(self) -> list[tuple[Segment, int]]:
        """Return (segment, end offset) of all but the active one; the end is the next one's base."""
        return list(zip(self._segments, self._bases[1:]))

    def first_files(self, fs: Fs, directory: str, count: int) -> list[str]:
        """Return the paths of the files of the oldest `count` segments, with the snapshots at their bases."""
        segments = self._segments[:count]
        paths = [path for segment in segments for path in segment.all_files()]
        snapshots = [snapshot_path(directory, segment.base_offset) for segment in segments]
        return paths + [path for path in snapshots if fs.exists(path)]

    def snapshots_after(self, closed: list[Segment], directory: str) -> list[str]:
        """Return the paths of the producer snapshots at the ends of these closed segments."""
        slots = (bisect_right(self._bases, segment.base_offset) for segment in closed)
        ends = [self._bases[slot] for slot in slots if slot < len(self._bases)]
        return [snapshot_path(directory, end) for end in ends]

    def describe_closed(self, directory: str) -> Described[ClosedSegment]:
        """Return descriptions of the closed segments, oldest first."""

        def describe(segment: Segment, end: int) -> ClosedSegment:
            return ClosedSegment(
                segment.base_offset,
                end - 1,
                segment.stem_path,
                segment.size_bytes,
                SegmentTime(self, segment),
                snapshot_path(directory, end),
            )

        return Described(self._segments[:-1], self._bases[:], describe)

    def ages(self, log_end_offset: int) -> Described[SegmentAge]:
        """Return the segments as retention sees them, oldest first."""

        def describe(segment: Segment, end: int) -> SegmentAge:
            time = SegmentTime(self, segment)
            return SegmentAge(segment.base_offset, end, segment.size_bytes, time)

        return Described(self._segments[:], [*self._bases, log_end_offset], describe)

    def time_of(self, segment: Segment) -> int:
        """The timestamp of a segment for retention; IndexDamaged while its index is rebuilt."""
        return self._when_indexed(segment.largest_time_ms, may_wait=True)

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segment that holds `offset`, or begins first after it, and all later ones."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def _all_begins(self) -> list[int]:
        if self._begins is None:
            sizes = (segment.size_bytes for segment in self._segments[:-1])
            self._begins = list(accumulate(sizes, initial=0))
        return self._begins

    def bytes_from(self, offset: int) -> int:
        """Return the bytes of the segment with `offset`, or that begins first after it, and of later ones."""
        first = max(0, bisect_right(self._bases, offset) - 1)
        begins = self._all_begins()
        return begins[-1] - begins[first] + self.active.size_bytes

    def bytes_beginning_at(self, offset: int) -> int:
        """Return the bytes of the segments that begin at `offset` or after it."""
        first = bisect_left(self._bases, offset)
        if first == len(self._bases):
            return 0
        begins = self._all_begins()
        return begins[-1] - begins[first] + self.active.size_bytes

    def closed_between(self, start_offset: int, end_offset: int) -> Run:
        """Return the closed segments from the one with `start_offset` on that end by `end_offset`."""
        first = max(0, bisect_right(self._bases, start_offset) - 1)
        last = bisect_right(self._bases, end_offset) - 1
        if last <= first:
            return Run(0, 0, None)
        begins, time = self._all_begins(), SegmentTime(self, self._segments[first])
        return Run(last - first, begins[last] - begins[first], time)

    def add(self, segment: Segment) -> None:
        """Make `segment` the active one."""
        assert segment.base_offset > self._bases[-1]
        if self.active.is_closed:
            self.active.release()  # else a log that only grows would keep nine files open instead of one
        if self._begins is not None:
            self._begins.append(self._begins[-1] + self.active.size_bytes)
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def drop_first(self, count: int) -> list[Segment]:
        """Remove the oldest `count` segments from the log; return them."""
        assert count < len(self._segments), "the active segment stays"
        gone = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        if self._begins is not None:
            del self._begins[:count]
        self._forget(gone)
        return gone

    def drop_after(self, offset: int) -> list[Segment]:
        """Remove the segments that begin at or after `offset`, but not the first; return them."""
        keep = max(1, bisect_right(self._bases, offset - 1))
        gone = self._segments[keep:]
        del self._segments[keep:], self._bases[keep:]
        if self._begins is not None:
            del self._begins[keep:]
        self._recent.clear()
        self.active = self._segments[-1]
        self.cuts += 1
        return gone

    def replace_all(self, segment: Segment) -> list[Segment]:
        """Replace all segments by `segment`; return the old ones."""
        gone = self._segments
        self._segments, self._bases, self._recent = [segment], [segment.base_offset], {}
        self._begins = None
        self.active = segment
        self.cuts += 1
        return gone

    def has_run(self, bases: Sequence[int]) -> bool:
        """True when these are the base offsets of consecutive closed segments of the log."""
        slot = bisect_right(self._bases, bases[0]) - 1
        run = self._bases[max(slot, 0) : slot + len(bases)]
        return run == list(bases) and slot + len(bases) < len(self._bases)

    def replace_run(self, bases: Sequence[int], new: Segment) -> list[Segment]:
        """Replace the segments at `bases` by `new`, which has the first one's base; return the old ones."""
        assert self.has_run(bases)
        assert new.base_offset == bases[0]
        slot = bisect_right(self._bases, bases[0]) - 1
        gone = self._segments[slot : slot + len(bases)]
        self._segments[slot : slot + len(bases)] = [new]
        self._bases[slot : slot + len(bases)] = [new.base_offset]
        self._begins = None
        self._forget(gone)
        return gone

    def release_idle(self) -> None:
        """Close the segments that nobody has read since the last call but one. Call it regularly."""
        idle = [segment for segment, is_idle in self._recent.items() if is_idle]
        self._forget(idle)
        for segment in idle:
            segment.release()
        self._recent = dict.fromkeys(self._recent, True)

    def _forget(self, gone: Sequence[Segment]) -> None:
        for segment in gone:
            self._recent.pop(segment, None)

    def give_up(self) -> list[File]:
        """Drop every file; return those that were open. Existing slices of them stay readable."""
        files = [segment.file for segment in self._segments if segment.file is not None]
        for segment in self._segments:
            segment.let_go()
        return files

    def _touch(self, segment: Segment) -> None:
        """Keep a closed segment open, and release the one that was read longest ago."""
        recent = self._recent
        recent.pop(segment, None)
        recent[segment] = False
        if len(recent) > OPEN_SEGMENTS_MAX:
            oldest = next(iter(recent))
            del recent[oldest]
            oldest.release()

    # -- with damaged indexes ----------------------------------------------------------------------

    def _when_indexed(self, ask: Callable[[], T], *, may_wait: bool) -> T:
        """Return the result of `ask`; IndexDamaged while an index that it needs is rebuilt."""
        if not may_wait or self.want_index is None:
            return at_once(ask)
        try:
            return ask()
        except IndexDamaged as found:
            segment = found.segment
            assert isinstance(segment, Segment)
            found.steps = partial(self._rebuild_steps, segment, segment.index)
            self.want_index(segment, found.steps)
            raise

    def _rebuild_steps(self, segment: Segment, damaged: OffsetIndex) -> ColdSteps:
        """Like `Segment.rebuild_steps`, unless the indexes were rebuilt meanwhile.

        RecordsTruncated where the segment is deleted, or the log truncated, before the end.
        """
        if segment.index is not damaged:
            return
        cuts, steps = self.cuts, segment.rebuild_steps()
        while self.cuts == cuts and segment in self._segments:
            try:
                place = next(steps)
            except StopIteration:
                break
            yield place
        else:
            raise RecordsTruncated("the segment was deleted or truncated", path=segment.stem_path)
        if segment.is_closed:
            self._touch(segment)

    # -- reading -----------------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        *,
        max_bytes: int,
        upto_offset: int,
        min_one_batch: bool,
        may_wait: bool = False,
    ) -> FileRecords:
        """Return complete batches from the one that holds `start_offset` on; see `Log.read`."""
        try:
            return self._read(start_offset, max_bytes, upto_offset, min_one_batch)
        except IndexDamaged:
            ask = partial(self._read, start_offset, max_bytes, upto_offset, min_one_batch)
            return self._when_indexed(ask, may_wait=may_wait)

    def _read(
        self, start_offset: int, max_bytes: int, upto_offset: int, min_one_batch: bool
    ) -> FileRecords:
        slot = bisect_right(self._bases, start_offset) - 1
        assert slot >= 0, "the caller checks the local log start"
        slices: list[FileSlice] = []
        left, count = max_bytes, len(self._segments)
        while True:
            segment = self._segments[slot]
            slot += 1
            if segment.is_closed:
                self._touch(
                    segment
                )  # before the read, so that it is closed later even after an error
            position = segment.locate(start_offset)
            if slot < count and self._bases[slot] <= upto_offset:
                end, is_last = segment.size_bytes, self._bases[slot] == upto_offset
            else:
                end, is_last = segment.locate(upto_offset), True
            if end > position + left:
                is_last = True
                end = segment.last_batch_end(position, position + left)
                if end == position and min_one_batch and not slices:
                    end = self._end_of_first(segment, position)
            if end > position:
                slices.append(segment.slice(position, end))
                left -= end - position
            if is_last or left <= 0:
                return FileRecords(slices)
            start_offset = self._bases[slot]

    @staticmethod
    def _end_of_first(segment: Segment, position: int) -> int:
        first = next(segment.headers(position))
        segment.hint(first.next_offset, position + first.size_bytes)
        return position + first.size_bytes

    def aborted(self, start_offset: int, upto_offset: int) -> list[AbortedTxn]:
        """Return the aborted transactions with records in [start, upto), in the order of their markers."""
        found: list[AbortedTxn] = []
        for segment in self.from_offset(start_offset):
            if segment.txn_index.collect(start_offset, upto_offset, found):
                break
        return found

    def replay(self, producers: ProducerStates, upto_offset: int) -> None:
        """Replay the batch headers from `producers.end_offset` up to `upto_offset` into `producers`."""
        for _ in self.replay_steps(producers, upto_offset):
            pass

    def replay_steps(self, producers: ProducerStates, upto_offset: int) -> Iterator[None]:
        """Like `replay`; yields after slices of about 2 ms."""
        start, pace = producers.end_offset, SliceBudget()
        for segment in self.from_offset(start) if start < upto_offset else []:
            if segment.base_offset >= upto_offset:
                break
            if pace.is_over(_OPENING_BYTES):
                yield
            try:
                position = segment.locate(start)
            except IndexDamaged:
                yield from (None for _ in segment.rebuild_steps())
                yield
                position = segment.locate(start)
            for header in segment.headers(position):
                if header.base_offset >= upto_offset:
                    break
                if pace.is_over(header.size_bytes if header.is_control else WALK_BYTES):
                    yield
                if header.producer_id >= 0 and header.last_offset >= start:
                    data = segment.read_batch(header) if header.is_control else b""
                    at_front = header._replace(position=0)
                    note_producer(producers, segment, at_front, data, is_indexed=True)
            if segment.is_closed:
                self._touch(segment)
        producers.end_offset = upto_offset

    def first_at_time_steps(
        self, log: Bounds, time_ms: int, *, may_wait: bool
    ) -> Generator[None, None, OffsetAndTimestamp | None]:
        """Return (offset, timestamp) of the first record of `log` that is here, of at least that time.

        It decodes only batches that can contain the record, one or two in all. Between two steps the log may
        change: the batch under way is in memory, and the next one is searched anew.
        """
        start_offset = log.local_log_start_offset
        while True:
            ask = partial(self._next_at_time, log, time_ms, start_offset)
            found = self._when_indexed(ask, may_wait=may_wait)
            if found is None:
                return None
            segment, header = found
            data, at_front = segment.read_batch(header), header._replace(position=0)
            place = yield from first_at_time_steps(data, at_front, time_ms, start_offset)
            if place is not None:
                return place
            start_offset = header.next_offset

    def _next_at_time(
        self, log: Bounds, time_ms: int, start_offset: int
    ) -> tuple[Segment, BatchHeader] | None:
        """Return the first batch that, by its header, can contain such a record."""
        for segment in self.from_offset(start_offset):
            if segment.max_time_ms < time_ms:
                continue
            begin = max(segment.start_for_time(time_ms), segment.locate(start_offset))
            for header in segment.headers(begin):
                if header.base_offset < segment.base_offset:
                    self._check_offsets(log, segment, header)
                if header.max_timestamp >= time_ms and header.last_offset >= start_offset:
                    self._check_offsets(log, segment, header)
                    return segment, header
        return None

    def _check_offsets(self, log: Bounds, segment: Segment, header: BatchHeader) -> None:
        """Raise SegmentDamaged unless a batch ends where the next one begins: no CRC covers its base offset.

        After a compaction, offsets may be missing between them.
        """
        after = next(segment.headers(header.position + header.size_bytes), None)
        if after is not None:
            end = after.base_offset
        else:
            at = bisect_right(self._bases, segment.base_offset)
            end = self._bases[at] if at < len(self._bases) else log.log_end_offset
        is_inside = segment.base_offset <= header.base_offset < header.next_offset <= end
        if not is_inside or not (header.next_offset == end or log.compaction.may_have_gaps):
            raise SegmentDamaged(
                "a batch does not end where the next one begins",
                path=segment.stem_path + names.LOG,
                position=header.position,
                remedy=DAMAGE_REMEDY,
            )

    def of_greatest_time_steps(
        self, log: Bounds, *, may_wait: bool
    ) -> Generator[None, None, OffsetAndTimestamp | None]:
        """Return (offset, timestamp) of the first record of `log` that is here with the greatest timestamp.

        None without any.
        """
        start_offset = log.local_log_start_offset
        found = self._when_indexed(
            partial(self._of_greatest_time, log, start_offset), may_wait=may_wait
        )
        if found is None:
            return None
        segment, header, greatest_ms = found
        data, at_front = segment.read_batch(header), header._replace(position=0)
        return (yield from first_at_time_steps(data, at_front, greatest_ms, start_offset))

    def _of_greatest_time(
        self, log: Bounds, start_offset: int
    ) -> tuple[Segment, BatchHeader, int] | None:
        best: Segment | None = None
        for segment in self.from_offset(start_offset):
            if segment.max_time_ms >= 0 and (
                best is None or segment.max_time_ms > best.max_time_ms
            ):
                best = segment
        if best is None:
            return None
        greatest_ms = best.max_time_ms
        for header in best.headers(best.locate(best.max_time_offset)):
            if header.max_timestamp == greatest_ms and header.last_offset >= start_offset:
                self._check_offsets(log, best, header)
                return best, header, greatest_ms
        return None


def note_producer(
    producers: ProducerStates,
    segment: Segment,
    header: BatchHeader,
    data: Buffer,
    *,
    is_indexed: bool = False,
) -> None:
    """Apply a batch of `segment` to the producer state.

    Adds an aborted transaction to the segment's transaction index, unless it `is_indexed` already.
    """
    if not header.is_control:
        producers.note_batch(header, header.base_offset, header.max_timestamp)
        return
    marker = read_marker(data, header)
    done = None if marker is None else producers.note_marker(header, marker, header.base_offset)
    if done is not None and done.is_aborted and not is_indexed:
        segment.txn_index.add(producers.aborted(done))


def remove_durably(fs: Fs, path: str, segments: Sequence[Segment]) -> None:
    """Remove segments durably, newest first: after a crash none of them may reappear. On any thread."""
    for segment in reversed(segments):
        segment.remove()
    if segments:
        fs.sync_dir(path)
