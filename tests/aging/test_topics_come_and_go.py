"""A broker that lives long gives back what it deletes: asked of the running process and of its disk."""

import contextlib
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firnline.client.admin import Admin
from firnline.testing.plugin import Broker
from tests.peers.ports import free_ports

ROUNDS = 120
PARTITIONS = 2
WAIT_S = 60.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    options = ["-X", "log.segment.delete.delay.ms=0"]
    made = Broker(tmp_path / "data", options=options)
    made.start()
    try:
        yield made
        assert made.stop() == 0
    finally:
        if made.process is not None:
            made.kill()


def open_files(pid: int) -> list[str]:
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def collections(port: int) -> dict[str, float]:
    """How often Python's collector of cycles has run, by its generation."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    rows = (line.rpartition(" ") for line in lines if "gc_collections_total{" in line)
    return {name.partition('"')[2][0]: float(value) for name, _, value in rows}


def come_and_go(admin: Admin, word: str, rounds: int) -> None:
    for number in range(rounds):
        admin.create_topic(f"{word}-{number}", partitions=PARTITIONS, configs={})
        admin.delete_topic(f"{word}-{number}")


def test_hundreds_of_topics_leave_no_descriptor_and_no_room_taken(broker: Broker) -> None:
    with Admin(broker.bootstrap) as admin:
        come_and_go(admin, "warm", 5)
        before = len(open_files(broker.pid))
        come_and_go(admin, "short-lived", ROUNDS)
        # Fewer than one for ten topics: threads that were not there before have theirs.
        wait_until(lambda: len(open_files(broker.pid)) <= before + ROUNDS // 10)

    def gone() -> list[str]:
        return [path for path in open_files(broker.pid) if path.endswith("(deleted)")]

    # Of a thread that waits for work, too: the last file it synced may be a large one.
    wait_until(lambda: not any(str(broker.directory) in path for path in gone()))
    wait_until(lambda: not list(broker.directory.glob("*-delete")))
    assert not list(broker.directory.glob("**/short-lived-*"))


def test_the_collector_of_cycles_runs_in_a_single_node(tmp_path: Path) -> None:
    """It is its own active controller, which passed for one that is loading for ever."""
    [port] = free_ports(1)
    broker = Broker(tmp_path / "data", options=["-X", f"firnline.metrics.port={port}"])
    broker.start()
    try:
        before = collections(port)
        wait_until(lambda: collections(port)["1"] >= before["1"] + 3)  # one in two seconds
    finally:
        assert broker.stop() == 0
