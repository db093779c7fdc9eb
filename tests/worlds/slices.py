"""Work in slices, of which a test does one at a time. `tests/worlds/effects.py` carries out all else."""

from collections.abc import Callable
from typing import Any, Self

from firnline.base.effects import Effect, Effects, SetTimer


class SliceRunner:
    """Keeps in `due` the slices, which are timers that are due at once, and in `found` all other effects.

    now_ms  the time that slices are told; a subclass may have one that moves
    """

    now_ms = 0

    def __init__(self) -> None:
        self.due: list[SetTimer] = []
        self.found: list[Any] = []  # Effects; a test knows of which class each is

    def is_slice(self, effect: SetTimer) -> bool:
        """Whether that timer is a slice, and nothing that happens later. Override it for a narrower one."""
        return effect.at_ms <= self.now_ms

    def take(self, effects: Effects) -> Self:
        """Go on with what a step asks for."""
        for effect in effects:
            self._list_for(effect).append(effect)
        return self

    def _list_for(self, effect: Effect) -> list[Any]:
        is_slice = isinstance(effect, SetTimer) and self.is_slice(effect)
        return self.due if is_slice else self.found

    def call(self, then: Callable[..., Effects], *arguments: Any) -> Effects:
        """One step. Override it to look at each."""
        return then(*arguments)

    def one_more(self) -> bool:
        """Do the slice that was asked for first; False when none is left."""
        if not self.due:
            return False
        self.take(self.call(self.due.pop(0).then, self.now_ms))
        return True

    def until(self, is_so: Callable[[], bool] = lambda: False) -> Self:
        """Do slices until `is_so()`, or all that are left."""
        while not is_so() and self.one_more():
            pass
        return self

    def finish(self) -> int:
        """Do all that are left; return how many those were."""
        count = 0
        while self.one_more():
            count += 1
        return count


def sliced(effects: Effects, now_ms: int = 0) -> list[Any]:
    """Do all slices that follow; return what else there was to do."""
    runner = SliceRunner()
    runner.now_ms = now_ms
    return runner.take(effects).until().found
