"""Three brokers, three replicas, acks=all: beside three nodes of Apache Kafka 4.3.1 on the same machine.

librdkafka drives them from C (bench/load.c), 1 KiB records, 4 partitions, min.insync.replicas=2, everything
else as each ships it; all six nodes are up, both sides are warmed with the same bytes, then rounds alternate.
CPU counts leaders and followers together. Rows: produce; the time to an acknowledgement at 200 and at 2,000
messages a second; produce on one broker of ours, for what replication costs; and a follower that was away
and catches up, beside a program that copies the same bytes over loopback into a file. Bars (P12): ahead in
MB/s, p99 no higher.

    python -m bench.cluster                 wants an idle machine, Java and Maven
    python -m bench.cluster --ours          without Apache Kafka
"""

import argparse
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.kafka import PARTITIONS, SIZE_BYTES, Result, Side, compare
from bench.measure import broker, report
from tests.peers.nodes import COMBINED, FIRNLINE, KAFKA, Cluster, KafkaNode
from tests.peers.ports import free_ports

NODES = 3
RATES_PER_SECOND, PACE_S = (200, 2_000), 10
_PIECE_BYTES = 1 << 20
_GIVE_UP_S = 600.0
SETTINGS: dict[str, object] = {
    "min.insync.replicas": 2,
    "default.replication.factor": NODES,
    "auto.leader.rebalance.enable": "false",
}


def started(stack: ExitStack, base: Path, kind: str) -> tuple[Cluster, Side]:
    """Start three nodes of a kind, each broker and controller."""
    cluster = Cluster(base / kind, [(kind, COMBINED)] * NODES, SETTINGS)
    ports = dict(zip(cluster.nodes, free_ports(NODES), strict=True))
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in ports.items())
    for number, node in cluster.nodes.items():
        here = f"PLAINTEXT://127.0.0.1:{node.port}"
        node.settings = {
            "controller.quorum.voters": voters,
            "listeners": f"{here},CONTROLLER://127.0.0.1:{ports[number]}",
            "advertised.listeners": here,
        }
        if isinstance(node, KafkaNode):
            node.heap, node.is_short = "1g", False
    stack.enter_context(cluster)
    pids = [node.pid for node in cluster.nodes.values()]
    return cluster, Side(kind, cluster.bootstrap, *pids, replicas=NODES)


def produce(side: Side, name: str, messages: int) -> Result:
    """One round on a topic of its own."""
    side.create(name)
    result = side.load("produce", name, messages, SIZE_BYTES)
    side.delete(name)
    return result


def paced(sides: Sequence[Side], rounds: int, per_second: int) -> list[dict[str, Any]]:
    """Time to the acknowledgement, at a steady rate."""
    found: dict[str, list[Result]] = {side.name: [] for side in sides}
    for side in sides:
        side.create(f"pace-{per_second}")
    for number in range(rounds):
        for side in sides if number % 2 else sides[::-1]:
            args = (f"pace-{per_second}", per_second, PACE_S, 100, "linger.ms=0")
            found[side.name].append(side.load("pace", *args))
    return [
        {
            f"paced at {per_second:,}/s": name,
            **{
                key: round(statistics.median(row[key] for row in rows))
                for key in ("p50_us", "p99_us", "p999_us")
            },
        }
        for name, rows in found.items()
    ]


def copy_mb_s(path: Path, size_bytes: int) -> float:
    """A file over a loopback socket into another file: what catching up cannot beat."""
    source = path / "source"
    with source.open("wb") as file:
        for _ in range(size_bytes // _PIECE_BYTES):
            file.write(os.urandom(_PIECE_BYTES))
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        taken, _ = listener.accept()
        with taken, source.open("rb") as file:
            taken.sendfile(file)

    sender = threading.Thread(target=serve)
    sender.start()
    began, copied = time.monotonic(), 0
    buffer = memoryview(bytearray(_PIECE_BYTES))
    with (
        socket.create_connection(listener.getsockname()) as taken,
        (path / "copy").open("wb") as to,
    ):
        while size := taken.recv_into(buffer):
            to.write(buffer[:size])
            copied += size
    took_s = time.monotonic() - began
    sender.join()
    listener.close()
    for name in ("source", "copy"):
        (path / name).unlink()
    return copied / took_s / 1e6


def log_bytes(directory: Path, topic: str) -> int:
    return sum(path.stat().st_size for path in directory.glob(f"{topic}-*/*.log"))


def catch_up(cluster: Cluster, side: Side, messages: int, base: Path) -> dict[str, Any]:
    """One node is away while records are written, and comes back."""
    side.create("behind")
    away, other = cluster[NODES], cluster[1]
    away.stop()
    side.pids = tuple(node.pid for node in cluster.nodes.values() if node.is_running)
    side.load("produce", "behind", messages, SIZE_BYTES)
    wanted = log_bytes(other.data, "behind")
    before = log_bytes(away.data, "behind")
    away.start()
    began = ended = 0.0
    cpu_began = cpu_ended = 0.0
    side.pids = tuple(node.pid for node in cluster.nodes.values())
    deadline = time.monotonic() + _GIVE_UP_S
    while not ended and time.monotonic() < deadline:
        have = log_bytes(away.data, "behind")
        if have > before and not began:
            began, cpu_began, before = time.monotonic(), side.cpu_s(), have
        if have >= wanted:
            ended, cpu_ended = time.monotonic(), side.cpu_s()
        time.sleep(0.002)
    if not ended:
        raise SystemExit("the follower did not catch up")
    rate = (wanted - before) / max(ended - began, 1e-3) / 1e6
    floor = max(copy_mb_s(base, (wanted - before) // _PIECE_BYTES * _PIECE_BYTES) for _ in range(3))
    return {
        "catching up": side.name,
        "MB": round((wanted - before) / 1e6),
        "MB/s": round(rate),
        "copy MB/s": round(floor),
        "ratio": round(rate / floor, 2),
        "CPU-s/GB, all nodes": round((cpu_ended - cpu_began) / (wanted - before) * 1e9, 2),
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument(
        "--warm", type=int, default=3_000_000, help="messages before the first round"
    )
    parser.add_argument("--ours", action="store_true", help="without Apache Kafka")
    options = parser.parse_args()
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="firnline-cluster-")))
        kinds = [FIRNLINE] if options.ours else [FIRNLINE, KAFKA]
        both = {kind: started(stack, base, kind) for kind in kinds}
        node, port = stack.enter_context(broker("-X", "firnline.acks.fsync=never"))
        alone = Side("one broker of ours", f"127.0.0.1:{port}", node.pid)
        sides = [side for _, side in both.values()]
        for side in (*sides, alone):
            for number in range(max(1, options.warm // options.messages)):
                produce(side, f"warm-{number}", options.messages)
        rows = []
        ours = sides[0]
        for other in (*sides[1:], alone):
            row = compare(
                ours,
                other,
                options.rounds,
                lambda side, number: produce(side, f"produce-{number}", options.messages),
            )
            names = {key: key.replace("Kafka", "other") for key in row}
            rows.append(
                {"produce, 3 replicas": f"beside {other.name}"}
                | {names[key]: value for key, value in row.items()}
            )
        report(f"Three brokers, acks=all, {PARTITIONS} partitions", rows)
        for rate in RATES_PER_SECOND:
            report("The same, at a steady rate", paced(sides, options.rounds, rate))
        cluster, side = both[FIRNLINE]
        rows = [catch_up(cluster, side, options.messages, base)]
        report("A follower catches up", rows)
        # The last of Kafka's nodes would wait for a majority of voters that is gone already.
        for cluster, _ in both.values():
            cluster.kill()


if __name__ == "__main__":
    main()
