"""What acks=all costs on one replica: single messages at a steady rate, and bulk.

Single messages come from librdkafka without linger. Rows: the disk alone (append and fdatasync in C), the
page cache (`firnline.acks.fsync=never`), the default, which syncs before it answers, and Apache Kafka with
its own default, which answers from the page cache. Rounds alternate. Bars, all within this run: p50 at most
one sync, the p50 of the page cache and 0.1 ms; p99 at most 4 times that of the disk alone; CPU a message at
most twice that of the page cache; bulk of 1 KiB records at most 1.1 times its CPU. Before each measurement
everything is synced, so that none pays for the dirty pages of the one before. Two more rows say what the
disk itself takes of these: its p99 for messages that are due at a steady rate, where a slow sync delays those
behind it, and the CPU of the page cache and of one sync together.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.kafka import Result, Side
from bench.measure import broker, c_program, report
from tests.peers import kafka

VALUE_BYTES = 100
# Of a batch of one such record.
APPENDED_BYTES = 170
TOPIC = "single"
PAGE_CACHE, DEFAULT = "ours, page cache", "ours, default"
_SETTINGS = ("acks=all", "linger.ms=0")


def single(side: Side, rate: int, seconds: float) -> Result:
    """Send at that rate; return percentiles in us, and the CPU of a message as `cpu_us`."""
    os.sync()
    before = side.cpu_s()
    result = side.load("pace", TOPIC, rate, seconds, VALUE_BYTES, *_SETTINGS)
    result["cpu_us"] = (side.cpu_s() - before) / result["messages"] * 1e6
    return result


def disk_alone(directory: str, rate: int, seconds: float) -> Result:
    """Append and sync at that rate."""
    command = [c_program("synced"), f"{directory}/synced", rate, seconds, APPENDED_BYTES]
    os.sync()
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    result: Result = json.loads(done.stdout)
    result["cpu_us"] = result["cpu_s"] / result["messages"] * 1e6
    return result


def bulk(side: Side, number: int, messages: int) -> Result:
    """Produce records of 1 KiB as fast as they go."""
    side.create(f"bulk-{number}")
    os.sync()
    result = side.load("produce", f"bulk-{number}", messages, 1024, "acks=all")
    side.delete(f"bulk-{number}")
    return result


def table(rounds: dict[str, list[Result]], *fields: str) -> list[dict[str, Any]]:
    """Return a row for each side: medians over the rounds."""
    return [
        {"side": name, **{field: round(median(found, field), 2) for field in fields}}
        for name, found in rounds.items()
    ]


def median(found: list[Result], field: str) -> float:
    return statistics.median(result[field] for result in found)


def bars(one: dict[str, list[Result]], many: dict[str, list[Result]]) -> list[dict[str, Any]]:
    """Say how far from each bar the default is: figure, bar, and their ratio."""
    disk, cache, ours = one["disk alone"], one[PAGE_CACHE], one[DEFAULT]
    pairs = {
        "p50, us": (
            median(ours, "p50_us"),
            median(disk, "p50_us") + median(cache, "p50_us") + 100,
        ),
        "p99, us": (median(ours, "p99_us"), 4 * median(disk, "p99_us")),
        "p99, us, against 4 times the disk's at that rate": (
            median(ours, "p99_us"),
            4 * median(disk, "due_p99_us"),
        ),
        "CPU of a message, us": (median(ours, "cpu_us"), 2 * median(cache, "cpu_us")),
        "CPU of a message, us, against page cache and one sync": (
            median(ours, "cpu_us"),
            median(cache, "cpu_us") + median(disk, "cpu_us"),
        ),
        "bulk, CPU-s a GB": (
            median(many[DEFAULT], "cpu_s_per_gb"),
            1.1 * median(many[PAGE_CACHE], "cpu_s_per_gb"),
        ),
    }
    return [
        {
            "bar": name,
            "seen": round(seen, 2),
            "at most": round(most, 2),
            "ratio": round(seen / most, 2),
        }
        for name, (seen, most) in pairs.items()
    ]


def main() -> None:
    """Print two tables, and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--no-kafka", action="store_true", help="leave Apache Kafka out")
    options = parser.parse_args()
    one: dict[str, list[Result]] = {"disk alone": []}
    many: dict[str, list[Result]] = {}
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        cached, cached_port = stack.enter_context(broker("-X", "firnline.acks.fsync=never"))
        synced, synced_port = stack.enter_context(broker())
        sides = [
            Side(PAGE_CACHE, f"127.0.0.1:{cached_port}", cached.pid),
            Side(DEFAULT, f"127.0.0.1:{synced_port}", synced.pid),
        ]
        if not options.no_kafka:
            theirs = stack.enter_context(kafka.start(Path(directory), heap="1g", is_short=False))
            sides.append(Side("Kafka, page cache", theirs.bootstrap, theirs.pids[0]))
        for side in sides:
            side.create(TOPIC)
            single(side, options.rate, 2.0)
        for number in range(options.rounds):
            one["disk alone"].append(disk_alone(directory, options.rate, options.seconds))
            for side in sides:
                one.setdefault(side.name, []).append(single(side, options.rate, options.seconds))
            for side in sides[:2]:
                found = bulk(side, number, options.messages)
                many.setdefault(side.name, []).append(found)
    report(
        f"{options.rate} single messages a second, acks=all, medians",
        table(one, "p50_us", "p99_us", "p999_us", "cpu_us"),
    )
    report("Bulk of 1 KiB, acks=all, medians", table(many, "MB_s", "cpu_s_per_gb"))
    report("The default against its bars", bars(one, many))


if __name__ == "__main__":
    main()
