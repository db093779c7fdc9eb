"""Commands that talk to a broker: what they ask, what they print, how they fail."""

from typing import Any

import pytest

from firnline.base.errors import Code, FirnlineError, KafkaError
from firnline.cli.show import rows
from firnline.client.admin import Admin
from firnline.client.groups import describe_group
from firnline.formats.topic_names import name_problem
from firnline.protocol.messages.k03_metadata import MetadataResponse, MetadataResponseTopic
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
    TierStatusPartition,
    TierStatusResponse,
    TierStatusTopic,
)
from tests.unit.cli.fake_broker import Answer, FakeBroker
from tests.unit.cli.one_topic import ID, broker, json_of, run

__all__ = ["broker"]


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


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 250])
def test_a_name_that_no_topic_can_have_is_refused_with_the_reason(
    broker: FakeBroker, name: str
) -> None:
    """Brokers say only that it is invalid."""
    topic = MetadataResponseTopic(name=name, error_code=Code.INVALID_TOPIC_EXCEPTION)
    broker.answers[3] = lambda _: MetadataResponse(topics=[topic])
    problem = name_problem(name)
    assert problem is not None
    for words in (["topic", "describe", name], ["config", "describe", "--topic", name]):
        said = str(run(broker, *words).exception)
        assert said == f"INVALID_TOPIC_EXCEPTION: topic {name}: {problem.why}"


def test_a_lease_that_has_ended_meanwhile_is_unset_like_one_that_runs(broker: FakeBroker) -> None:
    """It is described only while there is one; the hint was a key that has nothing to do with it."""
    broker.answers[32] = configs
    broker.answers[44] = lambda _: IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse()]
    )
    result = run(broker, "topic", "alter", "events", "--unset", "firnline.retention.leases")
    assert (result.exit_code, result.stdout) == (0, "altered events\n"), result.output


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
    with Admin(broker.address, timeout_s=2) as admin, pytest.raises(KafkaError) as raised:
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
