"""The commands that Kafka's scripts have: at Apache Kafka and at Firnline, each beside Kafka's own tool."""

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from firnline.cli.main import cli
from tests.chaos.workload import PATIENCE_S, SILENT
from tests.peers.nodes import BROKER, COMBINED, FIRNLINE, KAFKA, QUICK, Cluster, eventually
from tests.peers.tools import ToolFailed, shared
from tests.peers.topics import await_partitions, is_complete

pytestmark = pytest.mark.peer
PARTITIONS, RECORDS = 2, 20
# So late that nothing expires, and not in the future, which brokers refuse.
BEGIN_MS = int(time.time()) * 1000 - 1_000_000
_DATETIME = datetime.fromtimestamp(BEGIN_MS / 1000 + 3.5, UTC).strftime("%Y-%m-%dT%H:%M:%S.500")
SETTINGS = {**QUICK, "broker.session.timeout.ms": 2_500, "auto.leader.rebalance.enable": False}


class Site:
    """A cluster of two brokers, with what both tools say of it."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self.cluster = cluster
        self.is_kafka = kind == KAFKA
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **SILENT})

    def ours(self, *words: str, code: int = 0, stdin: str = "") -> str:
        """Run our command; return what it printed to stdout."""
        at = ("--bootstrap-server", self.cluster.bootstrap)
        done = CliRunner().invoke(cli, [*words, *at], input=stdin)
        assert done.exit_code == code, f"{words}: {done.output} {done.exception!r}"
        return done.stdout if code in (0, 3) else f"{done.stderr} {done.exception}"

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """Run our command; return its JSON."""
        found = json.loads(self.ours(*words, "--format", "json"))
        assert isinstance(found, list)
        return found

    def theirs(self, tool: str, *words: str) -> str:
        """Run Kafka's tool; return what it printed to stdout."""
        return shared().use(tool, "--bootstrap-server", self.cluster.bootstrap, *words)

    def until(self, look: Callable[[], Any], what: str) -> Any:
        """Wait until a look finds something."""
        return eventually(what, look, within_s=PATIENCE_S)

    def make(self, topic: str, replicas: int = 1, records: int = RECORDS) -> None:
        """Make a topic with that many records in each partition, one a second."""
        self.admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(PATIENCE_S)
        await_partitions(self.admin, topic, PARTITIONS, is_complete)
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", **SILENT})
        refused: list[object] = []
        for number in range(records * PARTITIONS):
            at_ms = BEGIN_MS + number // PARTITIONS * 1000
            producer.produce(
                topic, b"x", partition=number % PARTITIONS, timestamp=at_ms,
                on_delivery=lambda problem, _: problem and refused.append(problem),
            )  # fmt: skip
        assert (producer.flush(PATIENCE_S), refused) == (0, [])

    def consumer(self, group: str) -> Consumer:
        """Return a consumer that is in no group yet."""
        return Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap, "group.id": group,
                "client.id": "till", "enable.auto.commit": False, **SILENT,
            }
        )  # fmt: skip

    def commit(self, group: str, topic: str, *offsets: int) -> None:
        """Commit these offsets of the first partitions."""
        consumer = self.consumer(group)
        places = [TopicPartition(topic, n, offset) for n, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


@pytest.fixture(scope="module", params=[KAFKA, FIRNLINE])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    members = [(request.param, COMBINED), (request.param, BROKER)]
    with Cluster(tmp_path_factory.mktemp("operations"), members, SETTINGS) as cluster:
        yield Site(cluster, request.param)
        cluster.kill()  # Kafka's broker does not stop without its controller


def test_offsets_are_reset_as_by_kafkas_tool(site: Site) -> None:
    site.make("orders")
    site.commit("shop", "orders", 5, 8)
    topic = ("--topic", "orders")
    for target, of_theirs in (
        (("--to-earliest",), None),
        (("--to-latest",), None),
        (("--to-current",), None),
        (("--to-offset", "7"), None),
        (("--to-offset", "70"), None),
        (("--shift-by", "-6"), None),
        (("--to-time", str(BEGIN_MS + 3500)), ("--to-datetime", _DATETIME)),
    ):
        ours = site.ours("group", "reset", "shop", *topic, *target, "--export")
        words = ("--group", "shop", "--reset-offsets", *topic, *(of_theirs or target))
        theirs = site.theirs("groups", *words, "--export", "--dry-run")
        assert sorted(ours.split()) == sorted(theirs.split()), target
    site.ours("group", "reset", "shop", *topic, "--to-offset", "7", "--execute")
    described = site.theirs("groups", "--describe", "--group", "shop")
    assert re.findall(r"orders +(\d) +(\d+) +(\d+) +(\d+)", described) in (
        [("0", "7", "20", "13"), ("1", "7", "20", "13")],
        [("1", "7", "20", "13"), ("0", "7", "20", "13")],
    )
    (row,) = [row for row in site.rows("group", "list", "--lag") if row["group"] == "shop"]
    assert (row["partitions"], row["lag_records"]) == (2, 26)


def test_a_plan_of_kafkas_tool_is_taken(site: Site) -> None:
    words = ("--group", "shop", "--reset-offsets", "--topic", "orders:1", "--to-earliest")
    exported = site.theirs("groups", *words, "--export", "--dry-run")
    site.ours("group", "reset", "shop", "--from-file", "-", "--execute", stdin=exported)
    rows = site.rows("group", "reset", "shop", "--all-topics", "--to-current")
    assert [row["committed_offset"] for row in rows] == [7, 0]


def test_a_group_in_use_is_refused_by_both(site: Site) -> None:
    consumer = site.consumer("shop")
    consumer.subscribe(["orders"])
    try:
        site.until(lambda: consumer.poll(1.0), "a record")
        said = site.ours(
            "group", "reset", "shop", "--all-topics", "--to-latest", "--execute", code=1
        )
        assert "group shop has 1 member (till@127.0.0.1)" in said
        words = ("--group", "shop", "--reset-offsets", "--topic", "orders", "--to-latest")
        assert "Stable" in _both(site, "groups", *words, "--execute")
        said = site.ours("group", "delete-offsets", "shop", "--topic", "orders:0", code=3)
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in said
    finally:
        consumer.close()
    site.ours("group", "delete-offsets", "shop", "--topic", "orders:0")
    rows = site.rows("group", "reset", "shop", "--all-topics", "--to-current")
    assert [row["partition"] for row in rows] == [1]


def _both(site: Site, tool: str, *words: str) -> str:
    """Return what a tool that may fail printed, to stdout and stderr."""
    try:
        return site.theirs(tool, *words)
    except ToolFailed as failed:
        return failed.out + failed.err


def test_settings_are_described_and_altered_as_by_kafkas_tool(site: Site) -> None:
    topic = ("--topic", "orders")
    site.ours("config", "alter", *topic, "retention.ms=9876543210", "--validate-only")
    assert "retention.ms" not in site.theirs("configs", *topic, "--describe")
    site.ours("config", "alter", *topic, "retention.ms=9876543210")
    site.ours("config", "alter", "--broker-defaults", "log.retention.ms=7200000")

    def told() -> Any:
        return "retention.ms=9876543210 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG" in (
            site.theirs("configs", *topic, "--describe")
        ) and "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7200000" in site.theirs(
            "configs", "--broker-defaults", "--describe"
        )

    site.until(told, "both settings are told")
    (row,) = site.rows("config", "describe", *topic, "--key", "retention.ms")
    assert (row["value"], row["source"]) == ("9876543210", "DYNAMIC_TOPIC_CONFIG")
    synonyms = [(each["source"], each["value"]) for each in row["synonyms"][:2]]
    assert synonyms[1] == ("DYNAMIC_DEFAULT_BROKER_CONFIG", "7200000")
    said = site.ours("config", "alter", *topic, "retenton.ms=1", code=1)
    assert "did you mean retention.ms?" in said
    site.ours("config", "alter", *topic, "--delete", "retention.ms")
    site.ours("config", "alter", "--broker-defaults", "--delete", "log.retention.ms")
    site.until(
        lambda: not site.rows("config", "describe", "--broker-defaults"), "no default is set"
    )


def test_records_are_deleted(site: Site, tmp_path: Path) -> None:
    topic = ("topic", "delete-records", "orders")
    rows = site.rows(*topic, "--before", str(BEGIN_MS + 3500), "--yes")
    assert [row["new_start"] for row in rows] == [4, 4]
    earliest = ("get-offsets", "--topic", "orders", "--time", "earliest")
    assert site.theirs(*earliest).split() == ["orders:0:4", "orders:1:4"]
    assert "orders-0 ends at 20" in site.ours(*topic, "-p", "0:21", "--yes", code=1)
    file = tmp_path / "offsets.json"
    parts = [{"topic": "orders", "partition": 1, "offset": -1}]
    file.write_text(json.dumps({"version": 1, "partitions": parts}))
    site.ours("topic", "delete-records", "--offsets-file", str(file), "--yes")
    assert site.theirs(*earliest).split() == ["orders:0:4", "orders:1:20"]


def test_the_doctor_finds_what_was_broken_and_its_remedy_mends_it(site: Site) -> None:
    """The group is at 0, and the log begins at 20 now."""
    words = ("doctor", "--watch", "0", "--topic", "orders", "--format", "json")

    def findings(code: int) -> list[dict[str, str]]:
        found = json.loads(site.ours(*words, code=code))["findings"]
        # Kafka's brokers hang up on a request about the tier.
        return [row for row in found if row["kind"] != "not-asked"]

    (row,) = findings(3)
    assert (row["kind"], row["where"]) == ("offset-out-of-range", "group shop, topic orders")
    command = row["remedy"].partition("`firnline ")[2].partition("`")[0]
    site.ours(*command.split())
    assert findings(3 if site.is_kafka else 0) == []


def test_partitions_are_moved_and_kafkas_tool_takes_the_plan(site: Site, tmp_path: Path) -> None:
    site.make("moved", replicas=2)
    back, plan = tmp_path / "back.json", tmp_path / "plan.json"
    words = ("partition", "move", "moved", "--brokers", "2", "--replication-factor", "1")
    plan.write_text(site.ours(*words, "--export"))
    site.ours(*words, "--execute", "--wait", "--within", "60s", "--rollback", str(back))
    verify = ("reassign", "--verify", "--preserve-throttles", "--reassignment-json-file", str(plan))
    assert site.theirs(*verify).count("is completed") == 2
    assert site.rows("partition", "status") == []
    site.ours("partition", "move", "--file", str(back), "--execute", "--wait", "--within", "60s")
    replicas = re.findall(
        r"Replicas: (\S+)", site.theirs("topics", "--describe", "--topic", "moved")
    )
    assert [len(each.split(",")) for each in replicas] == [2, 2]
    said = site.ours("partition", "cancel", "moved:0", code=3)
    assert "NO_REASSIGNMENT_IN_PROGRESS" in said


def test_preferred_leaders_are_elected(site: Site) -> None:
    site.make("led", replicas=2)
    parts = site.admin.list_topics("led", 30).topics["led"].partitions
    turned = ",".join(map(str, reversed(parts[0].replicas)))
    site.ours("partition", "move", "led:0", "--replicas", turned, "--execute", "--wait")
    rows = site.rows("partition", "elect", "led")
    assert [row["result"] for row in rows] == ["elected", "not needed"]
    one = ("--election-type", "preferred", "--topic", "led", "--partition", "0")
    assert "Valid replica already elected" in site.theirs("leader-election", *one)
    said = site.ours("partition", "elect", "led:7", code=1)
    assert "led has no partition 7" in said


def test_directories_are_described_as_by_kafkas_tool(site: Site) -> None:
    reported = site.theirs("log-dirs", "--describe", "--topic-list", "moved")
    theirs = json.loads(reported[reported.index("{") :])["brokers"]
    expected = {
        (row["broker"], each["logDir"], part["partition"], part["size"])
        for row in theirs
        for each in row["logDirs"]
        for part in each["partitions"]
    }
    rows = site.rows("log-dirs", "--topic", "moved")
    found = {
        (row["broker"], row["path"], f"{part['topic']}-{part['partition']}", part["size_bytes"])
        for row in rows
        for part in row["replicas"]
    }
    assert found == expected
    assert len(found) == 4
    assert all(0 < row["usable_bytes"] <= row["total_bytes"] for row in rows)


def test_a_broker_that_is_gone_is_forgotten_and_a_live_one_is_not(site: Site) -> None:
    """The last test of the file: the broker does not come back."""
    said = site.ours("broker", "unregister", "2", "--yes", code=1)
    assert "broker 2 is alive" in said
    gone = site.cluster[2]
    gone.kill()

    def is_fenced() -> Any:
        return [row["is_fenced"] for row in site.rows("broker", "list")] == [False, True]

    site.until(is_fenced, "broker 2 is fenced")
    site.ours("broker", "unregister", "2", "--yes")
    at = ("--bootstrap-server", f"127.0.0.1:{site.cluster[1].port}")
    told = lambda: str(gone.port) not in shared().use("cluster", "list-endpoints", *at)  # noqa: E731
    site.until(told, "nobody tells of it")
