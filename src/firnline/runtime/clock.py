"""The clock of the logic: milliseconds since 1970 that never go back and never jump. WORLD.

It runs with the monotonic clock and follows the wall clock slowly, so that a correction of the wall clock
does not expire sessions or roll segments at once (reliability d 87).

Each log directory has a file that says when a node last ran on it: by that the next start tells a clock that
is far off (`base.counting.aging`). Kafka reads no such file.
"""

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from firnline.base.units import MINUTE_MS
from firnline.log.checkpoint import META_PROPERTIES

# How much faster or slower than real time the clock may run while it follows a corrected wall clock.
_SLEW = 0.1
# How often `follow` is called.
FOLLOW_S = 5.0
# The file, and how often it is written.
LAST_RUN = "last-run"
KEPT_EVERY_MS = MINUTE_MS
_VERSION = "0"
# Longer than such a file can be.
_BYTES_MAX = 64
# No later year has a date.
_TIME_MAX_MS = 253_402_300_799_999


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


def last_run_ms(directories: Iterable[str]) -> int | None:
    """Return when a node last ran on these directories, in ms since 1970; None if no file says it."""
    return max(filter(None, map(_read, directories)), default=None)


def _read(directory: str) -> int | None:
    """What is no such file says nothing: there are directories without, and disks that cannot be read."""
    try:
        with open(Path(directory) / LAST_RUN, "rb") as file:
            version, time_ms, *rest = file.read(_BYTES_MAX).decode("ascii").split("\n")
    except (OSError, ValueError):
        return None
    is_complete = version == _VERSION and rest == [""] and time_ms.isdecimal()
    return int(time_ms) if is_complete and int(time_ms) <= _TIME_MAX_MS else None


def keep_last_run(directory: str, now_ms: int) -> None:
    """Write that a node runs now, but not into what only has the name of its directory: a mount point.

    A disk that refuses it has said so elsewhere, or will.
    """
    path = Path(directory) / LAST_RUN
    new = path.with_name(LAST_RUN + ".tmp")
    try:
        if not path.with_name(META_PROPERTIES).exists():
            return
        with open(new, "wb") as file:
            file.write(f"{_VERSION}\n{now_ms}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def date_of(time_ms: int) -> str:
    """Return a time for people, in UTC."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
