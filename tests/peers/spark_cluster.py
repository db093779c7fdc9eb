"""A standalone cluster of Spark: a master and two workers, as processes, and jobs that are sent to it. WORLD.

    with SparkCluster(folder) as cluster:
        cluster.submit(job, environment, "argument")

Each worker has a directory of its own, and an environment in which nothing names the source tree: what an
executor imports was brought there, by `environment` or by `packed`. All listen on 127.0.0.1.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import pyspark

from firnline.spark.session import java_home
from tests.peers.ports import free_ports
from tests.peers.servers import run_or_missing

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 180
_STOP_SECONDS = 20
_JOB_SECONDS = 600
# The JVMs live for seconds: they are to start fast.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
WORKERS = 2


def lean_spark(folder: Path) -> Path:
    """Make a SPARK_HOME whose Python code is that of the environments, and not a zip; return it.

    Nothing in a zip is kept compiled: each process of Python would need most of a second more.
    """
    home = folder / "spark"
    (home / "python" / "lib").mkdir(parents=True)
    for path in SPARK_HOME.iterdir():
        if path.name != "python":
            (home / path.name).symlink_to(path)
    for path in (SPARK_HOME / "python" / "lib").glob("py4j*"):
        (home / "python" / "lib" / path.name).symlink_to(path)
    return home


def clean_environment(folder: Path, spark: Path, **more: str) -> dict[str, str]:
    """Return the environment of a machine that has Java and Spark, and nothing of ours."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "JAVA_HOME": java_home(),
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": _JVM,
        **more,
    }


class SparkCluster:
    """A master and WORKERS workers of one core each. Leaving it as a context manager stops all by pid."""

    def __init__(self, folder: Path, environment: Mapping[str, str] = {}) -> None:
        """Start the master. `environment` is what the machines have besides."""
        self.folder, self._environment = folder, environment
        self.spark = lean_spark(folder)
        master, self._page, self.connect_port = free_ports(3)
        self.url = f"spark://127.0.0.1:{master}"
        self._master = self._start(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", str(master), "--webui-port", str(self._page)),
        )
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self.add_workers()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def add_workers(self) -> None:
        """Start workers until there are WORKERS, and wait until the master counts them."""
        for number in range(1, WORKERS + 1):
            name = f"worker-{number}"
            if name not in self.workers or self.workers[name].poll() is not None:
                own = self.folder / name / "work"
                self.workers[name] = self._start(
                    name,
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g"),
                    *("--webui-port", "0", "--work-dir", str(own), self.url),
                )
        deadline = time.monotonic() + _START_SECONDS
        while self._alive() < WORKERS:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no {WORKERS} workers in {_START_SECONDS} s: {self.said()}")
            time.sleep(0.1)

    def kill(self, name: str) -> None:
        """Kill a worker and its executors, as a machine that loses its power does."""
        worker = psutil.Process(self.workers[name].pid)
        for process in [worker, *worker.children(recursive=True)]:
            if process.is_running():
                process.send_signal(signal.SIGKILL)
        self.workers[name].wait()

    def stop(self) -> None:
        """Stop what runs: the workers end their executors."""
        running = [*self.workers.values(), self._master]
        for process in running:
            if process.poll() is None:
                process.terminate()
        for process in running:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def said(self) -> str:
        """Return what master, workers and executors have written, to the log or to stderr."""
        logs = [*self.folder.glob("*/log"), *self.folder.rglob("std*")]
        return "\n".join(path.read_text(errors="replace") for path in sorted(logs))

    def page(self, path: str = "json/") -> str:
        """Return a page of the master."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self._page}/{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def command(self, program: str, *words: str, confs: Mapping[str, str] = {}) -> list[str]:
        """Return a command of Spark's that uses this cluster, with settings for short jobs."""
        common = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.extraJavaOptions": _JVM,
            "spark.executor.extraJavaOptions": _JVM,
        } | dict(confs)
        settings = [word for key in common for word in ("--conf", f"{key}={common[key]}")]
        return [str(self.spark / "bin" / program), "--master", self.url, *settings, *words]

    def submit(
        self,
        job: Path,
        *arguments: str,
        folder: Path,
        environment: Mapping[str, str],
        options: Sequence[str] = (),
        confs: Mapping[str, str] = {},
    ) -> "Job":
        """Send a job with spark-submit; its driver runs in `folder`, which gets a copy of `job` alone."""
        folder.mkdir(parents=True, exist_ok=True)
        copy = Path(shutil.copy(job, folder))
        command = self.command("spark-submit", *options, str(copy), *arguments, confs=confs)
        return Job(command, folder, clean_environment(folder, self.spark, **environment))

    def connect_server(self, folder: Path, environment: Mapping[str, str]) -> "Job":
        """Start a server of Spark Connect on this cluster; return when it listens at `connect_port`."""
        folder.mkdir(parents=True, exist_ok=True)
        port = {"spark.connect.grpc.binding.port": str(self.connect_port)}
        # Without a file of Spark's own there is nothing to submit but a class of its jars.
        main = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer")
        command = self.command("spark-submit", *main, "spark-internal", confs=port)
        server = Job(command, folder, clean_environment(folder, self.spark, **environment))
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.connect_port), 1).close()
                return server
            if server.process.poll() is not None or time.monotonic() > deadline:
                server.stop()
                raise RuntimeError(f"no server of Spark Connect: {server.log.read_text()[-4000:]}")
            time.sleep(0.1)

    def _alive(self) -> int:
        try:
            found: dict[str, Any] = json.loads(self.page())
        except (OSError, ValueError):
            return 0
        return int(found["aliveworkers"])

    def _start(self, name: str, main: str, *words: str) -> subprocess.Popen[bytes]:
        own = self.folder / name
        own.mkdir(parents=True, exist_ok=True)
        with (own / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self.spark / "bin" / "spark-class"), main, *words],
                cwd=own,
                env=clean_environment(own, self.spark, **self._environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


class Job:
    """A process that uses the cluster; what it prints is in `log`."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> str:
        """Wait for the end; return what it printed. Raises RuntimeError with that if it failed."""
        try:
            code = self.process.wait(_JOB_SECONDS)
        finally:
            self.stop()
        if code:
            raise RuntimeError(f"a job ended with {code}:\n{self.log.read_text()[-6000:]}")
        return self.log.read_text()

    def stop(self) -> None:
        """End it, if it runs."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this source tree, from a copy. Raises PeerMissing if pip cannot."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    for package in ("firnline", "pyspark_firnline"):
        shutil.copytree(
            ROOT / "src" / package,
            tree / "src" / package,
            ignore=shutil.ignore_patterns("__pycache__", "*.so"),
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(tree)]
    run_or_missing(pip, "the build of a wheel", folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(folder: Path, *modules: str, wheel: Path | None = None) -> Path:
    """Make a virtual environment, with a wheel; return its Python.

    Its dependencies are those of the Python that runs this, which lines in a .pth file add: to install them
    again would take a minute. `modules` are further ones, which may be elsewhere.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps"]
    if wheel is not None:
        # A PYTHONPATH with the source tree, which a Spark session of this process has set, makes pip believe
        # that the wheel is installed already.
        clean = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([*pip, "--no-index", str(wheel)], check=True, cwd=folder, env=clean)
    (site,) = (folder / "lib").glob("python*/site-packages")
    places = [find_spec(module) for module in modules]
    lines = [sysconfig.get_path("purelib")]
    lines += [str(Path(each.origin).parents[1]) for each in places if each and each.origin]
    (site / "dependencies.pth").write_text("".join(f"{line}\n" for line in dict.fromkeys(lines)))
    return python


def packed(environment: Path, archive: Path) -> Path:
    """Pack a virtual environment as `venv-pack` does, for `--archives`; return the archive.

    The Python in it is a link to that of the machine, as there.
    """
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(environment, arcname=".")
    return archive
