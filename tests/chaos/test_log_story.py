"""The logs of three real nodes tell what happened to them: an operator greps for it.

A leader is killed and comes back, a broker stops in order, the controller changes, a group is formed. Then
nothing happens, and nothing is logged.
"""

import os
import re
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from firnline.client.admin import Admin
from firnline.testing.cluster import Cluster
from tests.peers.nodes import eventually

TOPIC = "orders"
QUIET_S, QUIET_TRIES = 11.0, 5  # longer than what a node does every ten seconds
FORGED = "x\n2026-01-01 00:00:00,000 CRITICAL firnline: forged\x1b[2J"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with short sessions, and a topic on all of them."""
    options = ["broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=300"]
    options += ["replica.lag.time.max.ms=2000", "group.min.session.timeout.ms=1000"]
    base: Path = tmp_path_factory.mktemp("story")
    found = Cluster(base / "nodes", options=[word for each in options for word in ("-X", each)])
    try:
        found.start()
        with Admin(found.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=2, replication_factor=3, configs={})
        found.await_in_sync(TOPIC)
        yield found
    finally:
        found.kill()


class Story:
    """The lines of all nodes from now on."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._seen = {node_id: len(cluster.log_text(node_id)) for node_id in cluster.node_ids}

    def lines(self, node_id: int) -> list[str]:
        return self.cluster.log_text(node_id)[self._seen[node_id] :].splitlines()

    def find(self, pattern: str, *node_ids: int) -> dict[int, str]:
        """Wait until each of these nodes has a line that matches; return the first of each."""
        found: dict[int, str] = {}

        def look() -> bool:
            for node_id in node_ids:
                match = next((x for x in self.lines(node_id) if re.search(pattern, x)), None)
                if match is not None:
                    found[node_id] = match
            return len(found) == len(node_ids)

        eventually(f"a line {pattern!r} on nodes {node_ids}", look)
        return found


def field(line: str, name: str) -> str:
    match = re.search(rf" {name}=(\S+)", line)
    assert match is not None, line
    return match[1]


def others(cluster: Cluster, node_id: int) -> tuple[int, ...]:
    return tuple(each for each in cluster.node_ids if each != node_id)


def test_a_leader_is_killed_and_comes_back(cluster: Cluster) -> None:
    story, leader = Story(cluster), cluster.leader_of(TOPIC)
    rest = others(cluster, leader)
    cluster.kill_node(leader)
    fenced = story.find(rf"WARNING firnline.controller: broker fenced broker={leader} ", *rest)
    reason = rf'was={leader} reason="the leader was fenced"'
    elected = story.find(rf"leader elected topic={TOPIC} partition=0 .*{reason}", *rest)
    shrunk = story.find(
        rf'ISR shrunk topic={TOPIC} partition=0 .*removed={leader} reason="broker fenced"', *rest
    )
    assert len({field(line, "broker_epoch") for line in fenced.values()}) == 1
    for lines in (elected, shrunk):
        assert len({field(line, "partition_epoch") for line in lines.values()}) == 1, (
            "the same change has the same number on all nodes"
        )
    cluster.start_node(leader)
    old_epoch = field(fenced[rest[0]], "broker_epoch")
    back = story.find(
        rf"broker registered broker={leader} .*was_epoch={old_epoch} ", *cluster.node_ids
    )
    assert int(field(back[leader], "broker_epoch")) > int(old_epoch)
    story.find(rf"broker unfenced broker={leader} ", *cluster.node_ids)
    story.find(
        rf"ISR grown topic={TOPIC} partition=0 .*added={leader} "
        'reason="caught up( after its broker started again)?"',
        *rest,
    )
    story.find("INFO firnline.controller: metadata caught up brokers=3 ", leader)
    story.find(
        'INFO firnline.log: logs recovered logs=.*reason="the last stop was not clean"', leader
    )


def test_a_broker_is_stopped_in_order(cluster: Cluster) -> None:
    story, node_id = Story(cluster), cluster.leader_of(TOPIC, 1)
    rest = others(cluster, node_id)
    cluster.stop_node(node_id)
    story.find(rf"broker in controlled shutdown broker={node_id} ", *rest)
    story.find(
        rf'leader elected topic={TOPIC} partition=1 .*reason="controlled shutdown of the leader"',
        *rest,
    )
    story.find(rf"broker stopped broker={node_id} ", *rest)
    assert not any("broker fenced" in line for each in rest for line in story.lines(each))
    story.find("INFO firnline: stopping", node_id)
    cluster.start_node(node_id)
    cluster.await_in_sync(TOPIC)


def test_the_controller_changes(cluster: Cluster) -> None:
    text = cluster.log_text(1)
    controller = int(re.findall(r"controller changed controller=(\d+)", text)[-1])
    story = Story(cluster)
    os.kill(cluster.pid(controller), signal.SIGSTOP)
    try:
        rest = others(cluster, controller)
        new = story.find(r"controller changed controller=[1-3] ", *rest)
        (other,) = {field(line, "controller") for line in new.values()}
        story.find("this node is the active controller ", int(other))
    finally:
        os.kill(cluster.pid(controller), signal.SIGCONT)
    story.find("this node is not the active controller any more ", controller)
    cluster.await_in_sync(TOPIC)


def test_a_group_is_formed_and_left(cluster: Cluster) -> None:
    """And its client cannot write a line of its own, whatever it calls itself."""
    story = Story(cluster)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "readers",
            "client.id": FORGED,
            "session.timeout.ms": 6_000,
        }
    )
    consumer.subscribe([TOPIC])
    logs = {}

    def is_there(what: str) -> bool:
        consumer.poll(0.1)
        for node_id in cluster.node_ids:
            logs[node_id] = "\n".join(story.lines(node_id))
        return any(what in text for text in logs.values())

    eventually("the rebalance", lambda: is_there("group rebalance ended group=readers"))
    consumer.close()
    eventually(
        "the end", lambda: any("group is empty" in "\n".join(story.lines(n)) for n in (1, 2, 3))
    )
    text = "\n".join(logs.values())
    began = re.search(r'group rebalance began group=readers reason="member joined" .*', text)
    assert began is not None
    assert "forged" in began[0]
    assert "coordinator loaded topic=__consumer_offsets" in text
    for node_id in cluster.node_ids:
        assert not re.search(r"^\S+ \S+ CRITICAL", cluster.log_text(node_id), re.MULTILINE)
        assert "\x1b" not in cluster.log_text(node_id)


def test_a_topic_is_made_altered_and_deleted(cluster: Cluster) -> None:
    """All nodes tell the same changes, with one id of the topic."""
    story = Story(cluster)
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(
            "bills", partitions=1, replication_factor=3, configs={"retention.ms": "5000"}
        )
        made = story.find(
            'topic created topic=bills .*partitions=1 replication_factor=3 configs="?retention.ms=5000',
            *cluster.node_ids,
        )
        admin.alter_topic("bills", changes={"retention.ms": "6000"})
        story.find(
            r'config changed resource=topic:bills changes="retention.ms=6000 \(was 5000\)"',
            *cluster.node_ids,
        )
        admin.set_partitions("bills", 2)
        story.find("partitions added topic=bills .*partitions=2 was=1 ", *cluster.node_ids)
        admin.delete_topic("bills")
        gone = story.find("topic deleted topic=bills .*partitions=2 ", *cluster.node_ids)
    assert len({field(line, "topic_id") for line in (*made.values(), *gone.values())}) == 1


def test_a_coordinator_moves(cluster: Cluster) -> None:
    """The broker that stops says that it coordinates no more, and another one that it does."""
    story, node_id = Story(cluster), cluster.leader_of("__consumer_offsets")
    cluster.stop_node(node_id)
    moved = "coordinator{} topic=__consumer_offsets partition=0 "
    left = story.find(moved.format(" unloaded"), node_id)
    successor = cluster.leader_of("__consumer_offsets")
    assert successor != node_id
    took = story.find(moved.format(" loaded"), successor)
    assert int(field(took[successor], "leader_epoch")) > int(field(left[node_id], "leader_epoch"))
    cluster.start_node(node_id)
    cluster.await_in_sync(TOPIC, "__consumer_offsets")


def test_what_strangers_send_is_refused_in_few_lines(cluster: Cluster) -> None:
    story = Story(cluster)
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", cluster.port(1))) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + struct.pack(">i", -1))
    story.find("WARNING firnline.net: request refused host=127.0.0.1 .*reason=", 1)
    eventually(
        "the count of the rest",
        lambda: any("left_out=" in x or "lines left out" in x for x in story.lines(1)),
    )
    assert sum("request refused" in line for line in story.lines(1)) < 40


def test_a_quiet_cluster_logs_nothing(cluster: Cluster) -> None:
    cluster.await_in_sync(TOPIC)
    said: dict[int, list[str]] = {}
    for _ in range(QUIET_TRIES):  # what was before may end, and a busy machine may miss a heartbeat
        story = Story(cluster)
        time.sleep(QUIET_S)
        said = {node_id: story.lines(node_id) for node_id in cluster.node_ids}
        if not any(said.values()):
            return
    raise AssertionError(f"it is never quiet: {said}")
