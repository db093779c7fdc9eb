"""The catalog of a tiered partition, for readers without a broker. PURE. Source: spec T62.

`__remote_log_metadata` is authoritative for remote segments; leaders derive a catalog from it and write it
next to the segments. A catalog version is a *head* object and the immutable *parts* that it refers to. Heads
are ordered by (leader epoch, sequence), and a reader takes the highest that a listing shows: so a stale
listing gives an older version, and the heads of a former leader sort lower. `objects/catalog_reader.py` reads
catalogs, `catalog/writer.py` writes them. Version 2 is written, versions 1 and 2 are read. Format, byte for
byte: docs/formats/catalog.md.
"""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain
from operator import le, lt
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from crc32c import crc32c

from firnline.base.errors import StorageError
from firnline.base.ids import NO_OFFSET, Uuid, uuid_from_text, uuid_text
from firnline.base.units import MIB
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.tiered.catalog.values import (
    check_numbers,
    digest_in,
    flat_numbers,
    int_in,
    line_value,
    optional_int_in,
    suffixes_in,
    text_in,
)
from firnline.tiered.objects.fingerprint import Fingerprint, ObjectSum
from firnline.tiered.objects.layout import (
    LOG,
    HeadName,
)

T = TypeVar("T")
VERSION = 2
# A row names the first batch at or after each further so many bytes of its log object.
SPLIT_BYTES = 8 * MIB
# With 32 references each, that is more segments than there are offsets.
LEVELS_MAX = 12
# Rows of one partition, about a kilobyte of memory each: 4 PiB in segments of a gibibyte.
ROWS_MAX = 4_000_000
# The maximum size of an object: the writer ends a part at 1,024 rows or 4 MiB; a head has 32 rows, 256
# removed segments and all leader epochs.
OBJECT_BYTES_MAX = 16 * MIB
LINES_MAX = 10_000


class CatalogCorrupt(StorageError):
    """A catalog object does not match its footer or its reference: nothing of it is used (rel-T20)."""


class Split(NamedTuple):
    """A batch of a log object at which a reader may begin.

    offset            its base offset
    position          of its first byte in the log object
    max_timestamp_ms  the largest timestamp of all records before it in the segment, -1 if none has one: who
                      looks for later records may begin here
    """

    offset: int
    position: int
    max_timestamp_ms: int


class Details(NamedTuple):
    """What a row says of a segment's inside. Only the walk before the copy learns it.

    min_timestamp_ms  at most the timestamp of each record; None: unknown
    splits            the first batch at or after each further `SPLIT_BYTES`
    """

    min_timestamp_ms: int | None = None
    splits: tuple[Split, ...] = ()


class CatalogSegment(NamedTuple):
    """One finished remote segment. Offsets are inclusive; `size_bytes` is the size of its log object.

    `min_timestamp_ms` and `splits` are those of `Details`: None and () in rows for which they were lost.
    """

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
    min_timestamp_ms: int | None = None
    splits: tuple[Split, ...] = ()

    def key(self, suffix: str = LOG) -> str:
        """Return the key of one of its objects; `suffix` is one of `objects.layout`."""
        return self.stem + suffix


class FlatFingerprint(NamedTuple):
    """The fields of `Fingerprint`; `sums` has length and CRC in turn, in the order of `suffixes`."""

    may_have_gaps: bool
    first_crc: int
    heads_crc: int
    suffixes: tuple[str, ...]
    sums: list[int]


class RowFields(NamedTuple):
    """The checked fields of a row, without an object for each number: a plan reads 100,000 rows.

    splits  offset, position and max_timestamp_ms of each split, in 8 bytes each, in this machine's byte order
    """

    segment_id: Uuid
    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    epochs: Epochs
    stem: str
    suffixes: tuple[str, ...]
    custom_metadata: bytes | None
    fingerprint: FlatFingerprint | None
    min_timestamp_ms: int | None
    splits: bytes


CommonRows = Callable[[bytes, int], tuple[list[T], int]]


class RowForm(NamedTuple, Generic[T]):
    """What a reader makes of rows: each a tuple.

    of      makes one of its fields; it may raise CatalogCorrupt
    common  compiled code, if there is some: it returns the rows of the lines from a position on that are as
            `_row_json` writes most of them, in a fifth of the time, and the begin of the first other line
    """

    of: Callable[[RowFields], T]
    common: CommonRows[T] | None = None


def catalog_segment(fields: RowFields) -> CatalogSegment:
    """Return the row with these fields."""
    known, flat = fields.fingerprint, iter(array("q", fields.splits))
    return CatalogSegment(
        *fields[:9],
        fingerprint=None if known is None else _fingerprint(known),
        min_timestamp_ms=fields.min_timestamp_ms,
        splits=tuple(map(Split, flat, flat, flat)),
    )


_COMPLETE = RowForm(catalog_segment)


def fields_of(row: CatalogSegment) -> RowFields:
    """Return the fields of a row: the reverse of `catalog_segment`."""
    known, flat = row.fingerprint, None
    if known is not None:
        names = tuple([suffix for suffix, _ in known.sums])
        sums = list(chain.from_iterable([entry for _, entry in known.sums]))
        flat = FlatFingerprint(known.may_have_gaps, known.first_crc, known.heads_crc, names, sums)
    return RowFields(
        *row[:9],
        fingerprint=flat,
        min_timestamp_ms=row.min_timestamp_ms,
        splits=_packed(list(chain.from_iterable(row.splits))),
    )


def _packed(splits: list[int]) -> bytes:
    return array("q", splits).tobytes() if splits else b""


def _fingerprint(known: FlatFingerprint) -> Fingerprint:
    flat = iter(known.sums)
    sums = tuple(zip(known.suffixes, map(ObjectSum, flat, flat), strict=True))
    return Fingerprint(known.may_have_gaps, known.first_crc, known.heads_crc, sums)


def details_in(row: CatalogSegment) -> Details:
    """Return the details in a row."""
    return Details(row.min_timestamp_ms, row.splits)


class PartRef(NamedTuple):
    """A reference to an immutable part. `level` 0: rows are segments; above: refs to level - 1.

    rows              lines of the part itself
    start_offset      the lowest and highest offset of its segments, inclusive; `end_offset` likewise
    min_timestamp_ms  at most the timestamp of each record in its segments, `max_timestamp_ms` at least; None:
                      unknown
    segments          the number of segments in the part and all parts below it, and `digest_of` them. None:
                      written by version 1, which also says 0 for `start_offset`
    """

    key: str
    level: int
    rows: int
    end_offset: int
    size_bytes: int
    crc: int
    start_offset: int = 0
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    segments: int | None = None
    digest: int | None = None


_DIGEST_MASK = (1 << 64) - 1


def digest_of(segment_ids: Iterable[Uuid]) -> int:
    """Return the digest of a set of segments, in any order: the sum, modulo 2**64, of the first 8 bytes of
    the SHA-256 of each id, big endian. The digest of two sets together is the sum of theirs.
    """
    total = 0
    for segment_id in segment_ids:
        total += int.from_bytes(sha256(segment_id).digest()[:8], "big")
    return total & _DIGEST_MASK


class _Bounded(Protocol):
    """The fields of a row by which its part is found: those of `CatalogSegment`, and of what a plan makes."""

    @property
    def segment_id(self) -> Uuid: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def min_timestamp_ms(self) -> int | None: ...
    @property
    def max_timestamp_ms(self) -> int: ...


R = TypeVar("R", bound=_Bounded)


def reference(
    key: str, level: int, rows: Sequence[CatalogSegment] | Sequence[PartRef], data: bytes
) -> PartRef:
    """Return the reference to the part with `rows`, whose encoded bytes are `data`."""
    return PartRef(key, level, len(rows), size_bytes=len(data), crc=crc32c(data), **_bounds(rows))


def _bounds(rows: Sequence[_Bounded] | Sequence[PartRef]) -> dict[str, Any]:
    """Return the fields of a reference that follow from the rows of its part."""
    segments = [row for row in rows if not isinstance(row, PartRef)]
    if segments:
        return _bounds_of_segments(segments)
    below = [row for row in rows if isinstance(row, PartRef)]
    return {
        "start_offset": min((ref.start_offset for ref in below), default=0),
        "end_offset": max((ref.end_offset for ref in below), default=NO_OFFSET),
        "min_timestamp_ms": _if_all_known(min, [ref.min_timestamp_ms for ref in below]),
        "max_timestamp_ms": _if_all_known(max, [ref.max_timestamp_ms for ref in below]),
        "segments": sum(ref.segments or 0 for ref in below),
        "digest": sum(ref.digest or 0 for ref in below) & _DIGEST_MASK,
    }


def _bounds_of_segments(rows: Sequence[_Bounded]) -> dict[str, Any]:
    newest = [row.max_timestamp_ms for row in rows]
    return {
        "start_offset": min([row.base_offset for row in rows]),
        "end_offset": max([row.end_offset for row in rows]),
        "min_timestamp_ms": _if_all_known(min, [row.min_timestamp_ms for row in rows]),
        "max_timestamp_ms": max(newest) if min(newest) >= 0 else None,
        "segments": len(rows),
        "digest": digest_of([row.segment_id for row in rows]),
    }


def _if_all_known(choose: Callable[[list[int]], int], times: list[int | None]) -> int | None:
    known = [time for time in times if time is not None]
    return choose(known) if known and len(known) == len(times) else None


class CatalogHead(NamedTuple):
    """One catalog version of a partition, without the rows in parts.

    removed  segments whose rows in parts do not count any more, with their end offsets (0 in version 1)
    follows  the head of a former leader whose parts the first head of a leader took over; None in others
    version  of the format in which it was written
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
    parts: tuple[PartRef, ...]
    removed: tuple[tuple[Uuid, int], ...]
    tail: tuple[CatalogSegment, ...]
    follows: HeadName | None = None
    version: int = VERSION

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
    """One topic id that has, or had, objects in the tier. Its partitions are listed apart, by its id."""

    topic_id: Uuid
    topic: str
    registered_ms: int
    is_deleted: bool


def encode_head(head: CatalogHead) -> bytes:
    """Encode a head; every line is one JSON value and ends with a newline."""
    first: dict[str, object] = {
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
        "removed": [[uuid_text(segment_id), end] for segment_id, end in head.removed],
    }
    if head.follows is not None:
        first["follows"] = list(head.follows)
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
    return decode_part_as(_COMPLETE, data, ref)


def decode_part_as(form: RowForm[R], data: bytes, ref: PartRef) -> tuple[list[R], list[PartRef]]:
    """As `decode_part`, with rows in another form."""
    key = ref.key
    if len(data) != ref.size_bytes or crc32c(data) != ref.crc:
        raise CatalogCorrupt("a catalog part differs from its reference", key=key)
    lines = _lines(data, key, "part", None if ref.level else form.common)
    first = next(lines)
    if first.get("level") != ref.level:
        raise CatalogCorrupt("a catalog part is another one than its reference says", key=key)
    rows = _rows(form, lines, key) if ref.level == 0 else []
    below = [_ref(line, key, first["version"]) for line in lines] if ref.level else []
    if len(rows or below) != ref.rows:
        raise CatalogCorrupt("a catalog part is another one than its reference says", key=key)
    if any(each.level != ref.level - 1 for each in below):
        raise CatalogCorrupt("a catalog part refers to another level", key=key)
    if ref.segments is not None and ref != ref._replace(**_bounds(rows or below)):
        raise CatalogCorrupt("a catalog part is another one than its reference says", key=key)
    return rows, below


def decode_head(data: bytes, key: str) -> CatalogHead:
    """Decode a head; CatalogCorrupt for other bytes. `key` is only for the message."""
    head, tail = decode_head_as(_COMPLETE, data, key)
    return head._replace(tail=tuple(tail))


def decode_head_as(form: RowForm[T], data: bytes, key: str) -> tuple[CatalogHead, list[T]]:
    """As `decode_head`, with the rows of its tail in another form; the head itself has none."""
    lines = _lines(data, key, "head", form.common)
    first = next(lines)
    version = first["version"]
    try:
        head = CatalogHead(
            topic=text_in(first["topic"]),
            topic_id=uuid_from_text(first["topicId"]),
            partition=int_in(first["partition"]),
            leader_epoch=int_in(first["leaderEpoch"]),
            sequence=int_in(first["sequence"]),
            broker_id=int_in(first["brokerId"]),
            written_ms=int_in(first["writtenMs"]),
            metadata_partition=int_in(first["metadataPartition"]),
            metadata_offset=int_in(first["metadataOffset"]),
            log_start_offset=int_in(first["logStartOffset"]),
            log_end_offset=int_in(first["logEndOffset"]),
            epochs=_epochs(first["leaderEpochs"]),
            parts=tuple(_ref(part, key, version) for part in first["parts"]),
            removed=tuple(_removed(each, version) for each in first["removed"]),
            tail=(),
            follows=_follows(first.get("follows")),
            version=version,
        )
        return head, _rows(form, lines, key)
    except _BAD_FIELDS as problem:
        raise CatalogCorrupt("a catalog head lacks a field", key=key, problem=problem) from None


_BAD_FIELDS = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


def _seal(values: Iterable[object]) -> bytes:
    """Join `values` as lines, and add the footer: their number, and the CRC-32C of the bytes before it."""
    lines = [json.dumps(v, separators=(",", ":"), ensure_ascii=False) for v in values]
    body = ("\n".join(lines) + "\n").encode()
    footer = json.dumps({"lines": len(lines), "crc32c": crc32c(body)}, separators=(",", ":"))
    return body + footer.encode() + b"\n"


def _lines(data: bytes, key: str, kind: str, common: CommonRows[Any] | None) -> Iterator[Any]:
    """Check the footer and the first line; yield all lines but the footer.

    A line is yielded as a dictionary, or, where `common` is given and takes it, as what that makes of it.

    JSON is decoded line by line, when it is asked for: all lines of a part at once are ten times its bytes,
    and the processor's cache holds one row, but not 1,024.
    """
    if data.count(b"\n") > LINES_MAX:
        raise CatalogCorrupt("a catalog object has too many lines", key=key, limit=LINES_MAX)
    body_end = data.rfind(b"\n", 0, max(len(data) - 1, 0)) + 1
    try:
        footer = json.loads(data[body_end:])
        count = data.count(b"\n", 0, body_end)
        body = data[:body_end]
        is_complete = data.endswith(b"\n") and footer["crc32c"] == crc32c(body)
        if not is_complete or not count or footer["lines"] != count:
            raise CatalogCorrupt("a catalog object is cut short or damaged", key=key)
        text = body.decode()
        first, at = line_value(text, 0)
        if first["firnline"] != "catalog" or first["kind"] != kind:
            raise CatalogCorrupt(f"not a catalog {kind}", key=key)
        if not isinstance(first["version"], int) or first["version"] > VERSION:
            raise CatalogCorrupt(
                "this catalog was written by a newer Firnline: update the reader",
                key=key,
                version=first["version"],
                readable=VERSION,
            )
        yield first
        # In ASCII, which common rows are, a position in the text is one in its bytes.
        common = common if text.isascii() else None
        while at < len(text):
            if common is not None:
                rows, at = common(body, at)
                yield from rows
            if at < len(text):
                line, at = line_value(text, at)
                yield line
    except _BAD_FIELDS as problem:
        raise CatalogCorrupt("not a catalog object", key=key, problem=problem) from None


def _rows(form: RowForm[T], lines: Iterator[Any], key: str) -> list[T]:
    """Return the rows of the lines that are left. What compiled code made is a tuple, which JSON has not."""
    return [
        cast(T, line) if isinstance(line, tuple) else form.of(_row(line, key)) for line in lines
    ]


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
    if row.min_timestamp_ms is not None:
        out["minTimestampMs"] = row.min_timestamp_ms
    if row.splits:
        out["splits"] = [list(split) for split in row.splits]
    known = row.fingerprint
    if known is not None:
        out["mayHaveGaps"] = known.may_have_gaps
        out["firstCrc32c"], out["headsCrc32c"] = known.first_crc, known.heads_crc
        out["sums"] = {suffix: list(entry) for suffix, entry in known.sums}
    return out


def _row(line: dict[str, Any], key: str) -> RowFields:
    """Decode a row. Its numbers are checked together: that takes a third of the time."""
    try:
        custom = line.get("custom")
        row = RowFields(
            segment_id=uuid_from_text(line["id"]),
            base_offset=line["base"],
            end_offset=line["end"],
            size_bytes=line["bytes"],
            max_timestamp_ms=line["maxTimestampMs"],
            epochs=tuple([(epoch, offset) for epoch, offset in line["epochs"]]),
            stem=text_in(line["stem"]),
            suffixes=suffixes_in(tuple(line["objects"])),
            custom_metadata=None if custom is None else bytes.fromhex(custom),
            fingerprint=_flat_fingerprint(line) if "mayHaveGaps" in line else None,
            min_timestamp_ms=line.get("minTimestampMs"),
            splits=b"",
        )
        splits = flat_numbers(line.get("splits", ()), 3)
        check_numbers([*_numbers_in(row), *splits])
    except _BAD_FIELDS as problem:
        raise CatalogCorrupt("a catalog row lacks a field", key=key, problem=problem) from None
    is_segment = 0 <= row.base_offset <= row.end_offset and row.size_bytes >= 0
    if not is_segment or not _are_inside(splits, row):
        raise CatalogCorrupt(
            "a catalog row is of no segment", key=key, base=row.base_offset, end=row.end_offset
        )
    return row._replace(splits=_packed(splits)) if splits else row


def _flat_fingerprint(line: dict[str, Any]) -> FlatFingerprint:
    sums = line["sums"]
    return FlatFingerprint(
        bool(line["mayHaveGaps"]),
        line["firstCrc32c"],
        line["headsCrc32c"],
        suffixes_in(tuple(sums)),
        flat_numbers(sums.values(), 2),
    )


def _numbers_in(row: RowFields) -> list[int]:
    """Return all numbers of a row without its splits."""
    known = row.fingerprint
    numbers = [row.base_offset, row.end_offset, row.size_bytes, row.max_timestamp_ms]
    numbers += chain.from_iterable(row.epochs)
    if row.min_timestamp_ms is not None:
        numbers.append(row.min_timestamp_ms)
    if known is not None:
        numbers += (known.first_crc, known.heads_crc, *known.sums)
    return numbers


def _are_inside(flat: list[int], row: RowFields) -> bool:
    """Whether the splits are batches of the segment, in order, behind its first one."""
    if not flat:
        return True
    offsets = [row.base_offset, *flat[0::3], row.end_offset + 1]
    positions = [0, *flat[1::3], row.size_bytes]
    times_ms = [-1, *flat[2::3]]
    return (
        all(map(lt, offsets, offsets[1:]))
        and all(map(lt, positions, positions[1:]))
        and all(map(le, times_ms, times_ms[1:]))
    )


def _ref_json(ref: PartRef) -> dict[str, object]:
    out: dict[str, object] = {
        "key": ref.key,
        "level": ref.level,
        "rows": ref.rows,
        "segments": ref.segments,
        "start": ref.start_offset,
        "end": ref.end_offset,
    }
    if ref.min_timestamp_ms is not None:
        out["minTimestampMs"] = ref.min_timestamp_ms
    if ref.max_timestamp_ms is not None:
        out["maxTimestampMs"] = ref.max_timestamp_ms
    return out | {
        "digest": f"{ref.digest or 0:016x}",
        "bytes": ref.size_bytes,
        "crc32c": ref.crc,
    }


def _ref(line: dict[str, Any], key: str, version: int) -> PartRef:
    try:
        ref = PartRef(
            key=text_in(line["key"]),
            level=int_in(line["level"]),
            rows=int_in(line["rows"]),
            end_offset=int_in(line["end"]),
            size_bytes=int_in(line["bytes"]),
            crc=int_in(line["crc32c"]),
        )
        if version > 1:
            ref = ref._replace(
                start_offset=int_in(line["start"]),
                min_timestamp_ms=optional_int_in(line.get("minTimestampMs")),
                max_timestamp_ms=optional_int_in(line.get("maxTimestampMs")),
                segments=int_in(line["segments"]),
                digest=digest_in(line["digest"]),
            )
    except _BAD_FIELDS as problem:
        raise CatalogCorrupt("a part reference lacks a field", key=key, problem=problem) from None
    if not (0 <= ref.level <= LEVELS_MAX and 0 <= ref.size_bytes <= OBJECT_BYTES_MAX):
        raise CatalogCorrupt(
            "a part reference is of no catalog", key=key, level=ref.level, bytes=ref.size_bytes
        )
    return ref


def _removed(value: Any, version: int) -> tuple[Uuid, int]:
    if version == 1:
        return uuid_from_text(value), 0
    segment_id, end_offset = value
    return uuid_from_text(segment_id), int_in(end_offset)


def _follows(value: Any) -> HeadName | None:
    return None if value is None else HeadName(*map(int_in, value))


def _epochs(value: Any) -> Epochs:
    return tuple((int_in(epoch), int_in(offset)) for epoch, offset in value)
