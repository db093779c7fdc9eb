"""What to do about an index of a segment that is of no use: build it now, or have it built meanwhile. STORE.

To build the indexes of a full segment again takes as long as to look at each of its batches: seconds. Whoever
may wait is told so with `IndexDamaged`, and asks again; whoever may not has it done at once.
Source: docs/decisions/0018.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from firnline.base.errors import StorageError

if TYPE_CHECKING:
    from firnline.log.segment import Segment

T = TypeVar("T")


class IndexDamaged(StorageError):
    """An index of `segment` is missing, or says what its batches do not. Nothing is lost: they say it all."""

    def __init__(self, segment: "Segment") -> None:
        super().__init__("an index of a segment has to be built again", path=segment.stem_path)
        self.segment = segment

    @property
    def is_passing(self) -> bool:
        """True: it will be built."""
        return True


def at_once(ask: Callable[[], T]) -> T:
    """Return what `ask` returns; indexes that it finds damaged are built again here and now."""
    built: dict[Segment, None] = {}
    while True:
        try:
            return ask()
        except IndexDamaged as found:
            if found.segment in built:
                raise
            built[found.segment] = None
            found.segment.rebuild()
