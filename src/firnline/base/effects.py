"""What a machine asks of the world, and how the world answers. PURE.

`Effect`, at the end, lists them all. One that has an answer carries its continuation `then`, which takes the
answer and `now_ms` and returns further effects; it is called on the node's one thread only. Append and
EnsureTopic are for another part of the same node, which `broker/node.py` finds; the runtime carries out all
others. Effects are carried out in list order.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from firnline.base.errors import KafkaError, StorageError
from firnline.base.event import event
from firnline.base.ids import TopicPartition
from firnline.base.ports import File

Effects = list["Effect"]
Pool = Literal["disk", "copy", "read", "expire", "names", "codec", "pages", "votes"]
# Files of one log directory that are synced at the same time: by a Flush, and by the threads of the pool.
SYNC_THREADS = 8
# Each log directory has threads of its own: one that hangs holds up no other one.
BY_DIRECTORY: frozenset[Pool] = frozenset(("disk", "pages"))
T = TypeVar("T")
Context = TypeVar("Context")
Response = TypeVar("Response")
Job = TypeVar("Job")
Group = TypeVar("Group")
Done = TypeVar("Done")


@event
class Flush:
    """fdatasync `files`, grouped with what else waits for their disk; then `then(error or None, now_ms)`."""

    files: Sequence[File]
    then: Callable[[StorageError | None, int], Effects]


@event
class Submit(Generic[T]):
    """Run `work` off the loop in the named pool; then `then(result or the exception, now_ms)`.

    `work` takes nothing that the loop may change meanwhile. A full pool answers at once with
    KafkaError(THROTTLING_QUOTA_EXCEEDED).

    owner  whose it is: those who have work in a pool take turns, and each has his own done in order
    path   in the log directory whose disk it waits for
    """

    name: str
    pool: Pool
    work: Callable[[], T]
    then: Callable[[T | Exception, int], Effects]
    owner: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        assert self.path or self.pool not in BY_DIRECTORY, (
            "a disk is waited for, and nobody knows which"
        )


@event
class Compact(Generic[Job, Group, Done]):
    """Do a round of compaction beside the loop; log.compaction.rounds.Compaction says what the types are.

    Each group that is ready goes to `on_group(group, now_ms)`, which swaps it in and returns effects, or
    None: the round is to end. At last `then(what was done or the exception, now_ms)`, exactly once.
    """

    job: Job
    on_group: Callable[[Group, int], Effects | None]
    then: Callable[[Done | Exception, int], Effects]


@event
class SetTimer:
    """Call `then(now_ms)` once at `at_ms`, monotonic. A timer of the same key is replaced."""

    key: Hashable
    at_ms: int
    then: Callable[[int], Effects]


@event
class CancelTimer:
    """Forget the timer of that key; none is fine."""

    key: Hashable


@event
class Reply(Generic[Context]):
    """Answer one request.

    context  says which connection, request and version: api.context.RequestContext, or the simulator's own
    message  api.context.Answer, or None: the request has no answer (Produce with acks=0)
    """

    context: Context
    message: object


class Peer(NamedTuple):
    """Another node and where it listens. `node_id` is negative for a bootstrap server: whoever is there."""

    node_id: int
    host: str
    port: int


@event
class Unanswered:
    """No answer came: not connected, cut off, timed out, or not understood. `why` is for the operator.

    is_unsupported  the other side has no version of the request within the bounds that were given
    """

    why: str
    is_unsupported: bool = False


class Request(Generic[Response]):
    """What another node can be asked; a subclass, of `protocol.messages`, names the class of the answer."""

    __slots__ = ()


@event
class Send(Generic[Response]):
    """Ask another node; then `then(response or Unanswered, now_ms)`, exactly once.

    `request` is a message of `protocol.messages`; it leaves in the newest version both sides know,
    but no newer than `version_max`; where that is older than `version_min` it does not leave. Requests of
    one `channel` to one peer keep their order and share a connection; other channels do not wait for them.
    """

    peer: Peer
    request: Request[Response]
    timeout_ms: int
    then: Callable[[Response | Unanswered, int], Effects]
    channel: str = "quorum"
    version_max: int = 32_767
    version_min: int = 0


@event
class CloseConnection(Generic[Context]):
    """Drop the peer without an answer.

    problem  what went wrong inside, unexpectedly, when its request was under way; None: nothing did
    instead  a Reply that says so to a peer which asks for many others: its connection stays
    """

    context: Context
    problem: Exception | None = None
    instead: Reply[Context] | None = None


@event
class Warn:
    """Tell the operator, in one line of the log: what is wrong, where, and what can be done."""

    line: str


@event
class Note:
    """Tell the operator, in one line of the log, what was done: nothing is wrong."""

    line: str


class Appended(NamedTuple):
    """Where a batch went: first and last offset, inclusive, and the time the log gave it, or -1."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


@event
class Append:
    """Append one built batch to a partition this node leads, as acks=all; answer when it is committed.

    Coordinators and the tier write their records with it; `then` gets Appended or a KafkaError.
    """

    topic_partition: TopicPartition
    batch: bytearray
    then: Callable[[Appended | KafkaError, int], Effects]


@event
class EnsureTopic:
    """Create the internal topic of that name if it is not there; then `then(error or None, now_ms)`."""

    name: str
    then: Callable[[KafkaError | None, int], Effects]


# Any: a list holds effects of each type, and whoever carries one out knows of which.
Effect = (
    Flush
    | Submit[Any]
    | Compact[Any, Any, Any]
    | SetTimer
    | CancelTimer
    | Reply[Any]
    | Send[Any]
    | CloseConnection[Any]
    | Warn
    | Note
    | Append
    | EnsureTopic
)


def with_cause(problem: StorageError, effects: Effects) -> Effects:
    """Say what it was before what becomes of it, where anything does: the disk logs not every error."""
    return [Warn(line=str(problem)), *effects] if effects else effects
