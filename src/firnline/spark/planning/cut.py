"""A cut: what one read takes of each partition, pinned when it is planned, and its JSON. PURE.

A cut read again gives the same rows: offsets below the high watermark do not change, wherever their records
are by then. Only an unclean election replaces some; the leader epoch of the cut shows it.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from firnline.base.errors import ConfigError
from firnline.base.ids import Uuid, uuid_from_text, uuid_text
from firnline.base.units import INT32_MAX, INT64_MAX
from firnline.config.topic import Lease, parse_lease
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.spark.gaps.causes import Missing

_VERSION = 1
_EXAMPLE = (
    '{"version": 1, "isolation": "read_uncommitted", "topics": {"flights": {"id": "...",'
    ' "partitions": {"0": {"start": 0, "end": 23, "epoch": 4}}}}}'
)
ISOLATION = ("read_uncommitted", "read_committed")


class Bounds(NamedTuple):
    """What one read takes of a partition: offsets [start, end).

    log_start_offset  the lowest offset that the partition had then
    leader_epoch      no record below `end_offset` has a later one; -1: unknown
    """

    start_offset: int
    end_offset: int
    log_start_offset: int
    leader_epoch: int
    left_out: tuple[Missing, ...] = ()


class TopicCut(NamedTuple):
    """The partitions of one topic in a cut."""

    topic_id: Uuid
    partitions: Mapping[int, Bounds]


class Cut(NamedTuple):
    """The bounds of every partition of a read, by topic, and whether only committed records count.

    lease  for which the brokers remove none of them; None: they may
    """

    topics: Mapping[str, TopicCut]
    read_committed: bool
    lease: Lease | None = None

    def text(self) -> str:
        """Return the cut as JSON in one line."""
        topics = {
            name: {
                "id": uuid_text(topic.topic_id),
                "partitions": {
                    str(partition): {
                        "start": bounds.start_offset,
                        "end": bounds.end_offset,
                        "epoch": bounds.leader_epoch,
                    }
                    for partition, bounds in sorted(topic.partitions.items())
                },
            }
            for name, topic in sorted(self.topics.items())
        }
        isolation = ISOLATION[self.read_committed]
        made: dict[str, Any] = {"version": _VERSION, "isolation": isolation, "topics": topics}
        if self.lease is not None:
            made["lease"] = str(self.lease)
        return json.dumps(made)


def parse_cut(text: str) -> Cut:
    """Parse the JSON of a cut. Raises ConfigError that says what it is like."""
    try:
        given = json.loads(text)
        if given["version"] != _VERSION:
            raise ConfigError(
                "asOf is a cut of another version of Firnline",
                given=given["version"], known=_VERSION,
            )  # fmt: skip
        topics = {name: _topic(topic) for name, topic in given["topics"].items()}
        lease = None
        if "lease" in given:
            lease = parse_lease(given["lease"])
            if lease is None:
                raise ValueError(f"{given['lease']!r} is no lease")
        return Cut(topics, bool(ISOLATION.index(given["isolation"])), lease)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise ConfigError(
            f"asOf is neither like {_EXAMPLE} nor the absolute path of a file with that",
            problem=f"{problem} is missing" if isinstance(problem, KeyError) else problem,
        ) from None


def _topic(given: Mapping[str, Any]) -> TopicCut:
    partitions = {}
    for partition, row in given["partitions"].items():
        start, end, epoch = (
            _integer(row[name], least, most)
            for name, least, most in (
                ("start", 0, INT64_MAX), ("end", 0, INT64_MAX), ("epoch", -1, INT32_MAX)
            )
        )  # fmt: skip
        if end < start:
            raise ValueError(f"end {end} is below start {start}")
        partitions[_integer(int(partition), 0, INT32_MAX)] = Bounds(start, end, start, epoch)
    return TopicCut(uuid_from_text(given["id"]), partitions)


def _integer(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{value!r} is no whole number from {least} to {most}")
    return value


def end_of_epoch(epochs: Epochs, leader_epoch: int) -> int:
    """Return where the records up to this leader epoch end in a history, exclusive.

    INT64_MAX if no later epoch has begun.
    """
    return min((start for epoch, start in epochs if epoch > leader_epoch), default=INT64_MAX)
