"""Rebuilds damaged indexes of segments in the background. PURE.

A reader that finds an offset or time index missing or damaged requests its rebuild here and gets an error
with which the client retries. Rebuilds run in slices, one segment after the other. A thread reads cold pages
first, and other segments go on meanwhile. For some seconds after a rebuild failed, readers get its error; a
later reader starts another attempt. Source: docs/decisions/0018; reliability d 91.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from firnline.base.background import Background, SlicedTask
from firnline.base.cold_pages import ColdPages, ColdSteps, PageRangeKey
from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import RecordsTruncated, StorageError
from firnline.base.log_lines.storage import INDEX_NOT_REBUILT, INDEX_REBUILT

if TYPE_CHECKING:
    from firnline.log.segment import Segment
    from firnline.replica.partition import Partition

Steps = Callable[[], ColdSteps]
# How long until a requested rebuild begins.
_LOOK_MS = 200
_FAILED_MS = 10_000
_LOOK = ("indexes", "look")


class _Wanted(NamedTuple):
    """A segment of a partition, and the steps that build its indexes."""

    partition: "Partition"
    steps: Steps


class _Failed(NamedTuple):
    """A failed rebuild. After `until_ms` it may be tried again."""

    problem: StorageError
    until_ms: int


class IndexRebuilds:
    """The damaged indexes of one node.

    is_hosted  whether a partition is still hosted here
    pages      reads cold pages of their files; its clock advances with each look
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
        self._begun: dict[Segment, ColdSteps] = {}  # of `_wanted`: those that began
        self._cold: dict[Segment, PageRangeKey] = {}  # of `_begun`: those that wait for a page
        self._building = Background("indexes")
        self._is_building = False

    def start(self, now_ms: int) -> Effects:
        """Begin to look for requested rebuilds."""
        return [SetTimer(key=_LOOK, at_ms=now_ms + _LOOK_MS, then=self._look)]

    def want(self, partition: "Partition", segment: "Segment", steps: Steps) -> None:
        """Request a rebuild of the indexes of `segment`; StorageError if it has just failed."""
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
            if not self._is_still_hosted(self._wanted[segment].partition):
                self._forget(segment)
        return self.start(now_ms) + self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> Effects:
        if self._is_building or len(self._wanted) == len(self._cold):
            return []
        self._is_building = True
        return self._building.begin(self._build_all(), now_ms)

    def _build_all(self) -> SlicedTask:
        now_ms = yield []
        while (segment := self._next()) is not None:
            partition, begin = self._wanted[segment]
            problem: StorageError | None = None
            steps = self._begun.get(segment)
            try:
                if steps is None:
                    steps = self._begun[segment] = begin()
                while self._is_still_hosted(partition):
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
            # If the segment or partition is gone, readers find out by themselves.
            if self._is_still_hosted(partition) and not isinstance(problem, RecordsTruncated):
                if problem is not None:
                    self._failed[segment] = _Failed(problem, now_ms + _FAILED_MS)
                now_ms = yield _result(partition, segment, problem, now_ms)
        self._is_building = False
        return []

    def _next(self) -> "Segment | None":
        """The first that waits for no page: a disk that hangs delays no other segment."""
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

    def _is_still_hosted(self, partition: "Partition") -> bool:
        return not partition.is_offline and self._is_hosted(partition)


def _result(
    partition: "Partition", segment: "Segment", problem: StorageError | None, now_ms: int
) -> Effects:
    """Warn the operator, and answer the delayed fetches."""
    line = INDEX_REBUILT(segment=segment.stem_path)
    if problem is not None:
        line = INDEX_NOT_REBUILT(segment=segment.stem_path, error=problem)
    return [
        line,
        *partition.fetch_waiters.all_at_once(now_ms),
    ]
