"""A job as a user writes it: which records a cluster finds in a topic. spark-submit runs it; imports no tests.

    cluster_job.py WHAT     JSON: options of the read, `out`, and perhaps the others

Writes to `out`, as JSON, the rows and where they were read, and if `explains` what plans show. Each task
waits `slow_s` seconds, and leaves a file in the directory `ran`. `remote` is a server of Spark Connect.
"""

import io
import json
import os
import sys
import time
import uuid
import zlib
from contextlib import redirect_stdout
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

what = json.loads(sys.argv[1])


def rows_of(batches):
    time.sleep(what.get("slow_s", 0))
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
    if "ran" in what:
        Path(what["ran"], uuid.uuid4().hex).touch()


def main():
    builder = SparkSession.builder
    if "remote" in what:
        builder = builder.remote(what["remote"])
    spark = builder.getOrCreate()
    log = spark.read.format("firnline").options(**what["options"]).load()
    plans = io.StringIO()
    with redirect_stdout(plans):
        for mode in what.get("explains", ()):
            log.explain(mode=mode)
    schema = "partition int, offset long, crc long, python string, folder string"
    found = log.select("partition", "offset", "value").mapInArrow(rows_of, schema).collect()
    Path(what["out"]).write_text(
        json.dumps({"rows": [list(row) for row in found], "plans": plans.getvalue()})
    )
    spark.stop()


if __name__ == "__main__":
    main()
