"""KIP-630's own example: 100,000 topics of 10 partitions, 3 replicas, 100 brokers, one real controller.

The brokers are stubs that register and send heartbeats (bench/heartbeats.py), twice a second each, from the
first to the last moment: their answer times stand beside everything the controller does. What is created and
fenced goes over sockets and into the log; loading and memory are taken in processes of their own on the files
that this leaves. Baselines, in the same run: appending the same bytes in the same batches, reading the same
bytes with CRC, a dict of tuples with the same fields.

    python -m bench.scale                       a tenth of it
    python -m bench.scale --topics 100000       all of it: some minutes
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.heartbeats import FIRST_ID
from bench.measure import cpu_s, report
from bench.metadata import OnDisk, pieces, read_and_check
from bench.metadata import cpu_s as least_cpu_s
from firnline.base.ids import OffsetAndEpoch
from firnline.client.connection import Connection
from firnline.metadata import records as r
from firnline.metadata.batch_records import batch_records
from firnline.metadata.loader import Loader, SnapshotLoader
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.records.batch import headers
from tests.peers.nodes import CONTROLLER, FIRNLINE, Cluster, Node

SESSION_MS = 9000
# What a session leaves room for.
BAR_MS = SESSION_MS / 2
# A record of the seed for one partition and for one broker, and what Apache Kafka 4.3.1 writes a partition.
SEED_ISR_CHANGE_BYTES, SEED_FENCE_BYTES, KAFKA_BYTES = 40, 8, 45
HEARTBEAT_INTERVAL_MS = 500
TOPICS_PER_REQUEST = 100
LARGEST_REQUEST_PARTITIONS = 10_000
_QUIET_S = 1.0
QUIET_S = 3.0
SNAPSHOT_AFTER_MS = 10_000
_NEVER = 1 << 40
Row = dict[str, Any]


class Company:
    """The stubs, from outside."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def ask(self, line: str) -> str:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()
        return self._child.stdout.readline()

    def times(self) -> Row:
        found: Row = json.loads(self.ask("times"))
        return found


@contextmanager
def company(node: Node, brokers: int) -> Iterator[Company]:
    """Run the stubs until they may all serve."""
    words = [str(node.port), node.cluster.cluster_id, str(brokers), str(HEARTBEAT_INTERVAL_MS)]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.heartbeats", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            stubs = Company(child)
            while int(stubs.ask("unfenced")) < brokers:
                time.sleep(0.1)
            stubs.times()
            yield stubs
        finally:
            child.kill()


class Watched:
    """A controller's log as files, and its CPU."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def heartbeat_cpu_s(self, stubs: Company) -> float:
        """CPU seconds of one heartbeat while nothing else happens: taken off what anything else takes."""
        stubs.times()
        before = cpu_s(self.node.pid)
        time.sleep(QUIET_S)
        after = cpu_s(self.node.pid)
        return (after - before) / max(stubs.times()["heartbeats"], 1)

    def log_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.node.metadata.glob("*.log"))

    def batches(self, first: int, last: int) -> list[bytes]:
        """The batches that begin at or after byte `first` of the log, and before `last`."""
        found, at = [], 0
        for path in sorted(self.node.metadata.glob("*.log")):
            size = path.stat().st_size
            if at + size > first:
                data = path.read_bytes()
                for header in headers(data):
                    if first <= at + header.position < last:
                        found.append(data[header.position : header.position + header.size_bytes])
            at += size
        return found

    def burst(self) -> tuple[float, float, int, int]:
        """Wait for the log to grow, and to be quiet again: seconds, CPU seconds, bytes before and after.

        What heartbeats take besides is known from the seconds before, and is not counted.
        """
        first, began, cpu_began = self.log_bytes(), time.monotonic(), cpu_s(self.node.pid)
        time.sleep(SESSION_MS / 2000)
        assert self.log_bytes() == first, "nothing has happened yet"
        rate = (cpu_s(self.node.pid) - cpu_began) / (time.monotonic() - began)
        began, cpu_began = time.monotonic(), cpu_s(self.node.pid)
        while (size := self.log_bytes()) == first:
            time.sleep(0.002)
        grew = ended = time.monotonic()
        while time.monotonic() - ended < _QUIET_S:
            time.sleep(0.002)
            if self.log_bytes() != size:
                size, ended = self.log_bytes(), time.monotonic()
        cpu = cpu_s(self.node.pid) - cpu_began - rate * (time.monotonic() - began)
        return ended - grew, cpu, first, size


def append_s(batches: list[bytes]) -> float:
    """CPU seconds to append these batches to a file that is synced at the end; the least of five."""

    def work() -> None:
        with tempfile.TemporaryFile(buffering=0) as file:
            for batch in batches:
                file.write(batch)
            os.fdatasync(file.fileno())

    return least_cpu_s(work, 5)


def create(asking: Connection, first: int, count: int, partitions: int) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=f"topic-{n}", num_partitions=partitions, replication_factor=3)
            for n in range(first, first + count)
        ],
        timeout_ms=600_000,
    )
    answer = asking.ask(request, timeout_s=600)
    failed = [row for row in answer.topics if row.error_code]
    if failed:
        raise SystemExit(f"not created: {failed[0]}")


def created(watched: Watched, stubs: Company, options: argparse.Namespace) -> list[Row]:
    """All topics, some at a time; then single ones; then the largest request there may be."""
    rows = []
    topics, partitions = options.topics, options.partitions
    largest = min(LARGEST_REQUEST_PARTITIONS // partitions * 9 // 10, topics // 4)
    plan = [
        ("create topics, 100 a request", topics - 20 - largest, TOPICS_PER_REQUEST),
        ("create one topic", 20, 1),
        (f"create {largest:,} topics in a request", largest, largest),
    ]
    done = 0
    a_heartbeat_s = watched.heartbeat_cpu_s(stubs)
    with Connection("127.0.0.1", watched.node.port) as asking:
        for name, count, each in plan:
            stubs.times()
            before, cpu_before = watched.log_bytes(), cpu_s(watched.node.pid)
            took_s = []
            for first in range(done, done + count, each):
                began = time.monotonic()
                create(asking, first, min(each, done + count - first), partitions)
                took_s.append(time.monotonic() - began)
            done += count
            times = stubs.times()
            cpu = cpu_s(watched.node.pid) - cpu_before - times["heartbeats"] * a_heartbeat_s
            after = watched.log_bytes()
            base = append_s(watched.batches(before, after))
            rows.append(
                {
                    "event": name,
                    "ms a request (least)": round(min(took_s) * 1000, 1),
                    "CPU us a partition": round(cpu / count / partitions * 1e6, 1),
                    "bytes a partition": round((after - before) / count / partitions, 1),
                    "CPU / append": round(cpu / base, 1),
                    **times,
                }
            )
    return rows


def fenced(watched: Watched, stubs: Company, options: argparse.Namespace) -> list[Row]:
    """One broker after the other falls silent."""
    rows = []
    for node_id in range(FIRST_ID + 3, FIRST_ID + 3 + options.rounds):
        stubs.times()
        stubs.ask(f"silence {node_id}")
        took_s, cpu, before, after = watched.burst()
        batches = watched.batches(before, after)
        partitions = sum(
            isinstance(record, r.PartitionChangeRecord)
            for batch in batches
            for header in headers(batch)
            for some in batch_records(batch, header, at_most=1000)
            for _, record in some
        )
        rows.append(
            {
                "event": "fence a broker",
                "partitions": partitions,
                "batches": len(batches),
                "s, first to last write": round(took_s, 3),
                "CPU ms": round(cpu * 1000),
                "CPU us a partition": round(cpu / partitions * 1e6, 1),
                "bytes a partition": round((after - before) / partitions, 1),
                "4.3.1, at most": KAFKA_BYTES,
                "seed": f"{SEED_ISR_CHANGE_BYTES}, {SEED_FENCE_BYTES} a broker",
                "CPU / append": round(cpu / append_s(batches), 1),
                **stubs.times(),
            }
        )
    return rows


def restarted(node: Node, what: str, **settings: object) -> Row:
    """Start the controller on what it left; until it answers, with CPU and memory."""
    node.kill()
    node.settings.update(settings)
    node.format()
    began = time.monotonic()
    node.launch()
    deadline = began + 600
    while time.monotonic() < deadline:
        try:
            with Connection("127.0.0.1", node.port, timeout_s=300) as asking:
                asking.spoken()
            break
        except Exception:  # noqa: BLE001 - it is not there yet
            time.sleep(0.05)
    return {
        "event": f"start from {what}",
        "s": round(time.monotonic() - began, 2),
        "CPU s": round(cpu_s(node.pid), 2),
        "MB resident": round(resident_bytes(node.pid) / 1e6),
    }


def snapshot_taken(watched: Watched, stubs: Company) -> Row:
    """A running controller writes its image down."""
    time.sleep(SNAPSHOT_AFTER_MS / 2000)  # beats that waited for its start are over
    before = set(watched.node.metadata.glob("*.checkpoint"))
    while not (parts := list(watched.node.metadata.glob("*.checkpoint.part"))):
        time.sleep(0.005)
    began, cpu_before = time.monotonic(), cpu_s(watched.node.pid)
    stubs.times()
    while not (found := set(watched.node.metadata.glob("*.checkpoint")) - before):
        time.sleep(0.005)
        assert parts
    cpu = cpu_s(watched.node.pid) - cpu_before
    return {
        "event": "take a snapshot",
        "s": round(time.monotonic() - began, 2),
        "CPU s": round(cpu, 2),
        "MB": round(found.pop().stat().st_size / 1e6, 1),
        **stubs.times(),
    }


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# ------------------------------------------------------------------- in processes of their own


def alone(work: str, path: Path) -> Row:
    """Run one of the functions below in a fresh process."""
    words = [sys.executable, "-m", "bench.scale", "--alone", work, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: Row = json.loads(done.stdout)
    return found


class Pauses:
    """What CPython's collector of cycles takes of a thread's time."""

    def __init__(self) -> None:
        self.took_ms: list[float] = []
        self._began = 0.0
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._began = now
        else:
            self.took_ms.append((now - self._began) * 1000)


def load_alone(path: str) -> Row:
    """Load a file of the metadata in the production way; CPU, the longest step, memory."""
    gc.disable()  # as the server does while it loads
    pauses, before_bytes = Pauses(), resident_bytes(os.getpid())
    began = at = time.process_time()
    longest = 0.0
    if path.endswith(".checkpoint"):
        snapshot = SnapshotLoader(OffsetAndEpoch(1 << 40, 1), OnDisk(path))
        steps, image = snapshot.steps(), snapshot.image
    else:
        loader = Loader()
        steps = (step for data in pieces(path) for step in loader.steps(data))
        image = loader.image
    for _ in steps:
        now = time.process_time()
        longest, at = max(longest, now - at), now
    count = image().partition_count()
    took = time.process_time() - began
    return {
        "CPU s": took,
        "us a partition": took / count * 1e6,
        "longest step ms": longest * 1000,
        "GC: times": len(pauses.took_ms),
        "GC: total ms": sum(pauses.took_ms),
        "GC: longest ms": max(pauses.took_ms, default=0.0),
        "bytes a partition": (resident_bytes(os.getpid()) - before_bytes) / count,
    }


def crc_alone(path: str) -> Row:
    """Read the file and check every CRC."""
    return {"CPU s": least_cpu_s(lambda: read_and_check(path), 5)}


def tuples_alone(path: str) -> Row:
    """A dict of tuples with the same fields."""
    rows = list[r.PartitionRecord]()
    before_bytes = resident_bytes(os.getpid())
    plain = dict[tuple[bytes, int], tuple[object, ...]]()
    for data in pieces(path):
        for header in headers(data):
            if header.is_control:
                continue
            for some in batch_records(data, header, at_most=500):
                rows = [row for _, row in some if isinstance(row, r.PartitionRecord)]
                for row in rows:
                    plain[row.topic_id, row.partition_id] = (
                        *(tuple(row.replicas), tuple(row.directories), tuple(row.isr)),
                        *(row.leader, row.leader_epoch, row.partition_epoch),
                        *(tuple(row.removing_replicas), tuple(row.adding_replicas)),
                        *(row.leader_recovery_state, (), ()),
                    )
    return {"bytes a partition": (resident_bytes(os.getpid()) - before_bytes) / len(plain)}


ALONE = {"load": load_alone, "crc": crc_alone, "tuples": tuples_alone}


def loaded(directory: Path) -> list[Row]:
    """What is on the disk, as the loader and the baselines take it."""
    snapshot = max(directory.glob("*.checkpoint"))
    complete = directory / "all.joined"
    with complete.open("wb") as file:
        for path in sorted(directory.glob("*.log")):
            file.write(path.read_bytes())
    tuples = alone("tuples", snapshot)["bytes a partition"]
    rows = []
    for name, path in (("the snapshot", snapshot), ("the log", complete)):
        base, ours = alone("crc", path)["CPU s"], alone("load", path)
        rows.append(
            {
                "event": f"load {name}",
                "MB": round(path.stat().st_size / 1e6, 1),
                **{key: round(value, 2) for key, value in ours.items()},
                "/ read + CRC": round(ours["CPU s"] / base, 1),
                "/ dict of tuples": round(ours["bytes a partition"] / tuples, 2),
            }
        )
    return rows


def main() -> None:
    """Print four tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3, help="brokers that are fenced")
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        work, path = options.alone
        print(json.dumps(ALONE[work](path)))
        return
    settings: dict[str, object] = {
        "broker.session.timeout.ms": SESSION_MS,
        "metadata.max.idle.interval.ms": 0,
        "metadata.log.max.record.bytes.between.snapshots": _NEVER,
        "metadata.log.max.snapshot.interval.ms": 0,
        "metadata.max.retention.bytes": -1,
        "metadata.max.retention.ms": -1,
        "auto.leader.rebalance.enable": "false",
    }
    with tempfile.TemporaryDirectory(prefix="firnline-scale-") as directory:
        base = Path(directory)
        with Cluster(base, [(FIRNLINE, CONTROLLER)], settings) as cluster:
            node = cluster[1]
            watched = Watched(node)
            with company(node, options.brokers) as stubs:
                rows = created(watched, stubs, options)
                what = f"{options.topics:,} topics of {options.partitions} partitions"
                report(f"Creation: {what} on {options.brokers} brokers", rows)
                rows = fenced(watched, stubs, options)
                report(f"Fencing; bar: p99 below {BAR_MS:.0f} ms", rows)
                soon = {
                    "metadata.log.max.snapshot.interval.ms": SNAPSHOT_AFTER_MS,
                    "metadata.max.idle.interval.ms": 500,
                }
                rows = [restarted(node, "the log", **soon), snapshot_taken(watched, stubs)]
                soon = {
                    "metadata.log.max.snapshot.interval.ms": 0,
                    "metadata.max.idle.interval.ms": 0,
                }
                rows.append(restarted(node, "a snapshot", **soon))
                report("The process", rows)
            node.kill()
            report("Loading, in a process of its own", loaded(node.metadata))


if __name__ == "__main__":
    main()
