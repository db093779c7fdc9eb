"""A cluster for tests: nodes to kill, stop and start again. WORLD.

Imports only the standard library before a test uses it.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from firnline.testing.process import (
    DevProcess,
    end,
    has_ended,
    last_words,
    next_line,
    spawn,
)

T = TypeVar("T")
START_S = 150.0
STOP_S = 60.0
_NODE = re.compile(r"node (\d+) at 127\.0\.0\.1:(\d+), pid (\d+),")


class Cluster(DevProcess):
    """A `firnline dev --nodes` process and its nodes, numbered from 1; all of them are brokers.

    A node that was killed or stopped keeps its directory and its port: `start_node` resumes with both. The
    arguments are those of `DevProcess`.
    """

    what = "cluster"

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        nodes: int = 3,
        tier: str | os.PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, tier=tier, settings=settings, options=options)
        self.node_ids = tuple(range(1, nodes + 1))
        self._ports: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._again: dict[int, subprocess.Popen[str]] = {}  # nodes that were started again

    @property
    def bootstrap(self) -> str:
        """Addresses of all nodes for clients, separated by commas."""
        return ",".join(f"127.0.0.1:{self._ports[node_id]}" for node_id in self.node_ids)

    def port(self, node_id: int) -> int:
        """The port on which a node serves clients."""
        return self._ports[node_id]

    def pid(self, node_id: int) -> int:
        """The process id of a running node."""
        return self._pids[node_id]

    def is_running(self, node_id: int) -> bool:
        """Whether the node's process exists."""
        return node_id in self._pids and not has_ended(self._pids[node_id])

    # ---------------------------------------------------------------------------- the cluster

    def start(self) -> None:
        """Start all nodes and wait until each serves clients and knows the others; keeps the data.

        Raises RuntimeError with the log if they do not start.
        """
        process = self._launch("--port", "0", "--nodes", str(len(self.node_ids)))
        while "ready at " not in (line := next_line(process, START_S)):
            found = _NODE.search(line)
            if found is None:
                self.kill()
                raise RuntimeError(f"firnline dev did not start: {line!r}\n{self.log_text()}")
            node_id, port, pid = map(int, found.groups())
            self._ports[node_id], self._pids[node_id] = port, pid

    def stop(self) -> int:
        """Stop all nodes in order and return the exit code of `firnline dev`."""
        process = self._released()
        for each in (process, *self._again.values()):
            each.terminate()
        return self._end(process, STOP_S)

    def kill(self) -> None:
        """Kill every node at once, as a power cut would; what was synced is on the disk."""
        process = self._released()
        for node_id in self.node_ids:
            if self.is_running(node_id):
                os.kill(self._pids[node_id], signal.SIGKILL)
        process.kill()
        self._end(process, STOP_S)

    def log_text(self, node_id: int | None = None) -> str:
        """Return a node's log, or, for None, the stderr of `firnline dev`."""
        if node_id is None:
            return super().log_text()
        return self._log_of(node_id).read_text(errors="replace")

    def logs(self) -> dict[str, Path]:
        """Return the log files, by what they are of."""
        nodes = {f"node {node_id}": self._log_of(node_id) for node_id in self.node_ids}
        return super().logs() | nodes

    def death(self) -> str | None:
        """Say which node ended although nobody asked it to, with its last log lines; None: all run."""
        found = super().death()
        if found is not None or self.process is None:
            return found
        for node_id, pid in self._pids.items():
            if has_ended(pid):
                return (
                    f"node {node_id} ended. {last_words(self._log_of(node_id))}\n{self.log_text()}"
                )
        return None

    # ---------------------------------------------------------------------------- one node

    def kill_node(self, node_id: int) -> None:
        """Kill a node (kill -9), and return when it is gone."""
        self._signal(node_id, signal.SIGKILL)

    def stop_node(self, node_id: int) -> None:
        """Make a node hand over and stop, and return when it is gone."""
        self._signal(node_id, signal.SIGTERM)

    def start_node(self, node_id: int) -> None:
        """Start a node that was killed or stopped, and wait until it serves clients again."""
        assert not self.is_running(node_id), f"node {node_id} is running"
        self._refuse_others()
        path = self._log_of(node_id).with_name("server.properties")
        with self._log_of(node_id).open("ab") as log:
            process = spawn(
                ["server", "-c", str(path)],
                log.fileno(),
                stdout=log.fileno(),
                removed=self._temporary,
            )
        self._again[node_id] = process
        self._pids[node_id] = process.pid
        _eventually(f"node {node_id} serves clients", lambda: self._serves(node_id))

    def _serves(self, node_id: int) -> bool:
        from firnline.client.connection import Connection

        if self._again[node_id].poll() is not None:
            raise RuntimeError(f"node {node_id} ended:\n{self.log_text(node_id)[-2000:]}")
        with Connection("127.0.0.1", self._ports[node_id], timeout_s=2.0) as node:
            return bool(node.spoken())

    # ---------------------------------------------------------------------------- leaders and replicas

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition; waits while there is none."""
        from firnline.client.admin import Admin

        def look() -> int:
            with Admin(self.bootstrap, timeout_s=5.0) as admin:
                (found,) = admin.metadata([topic]).topics
            leaders = {part.partition_index: part.leader_id for part in found.partitions}
            return max(0, int(leaders[partition]))

        return _eventually(f"{topic}-{partition} has a leader", look)

    def await_in_sync(self, *topics: str) -> None:
        """Wait until every replica of these topics, or of all topics, is in its ISR."""
        from firnline.client.admin import Admin
        from firnline.client.cluster import describe_topics

        def look() -> bool:
            with Admin(self.bootstrap, timeout_s=5.0) as admin:
                found = describe_topics(admin, topics or None)
            return all(part.is_complete for topic in found for part in topic.partitions)

        _eventually("every replica is in sync", look)

    # ---------------------------------------------------------------------------- internal

    def _signal(self, node_id: int, number: signal.Signals) -> None:
        assert self.is_running(node_id), f"node {node_id} is not running"
        self._refuse_others()
        pid = self._pids.pop(node_id)
        os.kill(pid, number)
        again = self._again.pop(node_id, None)
        if again is not None:
            end(again, STOP_S)
            return
        deadline = time.monotonic() + STOP_S
        while not has_ended(pid):
            assert time.monotonic() < deadline, f"node {node_id} did not stop"
            time.sleep(0.01)

    def _log_of(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}" / "server.log"

    def _end(self, process: "subprocess.Popen[str]", within_s: float) -> int:
        code = end(process, within_s)
        for each in self._again.values():
            end(each, within_s)
        self._again.clear()
        self._pids.clear()
        return code


def _eventually(what: str, look: Callable[[], T]) -> T:
    """Return the first true result; a node that does not answer counts as false."""
    from firnline.base.errors import FirnlineError

    deadline = time.monotonic() + START_S
    problem: FirnlineError | None = None
    while time.monotonic() < deadline:
        try:
            found = look()
        except FirnlineError as last:
            problem = last
        else:
            if found:
                return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {START_S:.0f} s; {problem or ''}")
