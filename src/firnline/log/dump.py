"""Describe any file of a log directory as rows of plain values, for people and for JSON. STORE.

Nothing is changed, and a damaged file is described as far as it can be: the row after the last good one says
what is wrong. Which kind of file it is follows from its name, also when it ends in `.deleted` or `.swap`.
"""

import json
from collections.abc import Callable, Iterator
from struct import Struct

import javaproperties

from firnline.base.errors import KafkaError, StorageError
from firnline.base.ports import Fs
from firnline.log import checkpoint, names, offset_index, time_index, txn_index
from firnline.log.directory import CLEAN_SHUTDOWN, META_PROPERTIES
from firnline.log.producer_state import decode_snapshot
from firnline.log.segment import good_batches
from firnline.records.batch import BatchHeader
from firnline.records.compression import NAMES
from firnline.records.control import ControlType
from firnline.records.record import records

Row = dict[str, object]
_CHECKPOINT_COLUMNS = {
    checkpoint.RECOVERY_POINTS: ("topic", "partition", "offset"),
    checkpoint.LOG_STARTS: ("topic", "partition", "offset"),
    checkpoint.HIGH_WATERMARKS: ("topic", "partition", "offset"),
    checkpoint.CLEANER_OFFSETS: ("topic", "partition", "offset"),
    checkpoint.LEADER_EPOCHS: ("epoch", "start_offset"),
}


def describe(fs: Fs, path: str, *, with_records: bool = False) -> Iterator[Row]:
    """Iterate over the rows of one file.

    A `.log` gives one row a batch, or one a record with `with_records`; an index one an entry; a checkpoint
    one a line. Raises StorageError for a file whose name says nothing.
    """
    name = path.rpartition("/")[2]
    for suffix in (names.DELETED, names.SWAP, names.CLEANED):
        name = name.removesuffix(suffix)
    segment_file = names.parse_segment_file(name)
    if segment_file is not None:
        base_offset, suffix = segment_file
        if suffix == names.LOG:
            return _log(fs, path, base_offset, with_records)
        return _SEGMENT_FILES[suffix](_read(fs, path), base_offset)
    if name.endswith(".checkpoint"):  # a metadata snapshot: batches from offset 0 on (Q7)
        return _log(fs, path, 0, with_records)
    if name in _CHECKPOINT_COLUMNS:
        return _checkpoint(_read(fs, path), _CHECKPOINT_COLUMNS[name])
    if name in _SMALL_FILES:
        return _SMALL_FILES[name](_read(fs, path))
    raise StorageError("not a file of a log directory", path=path)


def _read(fs: Fs, path: str) -> bytes:
    data = checkpoint.read_whole(fs, path)
    if data is None:
        raise StorageError("no such file", path=path)
    return data


def _log(fs: Fs, path: str, base_offset: int, with_records: bool) -> Iterator[Row]:
    file = fs.open(path)
    end = 0
    for found in good_batches(file, base_offset):
        header = found.header
        end = found.position + header.size_bytes
        if not with_records:
            yield _batch(header, found.position)
            continue
        try:
            for record in records(found.data, header):
                row: Row = {
                    "offset": record.offset,
                    "timestamp": record.timestamp_ms,
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": [[key, _text(value)] for key, value in record.headers],
                }
                if header.is_control:
                    row["control"] = _control(record.key)
                yield row
        except KafkaError as problem:
            yield {"position": found.position, "problem": str(problem)}
    if end != file.size():
        yield {"position": end, "problem": "no good batch", "bytes_left": file.size() - end}


def _batch(header: BatchHeader, position: int) -> Row:
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "position": position,
        "size_bytes": header.size_bytes,
        "leader_epoch": header.leader_epoch,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "codec": NAMES[header.codec] if header.codec < len(NAMES) else header.codec,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "crc": header.crc,
    }


def _control(key: bytes | None) -> str:
    kind = int.from_bytes(key[2:4], "big") if key and len(key) >= 4 else -1
    return ControlType(kind).name if kind in ControlType.__members__.values() else str(kind)


def _text(data: bytes | None) -> str | None:
    """Bytes as text where they are that, else as hexadecimal behind `0x`."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "0x" + data.hex()
    return text if text.isprintable() else "0x" + data.hex()


def _entries(data: bytes, entry: Struct) -> Iterator[tuple[int, ...]]:
    yield from entry.iter_unpack(data[: len(data) // entry.size * entry.size])


def _rest(data: bytes, size: int) -> Iterator[Row]:
    if len(data) % size:
        at = len(data) // size * size
        yield {"position": at, "problem": "a torn entry", "bytes_left": len(data) - at}


def _offset_index(data: bytes, base_offset: int) -> Iterator[Row]:
    for offset, position in _entries(data, Struct(">ii")):
        yield {"offset": base_offset + offset, "position": position}
    yield from _rest(data, offset_index.ENTRY_BYTES)


def _time_index(data: bytes, base_offset: int) -> Iterator[Row]:
    for timestamp, offset in _entries(data, Struct(">qi")):
        yield {"timestamp": timestamp, "offset": base_offset + offset}
    yield from _rest(data, time_index.ENTRY_BYTES)


def _txn_index(data: bytes, base_offset: int) -> Iterator[Row]:
    good = txn_index.parse(data)
    for txn in good:
        yield dict(txn._asdict())
    at = len(good) * txn_index.ENTRY_BYTES
    if at != len(data):
        yield {"position": at, "problem": "no good entry", "bytes_left": len(data) - at}


def _snapshot(data: bytes, base_offset: int) -> Iterator[Row]:
    try:
        for entry in decode_snapshot(data):
            yield dict(entry._asdict())
    except StorageError as problem:
        yield {"problem": problem.why}


def _checkpoint(data: bytes, columns: tuple[str, ...]) -> Iterator[Row]:
    if not data:  # what Kafka makes before the first write
        return
    try:
        rows: list[Row] = [
            {c: v if c == "topic" else int(v) for c, v in zip(columns, row)}
            for row in checkpoint.parse_entries(data, len(columns))
        ]
    except ValueError as problem:
        rows = [{"problem": str(problem)}]
    yield from rows


def _properties(data: bytes) -> Iterator[Row]:
    for key, value in sorted(javaproperties.loads(data.decode("latin-1")).items()):
        yield {"key": key, "value": value}


def _colons(data: bytes) -> Iterator[Row]:
    for line in data.decode(errors="replace").splitlines():
        key, _, value = line.partition(": ")
        yield {"key": key, "value": value}


def _json(data: bytes) -> Iterator[Row]:
    try:
        found = json.loads(data)
    except ValueError as problem:
        yield {"problem": str(problem)}
        return
    yield dict(found) if isinstance(found, dict) else {"value": found}


_SEGMENT_FILES: dict[str, Callable[[bytes, int], Iterator[Row]]] = {
    names.INDEX: _offset_index,
    names.TIME_INDEX: _time_index,
    names.TXN_INDEX: _txn_index,
    names.SNAPSHOT: _snapshot,
}
_SMALL_FILES: dict[str, Callable[[bytes], Iterator[Row]]] = {
    checkpoint.PARTITION_METADATA: _colons,
    META_PROPERTIES: _properties,
    CLEAN_SHUTDOWN: _json,
    "quorum-state": _json,
}
