"""Start a node, serve until it is told to stop, and leave its files in order. WORLD.

The order at start: what can be refused is refused before anything is written; the ports are bound
first, so that one in use costs nothing; clients are taken once the controller counts this broker in.
The first SIGTERM or SIGINT asks for a controlled shutdown, the second one ends the process at once.
"""

import logging
import os
import resource
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from firnline.base.errors import ConfigError, FirnlineError
from firnline.broker.wiring import build_node
from firnline.config.broker import BrokerConfig
from firnline.config.broker import Endpoint as Listener
from firnline.metadata.image import Endpoint
from firnline.runtime.clock import SteadyClock
from firnline.runtime.disk import RealFs
from firnline.runtime.loop import Runtime
from firnline.runtime.net import Server, listen
from firnline.runtime.poll import READABLE, PollLoop
from firnline.runtime.rng import SystemRng
from firnline.server.plugins import remote_storage

if TYPE_CHECKING:
    from firnline.server.metrics import Exporter

log = logging.getLogger("firnline")

# A controlled shutdown that takes longer is cut short; the next start then looks over its logs.
SHUTDOWN_MAX_S = 30.0
CONNECTIONS_MAX = 10_000


def run(config: BrokerConfig, ready: Callable[[str], None]) -> int:
    """Run the node of `config`; return the exit code of the process.

    `ready(bootstrap address)` is called once, when clients are served. Raises ConfigError or
    StorageError when the node cannot start.
    """
    raise_open_files_limit()
    process = _Process(config, ready)
    try:
        return process.serve()
    finally:
        process.close()


def raise_open_files_limit() -> None:
    """Take all open files that we may have: each partition log holds one, each connection another."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (
        OSError,
        ValueError,
    ) as problem:  # a sandbox that forbids it, or "unlimited" of nobody's
        log.info("the limit of open files stays at %d: %s", soft, problem)


class _Process:
    """What belongs to one run: loop, node, listeners, signals."""

    def __init__(self, config: BrokerConfig, ready: Callable[[str], None]) -> None:
        self._config = config
        self._ready = ready
        self._loop = PollLoop()
        self._sockets = _bind(config.client_listeners)
        self._signals = 0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._runtime: Runtime | None = None
        self._exporter: Exporter | None = None

    def serve(self) -> int:
        config = self._config
        if config.firnline_metrics_port:
            # The library is loaded by those who want it only.
            from firnline.server.metrics import Exporter

            self._exporter = Exporter(config.firnline_metrics_port)
        clock = SteadyClock()
        node = build_node(
            config,
            fs=RealFs(),
            rng=SystemRng(),
            now_ms=clock.now_ms(),
            endpoints=self._told(),
            remote_storage=remote_storage(config),
        )
        node.on_running = self._on_running
        node.on_stopped = self._on_stopped
        threads = {
            "disk": 2,
            "copy": config.remote_log_manager_copier_thread_pool_size,
            "read": config.remote_log_reader_threads,
            "expire": config.remote_log_manager_expiration_thread_pool_size,
        }
        runtime = self._runtime = Runtime(node, self._loop, threads=threads)
        if self._exporter is not None:
            self._exporter.show(runtime)
        self._loop.watch(self._wake, READABLE, self._on_signal)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_signal)
        runtime.start()
        self._loop.run()
        if runtime.failure is None:
            return 0
        if isinstance(runtime.failure, FirnlineError):
            raise runtime.failure
        return 1

    def close(self) -> None:
        if self._exporter is not None:
            self._exporter.close()
        if self._runtime is not None:
            self._runtime.close()
        for _, sock in self._sockets:
            sock.close()
        os.close(self._wake)
        self._loop.close()

    def _told(self) -> list[Endpoint]:
        """Where clients are told to go: for port 0 the one that was found, for no host our name."""
        ports = {endpoint.listener: sock.getsockname()[1] for endpoint, sock in self._sockets}
        return [
            Endpoint(e.listener, e.host or socket.gethostname(), e.port or ports[e.listener])
            for e in self._config.advertised
        ]

    def _on_running(self, now_ms: int) -> None:
        """The controller counts us in: take clients."""
        runtime = self._runtime
        assert runtime is not None
        for endpoint, sock in self._sockets:
            server = Server(
                runtime,
                self._loop,
                sock,
                listener=endpoint.listener,
                frame_bytes_max=self._config.socket_request_max_bytes,
                idle_ms=self._config.connections_max_idle_ms,
                connections_max=CONNECTIONS_MAX,
            )
            runtime.servers.append(server)
        told = self._told()[0]
        self._ready(f"{told.host}:{told.port}")

    def _on_stopped(self, now_ms: int) -> None:
        """All is on disk and handed over."""
        self._loop.stop()

    def _note_signal(self, number: int, frame: object) -> None:
        self._signals += 1
        os.eventfd_write(self._wake, 1)

    def _on_signal(self, _events: int) -> None:
        os.eventfd_read(self._wake)
        runtime = self._runtime
        assert runtime is not None
        if self._signals > 1:
            log.warning("stopping at once")
            self._loop.stop()
            return
        log.info("stopping")
        for server in runtime.servers:
            server.stop_accepting()
        self._loop.call_later(SHUTDOWN_MAX_S, self._loop.stop)
        runtime.execute(runtime.node.shutdown(runtime.now_ms()))


def _bind(endpoints: list[Listener]) -> list[tuple[Listener, socket.socket]]:
    """Bind every listener, or none. Raises ConfigError that names the one that failed."""
    bound: list[tuple[Listener, socket.socket]] = []
    for endpoint in endpoints:
        try:
            bound.append((endpoint, listen(endpoint.host, endpoint.port)))
        except OSError as problem:
            for _, sock in bound:
                sock.close()
            raise ConfigError(
                f"cannot listen on {endpoint.host or '*'}:{endpoint.port}"
                f" ({endpoint.listener}): {problem.strerror}"
            ) from None
    return bound
