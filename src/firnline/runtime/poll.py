"""The loop a node runs on: ready sockets, due timers, one thread. WORLD.

A poller, a dictionary of callbacks and timers. asyncio's loop spends about as much per
event on handles, contexts and transports as a small request costs altogether; nothing here is
asynchronous code, so there is nothing it would have to schedule (docs/decisions/0005). What happens to
a descriptor that is ready is in runtime/turn.
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
ENDED = select.EPOLLRDHUP  # the peer sends no more
NOTHING = 0  # that both sides have ended, and errors, are told all the same
BROKEN = select.EPOLLHUP | select.EPOLLERR

_RECEIVE_BYTES = 256 * KIB
_WAIT_MAX_S = 60.0
# Timers that are due together, as those of ten thousand sessions, are called for so long in one turn.
_TIMERS_S = 0.005
# As those, what is taken in turns: a hundred connections are closed meanwhile.
_STEPS_S = 0.002


class PollLoop:
    """Runs callbacks until `stop`. Not thread-safe: threads ring a Doorbell (runtime/threads)."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: Callbacks = {}
        # Watched descriptors from which bytes are received in `turn`, as long as they are here.
        self.streams: Streams = {}
        # What is received into; the bytes stand until whoever was told of them returns.
        self.shared = memoryview(bytearray(_RECEIVE_BYTES))
        self.timers = Timers()
        self._late: deque[Timer] = deque()  # due, and for the next turn
        self._soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._running = False
        self.slow_steps = SlowSteps()

    def watch(self, fd: int, events: int, callback: Callable[[int], object]) -> None:
        """Call `callback(events)` whenever one of `events` is there; level-triggered."""
        self._callbacks[fd] = callback
        self._epoll.register(fd, events)

    def rewatch(self, fd: int, events: int) -> None:
        """Change what a watched descriptor waits for."""
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor, before it is closed."""
        self.streams.pop(fd, None)
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        """Call in the next turn."""
        self._soon.append((call, args))

    def call_later(self, delay_s: float, call: Callable[..., object], *args: Any) -> Timer:
        """Call once, `delay_s` seconds from now."""
        return self.timers.add(delay_s, call, args)

    def take_in_turns(self, steps: Iterator[object]) -> None:
        """Take all steps, for some milliseconds now and in each of the next turns."""
        until = time.monotonic() + _STEPS_S
        for _ in steps:
            if time.monotonic() >= until:
                self.call_soon(self.take_in_turns, steps)
                return

    def run(self) -> None:
        """Serve until `stop` is called; exceptions of callbacks end it."""
        self._running = True
        poller, callbacks, monotonic = self._epoll, self._callbacks, time.monotonic
        due, soon, streams, shared = self.timers.due, self._soon, self.streams, self.shared
        late = self._late
        on_slow, begins = self._on_slow, self.slow_steps.begins
        ended = monotonic()
        while self._running:
            begins(ended)
            began = turn(poller, self._wait_s(), callbacks, streams, shared, on_slow, begins)
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
        """End `run` after this turn."""
        self._running = False
        self.call_soon(lambda: None)  # no waiting in a turn that has not begun to wait

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
        """Call timers that are due, for some milliseconds; then whoever else needs the thread has it."""
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
        """Note a step that has ended if it was slow; return when the next one begins."""
        now = time.monotonic()
        if now - began > SLOW_S:
            self.slow_steps.ended(call, now - began)
            now = time.monotonic()
        self.slow_steps.begins(now)
        return now

    def _on_slow(self, fd: int, took_s: float) -> None:
        """Something took long in a turn."""
        if fd < 0:
            self.slow_steps.ended("answers are sent", took_s)
        else:
            closed = "a connection that was closed"
            self.slow_steps.ended(self._callbacks.get(fd, closed), took_s)
