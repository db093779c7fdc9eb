"""Plan a read: catalog version -> offset ranges by lineage -> byte ranges -> tasks. PURE.

Segments may overlap and may hold records of a deposed leader, so a list of objects is not a plan. A segment
may serve an offset only if its leader epoch there is the partition's (then both logs are equal up to it, as
in Raft). Source: KIP-405; spec 3.5, T62; spark section 4 'Partition planning'.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from struct import error as StructError
from typing import NamedTuple, TypeVar

import numpy as np

from firnline.base.ids import NO_OFFSET, Uuid
from firnline.base.native import native
from firnline.base.units import INT64_MAX, ceil_div
from firnline.formats import offset_index
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.formats.transaction_index import AbortedTxn
from firnline.spark.frames import Ints, Mask
from firnline.spark.planning.filters import EVERYTHING, Spans, within
from firnline.spark.schema import OpenTxn
from firnline.tiered.catalog.format import (
    SPLIT_BYTES,
    CatalogCorrupt,
    CatalogSegment,
    RowFields,
    RowForm,
    fields_of,
)
from firnline.tiered.lineage import plan_ranges
from firnline.tiered.objects.fingerprint import (
    Fingerprint,
    decode_fingerprint,
    pack_fingerprint,
)
from firnline.tiered.objects.layout import LOG, SUFFIXES

INDEX_ENTRY = np.dtype(list(offset_index.FIELDS))
# Smaller tasks cost more to start than they save (spark section 9, T9).
TASK_BYTES_MIN = SPLIT_BYTES
T = TypeVar("T")


class Segment(NamedTuple):
    """A row of a catalog as a plan holds it: 100,000 of them take half the memory of `CatalogSegment`.

    copied  the fingerprint, encoded; None: written by a version without fingerprints
    splits  offset, position and max_timestamp_ms of each split, in 8 bytes each, in this machine's byte order
    """

    segment_id: Uuid
    base_offset: int
    end_offset: int
    size_bytes: int
    epochs: Epochs
    stem: str
    suffixes: tuple[str, ...]
    copied: bytes | None = None
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int = -1
    splits: bytes = b""

    def key(self, suffix: str = LOG) -> str:
        """Return the key of one of its objects; `suffix` is one of `objects.layout`."""
        return self.stem + suffix

    @property
    def fingerprint(self) -> Fingerprint | None:
        return decode_fingerprint(self.copied)

    @property
    def newest_ms(self) -> int | None:
        """At least the timestamp of each record; None: unknown."""
        return self.max_timestamp_ms if self.max_timestamp_ms >= 0 else None


def segment_of(row: CatalogSegment) -> Segment:
    """Return what a plan needs of a row. Raises CatalogCorrupt as `segment_in`."""
    return segment_in(fields_of(row))


def segment_in(row: RowFields) -> Segment:
    """As `segment_of`, without a `CatalogSegment` in between, which takes as long.

    Raises CatalogCorrupt for checksums that cannot be.

    Splits are of use only where nothing may be missing between two batches: the reader checks them by that.
    """
    known = row.fingerprint
    try:
        copied = None if known is None else pack_fingerprint(*known)
    except StructError as problem:
        raise CatalogCorrupt("a checksum out of range", segment=row.stem, problem=problem) from None
    splits = row.splits if known is not None and not known.may_have_gaps else b""
    return Segment(
        row.segment_id, row.base_offset, row.end_offset, row.size_bytes, _shared(row.epochs),
        row.stem, row.suffixes, copied, row.min_timestamp_ms, row.max_timestamp_ms, splits,
    )  # fmt: skip


def _common_segments(body: bytes, at: int) -> tuple[list[Segment], int]:
    assert native is not None
    found: tuple[list[Segment], int] = native.common_rows(body, at, Segment, SUFFIXES)
    return found


# How a plan reads the rows of a catalog.
SEGMENTS = RowForm(segment_in, None if native is None else _common_segments)


@lru_cache(maxsize=4096)
def _shared(value: T) -> T:
    """Return the first of equal values, so that the others can be forgotten."""
    return value


class Range(NamedTuple):
    """Offsets [start, end) that are to be read from `segment`."""

    segment: Segment
    start_offset: int
    end_offset: int


class Gap(NamedTuple):
    """Offsets [start, end) that no segment of the lineage holds."""

    start_offset: int
    end_offset: int


class Piece(NamedTuple):
    """A byte range of one segment, from batch to batch, and the offsets to deliver from it.

    The begin and the end come from an index or from splits, and are checked by what these say there.

    first_ends    the last offset of the batch at `begin_position`, from an index; -1: not known
    reaches       the offset that the batches of the range must reach, exclusive, from an index
    first_offset  the base offset of the batch at `begin_position`, from a split; -1: unknown
    next_offset   the offset at which the batches of the range must end, exclusive, from a split; -1: unknown
    has_loose_offsets
                  the offsets are those of its bytes and some more at either end: an index does not say where
                  a batch begins
    """

    segment: Segment
    begin_position: int
    end_position: int
    start_offset: int
    end_offset: int
    first_ends: int = NO_OFFSET
    reaches: int = 0
    first_offset: int = NO_OFFSET
    next_offset: int = NO_OFFSET
    has_loose_offsets: bool = False

    @property
    def key(self) -> str:
        return self.segment.key(LOG)

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.begin_position


class Task(NamedTuple):
    """What one Spark task reads: pieces of one partition in offset order."""

    topic: str
    topic_id: Uuid
    partition: int
    pieces: tuple[Piece, ...]
    aborted: tuple[AbortedTxn, ...] = ()
    unfinished: tuple[OpenTxn, ...] = ()


class TailTask(NamedTuple):
    """What one Spark task reads from the leader of a partition: offsets [start, end).

    leader_epoch    the one that the leader had when the read was planned; -1: unknown
    cleanup_policy  of the topic, if the read is to tell compaction from loss; empty: unknown
    """

    topic: str
    topic_id: Uuid
    partition: int
    start_offset: int
    end_offset: int
    leader_epoch: int
    cleanup_policy: str = ""

    @property
    def source(self) -> str:
        """What errors call the place of the bytes."""
        return f"{self.topic}-{self.partition} from its leader"


class OffsetIndex(NamedTuple):
    """A sparse index: the batch at `positions[i]` ends with offset `last_offsets[i]`; both ascend."""

    last_offsets: Ints
    positions: Ints


def parse_offset_index(data: bytes, segment: Segment) -> OffsetIndex | None:
    """Parse an offset index; None for one that cannot be trusted, and is then ignored (T58)."""
    table = np.frombuffer(
        data[: len(data) // INDEX_ENTRY.itemsize * INDEX_ENTRY.itemsize], dtype=INDEX_ENTRY
    )
    offsets = segment.base_offset + table["relative_offset"].astype(np.int64)
    positions = table["position"].astype(np.int64)
    # Preallocated files end in zeros; real entries are strictly ascending.
    used = len(table)
    while used and positions[used - 1] == 0:
        used -= 1
    offsets, positions = offsets[:used], positions[:used]
    is_good = (
        len(data) % INDEX_ENTRY.itemsize == 0
        and (np.diff(offsets) > 0).all()
        and (np.diff(positions) > 0).all()
        and (not used or (offsets[0] >= segment.base_offset and positions[0] > 0))
        and (not used or (offsets[-1] <= segment.end_offset and positions[-1] < segment.size_bytes))
    )
    return OffsetIndex(offsets, positions) if is_good else None


# ------------------------------------------------------------------------------------ lineage


def lineage_ranges(
    segments: Iterable[Segment], epochs: Epochs, *, start_offset: int, end_offset: int
) -> list[Range | Gap]:
    """Return which segment serves which offsets of [start, end), without overlap.

    Ends with a Range; empty if the segments hold nothing of the lineage there. Only segments that overlap
    [start, end) matter: whether a segment serves an offset depends on nothing but the two histories.
    """
    found: list[Range | Gap] = []
    at = start_offset
    for segment, start, end in plan_ranges(
        segments, epochs, start_offset=start_offset, end_offset=end_offset
    ):
        if start > at:
            found.append(Gap(at, start))
        found.append(Range(segment, start, end))
        at = end
    return found


# ------------------------------------------------------------------------------------ bytes


Load = Callable[[Segment], OffsetIndex | None]
Confirm = Callable[[Segment, OffsetIndex, Sequence[int]], bool]


def _believe(_segment: Segment, _index: OffsetIndex, _entries: Sequence[int]) -> bool:
    return True


def needs_index(one: Range, *, split_bytes: int) -> bool:
    """Whether an index saves or splits something that the row's splits do not."""
    if one.segment.splits or _is_small(one, split_bytes):
        return False
    return not _is_indivisible(one.segment)


def pieces_of(
    one: Range,
    *,
    split_bytes: int,
    load_index: Load,
    confirms: Confirm = _believe,
    offsets: Spans = EVERYTHING,
    times_ms: Spans = EVERYTHING,
) -> list[Piece]:
    """Cut a range into pieces of about `split_bytes`, at splits, else at the nearest index entries.

    Leaves out what has no record in `offsets` and `times_ms`, as far as the splits tell. The index is loaded
    only if it saves or splits something. Without both, the piece is the complete segment; so it is if gaps
    are allowed, because only the checksum of the complete segment tells them from damage. `confirms` says
    whether the batches at these entries match them.
    """
    segment = one.segment
    is_complete = _is_small(one, split_bytes) and _is_in(one, offsets, times_ms)
    if segment.splits and not is_complete:
        return _pieces_between_splits(one, split_bytes, offsets, times_ms)
    if not is_complete and needs_index(one, split_bytes=split_bytes):
        index = load_index(segment)
        if index is not None:
            found, used = _cut_pieces(one, index, split_bytes)
            if confirms(segment, index, used):
                return found
    return [Piece(slim(segment), 0, segment.size_bytes, one.start_offset, one.end_offset)]


def bytes_of(one: Range, *, offsets: Spans = EVERYTHING, times_ms: Spans = EVERYTHING) -> int:
    """Return how many bytes of its segment a range takes, as far as the row tells."""
    segment = one.segment
    if not segment.splits or (
        _is_small(one, segment.size_bytes) and _is_in(one, offsets, times_ms)
    ):
        return segment.size_bytes
    pieces = _pieces_between_splits(one, segment.size_bytes, offsets, times_ms)
    return sum(piece.size_bytes for piece in pieces)


def slim(segment: Segment) -> Segment:
    """Return what a task needs of a segment: tasks are pickled, and there may be 20,000."""
    return Segment(
        segment.segment_id, segment.base_offset, segment.end_offset, segment.size_bytes,
        segment.epochs, segment.stem, (), segment.copied, None, segment.max_timestamp_ms,
    )  # fmt: skip


def _is_small(one: Range, split_bytes: int) -> bool:
    """Whether the range is a complete segment that need not be cut."""
    segment = one.segment
    is_complete = one.start_offset <= segment.base_offset and one.end_offset > segment.end_offset
    return is_complete and segment.size_bytes <= split_bytes + split_bytes // 2


def _is_in(one: Range, offsets: Spans, times_ms: Spans) -> bool:
    """Whether each record of the range is in both sets, so that nothing can be left out."""
    if not _covers(offsets, one.start_offset, one.end_offset):
        return False
    if times_ms == EVERYTHING:
        return True
    oldest, newest = one.segment.min_timestamp_ms, one.segment.newest_ms
    if oldest is None or newest is None or oldest > newest:
        return False
    return _covers(times_ms, oldest, newest + 1)


def _covers(spans: Spans, start: int, end: int) -> bool:
    if len(spans) == 1:
        return spans[0][0] <= start and end <= spans[0][1]
    return within(spans, start, end) == ((start, end),)


def _is_indivisible(segment: Segment) -> bool:
    known = segment.fingerprint
    return known is not None and known.may_have_gaps


class Chunks(NamedTuple):
    """A segment between its splits.

    Chunk i has the bytes [positions[i], positions[i + 1]). Their batches have the offsets [offsets[i],
    offsets[i + 1]), and no record later than `newest_ms[i]`.
    """

    offsets: Ints
    positions: Ints
    newest_ms: Ints


def chunks_of(segment: Segment) -> Chunks:
    """Return the chunks of a segment; one if it has no splits."""
    splits = np.frombuffer(segment.splits, dtype=np.int64).reshape(-1, 3)
    newest = INT64_MAX if segment.newest_ms is None else segment.newest_ms
    return Chunks(
        np.concatenate(([segment.base_offset], splits[:, 0], [segment.end_offset + 1])),
        np.concatenate(([0], splits[:, 1], [segment.size_bytes])),
        np.concatenate((splits[:, 2], [max(newest, *splits[-1:, 2])])),
    )


def _pieces_between_splits(
    one: Range, split_bytes: int, offsets: Spans, times_ms: Spans
) -> list[Piece]:
    segment, small = one.segment, slim(one.segment)
    chunks = chunks_of(segment)
    chosen = np.flatnonzero(_is_wanted(one, chunks, offsets, times_ms))
    found: list[Piece] = []
    for run in np.split(chosen, np.flatnonzero(np.diff(chosen) > 1) + 1) if len(chosen) else ():
        first, last = int(run[0]), int(run[-1]) + 1
        low, high = int(chunks.positions[first]), int(chunks.positions[last])
        cuts = np.searchsorted(chunks.positions, _cuts(chunks.positions, low, high, split_bytes))
        for begin, end in pairwise([first, *cuts.tolist(), last]):
            begins, ends = int(chunks.offsets[begin]), int(chunks.offsets[end])
            piece = Piece(
                small, int(chunks.positions[begin]), int(chunks.positions[end]),
                max(one.start_offset, begins), min(one.end_offset, ends),
                first_offset=begins if begin else NO_OFFSET, next_offset=ends,
            )  # fmt: skip
            found.append(piece)
    return found


def _is_wanted(one: Range, chunks: Chunks, offsets: Spans, times_ms: Spans) -> Mask:
    """Return for each chunk whether it may have a record of the range that is in both sets."""
    begins, ends = chunks.offsets[:-1], chunks.offsets[1:]
    has_offset = np.zeros(len(begins), dtype=bool)
    for start, end in within(offsets, one.start_offset, one.end_offset):
        has_offset |= (ends > start) & (begins < end)
    if times_ms == EVERYTHING:
        return has_offset
    oldest = one.segment.min_timestamp_ms
    has_time = np.zeros(len(begins), dtype=bool)
    for start, end in times_ms:
        if oldest is None or oldest < end:
            has_time |= chunks.newest_ms >= start
    return has_offset & has_time


def _cut_pieces(one: Range, index: OffsetIndex, split_bytes: int) -> tuple[list[Piece], list[int]]:
    """Return the pieces of a range, and the numbers of the index entries that they use."""
    before, last = _entry_range(index, one)
    count, size = len(index.positions), one.segment.size_bytes
    low = int(index.positions[before]) if before >= 0 else 0
    high = int(index.positions[last + 1]) if last + 1 < count else size
    bounds = [low, *_cuts(index.positions, low, high, split_bytes), high]
    ends = {int(p): int(o) for p, o in zip(index.positions, index.last_offsets, strict=True)}
    # A batch at a cut begins after the batch at the cut before it, and at or below its own last offset.
    lowest = [one.start_offset, *(ends.get(p, NO_OFFSET) + 1 for p in bounds[:-2])]
    highest = [*(ends[p] for p in bounds[1:-1]), one.end_offset]
    small = slim(one.segment)
    found = [
        Piece(
            small, begin, end, max(one.start_offset, least), min(one.end_offset, most),
            ends.get(begin, NO_OFFSET), has_loose_offsets=len(bounds) > 2,
        )
        for (begin, end), least, most in zip(pairwise(bounds), lowest, highest)
    ]  # fmt: skip
    if high < size:
        found[-1] = found[-1]._replace(reaches=one.end_offset)
    used = [*np.searchsorted(index.positions, bounds[:-1]).tolist(), last, last + 1]
    return found, sorted({n for n in used if 0 <= n < count})


def _entry_range(index: OffsetIndex, one: Range) -> tuple[int, int]:
    """Return the last entry at or below the range and the first that ends it. A batch at an entry *ends* at
    its offset, so all batches after one that ends at `end - 1` or later are above the range.
    """
    before = int(np.searchsorted(index.last_offsets, one.start_offset, side="right")) - 1
    return before, int(np.searchsorted(index.last_offsets, one.end_offset - 1, side="left"))


def _cuts(positions: Ints, low: int, high: int, split_bytes: int) -> list[int]:
    """Return entry positions strictly inside (low, high), nearest to equal parts of about `split_bytes`."""
    inside = positions[(positions > low) & (positions < high)]
    shares = round((high - low) / split_bytes)
    if shares < 2 or not len(inside):
        return []
    targets = low + (np.arange(1, shares) * (high - low)) // shares
    after = np.searchsorted(inside, targets).clip(max=len(inside) - 1)
    before = (after - 1).clip(min=0)
    is_nearer = np.abs(inside[before] - targets) < np.abs(inside[after] - targets)
    found: list[int] = np.unique(np.where(is_nearer, inside[before], inside[after])).tolist()
    return found


def pack(pieces: Sequence[Piece], *, split_bytes: int) -> list[tuple[Piece, ...]]:
    """Combine small neighbours, in order, up to `split_bytes`."""
    packed: list[tuple[Piece, ...]] = []
    current: list[Piece] = []
    size, most = 0, split_bytes + split_bytes // 2
    for piece in pieces:
        more = piece.size_bytes
        if current and size + more > most:
            packed.append(tuple(current))
            current, size = [], 0
        current.append(piece)
        size += more
    if current:
        packed.append(tuple(current))
    return packed


def task_bytes(total_bytes: int, *, split_bytes: int, max_tasks: int, min_tasks: int) -> int:
    """Return how many bytes of segments a task should have.

    `split_bytes`, but less for at least `min_tasks`, down to `TASK_BYTES_MIN`, and more if there would be
    more than `max_tasks`. `pack` makes tasks of three quarters to one and a half times that size.
    """
    wanted = min(split_bytes, max(TASK_BYTES_MIN, 2 * total_bytes // (3 * min_tasks)))
    return max(wanted, ceil_div(4 * total_bytes, 3 * max_tasks))
