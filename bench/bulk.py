"""perf-P3: how fast bytes go in and out, against a Python sendall of the same bytes.

Raw produce: frames of one 128 KiB batch, five in flight on one connection, acks=1. Raw fetch: answers of
just under 1 MiB, one in flight, as clients do it, and two. The floor is `sendall` of chunks of the same
size to a process that only receives; the second floor of produce also checks and appends them, which a
log cannot do without, and which is dear where pages of the file cache are new to the machine. Rounds
alternate. Aim 0.7x of the rate of `sendall`, failure below 0.5x; CPU-s per GB aims: 0.45 in and 0.4 out.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.measure import BUILD, ROOT, broker, c_program, cpu_s, free_port, median_and_min, report
from bench.requests import TOPIC, fetch_frame, produce_frame
from firnline.client.connection import Connection
from firnline.protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

BATCH_BYTES = 128 << 10
ANSWER_BYTES = 1 << 20
AIM, FAILS = 0.7, 0.5
SMALL_TOPIC = "bench-fetch"
NO_AGE = {"retention.ms": "-1"}  # the records bear a time of long ago


def sendall_rate(chunk_bytes: int, seconds: float, *directory: str) -> tuple[float, float]:
    """Return (MB/s, CPU-s per GB of the receiver) of `sendall` to bench/sink.py."""
    port = free_port()
    command = [sys.executable, str(ROOT / "bench" / "sink.py"), str(port), *directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        chunk = bytes(chunk_bytes)
        sent, before = 0, cpu_s(child.pid)
        with socket.create_connection(("127.0.0.1", port)) as sock:
            began = time.perf_counter()
            while time.perf_counter() - began < seconds:
                sock.sendall(chunk)
                sent += chunk_bytes
            rate = sent / (time.perf_counter() - began) / 1e6
            cost = (cpu_s(child.pid) - before) / sent * 1e9
        child.wait(20)
    return rate, cost


def replay(pid: int, port: int, frame: Path, depth: int, seconds: float) -> dict[str, float]:
    """Run one connection; return what replay.c says, and the broker's CPU seconds as `cpu_s`."""
    before = cpu_s(pid)
    command = [c_program("replay"), "127.0.0.1", port, frame, 1, depth, seconds]
    done = subprocess.run([str(p) for p in command], capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    result["cpu_s"] = cpu_s(pid) - before
    return result


def row(
    name: str, ours: list[tuple[float, float]], floors: list[tuple[float, float]], cpu_aim: float
) -> dict[str, Any]:
    """One line of the report: rates, their ratio, and CPU."""
    rates, costs = zip(*ours)
    floor_rates = [rate for rate, _ in floors]
    return {
        "bytes": name,
        "MB/s (median, best)": f"{statistics.median(rates):.0f}, {max(rates):.0f}",
        "floor": f"{statistics.median(floor_rates):.0f}, {max(floor_rates):.0f}",
        "ratio of medians": round(statistics.median(rates) / statistics.median(floor_rates), 2),
        "ratio of bests": round(max(rates) / max(floor_rates), 2),
        "aim": AIM,
        "fails below": FAILS,
        "CPU-s/GB (median, min)": "{:.2f}, {:.2f}".format(*median_and_min(costs)),
        "floor's": "{:.2f}, {:.2f}".format(*median_and_min([cost for _, cost in floors])),
        "CPU aim": cpu_aim,
    }


def produce(node: int, port: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Frames of 128 KiB into a log with a short retention."""
    path = BUILD / "bulk-produce.frame"
    path.write_bytes(produce_frame(BATCH_BYTES))
    create(port, {"retention.bytes": str(256 << 20), "segment.bytes": str(64 << 20)} | NO_AGE)
    ours, received, appended = [], [], []
    for _ in range(rounds):
        received.append(sendall_rate(BATCH_BYTES, seconds))
        appended.append(sendall_rate(BATCH_BYTES, seconds, tempfile.gettempdir()))
        done = replay(node, port, path, 5, seconds)
        moved = done["answers"] * path.stat().st_size
        ours.append((moved / done["seconds"] / 1e6, done["cpu_s"] / moved * 1e9))
    return [
        row("produce 128 KiB, against sendall", ours, received, 0.45),
        row("produce 128 KiB, against receive, CRC and append", ours, appended, 0.45),
    ]


def fetch(node: int, port: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Answers of seven batches, 0.9 MiB, from the page cache."""
    path = BUILD / "bulk-fetch.frame"
    path.write_bytes(fetch_frame(ANSWER_BYTES, topic=SMALL_TOPIC))
    create(port, NO_AGE, SMALL_TOPIC)
    batch = BUILD / "bulk-fill.frame"
    batch.write_bytes(produce_frame(BATCH_BYTES, topic=SMALL_TOPIC))
    replay(node, port, batch, 1, 0.2)
    floors = []
    ours: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for _ in range(rounds):
        floors.append(sendall_rate(ANSWER_BYTES, seconds))
        for depth, found in ours.items():
            done = replay(node, port, path, depth, seconds)
            assert done["bytes"] > done["answers"] * ANSWER_BYTES * 0.8, f"small answers: {done}"
            moved = done["bytes"]
            found.append((moved / done["seconds"] / 1e6, done["cpu_s"] / moved * 1e9))
    return [
        row("fetch 1 MiB, against sendall", ours[1], floors, 0.4),
        row("fetch 1 MiB, two in flight", ours[2], floors, 0.4),
    ]


def create(port: int, configs: dict[str, str], name: str = TOPIC) -> None:
    """Make a topic of one partition."""
    with Connection("127.0.0.1", port) as client:
        rows = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=rows)
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))


def main() -> None:
    """Run the rounds and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    settings = ["firnline.acks.fsync=never", "log.retention.check.interval.ms=500"]
    settings.append("log.segment.delete.delay.ms=0")
    with broker(*(part for each in settings for part in ("-X", each))) as (node, port):
        rows = produce(node.pid, port, options.rounds, options.seconds)
        rows += fetch(node.pid, port, options.rounds, options.seconds)
    report("perf-P3: bulk, against a Python sendall over loopback", rows)


if __name__ == "__main__":
    main()
