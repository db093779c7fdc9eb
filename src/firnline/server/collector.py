"""CPython's collector of cycles, kept away from the image of the cluster. WORLD.

An image of a million partitions is some million objects and not one cycle, and every full collection would
look at each of them again: hundreds of milliseconds in which nobody is answered. So what the image has grown
to is taken out of the collector's sight (`gc.freeze`) each time it has grown by a tenth, and looks at what is
young are small. Consumer groups, which are some ten objects each, are counted with its partitions. Whatever
else grows is frozen by the first look at all of it that takes long, so that there is no second one.

Such a look is taken by `Collector.look`, never by CPython's own rule: that would have it while the rows of a
large request are there, and go over all of them. Figures, and what that costs: docs/decisions/0010.
"""

import gc
import time
from typing import Any, Protocol

# Young objects at which it looks, and how many such looks make one at the survivors of them all: below 1 ms
# and 3 ms. The third is out of reach. (CPython 3.14 has none, and goes over what is old in steps.)
THRESHOLDS = (2_000, 2, 2**31 - 1)
# So many looks at survivors make one at all that is not frozen, which is for what grows and is not the image.
OLD_AFTER = 700
LOOK_S = 2.0
# It is put off while a large request is under way, but not for ever: a minute.
PUT_OFF_MAX = 30
# A look at all that is not frozen may take so much CPU: the next one is spared what this one went over.
LONG_S = 0.003
# Partitions and groups that have come at least before it is worth the while.
GROWTH_MIN = 1_000
_TENTH = 10
# Young objects after a load that is worth a freeze; a few records that a follower is behind are none.
_MUCH = 10 * THRESHOLDS[0]
_ALL = 2  # the generation of a look at all that is not frozen


class Loading(Protocol):
    """What there is to know of the metadata; `MetadataQuorum` has it."""

    census: Any  # metadata.census.Census

    @property
    def is_loading(self) -> bool:
        """Is it reading what it has of metadata on the disk, or a snapshot?"""
        ...


class Collector:
    """Looks after the collector of this process. Off from the start until the metadata is loaded."""

    def __init__(self) -> None:
        self._count = 0  # of partitions and groups, when it froze last
        self._has_loaded = False
        self._put_off = 0  # looks at all that is not frozen, one after the other
        self._began_s = 0.0
        gc.set_threshold(*THRESHOLDS)
        gc.disable()
        gc.callbacks.append(self._on_look)

    def look(self, metadata: Loading, groups: int = 0, *, is_busy: bool = False) -> None:
        """Call every LOOK_S; `groups` are the consumer groups that this node keeps.

        is_busy  the rows of a large request are there, and will be gone soon

        What is young and in a cycle lives no longer than that, whatever it holds: a socket, a file.
        """
        if metadata.is_loading:
            gc.disable()
            return
        count = metadata.census.partitions + groups
        if not gc.isenabled():
            if not self._has_loaded or gc.get_count()[0] > _MUCH:
                self._has_loaded = True
                self._freeze(count)  # without a look: all that was loaded is young
            gc.enable()
            return
        # Also where too little is allocated for a look: what is of no use must not be kept for ever.
        gc.collect(self._due(is_busy))
        if count >= self._count + max(self._count // _TENTH, GROWTH_MIN):
            self._freeze(count)

    def _due(self, is_busy: bool) -> int:
        """Return which generation to look at, and those that are younger."""
        if gc.get_count()[_ALL] < OLD_AFTER:
            self._put_off = 0
            return 1
        self._put_off += 1
        if is_busy and self._put_off <= PUT_OFF_MAX:
            return 1
        self._put_off = 0
        return _ALL

    def close(self) -> None:
        """Give all back as it was."""
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
