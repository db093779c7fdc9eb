"""Partitions are opened in slices: who waits for them, and for how long."""

from typing import Any

import pytest

from firnline.base.effects import SetTimer, Submit
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.waits import off_loop
from firnline.replica.opening import SLICE, Begun, Opening, Urgency, sync_in_pool

ID = bytes(16)


def slow(key: object, now_ms: int) -> Begun:
    """A log whose recovery never ends."""
    while True:
        yield None


def finishes(seen: list[object]) -> Opening:
    """Opens one log that waits for the disk once, and says in `seen` what came of it."""

    def begin(key: object, now_ms: int) -> Begun:
        try:
            yield off_loop("write", lambda: seen.append("written"))
        except StorageError as problem:
            seen.append(problem)
        seen.append("open")
        return []

    return Opening(begin, lambda job, problem, now_ms: [])


def test_a_log_that_waits_for_the_disk_keeps_nobody_waiting_and_goes_on_when_that_is_done() -> None:
    seen: list[object] = []
    opening = finishes(seen)
    opening.add((bytes(16), 0))
    opening.add((bytes(16), 1))
    (submit,) = opening.go(0)
    assert isinstance(submit, Submit)
    assert (seen, opening.go(0)) == ([], []), "the next one waits for its turn"
    submit.work()
    (timer,) = submit.then(KafkaError(Code.THROTTLING_QUOTA_EXCEEDED, "too much waits"), 0)
    (submit,) = timer.then(timer.at_ms)
    (submit,) = submit.then(None, 100)
    assert seen == ["written", "open"]
    submit.then(None, 100)
    assert seen == ["written", "open", "open"]


def test_a_log_hears_that_the_disk_failed_what_it_waited_for() -> None:
    seen: list[object] = []
    opening = finishes(seen)
    opening.add((bytes(16), 0))
    (submit,) = opening.go(0)
    problem = StorageError("the device failed")
    submit.then(problem, 0)
    assert seen == [problem, "open"]


def test_logs_that_need_nothing_of_the_disk_are_opened_a_few_at_a_time_too() -> None:
    """Those that are served already, or have gone meanwhile."""
    seen: list[object] = []

    def begin(key: object, now_ms: int) -> Begun:
        yield from ()
        seen.append(key)
        return []

    opening = Opening(begin, lambda job, problem, now_ms: [])
    keys = [(bytes(16), number) for number in range(30)]
    for key in keys:
        opening.add(key)
    told: list[int] = []
    effects = opening.go(0)
    opening.when_done(lambda now_ms: told.append(len(seen)) or [], 0)  # type: ignore[func-returns-value]
    sizes = [len(seen)]
    while effects:
        [timer] = effects
        assert isinstance(timer, SetTimer)
        effects = timer.then(0)
        sizes.append(len(seen) - sum(sizes))
    assert (seen, told) == (keys, [30])
    assert max(sizes) == 4


def in_order(*added: tuple[int, Urgency], asked: dict[int, int], late: int = -1) -> list[int]:
    """Numbers in the order they are opened; `asked` says after which one a client asks for which."""
    seen: list[int] = []

    def begin(key: Any, now_ms: int) -> Begun:
        yield from ()
        seen.append(key[1])
        if key[1] in asked:
            opening.prefer((ID, asked[key[1]]))
        return []

    opening = Opening(begin, lambda job, problem, now_ms: [])
    for number, urgency in added:
        opening.add((ID, number), urgency)
    effects = opening.go(0)
    while effects:
        [timer] = effects
        assert isinstance(timer, SetTimer)
        effects = timer.then(0)
    return seen


def test_what_is_likely_to_be_asked_for_is_opened_before_what_is_idle() -> None:
    idle = [(number, Urgency.IDLE) for number in range(20)]
    seen = in_order(*idle, (20, Urgency.LIKELY), asked={})
    assert seen == [20, *range(20)]


def test_a_client_waits_for_the_logs_that_are_being_opened_and_not_for_thousands() -> None:
    likely = [(number, Urgency.LIKELY) for number in range(50)]
    idle = [(number, Urgency.IDLE) for number in range(50, 100)]
    seen = in_order(*likely, *idle, asked={0: 99, 1: 40})
    assert seen[SLICE : SLICE + 2] == [99, 40]
    assert sorted(seen) == list(range(100))


def test_whoever_waits_for_all_is_not_told_because_as_many_others_are_open() -> None:
    """Strays are what is not open when all is: a log that was overtaken is none."""
    seen: list[int] = []

    def begin(key: Any, now_ms: int) -> Begun:
        yield from ()
        seen.append(key[1])
        return []

    opening = Opening(begin, lambda job, problem, now_ms: [])
    for number in range(SLICE + 4):
        opening.add((ID, number), Urgency.IDLE)
    told: list[list[int]] = []
    [timer] = opening.go(0)
    opening.when_done(lambda now_ms: told.append(list(seen)) or [], 0)  # type: ignore[func-returns-value]
    for number in range(100, 120):
        opening.add((ID, number), Urgency.ASKED_FOR)
    effects = [timer]
    while effects:
        [timer] = effects
        assert isinstance(timer, SetTimer)
        effects = timer.then(0)
    [then] = told
    assert set(range(SLICE + 4)) <= set(then)


def test_a_partition_that_is_deleted_while_it_waits_is_given_up_and_one_that_is_opened_is_not() -> (
    None
):
    opening = Opening(slow, lambda job, problem, now_ms: [])
    for number in range(20):
        opening.add((ID, number))
    opening.go(0)
    assert not opening.gives_up((ID, 0)), "it is under way"
    assert opening.gives_up((ID, 1))
    assert opening.gives_up((ID, 19))
    assert not opening.gives_up((ID, 19))


def test_a_stop_forgets_a_log_that_waits_for_the_disk() -> None:
    seen: list[object] = []
    opening = finishes(seen)
    opening.add((bytes(16), 0))
    (submit,) = opening.go(0)
    opening.stop()
    assert submit.then(None, 0) == []
    assert seen == []


def test_everybody_who_waits_is_told_when_his_own_time_is_over() -> None:
    """A registration and a shutdown may wait for the same logs."""
    opening = Opening(slow, lambda job, problem, now_ms: [])
    opening.add((bytes(16), 0))
    opening.go(0)
    told: list[str] = []
    timers: dict[object, SetTimer] = {}
    for who, at_most_ms in (("soon", 10), ("late", 20)):
        found = opening.when_done(
            lambda now_ms, who=who: told.append(f"{who} at {now_ms}") or [],  # type: ignore[misc, func-returns-value]
            0,
            at_most_ms=at_most_ms,
        )
        timers.update({each.key: each for each in found if isinstance(each, SetTimer)})
    for timer in timers.values():
        timer.then(timer.at_ms)
        timer.then(timer.at_ms)
    assert told == ["soon at 10", "late at 20"]


def test_an_error_of_ours_in_the_pool_is_told_as_it_was() -> None:
    """Whoever reads of it is to see what broke, and not what its answer could not be read as."""
    [submit] = sync_in_pool("sync", [("a", [])], lambda done, now_ms: [])
    assert isinstance(submit, Submit)
    with pytest.raises(ZeroDivisionError):
        submit.then(ZeroDivisionError(), 0)
