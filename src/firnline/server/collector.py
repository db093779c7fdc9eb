"""CPython's collector of cycles, kept away from what is large. WORLD.

It goes over all objects that may be part of a cycle, and nobody is answered meanwhile: hundreds of
milliseconds for an image of a million partitions, 60 for a request of 300,000 rows, and nothing of either is
in a cycle. So what is young is looked at in small portions, as CPython does it. What outlived that is old:
it is looked at every LOOK_S, and frozen where it has become more than such a look can go over. Figures, and
what that costs: docs/decisions/0010.
"""

import gc
from typing import Protocol

# Young objects at which it looks, and how many such looks make one at the survivors of them all: below 1 ms
# and 3 ms. It never looks at all by itself: by what is allocated it cannot know how much that is.
THRESHOLDS = (2_000, 2, 1_000_000_000)
LOOK_S = 2.0
# Of so many old objects a look takes 3 ms.
OLD_MAX = 20_000
# Of those so many may be left, to be looked at again.
LEFT_MAX = 10_000
# Young objects after a load that is worth a freeze; a few records that a follower is behind are none.
_MUCH = 10 * THRESHOLDS[0]
_YOUNG, _OLD = 1, 2  # generations: a look at one goes over those before it, too


class Loading(Protocol):
    """What there is to know of the metadata; `MetadataQuorum` has it."""

    @property
    def is_loading(self) -> bool:
        """Is it reading what it has of metadata on the disk, or a snapshot?"""
        ...


class Collector:
    """Looks after the collector of this process. Off from the start until the metadata is loaded."""

    def __init__(self) -> None:
        self._has_loaded = False
        self._old = 0  # at most so many are old and not frozen
        self._young = 0
        gc.set_threshold(*THRESHOLDS)
        gc.disable()
        gc.callbacks.append(self._on_look)

    def look(self, metadata: Loading) -> None:
        """Call every LOOK_S.

        What is in a cycle lives no longer than that, whatever it holds: a socket, a file.
        """
        if metadata.is_loading:
            gc.disable()
            return
        if not gc.isenabled():
            if not self._has_loaded or gc.get_count()[0] > _MUCH:
                self._has_loaded = True
                self._freeze()  # without a look: all that was loaded is young
            gc.enable()
            return
        gc.collect(_YOUNG)
        gc.collect(_OLD)
        self._old = len(gc.get_objects(_OLD))
        if self._old > LEFT_MAX:
            self._freeze()

    def close(self) -> None:
        """Give all back as it was."""
        gc.callbacks.remove(self._on_look)
        gc.unfreeze()
        gc.enable()

    def _on_look(self, phase: str, facts: dict[str, int]) -> None:
        if facts["generation"] != _YOUNG:
            return
        if phase == "start":
            self._young = len(gc.get_objects(0)) + len(gc.get_objects(_YOUNG))
            return
        self._old += self._young - facts["collected"]
        if self._old > OLD_MAX:
            self._freeze()

    def _freeze(self) -> None:
        gc.freeze()
        self._old = 0
