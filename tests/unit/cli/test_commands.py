"""Commands that talk to a broker: what they ask, what they print, how they fail."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from firnline.base.errors import Code, FirnlineError, KafkaError
from firnline.cli.main import cli
from firnline.cli.show import bytes_of, rows
from firnline.client.admin import Admin, NotAllCopied
from firnline.client.groups import describe_group
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from firnline.protocol.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from firnline.protocol.messages.k09_offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
)
from firnline.protocol.messages.k10_find_coordinator import Coordinator, FindCoordinatorResponse
from firnline.protocol.messages.k15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from firnline.protocol.messages.k16_list_groups import ListedGroup, ListGroupsResponse
from firnline.protocol.messages.k19_create_topics import CreatableTopicResult, CreateTopicsResponse
from firnline.protocol.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsResponse
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from firnline.protocol.messages.k37_create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from firnline.protocol.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsResponse
from firnline.protocol.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from firnline.protocol.messages.k32001_tier_status import (
    TierStatusCircuit,
    TierStatusPartition,
    TierStatusResponse,
    TierStatusTopic,
)
from firnline.protocol.messages.k32002_tier_flush import (
    TierFlushPartitionResult,
    TierFlushResponse,
    TierFlushTopicResult,
)
from tests.unit.cli.fake_broker import Answer, FakeBroker

ID = bytes(range(16))


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({}) as fake:
        fake.answers[3] = lambda request: metadata(fake, request)
        fake.answers[2] = list_offsets
        yield fake


def metadata(fake: FakeBroker, request: Any) -> MetadataResponse:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=1, leader_epoch=4, replica_nodes=[1], isr_nodes=[1]
    )
    topics = {
        "events": MetadataResponseTopic(name="events", topic_id=ID, partitions=[partition]),
        "__consumer_offsets": MetadataResponseTopic(
            name="__consumer_offsets", topic_id=ID, is_internal=True, partitions=[partition]
        ),
    }
    names = list(topics) if request.topics is None else [topic.name for topic in request.topics]
    missing = Code.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=fake.port)],
        controller_id=1,
        topics=[
            topics.get(name) or MetadataResponseTopic(name=name, error_code=missing)
            for name in names
        ],
    )


def list_offsets(request: Any) -> ListOffsetsResponse:
    (topic,) = request.topics
    offsets = {-2: 10, -1: 25}
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=part.partition_index, offset=offsets[part.timestamp]
                    )
                    for part in topic.partitions
                ],
            )
        ]
    )


def run(broker: FakeBroker, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--bootstrap-server", broker.address])


def json_of(broker: FakeBroker, *arguments: str) -> Any:
    result = run(broker, *arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# ------------------------------------------------------------------------------- topics


def test_topic_create_sends_what_was_asked_for(broker: FakeBroker) -> None:
    broker.answers[19] = lambda _: CreateTopicsResponse(
        topics=[CreatableTopicResult(name="t", topic_id=ID, configs=None)]
    )
    created = json_of(broker, "topic", "create", "t", "-p", "3", "-c", "retention.ms=5")
    assert created == {"topic": "t", "topic_id": "AAECAwQFBgcICQoLDA0ODw", "created": True}
    (request,) = [each for each in broker.asked if each.key == 19]
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 3, -1)
    assert [(c.name, c.value) for c in topic.configs] == [("retention.ms", "5")]


def test_the_brokers_of_each_partition_can_be_stated(broker: FakeBroker) -> None:
    broker.answers[19] = lambda _: CreateTopicsResponse(
        topics=[CreatableTopicResult(name="t", topic_id=ID, configs=None)]
    )
    result = run(broker, "topic", "create", "t", "--replica-assignment", "0:1,1:2")
    assert (result.exit_code, result.stdout) == (0, "created t\n"), result.output
    (request,) = [each for each in broker.asked if each.key == 19]
    (topic,) = request.topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    rows = [(each.partition_index, each.broker_ids) for each in topic.assignments]
    assert rows == [(0, (0, 1)), (1, (1, 2))]
    assert not request.validate_only


@pytest.mark.parametrize("text", ["", "0:a", "0:", "0:0", "0:1,1", "0 1"])
def test_an_assignment_that_cannot_be_meant_is_wrong_usage(broker: FakeBroker, text: str) -> None:
    assert run(broker, "topic", "create", "t", "--replica-assignment", text).exit_code == 2
    assert (
        run(broker, "topic", "create", "t", "-p", "1", "--replica-assignment", "0").exit_code == 2
    )
    assert not broker.asked


def test_a_trial_creates_nothing_and_says_so(broker: FakeBroker) -> None:
    broker.answers[19] = lambda _: CreateTopicsResponse(
        topics=[CreatableTopicResult(name="t", topic_id=ID, configs=None)]
    )
    result = run(broker, "topic", "create", "t", "--validate-only")
    assert (result.exit_code, result.stdout) == (0, "t could be created\n")
    assert json_of(broker, "topic", "create", "t", "--validate-only")["created"] is False
    assert all(each.validate_only for each in broker.asked if each.key == 19)


def test_a_refusal_names_the_topic_and_the_reason(broker: FakeBroker) -> None:
    broker.answers[19] = lambda _: CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name="t", error_code=Code.INVALID_CONFIG, error_message="no", configs=None
            )
        ]
    )
    result = run(broker, "topic", "create", "t")
    assert isinstance(result.exception, FirnlineError)
    assert str(result.exception) == "INVALID_CONFIG: topic t: no"


def test_if_not_exists_takes_a_topic_that_is_there(broker: FakeBroker) -> None:
    broker.answers[19] = lambda _: CreateTopicsResponse(
        topics=[CreatableTopicResult(error_code=Code.TOPIC_ALREADY_EXISTS, configs=None)]
    )
    assert run(broker, "topic", "create", "t").exit_code == 1
    result = run(broker, "topic", "create", "t", "--if-not-exists")
    assert (result.exit_code, result.stdout) == (0, "t exists already\n")


def test_topic_list_hides_kafkas_own_topics_unless_asked(broker: FakeBroker) -> None:
    assert [row["name"] for row in json_of(broker, "topic", "list")] == ["events"]
    rows = json_of(broker, "topic", "list", "--internal")
    assert [row["name"] for row in rows] == ["__consumer_offsets", "events"]
    table = run(broker, "topic", "list").stdout
    head, row = table.splitlines()
    assert " ".join(head.split()) == "name topic id partitions replication factor is internal"
    assert row.split() == ["events", "AAECAwQFBgcICQoLDA0ODw", "1", "1", "no"]


def configs(_: Any) -> DescribeConfigsResponse:
    rows = [
        DescribeConfigsResourceResult(name="retention.ms", value="5", config_source=1),
        DescribeConfigsResourceResult(name="segment.ms", value="7", config_source=5),
    ]
    return DescribeConfigsResponse(results=[DescribeConfigsResult(configs=rows)])


def test_topic_describe_shows_both_ends_and_changed_settings(broker: FakeBroker) -> None:
    broker.answers[32] = configs
    (found,) = json_of(broker, "topic", "describe", "events")
    assert found["configs"] == {"retention.ms": "5"}
    (partition,) = found["partitions"]
    # Any broker tells up to where consumers may read; where the log ends only one of ours does.
    ends = [partition[name] for name in ("log_start_offset", "high_watermark", "log_end_offset")]
    assert ends == [10, 25, -1]
    assert (partition["leader"], partition["leader_epoch"]) == (1, 4)
    text = run(broker, "topic", "describe", "events", "--all-configs").stdout
    assert "retention.ms=5, segment.ms=7" in text


def test_describe_of_a_missing_topic_fails_and_creates_none(broker: FakeBroker) -> None:
    result = run(broker, "topic", "describe", "evnets")
    assert str(result.exception) == "no topic 'evnets'. Did you mean 'events'?"
    assert not any(each.allow_auto_topic_creation for each in broker.asked)


def test_topic_alter_sets_drops_and_adds(broker: FakeBroker) -> None:
    broker.answers[44] = lambda _: IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse()]
    )
    broker.answers[37] = lambda _: CreatePartitionsResponse(results=[CreatePartitionsTopicResult()])
    broker.answers[32] = configs
    words = ("topic", "alter", "events", "--set", "a=1")
    wrong = run(broker, *words, "--unset", "retenton.ms")
    assert "topic events has no setting retenton.ms: did you mean retention.ms?" in str(
        wrong.exception
    )
    assert not [each for each in broker.asked if each.key == 44], "nothing was altered"
    result = run(broker, *words, "--unset", "retention.ms", "--partitions", "4")
    assert result.exit_code == 0, result.output
    alter, grow = [each for each in broker.asked if each.key in (44, 37)]
    rows = [(c.name, c.config_operation, c.value) for c in alter.resources[0].configs]
    assert rows == [("a", 0, "1"), ("retention.ms", 1, None)]
    assert (grow.topics[0].count, grow.topics[0].assignments) == (4, None)


def test_topic_alter_states_the_brokers_of_new_partitions_alone(broker: FakeBroker) -> None:
    """As Kafka's tool: the list begins with the partitions that are there."""
    broker.answers[37] = lambda _: CreatePartitionsResponse(results=[CreatePartitionsTopicResult()])
    grow = ("topic", "alter", "events", "-p", "3", "--validate-only", "--replica-assignment")
    result = run(broker, *grow, "5,6,7")
    assert (result.exit_code, result.stdout) == (0, "events could be altered\n"), result.output
    (request,) = [each for each in broker.asked if each.key == 37]
    assert [each.broker_ids for each in request.topics[0].assignments] == [(6,), (7,)]
    assert request.validate_only
    assert run(broker, *grow, "5,6").exit_code == 2


def test_topic_alter_without_a_change_is_wrong_usage(broker: FakeBroker) -> None:
    assert run(broker, "topic", "alter", "t").exit_code == 2
    assert run(broker, "topic", "alter", "t", "--set", "x").exit_code == 2
    assert not broker.asked


def test_topic_delete_names_what_it_deleted(broker: FakeBroker) -> None:
    broker.answers[20] = lambda r: DeleteTopicsResponse(
        responses=[DeletableTopicResult(name=r.topics[0].name)]
    )
    assert run(broker, "topic", "delete", "a", "b").stdout == "deleted a\ndeleted b\n"


def test_an_older_broker_is_spoken_to_in_its_version(broker: FakeBroker) -> None:
    broker.versions[20] = 5  # topics by name alone
    broker.answers[20] = lambda r: DeleteTopicsResponse(
        responses=[DeletableTopicResult(name=r.topic_names[0])]
    )
    assert run(broker, "topic", "delete", "a").stdout == "deleted a\n"


# ------------------------------------------------------------------------------- groups


def group_answers(broker: FakeBroker, state: str = "Stable") -> None:
    coordinator = Coordinator(key="g", node_id=1, host="127.0.0.1", port=broker.port)
    broker.answers[10] = lambda _: FindCoordinatorResponse(coordinators=[coordinator])
    member = DescribedGroupMember(member_id="m", client_id="c", client_host="/127.0.0.1")
    group = DescribedGroup(
        group_id="g", group_state=state, protocol_type="consumer", members=[member]
    )
    broker.answers[15] = lambda _: DescribeGroupsResponse(groups=[group])
    part = OffsetFetchResponseGroupPartition(partition_index=0, committed_offset=20)
    never = OffsetFetchResponseGroupPartition(partition_index=1, committed_offset=-1)
    topic = OffsetFetchResponseGroupTopic(name="events", partitions=[part, never])
    found = OffsetFetchResponseGroup(group_id="g", topics=[topic] if state == "Stable" else [])
    broker.answers[9] = lambda _: OffsetFetchResponse(groups=[found])


def test_group_describe_counts_the_lag(broker: FakeBroker) -> None:
    group_answers(broker)
    found = json_of(broker, "group", "describe", "g")
    assert found["state"] == "Stable"
    assert found["members"] == [{"member": "m", "client": "c", "host": "/127.0.0.1"}]
    assert found["offsets"] == [
        {
            "topic": "events",
            "partition": 0,
            "committed_offset": 20,
            "log_end_offset": 25,
            "lag_records": 5,
        }
    ]
    assert "lag records" in run(broker, "group", "describe", "g").stdout


def test_a_group_that_nobody_knows_is_an_error(broker: FakeBroker) -> None:
    group_answers(broker, state="Dead")
    assert "GROUP_ID_NOT_FOUND" in str(run(broker, "group", "describe", "g").exception)


def test_a_coordinator_that_loads_is_asked_again(broker: FakeBroker) -> None:
    """One that has just taken over says so for a moment: no user of a script should have to know."""
    group_answers(broker)
    listed = ListedGroup(group_id="g", group_type="classic")
    loading = [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR]
    answers: dict[int, tuple[Answer, Answer]] = {
        15: (
            broker.answers[15],
            lambda _: DescribeGroupsResponse(groups=[DescribedGroup(error_code=loading.pop())]),
        ),
        16: (
            lambda _: ListGroupsResponse(groups=[listed]),
            lambda _: ListGroupsResponse(error_code=loading.pop()),
        ),
        42: (
            lambda _: DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g")]),
            lambda _: DeleteGroupsResponse(
                results=[DeletableGroupResult(group_id="g", error_code=loading.pop())]
            ),
        ),
    }
    for key, command in ((15, ("describe", "g")), (16, ("list",)), (42, ("delete", "g"))):
        complete, refused = answers[key]
        loading[:] = [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR]
        broker.answers[key] = lambda asked, no=refused, yes=complete: (no if loading else yes)(
            asked
        )  # type: ignore[misc]
        result = run(broker, "group", *command)
        assert (result.exit_code, loading) == (0, []), result.output


def test_a_coordinator_that_loads_for_ever_is_an_error_in_time(broker: FakeBroker) -> None:
    loading = DescribedGroup(error_code=Code.COORDINATOR_LOAD_IN_PROGRESS)
    group_answers(broker)
    broker.answers[15] = lambda _: DescribeGroupsResponse(groups=[loading])
    with Admin(broker.address, timeout_s=0.3) as admin, pytest.raises(KafkaError) as raised:
        describe_group(admin, "g")
    assert raised.value.code == Code.COORDINATOR_LOAD_IN_PROGRESS


def test_group_list_and_delete(broker: FakeBroker) -> None:
    group_answers(broker)
    listed = ListedGroup(
        group_id="g", protocol_type="consumer", group_state="Empty", group_type="classic"
    )
    broker.answers[16] = lambda _: ListGroupsResponse(groups=[listed])
    assert json_of(broker, "group", "list") == [
        {"group": "g", "state": "Empty", "kind": "classic", "protocol_type": "consumer"}
    ]
    broker.answers[42] = lambda _: DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id="g", error_code=Code.NON_EMPTY_GROUP)]
    )
    assert "NON_EMPTY_GROUP: group g" in str(run(broker, "group", "delete", "g").exception)


# ------------------------------------------------------------------------------- tiers


def test_tier_status_is_one_row_per_partition(broker: FakeBroker) -> None:
    part = TierStatusPartition(
        log_start_offset=0, log_end_offset=9, highest_remote_offset=8, remote_segments=2,
        remote_bytes=3400, state="idle",
    )  # fmt: skip
    answer = TierStatusResponse(
        topics=[TierStatusTopic(name="events", topic_id=ID, partitions=[part])]
    )
    broker.answers[32001] = lambda _: answer
    found = json_of(broker, "tier", "status", "events")
    (row,) = found["partitions"]
    assert (row["topic"], row["remote_segments"], row["remote_bytes"]) == ("events", 2, 3400)
    assert found["brokers"] == [
        {"broker": broker.address, "problem": None, "open_circuits": [], "unanswered": None}
    ]
    shown = run(broker, "tier", "status", "events")
    assert (shown.exit_code, len(shown.stdout.splitlines())) == (0, 2)
    assert "3.4 kB in 2" in shown.stdout


def test_tier_status_says_why_records_are_not_in_the_tier(broker: FakeBroker) -> None:
    def shown(*parts: TierStatusPartition) -> list[str]:
        topic = TierStatusTopic(name="events", topic_id=ID, partitions=list(parts))
        broker.answers[32001] = lambda _: TierStatusResponse(topics=[topic] if parts else [])
        result = run(broker, "tier", "status")
        assert result.exit_code == 0
        return result.stdout.splitlines()[1 + len(parts) :]

    unrolled = TierStatusPartition(log_end_offset=50, highest_remote_offset=9, state="idle")
    [_, line] = shown(unrolled)
    assert line.startswith(
        "events-0: 40 records are not in the tier, because a segment is copied once"
    )
    assert "`firnline tier flush events`" in line
    settings = {"segment.ms": "604800000", "segment.bytes": "1073741824"}
    settings["firnline.remote.log.roll.idle.ms"] = "0"
    broker.answers[32] = lambda _: DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                configs=[
                    DescribeConfigsResourceResult(name=key, value=value, config_source=5)
                    for key, value in settings.items()
                ]
            )
        ]
    )
    [_, line] = shown(unrolled)
    assert line == (
        "events-0: 40 records are not in the tier, because a segment is copied once it is closed: that"
        " happens with the next record once it is 7 d old (segment.ms) or holds 1.1 GB (segment.bytes)."
        " `firnline tier flush events` closes and copies it now"
    )
    settings["firnline.remote.log.roll.idle.ms"] = "10000"
    [_, line] = shown(unrolled)
    assert (
        "closed: that happens 10 s after the last record, and 60 s after its first at the latest"
        " (firnline.remote.log.roll.idle.ms). `firnline tier flush"
    ) in line
    [_, line] = shown(TierStatusPartition(log_end_offset=1, state="off"))
    assert line.endswith(
        "1 record is not in the tier, and none is copied, because"
        " remote.log.copy.disable of events is true"
    )
    assert (
        shown(TierStatusPartition(log_end_offset=50, highest_remote_offset=9, state="copying"))
        == []
    )
    assert (
        shown(TierStatusPartition(log_end_offset=50, highest_remote_offset=49, state="idle")) == []
    )
    broker.answers[32001] = lambda _: TierStatusResponse()
    assert "no topic has remote.storage.enable=true" in run(broker, "tier", "status").stdout
    assert "no topic has" not in run(broker, "tier", "status", "led-by-others").stdout
    local = TierStatusTopic(name="local", topic_id=ID, error_code=Code.INVALID_TOPIC_EXCEPTION)
    broker.answers[32001] = lambda _: TierStatusResponse(topics=[local])
    refused = run(broker, "tier", "status", "local")
    assert refused.exit_code != 0
    assert "remote.storage.enable is false" in str(refused.exception) + refused.output


def test_tier_status_says_what_is_stuck_why_and_for_how_long(broker: FakeBroker) -> None:
    part = TierStatusPartition(
        waiting_segments=3,
        waiting_bytes=5_000_000,
        waiting_ms=7_300_000,
        state="failing",
        problem="the disk is full",
        problem_ms=200_000,
    )
    circuit = TierStatusCircuit(operation="copy", open_ms=65_000, problem="503 SlowDown")
    answer = TierStatusResponse(
        topics=[TierStatusTopic(name="events", topic_id=ID, partitions=[part])],
        circuits=[circuit],
        problem="__remote_log_metadata could not be created",
    )
    broker.answers[32001] = lambda _: answer
    result = run(broker, "tier", "status")
    head, row, blank, whole, store, failing = result.stdout.splitlines()
    assert (result.exit_code, head.split()[0], blank) == (3, "topic", "")
    assert "5.0 MB in 3  2 h     failing" in row
    assert whole == f"broker {broker.address}: __remote_log_metadata could not be created"
    assert store == (
        f"broker {broker.address} does not copy segments, for 65 s now, until the store answers:"
        " 503 SlowDown"
    )
    assert failing == "events-0, for 3 min: the disk is full"
    for operation, does_not in (
        ("read", "use its store"),
        ("write", "copy or delete"),
        ("delete", "delete"),
    ):
        circuit.operation = operation
        assert f"does not {does_not}" in run(broker, "tier", "status").stdout
    found = json.loads(run(broker, "tier", "status", "--format", "json").stdout)
    assert found["brokers"][0]["open_circuits"] == [
        {"operation": "delete", "open_ms": 65_000, "problem": "503 SlowDown"}
    ]


def test_tier_status_says_which_call_a_store_does_not_answer_and_for_how_long(
    broker: FakeBroker,
) -> None:
    """It is a problem before a circuit opens: a partition is still called `copying`."""
    part = TierStatusPartition(state="copying")
    broker.answers[32001] = lambda _: TierStatusResponse(
        topics=[TierStatusTopic(name="events", topic_id=ID, partitions=[part])],
        unanswered="read at 7",
        unanswered_ms=12_000,
    )
    shown = run(broker, "tier", "status")
    assert shown.exit_code == 3
    assert shown.stdout.splitlines()[-1] == (
        f"broker {broker.address}, for 12 s: its store does not answer: read at 7"
    )
    found = json.loads(run(broker, "tier", "status", "--format", "json").stdout)
    assert found["brokers"][0]["unanswered"] == {"name": "read at 7", "unanswered_ms": 12_000}


def test_an_outage_of_the_store_is_one_line_and_not_one_per_partition(broker: FakeBroker) -> None:
    parts = [
        TierStatusPartition(partition=number, problem="the store is down", problem_ms=1000 * number)
        for number in range(1000)
    ]
    broker.answers[32001] = lambda _: TierStatusResponse(
        topics=[TierStatusTopic(name="t", topic_id=ID, partitions=parts)]
    )
    *_, blank, last = run(broker, "tier", "status").stdout.splitlines()
    assert not blank
    assert last == "t-0, t-1, t-2, t-3, t-4 and 995 more, for 16 min: the store is down"


def test_tier_status_names_a_broker_that_was_started_without_its_tier(broker: FakeBroker) -> None:
    """The switch was forgotten on one; the others are shown all the same."""
    off = TierStatusResponse(
        error_code=Code.INVALID_CONFIG, error_message="this broker has no tier"
    )
    on = TierStatusResponse(
        topics=[
            TierStatusTopic(name="t", topic_id=ID, partitions=[TierStatusPartition(state="idle")])
        ]
    )
    broker.answers[32001] = lambda _: off
    alone = run(broker, "tier", "status")
    assert "this broker has no tier" in str(alone.exception)
    with FakeBroker({**broker.answers, 32001: lambda _: on}) as other:
        before = broker.answers[3]

        def with_another(request: Any) -> Any:
            answer: Any = before(request)
            more = MetadataResponseBroker(node_id=2, host="127.0.0.1", port=other.port)
            answer.brokers = [*answer.brokers, more]
            return answer

        broker.answers[3] = with_another
        result = run(broker, "tier", "status")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[1].split()[0] == "t"
    assert f"broker {broker.address}: " in result.stdout
    assert "this broker has no tier" in result.stdout


def test_tier_status_names_a_broker_that_does_not_answer(broker: FakeBroker) -> None:
    """One that hangs does not hide what the others say."""
    down = MetadataResponseBroker(node_id=2, host="127.0.0.1", port=1)
    before = broker.answers[3]

    def with_another(request: Any) -> Any:
        found: Any = before(request)
        found.brokers = [*found.brokers, down]
        return found

    broker.answers[3] = with_another
    broker.answers[32001] = lambda _: TierStatusResponse(
        topics=[
            TierStatusTopic(name="t", topic_id=ID, partitions=[TierStatusPartition(state="idle")])
        ]
    )
    result = run(broker, "tier", "status")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[1].split()[0] == "t"
    assert "broker 127.0.0.1:1: did not answer" in result.stdout


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (3400, "3.4 kB"), (999_949, "999.9 kB"),
        (999_950, "1.0 MB"), (10**9, "1.0 GB"), (5 * 10**15, "5000.0 TB"),
    ],
)  # fmt: skip
def test_sizes_are_in_the_unit_that_people_would_choose(size_bytes: int, text: str) -> None:
    assert bytes_of(size_bytes) == text


def test_a_cluster_without_a_tier_has_no_metadata_of_one(broker: FakeBroker) -> None:
    problem = run(broker, "tier", "metadata").exception
    assert str(problem) == (
        "the cluster has no __remote_log_metadata: none of its brokers has had a tier"
    )


def test_tier_flush_says_how_far_the_tier_reaches(broker: FakeBroker) -> None:
    result = TierFlushPartitionResult(log_end_offset=10, highest_remote_offset=9)
    broker.answers[32002] = lambda request: TierFlushResponse(
        topics=[TierFlushTopicResult(name=request.topics[0].name, partitions=[result])]
    )
    (row,) = json_of(broker, "tier", "flush", "events", "--timeout", "5")
    assert row["highest_remote_offset"] == 9
    (request,) = [each for each in broker.asked if each.key == 32002]
    assert 3500 < request.timeout_ms <= 4000, "the rest is for the answer"
    assert not request.topics[0].partitions


def test_a_flush_of_a_partition_that_nobody_leads_is_an_error(broker: FakeBroker) -> None:
    broker.answers[32002] = lambda _: TierFlushResponse(
        topics=[TierFlushTopicResult(name="events", partitions=[TierFlushPartitionResult()])]
    )
    assert run(broker, "tier", "flush", "events", "-p", "0").exit_code == 0
    problem = run(broker, "tier", "flush", "events", "-p", "0", "-p", "7").exception
    assert str(problem) == (
        "UNKNOWN_TOPIC_OR_PARTITION: events-7: there is no such partition, or no broker leads it"
    )


def test_a_flush_while_nobody_leads_a_partition_does_not_pass_for_a_whole_one(
    broker: FakeBroker,
) -> None:
    """Nobody had named the partition, and nobody answered for it: it was left out without a word."""
    broker.answers[32002] = lambda _: TierFlushResponse(
        topics=[TierFlushTopicResult(name="events")]
    )
    found = run(broker, "tier", "flush", "events")
    assert found.exit_code == 3
    assert "events-0: no broker leads it now: flush it again when one does" in found.output


def test_a_flush_that_is_not_done_in_time_prints_what_is_copied_and_why_the_rest_is_not(
    broker: FakeBroker,
) -> None:
    done = TierFlushPartitionResult(partition=0, log_end_offset=10, highest_remote_offset=9)
    late = TierFlushPartitionResult(
        partition=1,
        log_end_offset=20,
        highest_remote_offset=4,
        error_code=Code.REQUEST_TIMED_OUT,
        error_message="the store hangs",
    )
    broker.answers[32002] = lambda _: TierFlushResponse(
        topics=[TierFlushTopicResult(name="events", partitions=[late, done])]
    )
    found = run(broker, "tier", "flush", "events", "--timeout", "3")
    assert found.exit_code == 3
    assert "events-1: the store hangs" in found.output
    assert [line.split() for line in found.output.splitlines()[1:3]] == [
        ["events", "0", "10", "9"],
        ["events", "1", "20", "4"],
    ]
    found = run(broker, "tier", "flush", "events", "--format", "json")
    assert [row["problem"] for row in json.loads(found.output)] == [None, "the store hangs"]


def test_a_tier_that_fails_is_an_error(broker: FakeBroker) -> None:
    result = TierFlushPartitionResult(error_code=Code.REQUEST_TIMED_OUT, error_message="slow")
    broker.answers[32002] = lambda _: TierFlushResponse(
        topics=[TierFlushTopicResult(name="events", partitions=[result])]
    )
    with Admin(broker.address) as admin, pytest.raises(NotAllCopied) as caught:
        admin.tier_flush("events", (), timeout_s=1)
    assert str(caught.value) == "REQUEST_TIMED_OUT: events-0: slow"
    result.partition = -1
    problem = run(broker, "tier", "flush", "events").exception
    assert str(problem) == "REQUEST_TIMED_OUT: topic events: slow"


# ------------------------------------------------------------------------------- tables


def test_a_table_in_a_pipe_is_neither_cut_nor_folded(broker: FakeBroker) -> None:
    """Scripts read it by lines and words."""
    name = "t" * 249
    part = TierStatusPartition(remote_segments=2, state="idle", problem="word " * 40)
    broker.answers[32001] = lambda _: TierStatusResponse(
        topics=[TierStatusTopic(name=name, topic_id=ID, partitions=[part])]
    )
    head, row, _, problem = run(broker, "tier", "status", name).stdout.splitlines()
    assert head.split()[0] == "topic"
    assert row.split()[0] == name
    assert "word " * 39 in problem


def test_a_number_is_never_broken_however_narrow_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "20")
    row = {"topic": "t" * 15, "log_start_offset": 123456789, "log_end_offset": 987654321}
    rows([row], "table", empty="")
    said = capsys.readouterr()
    *head, line = said.out.splitlines()
    assert line.split() == ["t" * 15, "123456789"]
    assert len(head) == 3
    assert said.err == "1 more column with --wide: log end offset\n"
