"""Connections to other nodes: carries out `Send`. WORLD.

There is one non-blocking connection per peer and channel, opened by the first request. It starts with an
ApiVersions request; then requests are sent in order, without waiting for responses, which come back in the
same order. After any error the connection is closed, and every waiting request gets `Unanswered`: a peer that
is unreachable, silent or sends garbage is normal, and no reason to stop a node.
"""

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any, Protocol, TypeVarTuple

from firnline.base.effects import Effects, Peer, Send, Submit, Unanswered
from firnline.base.errors import KafkaError, ProtocolError
from firnline.base.limits import LINK_REQUESTS_MAX
from firnline.base.log_lines.process import LINK_CLOSED
from firnline.base.ports import Buffer
from firnline.base.units import KIB, PORT_MAX
from firnline.client.wire import (
    choose_version,
    decode_answer,
    decode_answer_in_slices,
    decode_versions,
    encode_request_in_parts,
    greeting,
)
from firnline.protocol.frame import SIZE_BYTES, BufferPool, FrameSplitter
from firnline.protocol.schema import Message, Versions
from firnline.runtime.logs.lines import log_line
from firnline.runtime.poll import READABLE, WRITABLE, PollLoop
from firnline.runtime.timers import Timer

_RECEIVE_BYTES = 256 * KIB
# As in Kafka's quorum. Requests during the backoff fail at once.
_BACKOFF_MS = 50
_BACKOFF_MAX_MS = 500
# Less than the ten minutes after which the peer closes an idle connection, so that no request meets that.
IDLE_MS = 540_000
_CONNECTING = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR)

Address = tuple[int, Any]  # family, argument of `connect`
Results = TypeVarTuple("Results")


class Stage(Enum):
    """The stages of a connection."""

    CLOSED = "closed"
    RESOLVING = "resolving"
    CONNECTING = "connecting"
    GREETING = "greeting"
    READY = "ready"


class Executor(Protocol):
    """The part of the runtime that links need: `Runtime` in `runtime/loop.py` has it."""

    loop: PollLoop
    now_ms: Callable[[], int]

    def execute(self, effects: Effects) -> None: ...

    def resume(self, then: Callable[[*Results, int], Effects], *results: *Results) -> None: ...


class _Ask:
    """One request that waits to be sent, or for its response."""

    __slots__ = ("effect", "request", "timer", "version")

    def __init__(self, effect: Send[Any], timer: Timer) -> None:
        assert isinstance(effect.request, Message), "only messages are sent"
        self.effect = effect
        self.request: Message = effect.request
        self.timer = timer
        self.version = 0


class Links:
    """All connections that this node has opened."""

    def __init__(self, runtime: Executor, *, client_id: str, frame_bytes_max: int) -> None:
        self.runtime = runtime
        self.client_id = client_id
        self.frame_bytes_max = frame_bytes_max
        self.shared = memoryview(bytearray(_RECEIVE_BYTES))
        self.buffers = BufferPool()
        self._links: dict[tuple[Peer, str], Link] = {}

    def send(self, effect: Send[Any]) -> None:
        """Send a request; its continuation is called exactly once, in a later turn."""
        key = (effect.peer, effect.channel)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = Link(self, effect.peer)
        link.send(effect)

    def sweep(self, now_ms: int) -> None:
        """Close and remove idle connections."""
        for key, link in list(self._links.items()):
            if link.is_idle and now_ms - link.last_active_ms > IDLE_MS:
                link.close()
                del self._links[key]

    @property
    def connection_count(self) -> int:
        """The number of connections that are open or being opened."""
        return sum(link.stage is not Stage.CLOSED for link in self._links.values())

    def close(self) -> None:
        """Close all connections; no continuation is called."""
        for link in self._links.values():
            link.close()
        self._links.clear()


class Link:
    """One connection, and its requests."""

    def __init__(self, links: Links, peer: Peer) -> None:
        self._links = links
        self._runtime = links.runtime
        self._loop: PollLoop = links.runtime.loop
        self._peer = peer
        self.stage = Stage.CLOSED
        self.last_active_ms = self._runtime.now_ms()
        self._addresses: list[Address] = []
        self._sock: socket.socket | None = None
        self._frames = FrameSplitter(links.buffers, frame_bytes_max=links.frame_bytes_max)
        self._out: deque[Buffer] = deque()
        self._is_blocked = False
        self._spoken: dict[int, Versions] = {}
        self._correlation_id = 0
        self._waiting: deque[_Ask] = deque()
        self._in_flight: dict[int, _Ask] = {}
        # Failures in a row without a response, and the time of the next attempt.
        self._failures = 0
        self._retry_at_ms = 0
        self._why = "not connected"
        # The number of the attempt: a lookup of an earlier one may still end.
        self._attempt = 0

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._in_flight

    # ---- asking

    def send(self, effect: Send[Any]) -> None:
        now_ms = self._runtime.now_ms()
        if self.stage is Stage.CLOSED and now_ms < self._retry_at_ms:
            self._call_back(effect.then, Unanswered(why=self._why))
            return
        if len(self._waiting) + len(self._in_flight) >= LINK_REQUESTS_MAX:
            self._call_back(effect.then, Unanswered(why=f"too much waits for {self._name}"))
            return
        self.last_active_ms = now_ms
        ask = _Ask(effect, self._loop.call_later(effect.timeout_ms / 1000, self._on_timeout))
        if self.stage is Stage.READY:
            self._transmit(ask)
            return
        self._waiting.append(ask)
        if self.stage is Stage.CLOSED:
            self._begin()

    def _transmit(self, ask: _Ask) -> None:
        effect = ask.effect
        try:
            ask.version = choose_version(
                ask.request,
                self._spoken,
                version_min=effect.version_min,
                version_max=effect.version_max,
            )
        except KafkaError as problem:
            ask.timer.cancel()
            why = Unanswered(why=f"{self._name}: {problem}", is_unsupported=True)
            self._call_back(effect.then, why)
            return
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        self._in_flight[self._correlation_id] = ask
        parts = encode_request_in_parts(
            ask.request,
            version=ask.version,
            correlation_id=self._correlation_id,
            client_id=self._links.client_id,
        )
        self._write(*parts)

    def _on_timeout(self) -> None:
        self._drop("no answer in time")

    def _call_back(self, then: Callable[[Unanswered, int], Effects], answer: Unanswered) -> None:
        """Call back in the next turn, because the caller has not returned yet."""
        self._loop.call_soon(self._runtime.resume, then, answer)

    # ---- connecting

    @property
    def _name(self) -> str:
        return f"{self._peer.host}:{self._peer.port}"

    def _begin(self) -> None:
        self._attempt += 1
        if (
            not 0 < self._peer.port <= PORT_MAX
        ):  # the address comes from another node, which may be wrong
            self._drop("there is no such port")
            return
        family = _family_of(self._peer.host)
        if family is not None:
            self._addresses = [(family, (self._peer.host, self._peer.port))]
            self._connect()
            return
        self.stage = Stage.RESOLVING
        submit = Submit(
            name=f"look up {self._peer.host}",
            pool="names",
            work=partial(_look_up, self._peer.host, self._peer.port),
            then=partial(self._on_looked_up, self._attempt),
        )
        self._runtime.execute([submit])

    def _on_looked_up(self, attempt: int, found: list[Address] | Exception, now_ms: int) -> Effects:
        if self.stage is not Stage.RESOLVING or attempt != self._attempt:
            return []
        if isinstance(found, Exception):
            self._drop(f"its address is not found ({found})")
        else:
            self._addresses = list(found)
            self._connect()
        return []

    def _connect(self) -> None:
        """Try the next address; the connection is open when its socket is writable."""
        if not self._addresses:
            self._drop("it has no address")
            return
        family, address = self._addresses.pop(0)
        self.stage = Stage.CONNECTING
        try:
            sock = socket.socket(
                family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            )
        except OSError as problem:
            self._drop(_reason(problem))
            return
        self._sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            code = sock.connect_ex(address)
        except OSError as problem:
            code = problem.errno or errno.EINVAL
        self._loop.watch(sock.fileno(), WRITABLE, self._on_ready)
        if code not in (0, *_CONNECTING):
            self._on_not_connected(code)

    def _on_connected(self) -> None:
        sock = self._sock
        assert sock is not None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._on_not_connected(code)
            return
        self.stage = Stage.GREETING
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        self._loop.rewatch(sock.fileno(), READABLE)
        self._write(greeting(self._correlation_id, self._links.client_id))

    def _on_not_connected(self, code: int) -> None:
        if self._addresses:
            self._hang_up()
            self._connect()
        else:
            self._drop(os.strerror(code))

    # ---- bytes

    def _on_ready(self, events: int) -> None:
        if self.stage is Stage.CONNECTING:
            self._on_connected()
            return
        if events & WRITABLE:
            self._flush()
        if events & ~WRITABLE and self._sock is not None:
            self._receive()

    def _write(self, *parts: Buffer) -> None:
        is_idle = not self._out
        self._out.extend(parts)
        if is_idle:
            self._flush()

    def _flush(self) -> None:
        sock, out = self._sock, self._out
        assert sock is not None
        was_blocked, self._is_blocked = self._is_blocked, False
        try:
            while out:
                sent = sock.send(out[0], socket.MSG_MORE if len(out) > 1 else 0)
                part = out.popleft()
                if sent < len(part):
                    out.appendleft(memoryview(part)[sent:])
        except (BlockingIOError, InterruptedError):
            self._is_blocked = True
        except OSError as problem:
            self._drop(_reason(problem))
            return
        if self._is_blocked != was_blocked:
            self._loop.rewatch(sock.fileno(), READABLE | WRITABLE if self._is_blocked else READABLE)

    def _receive(self) -> None:
        sock = self._sock
        assert sock is not None
        try:
            if self._frames.buffer is None:
                shared = self._links.shared
                size = sock.recv_into(shared)
                if size:
                    self._on_bytes(shared[:size])
            else:
                size = sock.recv_into(self._frames.target())
                frame = self._frames.received(size) if size else None
                if frame is not None:
                    data: Buffer = frame[SIZE_BYTES:]
                    if not self._frames.is_kept:
                        data = bytes(data)
                    frame.release()
                    self._frames.release()
                    self._on_frame(data)
            if not size:
                self._drop("it hung up")
        except (BlockingIOError, InterruptedError):
            pass
        except ProtocolError as problem:
            self._drop(f"its answer is not understood: {problem}")
        except OSError as problem:
            self._drop(_reason(problem))

    def _on_bytes(self, data: memoryview) -> None:
        """Handle the complete frames of `data`, keep the rest. An effect may close the connection."""
        attempt = self._attempt
        frames: list[bytes] = []
        while end := self._frames.first_frame_end(data):
            frames.append(bytes(data[SIZE_BYTES:end]))
            data = data[end:]
        self._frames.keep(data)
        for each in frames:
            if self._sock is None or self._attempt != attempt:
                return
            self._on_frame(each)

    def _on_frame(self, frame: Buffer) -> None:
        self.last_active_ms = self._runtime.now_ms()
        if self.stage is Stage.GREETING:
            self._on_greeted(frame)
            return
        correlation_id = next(iter(self._in_flight), None)
        if correlation_id is None:
            raise ProtocolError("a response without a request")
        ask = self._in_flight[correlation_id]
        if len(frame) > _RECEIVE_BYTES:
            del self._in_flight[correlation_id]
            ask.timer.cancel()
            self._loop.run_in_slices(self._decoding(ask, correlation_id, frame))
            return
        answer = decode_answer(ask.request, ask.version, frame, correlation_id=correlation_id)
        del self._in_flight[correlation_id]
        ask.timer.cancel()
        self._failures = 0
        self._runtime.resume(ask.effect.then, answer)

    def _decoding(self, ask: _Ask, correlation_id: int, frame: Buffer) -> Iterator[None]:
        """Decode a large response, such as that of a Fetch of ten thousand partitions, then call back.

        The response counts, even if the connection is closed meanwhile.
        """
        attempt = self._attempt
        steps = decode_answer_in_slices(
            ask.request, ask.version, frame, correlation_id=correlation_id
        )
        try:
            while True:
                next(steps)
                yield
        except StopIteration as done:
            if self._attempt == attempt:  # otherwise the connection has failed since
                self._failures = 0
            self._runtime.resume(ask.effect.then, done.value)
        except ProtocolError as problem:
            if self._attempt == attempt:
                self._drop(f"its answer is not understood: {problem}")
            self._give_up(ask)

    def _on_greeted(self, frame: Buffer) -> None:
        try:
            self._spoken = decode_versions(frame, correlation_id=self._correlation_id)
        except KafkaError as problem:
            raise ProtocolError(
                "its ApiVersions response is not understood", problem=problem
            ) from None
        self.stage = Stage.READY
        waiting, self._waiting = self._waiting, deque()
        while waiting and self.stage is Stage.READY:
            self._transmit(waiting.popleft())
        # If the connection fails meanwhile, the rest gets the same error.
        for ask in waiting:
            self._give_up(ask)

    # ---- ending

    def _drop(self, why: str) -> None:
        """Close the connection, fail its requests, and wait for the backoff."""
        self._failures += 1
        backoff_ms = min(_BACKOFF_MAX_MS, _BACKOFF_MS << min(self._failures - 1, 10))
        self._retry_at_ms = self._runtime.now_ms() + backoff_ms
        self._why = f"{self._name}: {why}"
        log_line(LINK_CLOSED(peer=self._name, reason=why))
        asks = [*self._in_flight.values(), *self._waiting]
        self.close()
        for ask in asks:
            self._give_up(ask)

    def _give_up(self, ask: _Ask) -> None:
        ask.timer.cancel()
        self._call_back(ask.effect.then, Unanswered(why=self._why))

    def close(self) -> None:
        """Close the connection without calling back."""
        self._hang_up()
        for ask in (*self._in_flight.values(), *self._waiting):
            ask.timer.cancel()
        self._in_flight.clear()
        self._waiting.clear()
        self._out.clear()
        self._is_blocked = False
        self._frames.release()
        self._addresses = []
        self._attempt += 1
        self.stage = Stage.CLOSED

    def _hang_up(self) -> None:
        if self._sock is not None:
            self._loop.unwatch(self._sock.fileno())
            self._sock.close()
            self._sock = None


def _family_of(host: str) -> int | None:
    """The family of a numeric address; None for a host name, which has to be looked up."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return family
    return None


def _look_up(host: str, port: int) -> list[Address]:
    """Look up a host name, on a thread, because a name server may be slow."""
    rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in rows]


def _reason(problem: OSError) -> str:
    return problem.strerror or str(problem)
