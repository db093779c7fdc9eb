"""Apache Kafka 4.3.1 itself: the peer to compare with, and the arbiter of every format.

    python -m tests.peers.kafka fetch                     bring the jars (once, about 60 MB, by Maven)
    python -m tests.peers.kafka start DIR [--nodes N] [--tiered] [--set KEY=VALUE]...
    python -m tests.peers.kafka stop DIR                  files stay; start again resumes
    python -m tests.peers.kafka tool NAME [ARG]...        topics, dump, console-producer, ... (TOOLS)
    python -m tests.peers.kafka schemas                   unpack Kafka's message schemas, print where
    python -m tests.peers.kafka java FILE.java [ARG]...   run a Java program with Kafka's classes

From tests: `start(directory)` returns a `Cluster`, which is a context manager; `tool("dump", ...)` returns
what the tool printed; `schemas()` the folder of JSON files; `java("Oracle.java")` a running program.
`tests/peers/plugin.py` has fixtures. Needs Java 17 and Maven; without them `PeerMissing` says so.

Everything is kept in FIRNLINE_PEERS_CACHE, by default ~/.cache/firnline-peers. Nodes listen on 127.0.0.1
only, on free ports. A JVM may be given flags in KAFKA_OPTS.
"""

import argparse
import base64
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.peers.ports import free_ports

VERSION = "4.3.1"
_LOG4J = "2.25.4"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
# (group, artifact, version, classifier); the storage module's tests hold LocalTieredStorage.
_ARTIFACTS = [
    *(("org.apache.kafka", a, VERSION, "") for a in ("kafka_2.13", "kafka-tools", "kafka-shell")),
    *(("org.apache.kafka", a, VERSION, "test") for a in ("kafka-storage", "kafka-clients")),
    *(("org.apache.logging.log4j", a, _LOG4J, "") for a in ("log4j-slf4j-impl", "log4j-1.2-api")),
]
_PACKAGE = "org.apache.kafka.tools"
TOOLS = {
    "acls": f"{_PACKAGE}.AclCommand",
    "api-versions": f"{_PACKAGE}.BrokerApiVersionsCommand",
    "cluster": f"{_PACKAGE}.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_PACKAGE}.consumer.ConsoleConsumer",
    "console-producer": f"{_PACKAGE}.ConsoleProducer",
    "consumer-perf": f"{_PACKAGE}.ConsumerPerformance",
    "delete-records": f"{_PACKAGE}.DeleteRecordsCommand",
    "dump": f"{_PACKAGE}.DumpLogSegments",
    "features": f"{_PACKAGE}.FeatureCommand",
    "get-offsets": f"{_PACKAGE}.GetOffsetShell",
    "groups": f"{_PACKAGE}.consumer.group.ConsumerGroupCommand",
    "leader-election": f"{_PACKAGE}.LeaderElectionCommand",
    "log-dirs": f"{_PACKAGE}.LogDirsCommand",
    "metadata-quorum": f"{_PACKAGE}.MetadataQuorumCommand",
    "metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "producer-perf": f"{_PACKAGE}.ProducerPerformance",
    "reassign": f"{_PACKAGE}.reassign.ReassignPartitionsCommand",
    "replica-verification": f"{_PACKAGE}.ReplicaVerificationTool",
    "storage": "kafka.tools.StorageTool",
    "topics": f"{_PACKAGE}.TopicCommand",
    "transactional-copier": f"{_PACKAGE}.TransactionalMessageCopier",
    "transactions": f"{_PACKAGE}.TransactionsCommand",
    "verifiable-consumer": f"{_PACKAGE}.VerifiableConsumer",
    "verifiable-producer": f"{_PACKAGE}.VerifiableProducer",
}
# Those that leave nothing behind: `tool` runs them one after the other in one JVM.
_IN_ONE_JVM = {
    *("configs", "console-producer", "dump", "features", "groups", "metadata-quorum", "topics"),
}
SERVER = "kafka.Kafka"
_LONG = ("-XX:+UseSerialGC",)
# A JVM that lives for seconds should not compile anything twice.
_SHORT = (*_LONG, "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xlog:disable")
_START_SECONDS = 120
_STOP_SECONDS = 60
_LOGGING = """\
status=error
rootLogger.level=${sys:peer.level:-warn}
rootLogger.appenderRef.e.ref=E
appender.e.type=Console
appender.e.name=E
appender.e.target=SYSTEM_ERR
appender.e.layout.type=PatternLayout
appender.e.layout.pattern=[%d] %p %m (%c)%n
"""


class PeerMissing(Exception):
    """Kafka cannot be had on this machine; the text says why."""


def cache() -> Path:
    """Return the folder where peers are kept, made if missing."""
    default = Path.home() / ".cache" / "firnline-peers"
    path = Path(os.environ.get("FIRNLINE_PEERS_CACHE", default))
    path.mkdir(parents=True, exist_ok=True)
    return path


def jars() -> Path:
    """Return the folder of Kafka's jars; fetch them first where it is missing.

    The folder appears whole or not at all, so two runs at a time do no harm. Raises PeerMissing.
    """
    target = cache() / f"kafka-{VERSION}"
    for program in ("java",) if target.is_dir() else ("java", "mvn"):
        if shutil.which(program) is None:
            raise PeerMissing(f"{program} is not on the PATH")
    if target.is_dir():
        return target
    rows = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>"
        + (f"<classifier>{classifier}</classifier>" if classifier else "")
        + "</dependency>"
        for group, artifact, version, classifier in _ARTIFACTS
    )
    with tempfile.TemporaryDirectory(dir=cache()) as work:
        (Path(work) / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>peer</groupId><artifactId>peer</artifactId><version>1</version>"
            f"<dependencies>{rows}</dependencies></project>"
        )
        print(f"fetching Apache Kafka {VERSION}", file=sys.stderr)
        done = subprocess.run(
            ["mvn", "-q", "-B", "-C", _COPY, "-DoutputDirectory=jars", "-DincludeScope=runtime"],
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        found = Path(work) / "jars"
        if done.returncode or not (found / f"kafka_2.13-{VERSION}.jar").exists():
            raise PeerMissing(f"Maven could not resolve Kafka {VERSION}: {done.stdout[-1000:]}")
        with contextlib.suppress(OSError):  # another run may have put it there first
            found.rename(target)
    return target


def schemas() -> Path:
    """Return a folder with Kafka's own message schemas: JSON with lines of // comments.

    Requests, responses, metadata records, group and remote log records, control records.
    """
    target = cache() / f"kafka-{VERSION}-schemas"
    if target.is_dir():
        return target
    wanted = re.compile(r"(?:common/)?(?:message|metadata)/([A-Za-z0-9]+\.json)")
    with tempfile.TemporaryDirectory(dir=cache()) as work:
        found = Path(work) / "schemas"
        found.mkdir()
        for jar in sorted(jars().glob("kafka*.jar")):
            if jar.stem.endswith("-test"):
                continue
            with zipfile.ZipFile(jar) as archive:
                for entry in archive.namelist():
                    if name := wanted.fullmatch(entry):
                        (found / name[1]).write_bytes(archive.read(entry))
        with contextlib.suppress(OSError):
            found.rename(target)
    return target


def class_archive() -> Path:
    """Return the file of Kafka's loaded classes, made once, with which a node starts in half the time.

    A JVM that cannot use it, being of another version, goes on without it. Takes some ten seconds.
    """
    target = cache() / f"kafka-{VERSION}.jsa"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache()) as work:
            made = Path(work) / "classes.jsa"
            archiving = (f"-XX:ArchiveClassesAtExit={made}",)
            with start(work, options=archiving, is_short=False):
                pass
            made.rename(target)
    return target


def command(main: str, *args: str, heap: str = "512m", is_short: bool = False) -> list[str]:
    """Return the command line that runs a main class, or a .java file, with Kafka's classes.

    `is_short`  it lives for seconds: start fast rather than run fast. Not for measurements.
    """
    logging = cache() / "log4j2.properties"
    if not logging.exists():
        logging.write_text(_LOGGING)
    options = os.environ.get("KAFKA_OPTS", "").split()
    flags = [f"-Xmx{heap}", *(_SHORT if is_short else _LONG), "-Djava.awt.headless=true", *options]
    if is_short and (archive := cache() / f"kafka-{VERSION}.jsa").exists():
        flags.append(f"-XX:SharedArchiveFile={archive}")
    flags += [f"-Dlog4j2.configurationFile={logging}", "-cp", f"{jars()}/*"]
    return ["java", *flags, main, *args]


def tool(name: str, *args: str, stdin: str = "", timeout_seconds: float = 120) -> str:
    """Run one of `TOOLS` and return what it printed; CalledProcessError when it fails.

    `dump` takes the file as its first argument, then flags such as --print-data-log.
    """
    arguments = ("--files", *args) if name == "dump" else args
    if name in _IN_ONE_JVM:
        return _in_one_jvm(name, arguments, stdin, timeout_seconds)
    done = subprocess.run(
        command(TOOLS[name], *arguments, is_short=not name.endswith("-perf")),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    if done.returncode:
        raise subprocess.CalledProcessError(
            done.returncode, [name, *args], done.stdout, done.stderr[-2000:]
        )
    return done.stdout


def _in_one_jvm(name: str, arguments: Sequence[str], stdin: str, timeout_seconds: float) -> str:
    from tests.peers.tools import ToolFailed, shared

    try:
        return shared().use(name, *arguments, stdin=stdin, timeout_s=timeout_seconds)
    except ToolFailed as problem:
        raise subprocess.CalledProcessError(
            problem.code, [name, *arguments], problem.out, problem.err[-2000:]
        ) from None


def java(file: str | Path, *args: str) -> "subprocess.Popen[bytes]":
    """Start a single-file Java program with Kafka's classes; its stdin and stdout are pipes."""
    return subprocess.Popen(
        command(str(file), *args, is_short=True), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


@dataclass
class Cluster:
    """A running Kafka, made by `start`. Leaving it as a context manager stops it."""

    directory: Path
    cluster_id: str
    ports: list[tuple[int, int]]  # (clients, controller) of each node
    pids: list[int]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{clients}" for clients, _ in self.ports)

    def data(self, node: int = 1) -> Path:
        """Return the log directory of a node."""
        return self.directory / f"node-{node}" / "data"

    def stop(self, *, at_once: bool = False) -> None:
        stop(self.directory, at_once=at_once)
        self.pids = []

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    directory: str | Path,
    nodes: int = 1,
    settings: Mapping[str, object] | None = None,
    *,
    tiered: bool = False,
    format_args: Sequence[str] = (),
    heap: str = "512m",
    options: Sequence[str] = (),
    is_short: bool = True,
) -> Cluster:
    """Format and start combined KRaft nodes under `directory`; return when they answer.

    A directory that was used before resumes with its ids, ports and data. `tiered` puts Kafka's own
    LocalTieredStorage on, tier in `directory`/tier; `options` go to the JVM; `is_short` as for `command`.
    Raises PeerMissing; RuntimeError with the end of the log when a node does not come up.
    """
    base = Path(directory).resolve()
    base.mkdir(parents=True, exist_ok=True)
    state = base / "peer.json"
    if state.exists():
        known = json.loads(state.read_text())
        cluster = Cluster(base, known["cluster_id"], [(a, b) for a, b in known["ports"]], [])
    else:
        # The storage tool takes an id that begins with a dash for an option.
        identity = "f" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:].rstrip("=")
        ports = free_ports(2 * nodes)
        cluster = Cluster(base, identity, list(zip(ports[::2], ports[1::2])), [])
    for index in range(len(cluster.ports)):
        _format(cluster, index, tiered, settings or {}, format_args)
    if is_short:
        class_archive()
    for index in range(len(cluster.ports)):
        node = base / f"node-{index + 1}"
        with (node / "kafka.log").open("ab") as log:
            where = str(node / "server.properties")
            java, *rest = command(SERVER, where, heap=heap, is_short=is_short)
            process = subprocess.Popen(
                [java, *options, *rest],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        cluster.pids.append(process.pid)
        state.write_text(json.dumps({**vars(cluster), "directory": str(base)}))
    try:
        _await_answers(cluster)
    except RuntimeError:
        cluster.stop(at_once=True)
        raise
    return cluster


def stop(directory: str | Path, *, at_once: bool = False) -> None:
    """Stop what `start` started in `directory` and is still running; `at_once` sends SIGKILL."""
    base = Path(directory).resolve()
    state = base / "peer.json"
    if not state.exists():
        return
    known = json.loads(state.read_text())
    for pid in _alive(base, known["pids"]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if at_once else signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while remaining := list(_alive(base, known["pids"])):
        if time.monotonic() > deadline:
            for pid in remaining:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    state.write_text(json.dumps({**known, "pids": []}))


def _alive(base: Path, pids: list[int]) -> Iterator[int]:
    """The ones that still run: our children, or Kafkas of `base`; a number may be another program by now."""
    for pid in pids:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                yield pid
            continue
        except ChildProcessError:  # started by an earlier run
            pass
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if str(base) in Path(f"/proc/{pid}/cmdline").read_text():
                yield pid


def _settings(cluster: Cluster, index: int, tiered: bool) -> dict[str, object]:
    clients, controller = cluster.ports[index]
    voters = (f"{i + 1}@127.0.0.1:{port}" for i, (_, port) in enumerate(cluster.ports))
    replicas = min(3, len(cluster.ports))
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": index + 1,
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{clients}",
        "log.dirs": cluster.data(index + 1),
        "offsets.topic.num.partitions": 8,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 8,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    if tiered:
        remote = "org.apache.kafka.server.log.remote"
        settings |= {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": f"{remote}.storage.LocalTieredStorage",
            "remote.log.metadata.manager.class.name": (
                f"{remote}.metadata.storage.TopicBasedRemoteLogMetadataManager"
            ),
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "remote.log.storage.manager.impl.prefix": "rsm.config.",
            "rsm.config.dir": cluster.directory / "tier",
            "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
            "rlmm.config.remote.log.metadata.topic.replication.factor": replicas,
            "rlmm.config.remote.log.metadata.topic.num.partitions": 5,
            "remote.log.manager.task.interval.ms": 1000,
            "log.initial.task.delay.ms": 1000,
            "log.retention.check.interval.ms": 1000,
        }
    return settings


def _format(
    cluster: Cluster,
    index: int,
    tiered: bool,
    settings: Mapping[str, object],
    format_args: Sequence[str],
) -> None:
    properties = cluster.directory / f"node-{index + 1}" / "server.properties"
    properties.parent.mkdir(exist_ok=True)
    rows = {**_settings(cluster, index, tiered), **settings}
    properties.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
    if not (cluster.data(index + 1) / "meta.properties").exists():
        tool("storage", "format", "-t", cluster.cluster_id, "-c", str(properties), *format_args)


def _await_answers(cluster: Cluster) -> None:
    deadline = time.monotonic() + _START_SECONDS
    for index, (port, _) in enumerate(cluster.ports):
        while not answers(port):
            gone, _ = os.waitpid(cluster.pids[index], os.WNOHANG)
            if gone or time.monotonic() > deadline:
                log = cluster.directory / f"node-{index + 1}" / "kafka.log"
                raise RuntimeError(f"Kafka did not come up:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)


def answers(port: int) -> bool:
    """True when an ApiVersions request of version 0 is answered."""
    request = b"\0\x12\0\0" + b"\0\0\0\x07" + b"\0\x04peer"
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(2)
            connection.sendall(len(request).to_bytes(4, "big") + request)
            return connection.recv(4)[:1] == b"\0"
    except OSError:
        return False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.peers.kafka")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("fetch")
    verbs.add_parser("schemas")
    one = verbs.add_parser("start")
    one.add_argument("directory")
    one.add_argument("--nodes", type=int, default=1)
    one.add_argument("--tiered", action="store_true")
    one.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    verbs.add_parser("stop").add_argument("directory")
    for verb in ("tool", "java"):
        one = verbs.add_parser(verb)
        one.add_argument("name")
        one.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def main() -> None:
    """Run one verb of the command line."""
    options = _parser().parse_args()
    if options.verb == "fetch":
        print(jars())
        class_archive()
    elif options.verb == "schemas":
        print(schemas())
    elif options.verb == "start":
        settings = dict(pair.split("=", 1) for pair in options.set)
        print(start(options.directory, options.nodes, settings, tiered=options.tiered).bootstrap)
    elif options.verb == "stop":
        stop(options.directory)
    else:
        name = TOOLS[options.name] if options.verb == "tool" else options.name
        files = ["--files"] if options.name == "dump" else []
        line = command(name, *files, *options.arguments)
        os.execvp(line[0], line)


if __name__ == "__main__":
    try:
        main()
    except PeerMissing as problem:
        sys.exit(f"NOT RUN: {problem}")
