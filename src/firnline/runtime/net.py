"""Client connections: receive request frames, send response frames, in order. WORLD.

Each connection is a non-blocking socket that the event loop watches. It is in one of three states: it
receives, it handles a request, or it sends the response.
- It handles the next request only after the previous response was sent (C18). So a peer that does not read
  costs at most one response, and nothing more is read from it.
- Produce is the exception. Its batches are appended at once; while it waits for followers or the disk, the
  next Produce requests are appended, too, so that one round trip to the followers serves all of them.
- Responses leave in the order of their requests (docs/decisions/0011).
A large request waits for permits before it is handled (runtime/bounds/admission). The memory of requests and
responses is bounded by runtime/bounds/incoming and runtime/bounds/answers.
"""

import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVarTuple

from firnline.api.dispatch import Dispatcher, asked_of
from firnline.base.effects import Effects
from firnline.base.errors import (
    Bug,
    CannotGoOn,
    ProtocolError,
    RecordsTruncated,
    StorageError,
)
from firnline.base.limits import JOIN_BYTES_MAX, LARGE_REQUEST_BYTES, OPEN_REQUESTS_MAX
from firnline.base.log_lines.process import CONNECTION_CLOSED
from firnline.base.ports import Buffer
from firnline.base.slices import FileSlice, held_bytes, joined, read_part
from firnline.base.units import MIB
from firnline.protocol.frame import SIZE_BYTES, FrameSplitter
from firnline.protocol.schema import Part
from firnline.runtime.bounds.admission import Admission, Permits
from firnline.runtime.bounds.answers import Answers
from firnline.runtime.bounds.incoming import Incoming, RequestMemory
from firnline.runtime.disk import Pages, storage_error
from firnline.runtime.failed_requests import FailedRequests
from firnline.runtime.logs.lines import log_line
from firnline.runtime.poll import BROKEN, ENDED, NOTHING, READABLE, WRITABLE, PollLoop
from firnline.runtime.turn import ResponseFrame

if TYPE_CHECKING:
    from firnline.api.context import RequestContext

_SENDFILE_STEP_BYTES = MIB
# The most that one step sends, about a millisecond: parts of a response, a few us each. One sendfile call
# counts as _SENDFILE_PARTS. The rest is sent in later turns.
_PARTS_PER_STEP = 256
_SENDFILE_PARTS = 64
_PRODUCE_KEY = b"\0\0"
Results = TypeVarTuple("Results")


class Executor(Protocol):
    """What a connection needs of the runtime. `Runtime` in `runtime/loop.py` implements it."""

    dispatcher: "Dispatcher"  # for a listener that has none of its own
    admission: Admission
    answers: Answers
    incoming: Incoming
    failed_requests: FailedRequests
    now_ms: Callable[[], int]

    def execute(self, effects: Effects) -> None: ...

    def resume(self, then: Callable[[*Results, int], Effects], *results: *Results) -> None: ...

    def fail(self, problem: BaseException) -> None: ...


class Listener(Protocol):
    """What a connection needs of its listener. `Server` in `runtime/listener.py` implements it."""

    runtime: Executor
    loop: PollLoop
    dispatcher: "Dispatcher"
    listener: str
    frame_bytes_max: int

    def on_bad_peer(self, connection: "Connection", problem: ProtocolError) -> None: ...

    def forget(self, fd: int) -> None: ...


class Connection:
    """One client connection. The module docstring describes its states.

    turn  the number of the next request to be handled; a response names the number of its request
    """

    __slots__ = (
        "_at_once",
        "_backlog",
        "_busy",
        "_complete_frame",
        "_due",
        "_early",
        "_fd",
        "_frames",
        "_loop",
        "_memory",
        "_out",
        "_pages",
        "_reading",
        "_receive_into",
        "_runtime",
        "_send_bytes",
        "_server",
        "_shared",
        "_sock",
        "_stream",
        "_waits",
        "began_s",
        "closed",
        "dispatcher",
        "has_ended",
        "last_active_ms",
        "listener",
        "peer_host",
        "principal",
        "requests",
        "response_memory",
        "turn",
    )

    def __init__(self, server: Listener, sock: socket.socket, peer_host: str, now_ms: int) -> None:
        self._server = server
        self._loop = server.loop
        self._runtime = server.runtime
        self.dispatcher = server.dispatcher
        self._sock = sock
        self._at_once = server.dispatcher.at_once
        self._receive_into = sock.recv_into
        self._send_bytes = sock.send
        self._shared = server.loop.shared
        self._stream = (self._on_received, self._on_unsent)
        self._fd = sock.fileno()
        self._frames = FrameSplitter(
            self._runtime.incoming.buffers, frame_bytes_max=server.frame_bytes_max
        )
        self._memory: RequestMemory | None = None  # from the first request that came in pieces on
        self._backlog = b""  # bytes received after the request in progress
        self._complete_frame: memoryview | None = None  # a complete frame that waits for permits
        self._busy = False
        self.turn = 0
        self._due = 0  # number of the oldest request without a response
        self._early: dict[
            int, list[Part] | None
        ] = {}  # responses that have to wait for earlier ones
        self._waits: dict[
            int, Callable[[int], Effects]
        ] = {}  # called if the connection closes before the response
        self.has_ended = False  # the peer has shut down its sending side
        self._out: deque[Part] = deque()
        self._pages = Pages()
        self.response_memory = self._runtime.answers.memory_of(self)
        self._reading = True
        self.closed = False
        self.last_active_ms = now_ms
        self.requests = 0
        self.began_s = 0.0  # set while a request that is timed is in its handler (api/dispatch)
        self.listener = server.listener
        self.peer_host = peer_host
        self.principal = "User:ANONYMOUS"

        self._loop.watch(self._fd, READABLE, self._on_ready)
        self._loop.streams[self._fd] = self._stream

    def step_name(self) -> str:
        """The name of a slow step in the metrics: that of the latest request on this kind of listener."""
        return f"request {self.dispatcher.latest_name}"

    @property
    def is_idle(self) -> bool:
        """Whether every request has its response. Part of the next request may have been received."""
        return not self._busy and self._due == self.turn and not self.closed

    # ---- receiving

    def _on_received(self, size: int) -> ResponseFrame | None:
        """Handle `size` bytes in the shared buffer, at a frame's beginning; 0: the peer has disconnected."""
        now_ms = self.last_active_ms = self._runtime.now_ms()
        try:
            answer = self._at_once(self, self._shared, size, now_ms)
            kind = type(answer)
            if (
                kind is bytes or kind is tuple
            ) and self._due == self.turn:  # no earlier response is outstanding
                self.requests += 1
                return answer  # type: ignore[return-value]
            if answer is not None:
                self._do(answer)
                self._overlap(self._shared)
            elif size:
                self._on_bytes(self._shared[:size])
            else:
                self.close()
        except ProtocolError as problem:
            self._server.on_bad_peer(self, problem)
        except Exception as problem:  # noqa: BLE001 - `failed` decides
            self.failed(problem)
        self._settle()
        return None

    def _on_unsent(self, answer: ResponseFrame, sent: int) -> None:
        """Send the rest of a response of which `sent` bytes were sent."""
        self._busy = True
        parts: list[Part] = [answer] if isinstance(answer, bytes) else list(answer)
        if sent:
            try:
                parts = [memoryview(b"".join(map(read_part, parts)))[sent:]]
            except StorageError as problem:
                self._cannot_send(problem)
                return
        turn = self.turn
        self.turn += 1
        self.answer(parts, turn)
        self._settle()

    def _settle(self) -> None:
        """Let the event loop receive into its shared buffer exactly while a request may begin."""
        if self.closed:
            return
        if self._busy or self._backlog or self._frames.buffer is not None or not self._reading:
            self._loop.streams.pop(self._fd, None)
        else:
            self._loop.streams[self._fd] = self._stream

    def _on_ready(self, events: int) -> None:
        if not events & READABLE:
            if events & WRITABLE:
                self._on_writable()
            elif events & BROKEN or self._waits:
                self.close()
            else:
                self._note_end()
            return
        # The peer pipelines: the kernel keeps its bytes until the earlier ones are handled. The backlog is
        # handled one turn after the response, and this may be called in between.
        if self._busy or self._backlog:
            self._stop_reading()
            return
        frames = self._frames
        try:
            if frames.buffer is None:
                size = self._receive_into(self._shared)
                if size:
                    self._on_bytes(self._shared[:size])
                else:
                    self.close()
            elif self._has_memory():
                size = self._receive_into(frames.target())
                if size:
                    self._on_frame_part(size)
                else:
                    self.close()
        except (BlockingIOError, InterruptedError):
            pass
        except ProtocolError as problem:
            self._server.on_bad_peer(self, problem)
        except OSError:
            self.close()
        self._settle()

    def _has_memory(self) -> bool:
        """Whether there is memory for the rest of a request; if not, receive it once there is."""
        growth_bytes, memory = self._frames.growth_bytes, self._memory
        if not growth_bytes or memory is None:
            return True
        if memory.is_stopped or memory.must_wait(growth_bytes):
            if not memory.is_stopped:
                memory.wait(self._receive_again, self._runtime.now_ms())
            self._stop_reading()
            return False
        self._frames.target()
        self._note_held()
        return True

    def _receive_again(self) -> None:
        """There may be memory again: watch the socket for the bytes that wait in it."""
        assert self._memory is not None
        self._memory.go_on(self._runtime.now_ms())
        if self._has_memory() and not self._reading:
            self._reading = True
            self._rewatch()

    def _note_held(self) -> None:
        """Count the memory of received requests that are not handled yet."""
        size_bytes = self._frames.held_bytes + len(self._backlog)
        if self._memory is None:
            if not size_bytes:
                return
            self._memory = self._runtime.incoming.memory_of(self)
        self._memory.hold(size_bytes)

    def _keep(self, data: memoryview) -> None:
        """Keep the beginning of a request until the rest is received."""
        self._frames.keep(data)
        self._note_held()
        if self._memory is not None and self._frames.buffer is not None:
            self._memory.begins(len(data), self._runtime.now_ms())

    def _keep_behind(self, data: memoryview) -> None:
        """Keep bytes that were received after the request in progress."""
        self._backlog = bytes(data)
        self._note_held()

    def is_too_slow(self, now_ms: int) -> bool:
        """Whether the peer takes too long to send a complete request."""
        return self._memory is not None and not self._busy and self._memory.is_too_slow(now_ms)

    @property
    def is_receiving(self) -> bool:
        """Whether only part of a request has been received."""
        return self._frames.buffer is not None

    def _on_frame_part(self, size: int) -> None:
        if self._memory is not None:
            self._memory.came(size)
        frame = self._frames.received(size)
        if frame is None:
            return
        if self._memory is not None:
            self._memory.ends()
        permits = self._runtime.admission.permits_to_await(frame)
        if permits is not None:
            self._complete_frame = frame
            self._await_permits(permits)
        else:
            self._on_complete_frame(frame)

    def _on_complete_frame(self, frame: memoryview) -> None:
        """Handle a complete frame that has its own buffer."""
        self._on_frame(frame, len(frame), owns_bytes=self._frames.is_kept)
        frame.release()
        self._frames.release()
        self._note_held()

    def _await_permits(self, permits: Permits) -> None:
        """Handle the next request when there are permits for it; until then read no later ones."""
        self._busy = True
        if self._memory is not None:
            self._memory.stop(self._runtime.now_ms())
        permits.wait(self._admitted)

    def _admitted(self) -> None:
        if self.closed:
            return
        self._busy = False
        if self._memory is not None:
            self._memory.go_on(self._runtime.now_ms())
        frame, self._complete_frame = self._complete_frame, None
        if frame is not None:
            try:
                self._on_complete_frame(frame)
            except ProtocolError as problem:
                self._server.on_bad_peer(self, problem)
        self._resume()

    def _on_bytes(self, data: memoryview) -> None:
        """Handle the complete frames in `data` as long as each gets its response at once; keep the rest."""
        while not self.closed:
            if self._busy:
                self._keep_behind(data)
                return
            end = self._frames.first_frame_end(data)
            if not end:
                self._keep(data)
                return
            permits = (
                self._runtime.admission.permits_to_await(data[:end])
                if end > LARGE_REQUEST_BYTES
                else None
            )
            if permits is not None:
                self._keep_behind(data)
                self._await_permits(permits)
                return
            self._on_frame(data, end)
            data = data[end:]

    def _on_frame(self, data: memoryview, end: int, *, owns_bytes: bool = False) -> None:
        """Handle the frame in `data[:end]`, which begins with its size field."""
        now_ms = self.last_active_ms = self._runtime.now_ms()
        try:
            answer = self._at_once(self, data, end, now_ms)
            large = None
            if answer is None:
                self._busy = True
                frame = data[SIZE_BYTES:end]
                answer = self.dispatcher.on_frame(self, frame, now_ms, owns_bytes=owns_bytes)
                large = self.dispatcher.sliced_request
                if large is not None:
                    self._runtime.admission.hold(large, end)
            self._do(answer)
            if large is None:  # a sliced Produce must append all its batches before the next one
                self._overlap(data)
        except ProtocolError as problem:
            problem.asked = asked_of(data[SIZE_BYTES:end])
            raise
        except Exception as problem:  # noqa: BLE001 - `failed` decides
            self.failed(problem)

    def _overlap(self, data: memoryview) -> None:
        """Allow the next request to be handled while this one waits, if this one, in `data`, is a Produce."""
        if self._busy and not self._out and data[SIZE_BYTES : SIZE_BYTES + 2] == _PRODUCE_KEY:
            self._busy = self.closed or self.turn - self._due >= OPEN_REQUESTS_MAX

    def _do(self, answer: ResponseFrame | Effects) -> None:
        """Send a response, or carry out the effects that will lead to it."""
        self._busy = True
        self.requests += 1
        turn = self.turn
        if isinstance(answer, list):
            self._runtime.execute(answer)
            self.turn += 1
        else:
            self.turn += 1
            self.answer([answer] if isinstance(answer, bytes) else list(answer), turn)

    def failed(
        self, problem: Exception, context: "RequestContext | None" = None, *, closes: bool = True
    ) -> None:
        """Stop the node where its state or disk is broken; else close this connection only.

        runtime/failed_requests states the rule.
        """
        if isinstance(problem, RecordsTruncated):
            self.close()
        elif isinstance(problem, (Bug, CannotGoOn, StorageError)):
            self._runtime.fail(problem)
        elif isinstance(problem, ProtocolError):
            if context is not None:
                problem.asked = context.asked
            self._server.on_bad_peer(self, problem)
        else:
            dispatcher = self.dispatcher
            name = dispatcher.latest_name if context is None else dispatcher.name_of(context)
            self._runtime.failed_requests.add(name, self.peer_host, context, problem)
            if closes:
                self.close()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._rewatch()

    def _note_end(self) -> None:
        """The peer shut down its sending side during a request: it gets a response if that comes soon."""
        self.has_ended = True
        self._rewatch()

    def _rewatch(self) -> None:
        """Watch the socket for what the present state needs.

        Never for what an event suggests: the event may be older than a response that was begun in the same
        turn, and the rest of that response would never be sent.
        """
        if self._out and not self._pages.are_awaited:
            events = WRITABLE
        elif self._reading:
            events = READABLE
        else:
            events = NOTHING if self.has_ended else ENDED
        self._loop.rewatch(self._fd, events)

    def when_gone(self, turn: int, abandon: Callable[[int], Effects]) -> None:
        """Call `abandon(now_ms)` if the connection closes before the response to that request."""
        self._waits[turn] = abandon
        if self.has_ended:
            self._loop.call_soon(self.close)

    # ---- sending

    def answer(self, parts: list[Part] | None, turn: int) -> None:
        """Send the response frame of request number `turn`; None: that request gets no response.

        A response waits for those of earlier requests.
        """
        if self.closed:
            return
        if self._waits:
            self._waits.pop(turn, None)
        if turn >= self.turn - 1:  # only the latest request's response can be under construction
            self.response_memory.made()
        if turn != self._due:
            self._early[turn] = parts
            return
        try:
            is_sent = self._answer_due(parts)
            while self._due in self._early:
                is_sent = self._answer_due(self._early.pop(self._due)) and is_sent
        except (OSError, StorageError) as problem:
            self._cannot_send(problem)
            return
        if not is_sent:
            self._busy = True
            self._rewatch()
        elif self._busy and self._is_free():
            self._go_on()

    def _answer_due(self, parts: list[Part] | None) -> bool:
        """Send the response to the oldest open request; True when nothing is left to send."""
        self._due += 1
        return self._send_now(parts) if parts is not None else not self._out

    def _is_free(self) -> bool:
        """Whether all responses are sent, so that a request of any kind may follow."""
        return not self._out and self._due >= self.turn

    def _go_on(self) -> None:
        """Go on with the next request, whose bytes may be here already."""
        self._busy = False
        if self._backlog or not self._reading:
            self._loop.call_soon(self._resume)
        else:
            self._settle()

    def _send_now(self, parts: list[Part]) -> bool:
        """Send a frame and keep what the socket does not take; True when nothing is left."""
        if self._out:
            self._queue(parts)
            return False
        only = parts[0] if len(parts) == 1 else joined(parts, _PARTS_PER_STEP)
        if type(only) is bytes:
            try:
                sent = self._send_bytes(only)
            except (BlockingIOError, InterruptedError):
                sent = 0
            if sent == len(only):
                return True
            self._queue([memoryview(only)[sent:]])
            return False
        self._queue(parts)
        return self._send()

    def _queue(self, parts: list[Part]) -> None:
        """Keep parts of a response until the peer reads them."""
        self._out.extend(parts)
        self.response_memory.unsent(self.response_memory.unsent_bytes + sum(map(held_bytes, parts)))

    def _on_writable(self) -> None:
        self.last_active_ms = self._runtime.now_ms()
        try:
            if self._send():
                self._rewatch()
                if self._is_free():
                    self._go_on()
            elif self._pages.are_awaited:
                self._rewatch()
        except ProtocolError as problem:
            self._server.on_bad_peer(self, problem)
        except (OSError, StorageError) as problem:
            self._cannot_send(problem)

    def _cannot_send(self, problem: Exception) -> None:
        """Close the connection: the peer or the records are gone, or, with a warning, a read failed."""
        if isinstance(problem, StorageError) and not isinstance(problem, RecordsTruncated):
            self.say_closed(f"records could not be read: {problem}")
        self.close()

    def _resume(self) -> None:
        """Handle the backlog after a response that was not sent from within `_on_bytes`."""
        if self.closed or self._busy:
            return
        try:
            if self._backlog:
                backlog = self._backlog
                self._keep_behind(memoryview(b""))
                self._on_bytes(memoryview(bytearray(backlog)))
            if not self._busy and not self.closed and not self._reading:
                self._reading = True
                self._rewatch()
        except ProtocolError as problem:
            self._server.on_bad_peer(self, problem)
        self._settle()

    def _send(self) -> bool:
        """Send what the socket takes, up to the limit of a step; True when nothing is left.

        After an error the caller closes the connection, because half of a frame may have been sent; the
        client asks again. OSError: the peer has disconnected. RecordsTruncated: the records were truncated,
        and others may be in their place. Any other StorageError: the file cannot be read.
        """
        out = self._out
        left = _PARTS_PER_STEP
        try:
            while out:
                if left <= 0:
                    return False
                part = out[0]
                if type(part) is FileSlice:
                    self._send_slice(part)
                    left -= _SENDFILE_PARTS if part.size_bytes > JOIN_BYTES_MAX else 1
                    continue
                data, count = self._joined()
                left -= count
                flags = socket.MSG_MORE if len(out) > count else 0
                sent = self._send_bytes(data, flags)
                held = -sum([held_bytes(out.popleft()) for _ in range(count)])
                if sent < len(data):
                    out.appendleft(memoryview(data)[sent:])
                    held += len(data) - sent
                self.response_memory.unsent(self.response_memory.unsent_bytes + held)
                if sent < len(data):
                    return False
        except (BlockingIOError, InterruptedError):
            return False
        return True

    def _joined(self) -> tuple[Buffer, int]:
        """Join the first parts up to JOIN_BYTES_MAX, reading small slices; return (bytes, parts taken)."""
        first = self._out[0]
        if len(self._out) == 1 and not isinstance(first, FileSlice):
            return first, 1
        chosen: list[Buffer] = []
        size = 0
        for part in self._out:
            length = part.size_bytes if isinstance(part, FileSlice) else len(part)
            if chosen and (size + length > JOIN_BYTES_MAX or len(chosen) >= _PARTS_PER_STEP):
                break
            data = part.read_ready() if isinstance(part, FileSlice) else part
            if data is None:
                break  # not in the page cache: a thread reads it when it is the first part
            chosen.append(data)
            size += length
        return chosen[0] if len(chosen) == 1 else b"".join(chosen), len(chosen)

    def _send_slice(self, part: FileSlice) -> None:
        """Send file bytes with sendfile; BlockingIOError when the socket takes none now."""
        fd = part.file.fileno()
        if fd < 0:
            self._out[0] = part.read()  # RecordsTruncated where it was truncated
            return
        step = min(part.size_bytes, _SENDFILE_STEP_BYTES)
        if not self._pages.are_here(part, step, self._runtime.execute, self._pages_are_here):
            raise BlockingIOError
        try:
            sent = os.sendfile(self._fd, fd, part.position, step)
        except OSError as problem:
            if problem.errno == errno.EIO:  # the file's error: sockets have no EIO
                raise storage_error("read", part.file.path, problem) from problem
            raise
        if sent == 0:
            why = "a segment is shorter than its index claims"
            raise StorageError(why, path=part.file.path, position=part.position)
        self._out.popleft()
        if sent < part.size_bytes:
            self._out.appendleft(FileSlice(part.file, part.position + sent, part.size_bytes - sent))

    def _pages_are_here(self) -> None:
        if not self.closed:
            self._rewatch()

    def close_slow(self) -> None:
        """Close the connection: its peer does not read its response, and others need that memory."""
        size = self.response_memory.unsent_bytes
        why = "it does not read its response while others wait for memory"
        self.say_closed(why, bytes=size, setting="firnline.answers.max.bytes")
        self.close()

    def close_sender(self, held_bytes: int, why: str) -> None:
        """Close the connection: others need the memory of its incomplete request."""
        reason = f"its incomplete request holds memory, and it {why}"
        self.say_closed(reason, bytes=held_bytes, setting="queued.max.request.bytes")
        self.close()

    def say_closed(self, reason: str, **fields: object) -> None:
        """Log why this node closes the connection."""
        log_line(CONNECTION_CLOSED(host=self.peer_host, reason=reason, **fields))

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._out.clear()
        self._pages.give_up()
        self.response_memory.close()
        self._early.clear()
        self._backlog = b""
        if self._complete_frame is not None:
            self._complete_frame.release()
            self._complete_frame = None
        self._frames.release()
        if self._memory is not None:
            self._memory.close()
        self._server.forget(self._fd)
        del self._stream  # it refers to us: without the cycle our memory is freed at once
        self._sock.close()
        waits, self._waits = self._waits, {}
        for abandon in waits.values():
            self._runtime.resume(abandon)
