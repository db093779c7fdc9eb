"""Offsets whose reads from the tier have taken longer than a Fetch waits. PURE.

The first Fetch of such an offset gets no records and no error, as in Kafka; the read goes on, and the next
Fetch joins it. If that waits in vain, too, the client gets an error: a store that hangs must not look like a
partition without records. Source: T36, T59.
"""

from firnline.base.ids import TopicIdPartition
from firnline.base.units import MINUTE_MS, SECOND_MS

# How many offsets are remembered, and for how long after the last Fetch.
REMEMBERED = 10_000
REMEMBERED_MS = MINUTE_MS
# The longest wait of a Fetch for an offset that another one has waited for: the error comes within
# remote.fetch.max.wait.ms and this time.
_AGAIN_MS = SECOND_MS
# The error comes before the Fetch gives up.
_BEFORE_MS = 1


class LateReads:
    """The offsets of a node that fetches have waited for in vain."""

    def __init__(self) -> None:
        self._late: dict[
            tuple[TopicIdPartition, int], int
        ] = {}  # oldest first: time of the last Fetch

    def note(self, where: TopicIdPartition, offset: int, now_ms: int) -> None:
        """A Fetch has waited for it in vain."""
        self._late.pop((where, offset), None)
        self._late[(where, offset)] = now_ms
        if len(self._late) > REMEMBERED:
            del self._late[next(iter(self._late))]

    def forget(self, where: TopicIdPartition, offset: int) -> None:
        """It was read."""
        self._late.pop((where, offset), None)

    def limit_ms(
        self, where: TopicIdPartition, offset: int, max_wait_ms: int, now_ms: int
    ) -> int | None:
        """Return how long a Fetch of it may wait before it gets an error; None: it may wait to its end."""
        last_ms = self._late.get((where, offset))
        if last_ms is None or now_ms - last_ms > REMEMBERED_MS:
            return None
        return max(0, min(max_wait_ms, _AGAIN_MS) - _BEFORE_MS)
