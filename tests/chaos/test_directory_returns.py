"""A log directory is taken from under a broker, and comes back: the right one, an old copy, or long after.

Real processes. Records go on all the while; in the end each is there once, on every replica.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.replicas import SETTINGS
from tests.chaos.workload import PATIENCE_S, SILENT, Workload, read_all, violations
from tests.dashboards import page
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, Cluster, Node, eventually
from tests.peers.ports import free_ports
from tests.peers.topics import await_partitions, is_complete

pytestmark = pytest.mark.slow
TOPIC, PARTITIONS = "returns", 6
_FAILED = "a log directory failed and is out of use"


class Two:
    """A cluster of three brokers, of which the first has the directories `first` and `second`."""

    def __init__(self, base: Path, cluster: Cluster) -> None:
        self.base, self.cluster = base, cluster
        self.node: Node = cluster[2]
        self.first, self.second = self.node.data, self.node.base / "second"
        self.away = base / "away"
        [self.metrics_port] = free_ports(1)
        self.node.settings |= {
            "log.dirs": f"{self.first},{self.second}",
            "firnline.metrics.port": self.metrics_port,
            "replica.high.watermark.checkpoint.interval.ms": 1000,
        }

    def failed(self) -> float:
        """The metric of log directories that have failed."""
        name = "kafka_log_logmanager_offlinelogdirectorycount"
        return next(each.value for each in page(self.metrics_port) if each.name == name)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "firnline", *words, "-b", self.cluster.bootstrap]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)

    def lose(self) -> None:
        """Move the second directory away under the broker."""
        before = self.node.log_text().count(_FAILED)
        self.second.rename(self.away)
        eventually(
            "it is noticed",
            lambda: self.node.log_text().count(_FAILED) > before,
            within_s=PATIENCE_S,
        )
        assert self.failed() == 1
        said = self.run("cluster", "status")
        assert said.returncode == 3
        assert f"the log directory {self.second} has failed" in said.stdout
        assert "stop this node, mount the disk, or put the directory back" in said.stdout
        found = self.run("doctor", "--watch", "0").stdout
        assert "directory-offline" in found

    def await_well(self, admin: AdminClient) -> None:
        await_partitions(admin, TOPIC, PARTITIONS, is_complete)
        eventually(
            "all is well",
            lambda: self.run("cluster", "status", "--brokers", "3").returncode == 0,
            within_s=PATIENCE_S,
        )
        assert self.failed() == 0

    def copies(self, partition: int) -> list[bytes]:
        """The bytes of each replica; one that lies in two directories is there twice."""
        name = f"{TOPIC}-{partition}"
        places = [node.data for node in self.cluster.brokers] + [self.second]
        logs = [sorted((at / name).glob("*.log")) for at in places if (at / name).exists()]
        return [b"".join(path.read_bytes() for path in files) for files in logs]

    def are_equal(self) -> bool:
        found = [self.copies(partition) for partition in range(PARTITIONS)]
        return all(len(each) == 3 and len(set(each)) == 1 for each in found)


def test_no_record_is_lost_with_a_directory_that_was_away(tmp_path: Path) -> None:
    members = [(FIRNLINE, CONTROLLER), *[(FIRNLINE, BROKER)] * 3]
    cluster = Cluster(tmp_path, members, SETTINGS)
    two = Two(tmp_path, cluster)
    node = two.node
    with cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **SILENT})
        config = {"min.insync.replicas": "2"}
        topic = NewTopic(TOPIC, PARTITIONS, replication_factor=3, config=config)
        admin.create_topics([topic])[TOPIC].result(PATIENCE_S)
        await_partitions(admin, TOPIC, PARTITIONS, is_complete)
        with Workload(cluster.bootstrap, TOPIC, PARTITIONS, rest_s=0.1) as work:
            work.await_acks(500)
            node.stop()
            shutil.copytree(two.second, tmp_path / "old")
            assert list((tmp_path / "old").glob(f"{TOPIC}-*"))
            node.start()
            work.await_acks(500)
            # The right one.
            two.lose()
            work.await_acks(500)
            node.stop()
            two.away.rename(two.second)
            node.start()
            two.await_well(admin)
            # A copy from before.
            two.lose()
            work.await_acks(500)
            node.stop()
            (tmp_path / "old").rename(two.second)
            shutil.rmtree(two.away)
            node.start()
            two.await_well(admin)
            # Long after: it was left out of the settings, and its replicas were fetched into the other one.
            node.stop()
            node.settings["log.dirs"] = str(two.first)
            node.start()
            two.await_well(admin)
            work.await_acks(500)
            node.stop()
            node.settings["log.dirs"] = f"{two.first},{two.second}"
            node.start()
            two.await_well(admin)
            assert list(two.second.glob(f"{TOPIC}-*-stray"))
            work.await_acks(200)
            work.finish()
        found = read_all(cluster.bootstrap, TOPIC, PARTITIONS)
        assert violations(work.acked(), found, work.sent) == []
        eventually("the copies are equal", two.are_equal, within_s=PATIENCE_S)
        assert [each for each in cluster.brokers if "Traceback" in each.log_text()] == []
