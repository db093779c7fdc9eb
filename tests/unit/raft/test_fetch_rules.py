"""Where a follower may go on: each line of spec 1.7, the places just beside it, and where to cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.errors import KafkaError
from firnline.base.ids import OffsetAndEpoch
from firnline.raft.fetch_rules import (
    Diverging,
    SnapshotNeeded,
    Valid,
    last_epoch,
    truncation_point,
    validate_fetch,
)
from tests.paper_log import AT_EPOCH, CLEANED, COMPLETE, COVERED, INSTALLED, NEW, PaperLog


def test_an_empty_follower_of_a_log_without_snapshots_reads_the_log() -> None:
    assert validate_fetch(COMPLETE, 0, 0) == Valid()


@pytest.mark.parametrize("epoch", [1, 3, 4, 9])
def test_the_beginning_of_a_log_is_the_same_in_every_epoch(epoch: int) -> None:
    """Whoever cut all it had knows the epoch of what is gone; told to cut more, it would ask for ever."""
    assert validate_fetch(COMPLETE, 0, epoch) == Valid()


def test_an_empty_follower_of_an_empty_log_is_right() -> None:
    assert validate_fetch(PaperLog((), 0), 0, 0) == Valid()


def test_offset_0_is_never_served_from_segments_once_a_snapshot_exists() -> None:
    assert validate_fetch(COVERED, 0, 0) == SnapshotNeeded(NEW)  # X10
    assert validate_fetch(CLEANED, 0, 0) == SnapshotNeeded(NEW)


def test_any_other_offset_is_served_from_segments_although_a_snapshot_exists() -> None:
    assert validate_fetch(COVERED, 21, 4) == Valid()
    assert validate_fetch(COVERED, 30, 4) == Valid()


@pytest.mark.parametrize("offset", [1, 19])
def test_a_place_before_the_log_start_needs_the_latest_snapshot(offset: int) -> None:
    assert validate_fetch(CLEANED, offset, 4) == SnapshotNeeded(NEW)


def test_the_log_start_is_a_place_only_with_the_epoch_of_its_snapshot() -> None:
    assert validate_fetch(CLEANED, 20, 4) == Valid()
    for epoch in (2, 3, 5, 7):  # X9
        assert validate_fetch(CLEANED, 20, epoch) == SnapshotNeeded(NEW)


def test_just_after_the_log_start_a_newer_epoch_diverges_and_needs_no_snapshot() -> None:
    assert validate_fetch(CLEANED, 21, 5) == Diverging(4, 30)


@pytest.mark.parametrize("epoch", [0, 1, 2, 3])
def test_an_epoch_before_the_earliest_snapshots_needs_a_snapshot(epoch: int) -> None:
    assert validate_fetch(CLEANED, 25, epoch) == SnapshotNeeded(NEW)
    assert validate_fetch(COVERED, 25, epoch) == SnapshotNeeded(NEW)


def test_without_a_snapshot_an_old_epoch_diverges_where_it_ended() -> None:
    assert validate_fetch(COMPLETE, 25, 2) == Diverging(2, 10)


@pytest.mark.parametrize(("offset", "epoch"), [(1, 2), (10, 2), (11, 4), (30, 4), (31, 7), (40, 7)])
def test_every_place_of_the_leaders_log_is_valid(offset: int, epoch: int) -> None:
    assert validate_fetch(COMPLETE, offset, epoch) == Valid()


def test_records_of_an_epoch_beyond_its_end_diverge_there() -> None:
    assert validate_fetch(COMPLETE, 31, 4) == Diverging(4, 30)
    assert validate_fetch(COMPLETE, 41, 7) == Diverging(7, 40)


def test_an_epoch_the_leader_never_saw_diverges_at_the_one_before() -> None:
    assert validate_fetch(COMPLETE, 12, 3) == Diverging(2, 10)
    assert validate_fetch(COMPLETE, 12, 6) == Diverging(4, 30)
    assert validate_fetch(COMPLETE, 40, 8) == Diverging(7, 40)


def test_an_epoch_before_the_logs_first_diverges_at_its_start() -> None:
    assert validate_fetch(PaperLog(((3, 0),), 9), 5, 1) == Diverging(1, 0)


def test_a_leader_with_only_a_snapshot_knows_its_epoch() -> None:
    assert validate_fetch(INSTALLED, 35, 7) == Valid()
    assert validate_fetch(INSTALLED, 35, 6) == SnapshotNeeded(NEW)
    assert validate_fetch(INSTALLED, 36, 7) == Diverging(7, 35)
    assert validate_fetch(INSTALLED, 36, 9) == Diverging(7, 35)


def test_an_end_on_the_earliest_snapshot_has_the_snapshots_epoch() -> None:
    assert AT_EPOCH.end_offset_for(4) == OffsetAndEpoch(30, 4)
    assert AT_EPOCH.end_offset_for(6) == OffsetAndEpoch(30, 4)
    assert validate_fetch(AT_EPOCH, 30, 4) == Valid()
    assert validate_fetch(AT_EPOCH, 33, 6) == Diverging(4, 30)
    assert validate_fetch(AT_EPOCH, 33, 4) == Diverging(4, 30)


def test_the_last_epoch_is_the_snapshots_only_where_the_log_is_empty_at_its_end() -> None:
    assert last_epoch(((4, 20),), 40, NEW) == 4
    assert last_epoch((), 35, NEW) == 7
    assert last_epoch((), 0, None) == 0
    assert last_epoch((), 0, NEW) == 0


# ------------------------------------------------------------------------------ the follower's cut


def test_a_follower_cuts_where_the_leaders_epoch_ended() -> None:
    assert truncation_point(COMPLETE, Diverging(4, 15), high_watermark=5) == 15


def test_a_follower_that_has_less_of_the_epoch_cuts_at_its_own_end_of_it() -> None:
    assert truncation_point(COMPLETE, Diverging(4, 99), high_watermark=5) == 30
    assert truncation_point(COMPLETE, Diverging(7, 99), high_watermark=5) == 40


def test_a_follower_without_that_epoch_cuts_at_the_end_of_the_one_before() -> None:
    assert truncation_point(COMPLETE, Diverging(3, 25), high_watermark=5) == 10
    assert truncation_point(COMPLETE, Diverging(5, 12), high_watermark=5) == 30


def test_a_leader_without_any_epoch_empties_the_follower() -> None:
    assert truncation_point(COMPLETE, Diverging(0, 0), high_watermark=0) == 0
    assert truncation_point(COMPLETE, Diverging(1, 0), high_watermark=0) == 0


def test_a_follower_never_cuts_below_its_high_watermark() -> None:
    assert truncation_point(COMPLETE, Diverging(4, 15), high_watermark=15) == 15
    refused = truncation_point(COMPLETE, Diverging(4, 15), high_watermark=16)  # X8, rel-Q7
    assert isinstance(refused, KafkaError)
    assert (refused.facts["truncation_offset"], refused.facts["high_watermark"]) == (15, 16)
    assert isinstance(truncation_point(COMPLETE, Diverging(0, 0), high_watermark=1), KafkaError)


def history(entries: list[tuple[int, int]]) -> list[int]:
    """The epoch of each offset, from (steps of epoch, records) pairs."""
    epochs: list[int] = []
    epoch = 0
    for step, count in entries:
        epoch += step
        epochs += [epoch] * count
    return epochs


def on_paper(history: list[int]) -> PaperLog:
    starts = tuple((e, history.index(e)) for e in sorted(set(history)))
    return PaperLog(starts, len(history))


STEPS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=4)


@given(STEPS, STEPS, STEPS)
def test_fetch_and_cut_in_turn_end_at_the_common_prefix(
    common: list[tuple[int, int]], here: list[tuple[int, int]], there: list[tuple[int, int]]
) -> None:
    """KIP-595's claim: a follower comes to the longest common prefix and loses none of it."""
    shared = history(common)
    base = shared[-1] if shared else 0
    # One leader an epoch: the two go on with epochs of different parity.
    leader = shared + [base + 2 * epoch for epoch in history(there)]
    follower = shared + [base + 2 * epoch - 1 for epoch in history(here)]
    if not leader:
        return
    for _ in range(len(leader) + len(follower) + 2):
        own = on_paper(follower)
        found = validate_fetch(on_paper(leader), len(follower), follower[-1] if follower else 0)
        if found == Valid():
            break
        assert isinstance(found, Diverging)
        cut = truncation_point(own, found, high_watermark=len(shared))
        assert not isinstance(cut, KafkaError), cut
        assert len(shared) <= cut < len(follower)
        follower = follower[:cut]
    assert follower == leader[: len(follower)]
    assert follower[: len(shared)] == shared
