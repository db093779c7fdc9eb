"""Commands about the tier that talk to a broker: what they print, how they fail."""

import json
from typing import Any

import pytest

from firnline.base.errors import Code
from firnline.cli.show import bytes_of
from firnline.client.admin import Admin, NotAllCopied
from firnline.protocol.messages.k03_metadata import (
    MetadataResponseBroker,
)
from firnline.protocol.messages.k32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
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
from tests.unit.cli.fake_broker import FakeBroker
from tests.unit.cli.one_topic import ID, broker, json_of, run

__all__ = ["broker"]


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


def test_a_partition_with_nothing_in_the_tier_has_no_highest_offset_there(
    broker: FakeBroker,
) -> None:
    """-1 stands for that in the protocol; programs get it as it is."""
    result = TierFlushPartitionResult(log_end_offset=0, highest_remote_offset=-1)
    broker.answers[32002] = lambda request: TierFlushResponse(
        topics=[TierFlushTopicResult(name=request.topics[0].name, partitions=[result])]
    )
    *_, row = run(broker, "tier", "flush", "events").stdout.splitlines()
    assert row.split() == ["events", "0", "0"]
    assert json_of(broker, "tier", "flush", "events")[0]["highest_remote_offset"] == -1


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
