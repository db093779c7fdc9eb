"""A running cluster of Kafka's moves over to ours node by node, and back, as docs/MIGRATION.md says. WORLD.

Nothing is done here that the page does not say, and each command of the page is used.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.mixed.reader import PATIENCE_S
from tests.mixed.replicas import SETTINGS, Replicas, Report
from tests.peers import kafka
from tests.peers.nodes import (
    AT_ZERO,
    BROKER,
    COMBINED,
    CONTROLLER,
    FIRNLINE,
    KAFKA,
    Cluster,
    Node,
)
from tests.peers.quorum import await_leader

COMBINED_NODES = ((KAFKA, COMBINED),) * 3
NODES_OF_ONE_ROLE = (*((KAFKA, CONTROLLER),) * 3, *((KAFKA, BROKER),) * 3)
RELEASE = "4.3"
# Nobody is killed here, so nobody need be missed soon: Kafka's times of the quorum and of sessions.
_SETTINGS = {
    name: value
    for name, value in SETTINGS.items()
    if not name.startswith("controller.quorum.") and name != "broker.session.timeout.ms"
} | {"share.coordinator.state.topic.replication.factor": 3}


class Migration:
    """Producers and a reader at a cluster that changes under them."""

    def __init__(self, directory: Path, members: Iterable[tuple[str, str]]) -> None:
        self.cluster = Cluster(directory, list(members), _SETTINGS, is_default=True)
        self.replicas = Replicas(self.cluster)
        self.report: Report = self.replicas.report

    def check_settings(self) -> None:
        """Ask our command about the settings and directories of each node; it changes nothing."""
        for node in self.cluster.nodes.values():
            words = ("storage", "format", "--ignore-formatted", "-t", self.cluster.cluster_id)
            subprocess.run(
                [sys.executable, "-m", "firnline", *words, "-c", str(node.properties)],
                check=True,
                capture_output=True,
            )

    def lower_features(self) -> None:
        self._features("downgrade", *AT_ZERO)

    def raise_features(self) -> None:
        self._features("upgrade", "--release-version", RELEASE)

    def _features(self, *words: str) -> None:
        kafka.tool(
            "features", "--bootstrap-server", self.cluster.bootstrap, *words, timeout_seconds=600
        )

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
