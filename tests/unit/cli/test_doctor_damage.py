"""`firnline doctor` on damaged bytes of a leader, which no other replica has: they keep followers behind."""

from collections.abc import Iterator
from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.cli.doctor import Finding, _check_alone, _compare_over_brokers, _Report
from firnline.client.replica_diff import BatchSummary, Replica


class Copy:
    """A replica of ten batches of one record."""

    def __init__(self, *, bad: int = -1, high: int = 10) -> None:
        self._bad, self._high = bad, high

    def high_watermark(self, offset: int) -> int:
        return self._high

    def batch_summaries(self, begin: int, end: int) -> Iterator[BatchSummary]:
        for at in range(begin, min(end, self._high)):
            yield BatchSummary(at, at, 0, 7, is_intact=at != self._bad)


def found(leader: Any, follower: Any) -> list[Finding]:
    report = _Report()
    reached = _compare_over_brokers("t-0", [(1, leader), (2, follower)], 0, 10, report)
    _check_alone("t-0", (1, leader), reached, 10, report)
    return report.findings


def test_whole_replicas_have_no_finding_though_one_is_behind() -> None:
    assert found(Copy(), Copy(high=3)) == []


def test_damage_beyond_what_a_follower_has_is_found_at_the_leader() -> None:
    """Brokers were said to `catch up`, for ever: what they lacked could not be read."""
    (one,) = found(Copy(bad=6), Copy(high=3))
    assert (one.kind, one.where) == ("replica-damaged", "t-0")
    assert one.what.startswith("offset 6: broker 1 (leader) has 6 to 6 of epoch 0, damaged")
    assert "put back a whole copy" in one.remedy


@pytest.mark.parametrize(("leader", "follower", "bad_id"), [(4, -1, 1), (-1, 4, 2)])
def test_damage_of_one_names_its_broker_and_asks_for_another_in_sync(
    leader: int, follower: int, bad_id: int
) -> None:
    (one,) = found(Copy(bad=leader), Copy(bad=follower))
    assert f"stop broker {bad_id}, move its directory t-0" in one.remedy
    assert "shows another broker in the ISR" in one.remedy


def test_bytes_that_are_no_batch_are_damage_and_no_broker_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ask(self: Replica, offset: int, size_bytes: int) -> Any:
        raise KafkaError(Code.CORRUPT_MESSAGE, "a batch has an impossible size")

    monkeypatch.setattr(Replica, "_fetch", ask)
    report = _Report()
    replica = Replica(None, bytes(16), 0)  # type: ignore[arg-type]
    _check_alone("t-0", (1, replica), 3, 10, report)
    (one,) = report.findings
    assert (one.kind, one.what) == (
        "replica-damaged",
        "offset 3: broker 1 (leader) has bytes that are no batch, damaged",
    )
