"""The clock of the logic: milliseconds since 1970 that never go back and never jump. WORLD.

It runs with the monotonic clock and follows the wall clock slowly, so that a correction of the wall clock
does not expire sessions or roll segments at once (reliability d 87).
"""

import time
from collections.abc import Callable

# How much faster or slower than real time the clock may run while it follows a corrected wall clock.
_SLEW = 0.1
# How often `follow` is called.
FOLLOW_S = 5.0


class SteadyClock:
    """Follows the wall clock at 0.9x to 1.1x of real time. `follow` is called every FOLLOW_S seconds.

    `monotonic` and `wall` return seconds; the simulator passes those of a simulated machine.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._followed_ms = monotonic() * 1000
        self._base_ms = wall() * 1000 - self._followed_ms

    def now_ms(self) -> int:
        return int(self._monotonic() * 1000 + self._base_ms)

    def follow(self) -> None:
        """Move towards the wall clock by at most a tenth of the time since the last call."""
        monotonic_ms = self._monotonic() * 1000
        reach_ms = (monotonic_ms - self._followed_ms) * _SLEW
        drift_ms = self._wall() * 1000 - monotonic_ms - self._base_ms
        self._base_ms += max(-reach_ms, min(reach_ms, drift_ms))
        self._followed_ms = monotonic_ms
