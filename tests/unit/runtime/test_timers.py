"""Timers: what many that are set and cancelled leave behind, and when the others are called."""

import gc
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.effects import CancelTimer, Effects, SetTimer
from firnline.runtime import timers as module
from firnline.runtime.loop import Runtime
from firnline.runtime.poll import PollLoop
from firnline.runtime.timers import Timers
from tests.unit.runtime.echo import Running, frame, read_frame
from tests.worlds.clock import FakeClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock(100_000_123)
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    loop = PollLoop()
    node: Any = SimpleNamespace()
    made = Runtime(node, loop, threads={})
    yield made
    made.close()
    loop.close()


def test_a_day_of_heartbeats_leaves_one_timer(runtime: Runtime) -> None:
    """Each begins the session anew: what it replaces must not wait for its end in memory."""
    timers = runtime.loop.timers
    before = len(timers)
    for _ in range(30_000):
        runtime.execute([SetTimer(key="member", at_ms=runtime.now_ms() + 45_000, then=print)])  # type: ignore[arg-type]
    assert len(timers) == before + 1
    assert len(timers.due) < 500
    runtime.execute([CancelTimer(key="member")])
    assert len(timers) == before


def test_moments_are_as_many_as_the_time_ahead_has_and_not_as_the_timers(clock: FakeClock) -> None:
    timers = Timers()
    for turn in range(200_000):  # 500 s of polls that are answered after their first millisecond
        clock.now_ms += 3
        timers.add((0.5, 30, 300, 2_000_000)[turn % 4], print, ()).cancel()
        timers.first_s()
    assert len(timers) == 0
    assert len(timers.due) < 10
    kept = timers.add(0.1, print, ())
    for turn in range(100_000):  # in a burst, before the first of them is due
        timers.add(0.2 + turn / 1000, print, ()).cancel()
    assert len(timers) == 1
    assert len(timers.due) < 6000
    assert timers.take(clock.monotonic() + 0.2) == (kept,)


@given(st.lists(st.floats(0, 100_000), min_size=1, max_size=30))
def test_a_timer_is_never_early_and_late_by_a_512th_at_most(delays: list[float]) -> None:
    timers = Timers()
    expected = {}
    for delay in delays:
        before = time.monotonic()
        timer = timers.add(delay, print, ())
        expected[timer] = (before + delay, time.monotonic() + delay, delay)
    while (first := timers.first_s()) is not None:
        for timer in timers.take(first):
            earliest, latest, delay = expected.pop(timer)
            assert earliest <= first <= latest + delay / 512
    assert not expected


def test_a_timer_that_one_of_the_same_moment_cancels_is_not_called(runtime: Runtime) -> None:
    called: list[str] = []
    at_ms = runtime.now_ms() + 20

    def first(_: int) -> Effects:
        called.append("first")
        return [CancelTimer(key="second")]

    for name in ("second", "third"):
        then = lambda _, name=name: called.append(name) or []  # noqa: E731
        runtime.execute([SetTimer(key=name, at_ms=at_ms, then=then)])
    runtime.execute([SetTimer(key="first", at_ms=at_ms - 10, then=first)])
    runtime.loop.call_later(0.1, runtime.loop.stop)
    runtime.loop.run()
    assert called == ["first", "third"]


def test_timers_of_one_moment_cancel_each_other() -> None:
    timers = Timers()
    together = [timers.add(1000, print, ()) for _ in range(3)]
    taken = timers.take(time.monotonic() + 2000)
    assert list(taken) == together
    together[2].cancel()
    assert [t.cancelled for t in taken] == [False, False, True]


@pytest.mark.parametrize("ends", ["called", "cancelled"])
def test_what_a_timer_held_is_free_at_once(ends: str) -> None:
    class Held:
        def __call__(self) -> None: ...

    timers, held = Timers(), Held()
    gone = weakref.ref(held)
    gc.disable()
    try:
        timer = timers.add(5, held, ())
        del held
        if ends == "called":
            timers.take(time.monotonic() + 10)
        else:
            timer.cancel()
        del timer
        assert gone() is None
    finally:
        gc.enable()


def test_a_thousand_timers_that_are_due_together_hold_nobody_up(node: Running) -> None:
    """Sessions of a flood of members end together: requests were not looked at before all had ended."""
    fired = 0
    before: list[int] = []

    def fire() -> None:
        nonlocal fired
        fired += 1
        time.sleep(0.001)

    echo: Any = node.runtime.dispatcher
    on_frame = echo.on_frame

    def noted(*args: Any, **more: Any) -> Any:
        before.append(fired)
        return on_frame(*args, **more)

    echo.on_frame = noted
    with node.connect() as sock:

        def begin() -> None:
            for _ in range(1_000):
                node.loop.call_later(0, fire)
            sock.sendall(frame(b"e-in between"))

        node.on_loop(begin)
        assert read_frame(sock) == b"e-in between"
        assert before[0] < 500
        while fired < 1_000:
            node.on_loop(lambda: None)
