"""From the places that a user names to offsets of a partition. PURE."""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.units import INT64_MAX
from firnline.spark.gaps.causes import (
    EXPIRED_OR_DELETED,
    FAIL,
    NOT_WRITTEN,
    TRUNCATED,
    UNDECIDED,
    Missing,
    is_refused,
)
from firnline.spark.log_lines import warn_of
from firnline.spark.options.parse import (
    EARLIEST,
    LATEST,
    ByTimestamp,
    OffsetSpec,
    OffsetSpecs,
    Options,
)
from firnline.spark.planning.cut import Bounds
from firnline.spark.schema import DataLoss

_log = logging.getLogger(__name__)
_REMEDY = (
    "give offsets that are there, or failOnDataLoss=false to read those that are; the table `gaps` says why"
    " offsets are missing"
)
_REMEDY_OF_CUT = (
    "pin(options, lease_s=...) makes a cut whose records stay; failOnDataLoss=false reads those of this one"
    " that are there; the table `gaps` says why offsets are missing"
)


class Ends(NamedTuple):
    """What there is of a partition now: offsets [log start, end). `where` is what errors call the place.

    decided_before  where the end would be if the outcome of transactions did not matter; None: at the end
    beyond          the cause of offsets from there on, and the evidence
    """

    topic: str
    partition: int
    log_start_offset: int
    end_offset: int
    where: str
    decided_before: int | None = None
    beyond: tuple[str, str] = (NOT_WRITTEN, "the high watermark is {end}")

    def above(self, start: int, end: int) -> tuple[Missing, ...]:
        """Return why offsets [start, end), which are not below the end, are not read."""
        stable, written = self.end_offset, self.end_offset
        if self.decided_before is not None:
            written = max(self.decided_before, written)
        cause, detail = self.beyond
        why = f"the outcome of transactions is known below {stable} only: one is open there, or may be"
        found = (
            Missing(start, min(end, written), UNDECIDED, why),
            Missing(max(start, written), end, cause, detail.format(end=written)),
        )
        return tuple(each for each in found if each.start_offset < each.end_offset)

    def left_out(self, start: int, end: int) -> tuple[Missing, ...]:
        """Return what of the requested offsets [start, end) is below the log start or above the end."""
        if self.log_start_offset <= start and end <= self.end_offset:
            return ()
        detail = (
            f"the log start is {self.log_start_offset}; retention.ms, retention.bytes and DeleteRecords"
            " move it"
        )
        below = Missing(start, min(end, self.log_start_offset), EXPIRED_OR_DELETED, detail)
        above = self.above(max(start, self.end_offset, self.log_start_offset), end)
        return (below, *above) if below.start_offset < below.end_offset else above


def resolve(
    options: Options, ends: Ends, first_at: Callable[[int], int | None], *, leader_epoch: int
) -> Bounds:
    """Return what is to be read of a partition.

    first_at      finds the first offset at or after a timestamp in ms; None: no record is that late
    leader_epoch  the partition's

    Raises ConfigError for an end below the start, and for a time at which no record is, DataLoss for offsets
    that the partition does not have.
    """
    start = _offset(options, options.starting, ends, first_at, is_start=True)
    end = _offset(options, options.ending, ends, first_at, is_start=False)
    start_offset, end_offset = _clamped(start, ends), _clamped(end, ends)
    if end_offset < start_offset:
        raise ConfigError(
            "the ending offset is below the starting offset", topic=ends.topic,
            partition=ends.partition, starting=start_offset, ending=end_offset,
        )  # fmt: skip
    return Bounds(
        start_offset, end_offset, ends.log_start_offset, leader_epoch, ends.left_out(start, end)
    )


def within_ends(options: Options, bounds: Bounds, ends: Ends) -> Bounds:
    """Return the bounds of a cut, or what is left of them; DataLoss for what is gone, as the options say."""
    start, end = bounds.start_offset, bounds.end_offset
    if start < min(ends.log_start_offset, end):
        why = "offsets of the cut are below the log start"
        lose(options, EXPIRED_OR_DELETED, why, ends, from_offset=start)
    if end > max(ends.end_offset, start):
        why = f"offsets of the cut are not in {ends.where}"
        lose(options, _cause_above(ends, max(ends.end_offset, start)), why, ends, to_offset=end)
    low = min(max(start, ends.log_start_offset), end)
    return Bounds(
        low, max(low, min(end, ends.end_offset)), ends.log_start_offset, bounds.leader_epoch,
        (*ends.left_out(start, end), *bounds.left_out),
    )  # fmt: skip


def before_fork(options: Options, bounds: Bounds, topic: str, partition: int, fork: int) -> Bounds:
    """Return what is left of a cut whose records from `fork` on are no longer the partition's.

    Raises DataLoss unless the user has said what is to be done about gaps: rows of two histories are no cut.
    """
    end = max(fork, bounds.start_offset)
    if not options.reports_gaps and (options.on_gap is None or options.fail_on_data_loss):
        raise DataLoss(
            "an unclean election has replaced records of the cut",
            topic=topic,
            partition=partition,
            from_offset=fork,
        )
    detail = (
        f"leader epoch {bounds.leader_epoch} of the cut ends at {fork}: an unclean election has replaced"
        " what came after it"
    )
    gone = Missing(end, bounds.end_offset, TRUNCATED, detail)
    return bounds._replace(end_offset=end, left_out=(gone,))


def place_of(places: OffsetSpecs, topic: str, partition: int) -> OffsetSpec:
    """Return what the user says about one partition."""
    return places[topic][partition] if isinstance(places, Mapping) else places


def lose(options: Options, cause: str, why: str, ends: Ends, **facts: int) -> None:
    """Raise DataLoss if the options refuse such a gap. Else it is logged, here or by `explain.report`."""
    if options.reports_gaps:
        return
    problem = DataLoss(
        why,
        topic=ends.topic,
        partition=ends.partition,
        **facts,
        log_start=ends.log_start_offset,
        end=ends.end_offset,
        **{} if options.on_gap is None else {"cause": cause, "onGap": options.on_gap},
    )
    if is_refused(options.on_gap, fail_on_data_loss=options.fail_on_data_loss, cause=cause):
        if options.on_gap != FAIL:  # which refuses failOnDataLoss=false
            problem.facts["remedy"] = _REMEDY if options.as_of is None else _REMEDY_OF_CUT
        raise problem
    if options.on_gap is None:
        warn_of(_log, problem)


def _clamped(offset: int, ends: Ends) -> int:
    return min(max(offset, ends.log_start_offset), ends.end_offset)


def _cause_above(ends: Ends, offset: int) -> str:
    return ends.above(offset, INT64_MAX)[0].cause


def _offset(
    options: Options,
    places: OffsetSpecs,
    ends: Ends,
    first_at: Callable[[int], int | None],
    *,
    is_start: bool,
) -> int:
    """Return one end of the range: within [log start, end] if the user names no offset."""
    place = place_of(places, ends.topic, ends.partition)
    if isinstance(place, ByTimestamp):
        found = first_at(place.timestamp_ms)
        if found is not None:
            return _clamped(found, ends)
        if is_start and not options.latest_if_no_such_time:
            raise ConfigError(
                "no record is at or after the starting time;"
                " startingOffsetsByTimestampStrategy=latest reads nothing instead",
                topic=ends.topic, partition=ends.partition, timestamp_ms=place.timestamp_ms,
            )  # fmt: skip
        return ends.end_offset
    if place == EARLIEST:
        return ends.log_start_offset
    if place == LATEST:
        return ends.end_offset
    if place < ends.log_start_offset:
        why = "an offset is below the log start"
        lose(options, EXPIRED_OR_DELETED, why, ends, offset=place)
    if place > ends.end_offset:
        why = f"an offset is not in {ends.where}, or not yet"
        lose(options, _cause_above(ends, ends.end_offset), why, ends, offset=place)
    return place
