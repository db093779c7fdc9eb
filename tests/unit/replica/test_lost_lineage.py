"""A follower that lost the leader epochs of records that only the tier has takes them from there first."""

from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.replicas import EARLIEST
from firnline.formats.producer_snapshot import encode_snapshot
from firnline.replica.partition import Partition
from firnline.replica.tier_start import TierState
from tests.unit.replica.scripted_leader import Leader, fetched, records, replica

STATE = TierState(92, ((0, 10), (1, 85), (3, 90)), encode_snapshot([]))


def without_lineage(monkeypatch: pytest.MonkeyPatch) -> tuple[Partition, Leader]:
    """Its log begins at 0, its local log and its known epochs at 90."""
    p = replica()
    log = p.log
    log.truncate_fully(90, log_start_offset=0, lineage=((3, 90),))
    log.epochs.assign(3, 90)
    monkeypatch.setattr(type(log), "is_tiered", property(lambda _: True))
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 90)
    return p, Leader(p)


def answered(leader: Leader, state: Any = STATE) -> None:
    assert leader.asked == [], "it does not fetch before"
    assert leader.offset(10) == EARLIEST
    assert leader.report((1, 90)) == ("epoch end", 2)
    assert leader.report(state) == ("tier", (1, 89))


def test_a_follower_completes_its_leader_epochs_before_it_fetches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, leader = without_lineage(monkeypatch)
    answered(leader)
    assert p.log.epochs.entries() == ((0, 10), (1, 85), (3, 90))
    [position] = leader.ask.positions
    assert (position.fetch_offset, position.last_fetched_epoch) == (90, 3)
    data = records((3, "a"), start=90)
    leader.answer(fetched(data=data, high_watermark=91, log_start_offset=10))
    assert p.log.log_end_offset == 91
    assert p.log.epochs.is_behind(91), "the next sync writes them"


def test_it_follows_at_once_if_the_leader_begins_where_its_epochs_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crash took the log start back: nothing is lost."""
    p, leader = without_lineage(monkeypatch)
    leader.offset(90)
    assert leader.about == []
    assert len(leader.ask.positions) == 1
    assert p.log.epochs.entries() == ((3, 90),)


@pytest.mark.parametrize("at", range(3))
def test_it_waits_while_somebody_does_not_answer(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    p, leader = without_lineage(monkeypatch)
    problem = KafkaError(Code.KAFKA_STORAGE_ERROR, "down")
    leader.offset(problem if at == 0 else 10)
    for outcome in [(1, 90), STATE][: at - 1] if at else []:
        leader.report(outcome)
    if at:
        leader.report(problem)
    assert leader.asked == leader.about == []
    assert len(leader.warnings) == 1
    leader.pass_time()
    answered(leader)
    assert len(p.log.epochs.entries()) == 3


def test_it_follows_without_if_the_tier_does_not_have_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, leader = without_lineage(monkeypatch)
    answered(leader, KafkaError(Code.OFFSET_OUT_OF_RANGE, "no remote segment has it"))
    assert len(leader.ask.positions) == 1
    assert p.log.epochs.entries() == ((3, 90),)


def test_epochs_of_another_history_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    p, leader = without_lineage(monkeypatch)
    answered(leader, STATE._replace(lineage=((0, 10), (5, 85))))
    assert p.log.epochs.entries() == ((3, 90),)
    assert len(leader.ask.positions) == 1


@pytest.mark.parametrize("leader_begins", [90, 95])
def test_without_any_record_it_follows_at_once_if_the_leader_begins_there_or_above(
    monkeypatch: pytest.MonkeyPatch, leader_begins: int
) -> None:
    """After DeleteRecords and a crash the tier has nothing below either: who asks it is never in sync."""
    p = replica()
    p.log.truncate_fully(90, log_start_offset=0)
    monkeypatch.setattr(type(p.log), "is_tiered", property(lambda _: True))
    leader = Leader(p)
    leader.offset(leader_begins)
    assert leader.about == []
    assert len(leader.ask.positions) == 1


def test_without_any_epoch_it_begins_anew_above_the_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no local records, so there is nothing to keep."""
    p = replica()
    p.log.truncate_fully(90, log_start_offset=0)
    monkeypatch.setattr(type(p.log), "is_tiered", property(lambda _: True))
    leader = Leader(p)
    assert leader.asked == []
    leader.offset(10)
    assert leader.report((3, 92)) == ("local start", None)
    assert leader.report((1, 90)) == ("epoch end", 2)
    assert leader.report(STATE) == ("tier", (3, 91))
    assert leader.report((3, 95)) == ("epoch end", 3)
    leader.offset(10)
    assert p.log.epochs.entries() == ((0, 10), (1, 85), (3, 90))
    assert len(leader.ask.positions) == 1
