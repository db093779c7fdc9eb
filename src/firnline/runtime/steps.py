"""What held the loop up for longer than others should wait, by name. WORLD.

A step is what is done between two looks at the sockets, or one of several things done there: a request, an
answer of another node, a timer, what follows from the work of a thread. One clock is read after each, and a
name is made only for those that took too long. Names are those of our code and of APIs, so there are few.
"""

import gc
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

# What a step may take (reliability: heartbeats and votes wait for no more).
SLOW_S = 0.005
_NAMES_MAX = 200
_RECENT_MAX = 16
_OTHER = "other"
_monotonic = time.monotonic


class SlowStep(NamedTuple):
    """All steps of one name that were slow."""

    name: str
    times: int
    longest_s: float


class SlowSteps:
    """Counts steps of more than SLOW_S seconds.

    turns           turns of the loop, with all steps in them, that took as long
    longest_turn_s  the longest of them
    """

    def __init__(self) -> None:
        self.turns = 0
        self.longest_turn_s = 0.0
        self._steps: dict[str, SlowStep] = {}
        # (end, seconds) of the last ones: a step is counted without those that were in it.
        self._recent: deque[tuple[float, float]] = deque(maxlen=_RECENT_MAX)
        self._collecting_since = 0.0

    def rows(self) -> list[SlowStep]:
        """All that were slow, by name."""
        return sorted(self._steps.values())

    def ended(self, call: Any, took_s: float) -> None:
        """Note that `call` took longer than SLOW_S and has just ended."""
        began = _monotonic() - took_s
        own_s = took_s - sum(inner_s for end, inner_s in self._recent if end > began)
        if own_s > SLOW_S:
            self._add(name_of(call), own_s)

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
        if phase == "start":
            self._collecting_since = now
        elif now - self._collecting_since > SLOW_S:
            self._add(f"garbage collection {facts['generation']}", now - self._collecting_since)

    def _add(self, name: str, took_s: float) -> None:
        self._recent.append((_monotonic(), took_s))
        if name not in self._steps and len(self._steps) >= _NAMES_MAX:
            name = _OTHER
        _, times, longest_s = self._steps.get(name, SlowStep(name, 0, 0.0))
        self._steps[name] = SlowStep(name, times + 1, max(longest_s, took_s))


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
