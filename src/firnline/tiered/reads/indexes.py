"""The indexes of one remote segment, and what a search in them finds. PURE. Source: spec 3.17, T39."""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from firnline.base.ids import NO_OFFSET
from firnline.formats import offset_index, time_index, transaction_index
from firnline.tiered.spi import RemoteSegment


class SearchStart(NamedTuple):
    """The position at which a search begins, and the facts that the indexes state about the batches there.

    ends          last offset of the batch at `position`; -1 at the start of the segment, or not known
    noted_offset  an offset whose batch has the greatest timestamp so far, `noted_ms`; -1: none
    begins        the lowest offset that the batch at `position` may have, because another read ended there
    """

    position: int
    ends: int
    noted_offset: int = NO_OFFSET
    noted_ms: int = -1
    begins: int = NO_OFFSET


BEGINNING = SearchStart(0, NO_OFFSET)


class SegmentIndexes:
    """The indexes of one remote segment. Positions are bytes, offsets absolute."""

    __slots__ = (
        "_base_offset",
        "_offsets",
        "_positions",
        "_time_offsets",
        "_times_ms",
        "aborted",
        "size_bytes",
    )

    def __init__(self, base_offset: int, offsets: bytes, times: bytes, txns: bytes) -> None:
        self._base_offset = base_offset
        self._offsets, self._positions = offset_index.decode(offsets)
        self._times_ms, self._time_offsets = time_index.decode(times)
        self.aborted = transaction_index.decode(txns)
        self.size_bytes = len(offsets) + len(times) + len(txns)

    def start_for(self, offset: int) -> "SearchStart":
        """Return the start of the search for `offset`: at or before the batch with it."""
        slot = bisect_right(self._offsets, offset - self._base_offset) - 1
        if slot < 0:
            return BEGINNING
        return SearchStart(self._positions[slot], self._base_offset + self._offsets[slot])

    def start_for_time(self, timestamp_ms: int) -> "SearchStart":
        """Return the start of the search for the first record at or after the timestamp."""
        slot = bisect_left(self._times_ms, timestamp_ms) - 1
        if slot < 0:
            return BEGINNING
        noted_ms, offset = self._times_ms[slot], self._base_offset + self._time_offsets[slot]
        start = self.start_for(offset)
        return start._replace(noted_offset=offset, noted_ms=noted_ms) if start.position else start


class IndexFiles(NamedTuple):
    """The bytes of the three indexes; empty for an absent transaction index."""

    offsets: bytes
    times: bytes
    txns: bytes

    def is_sane(self, segment_bytes: int) -> bool:
        """Whether the files can belong to a segment of that size."""
        if len(self.offsets) % offset_index.ENTRY_BYTES or len(self.times) % time_index.ENTRY_BYTES:
            return False
        offsets, positions = offset_index.decode(self.offsets)
        if not offset_index.can_be(offsets, positions):
            return False
        if positions and positions[-1] >= segment_bytes:
            return False
        return time_index.is_ordered(*time_index.decode(self.times))

    def aborts_of(self, segment: RemoteSegment) -> bool:
        """Whether the transaction index can be the segment's: its markers are in the segment, in order."""
        base_offset, end_offset = segment.base_offset, segment.end_offset
        return transaction_index.decode_strict(self.txns, base_offset, end_offset) is not None
