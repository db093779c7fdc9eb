"""`metadata` and `snapshots`: the records of a node's metadata log and of its snapshots. WORLD.

`value` is JSON text. There are 26 types of records: a column for each of their fields would make a table of
more than a hundred columns, nearly all null, that changes with each release. Fields by which a query joins or
filters are columns of their own; the others are reached with `get_json_object` or `from_json`.
"""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from firnline.base.errors import ConfigError, KafkaError, ProtocolError, StorageError
from firnline.base.ids import METADATA_TOPIC
from firnline.metadata import records as r
from firnline.metadata.image import ResourceType
from firnline.protocol.schema import Message
from firnline.records import control
from firnline.records.record import Record, records
from firnline.spark.log_lines import warn
from firnline.spark.tables.files import Placed, Span, read_span, refuse
from firnline.spark.tables.logs import CheckedLog, check_log, find_logs
from firnline.spark.tables.record_facts import shown, versioned
from firnline.spark.tables.record_text import id_text, record_text
from firnline.spark.tables.rows import Row, micros
from firnline.spark.tables.snapshots import CheckedSnapshot, check_snapshot_file, find_snapshots

_log = logging.getLogger(__name__)
_CONTROLS = {member.value: member.name for member in control.ControlType}


class FileTask(NamedTuple):
    """Batches to read: of the log below `end_offset`, or of a snapshot; `lead` are its first columns."""

    span: Span
    lead: tuple[Any, ...] = ()
    end_offset: int | None = None


def choose_log(log_dirs: tuple[str, ...]) -> CheckedLog:
    """Return the metadata log that reaches furthest, if directories of several nodes are given.

    Raises StorageError if any of them is damaged.
    """
    logs = [check_log(log) for log in find_logs(log_dirs, METADATA_TOPIC)]
    chosen = max(logs, key=lambda log: (log.last_epoch, log.end_offset))
    if len(logs) > 1:
        message, path = "read is the metadata log that reaches furthest", chosen.log.path
        warn(_log, message, path=path, end_offset=chosen.end_offset, of=len(logs))
    return chosen


def plan_metadata(log_dirs: tuple[str, ...], as_of_offset: int | None) -> list[FileTask]:
    """Return the spans of the log below an offset. Raises ConfigError for one that the log does not have."""
    log = choose_log(log_dirs)
    end = log.end_offset if as_of_offset is None else as_of_offset
    if end > log.end_offset:
        raise too_new(log, end)
    if end < log.start_offset:
        raise ConfigError(
            "the metadata log does not go back to asOfOffset", given=end, oldest=log.start_offset,
            path=log.log.path,
        )  # fmt: skip
    return [FileTask(span, end_offset=end) for span in log.spans if span.base_offset < end]


def plan_snapshots(log_dirs: tuple[str, ...], as_of_offset: int | None) -> list[FileTask]:
    """Return the spans of all snapshots, or of the newest one at or below an offset."""
    log = choose_log(log_dirs)
    chosen = find_snapshots(log.log.path)
    if as_of_offset is not None:
        below = [place for place in chosen if place.offset <= as_of_offset]
        if as_of_offset > max(log.end_offset, *(place.offset for place in chosen), 0):
            raise too_new(log, as_of_offset)
        if not below:
            raise ConfigError(
                "no snapshot is at or below asOfOffset", given=as_of_offset,
                oldest=min((place.offset for place in chosen), default=None), path=log.log.path,
            )  # fmt: skip
        chosen = {max(below): chosen[max(below)]}
    return [
        FileTask(span, lead=tuple(place))
        for place, path in chosen.items()
        for span in check_snapshot_file(path, place).spans
    ]


def newest_snapshot(log: CheckedLog, end_offset: int) -> CheckedSnapshot | None:
    """Return the newest snapshot at or below an offset, checked; None if there is none.

    Raises StorageError if the log does not continue it, and ConfigError if neither goes so far back.
    """
    found = find_snapshots(log.log.path)
    below = [place for place in found if place.offset <= end_offset]
    if not below:
        if log.start_offset == 0:
            return None
        raise ConfigError(
            "the metadata does not go back to asOfOffset", given=end_offset,
            oldest=min((place.offset for place in found), default=None), path=log.log.path,
        )  # fmt: skip
    newest = max(below)
    if log.start_offset > newest.offset and end_offset > newest.offset:
        raise StorageError(
            "the metadata log begins after the newest snapshot: what is between them is lost",
            path=found[newest], log_start_offset=log.start_offset,
        )  # fmt: skip
    return check_snapshot_file(found[newest], newest)


def too_new(log: CheckedLog, given: int) -> ConfigError:
    """Return the error for an offset that the log does not have yet."""
    return ConfigError(
        "asOfOffset is beyond the end of the metadata log", given=given, newest=log.end_offset,
        path=log.log.path,
    )  # fmt: skip


def metadata_rows(task: FileTask, columns: tuple[str, ...]) -> Iterator[Row]:
    """Yield a row for each record of a span. Raises StorageError with file and position for damage.

    columns  those that are wanted: `value` is null if it is not one of them
    """
    text = record_text if "value" in columns else _no_text
    for found in read_span(task.span):
        try:
            for row in records(found.data, found.header):
                if task.end_offset is not None and row.offset >= task.end_offset:
                    return
                yield (*task.lead, *_row(found, row, text), task.span.path)
        except (KafkaError, ProtocolError) as problem:
            refuse(task.span.path, found.position, str(problem))


def _row(found: Placed, row: Record, text: Callable[[Message, int], str | None]) -> Row:
    place = (row.offset, found.header.leader_epoch, micros(row.timestamp_ms))
    if found.header.is_control:
        kind = control.decode_key(row.key)
        fields = None
        if kind in _CONTROLS:
            fields = json.dumps(shown(control.decode_value(kind, row.value), 0))
        return (*place, _CONTROLS.get(kind, str(kind)), None, True, *_NONE, fields)
    record, version = versioned(row.value or b"")
    return (
        *place, type(record).__name__, version, False, *_common(record), text(record, version)
    )  # fmt: skip


def _no_text(record: Message, version: int) -> None:
    return None


# topic_id, topic, partition, broker_id, broker_epoch
_NONE = (None,) * 5


def _common(record: Message) -> Row:
    """Return what the record says of the columns that records have in common."""
    kind = type(record)
    if kind is r.PartitionRecord or kind is r.PartitionChangeRecord:
        return id_text(record.topic_id), None, record.partition_id, None, None  # type: ignore[attr-defined]
    if isinstance(record, r.TopicRecord):
        return id_text(record.topic_id), record.name, None, None, None
    if isinstance(record, r.RemoveTopicRecord):
        return id_text(record.topic_id), None, None, None, None
    if isinstance(record, r.FenceBrokerRecord | r.UnfenceBrokerRecord):
        return None, None, None, record.id, record.epoch
    if isinstance(record, r.ConfigRecord) and record.resource_type == ResourceType.TOPIC:
        return None, record.resource_name, None, None, None
    if isinstance(record, r.ClearElrRecord):
        return None, record.topic_name or None, None, None, None
    return (
        None, None, None, getattr(record, "broker_id", None), getattr(record, "broker_epoch", None)
    )  # fmt: skip
