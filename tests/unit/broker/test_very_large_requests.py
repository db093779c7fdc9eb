"""A request that names very many things is gone over in slices, before it is decided on and after, too."""

from typing import Any

import pytest

from firnline.api.handlers import k09_offset_fetch
from firnline.base.errors import Code
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from firnline.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from firnline.protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
)
from firnline.protocol.messages.k33_alter_configs import (
    AlterConfigsResource as ReplacedResource,
)
from firnline.protocol.messages.k35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from firnline.protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from firnline.protocol.schema import Message

from .large import NAMES, PARTITIONS, LargeNode

pytestmark = pytest.mark.slow

# Calls of functions: some five to ten thousand of them are a millisecond. Each name needs at least one.
CALLS_MAX = 10_000
MANY = 15_000
TOPIC, BROKER = 2, 4
NONE = [f"none-{n}" for n in range(MANY)]
# One of them a second time, far from the first.
ASKED = [*NONE, NONE[7]]


@pytest.fixture(scope="module")
def node() -> LargeNode:
    large = LargeNode(NAMES[:1])
    large.fs.volume_bytes = lambda path: (1, 1)  # type: ignore[method-assign]  # looks at every file here
    return large


def ask(node: LargeNode, request: Message, version: int) -> Any:
    for _ in range(2):  # the first time its classes are compiled
        answer = node.ask(request, version)
    assert max(node.steps) < CALLS_MAX, sorted(node.steps)[-9:]
    return answer


def test_too_many_topics_are_refused_in_slices(node: LargeNode) -> None:
    topics = [CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in ASKED]
    rows = ask(node, CreateTopicsRequest(topics=topics, timeout_ms=1000), 7).topics
    assert [row.name for row in rows] == NONE
    reported = {(row.error_code, row.error_message) for row in rows}
    assert reported == {(Code.POLICY_VIOLATION, "more than 10,000 partitions in one request")}


def test_a_topic_of_too_many_partitions_is_refused(node: LargeNode) -> None:
    chosen = [CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(MANY)]
    topic = CreatableTopic(
        name="wide", num_partitions=-1, replication_factor=-1, assignments=chosen
    )
    [row] = ask(node, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics
    assert (row.name, row.error_code) == ("wide", Code.POLICY_VIOLATION)


@pytest.mark.parametrize("version", [4, 6])
def test_very_many_topics_are_deleted_in_slices(node: LargeNode, version: int) -> None:
    if version < 6:
        request = DeleteTopicsRequest(topic_names=ASKED, timeout_ms=1000)
    else:
        states = [DeleteTopicState(name=name) for name in ASKED]
        unclear = DeleteTopicState(name=None)
        request = DeleteTopicsRequest(topics=[*states, unclear], timeout_ms=1000)
    rows = ask(node, request, version).responses
    if version >= 6:
        assert (rows[0].name, rows[0].error_code) == (None, Code.INVALID_REQUEST)
        rows = rows[1:]
    assert [row.name for row in rows] == NONE
    codes = [row.error_code for row in rows]
    assert codes[7] == Code.INVALID_REQUEST  # it is named twice
    assert set(codes[:7] + codes[8:]) == {Code.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("is_one_topic", [False, True])
def test_directories_of_very_many_partitions_are_reported_in_slices(
    node: LargeNode, is_one_topic: bool
) -> None:
    if is_one_topic:
        topics = [DescribableLogDirTopic(topic=NAMES[0], partitions=list(range(3, MANY)))]
    else:
        topics = [DescribableLogDirTopic(topic=name, partitions=[0]) for name in ASKED]
        topics.append(DescribableLogDirTopic(topic=NAMES[0], partitions=[5]))
    [result] = ask(node, DescribeLogDirsRequest(topics=topics), 4).results
    [topic] = result.topics
    expected = list(range(3, PARTITIONS)) if is_one_topic else [5]
    assert topic.name == NAMES[0]
    assert sorted(row.partition_index for row in topic.partitions) == expected


def test_partitions_of_very_many_topics_are_added_in_slices(node: LargeNode) -> None:
    topics = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ASKED]
    rows = ask(node, CreatePartitionsRequest(topics=topics, timeout_ms=1000), 3).results
    assert [row.name for row in rows] == NONE
    codes = [row.error_code for row in rows]
    assert codes[7] == Code.INVALID_REQUEST  # it is named twice
    assert set(codes[:7] + codes[8:]) == {Code.UNKNOWN_TOPIC_OR_PARTITION}


def test_very_many_assignments_of_an_unknown_topic_are_refused(node: LargeNode) -> None:
    chosen = [CreatePartitionsAssignment(broker_ids=[1]) for _ in range(MANY)]
    topic = CreatePartitionsTopic(name="none", count=2, assignments=chosen)
    [row] = ask(node, CreatePartitionsRequest(topics=[topic], timeout_ms=1000), 3).results
    assert (row.name, row.error_code) == ("none", Code.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("is_incremental", [False, True])
def test_settings_of_very_many_topics_are_changed_in_slices(
    node: LargeNode, is_incremental: bool
) -> None:
    """Also of another broker, in between, which this one refuses itself."""
    row_type: Any = AlterConfigsResource if is_incremental else ReplacedResource
    named = [(TOPIC, name) for name in ASKED]
    named.insert(100, (BROKER, "99"))
    resources = [
        row_type(resource_type=kind, resource_name=name, configs=[]) for kind, name in named
    ]
    request: Any = IncrementalAlterConfigsRequest if is_incremental else AlterConfigsRequest
    rows = ask(node, request(resources=resources), 1).responses
    assert [(row.resource_type, row.resource_name) for row in rows] == named
    codes = [row.error_code for row in rows]
    assert {codes.pop(100), codes.pop(-1), codes.pop(7)} == {Code.INVALID_REQUEST}
    assert set(codes) == {Code.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, NAMES[0]), (BROKER, "1")])
def test_very_many_settings_that_are_asked_for_by_name_are_looked_for_in_slices(
    node: LargeNode, kind: int, name: str
) -> None:
    """Each name was compared with each setting in one step: 46 ms. Method: count the steps of the search."""
    keys = [*NONE, "log.retention.ms", "retention.ms"]
    row = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[row])
    node.begin(request, 4)
    searched = 0
    while node.one_more():
        searched += node.node.sliced_tasks.step_name().startswith("_answer")
    assert searched >= MANY // 5_000
    [result] = ask(node, request, 4).results
    expected = "retention.ms" if kind == TOPIC else "log.retention.ms"
    assert [config.name for config in result.configs] == [expected]


def test_settings_that_are_asked_for_one_at_a_time_are_looked_for_in_slices() -> None:
    """Goal: what is looked at counts, and not what is found. Method: nothing found serves twice."""
    node = LargeNode(NAMES[:4])
    rows = [
        DescribeConfigsResource(
            resource_type=TOPIC, resource_name=name, configuration_keys=["cleanup.policy", f"k{n}"]
        )
        for name in NAMES[:4]
        for n in range(100)
    ]
    results = ask(node, DescribeConfigsRequest(resources=rows), 4).results
    assert [[config.name for config in result.configs] for result in results] == [
        ["cleanup.policy"]
    ] * len(rows)


def _of_groups(**names: Any) -> OffsetFetchRequest:
    rows = [OffsetFetchRequestGroupTopic(partition_indexes=[n], **names) for n in range(MANY)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=rows)])


def _of_one_group() -> OffsetFetchRequest:
    rows = [OffsetFetchRequestTopic(name=NONE[0], partition_indexes=[n]) for n in range(MANY)]
    return OffsetFetchRequest(group_id="g", topics=rows)


@pytest.mark.parametrize(
    ("version", "request_"),
    [(7, _of_one_group()), (8, _of_groups(name=NONE[0])), (10, _of_groups(topic_id=b"\1" * 16))],
)
def test_a_topic_that_is_named_very_often_is_not_reported_anew_each_time(
    node: LargeNode, monkeypatch: pytest.MonkeyPatch, version: int, request_: OffsetFetchRequest
) -> None:
    """Method: count the rows of each list that a topic of the answer is given. To copy one calls nothing."""
    given = 0

    def give(self: Any, name: str, value: Any) -> None:
        nonlocal given
        given += len(value) if name == "partitions" else 0
        object.__setattr__(self, name, value)

    node.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    node.pass_time(2_000)
    for name in ("OffsetFetchResponseTopic", "OffsetFetchResponseGroupTopic"):
        monkeypatch.setattr(getattr(k09_offset_fetch, name), "__setattr__", give)
    answer = node.ask(request_, version)
    [topic] = answer.groups[0].topics if version >= 8 else answer.topics
    assert [row.partition_index for row in topic.partitions] == list(range(MANY))
    assert given <= 3 * MANY
