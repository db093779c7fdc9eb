"""`firnline dev --nodes 3` with real clients: a leader is killed in mid-produce, and no record is missed."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from firnline.testing.cluster import Cluster
from tests.peers.nodes import eventually

MESSAGES = 3_000
PATIENCE_S = 180.0


def json_of(cluster: Cluster, *words: str, code: int = 0) -> Any:
    """Run a command and return what it printed. OSError when it ended with another code."""
    at = ("--bootstrap-server", cluster.bootstrap, "--format", "json")
    line = [sys.executable, "-m", "firnline", *words, *at]
    done = subprocess.run(line, capture_output=True, text=True, timeout=90, check=False)
    assert "Traceback" not in done.stderr
    if done.returncode != code:
        raise OSError(f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


class Reader(threading.Thread):
    """A consumer that reads all the time; `seen` are values by partition and offset.

    A group may be given what it read before once more; it must be the same then.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(daemon=True)
        self.seen: dict[int, dict[int, int]] = {}
        self.problems: list[KafkaError] = []
        self.is_over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self._consumer.subscribe([topic])

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    def run(self) -> None:
        while not self.is_over.is_set():
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            problem = message.error()
            if problem is not None:
                self.problems.append(problem)
                continue
            mine, value = self.seen.setdefault(message.partition(), {}), int(message.value())
            assert mine.setdefault(message.offset(), value) == value, "an offset has two records"
        self._consumer.close()


class Writer:
    """An idempotent acks=all producer; `acked` are the values whose delivery was confirmed."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.acked: dict[int, list[int]] = {}
        self.failed: list[KafkaError] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )

    def send(self, value: int, partition: int) -> None:
        def delivered(problem: KafkaError | None, message: Any) -> None:
            if problem is not None:
                self.failed.append(problem)
            else:
                self.acked.setdefault(partition, []).append(value)

        self._producer.produce(self._topic, str(value), partition=partition, on_delivery=delivered)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0, "not everything was delivered"


def test_a_leader_is_killed_in_mid_produce_while_a_consumer_keeps_reading(
    firnline_cluster: Cluster,
) -> None:
    """Goal: nothing acknowledged is lost, doubled or out of order. Method: kill -9 the leader of partition 0
    with messages under way, go on, have it back, and compare what was acknowledged with what was read."""
    cluster = firnline_cluster
    json_of(cluster, "topic", "create", "orders", "-p", "3")
    reader, writer = Reader(cluster, "orders"), Writer(cluster, "orders")
    reader.start()
    for value in range(MESSAGES // 3):
        writer.send(value, value % 3)
    writer.flush()
    enough = MESSAGES // 6
    eventually("the reader reads", lambda: reader.count >= enough, within_s=PATIENCE_S)

    leader = cluster.leader_of("orders")
    for value in range(MESSAGES // 3, 2 * MESSAGES // 3):
        writer.send(value, value % 3)
    cluster.kill_node(leader)
    for value in range(2 * MESSAGES // 3, MESSAGES):
        writer.send(value, value % 3)
    writer.flush()
    # Who is asked hears of it in its own time, here and below.
    eventually("another leads", lambda: cluster.leader_of("orders") != leader)
    assert writer.failed == []
    eventually("all is read", lambda: reader.count >= MESSAGES, within_s=PATIENCE_S)

    def is_degraded() -> bool:
        reported = json_of(cluster, "cluster", "status", code=3)
        states = {row["broker_id"]: row["state"] for row in reported["brokers"]}
        others = dict.fromkeys(set(cluster.node_ids) - {leader}, "alive")
        return states == {leader: "fenced", **others} and reported["under_replicated"] >= 3

    def is_thin() -> bool:
        thin = json_of(cluster, "topic", "describe", "orders", "--under-replicated", code=3)
        return len(thin) == 3 and all(
            leader not in part["isr"] and part["offline"] == [leader] for part in thin
        )

    eventually("the status says what is wrong", is_degraded, within_s=PATIENCE_S)
    eventually("the topic says so, too", is_thin, within_s=PATIENCE_S)
    killed = re.compile(rf"node {leader} \(pid .* was killed by SIGKILL; log ")
    eventually("the log says so", lambda: killed.search(cluster.log_text()))

    cluster.start_node(leader)
    cluster.await_in_sync()
    ends = {number: ([1, 2, 3], len(values)) for number, values in writer.acked.items()}

    def is_complete() -> bool:
        parts = json_of(cluster, "topic", "describe", "orders")[0]["partitions"]
        return {p["partition"]: (sorted(p["isr"]), p["high_watermark"]) for p in parts} == ends

    eventually("all is committed on all", is_complete, within_s=PATIENCE_S)
    reader.is_over.set()
    reader.join(PATIENCE_S)
    in_order = {part: [mine[at] for at in sorted(mine)] for part, mine in reader.seen.items()}
    assert in_order == writer.acked, (
        "all that was acknowledged, each once, in the order it was sent"
    )
    assert [p for p in reader.problems if p.fatal()] == []


def test_ctrl_c_stops_every_node_in_order_and_the_next_start_has_it_all(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.start()
    ports = [cluster.port(node_id) for node_id in cluster.node_ids]
    writer = Writer(cluster, "kept")
    json_of(cluster, "topic", "create", "kept", "-p", "1")
    for value in range(10):
        writer.send(value, 0)
    writer.flush()
    pids = [cluster.pid(node_id) for node_id in cluster.node_ids]
    assert cluster.process is not None
    # What a terminal does: every process of the group hears of it, and nodes are of none of ours.
    assert all(os.getpgid(pid) == pid for pid in pids)
    cluster.process.send_signal(signal.SIGINT)
    assert cluster.process.wait(PATIENCE_S) == 0  # a second signal would end them at once
    assert cluster.stop() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    homes = [tmp_path / "cluster" / f"node-{node_id}" for node_id in cluster.node_ids]
    assert all((home / "data" / ".kafka_cleanshutdown").exists() for home in homes)
    cluster.start()
    try:
        assert [cluster.port(node_id) for node_id in cluster.node_ids] == ports

        def is_kept() -> bool:
            # A new leader learns what is committed with the next Fetch of its followers.
            (part,) = json_of(cluster, "topic", "describe", "kept")[0]["partitions"]
            return bool(part["high_watermark"] == part["log_end_offset"] == 10)

        eventually("all is committed again", is_kept, within_s=PATIENCE_S)
        # Of three controllers two are gone: the last node has nobody to hand over to, nor to wait for.
        for node_id in (1, 2):
            cluster.kill_node(node_id)
        alone = "1 of 3 nodes run; to start this one again: firnline server -c "
        # What it has not noticed by the time that it is told to stop it takes for a stop that failed.
        eventually("both are missed", lambda: alone in cluster.log_text(), within_s=PATIENCE_S)
    finally:
        code = cluster.stop()
    assert code == 0, cluster.log_text()


def test_a_cluster_that_cannot_come_up_says_why_and_leaves_nothing_running(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "firnline", "dev", "--nodes", "2", "--port", "0"]
    line += ["--dir", str(tmp_path / "c"), "-X", f"metadata.log.segment.bytes={1 << 40}"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 1
    assert "metadata.log.segment.bytes" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "c" / "node-1" / "server.log").exists(), "refused before anything began"
    (tmp_path / "d" / "node-1").mkdir(parents=True)
    (tmp_path / "d" / "node-1" / "data").write_text("a file")
    line[line.index(str(tmp_path / "c"))] = str(tmp_path / "d")
    done = subprocess.run(line[:-2], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert str(tmp_path / "d" / "node-1" / "data") in done.stderr


def test_a_temporary_directory_stays_while_a_node_that_was_started_by_hand_uses_it(
    tmp_path: Path,
) -> None:
    """The node was killed, and started again with the command that `dev` prints for that."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    firnline = [sys.executable, "-m", "firnline"]
    with (tmp_path / "log").open("w") as log:
        dev = subprocess.Popen(
            [*firnline, "dev", "--nodes", "2", "--port", "0"],
            env=environment,
            stdout=log,
            stderr=log,
        )

    def printed(pattern: str) -> str:
        found: list[str] = []

        def is_there() -> bool:
            found[:] = re.findall(pattern, (tmp_path / "log").read_text(), re.MULTILINE)
            return bool(found)

        eventually(pattern, is_there, within_s=PATIENCE_S)
        return found[0]

    by_hand = None
    try:
        data = Path(printed(r"ready at .*\(data (.*), tier none\)$"))
        os.kill(int(printed(r"^firnline dev: node 2 at .*, pid (\d+),")), signal.SIGKILL)
        again = printed(r"to start this one again: firnline (server .*)$")
        with (tmp_path / "by-hand").open("w") as log:
            by_hand = subprocess.Popen([*firnline, *again.split()], stdout=log, stderr=log)
        hand_log = tmp_path / "by-hand"
        eventually("it serves", lambda: "ready at" in hand_log.read_text(), within_s=PATIENCE_S)
        dev.send_signal(signal.SIGINT)
        assert dev.wait(PATIENCE_S) == 0
        assert printed(r"^firnline dev: (.*) is kept, because another process uses ") == str(data)
        assert by_hand.poll() is None
        assert (data / "node-2" / "data" / "meta.properties").exists()
        assert "CRITICAL" not in hand_log.read_text()
    finally:
        for process in filter(None, (dev, by_hand)):
            process.kill()
            process.wait()
