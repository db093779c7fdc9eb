"""A node that only echoes, behind real sockets, and what a peer does with it."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from firnline.base.effects import Reply, SetTimer
from firnline.base.errors import ProtocolError
from firnline.base.slices import FileSlice
from firnline.protocol.schema import Part
from firnline.runtime.bounds.connections import Connections, Limits
from firnline.runtime.disk import RealFs
from firnline.runtime.listener import Server, listen
from firnline.runtime.loop import Runtime
from firnline.runtime.poll import PollLoop

LIMIT = 4 * 1024 * 1024
PRODUCE = (
    b"\0\0 produce "  # the API key that these frames begin with: appended when they are taken up
)


class Ticket:
    """What the echo needs of a RequestContext."""

    on_end: Callable[..., Any]  # by who admitted it

    def __init__(self, connection: Any, body: bytes) -> None:
        self.connection = connection
        self.turn = connection.turn
        self.body = body
        self.api_key = int.from_bytes(body[:2], "big")
        self.is_large = self.is_urgent = False
        self.response_memory = connection.response_memory


class Echo:
    """A dispatcher whose requests say what to do: their first byte is the command.

    e echo | s serve that many mebibytes from the file | w wait 30 ms, then echo | n no answer
    h hold until the test answers | b a bug in a handler | p not a request | PRODUCE wait in `produced`
    m a thousand slices of the file, of 8 bytes each
    l echo, encoded in slices until `is_encoded` | f a bug in the second of them
    """

    latest_name = "echo"
    sliced_request: Ticket | None = None

    def __init__(self, big: Path) -> None:
        self.file = RealFs().open(str(big))
        self.held: Ticket | None = None
        self.produced: list[Ticket] = []
        self.owned: list[memoryview] = []  # frames that were handed over
        self.slices = 0
        self.is_encoded = False

    def at_once(self, connection: Any, data: memoryview, size: int, now_ms: int) -> None:
        """Nothing is usual here."""

    def on_frame(
        self, connection: Any, frame: memoryview, now_ms: int, *, owns_bytes: bool = False
    ) -> list[Any]:
        ticket = Ticket(connection, bytes(frame))
        if owns_bytes:
            self.owned.append(frame)
        self.sliced_request = None
        if ticket.body.startswith(PRODUCE):
            self.produced.append(ticket)
            if ticket.body.endswith(b"in slices"):
                self.sliced_request = ticket
            return []
        command = ticket.body[:1]
        ticket.is_large = command in (b"l", b"f")
        if command == b"w":
            reply = Reply(context=ticket, message=1)
            key = ("wait", id(connection))
            return [SetTimer(key=key, at_ms=now_ms + 30, then=lambda now: [reply])]
        if command == b"h":
            self.held = ticket
            return []
        if command == b"p":
            raise ProtocolError("not a request")
        if command == b"b":
            raise KeyError("a bug of ours")
        return [Reply(context=ticket, message=None if command == b"n" else 1)]

    def encode(self, reply: Reply) -> list[Part]:
        body = reply.context.body
        if body[:1] == b"s":
            size = body[1] << 20
            return [struct.pack(">i", size), FileSlice(self.file, 0, size)]
        if body[:1] == b"m":
            slices = [FileSlice(self.file, 0, 8) for _ in range(1000)]
            return [struct.pack(">i", 8000), *slices]
        return [struct.pack(">i", len(body)) + body]

    def encoding(self, reply: Reply) -> Iterator[int]:
        while not self.is_encoded:
            self.slices += 1
            if self.slices > 1 and reply.context.body.startswith(b"f"):
                raise KeyError("a bug of ours")
            yield len(reply.context.body)
        return self.encode(reply)  # type: ignore[return-value]


class QuietNode:
    """A node with nothing to do."""

    def start(self, now_ms: int) -> list[Any]:
        return []


class Running:
    """A runtime on a thread of its own."""

    latest_name = "echo"

    def __init__(self, big: Path) -> None:
        self.loop = PollLoop()
        node: Any = QuietNode()
        self.runtime = Runtime(node, self.loop, threads={"read": 1})
        self.runtime.dispatcher = Echo(big)  # type: ignore[assignment]
        self.limits = Limits(total=8)
        sock = listen("127.0.0.1", 0)
        self.port: int = sock.getsockname()[1]
        self.server = Server(
            self.runtime,
            self.loop,
            sock,
            listener="TEST",
            frame_bytes_max=LIMIT,
            idle_ms=600_000,
            counted=Connections(lambda: self.limits),
        )
        self.runtime.servers.append(self.server)
        self.thread = threading.Thread(target=self.loop.run)

    def connect(self, host: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 20, source_address=(host, 0))

    def on_loop(self, call: Any) -> None:
        """Run `call` on the loop's thread and wait for it."""
        done = threading.Event()

        def then(result: Any, now_ms: int) -> list[Any]:
            call()
            done.set()
            return []

        self.runtime._doorbell.ring(then, None)
        assert done.wait(20)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def read_frame(sock: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", read_exactly(sock, 4))
    return read_exactly(sock, size)


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the connection was closed"
        data += piece
    return bytes(data)


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def produced(node: Running, count: int) -> list[Ticket]:
    """Wait until that many were taken up, and a turn longer; return all that were."""
    echo: Any = node.runtime.dispatcher
    deadline = time.monotonic() + 20
    while len(echo.produced) < count and time.monotonic() < deadline:
        node.on_loop(lambda: None)
    for _ in range(3):
        node.on_loop(lambda: None)
    found: list[Ticket] = echo.produced
    return found


def reply(node: Running, *tickets: Ticket) -> None:
    replies: list[Any] = [Reply(context=ticket, message=1) for ticket in tickets]
    node.on_loop(lambda: node.runtime.execute(replies))
