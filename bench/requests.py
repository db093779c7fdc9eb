"""perf-P1: what a small request costs, against a server that only echoes.

Four requests (ApiVersions, Produce of one 100 B record with acks=1 and with acks=all, Fetch of 4 KiB), 1 and
50 connections, rounds of the broker and of the floor in turn. The figure is CPU of the server per
request; the bar is the ratio: 2.0x at 1 connection and 2.5x at 50, failure above 3.0x and 3.5x.
"""

import argparse
import json
import struct
import subprocess
from pathlib import Path

from bench.measure import BUILD, broker, c_program, cpu_s, echo, median_and_min, report
from firnline.client.connection import Connection
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.protocol.schema import Message
from firnline.records.build import NewRecord, build_batch

TOPIC = "bench"
BARS = {1: (2.0, 3.0), 50: (2.5, 3.5)}


def frame(request: Message, version: int) -> bytes:
    """Return a whole request frame, client id `bench`."""
    header = struct.pack(">hhih", request.key, version, 1, 5) + b"bench"
    if version in request.flexible:
        header += b"\0"
    body = header + request.write(version)
    return struct.pack(">i", len(body)) + body


def api_versions_frame() -> bytes:
    """An ApiVersions v3 request, as a client sends it first."""
    name = {"client_software_name": "bench", "client_software_version": "1"}
    return frame(ApiVersionsRequest(**name), 3)


def produce_frame(value_bytes: int, partition: int = 0, topic: str = TOPIC, acks: int = 1) -> bytes:
    """A Produce v9 request of one record."""
    batch = bytes(build_batch([NewRecord(None, bytes(value_bytes), 1_700_000_000_000)]))
    data = PartitionProduceData(index=partition, records=batch)
    of_topic = TopicProduceData(name=topic, partition_data=[data])
    return frame(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[of_topic]), 9)


def fetch_frame(size_bytes: int, topic: str = TOPIC) -> bytes:
    """A Fetch v12 request of one partition from offset 0, without a session."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size_bytes)
    wanted = FetchTopic(topic=topic, partitions=[partition])
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=size_bytes, session_epoch=-1, topics=[wanted]
    )
    return frame(request, 12)


def prepare(port: int) -> None:
    """Create the topic and fill it with 4 KiB and more."""
    with Connection("127.0.0.1", port) as client:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        batch = bytes(build_batch([NewRecord(None, bytes(3900), 1_700_000_000_000)]))
        data = PartitionProduceData(index=0, records=batch)
        topic_data = TopicProduceData(name=TOPIC, partition_data=[data])
        client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic_data]), version=9)


def replay(
    pid: int, port: int, request: Path, connections: int, seconds: float, answer_bytes: int = 0
) -> tuple[float, float]:
    """Return (CPU microseconds of the server per request, requests per second).

    SystemExit when the answers are not as large as the floor's, give or take: then they are refusals.
    """
    before = cpu_s(pid)
    command = [c_program("replay"), "127.0.0.1", port, request, connections, 1, seconds]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout)
    if result["bytes"] < 0.5 * answer_bytes * result["answers"]:
        raise SystemExit(f"the answers are too small: {result}")
    return (cpu_s(pid) - before) / result["answers"] * 1e6, result["per_s"]


def main() -> None:
    """Run the rounds and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    frames = {
        "ApiVersions": (api_versions_frame(), 244),
        "Produce 100 B": (produce_frame(100), 60),
        "Produce 100 B, acks=all": (produce_frame(100, acks=-1), 60),
        "Fetch 4 KiB": (fetch_frame(4096), 4096),
    }
    rows = []
    # The records bear a time of long ago: no retention may take them from under the fetches.
    settings = ("-X", "firnline.acks.fsync=never", "-X", "log.retention.ms=-1")
    with broker(*settings) as (node, port):
        prepare(port)
        for name, (content, answer_bytes) in frames.items():
            request = BUILD / f"{name.replace(' ', '-')}.frame"
            request.write_bytes(content)
            with echo(answer_bytes) as (floor, floor_port):
                for connections, (aim, fails) in BARS.items():
                    ours, floors, rates = [], [], []
                    for _ in range(options.rounds):
                        args = (request, connections, options.seconds, answer_bytes)
                        floors.append(replay(floor.pid, floor_port, *args)[0])
                        cost, rate = replay(node.pid, port, *args)
                        ours.append(cost)
                        rates.append(rate)
                    median, least = median_and_min(ours)
                    floor_median, floor_least = median_and_min(floors)
                    rows.append(
                        {
                            "request": name,
                            "connections": connections,
                            "us (median, min)": f"{median:.1f}, {least:.1f}",
                            "floor us": f"{floor_median:.1f}, {floor_least:.1f}",
                            "ratio of medians": round(median / floor_median, 2),
                            "ratio of minima": round(least / floor_least, 2),
                            "aim": aim,
                            "fails above": fails,
                            "requests/s": round(max(rates)),
                        }
                    )
    report("perf-P1: CPU of a small request, against a Python echo server", rows)


if __name__ == "__main__":
    main()
