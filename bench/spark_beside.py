"""Does a producer notice a Spark job that reads the tier?

Baseline: the same producer with nothing beside it, in the same run. The job has one core, and reads the
history of a topic again and again; the brokers are not asked for any of it. Target: a p99 of at most 1.5x.

    make bench QUESTION=spark_beside
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bench.kafka import SIZE_BYTES, Side
from bench.measure import broker, process, report
from bench.tier import (
    ONLY_IN_TIER,
    QUICK,
    await_local_deletion,
    create,
    nothing,
    paced_rows,
)

HISTORY_MESSAGES = 200_000
_SCAN = "--scan"
_READING = "reading"


@contextmanager
def spark_job(tier: str) -> Iterator[None]:
    """Let Spark read the topic `cold` from the tier meanwhile, on one core; it is warm when this begins."""
    command = [sys.executable, "-m", "bench.spark_beside", _SCAN, tier]
    with process(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
        assert job.stdout is not None
        while _READING not in (line := job.stdout.readline()):
            if not line:
                raise SystemExit("the Spark job ended: nothing was beside the producer")
        yield
        if job.poll() is not None:
            raise SystemExit("the Spark job ended while it was to be beside the producer")


def scan(tier: str) -> None:
    """Read the topic until the process is ended; say so once everything is warm."""
    from firnline.spark.session import session

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the JVM and its workers inherit it
    spark = session("beside", cores=1, is_brief=True)
    options = {"tier.uri": tier, "subscribe": "cold"}
    read = 0
    while True:
        log = spark.read.format("firnline").options(**options).load()
        log.write.format("noop").mode("overwrite").save()
        read += 1
        if read == 2:
            print(_READING, flush=True)


def main() -> None:
    """Print p50, p95 and p99 of the producer with and without the job."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(_SCAN, metavar="TIER", help="be the job that reads this tier")
    options = parser.parse_args()
    if options.scan:
        scan(options.scan)
        return
    with (
        tempfile.TemporaryDirectory() as tier,
        broker("--tier", tier, *QUICK) as (node, port),
    ):
        side = Side("directory", f"127.0.0.1:{port}", node.pid)
        create(side, "steady", {})
        create(side, "cold", ONLY_IN_TIER)
        side.load("produce", "cold", HISTORY_MESSAGES, SIZE_BYTES)
        await_local_deletion(side, "cold", HISTORY_MESSAGES)
        beside = {
            "nothing": partial(nothing, side),
            "a Spark job": partial(spark_job, tier),
        }
        rows = []
        for acks in ("1", "all"):
            rows += paced_rows(side, acks, beside, options.rounds)
    report("Does a producer notice a Spark job that reads the tier?", rows)


if __name__ == "__main__":
    main()
