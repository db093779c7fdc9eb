"""Determines which remote segments are in a partition's lineage, and the offsets that each serves. PURE.

The same offsets may be in the tier several times, some of them from a lineage that an unclean election ended.
Only leader epochs distinguish them, offsets alone never do (spec T6, trap X31). Lists of epochs are ascending
(epoch, first offset) pairs. Source: spec 3.5, 3.6, 3.20; rel-T9.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

from firnline.base.ids import NO_OFFSET
from firnline.base.units import INT64_MAX
from firnline.formats.leader_epoch_checkpoint import Epochs


class HasLineage(Protocol):
    """The fields of a remote segment that matter here: `RemoteSegment` and `CatalogSegment` have them."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def epochs(self) -> Epochs: ...


S = TypeVar("S", bound=HasLineage)
# Segments that one step compares with a history.
COMPARED_IN_STEP = 500
_by_base = attrgetter("base_offset", "end_offset")


def segment_epochs(history: Sequence[tuple[int, int]], base_offset: int, end_offset: int) -> Epochs:
    """Return the epochs inside [base, end], both inclusive; the first one starts at `base`.

    If the history starts above `base`, because of the log start offset, its first epoch keeps its start. The
    result is empty only if the history starts above `end`: such a segment must not be copied (spec 3.4-4).
    """
    inside = [(e, o) for e, o in history if base_offset < o <= end_offset]
    before = [e for e, o in history if o <= base_offset]
    return ((before[-1], base_offset), *inside) if before else tuple(inside)


def filled(epochs: Sequence[tuple[int, int]]) -> Epochs:
    """Remove epochs without records: those that start at the same offset as the next one."""
    if len(epochs) == 1:
        return tuple(epochs)
    return tuple(
        entry
        for i, entry in enumerate(epochs)
        if i + 1 == len(epochs) or entry[1] != epochs[i + 1][1]
    )


class Lineage:
    """The epochs of a partition, prepared for the comparison of many segments. Spec 3.5."""

    __slots__ = ("_following", "_starts", "epochs")

    def __init__(self, history: Sequence[tuple[int, int]]) -> None:
        self.epochs = filled(history)
        self._starts = dict(self.epochs)
        self._following = {e: after for (e, _), after in zip(self.epochs, self.epochs[1:])}

    def holds(self, segment: HasLineage, log_end_offset: int) -> bool:
        """Whether the complete segment is in the lineage.

        Epochs of the segment below the first one of the history do not count: the log start offset has
        removed them from the history. `log_end_offset` is exclusive.
        """
        ours, theirs = self.epochs, filled(segment.epochs)
        if not ours or not theirs or segment.end_offset >= log_end_offset:
            return False
        first_epoch, last_epoch = ours[0][0], ours[-1][0]
        if not first_epoch <= theirs[-1][0] <= last_epoch:
            return False
        known = [entry for entry in theirs if entry[0] >= first_epoch]
        for number, (epoch, offset) in enumerate(known):
            start = self._starts.get(epoch)
            if start is None:
                return False
            if number == 0 and epoch != first_epoch and offset < start:
                return False
            following = self._following.get(epoch)
            if number + 1 == len(known):
                if following is not None and segment.end_offset > following[1] - 1:
                    return False
            elif known[number + 1] != following:
                return False
        return True

    def first_epoch_of(self, segment: HasLineage) -> int | None:
        """Return the lowest epoch of the segment that the partition has, too."""
        return next((epoch for epoch, _ in segment.epochs if epoch in self._starts), None)

    def first_shared(self, segment: HasLineage) -> int | None:
        """Return the first offset at which segment and partition have the same epoch."""
        theirs = filled(segment.epochs)
        for number, (epoch, offset) in enumerate(theirs):
            start = self._starts.get(epoch)
            if start is None:
                continue
            first = max(offset, start, segment.base_offset)
            ends = [segment.end_offset + 1]
            if number + 1 < len(theirs):
                ends.append(theirs[number + 1][1])
            if epoch in self._following:
                ends.append(self._following[epoch][1])
            if first < min(ends):
                return first
        return None


def epoch_at(history: Sequence[tuple[int, int]], offset: int) -> int | None:
    """Return the leader epoch of `offset`; None below the history."""
    return _epoch_in(filled(history), offset)[0]


def _epoch_in(epochs: Epochs, offset: int) -> tuple[int | None, int]:
    """As `epoch_at`, of a history in which each epoch has records, and where that epoch ends, exclusive."""
    found = None
    for epoch, start in epochs:
        if start > offset:
            return found, start
        found = epoch
    return found, INT64_MAX


def shared_end(segment: HasLineage, history: Sequence[tuple[int, int]], offset: int) -> int:
    """Return the end (exclusive) of the range from `offset` on in which `segment` and the partition agree.

    It is `offset` if they do not agree there. A segment that diverges in the middle is served up to that
    point: its later records were never in this lineage.
    """
    ours, theirs = filled(history), filled(segment.epochs)
    at, beyond = offset, segment.end_offset + 1
    while segment.base_offset <= at < beyond:
        epoch, our_end = _epoch_in(ours, at)
        their_epoch, their_end = _epoch_in(theirs, at)
        if epoch is None or epoch != their_epoch:
            break
        at = min(our_end, their_end, beyond)
    return at


def plan_ranges(
    segments: Iterable[S],
    history: Sequence[tuple[int, int]],
    *,
    start_offset: int,
    end_offset: int,
) -> list[tuple[S, int, int]]:
    """Return `ranges` as a list."""
    return list(ranges(segments, history, start_offset=start_offset, end_offset=end_offset))


def ranges(
    segments: Iterable[S],
    history: Sequence[tuple[int, int]],
    *,
    start_offset: int,
    end_offset: int,
) -> Iterator[tuple[S, int, int]]:
    """Yield the segments that serve [start, end), with their ranges, without overlap, in order.

    Yields (segment, first offset, end offset exclusive). At each offset it takes the segment that agrees with
    the history for longest. Offsets without a segment are left out: the caller finds holes by comparing
    neighbours. Each range is computed when it is read.
    """
    return ranges_in_order(
        sorted(segments, key=_by_base), history, start_offset=start_offset, end_offset=end_offset
    )


def ranges_in_order(
    segments: Iterable[S],
    history: Sequence[tuple[int, int]],
    *,
    start_offset: int,
    end_offset: int,
) -> Iterator[tuple[S, int, int]]:
    """As `ranges`, for segments that ascend by base offset; they are read as they are needed."""
    candidates = iter(segments)
    at, later = start_offset, next(candidates, None)
    active: list[S] = []
    while at < end_offset:
        while later is not None and later.base_offset <= at:
            if later.end_offset >= at:
                active.append(later)
            later = next(candidates, None)
        active = [s for s in active if s.end_offset >= at]
        best, serving = at, None
        for segment in active:
            reach = shared_end(segment, history, at)
            if reach > at and reach >= best:
                best, serving = reach, segment
        if serving is None:
            at = _next_chance(later, active, history, at, end_offset)
            continue
        until = min(best, end_offset)
        yield serving, at, until
        at = until


def first_served(
    segments: Iterable[HasLineage], history: Sequence[tuple[int, int]]
) -> Generator[None, None, int | None]:
    """Return the first offset that any of the segments, ascending by base offset, serves, in slices.

    It is usually in the first segment.
    """
    lineage, found = Lineage(history), None
    for number, segment in enumerate(segments, 1):
        if found is not None and segment.base_offset >= found:
            break
        first = lineage.first_shared(segment)
        if first is not None:
            found = first if found is None else min(found, first)
        if number % COMPARED_IN_STEP == 0:
            yield
    return found


def _next_chance(
    later: HasLineage | None,
    active: Sequence[HasLineage],
    history: Sequence[tuple[int, int]],
    at: int,
    end_offset: int,
) -> int:
    """Return the next offset at which another segment or another epoch may start to serve."""
    chances = [later.base_offset] if later is not None else []
    if active:
        chances += [start for _, start in history if start > at]
        chances += [start for s in active for _, start in s.epochs if start > at]
    return min([*chances, end_offset])


def highest_remote(
    history: Sequence[tuple[int, int]],
    log_end_offset: int,
    highest_of: Callable[[int], int | None],
) -> tuple[int, int]:
    """Return the highest offset of this lineage in the tier, and its epoch; (-1, -1) if none.

    `highest_of(epoch)` reads the metadata cache. The newest epoch that the tier has decides. Offsets in the
    tier beyond the end of that epoch in the log are of another lineage. Source: spec 3.6.
    """
    for number in range(len(history) - 1, -1, -1):
        epoch = history[number][0]
        highest = highest_of(epoch)
        if highest is None:
            continue
        end = history[number + 1][1] if number + 1 < len(history) else log_end_offset
        found = end - 1 if end <= highest else highest
        return (found, epoch) if found > NO_OFFSET else (NO_OFFSET, -1)
    return NO_OFFSET, -1
