"""Since when Fetches wait for one offset of the tier, one after the other. PURE.

A Fetch waits for `remote.fetch.max.wait.ms`. A client that was answered without records repeats it, and each
of them joins the same read. The first one may be answered empty: the store is slow, and the read goes on. A
later one must not be, or a consumer of a store that hangs never learns of it. Source: T36, T59.
"""

from collections.abc import Hashable

from firnline.base.units import SECOND_MS

# A Fetch that comes so long after the one before is no repetition of it. Clients wait for less than that
# before they repeat a Fetch, also one that was an error: the longest default is a second.
REPEATED_MS = 10 * SECOND_MS
# A consumer is told of a store that hangs within the wait of a Fetch and so much.
MARGIN_MS = SECOND_MS


class _Wait:
    """Fetches of one offset without an answer: since when, how many wait, and when the last one left."""

    __slots__ = ("began_ms", "count", "left_ms")

    def __init__(self, began_ms: int) -> None:
        self.began_ms = self.left_ms = began_ms
        self.count = 0


class LateReads:
    """The offsets of a node that Fetches wait for, or have lately waited for in vain."""

    def __init__(self) -> None:
        self._waits: dict[Hashable, _Wait] = {}  # the one that a Fetch has left last comes last

    def begin(self, place: Hashable, now_ms: int) -> None:
        """A Fetch begins to wait for an offset."""
        while self._waits:
            old = next(iter(self._waits))
            if self._waits[old].count or now_ms - self._waits[old].left_ms <= REPEATED_MS:
                break
            del self._waits[old]
        known = self._waits.get(place)
        if known is None or (not known.count and now_ms - known.left_ms > REPEATED_MS):
            known = self._waits[place] = _Wait(now_ms)
        known.count += 1

    def answered(self, place: Hashable) -> None:
        """The tier has answered, or has failed: who asks now begins anew."""
        self._waits.pop(place, None)

    def left(self, place: Hashable, now_ms: int) -> None:
        """A Fetch does not wait any more."""
        wait = self._waits.pop(place, None)
        if wait is not None:
            wait.count, wait.left_ms = max(wait.count - 1, 0), now_ms
            self._waits[place] = wait

    def error_at_ms(self, place: Hashable, wait_ms: int) -> int | None:
        """Return from when on a Fetch of the offset is answered with an error; None: nobody waits for it.

        After twice the wait of a Fetch: so the first one that asks is answered empty, and the second one with
        the error. After that wait and MARGIN_MS at the latest: with a long wait twice would be too much.
        """
        wait = self._waits.get(place)
        return None if wait is None else wait.began_ms + min(2 * wait_ms, wait_ms + MARGIN_MS)
