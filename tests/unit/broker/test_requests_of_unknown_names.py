"""Whoever names very much that is not there makes nobody wait: each is answered, in slices."""

from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from firnline.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from firnline.protocol.schema import Message

from .large import NAMES, PARTITIONS, LargeNode

MANY = 20_000
# Calls of functions: some five to ten thousand of them are a millisecond.
CALLS_MAX = 10_000
UNKNOWN = [f"none-{n}" for n in range(MANY)]


@pytest.fixture(scope="module")
def node() -> LargeNode:
    large = LargeNode(NAMES[:1])
    large.send(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    large.pass_time(2_000)
    for request, version in (commit([], 0), delete_records([], 0), delete_groups("none")):
        large.ask(request, version)  # its classes are compiled
    return large


def commit(topics: list[str], partitions: int) -> tuple[Message, int]:
    rows = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=1)
        for n in range(partitions)
    ]
    asked = [OffsetCommitRequestTopic(name=name, partitions=rows) for name in topics]
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    return OffsetCommitRequest(topics=asked, **fields), 8


def delete_records(topics: list[str], partitions: int) -> tuple[Message, int]:
    rows = [DeleteRecordsPartition(partition_index=n, offset=0) for n in range(partitions)]
    asked = [DeleteRecordsTopic(name=name, partitions=rows) for name in topics]
    return DeleteRecordsRequest(topics=asked, timeout_ms=1000), 2


def delete_groups(*names: str) -> tuple[Message, int]:
    return DeleteGroupsRequest(groups_names=list(names)), 2


@pytest.mark.parametrize("asking", [commit, delete_records])
def test_partitions_that_are_not_there_are_refused_in_slices(node: LargeNode, asking: Any) -> None:
    request = asking(NAMES[:1], MANY)
    answer = node.ask(*request)
    assert max(node.steps) < CALLS_MAX, node.steps
    [topic] = answer.topics
    assert [row.partition_index for row in topic.partitions] == list(range(MANY))
    codes = [row.error_code for row in topic.partitions]
    refused = [Code.UNKNOWN_TOPIC_OR_PARTITION] * (MANY - PARTITIONS)
    assert codes == [Code.NONE] * PARTITIONS + refused
    if asking is delete_records:
        lows = [row.low_watermark for row in topic.partitions]
        assert lows == [0] * PARTITIONS + [-1] * (MANY - PARTITIONS)


@pytest.mark.parametrize("asking", [commit, delete_records])
def test_topics_without_partitions_are_answered_in_slices(node: LargeNode, asking: Any) -> None:
    answer = node.ask(*asking(UNKNOWN, 0))
    assert max(node.steps) < CALLS_MAX, node.steps
    assert [topic.name for topic in answer.topics] == UNKNOWN


def test_groups_that_are_not_there_are_refused_in_slices(node: LargeNode) -> None:
    answer = node.ask(*delete_groups(*UNKNOWN))
    assert max(node.steps) < CALLS_MAX, node.steps
    assert [row.group_id for row in answer.results] == UNKNOWN
    assert {row.error_code for row in answer.results} == {Code.GROUP_ID_NOT_FOUND}
