"""One turn of the poll loop: wait, receive, have it handled, send the answer. WORLD.

The twin of `turn` in _native.c. A descriptor is a stream, or has a callback, or both. From a readable
stream bytes are received into the shared buffer, and `on_received(size)` is told; 0: the peer has gone.
What it returns is sent: a frame, or (bytes, file slice, bytes) that are joined first. None: nothing is to
be sent now. `on_unsent(answer, sent)` is told when the socket did not take all, or an answer is of another
shape or too large to be joined. All else goes to `callback(events)`. Answers are sent a few together: a peer
that is woken for one finds the others, too, and a CPU is woken less often. What took longer than SLOW_S is
told to `on_slow(descriptor, seconds)`, sending with descriptor -1. Where a step begins is told to
`begins(time)`, but not within a millisecond of the last time.
"""

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress

from firnline.base.errors import StorageError
from firnline.base.limits import JOIN_BYTES_MAX
from firnline.base.native import native
from firnline.base.slices import FileSlice
from firnline.protocol.schema import Part
from firnline.runtime.steps import MARK_EVERY_S, SLOW_S

Answer = bytes | tuple[Part, ...]
OnReceived = Callable[[int], Answer | None]
OnUnsent = Callable[[Answer, int], object]
Stream = tuple[OnReceived, OnUnsent]
Streams = dict[int, Stream]
Callbacks = dict[int, Callable[[int], object]]
# Descriptors served before timers and calls get their turn again.
_READY_MAX = 64
_TOGETHER_MAX = 16
_WAIT_MAX_S = 60.0
OnSlow = Callable[[int, float], object]
Begins = Callable[[float], object]


def turn_python(
    poller: select.epoll,
    wait_s: float,
    callbacks: Callbacks,
    streams: Streams,
    shared: memoryview,
    on_slow: OnSlow,
    begins: Begins,
) -> float:
    """Serve what is ready within `wait_s` seconds; exceptions of whom is called end it.

    Returns when the wait was over, as `time.monotonic` tells it.
    """
    due: list[tuple[int, Stream, Answer]] = []
    ready = poller.poll(min(wait_s, _WAIT_MAX_S), _READY_MAX)
    began = last = marked = time.monotonic()
    for fd, events in ready:
        stream = streams.get(fd) if events & select.EPOLLIN else None
        if stream is not None:
            answer = _serve(fd, stream[0], shared)
            if answer is not None:
                due.append((fd, stream, answer))
                if len(due) == _TOGETHER_MAX:
                    _send_due(due, streams)
        elif fd in callbacks:  # else forgotten earlier in this turn
            callbacks[fd](events)
        now = time.monotonic()
        if now - last > SLOW_S:
            on_slow(fd, now - last)
            now = time.monotonic()
        if now - marked > MARK_EVERY_S:
            marked = now
            begins(now)
        last = now
    if due:
        _send_due(due, streams)
        now = time.monotonic()
        if now - last > SLOW_S:
            on_slow(-1, now - last)
    return began


def _serve(fd: int, on_received: OnReceived, shared: memoryview) -> Answer | None:
    try:
        size = os.readv(fd, [shared])
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        size = 0
    return on_received(size)


def _send_due(due: list[tuple[int, Stream, Answer]], streams: Streams) -> None:
    for fd, stream, answer in due:
        if streams.get(fd) is stream:  # else closed meanwhile
            _send(fd, answer, stream[1])
    due.clear()


def _send(fd: int, answer: Answer, on_unsent: OnUnsent) -> None:
    data = answer if isinstance(answer, bytes) else _gather(answer)
    sent = 0
    if data is not None:
        with suppress(OSError):  # what became of the socket is seen by who sends the rest
            sent = os.write(fd, data)
        if sent == len(data):
            return
    on_unsent(answer, sent)


def _gather(answer: tuple[Part, ...]) -> bytes | None:
    """Join (bytes, file slice, bytes); None for anything else, what is too large, or is not read at once."""
    if len(answer) != 3:
        return None
    front, middle, after = answer
    if not (
        isinstance(front, bytes) and isinstance(middle, FileSlice) and isinstance(after, bytes)
    ):
        return None
    file, position, size = middle
    fd = file.fileno()  # -1 after a truncation: `on_unsent` sees what of it may still be sent
    if fd < 0 or len(front) + size + len(after) > JOIN_BYTES_MAX:
        return None
    try:
        records = file.read_ready(position, size)
    except StorageError:
        return None
    return front + records + after if records is not None and len(records) == size else None


Turn = Callable[[select.epoll, float, Callbacks, Streams, memoryview, OnSlow, Begins], float]
turn: Turn = turn_python if native is None else native.turn
