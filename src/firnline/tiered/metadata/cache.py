"""The remote segments of one partition by leader epoch, from the records of the metadata log. PURE.

Lookups by offset find only finished segments. All segments that are not deleted are listed, so that the
remains of failed copies are cleaned up. Source: KIP-405 'RemoteLogMetadataCache'; spec 3.11; traps X32, X33.
"""

from bisect import bisect_left, bisect_right

from firnline.base.ids import NO_OFFSET, Uuid
from firnline.tiered.metadata.ordered import Ordered
from firnline.tiered.metadata.states import may_follow, may_follow_delete
from firnline.tiered.spi import (
    DeleteState,
    Everything,
    Look,
    Mark,
    PartitionDelete,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    Totals,
)

# The ids of deleted segments that are kept, for each partition.
DELETED_KEPT = 256
# The changes that are kept for callers of `look`, for each partition; after more they get everything again.
CHANGES_KEPT = 4096


class _EpochView:
    """One leader epoch: finished segments by their first offset in it, the others by id.

    Every finished segment serves, whatever others cover: these may be deleted before it. Segments usually do
    not overlap; then a change of `_tops` ends with the next segment.
    """

    __slots__ = ("_ends", "_tops", "highest_offset", "ids", "starts", "unreferenced")

    def __init__(self) -> None:
        # ids[i] serves starts[i] to _ends[i]. Ascending by start, then by end, then by when it was finished.
        self.starts: list[int] = []
        self.ids: list[Uuid] = []
        self._ends: list[int] = []
        self._tops: list[int] = []  # the highest of _ends[: i + 1]
        self.unreferenced: dict[Uuid, None] = {}
        self.highest_offset = NO_OFFSET  # of all that have ever been finished

    def map_segment(self, segment_id: Uuid, start_offset: int, end_offset: int) -> None:
        """Serve [start, end] of the epoch from this segment, which served nothing so far."""
        at = bisect_right(self.starts, start_offset)
        while at and self.starts[at - 1] == start_offset and self._ends[at - 1] > end_offset:
            at -= 1
        self.starts.insert(at, start_offset)
        self.ids.insert(at, segment_id)
        self._ends.insert(at, end_offset)
        self._tops.insert(at, NO_OFFSET)
        self._find_tops(at)
        self.unreferenced.pop(segment_id, None)
        self.highest_offset = max(self.highest_offset, end_offset)

    def unmap(self, segment_id: Uuid, start_offset: int) -> None:
        """Do not serve from the segment any more; it stays listed."""
        self._take_out(segment_id, start_offset)
        self.unreferenced[segment_id] = None

    def forget(self, segment_id: Uuid, start_offset: int) -> None:
        self._take_out(segment_id, start_offset)
        self.unreferenced.pop(segment_id, None)

    def _take_out(self, segment_id: Uuid, start_offset: int) -> None:
        at = bisect_left(self.starts, start_offset)
        while at < len(self.ids) and self.starts[at] == start_offset:
            if self.ids[at] == segment_id:
                del self.ids[at], self.starts[at], self._ends[at], self._tops[at]
                self._find_tops(at)
                return
            at += 1

    def _find_tops(self, at: int) -> None:
        """Compute `_tops` again from one index on, until they do not change."""
        top = self._tops[at - 1] if at else NO_OFFSET
        for place in range(at, len(self._tops)):
            top = max(top, self._ends[place])
            if self._tops[place] == top:
                return
            self._tops[place] = top

    def holder(self, offset: int) -> Uuid | None:
        """Return the segment with `offset`; of several, the one with the nearest start, or that ends last."""
        at = bisect_right(self.starts, offset) - 1
        while at >= 0 and self._tops[at] >= offset:  # otherwise it is in a hole
            if self._ends[at] >= offset:
                return self.ids[at]
            at -= 1
        return None


_Key = tuple[int, int, Uuid]


def _by_base(segment: RemoteSegment) -> _Key:
    return segment.base_offset, segment.end_offset, segment.segment_id


def _by_end(segment: RemoteSegment) -> _Key:
    return segment.end_offset, segment.base_offset, segment.segment_id


def epoch_end(segment: RemoteSegment, epoch: int) -> int:
    """Return the last offset of `epoch` inside the segment, inclusive."""
    ends = [offset for e, offset in segment.epochs if e > epoch]
    return (min(ends) if ends else segment.end_offset + 1) - 1


class _Feed:
    """Ids of segments that may have become finished or unfinished since the first `look`; oldest first."""

    __slots__ = ("first", "ids")

    def __init__(self) -> None:
        self.first = 0  # the position of ids[0]
        self.ids: list[Uuid] = []

    def note(self, segment_id: Uuid) -> None:
        """Add a change. A caller whose mark is older than all kept changes gets everything again."""
        self.ids.append(segment_id)
        if len(self.ids) > CHANGES_KEPT:
            forgotten = len(self.ids) // 2 + 1
            del self.ids[:forgotten]
            self.first += forgotten

    def after(self, position: int) -> list[Uuid]:
        """Return the changes after `position`."""
        return self.ids[position - self.first :]


class MetadataCache:
    """The remote segments of one partition, from the applied records of the metadata log."""

    __slots__ = (
        *("_all", "_by_epoch", "_by_id", "_bytes", "_deleted", "_deleting", "_feed", "_finished"),
        *("_unfinished", "delete"),
    )

    def __init__(self) -> None:
        self._by_id: dict[Uuid, RemoteSegment] = {}
        self._all: Ordered[_Key] = Ordered()  # by base offset
        self._finished: Ordered[_Key] = Ordered()  # by end offset
        # Copies and deletions in progress, by base offset.
        self._unfinished: Ordered[_Key] = Ordered()
        # Of finished segments, and of those that are being deleted: their number, and their bytes.
        self._bytes: dict[SegmentState, int] = {}
        self._deleting = 0
        self._by_epoch: dict[int, _EpochView] = {}
        self._deleted: dict[Uuid, None] = {}  # the latest ones
        self._feed: _Feed | None = None  # from the first look on
        self.delete: PartitionDelete | None = None

    @property
    def segment_count(self) -> int:
        return len(self._by_id)

    def add(self, segment: RemoteSegment) -> bool:
        """Apply a COPY_STARTED record; False if its transition is illegal (dropped)."""
        known = self._by_id.get(segment.segment_id)
        if segment.state != SegmentState.COPY_STARTED or not segment.epochs:
            return False
        if not may_follow(known.state if known else None, segment.state):
            return False
        if known is not None:
            return known[:9] == segment[:9]  # a duplicate; an id is never reused (rel-T12)
        self._by_id[segment.segment_id] = segment
        self._all.put(_by_base(segment), segment)
        self._unfinished.put(_by_base(segment), segment)
        for epoch, _ in segment.epochs:
            self._view(epoch).unreferenced[segment.segment_id] = None
        return True

    def update(self, change: SegmentUpdate) -> bool:
        """Apply a change of state; False for an illegal transition, or an unknown segment."""
        known = self._by_id.get(change.segment_id)
        if known is None or change.state == SegmentState.COPY_STARTED:
            return False
        if not may_follow(known.state, change.state):
            return False
        if change.only_if_unfinished and known.state == SegmentState.COPY_FINISHED:
            return False  # its leader may rely on it by now, and have deleted the local segment (rel-T2)
        if known.state == change.state:
            return True
        custom = change.custom_metadata
        segment = known._replace(
            state=change.state,
            broker_id=change.broker_id,
            event_timestamp_ms=change.event_timestamp_ms,
            custom_metadata=known.custom_metadata if custom is None else custom,
            is_abandoned=known.is_abandoned
            or (known.state, change.state)
            == (SegmentState.COPY_STARTED, SegmentState.DELETE_STARTED),
        )
        self._by_id[segment.segment_id] = segment
        self._all.put(_by_base(segment), segment)
        self._count(known, -1)
        self._count(segment, 1)
        if segment.state == SegmentState.COPY_FINISHED:
            self._finished.put(_by_end(segment), segment)
            self._unfinished.drop(_by_base(segment))
        else:
            self._finished.drop(_by_end(segment))
            self._unfinished.put(_by_base(segment), segment)
        self._note(segment.segment_id)
        for epoch, start in segment.epochs:
            view = self._view(epoch)
            if segment.state == SegmentState.COPY_FINISHED:
                view.map_segment(segment.segment_id, start, epoch_end(segment, epoch))
            elif segment.state == SegmentState.DELETE_STARTED:
                view.unmap(segment.segment_id, start)
            else:
                view.forget(segment.segment_id, start)
        if segment.state == SegmentState.DELETE_FINISHED:
            self._drop(segment)
            self._deleted[segment.segment_id] = None
            if len(self._deleted) > DELETED_KEPT:
                del self._deleted[next(iter(self._deleted))]
        return True

    def _count(self, segment: RemoteSegment, by: int) -> None:
        state = segment.state
        self._bytes[state] = self._bytes.get(state, 0) + by * segment.size_bytes
        self._deleting += by * (state == SegmentState.DELETE_STARTED)

    def totals(self) -> Totals:
        """Return the totals. See `spi.RemoteLogMetadata`."""
        return Totals(
            segments=len(self._by_id),
            finished_segments=len(self._finished.rows),
            finished_bytes=self._bytes.get(SegmentState.COPY_FINISHED, 0),
            deleting_segments=self._deleting,
            deleting_bytes=self._bytes.get(SegmentState.DELETE_STARTED, 0),
        )

    def _note(self, segment_id: Uuid) -> None:
        if self._feed is not None:
            self._feed.note(segment_id)

    def _drop(self, segment: RemoteSegment) -> None:
        self._note(segment.segment_id)
        del self._by_id[segment.segment_id]
        self._all.drop(_by_base(segment))
        self._finished.drop(_by_end(segment))
        self._unfinished.drop(_by_base(segment))

    def apply_delete(self, change: PartitionDelete) -> bool:
        """Apply a change of the partition's deletion; False for an illegal transition (dropped)."""
        known = self.delete.state if self.delete else None
        if not may_follow_delete(known, change.state):
            return False
        if known != change.state:
            self.delete = change
        return True

    @property
    def delete_state(self) -> DeleteState | None:
        return self.delete.state if self.delete else None

    def was_deleted(self, segment_id: Uuid) -> bool:
        """Whether it is one of the latest segments whose deletion is finished."""
        return segment_id in self._deleted

    def get(self, segment_id: Uuid) -> RemoteSegment | None:
        """Return the segment unless it is deleted or unknown."""
        return self._by_id.get(segment_id)

    def lookup(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the finished segment with `offset` of `epoch`.

        The one with the nearest start at or below it; if that ends below `offset`, an earlier one, which a
        shorter later copy does not hide (Kafka 4.3.1 returns none there).
        """
        view = self._by_epoch.get(epoch)
        segment_id = None if view is None else view.holder(offset)
        return None if segment_id is None else self._by_id[segment_id]

    def highest_offset(self, epoch: int) -> int | None:
        """Return the highest offset of `epoch` that has ever been finished; it never decreases."""
        view = self._by_epoch.get(epoch)
        if view is None or view.highest_offset == NO_OFFSET:
            return None
        return view.highest_offset

    def segments(self, epoch: int | None = None) -> list[RemoteSegment]:
        """Return all segments that are not deleted, or those of `epoch`, ascending by base offset."""
        if epoch is None:
            return self._all.rows.copy()
        view = self._by_epoch.get(epoch)
        ids = {**dict.fromkeys(view.ids), **view.unreferenced} if view else {}
        return sorted((self._by_id[segment_id] for segment_id in ids), key=_by_base)

    def finished(self, reaching: int = 0) -> list[RemoteSegment]:
        """Return the finished segments that end at or above `reaching`, ascending by end offset."""
        return self._finished.rows[bisect_left(self._finished.keys, (reaching, -1, b"")) :]

    def unfinished(self) -> list[RemoteSegment]:
        """Return the segments that are being copied or deleted, ascending by base offset."""
        return self._unfinished.rows.copy()

    def look(self, since: Mark | None) -> Look:
        """Return the changes of finished segments after `since`. See `spi.RemoteLogMetadata`."""
        feed = self._feed
        if feed is None:
            self._feed = feed = _Feed()
        mark = Mark(feed, feed.first + len(feed.ids))
        if since is None or since.feed is not feed or since.position < feed.first:
            return Look(mark, {}, Everything(self._all.rows.copy(), tuple(self._deleted)))
        changed: dict[Uuid, RemoteSegment | None] = {}
        for segment_id in feed.after(since.position):
            segment = self._by_id.get(segment_id)
            is_finished = segment is not None and segment.state == SegmentState.COPY_FINISHED
            changed[segment_id] = segment if is_finished else None
        return Look(mark, changed, None)

    def _view(self, epoch: int) -> _EpochView:
        view = self._by_epoch.get(epoch)
        if view is None:
            view = self._by_epoch[epoch] = _EpochView()
        return view
