"""A proxy between a broker and an S3 server, which does to requests what a test says. WORLD.

    with StoreProxy(server) as proxy:                    # `proxy.settings` are those of the store behind it
        proxy.add("burst", Fault(method="PUT", status=503))
        proxy.add("late", Fault(key=".log", delay_s=2))
        proxy.remove("burst")
        proxy.requests["PUT"], proxy.most_at_once

A request meets the first fault that fits it. Bodies pass through memory. S3 signs the name of the host, which
is passed on as the client sent it.
"""

import contextlib
import http.client
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.peers.servers import Server

_GIVE_UP_S = 120.0
_SAID = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>{code}</Code><Message>{code}, as the test wants it</Message></Error>"""
_CODES = {503: "SlowDown", 500: "InternalError", 403: "ExpiredToken"}
# Of one connection to the next; the client says what it needs itself.
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass
class Fault:
    """What happens to requests.

    method, key  the requests it is for: of this method, with this in their path and query; "" fits all
    count        how many of them; None: all
    delay_s      the request reaches the store so much later
    hangs        the request never reaches the store, and has no answer until the fault is removed
    holds        the request reaches the store when the fault is removed
    status       an answer of this status with S3's `code`, and nothing reaches the store
    resets       "before": the connection breaks before the request reaches the store; "after": the store has
                 done it, and its answer is lost
    cut_bytes    the connection breaks after so many bytes of the answer's body
    flips        the last byte of the answer's body is another one
    pretends     an answer 204, and nothing reaches the store
    """

    method: str = ""
    key: str = ""
    count: int | None = None
    delay_s: float = 0.0
    hangs: bool = False
    holds: bool = False
    status: int = 0
    code: str = ""
    resets: str = ""
    cut_bytes: int = -1
    flips: bool = False
    pretends: bool = False
    met: int = 0
    is_over: threading.Event = field(default_factory=threading.Event)

    def fits(self, method: str, path: str) -> bool:
        """Whether a request meets it."""
        if self.count is not None and self.met >= self.count:
            return False
        return self.method in ("", method) and self.key in path


class StoreProxy:
    """Listens on a port of its own, which stays the same over `stop` and `start`."""

    def __init__(self, server: Server, *, latency_ms: int = 0) -> None:
        self.latency_ms = latency_ms
        self.to = urlsplit(server.settings["endpoint"])
        self.requests: Counter[str] = Counter()
        self.most_at_once = 0
        self._at_once = 0
        self._faults: dict[str, Fault] = {}
        self._change = threading.Lock()
        self._server: _Server | None = None
        self._port = 0
        self.start()
        self.settings = {**server.settings, "endpoint": self.endpoint}

    @property
    def endpoint(self) -> str:
        """The address to give to clients."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._faults):
            self.remove(name)
        self.stop()

    def start(self) -> None:
        """Accept connections."""
        if self._server is None:
            self._server = _Server(self, self._port)
            self._port = self._server.server_address[1]
            threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections and break the open ones, as a store that is gone does."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            server.break_all()

    def add(self, name: str, fault: Fault) -> Fault:
        """Let requests meet a fault, from now on."""
        with self._change:
            self._faults[name] = fault
        return fault

    def remove(self, name: str) -> None:
        """End a fault; requests that hang in it break."""
        with self._change:
            fault = self._faults.pop(name, None)
        if fault is not None:
            fault.is_over.set()

    def total(self) -> int:
        """How many requests have come."""
        return sum(self.requests.values())

    # ---- of the handlers

    def came(self, method: str, path: str) -> Fault | None:
        """Count a request; return the fault that it meets."""
        with self._change:
            self.requests[method] += 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            for fault in self._faults.values():
                if fault.fits(method, path):
                    fault.met += 1
                    return fault
        return None

    def went(self) -> None:
        """Count that it is over."""
        with self._change:
            self._at_once -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, proxy: StoreProxy, port: int) -> None:
        self.proxy = proxy
        self.open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def break_all(self) -> None:
        for one in list(self.open):
            _break(one)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is what the test wanted."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.open.add(self.connection)
        self._upstream = http.client.HTTPConnection(
            self.server.proxy.to.hostname or "", self.server.proxy.to.port, timeout=_GIVE_UP_S
        )

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        self._upstream.close()
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _pass(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = proxy.came(self.command, self.path) or Fault()
        try:
            time.sleep(proxy.latency_ms / 1000 + fault.delay_s)
            if fault.hangs or fault.holds:
                fault.is_over.wait(_GIVE_UP_S)
            if fault.hangs or fault.resets == "before":
                self._give_up()
            elif fault.status:
                said = _SAID.format(code=fault.code or _CODES.get(fault.status, "InternalError"))
                self._answer(fault.status, {"Content-Type": "application/xml"}, said.encode())
            elif fault.pretends:
                self._answer(204, {}, b"")
            else:
                self._ask(body, fault)
        finally:
            proxy.went()

    def _ask(self, body: bytes, fault: Fault) -> None:
        """Ask the store, and pass on what it answers."""
        try:
            self._upstream.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                self._upstream.putheader(name, value)
            self._upstream.endheaders(body)
            answer = self._upstream.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            self._upstream.close()
            self._give_up()
            return
        if fault.resets == "after":
            self._give_up()
            return
        if fault.flips and data:
            data = data[:-1] + bytes([data[-1] ^ 1])
        headers = {k: v for k, v in answer.getheaders() if k.lower() not in _HOP_BY_HOP}
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self._answer(answer.status, headers, data, cut_bytes=fault.cut_bytes, length=length)

    def _answer(
        self,
        status: int,
        headers: dict[str, str],
        data: bytes,
        *,
        cut_bytes: int = -1,
        length: str | None = None,
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if 0 <= cut_bytes < len(data):
            self.wfile.write(data[:cut_bytes])
            self.wfile.flush()
            self._give_up()
        elif self.command != "HEAD":
            self.wfile.write(data)

    def _give_up(self) -> None:
        self.close_connection = True
        _break(self.connection)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass


def _break(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
