"""`firnline quorum`: whom it asks, what it prints, and what it does while nobody leads."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from firnline.base.errors import Code, FirnlineError
from firnline.cli.main import cli
from firnline.client.connection import NoController
from firnline.protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartitionResult,
    DescribeQuorumResponse,
    DescribeQuorumTopicResult,
    QuorumListener,
    QuorumNode,
    QuorumReplicaState,
)
from firnline.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from firnline.protocol.messages.k32011_metadata_snapshots import (
    MetadataSnapshot,
    MetadataSnapshotsResponse,
)
from firnline.protocol.messages.k32012_take_snapshot import TakeSnapshotResponse
from tests.peers.ports import free_ports
from tests.unit.cli.fake_broker import FakeBroker

QUORUM, CLUSTER, SNAPSHOTS, TAKE = 55, 60, 32011, 32012
NOW_MS = 1_700_000_000_000


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["quorum", *arguments])


def quorum(_: Any = None, *, error: int = 0) -> DescribeQuorumResponse:
    """Node 2 leads; 1 is level, 3 is behind and silent; 4 observes and never fetched."""

    def replica(node_id: int, end_offset: int, ago_ms: int | None) -> QuorumReplicaState:
        at_ms = -1 if ago_ms is None else NOW_MS - ago_ms
        return QuorumReplicaState(
            replica_id=node_id,
            replica_directory_id=bytes(15) + bytes([node_id == 4]),
            log_end_offset=end_offset,
            last_fetch_timestamp=at_ms,
            last_caught_up_timestamp=at_ms,
        )

    part = DescribeQuorumPartitionResult(
        partition_index=0,
        error_code=error,
        leader_id=2,
        leader_epoch=7,
        high_watermark=95,
        current_voters=[replica(1, 100, 40), replica(2, 100, 0), replica(3, 60, 25_000)],
        observers=[replica(4, 0, None)],
    )
    nodes = [
        QuorumNode(node_id=n, listeners=[QuorumListener(name="C", host="h", port=90 + n)])
        for n in (1, 2, 3)
    ]
    topic = DescribeQuorumTopicResult(topic_name="__cluster_metadata", partitions=[part])
    return DescribeQuorumResponse(topics=[topic], nodes=nodes)


def cluster(request: Any) -> DescribeClusterResponse:
    if request.endpoint_type != 1:
        return DescribeClusterResponse(error_code=Code.MISMATCHED_ENDPOINT_TYPE)
    return DescribeClusterResponse(cluster_id="abc", controller_id=4)


def test_people_read_how_far_behind_and_how_long_ago() -> None:
    with FakeBroker({QUORUM: quorum, CLUSTER: cluster}) as broker:
        said = run("status", "--bootstrap-server", broker.address).output
    lines = [line.split() for line in said.splitlines() if line.strip()]
    assert ["leader", "id", "2"] in lines
    assert ["voters", "1,", "2,", "3"] in lines
    assert ["max", "follower", "lag", "40"] in lines
    assert ["1", "follower", "100", "0", "40", "ms", "ago", "40", "ms", "ago", "h:91"] in lines
    assert ["2", "leader", "100", "0", "-", "-", "h:92"] in lines
    assert ["3", "follower", "60", "40", "25", "s", "ago", "25", "s", "ago", "h:93"] in lines
    assert ["4", "observer", "0", "100", "never", "never", "-"] in lines


def test_programs_read_plain_numbers() -> None:
    with FakeBroker({QUORUM: quorum, CLUSTER: cluster}) as broker:
        said = json.loads(
            run("status", "--bootstrap-server", broker.address, "--format", "json").output
        )
    assert (said["cluster_id"], said["leader_id"], said["epoch"]) == ("abc", 2, 7)
    assert (said["high_watermark"], said["observers"], said["now_ms"]) == (95, [4], NOW_MS)
    assert said["replicas"][2] == {
        "node_id": 3,
        "role": "follower",
        "log_end_offset": 60,
        "lag": 40,
        "last_fetch_ms": NOW_MS - 25_000,
        "last_caught_up_ms": NOW_MS - 25_000,
        "address": "h:93",
        "directory_id": "",
    }
    assert said["replicas"][3]["directory_id"] == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_each_half_is_there_under_the_flags_of_kafkas_tool() -> None:
    with FakeBroker({QUORUM: quorum, CLUSTER: cluster}) as broker:
        where = ("--bootstrap-server", broker.address)
        assert "observer" in run("describe", "--replication", *where).output
        assert "high watermark" in run("describe", "--status", *where).output
        assert "last fetch" not in run("describe", "--status", *where).output
        both = run("describe", "--status", "--replication", *where)
        assert both.exit_code == 2
        as_json = run("describe", "--replication", *where, "--format", "json").output
        assert [row["node_id"] for row in json.loads(as_json)] == [1, 2, 3, 4]


def test_a_controller_says_who_leads_and_that_one_is_asked() -> None:
    with FakeBroker({QUORUM: quorum}) as leader:

        def controllers(request: Any) -> DescribeClusterResponse:
            assert request.endpoint_type == 2
            row = DescribeClusterBroker(broker_id=2, host="127.0.0.1", port=leader.port)
            return DescribeClusterResponse(cluster_id="abc", controller_id=2, brokers=[row])

        with FakeBroker({CLUSTER: controllers}) as other:
            said = run("status", "--bootstrap-controller", other.address)
            assert "leader id" in said.output
        assert [type(each).__name__ for each in leader.asked] == ["DescribeQuorumRequest"]


def test_an_address_that_is_down_is_passed_over() -> None:
    down = f"127.0.0.1:{free_ports(1)[0]}"
    with FakeBroker({QUORUM: quorum, CLUSTER: cluster}) as broker:
        said = run("status", "--bootstrap-server", f"{down},{broker.address}")
        assert said.exit_code == 0
        assert "leader id" in said.output
    with pytest.raises(FirnlineError, match="cannot reach"):
        CliRunner().invoke(
            cli, ["quorum", "status", "--bootstrap-server", down], catch_exceptions=False
        )


def test_while_nobody_leads_it_asks_again_for_a_while() -> None:
    answers = [quorum(error=Code.NOT_LEADER_OR_FOLLOWER), quorum()]
    with FakeBroker({QUORUM: lambda _: answers.pop(0), CLUSTER: cluster}) as broker:
        assert run("status", "--bootstrap-server", broker.address).exit_code == 0
    with (
        FakeBroker(
            {QUORUM: lambda _: quorum(error=Code.NOT_LEADER_OR_FOLLOWER), CLUSTER: cluster}
        ) as broker,
        pytest.raises(NoController, match="cluster has no controller: NOT_LEADER_OR_FOLLOWER"),
    ):
        CliRunner().invoke(
            cli,
            ["quorum", "status", "--bootstrap-server", broker.address, "--timeout", "2"],
            catch_exceptions=False,
        )


def test_brokers_and_controllers_are_not_asked_at_once() -> None:
    said = run("status", "--bootstrap-server", "a:1", "--bootstrap-controller", "b:1")
    assert said.exit_code == 2
    assert "exclude each other" in said.output


# --------------------------------------------------------------------------------- snapshots


def snapshots(**changes: Any) -> Any:
    """What a node says that has two, the newer one 3 minutes old."""
    fields: dict[str, Any] = {
        "node_id": 4,
        "now_ms": NOW_MS,
        "log_start_offset": 20,
        "log_end_offset": 95,
        "bytes_until_next": 12_345_678,
        "snapshots": [
            MetadataSnapshot(end_offset=20, epoch=3, size_bytes=1_000, last_contained_ms=0),
            MetadataSnapshot(
                end_offset=80, epoch=7, size_bytes=2_500_000, last_contained_ms=NOW_MS - 185_000
            ),
        ],
    }
    return lambda _: MetadataSnapshotsResponse(**(fields | changes))


def one_broker(broker: FakeBroker) -> Any:
    """A cluster whose observer listens where the test listens; nobody else is there."""

    def answer(request: Any) -> DescribeClusterResponse:
        found = DescribeClusterBroker(broker_id=4, host="127.0.0.1", port=broker.port)
        return DescribeClusterResponse(cluster_id="abc", controller_id=4, brokers=[found])

    return answer


def asked_of(broker: FakeBroker, *words: str, of: str = "snapshots") -> Result:
    nobody = free_ports(3)

    def everybody(_: Any) -> DescribeQuorumResponse:
        found = quorum()
        for node, port in zip(found.nodes, nobody, strict=True):
            node.listeners = [QuorumListener(name="C", host="127.0.0.1", port=port)]
        return found

    broker.answers |= {QUORUM: everybody, CLUSTER: one_broker(broker)}
    return run(of, "--bootstrap-server", broker.address, *words)


def test_people_read_each_nodes_snapshots_newest_first() -> None:
    with FakeBroker({SNAPSHOTS: snapshots()}) as broker:
        result = asked_of(broker)
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "4 observer 80-7 2.5 MB 3 min 20 95 12.3 MB" in lines
    assert any(line.startswith("4 observer 20-3 1.0 kB 19675 d") for line in lines)
    assert sum("cannot reach a broker" in line for line in lines) == 3
    assert result.exit_code == 3, "three nodes are silent"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"forgotten_offset": 90}, "lost metadata up to 90: takes no part in elections"),
        ({"damaged": [MetadataSnapshot(end_offset=9, epoch=1)]}, "1 damaged, set aside"),
        ({"failed": 2}, "2 failed since the start"),
        ({"fetching_offset": 99}, "fetches the one up to 99"),
        ({"is_taking": True}, "takes one"),
        ({"snapshots": []}, "none"),
    ],
)
def test_what_is_wrong_with_snapshots_is_said(changes: dict[str, Any], said: str) -> None:
    with FakeBroker({SNAPSHOTS: snapshots(**changes)}) as broker:
        result = asked_of(broker)
        programs = asked_of(broker, "--format", "json")
    assert said in result.output
    (row,) = [row for row in json.loads(programs.output) if row["node_id"] == 4]
    assert row["snapshots"] == changes.get("snapshots", row["snapshots"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"damaged": [MetadataSnapshot(end_offset=9, epoch=1)]}, ["1 damaged, set aside"]),
        ({"forgotten_offset": 90}, ["lost metadata up to 90: takes no part in elections"]),
        ({"failed": 2}, []),  # it is tried again
    ],
)
def test_who_describes_the_quorum_alone_learns_of_damage(
    changes: dict[str, Any], said: list[str]
) -> None:
    with FakeBroker({SNAPSHOTS: snapshots(**changes)}) as broker:
        people = asked_of(broker, of="status")
        programs = asked_of(broker, "--format", "json", of="status")
    wanted = [f"node 4: snapshots: {word} (see `firnline quorum snapshots`)" for word in said]
    assert [line for line in people.output.splitlines() if "snapshots" in line] == wanted
    assert json.loads(programs.output)["snapshot_alarms"] == ({"4": said} if said else {})
    assert people.exit_code == programs.exit_code == (3 if said else 0)


def test_a_node_that_knows_no_such_request_is_no_alarm() -> None:
    """Kafka's, or one that is down."""
    with FakeBroker({}) as broker:
        assert asked_of(broker, of="status").exit_code == 0


def test_a_snapshot_is_taken_where_it_was_asked_for_or_everywhere() -> None:
    def taken(_: Any) -> TakeSnapshotResponse:
        return TakeSnapshotResponse(end_offset=80, epoch=7)

    with FakeBroker({TAKE: taken}) as broker:
        one = asked_of(broker, "take", "--node", "4")
        everybody = asked_of(broker, "take", "--all")
        nobody = asked_of(broker, "take")
        unknown = asked_of(broker, "take", "--node", "9")
    assert (one.exit_code, one.output) == (0, "node 4: offset 80, epoch 7\n")
    assert everybody.exit_code == 3
    assert "node 1: cannot reach" in everybody.output
    assert nobody.exit_code == 2
    assert isinstance(unknown.exception, FirnlineError)


def test_why_no_snapshot_was_taken_is_said() -> None:
    def failed(_: Any) -> TakeSnapshotResponse:
        return TakeSnapshotResponse(
            error_code=Code.KAFKA_STORAGE_ERROR, error_message="the disk is full"
        )

    with FakeBroker({TAKE: failed}) as broker:
        result = asked_of(broker, "take", "--node", "4")
    assert "the disk is full" in result.output
    assert result.exit_code == 3
