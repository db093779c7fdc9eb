"""One turn of the event loop: poll, receive, handle, send. WORLD.

The reference implementation of `turn` in _native.c. A descriptor is a stream, or has a callback, or both.
1. From a readable stream, receive bytes into the shared buffer and call `on_received(size)`; 0: the peer has
   disconnected. It returns the response: a frame, or (bytes, file slice, bytes), or None for nothing now.
2. Send the responses, a few together: a peer that wakes for one finds the others, and a CPU wakes less often.
   If the socket did not take all, or a response has another shape or is too large to be joined, call
   `on_unsent(response, sent)`.
3. For all other events call `callback(events)`.
Before a step call `begins(time)`, but only once a millisecond. After a step of more than SLOW_S call
`on_slow(descriptor, seconds)`, with descriptor -1 for sending.
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

ResponseFrame = bytes | tuple[Part, ...]
OnReceived = Callable[[int], ResponseFrame | None]
OnUnsent = Callable[[ResponseFrame, int], object]
Stream = tuple[OnReceived, OnUnsent]
Streams = dict[int, Stream]
Callbacks = dict[int, Callable[[int], object]]
# Descriptors served before timers and calls run again.
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
    due: list[tuple[int, Stream, ResponseFrame]] = []
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


def _serve(fd: int, on_received: OnReceived, shared: memoryview) -> ResponseFrame | None:
    try:
        size = os.readv(fd, [shared])
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        size = 0
    return on_received(size)


def _send_due(due: list[tuple[int, Stream, ResponseFrame]], streams: Streams) -> None:
    for fd, stream, answer in due:
        if streams.get(fd) is stream:  # else closed meanwhile
            _send(fd, answer, stream[1])
    due.clear()


def _send(fd: int, answer: ResponseFrame, on_unsent: OnUnsent) -> None:
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
