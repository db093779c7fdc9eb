"""Read through Spark's own Kafka source and through ours, under the same options; print what differs as JSON.

    python -m tests.spark.official CASES.json JARS

CASES: a list of [kind, name, bootstrap, tier, options]. A process of its own, with one Spark session for all
cases: a JVM that runs already does not take up `spark.jars`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

from firnline.base.errors import FirnlineError
from firnline.spark.session import session
from firnline.spark.source import FirnlineSource

Options = dict[str, str]


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
    """Read with both; tell the number of rows, and those that only one has."""
    schema, rows, why = rows_of(spark, "kafka", official)
    our_schema, our_rows, our_why = rows_of(spark, "firnline", ours)
    return {
        "schemas": [schema, our_schema],
        "rows": [len(rows), len(our_rows)],
        "only_official": sorted(set(rows) - set(our_rows))[:5],
        "only_ours": sorted(set(our_rows) - set(rows))[:5],
        "refused": [why, our_why],
    }


def planned(options: Options) -> list[Any]:
    """Plan with our source as Spark does, without Spark."""
    source = FirnlineSource(CaseInsensitiveDict(options))
    return list(source.reader(source.schema()).partitions())


def refused(spark: SparkSession, official: Options, ours: Options) -> list[str]:
    """Return with which words both refuse the options; empty if one does not."""
    why = ""
    try:
        planned(ours)
    except FirnlineError as problem:
        why = str(problem)
    return [rows_of(spark, "kafka", official)[2], why]


def tasks(spark: SparkSession, official: Options, ours: Options) -> list[int]:
    """Return how many tasks both make."""
    return [load(spark, "kafka", official).rdd.getNumPartitions(), len(planned(ours))]


def main() -> None:
    """Compare all cases; then tell the names of the settings of a consumer."""
    cases, jars = sys.argv[1:]
    spark = session("official", cores=2, confs={"spark.jars": jars}, is_brief=True)
    kinds = {"same": same, "refused": refused, "tasks": tasks}
    found: dict[str, Any] = {}
    for kind, name, bootstrap, tier, options in json.loads(Path(cases).read_text()):
        began = time.monotonic()
        official = {"kafka.bootstrap.servers": bootstrap, **options}
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
