"""What was counted in the last minute, from counters that only grow. WORLD.

Each scrape leaves its values behind. Later ones are compared with the oldest of the last minute, or those
before them; the first one with the start of the process. Any number of scrapers may come.
"""

from collections import deque
from collections.abc import Sequence

_WINDOW_MS = 60_000
# Scrapes in shorter succession leave nothing behind.
_APART_MS = 5_000


class Window:
    """Remembers counters of one kind. Counters that are new since then began at 0."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, dict[object, Sequence[float]]]] = deque()

    def since(
        self, now_ms: int, values: dict[object, Sequence[float]]
    ) -> dict[object, list[float]]:
        """Return how much each counter grew, by key, within a minute and the time between two scrapes."""
        samples = self._samples
        while len(samples) > 1 and now_ms - samples[1][0] >= _WINDOW_MS:
            samples.popleft()
        base = samples[0][1] if samples else {}
        if not samples or now_ms - samples[-1][0] >= _APART_MS:
            samples.append((now_ms, values))
        found = {}
        for key, now in values.items():
            before = base.get(key) or [0.0] * len(now)
            grown = [one - other for one, other in zip(now, before, strict=True)]
            # Nothing new since the only scrape so far: what was counted until then is the best answer.
            found[key] = grown if any(grown) or len(samples) > 1 else list(now)
        return found
