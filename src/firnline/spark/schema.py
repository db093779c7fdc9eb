"""The columns of a reader, and which part of a log to decode. SPARK, without Spark.

Names and types are those of Spark's own Kafka source, so that a job changes only its format name. Further
columns come only if a schema names them. Source: spark section 4 'Schema'.
"""

from typing import NamedTuple

import pyarrow as pa

from firnline.base.errors import StorageError
from firnline.base.units import INT64_MAX, MIB
from firnline.formats.transaction_index import AbortedTxn

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
ARROW_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}
OFFICIAL_COLUMNS = tuple(ARROW_TYPES)
COLUMNS = OFFICIAL_COLUMNS[:-1]
ARROW_TYPES |= {
    "leaderEpoch": pa.int32(),
    "producerId": pa.int64(),
    "producerEpoch": pa.int16(),
    "sequence": pa.int32(),
    "segmentId": pa.string(),
    "readFrom": pa.string(),
    "transaction": pa.string(),
}
ALL_COLUMNS = tuple(ARROW_TYPES)
# Values of `transaction`; null for a record that is in none.
COMMITTED, ABORTED, OPEN = TRANSACTION_STATES = ("committed", "aborted", "open")
TIER, BROKER = "tier", "broker"  # values of `readFrom`

CREATE_TIME = 0
LOG_APPEND_TIME = 1
# Spark's timestamps are microseconds in 64 bits; a millisecond value beyond this does not fit.
TIMESTAMP_MS_MAX = INT64_MAX // 1000
CHUNK_BYTES = 2 * MIB
SPLIT_BYTES = 128 * MIB  # as for Spark's own files: a task costs some 40 ms (decision 0049)
AUTO, NUMPY, PYTHON = DECODERS = ("auto", "numpy", "python")  # values of `decoder`


class CorruptSegment(StorageError):
    """Bytes of a segment are not what their producer or broker wrote; says where."""


class DataLoss(StorageError):
    """Requested offsets are nowhere; `failOnDataLoss=false` reads the others."""


class ReadSettings(NamedTuple):
    """How a reader reads every task.

    keeps_aborted  also records of aborted transactions
    on_gap         what becomes of offsets that are missing; None: `fail_on_data_loss` alone decides
    """

    columns: tuple[str, ...]
    chunk_bytes: int = CHUNK_BYTES
    window_bytes: int = 4 * MIB
    verify_crc: bool = True
    fail_on_data_loss: bool = True
    decoder: str = AUTO
    keeps_aborted: bool = False
    on_gap: str | None = None


class OpenTxn(NamedTuple):
    """A transaction whose outcome the read does not know: its first offset and its producer, None for any."""

    first_offset: int
    producer_id: int | None = None


class Wanted(NamedTuple):
    """What to decode of the batches of one partition. `end_offset` is exclusive.

    aborted       aborted transactions; their records are left out unless `keeps_aborted`.
    unfinished    transactions without an outcome, for the column `transaction`.
    chunk_bytes   decompressed bytes after which a RecordBatch is closed.
    source        the name of the segment, for errors.
    segment_id    the id of the segment as text; None: from a broker.
    read_from     TIER or BROKER.
    decoder       one of DECODERS; all give the same.
    """

    topic: str
    partition: int
    columns: tuple[str, ...] = COLUMNS
    start_offset: int = 0
    end_offset: int = INT64_MAX
    aborted: tuple[AbortedTxn, ...] = ()
    verify_crc: bool = True
    chunk_bytes: int = CHUNK_BYTES
    source: str = "segment"
    segment_id: str | None = ""
    unfinished: tuple[OpenTxn, ...] = ()
    keeps_aborted: bool = False
    read_from: str = TIER
    decoder: str = AUTO


def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """Return the schema of the RecordBatches for `columns`, in that order."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])
