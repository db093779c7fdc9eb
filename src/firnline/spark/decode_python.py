"""The reference implementation of `decode`: one Python object per field. SPARK.

It uses `records.record`, shares no decoding code with the numpy version, and explains corrupt batches.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from firnline.base.errors import KafkaError
from firnline.base.ports import Buffer
from firnline.base.units import INT32_MAX, wrap_int64
from firnline.records.batch import BatchHeader, crc_is_right, headers
from firnline.records.record import Record, records
from firnline.spark.schema import (
    ABORTED,
    COMMITTED,
    CREATE_TIME,
    LOG_APPEND_TIME,
    OPEN,
    TIMESTAMP_MS_MAX,
    CorruptSegment,
    Wanted,
    arrow_schema,
)

Row = tuple[Any, ...]


def rows(data: Buffer, wanted: Wanted) -> Iterator[Row]:
    """Yield one tuple per record of the complete batches of `data`, in the order of `wanted.columns`.

    A timestamp is in microseconds since 1970. Raises CorruptSegment with the offset.
    """
    try:
        for header in headers(data):
            if _is_wanted(header, wanted):
                yield from _batch_rows(data, header, wanted)
    except KafkaError as problem:
        raise _corrupt(problem.why, wanted, **problem.facts) from None


def decode(data: Buffer, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """Like `decode.decode`, with one RecordBatch for everything; slow."""
    found = list(rows(data, wanted))
    if found:
        schema = arrow_schema(wanted.columns)
        columns = zip(*found, strict=True)
        yield pa.RecordBatch.from_arrays(
            [_array(field, values) for field, values in zip(schema, columns, strict=True)],
            schema=schema,
        )


def _is_wanted(header: BatchHeader, wanted: Wanted) -> bool:
    if header.last_offset < wanted.start_offset or header.base_offset >= wanted.end_offset:
        return False
    if header.is_control:
        return False
    return wanted.keeps_aborted or transaction_state(header, wanted) != ABORTED


def transaction_state(header: BatchHeader, wanted: Wanted) -> str | None:
    """Return what became of the transaction of a batch; None if it is in none."""
    if not header.is_transactional:
        return None
    for one in wanted.aborted:
        is_in = one.first_offset <= header.base_offset <= one.last_offset
        if is_in and one.producer_id == header.producer_id:
            return ABORTED
    for other in wanted.unfinished:
        if other.first_offset <= header.base_offset and other.producer_id in (
            None,
            header.producer_id,
        ):
            return OPEN
    return COMMITTED


def _batch_rows(data: Buffer, header: BatchHeader, wanted: Wanted) -> Iterator[Row]:
    offset = header.base_offset
    if header.record_count < 0:
        raise _corrupt("a batch states a negative record count", wanted, offset=offset)
    if offset < 0:
        raise _corrupt("a batch states a negative offset", wanted, offset=offset)
    if header.last_offset_delta < 0:
        raise _corrupt("a batch ends before it begins", wanted, offset=offset)
    if wanted.verify_crc and not crc_is_right(data, header):
        raise _corrupt("a batch has a wrong CRC", wanted, offset=offset)
    try:
        for record in records(data, header):
            if not header.base_offset <= record.offset <= header.last_offset:
                raise _corrupt(
                    "an offset outside its batch", wanted, offset=offset, record=record.offset
                )
            micros = 0
            if "timestamp" in wanted.columns:
                micros = _micros(record.timestamp_ms, wanted, offset)
            if wanted.start_offset <= record.offset < wanted.end_offset:
                yield tuple(_value(name, record, header, micros, wanted) for name in wanted.columns)
    except KafkaError as problem:
        raise _corrupt(problem.why, wanted, **{**problem.facts, "offset": offset}) from None


def _micros(timestamp_ms: int, wanted: Wanted, offset: int) -> int:
    wrapped = wrap_int64(timestamp_ms)
    if abs(wrapped) > TIMESTAMP_MS_MAX:
        raise _corrupt(
            "a timestamp out of range", wanted, offset=offset, timestamp_ms=wrapped,
            remedy="Spark has no such time: choose the other columns, .schema('offset long, value binary')",
        )  # fmt: skip
    return wrapped * 1000


def _value(name: str, record: Record, header: BatchHeader, micros: int, wanted: Wanted) -> Any:
    match name:
        case "key":
            return record.key
        case "value":
            return record.value
        case "topic":
            return wanted.topic
        case "partition":
            return wanted.partition
        case "offset":
            return record.offset
        case "timestamp":
            return micros
        case "timestampType":
            return LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        case "headers":
            return [{"key": k, "value": v} for k, v in record.headers] or None
        case _:
            return _extra_value(name, record, header, wanted)


def _extra_value(name: str, record: Record, header: BatchHeader, wanted: Wanted) -> Any:
    match name:
        case "leaderEpoch":
            return None if header.leader_epoch < 0 else header.leader_epoch
        case "producerId":
            return None if header.producer_id < 0 else header.producer_id
        case "producerEpoch":
            return None if header.producer_id < 0 else header.producer_epoch
        case "sequence":
            if header.producer_id < 0 or header.base_sequence < 0:
                return None
            # After the greatest one, sequences begin at 0 again.
            return (header.base_sequence + record.offset - header.base_offset) & INT32_MAX
        case "segmentId":
            return wanted.segment_id
        case "readFrom":
            return wanted.read_from
        case _:
            assert name == "transaction", name
            return transaction_state(header, wanted)


def _array(field: pa.Field, values: tuple[Any, ...]) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        return pa.array(values, pa.int64()).view(field.type)
    return pa.array(values, field.type)


def _corrupt(why: str, wanted: Wanted, /, **facts: object) -> CorruptSegment:
    return CorruptSegment(
        why,
        segment=wanted.source,
        topic=wanted.topic,
        partition=wanted.partition,
        **facts,
    )
