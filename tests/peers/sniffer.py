"""A proxy in front of a node that writes down what passes, in words. WORLD.

    with Sniffer(listen_on, ("127.0.0.1", port), said.append): ...

`said` gets one `Exchange` for each answer that passed, decoded with our own messages, in the order of the
answers. Bytes go through as they came, also those we cannot read. For a look at what nodes say to each other:
python -m tests.peers.sniffer
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firnline.base.errors import ProtocolError
from firnline.client.wire import API_VERSIONS
from firnline.protocol.messages import messages_of
from firnline.protocol.messages.headers import RequestHeader, ResponseHeader
from firnline.protocol.schema import Message, Struct


@dataclass
class Exchange:
    """One request and its answer. `sent_s` and `answered_s` since the sniffer began."""

    client_id: str | None
    key: int
    version: int
    sent_s: float
    answered_s: float
    request: Message | bytes
    response: Message | bytes


class Sniffer:
    """Listens on a port of its own and passes everything on."""

    def __init__(self, port: int, to: tuple[str, int], said: Callable[[Exchange], object]) -> None:
        self._to, self._said = to, said
        self._began = time.monotonic()
        self._listening = socket.create_server(("127.0.0.1", port))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Sniffer":
        return self

    def __exit__(self, *_: object) -> None:
        for one in [self._listening, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._to, 1)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._open += [client, server]
            waiting: dict[int, Any] = {}
            for one, other, receive in (
                (client, server, self._on_request),
                (server, client, self._on_response),
            ):
                threading.Thread(
                    target=_pass_on, args=(one, other, receive, waiting), daemon=True
                ).start()

    def _on_request(self, frame: bytes, waiting: dict[int, Any]) -> None:
        header, request = read_request(frame)
        waiting[header.correlation_id] = (header, time.monotonic() - self._began, request)

    def _on_response(self, frame: bytes, waiting: dict[int, Any]) -> None:
        header, sent_s, request = waiting.pop(int.from_bytes(frame[:4], "big"))
        key, version = header.request_api_key, header.request_api_version
        response = read_response(frame, key, version)
        now_s = time.monotonic() - self._began
        self._said(Exchange(header.client_id, key, version, sent_s, now_s, request, response))


def read_request(frame: bytes) -> tuple[RequestHeader, Message | bytes]:
    """Return header and request of a frame without its length; the frame where we cannot read it."""
    header, _ = RequestHeader.read(frame, 1)
    key, version = header.request_api_key, header.request_api_version
    request: Message | bytes = frame
    with contextlib.suppress(KeyError, ProtocolError):
        kind, _ = messages_of(key)
        header, position = RequestHeader.read(frame, 2 if version in kind.flexible else 1)
        request, end = kind.read(frame, version, position)
        assert end == len(frame), "bytes after a request"
    return header, request


def read_response(frame: bytes, key: int, version: int) -> Message | bytes:
    """Return the answer to a request of that key and version; the frame where we cannot read it."""
    response: Message | bytes = frame
    with contextlib.suppress(KeyError, ProtocolError):
        kind, answer = messages_of(key)
        flexible = version in kind.flexible and key != API_VERSIONS
        _, position = ResponseHeader.read(frame, 1 if flexible else 0)
        response, end = answer.read(frame, version, position)
        assert end == len(frame), "bytes after a response"
    return response


def _pass_on(
    one: socket.socket,
    other: socket.socket,
    receive: Callable[[bytes, dict[int, Any]], None],
    waiting: dict[int, Any],
) -> None:
    data = b""
    with contextlib.suppress(OSError):
        while piece := one.recv(65536):
            data += piece
            while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
                receive(data[4:end], waiting)
                other.sendall(data[:end])
                data = data[end:]
    for end_ in (one, other):
        with contextlib.suppress(OSError):
            end_.shutdown(socket.SHUT_RDWR)


def shown(value: Any) -> Any:
    """Turn a message into plain values, without the fields that have their default; bytes as hex."""
    if isinstance(value, Struct):
        return {name: shown(getattr(value, name)) for name in value.fields}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return f"{len(data)} bytes" if len(data) > 40 else data.hex()
    return value
