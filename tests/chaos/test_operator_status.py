"""What three real nodes say of themselves, to public dashboards, to our own, and to `cluster status`.

One cluster for all tests of the file, in their order: first it is well, then a node is stopped (kill -STOP),
then two are killed.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from confluent_kafka import Consumer, Producer
from prometheus_client.samples import Sample

from firnline.testing.cluster import Cluster
from tests.dashboards import blank, page
from tests.peers.nodes import eventually
from tests.peers.ports import free_ports_in_a_row

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
NODES, RECORDS = 3, 300
SILENT = {"log_level": 0}
_JVM = "no JVM runs here"
_KUBERNETES = "of Kubernetes, not of a node"
_CONFLUENT_TIER = "of Confluent's own tier; the names of Kafka's are under 'The tier'"
_STRAY = "strays are in the log, and nothing counts them"
# What stays blank on public dashboards, and why.
BLANK = {
    "container_cpu_usage_seconds_total": _KUBERNETES,
    "container_memory_usage_bytes": _KUBERNETES,
    "jvm_gc_collection_seconds_count": _JVM,
    "jvm_gc_collection_seconds_sum": _JVM,
    "jvm_memory_bytes_max": _JVM,
    "jvm_memory_used_bytes": _JVM,
    "jvm_threads_current": _JVM,
    "kafka_log_log_tiersize": _CONFLUENT_TIER,
    "kafka_network_acceptor_acceptorblockedpercent": "nothing blocks accepting connections",
    "kafka_network_requestmetrics_responsesendtimems": "not measured, see 'Requests'",
    "kafka_server_replicafetchermanager_minfetchrate": "not counted",
    "kafka_server_replicamanager_straypartitionscount": _STRAY,
    "kafka_server_replicamanager_straypartitionsmisclassifiedcount": _STRAY,
    "kafka_server_replicamanager_straypartitionstotalsize": _STRAY,
    "kafka_server_socketservermetrics_connections": "names of clients' software are not kept",
    "kafka_tier_tasks_archive_tierarchiver_bytespersec": _CONFLUENT_TIER,
    "kafka_tier_tasks_archive_tierarchiver_retriespersec": _CONFLUENT_TIER,
    "kafka_tier_tasks_archive_tierarchiver_totallag": _CONFLUENT_TIER,
    "kafka_tier_tasks_tiertasks_numpartitionsinerror": _CONFLUENT_TIER,
    "kubelet_volume_stats_available_bytes": _KUBERNETES,
}


class Nodes:
    """The cluster, and where its metrics are."""

    def __init__(self, cluster: Cluster, metrics_port: int) -> None:
        self.cluster = cluster
        self._metrics_port = metrics_port

    def samples(self) -> list[Sample]:
        """Of all nodes together."""
        return [each for node in range(NODES) for each in page(self._metrics_port + node)]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "firnline", *words]
        line += ["--bootstrap-server", self.cluster.bootstrap]
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)

    def well(self) -> Any:
        """What it prints when all is well; None on a machine so busy that a loop was held up lately."""
        done = self.run("cluster", "status", "--format", "json")
        problems = {each.value for each in self.samples() if each.name == "firnline_problems"}
        return json.loads(done.stdout) if done.returncode == 0 and problems == {0.0} else None

    def status(self, *, code: int, timeout_s: int = 5) -> Any:
        """What `cluster status` prints for programs; it must end with `code`."""
        done = self.run("cluster", "status", "--format", "json", "--timeout", str(timeout_s))
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    home = tmp_path_factory.mktemp("status")
    # `dev` gives its nodes this port and the next ones.
    port = free_ports_in_a_row(NODES)
    options = (
        "-X",
        f"firnline.metrics.port={port}",
        "-X",
        "remote.log.manager.task.interval.ms=500",
    )
    cluster = Cluster(home / "c", nodes=NODES, tier=home / "tier", options=options)
    cluster.start()
    try:
        found = Nodes(cluster, port)
        for name, more in (("t", ()), ("tiered", ("-c", "remote.storage.enable=true"))):
            words = ("topic", "create", name, "--partitions", "3", "--replication-factor", "3")
            made = found.run(*words, *more)
            assert made.returncode == 0, made.stderr
        load(cluster)
        yield found
    finally:
        cluster.kill()


def load(cluster: Cluster) -> None:
    """Write, read as a group, and commit."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **SILENT})
    for number in range(RECORDS):
        producer.produce(("t", "tiered")[number % 2], b"x" * 100)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            **SILENT,
        }
    )
    consumer.subscribe(["t", "tiered"])
    read, until = 0, time.monotonic() + 60
    while read < RECORDS and time.monotonic() < until:
        read += len(consumer.consume(RECORDS, 1.0))
    assert read == RECORDS
    consumer.commit(asynchronous=False)
    consumer.close()


def test_public_dashboards_find_all_that_they_draw_but_what_is_named(nodes: Nodes) -> None:
    found = blank(nodes.samples())
    assert found.keys() == BLANK.keys()
    documented = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for metric, panels in found.items():
        assert f"| `{metric}` | {'; '.join(panels)} | {BLANK[metric]} |" in documented


def test_our_dashboard_and_alerts_name_only_what_a_real_page_has(nodes: Nodes) -> None:
    names = {each.name for each in nodes.samples()}
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) >= 10
    for rule in alerts:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "command"}
        assert metrics_in(rule["expr"]) <= names, rule["alert"]
    dashboard = json.loads((ROOT / "deploy/grafana/firnline.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels:
        for target in panel["targets"]:
            assert metrics_in(target["expr"]), panel["title"]
            assert metrics_in(target["expr"]) <= names, panel["title"]


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names."""
    return set(re.findall(r"\b(?:kafka|firnline|process)_\w+", expression))


def test_a_cluster_in_which_all_is_well(nodes: Nodes) -> None:
    found: Any = eventually("all is well", nodes.well, within_s=90)
    assert [row["state"] for row in found["brokers"]] == ["alive"] * NODES
    assert (found["is_current"], found["unknown"], found["problems"]) == (True, 0, [])


def test_a_node_that_hangs_is_not_alive_and_is_noticed_within_the_deadline(nodes: Nodes) -> None:
    """Its process exists, and its port accepts connections."""
    stopped = nodes.cluster.pid(3)
    os.kill(stopped, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        found = nodes.status(code=3)
        # The start of a Python process on a busy machine is part of it.
        assert time.monotonic() - began_s < 5 + 10
    finally:
        os.kill(stopped, signal.SIGCONT)
    row = found["brokers"][2]
    assert row["state"] in ("no answer", "fenced")
    assert any("broker 3 " in line for line in found["problems"])


def test_it_says_afterwards_that_its_loop_was_held_up(nodes: Nodes) -> None:
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        lines = nodes.status(code=3)["problems"]
        if any("broker 3: it served nobody for " in line for line in lines):
            break
    else:
        raise AssertionError(lines)
    held_up = [
        each.value for each in nodes.samples() if each.name == "firnline_loop_held_up_seconds"
    ]
    assert max(held_up) > 2


def test_five_seconds_after_two_of_three_died_nothing_is_called_alive_or_known(
    nodes: Nodes,
) -> None:
    for node_id in (1, 2):
        nodes.cluster.kill_node(node_id)
    time.sleep(5)

    def nobody_leads() -> Any:
        said = nodes.status(code=3, timeout_s=8)
        return said if (said["is_current"], said["quorum"]) == (False, None) else None

    # On a busy machine the last one may need longer until it resigns.
    found: Any = eventually("the quorum is not known", nobody_leads)
    assert [row["state"] for row in found["brokers"]] == ["no answer", "no answer", "alive"]
    assert [row["last_known"] for row in found["brokers"][:2]] == ["alive", "alive"]
    assert found["unknown"] > 0
    lines = found["problems"]
    assert lines[0].startswith("no controller is active")
    assert any(re.match(r"broker 1 does not answer at .*: Connection refused", x) for x in lines)
    text = nodes.run("cluster", "status", "--timeout", "8").stdout
    assert "all is well" not in text
    assert "without a leader   unknown (last known 0)" in text
    assert "no answer (last known alive)" in text
    described = nodes.run("topic", "describe", "t").stdout
    assert "unknown (last known " in described
    began_s = time.monotonic()
    done = nodes.run("doctor", "--format", "json")
    assert (done.returncode, time.monotonic() - began_s < 40) == (3, True), done.stderr
    rows = json.loads(done.stdout)["findings"]
    kinds = Counter(row["kind"] for row in rows)
    assert (kinds["no-controller"], kinds["broker-silent"]) == (1, 2)
    assert kinds["leaders-elsewhere"] == 0, "an election needs a controller"
    assert len(rows) < 10, "thousands of partitions of a dead broker are one row"
