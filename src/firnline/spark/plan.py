"""Plan a read: catalog version -> offset ranges by lineage -> byte ranges -> tasks. PURE.

Segments may overlap and may hold records of a deposed leader, so a list of objects is not a plan. A segment
may serve an offset only if its leader epoch there is the partition's (then both logs are equal up to it, as
in Raft). Source: KIP-405; spec 3.5, T62; spark section 4 'Partition planning'.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from firnline.base.ids import NO_OFFSET, Uuid
from firnline.formats import offset_index
from firnline.formats.transaction_index import AbortedTxn
from firnline.spark.frames import Ints
from firnline.spark.schema import OpenTxn
from firnline.tiered.catalog.format import CatalogSegment, PartitionCatalog
from firnline.tiered.lineage import plan_ranges
from firnline.tiered.objects.layout import LOG

INDEX_ENTRY = np.dtype(list(offset_index.FIELDS))


class Range(NamedTuple):
    """Offsets [start, end) that are to be read from `segment`."""

    segment: CatalogSegment
    start_offset: int
    end_offset: int


class Gap(NamedTuple):
    """Offsets [start, end) that no segment of the lineage holds."""

    start_offset: int
    end_offset: int


class Piece(NamedTuple):
    """A byte range of one segment, from batch to batch, and the offsets to deliver from it.

    first_ends  the last offset of the batch at `begin_position`, from the index; -1 at the beginning.
    reaches     the offset that the batches of the range must reach, exclusive.
    """

    segment: CatalogSegment
    begin_position: int
    end_position: int
    start_offset: int
    end_offset: int
    first_ends: int = NO_OFFSET
    reaches: int = 0

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


class OffsetIndex(NamedTuple):
    """A sparse index: the batch at `positions[i]` ends with offset `last_offsets[i]`; both ascend."""

    last_offsets: Ints
    positions: Ints


def parse_offset_index(data: bytes, segment: CatalogSegment) -> OffsetIndex | None:
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


def lineage_ranges(catalog: PartitionCatalog) -> list[Range | Gap]:
    """Return which segment serves which offsets, from the log start to the tier's end, without overlap.

    Ends with a Range; empty if the tier holds nothing of the lineage.
    """
    found: list[Range | Gap] = []
    at = catalog.log_start_offset
    for segment, start_offset, end_offset in plan_ranges(
        catalog.segments, catalog.epochs, start_offset=at, end_offset=catalog.log_end_offset
    ):
        if start_offset > at:
            found.append(Gap(at, start_offset))
        found.append(Range(segment, start_offset, end_offset))
        at = end_offset
    return found


def clip(ranges: Iterable[Range | Gap], *, start_offset: int, end_offset: int) -> list[Range | Gap]:
    """Return the part of `ranges` that lies in [start, end)."""
    clipped = (
        r._replace(
            start_offset=max(r.start_offset, start_offset),
            end_offset=min(r.end_offset, end_offset),
        )
        for r in ranges
    )
    return [r for r in clipped if r.start_offset < r.end_offset]


# ------------------------------------------------------------------------------------ bytes


def _believe(_segment: CatalogSegment, _index: OffsetIndex, _entries: Sequence[int]) -> bool:
    return True


def pieces_of(
    one: Range,
    *,
    split_bytes: int,
    load_index: Callable[[CatalogSegment], OffsetIndex | None],
    confirms: Callable[[CatalogSegment, OffsetIndex, Sequence[int]], bool] = _believe,
) -> list[Piece]:
    """Split a range into pieces of about `split_bytes`, at the nearest index entries.

    The index is loaded only if it saves or splits something. Without an index the piece is the complete
    segment; so it is if gaps are allowed, because only the checksum of the complete segment tells them from
    damage. `confirms` says whether the batches at these entries match them.
    """
    segment = one.segment
    known = segment.fingerprint
    is_complete = one.start_offset <= segment.base_offset and one.end_offset > segment.end_offset
    size = segment.size_bytes
    if (is_complete and size <= split_bytes + split_bytes // 2) or (known and known.may_have_gaps):
        return [Piece(segment, 0, size, one.start_offset, one.end_offset)]
    index = load_index(segment)
    if index is not None:
        found, used = _cut_pieces(one, index, split_bytes)
        if confirms(segment, index, used):
            return found
    return [Piece(segment, 0, size, one.start_offset, one.end_offset)]


def _cut_pieces(one: Range, index: OffsetIndex, split_bytes: int) -> tuple[list[Piece], list[int]]:
    """Return the pieces of a range, and the numbers of the index entries that they use."""
    before, last = _entry_range(index, one)
    count, size = len(index.positions), one.segment.size_bytes
    low = int(index.positions[before]) if before >= 0 else 0
    high = int(index.positions[last + 1]) if last + 1 < count else size
    cuts = _cuts(index.positions, low, high, split_bytes)
    ends = {int(p): int(o) for p, o in zip(index.positions, index.last_offsets, strict=True)}
    found = [
        Piece(one.segment, begin, end, one.start_offset, one.end_offset, ends.get(begin, NO_OFFSET))
        for begin, end in pairwise([low, *cuts, high])
    ]
    if high < size:
        found[-1] = found[-1]._replace(reaches=one.end_offset)
    used = [*np.searchsorted(index.positions, [low, *cuts]).tolist(), last, last + 1]
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
    size = 0
    for piece in pieces:
        if current and size + piece.size_bytes > split_bytes + split_bytes // 2:
            packed.append(tuple(current))
            current, size = [], 0
        current.append(piece)
        size += piece.size_bytes
    if current:
        packed.append(tuple(current))
    return packed
