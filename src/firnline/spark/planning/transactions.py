"""What a tier says about transactions: which were aborted, which may still be open. SPARK.

A segment's transaction index lists the aborted transactions whose markers are in that segment, so a reader
also needs the indexes of all segments after its first batch. A transaction that is open at the end of the
tier may still be aborted: the producer snapshot of the last segment says where it begins. Source: KIP-405;
spec T40.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from operator import attrgetter

from firnline.base.errors import StorageError
from firnline.base.ids import Uuid
from firnline.formats.producer_snapshot import decode_snapshot
from firnline.formats.transaction_index import ENTRY_BYTES, AbortedTxn, decode_strict
from firnline.spark.integrity import load_needed
from firnline.spark.planning.calls import Calls
from firnline.spark.planning.plan import Range, Segment
from firnline.spark.schema import CorruptSegment, OpenTxn
from firnline.stores.port import ObjectStore
from firnline.tiered.objects.layout import PRODUCER_SNAPSHOT, TXN_INDEX


def parse_transaction_index(data: bytes, segment: Segment) -> list[AbortedTxn]:
    """Return the aborted transactions of one index; CorruptSegment for a malformed index.

    All their markers are in the segment, in the order of the entries.
    """
    key, base_offset = segment.key(TXN_INDEX), segment.base_offset
    if len(data) % ENTRY_BYTES:
        raise CorruptSegment(
            "a transaction index is truncated", object=key, offset=base_offset, size_bytes=len(data)
        )
    found = decode_strict(data, base_offset, segment.end_offset)
    if found is None:
        raise CorruptSegment("not the segment's transaction index", object=key, offset=base_offset)
    return found


def aborted_in(store: ObjectStore, ranges: Sequence[Range], calls: Calls) -> tuple[AbortedTxn, ...]:
    """Return the aborted transactions whose markers are in `ranges`, which belong to a lineage."""

    def load(one: Range) -> list[AbortedTxn]:
        data = load_needed(store, one.segment, TXN_INDEX)
        return [
            aborted
            for aborted in parse_transaction_index(data, one.segment)
            if one.start_offset <= aborted.last_offset < one.end_offset
        ]

    indexed = [one for one in ranges if TXN_INDEX in one.segment.suffixes]
    return tuple(chain.from_iterable(calls.each(load, indexed)))


class AbortedByOffset:
    """Finds the aborted transactions that have records in a range of offsets."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._aborted = sorted(aborted, key=attrgetter("last_offset"))
        self._last = [txn.last_offset for txn in self._aborted]
        # The lowest first offset of each transaction and those after it, which ascends.
        firsts = [txn.first_offset for txn in reversed(self._aborted)]
        self._lowest_from = list(accumulate(firsts, min))[::-1]

    def within(self, start_offset: int, end_offset: int) -> tuple[AbortedTxn, ...]:
        """Return those that overlap [start, end), by the offset of their markers."""
        low = bisect_left(self._last, start_offset)
        high = bisect_left(self._lowest_from, end_offset)
        return tuple(txn for txn in self._aborted[low:high] if txn.first_offset < end_offset)


NO_ABORTED = AbortedByOffset(())


class Producers:
    """What the producer snapshots of a partition's segments say about open transactions."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._open: dict[Uuid, list[OpenTxn]] = {}

    def open_at_end(self, segment: Segment) -> list[OpenTxn]:
        """Return the transactions that are open at the end of a segment."""
        if segment.segment_id not in self._open:
            self._open[segment.segment_id] = _open_transactions(self._store, segment)
        return self._open[segment.segment_id]

    def stable_end(self, ranges: Sequence[Range]) -> int | None:
        """Return the offset up to which every transaction of `ranges` has ended.

        The producer snapshot only fits if the segment is read to its end; None if none of them is.
        """
        for one in reversed(ranges):
            if one.end_offset == one.segment.end_offset + 1:
                begun = (txn.first_offset for txn in self.open_at_end(one.segment))
                return min([one.end_offset, *begun])
        return None

    def unfinished(self, ranges: Sequence[Range]) -> tuple[OpenTxn, ...] | None:
        """Return the transactions whose outcome the tier does not have, by first offset.

        `ranges` ends with the last of the lineage. After the last segment that is read to its end nothing is
        known: there it is the one of any producer. None if no segment is read to its end.
        """
        for number, one in reversed(list(enumerate(ranges, 1))):
            if one.end_offset == one.segment.end_offset + 1:
                rest = [OpenTxn(one.end_offset)] if number < len(ranges) else []
                found = [*self.open_at_end(one.segment), *rest]
                return tuple(sorted(found, key=attrgetter("first_offset")))
        return None


def _open_transactions(store: ObjectStore, segment: Segment) -> list[OpenTxn]:
    """Return the transactions that are open at the end of a segment."""
    key = segment.key(PRODUCER_SNAPSHOT)
    data = load_needed(store, segment, PRODUCER_SNAPSHOT)
    try:
        producers = decode_snapshot(data, path=key)
    except StorageError as problem:
        raise CorruptSegment(problem.why, object=key, offset=segment.base_offset) from None
    begun = [
        OpenTxn(p.txn_first_offset, p.producer_id) for p in producers if p.txn_first_offset >= 0
    ]
    if any(txn.first_offset > segment.end_offset for txn in begun):
        raise CorruptSegment(
            "not the segment's producer snapshot", object=key, offset=segment.base_offset
        )
    return begun
