"""Requests that failed because of an error in the node: logged, counted, and their connections closed. WORLD.

The rule. Only the client depends on a response. If making or encoding it raises, its connection is closed,
and all others are served. `RequestContext.makes_reply` catches errors of making it, in any step, and the
runtime those of encoding. But other clients and nodes depend on the decisions and the state of the state
machines. So an error in the step of a timer, a sync or another part stops the node (`Runtime.resume`), and so
does a Bug, a CannotGoOn or a StorageError anywhere. A request can also advance state on which others depend:
the Fetch of a voter commits metadata, that of a follower commits records. An error there becomes one that
stops the node (`QuorumState.notify`, `ProduceWaiters.passed`).
"""

import time
from collections import Counter

from firnline.api.context import RequestContext
from firnline.base.log_lines.process import REQUEST_FAILED, shown_client_id
from firnline.protocol.versions import kafka_name
from firnline.runtime.logs.lines import log_line

_QUIET_S = 1.0


class FailedRequests:
    """Counts failed requests by the name of their API, as Kafka writes it: `counts`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._logged_at: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def add(
        self,
        api_name: str,
        peer_host: str,
        context: RequestContext | None,
        problem: Exception,
    ) -> None:
        """Log one failure of an API a second, with the number of others.

        api_name  such as join_group
        context   the request; None if it failed before its header was decoded
        """
        api_name = kafka_name(api_name)
        self.counts[api_name] += 1
        now = time.monotonic()
        if now - self._logged_at.get(api_name, -_QUIET_S) < _QUIET_S:
            self._unlogged[api_name] += 1
            return
        self._logged_at[api_name] = now
        line = REQUEST_FAILED(
            host=peer_host,
            client_id=shown_client_id(getattr(context, "client_id", None)),
            api=api_name,
            version=getattr(context, "api_version", None),
            error=_short(problem),
            more=self._unlogged.pop(api_name, None),
        )
        log_line(line, problem)


def _short(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:300]
