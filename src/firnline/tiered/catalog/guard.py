"""Never replaces a catalog by one that misses segments without a reason. PURE, except what runs in workers.

The catalog is derived from `__remote_log_metadata`. If that is deleted, truncated or forked, only the catalog
still lists the segments in the store. So a leader compares its new catalog version with that of its
predecessor, and later with its own. A segment may be missing if the log start is above it, if its deletion is
recorded, or if its object does not exist. In any other case metadata is lost: nothing is written, copied or
deleted, and the log start offset stays. Source: spec T62.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from firnline.base.errors import StorageError
from firnline.base.ids import Uuid
from firnline.tiered.catalog.format import CatalogSegment
from firnline.tiered.hosted import Hosted
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
    """What a new leader finds: keys of all catalog objects, and the newest readable version.

    segments          those of that version
    log_start_offset  its log start offset; 0 if no version can be read, None if there never was one
    """

    listed: tuple[str, ...]
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
    """The finished segments at one moment, and the earlier segments that are missing without a reason."""

    finished: dict[Uuid, RemoteSegment]
    missing: list[Row]


def compare(
    before: Sequence[Iterable[Row]],
    everything: Everything,
    *,
    log_start_offset: int,
    gone: Collection[Uuid],
) -> Compared:
    """Compare all earlier segments with the present ones; takes 1 us a segment.

    gone  ids of segments that are not in the store any more
    """
    recorded = {segment.segment_id for segment in everything.segments}
    recorded.update(everything.deleted, gone)
    finished = {
        segment.segment_id: segment
        for segment in everything.segments
        if segment.state == SegmentState.COPY_FINISHED
    }
    missing = unexplained(
        chain.from_iterable(before),
        finished,
        log_start_offset=log_start_offset,
        is_recorded=recorded.__contains__,
    )
    return Compared(finished, missing)


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
