"""`firnline dump`: print the files of a log as text, or as one JSON value per line. WORLD.

The name of a file says what it is; the directory says what its records mean. This module reads files that
hold batches, `cli/dump_files.py` all others.
"""

import contextlib
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from firnline.base.errors import ConfigError, FirnlineError, KafkaError, ProtocolError, StorageError
from firnline.base.ids import (
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    OffsetAndEpoch,
    uuid_text,
)
from firnline.cli.dump_files import Fact, plain_name, reader_of
from firnline.cli.show import SOMETHING_IS_WRONG, format_option
from firnline.formats import names
from firnline.protocol.schema import Struct
from firnline.records import compression, control
from firnline.records.batch import BatchHeader, crc_is_right, headers
from firnline.records.record import Record, records

INTACT, DAMAGED = "whole", "not whole"
# Files that are no longer used, or not yet.
_OUT_OF_USE = (names.DELETED, names.SWAP, names.CLEANED, ".part", ".damaged", ".forgotten", ".lock")
Decode = Callable[[Record], Any]
CHECKPOINT = ".checkpoint"


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--batches", is_flag=True, help="Only batches, without their records.")
@format_option
def command(files: tuple[Path, ...], batches: bool, style: str) -> None:
    """Print segments, indexes, snapshots and checkpoints as text; check a directory.

    Decodes the records of Kafka's own topics. With --format json each line is one JSON value, which names its
    file. The exit code is 3 when a file is damaged; everything before the damage is
    printed. A directory is checked recursively: one line for each file and a verdict at the end, by the
    checks that a node makes when it starts. A file that a running node is writing may look truncated.
    """
    is_complete = True
    for path in files:
        if path.is_dir():
            for fact in verdicts(path):
                _print(fact, style)
                is_complete &= fact["verdict"] != DAMAGED
            continue
        if len(files) > 1 and style != "json":
            click.echo(f"# {path}")
        for fact in facts_of(path, with_records=not batches):
            is_complete &= "damage" not in fact
            _print({"file": str(path), **fact} if style == "json" else fact, style)
    if not is_complete:
        click.echo("firnline: damage was found; see above", err=True)
        sys.exit(SOMETHING_IS_WRONG)


def _print(fact: Fact, style: str) -> None:
    if style == "json":
        import json

        click.echo(json.dumps(fact))
        return
    indent = "  " if "record" in fact else ""
    words = (f"{name}={_shown(name, value)}" for name, value in fact.items() if value is not None)
    click.echo(indent + " ".join(words))


def _shown(name: str, value: Any) -> str:
    if name.lower().endswith(_TIMES) and isinstance(value, int) and value >= 0:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}={_shown(k, v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_shown("", item) for item in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    is_quoted = isinstance(value, str) and (name in ("key", "value") or not value or " " in value)
    return repr(value) if is_quoted else str(value)


# Suffixes of fields with a timestamp in milliseconds, in Kafka's records and in our catalog.
_TIMES = ("_ms", "timestamp", "timestampms", "writtenms", "registeredms")


def facts_of(path: Path, *, with_records: bool = True) -> Iterator[Fact]:
    """Yield the content of a file, one fact at a time; the last one names the damage, if there is any.

    Raises ConfigError for a file whose name is unknown.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a directory")
    if plain_name(path).endswith(names.LOG):
        yield from _log(path, with_records=with_records)
        return
    if plain_name(path).endswith(CHECKPOINT):
        yield from _snapshot(path, with_records=with_records)
        return
    reader = reader_of(path)
    if reader is None:
        raise ConfigError(f"{path}: the name does not say what kind of file it is")
    try:
        yield from reader(path, path.read_bytes())
    except (FirnlineError, ValueError) as problem:
        yield {"damage": str(problem)}


# ------------------------------------------------------------------------------- directories


def verdicts(directory: Path) -> Iterator[Fact]:
    """Yield a verdict for each file in a directory, recursively, then one for the directory.

    What a running broker removes meanwhile is passed over.
    """
    damaged = 0
    folders = sorted((Path(folder), files) for folder, _, files in os.walk(directory))
    for path in sorted(folder / name for folder, files in folders for name in files):
        with contextlib.suppress(FileNotFoundError):
            fact = {"file": path.relative_to(directory).as_posix()} | _verdict(path)
            damaged += fact["verdict"] == DAMAGED
            yield fact
    for path, _ in folders:
        problem = _lost_beginning(path) if path.is_dir() else None
        if problem is not None:
            damaged += 1
            yield {"file": str(path), "verdict": DAMAGED, "damage": problem}
    yield {"directory": str(directory), "verdict": DAMAGED if damaged else INTACT}


def _verdict(path: Path) -> dict[str, Any]:
    size = {"size_bytes": path.stat().st_size}
    if path.name.endswith(_OUT_OF_USE):
        return size | {"verdict": "not in use"}
    try:
        found = [fact for fact in facts_of(path, with_records=False) if "damage" in fact]
    except ConfigError:
        return size | {"verdict": "not looked at"}
    if not found:
        return size | {"verdict": INTACT}
    return size | {"verdict": DAMAGED, "damage": found[0]["damage"]}


def _lost_beginning(path: Path) -> str | None:
    """Return why a node refuses a metadata log that begins after the end of its snapshots, or None."""
    owner = names.parse_partition_dir(path.absolute().name)
    if owner is None or owner.topic != METADATA_TOPIC:
        return None
    from firnline.metadata.meta_log import refuse_lost_beginning
    from firnline.metadata.snapshot_damage import examine
    from firnline.runtime.disk import RealFs

    fs = RealFs()
    try:
        refuse_lost_beginning(fs, str(path), examine(fs, str(path)), has_peers=False)
    except StorageError as problem:
        return str(problem)
    return None


# ------------------------------------------------------------------------------- logs


def _log(path: Path, *, with_records: bool) -> Iterator[Fact]:
    size = path.stat().st_size
    if not size:
        return
    decode = _decoder(path)
    with (
        path.open("rb") as file,
        contextlib.closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as mapped,
        memoryview(mapped) as data,
    ):
        end, next_offset = 0, 0
        try:
            for header in headers(data):
                is_right = crc_is_right(data, header)
                end = header.position + header.size_bytes
                damage = None if is_right else "the CRC is wrong"
                if header.base_offset < next_offset:
                    damage = damage or "the batch begins before the previous one ends"
                next_offset = header.next_offset
                yield _batch(header) | ({} if damage is None else {"damage": damage})
                if with_records and is_right:
                    yield from _records_of(bytes(data[header.position : end]), header, decode)
        except (KafkaError, ProtocolError) as problem:
            yield {"damage": str(problem), "position": end}
            return
        if end < size:
            yield {"damage": f"{size - end} bytes after the last complete batch", "position": end}


def _records_of(data: bytes, header: BatchHeader, decode: Decode) -> Iterator[Fact]:
    """Yield the records of one batch as far as they can be decoded; the batches after it are shown all the
    same.
    """
    try:
        for row in records(data, header._replace(position=0)):
            yield _record(header, row, decode)
    except (KafkaError, ProtocolError) as problem:
        yield {"damage": str(problem), "position": header.position}


def _snapshot(path: Path, *, with_records: bool) -> Iterator[Fact]:
    """Yield a snapshot of the metadata: a log that ends with a footer. Its offsets begin at 0 (spec Q7)."""
    from firnline.metadata.snapshot_damage import check_snapshot
    from firnline.metadata.snapshot_file import parse_snapshot_name
    from firnline.runtime.disk import RealFs

    snapshot_id = parse_snapshot_name(path.name)
    if snapshot_id is not None:
        yield {"snapshot": path.name, "end_offset": snapshot_id.offset, "epoch": snapshot_id.epoch}
    has_damage = False
    for fact in _log(path, with_records=with_records):
        has_damage |= "damage" in fact
        yield fact
    checked = check_snapshot(RealFs(), str(path), snapshot_id or OffsetAndEpoch(0, 0))
    if not isinstance(checked, KafkaError):
        yield {"verdict": INTACT}
    elif has_damage:
        yield {"verdict": DAMAGED}
    else:
        yield {"verdict": DAMAGED, "damage": str(checked)}


def _batch(header: BatchHeader) -> dict[str, Any]:
    return {
        "batch": f"{header.base_offset}-{header.last_offset}",
        "position": header.position,
        "size_bytes": header.size_bytes,
        "records": header.record_count,
        "leader_epoch": header.leader_epoch,
        "codec": compression.NAMES[header.codec],
        "max_timestamp_ms": header.max_timestamp,
        "time": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "producer_id": header.producer_id if header.producer_id >= 0 else None,
        "producer_epoch": header.producer_epoch if header.producer_id >= 0 else None,
        "base_sequence": header.base_sequence if header.producer_id >= 0 else None,
        "transactional": True if header.is_transactional else None,
        "control": True if header.is_control else None,
    }


def _record(header: BatchHeader, row: Record, decode: Decode) -> Fact:
    fact: dict[str, Any] = {"record": row.offset, "timestamp_ms": row.timestamp_ms}
    if decode is _metadata_record:
        fact["epoch"] = header.leader_epoch
    if header.is_control:
        kind = control.decode_key(row.key)
        return fact | {"control": _control_name(kind), "value": _control_value(kind, row)}
    try:
        decoded: Fact = decode(row)
    except (ProtocolError, KafkaError) as problem:
        decoded = {"key": _text(row.key), "value": _text(row.value), "damage": str(problem)}
    headers_ = {name: _text(value) for name, value in row.headers} if row.headers else None
    return fact | dict(decoded) | ({"headers": headers_} if headers_ else {})


def _control_name(kind: int) -> str:
    known = {member.value: member.name for member in control.ControlType}
    return known.get(kind, str(kind))


def _control_value(kind: int, row: Record) -> Any:
    if kind not in {member.value for member in control.ControlType}:
        return _text(row.value)
    from firnline.spark.tables.record_facts import shown

    return shown(control.decode_value(kind, row.value), 0)


def _decoder(path: Path) -> Decode:
    """Choose the decoder by the partition directory of the file."""
    owner = names.parse_partition_dir(path.absolute().parent.name)
    is_snapshot = plain_name(path).endswith(CHECKPOINT)
    topic = owner.topic if owner else METADATA_TOPIC if is_snapshot else ""
    return {
        METADATA_TOPIC: _metadata_record,
        OFFSETS_TOPIC: _group_record,
        REMOTE_LOG_METADATA_TOPIC: _tier_record,
    }.get(topic, _plain_record)


def _plain_record(row: Record) -> Fact:
    return {"key": _text(row.key), "value": _text(row.value)}


def _metadata_record(row: Record) -> Fact:
    from firnline.spark.tables.record_facts import metadata_fact

    return metadata_fact(row.value or b"")


def _tier_record(row: Record) -> Fact:
    from firnline.tiered.metadata.records import decode

    fact = _named(decode(row.value or b""))
    value = fact["value"]
    for name, states in _STATES.items():
        if name in value and value[name] in range(len(states)):
            value[name] = states[value[name]]
    return fact


# Kafka's names for the states in the tier's records, by number.
_STATES = {
    "remote_log_segment_state": (
        "COPY_SEGMENT_STARTED",
        "COPY_SEGMENT_FINISHED",
        "DELETE_SEGMENT_STARTED",
        "DELETE_SEGMENT_FINISHED",
    ),
    "remote_partition_delete_state": (
        "DELETE_PARTITION_MARKED",
        "DELETE_PARTITION_STARTED",
        "DELETE_PARTITION_FINISHED",
    ),
}


def _group_record(row: Record) -> Fact:
    from firnline.coordinator.records import decode_key, decode_value

    key = decode_key(row.key or b"")
    if key is None:
        return _plain_record(row)
    value = None if row.value is None else _plain(decode_value(key, row.value))
    return {"type": type(key).__name__.removesuffix("Key"), "key": _plain(key), "value": value}


def _named(message: Struct) -> Fact:
    return {"type": type(message).__name__, "value": _plain(message)}


def _plain(value: Any) -> Any:
    """Turn a message into JSON values; 16 bytes are an id in Kafka's spelling."""
    if isinstance(value, Struct):
        return {name: _plain(getattr(value, name)) for name in value.fields}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return uuid_text(data) if len(data) == 16 else _text(data)
    return value


def _text(data: Any) -> str | None:
    if data is None:
        return None
    text = bytes(data).decode("utf-8", "replace")
    is_text = "\ufffd" not in text and all(c.isprintable() or c in "\n\t" for c in text)
    return text if is_text else "0x" + bytes(data).hex()
