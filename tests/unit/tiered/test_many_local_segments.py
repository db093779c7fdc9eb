"""A partition has tens of thousands of local segments, as when the store was down: each costs its own turn.

What a step looks at is counted: the segments that it has described, and those whose size it asks for.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from firnline.log import segments
from firnline.log.segments import ClosedSegment, Segments
from firnline.tiered import status
from tests.worlds.tier import TOPIC_ID, Cluster, Node

MANY = 200
# A search by halves for each of its steps, and the segment itself.
OF_A_COPY = 50


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the segments that are described, by the name of what is known of them."""
    counts: Counter[str] = Counter()

    def counted(*args: Any) -> ClosedSegment:
        counts["closed"] += 1
        return ClosedSegment(*args)

    monkeypatch.setattr(segments, "ClosedSegment", counted)
    return counts


def with_many(cluster: Cluster) -> Node:
    """A leader whose segments are all to be copied."""
    node = Node(cluster).start()
    for _ in range(MANY):
        node.produce(0, "a")
    return node.lead(0)


def test_a_copy_costs_the_same_however_many_segments_are_here(described: Counter[str]) -> None:
    node = with_many(Cluster())
    described.clear()
    node.pass_time(1000)
    assert len(node.segments()) == MANY
    assert described["closed"] < MANY * OF_A_COPY


def test_some_of_the_segments_are_described_as_all_of_them_are() -> None:
    closed = with_many(Cluster()).log.closed_segments()
    everyone = list(closed)
    assert [s.end_offset for s in everyone] == list(range(MANY))
    assert closed[-1] == everyone[-1]
    for few in (slice(0), slice(3), slice(2, 5), slice(-2, None), slice(9, 4)):
        assert list(closed[few]) == everyone[few]
    with pytest.raises(IndexError):
        closed[MANY]


def test_the_bytes_that_the_tier_lacks_are_those_of_the_segments_that_it_lacks() -> None:
    log = with_many(Cluster()).log
    for offset in (0, 1, MANY // 2, MANY - 1, MANY):
        below = sum(s.size_bytes for s in log.closed_segments() if s.end_offset < offset)
        assert log.bytes_from(offset) == log.size_bytes - below
        assert log.bytes_beginning_at(offset) == log.size_bytes - below
    assert log.bytes_beginning_at(MANY + 1) == 0


def test_a_look_at_the_limits_of_a_covered_log_asks_none_of_its_segments(
    described: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = with_many(Cluster())
    node.pass_time(1000)
    node.log.config = replace(node.log.config, retention_bytes=1 << 40)
    described.clear()
    beginning_at, checks = Segments.bytes_beginning_at, list[int]()

    def counted(self: Segments, offset: int) -> int:
        checks.append(offset)
        return beginning_at(self, offset)

    monkeypatch.setattr(Segments, "bytes_beginning_at", counted)
    node.pass_time(100_000)
    assert checks
    assert described["closed"] < OF_A_COPY * len(checks)


def test_what_waits_for_the_tier_is_counted_in_slices(
    described: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "SEGMENTS_PER_SLICE", 20)
    node = Node(Cluster()).start().lead(0)
    node.produce(0, "a")
    node.pass_time(1000)
    for _ in range(MANY):
        node.produce(0, "a")
    steps = node.tier.status_steps(TOPIC_ID)
    found = None
    while found is None:
        described.clear()
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
        assert described["closed"] <= 20 + OF_A_COPY
    (row,) = found
    assert (row.copy_lag_segments, row.copy_lag_bytes) == (MANY, node.log.bytes_from(1))


def test_local_segments_below_the_start_of_the_log_are_passed_over_at_once(
    described: Counter[str],
) -> None:
    node = with_many(Cluster())
    node.log.config = replace(
        node.log.config, remote_log_copy_disable=True, retention_bytes=1 << 40
    )
    node.log.advance_log_start(MANY - 1)
    described.clear()
    node.pass_time(30_000)
    assert 0 < described["closed"] < OF_A_COPY * 30
