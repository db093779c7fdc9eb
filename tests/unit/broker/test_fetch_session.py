"""Fetch sessions: what is remembered, what is told, and who is pushed out."""

from itertools import count
from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ZERO_UUID
from firnline.base.units import INT32_MAX
from firnline.broker import fetch_session
from firnline.broker.fetch_session import (
    FetchContext,
    FetchSession,
    FetchSessions,
    Full,
    Incremental,
    Sessionless,
    Wanted,
)
from firnline.replica.read import Diverging, Local
from tests.worlds.chance import CountingRng

EVICTION_MS = 1000


ME = ("User:ANONYMOUS", "10.0.0.1")
OTHERS = [("User:ANONYMOUS", "10.0.0.2"), ("User:other", "10.0.0.1")]


def sessions(size: int = 10) -> FetchSessions:
    return FetchSessions(
        sessions_max=size, eviction_ms=EVICTION_MS, rng=CountingRng(numbers=count(41))
    )


def want(index: int, offset: int = 0, topic: str = "t", *, leader_epoch: int = -1) -> Wanted:
    return Wanted(
        topic, ZERO_UUID, index, fetch_offset=offset, max_bytes=100, leader_epoch=leader_epoch
    )


def read(records: bytes = b"", high: int = 0, start: int = 0) -> Local:
    return Local(records, high, high, start, None)


def ask(
    s: FetchSessions, session_id: int, epoch: int, *wanted: Wanted, now_ms: int = 0, **more: Any
) -> FetchContext:
    found = attempt(s, session_id, epoch, *wanted, now_ms=now_ms, **more)
    assert not isinstance(found, KafkaError), found
    return found


def attempt(
    s: FetchSessions,
    session_id: int,
    epoch: int,
    *wanted: Wanted,
    now_ms: int = 0,
    forgotten: tuple[tuple[str, int], ...] = (),
    uses_ids: bool = False,
    owner: tuple[str, str] = ME,
) -> FetchContext | KafkaError:
    return s.context(
        session_id, epoch, wanted, forgotten, uses_ids=uses_ids, now_ms=now_ms, owner=owner
    )


def code(found: object) -> Code:
    assert isinstance(found, KafkaError), found
    return found.code


def reported(context: FetchContext, *outcomes: object) -> list[int]:
    answer = context.answer(list(zip(context.wanted, outcomes, strict=True)))  # type: ignore[arg-type]
    assert not isinstance(answer, KafkaError)
    return [wanted.index for wanted, _ in answer]


def test_a_client_without_sessions_gets_none() -> None:
    s = sessions()
    context = ask(s, 0, -1, want(0))
    assert isinstance(context, Sessionless)
    assert context.session_id == 0
    assert len(s) == 0


def test_a_first_fetch_of_a_session_reports_all_and_names_it() -> None:
    s = sessions()
    context = ask(s, 0, 0, want(0), want(1))
    assert isinstance(context, Full)
    assert context.session_id == 42
    assert reported(context, read(), read()) == [0, 1]


def test_only_news_is_reported_again() -> None:
    s = sessions()
    first = ask(s, 0, 0, want(0), want(1), want(2), want(3))
    reported(first, read(high=5), read(high=5), read(high=5), read(high=5))
    again = ask(s, 42, 1)
    assert isinstance(again, Incremental)
    outcomes = (read(high=5), read(high=6), read(b"x", high=5), read(high=5, start=2))
    assert reported(again, *outcomes) == [1, 2, 3]
    third = ask(s, 42, 2)
    # Partition 2 brought records, so it is served last now.
    assert [w.index for w in third.wanted] == [0, 1, 3, 2]
    same = (read(high=5), read(high=6), read(high=5, start=2), read(high=5))
    assert reported(third, *same) == []


def test_an_error_is_reported_each_time_and_the_recovery_too() -> None:
    s = sessions()
    reported(ask(s, 0, 0, want(0)), read(high=5))
    failed = KafkaError(Code.KAFKA_STORAGE_ERROR)
    assert reported(ask(s, 42, 1), failed) == [0]
    assert reported(ask(s, 42, 2), failed) == [0]
    assert reported(ask(s, 42, 3), read(high=5)) == [0]
    assert reported(ask(s, 42, 4), read(high=5)) == []


def test_a_follower_that_truncates_gets_the_watermark_once_more() -> None:
    """Its own fell with its log; with nothing new to read it would stay there for good."""
    s = sessions()
    reported(ask(s, 0, 0, want(0, 9)), Diverging(1, 5, 5, 5, 0))
    assert reported(ask(s, 42, 1, want(0, 5)), read(high=5)) == [0]
    assert reported(ask(s, 42, 2), read(high=5)) == []
    assert reported(ask(s, 42, 3), Diverging(1, 4, 5, 5, 0)) == [0]
    assert reported(ask(s, 42, 4, want(0, 4)), read(high=5)) == [0]


def test_a_follower_gets_the_watermark_again_in_another_epoch_of_the_same_leader() -> None:
    """It takes no answer of the epoch before; in a partition where nothing happens it would stay behind."""
    s = sessions()
    reported(ask(s, 0, 0, want(0, 5, leader_epoch=2)), read(high=5))
    assert reported(ask(s, 42, 1), read(high=5)) == []
    assert reported(ask(s, 42, 2, want(0, 5, leader_epoch=3)), read(high=5)) == [0]
    assert reported(ask(s, 42, 3), read(high=5)) == []


def test_a_follower_that_has_not_truncated_yet_is_notified_again() -> None:
    """It cuts some of its logs after each answer."""
    s = sessions()
    reported(ask(s, 0, 0, want(0, 9)), Diverging(1, 5, 5, 5, 0))
    for epoch in (1, 2, 3):
        assert reported(ask(s, 42, epoch), Diverging(1, 5, 5, 5, 0)) == [0]


def test_a_changed_position_is_read_from_and_a_forgotten_partition_is_not() -> None:
    s = sessions()
    reported(ask(s, 0, 0, want(0), want(1)), read(), read())
    context = ask(s, 42, 1, want(1, offset=7), want(2), forgotten=(("t", 0),))
    assert [(w.index, w.fetch_offset) for w in context.wanted] == [(1, 7), (2, 0)]


def test_unknown_sessions_and_wrong_epochs_are_refused() -> None:
    s = sessions()
    ask(s, 0, 0, want(0))
    assert code(attempt(s, 41, 1)) == Code.FETCH_SESSION_ID_NOT_FOUND
    assert code(attempt(s, 42, 2)) == Code.INVALID_FETCH_SESSION_EPOCH
    ask(s, 42, 1)
    assert code(attempt(s, 42, 1)) == Code.INVALID_FETCH_SESSION_EPOCH


def test_a_session_does_not_change_from_names_to_ids() -> None:
    s = sessions()
    ask(s, 0, 0, want(0))
    assert code(attempt(s, 42, 1, uses_ids=True)) == Code.FETCH_SESSION_TOPIC_ID_ERROR


def test_closing_a_session_frees_it() -> None:
    s = sessions()
    ask(s, 0, 0, want(0))
    assert isinstance(ask(s, 42, -1, want(0)), Sessionless)
    assert len(s) == 0


@pytest.mark.parametrize("other", OTHERS)
def test_who_guesses_a_session_neither_reads_in_it_nor_ends_it(other: tuple[str, str]) -> None:
    s = sessions()
    ask(s, 0, 0, want(0))
    assert code(attempt(s, 42, 1, owner=other)) == Code.FETCH_SESSION_ID_NOT_FOUND
    assert s.of_one(42, 1, uses_ids=False, owner=other) is None
    assert isinstance(ask(s, 42, -1, owner=other), Sessionless)
    assert isinstance(ask(s, 42, 0, owner=other), Sessionless)
    assert s.of_one(42, 1, uses_ids=False, owner=ME) is not None
    assert isinstance(ask(s, 42, 1), Incremental)


def test_a_session_that_forgot_everything_ends() -> None:
    s = sessions()
    ask(s, 0, 0, want(0))
    context = ask(s, 42, 1, forgotten=(("t", 0),))
    assert context.session_id == 0
    assert len(s) == 0


def test_an_answer_overtaken_by_a_later_request_is_not_reported() -> None:
    s = sessions()
    ask(s, 0, 0, want(0))
    slow = ask(s, 42, 1)
    ask(s, 42, 2)
    answer = slow.answer([(w, read(b"x")) for w in slow.wanted])
    assert code(answer) == Code.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_goes_round_to_one() -> None:
    session = FetchSession(1, [want(0)], uses_ids=False, now_ms=0)
    session.epoch = INT32_MAX
    session.advance()
    assert session.epoch == 1


def test_a_flood_of_sessions_pushes_out_no_client_that_fetches() -> None:
    s = sessions(2)
    ask(s, 0, 0, want(0))
    ask(s, 0, 0, want(0))
    for _ in range(50):
        context = ask(s, 0, 0, want(0), now_ms=EVICTION_MS)
        assert isinstance(context, Sessionless)
        assert context.session_id == 0
    assert len(s) == 2
    ask(s, 42, 1)
    ask(s, 43, 1)


def test_an_address_that_took_all_sessions_makes_room_for_another() -> None:
    """One has all 10 and uses them; five others come, and get no more than that leaves it with most."""
    s = sessions(10)
    for _ in range(10):
        ask(s, 0, 0, want(0), owner=ME)
    ask(s, 42, 1, owner=ME)  # the least used is the second one now
    for number in range(5):
        friend = ("User:ANONYMOUS", f"10.0.1.{number}")
        assert isinstance(ask(s, 0, 0, want(0), owner=friend), Full)
        assert isinstance(ask(s, 0, 0, want(0), owner=ME), Sessionless)
    assert len(s) == 10
    ask(s, 42, 2, owner=ME)
    assert code(attempt(s, 43, 1, owner=ME)) == Code.FETCH_SESSION_ID_NOT_FOUND
    for number in range(5):
        ask(s, 52 + number, 1, owner=("User:ANONYMOUS", f"10.0.1.{number}"))


def test_small_sessions_of_others_are_not_pushed_out_by_an_address_that_has_more() -> None:
    s = sessions(4)
    friend = ("User:ANONYMOUS", "10.0.0.9")
    ask(s, 0, 0, want(0), owner=friend)
    for _ in range(3):
        ask(s, 0, 0, want(0), want(1), owner=ME)
    later = EVICTION_MS + 1
    for session_id in (42, 43, 44, 45):
        ask(s, session_id, 1, now_ms=later, owner=friend if session_id == 42 else ME)
    assert isinstance(ask(s, 0, 0, want(0), want(1), now_ms=later, owner=ME), Sessionless)
    ask(s, 42, 2, now_ms=later, owner=friend)


def test_a_session_nobody_uses_makes_room() -> None:
    s = sessions(2)
    ask(s, 0, 0, want(0))
    ask(s, 0, 0, want(0), now_ms=500)
    ask(s, 42, 1, now_ms=600)
    assert isinstance(ask(s, 0, 0, want(0), now_ms=EVICTION_MS + 501), Full)
    assert code(attempt(s, 43, 1)) == Code.FETCH_SESSION_ID_NOT_FOUND
    ask(s, 42, 2)


# -- how much they remember -------------------------------------------------------------------------


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> FetchSessions:
    """Forty partitions in a session, a hundred in all."""
    monkeypatch.setattr(fetch_session, "SESSION_PARTITIONS_MAX", 40)
    monkeypatch.setattr(fetch_session, "ALL_SESSION_PARTITIONS_MAX", 100)
    return sessions(1_000)


def many(count: int, first: int = 0) -> list[Wanted]:
    return [want(index) for index in range(first, first + count)]


def test_sessions_of_one_address_remember_a_bounded_number_of_partitions(
    bounded: FetchSessions,
) -> None:
    """A thousand of 500,000 partitions each are 150 GB, and stay when their client has hung up."""
    found = [ask(bounded, 0, 0, *many(10), owner=ME) for _ in range(100)]
    assert [type(context) for context in found] == [Full] * 5 + [Sessionless] * 95
    assert isinstance(ask(bounded, 0, 0, *many(10), owner=OTHERS[0]), Full)
    assert (len(bounded), bounded.partitions, bounded.refused) == (6, 60, 95)


def test_a_session_of_too_many_partitions_is_none(bounded: FetchSessions) -> None:
    assert isinstance(ask(bounded, 0, 0, *many(41)), Sessionless)
    assert isinstance(ask(bounded, 0, 0, *many(40)), Full)


def test_a_session_that_grows_without_end_is_forgotten_and_its_client_learns_so(
    bounded: FetchSessions,
) -> None:
    ask(bounded, 0, 0, *many(10))
    for epoch in (1, 2, 3):
        ask(bounded, 42, epoch, *many(10, 10 * epoch))
    ask(bounded, 42, 4, *many(40))  # nothing new
    assert bounded.partitions == 40
    assert code(attempt(bounded, 42, 5, want(40))) == Code.FETCH_SESSION_ID_NOT_FOUND
    assert (len(bounded), bounded.partitions, bounded.refused) == (0, 0, 1)
    assert isinstance(ask(bounded, 0, 0, *many(10)), Full)


def test_what_a_session_forgets_makes_room(bounded: FetchSessions) -> None:
    ask(bounded, 0, 0, *many(40))
    assert isinstance(ask(bounded, 0, 0, *many(20)), Sessionless)
    gone = tuple(("t", index) for index in range(10, 40))
    ask(bounded, 42, 1, forgotten=gone)
    assert bounded.partitions == 10
    assert isinstance(ask(bounded, 0, 0, *many(20)), Full)
    ask(bounded, 42, -1)
    assert bounded.partitions == 20


def test_a_name_that_no_topic_can_have_counts_as_what_it_holds(bounded: FetchSessions) -> None:
    assert isinstance(ask(bounded, 0, 0, want(0, topic="n" * 249)), Full)
    assert isinstance(ask(bounded, 0, 0, want(0, topic="n" * 32_767)), Sessionless)
    ask(bounded, 42, 1, want(0, topic="n" * 5_000))
    assert bounded.partitions == 1 + 21
    assert isinstance(attempt(bounded, 42, 2, want(0, topic="m" * 5_000)), KafkaError)


def test_partitions_of_sessions_that_nobody_uses_make_room(bounded: FetchSessions) -> None:
    ask(bounded, 0, 0, *many(20))
    ask(bounded, 0, 0, *many(20), now_ms=500)
    ask(bounded, 42, 1, now_ms=600)
    later = EVICTION_MS + 501
    assert isinstance(ask(bounded, 0, 0, *many(20), now_ms=later), Full)
    assert code(attempt(bounded, 43, 1, now_ms=later)) == Code.FETCH_SESSION_ID_NOT_FOUND
    ask(bounded, 42, 2, now_ms=later)
    assert (bounded.evicted, bounded.refused) == (1, 0)


@pytest.mark.parametrize(("age_ms", "comes_in"), [(EVICTION_MS, False), (EVICTION_MS + 1, True)])
def test_a_larger_session_takes_the_place_of_a_small_old_one(age_ms: int, comes_in: bool) -> None:
    s = sessions(1)
    ask(s, 0, 0, want(0))
    ask(s, 42, 1, now_ms=age_ms)
    context = ask(s, 0, 0, want(0), want(1), now_ms=age_ms)
    assert isinstance(context, Full) is comes_in
    assert (s.evicted, s.refused) == (int(comes_in), int(not comes_in))
