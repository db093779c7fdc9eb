"""The real thing: `firnline dev` and `firnline server` as processes, driven by our own command line."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from firnline.client.admin import EARLIEST, LATEST, Admin
from firnline.client.connection import Connection
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.records.build import NewRecord, build_batch
from firnline.testing.plugin import Broker
from tests.peers.ports import free_ports

pytestmark = pytest.mark.slow

TIME_MS = 1_700_000_000_000


def firnline(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "firnline", *arguments], capture_output=True, text=True, timeout=60
    )


def json_of(broker: Broker, *arguments: str) -> Any:
    done = firnline(*arguments, "--bootstrap-server", broker.bootstrap, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def produce(broker: Broker, topic: str, *values: bytes) -> None:
    batch = build_batch([NewRecord(None, value, TIME_MS) for value in values])
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    with Connection("127.0.0.1", broker.port) as client:
        answer = client.ask(request, version=9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_a_topic_from_creation_to_deletion(firnline_broker: Broker) -> None:
    created = json_of(firnline_broker, "topic", "create", "t", "-p", "2", "-c", "retention.ms=5000")
    assert created["created"]
    assert [row["name"] for row in json_of(firnline_broker, "topic", "list")] == ["t"]
    produce(firnline_broker, "t", b"one", b"two")
    (found,) = json_of(firnline_broker, "topic", "describe", "t")
    assert found["topic_id"] == created["topic_id"]
    assert found["configs"]["retention.ms"] == "5000"
    assert [row["log_end_offset"] for row in found["partitions"]] == [2, 0]
    json_of(firnline_broker, "topic", "alter", "t", "--set", "retention.ms=6000", "-p", "3")
    (found,) = json_of(firnline_broker, "topic", "describe", "t")
    assert (found["partitions"][-1]["partition"], found["configs"]["retention.ms"]) == (2, "6000")
    json_of(firnline_broker, "topic", "delete", "t")
    assert json_of(firnline_broker, "topic", "list") == []


def test_a_trial_leaves_nothing_and_stated_brokers_are_used(firnline_broker: Broker) -> None:
    create = ("topic", "create", "t", "--replica-assignment", "1,1")
    assert not json_of(firnline_broker, *create, "--validate-only")["created"]
    assert json_of(firnline_broker, "topic", "list") == []
    json_of(firnline_broker, *create)
    grow = ("topic", "alter", "t", "-p", "3", "--replica-assignment", "1,1,1")
    json_of(firnline_broker, *grow, "--validate-only")
    assert len(json_of(firnline_broker, "topic", "describe", "t")[0]["partitions"]) == 2
    json_of(firnline_broker, *grow)
    assert len(json_of(firnline_broker, "topic", "describe", "t")[0]["partitions"]) == 3
    at = ("--bootstrap-server", firnline_broker.bootstrap)
    done = firnline("topic", "create", "u", "--replica-assignment", "9", *at)
    assert done.stderr.startswith("firnline: INVALID_REPLICA_ASSIGNMENT: topic u: ")


def test_a_bad_topic_setting_is_one_line_with_the_reason(firnline_broker: Broker) -> None:
    at = ("--bootstrap-server", firnline_broker.bootstrap)
    done = firnline("topic", "create", "t", "-c", "retention.mss=5", *at)
    assert done.returncode == 1
    assert done.stderr.startswith("firnline: INVALID_CONFIG: topic t: ")
    assert "retention.ms" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_group_that_nobody_knows_is_an_error(firnline_broker: Broker) -> None:
    done = firnline("group", "describe", "nobody", "--bootstrap-server", firnline_broker.bootstrap)
    assert done.returncode == 1
    assert done.stderr.startswith("firnline: no group 'nobody'")
    assert json_of(firnline_broker, "group", "list") == []


def test_records_survive_a_stop_and_a_crash(firnline_broker: Broker) -> None:
    with Admin(firnline_broker.bootstrap) as admin:
        admin.create_topic("t", partitions=1, replication_factor=1, configs={})
    produce(firnline_broker, "t", b"before the stop")
    firnline_broker.restart()
    produce(firnline_broker, "t", b"before the crash")
    firnline_broker.kill()
    firnline_broker.start()
    with Admin(firnline_broker.bootstrap) as admin:
        (leader,) = admin.brokers()
        assert admin.offsets(leader, "t", [0], EARLIEST) == {0: 0}
        assert admin.offsets(leader, "t", [0], LATEST) == {0: 2}


def test_what_the_broker_wrote_can_be_dumped(firnline_broker: Broker) -> None:
    with Admin(firnline_broker.bootstrap) as admin:
        admin.create_topic("t", partitions=1, replication_factor=1, configs={})
    produce(firnline_broker, "t", b"seen again")
    firnline_broker.stop()
    segment = next(firnline_broker.directory.glob("t-0/*.log"))
    metadata = next(firnline_broker.directory.glob("__cluster_metadata-0/*.log"))
    done = firnline("dump", str(segment), str(metadata))
    assert done.returncode == 0, done.stderr
    assert "value='seen again'" in done.stdout
    assert "type=TopicRecord version=0 value={name=t," in done.stdout


@pytest.mark.firnline_options(
    "-X", "num.partitions=3", "-X", "num.io.threads=2", "--log-level=info"
)
def test_options_reach_the_broker_and_idle_ones_are_named(firnline_broker: Broker) -> None:
    with Admin(firnline_broker.bootstrap) as admin:
        admin.create_topic("t", configs={})
        assert len(admin.topic("t")[1]) == 3
    named = [line for line in firnline_broker.log_text().splitlines() if "without meaning" in line]
    assert len(named) == 1
    assert named[0].endswith(" keys=num.io.threads")


def test_a_tiered_topic_goes_to_the_tier_and_says_so(
    firnline_tiered_topic: str, firnline_tier: Path, firnline_broker: Broker
) -> None:
    topic = firnline_tiered_topic
    for _ in range(20):
        produce(firnline_broker, topic, bytes(4000))
    (flushed,) = json_of(firnline_broker, "tier", "flush", topic)
    assert (flushed["log_end_offset"], flushed["highest_remote_offset"]) == (20, 19)
    (row,) = json_of(firnline_broker, "tier", "status", topic)["partitions"]
    assert row["highest_remote_offset"] == 19
    assert row["remote_segments"] > 1
    assert row["remote_bytes"] > 20 * 4000
    assert row["waiting_segments"] == 0
    assert sum(path.stat().st_size for path in firnline_tier.rglob("*.log")) == row["remote_bytes"]


def test_dev_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "firnline", "dev", "--port", "0"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        data = Path(line.partition("(data ")[2].partition(",")[0])
        assert line.endswith(", tier none)\n")
        assert data.parent == tmp_path
        assert (data / "meta.properties").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stdout.read() == ""
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_one_line_and_costs_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = firnline("dev", "--port", str(port), "--dir", str(tmp_path / "data"))
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_runs_on_what_storage_formatted(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=3\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=3@127.0.0.1:9093\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
        f"log.dirs={tmp_path}/data\nnum.partitions=2\n"
    )
    not_formatted = firnline("server", "--config", str(path))
    assert not_formatted.returncode == 1
    assert "firnline storage format" in not_formatted.stderr
    cluster_id = firnline("storage", "random-uuid").stdout.strip()
    assert firnline("storage", "format", "-t", cluster_id, "-c", str(path)).returncode == 0
    command = [sys.executable, "-m", "firnline", "server", "--config", str(path)]
    environment = os.environ | {"FIRNLINE_NUM_PARTITIONS": "4"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            while "ready at" not in (line := process.stderr.readline()):
                assert line, "the server ended"
            assert f"127.0.0.1:{port}" in line
            with Admin(f"127.0.0.1:{port}") as admin:
                assert admin.metadata([]).cluster_id == cluster_id
                admin.create_topic("t", configs={})
                assert len(admin.topic("t")[1]) == 4
        finally:
            process.terminate()
        process.stderr.read()
        assert process.wait(30) == 0


def test_records_of_long_ago_are_still_there_a_moment_later(firnline_broker: Broker) -> None:
    """Kafka looks for what is due every five minutes; tests that write old times read them back."""
    json_of(firnline_broker, "topic", "create", "old", "-p", "1")
    produce(firnline_broker, "old", b"x")  # of years ago
    time.sleep(2.5)
    with Admin(firnline_broker.bootstrap) as admin:
        (leader,) = admin.brokers()
        assert admin.offsets(leader, "old", [0], EARLIEST) == {0: 0}


def test_a_node_alone_shows_its_snapshots_and_takes_one(firnline_broker: Broker) -> None:
    """As a controller it listens nowhere; the options may stand before `take` or behind it."""
    where = ("--bootstrap-server", firnline_broker.bootstrap)
    for command in (("snapshots", *where, "take", "--all"), ("snapshots", "take", "--all", *where)):
        taken = firnline("quorum", *command)
        assert (taken.returncode, taken.stderr) == (0, "")
        assert "node 1: offset " in taken.stdout
    shown = firnline("quorum", "snapshots", *where, "--format", "json")
    assert shown.returncode == 0
    (node,) = json.loads(shown.stdout)
    assert (node["address"], len(node["snapshots"])) == (firnline_broker.bootstrap, 1)
