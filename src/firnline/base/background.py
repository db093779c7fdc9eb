"""Long tasks on the event loop, done in time slices. PURE.

Some tasks take seconds: loading a million committed offsets, or a response about every partition of a large
cluster. Such a task is a generator. A slice is what runs up to the next `yield`; the runtime carries out the
effects it yields. In each turn of the event loop a Background runs one slice of one task, so other work
never waits longer than that. `send` passes the current time to the next slice.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from firnline.base.effects import Effects, Pool, SetTimer, Submit
from firnline.base.units import MIB

_ITEMS_PER_SLICE = 200
_BYTES_PER_SLICE = MIB
# With round robin: one of so many slices goes to the tasks that are not urgent, even if urgent ones wait.
_USUAL_EVERY = 4
Made = TypeVar("Made")


class Pause:
    """What a sliced request yields in place of effects: it resumes once something else is done.

    waits_long  the wait may be long, so no other response may wait for this one
    """

    __slots__ = ()
    waits_long = False

    def begin(self, then: Callable[[int], Effects], owner: str = "") -> Effects:
        """Start the work on behalf of `owner`; call `then(now_ms)` once when it is done."""
        raise AssertionError("a subclass implements this")


class AwaitThread(Pause, Generic[Made]):
    """A pause until a thread pool has run `work`.

    `result` is None before; then what `work` returned or raised, or the KafkaError of a full pool.
    """

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
    """Raised inside a sliced request when its client has disconnected.

    The request may catch it and return effects; otherwise it ends.
    """


# A task: each `yield` returns the current time, and a return value is a last list of effects. The first yield
# must have no effects: `begin` runs up to it and drops them.
SlicedTask = Generator[Effects, int, Effects | None]
Found = TypeVar("Found")


def run_to_completion(steps: Generator[object, None, Found]) -> Found:
    """Run all steps at once; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found


class SliceBudget:
    """Decides when a time slice ends, by counting items and bytes instead of reading a clock."""

    __slots__ = ("_bytes", "_items")

    def __init__(self) -> None:
        self._items = self._bytes = 0

    def is_over(self, size_bytes: int) -> bool:
        """Count one item of which `size_bytes` bytes were read; True where the task is to yield now."""
        self._items += 1
        self._bytes += size_bytes
        if self._items < _ITEMS_PER_SLICE and self._bytes < _BYTES_PER_SLICE:
            return False
        self._items = self._bytes = 0
        return True


class Background:
    """The sliced tasks of one part of a node; urgent tasks run before the others.

    An exception that leaves a task stops the node (`runtime.loop`). So a task itself handles what concerns
    only one request or one partition.

    owner        the name of the part, unique within a node
    is_round_robin  after a slice the next task runs, so that a short task does not wait for the end of a
                    long one, nor any task for ever for urgent ones. Else tasks run one after the other, in
                    the order they came
    """

    __slots__ = (
        "_due_ms",
        "_is_round_robin",
        "_latest",
        "_timer",
        "_urgent",
        "_urgent_in_a_row",
        "_usual",
    )

    def __init__(self, owner: str, *, is_round_robin: bool = False) -> None:
        self._timer = (owner, "background")
        self._is_round_robin = is_round_robin
        self._urgent: deque[SlicedTask] = deque()
        self._usual: deque[SlicedTask] = deque()
        self._urgent_in_a_row = 0
        self._due_ms: int | None = None
        self._latest: SlicedTask | None = None

    def step_name(self) -> str:
        """The name of a slow step in the metrics: that of the task that ran."""
        return str(getattr(self._latest, "__qualname__", "no work"))

    def begin(self, work: SlicedTask, now_ms: int, *, is_urgent: bool = False) -> Effects:
        """Run `work` up to its first yield; its slices run from the next turn on."""
        next(work)
        (self._urgent if is_urgent else self._usual).append(work)
        return self._go_on(now_ms)

    def cancel(self, work: SlicedTask) -> None:
        """Stop a task. One that has ended already is ignored."""
        work.close()
        for queue in (self._urgent, self._usual):
            if work in queue:
                queue.remove(work)

    def _go_on(self, now_ms: int) -> Effects:
        """Set the timer, unless it was set in this millisecond. A failed request may have lost it."""
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
            if self._is_round_robin:
                queue.rotate(-1)
        return effects + self._go_on(now_ms)

    def _choose(self) -> deque[SlicedTask]:
        self._urgent_in_a_row += 1
        if self._is_round_robin and self._usual and self._urgent_in_a_row >= _USUAL_EVERY:
            self._urgent_in_a_row = 0
            return self._usual
        return self._urgent or self._usual
