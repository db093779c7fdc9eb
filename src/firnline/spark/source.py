"""The PySpark data source `firnline`: a topic's tier as a table. SPARK; imports PySpark.

    spark.dataSource.register(FirnlineSource)          # not needed if the package is installed
    spark.read.format("firnline").option("tier.uri", "/data/tier").option("subscribe", "flights").load()

Uses only the public Data Source API, no jar. Brokers are not asked: they may all be stopped.
"""

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from firnline.base.errors import ConfigError
from firnline.spark.options import Options, parse_options
from firnline.spark.plan import Task
from firnline.spark.read import ReadSettings, read_task
from firnline.spark.scan import plan_scan
from firnline.spark.schema import ALL_COLUMNS, COLUMNS, OFFICIAL_COLUMNS
from firnline.stores.registry import open_store

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
    "leaderEpoch": IntegerType(),
    "producerId": LongType(),
    "producerEpoch": ShortType(),
    "sequence": IntegerType(),
    "segmentId": StringType(),
    "readFrom": StringType(),
    "transaction": StringType(),
}
assert tuple(_TYPES) == ALL_COLUMNS


class TaskPartition(InputPartition):
    """One Spark partition."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


class FirnlineSource(DataSource):
    """`spark.read.format("firnline")`. Options: docs/SPARK.md."""

    @classmethod
    def name(cls) -> str:
        return "firnline"

    def schema(self) -> StructType:
        """Return the columns of Spark's own Kafka source; `headers` only if requested."""
        names = OFFICIAL_COLUMNS if parse_options(self.options).include_headers else COLUMNS
        return StructType([StructField(name, _TYPES[name]) for name in names])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create the reader; `schema` is ours, or the user's choice of its columns."""
        return FirnlineReader(parse_options(self.options), columns_of(schema))

    def streamReader(self, schema: StructType) -> Any:
        raise ConfigError("firnline has no streaming read yet; use spark.read")


class FirnlineReader(DataSourceReader):
    """Plans on the driver, reads on the executors. Holds only values, because it is pickled."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self.options = options
        self.how = ReadSettings(
            columns=columns,
            chunk_bytes=options.chunk_bytes,
            window_bytes=options.window_bytes,
            verify_crc=options.verify_crc,
            fail_on_data_loss=options.fail_on_data_loss,
            decoder=options.decoder,
            keeps_aborted=not options.read_committed,
        )

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per byte range; Spark requires a list."""
        store = open_store(self.options.tier_uri, self.options.store_settings, is_writer=False)
        try:
            tasks = plan_scan(store, self.options, self.how.columns)
            return [TaskPartition(task) for task in tasks]
        finally:
            store.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield RecordBatches. Spark passes None if there is nothing to read."""
        if not isinstance(partition, TaskPartition):
            return
        _freeze_once()
        store = open_store(self.options.tier_uri, self.options.store_settings, is_writer=False)
        try:
            yield from read_task(store, partition.task, self.how)
        finally:
            store.close()


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the names of a schema that selects columns; ConfigError for other columns or types."""
    if not schema.fields:
        raise ConfigError("the schema has no columns; choose some", known=", ".join(ALL_COLUMNS))
    for field in schema.fields:
        expected = _TYPES.get(field.name)
        if expected is None:
            raise ConfigError("no such column", column=field.name, known=", ".join(ALL_COLUMNS))
        if field.dataType != expected:
            raise ConfigError(
                "a column has the wrong type", column=field.name,
                given=field.dataType.simpleString(), type=expected.simpleString(),
            )  # fmt: skip
    return tuple(schema.fieldNames())


_is_frozen = False


def _freeze_once() -> None:
    """Freeze the imported modules, so that the garbage collector does not traverse them.

    Spark reuses workers and collects garbage after each task: with pyarrow loaded that is half of a small
    task's time (spark section 1, finding 5).
    """
    global _is_frozen
    if not _is_frozen:
        gc.freeze()
        _is_frozen = True
