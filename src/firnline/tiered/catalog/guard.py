"""Never replaces a catalog by one that misses segments without a reason. PURE, except what runs in workers.

The catalog is derived from `__remote_log_metadata`. If that is deleted, truncated or forked, only the catalog
still lists the segments in the store. So a leader compares its new catalog version with that of its
predecessor, and later with its own. A segment may be missing if the log start is above it, if its deletion is
recorded, or if its object does not exist. In any other case metadata is lost: nothing is written, copied or
deleted, and the log start offset stays. Source: spec T62.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, islice
from typing import NamedTuple, Protocol

from firnline.base.errors import StorageError
from firnline.base.ids import Uuid
from firnline.stores.port import ObjectMissing, ObjectStore
from firnline.tiered.catalog import CatalogCorrupt, CatalogSegment, list_heads, read_version
from firnline.tiered.hosted import Hosted
from firnline.tiered.objects.layout import LOG, segment_stem
from firnline.tiered.spi import Everything, RemoteLogMetadata, RemoteSegment, SegmentState

_REMEDY = (
    "bring the lost records of __remote_log_metadata back: from another replica of it, or from a backup."
    " Until then nothing of this partition is copied or deleted, and its catalog stays as it was"
)

# The number of lost segments that are searched in the store, and counted.
NAMED_MAX = 100


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
    """What a new leader finds: keys of all catalog objects, segments of the newest readable version."""

    listed: tuple[str, ...]
    segments: tuple[CatalogSegment, ...]


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


# ------------------------------------------------------------------- in worker threads (they block)


def read_before(
    store: ObjectStore, topic_id: Uuid, partition: int, listed: Collection[str]
) -> Before:
    """Return the segments of the newest readable version; none if there is none."""
    for name in list_heads(listed):
        try:
            found = read_version(store, topic_id, partition, name)
        except (CatalogCorrupt, ObjectMissing):
            continue
        return Before(tuple(listed), found.segments)
    return Before(tuple(listed), ())


def still_there(
    store: ObjectStore, topic_id: Uuid, partition: int, rows: Collection[Row]
) -> list[Row]:
    """Return those of `rows` whose log object is in the store, at most the first `NAMED_MAX`.

    The check is repeated while there are some, and one is enough for the error.
    """
    there = (row for row in rows if _has_log(store, topic_id, partition, row))
    return list(islice(there, NAMED_MAX))


def _has_log(store: ObjectStore, topic_id: Uuid, partition: int, row: Row) -> bool:
    stem = segment_stem(topic_id, partition, base_offset=row.base_offset, segment_id=row.segment_id)
    try:
        store.get(stem + LOG, 0, 1)
    except ObjectMissing:
        return False
    return True
