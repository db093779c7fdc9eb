"""Reduce a failing run to as few faults as possible: delta debugging over fault numbers, same seed. SIM."""

from collections.abc import Callable, Sequence
from time import perf_counter

from firnline.sim.run import Outcome, run

Run = Callable[..., Outcome]


class Shrunk:
    """What is left: the faults, the seconds, and how many runs it took."""

    def __init__(self, numbers: list[int], outcome: Outcome) -> None:
        self.numbers = numbers
        self.outcome = outcome
        self.runs = 0


def shrink(outcome: Outcome, *, seconds_max: float, play: Run = run) -> Shrunk:
    """Return a smaller run that violates the same invariant first; stop after `seconds_max` of real time."""
    first = outcome.first
    assert first is not None, "only a run that failed can be shrunk"
    until = perf_counter() + seconds_max
    numbers = [each.number for each in outcome.faults]
    best = Shrunk(numbers, outcome)
    seconds = outcome.options.chaos_s

    def fails(some: Sequence[int], chaos_s: int) -> bool:
        if perf_counter() > until:
            return False
        best.runs += 1
        found = play(
            outcome.seed,
            seconds=chaos_s,
            mask=frozenset(some),
            mode=outcome.mode,
            options=outcome.options,
            form=outcome.form,
        )
        if found.first is None or found.first.invariant != first.invariant:
            return False
        best.numbers, best.outcome = list(some), found
        return True

    if fails([], seconds):
        numbers = []
    numbers = _minimise(numbers, lambda some: fails(some, seconds))
    while seconds > 1 and fails(numbers, shorter := seconds // 2):
        seconds = shorter
    return best


def _minimise(numbers: list[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """ddmin: leave out one n-th after the other, in ever smaller parts."""
    parts = 2
    while len(numbers) > 1:
        size = max(1, len(numbers) // parts)
        for start in range(0, len(numbers), size):
            rest = numbers[:start] + numbers[start + size :]
            if rest and fails(rest):
                numbers, parts = rest, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(numbers), 2 * parts)
    return numbers
