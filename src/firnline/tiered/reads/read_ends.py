"""Where reads of remote segments ended: the next one need not search the position in the index. PURE.

An offset index names a batch by its last offset. So it leads to the batch before the one that is wanted,
which would be fetched once more; producers make batches of a megabyte.
"""

from firnline.base.ids import NO_OFFSET, Uuid
from firnline.tiered.objects.batches import Batches
from firnline.tiered.reads.indexes import SearchStart, SegmentIndexes

# How many positions are known, of the latest reads.
KNOWN_MAX = 10_000


class ReadEnds:
    """The positions behind the last batches of reads, by the offset that comes next."""

    def __init__(self) -> None:
        self._positions: dict[tuple[Uuid, int], int] = {}  # oldest first

    def note(self, segment_id: Uuid, batches: Batches) -> None:
        """Remember where a read ended; its batches were checked."""
        if not batches.data:
            return
        place = segment_id, batches.end_offset
        self._positions.pop(place, None)
        self._positions[place] = batches.end_position
        if len(self._positions) > KNOWN_MAX:
            del self._positions[next(iter(self._positions))]

    def start_for(self, segment_id: Uuid, offset: int, indexes: SegmentIndexes) -> SearchStart:
        """Return the start of the search for `offset`: where a read ended, else what the index says."""
        position = self._positions.get((segment_id, offset))
        if position is None:
            return indexes.start_for(offset)
        return SearchStart(position, NO_OFFSET, begins=offset)
