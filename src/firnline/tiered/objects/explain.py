"""Explains an offset of a tiered partition with the store alone: where its bytes are, and what it is. STORE.

For an operator who asks why a consumer, or Spark, sees what it sees. Reads the catalog, one index, one batch,
and the transaction indexes of later segments. Source: docs/formats/catalog.md; spec T36, T39, T40.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from firnline.base.errors import Code, KafkaError
from firnline.base.units import KIB
from firnline.formats import offset_index, transaction_index
from firnline.formats.transaction_index import AbortedTxn
from firnline.records.batch import HEADER_BYTES, BatchHeader, crc_is_right, headers, parse_header
from firnline.records.record import records
from firnline.stores.port import ObjectMissing, ObjectStore
from firnline.tiered.catalog.format import CatalogSegment, PartitionCatalog
from firnline.tiered.lineage import plan_ranges
from firnline.tiered.objects.layout import LOG, OFFSET_INDEX, TXN_INDEX

_READ_BYTES = 64 * KIB


class Explained(NamedTuple):
    """What the tier has at an offset. Offsets inclusive; None where the tier does not have it.

    kind        what the record is, or why there is none
    found_by    which entry of which index the search began at
    transaction what became of the record's transaction
    """

    kind: str
    segment: CatalogSegment | None = None
    key: str | None = None
    found_by: str | None = None
    batch: BatchHeader | None = None
    transaction: str | None = None

    @property
    def is_found(self) -> bool:
        return self.batch is not None


def explain(store: ObjectStore, catalog: PartitionCatalog, offset: int) -> Explained:
    """Return what the tier has at `offset`. Raises the errors of the store."""
    serving = plan_ranges(
        catalog.segments,
        catalog.epochs,
        start_offset=catalog.log_start_offset,
        end_offset=catalog.log_end_offset,
    )
    starts = [first for _, first, _ in serving]
    slot = bisect_right(starts, offset) - 1
    if offset < catalog.log_start_offset:
        return Explained(f"below the log start, {catalog.log_start_offset}: it was deleted")
    if not serving or offset >= serving[-1][2]:
        end = serving[-1][2] if serving else catalog.log_start_offset
        return Explained(f"not in the tier, which ends at {end}; brokers may have it")
    if slot < 0 or offset >= serving[slot][2]:
        return Explained(
            "no segment of the tier serves it, though later ones are there: it is lost"
        )
    segment = serving[slot][0]
    key = segment.stem + LOG
    try:
        position, found_by = _search_start(store, segment, offset)
        batch = _batch_with(store, key, segment.size_bytes, position, offset)
    except ObjectMissing as problem:
        return Explained(f"its object is missing: {problem}", segment, key)
    except KafkaError as problem:
        return Explained(f"its object is damaged: {problem}", segment, key)
    if batch is None:
        kind = "no record: the segment has no batch with it, as after a compaction"
        if segment.fingerprint is not None and not segment.fingerprint.may_have_gaps:
            kind = "damaged: no batch has it, and the segment was copied without gaps"
        return Explained(kind, segment, key, found_by)
    later = [each for each, _, _ in serving[slot:]]
    return Explained(
        kind=_kind(store, key, batch, offset),
        segment=segment,
        key=key,
        found_by=found_by,
        batch=batch,
        transaction=_transaction(store, later, batch, offset),
    )


def _search_start(store: ObjectStore, segment: CatalogSegment, offset: int) -> tuple[int, str]:
    """Return the position at which the search begins, and the entry of the index that says so."""
    key = segment.stem + OFFSET_INDEX
    try:
        data = store.get(key)
    except ObjectMissing:
        return 0, f"the start of the segment: {key} is missing"
    if len(data) % offset_index.ENTRY_BYTES:
        return 0, f"the start of the segment: {key} is damaged"
    offsets, positions = offset_index.decode(data)
    if not offset_index.can_be(offsets, positions):
        return 0, f"the start of the segment: {key} is damaged"
    slot = bisect_right(offsets, offset - segment.base_offset) - 1
    if slot < 0 or positions[slot] >= segment.size_bytes:
        return 0, f"the start of the segment: no entry of {key} is at or below the offset"
    entry = f"offset {segment.base_offset + offsets[slot]}, position {positions[slot]}"
    return positions[slot], f"entry {slot + 1} of {len(offsets)} of {key}: {entry}"


def _batch_with(
    store: ObjectStore, key: str, size_bytes: int, position: int, offset: int
) -> BatchHeader | None:
    """Return the header of the batch with the offset, and its position in the object; None without one."""
    at = position
    while at < size_bytes:
        data = store.get(key, at, min(_READ_BYTES, size_bytes - at))
        seen = 0
        while len(data) - seen >= HEADER_BYTES:
            header = parse_header(data, seen)
            if header.base_offset > offset:
                return None
            if header.last_offset >= offset:
                return header._replace(position=at + seen)
            if header.size_bytes < HEADER_BYTES:
                raise KafkaError(Code.CORRUPT_MESSAGE, "a batch is too short", position=at + seen)
            seen += header.size_bytes
        if not seen:
            return None
        at += seen
    return None


def _kind(store: ObjectStore, key: str, batch: BatchHeader, offset: int) -> str:
    data = store.get(key, batch.position, batch.size_bytes)
    if len(data) < batch.size_bytes:
        return "damaged: its batch is cut short"
    (header, *_) = headers(data)
    if not crc_is_right(data, header):
        return "damaged: the CRC of its batch is wrong"
    if header.is_control:
        return "a control record: the end of a transaction"
    try:
        for record in records(data, header):
            if record.offset == offset:
                key_size = "no key" if record.key is None else f"a key of {len(record.key)} bytes"
                size = 0 if record.value is None else len(record.value)
                value = "no value" if record.value is None else f"a value of {size} bytes"
                return f"a record with {key_size} and {value}, timestamp {record.timestamp_ms}"
    except KafkaError as problem:
        return f"damaged: {problem}"
    return "no record: its batch has others, and not this one, as after a compaction"


def _transaction(
    store: ObjectStore, segments: Sequence[CatalogSegment], batch: BatchHeader, offset: int
) -> str:
    """Say what became of the transaction, by the abort markers of this segment and later ones."""
    if not batch.is_transactional or batch.is_control:
        return "none"
    for segment in segments:
        if TXN_INDEX not in segment.suffixes:
            continue
        for entry in transaction_index.decode(store.get(segment.stem + TXN_INDEX)):
            if _covers(entry, batch.producer_id, offset):
                return f"aborted, by the marker at {entry.last_offset}"
            if entry.last_stable_offset > offset:
                return "committed"  # later aborts are of transactions that began above the offset
    return "not aborted by any marker in the tier: committed, unless brokers have a later marker"


def _covers(entry: AbortedTxn, producer_id: int, offset: int) -> bool:
    return entry.producer_id == producer_id and entry.first_offset <= offset <= entry.last_offset
