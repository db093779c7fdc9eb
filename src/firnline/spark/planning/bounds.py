"""From the places that a user names to offsets of a partition. PURE."""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from firnline.base.errors import ConfigError
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


class Ends(NamedTuple):
    """What there is of a partition now: offsets [log start, end). `where` is what errors call the place."""

    topic: str
    partition: int
    log_start_offset: int
    end_offset: int
    where: str


def resolve(
    options: Options, ends: Ends, first_at: Callable[[int], int | None], *, leader_epoch: int
) -> Bounds:
    """Return what is to be read of a partition.

    first_at      finds the first offset at or after a timestamp in ms; None: no record is that late
    leader_epoch  the partition's

    Raises ConfigError for an end below the start, and for a time at which no record is, DataLoss for offsets
    that the partition does not have.
    """
    start_offset = _offset(options, options.starting, ends, first_at, is_start=True)
    end_offset = _offset(options, options.ending, ends, first_at, is_start=False)
    if end_offset < start_offset:
        raise ConfigError(
            "the ending offset is below the starting offset", topic=ends.topic,
            partition=ends.partition, starting=start_offset, ending=end_offset,
        )  # fmt: skip
    return Bounds(start_offset, end_offset, ends.log_start_offset, leader_epoch)


def within_ends(options: Options, bounds: Bounds, ends: Ends) -> Bounds:
    """Return the bounds of a cut, or what is left of them; DataLoss for what is gone, as the options say."""
    start, end = bounds.start_offset, bounds.end_offset
    if start < min(ends.log_start_offset, end):
        lose(options, "offsets of the cut are below the log start", ends, from_offset=start)
    if end > max(ends.end_offset, start):
        lose(options, f"offsets of the cut are not in {ends.where}", ends, to_offset=end)
    low = min(max(start, ends.log_start_offset), end)
    return Bounds(
        low, max(low, min(end, ends.end_offset)), ends.log_start_offset, bounds.leader_epoch
    )


def place_of(places: OffsetSpecs, topic: str, partition: int) -> OffsetSpec:
    """Return what the user says about one partition."""
    return places[topic][partition] if isinstance(places, Mapping) else places


def lose(options: Options, why: str, ends: Ends, **facts: int) -> None:
    """Raise DataLoss, or log it if the user wants the other offsets."""
    problem = DataLoss(
        why,
        topic=ends.topic,
        partition=ends.partition,
        **facts,
        log_start=ends.log_start_offset,
        end=ends.end_offset,
    )
    if options.fail_on_data_loss:
        raise problem
    _log.warning("%s", problem)


def _offset(
    options: Options,
    places: OffsetSpecs,
    ends: Ends,
    first_at: Callable[[int], int | None],
    *,
    is_start: bool,
) -> int:
    """Return one end of the range as an offset within [log start, end]."""
    place = place_of(places, ends.topic, ends.partition)
    if isinstance(place, ByTimestamp):
        found = first_at(place.timestamp_ms)
        if found is not None:
            return min(max(found, ends.log_start_offset), ends.end_offset)
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
        lose(options, "an offset is below the log start", ends, offset=place)
    if place > ends.end_offset:
        lose(options, f"an offset is not in {ends.where}, or not yet", ends, offset=place)
    return min(max(place, ends.log_start_offset), ends.end_offset)
