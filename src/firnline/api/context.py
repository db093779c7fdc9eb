"""Who asks, and how to answer them. PURE."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVarTuple

from firnline.base.effects import CancelTimer, CloseConnection, Effect, Effects, Reply
from firnline.protocol.schema import Message
from firnline.protocol.session import Encoded, Wrapped

# AlterPartition, BrokerRegistration, BrokerHeartbeat, AllocateProducerIds, AssignReplicasToDirs.
OF_BROKERS = frozenset((56, 62, 63, 67, 73))
# What an answer is made of: a message, or what is encoded already, in part or as a whole frame.
Answer = Message | Encoded | Wrapped | bytes
Found = TypeVarTuple("Found")
_NOTHING_TO_DO = CancelTimer(key=("answers", "to nobody"))


class Share(Protocol):
    """What the answers of one connection hold (runtime/bounds/answers)."""

    def grow(self, size_bytes: int) -> None: ...
    def hold(self, size_bytes: int) -> None: ...
    def give_way(self) -> None: ...
    def keeps(self, container: object) -> None: ...
    def made(self) -> None: ...
    def waits(self) -> None: ...
    def must_wait(self) -> bool: ...
    def must_wait_to_begin(self) -> bool: ...
    def wait(self, again: Callable[[int], Effects], *, to_begin: bool = False) -> None: ...

    is_urgent: bool


class Connection(Protocol):
    """Who asks, as far as a request has to know: runtime.net.Connection, or the simulator's own.

    The runtime's has `turn`, `closed`, `share` and `when_gone`, too; nothing depends on them where there are
    no sockets.
    """

    @property
    def listener(self) -> str: ...

    @property
    def peer_host(self) -> str: ...

    @property
    def principal(self) -> str: ...


class RequestContext:
    """One request in progress. Machines pass its `connection` through unseen.

    turn         which of the connection's requests it is
    is_large     it was not done in one slice (api/slices), or its answer is long: that is encoded in slices
    is_in_turns  some of its slices were left when it was taken up
    owns_bytes   what it was read from is its own, and not memory that the next request comes into
    is_change    it is done to its end, whoever hangs up, as it changes something (api/slices)
    is_urgent    its slices are done before those of others: a replica that fetches, and what brokers ask of
                 controllers, must not wait behind any number of clients
    on_end       called after the last of them, however it ends; set by who keeps its bytes
    """

    on_end: Callable[[], None]

    __slots__ = (
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "is_change",
        "is_in_turns",
        "is_large",
        "is_urgent",
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
        self.is_large = self.is_in_turns = self.is_change = self.owns_bytes = False
        self.is_urgent = api_key in OF_BROKERS

    @property
    def is_gone(self) -> bool:
        """Whether whoever asked has hung up."""
        return bool(getattr(self.connection, "closed", False))

    @property
    def listener(self) -> str:
        """Name of the listener that the request came to."""
        return self.connection.listener

    @property
    def peer_host(self) -> str:
        """Address of whoever asks."""
        return self.connection.peer_host

    @property
    def principal(self) -> str:
        """Who asks, as far as we know."""
        return self.connection.principal

    def reply(self, message: Answer) -> Effect:
        """Answer with `message`, encoded at the request's version."""
        return Reply(context=self, message=message)

    def no_reply(self) -> "Reply[RequestContext]":
        """Finish a request that has no answer: Produce with acks=0 (C13)."""
        return Reply(context=self, message=None)

    @property
    def share(self) -> "Share | None":
        """Where bytes of the request and its answer are counted (runtime/bounds/answers). None: nowhere, and
        it never waits, for who changed something is to hear of it.

        Replicas and brokers wait for one another alone, as anybody can pass for one: they have room of their
        own beyond that of clients.
        """
        if self.is_change:
            return None
        share = getattr(self.connection, "share", None)
        if share is not None:
            share.is_urgent = self.is_urgent
        return share

    def grow(self, size_bytes: int) -> None:
        """Its answer holds so many bytes more than slices are taken to hold. ProtocolError: too many."""
        share = self.share
        if share is not None:
            share.grow(size_bytes)

    def hold(self, size_bytes: int) -> None:
        """The request itself holds so many bytes, as objects, while it is answered."""
        share = self.share
        if share is not None:
            share.hold(size_bytes)

    def keeps(self, *containers: object) -> Effects:
        """Have what is in lists, dictionaries, sets and messages of very many rows freed in portions.

        It is kept until the request is over, however it ends. Say so of what was made where a slice ends; of
        the same container once or more. The effects are none.
        """
        share = getattr(self.connection, "share", None)
        if share is not None:
            for each in containers:
                share.keeps(each)
        return []

    def gives_way(self) -> None:
        """It waits for followers or a tier from here on: no other answer is to wait for it."""
        share = self.share
        if share is not None:
            share.give_way()

    def when_gone(self, abandon: Callable[[int], Effects]) -> None:
        """Have `abandon(now_ms)` called once if whoever asked hangs up before the answer.

        For what waits long and keeps much; of anything else the answer is dropped when it comes.
        """
        share = getattr(self.connection, "share", None)
        if share is not None:
            share.waits()  # others are not to wait until its time has come
        tell = getattr(self.connection, "when_gone", None)
        if tell is not None:
            tell(self.turn, abandon)

    def makes_reply(self, make: Callable[[*Found], Effect]) -> Callable[[*Found], Effect]:
        """Return `make`, which makes the answer, as one that closes the connection where it fails.

        For a machine that is to call it in a step of its own, or of somebody else's request: the step goes
        on, and whoever asked learns that there is no answer. The rule stands in runtime/failed_requests.
        """

        def guarded(*found: *Found) -> Effect:
            try:
                return make(*found)
            except Exception as problem:  # noqa: BLE001 - the runtime judges
                return self.failed(problem)

        return guarded

    def makes_replies(self, make: Callable[[*Found], Effects]) -> Callable[[*Found], Effects]:
        """As `makes_reply`, of one that returns effects."""

        def guarded(*found: *Found) -> Effects:
            try:
                return make(*found)
            except Exception as problem:  # noqa: BLE001 - the runtime judges
                return [self.failed(problem)]

        return guarded

    def ends(self) -> None:
        """No slice of it is left, for the time being: its answer may be made in slices, too."""
        on_end = getattr(self, "on_end", None)
        if on_end is not None:
            del self.on_end
            on_end()

    def failed(self, problem: Exception) -> "CloseConnection[RequestContext]":
        """There is no answer, because something went wrong inside, unexpectedly."""
        return CloseConnection(context=self, problem=problem)

    def close(self) -> "CloseConnection[RequestContext]":
        """Drop the connection without an answer."""
        return CloseConnection(context=self)


class UntilGone(Generic[*Found]):
    """An answer that may wait for minutes. When whoever asked hangs up it is let go of, with its request.

    What waits for it stays as it is: a member of a group has joined, whether or not anybody hears of it.
    Called then it does nothing.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[*Found], Effect]) -> None:
        self._make: Callable[[*Found], Effect] | None = make

    def __call__(self, *found: *Found) -> Effect:
        make, self._make = self._make, None
        return _NOTHING_TO_DO if make is None else make(*found)

    def waits(self, context: RequestContext) -> None:
        """The request has been handled: watch its connection, unless the answer is made."""
        if self._make is not None:
            context.when_gone(self._let_go)

    def _let_go(self, now_ms: int) -> Effects:
        self._make = None
        return []
