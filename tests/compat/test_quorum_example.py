"""What the README says of three controllers, done with the example's own files, on other ports."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firnline.server.broker_metrics.reference import printed_on
from tests.metrics_page import families_at
from tests.peers.nodes import eventually
from tests.peers.ports import free_ports

EXAMPLE = Path(__file__).parents[2] / "examples" / "quorum"
PORTS = ("9191", "9192", "9193", "9094", "9095", "9096", "9097")


class Example:
    """A copy of the example; `brokers` and `controllers` are addresses."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.metrics: dict[str, int] = {}  # by node, its port of metrics
        shutil.copytree(EXAMPLE, directory, ignore=shutil.ignore_patterns("data", "__pycache__"))
        found = dict(zip(PORTS, map(str, free_ports(len(PORTS)))))
        for path in directory.glob("*.properties"):
            text = path.read_text()
            text = re.sub("|".join(PORTS), lambda match: found[match[0]], text)
            (self.metrics[path.stem],) = free_ports(1)
            path.write_text(f"{text}\nfirnline.metrics.port={self.metrics[path.stem]}\n")
        self.controllers = ",".join(f"127.0.0.1:{found[port]}" for port in PORTS[:3])
        self.brokers = [f"127.0.0.1:{found[port]}" for port in PORTS[3:5]]

    def cluster(self, *words: str) -> None:
        self._run(str(self.directory / "cluster.py"), *words)

    def firnline(self, *words: str) -> str:
        return self._run("-m", "firnline", *words)

    def _run(self, *words: str) -> str:
        line = [sys.executable, *words]
        done = subprocess.run(line, capture_output=True, text=True, timeout=90, check=False)
        if done.returncode:
            raise OSError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def status(self) -> Any:
        line = ("quorum", "status", "--bootstrap-controller", self.controllers)
        return json.loads(self.firnline(*line, "--format", "json"))


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Example]:
    made = Example(tmp_path / "quorum")
    yield made
    made.cluster("stop")
    for log in (made.directory / "data").glob("*.log"):
        assert "Traceback" not in log.read_text(errors="replace"), log.name


def test_the_leader_is_killed_and_wiped_and_comes_back_over_a_snapshot(example: Example) -> None:
    example.cluster("start")
    one, other = example.brokers
    eventually(
        "a broker", lambda: example.firnline("topic", "list", "--bootstrap-server", one) or 1
    )
    for number in range(12):
        name = f"orders-{number}"
        example.firnline("topic", "create", name, "-p", "4", "--bootstrap-server", one)

    def is_complete() -> Any:
        reported = example.status()
        return (
            reported if (reported["voters"], reported["observers"]) == ([1, 2, 3], [4, 5]) else None
        )

    before: Any = eventually("all nodes are there", is_complete, within_s=60)
    for name, port in example.metrics.items():
        there = families_at(f"http://127.0.0.1:{port}/metrics")
        assert there == {*printed_on()[name.partition("-")[0]]}, name
    gone = before["leader_id"]
    example.cluster("kill", f"controller-{gone}")
    example.cluster("wipe", f"controller-{gone}")
    eventually(
        "the other broker", lambda: example.firnline("topic", "list", "--bootstrap-server", other)
    )
    example.firnline("topic", "create", "more", "--bootstrap-server", other)
    eventually("another leads", lambda: example.status()["leader_id"] not in (gone, -1))
    example.cluster("start", f"controller-{gone}")

    def is_level() -> bool:
        after = example.status()
        row = next(row for row in after["replicas"] if row["node_id"] == gone)
        return bool(after["epoch"] > before["epoch"] and row["lag"] == 0)

    eventually("the wiped controller has caught up", is_level)
    files = example.directory / "data" / f"controller-{gone}" / "__cluster_metadata-0"
    assert list(files.glob("*.checkpoint")), "it did not come over a snapshot"
