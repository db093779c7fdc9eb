"""Coroutines: a sequence of operations that answer by a callback, written as one generator. PURE.

An operation is a function `begin(then, now_ms)` that returns effects and calls `then(result, now_ms)` exactly
once, now or later. A coroutine waits for one with `result = yield from run.call(begin)`. So the steps of a
long task stand below one another, a loop is a loop, and the end of the function is the end of the task.

`background.SlicedTask` is for long calculations; a coroutine is for tasks that mostly wait: for threads,
timers or the metadata log. While it waits, only the operation has a reference to it.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeVar

from firnline.base.background import Background, SlicedTask
from firnline.base.effects import Effects

Result = TypeVar("Result")
Begin = Callable[[Callable[[Result, int], Effects], int], Effects]
# A coroutine for the type checker: it yields operations, is sent their results, and returns its own.
# Any: each operation of a coroutine has a result of another type.
Steps = Generator[Begin[Any], Any, Result]


class Run:
    """One run of a coroutine.

    now_ms  the time of the last result; before the first one, that of the start
    """

    __slots__ = ("_answer", "_begun", "_coroutine", "_done", "_effects", "_is_advancing", "now_ms")

    # Any: a run does not look at the results that it passes on.
    def __init__(self, now_ms: int, done: Callable[[Any, int], Effects]) -> None:
        self.now_ms = now_ms
        self._done = done
        self._coroutine: Steps[Any] | None = None
        self._effects: Effects = []
        # Operations that have begun; only the last one may still answer.
        self._begun = 0
        self._is_advancing = False
        # The result of the last operation, if the coroutine does not have it yet.
        self._answer: tuple[Any] | None = None

    def emit(self, effects: Effects) -> None:
        """Let the runtime carry out effects, before those of the next operation."""
        self._effects += effects

    def call(self, begin: Begin[Result]) -> Generator[Begin[Result], Result, Result]:
        """Begin an operation, and wait for its result."""
        return (yield begin)

    # Any: as above.
    def advance(self, coroutine: Steps[Any]) -> Effects:
        """Run a coroutine, which has to be that of this run, up to its first wait."""
        self._coroutine = coroutine
        return self._resume(self._begun, None, self.now_ms)

    def _resume(self, number: int, result: Any, now_ms: int) -> Effects:
        """Go on with the result of an operation, up to the next wait, or to the end.

        An operation that answers before it returns does not nest: thousands in a row need no deep stack.
        """
        assert number == self._begun, "an operation answers only once"
        assert self._answer is None, "an operation answers only once"
        self.now_ms = now_ms
        self._answer = (result,)
        return [] if self._is_advancing else self._advance()

    def _advance(self) -> Effects:
        assert self._coroutine is not None
        self._is_advancing = True
        try:
            while self._answer is not None:
                (result,), self._answer = self._answer, None
                begin = self._coroutine.send(result)
                self._begun += 1
                self._effects += begin(partial(self._resume, self._begun), self.now_ms)
        except StopIteration as end:
            self._begun += 1
            return self._take() + self._done(end.value, self.now_ms)
        finally:
            self._is_advancing = False
        return self._take()

    def _take(self) -> Effects:
        effects, self._effects = self._effects, []
        return effects


def run(
    coroutine: Callable[[Run], Steps[Result]],
    now_ms: int,
    done: Callable[[Result, int], Effects],
) -> Effects:
    """Run a coroutine up to its first wait; at its end call `done(result, now_ms)` once."""
    begun = Run(now_ms, done)
    return begun.advance(coroutine(begun))


def together(operations: Sequence[Begin[Result]]) -> Begin[list[Result]]:
    """Make one operation of several: it begins all of them, and its result has theirs, in the same order."""

    def begin(then: Callable[[list[Result], int], Effects], now_ms: int) -> Effects:
        results: dict[int, Result] = {}

        def came(number: int, result: Result, at_ms: int) -> Effects:
            assert number not in results, "an operation answers only once"
            results[number] = result
            if len(results) < len(operations):
                return []
            return then([results[each] for each in range(len(operations))], at_ms)

        if not operations:
            return then([], now_ms)
        effects: Effects = []
        for number, operation in enumerate(operations):
            effects += operation(partial(came, number), now_ms)
        return effects

    return begin


class Slots:
    """How many runs may be in one part of a coroutine. The others wait before it, first come, first served.

    count         how many may be in it; `free`: how many more may be in it now
    sliced_tasks  lets each run that has waited go on in a turn of its own: many may end at once
    """

    def __init__(self, count: int, sliced_tasks: Background) -> None:
        assert count > 0
        self.free = count
        self._sliced_tasks = sliced_tasks
        self._waiting: deque[Callable[[None, int], Effects]] = deque()

    def acquire(self, then: Callable[[None, int], Effects], now_ms: int) -> Effects:
        """Call `then` as soon as a slot is free. Who was called has to release it, once."""
        if self.free:
            self.free -= 1
            return then(None, now_ms)
        self._waiting.append(then)
        return []

    def release(self, now_ms: int) -> Effects:
        """Give a slot back: whoever has waited longest has it now."""
        if not self._waiting:
            self.free += 1
            return []
        then = self._waiting.popleft()

        def rest() -> SlicedTask:
            at_ms = yield []
            return then(None, at_ms)

        return self._sliced_tasks.begin(rest(), now_ms)
