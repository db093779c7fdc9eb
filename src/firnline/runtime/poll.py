"""The loop a node runs on: ready sockets, due timers, one thread. WORLD.

It consists of a poller, a dictionary of callbacks, and timers. The loop of asyncio would spend about as much
on handles, contexts and transports of one event as a small request takes altogether, and there is no
asynchronous code here that it could schedule (docs/decisions/0005). runtime/turn handles the descriptors that
are ready.
"""

import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from firnline.base.units import KIB
from firnline.runtime.steps import SLOW_S, SlowSteps
from firnline.runtime.timers import Timer, Timers
from firnline.runtime.turn import Callbacks, Streams, turn

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT
ENDED = select.EPOLLRDHUP  # the peer has closed its sending side
NOTHING = 0  # a full close and errors are reported nevertheless
BROKEN = select.EPOLLHUP | select.EPOLLERR

_RECEIVE_BYTES = 256 * KIB
_WAIT_MAX_S = 60.0
# The time for due timers in one turn; those of ten thousand sessions may be due together.
_TIMERS_S = 0.005
# The same for steps: enough to close a hundred connections.
_STEPS_S = 0.002


class PollLoop:
    """Runs callbacks until `stop`. Not thread-safe: threads ring a Doorbell (runtime/threads)."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: Callbacks = {}
        # Watched descriptors from which `turn` receives bytes, while they are in here.
        self.streams: Streams = {}
        # The receive buffer; its bytes are valid until the callback returns.
        self.shared = memoryview(bytearray(_RECEIVE_BYTES))
        self.timers = Timers()
        self._late: deque[Timer] = deque()  # due timers that are left for the next turn
        self._soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._running = False
        self.slow_steps = SlowSteps()
        # Since when it runs, and how many seconds of that it has waited with nothing to do.
        self.since_s, self.idle_s = time.monotonic(), 0.0

    def watch(self, fd: int, events: int, callback: Callable[[int], object]) -> None:
        """Call `callback(events)` while one of `events` is ready; level-triggered."""
        self._callbacks[fd] = callback
        self._epoll.register(fd, events)

    def rewatch(self, fd: int, events: int) -> None:
        """Change the events of a watched descriptor."""
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Remove a descriptor, before it is closed."""
        self.streams.pop(fd, None)
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        """Call it in the next turn."""
        self._soon.append((call, args))

    def call_later(self, delay_s: float, call: Callable[..., object], *args: Any) -> Timer:
        """Call it once, `delay_s` seconds from now."""
        return self.timers.add(delay_s, call, args)

    def run_in_slices(self, steps: Iterator[object]) -> None:
        """Run all steps, for some milliseconds now and in each of the next turns."""
        until = time.monotonic() + _STEPS_S
        for _ in steps:
            if time.monotonic() >= until:
                self.call_soon(self.run_in_slices, steps)
                return

    def run(self) -> None:
        """Run until `stop` is called, or a callback raises."""
        self._running = True
        poller, callbacks, monotonic = self._epoll, self._callbacks, time.monotonic
        due, soon, streams, shared = self.timers.due, self._soon, self.streams, self.shared
        late = self._late
        on_slow, begins = self._on_slow, self.slow_steps.begins
        ended = monotonic()
        while self._running:
            begins(ended)
            began = turn(poller, self._wait_s(), callbacks, streams, shared, on_slow, begins)
            self.idle_s += began - ended
            if late or (due and due[0] <= monotonic()):
                self._call_due()
            if soon:
                last = monotonic()
                for _ in range(len(soon)):
                    call, args = soon.popleft()
                    call(*args)
                    last = self._note(call, last)
            ended = monotonic()
            if ended - began > SLOW_S:
                self.slow_steps.turn_ended(ended - began)

    def stop(self) -> None:
        """End `run` after the present turn."""
        self._running = False
        self.call_soon(lambda: None)  # so that the turn does not wait

    def close(self) -> None:
        self._epoll.close()

    def _wait_s(self) -> float:
        if self._soon or self._late:
            return 0
        first_s = self.timers.first_s()
        if first_s is None:
            return _WAIT_MAX_S
        # epoll counts whole milliseconds and rounds up: a timer is never early.
        wait_s = first_s - time.monotonic()
        if wait_s > _WAIT_MAX_S:
            return _WAIT_MAX_S
        return wait_s if wait_s > 0 else 0

    def _call_due(self) -> None:
        """Call due timers, for some milliseconds; the others follow in the next turn."""
        now = last = time.monotonic()
        due, late = self.timers.due, self._late
        while late or (due and due[0] <= now):
            if not late:
                late.extend(self.timers.take(now))
                continue
            timer = late.popleft()
            if not timer.cancelled:
                timer.call(*timer.args)
                last = self._note(timer.call, last)
                if last - now > _TIMERS_S:
                    return

    def _note(self, call: Callable[..., object], began: float) -> float:
        """Note a step that has ended, if it was slow; return the start time of the next one."""
        now = time.monotonic()
        if now - began > SLOW_S:
            self.slow_steps.ended(call, now - began)
            now = time.monotonic()
        self.slow_steps.begins(now)
        return now

    def _on_slow(self, fd: int, took_s: float) -> None:
        """Note the slow step of a descriptor."""
        if fd < 0:
            self.slow_steps.ended("answers are sent", took_s)
        else:
            closed = "a connection that was closed"
            self.slow_steps.ended(self._callbacks.get(fd, closed), took_s)
