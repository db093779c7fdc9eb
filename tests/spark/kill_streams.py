"""Kills a stream at random moments, restarts it, and counts what its sink lacks and has twice.

    python -m tests.spark.kill_streams --kills 20 [--seed 7] [--brokers] [--directory DIR]

The stream reads a tier that grows, into Spark's own Parquet sink. With `--brokers` it reads a topic whose
past moves to the tier meanwhile, and whose newest records are on a broker only. A kill ends Python and Java
together, as a machine does that goes down. With `--directory` a run that was stopped goes on with the kills
that are left.
"""

import argparse
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Protocol

from firnline.spark.session import session
from tests.spark.growing_tier import GrowingTier
from tests.spark.growing_topic import GrowingTopic, ends_of

PARTITIONS = 3
SEGMENT = 40  # offsets
STARTED = "started"
# A kill while Spark writes the first offsets leaves a temporary file. Spark then takes the checkpoint for
# another query's, whatever the source is, and refuses it.
_EMPTY = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
# A start takes about so long, and so does a micro-batch.
START_S = 12.0
BATCH_S = 0.8
BATCHES_MAX = 5
GROWS_EACH_S = 0.2
START_S_MAX = 120.0


class Growing(Protocol):
    """`GrowingTier` or `GrowingTopic`."""

    def grow(self, count: int, partition: int) -> None: ...


def stream(directory: Path, *, ends: bool, brokers: str | None) -> None:
    """Run the stream; tell when it has started. With `ends` until there is nothing new."""
    spark = session("killed", cores=2, confs={_EMPTY: "false"}, is_brief=True)
    limit = PARTITIONS * SEGMENT * (100 if ends else 1)
    frame = (
        spark.readStream.format("firnline")
        .option("tier.uri", str(directory / "tier"))
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(limit))
        .option("minPartitions", "4")
        .options(**({} if brokers is None else {"kafka.bootstrap.servers": brokers}))
        .load()
    )
    query = (
        frame.selectExpr("partition", "offset", "cast(value as string) value")
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(**({"availableNow": True} if ends else {"processingTime": "0 seconds"}))
        .start()
    )
    print(STARTED, flush=True)
    query.awaitTermination()
    spark.stop()


def killed_once(
    directory: Path, growing: Growing, chance: random.Random, brokers: str | None
) -> int:
    """Start the stream, let the tier grow, kill the stream; return its committed micro-batches.

    One kill in five comes while the stream starts, the others within a micro-batch after a few others.
    """
    log = (directory / "stream.log").open("ab")
    with log, started(directory, log, brokers) as process:
        try:
            if chance.random() < 0.2:
                grow_until(growing, chance, time.monotonic() + chance.uniform(0, START_S))
            else:
                wait_for_start(process)
                wanted = committed(directory) + chance.randint(0, BATCHES_MAX)
                deadline = time.monotonic() + START_S_MAX
                while committed(directory) < wanted and process.poll() is None:
                    assert time.monotonic() < deadline, "the stream makes no micro-batch"
                    grow_until(growing, chance, time.monotonic() + GROWS_EACH_S)
                grow_until(growing, chance, time.monotonic() + chance.uniform(0, BATCH_S))
            assert process.poll() is None, f"the stream ended by itself: {directory / 'stream.log'}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    return committed(directory)


def grow_until(growing: Growing, chance: random.Random, until_s: float) -> None:
    """Write segments at a steady pace."""
    while time.monotonic() < until_s:
        growing.grow(SEGMENT, chance.randrange(PARTITIONS))
        time.sleep(max(min(GROWS_EACH_S, until_s - time.monotonic()), 0))


def committed(directory: Path) -> int:
    """Return how many micro-batches were committed, by the number of the last one."""
    commits = directory / "checkpoint" / "commits"
    return max((int(p.name) + 1 for p in commits.glob("*") if p.name.isdecimal()), default=0)


def words_of_stream(directory: Path, brokers: str | None) -> list[str]:
    """Return the command that runs the stream."""
    words = [sys.executable, "-m", "tests.spark.kill_streams", "--stream", str(directory)]
    return words + ([] if brokers is None else ["--bootstrap", brokers])


def started(directory: Path, log: IO[bytes], brokers: str | None) -> "subprocess.Popen[bytes]":
    """Start the stream in a process group of its own."""
    return subprocess.Popen(
        words_of_stream(directory, brokers),
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
    )


def wait_for_start(process: "subprocess.Popen[bytes]") -> None:
    """Wait until the stream says that it runs."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], START_S_MAX)[0], "the stream does not start"
    line = process.stdout.readline().decode().strip()
    assert line == STARTED, f"the stream did not start, but said {line!r}"


def counted(directory: Path) -> dict[str, int]:
    """Return how many records the sink lacks, has twice, and has with another value."""
    expected = expected_of(directory)
    spark = session("counted", cores=2, is_brief=True)
    rows = spark.read.parquet(str(directory / "out")).collect()
    seen = [(row["partition"], row["offset"]) for row in rows]
    return {
        "records": len(expected),
        "lost": len(set(expected) - set(seen)),
        "duplicate": len(seen) - len(set(seen)),
        "wrong": sum(not row["value"].startswith(f":{row['offset']}") for row in rows),
    }


def expected_of(directory: Path) -> list[tuple[int, int]]:
    """Return the partition and the offset of each record that was written."""
    if ends := ends_of(directory):
        return [(partition, n) for partition, end in ends.items() for n in range(end)]
    tier = GrowingTier(directory / "tier")
    tier.resume()
    return tier.expected


def killed(directory: Path, kills: int, seed: int, *, has_brokers: bool = False) -> dict[str, int]:
    """Kill so many times, or as many as are left, then let the stream end; return what the sink has."""
    if has_brokers:
        topic = GrowingTopic(directory, PARTITIONS)
        try:
            return _killed(directory, topic, kills, seed, topic.bootstrap)
        finally:
            topic.close()
    tier = GrowingTier(directory / "tier")
    tier.resume()
    return _killed(directory, tier, kills, seed, None)


def _killed(
    directory: Path, growing: Growing, kills: int, seed: int, brokers: str | None
) -> dict[str, int]:
    if not expected_of(directory):
        for partition in range(PARTITIONS):
            growing.grow(SEGMENT, partition)
    state = directory / "kills.json"
    done = json.loads(state.read_text()) if state.exists() else 0
    for number in range(done, kills):
        chance = random.Random(f"{seed} {number}")
        for _ in range(8):
            growing.grow(SEGMENT, chance.randrange(PARTITIONS))
        batches = killed_once(directory, growing, chance, brokers)
        state.write_text(json.dumps(number + 1))
        records = len(expected_of(directory))
        print(f"kill {number + 1}: {batches} micro-batches, {records} records", flush=True)
    said = subprocess.run(
        [*words_of_stream(directory, brokers), "--ends"],
        check=True, timeout=5 * START_S_MAX, stdout=subprocess.PIPE,
    ).stdout  # fmt: skip
    return {"kills": kills} | dict(json.loads(said.splitlines()[-1]))


def main() -> int:
    """Run the soak; exit with 1 if the sink is not exactly what was written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--brokers", action="store_true")
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--stream", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ends", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stream is not None:
        stream(given.stream, ends=given.ends, brokers=given.bootstrap)
        if given.ends:
            print(json.dumps(counted(given.stream)))
        return 0
    directory = given.directory or Path(tempfile.mkdtemp(prefix="firnline-kills-"))
    directory.mkdir(parents=True, exist_ok=True)
    found = killed(directory, given.kills, given.seed, has_brokers=given.brokers)
    print(json.dumps(found))
    return int(any(found[name] for name in ("lost", "duplicate", "wrong")))


if __name__ == "__main__":
    sys.exit(main())
