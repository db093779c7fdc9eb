"""What clients may ask for and this release lacks: the sentence for them, and a line in the log. PURE.

A handler answers with a code on which clients give up at once (docs/COMPATIBILITY.md has a table), and with
the sentence where the response has room for one. Many clients show neither, so the log names the client. It
has few lines however many clients ask.
"""

from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from firnline.api.context import RequestContext
from firnline.base.effects import Effects
from firnline.base.log_lines.process import CLIENT_REFUSED, shown_client_id
from firnline.base.units import MINUTE_MS

if TYPE_CHECKING:
    from firnline.broker.node import BrokerNode

TRANSACTIONS = (
    "Firnline has no transactions yet: do not set transactional.id (idempotence works without)"
)
CONSUMER_PROTOCOL = (
    "Firnline does not have the group protocol of KIP-848 yet: set group.protocol=classic"
)
# The same client is named again after this time; all together have so many lines a minute.
SAME_CLIENT_MS = 10 * MINUTE_MS
LINES_PER_MINUTE = 10
_CLIENTS_MAX = 1_000


class _Named:
    """The clients that the log of one node has named, each with the time, and the times of the last lines."""

    def __init__(self) -> None:
        self._named_ms: dict[tuple[str, str, str], int] = {}
        self._lines_ms: deque[int] = deque(maxlen=LINES_PER_MINUTE)

    def note(self, sentence: str, context: RequestContext, now_ms: int) -> Effects:
        """See `note_refusal`."""
        client_id = shown_client_id(context.client_id) or ""
        client = (sentence, client_id, context.peer_host)
        named_ms = self._named_ms.get(client)
        if named_ms is not None and now_ms - named_ms < SAME_CLIENT_MS:
            return []
        lines = self._lines_ms
        if len(lines) == LINES_PER_MINUTE and now_ms - lines[0] < MINUTE_MS:
            return []
        lines.append(now_ms)
        self._named_ms.pop(client, None)
        if len(self._named_ms) >= _CLIENTS_MAX:
            del self._named_ms[next(iter(self._named_ms))]
        self._named_ms[client] = now_ms
        line = CLIENT_REFUSED(
            host=context.peer_host,
            client_id=client_id,
            api=context.asked.api,
            reason=sentence,
        )
        return [line]


_named: "WeakKeyDictionary[object, _Named]" = WeakKeyDictionary()


def note_refusal(
    node: "BrokerNode", sentence: str, context: RequestContext, now_ms: int
) -> Effects:
    """Return a line for the log, or nothing if there was one for this client, or were too many."""
    return _named.setdefault(node, _Named()).note(sentence, context, now_ms)
