"""What a tier says about transactions: which were aborted, which may still be open. PURE.

A segment's transaction index lists the aborted transactions whose markers are in that segment, so a reader
also needs the indexes of all segments after its first batch. A transaction that is open at the end of the
tier may still be aborted: the producer snapshot of the last segment says where it begins. Source: KIP-405;
spec T40.
"""

from collections.abc import Sequence

from firnline.base.errors import StorageError
from firnline.formats.producer_snapshot import decode_snapshot
from firnline.formats.transaction_index import ENTRY_BYTES, AbortedTxn, decode_strict
from firnline.spark.integrity import load_needed
from firnline.spark.plan import Range
from firnline.spark.schema import CorruptSegment, OpenTxn
from firnline.stores.port import ObjectStore
from firnline.tiered.catalog.format import CatalogSegment
from firnline.tiered.objects.layout import PRODUCER_SNAPSHOT, TXN_INDEX


def parse_transaction_index(data: bytes, segment: CatalogSegment) -> list[AbortedTxn]:
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


def aborted_in(store: ObjectStore, ranges: Sequence[Range]) -> tuple[AbortedTxn, ...]:
    """Return the aborted transactions whose markers are in `ranges`, which belong to a lineage."""
    found: list[AbortedTxn] = []
    for one in ranges:
        if TXN_INDEX not in one.segment.suffixes:
            continue
        data = load_needed(store, one.segment, TXN_INDEX)
        found.extend(
            aborted
            for aborted in parse_transaction_index(data, one.segment)
            if one.start_offset <= aborted.last_offset < one.end_offset
        )
    return tuple(found)


def stable_end(store: ObjectStore, ranges: Sequence[Range]) -> int:
    """Return the offset up to which every transaction of `ranges` has ended.

    The producer snapshot only fits if the segment is read to its end; `ranges` is not empty.
    """
    for one in reversed(ranges):
        if one.end_offset == one.segment.end_offset + 1:
            begun = (txn.first_offset for txn in _open_transactions(store, one.segment))
            return min([one.end_offset, *begun])
    return ranges[0].start_offset


def unfinished_in(store: ObjectStore, ranges: Sequence[Range]) -> tuple[OpenTxn, ...]:
    """Return the transactions of `ranges` whose outcome the tier does not have; `ranges` is not empty.

    After the last segment that is read to its end nothing is known: there it is the one of any producer.
    """
    for number, one in reversed(list(enumerate(ranges, 1))):
        if one.end_offset == one.segment.end_offset + 1:
            found = _open_transactions(store, one.segment)
            rest = [OpenTxn(one.end_offset)] if number < len(ranges) else []
            return (*found, *rest)
    return (OpenTxn(ranges[0].start_offset),)


def _open_transactions(store: ObjectStore, segment: CatalogSegment) -> list[OpenTxn]:
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
