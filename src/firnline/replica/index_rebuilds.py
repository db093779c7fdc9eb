"""Builds damaged indexes of segments again while others go on. PURE.

A reader who finds the offset or the time index of a segment missing or wrong says so here, is told to try
again, and is served once the index is built: a slice in a turn of the loop, one segment after the other.
What went wrong is told to those who ask within the next seconds; who asks later has it tried again.
Source: docs/decisions/0018; reliability d 91.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from firnline.base.background import Background, Work
from firnline.base.cold_pages import ColdPages
from firnline.base.effects import Effects, SetTimer, Warn
from firnline.base.errors import RecordsCut, StorageError

if TYPE_CHECKING:
    from firnline.log.segment import Segment
    from firnline.replica.partition import Partition

Steps = Callable[[], Iterator[None]]
# How long the first reader waits until it is begun.
_LOOK_MS = 200
_FAILED_MS = 10_000
_LOOK = ("indexes", "look")


class _Wanted(NamedTuple):
    """A segment of a partition, and how its indexes are built."""

    partition: "Partition"
    steps: Steps


class _Failed(NamedTuple):
    """What went wrong, and when to forget it."""

    problem: StorageError
    until_ms: int


class IndexRebuilds:
    """The damaged indexes of one node.

    is_hosted  whether a partition is served here still
    pages      of their files: told of the time when we look
    """

    __slots__ = ("_building", "_failed", "_is_building", "_is_hosted", "_pages", "_wanted")

    def __init__(self, is_hosted: Callable[["Partition"], bool], pages: ColdPages) -> None:
        self._is_hosted = is_hosted
        self._pages = pages
        self._wanted: dict[Segment, _Wanted] = {}
        self._failed: dict[Segment, _Failed] = {}
        self._building = Background("indexes")
        self._is_building = False

    def start(self, now_ms: int) -> Effects:
        """Begin to look for what is wanted."""
        return [SetTimer(key=_LOOK, at_ms=now_ms + _LOOK_MS, then=self._look)]

    def want(self, partition: "Partition", segment: "Segment", steps: Steps) -> None:
        """Have the indexes of `segment` built; StorageError where that has just failed."""
        failed = self._failed.get(segment)
        if failed is not None:
            raise failed.problem.with_traceback(None)
        self._wanted.setdefault(segment, _Wanted(partition, steps))

    def _look(self, now_ms: int) -> Effects:
        self._pages.forget(now_ms)
        for segment, failed in list(self._failed.items()):
            if failed.until_ms <= now_ms:
                del self._failed[segment]
        effects = self.start(now_ms)
        if self._wanted and not self._is_building:
            self._is_building = True
            effects += self._building.begin(self._build_all(), now_ms)
        return effects

    def _build_all(self) -> Work:
        now_ms = yield []
        while self._wanted:
            segment, (partition, steps) = next(iter(self._wanted.items()))
            problem: StorageError | None = None
            try:
                for _ in steps():
                    now_ms = yield []
                    if not self._stands(partition):
                        break
            except StorageError as found:
                problem = found
            self._wanted.pop(segment, None)
            # Where the segment has gone, or the partition, who reads on sees what there is instead.
            if self._stands(partition) and not isinstance(problem, RecordsCut):
                if problem is not None:
                    self._failed[segment] = _Failed(problem, now_ms + _FAILED_MS)
                now_ms = yield _told(partition, segment, problem, now_ms)
        self._is_building = False
        return []

    def _stands(self, partition: "Partition") -> bool:
        return not partition.is_offline and self._is_hosted(partition)


def _told(
    partition: "Partition", segment: "Segment", problem: StorageError | None, now_ms: int
) -> Effects:
    """Tell the operator, and those who wait."""
    what = f"an index of {segment.stem_path} was missing or damaged"
    so = "it is built again from the records" if problem is None else f"not built again: {problem}"
    return [Warn(line=f"{what}; {so}"), *partition.fetch_waiters.all_at_once(now_ms)]
