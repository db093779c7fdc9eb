"""Who changes much of the cluster at once holds nobody up: as test_large_requests, for what is decided."""

from collections.abc import Iterable
from typing import Any

import pytest

from firnline.api.dispatch import Dispatcher
from firnline.base.errors import Code
from firnline.base.ids import ZERO_UUID
from firnline.controller import sweeps
from firnline.metadata import records as r
from firnline.metadata.result import ControllerResult
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from firnline.protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from firnline.protocol.messages.k43_elect_leaders import ElectionTopic, ElectLeadersRequest
from firnline.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from firnline.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from firnline.protocol.messages.k73_assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
)
from firnline.protocol.messages.k32003_cluster_status import ClusterStatusRequest
from firnline.protocol.schema import Message
from firnline.protocol.versions import CONTROLLER_SERVED
from tests.worlds.harness import DATA, Harness
from tests.worlds.timers import WorldTimers

from .large import NAMES, PARTITIONS, LargeNode

# Calls of functions: some five to ten thousand of them are a millisecond.
CALLS_MAX = 15_000
NUMBERS = range(PARTITIONS)
SOME = NAMES[:6]
OTHER, OTHER_DIRECTORY = 2, b"\x02" * 16


class Changed(LargeNode):
    """A node of 600 partitions, and a broker that the metadata alone knows: it never fetches."""

    def __init__(self) -> None:
        super().__init__(SOME)
        end_point = r.BrokerEndpoint(name="PLAINTEXT", host="h", port=9, security_protocol=0)
        broker = r.RegisterBrokerRecord(
            broker_id=OTHER,
            incarnation_id=b"\x07" * 16,
            broker_epoch=1_000,
            end_points=[end_point],
            features=[],
            rack=None,
            fenced=False,
            log_dirs=[OTHER_DIRECTORY],
        )
        self.write([broker])

    def write(self, records: list[Message]) -> None:
        self.run(
            self.node.quorum.write(ControllerResult(records, None), lambda *_: [], self.now_ms)
        )
        self.pass_time(0)

    def set_all(self, **fields: Any) -> None:
        """Change all partitions as the metadata has them."""
        for name in SOME:
            topic_id = self.node.image.topics_by_name[name].topic_id
            self.write(
                [
                    r.PartitionChangeRecord(partition_id=n, topic_id=topic_id, **fields)
                    for n in NUMBERS
                ]
            )

    def leaders(self) -> set[int]:
        return {
            partition.leader
            for name in SOME
            for partition in self.node.image.topics_by_name[name].partitions.values()
        }


@pytest.fixture
def node() -> Changed:
    return Changed()


def preferred(topics: Iterable[str] | None) -> ElectLeadersRequest:
    asked = None
    if topics is not None:
        asked = [ElectionTopic(topic=name, partitions=list(NUMBERS)) for name in topics]
    return ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=1000)


def move(topics: Iterable[str], replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        timeout_ms=1000,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=n, replicas=replicas) for n in NUMBERS
                ],
            )
            for name in topics
        ],
    )


def delete(*names: str) -> DeleteTopicsRequest:
    states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
    return DeleteTopicsRequest(topics=states, timeout_ms=1000)


def in_bounds(node: LargeNode) -> None:
    assert max(node.steps) < CALLS_MAX, node.steps


# ----------------------------------------------------------------------------------- what is decided


@pytest.mark.parametrize("asks_for_all", [False, True])
def test_elections_of_all_partitions_are_held_in_slices(node: Changed, asks_for_all: bool) -> None:
    node.set_all(replicas=[OTHER, 1], isr=[OTHER, 1], leader=1)
    node.ask(preferred([]), 2)
    answer = node.ask(preferred(None if asks_for_all else [*SOME, "none"]), 2)
    in_bounds(node)
    assert answer.error_code == Code.NONE
    reported = {
        each.topic: [(row.partition_id, row.error_code) for row in each.partition_result]
        for each in answer.replica_election_results
    }
    rows = [(n, Code.NONE) for n in NUMBERS]
    missing = [(n, Code.UNKNOWN_TOPIC_OR_PARTITION) for n in NUMBERS]
    assert list(reported) == SOME if asks_for_all else [*SOME, "none"]
    assert reported == dict.fromkeys(SOME, rows) | ({} if asks_for_all else {"none": missing})
    assert node.leaders() == {OTHER}


def test_more_elections_than_a_request_may_ask_for_are_not_begun(
    node: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: nobody is told of a refusal, half of which was done. Method: the limit is reached late."""
    for module in ("api.handlers.k43_elect_leaders", "controller.elections"):
        monkeypatch.setattr(f"firnline.{module}.CHANGES_PER_REQUEST_MAX", 500)
    node.set_all(replicas=[OTHER, 1], isr=[OTHER, 1], leader=1)
    answer = node.ask(preferred(None), 2)
    in_bounds(node)
    assert (answer.error_code, list(answer.replica_election_results)) == (Code.POLICY_VIOLATION, [])
    assert node.leaders() == {1}
    # Many are asked for, and few need a leader: those get it.
    answer = node.ask(preferred(["none"] * 5 + SOME[:1]), 2)
    assert answer.error_code == Code.NONE
    assert node.leaders() == {1, OTHER}


def test_partitions_are_moved_and_called_back_in_slices(node: Changed) -> None:
    node.ask(move([], None), 1)
    for replicas in ([OTHER, 1], None):
        answer = node.ask(move([*SOME, "none"], replicas), 1)
        in_bounds(node)
        assert [(t.name, len(t.partitions)) for t in answer.responses] == [
            (name, PARTITIONS) for name in [*SOME, "none"]
        ]
        reported = {t.name: {row.error_code for row in t.partitions} for t in answer.responses}
        assert reported.pop("none") == {Code.UNKNOWN_TOPIC_OR_PARTITION}
        assert reported == {name: {Code.NONE} for name in SOME}
        assert [row.partition_index for row in answer.responses[0].partitions] == list(NUMBERS)
        listed = node.ask(ListPartitionReassignmentsRequest(topics=None), 0)
        in_bounds(node)
        moving = [(t.name, row.partition_index) for t in listed.topics for row in t.partitions]
        assert moving == ([(name, n) for name in SOME for n in NUMBERS] if replicas else [])


def test_moves_of_one_request_end_at_its_limit_whatever_portion_they_are_in(
    node: Changed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firnline.controller.reassignments.CHANGES_PER_REQUEST_MAX", 250)
    answer = node.ask(move(SOME, [OTHER, 1]), 1)
    reported = [row.error_code for topic in answer.responses for row in topic.partitions]
    assert reported == [Code.NONE] * 250 + [Code.POLICY_VIOLATION] * 350


def test_a_controller_that_resigns_between_two_portions_says_so_of_the_entire_request(
    node: Changed,
) -> None:
    connection = node.begin(move(SOME[:3], [OTHER, 1]), 1)
    assert connection.answers == []
    node.node.quorum.is_active = False
    node.finish()
    [answer] = connection.answers
    assert (answer.error_code, list(answer.responses)) == (Code.NOT_CONTROLLER, [])


def test_directories_of_all_replicas_are_written_down_in_slices(node: Changed) -> None:
    node.set_all(replicas=[1, OTHER], isr=[1], directories=[node_directory(node), ZERO_UUID])
    ids = [node.node.image.topics_by_name[name].topic_id for name in SOME]
    rows = [AssignedPartition(partition_index=n) for n in NUMBERS]

    def assigning(epoch: int, *topics: bytes) -> AssignReplicasToDirsRequest:
        asked = [AssignedTopic(topic_id=topic_id, partitions=rows) for topic_id in topics]
        directory = AssignedDirectory(id=OTHER_DIRECTORY, topics=asked)
        return AssignReplicasToDirsRequest(
            broker_id=OTHER, broker_epoch=epoch, directories=[directory]
        )

    controller = node.node.controller_node
    assert controller is not None
    node.dispatcher = Dispatcher(controller, CONTROLLER_SERVED)
    refused = node.ask(assigning(999, *ids), 0)
    assert (refused.error_code, list(refused.directories)) == (Code.STALE_BROKER_EPOCH, [])
    answer = node.ask(assigning(1_000, *ids, b"\x55" * 16), 0)
    in_bounds(node)
    [reported] = answer.directories
    codes = {
        topic.topic_id: {row.error_code for row in topic.partitions} for topic in reported.topics
    }
    assert codes.pop(b"\x55" * 16) == {Code.UNKNOWN_TOPIC_ID}
    assert codes == {topic_id: {Code.NONE} for topic_id in ids}
    places = {
        partition.directories[1]
        for topic_id in ids
        for partition in node.node.image.topics_by_id[topic_id].partitions.values()
    }
    assert places == {OTHER_DIRECTORY}


def node_directory(node: LargeNode) -> bytes:
    return bytes(node.node.image.brokers[1].log_dirs[0])


def test_many_topics_are_deleted_in_slices(node: Changed) -> None:
    """Goal: the controller serves others meanwhile. Method: count the calls of each step; a topic is named
    twice, by its name and its id, far apart."""
    names = [f"d{n:03d}" for n in range(600)]
    for first in range(0, len(names), 100):
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            for name in names[first : first + 100]
        ]
        node.send(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
        node.pass_time(1_000)
    twice = node.node.image.topics_by_name[names[5]].topic_id
    request = delete("none", *names)
    request.topics.append(DeleteTopicState(name=None, topic_id=twice))  # type: ignore[attr-defined]
    node.ask(delete("none"), 6)
    answer = node.ask(request, 6)
    in_bounds(node)
    assert [row.name for row in answer.responses] == ["none", *names, None]
    reported = [row.error_code for row in answer.responses]
    assert reported[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert reported[6] == reported[-1] == Code.INVALID_REQUEST
    assert set(reported[1:6] + reported[7:-1]) == {Code.NONE}
    assert names[5] in node.node.image.topics_by_name
    assert not set(names) - {names[5]} & set(node.node.image.topics_by_name)


def test_partitions_are_added_to_many_topics_in_slices(node: Changed) -> None:
    growths = [
        CreatePartitionsTopic(name=name, count=PARTITIONS * 2, assignments=None)
        for name in [*SOME, "none", SOME[2]]
    ]
    request = CreatePartitionsRequest(topics=growths, timeout_ms=1000)
    node.ask(CreatePartitionsRequest(topics=[], timeout_ms=1000), 3)
    connection = node.begin(request, 3)
    while not connection.answers:
        assert node.one_more()
    in_bounds(node)
    reported = {row.name: row.error_code for row in connection.answers[0].results}
    assert list(reported) == [*SOME, "none"]
    assert reported.pop("none") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert reported.pop(SOME[2]) == Code.INVALID_REQUEST  # it was asked for twice
    assert set(reported.values()) == {Code.NONE}
    image = node.node.image
    counts = [len(image.topics_by_name[name].partitions) for name in SOME]
    assert counts == [200, 200, 100, 200, 200, 200]


@pytest.mark.parametrize("only_checks", [False, True])
def test_no_request_adds_more_partitions_than_it_may_whatever_portion_they_are_in(
    node: Changed, monkeypatch: pytest.MonkeyPatch, only_checks: bool
) -> None:
    monkeypatch.setattr("firnline.controller.topics.PARTITIONS_PER_REQUEST_MAX", 250)
    growths = [
        CreatePartitionsTopic(name=name, count=PARTITIONS * 2, assignments=None) for name in SOME
    ]
    request = CreatePartitionsRequest(topics=growths, timeout_ms=1000, validate_only=only_checks)
    connection = node.begin(request, 3)
    node.pass_time(2_000)
    reported = [row.error_code for row in connection.answers[0].results]
    assert reported == [Code.NONE] * 2 + [Code.POLICY_VIOLATION] * 4


def test_a_large_topic_is_decided_on_and_prepared_in_slices(node: Changed) -> None:
    """Goal: no step of it is long. Method: count the calls of each, until the topic is written."""
    topic = CreatableTopic(name="large", num_partitions=800, replication_factor=1)
    connection = node.begin(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    while "large" not in node.node.image.topics_by_name:
        assert node.one_more()
    assert max(node.steps) < 25_000, node.steps  # the one that writes it
    assert len(node.steps) > 5
    node.pass_time(2_000)
    [row] = connection.answers[0].topics
    assert (row.error_code, row.num_partitions) == (Code.NONE, 800)
    partitions = node.node.image.topics_by_name["large"].partitions
    assert sorted(partitions) == list(range(800))
    assert {partition.replicas for partition in partitions.values()} == {(1,), (OTHER,)}


def test_many_partitions_are_added_to_one_topic_in_slices(node: Changed) -> None:
    growth = CreatePartitionsTopic(name=SOME[0], count=PARTITIONS + 800, assignments=None)
    other = CreatePartitionsTopic(name=SOME[1], count=PARTITIONS + 1, assignments=None)
    request = CreatePartitionsRequest(topics=[growth, other], timeout_ms=1000)
    connection = node.begin(request, 3)
    while len(node.node.image.topics_by_name[SOME[0]].partitions) == PARTITIONS:
        assert node.one_more()
    assert max(node.steps) < 25_000, node.steps  # the one that writes it
    assert len(node.steps) > 5
    node.pass_time(2_000)
    assert [row.error_code for row in connection.answers[0].results] == [Code.NONE, Code.NONE]
    image = node.node.image
    assert sorted(image.topics_by_name[SOME[0]].partitions) == list(range(PARTITIONS + 800))
    assert len(image.topics_by_name[SOME[1]].partitions) == PARTITIONS + 1


def test_a_large_topic_is_made_though_the_cluster_changes_all_the_time(node: Changed) -> None:
    """Goal: no client waits for a pause that never comes. Method: each slice finds another image."""
    topic = CreatableTopic(name="large", num_partitions=800, replication_factor=1)
    connection = node.begin(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    for count in range(4):
        config = r.ConfigRecord(
            resource_type=2, resource_name=SOME[0], name="retention.ms", value=str(count + 1)
        )
        effects = node.node.quorum.write(
            ControllerResult([config], None), lambda *_: [], node.now_ms
        )
        due, node.timers = node.timers, WorldTimers()
        node.run(effects)
        node.timers |= due
        assert "large" not in node.node.quorum.newest.topics_by_name or count > 2
        node.one_more()
    node.pass_time(2_000)
    [row] = connection.answers[0].topics
    assert (row.error_code, row.num_partitions) == (Code.NONE, 800)
    assert dict(node.node.image.config(2, SOME[0])) == {"retention.ms": "4"}


def test_a_broker_that_led_much_and_fell_silent_is_replaced_in_parts(node: Changed) -> None:
    """Goal: its going costs no other broker a heartbeat. Method: count the calls of each step."""
    node.set_all(replicas=[1, OTHER], isr=[1, OTHER], leader=OTHER)
    node.steps, end_ms = [], node.now_ms + 60_000
    while node.leaders() != {1}:
        assert node.now_ms < end_ms
        node.now_ms += 100
        node.finish()
    assert node.node.image.brokers[OTHER].fenced
    assert max(node.steps) < CALLS_MAX, sorted(node.steps)[-9:]


# ------------------------------------------------------------------------------------- what is asked


LISTED: dict[str, tuple[Message, int]] = {
    "find_coordinator": (
        FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{n}" for n in range(1_000)]),
        4,
    ),
    "find_coordinator, transactions": (
        FindCoordinatorRequest(key_type=1, coordinator_keys=[f"t{n}" for n in range(4_000)]),
        4,
    ),
    "cluster_status": (ClusterStatusRequest(topics=None), 0),
    "alter_replica_log_dirs": (
        AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=DATA,
                    topics=[
                        AlterReplicaLogDirTopic(name=name, partitions=list(NUMBERS))
                        for name in SOME * 2
                    ],
                )
            ]
        ),
        1,
    ),
}


@pytest.fixture(scope="module")
def asked() -> Changed:
    return Changed()


@pytest.mark.parametrize("name", LISTED)
def test_no_step_of_a_large_question_holds_up_the_node(asked: Changed, name: str) -> None:
    node = asked
    node.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    node.pass_time(2_000)
    for _ in range(2):  # the first time its classes are compiled
        node.ask(*LISTED[name])
    assert len(node.steps) > 3
    assert max(node.steps) < 10_000, node.steps


def test_after_a_crash_what_was_led_is_settled_in_parts_and_nobody_is_alarmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A single node with 200 partitions said at each such start that the controller did not count it in."""
    monkeypatch.setattr(sweeps, "CHANGES_PER_PART_MAX", 3)
    harness = Harness()
    harness.create_topic(partitions=10)
    harness = Harness(harness.cut_power())
    harness.pass_time(5_000)
    leaders = [p for p in harness.node.hosted if p.is_leader]
    assert [p.leader_epoch for p in leaders] == [2] * 10
    assert harness.warnings == []
