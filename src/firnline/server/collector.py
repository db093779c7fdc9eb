"""Keep CPython's garbage collector away from the metadata image. WORLD.

An image of a million partitions is some million objects without a cycle, and every full collection would
traverse all of them: hundreds of milliseconds in which no client is answered. So the image is moved out of
the collector's sight (`gc.freeze`) each time it has grown by a tenth, and collections of young objects stay
short. Consumer groups, some ten objects each, are counted with the partitions. Whatever else grows is frozen
after the first full collection that takes long, so that there is no second one.

`Collector.look` runs full collections. CPython's own rule would run them while the rows of a large request
are in memory, and traverse all of them. Measurements and costs: docs/decisions/0010.
"""

import gc
import time
from typing import Protocol

from firnline.metadata.partition_counts import PartitionCounts

# Number of young objects that triggers a collection, and of such collections that triggers one of their
# survivors: below 1 ms and 3 ms. The third threshold is never reached. (CPython 3.14 has no third generation;
# it collects old objects in steps.)
THRESHOLDS = (2_000, 2, 2**31 - 1)
# So many collections of survivors trigger a full one, for what grows and is not the image.
OLD_AFTER = 700
LOOK_S = 2.0
# A full collection waits while a large request is in progress, but at most a minute.
PUT_OFF_MAX = 30
# A full collection that takes more CPU than this freezes what it traversed, so that the next one is short.
LONG_S = 0.003
# Freeze only after so many new partitions and groups.
GROWTH_MIN = 1_000
_TENTH = 10
# Freeze after a load only with so many young objects; a follower that lags a few records has fewer.
_MUCH = 10 * THRESHOLDS[0]
_ALL = 2  # the generation of a full collection


class LoadedMetadata(Protocol):
    """What the collector asks of the metadata quorum."""

    partition_counts: PartitionCounts

    @property
    def is_loading(self) -> bool:
        """Is there committed metadata that this node has not applied?"""
        ...


class Collector:
    """Controls the garbage collector of this process. It is off from the start until the metadata is
    loaded.
    """

    def __init__(self) -> None:
        self._count = 0  # partitions and groups at the last freeze
        self._has_loaded = False
        self._put_off = 0  # full collections that were postponed in a row
        self._began_s = 0.0
        gc.set_threshold(*THRESHOLDS)
        gc.disable()
        gc.callbacks.append(self._on_look)

    def look(self, metadata: LoadedMetadata, groups: int = 0, *, is_busy: bool = False) -> None:
        """Call every LOOK_S; `groups` is the number of consumer groups on this node.

        is_busy  the rows of a large request are in memory, and will be gone soon

        A young object in a cycle lives at most until the next call, whatever it holds: a socket, a file.
        """
        if metadata.is_loading:
            gc.disable()
            return
        count = metadata.partition_counts.partitions + groups
        if not gc.isenabled():
            if not self._has_loaded or gc.get_count()[0] > _MUCH:
                self._has_loaded = True
                self._freeze(count)  # without a collection: all that was loaded is young
            gc.enable()
            return
        # Also when few objects were allocated: garbage must not be kept for ever.
        gc.collect(self._due(is_busy))
        if count >= self._count + max(self._count // _TENTH, GROWTH_MIN):
            self._freeze(count)

    def _due(self, is_busy: bool) -> int:
        """Return the generation to collect, with all younger ones."""
        if gc.get_count()[_ALL] < OLD_AFTER:
            self._put_off = 0
            return 1
        self._put_off += 1
        if is_busy and self._put_off <= PUT_OFF_MAX:
            return 1
        self._put_off = 0
        return _ALL

    def close(self) -> None:
        """Restore the collector's settings."""
        gc.callbacks.remove(self._on_look)
        gc.unfreeze()
        gc.enable()

    def _on_look(self, phase: str, facts: dict[str, int]) -> None:
        if facts["generation"] < _ALL:
            return
        now_s = time.thread_time()
        if phase == "start":
            self._began_s = now_s
        elif now_s - self._began_s > LONG_S:
            gc.freeze()

    def _freeze(self, count: int) -> None:
        gc.freeze()
        self._count = count
