"""A running cluster of Kafka's moves over to ours node by node, and back, as docs/MIGRATION.md says. WORLD.

Nothing is done here that the page does not say, and each command of its steps is used.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.mixed.reader import PATIENCE_S
from tests.mixed.replicas import SETTINGS, Replicas, Report
from tests.peers import kafka
from tests.peers.nodes import (
    AT_ZERO,
    BROKER,
    COMBINED,
    CONTROLLER,
    FEATURES_WE_LACK,
    FIRNLINE,
    KAFKA,
    Cluster,
    Node,
    eventually,
)
from tests.peers.quorum import await_leader

COMBINED_NODES = ((KAFKA, COMBINED),) * 3
NODES_OF_ONE_ROLE = (*((KAFKA, CONTROLLER),) * 3, *((KAFKA, BROKER),) * 3)
# As Kafka 4.3.1 formats a cluster; `--release-version 4.3` would raise kraft.version, too, which is for good.
AT_RELEASE = [
    word
    for name in FEATURES_WE_LACK
    for word in ("--feature", f"{name}.version={2 if name == 'transaction' else 1}")
]
# Nobody is killed here, so nobody need be missed soon: Kafka's times of the quorum. Not of sessions: its
# controllers let a broker in when the session of the process before it has ended, however that went.
_SETTINGS = {
    name: value for name, value in SETTINGS.items() if not name.startswith("controller.quorum.")
} | {"share.coordinator.state.topic.replication.factor": 3}


class _ByThePage(Replicas):
    """Waits and elects with the commands of the page."""

    def await_in_sync(self) -> None:
        def nothing_is_printed() -> bool:
            return not self.ask("topics", "--describe", "--under-replicated-partitions").strip()

        eventually("all copies are in sync", nothing_is_printed, within_s=PATIENCE_S)

    def elect(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.ask("leader-election", "--election-type", "preferred", "--all-topic-partitions")

    def await_metadata(self) -> None:
        wanted = self._quorum()["high_watermark"]

        def all_are_there() -> bool:
            return all(row["log_end_offset"] >= wanted for row in self._quorum()["replicas"])

        eventually(f"all nodes at offset {wanted}", all_are_there, within_s=PATIENCE_S)

    def ask(self, tool: str, *words: str) -> str:
        """Run one of Kafka's tools."""
        where = ("--bootstrap-server", self.cluster.bootstrap)
        return kafka.tool(tool, *where, *words, timeout_seconds=PATIENCE_S)

    def _quorum(self) -> dict[str, Any]:
        where = ("--bootstrap-server", self.cluster.bootstrap)
        found: dict[str, Any] = json.loads(
            _firnline("quorum", "status", *where, "--format", "json")
        )
        return found


class Migration:
    """Producers and a reader at a cluster that changes under them."""

    def __init__(self, directory: Path, members: Iterable[tuple[str, str]]) -> None:
        self.cluster = Cluster(directory, list(members), _SETTINGS, is_default=True)
        self.replicas = _ByThePage(self.cluster)
        self.report: Report = self.replicas.report

    def check_settings(self) -> None:
        """Ask about the quorum's kind, and our command about each node's file; that changes nothing."""
        reported = self.replicas.ask("features", "describe")
        (row,) = [
            line for line in reported.splitlines() if line.startswith("Feature: kraft.version")
        ]
        assert "FinalizedVersionLevel: 0" in row, row
        for node in self.cluster.nodes.values():
            words = ("format", "--ignore-formatted", "-t", self.cluster.cluster_id)
            _firnline("storage", *words, "-c", str(node.properties))

    def lower_features(self) -> None:
        self.replicas.ask("features", "downgrade", *AT_ZERO)

    def raise_features(self) -> None:
        self.replicas.ask("features", "upgrade", *AT_RELEASE)

    def to_ours(self) -> None:
        """Brokers first, then controllers, the active one last."""
        for node in [*self._brokers_alone(), *self._controllers()]:
            self.replicas.hand_over(node, FIRNLINE)

    def back(self) -> None:
        """The other way: controllers first."""
        for node in [*self._controllers(), *self._brokers_alone()]:
            self.replicas.hand_over(node, KAFKA)

    def _brokers_alone(self) -> list[Node]:
        return [node for node in self.cluster.brokers if node not in self.cluster.controllers]

    def _controllers(self) -> list[Node]:
        leader = await_leader(self.cluster, within_s=PATIENCE_S).leader
        return sorted(self.cluster.controllers, key=lambda node: node.node_id == leader)


def _firnline(*words: str) -> str:
    """Run our command and return what it printed."""
    return subprocess.run(
        [sys.executable, "-m", "firnline", *words], check=True, capture_output=True, text=True
    ).stdout


def run_migrations(directory: Path, rounds: int, seed: int) -> Report:
    """Move a cluster over and back so many times; nodes of one role each, or of both, in turn by `seed`."""
    members = COMBINED_NODES if seed % 2 else NODES_OF_ONE_ROLE
    migration = Migration(directory, members)
    with migration.replicas.running():
        migration.check_settings()
        for _ in range(rounds):
            migration.lower_features()
            migration.to_ours()
            migration.back()
            migration.raise_features()
    return migration.report
