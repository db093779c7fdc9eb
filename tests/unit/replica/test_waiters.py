"""Who waits, who is woken, and who is not."""

import pytest

from firnline.base.effects import Effects
from firnline.base.errors import Bug
from firnline.replica.waiters import FetchWaiter, FetchWaiters, LargeWaiters, ProduceWaiters


class Sleeper:
    """A waiting Fetch that notes when it was completed."""

    def __init__(self, waiters: FetchWaiters, *, missing: int, committed: bool = False) -> None:
        self.woken_ms: list[int] = []
        self._waiters = waiters
        self.waiter = FetchWaiter(
            serial=len(waiters) + 1,
            missing_bytes=missing,
            wants_committed=committed,
            complete=self._complete,
        )
        waiters.add(self.waiter)

    def _complete(self, now_ms: int) -> Effects:
        self.woken_ms.append(now_ms)
        self.waiter.is_done = True
        self._waiters.discard(self.waiter)
        return [self]  # type: ignore[list-item]


def test_a_fetch_is_not_answered_before_min_bytes_came() -> None:
    waiters = FetchWaiters()
    sleeper = Sleeper(waiters, missing=100)
    assert waiters.grown(60, stable_bytes=60, now_ms=1) == []
    assert waiters.grown(40, stable_bytes=40, now_ms=2) == [sleeper]
    assert sleeper.woken_ms == [2]
    assert len(waiters) == 0


def test_a_fetch_that_waits_on_two_partitions_is_answered_once() -> None:
    one, other = FetchWaiters(), FetchWaiters()
    sleeper = Sleeper(one, missing=10)
    other.add(sleeper.waiter)
    assert one.grown(10, stable_bytes=10, now_ms=1) == [sleeper]
    assert other.grown(10, stable_bytes=10, now_ms=2) == []
    assert other.all_at_once(3) == []
    assert sleeper.woken_ms == [1]


def test_a_reader_of_committed_records_is_not_woken_by_an_open_transaction() -> None:
    waiters = FetchWaiters()
    committed = Sleeper(waiters, missing=10, committed=True)
    dirty = Sleeper(waiters, missing=10)
    assert waiters.grown(10, stable_bytes=0, now_ms=1) == [dirty]
    assert waiters.grown(1, stable_bytes=1 << 62, now_ms=2) == [committed]


def test_a_partition_that_goes_away_leaves_nobody_waiting() -> None:
    waiters = FetchWaiters()
    sleepers = [Sleeper(waiters, missing=1 << 40) for _ in range(3)]
    assert waiters.all_at_once(7) == sleepers
    assert [s.woken_ms for s in sleepers] == [[7]] * 3


def test_what_waits_no_longer_does_not_count_for_its_address() -> None:
    """Else whoever asks for large Fetches all day is taken for the one that has most."""
    waiters, room = FetchWaiters(), LargeWaiters(100)
    first, second, other = (Sleeper(waiters, missing=1).waiter for _ in range(3))
    room.add("a", first, 10)
    room.add("a", second, 60)
    room.remove("a", second)
    room.add("b", other, 60)
    assert room.partitions == 70
    assert room.in_place_of("c", 40) == [other]


def test_acks_all_is_not_answered_before_the_watermark_passed_it() -> None:
    waiters = ProduceWaiters()
    waiters.add(10, lambda now_ms: ["ten"])  # type: ignore[list-item]
    waiters.add(5, lambda now_ms: ["five"])  # type: ignore[list-item]
    waiters.add(10, lambda now_ms: ["ten again"])  # type: ignore[list-item]
    assert waiters.passed(4, 0) == []
    assert waiters.passed(9, 0) == ["five"]
    assert waiters.passed(10, 0) == ["ten", "ten again"]
    assert len(waiters) == 0


def test_leadership_lost_releases_every_producer_in_order() -> None:
    waiters = ProduceWaiters()
    for offset in (9, 3, 6):
        waiters.add(offset, lambda now_ms, o=offset: [o])  # type: ignore[misc]
    assert waiters.all_at_once(0) == [3, 6, 9]
    assert waiters.passed(100, 0) == []


def test_a_coordinator_that_fails_stops_the_node_and_not_the_follower_whose_fetch_committed() -> (
    None
):
    """Its state is everybody's; any other exception would pass for a failure of the Fetch (`Dispatcher`)."""

    def then(now_ms: int) -> Effects:
        raise KeyError("group")

    waiters = ProduceWaiters()
    waiters.add(3, then)
    assert waiters.passed(2, 1) == []
    with pytest.raises(Bug, match="group"):
        waiters.passed(3, 1)
    waiters.add(3, then)
    with pytest.raises(Bug, match="group"):
        waiters.all_at_once(1)
