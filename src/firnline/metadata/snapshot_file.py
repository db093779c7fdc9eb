"""Snapshot files: header, records, footer, in batches; frozen by a rename. STORE.

`bootstrap.checkpoint`, which `storage format` writes, is one too. Offsets inside count from 0 and are no
log offsets. Source: KIP-630 'Snapshot Format'; spec Q6, Q7, Q9, Q12, Q49.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from firnline.base.errors import KafkaError, ProtocolError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.ports import Fs
from firnline.metadata import records as metadata_records
from firnline.metadata.features import record_version
from firnline.protocol.schema import Message
from firnline.records.batch import BatchHeader, crc_is_right, headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.control import (
    ControlRecord,
    ControlType,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from firnline.records.record import records

BOOTSTRAP = "bootstrap.checkpoint"
SUFFIX = ".checkpoint"
_PART_SUFFIX = ".part"
_NAME = re.compile(r"(\d{20})-(\d{10}|\d{20})\.checkpoint")
_RECORDS_PER_BATCH = 1000
_KNOWN_CONTROLS = frozenset(ControlType)


class Snapshot(NamedTuple):
    """A whole snapshot in memory. `last_contained_ms`: append time of the last log record in it."""

    last_contained_ms: int
    records: Sequence[Message]
    kraft_version: int


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the file name of a snapshot; `offset` is exclusive."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    """Return the id in a file name; both widths of the epoch are read (Q6). None for other files."""
    found = _NAME.fullmatch(name)
    return found and OffsetAndEpoch(int(found[1]), int(found[2]))


def snapshot_batches(
    content: Iterable[Message],
    *,
    epoch: int,
    metadata_version: int,
    last_contained_ms: int,
    now_ms: int,
) -> Iterator[bytearray]:
    """Yield the batches of a snapshot, header first, footer last."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_ms)
    yield _control_batch(ControlType.SNAPSHOT_HEADER, header, 0, epoch, now_ms)
    offset = 1
    rows: list[NewRecord] = []
    for message in content:
        version = record_version(message, metadata_version)
        rows.append(NewRecord(None, metadata_records.encode(message, version), now_ms))
        if len(rows) == _RECORDS_PER_BATCH:
            yield build_batch(rows, base_offset=offset, leader_epoch=epoch)
            offset += len(rows)
            rows = []
    if rows:
        yield build_batch(rows, base_offset=offset, leader_epoch=epoch)
        offset += len(rows)
    footer = SnapshotFooterRecord()
    yield _control_batch(ControlType.SNAPSHOT_FOOTER, footer, offset, epoch, now_ms)


def write_snapshot(fs: Fs, directory: str, name: str, batches: Iterable[bytearray]) -> int:
    """Write a snapshot so that it is there whole or not at all; return its size in bytes (Q9)."""
    partial = f"{directory}/{name}{_PART_SUFFIX}"
    fs.remove(partial)
    file = fs.open(partial, create=True)
    try:
        for batch in batches:
            file.append(batch)
        file.sync()
        size_bytes = file.size()
    finally:
        file.close()
    fs.rename(partial, f"{directory}/{name}")
    fs.sync_dir(directory)
    return size_bytes


def read_snapshot(fs: Fs, path: str) -> Snapshot:
    """Read and check a whole snapshot: every CRC, header first, footer last (Q37).

    Raises StorageError with the path for anything that is not a finished snapshot.
    """
    file = fs.open(path)
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    try:
        return _decode(data)
    except (KafkaError, ProtocolError, StorageError) as problem:
        raise StorageError("a snapshot is damaged", path=path, problem=problem) from None


def _decode(data: bytes) -> Snapshot:
    content: list[Message] = []
    controls: list[ControlRecord] = []
    end = 0
    for header in headers(data):
        end = header.position + header.size_bytes
        if not crc_is_right(data, header):
            raise StorageError("a batch has another CRC than it says", at=header.position)
        if _has_footer(controls):
            raise StorageError("a batch after the footer", at=header.position)
        if header.is_control:
            controls += _controls(data, header)
        elif not controls:
            raise StorageError("records before the header")
        else:
            content += [metadata_records.decode(row.value or b"") for row in records(data, header)]
    first = controls[0] if controls else None
    if not isinstance(first, SnapshotHeaderRecord):
        raise StorageError("no header")
    if not _has_footer(controls) or end != len(data):
        raise StorageError("no footer: the file ends early", size_bytes=len(data))
    kraft = [c.kraft_version for c in controls if isinstance(c, KRaftVersionRecord)]
    return Snapshot(first.last_contained_log_timestamp, content, max(kraft, default=0))


def _has_footer(controls: Sequence[ControlRecord]) -> bool:
    return bool(controls) and isinstance(controls[-1], SnapshotFooterRecord)


def _controls(data: bytes, header: BatchHeader) -> list[ControlRecord]:
    rows = [(decode_key(row.key), row.value) for row in records(data, header)]
    return [decode_value(kind, value) for kind, value in rows if kind in _KNOWN_CONTROLS]


def _control_batch(
    kind: ControlType, record: ControlRecord, offset: int, epoch: int, now_ms: int
) -> bytearray:
    row = NewRecord(encode_key(kind), encode_value(record), now_ms)
    return build_batch([row], base_offset=offset, leader_epoch=epoch, is_control=True)
