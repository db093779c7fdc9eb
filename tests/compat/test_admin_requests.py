"""Bad requests about topics, replicas and brokers: ours answers as Apache Kafka does, and nothing changes."""

from collections.abc import Iterator
from typing import Any

import pytest

from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from tests.compat.admin_cases import (
    BROKER_NODE,
    CONTROLLER_NODE,
    PARTITIONS,
    PARTS,
    TOPIC,
    UNKNOWN_ID,
    Case,
    World,
    create,
    register,
    reported,
)
from tests.compat.admin_table import NOT_ASKED, OURS, REPORTED
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, KAFKA, Cluster, eventually
from tests.peers.nodes import QUICK as SETTINGS
from tests.wire.line import Line

_SETTINGS = {**SETTINGS, "broker.session.timeout.ms": 60_000, "auto.create.topics.enable": "false"}


class Asked:
    """A controller and a broker of one kind, a topic, and a broker that only registered."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self.cluster, self.kind = cluster, kind
        made = self.ask(BROKER_NODE, create(TOPIC, num_partitions=PARTITIONS), 7)
        assert reported(made) == "NONE", made
        eventually("the topic is there and led", self._is_led)
        registered = self.ask(CONTROLLER_NODE, register(cluster.cluster_id), 4)
        assert registered.error_code == 0
        assert UNKNOWN_ID > BROKER_NODE
        row = self.ask(BROKER_NODE, MetadataRequest(topics=None), 12).topics[0]
        epoch = row.partitions[0].leader_epoch
        self.world = World(cluster.cluster_id, row.topic_id, epoch, registered.broker_epoch)
        self.before = self.state()

    def ask(self, to: int, request: Any, version: int) -> Any:
        with Line(self.cluster[to].address, timeout_s=300) as line:
            return line.ask(request, version)

    def state(self) -> tuple[list[tuple[str, int]], list[Any]]:
        """Topics with their partitions, and who leads them with which ISR."""
        rows = self.ask(BROKER_NODE, MetadataRequest(topics=None), 12).topics
        return (
            sorted((row.name, len(row.partitions)) for row in rows),
            sorted(
                (row.name, p.partition_index, p.leader_id, p.leader_epoch, list(p.isr_nodes))
                for row in rows
                for p in row.partitions
            ),
        )

    def _is_led(self) -> bool:
        topics, partitions = self.state()
        return topics == [(TOPIC, PARTITIONS)] and all(row[2] == BROKER_NODE for row in partitions)

    def answer(self, case: Case) -> str:
        """Ask and say what was told, or that the connection was closed."""
        try:
            return reported(self.ask(case.to, case.ask(self.world), case.version))
        except (AssertionError, OSError) as problem:
            return str(problem)

    def is_responsive(self) -> bool:
        """Does the controller answer others?"""
        found = self.ask(CONTROLLER_NODE, DescribeClusterRequest(endpoint_type=2), 1)
        return bool(found.controller_id == CONTROLLER_NODE)


@pytest.fixture(
    scope="module", params=[pytest.param(KAFKA, marks=pytest.mark.peer), FIRNLINE], ids=str
)
def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    """A cluster of one kind, used by all tests of this file."""
    directory = tmp_path_factory.mktemp(request.param)
    members = [(request.param, CONTROLLER), (request.param, BROKER)]
    with Cluster(directory, members, _SETTINGS) as cluster:
        yield Asked(cluster, request.param)


@pytest.mark.parametrize("part", PARTS)
def test_a_bad_request_gets_the_code_that_kafka_gives_and_changes_nothing(
    asked: Asked, part: str
) -> None:
    """One test a part of the table, so that all wrong answers are seen at once."""
    wrong = []
    for case in PARTS[part]:
        wanted = REPORTED[case.name]
        if asked.kind == FIRNLINE:
            wanted = OURS.get(case.name, wanted)
        elif case.name in NOT_ASKED:
            continue
        found = asked.answer(case)
        if found != wanted:
            wrong.append(f"{case.name} (to {case.to}, v{case.version})\n  {found}\n  {wanted}")
        if not asked.is_responsive():
            wrong.append(f"{case.name}: the controller answers no more")
    assert not wrong, "told and wanted:\n" + "\n".join(wrong)
    assert asked.state() == asked.before
    assert [node for node in asked.cluster.nodes.values() if not node.is_running] == []
