"""Counters and histograms that requests add to."""

import pytest

from firnline.base.counting.machine import HELD_UP_REPORTED_MS, MachineFacts
from firnline.base.counting.requests import CopiedTimes, RequestCounts, RequestTimes
from firnline.base.counting.times import ENDS_MS, Times, quantile_ms
from firnline.base.counting.traffic import TrafficByTopic
from firnline.log.recovery import at_once


@pytest.mark.parametrize("part", [0.5, 0.75, 0.95, 0.99, 0.999])
def test_a_quantile_is_exact_to_an_eighth(part: float) -> None:
    times = Times()
    values = [0.01 * 1.01**n for n in range(1_200)]
    for value in values:
        times.add(value)
    exact = values[int(part * len(values)) - 1]
    assert quantile_ms(times.counts, part) == pytest.approx(exact, rel=0.125)
    assert times.sum_ms == pytest.approx(sum(values))


def test_quantiles_of_nothing_of_almost_nothing_and_of_hours() -> None:
    assert quantile_ms(Times().counts, 0.5) == 0.0
    assert quantile_ms((), 0.5) == 0.0
    times = Times()
    times.add(-1.0)  # a clock of another kind
    assert 0 <= quantile_ms(times.counts, 0.99) <= ENDS_MS[0]
    assert times.sum_ms == 0.0
    hours = Times()
    hours.add(10_000_000.0)
    assert quantile_ms(hours.counts, 0.5) == ENDS_MS[-1]


def test_requests_that_nobody_sends_cost_no_buckets() -> None:
    """A node knows hundreds of requests by version, each with six histograms."""
    counts = RequestCounts()
    assert counts.times.copy() == counts.follower_times.copy() == CopiedTimes()
    counts.times.add(2.0, 1.0)
    assert [len(each) for each in counts.times.copy()] == [len(ENDS_MS) + 1] * 3
    assert counts.follower_times.copy() == CopiedTimes()


def test_times_of_two_listeners_are_put_together() -> None:
    one, other = RequestTimes(), RequestTimes()
    one.add(10.0, 4.0)
    other.add(10.0, 4.0)
    both = one.copy().plus(other.copy())
    assert [sum(each) for each in both] == [2, 2, 2]
    assert quantile_ms(both.remote, 0.5) == pytest.approx(6.0, rel=0.25)
    assert CopiedTimes().plus(one.copy()) == one.copy()


def test_partitions_of_a_topic_share_its_counters_and_sums_never_fall() -> None:
    traffic = TrafficByTopic()
    one = traffic.join("t")
    assert traffic.join("t") is one
    one.bytes_in += 100
    one.append_failed(7)
    traffic.elsewhere.failed_produces += 1
    traffic.leave("t")
    assert traffic.by_topic["t"].bytes_in == 100
    traffic.leave("t")
    assert not traffic.by_topic
    assert at_once(traffic.total()).bytes_in == 100
    again = traffic.join("t")
    again.bytes_in += 1
    total = at_once(traffic.total())
    assert (total.bytes_in, again.bytes_in, total.failed_produces) == (101, 1, 1)
    assert (total.failed_appends, total.failed_append_ms) == (1, 7)
    traffic.leave("never was here")


def test_a_loop_that_was_held_up_is_remembered_for_a_minute() -> None:
    facts = MachineFacts()
    facts.was_late(3_000, now_ms=10_000)
    facts.was_late(5, now_ms=10_250)
    assert (facts.held_up_ms, facts.held_up_at_ms) == (3_000, 10_000)
    facts.was_late(5, now_ms=10_000 + HELD_UP_REPORTED_MS)
    assert facts.held_up_ms == 5
    assert sum(facts.lateness.counts) == 3
