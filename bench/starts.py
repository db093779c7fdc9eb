"""How long a node with many partitions takes to be of use, and how long it keeps others waiting meanwhile.

    python -m bench.starts                        1,000 and 5,000 partitions: some minutes
    python -m bench.starts --partitions 2000

`firnline dev` is filled with records in each partition, then stopped, or killed, and started on what that
left. Time runs from the start of the process. Meanwhile three connections ask, each again when it was
answered: for Metadata, for one record to be taken by a partition in the middle, and for ApiVersions, whose
longest answer after the first is the longest stall. A thread of this process asks, so on a machine with few
processors what it waits for itself is in there, too. The baseline is the least that the work can be: the same
directories listed, and the files that tell what is in them opened and read, by one loop of Python without a
node. Nothing here fails by a figure.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.measure import cpu_s, free_port, report
from bench.slow_steps import scrape
from firnline.client.connection import Connection, Unreachable
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.protocol.schema import Message
from firnline.records.build import NewRecord, build_batch

PER_TOPIC = 250
TIMEOUT_S = 300.0
_NAP_S = 0.002
Row = dict[str, Any]


def topics_of(partitions: int) -> list[tuple[str, int]]:
    """Names and sizes of the topics."""
    sizes = [min(PER_TOPIC, partitions - first) for first in range(0, partitions, PER_TOPIC)]
    return [(f"starts-{number}", size) for number, size in enumerate(sizes)]


@contextmanager
def node(directory: str, *, metrics_port: int = 0) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Run a node; killed at the end of the block if it has not ended by then."""
    port = free_port()
    command = [sys.executable, "-m", "firnline", "dev", "--port", str(port), "--dir", directory]
    if metrics_port:
        command += ["-X", f"firnline.metrics.port={metrics_port}"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    ) as child:
        try:
            yield child, port
        finally:
            child.kill()


def ask_until(port: int, request: Message, version: int | None = None) -> Any:
    """Ask a node that may not listen yet."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        with Connection("127.0.0.1", port, timeout_s=TIMEOUT_S) as client:
            try:
                return client.ask(request, version=version)
            except (Unreachable, OSError):
                if time.monotonic() > deadline:
                    raise
        time.sleep(_NAP_S)


def produce(topics: list[tuple[str, int]], value_bytes: int) -> ProduceRequest:
    """One record for each partition, acks=all."""
    batch = bytes(build_batch([NewRecord(None, bytes(value_bytes), time.time_ns() // 1_000_000)]))
    data = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=i, records=batch) for i in range(size)],
        )
        for name, size in topics
    ]
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=data)


def fill(directory: str, partitions: int, end: signal.Signals) -> None:
    """Make the topics, put ten records of 1 KiB into each partition, and end the node that way."""
    with node(directory) as (child, port):
        ask_until(port, MetadataRequest(topics=[]))
        with Connection("127.0.0.1", port, timeout_s=TIMEOUT_S) as client:
            for name, size in topics_of(partitions):
                topic = CreatableTopic(name=name, num_partitions=size, replication_factor=1)
                client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
            for _ in range(10):
                for some in topics_of(partitions):
                    answer = client.ask(produce([some], 1024), version=9)
                    codes = {p.error_code for t in answer.responses for p in t.partition_responses}
                    assert codes == {0}, codes
        if end is signal.SIGKILL:
            time.sleep(1)
        child.send_signal(end)
        child.wait(TIMEOUT_S)


class Start(NamedTuple):
    """Seconds since the start of the process, and milliseconds of one answer."""

    to_metadata_s: float
    to_produce_s: float
    to_all_led_s: float
    cpu_s: float
    stall_ms: float
    steps: str


def started(directory: str, partitions: int) -> Start:
    """Start a node on what is there, and time it until all its partitions are led."""
    began = time.monotonic()
    metrics_port = free_port()
    with node(directory, metrics_port=metrics_port) as (child, port):
        seen: dict[str, float] = {}
        is_over = threading.Event()

        def to_first(what: str, request: Message, version: int | None) -> None:
            while not is_over.is_set():
                answer = ask_until(port, request, version)
                if what == "metadata" and answer.brokers:
                    break
                if what == "produce" and not answer.responses[0].partition_responses[0].error_code:
                    break
                time.sleep(_NAP_S)
            seen[what] = time.monotonic() - began

        def stalls() -> None:
            ask_until(port, ApiVersionsRequest())
            with Connection("127.0.0.1", port, timeout_s=TIMEOUT_S) as client:
                client.ask(MetadataRequest(topics=[]))
                longest = 0.0
                while not is_over.is_set():
                    asked = time.perf_counter()
                    client.ask(ApiVersionsRequest(), version=0)
                    longest = max(longest, time.perf_counter() - asked)
                    time.sleep(_NAP_S)
            seen["stall"] = longest * 1000

        middle = topics_of(partitions)[len(topics_of(partitions)) // 2][0]
        works = [
            threading.Thread(target=to_first, args=("metadata", MetadataRequest(topics=[]), None)),
            threading.Thread(target=to_first, args=("produce", produce([(middle, 1)], 100), 9)),
            threading.Thread(target=stalls),
        ]
        for work in works:
            work.start()
        wait_until_led(port, partitions)
        took_s = time.monotonic() - began
        cost_s = cpu_s(child.pid)
        time.sleep(3)  # what is done after it is to disturb nobody, either
        is_over.set()
        for work in works:
            work.join()
        slow = sorted(scrape(metrics_port).items(), key=lambda item: -item[1].longest_s)[:3]
        steps = ", ".join(f"{name} {count.longest_s * 1000:.0f}" for name, count in slow)
        child.send_signal(signal.SIGTERM)
        child.wait(TIMEOUT_S)
    return Start(seen["metadata"], seen["produce"], took_s, cost_s, seen["stall"], steps)


def wait_until_led(port: int, partitions: int) -> None:
    """Ask for the ends of all partitions, of one topic after the other, until each has one."""
    ask_until(port, MetadataRequest(topics=[]))
    with Connection("127.0.0.1", port, timeout_s=TIMEOUT_S) as client:
        for name, size in topics_of(partitions):
            asked = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(size)]
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)]
            )
            while True:
                answer = client.ask(request)
                if not any(p.error_code for t in answer.topics for p in t.partitions):
                    break
                time.sleep(0.02)


def baseline(directory: str) -> float:
    """Seconds that it takes to list each partition's directory and to read what is small in it."""
    began = time.perf_counter()
    with os.scandir(directory) as entries:
        folders = [entry.path for entry in entries if entry.is_dir()]
    for folder in folders:
        for name in os.listdir(folder):
            fd = os.open(f"{folder}/{name}", os.O_RDONLY)
            if name.endswith((".log", ".snapshot", ".metadata", "checkpoint")):
                os.pread(fd, 4096, 0)
            os.close(fd)
    return time.perf_counter() - began


def one(partitions: int, rounds: int) -> list[Row]:
    """Rows for one number of partitions."""
    rows: list[Row] = []
    for end in (signal.SIGTERM, signal.SIGKILL):
        directory = tempfile.mkdtemp(prefix="firnline-starts-")
        try:
            fill(directory, partitions, end)
            copy = f"{directory}-copy"
            for _ in range(rounds):
                shutil.copytree(directory, copy)
                os.sync()  # or the node waits for what the copy left to write
                places = [p.parent for p in Path(copy).rglob("meta.properties")]
                least_s = baseline(str(places[0]))
                found = started(copy, partitions)
                rows.append(
                    {
                        "partitions": partitions,
                        "after": "a stop" if end is signal.SIGTERM else "a kill",
                        "to Metadata s": round(found.to_metadata_s, 2),
                        "to Produce s": round(found.to_produce_s, 2),
                        "all led s": round(found.to_all_led_s, 2),
                        "CPU s": round(found.cpu_s, 2),
                        "baseline s": round(least_s, 2),
                        "ratio": round(found.to_all_led_s / least_s, 1),
                        "longest stall ms": round(found.stall_ms, 1),
                        "longest steps ms": found.steps,
                    }
                )
                shutil.rmtree(copy)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            shutil.rmtree(f"{directory}-copy", ignore_errors=True)
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    rows = [row for count in options.partitions for row in one(count, options.rounds)]
    report("from the start of a process to the last of its partitions", rows)


if __name__ == "__main__":
    main()
