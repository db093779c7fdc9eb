"""Listeners: accept connections, and close those that are idle or slow for too long. WORLD."""

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from firnline.base.errors import NOTHING_ASKED, ProtocolError
from firnline.base.limits import FIRST_REQUEST_MS, HALF_CLOSED_MS
from firnline.base.log_lines.process import CANNOT_ACCEPT, REQUEST_REFUSED, shown_client_id
from firnline.runtime.bounds.connections import Connections
from firnline.runtime.logs.lines import log_line
from firnline.runtime.net import Connection, Executor
from firnline.runtime.poll import NOTHING, READABLE, PollLoop

if TYPE_CHECKING:
    from firnline.api.dispatch import Dispatcher


class Server:
    """One listener and its connections."""

    def __init__(
        self,
        runtime: Executor,
        loop: PollLoop,
        sock: socket.socket,
        *,
        listener: str,
        frame_bytes_max: int,
        idle_ms: int,
        counted: Connections,
        is_protected: bool = False,
        dispatcher: "Dispatcher | None" = None,
    ) -> None:
        self.runtime = runtime
        self.counted = counted
        self._is_protected = is_protected  # for brokers only, in addition to listeners for clients
        # The APIs depend on the listener: for clients, or for members of the quorum.
        self.dispatcher = dispatcher or runtime.dispatcher
        self.loop = loop
        self.listener = listener
        self.frame_bytes_max = frame_bytes_max
        self.bad_peers = self.slow_requests = self.accepted = 0
        self._idle_ms = idle_ms
        self._sock = sock
        self._connections: dict[int, Connection] = {}
        loop.watch(sock.fileno(), READABLE, self._on_connect)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def _on_connect(self, _events: int) -> None:
        try:
            sock, address = self._sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except (
            OSError
        ) as problem:  # no descriptors left: serve the open connections, and retry later
            log_line(CANNOT_ACCEPT(error=problem))
            self.loop.rewatch(self._sock.fileno(), NOTHING)
            self.loop.call_later(0.5, self._accept_again)
            return
        # An IPv4 address at a listener of IPv6: limits count both forms as one address.
        host = address[0].removeprefix("::ffff:")
        if not self.counted.admit(host, is_protected=self._is_protected):
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.accepted += 1
        connection = Connection(self, sock, host, self.runtime.now_ms())
        self._connections[sock.fileno()] = connection
        self.counted.add(connection, is_protected=self._is_protected)

    def _accept_again(self) -> None:
        if self._sock.fileno() >= 0:
            self.loop.rewatch(self._sock.fileno(), READABLE)

    def on_bad_peer(self, connection: Connection, problem: ProtocolError) -> None:
        """Close a connection whose bytes this node does not serve; log it, without a traceback."""
        self.bad_peers += 1
        asked = problem.asked or NOTHING_ASKED
        client_id = shown_client_id(asked.client_id)
        host, reason = connection.peer_host, str(problem)
        log_line(
            REQUEST_REFUSED(
                host=host,
                client_id=client_id,
                api=asked.api,
                version=asked.version,
                reason=reason,
            )
        )
        connection.close()

    def sweep(self, now_ms: int) -> None:
        """Close connections that are idle, sent no request in time, or were half-closed long ago."""
        self.loop.run_in_slices(self._sweeping(now_ms))

    def _sweeping(self, now_ms: int) -> Iterator[None]:
        """Examine one connection in each step: thousands that were opened together expire together."""
        for connection in list(self._connections.values()):
            quiet_ms = now_ms - connection.last_active_ms
            if connection.is_receiving and not connection.has_ended:
                if connection.is_too_slow(now_ms):
                    self.slow_requests += 1
                    connection.say_closed("the rest of its request does not arrive")
                    connection.close()
            elif (
                quiet_ms > self._idle_ms
                or (not connection.requests and quiet_ms > FIRST_REQUEST_MS)
                or (connection.has_ended and quiet_ms > HALF_CLOSED_MS)
            ):
                connection.close()
            yield

    def forget(self, fd: int) -> None:
        """Remove a connection that is about to close its socket."""
        connection = self._connections.pop(fd)
        self.counted.remove(connection, is_protected=self._is_protected)
        self.loop.unwatch(fd)

    def stop_accepting(self) -> None:
        self.loop.unwatch(self._sock.fileno())
        self._sock.close()

    def close(self) -> None:
        for connection in list(self._connections.values()):
            connection.close()


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; OSError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock
