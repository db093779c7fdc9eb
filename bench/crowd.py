"""Consumers that each fetch a thousand partitions at once, all the time: who waits behind them?

    python -m bench.crowd
    python -m bench.crowd --consumers 0,50,200 --seconds 30

Three combined nodes; one of them leads all partitions of a topic, the other two follow. Producers write to a
hundred partitions in each request, with acks=all, so that the followers' Fetches have news of many of them,
and wait for both followers; bench/replay.c is the crowd. Beside the time to the acknowledgement: how often an
ISR shrank, and how many Fetches the crowd was answered.
"""

import argparse
import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.measure import BUILD, c_program, free_port, report
from bench.requests import frame
from firnline.client.admin import Admin
from firnline.client.connection import Connection
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from firnline.records.build import NewRecord, build_batch
from firnline.testing.cluster import Cluster

TOPIC = "crowded"
LEADER = 1
_SPREAD = 100
_SHRINKS = "kafka_server_replicamanager_isrshrinks_total"
Row = dict[str, Any]


def prepare(cluster: Cluster, partitions: int) -> None:
    """One topic, led by one node, a record in each partition."""
    rows = [
        CreatableReplicaAssignment(partition_index=n, broker_ids=[1, 2, 3])
        for n in range(partitions)
    ]
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=rows)
    with Admin(cluster.bootstrap) as admin:
        admin.controller().ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
    cluster.await_in_sync(TOPIC)
    with Connection("127.0.0.1", cluster.port(LEADER), timeout_s=120) as leader:
        for n in range(partitions):
            leader.ask(produce([n]), version=9)


def produce(partitions: Sequence[int]) -> ProduceRequest:
    batch = bytes(build_batch([NewRecord(None, bytes(100), time.time_ns() // 1_000_000)]))
    data = [PartitionProduceData(index=each, records=batch) for each in partitions]
    topic = TopicProduceData(name=TOPIC, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])


def produce_until(port: int, partitions: Sequence[int], deadline: float, took: list[float]) -> None:
    """Ask, and ask again when all of it is acknowledged."""
    with Connection("127.0.0.1", port, timeout_s=120) as leader:
        while time.monotonic() < deadline:
            began = time.perf_counter()
            answer = leader.ask(produce(partitions), version=9)
            took.append(time.perf_counter() - began)
            codes = {part.error_code for part in answer.responses[0].partition_responses}
            if codes != {0}:
                raise RuntimeError(f"records were refused: {codes}")


def fetch(partitions: int) -> bytes:
    """The frame of a Fetch of all partitions, from their start."""
    wanted = [
        FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=200)
        for n in range(partitions)
    ]
    topic = FetchTopic(topic=TOPIC, partitions=wanted)
    return frame(FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[topic]), 12)


def shrinks(port: int, nodes: int) -> float:
    total = 0.0
    for number in range(nodes):
        url = f"http://127.0.0.1:{port + number}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(_SHRINKS + " "):
                    total += float(line.split()[1])
    return total


def measured(
    cluster: Cluster, metrics_port: int, consumers: int, partitions: int, seconds: float
) -> Row:
    """Produce for some seconds beside so many consumers."""
    BUILD.mkdir(parents=True, exist_ok=True)
    request = BUILD / "crowd.frame"
    request.write_bytes(fetch(partitions))
    before = shrinks(metrics_port, 3)
    words = [c_program("replay"), "127.0.0.1", cluster.port(LEADER), request, consumers, 1]
    crowd = None
    if consumers:
        command = [str(word) for word in (*words, seconds + 2)]
        crowd = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        time.sleep(2)
    took: list[float] = []
    deadline = time.monotonic() + seconds
    groups = [range(n, n + _SPREAD) for n in range(0, partitions - _SPREAD + 1, _SPREAD)]
    with ThreadPoolExecutor(len(groups)) as pool:
        producers = [
            pool.submit(produce_until, cluster.port(LEADER), each, deadline, took)
            for each in groups
        ]
    for done in producers:
        done.result()  # a producer that failed ends the measurement
    answers = 0
    if crowd is not None:
        text, _ = crowd.communicate(timeout=300)
        answers = json.loads(text)["answers"]
    took.sort()
    return {
        "consumers": consumers,
        "acks=all asked": len(took),
        "p50 ms": _ms(took, 0.5),
        "p99 ms": _ms(took, 0.99),
        "max ms": _ms(took, 1.0),
        "ISR shrinks": round(shrinks(metrics_port, 3) - before),
        "Fetches a second": round(answers / (seconds + 2), 1),
    }


def _ms(times: list[float], share: float) -> float:
    return round(times[min(int(len(times) * share), len(times) - 1)] * 1000, 1)


def main() -> None:
    """Print a row for each number of consumers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--consumers", default="0,50,0,50", help="one round for each")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    if options.partitions < _SPREAD:
        parser.error(f"--partitions: a producer writes to {_SPREAD} of them, so {_SPREAD} at least")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="firnline-crowd-") as base:
        settings = ("-X", f"firnline.metrics.port={port}")
        cluster = Cluster(Path(base) / "cluster", options=settings)
        cluster.start()
        try:
            prepare(cluster, options.partitions)
            rows = [
                measured(cluster, port, int(count), options.partitions, options.seconds)
                for count in options.consumers.split(",")
            ]
        finally:
            cluster.stop()
    report(f"acks=all beside consumers of {options.partitions} partitions each", rows)


if __name__ == "__main__":
    main()
