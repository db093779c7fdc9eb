"""Start a node, serve until it is told to stop, and leave its files in order. WORLD.

The order at the start: check everything before anything is written; bind the ports first, so that a port in
use costs nothing; accept clients once the controller has unfenced this broker. The first of `stop_signals`
asks for a controlled shutdown, the second one ends the process at once.
"""

import codecs
import errno
import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from firnline.api.dispatch import Dispatcher
from firnline.base.counting.aging import Aging, aging_since
from firnline.base.effects import SYNC_THREADS
from firnline.base.errors import ConfigError, FirnlineError, as_exception
from firnline.base.log_lines.line import Log
from firnline.base.log_lines.process import (
    CLOCK_DOUBTED,
    CONTROLLER_ELSEWHERE,
    CONTROLLER_EXPOSED,
    ENDS_WITHOUT_THREADS,
    OPEN_FILES_LIMIT_STAYS,
    PLUGIN_NOT_CLOSED,
    STOPPING,
    STOPPING_AT_ONCE,
)
from firnline.broker.controller_node import ControllerNode
from firnline.broker.node import BrokerNode
from firnline.broker.quorum_setup import Remote
from firnline.broker.wiring import build_controller, build_node
from firnline.config.broker import BrokerConfig, parse_endpoint
from firnline.config.broker import Endpoint as Listener
from firnline.formats.names import parse_partition_dir
from firnline.metadata.format import refuse_mixed_up
from firnline.metadata.image import ClusterImage, Endpoint
from firnline.outbound.replica_fetch import ReplicaFetch
from firnline.protocol.versions import CONTROLLER_PRIVATE, CONTROLLER_SERVED
from firnline.runtime.bounds.connections import Connections
from firnline.runtime.bounds.incoming import INCOMING_BYTES_MAX
from firnline.runtime.clock import SteadyClock, date_of, last_run_ms
from firnline.runtime.descriptors import Descriptors, LogFiles
from firnline.runtime.disk import RealFs
from firnline.runtime.listener import Server, listen
from firnline.runtime.logs.levels import ProcessLoggers
from firnline.runtime.logs.lines import log_line
from firnline.runtime.loop import Runtime
from firnline.runtime.machine import MachineWatch
from firnline.runtime.poll import READABLE, PollLoop
from firnline.runtime.rng import SystemRng
from firnline.runtime.threads.pool import have_ended
from firnline.server.allocator import bound_free_memory
from firnline.server.collector import LOOK_S, Collector
from firnline.server.connection_limits import ConnectionLimits
from firnline.server.plugins import MetadataManager, remote_metadata, remote_storage
from firnline.server.stop_signals import stop_signals
from firnline.tiered.spi import RemoteStorage

if TYPE_CHECKING:
    from firnline.server.metrics import Exporter

# A controlled shutdown that takes longer is ended; the next start then recovers the logs.
SHUTDOWN_MAX_S = 30.0
# How long the end of the process waits for plug-ins to close their connections.
PLUGIN_CLOSE_S = 1.0
# Encodings for host names and for Java's hash; Python imports each when it is first used.
_ENCODINGS = ("idna", "utf_16_be")
_BETWEEN_IMPORTS_S = 0.005


def run(config: BrokerConfig, ready: Callable[[str], None]) -> int:
    """Run the node of `config`; return the exit code of the process.

    `ready(bootstrap address)` is called once, when clients are served. Raises ConfigError or
    StorageError when the node cannot start.
    """
    raise_open_files_limit()
    bound_free_memory()
    process = _Process(config, ready)
    try:
        return process.serve()
    finally:
        if not process.close():
            # The end of the interpreter would close files, and wait for that disk too.
            log_line(ENDS_WITHOUT_THREADS())
            logging.shutdown()
            os._exit(process.exit_code)


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard limit, for logs and connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (
        OSError,
        ValueError,
    ) as problem:  # a sandbox may forbid it, or report a limit that is not the real one
        log_line(OPEN_FILES_LIMIT_STAYS(limit=soft, error=problem))


def check_open_files(config: BrokerConfig, descriptors: Descriptors) -> None:
    """Raise ConfigError if the limit of open files is too low for the logs of the node.

    Nothing has been changed yet, so the next start finds everything as this one did.
    """
    fs, logs = RealFs(), 0
    for path in config.directories if "broker" in config.process_roles else ():
        found = fs.list_dir(path) if fs.exists(path) else []
        logs += sum(parse_partition_dir(name) is not None for name in found)
    limit = descriptors.limit
    # Logs use half of all descriptors; there may be as many logs as descriptors (decision 0032).
    needed = min(logs, limit // 2) + descriptors.used() + descriptors.reserved
    if max(logs, needed) > limit:
        raise ConfigError(
            f"the limit of open files is {limit}, and this node has {logs} logs: it needs"
            f" {max(logs, needed)} at least. Raise the limit (ulimit -n, LimitNOFILE of the service, --ulimit"
            " nofile of the container), to twice as many as there are logs and one for each connection"
        )


def threads_of(config: BrokerConfig) -> dict[str, int]:
    """Return the number of threads of each pool that the settings determine."""
    readers = config.remote_log_reader_threads
    return {
        "disk": SYNC_THREADS,
        "copy": config.remote_log_manager_copier_thread_pool_size,
        "read": readers,
        "ahead": readers,
        "expire": config.remote_log_manager_expiration_thread_pool_size,
        # Consumers need as many indexes as ranges; followers that begin above the tier come in addition.
        "index": readers + config.remote_log_manager_follower_thread_pool_size,
    }


def _load(dispatchers: Sequence[Dispatcher]) -> None:
    """Import, on a thread, what the start does not need: later, at the limit of open files, it would fail.

    An import holds the GIL for a few ms, so the first clients are served between imports.
    """
    for name in _ENCODINGS:
        codecs.lookup(name)
    for dispatcher in dispatchers:
        for _ in dispatcher.load():
            time.sleep(_BETWEEN_IMPORTS_S)


class _Process:
    """Everything that belongs to one run: loop, node, listeners, signals."""

    def __init__(self, config: BrokerConfig, ready: Callable[[str], None]) -> None:
        self._config = config
        self._ready = ready
        self._limits = ConnectionLimits(config, self._image)
        self._loop = PollLoop()
        self._sockets = _bind(config.client_listeners + _own_controller_listeners(config))
        self._signals = 0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._runtime: Runtime | None = None
        self._exporter: Exporter | None = None
        self._watch: MachineWatch | None = None
        self._fs = RealFs(keeps_locks=True)
        self._descriptors: Descriptors | None = None
        self._connections: dict[bool, Connections] = {}  # True: of clients
        self._collector = Collector()
        self._storage: RemoteStorage | None = None
        self._metadata: MetadataManager | None = None  # a user's own

    def serve(self) -> int:
        config = self._config
        if config.firnline_metrics_port:
            # Import the library only where metrics are on.
            from firnline.server.metrics import Exporter

            self._exporter = Exporter(
                config.firnline_metrics_port, host=config.firnline_metrics_host
            )
        descriptors = self._descriptors = Descriptors()
        check_open_files(config, descriptors)
        refuse_mixed_up(self._fs, config)
        rooms = self._fs.keep_room(config.directories)
        now_ms = SteadyClock().now_ms()
        aging = self._aging(now_ms)
        node = self._build(now_ms, descriptors, aging)
        node.loggers = ProcessLoggers()
        runtime = self._runtime = Runtime(
            node,
            self._loop,
            threads=threads_of(config),
            queue_max={"read": config.remote_log_reader_max_pending_tasks},
            directories=(*config.directories, config.metadata_directory),
            client_id=f"firnline-{config.node_id}",
            answer_bytes_max=config.socket_request_max_bytes,
            held_answers_bytes_max=config.firnline_answers_max_bytes,
            incoming_bytes_max=config.queued_max_request_bytes
            if config.queued_max_request_bytes > 0
            else max(INCOMING_BYTES_MAX, config.socket_request_max_bytes),
        )
        if self._exporter is not None:
            self._exporter.show(runtime)
        self._loop.watch(self._wake, READABLE, self._on_signal)
        for number in stop_signals():
            signal.signal(number, self._note_signal)
        own_paths = config.directories if isinstance(node, BrokerNode) else ()
        paths = (*own_paths, config.metadata_directory)
        kept = aging if own_paths else None
        self._watch = MachineWatch(self._loop, node.machine, paths, runtime.now_ms, rooms, kept)
        self._serve_controllers()
        self._loop.call_later(LOOK_S, self._look_after_garbage)
        self._loop.slow_steps.watch_garbage()
        runtime.start()
        self._loop.run()
        if isinstance(runtime.failure, FirnlineError):
            raise runtime.failure
        return self.exit_code

    @property
    def exit_code(self) -> int:
        return 0 if self._runtime is not None and self._runtime.failure is None else 1

    def close(self) -> bool:
        """Close everything; False if threads are left that wait for a disk."""
        if self._exporter is not None:
            self._exporter.close()
        if self._watch is not None:
            self._watch.close()
        is_ended = self._runtime is None or self._runtime.close()
        is_ended = is_ended and _have_closed(self._storage, self._metadata)
        for _, sock in self._sockets:
            sock.close()
        os.close(self._wake)
        self._loop.slow_steps.close()
        self._loop.close()
        self._collector.close()
        return is_ended

    def _look_after_garbage(self) -> None:
        self._loop.call_later(LOOK_S, self._look_after_garbage)
        assert self._runtime is not None
        node = self._runtime.node
        groups = node.groups.group_count if isinstance(node, BrokerNode) else 0
        is_busy = self._runtime.answers.freeing.is_busy
        self._collector.look(node.quorum, groups, is_busy=is_busy)

    def _image(self) -> ClusterImage:
        assert self._runtime is not None
        image: ClusterImage = self._runtime.node.quorum.image
        return image

    def _aging(self, now_ms: int) -> Aging:
        """Return by which time records age, and say so if that is not the clock's."""
        config = self._config
        aging = aging_since(last_run_ms((*config.directories, config.metadata_directory)), now_ms)
        if aging.is_doubted(now_ms):
            times = (now_ms, aging.last_ms, aging.until_ms)
            clock, last_ran, until = map(date_of, times)
            log_line(CLOCK_DOUBTED(clock=clock, last_ran=last_ran, until=until))
        return aging

    def _build(
        self, now_ms: int, descriptors: Descriptors, aging: Aging
    ) -> BrokerNode | ControllerNode:
        """Build the node that the settings describe, and take its directories into use."""
        config = self._config
        remote: Remote | None = None
        if config.has_other_controllers:
            # A node that is its own quorum starts without the code for other nodes.
            from firnline.outbound.remote_controller import RemoteController

            remote = partial(RemoteController, config)
        controllers = self._endpoints(config.controller_listeners)
        if "broker" not in config.process_roles:
            return build_controller(
                config,
                self._fs,
                SystemRng(),
                now_ms=now_ms,
                endpoints=controllers,
                remote=remote,
                owner=self,
            )
        self._storage = remote_storage(config)
        self._metadata = remote_metadata(config, self._endpoints(config.advertised))
        return build_node(
            config,
            fs=self._fs,
            rng=SystemRng(),
            now_ms=now_ms,
            endpoints=self._endpoints(config.advertised),
            controller_endpoints=controllers,
            remote=remote,
            other_leaders=partial(ReplicaFetch, config),
            remote_storage=self._storage,
            remote_metadata=self._metadata,
            owner=self,
            files=LogFiles(descriptors, self._fs.kept),
            aging=aging,
        )

    def _endpoints(self, listeners: list[Listener]) -> list[Endpoint]:
        """Return the addresses for other nodes: the bound port for port 0, this machine's name for no
        host.
        """
        ports = {endpoint.listener: sock.getsockname()[1] for endpoint, sock in self._sockets}
        return [
            Endpoint(e.listener, e.host or socket.gethostname(), e.port or ports.get(e.listener, 0))
            for e in listeners
        ]

    def _serve_controllers(self) -> None:
        """Accept the other members of the quorum from the start: without them there is no election."""
        runtime = self._runtime
        assert runtime is not None
        node = runtime.node
        controller = node if isinstance(node, ControllerNode) else node.controller_node
        if controller is None:
            return
        dispatcher = Dispatcher(
            controller, CONTROLLER_SERVED + CONTROLLER_PRIVATE, clock=time.perf_counter
        )
        if controller is node:
            runtime.dispatcher = dispatcher
        for endpoint in _own_controller_listeners(self._config):
            self._serve_on(endpoint, dispatcher)
        for line in [*exposed_listeners(self._config), *misnamed_controller(self._config)]:
            log_line(line)

    def _serve_on(self, endpoint: Listener, dispatcher: Dispatcher) -> None:
        runtime = self._runtime
        assert runtime is not None
        is_for_clients = endpoint in self._config.client_listeners
        server = Server(
            runtime,
            self._loop,
            next(sock for listener, sock in self._sockets if listener == endpoint),
            listener=endpoint.listener,
            frame_bytes_max=self._config.socket_request_max_bytes,
            idle_ms=self._config.connections_max_idle_ms,
            counted=self._counted(is_for_clients),
            is_protected=is_for_clients
            and not self._config.shares_broker_listener
            and endpoint.listener in self._config.broker_listeners,
            dispatcher=dispatcher,
        )
        runtime.servers.append(server)

    def _counted(self, is_for_clients: bool) -> Connections:
        """Return the connection counter of a listener: clients and controllers have separate limits."""
        runtime, descriptors = self._runtime, self._descriptors
        assert runtime is not None
        assert descriptors is not None
        if is_for_clients not in self._connections:
            self._connections[is_for_clients] = Connections(
                self._limits,
                # Members of the quorum may use the reserve: without them there are no decisions.
                has_room=descriptors.has_room if is_for_clients else lambda: True,
                log=log_line,
            )
        return self._connections[is_for_clients]

    def node_running(self, now_ms: int) -> None:
        """`NodeOwner`: the controller has unfenced this broker, or it is only a controller."""
        config, runtime = self._config, self._runtime
        assert runtime is not None
        for endpoint in config.client_listeners:
            self._serve_on(endpoint, runtime.dispatcher)
        dispatchers = [server.dispatcher for server in runtime.servers]
        name = "firnline-load"
        threading.Thread(target=_load, args=(dispatchers,), name=name, daemon=True).start()
        advertised = self._endpoints(config.advertised or config.controller_listeners)[0]
        self._ready(f"{advertised.host}:{advertised.port}")

    def node_stopped(self, now_ms: int) -> None:
        """`NodeOwner`: everything is on disk, and leadership has moved."""
        self._loop.stop()

    def _note_signal(self, number: int, frame: object) -> None:
        self._signals += 1
        os.eventfd_write(self._wake, 1)

    def _on_signal(self, _events: int) -> None:
        os.eventfd_read(self._wake)
        runtime = self._runtime
        assert runtime is not None
        if self._signals > 1:
            log_line(STOPPING_AT_ONCE())
            self._loop.stop()
            return
        log_line(STOPPING())
        clients = [listener.listener for listener in self._config.client_listeners]
        for server in runtime.servers:
            # The quorum keeps running until this node has resigned.
            if server.listener in clients:
                server.stop_accepting()
        self._loop.call_later(SHUTDOWN_MAX_S, self._loop.stop)
        runtime.execute(runtime.node.shutdown(runtime.now_ms()))


def _have_closed(*plugins: RemoteStorage | MetadataManager | None) -> bool:
    """Close plug-ins, each on a thread: one may hang. False: one has not closed in time."""
    threads = [
        threading.Thread(target=_close, args=(each,), name="firnline-close-plugin", daemon=True)
        for each in plugins
        if each is not None
    ]
    for thread in threads:
        thread.start()
    return have_ended(threads, time.monotonic() + PLUGIN_CLOSE_S)


def _close(plugin: RemoteStorage | MetadataManager) -> None:
    try:
        plugin.close()
    except BaseException as problem:  # noqa: BLE001 - plug-ins raise what they like; the node ends anyway
        name = type(plugin).__name__
        log_line(PLUGIN_NOT_CLOSED(plugin=name, error=as_exception(problem)))


def exposed_listeners(config: BrokerConfig) -> list[Log]:
    """Return warnings about controller listeners that every host can reach."""
    return [
        CONTROLLER_EXPOSED(
            listener=each.listener,
            host=each.host or "*",
            port=each.port,
            instead=f"{each.listener}://10.0.0.1:{each.port}",
        )
        for each in config.exposed_controllers
    ]


def misnamed_controller(config: BrokerConfig) -> list[Log]:
    """Return a warning if the settings of the quorum name another port of this controller than it has."""
    own = _own_controller_listeners(config)
    named = config.named_controller
    forwarded = [parse_endpoint(text) for text in config.advertised_listeners or ()]
    names = {each.listener for each in own}
    known = {each.port for each in own} | {e.port for e in forwarded if e.listener in names}
    if named is None or not own or named[2] in known or 0 in known:
        return []
    key, entry, port = named
    line = CONTROLLER_ELSEWHERE(
        key=key, entry=entry, named_port=port, listener=own[0].listener, listens_port=own[0].port
    )
    return [line]


def _own_controller_listeners(config: BrokerConfig) -> list[Listener]:
    """Return the listeners of this node's controller."""
    return config.controller_listeners if "controller" in config.process_roles else []


def _advice(problem: OSError) -> str:
    if problem.errno != errno.EADDRINUSE:
        return ""
    return "; stop what listens there, or name another port (`listeners`; --port of `firnline dev`)"


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
                f" ({endpoint.listener}): {problem.strerror}{_advice(problem)}"
            ) from None
    return bound
