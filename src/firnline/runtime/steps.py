"""What held the loop up for longer than others should wait, by name. WORLD.

A step is what is done between two looks at the sockets, or one of several things done there: a request, an
answer of another node, a timer, what follows from the work of a thread. One clock is read after each, and a
name is made only for those that took too long. Names are those of our code and of APIs, so there are few.

Another process may have had the CPU, or another thread the interpreter, while a step was under way. So a
slow step is told with its CPU time, too, at most: the thread's clock, which costs a system call, is read
where a step begins, but not within a millisecond of the last time.
"""

import gc
import math
import time
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

# What a step may take (reliability: heartbeats and votes wait for no more).
SLOW_S = 0.005
MARK_EVERY_S = 0.001
_NAMES_MAX = 200
_RECENT_MAX = 16
_MARKS_MAX = 64
_OTHER = "other"
_monotonic = time.monotonic
_thread_time = time.thread_time


class SlowStep(NamedTuple):
    """All steps of one name that were slow.

    busy_times     how many of them took SLOW_S of CPU, too; the others waited for it
    longest_cpu_s  the most CPU time that one of them took, or a little more
    """

    name: str
    times: int
    longest_s: float
    busy_times: int
    longest_cpu_s: float


class SlowSteps:
    """Counts steps of more than SLOW_S seconds.

    turns           turns of the loop, with all steps in them, that took as long
    longest_turn_s  the longest of them
    """

    def __init__(self) -> None:
        self.turns = 0
        self.longest_turn_s = 0.0
        self._steps: dict[str, SlowStep] = {}
        # Lists, and never shortened in place: the collector of cycles may call us while one is gone over.
        # (end, seconds, of CPU) of the last ones: a step is counted without those that were in it.
        self._recent: list[tuple[float, float, float]] = []
        self._collecting_since = 0.0
        self._mark_due = 0.0
        # The last marks, in a ring: time, and CPU time. Numbers in an array keep no page of memory,
        # as objects would that were made while a large request was under way.
        self._marks_at = array("d", [math.inf]) * _MARKS_MAX
        self._marks_cpu = array("d", [0.0]) * _MARKS_MAX
        self._mark = 0  # the newest

    def rows(self) -> list[SlowStep]:
        """All that were slow, by name."""
        return sorted(self._steps.values())

    def ended(self, call: Any, took_s: float) -> None:
        """Note that `call` took longer than SLOW_S and has just ended."""
        began = _monotonic() - took_s
        own_s = took_s - sum(inner_s for end, inner_s, _ in self._recent if end > began)
        if own_s > SLOW_S:
            self._add(name_of(call), own_s, began)

    def begins(self, now: float) -> None:
        """Note that a step begins now, by the loop's clock. To be called by the thread that does it."""
        if now >= self._mark_due:
            self._mark_due = now + MARK_EVERY_S
            # The collector may call in the middle of this: a mark counts from where its time is there.
            mark = self._mark = (self._mark + 1) % _MARKS_MAX
            self._marks_at[mark] = math.inf
            self._marks_cpu[mark] = _thread_time()
            self._marks_at[mark] = now

    def turn_ended(self, took_s: float) -> None:
        """Note a turn that took longer than SLOW_S."""
        self.turns += 1
        self.longest_turn_s = max(self.longest_turn_s, took_s)

    def watch_garbage(self) -> None:
        """Count looks of the collector of cycles, too, which may come in any step."""
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
        """CPU time of this thread since then or a little earlier, but for slow steps; inf: not known."""
        for back in range(_MARKS_MAX):
            mark = (self._mark - back) % _MARKS_MAX
            if self._marks_at[mark] <= began:
                inner_s = sum(inner_s for end, _, inner_s in self._recent if end > began)
                return _thread_time() - self._marks_cpu[mark] - inner_s
        return math.inf


def name_of(call: Callable[..., Any] | str) -> str:
    """Return what a step is called: what its owner says, or the name of the function."""
    if isinstance(call, str):
        return call
    while isinstance(call, partial):
        call = call.func
    owner = getattr(call, "__self__", None)
    told = getattr(owner, "step_name", None)
    if told is not None:
        return str(told())
    name = str(getattr(call, "__qualname__", type(call).__name__))
    # A function within a function: what it is in says more than <lambda>.
    return name.replace(".<locals>", "").replace(".<lambda>", "")
