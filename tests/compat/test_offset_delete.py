"""OffsetDelete: ours forgets committed offsets, and refuses to, as Apache Kafka does."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.protocol.messages import k08_offset_commit as m08
from firnline.protocol.messages import k09_offset_fetch as m09
from firnline.protocol.messages import k10_find_coordinator as m10
from firnline.protocol.messages import k11_join_group as m11
from firnline.protocol.messages import k14_sync_group as m14
from firnline.protocol.messages import k47_offset_delete as m47
from tests.compat.one_server import KINDS, one_server
from tests.wire.line import Target

# A subscription to topic t.
_SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
Named = Sequence[tuple[str, Sequence[int]]]


@pytest.fixture(scope="module", params=KINDS)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """A server of one kind with topics t and u of two partitions."""
    with one_server(request.param, tmp_path_factory.mktemp("offset-delete")) as server:
        yield _with_topics(server)


def _with_topics(target: Target) -> Target:
    for name in ("t", "u"):
        target.topic(name, partitions=2)
    target.ask(m10.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    deadline = time.monotonic() + 60
    while _commit(target, "first"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return target


def _commit(target: Target, group: str, generation: int = -1, member: str = "") -> int:
    """Commit all four partitions; return the first error code."""
    parts = [
        m08.OffsetCommitRequestPartition(partition_index=p, committed_offset=7) for p in (0, 1)
    ]
    topics = [m08.OffsetCommitRequestTopic(name=name, partitions=parts) for name in ("t", "u")]
    request = m08.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=topics,
    )
    return int(target.ask(request, 8).topics[0].partitions[0].error_code)


def _committed(target: Target, group: str) -> list[tuple[str, int]]:
    asked = m09.OffsetFetchRequestGroup(group_id=group, topics=None)
    [found] = target.ask(m09.OffsetFetchRequest(groups=[asked]), 8).groups
    return sorted((t.name, p.partition_index) for t in found.topics for p in t.partitions)


def _member(target: Target, group: str, protocol_type: str, subscription: bytes) -> None:
    """Have a group with one member and commits of all partitions."""
    asked = m11.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=45_000,
        member_id="",
        protocol_type=protocol_type,
        protocols=[m11.JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    joined = target.ask(asked, 3)
    assert not joined.error_code, joined
    part = m14.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    synced = m14.SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[part],
    )
    assert not target.ask(synced, 3).error_code
    assert not _commit(target, group, joined.generation_id, joined.member_id)


def _delete(target: Target, group: str, named: Named) -> Any:
    """Return the code of the group, or, where there is none, those of partitions."""
    topics = [
        m47.OffsetDeleteRequestTopic(
            name=name,
            partitions=[m47.OffsetDeleteRequestPartition(partition_index=p) for p in parts],
        )
        for name, parts in named
    ]
    said = target.ask(m47.OffsetDeleteRequest(group_id=group, topics=topics), 0)
    rows = sorted(
        (t.name, p.partition_index, Code(p.error_code).name)
        for t in said.topics
        for p in t.partitions
    )
    return rows if not said.error_code else (Code(said.error_code).name, rows)


def test_offsets_of_a_group_without_members_go_and_no_others(target: Target) -> None:
    assert not _commit(target, "empty")
    assert _delete(target, "empty", [("t", [0]), ("u", [1])]) == [
        ("t", 0, "NONE"),
        ("u", 1, "NONE"),
    ]
    assert _committed(target, "empty") == [("t", 1), ("u", 0)]
    # What is not committed is deleted already.
    assert _delete(target, "empty", [("t", [0])]) == [("t", 0, "NONE")]


def test_what_there_is_no_such_partition_of_is_said_so(target: Target) -> None:
    assert not _commit(target, "some")
    assert _delete(target, "some", [("t", [0, 5]), ("nope", [0, 1])]) == [
        ("nope", 0, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("nope", 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("t", 0, "NONE"),
        ("t", 5, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert _delete(target, "some", []) == []


def test_a_group_that_is_not_there_is_said_before_all_else(target: Target) -> None:
    for named in ([("t", [0])], [("nope", [0])], []):
        assert _delete(target, "nobody", named) == ("GROUP_ID_NOT_FOUND", [])
        assert _delete(target, "", named) == ("INVALID_GROUP_ID", [])


def test_what_members_subscribe_to_stays(target: Target) -> None:
    _member(target, "live", "consumer", _SUBSCRIPTION)
    assert _delete(target, "live", [("t", [0]), ("u", [0])]) == [
        ("t", 0, "GROUP_SUBSCRIBED_TO_TOPIC"),
        ("u", 0, "NONE"),
    ]
    assert _committed(target, "live") == [("t", 0), ("t", 1), ("u", 1)]


def test_a_group_whose_members_are_no_consumers_keeps_all(target: Target) -> None:
    _member(target, "workers", "connect", b"whatever")
    assert _delete(target, "workers", [("t", [0])]) == ("NON_EMPTY_GROUP", [])
    assert len(_committed(target, "workers")) == 4


def test_a_subscription_that_nobody_can_read_keeps_all(target: Target) -> None:
    _member(target, "odd", "consumer", b"\0")
    assert _delete(target, "odd", [("t", [0]), ("u", [0])]) == [
        ("t", 0, "GROUP_SUBSCRIBED_TO_TOPIC"),
        ("u", 0, "GROUP_SUBSCRIBED_TO_TOPIC"),
    ]


def test_what_is_named_twice_is_answered_as_kafka_does(target: Target) -> None:
    assert not _commit(target, "twice")
    found = _delete(target, "twice", [("t", [0, 0]), ("u", [0]), ("t", [1, 0])])
    assert found == [(*place, "NONE") for place in [("t", 0)] * 3 + [("t", 1), ("u", 0)]]


def test_a_group_without_offsets_is_there_until_it_expires(target: Target) -> None:
    assert not _commit(target, "bare")
    assert len(_delete(target, "bare", [("t", [0, 1]), ("u", [0, 1])])) == 4
    assert _committed(target, "bare") == []
    assert _delete(target, "bare", [("t", [0])]) == [("t", 0, "NONE")]
