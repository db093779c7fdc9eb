"""What the operator sees of a tiered partition on this node: offsets, sizes, lag and problems. PURE.

A row of `firnline tier status` costs as much as the remote segments of the partition, so rows are made in
slices. Gauges for the metrics cost the same however many segments there are.
Source: docs/formats/tier.md; KIP-963; spec T50.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from firnline.base.errors import KafkaError
from firnline.base.ids import Uuid
from firnline.log.retention import local_retention
from firnline.log.sparse_index import IndexDamaged
from firnline.tiered.hosted import Hosted, Services
from firnline.tiered.lineage import ranges
from firnline.tiered.spi import Totals

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


class Gauges(NamedTuple):
    """What of one partition waits to be copied or deleted, and how large it is.

    copy_lag_*      closed segments that this leader has to copy; `_ms`: since the newest record of the oldest
                    of them was written; all 0 on a follower
    delete_lag_*    segments whose deletion has begun
    *_used_percent  the size in percent of the limit of the whole log, or of the local log; 0 without a limit
    """

    topic: str
    partition: int
    is_leader: bool
    copy_lag_segments: int
    copy_lag_bytes: int
    copy_lag_ms: int
    delete_lag_segments: int
    delete_lag_bytes: int
    remote_bytes: int
    metadata_count: int
    unexplained_segments: int
    retention_used_percent: int
    local_retention_used_percent: int


class _CopyLag(NamedTuple):
    segments: int = 0
    size_bytes: int = 0
    waiting_since_ms: int | None = None


def gauges(services: Services, hosted: Hosted, now_ms: int) -> Gauges:
    """Return the gauges of a partition."""
    log, config = hosted.log, hosted.log.config
    found = services.metadata.totals(hosted.where)
    totals = Totals() if isinstance(found, KafkaError) else found
    covered = hosted.covered_offset(services.metadata)
    lag = _copy_lag(hosted, covered)
    since_ms = lag.waiting_since_ms
    local_bytes = log.size_bytes
    only_local_bytes = log.bytes_from(covered + 1) if isinstance(covered, int) else local_bytes
    total_limit = config.retention_bytes
    local_limit = local_retention(config, is_copied=hosted.may_copy)[1]
    return Gauges(
        topic=hosted.topic,
        partition=hosted.where.partition,
        is_leader=hosted.is_leader,
        copy_lag_segments=lag.segments,
        copy_lag_bytes=lag.size_bytes,
        copy_lag_ms=0 if since_ms is None else max(now_ms - since_ms, 0),
        delete_lag_segments=totals.deleting_segments,
        delete_lag_bytes=totals.deleting_bytes,
        remote_bytes=totals.finished_bytes,
        metadata_count=totals.segments,
        unexplained_segments=hosted.unexplained_segments,
        retention_used_percent=_percent(totals.finished_bytes + only_local_bytes, total_limit),
        local_retention_used_percent=_percent(local_bytes, local_limit),
    )


def _percent(size_bytes: int, limit_bytes: int) -> int:
    return 100 * size_bytes // limit_bytes if limit_bytes > 0 else 0


def _copy_lag(hosted: Hosted, covered: int | KafkaError) -> _CopyLag:
    """Return what this leader has to copy; nothing on a follower, or if nothing may be copied."""
    if not hosted.leads or not hosted.may_copy:
        return _CopyLag()
    log = hosted.log
    start = covered + 1 if isinstance(covered, int) else 0
    waiting = log.closed_between(max(start, log.log_start_offset), log.last_stable_offset)
    since_ms = None
    if waiting.first_time_ms is not None:
        with suppress(IndexDamaged):
            since_ms = waiting.first_time_ms()
    return _CopyLag(waiting.segments, waiting.size_bytes, since_ms)


def status_rows(
    services: Services, partitions: Iterator[Hosted]
) -> Generator[None, None, list[StatusRow]]:
    """Return the rows of partitions, by topic and partition; in slices."""
    rows: list[StatusRow] = []
    seen = 0
    for hosted in partitions:
        row = yield from _row(services, hosted)
        rows.append(row)
        seen += ROW_SEGMENTS + row.remote_segments + row.unfinished_segments
        if seen >= SEGMENTS_PER_SLICE:
            seen = 0
            yield
    return sorted(rows, key=lambda row: (row.topic, row.partition))


def _row(services: Services, hosted: Hosted) -> Generator[None, None, StatusRow]:
    log, metadata = hosted.log, services.metadata
    found = metadata.segments(hosted.where)
    segments = [] if isinstance(found, KafkaError) else found
    known = metadata.finished(hosted.where)
    finished = [] if isinstance(known, KafkaError) else known
    covered = hosted.covered_offset(metadata)
    end = covered + 1 if isinstance(covered, int) else 0
    lag = _copy_lag(hosted, covered)
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
        copy_lag_segments=lag.segments,
        copy_lag_bytes=lag.size_bytes,
        waiting_since_ms=lag.waiting_since_ms,
        may_copy=hosted.may_copy,
        is_ready=metadata.is_ready(hosted.where),
        unexplained_segments=hosted.unexplained_segments,
        holes=_holes(served, start, local_start),
        problem=str(withheld) if withheld else failure.text if failure else None,
        problem_since_ms=None if withheld or failure is None else failure.since_ms,
    )


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
