"""One blocking connection to one broker. WORLD.

    with Connection("127.0.0.1", 9092) as broker:
        answer = broker.ask(MetadataRequest(topics=None))

Uses the highest version that both sides know, unless a version is given.
"""

import socket
from types import TracebackType
from typing import Any, Self

from firnline.base.errors import FirnlineError, ProtocolError
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


class Unreachable(FirnlineError):
    """A broker could not be reached, or hung up: whoever runs it must act."""


class NoAnswer(Unreachable):
    """A broker may have been reached, but did not answer in time."""


class Connection:
    """A connection that is opened when it is first used. Not thread-safe."""

    def __init__(
        self, host: str, port: int, *, timeout_s: float = 10.0, client_id: str = "firnline"
    ) -> None:
        self.address = f"{host}:{port}"
        self._host, self._port = host, port
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._socket: socket.socket | None = None
        self._spoken: dict[int, Versions] | None = None
        self._correlation_id = 0

    def ask(
        self, request: Message, *, version: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """Send one request and return its response.

        version    None: the highest version that both know; a broker is asked once for its versions
        timeout_s  instead of the connection's own; for requests that wait on purpose

        Raises Unreachable, ProtocolError, KafkaError(UNSUPPORTED_VERSION). Error codes inside the response
        are left to the caller.
        """
        if version is None:
            version = choose_version(request, self.spoken())
        self._correlation_id += 1
        data = encode_request(
            request,
            version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        frame = self._exchange(data, timeout_s)
        return decode_answer(request, version, frame, correlation_id=self._correlation_id)

    def spoken(self) -> dict[int, Versions]:
        """Return the versions that the broker supports, by API key."""
        if self._spoken is None:
            self._correlation_id += 1
            frame = self._exchange(greeting(self._correlation_id, self._client_id), None)
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

    def _exchange(self, data: bytes, timeout_s: float | None) -> memoryview:
        try:
            connected = self._connected()
            connected.settimeout(self._timeout_s if timeout_s is None else timeout_s)
            connected.sendall(data)
            size = decode_size(self._receive(connected, 4))
            return self._receive(connected, size)
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

    def _connected(self) -> socket.socket:
        if self._socket is None:
            try:
                self._socket = socket.create_connection((self._host, self._port), self._timeout_s)
            except (OverflowError, UnicodeError) as problem:  # an impossible port or name
                raise ConnectionError(0, str(problem)) from None
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _receive(self, connected: socket.socket, size: int) -> memoryview:
        """Receive exactly `size` bytes. Memory grows with the bytes received, not with the announced size."""
        buffer = bytearray()
        while len(buffer) < size:
            piece = connected.recv(min(size - len(buffer), _PIECE_BYTES))
            if not piece:
                raise ConnectionResetError(0, "it closed the connection without an answer")
            buffer += piece
        return memoryview(buffer)


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`, an IPv6 host in brackets. Raises Unreachable."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise Unreachable(f"{text!r} is not an address: expected host:port")
    return host.strip("[]") or "127.0.0.1", int(port)
