"""A Fetch of many partitions, read and answered in time slices. PURE.

Each Fetch of a consumer or follower of a thousand partitions would block the event loop for several
milliseconds. So this one reads PARTITIONS_PER_SLICE at a time, and other requests run in between. It
registers its waiter at each partition right after reading it: nothing that is appended between two slices is
missed. If enough bytes arrive before the last slice, it reads again at its end. Leaving the waiters' lists
and making the answer take slices as well. If the client hangs up, the fetch is dropped at the next slice.
Decision 0018.
"""

from collections.abc import Callable, Generator, Iterator, Sequence

from firnline.base.background import HungUp, SlicedTask
from firnline.base.effects import Effects
from firnline.base.errors import KafkaError
from firnline.broker.fetch import (
    PARTITIONS_PER_SLICE,
    FetchAnswer,
    FetchCallback,
    Fetching,
    OneFetch,
)
from firnline.broker.fetch_session import Answered, FetchAsk, FetchContext, Wanted
from firnline.replica.waiters import FetchWaiter, FetchWaiters

# Leaving the waiters of a partition takes a quarter of a microsecond; more if they are not in the CPU cache.
_LEFT_PER_SLICE = 2_000
# Reads of the tier begun per slice, some 50 us each.
_REMOTE_PER_SLICE = 20
# Memory for the outcome of one partition and its row in the answer. Its records stay in files.
_ROW_BYTES = 300
# Yields effects, receives the time, returns the last effects.
Slices = Generator[Effects, int, Effects]
# Runs slices with other requests in between. Stops if the client hangs up.
Run = Callable[[Slices, int], Effects]
SlicedAnswer = Callable[[FetchAnswer], Slices]
# Runs a task in slices to its end, even if the client hangs up.
RunTask = Callable[[SlicedTask, int], Effects]


class LargeFetch(OneFetch):
    """A request or a session of many partitions.

    The answer shows each partition as it was when it was read. A follower's position is recorded at that
    time. If most of a follower's partitions rest, the others are read without a pause.

    run               runs the slices of the request
    run_task          runs the clean-up, which must end even if the client has gone
    answer_in_slices  answers a large request; `answer` answers one that fits into one slice
    """

    __slots__ = ("_answer_in_slices", "_is_due", "_run", "_run_task")

    def __init__(
        self,
        run: Run,
        run_task: RunTask,
        answer_in_slices: SlicedAnswer,
        fetching: Fetching,
        ask: FetchAsk,
        context: FetchContext,
        answer: FetchCallback,
    ) -> None:
        super().__init__(fetching, ask, context, answer)
        self._run = run
        self._run_task = run_task
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
            self._new_waiter(missing_bytes, self._completed_early)
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
            return self._stop_waiting_in_slices(now_ms)
        except BaseException:  # a defect, or the node is stopping
            self._stop_waiting()
            raise
        if self._below:
            effects += self._stop_waiting_in_slices(now_ms)
            return (yield from self._read_remote_in_slices(effects, now_ms))
        if self._waiter is None or self._is_enough():
            effects += self._stop_waiting_in_slices(now_ms)
            return effects + self._finish(now_ms)
        waiter = self._waiter
        waiter.missing_bytes -= self._total_bytes
        if self._is_due or waiter.missing_bytes <= 0:
            return effects + self._wait_over(now_ms)
        others = self._fetching.large_waiters.in_place_of(self._address, len(self._wanted))
        if others is None:
            effects += self._stop_waiting_in_slices(now_ms)
            return effects + self._finish(now_ms)
        for other in others:
            effects += other.complete(now_ms)
        waiter.complete = self._notified
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

    def _stop_waiting_in_slices(self, now_ms: int) -> Effects:
        """Stop waiting now, but remove the waiter from the partitions in slices."""
        waiter, waits_at = self._waiter, self._waits_at
        if waiter is None or len(waits_at) <= PARTITIONS_PER_SLICE:
            self._stop_waiting()
            return []
        self._waits_at = []
        self._stop_waiting()
        return self._run_task(_leave_waiters(waiter, waits_at), now_ms)

    def _completed_early(self, now_ms: int) -> Effects:
        """Enough bytes arrived before all partitions were read."""
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

    def _read_remote_in_slices(self, effects: Effects, now_ms: int) -> Slices:
        """The first slice yields `effects`, too: the timer of sliced tasks may be among them."""
        effects += self._begin_remote(now_ms)
        for first in range(0, len(self._below), _REMOTE_PER_SLICE):
            portion = self._below[first : first + _REMOTE_PER_SLICE]
            now_ms = yield effects + self._ask_remote(portion, now_ms)
            effects = []
            if self._is_answered:
                break  # timed out
        return []

    def _wait_over(self, now_ms: int) -> Effects:
        if self._is_answered:
            return []
        effects = self._stop_waiting_in_slices(now_ms)
        self._begin_reading()
        if self._is_small():
            self._read_some(self._wanted)
            return effects + self._finish(now_ms)
        return effects + self._run(self._read_again(), now_ms)

    def _read_again(self) -> Slices:
        now_ms = yield []  # the caller's slice ends first
        for portion in self._portions():
            self._read_portion(portion)
            now_ms = yield self._have_read(waits=False)
        return self._finish(now_ms)

    def _read_portion(self, portion: Sequence[Wanted]) -> None:
        """Read `portion`, and count its memory until the answer is made or the fetch waits."""
        self._read_some(portion)
        if self._ask.held is not None:
            self._ask.held.grow(_ROW_BYTES * len(portion))

    def _finish(self, now_ms: int) -> Effects:
        if self._is_small():
            return super()._finish(now_ms)
        assert not self._is_answered
        self._is_answered = True
        return [*self._stop_remote(now_ms), *self._run(self._finish_in_slices(), now_ms)]

    def _finish_in_slices(self) -> Slices:
        self._put_remote()
        all_included: Answered = []
        for first in range(0, len(self._wanted), PARTITIONS_PER_SLICE):
            if first:
                yield []
            after = first + PARTITIONS_PER_SLICE
            included = self._included(
                list(zip(self._wanted[first:after], self._outcomes[first:after], strict=True))
            )
            if isinstance(included, KafkaError):
                return self._answer(FetchAnswer(included, 0, []))
            all_included += included
        answer = FetchAnswer(None, self._context.session_id, all_included)
        return (yield from self._answer_in_slices(answer))


def _leave_waiters(
    waiter: FetchWaiter, waits_at: list[FetchWaiters]
) -> Generator[Effects, int, None]:
    """Remove a waiter from its partitions. They already ignore it, as it is done."""
    yield []
    while waits_at:
        for waiters in waits_at[-_LEFT_PER_SLICE:]:
            waiters.discard(waiter)
        del waits_at[-_LEFT_PER_SLICE:]
        if waits_at:
            yield []
