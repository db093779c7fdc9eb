"""Beside Apache Kafka 4.3.1 on the same machine: librdkafka produce and consume, driven from C.

Both sides are warmed with the same bytes first (a JVM needs some 2 GB), then rounds alternate. Rows:
produce and consume of 1 KiB records with `firnline.acks.fsync=never` beside Kafka's default, which
answers from the page cache; and produce with the durable default beside Kafka with
`log.flush.interval.messages=1`. Bars: MB/s at 0.8x or more (fails below 0.5x), CPU-seconds per GB at most
1.0x on produce and 1.2x on consume (fails above 1.6x); durable: ahead.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.measure import broker, c_program, cpu_s, report
from tests.peers import kafka

SIZE_BYTES = 1024
PARTITIONS = 4
Result = dict[str, float]


class Side:
    """One broker, or several, under load: where they answer and whose CPU counts."""

    def __init__(self, name: str, bootstrap: str, *pids: int, replicas: int = 1) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.pids = pids
        self.replicas = replicas

    def cpu_s(self) -> float:
        """CPU seconds of all of its processes."""
        return sum(cpu_s(pid) for pid in self.pids)

    def load(self, mode: str, *args: object) -> Result:
        """Run the C driver once; return its figures and the broker's CPU seconds per GB."""
        before = self.cpu_s()
        command = [c_program("load", "rdkafka"), mode, self.bootstrap, *args]
        done = subprocess.run([str(a) for a in command], capture_output=True, text=True, check=True)
        result: Result = json.loads(done.stdout)
        gigabytes = result["messages"] * SIZE_BYTES / 1e9
        result["cpu_s_per_gb"] = (self.cpu_s() - before) / gigabytes
        return result

    def create(self, topic: str) -> None:
        """Make the topic through Kafka's admin protocol."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = NewTopic(topic, PARTITIONS, replication_factor=self.replicas)
        admin.create_topics([new])[topic].result(30)

    def delete(self, topic: str) -> None:
        """Give the disk back between rounds."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic])[topic].result(30)


def compare(
    ours: Side, theirs: Side, rounds: int, run: Callable[[Side, int], Result]
) -> dict[str, Any]:
    """Alternate rounds; return medians and ratios."""
    results: dict[str, list[Result]] = {ours.name: [], theirs.name: []}
    for number in range(rounds):
        for side in (ours, theirs) if number % 2 else (theirs, ours):
            results[side.name].append(run(side, number))
    median = {
        name: {key: statistics.median(r[key] for r in rows) for key in ("MB_s", "cpu_s_per_gb")}
        for name, rows in results.items()
    }
    a, b = median[ours.name], median[theirs.name]
    return {
        "MB/s ours": round(a["MB_s"]),
        "MB/s Kafka": round(b["MB_s"]),
        "MB/s ratio": round(a["MB_s"] / b["MB_s"], 2),
        "CPU-s/GB ours": round(a["cpu_s_per_gb"], 2),
        "CPU-s/GB Kafka": round(b["cpu_s_per_gb"], 2),
        "CPU ratio": round(a["cpu_s_per_gb"] / b["cpu_s_per_gb"], 2),
    }


def produce_and_consume(
    ours: Side, theirs: Side, rounds: int, messages: int
) -> list[dict[str, Any]]:
    """Warm both sides, then the two page-cache rows."""
    for side in (ours, theirs):
        side.create("warm")
        for _ in range(2):
            side.load("produce", "warm", messages, SIZE_BYTES)
        side.load("consume", "warm", PARTITIONS, 2 * messages)
        side.delete("warm")

    def produce(side: Side, number: int) -> Result:
        side.create(f"produce-{number}")
        result = side.load("produce", f"produce-{number}", messages, SIZE_BYTES)
        side.delete(f"produce-{number}")
        return result

    def consume(side: Side, number: int) -> Result:
        if number == 0:
            side.create("consume")
            side.load("produce", "consume", messages, SIZE_BYTES)
        return side.load("consume", "consume", PARTITIONS, messages)

    return [
        {"question": "produce 1 KiB", **compare(ours, theirs, rounds, produce)},
        {"question": "consume 1 KiB", **compare(ours, theirs, rounds, consume)},
    ]


def durable(ours: Side, theirs: Side, rounds: int, messages: int) -> dict[str, Any]:
    """The row of answers that wait for the disk."""

    def produce(side: Side, number: int) -> Result:
        side.create(f"durable-{number}")
        result = side.load("produce", f"durable-{number}", messages, SIZE_BYTES)
        side.delete(f"durable-{number}")
        return result

    row = compare(ours, theirs, rounds, produce)
    return {"question": "produce 1 KiB, fsync before each answer", **row}


def start(stack: ExitStack, options: list[str], settings: dict[str, object]) -> tuple[Side, Side]:
    """Start one broker of each kind."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    cluster = stack.enter_context(
        kafka.start(directory, settings=settings, heap="1g", is_short=False)
    )
    node, port = stack.enter_context(broker(*options))
    return Side("ours", f"127.0.0.1:{port}", node.pid), Side(
        "kafka", cluster.bootstrap, cluster.pids[0]
    )


def main() -> None:
    """Print the three rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=1_000_000)
    options = parser.parse_args()
    with ExitStack() as stack:
        sides = start(stack, ["-X", "firnline.acks.fsync=never"], {})
        rows = produce_and_consume(*sides, options.rounds, options.messages)
    with ExitStack() as stack:
        sides = start(stack, [], {"log.flush.interval.messages": 1})
        rows.append(durable(*sides, options.rounds, options.messages // 5))
    report("Beside Apache Kafka 4.3.1", rows)


if __name__ == "__main__":
    main()
