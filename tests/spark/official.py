"""Read through Spark's own Kafka source and through ours, under the same options; print what differs as JSON.

    python -m tests.spark.official CASES.json JARS

CASES: a list of [kind, name, bootstrap, tier, options]. Ours reads the tier alone, unless that lacks records,
the tier and the brokers, and the brokers alone. A process of its own, with one Spark session for all cases: a
JVM that runs already does not take up `spark.jars`.
"""

import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

from firnline.base.errors import FirnlineError
from firnline.spark.cuts import pin
from firnline.spark.options.kafka import BOOTSTRAP
from firnline.spark.session import session
from firnline.spark.source import FirnlineSource
from tests.spark.tiered_topic import write

Options = dict[str, str]
_NOT_STARTED, _STARTS_MAX = "Python worker failed to connect back", 5


def load(spark: SparkSession, format_: str, options: Options) -> DataFrame:
    """Read with one source."""
    return spark.read.format(format_).options(**options).load()


def rows_of(spark: SparkSession, format_: str, options: Options) -> tuple[str, list[str], str]:
    """Return the schema, all rows as text in order, and the words of a refusal."""
    try:
        frame = load(spark, format_, options)
        return frame.schema.simpleString(), sorted(str(row) for row in frame.collect()), ""
    except Exception as problem:  # noqa: BLE001 - whatever Spark and Py4J raise
        return "", [], str(problem)[:2000]


def same(spark: SparkSession, official: Options, ours: Options) -> dict[str, Any]:
    """Read with both; tell the number of rows, and those that only one has, in each way to read."""
    return compared(spark, official, ours, ("tier", "auto", "broker"))


def tail(spark: SparkSession, official: Options, ours: Options) -> dict[str, Any]:
    """As `same`, of a topic of which the tier has a part or nothing."""
    return compared(spark, official, ours, ("auto", "broker"))


def meanwhile(spark: SparkSession, official: Options, ours: Options) -> dict[str, Any]:
    """Write to a topic while both read what there was at one moment."""
    producer = Producer({"bootstrap.servers": official[BOOTSTRAP]})
    topic = official["subscribe"]
    with written_to(producer, topic):
        cut = pin({**ours, BOOTSTRAP: official[BOOTSTRAP]})
        until = {
            name: {p: row["end"] for p, row in each["partitions"].items()}
            for name, each in json.loads(cut)["topics"].items()
        }
        official = {**official, "endingOffsets": json.dumps(until)}
        return compared(spark, official, {**ours, "asOf": cut}, ("auto", "broker"))


@contextmanager
def written_to(producer: Producer, topic: str) -> Iterator[None]:
    """Write to a topic until the block ends; at least some records before it begins."""
    stops = threading.Event()

    def write() -> None:
        while not stops.wait(0.001):
            producer.produce(topic, value="meanwhile " + "x" * 100)
            producer.poll(0)
        producer.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stops.set()
        writer.join()


def compared(
    spark: SparkSession, official: Options, ours: Options, ways: Sequence[str]
) -> dict[str, Any]:
    """Read once with the official source, and in several ways with ours."""
    schema, rows, why = rows_of(spark, "kafka", official)
    found: dict[str, Any] = {"refused": [why], "schemas": [schema], "rows": [len(rows)]}
    found["only_official"], found["only_ours"] = [], []
    for way in ways:
        options = {BOOTSTRAP: official[BOOTSTRAP], **ours, "readFrom": way}
        our_schema, our_rows, our_why = rows_of(spark, "firnline", options)
        found["refused"].append(our_why)
        found["schemas"].append(our_schema)
        found["rows"].append(len(our_rows))
        found["only_official"] += sorted((Counter(rows) - Counter(our_rows)).elements())[:5]
        found["only_ours"] += sorted((Counter(our_rows) - Counter(rows)).elements())[:5]
    return found


def again(spark: SparkSession, official: Options, ours: Options) -> list[list[int]]:
    """Count a topic with one DataFrame twice, before and after something is written."""
    live = {BOOTSTRAP: official[BOOTSTRAP], **ours}
    frames = [load(spark, "kafka", official), load(spark, "firnline", live)]
    before = [frame.count() for frame in frames]
    write(official[BOOTSTRAP], official["subscribe"], 0, 10)
    return [before, [frame.count() for frame in frames]]


def planned(options: Options) -> list[Any]:
    """Plan with our source as Spark does, without Spark."""
    source = FirnlineSource(CaseInsensitiveDict(options))
    return list(source.reader(source.schema()).partitions())


def refused(spark: SparkSession, official: Options, ours: Options) -> list[str]:
    """Return with which words both refuse the options, ours also beside brokers; empty if one does not."""
    words = [rows_of(spark, "kafka", official)[2]]
    for options in (ours, {BOOTSTRAP: official[BOOTSTRAP], **ours}):
        try:
            planned(options)
            words.append("")
        except FirnlineError as problem:
            words.append(str(problem))
    return words


def tasks(spark: SparkSession, official: Options, ours: Options) -> list[int]:
    """Return how many tasks both make, ours also beside brokers."""
    live = {BOOTSTRAP: official[BOOTSTRAP], **ours}
    return [
        load(spark, "kafka", official).rdd.getNumPartitions(),
        len(planned(ours)),
        len(planned(live)),
    ]


def streams(spark: SparkSession, official: Options, ours: Options) -> dict[str, Any]:
    """Read as a stream with both until there is nothing new; then go on with ours where the official ended.

    Tells where each micro-batch of each ended, and the rows that each put into its files.
    """
    live = {BOOTSTRAP: official[BOOTSTRAP], **ours}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for name, format_, options in (
            ("official", "kafka", official), ("auto", "firnline", {**live, "readFrom": "auto"}),
            ("broker", "firnline", {**live, "readFrom": "broker"}),
        ):  # fmt: skip
            found[name] = streamed(spark, format_, options, Path(place) / name)
        if "refused" in found["official"]:
            return found
        write(official[BOOTSTRAP], official["subscribe"], 1000, 1010)
        found["goes on"] = streamed(spark, "firnline", live, Path(place) / "official")
        found["goes back"] = streamed(spark, "kafka", official, Path(place) / "auto")
    return found


def streamed(spark: SparkSession, format_: str, options: Options, place: Path) -> dict[str, Any]:
    """Run a stream until there is nothing new; return the ends of its micro-batches, and all rows.

    On a busy machine Spark may give up its own Python before it has started: docs/SPARK.md.
    """
    for _ in range(_STARTS_MAX):
        found = streamed_once(spark, format_, options, place)
        if _NOT_STARTED not in found.get("refused", ""):
            break
    return found


def streamed_once(
    spark: SparkSession, format_: str, options: Options, place: Path
) -> dict[str, Any]:
    """As `streamed`, in one query."""
    try:
        query = (
            spark.readStream.format(format_).options(**options).load()
            .writeStream.format("parquet")
            .option("path", str(place / "out"))
            .option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )  # fmt: skip
        query.awaitTermination()
    except Exception as problem:  # noqa: BLE001 - whatever Spark and Py4J raise
        return {"refused": str(problem)[:2000]}
    rows = spark.read.parquet(str(place / "out")).collect()
    progress = [json.loads(each.json)["sources"][0] for each in query.recentProgress]
    ends = [offsets_in(each["endOffset"]) for each in progress]
    latest = [offsets_in(each["latestOffset"]) for each in progress]
    return {"ends": ends, "latest": latest, "rows": sorted(str(row) for row in rows)}


def offsets_in(given: Any) -> Any:
    """Return offsets without what only ours have."""
    offsets = json.loads(given) if isinstance(given, str) else given
    return {name: row for name, row in offsets.items() if not name.startswith("#")}


def main() -> None:
    """Compare all cases; then tell the names of the settings of a consumer."""
    cases, jars = sys.argv[1:]
    spark = session("official", cores=2, confs={"spark.jars": jars}, is_brief=True)
    kinds = {"same": same, "tail": tail, "meanwhile": meanwhile, "refused": refused, "tasks": tasks}
    kinds |= {"streams": streams, "again": again}
    found: dict[str, Any] = {}
    for kind, name, bootstrap, tier, options in json.loads(Path(cases).read_text()):
        began = time.monotonic()
        official = {BOOTSTRAP: bootstrap, **options}
        found[name] = kinds[kind](spark, official, {"tier.uri": tier, **options})
        print(f"{time.monotonic() - began:.1f} s {name}", file=sys.stderr)
    jvm: Any = spark._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    config = loader.loadClass("org.apache.kafka.clients.consumer.ConsumerConfig")
    names = config.getMethod("configNames", None).invoke(None, None)
    found["settings"] = sorted(str(name) for name in names)
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
