"""Requests that are well-formed and ask for what cannot be. Reliability (d) rows 46 to 58, codes of 4.3.1."""

import time
from typing import Any

import pytest

from firnline.base.ids import Uuid
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from firnline.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from firnline.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from firnline.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from firnline.records.build import NewRecord, build_batch
from tests.peers.nodes import eventually
from tests.wire.line import MIB, Target

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
OFFSET_OUT_OF_RANGE, METADATA_TOO_LARGE, INVALID_TOPIC, INVALID_PARTITIONS = 1, 12, 17, 37
INVALID_REPLICATION, INVALID_CONFIG, POLICY_VIOLATION = 38, 40, 44


@pytest.fixture(scope="module")
def topic(target: Target) -> Uuid:
    made = target.topic("known")
    assert (
        target.produce(
            "known", build_batch([NewRecord(b"k", b"v", int(time.time() * 1000))])
        ).error_code
        == 0
    )
    return made


# ------------------------------------------------------------------------------- topics


def create(target: Target, *topics: CreatableTopic) -> list[int]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=15_000)
    return [each.error_code for each in target.ask(request, 7).topics]


def new(name: str, partitions: int = 1, replicas: int = 1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/x",
        "..",
        ".",
        "a/b",
        "a\0b",
        "",
        "x" * 250,
        "häß",
        "a b",
        "a\nb",
        "\x1b[31m",
        "\u2028",
        "a:b",
        "%2e%2e",
    ],
)
def test_a_name_that_is_no_topic_is_refused_and_makes_no_path(target: Target, name: str) -> None:
    before = target.topic_names()
    assert create(target, new(name)) == [INVALID_TOPIC]
    assert target.topic_names() == before
    if target.is_firnline:
        root = target.log.parent
        assert {p.name for p in root.iterdir()} == {"data", "data.log"}
        assert not [p for p in (root / "data").rglob("*") if p.name.startswith(("x" * 250, "häß"))]


def test_names_that_differ_by_dot_and_underscore_collide(target: Target) -> None:
    """Their metrics would have one name."""
    assert create(target, new("co.llide")) == [0]
    assert create(target, new("co_llide")) == [INVALID_TOPIC]


def test_the_longest_name_is_a_topic(target: Target) -> None:
    name = "n" * 249
    target.topic(name)
    assert name in target.topic_names()


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"),
    [
        (0, 1, INVALID_PARTITIONS),
        (-5, 1, INVALID_PARTITIONS),
        (2**31 - 1, 1, POLICY_VIOLATION),
        (10_001, 1, POLICY_VIOLATION),
        (1, 0, INVALID_REPLICATION),
        (1, -5, INVALID_REPLICATION),
        (1, 3, INVALID_REPLICATION),
        (1, 32767, INVALID_REPLICATION),
    ],
)
def test_counts_that_cannot_be_are_refused(
    target: Target, partitions: int, replicas: int, code: int
) -> None:
    assert create(target, new("count", partitions, replicas)) == [code]
    assert "count" not in target.topic_names()


@pytest.mark.parametrize("partitions", [1, 0])
def test_a_hundred_thousand_topics_in_one_request_are_refused(
    target: Target, partitions: int
) -> None:
    """All at once: looked at one by one, topics of no partitions kept everybody waiting for seconds."""
    codes = create(target, *(new(f"many-{n}", partitions) for n in range(100_000)))
    is_looked_at = not target.is_firnline and partitions == 0
    assert set(codes) == {INVALID_PARTITIONS if is_looked_at else POLICY_VIOLATION}
    assert not any(name.startswith("many-") for name in target.topic_names())


@pytest.mark.parametrize("name", ["__cluster_metadata", "__consumer_offsets"])
def test_a_client_may_not_write_to_the_brokers_own_topics(target: Target, name: str) -> None:
    coordinator = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
    target.ask(coordinator, 4)  # makes the offsets topic
    answer = target.produce(name, build_batch([NewRecord(b"k", b"v", 1)]))
    assert answer.error_code != 0


# ------------------------------------------------------------------------------- fetch


def fetch(target: Target, name: str = "known", **fields: Any) -> Any:
    wanted = {"fetch_offset": 0, "partition_max_bytes": MIB, "partition": 0}
    place = FetchPartition(**{k: fields.pop(k, v) for k, v in wanted.items()})
    request = {"replica_id": -1, "max_wait_ms": 100, "min_bytes": 0} | fields
    return target.ask(
        FetchRequest(topics=[FetchTopic(topic=name, partitions=[place])], **request), 11
    )


def partition_of(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize("offset", [-5, -1, 2, 2**63 - 1, -(2**63)])
def test_an_offset_outside_the_log_is_out_of_range(
    target: Target, topic: Uuid, offset: int
) -> None:
    assert partition_of(fetch(target, fetch_offset=offset)).error_code == OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("size", [2**31 - 1, 0, -1, -(2**31)])
def test_any_limit_of_bytes_is_answered(target: Target, topic: Uuid, size: int) -> None:
    answer = fetch(target, partition_max_bytes=size, max_bytes=size)
    assert answer.error_code in (0, 42)


def test_a_fetch_of_a_hundred_thousand_partitions_is_bounded(target: Target, topic: Uuid) -> None:
    if target.is_firnline:
        target.forget_peak()
        before = target.rss_bytes()
    places = [
        FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=2**31 - 1)
        for n in range(100_000)
    ]
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=0,
        topics=[FetchTopic(topic="known", partitions=places)],
    )
    answer = target.ask(request, 11)
    codes = {row.error_code for row in answer.responses[0].partitions}
    assert codes == {0, 3}
    if target.is_firnline:
        assert target.peak_bytes() - before < 128 * MIB


def test_a_flood_of_fetch_sessions_is_bounded(target: Target, topic: Uuid) -> None:
    """The cache holds a thousand; who comes later is served without one, and an old id is unknown."""
    with target.line() as line:
        place = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        first = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            session_epoch=0,
            topics=[FetchTopic(topic="known", partitions=[place])],
        )
        ids = [line.ask(first, 11).session_id for _ in range(1500)]
        assert 0 < len(set(ids) - {0}) <= 1000
        unknown = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            session_id=123456789,
            session_epoch=5,
            topics=[],
        )
        assert line.ask(unknown, 11).error_code == 70


def test_a_client_that_claims_to_be_a_replica_moves_nothing(target: Target, topic: Uuid) -> None:
    """Row 54. Without an authorizer 4.3.1 has nobody to refuse it; its offset must not count."""
    answer = fetch(target, replica_id=77, fetch_offset=1)
    if answer.responses:
        assert not partition_of(answer).records
    after = partition_of(fetch(target))
    assert after.error_code == 0
    assert after.high_watermark == 1


# ------------------------------------------------------------------------------- groups


def test_metadata_of_a_commit_has_a_limit(target: Target, topic: Uuid) -> None:
    place = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="m" * 30_000
    )
    request = OffsetCommitRequest(
        group_id="big", topics=[OffsetCommitRequestTopic(name="known", partitions=[place])]
    )
    target.ask(FindCoordinatorRequest(coordinator_keys=["big"], key_type=0), 4)
    answer = _when_there(target, request, 8)
    assert answer.topics[0].partitions[0].error_code == METADATA_TOO_LARGE


def _when_there(target: Target, request: OffsetCommitRequest, version: int) -> Any:
    """Ask until the coordinator has loaded."""
    loading = (14, 15, 16)

    def look() -> Any:
        answer = target.ask(request, version)
        return None if answer.topics[0].partitions[0].error_code in loading else answer

    return eventually("the coordinator has loaded", look)


def test_ten_thousand_joins_without_an_end_are_bounded(target: Target, topic: Uuid) -> None:
    """Row 55: each asks for a member id and never comes back."""
    with target.line() as line:
        for number in range(10_000):
            request = JoinGroupRequest(
                group_id=f"flood-{number}",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
            assert line.ask(request, 5).error_code in (79, 15, 16)


# ------------------------------------------------------------------------------- configs


def test_secrets_are_not_shown(target: Target) -> None:
    broker = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=None
    )
    (result,) = target.ask(DescribeConfigsRequest(resources=[broker]), 4).results
    assert result.error_code == 0
    shown = [row.name for row in result.configs if row.is_sensitive and row.value is not None]
    assert shown == []
    passwords = [row for row in result.configs if row.name.endswith("password")]
    assert all(row.is_sensitive and row.value is None for row in passwords)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no.such.key", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("segment.bytes", "-1"),
        ("segment.bytes", "99999999999999999999"),
        ("cleanup.policy", "burn"),
        ("min.insync.replicas", "0"),
        ("", "1"),
        ("compression.type", "rar"),
    ],
)
def test_a_bad_setting_changes_nothing(target: Target, topic: Uuid, key: str, value: str) -> None:
    before = _settings(target)
    rows = [
        AlterableConfig(name="max.message.bytes", config_operation=0, value="54321"),
        AlterableConfig(name=key, config_operation=0, value=value),
    ]
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name="known", configs=rows
    )
    (result,) = target.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == (INVALID_CONFIG if key else 42) or (not key and result.error_code)
    assert _settings(target) == before


def _settings(target: Target) -> dict[str, str]:
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name="known", configuration_keys=None
    )
    (result,) = target.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    return {row.name: row.value for row in result.configs}
