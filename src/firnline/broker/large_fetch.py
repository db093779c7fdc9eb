"""A Fetch of many partitions, read and answered so many at a time, with others in between. PURE.

A consumer of a thousand partitions, and a follower of as many, would hold up the node by several milliseconds
with each of their requests. Decision 0018.
"""

from collections.abc import Callable, Generator, Iterator, Sequence

from firnline.base.background import HungUp, Work
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.broker.fetch import (
    PARTITIONS_PER_SLICE,
    Answer,
    FetchAnswer,
    Fetching,
    OneFetch,
)
from firnline.broker.fetch_session import Answered, FetchAsk, FetchContext, Wanted
from firnline.replica.waiters import FetchWaiter, FetchWaiters

# To stop waiting at a partition takes a quarter of a microsecond; more where nobody looked at it of late.
_LEFT_PER_SLICE = 2_000
# The tier is asked for so many at a time, some 50 us each.
_REMOTE_PER_SLICE = 20
# What is known of a partition that was read, and said of it in the answer: its records stay in files.
_ROW_BYTES = 300
# Effects, then the time; at last effects.
Slices = Generator[Effects, int, Effects]
# Does a slice at a time, with others in between, unless who asked has hung up.
Run = Callable[[Slices, int], Effects]
SlicedAnswer = Callable[[FetchAnswer], Slices]
# Does a work a slice at a time, whoever hangs up.
Aside = Callable[[Work, int], Effects]


class LargeFetch(OneFetch):
    """A request, or a session, of many partitions.

    What is answered was there when it was read, under who led then; a follower's place is noted when it is
    read for. Nothing that comes in between is missed: each partition is waited at from its reading on. Where
    most of a follower's partitions rest, the others are read in one step.

    run               has slices of it done
    aside             has done what is left of the request when nobody waits for it
    answer_in_slices  as `answer`, which is used where one step does it
    """

    __slots__ = ("_answer_in_slices", "_aside", "_is_due", "_run")

    def __init__(
        self,
        run: Run,
        aside: Aside,
        answer_in_slices: SlicedAnswer,
        fetching: Fetching,
        ask: FetchAsk,
        context: FetchContext,
        answer: Answer,
    ) -> None:
        super().__init__(fetching, ask, context, answer)
        self._run = run
        self._aside = aside
        self._answer_in_slices = answer_in_slices
        self._is_due = False

    def _go_on(self, now_ms: int, *, is_noted: bool = False) -> Effects:
        if self._is_small():
            return super()._go_on(now_ms, is_noted=is_noted)
        return self._run(self._go_on_in_slices(now_ms), now_ms)

    def _is_small(self) -> bool:
        return len(self._wanted) <= PARTITIONS_PER_SLICE

    def _go_on_in_slices(self, now_ms: int) -> Slices:
        ask = self._ask
        missing_bytes = self._missing_bytes()
        if ask.max_wait_ms > 0 and missing_bytes > 0:
            self._new_waiter(missing_bytes, self._came_early)
            self._wait_at(self._resting)
        effects: Effects = []
        try:
            for portion in self._portions():
                if self._outcomes:
                    now_ms = yield effects
                first = len(self._outcomes)
                self._read_portion(portion)
                effects = [] if ask.replica_id < 0 else self._note_follower(first, now_ms)
                if self._waiter is not None:
                    self._wait_at(portion)
                effects += self._have_read(waits=self._waiter is not None)
        except HungUp:
            return self._stop_waiting_aside(now_ms)
        except BaseException:  # there is a defect, or the node ends
            self._stop_waiting()
            raise
        if self._below:
            effects += self._stop_waiting_aside(now_ms)
            return effects + (yield from self._read_remote_in_slices(now_ms))
        if self._waiter is None or self._is_enough():
            effects += self._stop_waiting_aside(now_ms)
            return effects + self._finish(now_ms)
        waiter = self._waiter
        waiter.missing_bytes -= self._total_bytes
        if self._is_due or waiter.missing_bytes <= 0:
            return effects + self._wait_over(now_ms)
        others = self._fetching.large_waiters.in_place_of(self._address, len(self._wanted))
        if others is None:
            effects += self._stop_waiting_aside(now_ms)
            return effects + self._finish(now_ms)
        for other in others:
            effects += other.complete(now_ms)
        waiter.complete = self._woken
        return effects + self._wait_until(self._began_ms + ask.max_wait_ms)

    @property
    def _address(self) -> str:
        return self._ask.owner[1]

    def _wait_until(self, at_ms: int) -> Effects:
        assert self._waiter is not None
        self._fetching.large_waiters.add(self._address, self._waiter, len(self._wanted))
        return super()._wait_until(at_ms)

    def _stop_waiting(self) -> None:
        if self._waiter is not None:
            self._fetching.large_waiters.remove(self._address, self._waiter)
        super()._stop_waiting()

    def _stop_waiting_aside(self, now_ms: int) -> Effects:
        """Nobody is told any more from here on; the partitions let go of the waiter a slice at a time."""
        waiter, waits_at = self._waiter, self._waits_at
        if waiter is None or len(waits_at) <= PARTITIONS_PER_SLICE:
            self._stop_waiting()
            return []
        self._waits_at = []
        self._stop_waiting()
        return self._aside(_left(waiter, waits_at), now_ms)

    def _came_early(self, now_ms: int) -> Effects:
        """Enough came before all was read."""
        self._is_due = True
        return []

    def _pages_came(self, now_ms: int) -> Effects:
        if self._is_small():
            return super()._pages_came(now_ms)
        return self._waiter.complete(now_ms) if self._waiter is not None else []

    def _portions(self) -> Iterator[Sequence[Wanted]]:
        wanted = self._wanted
        for first in range(0, len(wanted), PARTITIONS_PER_SLICE):
            yield wanted[first : first + PARTITIONS_PER_SLICE]

    def _read_remote_in_slices(self, now_ms: int) -> Slices:
        effects = self._begin_remote(now_ms)
        for first in range(0, len(self._below), _REMOTE_PER_SLICE):
            portion = self._below[first : first + _REMOTE_PER_SLICE]
            now_ms = yield effects + self._ask_remote(portion, now_ms)
            effects = []
            if self._is_answered:
                break  # it took too long
        return []

    def _wait_over(self, now_ms: int) -> Effects:
        if self._is_answered:
            return []
        effects = self._stop_waiting_aside(now_ms)
        self._begin_reading()
        if self._is_small():
            self._read_some(self._wanted)
            return effects + self._finish(now_ms)
        return effects + self._run(self._read_again(), now_ms)

    def _read_again(self) -> Slices:
        now_ms = yield []  # this is in the step of who woke us
        for portion in self._portions():
            self._read_portion(portion)
            now_ms = yield self._have_read(waits=False)
        return self._finish(now_ms)

    def _read_portion(self, portion: Sequence[Wanted]) -> None:
        """Read it; what that holds of memory is counted until the answer is made, or waits."""
        self._read_some(portion)
        if self._ask.held is not None:
            self._ask.held.grow(_ROW_BYTES * len(portion))

    def _finish(self, now_ms: int) -> Effects:
        if self._is_small():
            return super()._finish(now_ms)
        assert not self._is_answered
        self._is_answered = True
        return self._run(self._finish_in_slices(), now_ms)

    def _finish_in_slices(self) -> Slices:
        self._put_remote()
        all_told: Answered = []
        for first in range(0, len(self._wanted), PARTITIONS_PER_SLICE):
            if first:
                yield []
            after = first + PARTITIONS_PER_SLICE
            told = self._told(
                list(zip(self._wanted[first:after], self._outcomes[first:after], strict=True))
            )
            if isinstance(told, KafkaError):
                return self._answer(FetchAnswer(told, 0, []))
            all_told += told
        answer = FetchAnswer(None, self._context.session_id, all_told)
        return (yield from self._answer_in_slices(answer))


def _left(waiter: FetchWaiter, waits_at: list[FetchWaiters]) -> Generator[Effects, int, None]:
    """Have partitions let go of who has stopped waiting. Meanwhile they pass it over, as it is done."""
    yield []
    while waits_at:
        for waiters in waits_at[-_LEFT_PER_SLICE:]:
            waiters.discard(waiter)
        del waits_at[-_LEFT_PER_SLICE:]
        if waits_at:
            yield []
