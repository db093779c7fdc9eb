"""The judge of the long runs sees what is lost, and does not read everything each time."""

import pytest

from tests.chaos import workload
from tests.chaos.workload import Checker, Positions, violations

Bounds = dict[int, tuple[int, int]]


class Topic:
    """One partition of numbered records, and what was read of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[tuple[int, int]] = []
        self.reads: list[int] = []
        monkeypatch.setattr(workload, "read_from", self.read_from)

    def grow(self, count: int) -> None:
        start = len(self.rows)
        self.rows += [(number, number) for number in range(start, start + count)]

    def read_from(
        self, bootstrap: str, topic: str, partitions: int, after: dict[int, int]
    ) -> tuple[Positions, Bounds]:
        found = [row for row in self.rows if row[0] >= after.get(0, 0)]
        self.reads.append(len(found))
        return {0: found}, {0: (0, self.rows[-1][0] + 1)}

    def acked(self) -> Positions:
        return {0: list(self.rows)}


def test_a_long_chain_of_cuts_does_not_read_all_of_a_growing_log_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workload, "OVERLAP", 20)
    topic, checker = Topic(monkeypatch), Checker("cut", 1)
    for _ in range(20):
        topic.grow(100)
        assert violations(topic.acked(), checker.read("")) == []
    assert max(topic.reads) == 1100
    assert [size for size in topic.reads if size > 200] == [1100]


@pytest.mark.parametrize("overlap", [0, 20])
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_log_that_lost_what_was_read_before_is_found_out(
    monkeypatch: pytest.MonkeyPatch, rounds: int, overlap: int
) -> None:
    monkeypatch.setattr(workload, "OVERLAP", overlap)
    topic, checker = Topic(monkeypatch), Checker("cut", 1)
    for _ in range(rounds):
        topic.grow(100)
        checker.read("")
    acked = topic.acked()
    del topic.rows[-7:]
    [fault] = violations(acked, checker.read(""))
    assert "7 acknowledged records lost" in fault


def test_records_in_the_place_of_lost_ones_do_not_hide_the_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, checker = Topic(monkeypatch), Checker("cut", 1)
    topic.grow(100)
    checker.read("")
    acked = topic.acked()
    topic.rows[-7:] = [(offset, offset + 1000) for offset in range(93, 100)]
    [fault, *_] = violations(acked, checker.read(""))
    assert "7 acknowledged records lost" in fault


def test_a_hole_in_what_was_read_before_is_found_out_by_the_next_full_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workload, "OVERLAP", 20)
    topic, checker = Topic(monkeypatch), Checker("cut", 1, complete_every=3)
    topic.grow(100)
    checker.read("")
    acked = topic.acked()
    del topic.rows[50]
    found = [violations(acked, checker.read("")) for _ in range(3)]
    assert found[:2] == [[], []]
    assert "1 acknowledged records lost" in found[2][0]
