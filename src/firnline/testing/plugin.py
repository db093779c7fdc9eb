"""A pytest plugin: `firnline_broker` and `firnline_cluster`, in processes of their own. WORLD.

    def test_orders(firnline_broker):
        producer = Producer({"bootstrap.servers": firnline_broker.bootstrap})

    def test_orders_survive_their_leader(firnline_cluster):
        producer = Producer({"bootstrap.servers": firnline_cluster.bootstrap})
        ...
        leader = firnline_cluster.leader_of("orders")
        firnline_cluster.kill_node(leader)
        ...
        firnline_cluster.start_node(leader)

A test that also asks for `firnline_tier` gets a broker or a cluster with a remote tier in that directory, and
`firnline_tiered_topic` is a topic in it with small segments. Imports only pytest and the standard library
before a test uses it.
"""

import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from firnline.testing.cluster import Cluster

START_S = 30.0
STOP_S = 15.0
_READY = "ready at "
# Small enough that a few hundred records fill several segments.
TIERED_TOPIC = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "16384",
    "local.retention.bytes": "16384",
    "file.delete.delay.ms": "100",
    "retention.ms": "-1",  # records of a test may have any timestamp
}


class Broker:
    """One `firnline dev` process. `directory` survives `stop`, so `start` resumes with its data."""

    def __init__(
        self, directory: Path, *, tier: Path | None = None, options: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        self.tier = tier
        self.options = tuple(options)
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self._log = directory.with_name(directory.name + ".log")

    @property
    def bootstrap(self) -> str:
        """Address for clients, `host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self.process is not None, "the broker is not running"
        return self.process.pid

    def start(self) -> None:
        """Start the process and wait until it answers; a restart keeps the port.

        Raises RuntimeError with the log if it does not start.
        """
        assert self.process is None, "the broker is running"
        command = [sys.executable, "-m", "firnline", "dev", "--port", str(self.port)]
        command += ["--dir", str(self.directory)]
        if self.tier is not None:
            command += ["--tier", str(self.tier)]
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [*command, *self.options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        line = self._first_line()
        if _READY not in line:
            self.kill()
            raise RuntimeError(f"firnline dev did not start: {line!r}\n{self.log_text()}")
        self.port = int(line.partition(_READY)[2].split()[0].rpartition(":")[2])

    def stop(self) -> int:
        """Ask the broker to stop, as SIGTERM does, and return its exit code."""
        assert self.process is not None, "the broker is not running"
        self.process.terminate()
        return self._wait()

    def kill(self) -> None:
        """Kill the process at once, as a crash does; what was synced is on the disk."""
        assert self.process is not None, "the broker is not running"
        self.process.kill()
        self._wait()

    def restart(self) -> None:
        """Stop and start on the same port and directory."""
        self.stop()
        self.start()

    def log_text(self) -> str:
        """Return what the broker has written to stderr."""
        return self._log.read_text()

    def _first_line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            readable, _, _ = select.select([self.process.stdout], [], [], 0.5)
            if readable:
                return self.process.stdout.readline()
        return f"nothing within {START_S:.0f} s"

    def _wait(self) -> int:
        assert self.process is not None
        process, self.process = self.process, None
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return code


@pytest.fixture
def firnline_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A running broker on a free port, stopped after the test.

    Mark the test with `firnline_options("-X", "key=value")` for options of `firnline dev`.
    """
    tier, options = _wishes(request)
    broker = Broker(tmp_path_factory.mktemp("firnline") / "data", tier=tier, options=options)
    broker.start()
    try:
        yield broker
    finally:
        if broker.process is not None:
            broker.stop()


@pytest.fixture
def firnline_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["Cluster"]:
    """Three running nodes on free ports, topics with three replicas by default; stopped after the test.

    Mark the test with `firnline_nodes(5)` for another number, and with `firnline_options` as above.
    """
    from firnline.testing.cluster import Cluster

    tier, options = _wishes(request)
    marker = request.node.get_closest_marker("firnline_nodes")
    cluster = Cluster(
        tmp_path_factory.mktemp("firnline") / "cluster",
        nodes=marker.args[0] if marker else 3,
        tier=tier,
        options=options,
    )
    cluster.start()
    try:
        yield cluster
    finally:
        if cluster.process is not None:
            cluster.stop()


def _wishes(request: pytest.FixtureRequest) -> tuple[Path | None, tuple[str, ...]]:
    """The tier and the options of `firnline dev` that a test asks for."""
    tier: Path | None = None
    if "firnline_tier" in request.fixturenames:
        tier = request.getfixturevalue("firnline_tier")
    marker = request.node.get_closest_marker("firnline_options")
    return tier, tuple(marker.args) if marker else ()


@pytest.fixture
def firnline_tier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the remote tier of `firnline_broker`."""
    return tmp_path_factory.mktemp("firnline-tier")


@pytest.fixture
def firnline_tiered_topic(firnline_tier: Path, firnline_broker: Broker) -> str:
    """The name of a topic with one partition, whose segments of 16 KiB go to the remote tier."""
    from firnline.client.admin import Admin

    name = "tiered"
    with Admin(firnline_broker.bootstrap) as admin:
        admin.create_topic(name, partitions=1, replication_factor=1, configs=TIERED_TOPIC)
    return name


def pytest_configure(config: pytest.Config) -> None:
    """Declare the plugin's markers."""
    config.addinivalue_line(
        "markers",
        "firnline_options(*options): options of `firnline dev` for firnline_broker, firnline_cluster",
    )
    config.addinivalue_line("markers", "firnline_nodes(count): how many nodes firnline_cluster has")
