"""What somebody who reaches the controllers' listener can do: every API of it with numbers at their limits.

Three nodes that are brokers and controllers. Whatever is sent, by a stranger or in a broker's name, costs the
connection it came on and no more: no node ends, nothing fails inside one, a leader is elected, and all of
them start again on what they have. That brokers were fenced, unregistered or shut out meanwhile is what
docs/OPERATIONS.md says such a listener means.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from firnline.client.admin import Admin
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.messages.k53_begin_quorum_epoch import (
    BeginQuorumEpochPartition,
    BeginQuorumEpochRequest,
    BeginQuorumEpochTopic,
    LeaderEndpoint,
)
from firnline.protocol.messages.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
    ProposedPartition,
)
from firnline.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from firnline.protocol.messages.k62_broker_registration import (
    BrokerListener,
    BrokerRegistrationRequest,
    BrokerSupportedFeature,
)
from firnline.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from firnline.protocol.messages.k64_unregister_broker import UnregisterBrokerRequest
from firnline.protocol.versions import CONTROLLER_PRIVATE, CONTROLLER_SERVED, ServedApi
from firnline.raft.election_state import EPOCH_FREE_MAX, EPOCH_MAX
from tests.fuzz.shapes import Plan, frame
from tests.peers.nodes import COMBINED, FIRNLINE, QUICK, Cluster, Node, eventually
from tests.peers.quorum import describe_quorum
from tests.wire.line import Line

NUMBERS = (-(2**63), -1, 1, EPOCH_FREE_MAX + 1, 2**63 - 1)
ROWS = (*CONTROLLER_SERVED, *CONTROLLER_PRIVATE)
SETTINGS = {
    **QUICK,
    "offsets.topic.replication.factor": 3,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 200,
    "controller.quorum.election.timeout.ms": 200,
}
EPOCHS_GUESSED = 2_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    base = tmp_path_factory.mktemp("controllers")
    with Cluster(base, [(FIRNLINE, COMBINED)] * 3, SETTINGS) as made:
        eventually("a topic can be made", lambda: creates(made, "before", 3), within_s=60.0)
        yield made
        made.kill()


def creates(cluster: Cluster, name: str, replicas: int) -> bool:
    """Does a topic come to be, on so many brokers?"""
    try:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic(name, partitions=1, replication_factor=replicas, configs={})
    except Exception:  # noqa: BLE001 - it is asked again
        return False
    return True


def line_to(node: Node, timeout_s: float = 20.0) -> Line:
    return Line(("127.0.0.1", node.controller_port), timeout_s)


def says(node: Node, what: str) -> bool:
    return what in node.log_text()


def unharmed(cluster: Cluster) -> None:
    """Raise AssertionError where a node has ended, or says that something failed inside it."""
    for node in cluster.nodes.values():
        log = node.log_text()
        assert node.is_running, log[-3000:]
        for word in ("Traceback", "failed inside", "the node stops", "out of use"):
            assert word not in log, log[max(0, log.find(word) - 500) :][:4000]
        with line_to(node) as line:
            assert line.ask(ApiVersionsRequest(), 0).error_code == 0


@pytest.fixture(scope="module")
def epochs(cluster: Cluster) -> dict[int, int]:
    return {broker_id: broker_epoch(cluster, broker_id) for broker_id in cluster.nodes}


def broker_epoch(cluster: Cluster, broker_id: int) -> int:
    """Guess it, as a stranger can: a beat of the right epoch is taken. 0 where none is found."""
    for node in cluster.nodes.values():
        with line_to(node) as line:
            for epoch in range(EPOCHS_GUESSED):
                heartbeat = BrokerHeartbeatRequest(
                    broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=1 << 40
                )
                code = line.ask(heartbeat, 1).error_code
                if code == 0:
                    return epoch
                if code == 41:  # NOT_CONTROLLER
                    break
    return 0


def plans(cluster: Cluster, row: ServedApi, epoch: int) -> Iterator[Plan]:
    quorum = (
        ("cluster_id", cluster.cluster_id),
        ("topic_name", METADATA_TOPIC),
        ("topic_id", METADATA_TOPIC_ID),
        ("partition_index", 0),
        ("partition", 0),
    )
    reported = (("voter_id", -1), ("leader_id", 77), ("replica_id", 77))
    # The last test unregisters brokers.
    broker_id = 77 if row.key == UnregisterBrokerRequest.key else 2
    broker = (("cluster_id", cluster.cluster_id), ("broker_id", broker_id), ("broker_epoch", epoch))
    for number in NUMBERS:
        yield Plan("numbers", number=number)
        yield Plan("null", None, number=number)
        yield Plan("known topic", "before", number=number)
        yield Plan("the quorum's", "CONTROLLER", number=number, named=quorum)
        yield Plan("the quorum's, of a stranger", "x", number=number, named=(*quorum, *reported))
        yield Plan("a broker's", "before", number=number, named=broker)
        yield Plan("a broker's, null", None, number=number, named=broker)
    yield Plan("counts of -1", count=-1, number=-1, named=broker)
    yield Plan("thousands", "a", count=1000, number=EPOCH_MAX, named=broker)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_extreme_requests_to_controllers_cost_their_connection_at_most(
    cluster: Cluster, epochs: dict[int, int], row: ServedApi
) -> None:
    for node in cluster.nodes.values():
        for version in sorted({row.advertised_min, row.advertised_max}):
            for plan in plans(cluster, row, epochs[2]):
                with line_to(node) as line:
                    line.send(frame(row.key, version, plan, plan.text))
                    line.frame()
    unharmed(cluster)


def test_a_second_leader_that_is_made_up_ends_nobody(cluster: Cluster) -> None:
    """Apache Kafka 4.3.1 ends: a follower by one such request, the leader by another (asked)."""
    for node in cluster.nodes.values():
        for epoch in (*range(40), EPOCH_MAX):
            for leader_id in (*cluster.nodes, 77):
                row = BeginQuorumEpochPartition(
                    partition_index=0, leader_id=leader_id, leader_epoch=epoch
                )
                request = BeginQuorumEpochRequest(
                    cluster_id=cluster.cluster_id,
                    voter_id=node.node_id,
                    topics=[BeginQuorumEpochTopic(topic_name=METADATA_TOPIC, partitions=[row])],
                    leader_endpoints=[LeaderEndpoint(name="CONTROLLER", host="\0é.", port=0)],
                )
                with line_to(node) as line:
                    line.ask(request, 1)
    unharmed(cluster)
    eventually("a leader again", lambda: creates(cluster, "after-leaders", 1), within_s=60.0)


def active(cluster: Cluster) -> Node:
    """The node that decides."""

    def found() -> Node | None:
        for node in cluster.nodes.values():
            with line_to(node) as line:
                answer = line.ask(describe_quorum(), 2)
                if answer.topics and answer.topics[0].partitions[0].error_code == 0:
                    return node
        return None

    node = eventually("a leader", found, within_s=60.0)
    assert isinstance(node, Node)
    return node


def registration(cluster: Cluster, broker_id: int, **changes: Any) -> BrokerRegistrationRequest:
    """What a broker that runs this release says of itself."""
    endpoint = {"name": "PLAINTEXT", "host": "127.0.0.1", "port": 1, "security_protocol": 0}
    directory = (broker_id % 2**32).to_bytes(16, "little")
    levels = BrokerSupportedFeature(
        name="metadata.version", min_supported_version=1, max_supported_version=32_767
    )
    body: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": cluster.cluster_id,
        "incarnation_id": directory,
        "listeners": [BrokerListener(**{**endpoint, **changes.pop("endpoint", {})})],
        "features": [levels],
        "log_dirs": [bytes(7) + b"\1" + directory[:8]],
    }
    return BrokerRegistrationRequest(**{**body, **changes})


LONG = "x" * 32_767
MADE_UP: list[dict[str, Any]] = [
    {},
    {"rack": LONG},
    {"listeners": []},
    {"endpoint": {"host": LONG, "name": LONG}},
    {"endpoint": {"host": "", "port": 0}},
    {"endpoint": {"host": "\0é..", "port": 65_535, "security_protocol": -(2**15)}},
    {"endpoint": {"security_protocol": 2**15 - 1}},
    {"log_dirs": [index.to_bytes(16, "big") for index in range(5_000, 10_000)]},
]


def test_brokers_that_are_made_up_end_nobody(cluster: Cluster) -> None:
    """They are registered, counted in, told to clients, given replicas, and unregistered again."""
    node, made_up = active(cluster), []
    for broker_id in (-(2**31), -2, -1):
        with line_to(node) as line:
            answer = line.ask(registration(cluster, broker_id), 4)
            assert answer.error_code == Code.INVALID_REGISTRATION
    for broker_id, changes in enumerate(MADE_UP, start=EPOCH_MAX - len(MADE_UP) + 1):
        with line_to(node) as line:
            answer = line.ask(registration(cluster, broker_id, **dict(changes)), 4)
            if answer.error_code == 0:
                made_up.append((broker_id, answer.broker_epoch))
    assert len(made_up) >= 4
    for offset in (-(2**63), 2**63 - 1):
        for broker_id, epoch in made_up:
            heartbeat = BrokerHeartbeatRequest(
                broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=offset
            )
            with line_to(node) as line:
                assert line.ask(heartbeat, 1).error_code == 0
    for replicas in (1, 2, 3):
        creates(cluster, f"on-{replicas}", replicas)
    for each in cluster.nodes.values():
        with Line(each.address) as line:
            line.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
            line.ask(DescribeClusterRequest(), 0)
    unharmed(cluster)
    for broker_id, _ in made_up:
        with line_to(node) as line:
            assert line.ask(UnregisterBrokerRequest(broker_id=broker_id), 0).error_code == 0
    unharmed(cluster)


def test_what_a_broker_is_not_to_say_of_a_partition_ends_nobody(
    cluster: Cluster, epochs: dict[int, int]
) -> None:
    """ISRs of strangers, of nobody and of thousands; epochs of the past, of the future and of no time."""
    with Line(cluster[1].address) as line:
        wanted = [MetadataRequestTopic(name="before")]
        [topic] = line.ask(MetadataRequest(topics=wanted), 12).topics
    for isr in ([], [77], [-1, EPOCH_MAX], [1] * 1_000, [1, 2, 3], list(range(5_000))):
        for number in (-(2**31), -1, 0, 1, EPOCH_MAX):
            part = ProposedPartition(
                partition_index=0,
                leader_epoch=number if len(isr) != 3 else 0,
                new_isr=isr,
                new_isr_with_epochs=[BrokerState(broker_id=n, broker_epoch=number) for n in isr],
                leader_recovery_state=number % 128,
                partition_epoch=number,
            )
            for broker_id, epoch in epochs.items():
                request = AlterPartitionRequest(
                    broker_id=broker_id,
                    broker_epoch=epoch,
                    topics=[AlterPartitionTopic(topic_id=topic.topic_id, partitions=[part])],
                )
                for version in (2, 3):
                    with line_to(active(cluster)) as line:
                        line.ask(request, version)
    unharmed(cluster)


def test_a_forged_wish_to_shut_down_ends_no_broker(
    cluster: Cluster, epochs: dict[int, int]
) -> None:
    """It is shut out of ISRs until it is started again, as in Apache Kafka 4.3.1 (asked)."""
    assert epochs[2] > 0
    heartbeat: dict[str, Any] = {"broker_id": 2, "broker_epoch": epochs[2], "want_shut_down": True}
    for node in cluster.nodes.values():
        for offset in (-(2**63), 0, 2**63 - 1):
            with line_to(node) as line:
                line.ask(BrokerHeartbeatRequest(**heartbeat, current_metadata_offset=offset), 1)
    unharmed(cluster)


def test_brokers_that_live_and_are_unregistered_stay_up_and_come_back_with_a_start(
    cluster: Cluster,
) -> None:
    """One request to a node about itself ended it. Apache Kafka 4.3.1 stays up (asked)."""
    for broker_id in (*cluster.nodes, -1, EPOCH_MAX):
        for node in cluster.nodes.values():
            with line_to(node) as line:
                line.ask(UnregisterBrokerRequest(broker_id=broker_id), 0)
    said = "is registered by another process, or unregistered"
    for node in cluster.nodes.values():
        eventually("it says so", partial(says, node, said), within_s=30.0)
    unharmed(cluster)
    for node in cluster.nodes.values():
        node.stop()
    for node in cluster.nodes.values():
        node.start(wait=False)
    for node in cluster.nodes.values():
        node.await_answer()
    eventually("topics are made again", lambda: creates(cluster, "after", 3), within_s=60.0)
    unharmed(cluster)
