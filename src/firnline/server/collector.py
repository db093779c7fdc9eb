"""CPython's collector of cycles, kept away from the image of the cluster. WORLD.

An image of a million partitions is some million objects and not one cycle, and every full collection would
look at each of them again: hundreds of milliseconds in which nobody is answered. So what the image has grown
to is taken out of the collector's sight (`gc.freeze`) each time it has grown by a tenth, and looks at what is
young are small. Consumer groups, which are some ten objects each, are counted with its partitions. Figures,
and what that costs: docs/decisions/0010.
"""

import gc
from typing import Any, Protocol

# Young objects at which it looks, and how many such looks make one at the survivors of them all: below 1 ms
# and 3 ms. The third is for what grows and is not the image.
THRESHOLDS = (2_000, 2, 700)
LOOK_S = 2.0
# Partitions and groups that have come at least before it is worth the while.
GROWTH_MIN = 1_000
_TENTH = 10


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
        gc.set_threshold(*THRESHOLDS)
        gc.disable()

    def look(self, metadata: Loading, groups: int = 0) -> None:
        """Call every now and then; `groups` are the consumer groups that this node keeps."""
        if metadata.is_loading:
            gc.disable()
            return
        count = metadata.census.partitions + groups
        if not gc.isenabled():
            self._freeze(count)  # without a look: all that was loaded is young
            gc.enable()
        elif count >= self._count + max(self._count // _TENTH, GROWTH_MIN):
            gc.collect(1)  # what is young and of no use must not be kept for ever
            self._freeze(count)

    def close(self) -> None:
        """Give all back as it was."""
        gc.unfreeze()
        gc.enable()

    def _freeze(self, count: int) -> None:
        gc.freeze()
        self._count = count
