"""Nobody who asks for much makes others wait: no step of a request is more than a few milliseconds' work."""

from collections.abc import Sequence
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from firnline.protocol.messages.k16_list_groups import ListGroupsRequest
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from firnline.protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from firnline.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from firnline.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from firnline.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from firnline.protocol.schema import Message
from firnline.replica.partition import Partition
from tests.worlds.harness import Connection, Harness, batch

from .large import NAMES, PARTITIONS, LargeNode

pytestmark = pytest.mark.slow

GROUPS = 1_200
# Calls of functions: some five to ten thousand of them are a millisecond.
CALLS_MAX = 15_000
# Of those whose calls are long ones, or whose first step has more to decode.
LONGER = (
    "produce, acks=all",
    "delete_records",
    "describe_groups",
    "offset_commit",
)


@pytest.fixture(scope="module")
def node() -> LargeNode:
    large = LargeNode()
    large.fs.volume_bytes = lambda path: (1, 1)  # type: ignore[method-assign]  # looks at every file here
    large.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    large.pass_time(2_000)
    for n in range(GROUPS):
        large.send(commit(f"group-{n}", NAMES[:1], 1), 8)
    large.ask(commit("g", NAMES), 8)
    return large


def produce(acks: int, names: Sequence[str] = NAMES) -> ProduceRequest:
    data = bytes(batch("x" * 100))
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=n, records=data) for n in range(PARTITIONS)
                ],
            )
            for name in names
        ],
    )


def list_offsets(timestamp: int, names: Sequence[str] = NAMES) -> ListOffsetsRequest:
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsPartition(partition_index=n, timestamp=timestamp)
                for n in range(PARTITIONS)
            ],
        )
        for name in names
    ]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


def commit(group: str, names: Sequence[str], count: int = PARTITIONS) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(partition_index=n, committed_offset=1)
                for n in range(count)
            ],
        )
        for name in names
    ]
    return OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )


def fetch(session_epoch: int, names: Sequence[str] = NAMES, **more: Any) -> FetchRequest:
    topics = [
        FetchTopic(
            topic=name,
            partitions=[
                FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20)
                for n in range(PARTITIONS)
            ],
        )
        for name in names
    ]
    fields = {"max_bytes": 50 << 20, "min_bytes": 0, "session_epoch": session_epoch} | more
    return FetchRequest(topics=topics, **fields)


def fetch_offsets(group: str, version: int = 8) -> OffsetFetchRequest:
    """Ask for all that a group has committed."""
    if version < 8:
        return OffsetFetchRequest(group_id=group, topics=None)
    asked = OffsetFetchRequestGroup(group_id=group, topics=None)
    return OffsetFetchRequest(groups=[asked])


def epochs() -> OffsetForLeaderEpochRequest:
    topics = [
        OffsetForLeaderTopic(
            topic=name,
            partitions=[
                OffsetForLeaderPartition(partition=n, leader_epoch=0) for n in range(PARTITIONS)
            ],
        )
        for name in NAMES
    ]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def delete_records(offset: int, names: Sequence[str] = NAMES) -> DeleteRecordsRequest:
    topics = [
        DeleteRecordsTopic(
            name=name,
            partitions=[
                DeleteRecordsPartition(partition_index=n, offset=offset) for n in range(PARTITIONS)
            ],
        )
        for name in names
    ]
    return DeleteRecordsRequest(timeout_ms=1000, topics=topics)


def describe_configs() -> DescribeConfigsRequest:
    resources = [DescribeConfigsResource(resource_type=2, resource_name=name) for name in NAMES]
    return DescribeConfigsRequest(resources=resources * 4)


LARGE: dict[str, tuple[Message, int]] = {
    "metadata of all topics": (MetadataRequest(topics=None), 12),
    "metadata of each topic": (
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES]),
        12,
    ),
    "metadata of many topics that are not there": (
        MetadataRequest(
            topics=[MetadataRequestTopic(name=f"none-{n}") for n in range(1_200)],
            allow_auto_topic_creation=False,
        ),
        12,
    ),
    "produce, acks=1": (produce(1), 9),
    "produce, acks=all": (produce(-1), 9),
    "list_offsets, end": (list_offsets(-1), 7),
    "list_offsets, start": (list_offsets(-2), 7),
    "list_offsets, by time": (list_offsets(1), 7),
    "fetch without a session": (fetch(-1), 12),
    "fetch, a new session": (fetch(0), 12),
    "offset_for_leader_epoch": (epochs(), 4),
    "describe_log_dirs": (DescribeLogDirsRequest(topics=None), 4),
    "delete_records": (delete_records(1), 2),
    "describe_configs": (describe_configs(), 4),
    "list_groups": (ListGroupsRequest(), 4),
    "describe_groups": (
        DescribeGroupsRequest(groups=[f"group-{n}" for n in range(GROUPS)]),
        5,
    ),
    "offset_commit": (commit("g", NAMES), 8),
    "offset_fetch": (fetch_offsets("g"), 8),
}


@pytest.mark.parametrize("name", LARGE)
def test_no_step_of_a_large_request_holds_up_the_node(node: LargeNode, name: str) -> None:
    """Goal: heartbeats of others are in time. Method: count the calls of each step, on 1,200 partitions."""
    for _ in range(2):  # the first time its classes are compiled
        node.ask(*LARGE[name])
    assert max(node.steps) < (CALLS_MAX if name in LONGER else 10_000), node.steps


def test_offsets_of_all_partitions_are_forgotten_in_slices() -> None:
    node = LargeNode(NAMES[:6])
    node.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    node.pass_time(2_000)
    parts = [OffsetDeleteRequestPartition(partition_index=n) for n in range(PARTITIONS)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=parts) for name in (*NAMES[:6], "no")]
    request = OffsetDeleteRequest(group_id="g", topics=topics)
    for _ in range(2):  # the first time its classes are compiled
        node.ask(commit("g", NAMES[:6]), 8)
        said = node.ask(request, 0)
        assert max(node.steps) < CALLS_MAX, node.steps
    codes = [part.error_code for topic in said.topics for part in topic.partitions]
    assert codes == [0] * 600 + [Code.UNKNOWN_TOPIC_OR_PARTITION] * PARTITIONS
    [left] = node.ask(fetch_offsets("g"), 8).groups
    assert not left.topics


@pytest.fixture
def small() -> LargeNode:
    """A node of which each test may change what it likes."""
    return LargeNode(NAMES[:6])


@pytest.mark.parametrize(
    "name",
    ["metadata of all topics", "list_offsets, end", "describe_log_dirs", "offset_for_leader_epoch"],
)
def test_nothing_more_is_done_for_a_client_that_has_hung_up(node: LargeNode, name: str) -> None:
    connection = node.begin(*LARGE[name])
    connection.closed = True
    node.finish()
    assert connection.answers == []
    assert len(node.steps) == 2


def test_who_asks_for_little_does_not_wait_for_one_who_asks_for_much(node: LargeNode) -> None:
    large = node.begin(*LARGE["metadata of all topics"])
    connection = Connection()
    one = MetadataRequest(topics=[MetadataRequestTopic(name=NAMES[0])])
    node.send_only(one, 12, connection)
    assert connection.answers
    assert not large.answers
    node.finish()
    assert large.answers


def test_metadata_reports_one_moment_however_long_it_takes(small: LargeNode) -> None:
    """Goal: no client believes a cluster that never was. Method: topics come and go in between."""
    large = small.begin(*LARGE["metadata of all topics"])
    small.send_only(DeleteTopicsRequest(topic_names=[NAMES[5]], timeout_ms=1000), 4)
    topic = CreatableTopic(name="a-new-one", num_partitions=1, replication_factor=1)
    small.send_only(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    assert {"a-new-one", *NAMES[:5]} <= set(small.node.image.topics_by_name)
    assert NAMES[5] not in small.node.image.topics_by_name
    assert large.answers == []
    small.finish()
    [answer] = large.answers
    assert [t.name for t in answer.topics if t.name in (*NAMES, "a-new-one")] == NAMES[:6]
    assert all(len(t.partitions) == PARTITIONS for t in answer.topics if t.name in NAMES)


def codes(answer: Message) -> dict[str, set[int]]:
    """Which codes the partitions of each topic were answered with."""
    topics: Any = getattr(answer, "topics", None) or getattr(answer, "responses", None)
    found: dict[str, set[int]] = {}
    for topic in topics:
        name = getattr(topic, "name", None) or topic.topic
        rows = getattr(topic, "partitions", None) or topic.partition_responses
        found[name] = {row.error_code for row in rows}
    return found


def resign(node: LargeNode, name: str) -> list[Partition]:
    """Have another node lead the partitions of a topic."""
    resigned = []
    for n in range(PARTITIONS):
        partition = node.node.hosted.by_name[name, n]
        partition.update(
            leader_id=2,
            leader_epoch=partition.leader_epoch + 1,
            partition_epoch=partition.partition_epoch + 1,
            replicas=[1, 2],
            isr=[1, 2],
        )
        resigned.append(partition)
    return resigned


CHANGED = {
    "produce, acks=1": lambda: (produce(1, NAMES[:6]), 9),
    "produce, acks=all": lambda: (produce(-1, NAMES[:6]), 9),
    "list_offsets": lambda: (list_offsets(-1, NAMES[:6]), 7),
    "delete_records": lambda: (delete_records(0, NAMES[:6]), 2),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_leader_that_resigns_meanwhile_does_nothing_more_as_leader(
    small: LargeNode, name: str
) -> None:
    """Goal: no record is taken, and no offset told, by one who leads no more. Method: it resigns, and a
    topic goes, between two slices."""
    connection = small.begin(*CHANGED[name]())  # type: ignore[no-untyped-call]
    assert connection.answers == []
    resigned = resign(small, NAMES[4])
    ends = [partition.log.log_end_offset for partition in resigned]
    small.send_only(DeleteTopicsRequest(topic_names=[NAMES[5]], timeout_ms=1000), 4)
    small.finish()
    [answer] = connection.answers
    assert codes(answer) == {
        **{name: {Code.NONE} for name in NAMES[:4]},
        NAMES[4]: {Code.NOT_LEADER_OR_FOLLOWER},
        NAMES[5]: {Code.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert [partition.log.log_end_offset for partition in resigned] == ends


@pytest.mark.parametrize("gone", ["deleted", "made anew", "resigned"])
def test_records_are_deleted_in_slices_though_a_topic_goes_after_its_slice(
    small: LargeNode, gone: str
) -> None:
    """Goal: the other topics' records are deleted for good, and who asked hears so. Method: the first topic,
    which was done, goes before the log starts are written down."""
    small.ask(produce(1, NAMES[:6]), 9)
    connection = small.begin(delete_records(1, NAMES[:6]), 2)
    assert connection.answers == []
    if gone == "resigned":
        resign(small, NAMES[0])
    else:
        small.send_only(DeleteTopicsRequest(topic_names=[NAMES[0]], timeout_ms=1000), 4)
    if gone == "made anew":
        small.send_only(creating(NAMES[0], partitions=PARTITIONS), 7)
    small.finish()
    small.pass_time(1_000)
    [answer] = connection.answers
    reported = codes(answer)
    assert reported.pop(NAMES[0]) <= {Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert reported == {name: {Code.NONE} for name in NAMES[1:6]}
    again = Harness(small.cut_power(), now_ms=small.now_ms)
    again.pass_time(1_000)  # its logs are opened in the pool
    assert [again.offset(-2, topic=name) for name in NAMES[1:6]] == [(Code.NONE, 1)] * 5


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_of_a_producer_that_has_hung_up_are_all_appended(
    small: LargeNode, acks: int
) -> None:
    """As they are where one step takes them: with acks=0 nobody waits for an answer."""
    connection = small.begin(produce(acks, NAMES[:6]), 9)
    connection.closed = True
    small.finish()
    for name in NAMES[:6]:
        for n in range(PARTITIONS):
            partition = small.node.hosted.find(name, n)
            assert isinstance(partition, Partition)
            assert partition.log.log_end_offset == 1


def begin_groups(node: LargeNode, count: int) -> list[str]:
    """Have so many groups commit an offset."""
    node.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    node.pass_time(2_000)
    names = [f"group-{n}" for n in range(count)]
    for name in names:
        node.send(commit(name, NAMES[:1], 1), 8)
    return names


@pytest.mark.parametrize("hangs_up", [False, True])
def test_many_groups_are_deleted_in_slices(small: LargeNode, hangs_up: bool) -> None:
    names = begin_groups(small, 400)
    small.ask(DeleteGroupsRequest(groups_names=["not-there"]), 2)
    connection = small.begin(DeleteGroupsRequest(groups_names=["not-there", *names]), 2)
    connection.closed = hangs_up
    small.finish()
    assert max(small.steps) < CALLS_MAX, small.steps
    assert small.ask(ListGroupsRequest(), 4).groups == []
    if not hangs_up:
        reported = {row.group_id: row.error_code for row in connection.answers[0].results}
        assert reported == {"not-there": Code.GROUP_ID_NOT_FOUND, **dict.fromkeys(names, Code.NONE)}


@pytest.mark.parametrize("hangs_up", [False, True])
def test_offsets_of_many_partitions_are_all_committed(small: LargeNode, hangs_up: bool) -> None:
    """Who commits and leaves has committed, as where one step does it."""
    begin_groups(small, 0)
    connection = small.begin(commit("g", NAMES[:6]), 8)
    connection.closed = hangs_up
    assert not connection.answers
    small.finish()
    if not hangs_up:
        assert codes(connection.answers[0]) == {name: {Code.NONE} for name in NAMES[:6]}
    [group] = small.ask(fetch_offsets("g"), 8).groups
    reported = {
        (t.name, p.partition_index): p.committed_offset for t in group.topics for p in t.partitions
    }
    assert reported == {(name, n): 1 for name in NAMES[:6] for n in range(PARTITIONS)}
    assert [t.name for t in group.topics] == NAMES[:6]


def test_no_offset_is_committed_for_a_topic_that_goes_meanwhile(small: LargeNode) -> None:
    """Goal: a later topic of that name begins without one. Method: it goes between two slices."""
    begin_groups(small, 0)
    connection = small.begin(commit("g", NAMES[:6]), 8)
    small.send_only(DeleteTopicsRequest(topic_names=[NAMES[1]], timeout_ms=1000), 4)
    small.finish()
    [answer] = connection.answers
    assert codes(answer) == {
        **{name: {Code.NONE} for name in NAMES[:6]},
        NAMES[1]: {Code.UNKNOWN_TOPIC_OR_PARTITION},
    }
    [group] = small.ask(fetch_offsets("g"), 8).groups
    assert {t.name for t in group.topics} == {*NAMES[:6]} - {NAMES[1]}


def test_a_member_fenced_meanwhile_commits_nothing_more(small: LargeNode) -> None:
    """Goal: two members never both commit for a partition. Method: the coordinator goes between slices."""
    begin_groups(small, 0)
    connection = small.begin(commit("g", NAMES[:6]), 8)
    groups = small.node.groups
    small.run(groups.unload_partition(groups.partition_for("g"), small.now_ms))
    small.finish()
    [answer] = connection.answers
    rows = [row.error_code for topic in answer.topics for row in topic.partitions]
    assert set(rows[:100]) == {Code.NONE}
    assert set(rows[100:]) == {Code.NOT_COORDINATOR}


def test_half_of_the_offsets_are_never_reported_as_all(small: LargeNode) -> None:
    """Goal: no consumer begins anew where it had an offset. Method: the coordinator goes between slices."""
    begin_groups(small, 0)
    small.ask(commit("g", NAMES[:6]), 8)
    for version in (7, 8):
        connection = small.begin(fetch_offsets("g", version), version)
        assert not connection.answers
        groups = small.node.groups
        small.run(groups.unload_partition(groups.partition_for("g"), small.now_ms))
        small.finish()
        [answer] = connection.answers
        reported = answer.groups[0] if version >= 8 else answer
        assert (reported.error_code, reported.topics) == (Code.NOT_COORDINATOR, [])
        small.run(
            groups.load_partition(groups.partition_for("g"), [], lambda e, t: [], small.now_ms)
        )
        small.finish()
        small.ask(commit("g", NAMES[:6]), 8)


def test_many_groups_of_some_offsets_each_are_fetched_and_deleted_in_slices(
    small: LargeNode,
) -> None:
    """Each of them is done in one step, but not one after the other: that is seconds."""
    begin_groups(small, 0)
    names = [f"group-{n}" for n in range(40)]
    for name in names:
        small.ask(commit(name, NAMES[:2]), 8)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    for _ in range(2):  # the first time its classes are compiled
        answer = small.ask(OffsetFetchRequest(groups=groups), 8)
        rows = [len(t.partitions) for group in answer.groups for t in group.topics]
        assert rows == [PARTITIONS] * 80
    assert max(small.steps) < CALLS_MAX, small.steps
    small.ask(DeleteGroupsRequest(groups_names=["not-there"]), 2)
    answer = small.ask(DeleteGroupsRequest(groups_names=names), 2)
    assert [row.error_code for row in answer.results] == [Code.NONE] * 40
    assert max(small.steps) < CALLS_MAX, small.steps
    assert small.ask(ListGroupsRequest(), 4).groups == []


# ------------------------------------------------------------------------------------------ Fetch


def read(answer: Any) -> dict[tuple[str, int], int]:
    """How many bytes of which partitions were answered."""
    return {
        (topic.topic, row.partition_index): len(row.records)
        for topic in answer.responses
        for row in topic.partitions
        if len(row.records)
    }


def send_records(node: LargeNode, name: str, index: int) -> None:
    """Produce to one partition, between the slices of what is under way."""
    data = PartitionProduceData(index=index, records=bytes(batch("x")))
    topic = TopicProduceData(name=name, partition_data=[data])
    node.send_only(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)


@pytest.mark.parametrize("name", [NAMES[0], NAMES[5]])
@pytest.mark.parametrize("epoch", [-1, 0])
def test_records_that_come_while_a_large_fetch_reads_are_not_waited_for_in_vain(
    small: LargeNode, name: str, epoch: int
) -> None:
    """Goal: a consumer of many partitions gets its records at once. Method: some come to a partition that
    was read already, some to one that was not."""
    asked = fetch(epoch, NAMES[:6], min_bytes=1, max_wait_ms=500)
    connection = small.begin(asked, 12)
    small.finish()
    assert connection.answers == []
    small.pass_time(500)
    assert read(connection.answers[0]) == {}
    connection = small.begin(asked, 12)
    while not waiting(small):
        assert small.one_more()
    send_records(small, name, 3)
    small.finish()
    [answer] = connection.answers
    assert read(answer).keys() == {(name, 3)}
    assert waiting(small) == 0


def waiting(node: LargeNode) -> int:
    return sum(
        len(node.node.hosted.by_name[name, n].fetch_waiters)
        for name in NAMES[:6]
        for n in range(PARTITIONS)
    )


def test_a_large_fetch_that_waits_is_answered_when_records_come(small: LargeNode) -> None:
    connection = small.begin(fetch(0, NAMES[:6], min_bytes=1, max_wait_ms=500), 12)
    small.finish()
    assert waiting(small) == 6 * PARTITIONS
    send_records(small, NAMES[4], 7)
    small.finish()
    [answer] = connection.answers
    assert read(answer).keys() == {(NAMES[4], 7)}
    assert sum(len(topic.partitions) for topic in answer.responses) == 6 * PARTITIONS
    assert waiting(small) == 0
    # The session is at its next request, which gets what is new and no more.
    send_records(small, NAMES[5], 8)
    more = FetchRequest(
        session_id=answer.session_id, session_epoch=1, min_bytes=1, max_bytes=1 << 20, topics=[]
    )
    reported = small.ask(more, 12)
    assert read(reported).keys() == {(NAMES[4], 7), (NAMES[5], 8)}  # no new position was sent
    assert sum(len(topic.partitions) for topic in reported.responses) == 2


def test_a_fetch_of_who_has_hung_up_waits_nowhere(small: LargeNode) -> None:
    connection = small.begin(fetch(0, NAMES[:6], min_bytes=1, max_wait_ms=500), 12)
    while not waiting(small):
        assert small.one_more()
    connection.closed = True
    small.finish()
    assert waiting(small) == 0
    assert connection.answers == []


def test_a_leader_that_resigns_while_it_reads_says_so_of_what_is_left(small: LargeNode) -> None:
    send_records(small, NAMES[0], 0)
    send_records(small, NAMES[4], 0)
    # A version in which a follower answers no consumer.
    connection = small.begin(fetch(-1, NAMES[:6], min_bytes=1, max_wait_ms=500), 10)
    while not waiting(small):
        assert small.one_more()
    resign(small, NAMES[4])
    small.finish()
    [answer] = connection.answers
    assert read(answer).keys() == {(NAMES[0], 0)}
    reported = {t.topic: {row.error_code for row in t.partitions} for t in answer.responses}
    assert reported.pop(NAMES[4]) == {Code.NOT_LEADER_OR_FOLLOWER}
    assert set().union(*reported.values()) == {Code.NONE}


# ----------------------------------------------------------------------------------- the cluster


def test_settings_of_many_topics_are_altered_in_slices(small: LargeNode) -> None:
    names = [f"c{n:03d}" for n in range(200)]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    small.send(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
    small.pass_time(1_000)

    def altering(*wanted: str) -> IncrementalAlterConfigsRequest:
        config = AlterableConfig(name="retention.ms", config_operation=0, value="86400000")
        return IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(resource_type=2, resource_name=name, configs=[config])
                for name in wanted
            ]
        )

    small.ask(altering(NAMES[0]), 1)
    answer = small.ask(altering(*names, names[7], "not-there"), 1)
    assert max(small.steps) < CALLS_MAX, small.steps
    assert [row.resource_name for row in answer.responses] == [*names, names[7], "not-there"]
    reported = [row.error_code for row in answer.responses]
    assert reported[7] == reported[200] == Code.INVALID_REQUEST  # it is named twice
    assert reported[201] == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert set(reported[:7] + reported[8:200]) == {Code.NONE}
    image = small.node.image
    assert dict(image.config(2, names[199])) == {"retention.ms": "86400000"}
    assert dict(image.config(2, names[7])) == {}


def creating(*names: str, partitions: int = 5, **more: Any) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000, **more)


@pytest.mark.parametrize("only_checks", [False, True])
def test_many_topics_are_created_in_slices(small: LargeNode, only_checks: bool) -> None:
    """Goal: the controller serves others meanwhile. Method: count the calls of what is decided and written,
    and of what is answered; topics whose names collide are far apart in the request."""
    small.ask(creating("warm"), 7)
    small.pass_time(1_000)
    names = [f"c{n:03d}" for n in range(120)]
    asked = ["a_b", "warm", *names, "a.b", names[7]]
    request = creating(*asked, validate_only=only_checks)
    connection = small.begin(request, 7)
    first = small.steps[0]
    while not connection.answers:
        assert small.one_more()
    [answer] = connection.answers
    assert first < CALLS_MAX
    reported = {row.name: row.error_code for row in answer.topics}
    assert list(reported) == list(dict.fromkeys(asked))
    assert reported.pop("warm") == Code.TOPIC_ALREADY_EXISTS
    assert reported.pop("a.b") == Code.INVALID_TOPIC_EXCEPTION
    assert reported.pop(names[7]) == Code.INVALID_REQUEST  # it was asked for twice
    assert set(reported.values()) == {Code.NONE}
    made = {name for name in small.node.image.topics_by_name if name in asked}
    assert made == ({"warm"} if only_checks else {"warm", *reported})


@pytest.mark.parametrize("other", ["big", "another"])
def test_a_large_topic_is_decided_on_again_where_the_cluster_changed_meanwhile(
    small: LargeNode, other: str
) -> None:
    """Goal: no topic is made twice. Method: another client makes one between decision and write."""
    connection = small.begin(creating("big", partitions=400), 7)
    assert connection.answers == []
    small.send_only(creating(other, partitions=1), 7)
    while not connection.answers:
        assert small.one_more()
    [row] = connection.answers[0].topics
    image = small.node.image
    if other == "big":
        assert row.error_code == Code.TOPIC_ALREADY_EXISTS
        assert len(image.topics_by_name["big"].partitions) == 1
    else:
        assert (row.error_code, row.num_partitions) == (Code.NONE, 400)
        assert image.topics_by_name["big"].topic_id == row.topic_id
        assert len(image.topics_by_name["another"].partitions) == 1


def test_more_partitions_than_a_request_may_ask_for_are_all_refused(small: LargeNode) -> None:
    answer = small.ask(creating("a", "b", "c", partitions=4_000), 7)
    assert {row.error_code for row in answer.topics} == {Code.POLICY_VIOLATION}
    assert "a" not in small.node.image.topics_by_name
