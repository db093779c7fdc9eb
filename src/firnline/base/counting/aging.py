"""By which time records age, where the clock of the machine may be wrong. PURE.

A node that starts with a clock years ahead would find everything too old that is kept for a time, and delete
it: from its disks, from the tier, and, as a leader, from its followers. Nothing on the machine says whether a
clock is right. But if it is far from the time at which the node last ran, a day is time enough for somebody
to look, and a day of old records costs little. While a node runs, its clock does not jump (`runtime/clock`).
"""

from typing import NamedTuple

from firnline.base.units import DAY_MS

# A node that was off over a weekend is no surprise.
SURPRISE_MS = 3 * DAY_MS
DOUBTED_MS = DAY_MS


class Aging(NamedTuple):
    """Whether the clock is doubted, and what follows; without arguments: it is not.

    last_ms   when this node last ran, by a clock that was not doubted
    ahead_ms  how far ahead of that the clock was at this start; negative: behind
    until_ms  from then on the clock is not doubted any more
    """

    last_ms: int = 0
    ahead_ms: int = 0
    until_ms: int = 0

    def is_doubted(self, now_ms: int) -> bool:
        return now_ms < self.until_ms

    def time_ms(self, now_ms: int) -> int:
        """Return the time by which records age: while the clock is doubted, as if the node had not been off.

        A clock that is behind makes nothing older than it is, so it is taken as it is.
        """
        return now_ms - max(self.ahead_ms, 0) if self.is_doubted(now_ms) else now_ms


NOT_DOUBTED = Aging()


def aging_since(last_ms: int | None, now_ms: int) -> Aging:
    """Return how records age in a node that starts now and last ran at `last_ms`; None: nobody knows."""
    if last_ms is None or abs(now_ms - last_ms) <= SURPRISE_MS:
        return NOT_DOUBTED
    return Aging(last_ms, now_ms - last_ms, now_ms + DOUBTED_MS)
