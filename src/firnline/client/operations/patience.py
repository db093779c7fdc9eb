"""How long a request to a cluster may take, and how long it is repeated. WORLD."""

import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

from firnline.base.errors import Code, KafkaError
from firnline.client.admin import Admin
from firnline.client.connection import Connection
from firnline.protocol.schema import Message

_T = TypeVar("_T")
GLANCE_S = 1.0
_RETRY_S = 0.2
# A node that waits for others as long as we allowed still needs a moment for its answer.
_ANSWER_S = 5.0
# A controller is not known yet, or did not answer the broker that forwards.
NO_CONTROLLER = (Code.NOT_CONTROLLER, Code.REQUEST_TIMED_OUT)


def ask_to_wait(
    admin: Admin, node: Connection, request: Message, *, most_s: float = math.inf
) -> Any:
    """Return the response to a request for which the node may wait `admin.wait_ms`, or `most_s`."""
    return node.ask(request, timeout_s=min(admin.timeout_s, most_s) + _ANSWER_S)


def repeat(
    admin: Admin,
    ask: Callable[[], _T],
    is_over: Callable[[_T], bool],
    *,
    most_s: float = math.inf,
) -> _T:
    """Ask until `is_over` the answer, or the time that `admin` waits; return the last answer.

    most_s  GLANCE_S for a look at many things of which some may not answer
    """
    until_s = time.monotonic() + min(admin.left_s, most_s)
    while True:
        answer = ask()
        if is_over(answer) or time.monotonic() >= until_s:
            return answer
        time.sleep(_RETRY_S)


def ask_controller(admin: Admin, ask: Callable[[], _T], *, most_s: float = math.inf) -> _T:
    """Retry while no controller is known, for as long as `admin` waits. Then KafkaError says so.

    `ask` must be safe to repeat. most_s: as in `repeat`, for those who can go on without an answer.
    """

    def once() -> _T | KafkaError:
        try:
            return ask()
        except KafkaError as problem:
            if problem.code not in NO_CONTROLLER:
                raise
            return problem

    answer = repeat(admin, once, lambda found: not isinstance(found, KafkaError), most_s=most_s)
    if isinstance(answer, KafkaError):
        why = "no controller is active, so nothing can be changed: see firnline cluster status"
        raise KafkaError(answer.code, why)
    return answer
