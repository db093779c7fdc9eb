"""Histograms of how long something took, with fixed buckets. Adding is a search and two additions. PURE.

A bucket ends at 1.25 times the end of the one below, from 5 us to two minutes, so a quantile is wrong by an
eighth at most. Whoever shows quantiles subtracts an older copy of the counts, and has those of the time
between (server/request_metrics).
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import mul

_FIRST_MS, _RATIO, _BUCKETS = 0.005, 1.25, 77
# The upper ends of the buckets. One more bucket has everything above the last end.
ENDS_MS = tuple(accumulate(repeat(_RATIO, _BUCKETS - 1), mul, initial=_FIRST_MS))


class Times:
    """How often something took how long, since the start: a count for each bucket, and the sum in ms.

    Before the first is counted there are no buckets: a node knows hundreds of requests, and sees few of them.
    """

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.sum_ms = 0.0

    def add(self, took_ms: float) -> None:
        """Count something that took `took_ms`; less than nothing is nothing."""
        if not self.counts:
            self.counts = [0] * (_BUCKETS + 1)
        self.counts[bisect_left(ENDS_MS, took_ms)] += 1
        if took_ms > 0:
            self.sum_ms += took_ms

    def copy(self) -> tuple[int, ...]:
        """Return the counts as they are now; none if nothing was counted."""
        return tuple(self.counts)


def quantile_ms(counts: Sequence[float], part: float) -> float:
    """Return the time in ms that `part` of what was counted took at most; 0.0 if nothing was counted.

    Within a bucket times are taken to be spread evenly. What is above the last bucket counts as its end.
    """
    total = sum(counts)
    if not total:
        return 0.0
    wanted, seen = part * total, 0.0
    for place, count in enumerate(counts):
        if count and seen + count >= wanted:
            end = ENDS_MS[min(place, _BUCKETS - 1)]
            begin = ENDS_MS[place - 1] if 0 < place < _BUCKETS else (0.0 if not place else end)
            return begin + (end - begin) * max(0.0, wanted - seen) / count
        seen += count
    return ENDS_MS[-1]
