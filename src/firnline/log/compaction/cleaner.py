"""Which batches and records of a compacted log survive, and what becomes of a batch that loses some. PURE.

A record goes when its key has a later one among the offsets that the map covers, when its transaction was
aborted, or when it is a tombstone whose delete horizon is over. A batch keeps its base offset, last offset,
leader epoch, producer and sequence whatever goes of it: offsets never change their meaning, and a producer's
next batch is judged by the last one that is left. The last batch of a producer, and the last one of what is
compacted, stay without records when all of them go. A batch in which a tombstone, or the marker of a
transaction with no batch left, is met for the first time gets its delete horizon in place of the base
timestamp, attribute bit 6.
Source: KIP-98, KIP-534.
"""

from array import array
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from firnline.base.errors import KafkaError, ProtocolError, StorageError
from firnline.base.native import native
from firnline.base.ports import Buffer
from firnline.base.units import INT64_MAX, wrap_int64
from firnline.log.checkpoint import DAMAGE_REMEDY
from firnline.log.compaction.offset_map import OffsetMap
from firnline.log.compaction.transactions import CleanedTransactions
from firnline.protocol.primitives import varint
from firnline.records.batch import (
    CONTROL_MASK,
    CRC_START,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from firnline.records.compression import NONE, compress, decompress
from firnline.records.control import decode_key
from firnline.records.fast_path import ShortBody, kafka_varint

_INT64_MIN = -INT64_MAX - 1
# The longest varint of 32 and of 64 bits.
_INT, _LONG = 5, 10


class LastBatch(NamedTuple):
    """What a producer that is still known wrote last: the offset its data ends with, -1 without any."""

    last_offset: int
    producer_epoch: int


class Survivors(NamedTuple):
    """What is left of the records of one batch.

    max_delta  greatest difference of a timestamp to the base timestamp, before any shift; 0 without records
    body       the records that are left, or None: all, as they were
    """

    left: int
    has_tombstones: bool
    max_delta: int
    body: bytes | None


class _Record(NamedTuple):
    """Where the parts of a record are: its length begins at `start`, its timestamp at `time_at`."""

    start: int
    time_at: int
    offset_at: int
    end: int
    time_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def _record(body: Buffer, start: int, end: int) -> _Record:
    """Read one record; ShortBody where it is not what it says."""
    length, at = kafka_varint(body, start, end, _INT)
    if length < 1 or length > end - at:
        raise ShortBody
    stop = at + length
    time_at = at + 1
    time_delta, offset_at = kafka_varint(body, time_at, stop, _LONG)
    offset_delta, at = kafka_varint(body, offset_at, stop, _INT)
    key_size, at = kafka_varint(body, at, stop, _INT)
    key = None
    if key_size >= 0:
        if key_size > stop - at:
            raise ShortBody
        key = bytes(body[at : at + key_size])
        at += key_size
    value_size, at = kafka_varint(body, at, stop, _INT)
    if value_size > stop - at:
        raise ShortBody
    return _Record(start, time_at, offset_at, stop, time_delta, offset_delta, key, value_size >= 0)


def map_body_python(
    body: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    offsets: OffsetMap,
    start_offset: int,
    keys_max: int,
) -> int:
    """Put the last offsets of the keys of a batch into `offsets`.

    Returns 1 when all were put, 0 when `keys_max` was reached before, -1 when the records are not what the
    header says. Those below `start_offset`, and those without a key, are left out.
    """
    position, end, before = 0, len(body), -1
    try:
        for _ in range(count):
            record = _record(body, position, end)
            if not before < record.offset_delta <= last_offset_delta:
                return -1
            before, position = record.offset_delta, record.end
            offset = base_offset + record.offset_delta
            if record.key is not None and offset >= start_offset:
                if offsets.count >= keys_max:
                    return 0
                offsets.put(record.key, offset)
    except ShortBody:
        return -1
    return 1 if position == end else -1


def filter_body_python(
    body: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    offsets: OffsetMap,
    drops_tombstones: bool,
    shift: int,
) -> Survivors | None:
    """Return which records of a batch survive; None when they are not what the header says.

    shift  what is added to each difference to the base timestamp, because that is about to change
    """
    out = bytearray()
    position, end, before = 0, len(body), -1
    kept, has_tombstones, greatest = 0, False, _INT64_MIN
    try:
        for _ in range(count):
            record = _record(body, position, end)
            if not before < record.offset_delta <= last_offset_delta:
                return None
            before, position = record.offset_delta, record.end
            offset = base_offset + record.offset_delta
            if offset <= offsets.latest_offset:
                if record.key is None or offset < offsets.get(record.key):
                    continue
                if drops_tombstones and not record.has_value:
                    continue
            kept += 1
            greatest = max(greatest, record.time_delta)
            has_tombstones |= not record.has_value
            if not shift:
                out += body[record.start : record.end]
                continue
            moved = wrap_int64(record.time_delta + shift)
            front = bytes(body[record.time_at - 1 : record.time_at]) + varint(moved)
            out += varint(len(front) + record.end - record.offset_at)
            out += front + body[record.offset_at : record.end]
    except ShortBody:
        return None
    if position != end:
        return None
    is_same = kept == count and not shift
    return Survivors(kept, has_tombstones, greatest if kept else 0, None if is_same else bytes(out))


def _map_body_native(
    body: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    offsets: OffsetMap,
    start_offset: int,
    keys_max: int,
) -> int:
    assert native is not None
    table, secret, used = offsets.table, offsets.secret, offsets.count
    of_batch = (body, count, base_offset, last_offset_delta)
    found = native.map_body(*of_batch, table, secret, used, start_offset, keys_max)
    status, offsets.count = found
    return int(status)


def _filter_body_native(
    body: Buffer,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    offsets: OffsetMap,
    drops_tombstones: bool,
    shift: int,
) -> Survivors | None:
    assert native is not None
    table, secret, latest = offsets.table, offsets.secret, offsets.latest_offset
    of_batch = (body, count, base_offset, last_offset_delta)
    found = native.filter_body(*of_batch, table, secret, latest, drops_tombstones, shift)
    return None if found is None else Survivors(*found)


map_body: Callable[[Buffer, int, int, int, OffsetMap, int, int], int] = (
    map_body_python if native is None else _map_body_native
)
filter_body: Callable[[Buffer, int, int, int, OffsetMap, bool, int], Survivors | None] = (
    filter_body_python if native is None else _filter_body_native
)


class Damaged(StorageError):
    """A batch is not what was written: it must neither be dropped nor copied, and its log not compacted."""


def damaged(path: str, header: BatchHeader, problem: object) -> NoReturn:
    """Raise for a batch that compaction will not touch."""
    raise Damaged(
        "a damaged batch stops the compaction of a log",
        path=path,
        position=header.position,
        offset=header.base_offset,
        problem=problem,
        remedy=DAMAGE_REMEDY,
    )


def body_of(path: str, header: BatchHeader, data: Buffer) -> bytes | memoryview:
    """Return the records of the batch that `data` is, decompressed; StorageError where that cannot be."""
    packed = memoryview(data)[HEADER_BYTES:]
    if header.codec == NONE:
        return packed
    try:
        return decompress(header.codec, packed)
    except KafkaError as problem:
        damaged(path, header, problem)


def control_kind(path: str, header: BatchHeader, data: Buffer) -> int | None:
    """Return what the record of a control batch says, None when it has none any more."""
    if not header.record_count:
        return None
    body = body_of(path, header, data)
    try:
        return decode_key(_record(body, 0, len(body)).key)
    except (ShortBody, ProtocolError) as problem:
        damaged(path, header, problem)


class BatchCleaner:
    """Decides on the batches of one round of compaction, in the order of the log.

    last_batches  by producer: what every one that is still known wrote last
    upto_offset   where the round ends
    """

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        *,
        last_batches: Mapping[int, LastBatch],
        upto_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.offsets = offsets
        self.transactions = transactions
        self._last_batches = last_batches
        # Where the data of each producer ends, and its id, ascending, as native code takes them.
        ends = sorted((last.last_offset, pid) for pid, last in last_batches.items() if pid >= 0)
        self.last_offsets = array("q", [n for end in ends if end[0] >= 0 for n in end])
        self.upto_offset = upto_offset
        self.now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, INT64_MAX)
        self.records_read = 0
        self.records_kept = 0
        self.max_time_ms = NO_TIMESTAMP  # of what the last call returned

    def clean(self, path: str, header: BatchHeader, data: Buffer) -> Buffer | None:
        """Return what is to be written of a whole batch, None for nothing.

        StorageError when its records are not what it says: it must neither be dropped nor copied.
        """
        self.records_read += header.record_count
        self.max_time_ms = header.max_timestamp
        is_expired = self._is_expired(header)
        if header.is_control:
            is_spent = self.transactions.is_spent(header, control_kind(path, header, data))
            if is_spent and is_expired:
                return self._emptied(header)
            return self._marker(path, header, data, is_spent=is_spent)
        if self.transactions.is_aborted(header):
            return self._emptied(header)
        found = self._filtered(path, header, data, is_expired)
        if not found.left:
            return self._emptied(header)
        self.records_kept += found.left
        if found.has_tombstones and not header.attributes & DELETE_HORIZON_MASK:
            return self._with_horizon(path, header, data)
        if found.body is None:
            return data
        return self._rebuilt(header, found, header.base_timestamp)

    def _is_expired(self, header: BatchHeader) -> bool:
        has_horizon = header.attributes & DELETE_HORIZON_MASK
        return bool(has_horizon) and header.base_timestamp <= self.now_ms

    def _filtered(
        self, path: str, header: BatchHeader, data: Buffer, is_expired: bool, shift: int = 0
    ) -> Survivors:
        found = filter_body(
            body_of(path, header, data),
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            self.offsets,
            is_expired,
            shift,
        )
        if found is None:
            damaged(path, header, "its records are not what its header says")
        return found

    def _with_horizon(self, path: str, header: BatchHeader, data: Buffer) -> Buffer:
        shift = wrap_int64(header.base_timestamp - self._horizon_ms)
        # No horizon yet, so no tombstone goes; and without a shift the records stay as they are.
        found = self._filtered(path, header, data, False, shift)
        changed = header._replace(attributes=header.attributes | DELETE_HORIZON_MASK)
        if found.body is None:
            found = found._replace(body=bytes(body_of(path, header, data)))
        return self._rebuilt(changed, found, self._horizon_ms)

    def _marker(
        self, path: str, header: BatchHeader, data: Buffer, *, is_spent: bool
    ) -> Buffer | None:
        """Keep a control batch; one that is of use no longer begins to wait for its end."""
        if not header.record_count:
            return self._emptied(header)
        self.records_kept += header.record_count
        if not is_spent or header.attributes & DELETE_HORIZON_MASK:
            return data
        body = body_of(path, header, data)
        shift = wrap_int64(header.base_timestamp - self._horizon_ms)
        everything = OffsetMap(2, bytes(16))  # covers nothing, so that nothing goes
        found = filter_body(
            body,
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            everything,
            False,
            shift,
        )
        if found is None:
            damaged(path, header, "its records are not what its header says")
        if found.body is None:
            found = found._replace(body=bytes(body))
        changed = header._replace(attributes=header.attributes | DELETE_HORIZON_MASK)
        return self._rebuilt(changed, found, self._horizon_ms)

    def _rebuilt(self, header: BatchHeader, found: Survivors, base_timestamp: int) -> bytearray:
        """The batch with the records that are left; their greatest time is never above what it was."""
        if not header.is_log_append_time:
            greatest = max(header.base_timestamp + found.max_delta, NO_TIMESTAMP)
            self.max_time_ms = min(header.max_timestamp, greatest)
        assert found.body is not None
        body = compress(header.codec, found.body)
        return _batch(header, body, found.left, base_timestamp, self.max_time_ms)

    def _emptied(self, header: BatchHeader) -> Buffer | None:
        """A batch without records, where its place or its producer's sequence is to be known; else None."""
        if not self._is_last(header) and header.next_offset != self.upto_offset:
            return None
        kept = TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK
        bare = header._replace(attributes=header.attributes & kept)
        return _batch(bare, b"", 0, NO_TIMESTAMP, header.max_timestamp)

    def _is_last(self, header: BatchHeader) -> bool:
        last = self._last_batches.get(header.producer_id)
        if header.producer_id < 0 or last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def _batch(
    header: BatchHeader, body: bytes, count: int, base_timestamp: int, max_timestamp: int
) -> bytearray:
    out = bytearray(HEADER_BYTES)
    out += body
    fields = header[:13]
    _, _, leader_epoch, magic, _, attributes, delta, _, _, producer_id, epoch, sequence, _ = fields
    length = len(out) - LOG_OVERHEAD_BYTES
    times = (base_timestamp, max_timestamp, producer_id, epoch, sequence, count)

    def pack(crc: int) -> None:
        front = (header.base_offset, length, leader_epoch, magic, crc, attributes, delta)
        HEADER.pack_into(out, 0, *front, *times)

    pack(0)
    with memoryview(out) as view, view[CRC_START:] as covered:
        crc = crc32c(covered)
    pack(crc)
    return out
