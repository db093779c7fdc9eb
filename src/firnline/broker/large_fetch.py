"""A Fetch of many partitions, read and answered in slices. PURE.

Otherwise each Fetch of a thousand partitions, of a consumer or a follower, would block the node for several
milliseconds. Decision 0018.
"""

from collections.abc import Callable, Generator, Iterator, Sequence

from firnline.base.background import HungUp, Work
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

# Removing a waiter from a partition takes 0.25 us, more if the partition is not in the CPU's caches.
_LEFT_PER_SLICE = 2_000
# Reads of the tier in one step; each takes about 50 us.
_REMOTE_PER_SLICE = 20
# The memory of one partition's outcome and of its row in the response; the records stay in files.
_ROW_BYTES = 300
# Yields the effects of each slice, receives the time in ms, and returns the effects of the last slice.
Slices = Generator[Effects, int, Effects]
# Runs the slices between the requests of others, until the client disconnects.
Run = Callable[[Slices, int], Effects]
SlicedAnswer = Callable[[FetchAnswer], Slices]
# Runs a task in slices, even if the client disconnects.
InSlices = Callable[[Work, int], Effects]


class LargeFetch(OneFetch):
    """A request, or a session, of many partitions.

    A partition's outcome is that of its own slice, under the leader at that time; a follower's position is
    noted in the same slice. From then on the Fetch waits at the partition, so it misses nothing between two
    slices. If most of a follower's partitions rest, the others are read in one step.

    run               runs slices of the Fetch
    in_slices         runs the cleanup of a Fetch whose client has disconnected
    answer_in_slices  as `answer`, in slices; `answer` is called if one step is enough
    """

    __slots__ = ("_answer_in_slices", "_in_slices", "_is_due", "_run")

    def __init__(
        self,
        run: Run,
        in_slices: InSlices,
        answer_in_slices: SlicedAnswer,
        fetching: Fetching,
        ask: FetchAsk,
        context: FetchContext,
        answer: FetchCallback,
    ) -> None:
        super().__init__(fetching, ask, context, answer)
        self._run = run
        self._in_slices = in_slices
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
            return self._stop_waiting_in_slices(now_ms)
        except BaseException:  # a bug, or the node stops
            self._stop_waiting()
            raise
        if self._below:
            effects += self._stop_waiting_in_slices(now_ms)
            return effects + (yield from self._read_remote_in_slices(now_ms))
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
        waiter.complete = self._completed
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
        """Complete nothing from here on; remove the waiter from the partitions in slices."""
        waiter, waits_at = self._waiter, self._waits_at
        if waiter is None or len(waits_at) <= PARTITIONS_PER_SLICE:
            self._stop_waiting()
            return []
        self._waits_at = []
        self._stop_waiting()
        return self._in_slices(_left(waiter, waits_at), now_ms)

    def _came_early(self, now_ms: int) -> Effects:
        """There were enough bytes before everything was read."""
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
                break  # its time is over
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
        now_ms = yield []  # this step belongs to the append that completed the Fetch
        for portion in self._portions():
            self._read_portion(portion)
            now_ms = yield self._have_read(waits=False)
        return self._finish(now_ms)

    def _read_portion(self, portion: Sequence[Wanted]) -> None:
        """Read it; count its memory until the response is made, or the Fetch waits."""
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
        all_news: Answered = []
        for first in range(0, len(self._wanted), PARTITIONS_PER_SLICE):
            if first:
                yield []
            after = first + PARTITIONS_PER_SLICE
            news = self._news(
                list(zip(self._wanted[first:after], self._outcomes[first:after], strict=True))
            )
            if isinstance(news, KafkaError):
                return self._answer(FetchAnswer(news, 0, []))
            all_news += news
        answer = FetchAnswer(None, self._context.session_id, all_news)
        return (yield from self._answer_in_slices(answer))


def _left(waiter: FetchWaiter, waits_at: list[FetchWaiters]) -> Generator[Effects, int, None]:
    """Remove a completed waiter from its partitions, which ignore it meanwhile."""
    yield []
    while waits_at:
        for waiters in waits_at[-_LEFT_PER_SLICE:]:
            waiters.discard(waiter)
        del waits_at[-_LEFT_PER_SLICE:]
        if waits_at:
            yield []
