"""A follower whose next records only the tier has: what it asks, and when it gives up what it has."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import EARLIEST
from firnline.formats.producer_snapshot import SnapshotEntry, encode_snapshot
from firnline.replica.partition import Partition
from firnline.replica.tier_start import TierState
from firnline.sim.disk import CrashableFs
from tests.unit.replica.scripted_leader import (
    Leader,
    fetched,
    lead,
    replica,
)
from tests.worlds.log import NOW

MOVED = Code.OFFSET_MOVED_TO_TIERED_STORAGE
STATE = TierState(90, ((0, 10), (1, 85)), encode_snapshot([]))


def moved(*batches: tuple[int, str]) -> tuple[Partition, Leader]:
    """A follower that was told that only the tier has what comes next."""
    p = replica(*batches)
    leader = Leader(p)
    leader.answer(fetched(MOVED))
    assert leader.asked == [], "it does not ask again meanwhile"
    return p, leader


def to_the_tier(leader: Leader) -> None:
    """The leader's epochs are 0:20, 1:85, 3:90; its local log begins at 90 (T32)."""
    assert leader.report((3, 90)) == ("local start", None)
    assert leader.report((1, 90)) == ("epoch end", 2)


def begun(leader: Leader, state: Any = STATE, last: tuple[int, int] = (1, 90)) -> None:
    assert leader.report(state) == ("tier", (1, 89))
    assert leader.report(last) == ("epoch end", 1)
    assert leader.offset(20) == EARLIEST


def test_a_follower_begins_above_the_segment_that_holds_what_is_before_the_local_log() -> None:
    """T30-T32; the lineage is cut where the leader's log begins."""
    p, leader = moved((0, "old"))
    to_the_tier(leader)
    begun(leader)
    log = p.log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (20, 90, 90)
    assert log.high_watermark == 90
    assert log.epochs.entries() == ((0, 20), (1, 85))
    [position] = leader.ask.positions
    assert (position.fetch_offset, position.last_fetched_epoch) == (90, 1)


def test_the_first_epoch_has_none_before_it() -> None:
    _, leader = moved()
    assert leader.report((0, 3)) == ("local start", None)
    assert leader.report(KafkaError(Code.REPLICA_NOT_AVAILABLE)) == ("tier", (0, 2))


def test_a_local_log_that_begins_within_an_epoch_asks_for_that_epoch() -> None:
    _, leader = moved()
    leader.report((3, 95))
    leader.report((1, 90))
    assert leader.report(KafkaError(Code.REPLICA_NOT_AVAILABLE)) == ("tier", (3, 94))


def test_a_segment_whose_end_the_leader_lost_counts_up_to_the_local_log_only() -> None:
    """The segment goes to 94 in an epoch 2 that an unclean election threw away."""
    p, leader = moved()
    to_the_tier(leader)
    kept = SnapshotEntry(7, 0, 4, 88, 0, NOW, -1, -1)
    lost = SnapshotEntry(8, 0, 4, 93, 0, NOW, -1, -1)
    state = TierState(95, ((0, 10), (1, 85), (2, 91)), encode_snapshot([kept, lost]))
    assert leader.report(state) == ("tier", (1, 89))
    assert leader.report((1, 90)) == ("epoch end", 2)
    leader.offset(20)
    assert p.log.log_end_offset == 90
    assert p.log.epochs.entries() == ((0, 20), (1, 85))
    assert [entry.producer_id for entry in p.log.producers.entries()] == [7]


def test_a_segment_may_end_above_the_start_of_the_local_log() -> None:
    p, leader = moved()
    to_the_tier(leader)
    state = TierState(95, ((0, 10), (1, 85), (3, 90)), encode_snapshot([]))
    leader.report(state)
    assert leader.report((3, 120)) == ("epoch end", 3)
    leader.offset(20)
    assert (p.log.log_end_offset, p.log.epochs.latest_epoch) == (95, 3)


@pytest.mark.parametrize("at", range(5))
def test_nothing_is_given_up_before_all_is_known(at: int) -> None:
    """Spec 3.19: lost are neither records nor patience while somebody does not answer."""
    p, leader = moved((0, "a"), (0, "b"))
    problem = KafkaError(Code.KAFKA_STORAGE_ERROR, "down")
    for outcome in [(3, 90), (1, 90), STATE, (1, 90)][:at]:
        leader.report(outcome)
    leader.offset(problem) if at == 4 else leader.report(problem)
    assert p.log.log_end_offset == 2
    assert leader.asked == leader.about == []
    leader.pass_time()
    assert leader.ask.forgotten == (), "it is asked for again, as it was"
    assert len(leader.warnings) == 1
    leader.answer(fetched(MOVED))
    leader.report(problem)
    assert len(leader.warnings) == 1, "once is enough"


def test_a_damaged_snapshot_of_the_tier_changes_nothing() -> None:
    p, leader = moved((0, "a"))
    to_the_tier(leader)
    leader.report(STATE._replace(producer_snapshot=b"garbage"))
    assert (p.log.log_end_offset, leader.about) == (1, [])
    leader.pass_time()
    assert leader.ask.forgotten == ()


def test_an_answer_for_an_older_leader_epoch_truncates_nothing() -> None:
    p, leader = moved((0, "a"))
    to_the_tier(leader)
    lead(p, 4)
    leader.fetcher.add(p)
    begun(leader)
    assert p.log.log_end_offset == 1


# ------------------------------------------------------- beginning after the last offset in the tier


def empty(*batches: tuple[int, str], is_on: bool = True) -> tuple[Partition, Leader]:
    """An empty follower with the switch on, which is told that only the tier has its first records."""
    p = replica(*batches)
    leader = Leader(p, begins_at_last_tiered=is_on)
    leader.answer(fetched(MOVED))
    return p, leader


def test_an_empty_follower_begins_after_the_last_offset_in_the_tier() -> None:
    """T51, KIP-1023: the leader's local log begins before that."""
    p, leader = empty()
    assert leader.report((1, 89)) == ("last tiered", None)
    begun(leader)
    log = p.log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (20, 90, 90)
    assert log.high_watermark == 90
    assert leader.ask.positions[0].fetch_offset == 90


@pytest.mark.parametrize(("batches", "is_on"), [([], False), ([(0, "a")], True)])
def test_without_the_switch_or_with_records_it_begins_at_the_leaders_local_log(
    batches: list[tuple[int, str]], is_on: bool
) -> None:
    _, leader = empty(*batches, is_on=is_on)
    to_the_tier(leader)


@pytest.mark.parametrize(
    "found",
    [
        KafkaError(Code.OFFSET_NOT_AVAILABLE, "nothing is tiered"),
        KafkaError(Code.UNSUPPORTED_VERSION, "an older broker"),
        (0, -1),
        (-1, 89),
    ],
)
def test_a_leader_that_does_not_know_the_last_offset_is_asked_for_its_local_log(found: Any) -> None:
    p, leader = empty()
    assert leader.report(found) == ("last tiered", None)
    leader.pass_time()
    leader.answer(fetched(MOVED))
    to_the_tier(leader)
    begun(leader)
    assert p.log.log_end_offset == 90


def test_metadata_that_loads_is_waited_for() -> None:
    """The usual state of a new broker: it does not copy more because it has just started."""
    _, leader = empty()
    for _ in range(50):
        assert leader.report((1, 89)) == ("last tiered", None)
        assert leader.report(KafkaError(Code.REPLICA_NOT_AVAILABLE)) == ("tier", (1, 89))
        leader.pass_time()
        leader.answer(fetched(MOVED))
    assert leader.warnings == []


def test_what_an_unclean_election_took_from_the_leader_is_not_the_last_offset() -> None:
    """The segment goes to 94; the leader's epoch 1 ends at 90, and the tier counts up to 89."""
    p, leader = empty()
    leader.report((1, 89))
    leader.report(TierState(95, ((0, 10), (1, 85), (2, 91)), encode_snapshot([])))
    leader.report((1, 90))
    leader.offset(20)
    assert p.log.log_end_offset == 90


EPOCHS = st.integers(-2, 5) | st.sampled_from([-(1 << 31), (1 << 31) - 1])
OFFSETS = st.integers(0, 120) | st.sampled_from([(1 << 31), (1 << 63) - 1])
ENDS = OFFSETS | st.sampled_from([-1, -2, -(1 << 63)])


@given(
    local_start=st.tuples(EPOCHS, OFFSETS),
    ends=st.lists(st.tuples(EPOCHS, ENDS), min_size=2, max_size=2),
    log_start=OFFSETS,
)
def test_whatever_a_leader_says_of_its_epochs_a_follower_goes_on_with_a_sound_log(
    local_start: tuple[int, int], ends: list[tuple[int, int]], log_start: int
) -> None:
    """Answers that a hostile or a broken leader may give: offsets below 0 are refused when they are read."""
    p, leader = moved((0, "a"))
    leader.report(local_start)
    answers = {"epoch end": iter(ends), "tier": iter([STATE])}
    while leader.about:
        leader.report(next(answers[leader.about[0][0]]))
    if leader.offsets:
        leader.offset(log_start)
    assert not leader.failed
    log = p.log
    assert log.log_start_offset <= log.local_log_start_offset <= log.log_end_offset
    assert log.high_watermark <= log.log_end_offset
    entries = log.epochs.entries()
    assert list(entries) == sorted(entries)
    assert all(start <= log.log_end_offset for _, start in entries)
    leader.pass_time()
    assert leader.ask.positions or leader.ask.forgotten == (), "it fetches on"


def test_other_partitions_are_fetched_while_one_begins_in_the_tier() -> None:
    p, other = replica(), replica()
    other.topic_id = bytes(15) + b"\x63"
    leader = Leader(p, other)
    leader.answer(fetched(MOVED))
    assert [position.topic_id for position in leader.ask.forgotten] == [p.topic_id]


def test_a_node_without_a_tier_asks_again_after_a_pause() -> None:
    p = replica()
    leader = Leader(p, has_tier=False)
    leader.answer(fetched(MOVED))
    assert (leader.about, leader.asked) == ([], [])
    assert "this node has no tier" in leader.warnings[0]
    leader.pass_time()
    assert leader.ask.forgotten == ()


def test_files_that_fail_while_a_log_begins_anew_take_the_partition_down() -> None:
    """Also when the disk is full: what was there is gone already."""
    p, leader = moved((0, "a"))
    to_the_tier(leader)
    fs = p.log._fs
    assert isinstance(fs, CrashableFs)
    fs.fail("open", ".log", "ENOSPC")
    begun(leader)
    assert (leader.failed, p.is_offline) == ([p], True)
