"""The system tables: their columns, and the options that each of them uses. SPARK, without Spark.

The names are those of `firnline dump`. A column whose source has no such fact is null.
"""

from typing import NamedTuple

import pyarrow as pa

from firnline.spark.options.tier import TIER_URI

RECORDS = "records"  # the records of topics: no system table
GAPS = "gaps"  # what a read of records does not give; it has the options of such a read
TABLE, LOG_DIRS, AS_OF_OFFSET = "table", "log.dirs", "asOfOffset"
# Values of `source`.
TIER, METADATA = "tier", "metadata"
LOG, SNAPSHOT = "log", "snapshot"

_TEXT, _INT, _LONG, _BOOL = pa.string(), pa.int32(), pa.int64(), pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")


def _list(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", item))


def _rows(**fields: pa.DataType) -> pa.DataType:
    return _list(pa.struct([pa.field(name, kind) for name, kind in fields.items()]))


_INTS, _TEXTS = _list(_INT), _list(_TEXT)
_EPOCHS = _rows(epoch=_INT, start_offset=_LONG)
_PARTITION = {"topic": _TEXT, "topic_id": _TEXT, "partition": _INT}


class Table(NamedTuple):
    """One system table: its columns in order, and its options beside `table`."""

    columns: dict[str, pa.DataType]
    options: tuple[str, ...]

    def arrow_schema(self, columns: tuple[str, ...]) -> pa.Schema:
        """Return the schema of the RecordBatches for `columns`, in that order."""
        return pa.schema([pa.field(name, self.columns[name]) for name in columns])


_RECORD = {
    "offset": _LONG,
    "epoch": _INT,
    "timestamp": _TIME,
    "type": _TEXT,
    "version": _INT,
    "is_control": _BOOL,
    "topic_id": _TEXT,
    "topic": _TEXT,
    "partition": _INT,
    "broker_id": _INT,
    "broker_epoch": _LONG,
    "value": _TEXT,
}


TABLES: dict[str, Table] = {
    "topics": Table(
        {
            "topic": _TEXT,
            "topic_id": _TEXT,
            "is_deleted": _BOOL,
            "registered": _TIME,
            "partitions": _INT,
            "source": _TEXT,
        },
        (TIER_URI, LOG_DIRS, AS_OF_OFFSET),
    ),
    "partitions": Table(
        {
            **_PARTITION,
            "is_deleted": _BOOL,
            "leader": _INT,
            "leader_epoch": _INT,
            "partition_epoch": _INT,
            "replicas": _INTS,
            "isr": _INTS,
            "removing_replicas": _INTS,
            "adding_replicas": _INTS,
            "eligible_leader_replicas": _INTS,
            "last_known_elr": _INTS,
            "leader_recovery_state": _INT,
            "directories": _TEXTS,
            "broker_id": _INT,
            "sequence": _LONG,
            "written": _TIME,
            "metadata_partition": _INT,
            "metadata_offset": _LONG,
            "log_start_offset": _LONG,
            "log_end_offset": _LONG,
            "leader_epochs": _EPOCHS,
            "source": _TEXT,
        },
        (TIER_URI, LOG_DIRS, AS_OF_OFFSET),
    ),
    "segments": Table(
        {
            **_PARTITION,
            "is_deleted": _BOOL,
            "segment_id": _TEXT,
            "base_offset": _LONG,
            "end_offset": _LONG,
            "size_bytes": _LONG,
            "min_timestamp": _TIME,
            "max_timestamp": _TIME,
            "epochs": _EPOCHS,
            "stem": _TEXT,
            "objects": _TEXTS,
            "custom": _TEXT,
            "may_have_gaps": _BOOL,
            "first_crc32c": _LONG,
            "heads_crc32c": _LONG,
            "sums": _rows(object=_TEXT, size_bytes=_LONG, crc32c=_LONG),
            "splits": _rows(offset=_LONG, position=_LONG, max_timestamp=_TIME),
        },
        (TIER_URI,),
    ),
    "metadata": Table({**_RECORD, "file": _TEXT}, (LOG_DIRS, AS_OF_OFFSET)),
    "snapshots": Table(
        {"snapshot_offset": _LONG, "snapshot_epoch": _INT, **_RECORD, "file": _TEXT},
        (LOG_DIRS, AS_OF_OFFSET),
    ),
    "isr": Table(
        {
            "offset": _LONG,
            "timestamp": _TIME,
            "type": _TEXT,
            **_PARTITION,
            "leader": _INT,
            "leader_epoch": _INT,
            "partition_epoch": _INT,
            "isr": _rows(broker_id=_INT, broker_epoch=_LONG),
            "source": _TEXT,
        },
        (LOG_DIRS, AS_OF_OFFSET),
    ),
    "groups": Table(
        {
            "type": _TEXT,
            "group": _TEXT,
            "topic": _TEXT,
            "topic_id": _TEXT,
            "partition": _INT,
            "committed_offset": _LONG,
            "leader_epoch": _INT,
            "metadata": _TEXT,
            "commit_timestamp": _TIME,
            "expire_timestamp": _TIME,
            "protocol_type": _TEXT,
            "generation": _INT,
            "protocol": _TEXT,
            "leader": _TEXT,
            "current_state_timestamp": _TIME,
            "members": _rows(
                member_id=_TEXT,
                group_instance_id=_TEXT,
                client_id=_TEXT,
                client_host=_TEXT,
                rebalance_timeout=_INT,
                session_timeout=_INT,
                subscription=pa.binary(),
                assignment=pa.binary(),
            ),
            "offset": _LONG,
            "timestamp": _TIME,
            "file": _TEXT,
        },
        (LOG_DIRS,),
    ),
    GAPS: Table(
        {
            **_PARTITION,
            "start_offset": _LONG,
            "end_offset": _LONG,
            "offsets": _LONG,
            "cause": _TEXT,
            "is_loss": _BOOL,
            "segment_id": _TEXT,
            "leader_epoch": _INT,
            "producer_id": _LONG,
            "detail": _TEXT,
        },
        (),
    ),
}
