"""Decisions of the expiration task: what the product decides on a list of segments, and a model of it.

The model looks at every segment each time. The product decides from what changed, a step at a time.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

from firnline.base.background import run_to_completion
from firnline.base.ids import TopicIdPartition
from firnline.base.units import INT64_MAX
from firnline.log.log import Log
from firnline.tiered.expiry import Decision, decide
from firnline.tiered.lineage import Lineage, filled
from firnline.tiered.retained import Retained
from firnline.tiered.settings import NO_LIMIT
from firnline.tiered.spi import Everything, Look, Mark, RemoteSegment, SegmentState


class Listed:
    """A tier that holds these segments, and what `decide` asks of it."""

    def __init__(
        self,
        segments: Sequence[RemoteSegment],
        covered_offset: int = -1,
        *,
        highest_offset: int | None = None,
        is_copying: Callable[[RemoteSegment], bool] = lambda segment: False,
        is_dangling: Callable[[RemoteSegment], bool] = lambda segment: False,
        now_ms: int = 0,
        deletes_below: int = INT64_MAX,
        serves_all: bool = True,
    ) -> None:
        self.is_whole = serves_all
        self.decided_offset = deletes_below
        self.segments = sorted(segments, key=lambda s: (s.base_offset, s.end_offset, s.segment_id))
        self.covered = covered_offset
        self.highest = covered_offset if highest_offset is None else highest_offset
        self.is_copying = is_copying
        self.is_dangling = is_dangling
        self.now_ms = now_ms

    def age_ms(self, segment: RemoteSegment) -> int:
        return self.now_ms - segment.event_timestamp_ms

    def look(self, _where: TopicIdPartition, since: Mark | None) -> Look:
        return Look(Mark(self, 0), {}, Everything(self.segments, ()) if since is None else None)

    def unfinished(self) -> list[RemoteSegment]:
        return [s for s in self.segments if s.state != SegmentState.COPY_FINISHED]

    def copying(self) -> list[RemoteSegment]:
        return [s for s in self.segments if self.is_copying(s)]

    def covered_offset(self) -> int:
        return self.covered

    def highest_offset(self) -> int:
        return self.highest

    def deletes_below(self) -> int:
        return self.decided_offset

    def serves_all(self) -> Generator[None, None, bool]:
        yield
        return self.is_whole


def decided(log: Any, tier: Listed, **options: Any) -> Decision:
    """Return what is decided on these segments, all steps at once."""
    where, metadata = TopicIdPartition(bytes(16), 0), cast(Any, tier)
    decision = run_to_completion(decide(log, Retained(metadata, where, log), tier, **options))
    assert isinstance(decision, Decision)
    return decision


def decide_at_once(
    log: Log,
    segments: Sequence[RemoteSegment],
    *,
    covered_offset: int,
    highest_offset: int,
    now_ms: int,
    is_copying: Callable[[RemoteSegment], bool],
    is_dangling: Callable[[RemoteSegment], bool],
    late_put_ms: int = 0,
    applies_limits: bool = True,
    deletes_below: int = INT64_MAX,
    serves_all: bool = True,
) -> Decision:
    """Apply the limits of the whole log to the remote segments of one partition: a look at each of them.

    covered_offset  the last local offset that the tier has (`Hosted.covered_offset`)
    highest_offset  the last offset of the lineage that the tier has
    is_copying      being copied by this node now: nothing from it on is looked at
    is_dangling     a COPY_STARTED that nobody will finish
    late_put_ms     so long after an abandoned copy was deleted it is deleted once more
    applies_limits  False: only what lies below the log start or was begun to be deleted goes
    deletes_below   the log start offset, as far as it was decided
    serves_all      whether the lineage in the tier has all that is not local
    """
    epochs = filled(log.epochs.entries())
    chosen: dict[bytes, RemoteSegment] = {}
    finished = SegmentState.COPY_FINISHED  # nearly all are: these lines look at each of them
    for segment in [s for s in segments if s.state != finished]:
        left_over = segment.state == SegmentState.DELETE_STARTED
        if segment.is_abandoned and now_ms - segment.event_timestamp_ms < late_put_ms:
            continue
        if left_over or (segment.state == SegmentState.COPY_STARTED and is_dangling(segment)):
            chosen[segment.segment_id] = segment
    if not epochs:  # an epoch cache that knows nothing decides nothing (rel-T14)
        return Decision(tuple(chosen.values()), log.log_start_offset)
    offsets = (covered_offset, highest_offset)
    walk = _Walk(log, segments, offsets, now_ms, applies_limits=applies_limits)
    first_epoch = epochs[0][0]
    is_finished, is_uncertain = True, False
    deletes_below = min(deletes_below, log.log_start_offset)
    last: tuple[int, int] | None = None
    ordered = list(_by_epoch(segments, [epoch for epoch, _ in epochs]))
    own = [s for s in ordered if s.state == finished and walk.is_in_lineage(s)]
    for segment in ordered:
        if is_copying(segment):
            is_finished = False
            break
        if segment.segment_id in chosen or segment.state == SegmentState.COPY_STARTED:
            continue
        if segment.state == SegmentState.DELETE_STARTED:
            continue
        offsets = segment.base_offset, segment.end_offset
        is_old = segment.epochs[-1][0] <= first_epoch
        if offsets == last and walk.is_in_lineage(segment):
            chosen[segment.segment_id] = segment  # another leader's copy of the one before
        elif is_old and segment.end_offset < deletes_below:
            walk.drop(segment.size_bytes)
            chosen[segment.segment_id] = segment
        elif walk.is_in_lineage(segment):
            is_inside = segment.end_offset < walk.log_start_offset > log.log_start_offset
            size_bytes = _with_those_inside(segment, own)
            if not is_inside and not walk.is_in_breach(
                segment.largest_time_ms, size_bytes, segment.end_offset
            ):
                is_finished = False
                is_uncertain = is_old and segment.end_offset < log.log_start_offset
                break
            chosen[segment.segment_id] = segment
        if walk.is_in_lineage(segment):
            last = offsets
    if is_finished:
        walk.expire_local()
    # What an unclean election left below every epoch we know (3.7-6).
    for segment in [s for s in segments if s.epochs[-1][0] < first_epoch]:
        if segment.state == finished and (serves_all or segment.end_offset < deletes_below):
            chosen.setdefault(segment.segment_id, segment)
        elif segment.state == finished and segment.segment_id not in chosen:
            is_uncertain = True
    return Decision(tuple(chosen.values()), walk.log_start_offset, is_uncertain)


def _with_those_inside(segment: RemoteSegment, own: Sequence[RemoteSegment]) -> int:
    """The bytes of a segment, and of later ones that end where it ends or before; copies count once."""
    later = own[own.index(segment) :]
    size_bytes = segment.size_bytes
    for before, each in pairwise(later):
        if each.base_offset > segment.end_offset:
            break
        is_copy = (before.base_offset, before.end_offset) == (each.base_offset, each.end_offset)
        if each.end_offset <= segment.end_offset and not is_copy:
            size_bytes += each.size_bytes
    return size_bytes


def _by_epoch(segments: Sequence[RemoteSegment], epochs: Sequence[int]) -> Iterator[RemoteSegment]:
    """Iterate over the segments, each once, in the order of the epochs of the log and of offsets in each.

    Most of the time the first one stays, and no other is looked for.
    """
    seen: dict[bytes, None] = {}
    for epoch in epochs:
        for segment in segments:
            if segment.segment_id not in seen and any(e == epoch for e, _ in segment.epochs):
                seen[segment.segment_id] = None
                yield segment


class _Walk:
    """The limits of the whole log, and how far they moved its start."""

    def __init__(
        self,
        log: Log,
        segments: Sequence[RemoteSegment],
        offsets: tuple[int, int],
        now_ms: int,
        *,
        applies_limits: bool,
    ) -> None:
        self._log = log
        self._now_ms = now_ms
        self._covered_offset, self._highest_offset = offsets
        self._history = log.epochs.entries()
        self._retention_ms = log.config.retention_ms if applies_limits else NO_LIMIT
        self.log_start_offset = log.log_start_offset
        limit = log.config.retention_bytes if applies_limits else NO_LIMIT
        # Mostly there is no limit, and no need to look at each of tens of thousands.
        self._breach_bytes = 0 if limit < 0 else max(self._total_bytes(segments) - limit, 0)

    def _total_bytes(self, segments: Sequence[RemoteSegment]) -> int:
        counted = {
            (s.base_offset, s.end_offset): s.size_bytes
            for s in segments
            if s.state == SegmentState.COPY_FINISHED and self.is_in_lineage(s)
        }
        return sum(counted.values()) + self._local_only_bytes()

    def is_in_lineage(self, segment: RemoteSegment) -> bool:
        return Lineage(self._history).holds(segment, self._log.log_end_offset)

    def _local_only_bytes(self) -> int:
        """Bytes of the local log that the tier does not count (rel-T15)."""
        begin = max(self._highest_offset + 1, self._log.log_start_offset)
        closed = list(self._log.closed_segments())
        active_base = closed[-1].end_offset + 1 if closed else self._log.first_base_offset
        before = sum(s.size_bytes for s in closed if s.base_offset < begin)
        return 0 if active_base < begin else self._log.size_bytes - before

    def drop(self, size_bytes: int) -> None:
        """A segment goes for another reason; its bytes count no more."""
        self._breach_bytes = max(self._breach_bytes - size_bytes, 0)

    def is_in_breach(self, largest_time_ms: int, size_bytes: int, end_offset: int) -> bool:
        """Whether the oldest segment left must go, by time or size; if so the log starts after it."""
        by_time = (
            self._retention_ms != NO_LIMIT and largest_time_ms <= self._now_ms - self._retention_ms
        )
        by_size = 0 < size_bytes <= self._breach_bytes
        if not by_time and not by_size:
            return False
        self.drop(size_bytes)
        self.log_start_offset = max(self.log_start_offset, end_offset + 1)
        return True

    def expire_local(self) -> None:
        """With nothing left in the tier: local segments that outlived the total limits are not kept for it.

        A store that is down longer than the retention must not fill the disk (F33). They are never
        copied, for the log now starts after them; the local log drops them.
        """
        if not self._log.config.remote_storage_enable:
            return
        for local in self._log.closed_segments():
            if local.end_offset < max(self.log_start_offset, self._covered_offset + 1):
                continue
            if local.end_offset >= self._log.high_watermark:
                return
            if not self.is_in_breach(local.largest_time_ms(), local.size_bytes, local.end_offset):
                return
