"""What a dispatcher counts and times, on both ways that a request may take."""

from typing import Any

import pytest

from bench.requests import produce_frame
from firnline.api.dispatch import Dispatcher, RequestCount
from firnline.api.error_counts import ELEMENTS_MAX, count_errors
from firnline.base.errors import Code
from firnline.protocol.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from firnline.protocol.messages.k12_heartbeat import HeartbeatResponse
from tests.worlds.harness import START_MS, Connection, Harness, batch


class Clock:
    """Each look at it costs a millisecond."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.create_topic()
    made.dispatcher = Dispatcher(made.node, clock=Clock())
    return made


def counted(harness: Harness, name: str) -> RequestCount:
    (row,) = (row for row in harness.dispatcher.counters() if row.name == name)
    return row


def at_once(harness: Harness, now_ms: int, connection: Any = None) -> Any:
    """Send a Produce of one record on the short way."""
    view = memoryview(bytearray(produce_frame(10, topic="t")))
    return harness.dispatcher.at_once(connection or Connection(), view, len(view), now_ms)


def test_one_request_of_a_millisecond_is_timed_on_the_short_way(harness: Harness) -> None:
    harness.produced("a")  # the first one finds the API, on the long way
    for later_ms in (5, 5, 5, 6):
        assert isinstance(at_once(harness, START_MS + later_ms), bytes)
    row = counted(harness, "produce")
    assert (row.requests, row.answers_without_error, dict(row.errors)) == (5, 5, {})
    assert [sum(each) for each in row.times] == [3, 3, 3]


def test_requests_are_timed_from_their_first_look_to_their_answer_on_the_long_way(
    harness: Harness,
) -> None:
    harness.produced("a")
    row = counted(harness, "produce")
    assert (row.requests, row.answers_without_error) == (1, 1)
    assert [sum(each) for each in row.times] == [1, 1, 1]


def test_a_fetch_that_waits_is_remote_time_and_that_of_a_follower_is_kept_apart(
    harness: Harness,
) -> None:
    connection = harness.fetch(min_bytes=1, max_wait_ms=500)
    assert not connection.answers
    assert not sum(counted(harness, "fetch").times.total)
    harness.produced("a")
    row = counted(harness, "fetch")
    assert (sum(row.times.remote), row.of_followers) == (1, 0)
    harness.now_ms += 1
    harness.fetch(replica_id=7)
    row = counted(harness, "fetch")
    assert (row.requests, row.of_followers) == (2, 1)
    assert (sum(row.times.total), sum(row.follower_times.total)) == (1, 1)


def test_errors_are_counted_by_their_code_wherever_they_are_in_a_response(
    harness: Harness,
) -> None:
    harness.produced("a", topic="nope")
    harness.produced("a")
    row = counted(harness, "produce")
    assert row.errors == {Code.UNKNOWN_TOPIC_OR_PARTITION: 1}
    assert (row.requests, row.answers_without_error) == (2, 1)
    traffic = harness.node.hosted.traffic
    assert (traffic.elsewhere.failed_produces, traffic.by_topic["t"].produces) == (1, 1)


def test_error_codes_are_found_at_the_top_and_below_up_to_a_limit() -> None:
    errors: dict[int, int] = {}
    assert not count_errors(HeartbeatResponse(), errors)
    assert not count_errors(b"encoded already", errors)
    assert count_errors(HeartbeatResponse(error_code=25), errors)
    parts = [PartitionProduceResponse(index=n, error_code=3) for n in range(2 * ELEMENTS_MAX)]
    long = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=parts)])
    assert count_errors(long, errors)
    assert errors == {25: 1, 3: ELEMENTS_MAX - 1}


def test_a_topic_counts_records_bytes_and_what_was_too_large() -> None:
    harness = Harness()
    harness.create_topic(max_message_bytes="200")
    harness.produced("a", "b")
    assert harness.produced("x" * 1_000).error_code == Code.MESSAGE_TOO_LARGE
    assert harness.values() == ["a", "b"]
    counts = harness.node.hosted.traffic.by_topic["t"]
    size = len(batch("a", "b"))
    assert (counts.messages_in, counts.bytes_in, counts.bytes_out) == (2, size, size)
    assert (counts.produces, counts.failed_produces, counts.fetches) == (2, 1, 1)
    assert counts.bytes_rejected == len(batch("x" * 1_000))
    assert harness.fetched(offset=99).error_code == Code.OFFSET_OUT_OF_RANGE
    assert counts.failed_fetches == 1
