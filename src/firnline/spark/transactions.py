"""What a tier says about transactions: which were aborted, which may still be open. PURE.

A segment's transaction index lists the aborted transactions whose markers are in that segment, so a
reader needs the indexes of all segments after its first batch too. A transaction that is open where
the tier ends may still be aborted: the producer snapshot of the last segment says where it begins.
Source: KIP-405; spec T40.
"""

import struct
from collections.abc import Sequence

from firnline.base.errors import StorageError
from firnline.spark.plan import Range
from firnline.spark.schema import AbortedTransaction
from firnline.tiered.objects.layout import PRODUCER_SNAPSHOT, TXN_INDEX
from firnline.tiered.spi import ObjectStore

_ABORTED = struct.Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable
_SNAPSHOT_HEAD = struct.Struct(">hIi")  # version, CRC, number of producers
_PRODUCER = struct.Struct(">qhiqiqiq")  # ..., offset where its open transaction begins, or -1
_VERSIONS = (0, 1)


def parse_transaction_index(data: bytes, key: str) -> list[AbortedTransaction]:
    """Return the aborted transactions of one index; StorageError for bytes that are not one."""
    if len(data) % _ABORTED.size:
        raise StorageError("a transaction index is cut short", key=key, size_bytes=len(data))
    found = []
    for version, producer_id, first, last, _ in _ABORTED.iter_unpack(data):
        if version not in _VERSIONS or not 0 <= first <= last:
            raise StorageError("not a transaction index", key=key)
        found.append(AbortedTransaction(producer_id, first, last))
    return found


def parse_open_transactions(data: bytes, key: str) -> list[int]:
    """Return the first offsets of the transactions that are open in a producer snapshot."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise StorageError("a producer snapshot is cut short", key=key, size_bytes=len(data))
    version, _, count = _SNAPSHOT_HEAD.unpack_from(data)
    body = data[_SNAPSHOT_HEAD.size :]
    if version not in _VERSIONS or count * _PRODUCER.size != len(body):
        raise StorageError("not a producer snapshot", key=key, version=version)
    return [entry[7] for entry in _PRODUCER.iter_unpack(body) if entry[7] >= 0]


def aborted_in(store: ObjectStore, ranges: Sequence[Range]) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions whose markers are in `ranges`, which are those of a lineage."""
    found: list[AbortedTransaction] = []
    for one in ranges:
        if TXN_INDEX not in one.segment.suffixes:
            continue
        key = one.segment.key(TXN_INDEX)
        found.extend(
            aborted
            for aborted in parse_transaction_index(store.get(key), key)
            if one.start_offset <= aborted.last_offset < one.end_offset
        )
    return tuple(found)


def stable_end(store: ObjectStore, ranges: Sequence[Range]) -> int:
    """Return the offset up to which every transaction of `ranges` is known to be decided.

    Only a segment that is read to its end has a snapshot that fits; `ranges` is not empty.
    """
    for one in reversed(ranges):
        if one.end_offset == one.segment.end_offset + 1:
            key = one.segment.key(PRODUCER_SNAPSHOT)
            return min([one.end_offset, *parse_open_transactions(store.get(key), key)])
    return ranges[0].start_offset
