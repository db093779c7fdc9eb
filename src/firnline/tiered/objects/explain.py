"""Explains an offset of a tiered partition with the store alone: where its bytes are, and what it is. STORE.

For an operator who asks why a consumer, or Spark, sees what it sees. Reads the catalog, one index, one batch,
and the transaction indexes of later segments. Source: docs/formats/catalog.md; spec T36, T39, T40.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from firnline.base.errors import Code, KafkaError, ProtocolError
from firnline.base.units import KIB, MIB
from firnline.formats import offset_index, transaction_index
from firnline.formats.transaction_index import AbortedTxn
from firnline.records.batch import HEADER_BYTES, BatchHeader, crc_is_right, parse_header
from firnline.records.record import records
from firnline.stores.port import ObjectMissing, ObjectStore
from firnline.tiered.catalog.format import CatalogSegment, PartitionCatalog
from firnline.tiered.lineage import plan_ranges
from firnline.tiered.objects.layout import LOG, OFFSET_INDEX, TXN_INDEX

_READ_BYTES, _READ_BYTES_MAX = 64 * KIB, 4 * MIB


class Explained(NamedTuple):
    """What the tier has at an offset. Offsets inclusive; None where the tier does not have it.

    what         what the record is, or why there is none
    is_record    there is an undamaged record
    found_by     which entry of which index the search began at
    transaction  what became of the record's transaction
    """

    what: str
    is_record: bool = False
    segment: CatalogSegment | None = None
    key: str | None = None
    found_by: str | None = None
    batch: BatchHeader | None = None
    transaction: str | None = None


def explain(store: ObjectStore, catalog: PartitionCatalog, offset: int) -> Explained:
    """Return what the tier has at `offset`. Raises the errors of a store that does not answer."""
    serving = plan_ranges(
        catalog.segments,
        catalog.epochs,
        start_offset=catalog.log_start_offset,
        end_offset=catalog.log_end_offset,
    )
    slot = bisect_right([first for _, first, _ in serving], offset) - 1
    if offset < catalog.log_start_offset:
        return Explained(f"below the log start, {catalog.log_start_offset}: it was deleted")
    if not serving or offset >= serving[-1][2]:
        end = serving[-1][2] if serving else catalog.log_start_offset
        return Explained(f"not in the tier, which ends at {end}; brokers may have it")
    if slot < 0 or offset >= serving[slot][2]:
        return Explained(
            "no segment of the tier serves it, though later ones are there: it is lost"
        )
    later = [each for each, _, _ in serving[slot:]]
    found = Explained("", segment=later[0], key=later[0].stem + LOG)
    try:
        return _explain_in(store, later, found, offset)
    except ObjectMissing as problem:
        return found._replace(what=f"its object is missing: {problem}")
    except (KafkaError, ProtocolError) as problem:
        return found._replace(what=f"its object is damaged: {problem}")


def _explain_in(
    store: ObjectStore, segments: Sequence[CatalogSegment], found: Explained, offset: int
) -> Explained:
    """Search the first of `segments`; the later ones may have the marker of a transaction."""
    segment, key = segments[0], segments[0].stem + LOG
    position, found_by = _search_start(store, segment, offset)
    found = found._replace(found_by=found_by)
    batch = _batch_with(store, key, segment.size_bytes, position, offset)
    if batch is None:
        may_have_gaps = segment.fingerprint is None or segment.fingerprint.may_have_gaps
        return found._replace(
            what="no record: the segment has no batch with it, as after a compaction"
            if may_have_gaps
            else "damaged: no batch has it, and the segment was copied without gaps"
        )
    found = found._replace(batch=batch)
    if batch.position + batch.size_bytes > segment.size_bytes:
        return found._replace(what="damaged: its batch is longer than the rest of the segment")
    data = store.get(key, batch.position, batch.size_bytes)
    if len(data) < batch.size_bytes:
        return found._replace(what="damaged: its batch is cut short")
    header = batch._replace(position=0)
    if not crc_is_right(data, header):
        return found._replace(what="damaged: the CRC of its batch is wrong")
    epoch = max((each for each in segment.epochs if each[1] <= offset), default=(None, 0))[0]
    if header.leader_epoch != epoch:  # no CRC covers it
        problem = f"its batch has leader epoch {header.leader_epoch}, and the segment {epoch} there"
        return found._replace(what=f"damaged: {problem}")
    what = _record_text(data, header, offset)
    if what is None:
        absent = "no record: its batch has others, and not this one, as after a compaction"
        return found._replace(what=absent)
    transaction = _transaction(store, segments, batch, offset)
    return found._replace(what=what, is_record=True, transaction=transaction)


def _search_start(store: ObjectStore, segment: CatalogSegment, offset: int) -> tuple[int, str]:
    """Return the position at which the search begins, and the entry of the index that says so."""
    key = segment.stem + OFFSET_INDEX
    try:
        data = store.get(key)
    except ObjectMissing:
        return 0, f"the start of the segment: {key} is missing"
    if len(data) % offset_index.ENTRY_BYTES or not _fits(segment, OFFSET_INDEX, data):
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
    at, window_bytes = position, _READ_BYTES
    while at < size_bytes:
        data = store.get(key, at, min(window_bytes, size_bytes - at))
        window_bytes = min(
            2 * window_bytes, _READ_BYTES_MAX
        )  # without an index the way may be long
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


def _record_text(data: bytes, header: BatchHeader, offset: int) -> str | None:
    """Describe the record of that offset; None if the batch does not have it. KafkaError: it is damaged."""
    if header.is_control:
        return "a control record: the end of a transaction"
    for record in records(data, header):
        if record.offset == offset:
            key = "no key" if record.key is None else f"a key of {len(record.key)} bytes"
            value = "no value" if record.value is None else f"a value of {len(record.value)} bytes"
            return f"a record with {key} and {value}, timestamp {record.timestamp_ms}"
    return None


def _transaction(
    store: ObjectStore, segments: Sequence[CatalogSegment], batch: BatchHeader, offset: int
) -> str:
    """Say what became of the transaction, by the abort markers of this segment and later ones."""
    if not batch.is_transactional or batch.is_control:
        return "none"
    for segment in segments:
        if TXN_INDEX not in segment.suffixes:
            continue
        key = segment.stem + TXN_INDEX
        try:
            data = store.get(key)
        except ObjectMissing:
            return f"not known: {key} is missing"
        entries = transaction_index.decode_strict(data, segment.base_offset, segment.end_offset)
        if entries is None or not _fits(segment, TXN_INDEX, data):
            return f"not known: {key} is damaged"
        for entry in entries:
            if _covers(entry, batch.producer_id, offset):
                return f"aborted, by the marker at {entry.last_offset}"
            if entry.last_stable_offset > offset:
                return "committed"  # later aborts are of transactions that began above the offset
    return "not aborted by any marker in the tier: committed, unless brokers have a later marker"


def _fits(segment: CatalogSegment, suffix: str, data: bytes) -> bool:
    """Whether an object is what was copied, as far as the catalog knows."""
    return segment.fingerprint is None or segment.fingerprint.fits(suffix, data)


def _covers(entry: AbortedTxn, producer_id: int, offset: int) -> bool:
    return entry.producer_id == producer_id and entry.first_offset <= offset <= entry.last_offset
