"""What the tier of a node has done since its start, for the metrics. PURE.

Source: KIP-405 'Monitoring', KIP-930, KIP-956, KIP-963; spec T48, T50.
"""

from collections import deque
from dataclasses import dataclass
from typing import Literal, NamedTuple

from firnline.base.units import SECOND_MS

RECENT_SECONDS = 60
Counted = Literal[
    "copy_requests",
    "copy_bytes",
    "copy_errors",
    "fetch_requests",
    "fetch_bytes",
    "fetch_errors",
    "delete_requests",
    "delete_errors",
    "aux_state_requests",
    "aux_state_errors",
    "damaged_segments",
    "read_ahead_bytes",
    "read_ahead_hits",
    "read_ahead_hit_bytes",
    "read_ahead_errors",
]


@dataclass(slots=True)
class Counters:
    """Counts since the start, or since the first partition of the topic came to this node."""

    copy_requests: int = 0
    copy_bytes: int = 0
    copy_errors: int = 0
    fetch_requests: int = 0
    fetch_bytes: int = 0
    fetch_errors: int = 0
    delete_requests: int = 0
    delete_errors: int = 0
    aux_state_requests: int = 0
    aux_state_errors: int = 0
    damaged_segments: int = 0  # local ones that were refused, and remote ones that were read
    read_ahead_bytes: int = 0
    read_ahead_hits: int = 0  # reads that got what was read ahead, and their bytes
    read_ahead_hit_bytes: int = 0
    read_ahead_errors: int = 0


class NodeCounters(Counters):
    """The counts of the node, and those of each topic of which it has partitions.

    A topic that is not here is counted for the node alone: there is no limit to the topics that are deleted.
    """

    __slots__ = ("by_topic",)

    def __init__(self) -> None:
        super().__init__()
        self.by_topic: dict[str, Counters] = {}

    def add(self, topic: str, what: Counted, count: int = 1) -> None:
        """Count something for the topic and for the node."""
        setattr(self, what, getattr(self, what) + count)
        of_topic = self.by_topic.get(topic)
        if of_topic is not None:
            setattr(of_topic, what, getattr(of_topic, what) + count)


class Times(NamedTuple):
    """How often something took time since the start; on average and at most in the last minute, in ms."""

    times: int = 0
    total_ms: int = 0
    avg_ms: float = 0.0
    max_ms: int = 0


class RecentTimes:
    """Times that something took: call `note`, and ask with `look`."""

    __slots__ = ("_count", "_seconds", "_total_ms")

    def __init__(self) -> None:
        self._count = self._total_ms = 0
        # (second, count, total, longest), oldest first.
        self._seconds: deque[tuple[int, int, int, int]] = deque()

    def note(self, took_ms: int, now_ms: int) -> None:
        self._count += 1
        self._total_ms += took_ms
        second = now_ms // SECOND_MS
        count = total_ms = longest_ms = 0
        if self._seconds and self._seconds[-1][0] == second:
            _, count, total_ms, longest_ms = self._seconds.pop()
        row = (second, count + 1, total_ms + took_ms, max(longest_ms, took_ms))
        self._seconds.append(row)
        self._forget(second)

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - RECENT_SECONDS:
            self._seconds.popleft()

    def look(self, now_ms: int) -> Times:
        self._forget(now_ms // SECOND_MS)
        count = sum(row[1] for row in self._seconds)
        total_ms = sum(row[2] for row in self._seconds)
        longest_ms = max((row[3] for row in self._seconds), default=0)
        return Times(self._count, self._total_ms, total_ms / count if count else 0.0, longest_ms)
