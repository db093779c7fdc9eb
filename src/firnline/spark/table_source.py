"""The system tables as the data source sees them: schema and reader. SPARK; imports PySpark."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from firnline.base.errors import ConfigError
from firnline.spark.tables.columns import GAPS, TABLES
from firnline.spark.tables.options import TableOptions, is_gaps, parse_table_options
from firnline.spark.tables.read import TableTask, plan_table, read_table

_SIMPLE: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


class TablePartition(InputPartition):
    """One Spark partition of a system table."""

    def __init__(self, task: TableTask) -> None:
        super().__init__(task)
        self.task = task


class TableReader(DataSourceReader):
    """Plans on the driver, reads on the executors. Holds only values, because it is pickled."""

    def __init__(self, options: TableOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each task; Spark requires a list."""
        return [TablePartition(task) for task in plan_table(self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield RecordBatches. Spark passes None if there is nothing to read."""
        if isinstance(partition, TablePartition):
            yield from read_table(self.options, partition.task, self.columns)


def table_schema(given: Mapping[str, str]) -> StructType:
    """Return the columns of the table that the options name. Raises ConfigError as `parse_table_options`."""
    name = GAPS if is_gaps(given) else parse_table_options(given).table
    columns = TABLES[name].columns.items()
    return StructType([StructField(column, _spark_type(kind)) for column, kind in columns])


def table_reader(given: Mapping[str, str], schema: StructType) -> TableReader:
    """Return the reader of the table that the options name; `schema` is its own, or selects columns."""
    options = parse_table_options(given)
    return TableReader(options, selected(options.table, schema))


def selected(table: str, schema: StructType) -> tuple[str, ...]:
    """Return the columns that a schema selects; ConfigError for those that the table does not have."""
    known = {name: _spark_type(kind) for name, kind in TABLES[table].columns.items()}
    for field in schema.fields:
        if known.get(field.name) != field.dataType:
            raise ConfigError(
                f"table {table} has no such column", column=field.name,
                type=field.dataType.simpleString(),
                known=", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items()),
            )  # fmt: skip
    if not schema.fields:
        raise ConfigError("the schema has no columns; choose some", known=", ".join(known))
    return tuple(schema.fieldNames())


def _spark_type(kind: pa.DataType) -> DataType:
    if pa.types.is_list(kind):
        return ArrayType(_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return StructType([StructField(field.name, _spark_type(field.type)) for field in kind])
    return _SIMPLE[kind]
