"""Why a topic has nothing, or not everything, in the tier: for `firnline tier status`. PURE."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firnline.base.errors import some_of

_SWITCH = "remote.storage.enable"
_NO_TIERED_TOPIC = (
    f"no topic has {_SWITCH}=true: `firnline topic alter TOPIC --set {_SWITCH}=true` sets it"
)


def reasons(rows: Sequence[Mapping[str, Any]], *, is_everything: bool) -> Iterator[str]:
    """Yield a line for each topic with records that wait for something else than a copy that goes on.

    rows           of partitions, as brokers have answered; what fails is said elsewhere
    is_everything  they are all that there are: each broker has answered about all topics
    """
    if not rows and is_everything:
        yield _NO_TIERED_TOPIC
    off: dict[str, list[Mapping[str, Any]]] = {}
    unrolled: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["log_end_offset"] <= row["highest_remote_offset"] + 1:
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
        yield (
            f"{_names(found)}: {_records(found)} not in the tier, because a segment is copied once it is"
            f" closed (segment.bytes, segment.ms); `firnline tier flush {topic}` does both now"
        )


def _names(rows: Sequence[Mapping[str, Any]]) -> str:
    return some_of([f"{row['topic']}-{row['partition']}" for row in rows])


def _records(rows: Sequence[Mapping[str, Any]]) -> str:
    count = sum(row["log_end_offset"] - row["highest_remote_offset"] - 1 for row in rows)
    return f"{count} record{' is' if count == 1 else 's are'}"
