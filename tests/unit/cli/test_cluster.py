"""`firnline cluster status` and `firnline topic describe`: what is well, what is not, what nobody told."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from firnline.base.errors import Code
from firnline.cli.main import cli
from firnline.protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from firnline.protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartitionResult,
    DescribeQuorumResponse,
    DescribeQuorumTopicResult,
    QuorumReplicaState,
)
from firnline.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from firnline.protocol.messages.k32003_cluster_status import (
    ClusterStatusBroker,
    ClusterStatusController,
    ClusterStatusPartition,
    ClusterStatusProblem,
    ClusterStatusReplica,
    ClusterStatusRequest,
    ClusterStatusResponse,
    ClusterStatusTopic,
    ClusterStatusUnreadable,
)
from tests.peers.ports import free_ports
from tests.unit.cli.fake_broker import FakeBroker

NOW_MS = 1_700_000_000_000
COMPLETE = [(0, 1, [1, 2], [1, 2])]


class World:
    """Broker 1 answers everything, broker 2 what it says of itself.

    parts        partition, leader, replicas, ISR
    controllers  the voters that broker 1 knows, if it knows any: node id and port
    wrong        what broker 2 says is wrong with it
    knows_that_it_leads  whether broker 1 does, each time that it is asked; the last goes on
    """

    def __init__(self, broker: FakeBroker, other: FakeBroker) -> None:
        self.broker, self.other = broker, other
        self.controllers: list[tuple[int, int]] = []
        self.wrong: list[ClusterStatusProblem] = []
        other.answers = {
            32003: lambda _: ClusterStatusResponse(problems=self.wrong, metadata_offset=-1)
        }
        self.parts = COMPLETE
        self.fenced = self.leaving = False
        self.leader_id, self.silent_ms = 1, 100
        self.knows_that_it_leads = [True]
        self.min_isr = 1
        self.unreadable = 0
        self.alive: list[MetadataResponseBroker] = []  # without broker 1
        self.deaf: list[DescribeClusterBroker] = []
        broker.answers = {
            3: self.metadata,
            32: lambda _: DescribeConfigsResponse(results=[DescribeConfigsResult()]),
            55: self.quorum,
            60: self.cluster,
            32003: self.status,
        }

    def metadata(self, request: Any) -> MetadataResponse:
        rows = [
            MetadataResponsePartition(
                partition_index=index, leader_id=leader, leader_epoch=7, replica_nodes=replicas,
                isr_nodes=isr, offline_replicas=[n for n in replicas if n not in isr],
            )
            for index, leader, replicas, isr in self.parts
        ]  # fmt: skip
        names = ["t"] if request.topics is None else [each.name for each in request.topics]
        missing = Code.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.broker.port),
                *self.alive,
            ],
            topics=[
                MetadataResponseTopic(name=name, partitions=rows)
                if name == "t"
                else MetadataResponseTopic(name=name, error_code=missing)
                for name in names
            ],
        )

    def cluster(self, request: Any) -> DescribeClusterResponse:
        rows = [
            DescribeClusterBroker(
                broker_id=2,
                host="127.0.0.1",
                port=self.other.port,
                rack="b",
                is_fenced=self.fenced,
            ),
            DescribeClusterBroker(broker_id=1, host="127.0.0.1", port=self.broker.port),
        ]
        shown = [
            row for row in rows + self.deaf if request.include_fenced_brokers or not row.is_fenced
        ]
        return DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=shown)

    def quorum(self, _: Any) -> DescribeQuorumResponse:
        def voter(node_id: int, ago_ms: int) -> QuorumReplicaState:
            at_ms = NOW_MS - ago_ms
            return QuorumReplicaState(
                replica_id=node_id, log_end_offset=50, last_fetch_timestamp=at_ms,
                last_caught_up_timestamp=at_ms,
            )  # fmt: skip

        part = DescribeQuorumPartitionResult(
            leader_id=self.leader_id, leader_epoch=3, high_watermark=50,
            current_voters=[voter(1, 0), voter(2, self.silent_ms)],
        )  # fmt: skip
        topic = DescribeQuorumTopicResult(topic_name="__cluster_metadata", partitions=[part])
        return DescribeQuorumResponse(topics=[topic])

    def status(self, request: Any) -> ClusterStatusResponse:
        brokers = [
            ClusterStatusBroker(broker_id=1, broker_epoch=11),
            ClusterStatusBroker(broker_id=2, broker_epoch=12, in_controlled_shutdown=self.leaving),
        ]
        follower = ClusterStatusReplica(
            broker_id=2, broker_epoch=12, log_end_offset=20, behind_ms=5
        )
        rows = [
            ClusterStatusPartition(
                partition=index, leader_id=1, partition_epoch=4, log_start_offset=3,
                high_watermark=20, log_end_offset=25, min_insync_replicas=self.min_isr,
                followers=[follower],
            )
            for index, leader, _, _ in self.parts
            if leader == 1
        ]  # fmt: skip
        if request.topics and not self.knows_that_it_leads[0]:
            rows = [ClusterStatusPartition(partition=row.partition, leader_id=1) for row in rows]
        if request.topics:
            self.knows_that_it_leads = self.knows_that_it_leads[1:] or self.knows_that_it_leads
        topics = [ClusterStatusTopic(name=name, partitions=rows) for name in request.topics]
        unreadable = [
            ClusterStatusUnreadable(topic="__consumer_offsets", records=count)
            for count in [self.unreadable]
            if count
        ]
        controllers = [
            ClusterStatusController(node_id=node_id, host="127.0.0.1", port=port)
            for node_id, port in self.controllers
        ]
        return ClusterStatusResponse(
            brokers=brokers, topics=topics, unreadable=unreadable, controllers=controllers,
            metadata_offset=7,
        )  # fmt: skip


@pytest.fixture
def world() -> Iterator[World]:
    with FakeBroker({}) as fake, FakeBroker({}) as other:
        yield World(fake, other)


def run(world: World, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--bootstrap-server", world.broker.address])


def json_of(world: World, *words: str, code: int = 0) -> Any:
    result = run(world, *words, "--format", "json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


# ------------------------------------------------------------------------------------- status


def test_a_cluster_in_which_all_is_well_says_so(world: World) -> None:
    found = json_of(world, "cluster", "status")
    assert found["problems"] == []
    assert found["brokers"][1] == {
        "broker_id": 2, "address": world.other.address, "rack": "b", "state": "alive",
        "last_known": "alive", "broker_epoch": 12, "leads": 0, "replicas": 1, "in_sync": 1,
        "offline": 0,
    }  # fmt: skip
    assert (found["quorum"]["leader_id"], found["partitions"]) == (1, 1)
    text = run(world, "cluster", "status").stdout
    assert text.endswith("all is well\n")
    assert "active controller  1, in epoch 3" in text


def test_a_node_that_is_only_a_controller_is_asked_what_is_wrong_with_it(world: World) -> None:
    wrong = [ClusterStatusProblem(kind="disk-nearly-full", what="the disk is full", see="`df`")]
    status = ClusterStatusResponse(topics=[], problems=wrong)
    with FakeBroker({55: world.quorum, 32003: lambda _: status}) as controller:
        world.controllers = [(3000, controller.port)]
        found = json_of(world, "cluster", "status", code=3)
        assert found["problems"] == ["controller 3000: the disk is full (see `df`)"]
        wrong.clear()
        assert json_of(world, "cluster", "status")["problems"] == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"fenced": True}, "broker 2 is fenced, and answers at ADDRESS (see its log)"),
        (
            {"parts": [(0, 1, [1, 2], [1])]},
            "broker 2 cannot serve 1 of its replicas: its log says why"
            " (see `firnline topic describe --under-replicated`)",
        ),
        (
            {"leaving": True},
            "broker 2 is controlled-shutdown, and answers at ADDRESS (see its log)",
        ),
        ({"silent_ms": 60_000}, "controller 2 is silent (see `firnline quorum status`)"),
        (
            {"leader_id": -1},
            "no controller is active: nothing can be changed, and what metadata says may be old"
            " (see the log of each controller, and whether most of them run)",
        ),
        (
            {"parts": [(0, -1, [1, 2], [2])]},
            "1 partition without a leader (see `firnline topic describe --unavailable`)",
        ),
        (
            {"parts": [(0, 1, [1, 2], [1])]},
            "1 partition with fewer in-sync replicas than replicas"
            " (see `firnline topic describe --under-replicated`)",
        ),
        (
            {"parts": [(0, 1, [1, 2], [1])], "min_isr": 2},
            "1 partition with fewer in-sync replicas than acks=all needs"
            " (see `firnline topic describe --under-replicated`)",
        ),
        (
            {"wrong": [ClusterStatusProblem(kind="disk-nearly-full", what="the disk", see="`df`")]},
            "broker 2: the disk (see `df`)",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_is_wrong_is_named_and_scripts_see_it(
    world: World, wrong: dict[str, Any], said: str
) -> None:
    for name, value in wrong.items():
        setattr(world, name, value)
    said = said.replace("ADDRESS", world.other.address)
    result = run(world, "cluster", "status", "--timeout", "1")
    assert result.exit_code == 3
    assert said in result.stdout.splitlines()
    assert said in json_of(world, "cluster", "status", "--timeout", "1", code=3)["problems"]


def test_records_that_a_broker_could_not_read_are_shown_and_are_no_reason_to_wait(
    world: World,
) -> None:
    """They stay for as long as the log has them: scripts that wait for a cluster would wait for ever."""
    assert json_of(world, "cluster", "status")["unreadable"] == []
    world.unreadable = 2
    found = json_of(world, "cluster", "status")
    assert found["unreadable"] == [{"broker": 1, "topic": "__consumer_offsets", "records": 2}]
    line = "broker 1 has skipped 2 records of __consumer_offsets that cannot be read: its log names them"
    assert run(world, "cluster", "status").stdout.endswith(f"all is well\n{line}\n")


def test_a_fenced_broker_that_is_dead_is_told_from_one_that_lives(world: World) -> None:
    world.fenced = True
    (world.other.port,) = free_ports(1)
    address = f"127.0.0.1:{world.other.port}"
    (line,) = json_of(world, "cluster", "status", code=3)["problems"]
    assert line == (
        f"broker 2 is fenced, and does not answer at {address}: Connection refused"
        " (see its log, and whether its process runs)"
    )


def test_brokers_that_do_not_answer_are_not_waited_for_one_after_the_other(world: World) -> None:
    """Beyond a firewall a cluster of ten was asked for ten times twenty seconds. Here each is two."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        host, port = deaf.getsockname()
        world.deaf = [
            DescribeClusterBroker(broker_id=n, host=host, port=port) for n in range(3, 15)
        ]
        world.unreadable = 2
        began_s = time.monotonic()
        found = json_of(world, "cluster", "status", "--timeout", "1", code=3)
        assert time.monotonic() - began_s < 8
    assert found["unreadable"][0]["broker"] == 1
    assert [row["state"] for row in found["brokers"][2:]] == ["no answer"] * 12
    where = f"{host}:{port}"
    said = f"broker 3 does not answer at {where}: no answer in time. Last known: alive, leader of 0"
    assert found["problems"][0].startswith(said)


def test_a_broker_that_does_not_answer_is_not_alive_and_what_it_leads_is_unknown(
    world: World,
) -> None:
    world.parts = [(0, 2, [1, 2], [1, 2]), (1, 1, [1, 2], [1, 2])]
    (free,) = free_ports(1)
    world.other.port = free
    found = json_of(world, "cluster", "status", code=3)
    assert (found["brokers"][1]["state"], found["brokers"][1]["last_known"]) == (
        "no answer",
        "alive",
    )
    assert (found["unknown"], found["is_current"]) == (1, True)
    at = f"127.0.0.1:{free}"
    assert found["problems"] == [
        f"broker 2 does not answer at {at}: Connection refused. Last known: alive, leader of 1 partitions"
        " (see its log, and whether its process runs)",
        "1 partition whose leader reports nothing (see `firnline topic describe`)",
    ]
    text = run(world, "cluster", "status").stdout
    assert "no answer (last known alive)" in text
    (topic,) = json_of(world, "topic", "describe", "t")
    described = topic["partitions"]
    assert [part["state"] for part in described] == ["unknown (last known ok)", "ok"]


def test_a_leader_that_does_not_know_yet_that_it_leads_is_asked_again(world: World) -> None:
    """The partition was left out of the count, and status did not say that it could not know."""
    world.parts, world.min_isr = [(0, 1, [1, 2], [1])], 2
    world.knows_that_it_leads = [False, False, True]
    found = json_of(world, "cluster", "status", code=3)
    assert (found["under_min_isr"], found["unknown"]) == (1, 0)
    world.knows_that_it_leads = [False, False, True]
    (topic,) = json_of(world, "topic", "describe", "t")
    assert topic["partitions"][0]["state"] == "under-min-isr"


def test_a_partition_whose_leader_moves_meanwhile_is_not_called_unknown(world: World) -> None:
    """Its former leader was asked again and again, and had nothing to tell about it any more."""
    moved = [(0, 1, [1, 2], [1, 2]), (1, 1, [1, 2], [1])]
    world.parts, world.min_isr = [(0, 2, [1, 2], [2]), (1, 2, [1, 2], [2])], 2

    def other_leads_no_more(request: Any) -> ClusterStatusResponse:
        if request.topics:
            world.parts = moved
        rows = [ClusterStatusTopic(name=name, partitions=[]) for name in request.topics]
        return ClusterStatusResponse(topics=rows, metadata_offset=-1)

    world.other.answers = {32003: other_leads_no_more}
    world.alive = [MetadataResponseBroker(node_id=2, host="127.0.0.1", port=world.other.port)]
    found = json_of(world, "cluster", "status", code=3)
    counts = ("under_replicated", "under_min_isr", "unknown", "offline")
    assert [found[count] for count in counts] == [1, 1, 0, 0]
    world.parts = [(0, 2, [1, 2], [2]), (1, 2, [1, 2], [2])]
    (topic,) = json_of(world, "topic", "describe", "t")
    assert [part["state"] for part in topic["partitions"]] == ["ok", "under-min-isr"]


def test_a_leader_that_never_says_what_acks_all_needs_leaves_that_unknown(world: World) -> None:
    world.parts, world.min_isr = [(0, 1, [1, 2], [1])], 2
    world.knows_that_it_leads = [False]
    found = json_of(world, "cluster", "status", code=3)
    assert (found["under_min_isr"], found["unknown"]) == (0, 1)
    line = "1 partition whose leader reports nothing (see `firnline topic describe`)"
    assert line in found["problems"]
    (topic,) = json_of(world, "topic", "describe", "t")
    assert topic["partitions"][0]["state"] == "unknown (last known under-replicated)"


def test_without_an_active_controller_numbers_of_partitions_are_those_that_were_last_known(
    world: World,
) -> None:
    world.leader_id = -1
    result = run(world, "cluster", "status", "--timeout", "1.5")
    assert result.exit_code == 3
    assert "without a leader   unknown (last known 0)" in result.stdout
    assert "active controller  nobody" in result.stdout


def test_controllers_are_asked_themselves_and_one_that_refuses_is_named(world: World) -> None:
    (free,) = free_ports(1)
    with FakeBroker({55: world.quorum}) as leader:
        world.controllers = [(1, leader.port), (2, free)]
        world.silent_ms = 4_000  # its leader alone would wait for ten seconds before it worries
        found = json_of(world, "cluster", "status", code=3)
        assert found["quorum"]["leader_id"] == 1
        assert found["problems"] == ["controller 2 is silent (see `firnline quorum status`)"]
        world.leader_id = -1
        lines = json_of(world, "cluster", "status", "--timeout", "1.5", code=3)["problems"]
    assert lines[1:] == [f"controller 2 does not answer: 127.0.0.1:{free}, Connection refused"]


def test_a_controller_that_hangs_is_named_in_the_words_for_brokers(world: World) -> None:
    """The line used to end with the advice to run the command that printed it."""
    with socket.create_server(("127.0.0.1", 0)) as deaf, FakeBroker({55: world.quorum}) as other:
        port = deaf.getsockname()[1]
        world.controllers = [(1, other.port), (2, port)]
        world.leader_id = -1
        lines = json_of(world, "cluster", "status", "--timeout", "1.5", code=3)["problems"]
    assert lines[1:] == [f"controller 2 does not answer: 127.0.0.1:{port}, no answer in time"]


def test_of_several_addresses_the_one_that_knows_most_is_asked(world: World) -> None:
    """Broker 2 answers, too, but its metadata is older, and it could not even say which brokers there are."""
    at = f"{world.other.address},{world.broker.address}"
    result = CliRunner().invoke(cli, ["cluster", "status", "--bootstrap-server", at])
    assert result.exit_code == 0, result.output


def test_brokers_that_never_came_are_missed_by_who_counts_them(world: World) -> None:
    assert json_of(world, "cluster", "status", "--brokers", "2")["problems"] == []
    found = json_of(world, "cluster", "status", "--brokers", "3", code=3)
    assert found["problems"] == ["2 of 3 brokers are alive"]
    world.fenced = True
    found = json_of(world, "cluster", "status", "--brokers", "2", code=3)
    fenced = f"broker 2 is fenced, and answers at {world.other.address} (see its log)"
    assert found["problems"] == ["1 of 2 brokers are alive", fenced]


def test_a_cluster_of_kafka_has_no_broker_epochs_and_is_not_called_ill_for_that(
    world: World,
) -> None:
    del world.broker.answers[32003], world.other.answers[32003]
    found = json_of(world, "cluster", "status")
    assert [row["broker_epoch"] for row in found["brokers"]] == [-1, -1]
    assert found["problems"] == []


def test_the_first_address_that_answers_is_asked(world: World) -> None:
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    at = f"{dead},{world.broker.address}"
    result = CliRunner().invoke(cli, ["cluster", "status", "--bootstrap-server", at])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(cli, ["cluster", "status", "--bootstrap-server", f"{dead},{dead}"])
    assert f"{dead}: Connection refused" in str(result.exception)


# ----------------------------------------------------------------------------------- describe


def test_describe_shows_epochs_ends_and_who_is_behind(world: World) -> None:
    ((part,),) = (each["partitions"] for each in json_of(world, "topic", "describe", "t"))
    assert (part["leader_epoch"], part["partition_epoch"], part["state"]) == (7, 4, "ok")
    assert [part[n] for n in ("log_start_offset", "high_watermark", "log_end_offset")] == [
        3, 20, 25,
    ]  # fmt: skip
    assert part["followers"] == [
        {"broker_id": 2, "broker_epoch": 12, "log_end_offset": 20, "lag": 5, "behind_ms": 5}
    ]
    assert run(world, "topic", "describe", "t").stdout.rstrip().endswith("2:5")


def test_only_what_is_less_than_complete_is_shown_on_demand(world: World) -> None:
    world.parts = [(0, 1, [1, 2], [1, 2]), (1, 1, [1, 2], [1]), (2, -1, [2], [2])]
    thin = json_of(world, "topic", "describe", "--under-replicated", code=3)
    assert [(row["partition"], row["state"]) for row in thin] == [
        (1, "under-replicated"),
        (2, "offline"),
    ]
    dead = json_of(world, "topic", "describe", "--unavailable", code=3)
    assert [(row["topic"], row["partition"]) for row in dead] == [("t", 2)]
    world.parts = COMPLETE
    assert json_of(world, "topic", "describe", "--under-replicated") == []
    assert run(world, "topic", "describe", "--unavailable").exit_code == 0


def test_a_leader_that_does_not_answer_leaves_blanks_and_no_error(world: World) -> None:
    world.parts = [(0, 2, [1, 2], [1, 2])]
    ((part,),) = (each["partitions"] for each in json_of(world, "topic", "describe", "t"))
    assert (part["leader"], part["log_end_offset"], part["followers"]) == (2, -1, [])
    assert run(world, "topic", "describe", "t").exit_code == 0


def test_a_leader_that_hangs_up_is_asked_once_and_not_waited_for(world: World) -> None:
    world.parts = [(0, 2, [1, 2], [1, 2])]
    world.other.answers = {32003: lambda _: None, 2: lambda _: None}
    world.alive = [MetadataResponseBroker(node_id=2, host="127.0.0.1", port=world.other.port)]
    ((part,),) = (each["partitions"] for each in json_of(world, "topic", "describe", "t"))
    assert part["state"] == "unknown (last known ok)"
    assert sum(isinstance(asked, ClusterStatusRequest) for asked in world.other.asked) == 1


def test_one_unknown_name_is_an_error_and_several_topics_are_a_list(world: World) -> None:
    problem = run(world, "topic", "describe", "t", "nope").exception
    assert str(problem) == "no topic 'nope'. There is: t."
    assert [row["name"] for row in json_of(world, "topic", "describe")] == ["t"]
