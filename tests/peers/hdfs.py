"""A real HDFS for tests: the NameNode and DataNodes of Apache Hadoop, by Maven. WORLD.

    python -m tests.peers.hdfs fetch        bring the jars (once, 65 MB)
    python -m tests.peers.hdfs start DIR    serve DIR until Ctrl-C; prints the URI

Needs Java (tried with 17) and, to bring the jars, Maven. The JVMs are set to start fast: not for benchmarks.
Everybody may do everything: it has no accounts.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from tests.peers.kafka import PeerMissing
from tests.peers.ports import free_ports
from tests.peers.servers import (
    Process,
    Server,
    cached,
    http_answer,
    kept_ports,
    main,
    run_or_missing,
)

VERSION = "3.4.3"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_FLAGS = (
    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    *("-Djava.net.preferIPv4Stack=true", "--add-opens=java.base/java.lang=ALL-UNNAMED"),
)
# With a single one a client that closes a file waits half a second, because it asks too early.
_DATANODES = 3
_START_SECONDS = 90
_LOGGING = """\
log4j.rootLogger=INFO,e
log4j.appender.e=org.apache.log4j.ConsoleAppender
log4j.appender.e.target=System.err
log4j.appender.e.layout=org.apache.log4j.PatternLayout
log4j.appender.e.layout.ConversionPattern=[%d] %p %m (%c{1})%n
"""


def fetch() -> Path:
    """Return the folder of the jars; bring them first where it is missing. Raises PeerMissing."""
    if shutil.which("java") is None:
        raise PeerMissing("java is not on the PATH")
    return cached(f"hadoop-hdfs-{VERSION}", _resolve)


def start(directory: Path) -> Server:
    """Serve `directory`, formatted if it is new; return when files can be written. Raises PeerMissing."""
    jars = fetch()
    base = directory.resolve()
    rpc, http, *rest = kept_ports(base, lambda: free_ports(2 + 3 * _DATANODES))
    _configure(base, rpc, http)
    if not (base / "namenode" / "current" / "VERSION").exists():
        line = _java(base, jars, _NAMENODE, "-format", "-nonInteractive")
        done = subprocess.run(line, cwd=base, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the NameNode could not be formatted:\n{done.stderr[-2000:]}")
    namenode = Process(_java(base, jars, _NAMENODE), base / "namenode.log")
    nodes = list(zip(rest[::3], rest[1::3], rest[2::3]))
    processes = [namenode]
    for number, ports in enumerate(nodes, 1):
        name = f"datanode-{number}"
        own = _own_settings(base / name, *ports)
        processes.append(Process(_java(base, jars, _DATANODE, *own), base / f"{name}.log"))
    server = Server(
        base,
        f"hdfs://127.0.0.1:{rpc}/tier",
        {},
        processes,
        lambda: _is_ready(http, [node[1] for node in nodes], namenode),
        start_seconds=_START_SECONDS,
    )
    server.start()
    return server


def _resolve(work: Path) -> Path:
    if shutil.which("mvn") is None:
        raise PeerMissing("mvn is not on the PATH")
    rows = "".join(
        f"<dependency><groupId>org.apache.hadoop</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{VERSION}</version></dependency>"
        for artifact in ("hadoop-common", "hadoop-hdfs", "hadoop-hdfs-client")
    )
    (work / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>peer</groupId><artifactId>peer</artifactId><version>1</version>"
        f"<dependencies>{rows}</dependencies></project>"
    )
    options = ["-DoutputDirectory=jars", "-DincludeScope=runtime"]
    run_or_missing(["mvn", "-q", "-B", "-C", _COPY, *options], f"Apache Hadoop {VERSION}", work)
    for console in ("hdfs", "datanode"):  # both look for their web pages, which no jar has
        (work / "jars" / "webapps" / console).mkdir(parents=True)
    return work / "jars"


def _java(base: Path, jars: Path, *args: str) -> list[str]:
    return ["java", *_FLAGS, "-cp", f"{base / 'conf'}:{jars}:{jars}/*", *args]


def _own_settings(folder: Path, data: int, http: int, ipc: int) -> list[str]:
    """Return the arguments of a DataNode for what the others do not share."""
    return [
        f"-Ddfs.datanode.data.dir={folder.as_uri()}",
        f"-Ddfs.datanode.address=127.0.0.1:{data}",
        f"-Ddfs.datanode.http.address=127.0.0.1:{http}",
        f"-Ddfs.datanode.ipc.address=127.0.0.1:{ipc}",
    ]


def _configure(base: Path, rpc: int, http: int) -> None:
    settings: dict[str, object] = {
        "fs.defaultFS": f"hdfs://127.0.0.1:{rpc}",
        "hadoop.tmp.dir": base / "tmp",
        "dfs.namenode.rpc-address": f"127.0.0.1:{rpc}",
        "dfs.namenode.http-address": f"127.0.0.1:{http}",
        "dfs.namenode.name.dir": (base / "namenode").as_uri(),
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": 0,
        "dfs.namenode.heartbeat.recheck-interval": 1000,
        "dfs.heartbeat.interval": 1,
        "dfs.replication": _DATANODES,
        "dfs.permissions.enabled": "false",
        "ipc.client.connect.retry.interval": 200,
        "ipc.client.connect.max.retries": 300,
    }
    rows = "".join(
        f"<property><name>{key}</name><value>{escape(str(value))}</value></property>\n"
        for key, value in settings.items()
    )
    (base / "conf").mkdir(exist_ok=True)
    for name in ("core-site.xml", "hdfs-site.xml"):
        (base / "conf" / name).write_text(f"<configuration>\n{rows}</configuration>\n")
    (base / "conf" / "log4j.properties").write_text(_LOGGING)


def _is_ready(http: int, datanodes: Sequence[int], namenode: Process) -> bool:
    """True if each DataNode has reported to this run of the NameNode, and that one has left safe mode."""
    age_s = time.monotonic() - namenode.began_s
    for port in datanodes:
        bean = _bean(port, "DataNode,name=DataNodeInfo")
        reports = json.loads(bean.get("BPServiceActorInfo", "[]"))
        if not any(
            each["ActorState"] == "RUNNING" and int(each["LastBlockReport"]) <= age_s
            for each in reports
        ):
            return False
    info = _bean(http, "NameNode,name=NameNodeInfo")
    live = json.loads(info.get("LiveNodes", "{}"))
    return info.get("Safemode") == "" and len(live) == len(datanodes)


def _bean(port: int, name: str) -> dict[str, str]:
    """Return one of the management beans of a process; empty while it does not answer."""
    answer = http_answer(f"http://127.0.0.1:{port}/jmx?qry=Hadoop:service={name}")
    return dict((json.loads(answer)["beans"] or [{}])[0]) if answer else {}


if __name__ == "__main__":
    main("hdfs", fetch, start)
