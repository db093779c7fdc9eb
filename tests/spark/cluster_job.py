"""A job as a user writes it: which records a cluster finds. spark-submit runs it; it imports no tests.

    cluster_job.py JOB     JSON: `out`, `reads`, and `remote` if a server of Spark Connect is asked

A read has `options`. Each of its tasks waits until two machines have begun one, and `slow_s` seconds more,
and leaves a file in the directory `ran` that says where it ran. Written to `out`, as JSON, are the rows of
each read, and where they were read.
"""

import json
import os
import sys
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

MACHINES = 2


def rows_of(batches: Iterator[pa.RecordBatch], slow_s: float, ran: str) -> Iterator[pa.RecordBatch]:
    if ran:
        leave(ran, ".began")
        while len({each.read_text() for each in Path(ran).glob("*.began")}) < MACHINES:
            time.sleep(0.05)
    time.sleep(slow_s)
    for batch in batches:
        values = [None if v is None else zlib.crc32(v) for v in batch["value"].to_pylist()]
        yield pa.record_batch(
            {
                "partition": batch["partition"],
                "offset": batch["offset"],
                "crc": pa.array(values, pa.int64()),
                "python": pa.array([sys.executable] * len(values)),
                "folder": pa.array([os.getcwd()] * len(values)),
            }
        )
    if ran:
        leave(ran, "")


def leave(ran: str, suffix: str) -> None:
    """Leave a file that says where this is: the directory is a worker's own."""
    whole = Path(ran, f"{uuid.uuid4().hex}.part")
    whole.write_text(os.getcwd())
    whole.rename(whole.with_suffix(suffix))


def read(
    spark: SparkSession, options: dict[str, str], slow_s: float = 0, ran: str = ""
) -> list[list[object]]:
    log = spark.read.format("firnline").options(**options).load()
    chosen = log.select("partition", "offset", "value")
    schema = "partition int, offset long, crc long, python string, folder string"
    found = chosen.mapInArrow(lambda batches: rows_of(batches, slow_s, ran), schema).collect()
    return [list(row) for row in found]


def main() -> None:
    what = json.loads(sys.argv[1])
    builder = SparkSession.builder
    if what.get("remote"):
        builder = builder.remote(what["remote"])
    spark = builder.getOrCreate()
    found = [read(spark, **each) for each in what["reads"]]
    Path(what["out"]).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
