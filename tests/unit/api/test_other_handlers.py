"""ListOffsets, DeleteRecords, OffsetForLeaderEpoch and ApiVersions on the wire."""

from types import SimpleNamespace
from typing import Any

import pytest

from firnline.api.duplicates import folding
from firnline.api.handlers import (
    k02_list_offsets,
    k18_api_versions,
    k21_delete_records,
    k23_offset_for_leader_epoch,
    k32002_tier_flush,
)
from firnline.base.background import run_to_completion
from firnline.base.effects import Reply
from firnline.base.errors import Code
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
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
from firnline.protocol.messages.k32002_tier_flush import (
    TierFlushRequest,
    TierFlushResponse,
    TierFlushTopic,
)
from firnline.protocol.versions import SERVED
from firnline.replica.partition import Partition
from tests.worlds.effects import only
from tests.worlds.list_log import batch, log_of, partition
from tests.worlds.wire import Context, Wire


def filled() -> Partition:
    p = partition()
    p.append(batch(6), acks=1, now_ms=0)
    return p


# ------------------------------------------------------------------------------------ ListOffsets


def offsets_request(*asked: tuple[str, int, int]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp)],
            )
            for name, index, timestamp in asked
        ],
    )


def offsets(response: Any) -> list[tuple[int, int]]:
    return [(p.error_code, p.offset) for t in response.topics for p in t.partitions]


@pytest.mark.parametrize("version", range(1, 12))
def test_both_ends_are_listed_at_every_version(version: int) -> None:
    asked = offsets_request(("t", 0, -2), ("u", 0, -1))
    [response] = Wire(filled()).send(k02_list_offsets, asked, version)
    assert offsets(response) == [(0, 0), (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    [latest] = Wire(filled()).send(k02_list_offsets, offsets_request(("t", 0, -1)), version)
    assert offsets(latest) == [(0, 6)]
    epoch = latest.topics[0].partitions[0].leader_epoch
    assert epoch == (3 if version >= 4 else -1)


def test_a_partition_named_twice_is_refused_once_and_no_other() -> None:
    asked = offsets_request(("t", 0, -1), ("t", 1, -1), ("t", 0, -2))
    [response] = Wire(filled(), partition(index=1)).send(k02_list_offsets, asked, 7)
    assert offsets(response) == [(Code.INVALID_REQUEST, -1), (0, 0)]


# ---------------------------------------------------------------------------------- DeleteRecords


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_and_the_low_watermark_reported(version: int) -> None:
    p = filled()
    asked = [("t", 4), ("__consumer_offsets", 1), ("elsewhere", 0), ("no", 0)]
    asked.append(("__cluster_metadata", 1))
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
            for name, offset in asked
        ]
    )
    [response] = Wire(p).send(k21_delete_records, request, version)
    parts = [t.partitions[0] for t in response.topics]
    assert [(x.error_code, x.low_watermark) for x in parts] == [
        (0, 4),
        (Code.INVALID_TOPIC_EXCEPTION, -1),
        (Code.NOT_LEADER_OR_FOLLOWER, -1),
        (Code.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (Code.POLICY_VIOLATION, -1),  # Q52, rel-Q18
    ]
    assert log_of(p).log_start_offset == 4


# --------------------------------------------------------------------------- OffsetForLeaderEpoch


@pytest.mark.parametrize("version", range(2, 5))
@pytest.mark.parametrize(
    ("asked", "current", "expected"),
    [
        (3, -1, (0, 3, 6)),
        (3, 3, (0, 3, 6)),
        (4, -1, (0, -1, -1)),
        (3, 2, (Code.FENCED_LEADER_EPOCH, -1, -1)),
        (3, 4, (Code.UNKNOWN_LEADER_EPOCH, -1, -1)),
    ],
)
def test_where_an_epoch_ends_is_reported(
    version: int, asked: int, current: int, expected: tuple[int, int, int]
) -> None:
    part = OffsetForLeaderPartition(partition=0, leader_epoch=asked, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=[part])]
    )
    [response] = Wire(filled()).send(k23_offset_for_leader_epoch, request, version)
    found = response.topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == expected


# ------------------------------------------------------------------------------------ ApiVersions


def ask_versions(version: int, name: str = "firn-test", release: str = "1.0.0") -> Any:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=release)
    [response] = Wire().send(k18_api_versions, request, version)
    return response


@pytest.mark.parametrize("version", range(5))
def test_what_is_served_is_what_is_reported(version: int) -> None:
    response = ask_versions(version)
    reported = [(a.api_key, a.min_version, a.max_version) for a in response.api_keys]
    assert reported == [(row.key, row.advertised_min, row.advertised_max) for row in SERVED]
    features = [(f.name, f.max_version_level) for f in response.finalized_features]
    assert features == ([("metadata.version", 30)] if version >= 3 else [])
    assert response.finalized_features_epoch == (99 if version >= 3 else -1)


@pytest.mark.parametrize(
    ("version", "names"), [(3, ["metadata.version"]), (4, ["metadata.version", "x"])]
)
def test_a_feature_whose_range_begins_at_zero_is_kept_from_clients_that_refuse_it(
    version: int, names: list[str]
) -> None:
    assert [f.name for f in ask_versions(version).supported_features] == names


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "naïve", "x\n", "a_b"])
def test_a_client_without_a_proper_name_is_refused(name: str) -> None:
    assert ask_versions(3, name=name).error_code == Code.INVALID_REQUEST
    assert ask_versions(3, release=name).error_code == Code.INVALID_REQUEST


def test_a_name_is_not_asked_for_before_version_three() -> None:
    assert ask_versions(2, name="").error_code == 0


def test_a_topic_that_is_flushed_many_times_in_one_request_is_answered_once() -> None:
    """Each repeat was answered, after a look at all names: 20 s of a busy loop for 120 KB."""
    node: Any = SimpleNamespace(image=SimpleNamespace(topic=lambda name: None), tier=None)
    request = TierFlushRequest(topics=[TierFlushTopic(name="t")] * 10_000)
    run_to_completion(folding(request.key, request))
    answer = only(k32002_tier_flush.handle(node, Context(32002, 0), request, 0), Reply)
    assert isinstance(answer.message, TierFlushResponse)
    [topic] = answer.message.topics
    assert topic.partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_flush_has_the_time_that_the_request_names_for_all_its_topics() -> None:
    """The broker waited for its store instead, so the client thought that it was dead."""
    asked: list[tuple[bytes, int]] = []

    def flush(topic_id: bytes, then: Any, now_ms: int, *, partitions: Any, timeout_ms: int) -> Any:
        asked.append((topic_id, timeout_ms))
        return []

    topics = {"a": SimpleNamespace(topic_id=b"a"), "b": SimpleNamespace(topic_id=b"b")}
    node: Any = SimpleNamespace(
        image=SimpleNamespace(topic=topics.get), tier=SimpleNamespace(flush=flush)
    )
    for timeout_ms in (3_000, -1):
        request = TierFlushRequest(
            topics=[TierFlushTopic(name=name) for name in topics], timeout_ms=timeout_ms
        )
        slices = k32002_tier_flush._flush(node, Context(32002, 0), request, 1_000)
        next(slices)
        with pytest.raises(StopIteration):
            slices.send(1_500)
    assert asked == [(b"a", 3_000), (b"b", 2_500), (b"a", 0), (b"b", 0)]
