"""System tables inside Spark: options, SQL, selected columns."""

import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StructField, StructType

from firnline.base.errors import ConfigError
from firnline.spark.source import FirnlineSource, kept_options
from firnline.spark.tables.columns import TABLES
from firnline.stores.directory import DirectoryStore
from tests.metadata_stories import Life
from tests.spark.arrow_of_spark import arrow_schema_of_spark
from tests.spark.reading_tables import rows
from tests.spark.test_tables_state import write_life
from tests.spark.written_tier import WrittenPartition, batches


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tier")
    for number in (1, 2):
        partition = WrittenPartition(DirectoryStore(str(path)), f"t{number}", 0, number=number)
        for start in range(0, number * 100, 100):
            partition.segment(batches(start, start + 100), split_bytes=1000)
        partition.publish()
    return path


def source(**options: str) -> FirnlineSource:
    return FirnlineSource(CaseInsensitiveDict(options))


@pytest.mark.parametrize("table", sorted(TABLES))
def test_arrow_and_spark_agree_on_the_columns_of_each_table(table: str) -> None:
    used = {"tier.uri": "/somewhere"}
    if table == "gaps":
        used |= {"subscribe": "t"}
    elif "tier.uri" not in TABLES[table].options:
        used = {"log.dirs": "/somewhere"}
    schema = source(table=table, **used).schema()
    columns = tuple(TABLES[table].columns)
    assert arrow_schema_of_spark(schema).equals(TABLES[table].arrow_schema(columns))


def test_a_reader_survives_pickling_and_selects_columns(tier: Path) -> None:
    made = source(**{"table": "segments", "tier.uri": str(tier)})
    fields = made.schema()
    chosen = StructType([fields["end_offset"], fields["epochs"]])
    reader = pickle.loads(pickle.dumps(made.reader(chosen)))  # noqa: S301 - our own bytes
    partitions = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 - our own bytes
    found = pa.Table.from_batches([b for p in partitions for b in reader.read(p)])
    assert found.column("end_offset").to_pylist() == [99, 99, 199]
    assert found.schema.names == ["end_offset", "epochs"]
    assert list(reader.read(None)) == []


def test_a_column_of_another_table_is_refused_with_those_that_there_are(tier: Path) -> None:
    made = source(**{"table": "topics", "tier.uri": str(tier)})
    for field in (StructField("base_offset", LongType()), StructField("topic", LongType())):
        with pytest.raises(ConfigError, match=r"topics has no such column.*registered timestamp"):
            made.reader(StructType([field]))
    with pytest.raises(ConfigError, match="no columns"):
        made.reader(StructType([]))


def test_a_created_table_keeps_its_options(tier: Path) -> None:
    options = {"table": "topics", "tier.uri": str(tier)}
    prefixed = {f"option.{name}": value for name, value in options.items()}
    schema = source(provider="firnline", **options, **prefixed).schema()
    assert kept_options(schema) == options
    reader = source().reader(schema)
    batches_ = [b for p in reader.partitions() for b in reader.read(p)]
    assert sum(len(batch) for batch in batches_) == 2


def test_sql_reads_and_joins_system_tables(spark: SparkSession, tier: Path) -> None:
    for table in ("topics", "segments"):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW the_{table} USING firnline"
            f" OPTIONS (table '{table}', `tier.uri` '{tier}')"
        )
    found = spark.sql(
        "SELECT topic, count(*), sum(size(splits)) > 0, max(end_offset) FROM the_segments"
        " JOIN the_topics USING (topic_id, topic) WHERE NOT the_topics.is_deleted"
        " GROUP BY topic ORDER BY topic"
    )
    assert [tuple(row) for row in found.collect()] == [("t1", 1, True, 99), ("t2", 2, True, 199)]


def test_sql_reads_the_metadata_of_a_node(spark: SparkSession, tmp_path: Path) -> None:
    written = write_life(tmp_path, Life(3).write(300), snapshot_every=15)
    for table in ("metadata", "snapshots", "topics", "partitions", "isr"):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW node_{table} USING firnline"
            f" OPTIONS (table '{table}', `log.dirs` '{tmp_path}')"
        )
        found = spark.table(f"node_{table}").collect()
        assert len(found) == len(rows(table, log_dirs=tmp_path))
    (row,) = spark.sql(
        "SELECT get_json_object(value, '$.feature_level') FROM node_metadata"
        " WHERE type = 'FeatureLevelRecord' AND offset = 0"
    ).collect()
    assert row[0] == "30"
    as_of = spark.read.format("firnline").options(
        table="partitions", asOfOffset=str(written.snapshots[0]), **{"log.dirs": str(tmp_path)}
    )
    image = written.images[written.snapshots[0]]
    assert as_of.load().count() == sum(len(t.partitions) for t in image.topics_by_id.values())
