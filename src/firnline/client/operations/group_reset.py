"""Where a group is to go on reading: the offsets that `group reset` commits. WORLD.

An offset that its log does not have becomes the nearest one that it has, as with Kafka's
kafka-consumer-groups --reset-offsets.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import TopicPartition
from firnline.client.admin import EARLIEST, LATEST, Admin
from firnline.client.operations.group_offsets import Committed
from firnline.client.operations.partitions import OffsetAt, offsets_at


class Where(Enum):
    """What the offset of a partition is derived from."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    OFFSET = "offset"
    SHIFT = "shift"
    TIME = "time"
    FILE = "file"


class Target(NamedTuple):
    """Where to go. value: an offset, a number of records, or ms since 1970; file: an offset by partition."""

    where: Where
    value: int = 0
    file: Mapping[TopicPartition, int] = {}


class ResetRow(NamedTuple):
    """One partition of a plan. committed_offset: -1 without one; note: why it is not what was asked for."""

    topic: str
    partition: int
    committed_offset: int
    new_offset: int
    log_start_offset: int
    log_end_offset: int
    note: str

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


def plan_reset(
    admin: Admin, places: Collection[TopicPartition], committed: Committed, target: Target
) -> list[ResetRow]:
    """Return the plan, in order of the partitions. KafkaError if the ends of one of them are not known."""
    starts = _known(offsets_at(admin, dict.fromkeys(places, EARLIEST)))
    ends = _known(offsets_at(admin, dict.fromkeys(places, LATEST)))
    at: dict[TopicPartition, OffsetAt] = {}
    if target.where is Where.TIME:
        at = _known(offsets_at(admin, dict.fromkeys(places, target.value)))
    rows = []
    for place in sorted(places):
        start, end = starts[place].offset, ends[place].offset
        now = committed.get(place, -1)
        wish, note = _wish(place, target, now, start, end, at)
        new = min(max(wish, start), end)
        if new != wish:
            edge = "begins" if new == start and wish < start else "ends"
            note = f"{wish} is not there: the log {edge} at {new}"
        rows.append(ResetRow(place.topic, place.partition, now, new, start, end, note))
    return rows


def _wish(
    place: TopicPartition,
    target: Target,
    committed: int,
    start: int,
    end: int,
    at: Mapping[TopicPartition, OffsetAt],
) -> tuple[int, str]:
    match target.where:
        case Where.EARLIEST:
            return start, ""
        case Where.LATEST:
            return end, ""
        case Where.CURRENT:
            return (committed, "") if committed >= 0 else (end, "nothing committed: the log end")
        case Where.OFFSET:
            return target.value, ""
        case Where.FILE:
            return target.file[place], ""
        case Where.SHIFT:
            if committed < 0:
                why = f"{place} has no committed offset to shift: leave it out, or give --to-offset"
                raise KafkaError(Code.INVALID_REQUEST, why)
            return committed + target.value, ""
        case Where.TIME:
            found = at[place].offset
            return (found, "") if found >= 0 else (end, "no record since then: the log end")


def _known(
    found: Mapping[TopicPartition, OffsetAt | KafkaError],
) -> dict[TopicPartition, OffsetAt]:
    known = {}
    for place, outcome in found.items():
        if isinstance(outcome, KafkaError):
            raise outcome
        known[place] = outcome
    return known
