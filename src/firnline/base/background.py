"""What takes longer than others can wait, a slice at a time. PURE.

Loading a partition of groups takes seconds where there are a million commits, and an answer about all
partitions of a cluster is as long as the cluster is large. Each is a generator: what it yields is carried
out, then whoever else needs the thread has it, and it goes on with the time it is sent. Of each Background
one slice of one work is done in a turn of the loop, whatever waits.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from firnline.base.effects import Effects, Pool, SetTimer, Submit
from firnline.base.units import MIB

_ITEMS_PER_SLICE = 200
_BYTES_PER_SLICE = MIB
# Where works take turns: of so many slices one is of those that are not urgent, whatever is.
_USUAL_EVERY = 4
Made = TypeVar("Made")


class Pause:
    """What a request that is done in slices yields in place of effects, to go on when something is done.

    waits_long  it may be long until then: no other answer is to wait for this one
    """

    __slots__ = ()
    waits_long = False

    def begin(self, then: Callable[[int], Effects], owner: str = "") -> Effects:
        """Have it done for `owner`, whoever asked; then `then(now_ms)`, once."""
        raise AssertionError("a kind of pause does")


class Beside(Pause, Generic[Made]):
    """A pause while threads do something. `result` is then what `work` returned or raised, or the KafkaError
    of a full pool; None before."""

    __slots__ = ("name", "pool", "result", "work")

    def __init__(self, name: str, pool: Pool, work: Callable[[], Made]) -> None:
        self.name = name
        self.pool = pool
        self.work = work
        self.result: Made | Exception | None = None

    def begin(self, then: Callable[[int], Effects], owner: str = "") -> Effects:
        def done(result: Made | Exception, now_ms: int) -> Effects:
            self.result = result
            return then(now_ms)

        return [Submit(name=self.name, pool=self.pool, work=self.work, then=done, owner=owner)]


class HungUp(BaseException):
    """Is raised in a request that is done in slices when nobody waits for its answer any more.

    It may return effects then; else it ends.
    """


# Each yield gets the time; what it returns is carried out, too, if it is effects. The first yield gives
# nothing, unless the first slice is done by whoever has the rest done (`begin`).
Work = Generator[Effects, int, Effects | None]
Found = TypeVar("Found")


def whole(steps: Generator[object, None, Found]) -> Found:
    """Take all steps at once; return what they lead to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found


class Pace:
    """Whether a work has gone on for some milliseconds, as far as what it looked at tells."""

    __slots__ = ("_bytes", "_items")

    def __init__(self) -> None:
        self._items = self._bytes = 0

    def is_over(self, size_bytes: int) -> bool:
        """Count one batch, file or the like, of which that many bytes were read; True: yield now."""
        self._items += 1
        self._bytes += size_bytes
        if self._items < _ITEMS_PER_SLICE and self._bytes < _BYTES_PER_SLICE:
            return False
        self._items = self._bytes = 0
        return True


class Background:
    """Works of one part of a node, urgent ones before all others.

    A work that raises ends with that, and so does the node (`runtime.loop`), unless its part stops it: what
    fails for who asked alone, or for one partition, it answers or notes itself.

    owner        who has them done: no two of a node have the same name
    takes_turns  each has a slice, then the next one, so that a short one does not wait for a long one's
                 end, and nobody for ever for urgent ones. Else one after the other, in the order they came
    """

    __slots__ = (
        "_due_ms",
        "_latest",
        "_takes_turns",
        "_timer",
        "_urgent",
        "_urgent_in_a_row",
        "_usual",
    )

    def __init__(self, owner: str, *, takes_turns: bool = False) -> None:
        self._timer = (owner, "background")
        self._takes_turns = takes_turns
        self._urgent: deque[Work] = deque()
        self._usual: deque[Work] = deque()
        self._urgent_in_a_row = 0
        self._due_ms: int | None = None
        self._latest: Work | None = None

    def step_name(self) -> str:
        """What a slow step of it is called in the metrics: the work that was under way."""
        return str(getattr(self._latest, "__qualname__", "no work"))

    def begin(self, work: Work, now_ms: int, *, is_urgent: bool = False) -> Effects:
        """Have `work` done from the next turn on."""
        next(work)
        (self._urgent if is_urgent else self._usual).append(work)
        return self._go_on(now_ms)

    def cancel(self, work: Work) -> None:
        """Do no more of it. One that is done already is none."""
        work.close()
        for queue in (self._urgent, self._usual):
            if work in queue:
                queue.remove(work)

    def _go_on(self, now_ms: int) -> Effects:
        """Set the timer, unless that was just done: one that was lost with a failed request is set anew."""
        if not (self._urgent or self._usual) or self._due_ms == now_ms:
            return []
        self._due_ms = now_ms
        return [SetTimer(key=self._timer, at_ms=now_ms, then=self._next)]

    def _next(self, now_ms: int) -> Effects:
        self._due_ms = None
        queue = self._choose()
        if not queue:
            return []
        self._latest = queue[0]
        try:
            effects = queue[0].send(now_ms)
        except StopIteration as done:
            queue.popleft()
            effects = done.value or []
        else:
            if self._takes_turns:
                queue.rotate(-1)
        return effects + self._go_on(now_ms)

    def _choose(self) -> deque[Work]:
        self._urgent_in_a_row += 1
        if self._takes_turns and self._usual and self._urgent_in_a_row >= _USUAL_EVERY:
            self._urgent_in_a_row = 0
            return self._usual
        return self._urgent or self._usual
