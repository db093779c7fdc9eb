"""How fast is a scan of a store with 20 ms a request, beside one of a directory with the same files?

Baseline: the same scan of the directory in which the S3 server (versitygw) keeps its files. Once in Python
alone, where nothing but the reader takes time, and once through Spark on one core into the `noop` sink, which
is the bar: 0.8x or more. The server has the other core.

    make bench QUESTION=spark_distant      python -m bench.spark_distant --megabytes 4 for a first look
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from bench.measure import c_program, free_port, process, wait_for_port
from firnline.base.units import KIB, MIB
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import NAMES, NONE, ZSTD
from firnline.spark.options.parse import parse_options
from firnline.spark.schema import COLUMNS
from firnline.spark.session import session
from firnline.spark.source import FirnlineReader
from firnline.stores.directory import DirectoryStore
from firnline.tiered.objects.layout import LOG
from tests.peers import s3
from tests.spark.written_tier import WrittenPartition

SEGMENTS = 12
LATENCY_MS = 20
BAR = 0.8
SECRET = "FIRNLINE_BENCH_S3_SECRET"


@contextmanager
def distant(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the directory of an S3 server's objects, and the options of a read that asks the server.

    Each request of such a read takes LATENCY_MS longer.
    """
    with s3.start(folder) as server:
        port, behind = free_port(), urlsplit(server.settings["endpoint"]).port
        command = [str(c_program("delay")), str(port), str(behind), str(LATENCY_MS)]
        with process(command):
            wait_for_port(port)
            settings = {**server.settings, "endpoint": f"http://127.0.0.1:{port}"}
            os.environ[SECRET] = settings["secret_access_key"]
            settings["secret_access_key"] = f"${{env:{SECRET}}}"
            options = {f"tier.store.{key}": value for key, value in settings.items()}
            yield str(folder / "data" / s3.BUCKET / s3.PREFIX), {"tier.uri": server.uri, **options}


def write_topic(path: Path, topic: str, number: int, codec: int, megabytes: int) -> None:
    """Write a partition of SEGMENTS segments with `megabytes` of records each, in batches of 16 KiB.

    Only the first is built: the others are copies at other offsets, which no checksum of a batch covers.
    """
    rnd, per = Random(number), 110
    tail = b" gate delayed boarding weather crew" * 3
    batches = [
        build_batch(
            [
                NewRecord(b"%016d" % o, (rnd.randbytes(24) + tail)[:100], 10**12 + o)
                for o in range(base, base + per)
            ],
            base_offset=base,
            leader_epoch=0,
            codec=codec,
        )
        for base in range(0, megabytes * MIB // (16 * KIB) * per, per)
    ]
    partition = WrittenPartition(DirectoryStore(str(path)), topic, number=number)
    for segment in range(SEGMENTS):
        first = segment * len(batches) * per
        copies = [
            (first + at * per).to_bytes(8, "big") + batch[8:] for at, batch in enumerate(batches)
        ]
        partition.segment(copies, suffixes=(LOG,), split_bytes=16 * MIB)
    partition.publish()


def reading(options: Mapping[str, str]) -> Callable[[], None]:
    """Return what reads every record in this process, as executors do, by a plan made before."""
    reader = FirnlineReader(parse_options(options), COLUMNS)
    partitions = reader.partitions()

    def read() -> None:
        for partition in partitions:
            for _ in reader.read(partition):
                pass

    return read


def seconds(scan: Callable[[], object]) -> float:
    """Return the wall time of a scan."""
    began = time.perf_counter()
    scan()
    return time.perf_counter() - began


def compare(
    spark: SparkSession, path: str, options: Mapping[str, str], topic: str, *, repeats: int
) -> list[str]:
    """Print the ratios of one topic; return the bars that were missed."""
    near, far = {"tier.uri": path, "subscribe": topic}, {**options, "subscribe": topic}

    def scanning(given: Mapping[str, str]) -> Callable[[], None]:
        frame = spark.read.format("firnline").options(**given).load()
        return lambda: frame.write.format("noop").mode("overwrite").save()

    missed = []
    for name, how in (("Python", reading), ("Spark", scanning)):
        one, other = how(near), how(far)
        pairs = [(seconds(one), seconds(other)) for _ in range(repeats)]
        best_near, best_far = (min(side) for side in zip(*pairs[1:] or pairs, strict=True))
        ratio = median(a / b for a, b in pairs[1:] or pairs)
        print(
            f"  {topic:<12} {name:<7} directory {best_near:.2f} s, {LATENCY_MS} ms a request"
            f" {best_far:.2f} s: {ratio:.2f}x" + (f"  bar {BAR}x" if name == "Spark" else ""),
            flush=True,
        )
        if name == "Spark" and ratio < BAR:
            missed.append(topic)
    return missed


def main() -> None:
    """Print the ratios, and the bars that were missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=48, help=f"of each of {SEGMENTS} segments")
    parser.add_argument("--repeats", type=int, default=6)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, distant(Path(folder)) as (path, options):
        topics = []
        for codec in (NONE, ZSTD):
            topics.append(NAMES[codec])
            write_topic(Path(path), topics[-1], codec + 1, codec, asked.megabytes)
        spark = session("bench", cores=1)
        try:
            missed = [
                one
                for topic in topics
                for one in compare(spark, path, options, topic, repeats=asked.repeats)
            ]
        finally:
            spark.stop()
    print("missed: " + ", ".join(missed) if missed else "every bar met")


if __name__ == "__main__":
    main()
