"""Asks many nodes at the same time, and takes no longer than one of them may. WORLD.

A process that is stopped, or whose machine is overloaded, accepts connections and says nothing. So each node
has a thread of its own, and all of them the same time.
"""

from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from firnline.base.errors import FirnlineError, KafkaError
from firnline.client.connection import Connection, NoAnswer, NoController, Unreachable
from firnline.client.deadline import Deadline
from firnline.protocol.messages.k32003_cluster_status import ClusterStatusRequest

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Node = tuple[K, str, int]
_ASKED_AT_ONCE = 64


class Probe(NamedTuple):
    """What a node answered.

    why     None: it answered. Else why not, for people
    status  what it says of itself: a ClusterStatusResponse; None: it is Kafka's, or did not answer
    """

    why: str | None
    status: Any = None


def ask_all(
    nodes: Iterable[Node[K]], ask: Callable[[Connection], T], timeout_s: float
) -> dict[K, T | FirnlineError]:
    """Ask each (key, host, port) on a connection of its own; return the answers, or the errors, by key.

    timeout_s  how long a node may take for all that it is asked
    """
    rows = list(nodes)

    def one(row: Node[K]) -> T | FirnlineError:
        _, host, port = row
        try:
            with Connection(host, port, deadline=Deadline(timeout_s)) as node:
                return ask(node)
        except FirnlineError as problem:
            return problem

    if not rows:
        return {}
    with ThreadPoolExecutor(min(len(rows), _ASKED_AT_ONCE)) as pool:
        answers = list(pool.map(one, rows))
    return {row[0]: answer for row, answer in zip(rows, answers, strict=True)}


def probe_brokers(nodes: Iterable[Node[K]], timeout_s: float) -> dict[K, Probe]:
    """Ask each broker what it says of itself."""
    return {
        key: Probe(why_not(answer)) if isinstance(answer, FirnlineError) else Probe(None, answer)
        for key, answer in ask_all(nodes, _status_of, timeout_s).items()
    }


def _status_of(node: Connection) -> Any:
    node.spoken()  # Kafka does not know the next question, and hangs up on it: it is alive nevertheless
    try:
        return node.ask(ClusterStatusRequest(topics=[]))
    except NoAnswer:
        raise
    except (KafkaError, Unreachable):
        return None


def why_not(problem: FirnlineError) -> str:
    """Return why a node gave no answer, without its address."""
    if isinstance(problem, NoAnswer | NoController):
        return "no answer in time"
    return problem.why.rpartition(": ")[2]
