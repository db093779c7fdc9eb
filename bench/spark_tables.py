"""How long does Spark take for the system tables of a snapshot of a million partitions?

Seconds of the clock on two cores, the session and its first job not counted: the least of some rounds. All
columns are read, into the `noop` sink. Target: `partitions` and `snapshots` within 15 s.

    python -m bench.spark_tables      --partitions 100000 for a first look
"""

import argparse
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from bench.metadata import LEVEL, PARTITIONS_PER_TOPIC, content
from firnline.base.ids import OffsetAndEpoch
from firnline.metadata.snapshot_file import snapshot_batches, snapshot_name, write_snapshot
from firnline.runtime.disk import RealFs
from firnline.spark.session import session

TABLES = ("partitions", "snapshots", "topics", "isr")
TARGET_S = 15.0
NOW = 1_700_000_000_000


def write(directory: Path, partitions: int) -> int:
    """Write a snapshot of a metadata log that a node has fetched; return its bytes."""
    place = directory / "__cluster_metadata-0"
    place.mkdir()
    records = partitions * (PARTITIONS_PER_TOPIC + 1) // PARTITIONS_PER_TOPIC
    snapshot_id = OffsetAndEpoch(2 * records, 3)
    made = snapshot_batches(
        content(records), epoch=3, metadata_version=LEVEL, last_contained_ms=NOW, now_ms=NOW
    )
    return write_snapshot(RealFs(), str(place), snapshot_name(snapshot_id), made)


def seconds(spark: SparkSession, directory: Path, table: str) -> float:
    """Read a table once; return what it took."""
    began = time.monotonic()
    read = spark.read.format("firnline").option("table", table).option("log.dirs", str(directory))
    read.load().write.format("noop").mode("overwrite").save()
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        size_bytes = write(Path(name), options.partitions)
        print(f"snapshot: {options.partitions:,} partitions, {size_bytes:,} bytes", flush=True)
        spark = session("tables", cores=2)
        spark.range(1).collect()
        for table in TABLES:
            taken = [seconds(spark, Path(name), table) for _ in range(options.repeats)]
            print(
                f"{table}: {min(taken):.1f} s, the first time {taken[0]:.1f} s"
                f" (target {TARGET_S:.0f} s)",
                flush=True,
            )
        spark.stop()


if __name__ == "__main__":
    main()
