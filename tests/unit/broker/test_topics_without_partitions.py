"""Topics of which a request names no partition are gone over in slices as its partitions are."""

import sys
from collections.abc import Callable, Sequence
from types import FrameType, ModuleType
from typing import Any

import pytest

from firnline.api.dispatch import Dispatcher
from firnline.protocol.messages import k00_produce as k0
from firnline.protocol.messages import k01_fetch as k1
from firnline.protocol.messages import k02_list_offsets as k2
from firnline.protocol.messages import k08_offset_commit as k8
from firnline.protocol.messages import k09_offset_fetch as k9
from firnline.protocol.messages import k21_delete_records as k21
from firnline.protocol.messages import k23_offset_for_leader_epoch as k23
from firnline.protocol.messages import k34_alter_replica_log_dirs as k34
from firnline.protocol.messages import k35_describe_log_dirs as k35
from firnline.protocol.messages import k43_elect_leaders as k43
from firnline.protocol.messages import k45_alter_partition_reassignments as k45
from firnline.protocol.messages import k46_list_partition_reassignments as k46
from firnline.protocol.messages import k47_offset_delete as k47
from firnline.protocol.messages import k55_describe_quorum as k55
from firnline.protocol.messages import k56_alter_partition as k56
from firnline.protocol.messages import k73_assign_replicas_to_dirs as k73
from firnline.protocol.messages import k32002_tier_flush as k32002
from firnline.protocol.messages import k32003_cluster_status as k32003
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.schema import Message
from firnline.protocol.versions import CONTROLLER_SERVED

from .large import NAMES, LargeNode

pytestmark = pytest.mark.slow

MANY = 30_000
# A line of Python for each of the topics is more.
LINES_MAX = 25_000
NONE = [f"none-{n}" for n in range(MANY)]
IDS = [n.to_bytes(16, "big") for n in range(100, 100 + MANY)]
ON_CONTROLLERS = (56, 73)
Named = Sequence[Any]


class Lines(LargeNode):
    """A node whose steps are counted in lines of Python: to go over a list calls no function."""

    def _step(self, call: Callable[..., Any], *args: Any) -> Any:
        count = 0

        def seen(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal count
            count += event == "line"
            return seen

        before = sys.gettrace()
        sys.settrace(seen)
        try:
            return call(*args)
        finally:
            sys.settrace(before)
            self.steps.append(count)


@pytest.fixture(scope="module")
def node() -> LargeNode:
    large = Lines(NAMES[:1])
    large.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    large.pass_time(2_000)
    return large


def named(row: type[Any], names: Named, partitions: str = "partitions") -> list[Any]:
    """Make a row without partitions for each of the names, or ids."""
    field = next(iter(row.fields))
    return [row(**{field: name, partitions: []}) for name in names]


def request_of(module: ModuleType, **fields: Any) -> Message:
    [kind] = [
        each
        for name, each in vars(module).items()
        if name.endswith("Request") and each.__module__ == module.__name__
    ]
    found: Message = kind(**fields)
    return found


def fetch_of_group(names: Named, field: str) -> Message:
    row = k9.OffsetFetchRequestGroupTopic
    topics = [row(**{field: name, "partition_indexes": []}) for name in names]
    return k9.OffsetFetchRequest(groups=[k9.OffsetFetchRequestGroup(group_id="g", topics=topics)])


def assignments(topics: list[Any]) -> Message:
    directory = k73.AssignedDirectory(id=IDS[0], topics=topics)
    return k73.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=1, directories=[directory])


def reported(field: str, name: str = "name") -> Callable[[Any], list[Any]]:
    return lambda answer: [getattr(row, name) for row in getattr(answer, field)]


def reported_of_group(name: str) -> Callable[[Any], list[Any]]:
    return lambda answer: [getattr(row, name) for row in answer.groups[0].topics]


NOBODY: dict[str, Any] = {"member_id": "", "generation_id_or_member_epoch": -1}
MOVE = k45.AlterPartitionReassignmentsRequest
# Version, how a request is made of names or ids, those, and what the answer tells where it tells of each.
CASES: dict[str, tuple[int, Callable[[Named], Message], Named, Callable[[Any], list[Any]] | None]]
CASES = {
    "produce": (
        9,
        lambda names: k0.ProduceRequest(
            acks=1, topic_data=named(k0.TopicProduceData, names, "partition_data")
        ),
        NONE,
        reported("responses"),
    ),
    "fetch": (
        12,
        lambda names: k1.FetchRequest(session_epoch=-1, topics=named(k1.FetchTopic, names)),
        NONE,
        None,
    ),
    "fetch, forgotten": (
        12,
        lambda names: k1.FetchRequest(
            session_epoch=-1, topics=[], forgotten_topics_data=named(k1.ForgottenTopic, names)
        ),
        NONE,
        None,
    ),
    "fetch, forgotten partitions": (
        12,
        lambda names: k1.FetchRequest(
            session_epoch=-1,
            topics=[],
            forgotten_topics_data=[k1.ForgottenTopic(topic="x", partitions=range(len(names)))],
        ),
        NONE,
        None,
    ),
    "list_offsets": (
        7,
        lambda names: k2.ListOffsetsRequest(
            replica_id=-1, topics=named(k2.ListOffsetsTopic, names)
        ),
        NONE,
        reported("topics"),
    ),
    "offset_commit": (
        8,
        lambda names: k8.OffsetCommitRequest(
            group_id="g", topics=named(k8.OffsetCommitRequestTopic, names), **NOBODY
        ),
        NONE,
        reported("topics"),
    ),
    "offset_fetch": (
        7,
        lambda names: k9.OffsetFetchRequest(
            group_id="g", topics=named(k9.OffsetFetchRequestTopic, names, "partition_indexes")
        ),
        NONE,
        reported("topics"),
    ),
    "offset_fetch of groups": (
        8,
        lambda names: fetch_of_group(names, "name"),
        NONE,
        reported_of_group("name"),
    ),
    "offset_fetch by id": (
        10,
        lambda ids: fetch_of_group(ids, "topic_id"),
        IDS,
        reported_of_group("topic_id"),
    ),
    "delete_records": (
        2,
        lambda names: k21.DeleteRecordsRequest(topics=named(k21.DeleteRecordsTopic, names)),
        NONE,
        reported("topics"),
    ),
    "offset_for_leader_epoch": (
        4,
        lambda names: request_of(k23, replica_id=-1, topics=named(k23.OffsetForLeaderTopic, names)),
        NONE,
        reported("topics", "topic"),
    ),
    "alter_replica_log_dirs": (
        2,
        lambda names: request_of(
            k34,
            dirs=[
                k34.AlterReplicaLogDir(
                    path="/data", topics=named(k34.AlterReplicaLogDirTopic, names)
                )
            ],
        ),
        NONE,
        None,
    ),
    "alter_replica_log_dirs, directories": (
        2,
        lambda names: request_of(k34, dirs=named(k34.AlterReplicaLogDir, names, "topics")),
        NONE,
        None,
    ),
    "describe_log_dirs": (
        4,
        lambda names: request_of(k35, topics=named(k35.DescribableLogDirTopic, names)),
        NONE,
        None,
    ),
    "elect_leaders": (
        2,
        lambda names: request_of(k43, topic_partitions=named(k43.ElectionTopic, names)),
        NONE,
        None,
    ),
    "alter_partition_reassignments": (
        1,
        lambda names: MOVE(topics=named(k45.ReassignableTopic, names)),
        NONE,
        reported("responses"),
    ),
    "list_partition_reassignments": (
        0,
        lambda names: request_of(k46, topics=named(k46.ListedTopic, names, "partition_indexes")),
        NONE,
        None,
    ),
    "offset_delete": (
        0,
        lambda names: request_of(
            k47, group_id="g", topics=named(k47.OffsetDeleteRequestTopic, names)
        ),
        NONE,
        None,
    ),
    "describe_quorum": (
        1,
        lambda names: request_of(k55, topics=named(k55.DescribeQuorumTopic, names)),
        NONE,
        reported("topics", "topic_name"),
    ),
    "alter_partition": (
        3,
        lambda ids: request_of(
            k56, broker_id=1, broker_epoch=1, topics=named(k56.AlterPartitionTopic, ids)
        ),
        IDS,
        None,
    ),
    "assign_replicas_to_dirs": (
        0,
        lambda ids: assignments(named(k73.AssignedTopic, ids)),
        IDS,
        None,
    ),
    "assign_replicas_to_dirs, directories": (
        0,
        lambda ids: k73.AssignReplicasToDirsRequest(
            broker_id=1, broker_epoch=1, directories=named(k73.AssignedDirectory, ids, "topics")
        ),
        IDS,
        None,
    ),
    "tier_flush": (
        0,
        lambda names: request_of(k32002, topics=named(k32002.TierFlushTopic, names)),
        NONE,
        reported("topics"),
    ),
    "cluster_status": (
        0,
        lambda names: request_of(k32003, topics=list(names)),
        NONE,
        reported("topics"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_topics_without_partitions_hold_up_nobody(node: LargeNode, name: str) -> None:
    """Goal: who names very many topics, and no partition of them, makes nobody wait. Method: count lines."""
    version, make, names, reports = CASES[name]
    own = node.dispatcher
    if make(names[:1]).key in ON_CONTROLLERS:
        controller = node.node.controller_node
        assert controller is not None
        node.dispatcher = Dispatcher(controller, CONTROLLER_SERVED)
    node.ask(make(names[:2]), version)  # the first time its classes are compiled
    answer = node.ask(make(names), version)
    node.dispatcher = own
    assert max(node.steps) < LINES_MAX, sorted(node.steps)[-9:]
    if reports is not None:
        assert reports(answer) == names
