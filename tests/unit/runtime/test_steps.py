"""What holds the loop up is counted under a name that says what it was."""

import gc
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from firnline.base.effects import SetTimer
from firnline.runtime import steps
from firnline.runtime.loop import Runtime
from firnline.runtime.poll import PollLoop
from firnline.runtime.steps import SLOW_S, SlowSteps, name_of

# Far above what a busy machine does to a step of nothing.
LONG_S = 0.05


class Sleeper:
    """Does nothing for long."""

    def nap(self, *_: Any) -> list[Any]:
        time.sleep(LONG_S)
        return []

    def make(self) -> Any:
        return lambda *_: self.nap()


class Named(Sleeper):
    def step_name(self) -> str:
        return "a name of its own"


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    loop = PollLoop()
    node: Any = None
    made = Runtime(node, loop, threads={"disk": 1})
    yield made
    made.close()
    loop.close()


def run(runtime: Runtime, for_s: float) -> dict[str, float]:
    runtime.loop.call_later(for_s, runtime.loop.stop)
    runtime.loop.run()
    return {row.name: row.longest_s for row in runtime.loop.slow_steps.rows()}


def test_a_timer_that_takes_long_is_counted_under_what_it_does(runtime: Runtime) -> None:
    timer = SetTimer(key=("any", "key 17"), at_ms=runtime.now_ms(), then=Sleeper().nap)
    runtime.execute([timer])
    found = run(runtime, 0.001)
    assert found["Sleeper.nap"] >= LONG_S
    assert "Runtime._fire" not in found  # counted once, by the innermost name
    assert runtime.loop.slow_steps.turns >= 1
    assert runtime.loop.slow_steps.longest_turn_s >= LONG_S


def test_what_follows_from_the_work_of_a_thread_is_counted(runtime: Runtime) -> None:
    runtime._doorbell.ring(Sleeper().nap, None)
    assert run(runtime, 0.001)["Sleeper.nap"] >= LONG_S


def test_others_have_their_turn_between_the_results_of_threads(runtime: Runtime) -> None:
    """Hundreds of logs are synced at about the same time."""
    done: list[str] = []

    def synced(result: object, now_ms: int) -> list[Any]:
        time.sleep(0.003)
        done.append("log")
        if done.count("log") == 5:
            runtime.loop.stop()
        return []

    for _ in range(5):
        runtime._doorbell.ring(synced, None)

    def heartbeat() -> None:
        done.append("heartbeat")
        if done.count("log") < 5:
            runtime.loop.call_soon(heartbeat)

    runtime.loop.call_soon(heartbeat)
    run(runtime, 20.0)
    first, last = done.index("log"), len(done) - done[::-1].index("log")
    assert "heartbeat" in done[first:last]
    assert done.count("log") == 5


def test_python_in_a_thread_keeps_the_loop_waiting_for_a_part_of_a_step() -> None:
    """A new leader writes the catalog of 100,000 segments in a thread, for seconds."""
    before = sys.getswitchinterval()
    loop = PollLoop()
    node: Any = None
    try:
        sys.setswitchinterval(0.005)  # as CPython begins
        made = Runtime(node, loop, threads={"copy": 1})
        assert sys.getswitchinterval() <= SLOW_S / 10
        made.close()
    finally:
        sys.setswitchinterval(before)
        loop.close()


def test_a_call_of_the_loop_is_counted(runtime: Runtime) -> None:
    runtime.loop.call_soon(Named().nap)
    assert run(runtime, 0.001)["a name of its own"] >= LONG_S


def test_a_step_that_waited_for_the_cpu_is_distinguished_from_one_that_worked(
    runtime: Runtime,
) -> None:
    def work(*_: Any) -> list[Any]:
        until = time.thread_time() + LONG_S
        while time.thread_time() < until:
            pass
        return []

    for call in (Sleeper().nap, work):
        runtime.execute([SetTimer(key=("any", call.__qualname__), at_ms=0, then=call)])
    run(runtime, 0.001)
    rows = {row.name.rpartition(".")[2]: row for row in runtime.loop.slow_steps.rows()}
    assert rows["nap"].times == 1
    assert rows["nap"].busy_times == 0
    assert rows["nap"].longest_cpu_s < LONG_S / 2
    assert rows["work"].busy_times == 1
    assert rows["work"].longest_cpu_s >= LONG_S - 0.001


def test_cpu_time_is_that_of_the_step_and_not_of_those_in_it_or_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, cpu = [100.0], [0.0]
    monkeypatch.setattr(steps, "_monotonic", lambda: now[0])
    monkeypatch.setattr(steps, "_thread_time", lambda: cpu[0])
    slow = SlowSteps()

    def passes(seconds: float, cpu_s: float) -> None:
        now[0] += seconds
        cpu[0] += cpu_s

    passes(1.0, 1.0)
    slow.begins(now[0])  # the outer one
    passes(0.010, 0.010)
    slow.begins(now[0])  # the inner one
    passes(0.100, 0.002)
    slow.ended("inner", 0.100)
    passes(0.001, 0.001)
    slow.ended("outer", 0.111)
    rows = {row.name: row for row in slow.rows()}
    assert rows["inner"].longest_cpu_s == pytest.approx(0.002)
    assert rows["outer"].longest_s == pytest.approx(0.011)
    assert rows["outer"].longest_cpu_s == pytest.approx(0.011)
    assert (rows["inner"].busy_times, rows["outer"].busy_times) == (0, 1)


def test_the_cpu_clock_is_not_read_for_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[float] = []

    def thread_time() -> float:
        reads.append(0.0)
        return 0.0

    monkeypatch.setattr(steps, "_thread_time", thread_time)
    slow = SlowSteps()
    for number in range(1000):
        slow.begins(100.0 + number * 1e-6)
    assert len(reads) == 1


def test_a_step_whose_cpu_time_is_not_known_counts_as_busy() -> None:
    slow = SlowSteps()
    slow.ended("any", 1.0)
    assert slow.rows() == [("any", 1, 1.0, 1, 1.0)]


def test_names_are_those_of_code_and_few(monkeypatch: pytest.MonkeyPatch) -> None:
    assert name_of(partial(partial(Sleeper().nap, 1), 2)) == "Sleeper.nap"
    assert name_of(Sleeper().make()) == "Sleeper.make"
    monkeypatch.setattr(steps, "_NAMES_MAX", 3)
    slow = SlowSteps()
    for number in range(10):
        slow._add(f"step {number}", 1.0, 0.0)
    assert [row.name for row in slow.rows()] == ["other", "step 0", "step 1", "step 2"]
    assert slow.rows()[0].times == 7


def test_a_step_is_counted_without_the_slow_steps_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(steps, "_monotonic", lambda: now[0])
    slow = SlowSteps()
    slow.ended("before", 5.0)
    now[0] += 0.010
    slow.ended("inner", 0.010)
    now[0] += 0.001
    slow.ended("outer", 0.011)
    now[0] += 0.050
    slow.ended("inner", 0.050)
    now[0] += 0.020
    slow.ended("long outer", 0.070)
    assert {(row.name, row.times, round(row.longest_s, 3)) for row in slow.rows()} == {
        ("before", 1, 5.0),
        ("inner", 2, 0.05),
        ("long outer", 1, 0.02),
    }


def test_the_collector_may_look_while_a_slow_step_is_counted() -> None:
    """It calls us wherever something is allocated: this stopped a node. Method: a comparison that does."""
    slow = SlowSteps()

    class End(float):
        def __gt__(self, other: object) -> bool:
            slow._mark_due = 0.0
            slow._on_garbage("start", {"generation": 1})
            slow._collecting_since -= 1.0
            slow._on_garbage("stop", {"generation": 1})
            return True

    for _ in range(steps._RECENT_MAX + steps._MARKS_MAX * 3):
        slow._mark_due = 0.0
        slow.begins(time.monotonic())
        slow._add("before", 1.0, 0.0)
    slow._recent[:] = [(End(end), 0.0, 0.0) for end, *_ in slow._recent]
    slow.begins(time.monotonic() - 2.0)
    slow.ended("any", 1.0)
    rows = {row.name: row.times for row in slow.rows()}
    assert rows["any"] == 1
    assert rows["garbage collection 1"] > 1
    assert len(slow._recent) == steps._RECENT_MAX


def test_a_look_of_the_collector_that_takes_long_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter(float(n) for n in range(1000))
    monkeypatch.setattr(steps, "_monotonic", lambda: next(ticks))
    slow = SlowSteps()
    slow.watch_garbage()
    try:
        gc.collect(1)
    finally:
        slow.close()
    assert "garbage collection 1" in {row.name for row in slow.rows()}
    assert not [call for call in gc.callbacks if getattr(call, "__self__", None) is slow]
