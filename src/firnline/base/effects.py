"""Effects: values that say what the runtime is to do for the logic of a node. PURE.

The logic does no I/O. Each of its functions returns a list of effects, and the runtime carries them out in
list order. An effect with a result has a continuation `then`: the runtime calls it with the result and
`now_ms`, on the event loop only, and it returns further effects. `broker/node.py` passes Append and
EnsureTopic to another part of the same node. `Effect`, at the end, lists all kinds.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from firnline.base.errors import KafkaError, StorageError
from firnline.base.event import event
from firnline.base.ids import TopicPartition
from firnline.base.log_lines.line import Log
from firnline.base.log_lines.storage import STORAGE_FAILED
from firnline.base.ports import File

Effects = list["Effect"]
Pool = Literal[
    "disk", "copy", "read", "ahead", "index", "expire", "probe", "names", "codec", "pages", "votes"
]
# How many files of one log directory are synced at the same time, by Flush effects and by the pool "disk".
SYNC_THREADS = 8
# These pools have threads of their own for each log directory, so that a disk that hangs delays no other.
BY_DIRECTORY: frozenset[Pool] = frozenset(("disk", "pages"))
T = TypeVar("T")
Context = TypeVar("Context")
Response = TypeVar("Response")
Job = TypeVar("Job")
Group = TypeVar("Group")
Done = TypeVar("Done")


@event
class Flush:
    """Sync `files`, together with those of other Flush effects; then call `then(error or None, now_ms)`."""

    files: Sequence[File]
    then: Callable[[StorageError | None, int], Effects]


@event
class Submit(Generic[T]):
    """Run `work` on a thread of the named pool; then call `then(result or the exception, now_ms)`.

    `work` must not use state that the event loop may change meanwhile. Where the queue of the pool is full,
    or too many of its threads hang, the result is KafkaError(THROTTLING_QUOTA_EXCEEDED). Where `work` raises
    what is no Exception, the result is WorkFailed.

    owner             the pool serves owners in round robin, and the work of one owner in order
    path              a path in the log directory whose disk `work` waits for
    key               names the work for CancelSubmit. A Submit is ignored while the same pool has work of its
                      key that waits, or runs, or whose result is on its way
    run_timeout_ms    how long `work` may run; 0: for ever. After that the result is WorkTimedOut, and what
                      `work` returns later is ignored. Work that writes a local disk must have none
    queue_timeout_ms  how long `work` may wait for a thread; 0: for ever. After that it is not begun, and the
                      result is WorkTimedOut
    slow_ms           each time `work` has run for so much longer, `slow(now_ms)` is called, maybe once more
                      after the result; 0: never. The work must have a `run_timeout_ms`
    ended             after WorkTimedOut of work that had begun, called once it has ended all the same; maybe
                      never
    """

    name: str
    pool: Pool
    work: Callable[[], T]
    then: Callable[[T | Exception, int], Effects]
    owner: str = ""
    path: str = ""
    key: Hashable = None
    run_timeout_ms: int = 0
    queue_timeout_ms: int = 0
    slow_ms: int = 0
    slow: Callable[[int], Effects] | None = None
    ended: Callable[[int], Effects] | None = None

    def __post_init__(self) -> None:
        assert self.path or self.pool not in BY_DIRECTORY, (
            "work for a pool with threads for each log directory needs a path"
        )
        assert self.run_timeout_ms or not self.slow_ms, (
            "work without a limit of time is not watched"
        )


@event
class CancelSubmit:
    """Cancel the work of that key in the named pool, if there is any: its continuation is not called.

    Work that runs goes on, and its result is dropped; with `only_waiting` it is not cancelled.
    """

    pool: Pool
    key: Hashable
    only_waiting: bool = False


@event
class Compact(Generic[Job, Group, Done]):
    """Run a round of compaction in another process; log.compaction.rounds.Compaction names the types.

    The runtime passes each finished group of segments to `on_group(group, now_ms)`. That swaps the segments
    in and returns effects, or None to end the round. At the end the runtime calls
    `then(result or the exception, now_ms)`, exactly once.
    """

    job: Job
    on_group: Callable[[Group, int], Effects | None]
    then: Callable[[Done | Exception, int], Effects]


@event
class SetTimer:
    """Call `then(now_ms)` once at `at_ms` of the monotonic clock. It replaces a timer with the same key."""

    key: Hashable
    at_ms: int
    then: Callable[[int], Effects]


@event
class CancelTimer:
    """Cancel the timer of that key, if there is one."""

    key: Hashable


@event
class Reply(Generic[Context]):
    """Send the response to one request.

    context  the connection, the request and its version: api.context.RequestContext, or the simulator's own
    message  api.context.Answer; None where the request gets no response (Produce with acks=0)
    """

    context: Context
    message: object


class Peer(NamedTuple):
    """Another node and its address. `node_id` is negative for a bootstrap server, whose id is not known."""

    node_id: int
    host: str
    port: int


@event
class Unanswered:
    """A request to another node got no response: no connection, a timeout, or a response that cannot be read.

    why             the reason, for the operator
    is_unsupported  the other node supports no version of the request within the given bounds
    """

    why: str
    is_unsupported: bool = False


class Request(Generic[Response]):
    """A request to another node. Its subclasses, in `protocol.messages`, name the class of the response."""

    __slots__ = ()


@event
class Send(Generic[Response]):
    """Send a request to another node; then call `then(response or Unanswered, now_ms)`, exactly once.

    `request` is a message of `protocol.messages`. It is sent in the newest version that both nodes support,
    at most `version_max`; if that is below `version_min`, the result is Unanswered. Requests of one `channel`
    to one peer share a connection and keep their order. Channels do not wait for one another.
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
    """Close the connection of a request without a response.

    problem  the unexpected exception that ended the request; None where there was none
    instead  an error response for a peer that forwards requests of many clients: its connection stays open
    """

    context: Context
    problem: Exception | None = None
    instead: Reply[Context] | None = None


class Appended(NamedTuple):
    """The first and last offset of an appended batch, inclusive, and its LogAppendTime, or -1."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int


@event
class Append:
    """Append one batch to a partition that this node leads, with acks=all; call `then` once it is committed.

    Coordinators and the remote tier write their records so. `then` gets Appended or a KafkaError.
    """

    topic_partition: TopicPartition
    batch: bytearray
    then: Callable[[Appended | KafkaError, int], Effects]


@event
class EnsureTopic:
    """Create the internal topic of that name if it is missing; then call `then(error or None, now_ms)`."""

    name: str
    then: Callable[[KafkaError | None, int], Effects]


# Any: one list holds effects with results of different types.
Effect = (
    Flush
    | Submit[Any]
    | CancelSubmit
    | Compact[Any, Any, Any]
    | SetTimer
    | CancelTimer
    | Reply[Any]
    | Send[Any]
    | CloseConnection[Any]
    | Log
    | Append
    | EnsureTopic
)


def with_cause(problem: StorageError, effects: Effects) -> Effects:
    """Put a warning about `problem` before its consequences, if there are any.

    The disk port does not log every error itself.
    """
    return [STORAGE_FAILED(error=problem), *effects] if effects else effects
