"""One request in progress: its connection, its header, and its response. PURE."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVarTuple

from firnline.base.effects import CancelTimer, CloseConnection, Effect, Effects, Reply
from firnline.base.errors import Asked
from firnline.protocol.messages import api_name
from firnline.protocol.schema import Message
from firnline.protocol.session import Encoded, Wrapped

# AlterPartition, BrokerRegistration, BrokerHeartbeat, AllocateProducerIds, AssignReplicasToDirs.
OF_BROKERS = frozenset((56, 62, 63, 67, 73))
# A response: a message, or one that is encoded already, in part or as a complete frame.
Response = Message | Encoded | Wrapped | bytes
Found = TypeVarTuple("Found")
_NOTHING_TO_DO = CancelTimer(key=("answers", "to nobody"))


class ResponseMemory(Protocol):
    """The memory of one connection's requests and responses (runtime/bounds/answers)."""

    def grow(self, size_bytes: int) -> None: ...
    def hold(self, size_bytes: int) -> None: ...
    def give_way(self) -> None: ...
    def keeps(self, container: object) -> None: ...
    def made(self) -> None: ...
    def waits(self) -> None: ...
    def reserve(self, size_bytes: int) -> bool: ...
    def release(self, size_bytes: int) -> None: ...
    def must_wait(self) -> bool: ...
    def must_wait_to_begin(self) -> bool: ...
    def wait(self, again: Callable[[int], Effects], *, to_begin: bool = False) -> None: ...

    is_urgent: bool


class Connection(Protocol):
    """The connection of a request: runtime.net.Connection, or that of the simulator.

    The runtime's has `turn`, `closed`, `response_memory`, `when_gone` and `began_s`, too. They are optional,
    because a connection without a socket needs none of them.
    """

    @property
    def listener(self) -> str: ...

    @property
    def peer_host(self) -> str: ...

    @property
    def principal(self) -> str: ...


class RequestContext:
    """One request in progress.

    turn         its number among the requests of the connection: responses are sent in this order
    is_large     it took more than one slice (api/slices), or its response is long: the response is encoded
                 in slices
    has_slices_left  it has slices left after the first
    owns_bytes   its bytes are its own, not a buffer that the next request is received into
    is_change    it changes something, so it runs to its end even if the client disconnects (api/slices)
    is_urgent    its slices run before those of other requests. Fetches of replicas and requests of brokers
                 to controllers are urgent: they must not wait behind any number of clients
    began_s      when a request that is timed was first looked at, by the clock of the dispatcher; 0.0: it is
                 not timed
    local_s      how long its handler took; None: that is counted already
    on_end       called after the last slice, however the request ends; set by the owner of its bytes
    """

    on_end: Callable[[], None]

    __slots__ = (
        "api_key",
        "api_version",
        "began_s",
        "client_id",
        "connection",
        "correlation_id",
        "has_slices_left",
        "is_change",
        "is_large",
        "is_urgent",
        "local_s",
        "on_end",
        "owns_bytes",
        "received_ms",
        "turn",
    )

    def __init__(
        self,
        connection: Connection,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        received_ms: int,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received_ms = received_ms
        self.turn: int = getattr(connection, "turn", 0)
        self.is_large = self.has_slices_left = self.is_change = self.owns_bytes = False
        self.is_urgent = api_key in OF_BROKERS
        self.began_s: float = getattr(connection, "began_s", 0.0)
        self.local_s: float | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the client has disconnected."""
        return bool(getattr(self.connection, "closed", False))

    @property
    def asked(self) -> Asked:
        """What was asked for, for the log."""
        return Asked(self.client_id, api_name(self.api_key), self.api_version)

    @property
    def listener(self) -> str:
        """The name of the listener that received the request."""
        return self.connection.listener

    @property
    def peer_host(self) -> str:
        """The address of the client."""
        return self.connection.peer_host

    @property
    def principal(self) -> str:
        """The principal of the client."""
        return self.connection.principal

    def reply(self, message: Response) -> Effect:
        """Send `message`, encoded at the version of the request."""
        return Reply(context=self, message=message)

    def no_reply(self) -> "Reply[RequestContext]":
        """Finish a request that has no response: Produce with acks=0 (C13)."""
        return Reply(context=self, message=None)

    @property
    def response_memory(self) -> "ResponseMemory | None":
        """Counts the bytes of the request and its response (runtime/bounds/answers).

        None for a request that changes something: it never waits for memory, because its client has to learn
        of the change. Urgent requests wait only for one another: they have memory of their own beyond that of
        clients, and bounded, as any client can pretend to be a broker.
        """
        if self.is_change:
            return None
        memory = getattr(self.connection, "response_memory", None)
        if memory is not None:
            memory.is_urgent = self.is_urgent
        return memory

    def grow(self, size_bytes: int) -> None:
        """Count bytes of the response beyond the estimate for each slice. ProtocolError: too many."""
        memory = self.response_memory
        if memory is not None:
            memory.grow(size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Count bytes that the decoded request takes until its response is made."""
        memory = self.response_memory
        if memory is not None:
            memory.hold(size_bytes)

    def keeps(self, *containers: object) -> Effects:
        """Keep large containers and messages until the request is over; then free them in slices.

        Call it at the end of a slice for the containers that the slice made; twice for the same one does no
        harm. Returns no effects.
        """
        memory = getattr(self.connection, "response_memory", None)
        if memory is not None:
            for each in containers:
                memory.keeps(each)
        return []

    def gives_way(self) -> None:
        """From here on it waits for followers or a tier: no other response waits for its memory."""
        memory = self.response_memory
        if memory is not None:
            memory.give_way()

    def when_gone(self, abandon: Callable[[int], Effects]) -> None:
        """Call `abandon(now_ms)` once if the client disconnects before the response.

        For a request that waits long and holds much memory. The response to any other request is dropped
        when it is made.
        """
        memory = getattr(self.connection, "response_memory", None)
        if memory is not None:
            memory.waits()  # other responses do not wait for its memory meanwhile
        register = getattr(self.connection, "when_gone", None)
        if register is not None:
            register(self.turn, abandon)

    def makes_reply(self, make: Callable[[*Found], Effect]) -> Callable[[*Found], Effect]:
        """Return a callback that calls `make` for the response, and closes the connection if that raises.

        For a state machine that calls it in a step of its own or of another client's request: that step goes
        on, and the client of this request learns that there is no response. The rule:
        runtime/failed_requests.
        """

        def guarded(*found: *Found) -> Effect:
            try:
                return make(*found)
            except Exception as problem:  # noqa: BLE001 - the runtime decides
                return self.failed(problem)

        return guarded

    def makes_replies(self, make: Callable[[*Found], Effects]) -> Callable[[*Found], Effects]:
        """As `makes_reply`, for a `make` that returns effects."""

        def guarded(*found: *Found) -> Effects:
            try:
                return make(*found)
            except Exception as problem:  # noqa: BLE001 - the runtime decides
                return [self.failed(problem)]

        return guarded

    def ends(self) -> None:
        """No slice is left for now. Encoding the response may take slices of its own later."""
        on_end = getattr(self, "on_end", None)
        if on_end is not None:
            del self.on_end
            on_end()

    def failed(self, problem: Exception) -> "CloseConnection[RequestContext]":
        """Close the connection without a response, because of an unexpected error in the node."""
        return CloseConnection(context=self, problem=problem)

    def close(self) -> "CloseConnection[RequestContext]":
        """Close the connection without a response."""
        return CloseConnection(context=self)


class UntilGone(Generic[*Found]):
    """The callback of a response that may wait for minutes. It frees the request if the client disconnects.

    The operation itself goes on: a member of a group has joined, whether or not its client gets the response.
    A call after that does nothing.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[*Found], Effect]) -> None:
        self._make: Callable[[*Found], Effect] | None = make

    def __call__(self, *found: *Found) -> Effect:
        make, self._make = self._make, None
        return _NOTHING_TO_DO if make is None else make(*found)

    def waits(self, context: RequestContext) -> None:
        """The handler has returned: watch the connection, unless the response is made already."""
        if self._make is not None:
            context.when_gone(self._abandon)

    def _abandon(self, now_ms: int) -> Effects:
        self._make = None
        return []
