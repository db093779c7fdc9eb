"""What the operator sees of a tiered partition on this node: a row of offsets, sizes, lag and problems. PURE.

A row costs as much as the segments of the partition that are waiting or remote, so rows are made in slices.
Source: docs/formats/tier.md; spec T50.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from firnline.base.errors import KafkaError
from firnline.base.ids import Uuid
from firnline.log.segments import ClosedSegment
from firnline.log.sparse_index import IndexDamaged
from firnline.tiered.hosted import Hosted, Services
from firnline.tiered.lineage import ranges

# The segments that one slice covers; a row costs as much as this many segments.
SEGMENTS_PER_SLICE, ROW_SEGMENTS = 500, 10


class StatusRow(NamedTuple):
    """The local and remote offsets of one partition; starts inclusive, ends exclusive.

    Remote only: [log_start, local_start); both: [local_start, remote_end); local only: [remote_end, log_end).
    `holes` are remote offsets that no segment of the lineage serves; `unexplained_segments` counts segments
    in the tier that the metadata does not have.

    waiting_since_ms  the timestamp of the newest record in the oldest segment that waits to be copied; None:
                      nothing waits, or the time index of that segment is damaged
    problem_since_ms  of the first failure after the last success; None where that is not known
    """

    topic: str
    topic_id: Uuid
    partition: int
    is_leader: bool
    log_start_offset: int
    local_start_offset: int
    remote_end_offset: int
    log_end_offset: int
    remote_segments: int
    remote_bytes: int
    unfinished_segments: int
    copy_lag_segments: int
    copy_lag_bytes: int
    waiting_since_ms: int | None
    may_copy: bool
    is_ready: bool
    unexplained_segments: int
    holes: tuple[tuple[int, int], ...]
    problem: str | None
    problem_since_ms: int | None


def status_rows(
    services: Services, partitions: Iterator[tuple[Hosted, Iterator[ClosedSegment]]]
) -> Generator[None, None, list[StatusRow]]:
    """Return the rows of partitions, by topic and partition; in slices.

    partitions  each with the closed segments that wait to be copied, oldest first
    """
    rows: list[StatusRow] = []
    seen = 0
    for hosted, candidates in partitions:
        row = yield from _row(services, hosted, candidates)
        rows.append(row)
        seen += ROW_SEGMENTS + row.remote_segments + row.unfinished_segments
        if seen >= SEGMENTS_PER_SLICE:
            seen = 0
            yield
    return sorted(rows, key=lambda row: (row.topic, row.partition))


def _row(
    services: Services, hosted: Hosted, candidates: Iterator[ClosedSegment]
) -> Generator[None, None, StatusRow]:
    log, metadata = hosted.log, services.metadata
    found = metadata.segments(hosted.where)
    segments = [] if isinstance(found, KafkaError) else found
    known = metadata.finished(hosted.where)
    finished = [] if isinstance(known, KafkaError) else known
    covered = hosted.covered_offset(metadata)
    end = covered + 1 if isinstance(covered, int) else 0
    lag_segments = lag_bytes = 0
    waiting_since_ms = None
    for local in candidates:
        if not lag_segments:
            waiting_since_ms = _time_of(local)
        lag_segments, lag_bytes = lag_segments + 1, lag_bytes + local.size_bytes
        if lag_segments % SEGMENTS_PER_SLICE == 0:
            yield
    history, local_start = log.epochs.entries(), log.local_log_start_offset
    start, served = log.log_start_offset, list[tuple[int, int]]()
    for _, first, after in ranges(finished, history, start_offset=start, end_offset=local_start):
        served.append((first, after))
        if len(served) % SEGMENTS_PER_SLICE == 0:
            yield
    withheld, failure = services.withheld(hosted.where), hosted.problem
    return StatusRow(
        topic=hosted.topic,
        topic_id=hosted.where.topic_id,
        partition=hosted.where.partition,
        is_leader=hosted.is_leader,
        log_start_offset=start,
        local_start_offset=local_start,
        remote_end_offset=end,
        log_end_offset=log.log_end_offset,
        remote_segments=len(finished),
        remote_bytes=sum(s.size_bytes for s in finished),
        unfinished_segments=len(segments) - len(finished),
        copy_lag_segments=lag_segments,
        copy_lag_bytes=lag_bytes,
        waiting_since_ms=waiting_since_ms,
        may_copy=hosted.may_copy,
        is_ready=metadata.is_ready(hosted.where),
        unexplained_segments=hosted.unexplained_segments,
        holes=_holes(served, start, local_start),
        problem=str(withheld) if withheld else failure.text if failure else None,
        problem_since_ms=None if withheld or failure is None else failure.since_ms,
    )


def _time_of(segment: ClosedSegment) -> int | None:
    try:
        return segment.largest_time_ms()
    except IndexDamaged:
        return None


def _holes(
    ranges: Sequence[tuple[int, int]], start_offset: int, end_offset: int
) -> tuple[tuple[int, int], ...]:
    """Return the parts of [start, end) that are in none of `ranges`, which ascend."""
    holes, at = [], start_offset
    for first, after in ranges:
        if first > at:
            holes.append((at, first))
        at = after
    if at < end_offset:
        holes.append((at, end_offset))
    return tuple(holes)
