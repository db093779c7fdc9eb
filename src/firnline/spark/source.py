"""The PySpark data source `firnline`: a topic as a table. SPARK; imports PySpark.

    spark.dataSource.register(FirnlineSource)          # not needed if the package is installed
    spark.read.format("firnline").option("tier.uri", "/data/tier").option("subscribe", "flights").load()

Uses only the public Data Source API, no jar. Brokers are asked only for what the tier does not have, and only
if the options name them.
"""

import gc
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
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
from firnline.spark.access.advice import advised
from firnline.spark.access.cut_files import show_cut, with_cut
from firnline.spark.access.tier import open_tier
from firnline.spark.gaps.options import parse_gaps_options
from firnline.spark.gaps.read import LEFT_OUT_PER_TASK, Work, read_gaps
from firnline.spark.options.brokers import BROKER
from firnline.spark.options.parse import BY_LOAD, PUSHDOWN, Options, parse_options
from firnline.spark.options.triggers import parse_triggers
from firnline.spark.planning.filters import Filters
from firnline.spark.planning.packing import pack_tasks
from firnline.spark.planning.plan import TailTask, Task
from firnline.spark.planning.scan import plan_read, tasks_for_cores
from firnline.spark.pushdown import (
    FiltersOfLoad,
    filters_of,
    is_pushing,
    log_once,
    setting_of_planner,
)
from firnline.spark.read import read_tasks
from firnline.spark.schema import ALL_COLUMNS, COLUMNS, OFFICIAL_COLUMNS, ReadSettings
from firnline.spark.table_source import selected, table_reader, table_schema
from firnline.spark.tables.columns import GAPS
from firnline.spark.tables.options import is_gaps, is_table
from firnline.stores.port import ObjectStore

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
# Spark 4.3 keeps the options of a table, but does not give them to the reader of a Python data source. It
# does give the schema, so the options are kept in the metadata of the first column.
_METADATA = "firnline.options"
# Came with PySpark 4.2.
_STREAM_MODULE = "pyspark.sql.streaming.datasource"
_TABLE_OPTION = "option."


class TaskPartition(InputPartition):
    """One Spark partition: tasks that are read one after the other."""

    def __init__(self, tasks: tuple[Task | TailTask, ...]) -> None:
        super().__init__(tasks)
        self.tasks = tasks


class FirnlineSource(DataSource):
    """`spark.read.format("firnline")`. Options: docs/SPARK.md."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        # Spark makes one instance for each `load()`, and keeps its pickle.
        self.filters = FiltersOfLoad() if options.get(PUSHDOWN) == BY_LOAD else None

    @classmethod
    def name(cls) -> str:
        return "firnline"

    def schema(self) -> StructType:
        """Return the columns of Spark's own Kafka source; `headers` only if requested."""
        of_table = table_options(self.options)
        given = with_cut(self.options if of_table is None else of_table)
        if is_gaps(given):
            parse_gaps_options(given)
        if is_table(given):
            return _keeping(table_schema(given), of_table)
        options = options_of_either(given)
        if of_table is not None and options.takes_filters:
            raise ConfigError(f"{PUSHDOWN} cannot be an option of a table")
        names = OFFICIAL_COLUMNS if options.include_headers else COLUMNS
        return _keeping(StructType([StructField(name, _TYPES[name]) for name in names]), of_table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create the reader; `schema` is ours, or the user's choice of its columns."""
        given = with_cut(kept_options(schema) | dict(self.options))
        if not given:
            raise ConfigError(
                "Spark gives a table that was created with a list of columns none of its options: create it"
                " without columns, or as a temporary view, or read it WITH (option = 'value')"
            )
        if is_gaps(given):
            return GapsReader(parse_gaps_options(given), selected(GAPS, schema))
        if is_table(given):
            return table_reader(given, schema)
        options, columns = parse_options(given), columns_of(schema)
        if options.takes_filters and self.filters is not None and is_pushing():
            return FilteringReader(options, columns, self.filters)
        if options.takes_filters:
            log_once(setting_of_planner())
        return FirnlineReader(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Create the reader of a stream; Spark does so in each process of Python that it starts."""
        try:
            from firnline.spark.streaming.reader import FirnlineStreamReader
        except ModuleNotFoundError as problem:
            if problem.name != _STREAM_MODULE:
                raise
            raise ConfigError(
                "a stream needs PySpark 4.2 or newer, on driver and executors: only then does Spark ask a"
                " Python source for limits and for availableNow. A batch read works with this one",
                pyspark=pyspark.__version__,
                remedy="pip install 'pyspark>=4.2', or spark.read in place of spark.readStream",
            ) from None
        given = kept_options(schema) | dict(self.options)
        options = parse_options(given, is_stream=True)
        reader = FirnlineReader(options, columns_of(schema))
        return FirnlineStreamReader(options, parse_triggers(given), reader)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuse a write: PySpark would say that `writer` is not implemented, and not what is."""
        raise _no_sink()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Refuse a write, as `writer` does."""
        raise _no_sink()


class FirnlineReader(DataSourceReader):
    """Plans on the driver, reads on the executors. Holds only values, because it is pickled."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        self.options = options
        self.filters = Filters()
        self.how = ReadSettings(
            columns=columns,
            chunk_bytes=options.chunk_bytes,
            window_bytes=options.window_bytes,
            verify_crc=options.verify_crc,
            fail_on_data_loss=options.fail_on_data_loss,
            decoder=options.decoder,
            keeps_aborted=not options.read_committed,
            on_gap=options.on_gap,
        )

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per byte range, or for several small ones; Spark requires a list."""
        with self._tier() as store:
            plan = plan_read(store, self.options, self.filters, columns=self.how.columns)
        show_cut(plan.cut)
        return self.packed(plan.tasks)

    @contextmanager
    def _tier(self) -> Iterator[ObjectStore | None]:
        """Open the tier's store; None if only brokers are read."""
        options = self.options
        if options.read_from == BROKER:
            yield None
            return
        with advised(options.tier_uri):
            store = open_tier(options.tier_uri, options.store_settings)
            try:
                yield store
            finally:
                store.close()

    def packed(self, tasks: list[Task | TailTask]) -> list[InputPartition]:
        """Return the Spark partitions that read some tasks."""
        options = self.options
        if options.divides_offsets:  # the user says how many there are
            return [TaskPartition((task,)) for task in tasks]
        packed = pack_tasks(
            tasks,
            split_bytes=options.split_bytes,
            max_tasks=options.max_tasks,
            enough=tasks_for_cores(),
        )
        return [TaskPartition(each) for each in packed]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield RecordBatches. Spark passes None if there is nothing to read."""
        if not isinstance(partition, TaskPartition):
            return
        _freeze_once()
        with self._tier() as store:
            yield from read_tasks(store, partition.tasks, self.how, self.options.brokers)


class GapsPartition(InputPartition):
    """One Spark partition of the table `gaps`: tasks, or what the plan itself left out."""

    def __init__(self, works: tuple[Work, ...]) -> None:
        super().__init__(works)
        self.works = works


class GapsReader(FirnlineReader):
    """The table `gaps`, of which `columns`: planned and divided as a read of the same offsets."""

    def __init__(self, options: Options, columns: tuple[str, ...]) -> None:
        super().__init__(options, ("offset",))
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for what the plan left out, and those of the read."""
        with self._tier() as store:
            plan = plan_read(store, self.options, columns=self.how.columns)
        show_cut(plan.cut)
        left_out, most = plan.left_out, LEFT_OUT_PER_TASK
        runs: list[tuple[Work, ...]] = [
            left_out[at : at + most] for at in range(0, len(left_out), most)
        ]
        runs += [(each,) for each in plan.expired]
        packed = [each.tasks for each in self.packed(plan.tasks)]  # type: ignore[attr-defined]
        return [GapsPartition(works) for works in [*runs, *packed]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield RecordBatches. Spark passes None if there is nothing to read."""
        if not isinstance(partition, GapsPartition):
            return
        _freeze_once()
        with self._tier() as store:
            yield from read_gaps(
                store, partition.works, self.how, self.options.brokers, self.columns
            )


class FilteringReader(FirnlineReader):
    """A reader that takes Spark's filters, for `load.load`: see `pushdown`."""

    def __init__(self, options: Options, columns: tuple[str, ...], of_load: FiltersOfLoad) -> None:
        super().__init__(options, columns)
        self._of_load = of_load

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Plan only what can have rows that pass. Spark applies all filters again."""
        self.filters = self._of_load.with_others(filters_of(filters))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Plan, and plan again if meanwhile another query of the same `load()` has come."""
        while True:
            planned = super().partitions()
            joined = self._of_load.with_others(self.filters)
            if joined == self.filters:
                return planned
            self.filters = joined


def _no_sink() -> ConfigError:
    return ConfigError(
        "this source only reads: Spark writes to a topic with format('kafka'), its own Kafka connector,"
        " and kafka.bootstrap.servers; Firnline's brokers take what it sends"
    )


def options_of_either(given: Mapping[str, str]) -> Options:
    """Parse the options of a read, or else of a stream: Spark asks for the schema before it says which."""
    try:
        return parse_options(given)
    except ConfigError as problem:
        try:
            return parse_options(given, is_stream=True)
        except ConfigError:
            raise problem from None


def table_options(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return the OPTIONS of a `CREATE TABLE` that asks for the schema; None for any other request.

    Then Spark gives all properties of the table, and each option a second time with a prefix.
    """
    if given.get("provider") != FirnlineSource.name():
        return None
    return {
        name.removeprefix(_TABLE_OPTION): value
        for name, value in given.items()
        if name.startswith(_TABLE_OPTION)
    }


def _keeping(schema: StructType, of_table: dict[str, str] | None) -> StructType:
    """Return the schema; of a table with its options, which Spark does not give to the reader."""
    if of_table is not None:
        schema.fields[0].metadata = {_METADATA: json.dumps(of_table)}
    return schema


def kept_options(schema: StructType) -> dict[str, str]:
    """Return the options of the table to which a schema belongs; empty for a schema of no table."""
    kept = [field.metadata[_METADATA] for field in schema.fields if _METADATA in field.metadata]
    return dict(json.loads(kept[0])) if kept else {}


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
        if not field.nullable:
            raise ConfigError("a column of the schema cannot be NOT NULL", column=field.name)
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
