"""Kafka's own tools on a cluster of ours: they move, elect, configure and look, and say so."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mixed.copies import reported_by
from tests.peers import kafka
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, QUICK, Cluster, Node, eventually
from tests.peers.tools import ToolFailed, Tools

pytestmark = pytest.mark.peer
_SETTINGS = {**QUICK, "broker.session.timeout.ms": 12_000}
BROKERS = (2, 3, 4)
_PATIENCE_S = 120.0


class Shop:
    """A controller and three brokers of ours, and the tools."""

    def __init__(self, cluster: Cluster, tools: Tools) -> None:
        self.cluster, self.tools = cluster, tools
        self.create("moved", "2:3,3:4")
        self.create("led", "2:3:4")

    def use(self, tool: str, *words: str) -> str:
        """Run a tool that is to succeed; return what it printed."""
        return self.tools.use(tool, "--bootstrap-server", self.cluster.bootstrap, *words)

    def fails(self, tool: str, *words: str) -> str:
        """Run a tool that is to fail; return what it printed."""
        with pytest.raises(ToolFailed) as caught:
            self.use(tool, *words)
        return str(caught.value)

    def until(self, holds: Callable[[str], object], tool: str, *words: str) -> str:
        """Run a tool until `holds` is true of what it prints: brokers hear of a change in their own time."""
        last = ""

        def look() -> bool:
            nonlocal last
            try:
                last = self.use(tool, *words)
            except ToolFailed as problem:
                last = str(problem)
                return False
            return bool(holds(last))

        try:
            eventually(f"{tool} {words}", look, within_s=_PATIENCE_S)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; it printed\n{last}") from None
        return last

    def create(self, topic: str, replicas: str) -> None:
        """Make a topic, and wait until every broker tells of it as it is to be."""
        self.use("topics", "--create", "--topic", topic, "--replica-assignment", replicas)
        placed = [sorted(map(int, each.split(":"))) for each in replicas.split(",")]

        def is_known(node: Node) -> bool:
            reported = reported_by(node, [topic])
            isrs = [sorted(isr) for _, (leader, _, isr) in sorted(reported.items()) if leader >= 0]
            return isrs == placed

        for node in self.cluster.brokers:
            eventually(f"{node} knows {topic}", lambda: is_known(node))  # noqa: B023

    def plan(self, name: str, *partitions: dict[str, Any]) -> tuple[str, str]:
        """Write a plan of reassignments; return the words that name it."""
        path = self.cluster.directory / f"{name}.json"
        path.write_text(json.dumps({"version": 1, "partitions": list(partitions)}))
        return "--reassignment-json-file", str(path)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    members = [(FIRNLINE, CONTROLLER), *[(FIRNLINE, BROKER)] * 3]
    directory = tmp_path_factory.mktemp("shop")
    with Cluster(directory, members, _SETTINGS) as cluster, Tools() as tools:
        yield Shop(cluster, tools)


def test_the_tool_for_moves_plans_moves_verifies_and_lifts_its_throttle(shop: Shop) -> None:
    topics = shop.cluster.directory / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    reported = shop.use(
        "reassign", "--generate", "--topics-to-move-json-file", str(topics),
        "--broker-list", "2,3,4",
    )  # fmt: skip
    assert str(shop.cluster[2].data) in reported, "it says in which directory each replica is"
    there = {"topic": "moved", "partition": 0, "replicas": [4, 3]}
    elsewhere = {"topic": "moved", "partition": 1, "replicas": [2, 4]}
    plan = shop.plan("plan", there, elsewhere)
    reported = shop.use("reassign", "--execute", *plan, "--throttle", "100000000")
    assert "Successfully started partition reassignments for moved-0,moved-1" in reported
    rates = ("configs", "--entity-type", "brokers", "--entity-name", "2", "--describe")
    shop.until(lambda said: "leader.replication.throttled.rate=100000000" in said, *rates)
    shop.until(
        lambda said: said.count("is completed") == 2 and "Clearing topic-level throttles" in said,
        *("reassign", "--verify", *plan),
    )
    shop.until(lambda said: "throttled" not in said, *rates)
    shop.until(lambda said: "No partition reassignments found" in said, "reassign", "--list")
    shop.until(
        lambda said: "Replicas: 4,3" in said and "Replicas: 2,4" in said,
        *("topics", "--describe", "--topic", "moved"),
    )


def test_a_move_to_a_broker_that_is_down_is_called_off(shop: Shop) -> None:
    shop.create("stuck", "2:3")
    plan = shop.plan("stuck", {"topic": "stuck", "partition": 0, "replicas": [2, 4]})

    def begins() -> bool:
        # The tool takes a broker for known until its session is over.
        shop.cluster[4].kill()
        try:
            return "Successfully started" in shop.use("reassign", "--execute", *plan)
        except ToolFailed as problem:
            if "Unknown broker id 4" not in str(problem):
                raise
            shop.cluster[4].start()
            return False

    eventually("the move begins", begins, within_s=_PATIENCE_S)
    going_on = "stuck-0: replicas: 2,4,3. adding: 4. removing: 3"
    shop.until(lambda said: going_on in said, "reassign", "--list")
    # There is none, and the tool would ask the broker that is down to lift it.
    plan = (*plan, "--preserve-throttles")
    shop.until(lambda said: "is still in progress" in said, "reassign", "--verify", *plan)
    reported = shop.use("reassign", "--cancel", *plan)
    assert "Successfully cancelled partition reassignment for: stuck-0" in reported
    shop.cluster[4].start()
    shop.until(lambda said: "Replicas: 2,3" in said, "topics", "--describe", "--topic", "stuck")


def test_leaders_are_elected_and_unknown_partitions_named(shop: Shop) -> None:
    one = ("--election-type", "preferred", "--topic", "led", "--partition", "0")
    look = ("topics", "--describe", "--topic", "led")
    shop.until(lambda said: _isr(said) == [2, 3, 4], *look)
    assert "Valid replica already elected for partitions led-0" in shop.use("leader-election", *one)
    shop.cluster[2].stop()
    shop.cluster[2].start()
    shop.until(lambda said: _isr(said) == [2, 3, 4] and "Leader: 2" not in said, *look)
    reported = shop.use("leader-election", *one)
    assert "Successfully completed leader election (PREFERRED) for partitions led-0" in reported
    shop.until(lambda said: "Leader: 2" in said, *look)
    wrong = ("--election-type", "unclean", "--topic", "nope", "--partition", "0")
    assert "UnknownTopicOrPartitionException" in shop.fails("leader-election", *wrong)


def _isr(reported: str) -> list[int]:
    words = reported.split("Isr: ")[1].split()[0]
    return sorted(int(word) for word in words.split(","))


def test_directories_are_described_and_a_plan_may_name_them(shop: Shop) -> None:
    reported = shop.use("log-dirs", "--describe", "--topic-list", "led")
    found = json.loads(reported[reported.index("{") :])
    rows = {row["broker"]: row["logDirs"] for row in found["brokers"]}
    assert sorted(rows) == list(BROKERS)
    for broker, directories in rows.items():
        (only,) = directories
        assert (only["error"], only["logDir"]) == (None, str(shop.cluster[broker].data))
        assert [row["partition"] for row in only["partitions"]] == ["led-0"]
    shop.create("placed", "2:3")
    paths = [str(shop.cluster[4].data), str(shop.cluster[3].data)]
    row = {"topic": "placed", "partition": 0, "replicas": [4, 3], "log_dirs": paths}
    plan = shop.plan("placed", row)
    assert "Successfully started" in shop.use("reassign", "--execute", *plan)
    over = "Reassignment of partition placed-0 is completed"
    shop.until(lambda said: over in said, "reassign", "--verify", *plan)


def test_settings_are_altered_and_described_at_every_level(shop: Shop) -> None:
    everywhere = ("configs", "--entity-type", "brokers", "--entity-default")
    here = ("configs", "--entity-type", "brokers", "--entity-name", "3")
    topic = ("configs", "--entity-type", "topics", "--entity-name", "led")
    shop.use(*everywhere, "--alter", "--add-config", "log.retention.ms=3600000")
    shop.use(*here, "--alter", "--add-config", "log.retention.ms=7200000")
    shop.use(*topic, "--alter", "--add-config", "retention.ms=1000000")
    by_default = "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=3600000"
    shop.until(lambda said: by_default in said, *everywhere, "--describe")
    own = "DYNAMIC_BROKER_CONFIG:log.retention.ms=7200000"
    shop.until(lambda said: own in said and by_default in said, *here, "--describe")
    of_topic = "DYNAMIC_TOPIC_CONFIG:retention.ms=1000000"
    shop.until(lambda said: of_topic in said, *topic, "--describe")
    shop.use(*topic, "--alter", "--delete-config", "retention.ms")
    shop.use(*here, "--alter", "--delete-config", "log.retention.ms")
    shop.use(*everywhere, "--alter", "--delete-config", "log.retention.ms")
    for which in (topic, here, everywhere):
        shop.until(lambda said: "retention.ms" not in said, *which, "--describe")
    assert "what.ever" in shop.fails(*topic, "--alter", "--add-config", "what.ever=1")


def test_feature_levels_are_reported_and_moved_where_all_nodes_act_on_them(shop: Shop) -> None:
    """A release version asks for every feature of it, those we lack as well: refused, with the way out."""
    reported = shop.use("features", "describe")
    assert "FinalizedVersionLevel: 4.3-IV0" in reported
    level = ("--feature", "metadata.version=30")
    assert "metadata.version was upgraded to 30" in shop.use("features", "upgrade", *level)
    lowered = shop.use("features", "downgrade", "--feature", "group.version=0")
    assert "group.version was downgraded to 0" in lowered
    reported = shop.fails("features", "upgrade", "--release-version", "4.3")
    assert (
        "this controller supports levels 0 to 0; where a release version asks for all" in reported
    )
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
    """The last test of the file: the broker does not come back."""
    at = ("--bootstrap-server", shop.cluster.bootstrap)
    tools = shop.tools
    assert shop.cluster.cluster_id in tools.use("cluster", "cluster-id", *at)
    reported = tools.use("cluster", "list-endpoints", *at)
    assert all(str(node.port) in reported for node in shop.cluster.brokers)
    with pytest.raises(ToolFailed, match="BrokerIdNotRegistered"):
        tools.use("cluster", "unregister", *at, "--id", "77")
    gone = shop.cluster[4]
    gone.stop()
    at = ("--bootstrap-server", ",".join(f"127.0.0.1:{shop.cluster[n].port}" for n in (2, 3)))
    assert "is no longer registered" in tools.use("cluster", "unregister", *at, "--id", "4")
    eventually(
        "nobody tells of it",
        lambda: str(gone.port) not in tools.use("cluster", "list-endpoints", *at),
    )
