"""Why a topic has nothing, or not everything, in the tier: for `firnline tier status`. PURE."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from firnline.base.errors import some_of
from firnline.cli.show import bytes_of, duration_of
from firnline.tiered.copier import ROLL_AT_PAUSES

_SWITCH = "remote.storage.enable"
_NO_TIERED_TOPIC = (
    f"no topic has {_SWITCH}=true: `firnline topic alter TOPIC --set {_SWITCH}=true` sets it"
)


class Closing(NamedTuple):
    """When a broker closes the active segment of a topic. idle_ms 0: however long nothing is appended."""

    idle_ms: int
    segment_ms: int
    segment_bytes: int

    def __str__(self) -> str:
        if self.idle_ms:
            return (
                f"{duration_of(self.idle_ms)} after the last record, and"
                f" {duration_of(ROLL_AT_PAUSES * self.idle_ms)} after its first at the latest"
                " (firnline.remote.log.roll.idle.ms)"
            )
        return (
            f"with the next record once it is {duration_of(self.segment_ms)} old (segment.ms) or holds"
            f" {bytes_of(self.segment_bytes)} (segment.bytes)"
        )


def unrolled_topics(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the topics with records that wait until their segment is closed."""
    return {row["topic"] for row in rows if _is_behind(row) and row["state"] == "idle"}


def _is_behind(row: Mapping[str, Any]) -> bool:
    return bool(row["log_end_offset"] > row["highest_remote_offset"] + 1)


def reasons(
    rows: Sequence[Mapping[str, Any]], closing: Mapping[str, Closing], *, is_everything: bool
) -> Iterator[str]:
    """Yield a line for each topic with records that wait for something else than a copy that goes on.

    rows           of partitions, as brokers have answered; what fails is said elsewhere
    closing        of topics, as far as it is known
    is_everything  they are all that there are: each broker has answered about all topics
    """
    if not rows and is_everything:
        yield _NO_TIERED_TOPIC
    off: dict[str, list[Mapping[str, Any]]] = {}
    unrolled: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if not _is_behind(row):
            continue
        if row["state"] == "off":
            off.setdefault(row["topic"], []).append(row)
        elif row["state"] == "idle":
            unrolled.setdefault(row["topic"], []).append(row)
    for topic, found in off.items():
        yield (
            f"{_names(found)}: {_records(found)} not in the tier, and none is copied, because"
            f" remote.log.copy.disable of {topic} is true"
        )
    for topic, found in unrolled.items():
        when = f"that happens {closing[topic]}" if topic in closing else "segment.bytes, segment.ms"
        yield (
            f"{_names(found)}: {_records(found)} not in the tier, because a segment is copied once it is"
            f" closed: {when}. `firnline tier flush {topic}` closes and copies it now"
        )


def _names(rows: Sequence[Mapping[str, Any]]) -> str:
    return some_of([f"{row['topic']}-{row['partition']}" for row in rows])


def _records(rows: Sequence[Mapping[str, Any]]) -> str:
    count = sum(row["log_end_offset"] - row["highest_remote_offset"] - 1 for row in rows)
    return f"{count} record{' is' if count == 1 else 's are'}"
