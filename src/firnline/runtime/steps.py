"""Counts the steps that blocked the event loop for too long, by name. WORLD.

A step is one call of the event loop: a request, a response of another node, a timer, or the continuation of a
thread's work. A clock is read after each, and a name is made only for slow ones. Names are those of functions
and APIs, so there are few.

During a step another process may have had the CPU, or another thread the interpreter. So an upper bound of
the step's CPU time is counted, too. The clock of the thread, whose reading is a system call, is read at the
start of a step, but at most once a millisecond.
"""

import gc
import math
import time
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

# The limit for a step: heartbeats and votes must not wait longer (reliability).
SLOW_S = 0.005
MARK_EVERY_S = 0.001
_NAMES_MAX = 200
_RECENT_MAX = 16
_MARKS_MAX = 64
_OTHER = "other"
_monotonic = time.monotonic
_thread_time = time.thread_time


class SlowStep(NamedTuple):
    """The slow steps of one name.

    busy_times     how many of them also took SLOW_S of CPU time; the others waited for the CPU
    longest_cpu_s  an upper bound of the CPU time of the longest
    """

    name: str
    times: int
    longest_s: float
    busy_times: int
    longest_cpu_s: float


class SlowSteps:
    """Counts steps of more than SLOW_S seconds.

    turns           the number of turns of the loop that took longer, all steps together
    longest_turn_s  the longest of them
    """

    def __init__(self) -> None:
        self.turns = 0
        self.longest_turn_s = 0.0
        self._steps: dict[str, SlowStep] = {}
        # Lists that are never shortened in place: the garbage collector may call this during an iteration.
        # (end, seconds, CPU seconds) of the latest: a step is counted without the steps inside it.
        self._recent: list[tuple[float, float, float]] = []
        self._collecting_since = 0.0
        self._mark_due = 0.0
        # The latest marks, in a ring: time, and CPU time. Arrays, because objects that are made during a
        # large request would keep its pages of memory.
        self._marks_at = array("d", [math.inf]) * _MARKS_MAX
        self._marks_cpu = array("d", [0.0]) * _MARKS_MAX
        self._mark = 0  # the newest

    def rows(self) -> list[SlowStep]:
        """Return the slow steps, by name."""
        return sorted(self._steps.values())

    def ended(self, call: Any, took_s: float) -> None:
        """Note that `call` took longer than SLOW_S and has just ended."""
        began = _monotonic() - took_s
        own_s = took_s - sum(inner_s for end, inner_s, _ in self._recent if end > began)
        if own_s > SLOW_S:
            self._add(name_of(call), own_s, began)

    def begins(self, now: float) -> None:
        """Note that a step begins at `now`, by the loop's clock. Call it on the thread of the loop."""
        if now >= self._mark_due:
            self._mark_due = now + MARK_EVERY_S
            # The garbage collector may call this in between: a mark counts once its time is set.
            mark = self._mark = (self._mark + 1) % _MARKS_MAX
            self._marks_at[mark] = math.inf
            self._marks_cpu[mark] = _thread_time()
            self._marks_at[mark] = now

    def turn_ended(self, took_s: float) -> None:
        """Note a turn that took longer than SLOW_S."""
        self.turns += 1
        self.longest_turn_s = max(self.longest_turn_s, took_s)

    def watch_garbage(self) -> None:
        """Count garbage collections, too, which may happen in any step."""
        gc.callbacks.append(self._on_garbage)

    def close(self) -> None:
        if self._on_garbage in gc.callbacks:
            gc.callbacks.remove(self._on_garbage)

    def _on_garbage(self, phase: str, facts: dict[str, int]) -> None:
        now = _monotonic()
        began = self._collecting_since
        if phase == "start":
            self._collecting_since = now
            self.begins(now)
        elif now - began > SLOW_S:
            self._add(f"garbage collection {facts['generation']}", now - began, began)

    def _add(self, name: str, took_s: float, began: float) -> None:
        cpu_s = min(took_s, self._cpu_since(began))
        self._recent = [*self._recent[1 - _RECENT_MAX :], (_monotonic(), took_s, cpu_s)]
        if name not in self._steps and len(self._steps) >= _NAMES_MAX:
            name = _OTHER
        old = self._steps.get(name, SlowStep(name, 0, 0.0, 0, 0.0))
        self._steps[name] = SlowStep(
            name,
            old.times + 1,
            max(old.longest_s, took_s),
            old.busy_times + (cpu_s > SLOW_S),
            max(old.longest_cpu_s, cpu_s),
        )

    def _cpu_since(self, began: float) -> float:
        """CPU time of this thread since `began` or a little earlier, without slow steps; inf: unknown."""
        for back in range(_MARKS_MAX):
            mark = (self._mark - back) % _MARKS_MAX
            if self._marks_at[mark] <= began:
                inner_s = sum(inner_s for end, _, inner_s in self._recent if end > began)
                return _thread_time() - self._marks_cpu[mark] - inner_s
        return math.inf


def name_of(call: Callable[..., Any] | str) -> str:
    """Return the name of a step: that of its owner, or of the function."""
    if isinstance(call, str):
        return call
    while isinstance(call, partial):
        call = call.func
    owner = getattr(call, "__self__", None)
    step_name = getattr(owner, "step_name", None)
    if step_name is not None:
        return str(step_name())
    name = str(getattr(call, "__qualname__", type(call).__name__))
    # For a function inside a function, the outer name says more than <lambda>.
    return name.replace(".<locals>", "").replace(".<lambda>", "")
