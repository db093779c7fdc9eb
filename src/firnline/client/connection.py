"""One blocking connection to one broker. WORLD.

    with Connection("127.0.0.1", 9092) as broker:
        answer = broker.ask(MetadataRequest(topics=None))

Uses the highest version that both sides know, unless a version is given.
"""

import queue
import socket
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from firnline.base.errors import FirnlineError, ProtocolError
from firnline.client.deadline import Deadline
from firnline.client.wire import (
    choose_version,
    decode_answer,
    decode_size,
    decode_versions,
    encode_request,
    greeting,
)
from firnline.protocol.schema import Message, Versions

_PIECE_BYTES = 1 << 20
# RFC 8305, "Connection Attempt Delay": how long one address may be silent before the next is tried as well.
_NEXT_AFTER_S = 0.25


class Unreachable(FirnlineError):
    """A broker could not be reached, or hung up: whoever runs it must act."""


class NoAnswer(Unreachable):
    """A broker may have been reached, but did not answer in time."""


class NoController(Unreachable):
    """Brokers answer, but none of the controllers does, so nothing of the cluster can be changed."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the cluster has no controller: {why}; `firnline cluster status` shows more"
        )


class Connection:
    """A connection that is opened when it is first used. Not thread-safe.

    timeout_s  how long the broker may be silent
    deadline   until when every answer must be complete; None: for as long as the broker is not silent
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float = 10.0,
        deadline: Deadline | None = None,
        client_id: str = "firnline",
    ) -> None:
        self.address = f"{host}:{port}"
        self._host, self._port = host, port
        self._timeout_s = timeout_s
        self._deadline = deadline
        self._client_id = client_id
        self._socket: socket.socket | None = None
        self._spoken: dict[int, Versions] | None = None
        self._correlation_id = 0

    def ask(
        self,
        request: Message,
        *,
        version: int | None = None,
        timeout_s: float | None = None,
        deadline: Deadline | None = None,
    ) -> Any:
        """Send one request and return its response.

        version    None: the highest version that both know; a broker is asked once for its versions
        timeout_s  instead of the connection's own; for requests that wait on purpose
        deadline   instead of the connection's own

        Raises Unreachable, ProtocolError, KafkaError(UNSUPPORTED_VERSION). Error codes inside the response
        are left to the caller.
        """
        if version is None:
            version = choose_version(request, self.spoken(deadline=deadline))
        self._correlation_id += 1
        data = encode_request(
            request,
            version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        frame = self._exchange(data, timeout_s, deadline)
        return decode_answer(request, version, frame, correlation_id=self._correlation_id)

    def spoken(self, *, deadline: Deadline | None = None) -> dict[int, Versions]:
        """Return the versions that the broker supports, by API key."""
        if self._spoken is None:
            self._correlation_id += 1
            frame = self._exchange(greeting(self._correlation_id, self._client_id), None, deadline)
            self._spoken = decode_versions(frame, correlation_id=self._correlation_id)
        return self._spoken

    def close(self) -> None:
        """Close the connection; the next `ask` opens it again."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._spoken = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _exchange(
        self, data: bytes, timeout_s: float | None, deadline: Deadline | None
    ) -> memoryview:
        wait = _Wait(
            self._timeout_s if timeout_s is None else timeout_s, deadline or self._deadline
        )
        try:
            connected = self._connected(wait)
            connected.settimeout(wait.seconds())
            connected.sendall(data)
            size = decode_size(self._receive(connected, 4, wait))
            return self._receive(connected, size, wait)
        except TimeoutError:
            self.close()
            raise NoAnswer(f"{self.address} did not answer in time") from None
        except OSError as problem:
            self.close()
            raise Unreachable(
                f"cannot reach a broker at {self.address}: {problem.strerror or problem}"
            ) from None
        except ProtocolError:
            self.close()
            raise

    def _connected(self, wait: "_Wait") -> socket.socket:
        if self._socket is None:
            self._socket = _connect(self._host, self._port, wait)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _receive(self, connected: socket.socket, size: int, wait: "_Wait") -> memoryview:
        """Receive exactly `size` bytes. Memory grows with the bytes received, not with the announced size."""
        buffer = bytearray()
        while len(buffer) < size:
            connected.settimeout(wait.seconds())
            piece = connected.recv(min(size - len(buffer), _PIECE_BYTES))
            if not piece:
                raise ConnectionResetError(0, "it closed the connection without an answer")
            buffer += piece
        return memoryview(buffer)


class _Wait:
    """How long the next step of an exchange may take."""

    def __init__(self, timeout_s: float, deadline: Deadline | None) -> None:
        self._timeout_s, self._deadline = timeout_s, deadline

    def seconds(self) -> float:
        """Return the seconds, more than 0. Raises TimeoutError if none are left."""
        if self._deadline is None:
            return self._timeout_s
        left_s = min(self._timeout_s, self._deadline.left_s())
        if left_s <= 0:
            raise TimeoutError
        return left_s


def _connect(host: str, port: int, wait: _Wait) -> socket.socket:
    """Connect to the first address of `host` that accepts; each gets its share of the time."""
    try:
        found = _resolved(host, port, wait)
    except (OverflowError, UnicodeError) as problem:  # an impossible port or name
        raise ConnectionError(0, str(problem)) from None
    failed: OSError = ConnectionError(0, "it has no address")
    for number, address in enumerate(found):
        try:
            share_s = wait.seconds() / (len(found) - number)
            return socket.create_connection((address, port), share_s)
        except OverflowError as problem:
            raise ConnectionError(0, str(problem)) from None
        except OSError as problem:
            failed = problem
    raise failed


def _resolved(host: str, port: int, wait: _Wait) -> list[str]:
    """Return the addresses of a host. A name server that hangs is left waiting in its thread."""
    answers: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()

    def resolve(flags: int = 0) -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
            answers.put(list(dict.fromkeys(str(each[4][0]) for each in found)))
        except (OSError, OverflowError, UnicodeError) as problem:
            answers.put(problem)

    if host.replace(".", "").isdecimal() or ":" in host:
        resolve(socket.AI_NUMERICHOST)
    else:
        threading.Thread(target=resolve, daemon=True).start()
    try:
        answer = answers.get(timeout=wait.seconds())
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def first_to_answer(connections: Sequence[Connection], *, wait_s: float) -> Connection:
    """Return the connection whose broker answers first. They are greeted in their order.

    A broker that is silent for a moment, or fails, is followed by the next. Raises the error of the only one,
    or Unreachable with that of each when none answers within `wait_s`.
    """
    if len(connections) == 1:
        connections[0].spoken()
        return connections[0]
    answers: queue.SimpleQueue[tuple[Connection, FirnlineError | None]] = queue.SimpleQueue()

    def greet(connection: Connection) -> None:
        try:
            connection.spoken()
            answers.put((connection, None))
        except FirnlineError as problem:
            answers.put((connection, problem))

    failed: dict[str, str] = {}
    waiting = list(connections)
    until_s = time.monotonic() + wait_s
    while len(failed) < len(connections):
        if waiting:
            threading.Thread(target=greet, args=(waiting.pop(0),), daemon=True).start()
        left_s = until_s - time.monotonic()
        try:
            found, problem = answers.get(timeout=min(_NEXT_AFTER_S, left_s) if waiting else left_s)
        except (queue.Empty, ValueError):
            if time.monotonic() >= until_s:
                break
            continue
        if problem is None:
            return found
        failed[found.address] = str(problem)
    silent = [each.address for each in connections if each.address not in failed]
    said = [*failed.values(), *(f"{address} did not answer in time" for address in silent)]
    error = NoAnswer if silent else Unreachable
    raise error(f"none of {len(connections)} addresses answered: {'; '.join(said)}")


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`, an IPv6 host in brackets. Raises Unreachable."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise Unreachable(f"{text!r} is not an address: expected host:port")
    return host.strip("[]") or "127.0.0.1", int(port)
