"""Calls of a node's store that should have an answer, and have none. PURE.

The first one is a line in the log, and so is the end: not those that come meanwhile, and not their retries. A
call that was given up, or has failed, counts until one of the same name has an answer, until nobody has
repeated it for FORGOTTEN_MS, or until the store turns out to have been down as a whole and to answer again.
"""

from firnline.base.effects import Effects
from firnline.base.log_lines.tier import STORE_HAS_ANSWERED, STORE_SILENT
from firnline.base.units import MINUTE_MS, SECOND_MS

# A call that was given up is repeated within this time, or nobody wants its result any more.
FORGOTTEN_MS = 2 * MINUTE_MS


class Unanswered:
    """Calls of one name.

    since_ms  when the first one began
    running   how many have no answer yet
    ended_ms  when the last one was given up, or has failed
    """

    __slots__ = ("ended_ms", "name", "running", "since_ms")

    def __init__(self, name: str, since_ms: int) -> None:
        self.name = name
        self.since_ms = self.ended_ms = since_ms
        self.running = 0

    def text(self, now_ms: int) -> str:
        """Say it to the operator."""
        running = f"{self.name} has been running for {self.seconds(now_ms)} s"
        return f"the store of the tier does not answer: {running}"

    def seconds(self, now_ms: int) -> int:
        """Return for how many seconds the first one has had no answer."""
        return (now_ms - self.since_ms) // SECOND_MS


class UnansweredCalls:
    """The calls of a node that have no answer, by name; the longest one first."""

    def __init__(self) -> None:
        self._calls: dict[str, Unanswered] = {}

    def first(self, now_ms: int) -> Unanswered | None:
        """Return the call that has had no answer for the longest time."""
        self._forget(now_ms)
        return next(iter(self._calls.values()), None)

    def overdue(self, name: str, began_ms: int, now_ms: int) -> Effects:
        """A call that began then should have had its answer by now."""
        self._forget(now_ms)
        is_first = not self._calls
        call = self._calls.setdefault(name, Unanswered(name, began_ms))
        call.running += 1
        return [STORE_SILENT(call=name, running_s=call.seconds(now_ms))] if is_first else []

    def ended(self, name: str, now_ms: int, *, was_overdue: bool, is_answered: bool) -> Effects:
        """A call has an answer; or it has failed, or was given up."""
        call = self._calls.get(name)
        if call is None:
            return []
        if was_overdue:
            call.running -= 1
        call.ended_ms = now_ms
        if not is_answered or call.running:
            return []
        del self._calls[name]
        if self._calls:
            return []
        return [STORE_HAS_ANSWERED(call=name, after_s=call.seconds(now_ms))]

    def store_answers(self) -> None:
        """The store was down, and answers again: what was given up is repeated, and counts anew."""
        self._calls = {name: call for name, call in self._calls.items() if call.running}

    def _forget(self, now_ms: int) -> None:
        for name, call in list(self._calls.items()):
            if not call.running and now_ms - call.ended_ms >= FORGOTTEN_MS:
                del self._calls[name]
