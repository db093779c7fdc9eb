"""Never replaces a catalog by one that misses segments without a reason. PURE, except what runs in workers.

The catalog is derived from `__remote_log_metadata`. If that is deleted, truncated or forked, only the catalog
still lists the segments in the store. So a leader compares its new catalog version with that of its
predecessor, and later with its own. A segment may be missing if the log start is above it, if its deletion is
recorded, or if its object does not exist. In any other case metadata is lost: nothing is written, copied or
deleted, and the log start offset stays.

A reference says how many segments are below it, and has a digest of their ids. If the metadata has exactly
these, the part is not read, and the new leader takes it over. Source: spec T62; decision 0044.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from firnline.base.errors import StorageError
from firnline.base.ids import Uuid
from firnline.stores.port import ObjectMissing
from firnline.tiered.catalog.format import (
    CatalogCorrupt,
    CatalogHead,
    CatalogSegment,
    PartRef,
    details_in,
    digest_of,
)
from firnline.tiered.catalog.writer import ReadPart, Taken, rows_below
from firnline.tiered.hosted import Hosted
from firnline.tiered.objects.layout import parts_folder
from firnline.tiered.spi import Everything, RemoteLogMetadata, RemoteSegment, SegmentState

_REMEDY = (
    "bring the lost records of __remote_log_metadata back: from another replica of it, or from a backup."
    " Until then nothing of this partition is copied or deleted, and its catalog stays as it was"
)


class ExplainsLess(StorageError):
    """The metadata of the tier does not have segments that are in the tier."""


class Row(Protocol):
    """A segment in a catalog or in the metadata. Offsets are inclusive."""

    @property
    def segment_id(self) -> Uuid: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class Before(NamedTuple):
    """What a new leader finds: keys of all heads, and the newest readable version.

    head              its head, if its parts are not read yet
    segments          otherwise those of that version
    log_start_offset  its log start offset; 0 if no version can be read, None if there never was one
    """

    listed: tuple[str, ...]
    head: CatalogHead | None = None
    segments: tuple[CatalogSegment, ...] = ()
    log_start_offset: int | None = None


def unexplained(
    before: Iterable[Row],
    finished: Collection[Uuid],
    *,
    log_start_offset: int,
    is_recorded: Callable[[Uuid], bool],
) -> list[Row]:
    """Return the earlier segments that are neither finished now, nor below the log start, nor deleted.

    is_recorded  whether the metadata has the segment in any state, also deleted
    """
    return [
        row
        for row in before
        if row.end_offset >= log_start_offset
        and row.segment_id not in finished
        and not is_recorded(row.segment_id)
    ]


class Compared(NamedTuple):
    """The finished segments at one moment, and the earlier segments that are missing without a reason.

    taken  what a new leader takes over; None without a predecessor
    """

    finished: dict[Uuid, RemoteSegment]
    missing: list[Row]
    taken: Taken | None = None


def compare(
    before: Before | None,
    own: Iterable[Row],
    everything: Everything,
    *,
    log_start_offset: int,
    gone: Collection[Uuid],
    read: ReadPart,
) -> Compared:
    """Compare all earlier segments with the present ones; takes 1 us a segment.

    before  the catalog of the predecessor; None: compared already
    own     segments in this leader's newest head
    gone    ids of segments that are not in the store any more
    read    reads a part; errors of the store are passed on
    """
    recorded = {segment.segment_id for segment in everything.segments}
    recorded.update(everything.deleted, gone)
    finished = {
        segment.segment_id: segment
        for segment in everything.segments
        if segment.state == SegmentState.COPY_FINISHED
    }
    rows, taken = _from_before(before, finished, log_start_offset, read)
    missing = unexplained(
        chain(rows, own),
        finished,
        log_start_offset=log_start_offset,
        is_recorded=recorded.__contains__,
    )
    return Compared(finished, missing, taken)


def _from_before(
    before: Before | None,
    finished: Mapping[Uuid, RemoteSegment],
    log_start_offset: int,
    read: ReadPart,
) -> tuple[Sequence[CatalogSegment], Taken | None]:
    """Return the earlier rows that may lack a segment, and what is taken over."""
    if before is None:
        return (), None
    if before.head is None:
        details = {row.segment_id: details_in(row) for row in before.segments}
        return before.segments, Taken(details=details)
    compared = _ComparedHead(before.head, finished, log_start_offset, read)
    for ref in before.head.parts:
        compared.look_below(ref)
    if not compared.is_damaged:
        return compared.lost, compared.taken()
    rows = [*before.head.tail, *rows_below(before.head.parts, read)]
    removed = {segment_id for segment_id, _ in before.head.removed}
    left = [row for row in rows if row.segment_id not in removed]
    return left, Taken(details={row.segment_id: details_in(row) for row in left})


class _ComparedHead:
    """A predecessor's catalog beside the finished segments. Only parts that differ are read."""

    def __init__(
        self,
        head: CatalogHead,
        finished: Mapping[Uuid, RemoteSegment],
        log_start_offset: int,
        read: ReadPart,
    ) -> None:
        self._head, self._finished, self._read = head, finished, read
        self._start = log_start_offset
        self._folder = parts_folder(head.topic_id, head.partition)
        self._by_base = sorted(finished.values(), key=lambda s: s.base_offset)
        self._bases = [segment.base_offset for segment in self._by_base]
        self._removed = {segment_id for segment_id, _ in head.removed}
        self._known = {
            row.segment_id: finished[row.segment_id]
            for row in head.tail
            if row.segment_id in finished
        }
        self._lost_in_parts: list[CatalogSegment] = []
        self.is_damaged = False  # a part cannot be read

    @property
    def lost(self) -> list[CatalogSegment]:
        """The rows whose segments are not there any more."""
        in_tail = [row for row in self._head.tail if row.segment_id not in self._finished]
        return in_tail + self._lost_in_parts

    def look_below(self, ref: PartRef) -> None:
        """Compare the segments of a part, and of all parts below it."""
        if ref.end_offset < self._head.log_start_offset or self.is_damaged:
            return  # hidden, and its objects may be deleted
        if not ref.key.startswith(self._folder):
            self.is_damaged = True  # no reader would follow this reference
            return
        low, high = (
            bisect_left(self._bases, ref.start_offset),
            bisect_right(self._bases, ref.end_offset),
        )
        inside = [s for s in self._by_base[low:high] if s.end_offset <= ref.end_offset]
        if self._agrees(ref, inside):
            self._note(inside)
            return
        if ref.end_offset < self._start and not inside:
            return  # all expired meanwhile
        try:
            rows, below = self._read(ref)
        except (CatalogCorrupt, ObjectMissing):
            self.is_damaged = True
            return
        self._note(self._finished[r.segment_id] for r in rows if r.segment_id in self._finished)
        gone = (row for row in rows if row.segment_id not in self._finished)
        self._lost_in_parts += [row for row in gone if row.segment_id not in self._removed]
        for each in below:
            self.look_below(each)

    def _agrees(self, ref: PartRef, inside: Sequence[RemoteSegment]) -> bool:
        """Whether the part has exactly these segments, and those of its range that are removed."""
        ids = {segment.segment_id for segment in inside}
        ids.update(i for i, end in self._head.removed if ref.start_offset <= end <= ref.end_offset)
        return len(ids) == ref.segments and digest_of(ids) == ref.digest

    def _note(self, segments: Iterable[RemoteSegment]) -> None:
        """These are in the part; a removed one that is back counts as new."""
        self._known.update((s.segment_id, s) for s in segments if s.segment_id not in self._removed)

    def taken(self) -> Taken:
        """Return the predecessor's catalog without the rows of lost segments."""
        head = self._head
        parts = [ref for ref in head.parts if ref.end_offset >= head.log_start_offset]
        top = max((ref.level for ref in parts), default=-1)
        levels = (tuple(r for r in parts if r.level == level) for level in range(top + 1))
        return Taken(
            follows=head.order if parts else None,
            tail=tuple(row for row in head.tail if row.segment_id in self._finished),
            levels=tuple(levels),
            removed=head.removed + tuple((r.segment_id, r.end_offset) for r in self._lost_in_parts),
            known=self._known,
        )


def problem_of(rows: Collection[Row], *, topic: str, partition: int) -> ExplainsLess:
    """Return the error with the missing segments and the remedy."""
    return ExplainsLess(
        "the tier has segments that its metadata does not know",
        partition=f"{topic}-{partition}",
        segments=len(rows),
        first_offset=min(row.base_offset for row in rows),
        last_offset=max(row.end_offset for row in rows),
        remedy=_REMEDY,
    )


def lacks_what_went(hosted: Hosted, metadata: RemoteLogMetadata) -> bool:
    """Whether the metadata lacks the segment right below the local log, which was in the tier (T14)."""
    log = hosted.log
    offset = log.local_log_start_offset - 1
    if offset < log.log_start_offset:
        return False
    epoch = log.epochs.epoch_at(offset)
    return epoch is None or metadata.lookup(hosted.where, epoch=epoch, offset=offset) is None


def nothing_below(hosted: Hosted) -> ExplainsLess:
    """Return that error for a partition without a catalog to compare with."""
    log = hosted.log
    return ExplainsLess(
        "local segments were deleted because the tier had them, and its metadata does not know them",
        partition=str(log.topic_partition),
        below_offset=log.local_log_start_offset,
        remedy=_REMEDY,
    )
