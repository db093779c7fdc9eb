"""How fast is a scan of the tier in Spark beside one of Parquet files with the same rows?

Baseline: `spark.read.parquet` (zstd) of what the tier holds, in the same session, into the `noop`
sink. Targets: spark-T4 (at least 0.5x of it for uncompressed segments, 0.3x for zstd in batches of
16 KiB), spark-T5 (0.3x with headers), spark-T13 (two columns at least 2x a full scan, uncompressed).

    make bench QUESTION=spark_scan      python -m bench.spark_scan --megabytes 4 --repeats 2 for a first look
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from pyspark.sql import DataFrame, SparkSession

from firnline.base.units import KIB, MIB
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import NAMES, NONE, ZSTD
from firnline.spark.session import session
from firnline.stores.directory import DirectoryStore
from firnline.tiered.catalog.format import CatalogHead, CatalogSegment, encode_head
from firnline.tiered.objects.catalog_changes import begin_catalog
from firnline.tiered.objects.layout import LOG, HeadName, head_key, segment_stem
from tests.spark.written_tier import fingerprint_of

SEGMENTS = 3
VALUE_BYTES = 100


def write_tier(path: Path, topic: str, number: int, codec: int, segment_bytes: int) -> int:
    """Write one partition in segments of `segment_bytes` of records; return how many records.

    Every value begins with bytes of its own, so that Parquet's dictionaries do not flatter it.
    """
    rnd = Random(number)
    per_batch = 16 * KIB // (VALUE_BYTES + 50)
    headers = (("trace", b"0123456789abcdef"), ("type", b"flight"))
    store, topic_id, rows, offset = DirectoryStore(str(path)), bytes([number]) * 16, [], 0
    tail = b" gate delayed boarding weather crew" * 3
    for segment in range(SEGMENTS):
        base, body = offset, bytearray()
        for _ in range(segment_bytes // (16 * KIB)):
            records = [
                NewRecord(
                    b"%016d" % o, (rnd.randbytes(24) + tail)[:VALUE_BYTES], 10**12 + o, headers
                )
                for o in range(offset, offset + per_batch)
            ]
            body += build_batch(records, base_offset=offset, leader_epoch=0, codec=codec)
            offset += per_batch
        segment_id = bytes([number, segment]) * 8
        stem = segment_stem(topic_id, 0, base_offset=base, segment_id=segment_id)
        store.put(stem + LOG, (body,), size_bytes=len(body))
        row = CatalogSegment(
            segment_id, base, offset - 1, len(body), 10**12 + offset, ((0, base),), stem, (LOG,)
        )
        # As the copier notes it: a scan checks that nothing is missing and nothing was altered.
        rows.append(row._replace(fingerprint=fingerprint_of(row, {LOG: bytes(body)})))
    begin_catalog(store, topic=topic, topic_id=topic_id, partition=0, now_ms=0)
    head = CatalogHead(
        topic, topic_id, 0, 0, 0, 1, 0, 0, 0, 0, offset, ((0, 0),), (), (), tuple(rows)
    )
    data = encode_head(head)
    store.put(head_key(topic_id, 0, HeadName(0, 0)), (data,), size_bytes=len(data))
    print(f"{topic}: {offset:,} records", flush=True)
    return offset


def seconds(frame: Callable[[], DataFrame], repeats: int) -> float:
    """Return the best wall time of a scan into nothing; the first run warms everything up."""
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        frame().write.format("noop").mode("overwrite").save()
        best = min(best, time.perf_counter() - begun)
    return best


def compare(
    spark: SparkSession,
    path: Path,
    codec: int,
    target: float,
    *,
    segment_bytes: int = 64 * MIB,
    repeats: int = 4,
) -> list[str]:
    """Print the ratios of one tier; return the targets that were missed."""
    topic = f"bench-{NAMES[codec]}"
    write_tier(path / "tier", topic, codec + 1, codec, segment_bytes)

    def scan(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("firnline").options(
            **{"tier.uri": str(path / "tier"), "subscribe": topic} | options
        )
        return (reader if schema is None else reader.schema(schema)).load()

    parquet = str(path / topic)
    scan(includeHeaders="true").write.option("compression", "zstd").parquet(parquet)
    columns = scan().columns
    bound = seconds(lambda: spark.read.parquet(parquet).select(*columns), repeats)
    headed = seconds(lambda: spark.read.parquet(parquet), repeats)
    full = seconds(scan, repeats)
    with_headers = seconds(lambda: scan(includeHeaders="true"), repeats)
    two_columns = seconds(lambda: scan("offset long, timestamp timestamp"), repeats)
    rows = [("T4 full scan", bound / full, target), ("T5 with headers", headed / with_headers, 0.3)]
    if codec == NONE:  # what is compressed has to be opened for any column
        rows.append(("T13 two columns, to full scan", full / two_columns, 2.0))
    print(f"{NAMES[codec]}: parquet {bound:.2f} s, tier {full:.2f} s")
    for name, ratio, wanted in rows:
        print(f"  {name:<32} {ratio:>5.2f}x  target {wanted}x")
    return [f"{name} {NAMES[codec]}" for name, ratio, wanted in rows if ratio < wanted]


def main() -> None:
    """Print the ratios, and the targets that were missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=64, help="of each segment")
    parser.add_argument("--repeats", type=int, default=4)
    asked = parser.parse_args()
    size: dict[str, int] = {"segment_bytes": asked.megabytes * MIB, "repeats": asked.repeats}
    spark = session("bench", cores=1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            missed = compare(spark, Path(folder), NONE, 0.5, **size)
            missed += compare(spark, Path(folder), ZSTD, 0.3, **size)
    finally:
        spark.stop()
    print("missed: " + ", ".join(missed) if missed else "every target met")


if __name__ == "__main__":
    main()
