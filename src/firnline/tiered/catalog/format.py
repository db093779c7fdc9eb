"""The catalog of a tiered partition, for readers without a broker. PURE. Source: spec T62.

`__remote_log_metadata` is authoritative for remote segments; leaders derive a catalog from it and write it
next to the segments. A catalog version is a *head* object and the immutable *parts* that it refers to. Heads
are ordered by (leader epoch, sequence), and a reader takes the highest that a listing shows: so a stale
listing gives an older version, and the heads of a former leader sort lower. `objects/catalog_reader.py` reads
catalogs, `catalog/writer.py` writes them. Format, byte for byte: docs/formats/catalog.md.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from crc32c import crc32c

from firnline.base.errors import StorageError
from firnline.base.ids import NO_OFFSET, Uuid, uuid_from_text, uuid_text
from firnline.base.units import INT64_MAX, MIB
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.tiered.objects.fingerprint import Fingerprint, ObjectSum
from firnline.tiered.objects.layout import (
    LOG,
    HeadName,
)

VERSION = 1
# With 32 references each, that is more segments than there are offsets.
LEVELS_MAX = 12
# Rows of one partition, about a kilobyte of memory each: 4 PiB in segments of a gibibyte.
ROWS_MAX = 4_000_000
# The maximum size of an object: a part has at most 1,024 rows, a head 32 and all leader epochs.
OBJECT_BYTES_MAX = 16 * MIB
LINES_MAX = 10_000


class CatalogCorrupt(StorageError):
    """A catalog object does not match its footer or its reference: nothing of it is used (rel-T20)."""


class CatalogSegment(NamedTuple):
    """One finished remote segment. Offsets are inclusive; `size_bytes` is the size of its log object."""

    segment_id: Uuid
    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    epochs: Epochs
    stem: str
    suffixes: tuple[str, ...]
    custom_metadata: bytes | None = None
    fingerprint: Fingerprint | None = None  # None: written by a version without fingerprints

    def key(self, suffix: str = LOG) -> str:
        """Return the key of one of its objects; `suffix` is one of `objects.layout`."""
        return self.stem + suffix


class PartRef(NamedTuple):
    """A reference to an immutable part. `level` 0: rows are segments; above: refs to level - 1."""

    key: str
    level: int
    rows: int
    end_offset: int
    size_bytes: int
    crc: int


class CatalogHead(NamedTuple):
    """One catalog version of a partition, without the rows in parts."""

    topic: str
    topic_id: Uuid
    partition: int
    leader_epoch: int
    sequence: int
    broker_id: int
    written_ms: int
    metadata_partition: int
    metadata_offset: int
    log_start_offset: int
    log_end_offset: int
    epochs: Epochs
    parts: tuple[PartRef, ...]
    removed: tuple[Uuid, ...]
    tail: tuple[CatalogSegment, ...]

    @property
    def order(self) -> HeadName:
        return HeadName(self.leader_epoch, self.sequence)


class PartitionCatalog(NamedTuple):
    """One catalog version of a partition: its tier as the leader knew it at one moment.

    `segments` are all finished segments that end at or above `log_start_offset`, by base offset. They may
    overlap, and may be outside the lineage (spec T6): `lineage.plan_ranges` selects the segment of each
    range. `epochs` is the partition's history of leader epochs, `log_end_offset` the leader's log end at that
    moment, exclusive. `metadata_offset` is the last offset of `__remote_log_metadata`-`metadata_partition`
    that it reflects.
    """

    topic: str
    topic_id: Uuid
    partition: int
    leader_epoch: int
    sequence: int
    broker_id: int
    written_ms: int
    metadata_partition: int
    metadata_offset: int
    log_start_offset: int
    log_end_offset: int
    epochs: Epochs
    segments: tuple[CatalogSegment, ...]

    @property
    def order(self) -> HeadName:
        return HeadName(self.leader_epoch, self.sequence)

    @property
    def highest_offset(self) -> int:
        """The highest offset in the tier in any lineage, or -1."""
        return max((s.end_offset for s in self.segments), default=NO_OFFSET)


class CatalogTopic(NamedTuple):
    """One topic id that has, or had, objects in the tier."""

    topic_id: Uuid
    topic: str
    partitions: tuple[int, ...]
    registered_ms: int
    is_deleted: bool


def encode_head(head: CatalogHead) -> bytes:
    """Encode a head; every line is one JSON value and ends with a newline."""
    first = {
        "firnline": "catalog",
        "version": VERSION,
        "kind": "head",
        "topic": head.topic,
        "topicId": uuid_text(head.topic_id),
        "partition": head.partition,
        "leaderEpoch": head.leader_epoch,
        "sequence": head.sequence,
        "brokerId": head.broker_id,
        "writtenMs": head.written_ms,
        "metadataPartition": head.metadata_partition,
        "metadataOffset": head.metadata_offset,
        "logStartOffset": head.log_start_offset,
        "logEndOffset": head.log_end_offset,
        "leaderEpochs": [list(entry) for entry in head.epochs],
        "parts": [_ref_json(ref) for ref in head.parts],
        "removed": [uuid_text(segment_id) for segment_id in head.removed],
    }
    return _seal([first, *(_row_json(row) for row in head.tail)])


def encode_part(
    topic_id: Uuid, partition: int, rows: Sequence[CatalogSegment] | Sequence[PartRef], level: int
) -> bytes:
    """Encode a part: segments at level 0, at higher levels references to parts of the level below."""
    first = {
        "firnline": "catalog",
        "version": VERSION,
        "kind": "part",
        "topicId": uuid_text(topic_id),
        "partition": partition,
        "level": level,
    }
    body = [_row_json(r) if isinstance(r, CatalogSegment) else _ref_json(r) for r in rows]
    return _seal([first, *body])


def decode_part(data: bytes, ref: PartRef) -> tuple[list[CatalogSegment], list[PartRef]]:
    """Return the rows of a part of level 0, or the references of one above it. Raises CatalogCorrupt."""
    key = ref.key
    if len(data) != ref.size_bytes or crc32c(data) != ref.crc:
        raise CatalogCorrupt("a catalog part differs from its reference", key=key)
    first, *lines = _lines(data, key, "part")
    if first.get("level") != ref.level or len(lines) != ref.rows:
        raise CatalogCorrupt("a catalog part is another one than its reference says", key=key)
    if ref.level == 0:
        return [_row(line, key) for line in lines], []
    below = [_ref(line, key) for line in lines]
    if any(each.level != ref.level - 1 for each in below):
        raise CatalogCorrupt("a catalog part refers to another level", key=key)
    return [], below


def decode_head(data: bytes, key: str) -> CatalogHead:
    """Decode a head; CatalogCorrupt for other bytes. `key` is only for the message."""
    lines = _lines(data, key, "head")
    first = lines[0]
    try:
        return CatalogHead(
            topic=_text(first["topic"]),
            topic_id=uuid_from_text(first["topicId"]),
            partition=_int(first["partition"]),
            leader_epoch=_int(first["leaderEpoch"]),
            sequence=_int(first["sequence"]),
            broker_id=_int(first["brokerId"]),
            written_ms=_int(first["writtenMs"]),
            metadata_partition=_int(first["metadataPartition"]),
            metadata_offset=_int(first["metadataOffset"]),
            log_start_offset=_int(first["logStartOffset"]),
            log_end_offset=_int(first["logEndOffset"]),
            epochs=_epochs(first["leaderEpochs"]),
            parts=tuple(_ref(part, key) for part in first["parts"]),
            removed=tuple(uuid_from_text(text) for text in first["removed"]),
            tail=tuple(_row(line, key) for line in lines[1:]),
        )
    except _BAD_FIELDS as problem:
        raise CatalogCorrupt("a catalog head lacks a field", key=key, problem=problem) from None


_BAD_FIELDS = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


def _seal(values: Iterable[object]) -> bytes:
    """Join `values` as lines, and add the footer: their number, and the CRC-32C of the bytes before it."""
    lines = [json.dumps(v, separators=(",", ":"), ensure_ascii=False) for v in values]
    body = ("\n".join(lines) + "\n").encode()
    footer = json.dumps({"lines": len(lines), "crc32c": crc32c(body)}, separators=(",", ":"))
    return body + footer.encode() + b"\n"


def _lines(data: bytes, key: str, kind: str) -> list[dict[str, Any]]:
    """Check the footer and the first line; return all lines but the footer."""
    if data.count(b"\n") > LINES_MAX:
        raise CatalogCorrupt("a catalog object has too many lines", key=key, limit=LINES_MAX)
    body_end = data.rfind(b"\n", 0, max(len(data) - 1, 0)) + 1
    try:
        footer = json.loads(data[body_end:])
        is_complete = data.endswith(b"\n") and footer["crc32c"] == crc32c(data[:body_end])
        lines: list[dict[str, Any]] = (
            [json.loads(line) for line in data[: max(body_end - 1, 0)].split(b"\n")]
            if is_complete
            else []
        )
        if not lines or footer["lines"] != len(lines):
            raise CatalogCorrupt("a catalog object is cut short or damaged", key=key)
        first = lines[0]
        if first["firnline"] != "catalog" or first["kind"] != kind:
            raise CatalogCorrupt(f"not a catalog {kind}", key=key)
        if first["version"] > VERSION:
            raise CatalogCorrupt(
                "this catalog was written by a newer Firnline: update the reader",
                key=key,
                version=first["version"],
                readable=VERSION,
            )
    except _BAD_FIELDS as problem:
        raise CatalogCorrupt("not a catalog object", key=key, problem=problem) from None
    return lines


def _row_json(row: CatalogSegment) -> dict[str, object]:
    out: dict[str, object] = {
        "id": uuid_text(row.segment_id),
        "base": row.base_offset,
        "end": row.end_offset,
        "bytes": row.size_bytes,
        "maxTimestampMs": row.max_timestamp_ms,
        "epochs": [list(entry) for entry in row.epochs],
        "stem": row.stem,
        "objects": list(row.suffixes),
    }
    if row.custom_metadata is not None:
        out["custom"] = row.custom_metadata.hex()
    known = row.fingerprint
    if known is not None:
        out["mayHaveGaps"] = known.may_have_gaps
        out["firstCrc32c"], out["headsCrc32c"] = known.first_crc, known.heads_crc
        out["sums"] = {suffix: list(entry) for suffix, entry in known.sums}
    return out


def _row(line: dict[str, Any], key: str) -> CatalogSegment:
    try:
        custom = line.get("custom")
        row = CatalogSegment(
            segment_id=uuid_from_text(line["id"]),
            base_offset=_int(line["base"]),
            end_offset=_int(line["end"]),
            size_bytes=_int(line["bytes"]),
            max_timestamp_ms=_int(line["maxTimestampMs"]),
            epochs=_epochs(line["epochs"]),
            stem=_text(line["stem"]),
            suffixes=tuple(_text(suffix) for suffix in line["objects"]),
            custom_metadata=None if custom is None else bytes.fromhex(custom),
            fingerprint=_fingerprint(line),
        )
    except _BAD_FIELDS as problem:
        raise CatalogCorrupt("a catalog row lacks a field", key=key, problem=problem) from None
    if not (0 <= row.base_offset <= row.end_offset and row.size_bytes >= 0):
        raise CatalogCorrupt(
            "a catalog row is of no segment", key=key, base=row.base_offset, end=row.end_offset
        )
    return row


def _fingerprint(line: dict[str, Any]) -> Fingerprint | None:
    """Return the fingerprint in a row; None in rows of old catalogs."""
    if "mayHaveGaps" not in line:
        return None
    return Fingerprint(
        may_have_gaps=bool(line["mayHaveGaps"]),
        first_crc=_int(line["firstCrc32c"]),
        heads_crc=_int(line["headsCrc32c"]),
        sums=tuple(
            (_text(s), ObjectSum(_int(n), _int(crc))) for s, (n, crc) in line["sums"].items()
        ),
    )


def _ref_json(ref: PartRef) -> dict[str, object]:
    return {
        "key": ref.key,
        "level": ref.level,
        "rows": ref.rows,
        "end": ref.end_offset,
        "bytes": ref.size_bytes,
        "crc32c": ref.crc,
    }


def _ref(line: dict[str, Any], key: str) -> PartRef:
    try:
        ref = PartRef(
            key=_text(line["key"]),
            level=_int(line["level"]),
            rows=_int(line["rows"]),
            end_offset=_int(line["end"]),
            size_bytes=_int(line["bytes"]),
            crc=_int(line["crc32c"]),
        )
    except _BAD_FIELDS as problem:
        raise CatalogCorrupt("a part reference lacks a field", key=key, problem=problem) from None
    if not (0 <= ref.level <= LEVELS_MAX and 0 <= ref.size_bytes <= OBJECT_BYTES_MAX):
        raise CatalogCorrupt(
            "a part reference is of no catalog", key=key, level=ref.level, bytes=ref.size_bytes
        )
    return ref


def _epochs(value: Any) -> Epochs:
    return tuple((_int(epoch), _int(offset)) for epoch, offset in value)


def _int(value: Any) -> int:
    """Return a number of at most 64 bits, which every reader can represent."""
    number = int(value)
    if not -INT64_MAX <= number <= INT64_MAX:
        raise ValueError("a number beyond 64 bits")
    return number


def _text(value: Any) -> str:
    """Return text without lone surrogates, which JSON allows and names do not."""
    text = str(value)
    text.encode()
    return text
