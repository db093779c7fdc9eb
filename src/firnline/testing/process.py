"""What a broker and a cluster for tests share: the process `firnline dev`, its files and its topics. WORLD.

The process belongs to the one that started it, and ends with it (`serve.py`). A process that was forked off
has the object too, but may not stop the broker, and does not keep it alive. Imports only the standard library
before a test uses it.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from firnline.testing.topic import Topic

TOPIC_CHARS_MAX = 200  # Kafka allows 249: room for what makes a name unique
LOG_LINES = 20
_SERVE = ("-m", "firnline.testing.serve")
_children: "weakref.WeakSet[subprocess.Popen[str]]" = weakref.WeakSet()


class Died(Exception):
    """A broker, or a node of a cluster, ended although the test did not ask it to."""


class DevProcess(ABC):
    """A `firnline dev` process. Use it as a context manager, or call `start` and `close`.

    directory  of the data; it is kept. None: a temporary one, which `close` removes
    tier       a directory, or the URI of a store
    settings   keys of a broker, such as {"num.partitions": 3}
    options    further options of `firnline dev`
    """

    what = "broker"

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        tier: str | os.PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self._given = None if directory is None else Path(directory)
        self._temporary: Path | None = None
        self._log: Path | None = None
        self.tier = tier
        pairs = (f"{name}={setting_text(value)}" for name, value in (settings or {}).items())
        self.options = (*(word for pair in pairs for word in ("-X", pair)), *options)
        self.process: subprocess.Popen[str] | None = None
        self._owner = os.getpid()

    # ---------------------------------------------------------------------------- files

    @property
    def directory(self) -> Path:
        """The directory of the data."""
        if self._given is not None:
            return self._given
        if self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="firnline-test-"))
            # For a broker that was killed and never closed.
            weakref.finalize(self, _remove, self._temporary, os.getpid())
        return self._temporary / "data"

    @property
    def log_file(self) -> Path:
        """The file of what the process writes to stderr; beside the directory, unless it was set."""
        return self._log or self.directory.with_name(self.directory.name + ".log")

    @log_file.setter
    def log_file(self, path: Path) -> None:
        self._log = path

    def log_text(self) -> str:
        """Return what the process has written to stderr."""
        return self.log_file.read_text(errors="replace")

    def logs(self) -> dict[str, Path]:
        """Return the log files, by what they are of."""
        return {self.what: self.log_file}

    # ---------------------------------------------------------------------------- the process

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Address for clients, `host:port`; those of several nodes are separated by commas."""

    @abstractmethod
    def start(self) -> None:
        """Start the process and wait until it serves clients. Raises RuntimeError with the log."""

    @abstractmethod
    def stop(self) -> int:
        """Ask the process to stop, as SIGTERM does, and return its exit code."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the process at once, as a crash does; what was synced is on the disk."""

    def restart(self) -> None:
        """Stop and start with the same ports and directory."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the process if it runs, and remove its directory if that is a temporary one."""
        self._refuse_others()
        if self.process is not None:
            self.stop()
        if self._temporary is not None:
            _remove(self._temporary, self._owner)
            self._temporary = None

    def death(self) -> str | None:
        """Say what ended although nobody asked it to, with its last log lines; None: all runs."""
        code = None if self.process is None else self.process.poll()
        if code is None:
            return None
        how = (
            f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        )
        return f"the {self.what} at {self.bootstrap} {how}. {last_words(self.log_file)}"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if os.getpid() != self._owner:
            return
        died = self.death()
        if problem is not None:
            problem.add_note(died or "\n".join(map(last_words, self.logs().values())))
        self.close()
        if died and problem is None:
            raise Died(died)

    def __getstate__(self) -> object:
        raise TypeError(
            f"a {self.what} stays with its process: pass its `bootstrap` to another one"
        )

    # ---------------------------------------------------------------------------- topics

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        **configs: object,
    ) -> "Topic":
        """Create a topic, and return it when every broker knows its leaders. Raises KafkaError.

        name     None: one that no other topic has
        configs  its settings, with underscores for dots: cleanup_policy="compact"

        The topic is a str, its name: give it to any client.
        """
        from firnline.client.admin import Admin
        from firnline.testing.topic import Topic, await_leaders

        topic = Topic(name if name is not None else unique_name("topic"), self.bootstrap)
        wanted = {key.replace("_", "."): setting_text(value) for key, value in configs.items()}
        with Admin(self.bootstrap) as admin:
            admin.create_topic(
                topic,
                partitions=partitions,
                replication_factor=-1 if replication_factor is None else replication_factor,
                configs=wanted,
            )
            await_leaders(admin, topic)
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises KafkaError."""
        from firnline.client.admin import Admin

        with Admin(self.bootstrap) as admin:
            admin.delete_topic(str(name))

    # ---------------------------------------------------------------------------- internal

    def _launch(self, *words: str) -> subprocess.Popen[str]:
        assert self.process is None, f"the {self.what} is running"
        self._owner = os.getpid()
        command = ["dev", *words, "--dir", str(self.directory)]
        if self.tier is not None:
            command += ["--tier", os.fspath(self.tier)]
        with self.log_file.open("a") as log:
            self.process = spawn([*command, *self.options], log.fileno(), removed=self._temporary)
        return self.process

    def _released(self) -> subprocess.Popen[str]:
        """Return the process, which is about to be ended."""
        self._refuse_others()
        assert self.process is not None, f"the {self.what} is not running"
        process, self.process = self.process, None
        return process

    def _refuse_others(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"the {self.what} belongs to process {self._owner}, which started it"
            )


# ------------------------------------------------------------------------------------- processes


def spawn(
    command: Sequence[str],
    stderr: int,
    *,
    stdout: int = subprocess.PIPE,
    removed: Path | None = None,
) -> "subprocess.Popen[str]":
    """Start `firnline` with this command line as a child that ends with us, and then removes a directory."""
    words = [] if removed is None else ["--remove", str(removed)]
    process = subprocess.Popen(
        [sys.executable, *_SERVE, *words, *command],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        text=True,
        # Ctrl-C in the terminal is for the test process, which stops the broker.
        process_group=0,
        # A click.py in the working directory is the user's.
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )
    _children.add(process)
    return process


def end(process: "subprocess.Popen[str]", within_s: float) -> int:
    """Wait for a process that was told to end, kill it after a while, and return its exit code."""
    try:
        code = process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    return code


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that was forked off
        shutil.rmtree(directory, ignore_errors=True)


def next_line(process: "subprocess.Popen[str]", within_s: float) -> str:
    """Return the next line of a process; an empty one when it has ended."""
    assert process.stdout is not None
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        # A signal may interrupt it.
        readable, _, _ = select.select([process.stdout], [], [], 0.5)
        if readable:
            return process.stdout.readline()
    return f"nothing within {within_s:.0f} s"


def has_ended(pid: int) -> bool:
    """Say whether a process is gone, or has ended and was not waited for."""
    try:
        return ") Z" in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it ended before the file was opened, or read
        return True


def _forget_children() -> None:
    """Close the pipes in a process that was forked off: else it would keep brokers alive."""
    for process in _children:
        if process.stdin is not None:
            process.stdin.close()


os.register_at_fork(after_in_child=_forget_children)


# ------------------------------------------------------------------------------------- texts


def last_lines(path: Path, count: int = LOG_LINES, *, position: int = 0) -> str:
    """Return the last lines of a file, of what is behind `position`."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    left = len(lines) - count
    return "\n".join([f"... {left} lines before", *lines[-count:]] if left > 0 else lines)


def last_words(path: Path) -> str:
    """Return the last lines of a log as a sentence."""
    said = last_lines(path)
    return f"The last lines of {path}:\n{said}" if said else f"Its log, {path}, is empty."


def setting_text(value: object) -> str:
    """Return a setting as Kafka writes it: True is `true`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def unique_name(like: str) -> str:
    """Return a topic name that nobody else has: what Kafka allows of `like`, and a random end."""
    legal = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in like)
    return f"{legal[:TOPIC_CHARS_MAX].strip('-.') or 'topic'}-{uuid.uuid4().hex[:8]}"
