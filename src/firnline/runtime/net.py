"""Sockets: frames in, frames out, requests of a connection one after the other. WORLD.

Each connection is a non-blocking socket watched by the loop. The next request of a connection is
taken up when the answer before it has left (C18): a peer that does not read its answers is not read
from, and costs one answer at most. A Produce is the exception: it has been appended when it is taken up, and
while it waits for followers or the disk the next ones are appended, too, so that one trip to the followers is
for all of them; answers leave in the order of their requests (docs/decisions/0011).
"""

import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVarTuple

from firnline.base.effects import Effects
from firnline.base.errors import Bug, CannotGoOn, ProtocolError, RecordsCut, StorageError
from firnline.base.limits import JOIN_BYTES_MAX, LARGE_REQUEST_BYTES, OPEN_REQUESTS_MAX
from firnline.base.ports import Buffer
from firnline.base.slices import FileSlice, held_bytes, joined, read_part
from firnline.base.units import MIB
from firnline.protocol.frame import SIZE_BYTES, FrameSplitter
from firnline.protocol.schema import Part
from firnline.runtime.bounds.admission import Admission, Room
from firnline.runtime.bounds.answers import Answers
from firnline.runtime.bounds.incoming import Incoming, Inlet
from firnline.runtime.disk import Pages, storage_error
from firnline.runtime.failed_requests import FailedRequests
from firnline.runtime.poll import BROKEN, ENDED, NOTHING, READABLE, WRITABLE, PollLoop
from firnline.runtime.turn import Answer

if TYPE_CHECKING:
    from firnline.api.context import RequestContext
    from firnline.api.dispatch import Dispatcher

_SENDFILE_STEP_BYTES = MIB
# What is sent in one step: parts of an answer, a few us each, or steps of sendfile, each of which counts as
# many parts. About a millisecond; the rest leaves in later turns.
_PARTS_PER_STEP = 256
_SENDFILE_PARTS = 64
_PRODUCE_KEY = b"\0\0"
Results = TypeVarTuple("Results")


class Executor(Protocol):
    """What connections need of the runtime: `Runtime` in `runtime/loop.py` is one."""

    dispatcher: "Dispatcher"  # for a listener that says nothing else
    admission: Admission
    answers: Answers
    incoming: Incoming
    failed_requests: FailedRequests
    now_ms: Callable[[], int]

    def execute(self, effects: Effects) -> None: ...

    def resume(self, then: Callable[[*Results, int], Effects], *results: *Results) -> None: ...

    def fail(self, problem: BaseException) -> None: ...

    def warn_seldom(self, line: str) -> None: ...


class Listener(Protocol):
    """What a connection needs of the listener that accepted it: `Server` in `runtime/listener.py` is one."""

    runtime: Executor
    loop: PollLoop
    dispatcher: "Dispatcher"
    listener: str
    frame_bytes_max: int

    def on_bad_peer(self, connection: "Connection", problem: ProtocolError) -> None: ...

    def forget(self, fd: int) -> None: ...


class Connection:
    """One client. States: reading, busy with a request, or sending its answer.

    turn  number of the request that is taken up next; who answers says which one
    """

    __slots__ = (
        "_at_once",
        "_backlog",
        "_busy",
        "_due",
        "_early",
        "_fd",
        "_frames",
        "_inlet",
        "_loop",
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
        "_whole",
        "closed",
        "dispatcher",
        "has_ended",
        "last_active_ms",
        "listener",
        "peer_host",
        "principal",
        "requests",
        "share",
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
        self._inlet: Inlet | None = None  # since the first request that did not come whole
        self._backlog = b""  # bytes that came behind the request in progress
        self._whole: memoryview | None = None  # a frame that waits to be taken up
        self._busy = False
        self.turn = 0
        self._due = 0  # turn of the oldest request that has no answer
        self._early: dict[int, list[Part] | None] = {}  # answers that others must leave before
        self._waits: dict[
            int, Callable[[int], Effects]
        ] = {}  # what to do if it closes before the answer
        self.has_ended = False  # the peer sends no more
        self._out: deque[Part] = deque()
        self._pages = Pages()
        self.share = self._runtime.answers.share(self)
        self._reading = True
        self.closed = False
        self.last_active_ms = now_ms
        self.requests = 0
        self.listener = server.listener
        self.peer_host = peer_host
        self.principal = "User:ANONYMOUS"

        self._loop.watch(self._fd, READABLE, self._on_ready)
        self._loop.streams[self._fd] = self._stream

    def step_name(self) -> str:
        """What its steps are called: the request that came last, on this kind of listener."""
        return f"request {self.dispatcher.latest_name}"

    @property
    def is_idle(self) -> bool:
        """Nothing was asked that is not answered; half a request may have come."""
        return not self._busy and self._due == self.turn and not self.closed

    # ---- receiving

    def _on_received(self, size: int) -> Answer | None:
        """Take `size` bytes in the shared buffer, with which a frame begins; 0: the peer has gone."""
        now_ms = self.last_active_ms = self._runtime.now_ms()
        try:
            answer = self._at_once(self, self._shared, size, now_ms)
            kind = type(answer)
            if (
                kind is bytes or kind is tuple
            ) and self._due == self.turn:  # nothing goes before it
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
        except Exception as problem:  # noqa: BLE001 - told below
            self.failed(problem)
        self._settle()
        return None

    def _on_unsent(self, answer: Answer, sent: int) -> None:
        """Send what is left of an answer after `sent` bytes of it."""
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
        """Have the loop receive for us whenever a request may begin, and only then."""
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
        # The peer pipelines: the kernel keeps its bytes until we are done with those before them. A
        # backlog outlives the answer by a turn, in which this may be called.
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
        """Whether the rest of a request may be received; else it is once there is memory for it."""
        growth_bytes, inlet = self._frames.growth_bytes, self._inlet
        if not growth_bytes or inlet is None:
            return True
        if inlet.is_stopped or inlet.must_wait(growth_bytes):
            if not inlet.is_stopped:
                inlet.wait(self._receive_again, self._runtime.now_ms())
            self._stop_reading()
            return False
        self._frames.target()
        self._note_held()
        return True

    def _receive_again(self) -> None:
        """There may be memory: the bytes that wait in the socket are told of again."""
        assert self._inlet is not None
        self._inlet.go_on(self._runtime.now_ms())
        if self._has_memory() and not self._reading:
            self._reading = True
            self._rewatch()

    def _note_held(self) -> None:
        """Count what is here of requests that are not handled."""
        size_bytes = self._frames.held_bytes + len(self._backlog)
        if self._inlet is None:
            if not size_bytes:
                return
            self._inlet = self._runtime.incoming.inlet(self)
        self._inlet.hold(size_bytes)

    def _keep(self, data: memoryview) -> None:
        """Keep the beginning of a request until the rest of it comes."""
        self._frames.keep(data)
        self._note_held()
        if self._inlet is not None and self._frames.buffer is not None:
            self._inlet.begins(len(data), self._runtime.now_ms())

    def _keep_behind(self, data: memoryview) -> None:
        """Keep what came behind the request in progress."""
        self._backlog = bytes(data)
        self._note_held()

    def is_too_slow(self, now_ms: int) -> bool:
        """Whether a request has begun that should be whole by now."""
        return self._inlet is not None and not self._busy and self._inlet.is_too_slow(now_ms)

    @property
    def is_receiving(self) -> bool:
        """Whether a request has begun that is not whole."""
        return self._frames.buffer is not None

    def _on_frame_part(self, size: int) -> None:
        if self._inlet is not None:
            self._inlet.came(size)
        frame = self._frames.received(size)
        if frame is None:
            return
        if self._inlet is not None:
            self._inlet.ends()
        room = self._runtime.admission.full_room(frame)
        if room is not None:
            self._whole = frame
            self._await_room(room)
        else:
            self._on_whole(frame)

    def _on_whole(self, frame: memoryview) -> None:
        """Handle a frame that has a buffer of its own."""
        self._on_frame(frame, len(frame), owns_bytes=self._frames.is_kept)
        frame.release()
        self._frames.release()
        self._note_held()

    def _await_room(self, room: Room) -> None:
        """Take the next request up when there is room for it; until then nothing is read of those behind."""
        self._busy = True
        if self._inlet is not None:
            self._inlet.stop(self._runtime.now_ms())
        room.wait(self._admitted)

    def _admitted(self) -> None:
        if self.closed:
            return
        self._busy = False
        if self._inlet is not None:
            self._inlet.go_on(self._runtime.now_ms())
        frame, self._whole = self._whole, None
        if frame is not None:
            try:
                self._on_whole(frame)
            except ProtocolError as problem:
                self._server.on_bad_peer(self, problem)
        self._resume()

    def _on_bytes(self, data: memoryview) -> None:
        """Handle the whole frames of `data`, as long as each is answered at once; keep the rest."""
        while not self.closed:
            if self._busy:
                self._keep_behind(data)
                return
            end = self._frames.whole(data)
            if not end:
                self._keep(data)
                return
            room = (
                self._runtime.admission.full_room(data[:end]) if end > LARGE_REQUEST_BYTES else None
            )
            if room is not None:
                self._keep_behind(data)
                self._await_room(room)
                return
            self._on_frame(data, end)
            data = data[end:]

    def _on_frame(self, data: memoryview, end: int, *, owns_bytes: bool = False) -> None:
        """Handle the frame in `data[:end]`, its size included."""
        now_ms = self.last_active_ms = self._runtime.now_ms()
        try:
            answer = self._at_once(self, data, end, now_ms)
            large = None
            if answer is None:
                self._busy = True
                frame = data[SIZE_BYTES:end]
                answer = self.dispatcher.on_frame(self, frame, now_ms, owns_bytes=owns_bytes)
                large = self.dispatcher.in_turns
                if large is not None:
                    self._runtime.admission.hold(large, end)
            self._do(answer)
            if large is None:  # else what follows must not be appended before what is left of it
                self._overlap(data)
        except ProtocolError:
            raise
        except Exception as problem:  # noqa: BLE001 - told below
            self.failed(problem)

    def _overlap(self, data: memoryview) -> None:
        """Have the next request taken up while this one waits, if it is a Produce: `data` begins with it."""
        if self._busy and not self._out and data[SIZE_BYTES : SIZE_BYTES + 2] == _PRODUCE_KEY:
            self._busy = self.closed or self.turn - self._due >= OPEN_REQUESTS_MAX

    def _do(self, answer: Answer | Effects) -> None:
        """Send an answer, or carry out what a request asks for instead."""
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
        """One strange request must not stop the node for everybody; a broken node must not go on.

        The rule stands in runtime/failed_requests.
        """
        if isinstance(problem, RecordsCut):
            self.close()
        elif isinstance(problem, (Bug, CannotGoOn, StorageError)):
            self._runtime.fail(problem)
        elif isinstance(problem, ProtocolError):
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
        """The peer ended its side while its request is under way: it is answered if that is soon."""
        self.has_ended = True
        self._rewatch()

    def _rewatch(self) -> None:
        """Wait for what is needed now. Not for what an event calls for: it may be older than an answer that
        was taken up in the same turn, which then would never be sent on."""
        if self._out and not self._pages.are_awaited:
            events = WRITABLE
        elif self._reading:
            events = READABLE
        else:
            events = NOTHING if self.has_ended else ENDED
        self._loop.rewatch(self._fd, events)

    def when_gone(self, turn: int, abandon: Callable[[int], Effects]) -> None:
        """Call `abandon(now_ms)` if this closes before the request of that turn is answered."""
        self._waits[turn] = abandon
        if self.has_ended:
            self._loop.call_soon(self.close)

    # ---- sending

    def answer(self, parts: list[Part] | None, turn: int) -> None:
        """Send the frame that answers the request of that turn, or nothing when it has no answer.

        Not before the requests before it are answered.
        """
        if self.closed:
            return
        if self._waits:
            self._waits.pop(turn, None)
        if turn >= self.turn - 1:  # an answer in the making is of the latest request
            self.share.made()
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
        """Answer the oldest request; True when nothing is left to be sent."""
        self._due += 1
        return self._send_now(parts) if parts is not None else not self._out

    def _is_free(self) -> bool:
        """Are the answers of all requests sent, so that any may follow?"""
        return not self._out and self._due >= self.turn

    def _go_on(self) -> None:
        """Take up the next request: its bytes may be here."""
        self._busy = False
        if self._backlog or not self._reading:
            self._loop.call_soon(self._resume)
        else:
            self._settle()

    def _send_now(self, parts: list[Part]) -> bool:
        """Send a frame; what the socket does not take is kept. True when nothing is left."""
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
        """Keep parts of an answer until the peer reads them."""
        self._out.extend(parts)
        self.share.unsent(self.share.unsent_bytes + sum(map(held_bytes, parts)))

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
        """The peer has gone, or what it asked for: nothing new. Or a file cannot be read, which is told."""
        if isinstance(problem, StorageError) and not isinstance(problem, RecordsCut):
            line = f"an answer to {self.peer_host} could not be read, and it asks again: {problem}"
            self._runtime.warn_seldom(line)
        self.close()

    def _resume(self) -> None:
        """The answer has left; its request was not handled inside `_on_bytes`, which would go on itself."""
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
        """Send what the socket takes, and a step allows; True when nothing is left. OSError: peer gone.

        RecordsCut when what is next was truncated: other records may be in its place, and half of a frame may
        have left. Another StorageError when the file cannot be read. Who called closes the connection, and
        the peer asks again; the operator is told, for indexes and headers may be in memory and still be read.
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
                self.share.unsent(self.share.unsent_bytes + held)
                if sent < len(data):
                    return False
        except (BlockingIOError, InterruptedError):
            return False
        return True

    def _joined(self) -> tuple[Buffer, int]:
        """Join the first parts up to JOIN_BYTES_MAX, small slices read; return (bytes, parts taken)."""
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
                break  # a thread reads it when it is next, and for now this part is not sent
            chosen.append(data)
            size += length
        return chosen[0] if len(chosen) == 1 else b"".join(chosen), len(chosen)

    def _send_slice(self, part: FileSlice) -> None:
        """Let the kernel move the file's bytes; BlockingIOError when the socket takes none now."""
        fd = part.file.fileno()
        if fd < 0:
            self._out[0] = part.read()  # RecordsCut where it was truncated
            return
        step = min(part.size_bytes, _SENDFILE_STEP_BYTES)
        if not self._pages.are_here(part, step, self._runtime.execute, self._pages_are_here):
            raise BlockingIOError
        try:
            sent = os.sendfile(self._fd, fd, part.position, step)
        except OSError as problem:
            if problem.errno == errno.EIO:  # not of a socket
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
        """Close it, because others wait for the bytes that are kept for its peer, who does not read them."""
        size = self.share.unsent_bytes
        line = f"closed a connection from {self.peer_host}, which does not read {size} bytes of its answer"
        self._runtime.warn_seldom(f"{line} while others wait for room (firnline.answers.max.bytes)")
        self.close()

    def close_sender(self, held_bytes: int, why: str) -> None:
        """Close it, because others need the memory that what came of its request holds."""
        line = f"closed a connection from {self.peer_host}, which {why}: what came of its request holds"
        self._runtime.warn_seldom(f"{line} {held_bytes} bytes (queued.max.request.bytes)")
        self.close()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._out.clear()
        self._pages.give_up()
        self.share.close()
        self._early.clear()
        self._backlog = b""
        if self._whole is not None:
            self._whole.release()
            self._whole = None
        self._frames.release()
        if self._inlet is not None:
            self._inlet.close()
        self._server.forget(self._fd)
        del self._stream  # it refers to us: memory comes back at once
        self._sock.close()
        waits, self._waits = self._waits, {}
        for abandon in waits.values():
            self._runtime.resume(abandon)
