"""A catalog never gives way to one that explains less. PURE, but for what runs in workers.

The catalog is derived from `__remote_log_metadata`; where that was deleted, cut off or forked, it is the last
to know what the store holds. So a leader compares what it is about to say with what was said before it, and
then with what it said itself. A segment may be missing from it if the log now begins after it, if its
deletion is recorded, or if its object is gone. Anything else is a loss of metadata: nothing is written,
copied or deleted then, and the log start stays. Source: spec T62.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, islice
from typing import NamedTuple, Protocol

from firnline.base.errors import StorageError
from firnline.base.ids import Uuid
from firnline.tiered.catalog import CatalogCorrupt, CatalogSegment, list_heads, read_cut
from firnline.tiered.hosted import Hosted
from firnline.tiered.objects.layout import LOG, segment_stem
from firnline.tiered.spi import (
    Everything,
    ObjectMissing,
    ObjectStore,
    RemoteLogMetadata,
    RemoteSegment,
    SegmentState,
)

_REMEDY = (
    "bring the lost records of __remote_log_metadata back: from another replica of it, or from a backup."
    " Until then nothing of this partition is copied or deleted, and its catalog stays as it was"
)

# So many lost segments are looked for in the store, and counted.
NAMED_MAX = 100


class ExplainsLess(StorageError):
    """The metadata of the tier does not know segments that the tier holds."""


class Row(Protocol):
    """A segment as a catalog or the metadata has it. Offsets inclusive."""

    @property
    def segment_id(self) -> Uuid: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class Before(NamedTuple):
    """What a new leader found: keys of all catalog objects, and the segments of the newest readable cut."""

    listed: tuple[str, ...]
    segments: tuple[CatalogSegment, ...]


def unexplained(
    before: Iterable[Row],
    finished: Collection[Uuid],
    *,
    log_start_offset: int,
    is_recorded: Callable[[Uuid], bool],
) -> list[Row]:
    """Return what was said before, and is neither finished now nor below the log start nor being deleted.

    is_recorded  whether the metadata knows of the segment in any state, deleted too
    """
    return [
        row
        for row in before
        if row.end_offset >= log_start_offset
        and row.segment_id not in finished
        and not is_recorded(row.segment_id)
    ]


class Compared(NamedTuple):
    """The finished segments at one moment, and what was said before and nothing explains."""

    finished: dict[Uuid, RemoteSegment]
    missing: list[Row]


def compare(
    before: Sequence[Iterable[Row]],
    everything: Everything,
    *,
    log_start_offset: int,
    gone: Collection[Uuid],
) -> Compared:
    """Compare all that was said before with all that is known now: 1 us a segment.

    gone  ids of segments that the store does not hold any more
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
    """Say what is missing, and what the operator can do."""
    return ExplainsLess(
        "the tier holds segments that its metadata does not know",
        partition=f"{topic}-{partition}",
        segments=len(rows),
        first_offset=min(row.base_offset for row in rows),
        last_offset=max(row.end_offset for row in rows),
        remedy=_REMEDY,
    )


def lacks_what_went(hosted: Hosted, metadata: RemoteLogMetadata) -> bool:
    """Whether the metadata has no segment for what lay right below the local files: it was there (T14)."""
    log = hosted.log
    offset = log.local_log_start_offset - 1
    if offset < log.log_start_offset:
        return False
    epoch = log.epochs.epoch_at(offset)
    return epoch is None or metadata.lookup(hosted.where, epoch=epoch, offset=offset) is None


def nothing_below(hosted: Hosted) -> ExplainsLess:
    """Say that of a partition whose tier has no catalog to compare with."""
    log = hosted.log
    return ExplainsLess(
        "local files went because the tier had them, and its metadata does not know them",
        partition=str(log.topic_partition),
        below_offset=log.local_log_start_offset,
        remedy=_REMEDY,
    )


# ------------------------------------------------------------------- in worker threads (they block)


def read_before(
    store: ObjectStore, topic_id: Uuid, partition: int, listed: Collection[str]
) -> Before:
    """Return what the newest cut that can be read says; nothing where there is none."""
    for name in list_heads(listed):
        try:
            found = read_cut(store, topic_id, partition, name)
        except (CatalogCorrupt, ObjectMissing):
            continue
        return Before(tuple(listed), found.segments)
    return Before(tuple(listed), ())


def still_there(
    store: ObjectStore, topic_id: Uuid, partition: int, rows: Collection[Row]
) -> list[Row]:
    """Return those of `rows` whose log object is in the store, the first `NAMED_MAX` at most.

    It is asked again and again as long as there are some, and one is enough.
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
