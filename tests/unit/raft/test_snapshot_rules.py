"""Which snapshots may be made, and which go: never the last, never more than the rules say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.errors import KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.raft.settings import QuorumSettings
from firnline.raft.snapshot_rules import (
    Lag,
    check_creation,
    next_start_offset,
)
from tests.paper_log import CLEANED, COMPLETE, COVERED, NEW, OLD

DAY = 24 * 3600 * 1000


class Shelf:
    """A log whose segments are 10 bytes an offset; snapshots as (end offset, bytes, last time)."""

    def __init__(self, *snapshots: tuple[int, int, int], end_offset: int = 100) -> None:
        self.snapshots = [(OffsetAndEpoch(end, 1), size, at) for end, size, at in snapshots]
        self.start_offset = 0
        self.end_offset = end_offset

    @property
    def size_bytes(self) -> int:
        return 10 * (self.end_offset - self.start_offset)

    def snapshot_sizes(self) -> list[tuple[OffsetAndEpoch, int, int]]:
        return self.snapshots

    def retire_snapshots(self, new_start_offset: int) -> None:
        assert new_start_offset in [row[0].offset for row in self.snapshots], "Q42"
        assert new_start_offset > self.start_offset, "never back"
        self.start_offset = new_start_offset
        self.snapshots = [row for row in self.snapshots if row[0].offset >= new_start_offset]


def clean(shelf: Shelf, settings: QuorumSettings, now_ms: int = 10 * DAY) -> None:
    """Do what the node does every minute."""
    while (start := next_start_offset(shelf, settings=settings, now_ms=now_ms)) is not None:
        shelf.retire_snapshots(start)


def settings(max_bytes: int, max_ms: int) -> QuorumSettings:
    return QuorumSettings(retention_max_bytes=max_bytes, retention_max_ms=max_ms)


# ------------------------------------------------------------------------------------ creation


def test_a_committed_place_may_be_made_a_snapshot() -> None:
    assert check_creation(COMPLETE, OffsetAndEpoch(30, 4), high_watermark=30) is True
    assert check_creation(CLEANED, OffsetAndEpoch(40, 7), high_watermark=40) is True


def test_what_is_not_committed_is_never_made_a_snapshot() -> None:
    outcome = check_creation(COMPLETE, OffsetAndEpoch(31, 7), high_watermark=30)
    assert isinstance(outcome, KafkaError)


@pytest.mark.parametrize(("offset", "epoch"), [(31, 4), (20, 3), (40, 8), (0, 0)])
def test_a_place_that_is_not_in_the_log_is_never_made_a_snapshot(offset: int, epoch: int) -> None:
    outcome = check_creation(COMPLETE, OffsetAndEpoch(offset, epoch), high_watermark=40)
    assert isinstance(outcome, KafkaError)


def test_what_is_here_or_before_the_log_start_is_quietly_not_made_again() -> None:
    assert check_creation(CLEANED, OffsetAndEpoch(19, 4), high_watermark=40) is False
    assert check_creation(CLEANED, OLD, high_watermark=40) is False
    assert check_creation(CLEANED, NEW, high_watermark=40) is False
    assert check_creation(COVERED, OffsetAndEpoch(33, 7), high_watermark=40) is False


# ------------------------------------------------------------------------------------ cleaning


def test_the_last_snapshot_stays_however_large_or_old_it_is() -> None:
    shelf = Shelf((50, 10**9, 0))  # X15
    clean(shelf, settings(1, 1))
    assert len(shelf.snapshots) == 1
    assert shelf.start_offset == 0
    several = Shelf((10, 10**9, 0), (50, 10**9, 0), (90, 10**9, 0))
    clean(several, settings(1, 1))
    assert [row[0].offset for row in several.snapshots] == [90]
    assert several.start_offset == 90


def test_size_counts_log_and_snapshots_and_stops_as_soon_as_it_fits() -> None:
    shelf = Shelf((10, 100, 0), (20, 100, 0), (30, 100, 0), end_offset=100)
    # 1000 bytes of log and 300 of snapshots; without the oldest, 900 and 200.
    clean(shelf, settings(1300, -1))
    assert shelf.start_offset == 0
    clean(shelf, settings(1299, -1))
    assert shelf.start_offset == 20
    assert [row[0].offset for row in shelf.snapshots] == [20, 30]


def test_age_is_that_of_the_last_record_contained_and_not_of_the_file() -> None:
    shelf = Shelf((10, 1, 1000), (20, 1, 2000), (30, 1, 3000))
    clean(shelf, settings(-1, 500), now_ms=1500)
    assert shelf.start_offset == 0
    clean(shelf, settings(-1, 500), now_ms=1501)
    assert shelf.start_offset == 20


def test_no_limit_keeps_everything() -> None:
    shelf = Shelf((10, 10**9, 0), (20, 10**9, 0))
    clean(shelf, settings(-1, -1), now_ms=10**15)
    assert len(shelf.snapshots) == 2


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 500), st.integers(0, 50)), max_size=6),
    st.integers(-1, 3000),
    st.integers(-1, 100),
)
def test_cleaning_ends_where_it_fits_or_at_the_last_snapshot(
    steps: list[tuple[int, int, int]], max_bytes: int, max_ms: int
) -> None:
    rows, end, at = [], 0, 0
    for gap, size, later in steps:
        end, at = end + gap, at + later
        rows.append((end, size, at))
    shelf = Shelf(*rows, end_offset=end + 5)
    limits = settings(max_bytes, max_ms)
    clean(shelf, limits, now_ms=at)
    assert bool(shelf.snapshots) == bool(rows)
    assert next_start_offset(shelf, settings=limits, now_ms=at) is None
    if len(shelf.snapshots) > 1:
        total = shelf.size_bytes + sum(row[1] for row in shelf.snapshots)
        assert max_bytes < 0 or total <= max_bytes
        assert max_ms < 0 or at - shelf.snapshots[0][2] <= max_ms


# ------------------------------------------------------------------------------------ the lag option


BOUND = QuorumSettings(start_offset_lag_time_max_ms=1000, retention_max_bytes=1, retention_max_ms=1)


def as_leader(shelf: Shelf, fetched: list[int], now_ms: int = 0) -> int | None:
    return next_start_offset(shelf, settings=BOUND, now_ms=now_ms, lag=Lag(fetched))


def as_follower(shelf: Shelf, leader_start_offset: int) -> int | None:
    lag = Lag(leader_start_offset=leader_start_offset)
    return next_start_offset(shelf, settings=BOUND, now_ms=DAY, lag=lag)


def test_the_leader_waits_for_the_slowest_live_replica() -> None:
    shelf = Shelf((10, 1, 0), (20, 1, 0), (30, 1, 0))  # Q51, rel-Q14
    assert as_leader(shelf, [9, 100]) is None
    assert as_leader(shelf, [10, 100]) == 10
    assert as_leader(shelf, [29, 100]) == 20
    assert as_leader(shelf, [30, 100]) == 30
    assert as_leader(shelf, []) == 30, "alone it waits for nobody"
    assert as_leader(Shelf(), []) is None


def test_the_leader_waits_no_longer_than_the_bound() -> None:
    shelf = Shelf((10, 1, 0), (20, 1, 500))
    assert as_leader(shelf, [5], now_ms=1000) is None
    assert as_leader(shelf, [5], now_ms=1001) == 10
    assert as_leader(shelf, [5], now_ms=1501) == 20


def test_no_bound_takes_a_snapshot_from_a_replica_that_fetches_it() -> None:
    shelf = Shelf((10, 1, 0), (20, 1, 0), (30, 1, 0))
    for lag in (Lag((100,)), Lag(leader_start_offset=30)):
        found = [
            next_start_offset(shelf, settings=BOUND, now_ms=DAY, lag=lag, held_offset=held)
            for held in (None, 30, 20, 9)
        ]
        assert found == [30, 30, 20, None]


def test_the_log_start_never_goes_back() -> None:
    shelf = Shelf((20, 1, 0), (30, 1, 0))
    shelf.start_offset = 20
    assert as_leader(shelf, [20]) is None
    assert as_leader(shelf, [5]) is None
    assert as_follower(shelf, 10) is None
    assert as_follower(shelf, 20) is None


def test_a_follower_goes_no_further_than_its_leader_and_its_own_newest_snapshot() -> None:
    shelf = Shelf((10, 1, 0), (30, 1, 0))
    assert as_follower(shelf, 9) is None
    assert as_follower(shelf, 10) == 10
    assert as_follower(shelf, 29) == 10, "a log starts where a snapshot of its own ends"
    assert as_follower(shelf, 99) == 30
    assert as_follower(Shelf(), 99) is None


def test_with_the_lag_option_size_and_age_retire_nothing() -> None:
    shelf = Shelf((10, 10**9, 0), (20, 10**9, 0))
    assert next_start_offset(shelf, settings=BOUND, now_ms=900) == 20
    assert as_leader(shelf, [5], now_ms=900) is None
    assert as_follower(shelf, 0) is None
