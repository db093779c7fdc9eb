"""Builds damaged indexes of segments again while others go on. PURE.

A reader who finds the offset or the time index of a segment missing or wrong says so here, is told to try
again, and is served once the index is built: a slice in a turn of the loop, one segment after the other. What
is not in memory a thread reads first, and the others have their turn meanwhile.
What went wrong is told to those who ask within the next seconds; who asks later has it tried again.
Source: docs/decisions/0018; reliability d 91.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from firnline.base.background import Background, Work
from firnline.base.cold_pages import ColdPages, ColdSteps, PageRangeKey
from firnline.base.effects import Effects, SetTimer, Warn
from firnline.base.errors import RecordsCut, StorageError

if TYPE_CHECKING:
    from firnline.log.segment import Segment
    from firnline.replica.partition import Partition

Steps = Callable[[], ColdSteps]
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
    pages      reads what is not in memory of their files; told of the time when we look
    """

    __slots__ = (
        "_begun",
        "_building",
        "_cold",
        "_failed",
        "_is_building",
        "_is_hosted",
        "_pages",
        "_wanted",
    )

    def __init__(self, is_hosted: Callable[["Partition"], bool], pages: ColdPages) -> None:
        self._is_hosted = is_hosted
        self._pages = pages
        self._wanted: dict[Segment, _Wanted] = {}
        self._failed: dict[Segment, _Failed] = {}
        self._begun: dict[Segment, ColdSteps] = {}  # of these
        self._cold: dict[Segment, PageRangeKey] = {}  # of these: a thread reads what comes next
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
        for segment in list(self._cold):
            if not self._stands(self._wanted[segment].partition):
                self._forget(segment)
        return self.start(now_ms) + self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> Effects:
        if self._is_building or len(self._wanted) == len(self._cold):
            return []
        self._is_building = True
        return self._building.begin(self._build_all(), now_ms)

    def _build_all(self) -> Work:
        now_ms = yield []
        while (segment := self._next()) is not None:
            partition, begin = self._wanted[segment]
            problem: StorageError | None = None
            steps = self._begun.get(segment)
            try:
                if steps is None:
                    steps = self._begun[segment] = begin()
                while self._stands(partition):
                    with self._pages:
                        place = next(steps)
                    if place is not None:
                        self._cold[segment] = place.key
                        break
                    now_ms = yield []
            except StopIteration:
                pass
            except StorageError as found:
                problem = found
            if segment in self._cold:
                assert place is not None
                came = partial(self._page_came, segment)
                now_ms = yield self._pages.bring(place, segment, came)
                continue
            self._forget(segment)
            # Where the segment has gone, or the partition, who reads on sees what there is instead.
            if self._stands(partition) and not isinstance(problem, RecordsCut):
                if problem is not None:
                    self._failed[segment] = _Failed(problem, now_ms + _FAILED_MS)
                now_ms = yield _told(partition, segment, problem, now_ms)
        self._is_building = False
        return []

    def _next(self) -> "Segment | None":
        """The first that waits for no disk: one that hangs holds up no other one."""
        return next((segment for segment in self._wanted if segment not in self._cold), None)

    def _page_came(self, segment: "Segment", now_ms: int) -> Effects:
        self._cold.pop(segment, None)
        return self._go_on(now_ms)

    def _forget(self, segment: "Segment") -> None:
        self._wanted.pop(segment, None)
        self._begun.pop(segment, None)
        key = self._cold.pop(segment, None)
        if key is not None:
            self._pages.leave(key, segment)

    def _stands(self, partition: "Partition") -> bool:
        return not partition.is_offline and self._is_hosted(partition)


def _told(
    partition: "Partition", segment: "Segment", problem: StorageError | None, now_ms: int
) -> Effects:
    """Tell the operator, and those who wait."""
    what = f"an index of {segment.stem_path} was missing or damaged"
    so = "it is built again from the records" if problem is None else f"not built again: {problem}"
    return [Warn(line=f"{what}; {so}"), *partition.fetch_waiters.all_at_once(now_ms)]
