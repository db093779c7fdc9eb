"""The simulated network: connections as TCP gives them, on links that fail. SIM.

Within a connection each direction keeps its order and loses nothing; a link that is cut holds what is sent
until the cut ends. As in reality, messages are lost, duplicated and reordered only when a connection ends:
the request is then sent again on another one, while the first may still arrive. Source: reliability (c).
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from firnline.api.context import RequestContext
from firnline.base.effects import CloseConnection, Effects, Peer, Reply, Send, Unanswered
from firnline.base.errors import StorageError
from firnline.protocol.messages.k00_produce import ProduceRequest
from firnline.protocol.schema import Message
from firnline.protocol.session import Wrapped
from firnline.sim.host import Host, Process
from firnline.sim.messages import describe, request_of, through_codec, version_of
from firnline.sim.options import Options
from firnline.sim.runtime.answers import PendingResponse
from firnline.sim.world import MS, Event, World

HOST_PREFIX = "node-"
PORT = 9093  # of controllers ...
BROKER_PORT = 9092  # ... and of brokers
Link = tuple[int, int]
# How long the sender's kernel waits before it retransmits after a cut has ended.
_RETRANSMIT_US = (1 * MS, 400 * MS)
# The reconnect backoff after a failure, doubled each time: as in `runtime/links.py`.
_BACKOFF_MS, _BACKOFF_MAX_MS = 50, 500


class _Stream:
    """One direction of one connection."""

    __slots__ = ("held", "is_stalled", "last_us", "link")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.last_us = 0
        self.is_stalled = False
        self.held: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()


class _Asked:
    """One request in flight, until its response or failure is delivered."""

    __slots__ = ("effect", "is_answered", "timer", "version")

    def __init__(self, effect: Send[Any]) -> None:
        self.effect = effect
        self.version = 0
        self.is_answered = False
        self.timer: Event | None = None


class _Connection:
    __slots__ = (
        "asked",
        "back",
        "client",
        "inbox",
        "is_closed",
        "is_open",
        "is_serving",
        "key",
        "server",
        "server_id",
        "there",
        "waiting",
    )

    def __init__(self, client: Process, server_id: int, key: Any) -> None:
        self.client = client
        self.server_id = server_id
        self.key = key
        self.server: Process | None = None
        self.is_open = False
        self.is_closed = False
        self.is_serving = False  # only one request of a connection is handled at a time
        self.waiting: list[_Asked] = []
        self.asked: deque[_Asked] = deque()
        self.inbox: deque[tuple[_Asked, Message]] = deque()
        self.there = _Stream((client.node_id, server_id))
        self.back = _Stream((server_id, client.node_id))


class _Failures:
    """Consecutive failures on a link of a process, and when to try again."""

    __slots__ = ("count", "retry_at_us", "why")

    def __init__(self) -> None:
        self.count = 0
        self.retry_at_us = 0
        self.why = ""


class Call:
    """A request as its server sees it: its connection, port and version.

    To a handler of the API it is the connection. It must be answered exactly once.
    """

    __slots__ = ("asked", "is_answered", "notes", "of", "request")

    # What handlers read of a connection.
    peer_host = "127.0.0.1"
    principal = "User:ANONYMOUS"

    def __init__(self, connection: _Connection, asked: _Asked, request: Message) -> None:
        self.of = connection
        self.asked = asked
        self.request = request
        self.is_answered = False
        self.notes: Any = None  # of whoever watches it

    @property
    def connection(self) -> "Call":
        return self

    @property
    def from_id(self) -> int:
        return self.of.client.node_id

    @property
    def port(self) -> int:
        return self.asked.effect.peer.port

    @property
    def version(self) -> int:
        return self.asked.version

    @property
    def listener(self) -> str:
        return "CONTROLLER" if self.port == PORT else "PLAINTEXT"

    def answer(self, response: Any) -> Reply[Any]:
        return Reply(context=self, message=response)

    def context(self) -> RequestContext:
        """The context for a handler of the API."""
        return RequestContext(self, self.request.key, self.version, 0, str(self.from_id), 0)


class Watcher(Protocol):
    """Sees every message: the checkers."""

    def sent(self, process: Process, to_id: int, effect: Send[Any]) -> None: ...

    def received(self, process: Process, call: Call) -> None: ...

    def answered(self, process: Process, call: Call, response: Message) -> None: ...

    def on_response(self, process: Process, effect: Send[Any], response: Message) -> None:
        """The response is about to be delivered to the sender of the request."""
        ...


class Network:
    """All links and connections. Links are ordered pairs of node ids."""

    def __init__(
        self, world: World, options: Options, hosts: dict[int, Host], watcher: Watcher
    ) -> None:
        self._world = world
        self._options = options
        self._hosts = hosts
        self._watcher = watcher
        self._chance = world.chance("net")
        self._cuts: dict[Link, int] = {}
        self._slow: dict[Link, int] = {}
        self._held: dict[Link, list[_Stream]] = {}
        self._connections: dict[Any, _Connection] = {}
        self._failures: dict[Any, _Failures] = {}
        self.messages = 0

    # ------------------------------------------------------------------------- what nodes do

    def send(self, process: Process, effect: Send[Any]) -> None:
        """Carry out a Send: connect if needed, deliver, and return the response or Unanswered."""
        asked = _Asked(effect)
        server_id = self.node_of(effect.peer)
        if server_id is None:
            self._world.after(
                100, process.when_awake, self._report_failure, process, asked, "no such host"
            )
            return
        version = version_of(effect, self._options, is_controller=effect.peer.port == PORT)
        if version is None:
            self._world.after(1, process.when_awake, self._refuse, process, asked)
            return
        asked.version = version
        self._watcher.sent(process, server_id, effect)
        key = (process.node_id, process.number, server_id, effect.peer.port, effect.channel)
        connection = self._connections.get(key)
        if connection is None:
            failures = self._failures.get(key)
            if failures is not None and failures.retry_at_us > self._world.now_us:
                why = failures.why
                self._world.after(1, process.when_awake, self._report_failure, process, asked, why)
                return
            connection = self._connections[key] = _Connection(process, server_id, key)
            self._transmit(connection.there, self._on_connect, connection)
        connection.asked.append(asked)
        asked.timer = self._world.after(
            process.host.clock.virtual_us(effect.timeout_ms),
            process.when_awake,
            self._on_timeout,
            connection,
            asked,
        )
        if connection.is_open:
            self._request(connection, asked)
        else:
            connection.waiting.append(asked)

    def reply(self, process: Process, effect: Reply[Any]) -> None:
        """Carry out a Reply to a request from `on_request`."""
        call: Call = effect.context.connection
        assert not call.is_answered, "a request was answered twice"
        call.is_answered = True
        connection = call.of
        message: Any = effect.message
        if type(message) is Wrapped:
            message = message.outer_message()
        assert message is not None, "every request that is made here is answered"
        try:
            answer = PendingResponse(message, self._options.socket_bytes)
        except StorageError as problem:
            self._transmit(connection.back, self._on_reset, connection, str(problem))
            return
        self._watcher.answered(process, call, message)
        if answer.is_complete:
            self._sent(connection)
            self._transmit(connection.back, self._on_response, connection, call, message)
        else:
            # The other side reads it when it gets there: later than its first bytes.
            self._transmit(connection.back, self._on_room, connection, call, answer)

    def close_connection(self, process: Process, effect: CloseConnection[Any]) -> None:
        """Carry out a CloseConnection: the server drops the client."""
        call: Call = effect.context.connection
        if call.of.server is process:
            self._transmit(call.of.back, self._on_reset, call.of, "connection closed")

    def wake(self, process: Process) -> None:
        """Let a process that now accepts requests read those that wait for it."""
        for connection in list(self._connections.values()):
            if connection.server is process and connection.inbox:
                self._serve(connection)

    def node_of(self, peer: Peer) -> int | None:
        """The node that listens there; None for nobody."""
        text = peer.host.removeprefix(HOST_PREFIX)
        if text == peer.host or not text.isdecimal() or int(text) not in self._hosts:
            return None
        return int(text)

    def process_ended(self, process: Process, *, is_power: bool) -> None:
        """A process is gone. A running kernel tells its peers; a machine without power does not."""
        for key, connection in list(self._connections.items()):
            if connection.client is process:
                connection.is_closed = True
                del self._connections[key]
                self._failures.pop(key, None)
                for asked in connection.asked:
                    self._forget(asked)
                if is_power or self._chance.below(2):
                    connection.there.held.clear()
            elif connection.server is process and not is_power:
                self._transmit(connection.back, self._on_reset, connection, "connection reset")

    # ------------------------------------------------------------------------- what faults do

    def cut(self, from_id: int, to_id: int) -> None:
        """Hold what is sent on a link from now on."""
        self._cuts[(from_id, to_id)] = self._cuts.get((from_id, to_id), 0) + 1

    def repair(self, from_id: int, to_id: int) -> None:
        """End one cut of a link; held messages leave when the sender retransmits."""
        link = (from_id, to_id)
        self._cuts[link] -= 1
        if self._cuts[link] == 0:
            for stream in self._held.pop(link, []):
                delay_us = self._chance.between(*_RETRANSMIT_US)
                self._world.after(delay_us, self._retransmit, stream)

    def slow(self, from_id: int, to_id: int, extra_us: int) -> None:
        """Add to the delay of a link; a negative number takes it back."""
        self._slow[(from_id, to_id)] = self._slow.get((from_id, to_id), 0) + extra_us

    def reset(self, from_id: int, to_id: int) -> None:
        """Close every connection from one node to another, whatever it carries."""
        for connection in list(self._connections.values()):
            if connection.client.node_id == from_id and connection.server_id == to_id:
                connection.client.when_awake(self._close, connection, "connection reset")

    def stall(self, from_id: int, to_id: int) -> "list[_Stream]":
        """Hold what is sent to a node over the present connections, until `release`.

        A client that gives up and asks again on a new connection is heard; the first request arrives later.
        """
        found = [
            connection.there
            for connection in self._connections.values()
            if connection.client.node_id == from_id and connection.server_id == to_id
        ]
        for stream in found:
            stream.is_stalled = True
        return found

    def release(self, streams: "list[_Stream]") -> None:
        """End a stall: held messages arrive."""
        for stream in streams:
            stream.is_stalled = False
            if stream.held:
                self._retransmit(stream)

    # ------------------------------------------------------------------------- streams

    def _transmit(self, stream: _Stream, arrive: Callable[..., None], *arguments: Any) -> None:
        if stream.held or stream.is_stalled or self._cuts.get(stream.link):
            if not stream.held and not stream.is_stalled:
                self._held.setdefault(stream.link, []).append(stream)
            stream.held.append((arrive, arguments))
            return
        options, chance = self._options, self._chance
        delay_us = options.delay_us + chance.below(options.jitter_us)
        if options.tail_percent and chance.below(100) < options.tail_percent:
            delay_us *= 20
        delay_us += self._slow.get(stream.link, 0)
        # In order: a late message delays those behind it.
        at_us = max(self._world.now_us + delay_us, stream.last_us + 1)
        stream.last_us = at_us
        self._world.at(at_us, arrive, *arguments)

    def _retransmit(self, stream: _Stream) -> None:
        if stream.is_stalled:
            return
        if self._cuts.get(stream.link):
            self._held.setdefault(stream.link, []).append(stream)
            return
        held, stream.held = stream.held, deque()
        for arrive, arguments in held:
            self._transmit(stream, arrive, *arguments)

    # ------------------------------------------------------------------------- connections

    def _on_connect(self, connection: _Connection) -> None:
        host = self._hosts[connection.server_id]
        if host.process is not None:
            connection.server = host.process
            self._transmit(connection.back, self._on_open, connection)
        elif host.is_powered:
            self._transmit(connection.back, self._on_reset, connection, "connection refused")

    def _on_open(self, connection: _Connection) -> None:
        connection.client.when_awake(self._open, connection)

    def _open(self, connection: _Connection) -> None:
        if connection.is_closed:
            return
        connection.is_open = True
        waiting, connection.waiting = connection.waiting, []
        for asked in waiting:
            self._request(connection, asked)

    def _on_reset(self, connection: _Connection, why: str) -> None:
        connection.client.when_awake(self._close, connection, why)

    def _on_timeout(self, connection: _Connection, asked: _Asked) -> None:
        if not asked.is_answered:
            self._close(connection, "no answer in time")

    def _close(self, connection: _Connection, why: str) -> None:
        """The client gives the connection up. What its kernel still holds may arrive all the same."""
        if connection.is_closed:
            return
        connection.is_closed = True
        self._connections.pop(connection.key, None)
        failures = self._failures.setdefault(connection.key, _Failures())
        backoff_ms = min(_BACKOFF_MAX_MS, _BACKOFF_MS << min(failures.count, 10))
        failures.count, failures.why = failures.count + 1, why
        failures.retry_at_us = self._world.now_us + backoff_ms * MS
        if not connection.there.is_stalled and self._chance.below(2):
            connection.there.held.clear()
        for asked in list(connection.asked):
            self._report_failure(connection.client, asked, why)

    def _report_failure(self, process: Process, asked: _Asked, why: str) -> None:
        if asked.is_answered:
            return
        self._forget(asked)
        what = f"{describe(request_of(asked.effect))} to {asked.effect.peer.host}: {why}"
        process.step(what, asked.effect.then, Unanswered(why=why))

    def _refuse(self, process: Process, asked: _Asked) -> None:
        """The other side supports no version of that request."""
        self._forget(asked)
        answer = Unanswered(why="no version in common", is_unsupported=True)
        what = f"{describe(request_of(asked.effect))} to {asked.effect.peer.host}: {answer.why}"
        process.step(what, asked.effect.then, answer)

    def _forget(self, asked: _Asked) -> None:
        asked.is_answered = True
        if asked.timer is not None:
            asked.timer.cancel()

    # ------------------------------------------------------------------------- requests

    def _request(self, connection: _Connection, asked: _Asked) -> None:
        self.messages += 1
        request = request_of(asked.effect)
        if self._options.is_encoded or _is_stamped(request):
            request = through_codec(request, asked.version)
        self._transmit(connection.there, self._on_request, connection, asked, request)

    def _on_request(self, connection: _Connection, asked: _Asked, request: Message) -> None:
        host = self._hosts[connection.server_id]
        if connection.server is None or connection.server is not host.process:
            if host.is_powered:
                self._transmit(connection.back, self._on_reset, connection, "connection reset")
            return
        connection.inbox.append((asked, request))
        self._serve(connection)

    def _serve(self, connection: _Connection) -> None:
        server = connection.server
        if server is not None:
            server.when_awake(self._serve_next, connection)

    def _serve_next(self, connection: _Connection) -> None:
        if connection.is_serving or not connection.inbox:
            return
        server = connection.server
        assert server is not None
        if not server.machine.takes(connection.inbox[0][0].effect.peer.port):
            return
        connection.is_serving = True
        asked, request = connection.inbox.popleft()
        call = Call(connection, asked, request)
        self._watcher.received(server, call)

        def handle(now_ms: int) -> Effects:
            return server.machine.on_request(request, call, now_ms)

        server.step(f"{describe(request)} from {connection.client.node_id}", handle)

    def _sent(self, connection: _Connection) -> None:
        """The socket has taken a response: handle the next request of its connection."""
        connection.is_serving = False
        self._world.after(1, self._serve, connection)

    def _on_room(self, connection: _Connection, call: Call, answer: PendingResponse) -> None:
        """The socket takes the rest of a response."""
        server = connection.server
        if server is not None:
            server.when_awake(self._finish, server, connection, call, answer)

    def _finish(
        self, server: Process, connection: _Connection, call: Call, answer: PendingResponse
    ) -> None:
        try:
            answer.finish()
        except StorageError as problem:
            self._transmit(connection.back, self._on_reset, connection, str(problem))
            return
        self._sent(connection)
        self._on_response(connection, call, answer.message)

    def _on_response(self, connection: _Connection, call: Call, response: Message) -> None:
        if self._options.is_encoded:
            response = through_codec(response, call.version)
        connection.client.when_awake(self._response, connection, call.asked, response)

    def _response(self, connection: _Connection, asked: _Asked, response: Message) -> None:
        if connection.is_closed or asked.is_answered:
            return
        assert connection.asked[0] is asked, "answers come in the order of the requests"
        connection.asked.popleft()
        self._forget(asked)
        self._failures.pop(connection.key, None)
        self._watcher.on_response(connection.client, asked.effect, response)
        what = f"{describe(response)} from {connection.server_id}"
        connection.client.step(what, asked.effect.then, response)


def _is_stamped(request: Any) -> bool:
    """Whether the receiver writes into the records that it gets, and the sender keeps its own."""
    if type(request) is not ProduceRequest:
        return False
    rows = (row for topic in request.topic_data for row in topic.partition_data)
    return any(type(row.records) is bytes for row in rows)
