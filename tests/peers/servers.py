"""Servers of object stores in processes of their own: started, killed, started again. WORLD.

`s3.py`, `azurite.py` and `hdfs.py` make them. They listen on 127.0.0.1 only, on free ports that they keep.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.peers.kafka import PeerMissing, cache
from tests.peers.stopped import stop_at_once

_STOP_SECONDS = 20
# What would bring in the settings of another server, or of a JVM that is not ours.
_FOREIGN = ("VGW_", "ROOT_", "AZURITE_", "HADOOP_", "JAVA_TOOL_", "JDK_JAVA_", "CLASSPATH", "AWS_")


class Process:
    """One process of a server; what it prints goes to `log`."""

    def __init__(
        self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] = {}
    ) -> None:
        self.log = log
        self.began_s = 0.0  # by the monotonic clock
        self._command = [str(word) for word in command]
        own = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        self._environment = {**own, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it never ran"
        return self._process.pid

    def start(self) -> None:
        assert not self.is_running, "it runs"
        self.began_s = time.monotonic()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.log.parent,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def send(self, number: signal.Signals) -> None:
        """Send the signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def pause(self) -> None:
        """Let it hang, if it runs."""
        if self._process is not None:
            stop_at_once(self._process.pid)

    def end(self, number: signal.Signals) -> None:
        """Send the signal, and wait until the process is gone."""
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Server:
    """A server of an object store, made by `start` of its module; leaving it as a context manager stops it.

    uri, settings  those of `firnline.stores.registry.open_store`
    is_ready       whether it answers
    """

    def __init__(
        self,
        directory: Path,
        uri: str,
        settings: Mapping[str, str],
        processes: Sequence[Process],
        is_ready: Callable[[], bool],
        *,
        start_seconds: float,
    ) -> None:
        self.directory = directory
        self.uri = uri
        self.settings = dict(settings)
        self.processes = list(processes)
        self._is_ready = is_ready
        self._start_seconds = start_seconds

    def start(self) -> None:
        """Start what does not run, and wait until it answers. Raises RuntimeError with the end of a log."""
        try:
            for process in self.processes:
                if not process.is_running:
                    process.start()
            self._await_answer()
        except BaseException:
            self.kill()
            raise

    def _await_answer(self) -> None:
        deadline = time.monotonic() + self._start_seconds
        while not self._is_ready():
            dead = [each for each in self.processes if not each.is_running]
            if dead or time.monotonic() > deadline:
                said = (dead or self.processes)[0].log.read_text(errors="replace")[-2000:]
                raise RuntimeError(f"no server at {self.uri}:\n{said}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End all processes at once, as a crash does."""
        for process in self.processes:
            process.end(signal.SIGKILL)

    def pause(self) -> None:
        """Let all processes hang, until `resume`."""
        for process in self.processes:
            process.pause()

    def resume(self) -> None:
        """Let them go on."""
        for process in self.processes:
            process.send(signal.SIGCONT)

    def restart(self) -> None:
        """Start again on the same ports with what was stored; kill first what runs."""
        self.kill()
        self.start()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.send(signal.SIGTERM)
        for process in self.processes:
            process.end(signal.SIGTERM)


def kept_ports(directory: Path, choose: Callable[[], list[int]]) -> list[int]:
    """Return the ports that an earlier run in `directory` had, else chosen ones, which it will have again."""
    directory.mkdir(parents=True, exist_ok=True)
    kept = directory / "ports.json"
    if not kept.exists():
        kept.write_text(json.dumps(choose()))
    return list(json.loads(kept.read_text()))


def http_answer(url: str) -> bytes | None:
    """Return the body of the answer 200; None for another one, or none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as answer:
            return bytes(answer.read()) if answer.status == 200 else None
    except (OSError, ValueError):
        return None


def run_or_missing(
    line: Sequence[str | Path],
    what: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a command in `folder` that brings something; PeerMissing with the end of its output if it fails."""
    print(f"fetching {what}", file=sys.stderr)
    done = subprocess.run(
        [str(word) for word in line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode:
        raise PeerMissing(f"could not bring {what}: {done.stdout[-1000:]}")


def cached(name: str, make: Callable[[Path], Path]) -> Path:
    """Return the entry `name` of the cache; `make` brings it in a work folder where it is missing.

    It appears whole or not at all, so two runs at a time do no harm.
    """
    target = cache() / name
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache()) as work:
            made = make(Path(work))
            with contextlib.suppress(OSError):  # another run may have put it there first
                made.rename(target)
    return target


def main(
    name: str, fetch: Callable[[], object], start: Callable[[Path], Server] | None = None
) -> None:
    """Run one verb of the command line of `tests.peers.NAME`: fetch; start, until Ctrl-C or SIGTERM.

    `start` is None for what is no server.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.peers.{name}")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("fetch")
    if start is not None:
        verbs.add_parser("start").add_argument("directory", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.verb == "fetch" or start is None:
            print(fetch())
            return
        with start(options.directory) as server:
            print(server.uri, *options_of(server.settings), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return
    except PeerMissing as problem:
        sys.exit(f"NOT RUN: {problem}")


def options_of(settings: Mapping[str, str]) -> list[str]:
    """Return the settings of a store as options of `firnline`."""
    pairs = (f"rsm.config.store.{key}={value}" for key, value in settings.items())
    return [word for pair in pairs for word in ("-X", pair)]
