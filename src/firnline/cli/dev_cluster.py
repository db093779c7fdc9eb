"""`firnline dev --nodes`: a parent process that runs a cluster of several nodes on this machine. WORLD.

Each node is a `firnline server` with its own server.properties, so a user who killed one can start it again
by hand. The first three nodes are controllers too. If one of them dies, the other two elect a leader and an
active controller, which is what this command is meant to show. (One separate controller could not die; three
separate ones would double the processes.) A node that dies is reported and not restarted.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from firnline.base.errors import ConfigError, FirnlineError
from firnline.base.ids import uuid_text
from firnline.cli.dev_data import homes
from firnline.cli.server import with_absolute_paths
from firnline.config.load import read_environment, read_properties
from firnline.server.config_sources import load_settings
from firnline.server.stop_signals import stop_signals

HOST = "127.0.0.1"
NODES_MAX = 9
# A majority of two is two: a second controller would only be one more thing that can fail.
CONTROLLERS_MAX = 3
# Further defaults that differ from Kafka's, for a cluster.
DIFFERENT = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "default.replication.factor": "3",
    "leader.imbalance.check.interval.seconds": "5",
    "metadata.max.idle.interval.ms": "500",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}
_REPLICATED = ("default.replication.factor", "offsets.topic.replication.factor")
_OF_THE_TIER = "rlmm.config.remote.log.metadata.topic.replication.factor"
_OF_ONE_NODE = (
    "broker.id", "controller.listener.names", "controller.quorum.bootstrap.servers",
    "controller.quorum.voters", "inter.broker.listener.name", "listener.security.protocol.map",
    "listeners", "advertised.listeners", "log.dir", "log.dirs", "metadata.log.dir", "node.id",
    "process.roles",
)  # fmt: skip
_PROTOCOLS = "PLAINTEXT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT"
_METRICS_PORT = "firnline.metrics.port"
# Ports outside the kernel's ephemeral range: a node that is down for a while finds its port free.
_PORTS = range(20_000, 32_000)
_START_S = 120.0
# A node limits its own shutdown; this is for one that hangs.
_STOP_S = 40.0
_LOOK_S = 0.02
_PR_SET_PDEATHSIG = 1


class DevNode(NamedTuple):
    """One node: its ports and its files. `controller_port` 0: it is no controller.

    broker_port  for other brokers only: they may write there what clients may not
    """

    node_id: int
    port: int
    broker_port: int
    controller_port: int
    home: Path

    @property
    def address(self) -> str:
        """The address for clients."""
        return f"{HOST}:{self.port}"

    @property
    def settings_file(self) -> Path:
        return self.home / "server.properties"

    @property
    def log_file(self) -> Path:
        return self.home / "server.log"

    @property
    def data(self) -> Path:
        return self.home / "data"


def run_cluster(
    nodes: int,
    directory: Path,
    *,
    port: int,
    settings: Mapping[str, str],
    stated: Mapping[str, str],
    tier: str | None,
    log_level: str,
) -> int:
    """Run a cluster until it is told to stop; return the exit code of the process.

    port      of the first node; 0 for any. The others use the next ports, or free ones
    settings  of every node, before the defaults for clusters
    stated    of every node; they override everything

    Raises ConfigError for impossible settings, before anything is written.
    """
    refuse_other_contents(directory, nodes)
    _refuse_settings_of_one_node(stated)
    members = plan(directory, nodes, port)
    for member in members:
        prepare(member, settings_of(member, members, settings, stated))
    keeper = _Keeper(members, log_level)
    try:
        return keeper.run(f"data {directory}, tier {tier or 'none'}")
    finally:
        keeper.kill()


# ------------------------------------------------------------------------------------- the plan


def refuse_other_contents(directory: Path, nodes: int) -> None:
    """Raise ConfigError if the directory holds anything but a cluster of so many nodes."""
    if (directory / "meta.properties").exists():
        raise ConfigError(f"{directory} holds a single node: name another directory, or --nodes 1")
    count = len(homes(directory))
    if count not in (0, nodes):
        raise ConfigError(
            f"{directory} holds a cluster of {count} nodes: start it with --nodes {count}, or name"
            " another directory"
        )


def _refuse_settings_of_one_node(stated: Mapping[str, str]) -> None:
    for name in _OF_ONE_NODE:
        if name in stated:
            raise ConfigError(f"-X {name}: `dev --nodes` sets this for each node")


def plan(directory: Path, nodes: int, port: int) -> list[DevNode]:
    """Choose ports, those of an earlier run if they are free. Raises ConfigError for a port in use."""
    controllers = CONTROLLERS_MAX if nodes >= CONTROLLERS_MAX else 1
    members = []
    with contextlib.ExitStack() as held:
        for node_id in range(1, nodes + 1):
            home = directory / f"node-{node_id}"
            before, broker_before, controller_before = _ports_of(home)
            wished = port + node_id - 1 if port else before
            is_a_must = bool(port) and node_id == 1
            client_port = _take(held, wished, is_a_must=is_a_must)
            broker_port = _take(held, broker_before, is_a_must=False)
            controller_port = 0
            if node_id <= controllers:
                controller_port = _take(held, controller_before, is_a_must=False)
            members.append(DevNode(node_id, client_port, broker_port, controller_port, home))
    return members


def _ports_of(home: Path) -> tuple[int, int, int]:
    """Return a node's ports in an earlier run: for clients, brokers, controllers; 0 for none."""
    path = home / "server.properties"
    listeners = read_properties(path.read_text())["listeners"] if path.exists() else ""
    found = {}
    for listener in filter(None, listeners.split(",")):
        name, _, address = listener.partition("://")
        found[name] = int(address.rpartition(":")[2])
    return found.get("PLAINTEXT", 0), found.get("BROKER", 0), found.get("CONTROLLER", 0)


def _take(held: contextlib.ExitStack, wished: int, *, is_a_must: bool) -> int:
    """Return a free port, `wished` if possible; it stays bound until all ports are chosen."""
    for port in chain([wished], _candidates()):
        if not 0 < port < 65536:
            continue  # no wish, or above the last port
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
            sock.listen()
        except OSError as problem:
            sock.close()
            if is_a_must:
                raise ConfigError(
                    f"cannot listen on {HOST}:{port}: {problem.strerror}; --port names another one"
                ) from None
            continue
        held.enter_context(sock)
        return port
    raise ConfigError(f"no port is free in {_PORTS.start}-{_PORTS.stop}")


def _candidates() -> Iterator[int]:
    from firnline.runtime.rng import SystemRng

    rng = SystemRng()
    for _ in range(1_000):
        yield _PORTS[rng.below(len(_PORTS))]


def settings_of(
    member: DevNode,
    members: Sequence[DevNode],
    settings: Mapping[str, str],
    stated: Mapping[str, str],
) -> dict[str, str]:
    """Return the server.properties of a node."""
    replicas = str(min(len(members), int(DIFFERENT["default.replication.factor"])))
    is_few = len(members) < CONTROLLERS_MAX
    listeners = [f"PLAINTEXT://{HOST}:{member.port}", f"BROKER://{HOST}:{member.broker_port}"]
    if member.controller_port:
        listeners.append(f"CONTROLLER://{HOST}:{member.controller_port}")
    controllers = [each for each in members if each.controller_port]
    found = {**settings, **DIFFERENT, **dict.fromkeys(_REPLICATED, replicas)}
    found["min.insync.replicas"] = "1" if is_few else DIFFERENT["min.insync.replicas"]
    if _OF_THE_TIER in settings:
        found[_OF_THE_TIER] = replicas
    found |= {
        "process.roles": "broker,controller" if member.controller_port else "broker",
        "node.id": str(member.node_id),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(
            f"{each.node_id}@{HOST}:{each.controller_port}" for each in controllers
        ),
        "inter.broker.listener.name": "BROKER",
        "listener.security.protocol.map": _PROTOCOLS,
        "listeners": ",".join(listeners),
        "log.dirs": str(member.data),
        **stated,
    }
    if stated.get(_METRICS_PORT, "0").isdigit() and int(stated.get(_METRICS_PORT, "0")):
        found[_METRICS_PORT] = str(int(stated[_METRICS_PORT]) + member.node_id - 1)
    return found


def prepare(member: DevNode, settings: Mapping[str, str]) -> None:
    """Write a node's settings, and format its directory for the cluster of the first node."""
    from firnline.metadata.format import format_storage
    from firnline.runtime.disk import RealFs
    from firnline.runtime.rng import SystemRng

    config = with_absolute_paths(load_settings(settings))
    first = member.home.with_name("node-1") / "data" / "meta.properties"
    known = read_properties(first.read_text()) if first.exists() else {}
    rng = SystemRng()
    format_storage(
        RealFs(),
        config,
        cluster_id=known.get("cluster.id") or uuid_text(rng.uuid()),
        rng=rng,
        now_ms=time.time_ns() // 1_000_000,
        ignore_formatted=True,
    )
    member.settings_file.write_text(_as_properties(settings))


def _as_properties(settings: Mapping[str, str]) -> str:
    text = "".join(f"{name}={value}\n" for name, value in sorted(settings.items()))
    if read_properties(text) == dict(settings):
        return text
    import javaproperties

    return str(javaproperties.dumps(settings, timestamp=False))


# --------------------------------------------------------------------------------- the processes


class _Keeper:
    """The parent process: starts all nodes, reports those that die, stops the rest."""

    def __init__(self, members: Sequence[DevNode], log_level: str) -> None:
        self._members = members
        self._log_level = log_level
        self._alive: dict[int, subprocess.Popen[bytes]] = {}
        self._signals = 0
        self._is_ready = False
        self._wake, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in stop_signals():
            signal.signal(number, self._note_signal)

    def run(self, about: str) -> int:
        for member in self._members:
            self._alive[member.node_id] = self._spawn(member)
            pid = self._alive[member.node_id].pid
            _say(f"node {member.node_id} at {member.address}, pid {pid}, log {member.log_file}")
        if not self._await_all():
            return self._stop() if self._signals else self._stop() or 1
        addresses = ",".join(member.address for member in self._members)
        _say(f"ready at {addresses} ({about})")
        while self._alive and not self._signals:
            self._sleep(None)
            self._report_dead()
        return self._stop() if self._signals else 1

    def kill(self) -> None:
        """Kill what is left, after an error in the parent."""
        for process in self._alive.values():
            process.kill()
            process.wait()
        self._alive.clear()

    def _note_signal(self, number: int, frame: object) -> None:
        self._signals += 1

    def _sleep(self, seconds: float | None) -> None:
        """Wait for a signal; the death of a child is one."""
        select.select([self._wake], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 512)

    def _spawn(self, member: DevNode) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "firnline", "server", "-c", str(member.settings_file)]
        with member.log_file.open("ab") as log:
            return subprocess.Popen(
                [*command, "--log-level", self._log_level],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_without_settings(os.environ),
                # Ctrl-C is for the parent, which stops the nodes in order. Nodes do not outlive it.
                process_group=0,
                preexec_fn=_die_with_parent,
            )

    # ------------------------------------------------------------------------------ watching

    def _await_all(self) -> bool:
        """Wait until every node serves clients and knows the others; False if a node died or we must stop."""
        deadline = time.monotonic() + _START_S
        while not self._signals:
            if self._count_seen() >= len(self._members):
                self._is_ready = True
                return True
            if time.monotonic() > deadline:
                raise FirnlineError(f"the nodes did not all come up within {_START_S:.0f} s")
            self._sleep(_LOOK_S)
            self._report_dead()
            if len(self._alive) < len(self._members):
                return False
        return False

    def _count_seen(self) -> int:
        """Return how many brokers each node knows at least; 0 while a node does not answer."""
        from firnline.client.connection import Connection
        from firnline.protocol.messages.k60_describe_cluster import DescribeClusterRequest

        found = []
        for member in self._members:
            if member.node_id in self._alive:
                try:
                    with Connection(HOST, member.port, timeout_s=0.5) as node:
                        found.append(len(node.ask(DescribeClusterRequest()).brokers))
                except FirnlineError:
                    return 0
        return min(found, default=0)

    def _poll(self, member: DevNode) -> int | None:
        """Return the exit code of a node that has ended since the last call, else None. Reports a failed
        one.
        """
        process = self._alive.get(member.node_id)
        if process is None or process.poll() is None:
            return None
        del self._alive[member.node_id]
        code = process.returncode
        if code or not self._signals:
            how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
            _say_error(f"node {member.node_id} (pid {process.pid}) {how}; log {member.log_file}")
        return code

    def _report_dead(self) -> None:
        """Report the nodes that died."""
        for member in self._members:
            if self._poll(member) is None:
                continue
            if not self._is_ready:
                self._show_why(member)
                continue
            left = f"{len(self._alive)} of {len(self._members)} nodes run"
            command = f"firnline server -c {member.settings_file}"
            _say_error(f"{left}; to start this one again: {command}")

    def _show_why(self, member: DevNode) -> None:
        """Print the last log lines of a node that did not start: its directory may be removed with us."""
        for line in member.log_file.read_text(errors="replace").splitlines()[-3:]:
            print(f"  {line}", file=sys.stderr, flush=True)

    # ------------------------------------------------------------------------------ stopping

    def _stop(self) -> int:
        """Tell all nodes at once to stop: each hands over its leadership, and the controllers stop last.

        A second signal is passed on too, and ends them at once.
        """
        self._report_dead()  # a node that died before did not fail to stop
        notified, deadline = -1, time.monotonic() + _STOP_S
        codes = []
        while self._alive and time.monotonic() < deadline:
            if notified < self._signals:
                notified = self._signals
                for process in self._alive.values():
                    process.send_signal(signal.SIGTERM)
            codes += [code for code in map(self._poll, self._members) if code is not None]
            if self._alive:
                self._sleep(max(0.0, deadline - time.monotonic()))
        for node_id in self._alive:
            _say_error(f"node {node_id} did not stop within {_STOP_S:.0f} s and is killed")
        return 1 if any(codes) or self._alive else 0


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Remove settings from the environment: `dev` takes them only from its command line, but a server
    reads these.
    """
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("FIRNLINE_") or not read_environment({name: value})
    }


def _die_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # the terminal has gone; the nodes are stopped all the same
        print(f"firnline dev: {line}", flush=True)


def _say_error(line: str) -> None:
    with contextlib.suppress(OSError):
        print(f"firnline dev: {line}", file=sys.stderr, flush=True)
