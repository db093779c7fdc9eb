"""What the metadata log says after a snapshot, in the order of its records. WORLD.

Records of a metadata transaction count when it ends, at their own offsets; those of one that was aborted or
has not ended do not. Source: KIP-868; `metadata/loader.py`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from firnline.base.errors import KafkaError, ProtocolError
from firnline.metadata import records as r
from firnline.metadata.batch_records import batch_records
from firnline.protocol.schema import Message
from firnline.records.record import records
from firnline.spark.tables.files import Placed, Span, read_span, refuse

_RECORDS_AT_ONCE = 10_000
_MARKERS = (r.BeginTransactionRecord, r.EndTransactionRecord, r.AbortTransactionRecord)


class Applied(NamedTuple):
    """A record that took effect. `timestamp_ms` is when it was written."""

    offset: int
    timestamp_ms: int
    record: Message


def messages(span: Span) -> Iterator[tuple[int, Message]]:
    """Yield the metadata records of a span with their offsets. StorageError for damage, as `read_span`."""
    for found in read_span(span):
        yield from messages_of(span.path, found)


def messages_of(path: str, found: Placed) -> Iterator[tuple[int, Message]]:
    """Yield the metadata records of one batch with their offsets. StorageError for damage."""
    if found.header.is_control:
        return
    try:
        for some in batch_records(found.data, found.header, at_most=_RECORDS_AT_ONCE):
            yield from some
    except (KafkaError, ProtocolError) as problem:
        refuse(path, found.position, str(problem))


def applied(
    spans: Sequence[Span], start_offset: int, end_offset: int, *, may_begin_inside: bool = False
) -> Iterator[Applied]:
    """Yield the records in [start, end) that took effect before `end_offset`.

    may_begin_inside  a transaction may have begun below `start_offset`; not so where a snapshot ends
    """
    waiting: list[Applied] | None = None
    if may_begin_inside and start_offset > 0:
        markers = (
            type(one.record)
            for one in _timed(spans, start_offset, end_offset)
            if isinstance(one.record, _MARKERS)
        )
        if next(markers, r.BeginTransactionRecord) is not r.BeginTransactionRecord:
            waiting = []
    for one in _timed(spans, start_offset, end_offset):
        kind = type(one.record)
        if kind is r.BeginTransactionRecord:
            waiting = []
        elif kind is r.EndTransactionRecord:
            yield from waiting or ()
            waiting = None
        elif kind is r.AbortTransactionRecord:
            waiting = None
        elif waiting is not None:
            waiting.append(one)
        else:
            yield one


def _timed(spans: Sequence[Span], start_offset: int, end_offset: int) -> Iterator[Applied]:
    for span in spans:
        if span.end_offset <= start_offset or span.base_offset >= end_offset:
            continue
        for found in read_span(span):
            if found.header.is_control:
                continue
            try:
                for row in records(found.data, found.header):
                    if start_offset <= row.offset < end_offset:
                        yield Applied(row.offset, row.timestamp_ms, r.decode(row.value or b""))
            except (KafkaError, ProtocolError) as problem:
                refuse(span.path, found.position, str(problem))
