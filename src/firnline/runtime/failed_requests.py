"""Requests that failed inside: said once, counted, and paid for with one connection. WORLD.

The rule. Nobody but who asked depends on an answer: where making or encoding it raises, that connection is
closed and everybody else is served. `RequestContext.makes_reply` sees the making, in whatever step it comes,
and the runtime the encoding, which is one place for all answers. What a machine decides and remembers is
another matter: others depend on it, so a failure in a step of a timer, a sync or a sibling stops the node
(`Runtime.resume`), as does a Bug, a CannotGoOn or a StorageError wherever it comes from. Where a request
makes others' machines move on, a voter's Fetch that commits metadata or a follower's that commits records,
what fails there is made one of these (`QuorumState.tell`, `ProduceWaiters.passed`).
"""

import logging
import time
from collections import Counter

from firnline.api.context import RequestContext

log = logging.getLogger("firnline.net")

_CLIENT_ID_CHARS_MAX = 100
_QUIET_S = 1.0


class FailedRequests:
    """Counts them by the name of their API: `counts`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._told_at: dict[str, float] = {}
        self._untold: Counter[str] = Counter()

    def add(
        self,
        api_name: str,
        peer_host: str,
        context: RequestContext | None,
        problem: Exception,
    ) -> None:
        """Tell the operator of one of an API a second, and how many others there were.

        context  the request, None where it failed before there was one
        """
        self.counts[api_name] += 1
        now = time.monotonic()
        if now - self._told_at.get(api_name, -_QUIET_S) < _QUIET_S:
            self._untold[api_name] += 1
            return
        self._told_at[api_name] = now
        version = getattr(context, "api_version", None)
        asked = api_name if version is None else f"{api_name} version {version}"
        client_id = getattr(context, "client_id", None)
        client = "" if client_id is None else f" of client {client_id[:_CLIENT_ID_CHARS_MAX]!r}"
        untold = self._untold.pop(api_name, 0)
        more = f" ({untold} more like it)" if untold else ""
        line = "a request failed inside; its connection is closed: %s%s at %s: %r%s"
        log.error(line, asked, client, peer_host, _short(problem), more, exc_info=problem)


def _short(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:300]
