"""Fetch sessions of very many partitions: begun and changed in steps, and never seen half-made."""

import random
from collections.abc import Generator
from typing import Any

import pytest

from firnline.base.background import run_to_completion
from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ZERO_UUID
from firnline.base.limits import SESSION_PARTITIONS_MAX
from firnline.broker import fetch_session
from firnline.broker.fetch_session import FetchSession, FetchSessions, Full, Sessionless, Wanted
from firnline.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

from .large import NAMES, LargeNode
from .test_fetch_session import EVICTION_MS, ME, code, sessions, want

MANY = 5_000
CALLS_MAX = 15_000
Step = Generator[None, None, Any]


@pytest.fixture
def node() -> LargeNode:
    return LargeNode(NAMES[:1])


def fetch(
    session_id: int, epoch: int, count: int, forgotten: int = 0, topic: str = NAMES[0]
) -> FetchRequest:
    parts = [FetchPartition(partition=n, partition_max_bytes=1) for n in range(count)]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=parts)] if parts else [],
        forgotten_topics_data=(
            [ForgottenTopic(topic=topic, partitions=list(range(forgotten)))] if forgotten else []
        ),
    )


@pytest.fixture
def portions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many partitions a session took, or forgot, at a time."""
    found: list[int] = []
    take = FetchSession.update

    def counted(self: FetchSession, wanted: Any, forgotten: Any) -> None:
        found.append(len(wanted) + len(forgotten))
        take(self, wanted, forgotten)

    monkeypatch.setattr(FetchSession, "update", counted)
    return found


def test_a_large_session_is_begun_changed_and_emptied_in_slices(
    node: LargeNode, portions: list[int]
) -> None:
    """Goal: heartbeats of others are in time. Method: count what each step takes, and its calls."""
    node.ask(fetch(0, 0, 300), 12)
    begun = node.ask(fetch(0, 0, MANY), 12)
    assert sum(len(topic.partitions) for topic in begun.responses) == MANY
    steps = [node.steps]
    again = node.ask(fetch(begun.session_id, 1, MANY), 12)
    assert (again.error_code, again.session_id) == (0, begun.session_id)
    steps.append(node.steps)
    gone = node.ask(fetch(begun.session_id, 2, 0, MANY - 1), 12)
    assert (gone.error_code, gone.session_id) == (0, begun.session_id)
    steps.append(node.steps)
    assert node.node.fetching.sessions.partitions == 300 + 1
    assert max(map(max, steps)) < CALLS_MAX, [max(each) for each in steps]
    assert max(portions) <= 1_000, portions


def begun(s: FetchSessions, count: int = 2_500) -> int:
    found = run_to_completion(in_steps(s, 0, 0, count))
    assert isinstance(found, Full)
    return found.session_id


def in_steps(
    s: FetchSessions, session_id: int, epoch: int, count: int, *, forgotten: int = 0
) -> Step:
    return s.context_in_steps(
        session_id,
        epoch,
        [want(n, 7) for n in range(count)],
        [("t", n) for n in range(forgotten)],
        uses_ids=False,
        now_ms=0,
        owner=ME,
    )


def other(s: FetchSessions, session_id: int, epoch: int, *wanted: Wanted) -> Any:
    return s.context(session_id, epoch, wanted, (), uses_ids=False, now_ms=0, owner=ME)


def test_nobody_sees_a_session_before_all_of_it_is_there() -> None:
    s = sessions()
    steps = in_steps(s, 0, 0, 2_500)
    next(steps)
    assert (len(s), s.partitions) == (0, 0)
    assert code(other(s, 1, 1)) == Code.FETCH_SESSION_ID_NOT_FOUND
    steps.close()
    assert (len(s), s.partitions) == (0, 0)


@pytest.mark.parametrize("epoch", [1, 2])
def test_nobody_goes_on_with_a_session_that_is_being_changed(epoch: int) -> None:
    """Neither in its epoch, as before, nor in the next one; the change itself is as if nobody had asked."""
    s = sessions()
    session_id = begun(s)
    steps = in_steps(s, session_id, 1, 2_500, forgotten=1_000)
    next(steps)
    assert code(other(s, session_id, epoch, want(0))) == Code.INVALID_FETCH_SESSION_EPOCH
    found = run_to_completion(steps)
    assert found.session_id == session_id
    assert [each.index for each in found.wanted] == list(range(1_000, 2_500))
    assert {each.fetch_offset for each in found.wanted} == {7}
    assert s.partitions == 1_500
    assert not isinstance(other(s, session_id, 2), KafkaError)


def test_nor_does_the_short_path_of_one_partition() -> None:
    s = sessions()
    session_id = begun(s, 1)
    steps = in_steps(s, session_id, 1, 2_500)
    assert s.of_one(session_id, 1, uses_ids=False, owner=ME) is not None
    next(steps)
    for epoch in (1, 2):
        assert s.of_one(session_id, epoch, uses_ids=False, owner=ME) is None


def test_a_partition_that_is_not_yet_joined_by_others_is_not_read_by_the_short_path() -> None:
    """Its only partition is changed in the first step, and forgotten in a later one."""
    s = sessions()
    session_id = begun(s, 1)
    steps = in_steps(s, session_id, 1, 1, forgotten=1_500)
    next(steps)
    assert s.of_one(session_id, 2, uses_ids=False, owner=ME) is None


def test_a_change_that_is_not_done_to_its_end_forgets_the_session() -> None:
    s = sessions()
    session_id = begun(s)
    steps = in_steps(s, session_id, 1, 2_500)
    next(steps)
    steps.close()
    assert (len(s), s.partitions) == (0, 0)
    for epoch in (1, 2):
        assert code(other(s, session_id, epoch)) == Code.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("hangs_up", [False, True])
@pytest.mark.parametrize("closes", [False, True])
def test_a_session_that_goes_while_it_is_changed_is_not_found(closes: bool, hangs_up: bool) -> None:
    """Its client closes it, or begins another in its place; that one stays."""
    s = sessions()
    session_id = begun(s)
    steps = in_steps(s, session_id, 1, 2_500)
    next(steps)
    other(s, session_id, -1 if closes else 0, want(0))
    if hangs_up:
        steps.close()
    else:
        assert code(run_to_completion(steps)) == Code.FETCH_SESSION_ID_NOT_FOUND
    assert (len(s), s.partitions) == ((0, 0) if closes else (1, 1))


def test_what_a_session_may_hold_is_the_same_in_steps() -> None:
    s = sessions()
    assert isinstance(run_to_completion(in_steps(s, 0, 0, SESSION_PARTITIONS_MAX + 1)), Sessionless)
    session_id = begun(s, 10)
    grown = run_to_completion(in_steps(s, session_id, 1, SESSION_PARTITIONS_MAX + 1))
    assert code(grown) == Code.FETCH_SESSION_ID_NOT_FOUND
    assert (len(s), s.partitions, s.refused) == (0, 0, 2)
    session_id = begun(s, 10)
    # What is forgotten with it makes room, as in one step.
    more = in_steps(s, session_id, 1, SESSION_PARTITIONS_MAX + 1, forgotten=10)
    assert run_to_completion(more).session_id == session_id
    assert s.partitions == SESSION_PARTITIONS_MAX - 9


@pytest.mark.parametrize("seed", range(5))
def test_in_steps_all_is_as_in_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a client cannot tell. Method: the same requests, by chance, made both ways."""
    monkeypatch.setattr(fetch_session, "_UPDATED_PER_SLICE", 2)
    rng = random.Random(seed)
    one, steps = sessions(2), sessions(2)
    now_ms = 0
    for _ in range(500):
        now_ms += rng.choice([1, EVICTION_MS + 1])
        names = [rng.choice("ab") + "x" * rng.choice([0, 300]) for _ in range(rng.randrange(5))]
        asked = [(name, rng.randrange(4), rng.randrange(9)) for name in names]
        forgotten = [(rng.choice("ab"), rng.randrange(4)) for _ in range(rng.randrange(4))]
        how = (rng.randrange(4), rng.randrange(-1, 4))
        found = []
        for each in (one, steps):
            wanted = [Wanted(t, ZERO_UUID, n, fetch_offset=o, max_bytes=1) for t, n, o in asked]
            more: Any = {"uses_ids": False, "now_ms": now_ms, "owner": ME}
            if each is one:
                found.append(each.context(*how, wanted, forgotten, **more))
            else:
                found.append(
                    run_to_completion(each.context_in_steps(*how, wanted, forgotten, **more))
                )
        assert seen(found[0]) == seen(found[1])
        assert (len(one), one.partitions, one.refused) == (
            len(steps),
            steps.partitions,
            steps.refused,
        )


def seen(found: Any) -> Any:
    if isinstance(found, KafkaError):
        return found.code
    places = {(each.topic, each.index): each.fetch_offset for each in found.wanted}
    return type(found), found.session_id, list(places.items())
