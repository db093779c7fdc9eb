"""perf-P9 and P10: from nothing to the first acknowledged Produce, and what an idle broker weighs.

`firnline dev` is started on an empty directory, and again on the directory it left; time runs from the
start of the process to the answer of a Produce with acks=all, which is on disk then. Beside it the
interpreter alone, which is the floor. Compiled code is cached, as an installation leaves it: the first
run, which compiles, is reported by itself. Aims: 400 ms on an empty directory; 60 MB resident when idle.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

from bench.measure import BUILD, cpu_s, free_port, median_and_min, process, report
from bench.requests import TOPIC
from firnline.client.connection import Connection
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.records.build import NewRecord, build_batch

AIM_MS, AIM_MB = 400, 60


def first_produce(port: int) -> None:
    """Create the topic where it is missing and append one record, acks=all."""
    with Connection("127.0.0.1", port) as client:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        batch = bytes(build_batch([NewRecord(None, b"first", time.time_ns() // 1_000_000)]))
        data = PartitionProduceData(index=0, records=batch)
        of_topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[of_topic])
        answer: Any = client.ask(request, version=9)
        [part] = answer.responses[0].partition_responses
        assert part.error_code == 0, part


def start(directory: str) -> tuple[float, float, float]:
    """Return (wall ms, CPU ms) to the first Produce, and the megabytes resident a second later."""
    port = free_port()
    began = time.perf_counter()
    command = [sys.executable, "-m", "firnline", "dev", "--port", str(port), "--dir", directory]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(BUILD / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with process(command, env=environment, **pipes) as child:
        assert child.stdout is not None
        assert "ready at" in child.stdout.readline()
        first_produce(port)
        took_ms = (time.perf_counter() - began) * 1000
        cost_ms = cpu_s(child.pid) * 1000
        time.sleep(1)
        return took_ms, cost_ms, resident_mb(child.pid)


def resident_mb(pid: int) -> float:
    """Return the resident set of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        [line] = [line for line in status if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def bare() -> float:
    """Return the wall milliseconds of the interpreter alone."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return (time.perf_counter() - began) * 1000


def main() -> None:
    """Run the rounds and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[tuple[float, float, float]]] = {"empty": [], "as it was left": []}
    floors = [bare()]
    shutil.rmtree(BUILD / "compiled", ignore_errors=True)
    directory = tempfile.mkdtemp(dir=BUILD)
    found["empty, code compiled"] = [start(directory)]
    shutil.rmtree(directory)
    for _ in range(options.rounds):
        directory = tempfile.mkdtemp(dir=BUILD)
        floors.append(bare())
        for name in ("empty", "as it was left"):
            found[name].append(start(directory))
        shutil.rmtree(directory)
    rows = []
    for name, runs in found.items():
        walls, costs, sizes = zip(*runs)
        rows.append(
            {
                "directory": name,
                "to first Produce, ms (median, min)": "{:.0f}, {:.0f}".format(
                    *median_and_min(walls)
                ),
                "CPU ms": "{:.0f}, {:.0f}".format(*median_and_min(costs)),
                "aim ms": AIM_MS,
                "interpreter alone": "{:.0f}, {:.0f}".format(*median_and_min(floors)),
                "idle MB": round(max(sizes), 1),
                "aim MB": AIM_MB,
            }
        )
    report("perf-P9, P10: start to the first acknowledged Produce, and idle memory", rows)


if __name__ == "__main__":
    main()
