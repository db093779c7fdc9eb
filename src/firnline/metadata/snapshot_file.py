"""Snapshot files: a header, records and a footer, in batches; a rename completes the file. STORE.

`bootstrap.checkpoint`, which `storage format` writes, has the same format. Offsets inside count from 0 and
are no log offsets. Source: KIP-630 'Snapshot Format'; spec Q6, Q7, Q9, Q12, Q49.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from firnline.base.errors import Code, KafkaError, ProtocolError, StorageError
from firnline.base.ids import OffsetAndEpoch
from firnline.base.limits import SNAPSHOT_BATCH_BYTES_MAX
from firnline.base.ports import Fs
from firnline.base.units import KIB
from firnline.metadata import records as metadata_records
from firnline.metadata.features import record_version
from firnline.protocol.schema import Message
from firnline.raft.election_state import is_epoch
from firnline.records.batch import (
    LOG_OVERHEAD_BYTES,
    OFFSET_AND_LENGTH,
    BatchHeader,
    crc_is_right,
    headers,
)
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
PART = ".part"
_NAME = re.compile(r"(\d{20})-(\d{10}|\d{20})\.checkpoint")
_RECORDS_PER_BATCH = 1000
_BYTES_PER_BATCH = 256 * KIB
_KNOWN_CONTROLS = frozenset(ControlType)


class Snapshot(NamedTuple):
    """A complete snapshot in memory. `last_contained_ms`: append time of the last log record in it."""

    last_contained_ms: int
    records: Sequence[Message]
    kraft_version: int


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the file name of a snapshot; `offset` is exclusive."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    """Return the id in a file name, with either width of the epoch (Q6). None for other files and for invalid
    epochs."""
    found = _NAME.fullmatch(name)
    if found is None or not is_epoch(int(found[2])):
        return None
    return OffsetAndEpoch(int(found[1]), int(found[2]))


def stored_names(fs: Fs, directory: str) -> dict[OffsetAndEpoch, str]:
    """Return the file name of each complete snapshot in a directory, including 0-0; one name for each id."""
    found: dict[OffsetAndEpoch, str] = {}
    for name in fs.list_dir(directory):
        snapshot_id = parse_snapshot_name(name)
        if snapshot_id is not None:
            found.setdefault(snapshot_id, name)
    return found


def snapshot_batches(
    content: Iterable[Message],
    *,
    epoch: int,
    metadata_version: int,
    last_contained_ms: int,
    now_ms: int,
) -> Iterator[bytearray]:
    """Yield the batches of a snapshot, header first, footer last."""
    steps = snapshot_steps(
        ((message,) for message in content),
        epoch=epoch,
        metadata_version=metadata_version,
        last_contained_ms=last_contained_ms,
        now_ms=now_ms,
    )
    return (batch for batch in steps if batch is not None)


def snapshot_steps(
    steps: Iterable[Sequence[Message]],
    *,
    epoch: int,
    metadata_version: int,
    last_contained_ms: int,
    now_ms: int,
) -> Iterator[bytearray | None]:
    """Like `snapshot_batches`, for content in steps: yields after each step, a batch or None."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_ms)
    yield _control_batch(ControlType.SNAPSHOT_HEADER, header, 0, epoch, now_ms)
    offset, size_bytes = 1, 0
    rows: list[NewRecord] = []
    for step in steps:
        for message in step:
            value = metadata_records.encode(message, record_version(message, metadata_version))
            size_bytes += len(value)
            rows.append(NewRecord(None, value, now_ms))
        if len(rows) < _RECORDS_PER_BATCH and size_bytes < _BYTES_PER_BATCH:
            yield None
            continue
        yield build_batch(rows, base_offset=offset, leader_epoch=epoch)
        offset += len(rows)
        rows, size_bytes = [], 0
    if rows:
        yield build_batch(rows, base_offset=offset, leader_epoch=epoch)
        offset += len(rows)
    footer = SnapshotFooterRecord()
    yield _control_batch(ControlType.SNAPSHOT_FOOTER, footer, offset, epoch, now_ms)


def write_snapshot(fs: Fs, directory: str, name: str, batches: Iterable[bytearray]) -> int:
    """Write a snapshot so that it is there complete or not at all; return its size in bytes (Q9)."""
    partial = f"{directory}/{name}{PART}"
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
    """Read and check a complete snapshot: every CRC, header first, footer last (Q37).

    Raises StorageError with the path for anything else.
    """
    file = fs.open_to_read(path)
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    try:
        return _decode(data)
    except (KafkaError, ProtocolError, StorageError) as problem:
        raise StorageError("a snapshot is damaged", path=path, problem=problem) from None


def _decode(data: bytes) -> Snapshot:
    check = SnapshotCheck()
    problem = check.feed(data) or check.problem()
    if problem is not None:
        raise problem
    content: list[Message] = []
    for header in headers(data):
        if not header.is_control:
            content += [metadata_records.decode(row.value or b"") for row in records(data, header)]
    return Snapshot(check.last_contained_ms, content, check.kraft_version)


class SnapshotCheck:
    """Checks the bytes of a snapshot as they come, in any pieces: every CRC, header first, footer last.

    It does not decode the records in between. Damage is a KafkaError CORRUPT_MESSAGE; after one, the caller
    feeds no more.
    """

    __slots__ = ("_has_footer", "_rest", "has_header", "kraft_version", "last_contained_ms")

    def __init__(self) -> None:
        self.last_contained_ms = 0
        self.kraft_version = 0
        self.has_header = False
        self._has_footer = False
        self._rest = b""  # the beginning of an incomplete batch

    def feed(self, data: bytes) -> KafkaError | None:
        """Check the next bytes; return why they cannot be part of a snapshot, or None."""
        data = self._rest + data if self._rest else data
        end = 0
        try:
            for header in headers(data):
                problem = self._check_batch(data, header)
                if problem is not None:
                    return problem
                end = header.position + header.size_bytes
        except (KafkaError, ProtocolError) as damage:
            return _corrupt(damage.why, **damage.facts)
        self._rest = data[end:]
        if self._has_footer and self._rest:
            return _corrupt("bytes after the footer")
        if len(self._rest) >= LOG_OVERHEAD_BYTES:
            _, length = OFFSET_AND_LENGTH.unpack_from(self._rest)
            if not 0 < length <= SNAPSHOT_BATCH_BYTES_MAX:
                return _corrupt("a batch of a length that cannot be", length=length)
        return None

    def problem(self) -> KafkaError | None:
        """Return what a complete snapshot needs and this lacks; None if it is complete."""
        if not self.has_header:
            return _corrupt("no header")
        if not self._has_footer:
            return _corrupt("no footer: the file ends early")
        return None

    def _check_batch(self, data: bytes, header: BatchHeader) -> KafkaError | None:
        if self._has_footer:
            return _corrupt("a batch after the footer")
        if not crc_is_right(data, header):
            return _corrupt("a batch has another CRC than it says", at=header.base_offset)
        if header.is_control:
            for row in records(data, header):
                kind = decode_key(row.key)
                if kind in _KNOWN_CONTROLS:
                    self._note(decode_value(kind, row.value))
        return None if self.has_header else _corrupt("records before the header")

    def _note(self, control: ControlRecord) -> None:
        if isinstance(control, SnapshotHeaderRecord):
            self.last_contained_ms = control.last_contained_log_timestamp
            self.has_header = True
        elif isinstance(control, SnapshotFooterRecord):
            self._has_footer = self.has_header
        elif isinstance(control, KRaftVersionRecord):
            self.kraft_version = control.kraft_version


def _corrupt(why: str, **facts: object) -> KafkaError:
    return KafkaError(Code.CORRUPT_MESSAGE, why, **facts)


def _control_batch(
    kind: ControlType, record: ControlRecord, offset: int, epoch: int, now_ms: int
) -> bytearray:
    row = NewRecord(encode_key(kind), encode_value(record), now_ms)
    return build_batch([row], base_offset=offset, leader_epoch=epoch, is_control=True)
