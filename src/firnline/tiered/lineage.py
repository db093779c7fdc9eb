"""Which remote segments belong to a partition's history, and which offsets each may serve. PURE.

The same offsets may lie in the tier several times, some of them from a history that an unclean
election threw away. Leader epochs tell them apart, offsets alone never do (spec T6, trap X31).
Epoch lists are ascending (epoch, first offset) pairs. Source: spec 3.5, 3.6, 3.20; rel-T9.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

from firnline.base.ids import NO_OFFSET
from firnline.formats.leader_epoch_checkpoint import Epochs


class HasLineage(Protocol):
    """A remote segment as far as lineage goes: `RemoteSegment`, `CatalogSegment`."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def epochs(self) -> Epochs: ...


S = TypeVar("S", bound=HasLineage)
# Segments that are compared with a history in a step of the loop.
COMPARED_IN_STEP = 500
_by_base = attrgetter("base_offset", "end_offset")


def segment_epochs(history: Sequence[tuple[int, int]], base_offset: int, end_offset: int) -> Epochs:
    """Return the epochs inside [base, end], both inclusive; the first one begins at `base`.

    A history that begins above `base`, because the log start cut it, is taken as it is. Empty only
    when it begins above `end`: such a segment must not be copied (spec 3.4-4).
    """
    inside = [(e, o) for e, o in history if base_offset < o <= end_offset]
    before = [e for e, o in history if o <= base_offset]
    return ((before[-1], base_offset), *inside) if before else tuple(inside)


def filled(epochs: Sequence[tuple[int, int]]) -> Epochs:
    """Drop epochs that hold no record: those that begin where the next one does."""
    if len(epochs) == 1:
        return tuple(epochs)
    return tuple(
        entry
        for i, entry in enumerate(epochs)
        if i + 1 == len(epochs) or entry[1] != epochs[i + 1][1]
    )


class Lineage:
    """The epochs of a partition, prepared so that many segments can be compared with them. Spec 3.5."""

    __slots__ = ("_following", "_starts", "epochs")

    def __init__(self, history: Sequence[tuple[int, int]]) -> None:
        self.epochs = filled(history)
        self._starts = dict(self.epochs)
        self._following = {e: after for (e, _), after in zip(self.epochs, self.epochs[1:])}

    def holds(self, segment: HasLineage, log_end_offset: int) -> bool:
        """Whether the whole segment belongs to the partition.

        Epochs of the segment that lie wholly below the history's first one were cut off by the log
        start: they are not held against it. `log_end_offset` is exclusive.
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
        """Return the lowest of the segment's epochs that the partition has, too."""
        return next((epoch for epoch, _ in segment.epochs if epoch in self._starts), None)

    def first_shared(self, segment: HasLineage) -> int | None:
        """Return the first offset in the segment at which both agree on the epoch."""
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
    """Return the leader epoch that `offset` was written under; None below the history."""
    found = None
    for epoch, start in filled(history):
        if start > offset:
            break
        found = epoch
    return found


def shared_end(segment: HasLineage, history: Sequence[tuple[int, int]], offset: int) -> int:
    """Return up to where (exclusive) `segment` and the partition agree, reading on from `offset`.

    `offset` itself when they do not agree there. A segment that diverges half-way is served up to
    the fork and not beyond it: its later records were never part of this history.
    """
    ours, theirs = filled(history), filled(segment.epochs)
    at = offset
    while segment.base_offset <= at <= segment.end_offset:
        epoch = epoch_at(ours, at)
        if epoch is None or epoch != epoch_at(theirs, at):
            break
        at = min(
            _epoch_end(ours, epoch, segment.end_offset),
            _epoch_end(theirs, epoch, segment.end_offset),
        )
    return at


def _epoch_end(epochs: Epochs, epoch: int, end_offset: int) -> int:
    """Return the first offset after `epoch`, at most one above `end_offset`."""
    after = [start for e, start in epochs if e > epoch]
    return min([*after, end_offset + 1])


def plan_ranges(
    segments: Iterable[S],
    history: Sequence[tuple[int, int]],
    *,
    start_offset: int,
    end_offset: int,
) -> list[tuple[S, int, int]]:
    """Return all of `ranges`."""
    return list(ranges(segments, history, start_offset=start_offset, end_offset=end_offset))


def ranges(
    segments: Iterable[S],
    history: Sequence[tuple[int, int]],
    *,
    start_offset: int,
    end_offset: int,
) -> Iterator[tuple[S, int, int]]:
    """Say which segment serves which offsets of [start, end), without overlap, in order.

    Yields (segment, first offset, end offset exclusive). At each offset the segment that agrees
    with the history farthest is taken. Offsets that no segment serves are left out: the caller
    compares neighbours to see a hole. A range is looked for when it is asked for.
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
    """Say what `ranges` does, of segments that ascend by base offset; they are taken as they are needed."""
    candidates = iter(segments)
    at, later = start_offset, next(candidates, None)
    active: list[S] = []
    while at < end_offset:
        while later is not None and later.base_offset <= at:
            if later.end_offset >= at:
                active.append(later)
            later = next(candidates, None)
        active = [s for s in active if s.end_offset >= at]
        reaches = [(shared_end(s, history, at), number) for number, s in enumerate(active)]
        best, number = max(reaches, default=(at, -1))
        if best > at:
            until = min(best, end_offset)
            yield active[number], at, until
            at = until
            continue
        at = _next_chance(later, active, history, at, end_offset)


def first_served(
    segments: Iterable[HasLineage], history: Sequence[tuple[int, int]]
) -> Generator[None, None, int | None]:
    """Return the first offset that any of the segments, ascending by base offset, serves.

    Nearly always that is in the first one; yields after so many others.
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
    """Return the next offset at which another segment, or another epoch, could serve."""
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
    """Return the highest offset of this lineage that is in the tier, and its epoch; (-1, -1) if none.

    `highest_of(epoch)` answers from the metadata cache. Epochs are walked from the newest down; the
    first one known to the tier decides. What the tier has beyond that epoch's local end belongs to
    a lineage that was lost. Source: spec 3.6.
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
