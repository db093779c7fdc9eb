"""Kafka's own tools on a cluster of ours: they move, elect, configure and look, and say so."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers import kafka
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, QUICK, Cluster, eventually

pytestmark = pytest.mark.peer
_SETTINGS = {**QUICK, "broker.session.timeout.ms": 30_000}
BROKERS = (2, 3, 4)


class Shop:
    """A controller and three brokers of ours, and the tools."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.use("topics", "--create", "--topic", "moved", "--replica-assignment", "2:3,3:4")
        self.use("topics", "--create", "--topic", "led", "--replica-assignment", "2:3:4")

    def use(self, tool: str, *words: str) -> str:
        """Run a tool that is to succeed; return what it printed."""
        return kafka.tool(tool, "--bootstrap-server", self.cluster.bootstrap, *words)

    def fails(self, tool: str, *words: str) -> str:
        """Run a tool that is to fail; return what it printed."""
        with pytest.raises(subprocess.CalledProcessError) as caught:
            self.use(tool, *words)
        return f"{caught.value.stdout}{caught.value.stderr}"

    def plan(self, name: str, *partitions: dict[str, Any]) -> str:
        """Write a plan of reassignments; return where."""
        path = self.cluster.directory / f"{name}.json"
        path.write_text(json.dumps({"version": 1, "partitions": list(partitions)}))
        return str(path)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    members = [(FIRNLINE, CONTROLLER), *[(FIRNLINE, BROKER)] * 3]
    with Cluster(tmp_path_factory.mktemp("shop"), members, _SETTINGS) as cluster:
        yield Shop(cluster)


def test_the_tool_for_moves_plans_moves_looks_and_lifts_its_throttle(shop: Shop) -> None:
    topics = shop.cluster.directory / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    told = shop.use(
        "reassign", "--generate", "--topics-to-move-json-file", str(topics),
        "--broker-list", "2,3,4",
    )  # fmt: skip
    assert str(shop.cluster[2].data) in told, "it says in which directory each replica is"
    there = {"topic": "moved", "partition": 0, "replicas": [4, 3]}
    elsewhere = {"topic": "moved", "partition": 1, "replicas": [2, 4]}
    path = shop.plan("plan", there, elsewhere)
    words = ("--reassignment-json-file", path)
    told = shop.use("reassign", "--execute", *words, "--throttle", "100000000")
    assert "Successfully started partition reassignments for moved-0,moved-1" in told
    rates = shop.use("configs", "--entity-type", "brokers", "--entity-name", "2", "--describe")
    assert "leader.replication.throttled.rate=100000000" in rates

    def is_over() -> bool:
        found: str = shop.use("reassign", "--verify", *words)
        return found.count("is completed") == 2 and "Clearing topic-level throttles" in found

    eventually("the moves are over", is_over, within_s=120)
    rates = shop.use("configs", "--entity-type", "brokers", "--entity-name", "2", "--describe")
    assert "throttled" not in rates
    assert "No partition reassignments found" in shop.use("reassign", "--list")
    told = shop.use("topics", "--describe", "--topic", "moved")
    assert "Replicas: 4,3" in told
    assert "Replicas: 2,4" in told


def test_a_move_to_a_broker_that_is_down_is_called_off(shop: Shop) -> None:
    shop.use("topics", "--create", "--topic", "stuck", "--replica-assignment", "2:3")
    shop.cluster[4].stop()
    words = (
        "--reassignment-json-file",
        shop.plan("stuck", {"topic": "stuck", "partition": 0, "replicas": [2, 4]}),
    )
    assert "Successfully started" in shop.use("reassign", "--execute", *words)
    assert "stuck-0: replicas: 2,4,3. adding: 4. removing: 3" in shop.use("reassign", "--list")
    assert "is still in progress" in shop.use("reassign", "--verify", *words)
    told = shop.use("reassign", "--cancel", *words)
    assert "Successfully cancelled partition reassignments for: stuck-0" in told
    shop.cluster[4].start()
    assert "Replicas: 2,3" in shop.use("topics", "--describe", "--topic", "stuck")


def test_leaders_are_elected_and_unknown_partitions_named(shop: Shop) -> None:
    one = ("--election-type", "preferred", "--topic", "led", "--partition", "0")
    assert "Valid replica already elected for partitions led-0" in shop.use("leader-election", *one)
    shop.cluster[2].stop()
    shop.cluster[2].start()
    look = ("topics", "--describe", "--topic", "led")
    eventually("it is in sync", lambda: _isr(shop.use(*look)) == [2, 3, 4], within_s=60)
    told = shop.use("leader-election", *one)
    assert "Successfully completed leader election (PREFERRED) for partitions led-0" in told
    assert "Leader: 2" in shop.use(*look)
    wrong = ("--election-type", "unclean", "--topic", "nope", "--partition", "0")
    assert "UnknownTopicOrPartitionException" in shop.fails("leader-election", *wrong)


def _isr(told: str) -> list[int]:
    words = told.split("Isr: ")[1].split()[0]
    return sorted(int(word) for word in words.split(","))


def test_directories_are_described_and_a_plan_may_name_them(shop: Shop) -> None:
    told = shop.use("log-dirs", "--describe", "--topic-list", "led")
    found = json.loads(told[told.index("{") :])
    rows = {row["broker"]: row["logDirs"] for row in found["brokers"]}
    assert sorted(rows) == list(BROKERS)
    for broker, directories in rows.items():
        (only,) = directories
        assert (only["error"], only["logDir"]) == (None, str(shop.cluster[broker].data))
        assert [row["partition"] for row in only["partitions"]] == ["led-0"]
    shop.use("topics", "--create", "--topic", "placed", "--replica-assignment", "2:3")
    paths = [str(shop.cluster[4].data), str(shop.cluster[3].data)]
    row = {"topic": "placed", "partition": 0, "replicas": [4, 3], "log_dirs": paths}
    words = ("--reassignment-json-file", shop.plan("placed", row))
    assert "Successfully started" in shop.use("reassign", "--execute", *words)

    def is_over() -> bool:
        found = shop.use("reassign", "--verify", *words)
        return "Reassignment of partition placed-0 is completed" in found

    eventually("the move is over", is_over, within_s=120)


def test_settings_are_altered_and_described_at_every_level(shop: Shop) -> None:
    everywhere = ("configs", "--entity-type", "brokers", "--entity-default")
    here = ("configs", "--entity-type", "brokers", "--entity-name", "3")
    topic = ("configs", "--entity-type", "topics", "--entity-name", "led")
    shop.use(*everywhere, "--alter", "--add-config", "log.retention.ms=3600000")
    shop.use(*here, "--alter", "--add-config", "log.retention.ms=7200000")
    shop.use(*topic, "--alter", "--add-config", "retention.ms=1000000")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=3600000" in shop.use(
        *everywhere, "--describe"
    )
    told = shop.use(*here, "--describe")
    assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=7200000" in told
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=3600000" in told
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=1000000" in shop.use(*topic, "--describe")
    shop.use(*topic, "--alter", "--delete-config", "retention.ms")
    shop.use(*here, "--alter", "--delete-config", "log.retention.ms")
    shop.use(*everywhere, "--alter", "--delete-config", "log.retention.ms")
    assert "retention.ms" not in shop.use(*topic, "--describe")
    assert "what.ever" in shop.fails(*topic, "--alter", "--add-config", "what.ever=1")


def test_feature_levels_are_told_and_moved_where_all_nodes_act_on_them(shop: Shop) -> None:
    """A release version asks for every feature of it, those we lack as well: refused, with the way out."""
    told = shop.use("features", "describe")
    assert "FinalizedVersionLevel: 4.3-IV0" in told
    level = ("--feature", "metadata.version=30")
    assert "metadata.version was upgraded to 30" in shop.use("features", "upgrade", *level)
    lowered = shop.use("features", "downgrade", "--feature", "group.version=0")
    assert "group.version was downgraded to 0" in lowered
    told = shop.fails("features", "upgrade", "--release-version", "4.3")
    assert "this controller supports levels 0 to 0; where a release version asks for all" in told
    assert "FinalizedVersionLevel: 4.3-IV0" in shop.use("features", "describe")


def test_replicas_are_compared_by_kafkas_verifier(shop: Shop) -> None:
    """It fetches every partition as a replica would, and tells the largest difference."""
    command = kafka.command(
        kafka.TOOLS["replica-verification"],
        "--broker-list", shop.cluster.bootstrap,
        "--topics-include", "led", "--report-interval-ms", "500", is_short=True,
    )  # fmt: skip
    output = Path(shop.cluster.directory / "verifier.txt")
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            eventually("a verdict", lambda: "max lag is 0" in output.read_text(), within_s=120)
        finally:
            process.kill()
            process.wait()


def test_a_broker_that_left_is_forgotten_and_one_that_never_was_is_not(shop: Shop) -> None:
    at = ("--bootstrap-server", shop.cluster.bootstrap)
    assert shop.cluster.cluster_id in kafka.tool("cluster", "cluster-id", *at)
    told = kafka.tool("cluster", "list-endpoints", *at)
    assert all(str(node.port) in told for node in shop.cluster.brokers)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        kafka.tool("cluster", "unregister", *at, "--id", "77")
    assert "BrokerIdNotRegistered" in caught.value.stderr
    shop.cluster[4].stop()
    assert "is no longer registered" in kafka.tool("cluster", "unregister", *at, "--id", "4")
    told = kafka.tool("cluster", "list-endpoints", *at)
    assert str(shop.cluster[4].port) not in told
