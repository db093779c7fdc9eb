"""What the committed records of `__remote_log_metadata` say of each remote segment. SIM.

Every record is applied once, when the first leader calls it committed, by the rules of KIP-405 as they are
written here: not by the code that brokers have for it. Source: rel-T6; spec 3.10.
"""

from bisect import bisect_right
from collections.abc import Callable

from firnline.base.ids import TopicIdPartition, Uuid
from firnline.records.batch import BatchHeader, headers
from firnline.records.record import records
from firnline.sim.cluster.ledger import PartitionKey
from firnline.tiered.metadata.changes import from_record
from firnline.tiered.metadata.records import decode
from firnline.tiered.spi import (
    DeleteState,
    PartitionDelete,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)

STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED
_NEXT = {STARTED: (FINISHED, DELETING), FINISHED: (DELETING,), DELETING: (DELETED,), DELETED: ()}


class KnownSegment:
    """One remote segment.

    current_end   once it is finished: up to where it has the committed records of its offsets, exclusive
    cuts          how often the partition's lineage was truncated when that was found out
    was_finished  it could be served
    states        (offset of the record, state from there on), ascending
    """

    __slots__ = ("current_end", "cuts", "segment", "state", "states", "was_finished")

    def __init__(self, segment: RemoteSegment) -> None:
        self.segment = segment
        self.state = STARTED
        self.current_end = segment.base_offset
        self.was_finished = False
        self.cuts = 0
        self.states: list[tuple[int, SegmentState]] = []

    @property
    def is_current(self) -> bool:
        """Whether all of it was of the committed lineage when that was last found out."""
        return self.current_end > self.segment.end_offset

    def state_at(self, offset: int) -> SegmentState | None:
        """Return the state by the records up to and including `offset`; None if there is none about it."""
        at = bisect_right(self.states, offset, key=lambda row: row[0])
        return self.states[at - 1][1] if at else None


class MetadataPartition:
    """One partition of the metadata topic.

    where     the first partition that it has records about
    offsets   of the records about segments, ascending
    segments  the segment that each of these records is about
    """

    __slots__ = ("offsets", "segments", "where")

    def __init__(self, where: TopicIdPartition) -> None:
        self.where = where
        self.offsets: list[int] = []
        self.segments: list[KnownSegment] = []

    def between(self, after: int, upto: int) -> dict[Uuid, KnownSegment]:
        """Return the segments that records above `after`, up to and including `upto`, are about."""
        first, end = bisect_right(self.offsets, after), bisect_right(self.offsets, upto)
        return {each.segment.segment_id: each for each in self.segments[first:end]}


class RecordedTier:
    """All remote segments, by partition and id.

    on_change(key, known, before)  is called after each legal change; `before` is None for a new segment
    complain(invariant, text)
    """

    def __init__(self, complain: Callable[[str, str], None]) -> None:
        self._complain = complain
        self.by_partition: dict[PartitionKey, dict[Uuid, KnownSegment]] = {}
        self.by_id: dict[Uuid, KnownSegment] = {}
        self.deletions: dict[PartitionKey, DeleteState] = {}
        self.metadata: dict[int, MetadataPartition] = {}  # by index
        self.on_change: Callable[[PartitionKey, KnownSegment, SegmentState | None], None]

    def on_batch(self, index: int, batch: bytes, _: BatchHeader) -> None:
        """A batch of the metadata partition `index` is committed."""
        for row in records(batch, next(headers(batch))):
            change = None if row.value is None else from_record(decode(row.value))
            if isinstance(change, PartitionDelete):
                self._note_deletion(change)
            elif change is not None:
                if isinstance(change, RemoteSegment):
                    self._add(change)
                else:
                    self._update(change)
                self._note(index, row.offset, change.segment_id)

    def _note(self, index: int, offset: int, segment_id: Uuid) -> None:
        known = self.by_id.get(segment_id)
        if known is None:
            return
        segment = known.segment
        where = TopicIdPartition(segment.topic_id, segment.partition)
        metadata = self.metadata.setdefault(index, MetadataPartition(where))
        metadata.offsets.append(offset)
        metadata.segments.append(known)
        if not known.states or known.states[-1][1] != known.state:
            known.states.append((offset, known.state))

    def _add(self, segment: RemoteSegment) -> None:
        known = self.by_id.get(segment.segment_id)
        if known is not None:
            if known.segment[:9] != segment[:9]:
                text = f"{name_of(known)} is used again, for {segment.base_offset} to {segment.end_offset}"
                self._complain("rel-T12", text)
            return
        known = self.by_id[segment.segment_id] = KnownSegment(segment)
        key = (segment.topic_id, segment.partition)
        self.by_partition.setdefault(key, {})[segment.segment_id] = known
        self.on_change(key, known, None)

    def _update(self, change: SegmentUpdate) -> None:
        known, state = self.by_id.get(change.segment_id), change.state
        if known is None or known.state == state:
            return
        if state not in _NEXT[known.state]:
            return
        if known.state == FINISHED and change.only_if_unfinished:
            return
        before, known.state = known.state, state
        known.was_finished = known.was_finished or state == FINISHED
        self.on_change((known.segment.topic_id, known.segment.partition), known, before)

    def _note_deletion(self, change: PartitionDelete) -> None:
        """rel-T7: MARKED, STARTED, FINISHED; finished only when nothing is left."""
        key = (change.topic_id, change.partition)
        before = self.deletions.get(key)
        if before is not None and change.state <= before:
            return
        if (before is None) != (change.state == DeleteState.MARKED):
            self._complain("rel-T7", f"the deletion of {key} is {change.state} after {before}")
        if change.state == DeleteState.FINISHED:
            left = [k for k in self.by_partition.get(key, {}).values() if k.state != DELETED]
            if left:
                text = f"the deletion of {key} is finished, and {name_of(left[0])} is {left[0].state!r}"
                self._complain("rel-T7", text)
        self.deletions[key] = change.state


def name_of(known: KnownSegment) -> str:
    """The segment, for a complaint."""
    segment = known.segment
    return (
        f"segment {segment.segment_id.hex()[:8]} of {segment.topic}-{segment.partition}"
        f" ({segment.base_offset} to {segment.end_offset})"
    )
