"""What does a micro-batch of a stream cost beside its records?

Baseline: Spark's own source of numbers, `rate-micro-batch`, with as many rows and tasks into the same sink:
the difference is what our source adds. Target: 0.4 s for a micro-batch altogether.

    make bench QUESTION=spark_stream
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame

from firnline.spark.session import session
from tests.spark.growing_tier import GrowingTier

ROWS = 10


def durations(frame: DataFrame, place: Path, rounds: int) -> dict[str, float]:
    """Run micro-batches into Parquet; return the median of each duration in ms, without the first ones."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(place / "out"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        seen: dict[int, dict[str, float]] = {}
        while len(seen) < rounds + 5:
            query.awaitTermination(1)
            problem = query.exception()
            if problem is not None:
                raise problem
            for each in map(json.loads, (progress.json for progress in query.recentProgress)):
                if each["numInputRows"]:
                    seen[each["batchId"]] = each["durationMs"]
    finally:
        query.stop()
    later = [seen[number] for number in sorted(seen)[5:]]
    names = (
        "triggerExecution",
        "latestOffset",
        "queryPlanning",
        "walCommit",
        "addBatch",
        "commitOffsets",
    )
    return {name: statistics.median(each.get(name, 0) for each in later) for name in names}


def main() -> None:
    """Print the medians of both sources."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    spark = session("stream", cores=2)
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        tier = GrowingTier(base / "tier")
        for _ in range(rounds + 20):
            tier.grow(ROWS)
        ours = (
            spark.readStream.format("firnline")
            .option("tier.uri", str(tier.path))
            .option("subscribe", "t")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(ROWS))
            .load()
        )
        numbers = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", str(ROWS))
            .option("numPartitions", "1")
            .load()
        )
        for name, frame in (("firnline", ours), ("rate-micro-batch", numbers)):
            print(name, json.dumps(durations(frame, base / name, rounds)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
