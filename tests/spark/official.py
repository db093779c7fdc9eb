"""Read one topic through Spark's own Kafka source and through ours, and print how they differ, as JSON.

    python -m tests.spark.official BOOTSTRAP TIER TOPIC JARS

A process of its own: a JVM that runs already does not take up `spark.jars`.
"""

import json
import sys

from pyspark.sql import DataFrame, SparkSession

from firnline.spark.session import session


def load(spark: SparkSession, source: dict[str, str], options: dict[str, str]) -> DataFrame:
    """Read with the options of both sources."""
    given = {k: v for k, v in source.items() if k != "format"} | options
    return spark.read.format(source["format"]).options(**given).load()


def differences(official: DataFrame, ours: DataFrame) -> dict[str, object]:
    """Count rows, and those that only one side has."""
    return {
        "schemas": [official.schema.simpleString(), ours.schema.simpleString()],
        "rows": [official.count(), ours.count()],
        "only_official": [str(r) for r in official.exceptAll(ours).limit(5).collect()],
        "only_ours": [str(r) for r in ours.exceptAll(official).limit(5).collect()],
    }


def main() -> None:
    """Compare under several options."""
    bootstrap, tier, topic, jars, middle_ms = sys.argv[1:]
    spark = session("official", cores=2, confs={"spark.jars": jars})
    kafka = {"format": "kafka", "kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    firnline = {"format": "firnline", "tier.uri": tier, "subscribe": topic}
    found = {}
    for name, options in {
        "plain": {},
        "headers": {"includeHeaders": "true"},
        "committed": {"kafka.isolation.level": "read_committed"},
        "from": {"startingTimestamp": middle_ms},
        "until": {"endingTimestamp": middle_ms},
        "offsets": {
            "startingOffsets": json.dumps({topic: {"0": 7, "1": -2}}),
            "endingOffsets": json.dumps({topic: {"0": -1, "1": 40}}),
        },
    }.items():
        found[name] = differences(load(spark, kafka, options), load(spark, firnline, options))
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
