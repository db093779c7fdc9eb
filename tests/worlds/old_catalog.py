"""Catalogs of version 1, as earlier releases wrote them, made of the objects of version 2."""

import json
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from firnline.stores.port import ObjectStore
from firnline.tiered.catalog.format import (
    CatalogHead,
    CatalogSegment,
    PartRef,
    encode_head,
    encode_part,
)
from firnline.tiered.objects.layout import head_key, old_parts_folder

_NEW_IN_ROWS = ("minTimestampMs", "splits")
_OF_REFERENCES = ("key", "level", "rows", "end", "bytes", "crc32c")


def as_version_1(data: bytes) -> bytes:
    """Return the same head or part without what version 2 has added."""
    first, *rows = [json.loads(line) for line in data.splitlines()[:-1]]
    first["version"] = 1
    if first["kind"] == "head":
        first["parts"] = [_reference(ref) for ref in first["parts"]]
        first["removed"] = [segment_id for segment_id, _ in first["removed"]]
    rows = [_reference(row) if "key" in row else _row(row) for row in rows]
    body = b"".join(
        json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in (first, *rows)
    )
    return body + b'{"lines":%d,"crc32c":%d}\n' % (body.count(b"\n"), crc32c(body))


def _reference(ref: dict[str, Any]) -> dict[str, Any]:
    return {name: ref[name] for name in _OF_REFERENCES}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _NEW_IN_ROWS}


def put_old_catalog(
    store: ObjectStore, head: CatalogHead, rows: Sequence[CatalogSegment], *, part_rows: int = 32
) -> str:
    """Put a head with `rows`, all but the last few in parts; return its key."""
    refs = []
    full = len(rows) // part_rows * part_rows
    for at in range(0, full, part_rows):
        some = rows[at : at + part_rows]
        name = f"{head.leader_epoch:010d}-{head.sequence:019d}-{len(refs):03d}.jsonl"
        key = old_parts_folder(head.topic_id, head.partition) + name
        data = as_version_1(encode_part(head.topic_id, head.partition, some, 0))
        store.put(key, (data,), size_bytes=len(data))
        end = max(row.end_offset for row in some)
        refs.append(PartRef(key, 0, len(some), end, len(data), crc32c(data)))
    head = head._replace(parts=tuple(refs), tail=tuple(rows[full:]))
    data = as_version_1(encode_head(head))
    key = head_key(head.topic_id, head.partition, head.order)
    store.put(key, (data,), size_bytes=len(data))
    return key
