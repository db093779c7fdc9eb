"""Partitions are opened in slices: who waits for them, and for how long."""

from collections.abc import Generator

from firnline.base.effects import Effects, SetTimer
from firnline.replica.opening import Job, Opening


def slow(key: object, now_ms: int) -> Generator[None, None, Job | Effects]:
    """A log whose recovery never ends."""
    while True:
        yield


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
