"""`groups`: the last commit of each group for each partition, and the last record of each group. WORLD.

What later records replace or delete is not in the table, and commits of a transaction count at its marker, as
when a coordinator loads the partition. Groups of the newer protocols have record types of their own, which
are left out with a line in the log. Source: KIP-98, KIP-211; `coordinator/loading.py`.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from firnline.base.errors import KafkaError, ProtocolError
from firnline.base.ids import OFFSETS_TOPIC, ZERO_UUID, uuid_text
from firnline.coordinator.records import (
    GroupMetadataValue,
    GroupRecordKey,
    LegacyOffsetCommitValue,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from firnline.records.control import ControlType
from firnline.records.control import decode_key as decode_control
from firnline.records.record import Record, records
from firnline.spark.log_lines import warn
from firnline.spark.tables.files import Span, read_span, refuse
from firnline.spark.tables.logs import CheckedLog, check_log, find_logs
from firnline.spark.tables.rows import Row, micros

_log = logging.getLogger(__name__)
_KEYS_MAX = 100_000  # a cache: consumers commit the same partitions again and again


class GroupsTask(NamedTuple):
    """One partition of the offsets topic."""

    spans: tuple[Span, ...]


class _Last(NamedTuple):
    """The last record of a key, not decoded."""

    key: GroupRecordKey
    record: Record
    path: str


Place = tuple[str, ...] | tuple[str, str, int]


def plan_groups(log_dirs: tuple[str, ...]) -> list[GroupsTask]:
    """Return a task for each partition. Of several replicas the one that reaches furthest is read.

    Raises StorageError if any is damaged.
    """
    chosen: dict[int, CheckedLog] = {}
    for log in find_logs(log_dirs, OFFSETS_TOPIC):
        checked = check_log(log, may_have_gaps=True)
        known = chosen.setdefault(log.partition.partition, checked)
        if (checked.last_epoch, checked.end_offset) > (known.last_epoch, known.end_offset):
            chosen[log.partition.partition] = checked
    return [GroupsTask(log.spans) for _, log in sorted(chosen.items()) if log.spans]


def group_rows(task: GroupsTask) -> Iterator[Row]:
    """Yield the rows of a partition. Raises StorageError with file and position for damage."""
    replay = _Replay()
    for span in task.spans:
        for found in read_span(span):
            header = found.header
            try:
                rows = list(records(found.data, header))
                if header.is_control:
                    replay.decide(header.producer_id, rows)
                elif header.is_transactional:
                    replay.hold(header.producer_id, rows, span.path)
                else:
                    replay.take(rows, span.path)
            except (KafkaError, ProtocolError) as problem:
                refuse(span.path, found.position, str(problem))
    yield from replay.rows()


class _Replay:
    """The last record of each key so far."""

    def __init__(self) -> None:
        self._last: dict[Place, _Last] = {}
        self._held: dict[int, list[_Last]] = {}
        self._keys: dict[bytes, GroupRecordKey | None] = {}
        self._left_out: Counter[str] = Counter()

    def take(self, rows: Iterable[Record], path: str) -> None:
        for row in rows:
            key = self._key(row)
            if key is not None:
                self._put(_Last(key, row, path))

    def hold(self, producer_id: int, rows: Iterable[Record], path: str) -> None:
        """Keep the records of a transaction until its marker."""
        for row in rows:
            key = self._key(row)
            if key is not None:
                self._held.setdefault(producer_id, []).append(_Last(key, row, path))

    def decide(self, producer_id: int, rows: Iterable[Record]) -> None:
        """Apply the markers of a producer's transaction."""
        for row in rows:
            held = self._held.pop(producer_id, [])
            if decode_control(row.key) == ControlType.COMMIT:
                for one in held:
                    self._put(one)

    def rows(self) -> Iterator[Row]:
        """Yield the rows in the order of their keys."""
        for _, last in sorted(self._last.items()):
            try:
                yield _row(last)
            except ProtocolError as problem:
                # It is the same on each replica: a coordinator leaves it out, too.
                self._left_out[f"undecodable: {problem}"] += 1
        for why, count in self._left_out.items():
            warn(_log, "records of groups were left out", count=count, why=why)

    def _key(self, row: Record) -> GroupRecordKey | None:
        data = row.key or b""
        if data in self._keys:
            key = self._keys[data]
        else:
            try:
                key = decode_key(data)
            except ProtocolError as problem:
                self._left_out[f"undecodable: {problem}"] += 1
                return None
            if len(self._keys) < _KEYS_MAX:
                self._keys[data] = key
        if key is None:
            self._left_out[
                f"a type of another group protocol, {int.from_bytes(data[:2], 'big')}"
            ] += 1
        return key

    def _put(self, one: _Last) -> None:
        # A commit from before 0.9 has the same place as a later one.
        key: Any = one.key
        topic = getattr(key, "topic", None)
        place: Place = (key.group,) if topic is None else (key.group, topic, key.partition)
        if one.record.value is None:
            self._last.pop(place, None)
        else:
            self._last[place] = one


def _row(last: _Last) -> Row:
    key: Any = last.key
    value = decode_value(last.key, last.record.value or b"")
    kind = type(last.key).__name__.removesuffix("Key")
    place = (last.record.offset, micros(last.record.timestamp_ms), last.path)
    if isinstance(value, GroupMetadataValue):
        return (
            kind, key.group, *(None,) * 8, value.protocol_type, value.generation, value.protocol,
            value.leader, micros(value.current_state_timestamp), [_member(m) for m in value.members],
            *place,
        )  # fmt: skip
    assert isinstance(value, OffsetCommitValue | LegacyOffsetCommitValue)
    topic_id = getattr(value, "topic_id", ZERO_UUID)
    return (
        kind, key.group, key.topic, None if topic_id == ZERO_UUID else uuid_text(topic_id), key.partition,
        value.offset, getattr(value, "leader_epoch", None), value.metadata, micros(value.commit_timestamp),
        micros(getattr(value, "expire_timestamp", None)), *(None,) * 6, *place,
    )  # fmt: skip


def _member(member: Any) -> Row:
    return (
        member.member_id, member.group_instance_id, member.client_id, member.client_host,
        member.rebalance_timeout, member.session_timeout, bytes(member.subscription),
        bytes(member.assignment),
    )  # fmt: skip
