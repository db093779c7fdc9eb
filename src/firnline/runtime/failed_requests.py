"""Requests that failed because of an error in the node: logged, counted, and their connections closed. WORLD.

The rule. Only the client depends on a response. If making or encoding it raises, its connection is closed,
and all others are served. `RequestContext.makes_reply` catches errors of making it, in any step, and the
runtime those of encoding. But other clients and nodes depend on the decisions and the state of the state
machines. So an error in the step of a timer, a sync or another part stops the node (`Runtime.resume`), and so
does a Bug, a CannotGoOn or a StorageError anywhere. A request can also advance state on which others depend:
the Fetch of a voter commits metadata, that of a follower commits records. An error there becomes one that
stops the node (`QuorumState.notify`, `ProduceWaiters.passed`).
"""

import logging
import time
from collections import Counter

from firnline.api.context import RequestContext

log = logging.getLogger("firnline.net")

_CLIENT_ID_CHARS_MAX = 100
_QUIET_S = 1.0


class FailedRequests:
    """Counts failed requests by the name of their API: `counts`."""

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

        context  the request; None if it failed before its header was decoded
        """
        self.counts[api_name] += 1
        now = time.monotonic()
        if now - self._logged_at.get(api_name, -_QUIET_S) < _QUIET_S:
            self._unlogged[api_name] += 1
            return
        self._logged_at[api_name] = now
        version = getattr(context, "api_version", None)
        asked = api_name if version is None else f"{api_name} version {version}"
        client_id = getattr(context, "client_id", None)
        client = "" if client_id is None else f" of client {client_id[:_CLIENT_ID_CHARS_MAX]!r}"
        unlogged = self._unlogged.pop(api_name, 0)
        more = f" ({unlogged} more like it)" if unlogged else ""
        line = "a request failed inside; its connection is closed: %s%s at %s: %r%s"
        log.error(line, asked, client, peer_host, _short(problem), more, exc_info=problem)


def _short(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:300]
