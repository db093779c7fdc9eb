"""Files of a log directory or a tier that hold no batches, as facts for people and programs. WORLD.

Changes nothing. A damaged file is shown as far as it can be read: the fact after the last good one names the
damage. The name of a file says what kind it is, also with a suffix like `.deleted` or `.swap`.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import Any

import javaproperties

from firnline.base.errors import ConfigError, StorageError
from firnline.formats import checkpoint as checkpoint_format
from firnline.formats import (
    leader_epoch_checkpoint,
    names,
    offset_index,
    time_index,
    transaction_index,
)
from firnline.formats.producer_snapshot import decode_snapshot
from firnline.formats.words import without_zeros
from firnline.log import checkpoint
from firnline.log.directory import CLEAN_SHUTDOWN

Fact = Mapping[str, Any]
Reader = Callable[[Path, bytes], Iterator[Fact]]
_STEM_DIGITS = 20


def reader_of(path: Path) -> Reader | None:
    """Return the reader for a file of that name; None for an unknown name."""
    name = plain_name(path)
    if name in _BY_NAME:
        return _BY_NAME[name]
    return next((reader for end, reader in _BY_END.items() if name.endswith(end)), None)


def plain_name(path: Path) -> str:
    """Return the name without the suffix of a deleted or replaced file."""
    name = path.name
    for suffix in (names.DELETED, names.SWAP, names.CLEANED):
        name = name.removesuffix(suffix)
    return name


def _base_offset(path: Path) -> int:
    # In a tier the segment's id follows.
    base, rest = path.name[:_STEM_DIGITS], path.name[_STEM_DIGITS:]
    if not (base.isascii() and base.isdigit() and len(base) == _STEM_DIGITS) or rest[0] not in ".-":
        raise ConfigError(f"{path}: the name of an index begins with 20 digits")
    return int(base)


def _entries(data: bytes, entry: Struct) -> Iterator[tuple[int, ...]]:
    yield from entry.iter_unpack(data[: len(data) // entry.size * entry.size])


def _torn(data: bytes, end: int) -> Iterator[Fact]:
    if end < len(data):
        yield {"damage": f"{len(data) - end} bytes are not an entry", "position": end}


def _offset_index(path: Path, data: bytes) -> Iterator[Fact]:
    base = _base_offset(path)
    data = without_zeros(data, offset_index.ENTRY_BYTES)
    last = -1
    for offset, position in _entries(data, offset_index.ENTRY):
        good = {} if offset > last else {"damage": "the index does not ascend"}
        last = offset
        yield {"offset": base + offset, "position": position} | good
    yield from _torn(data, len(data) // offset_index.ENTRY_BYTES * offset_index.ENTRY_BYTES)


def _time_index(path: Path, data: bytes) -> Iterator[Fact]:
    base = _base_offset(path)
    data = without_zeros(data, time_index.ENTRY_BYTES)
    last = -1
    for timestamp_ms, offset in _entries(data, time_index.ENTRY):
        good = {} if timestamp_ms > last else {"damage": "the index does not ascend"}
        last = timestamp_ms
        yield {"timestamp_ms": timestamp_ms, "offset": base + offset} | good
    yield from _torn(data, len(data) // time_index.ENTRY_BYTES * time_index.ENTRY_BYTES)


def _txn_index(path: Path, data: bytes) -> Iterator[Fact]:
    good = transaction_index.decode(data)
    yield from (entry._asdict() for entry in good)
    yield from _torn(data, len(good) * transaction_index.ENTRY_BYTES)


def _producers(path: Path, data: bytes) -> Iterator[Fact]:
    try:
        entries = decode_snapshot(data)
    except StorageError as problem:
        yield {"damage": problem.why}
        return
    yield from (entry._asdict() for entry in entries)


def _checkpoint(columns: tuple[str, ...]) -> Reader:
    def read(path: Path, data: bytes) -> Iterator[Fact]:
        if not data:  # as Kafka creates it before the first write
            return
        try:
            facts = [
                {name: cell if name == "topic" else int(cell) for name, cell in zip(columns, row)}
                for row in checkpoint_format.decode(data, len(columns))
            ]
        except ValueError as problem:
            yield {"damage": str(problem)}
            return
        yield from facts

    return read


def _properties(path: Path, data: bytes) -> Iterator[Fact]:
    yield dict(sorted(javaproperties.loads(data.decode("latin-1")).items()))


def _colons(path: Path, data: bytes) -> Iterator[Fact]:
    parts = (line.partition(": ") for line in data.decode(errors="replace").splitlines())
    yield {name: value for name, _, value in parts}


def _json(path: Path, data: bytes) -> Iterator[Fact]:
    """Yield one JSON value per line, as in markers, `quorum-state` and a catalog."""
    for line in data.decode(errors="replace").splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as problem:
            yield {"damage": str(problem), "line": line}
            return
        yield found if isinstance(found, dict) else {"value": found}


_BY_NAME: dict[str, Reader] = {
    checkpoint.RECOVERY_POINTS: _checkpoint(checkpoint_format.OFFSET_COLUMNS),
    checkpoint.LOG_STARTS: _checkpoint(checkpoint_format.OFFSET_COLUMNS),
    checkpoint.HIGH_WATERMARKS: _checkpoint(checkpoint_format.OFFSET_COLUMNS),
    checkpoint.CLEANER_OFFSETS: _checkpoint(checkpoint_format.OFFSET_COLUMNS),
    checkpoint.LEADER_EPOCHS: _checkpoint(leader_epoch_checkpoint.COLUMNS),
    checkpoint.PARTITION_METADATA: _colons,
    checkpoint.META_PROPERTIES: _properties,
    CLEAN_SHUTDOWN: _json,
    "quorum-state": _json,
}
_BY_END: dict[str, Reader] = {
    names.INDEX: _offset_index,
    names.TIME_INDEX: _time_index,
    names.TXN_INDEX: _txn_index,
    names.SNAPSHOT: _producers,
    # In a tier: the epochs of a segment, a catalog, a topic's name.
    ".leader_epoch_checkpoint": _checkpoint(leader_epoch_checkpoint.COLUMNS),
    ".jsonl": _json,
    ".live": _json,
}
