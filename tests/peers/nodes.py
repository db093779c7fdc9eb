"""A cluster of separate processes, each ours or Apache Kafka's, controller or broker. WORLD.

    cluster = Cluster(directory, [(FIRNLINE, CONTROLLER), (KAFKA, CONTROLLER), (KAFKA, BROKER)])
    with cluster: ...

Voters are static (`controller.quorum.voters`), and the features that we do not act on are at level 0 (I33).
Nodes are numbered from 1 in the order of the list. Each has a directory, a port and a log file of its own,
and is started, stopped, killed and wiped alone; one that is down may go on as the other kind on the same
directory. Everything listens on 127.0.0.1.
"""

import base64
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from firnline.base.errors import FirnlineError
from tests.peers import kafka
from tests.peers.ports import free_ports

FIRNLINE, KAFKA = "firnline", "kafka"
CONTROLLER, BROKER = "controller", "broker"
COMBINED = "broker,controller"
FEATURES_WE_LACK = ("eligible.leader.replicas", "group", "share", "streams", "transaction")
AT_ZERO = [word for name in FEATURES_WE_LACK for word in ("--feature", f"{name}.version=0")]
_HEAP = "256m"
_START_S = 180.0
_STOP_S = 30.0
# Snapshots after a few records, leaders that are missed soon.
QUICK: Mapping[str, object] = {
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.election.backoff.max.ms": 500,
    "controller.quorum.request.timeout.ms": 1000,
    "metadata.log.max.record.bytes.between.snapshots": 1000,
    "metadata.max.idle.interval.ms": 500,
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 9000,
    "initial.broker.registration.timeout.ms": 60000,
}


def new_cluster_id() -> str:
    """Return a cluster id that no tool takes for an option, as one that begins with a dash would be."""
    return "f" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:].rstrip("=")


class Node:
    """One process of a cluster: what both kinds have in common."""

    kind = ""

    def __init__(self, cluster: "Cluster", node_id: int, role: str) -> None:
        self.cluster, self.node_id, self.role = cluster, node_id, role
        self.port = 0
        self.controller_port = 0  # of a combined node, beside the one for clients
        self.settings: dict[str, object] = {}  # its own, before those of the cluster
        self.environment = dict(os.environ)
        self.process: subprocess.Popen[bytes] | None = None
        self.base = cluster.directory / f"{self.kind}-{node_id}"
        self.data = self.base / "data"  # may be put elsewhere before the first start
        self.properties = self.base / "server.properties"
        self._log = self.base / "server.log"

    def __repr__(self) -> str:
        return f"{self.kind} {self.role} {self.node_id}"

    @property
    def metadata(self) -> Path:
        return self.data / "__cluster_metadata-0"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self} is not running"
        return self.process.pid

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, *, wait: bool = True) -> None:
        """Start the process, formatting its directory first where it is new; wait until it answers."""
        assert not self.is_running, f"{self} is running"
        self.format()
        self.launch()
        if wait:
            self.await_answer()

    def launch(self) -> None:
        """Start the process on the directory as it is."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.environment,
            )

    def format(self) -> None:
        """Write the settings, and make the directory a node's where it is none yet."""
        self.base.mkdir(parents=True, exist_ok=True)
        settings = self.cluster.settings_of(self)
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        if not (self.data / "meta.properties").exists():
            self._format()

    def await_answer(self) -> None:
        """Return when ApiVersions is answered. RuntimeError with the end of the log when it never is."""
        deadline = time.monotonic() + _START_S
        while not kafka.answers(self.port):
            if not self.is_running or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self} did not come up:\n{self.log_text()[-3000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ask the process to stop, as SIGTERM does; end it when it does not."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, kill -9."""
        self._end(signal.SIGKILL)

    def wipe(self) -> None:
        """Take the disk of a node that is down away; the next start formats a new one."""
        assert not self.is_running, f"{self} is running"
        shutil.rmtree(self.data, ignore_errors=True)

    def log_text(self) -> str:
        """Return what the process printed so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _end(self, number: int) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{self} did not stop:\n{self.log_text()[-2000:]}") from None

    def _format(self) -> None:
        raise AssertionError("a kind of its own")

    def _command(self) -> list[str]:
        raise AssertionError("a kind of its own")


class KafkaNode(Node):
    """Apache Kafka, a JVM."""

    kind = KAFKA
    # As short tests want it; a measurement gives it room and its compiler.
    heap = _HEAP
    is_short = True

    def _format(self) -> None:
        """Use Kafka's tool for the first node; the others get the same files and an id of their own."""
        made = self.cluster.directory / "formatted-by-kafka"
        if "log.dirs" in self.settings or not made.exists():
            identity = self.cluster.cluster_id
            features = [] if self.cluster.is_default else AT_ZERO
            line = ("format", "-t", identity, "-c", str(self.properties), *features)
            kafka.tool("storage", *line)
            if not made.exists():
                shutil.copytree(self.data, made)
            return
        self.data.mkdir(parents=True)
        shutil.copyfile(made / "bootstrap.checkpoint", self.data / "bootstrap.checkpoint")
        rows = dict(
            line.split("=", 1)
            for line in (made / "meta.properties").read_text().splitlines()
            if not line.startswith("#")
        )
        rows |= {"node.id": str(self.node_id), "directory.id": new_cluster_id()}
        text = "".join(f"{key}={value}\n" for key, value in rows.items())
        (self.data / "meta.properties").write_text(text)

    def _command(self) -> list[str]:
        kafka.class_archive()
        where = str(self.properties)
        return kafka.command(kafka.SERVER, where, heap=self.heap, is_short=self.is_short)


class FirnlineNode(Node):
    """Ours."""

    kind = FIRNLINE
    format_at = (
        ""  # a release whose metadata.version the directory begins with; the newest without one
    )

    def _format(self) -> None:
        release = ("--release-version", self.format_at) if self.format_at else ()
        self._firnline("storage", "format", "-t", self.cluster.cluster_id, *release)

    def _firnline(self, *words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "firnline", *words, "-c", str(self.properties)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "firnline", "server", "-c", str(self.properties)]


_KINDS: dict[str, type[Node]] = {KAFKA: KafkaNode, FIRNLINE: FirnlineNode}


class Cluster:
    """The nodes of one cluster. As a context manager it starts them all, and stops what is left.

    `is_default`  Kafka formats its nodes with the features of its release, as its users do
    """

    def __init__(
        self,
        directory: Path,
        members: Sequence[tuple[str, str]],
        settings: Mapping[str, object] = QUICK,
        *,
        is_default: bool = False,
    ) -> None:
        self.directory = directory
        self.is_default = is_default
        self.settings = dict(settings)
        self.cluster_id = new_cluster_id()
        # Beside each port stands a proxy's, which is what the others are told; the same without one.
        self.nodes = {
            number: _KINDS[kind](self, number, role)
            for number, (kind, role) in enumerate(members, start=1)
        }
        ports = free_ports(2 * len(self.nodes))
        for node, port, beside in zip(self.nodes.values(), ports[::2], ports[1::2]):
            node.port, node.controller_port = port, port
            if node.role == COMBINED:
                node.controller_port = beside
        self.advertised_ports = {number: node.port for number, node in self.nodes.items()}

    def __enter__(self) -> Self:
        try:
            for node in self.nodes.values():
                node.start(wait=False)
            for node in self.nodes.values():
                node.await_answer()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill() if problem is not None else self.stop()

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self.nodes.values() if CONTROLLER in node.role]

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes.values() if BROKER in node.role]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.brokers)

    def stop(self) -> None:
        """Stop all, brokers first: a broker tells the controllers that it goes."""
        for node in [*self.brokers, *self.controllers]:
            node.stop()

    def kill(self) -> None:
        """Kill -9 all that run."""
        for node in self.nodes.values():
            node.kill()

    def settings_of(self, node: Node) -> dict[str, object]:
        """Return the server.properties of a node; both kinds read the same."""
        voters = (f"{n.node_id}@127.0.0.1:{self._voter_port(n)}" for n in self.controllers)
        listener = "CONTROLLER" if node.role == CONTROLLER else "PLAINTEXT"
        beside = f",CONTROLLER://127.0.0.1:{node.controller_port}" if node.role == COMBINED else ""
        return {
            "process.roles": node.role,
            "node.id": node.node_id,
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://127.0.0.1:{node.port}{beside}",
            "advertised.listeners": f"{listener}://127.0.0.1:{self.advertised_ports[node.node_id]}",
            "log.dirs": node.data,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            # By default it takes half of the memory that we give to a JVM.
            **({"log.cleaner.dedupe.buffer.size": 2 << 20} if node.kind == KAFKA else {}),
            **self.settings,
            **node.settings,
        }

    def hand_over(self, node_id: int, kind: str) -> Node:
        """Return the node that goes on, as `kind`, where one that is down was."""
        old = self.nodes[node_id]
        assert not old.is_running, f"{old} is running"
        new = _KINDS[kind](self, node_id, old.role)
        new.port, new.controller_port = old.port, old.controller_port
        new.settings, new.data = old.settings, old.data
        self.nodes[node_id] = new
        return new

    def _voter_port(self, node: Node) -> int:
        combined = node.role == COMBINED
        return node.controller_port if combined else self.advertised_ports[node.node_id]


def copy_while_used(directory: Path, to: Path) -> Path:
    """Copy a directory that a process writes to. What goes while it is copied is left out."""
    try:
        shutil.copytree(directory, to)
    except shutil.Error as problem:  # raised at the end, with all that was not copied
        if not all("No such file" in why for _, _, why in problem.args[0]):
            raise
    return to


def files_below(directory: Path, pattern: str = "*") -> list[Path]:
    """Return the files below that match from the right, such as t-0/*.log, while others remove some."""
    found = (Path(folder, name) for folder, _, names in os.walk(directory) for name in names)
    return sorted(path for path in found if path.match(pattern))


def bytes_in(directory: Path, pattern: str) -> int:
    """Return how many bytes the files have that match; one that goes while it is looked at has none."""
    size_bytes = 0
    for path in files_below(directory, pattern):
        with contextlib.suppress(FileNotFoundError):
            size_bytes += path.stat().st_size
    return size_bytes


def eventually(what: str, look: Callable[[], object], *, within_s: float = 90.0) -> object:
    """Return the first true answer of `look`; AssertionError when there is none in time.

    OSError of `look`, and what our own client raises, count as no answer.
    """
    deadline = time.monotonic() + within_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = look()
        except (OSError, FirnlineError) as problem:
            last = problem
        else:
            if last:
                return last
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {within_s:.0f} s; last seen: {last!r}")
