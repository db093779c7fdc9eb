"""Which offsets the next micro-batch takes. PURE.

Source: Spark's `KafkaMicroBatchStream`: `latestOffset`, `rateLimit`, `delayBatch`, `reportDataLoss`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from firnline.base.ids import Uuid
from firnline.base.units import INT64_MAX
from firnline.spark.gaps.causes import EXPIRED_OR_DELETED, LOST, TOPIC_DELETED, TRUNCATED
from firnline.spark.options.triggers import Triggers
from firnline.spark.schema import DataLoss
from firnline.spark.streaming.offsets import Key, StreamOffsets

# The end of the offsets from `begin` to `end` whose records take about so many bytes.
EndAfter = Callable[[Key, int, int, int], int]


class PartitionEnds(NamedTuple):
    """What can be read of a partition now: offsets [log start, end).

    log_end_offset  as `end_offset`, with the records of transactions that are open
    leader_epoch    no record below the end has a later one; -1: unknown
    is_of_tier      the tier alone was asked, and the log may be longer
    """

    topic: str
    topic_id: Uuid
    partition: int
    log_start_offset: int
    end_offset: int
    log_end_offset: int
    leader_epoch: int = -1
    is_of_tier: bool = False

    @property
    def key(self) -> Key:
        return self.topic, self.partition


class Loss(NamedTuple):
    """What a stream cannot read any more, and the cause as in the table `gaps`."""

    cause: str
    problem: DataLoss


class Beginning(NamedTuple):
    """Where the next micro-batch begins.

    offsets  of each partition that there is
    fresh    partitions whose offset is not the end of the micro-batch before
    losses   what the stream cannot read any more
    ahead    partitions of which the tier does not have yet what the stream has read from brokers
    """

    offsets: dict[Key, int]
    fresh: frozenset[Key]
    losses: list[Loss]
    ahead: frozenset[Key] = frozenset()


def doubtful(before: StreamOffsets, there: Sequence[PartitionEnds]) -> dict[Key, int]:
    """Return the epochs up to which a stream has read, where another leader may have replaced records."""
    return {
        one.key: before.epochs[one.key]
        for one in there
        if one.key in before.epochs
        and (
            one.leader_epoch != before.epochs[one.key]
            or one.log_end_offset < before.ends.get(one.key, 0)
        )
    }


def begin_after(
    before: StreamOffsets, there: Sequence[PartitionEnds], forks: Mapping[Key, int] = {}
) -> Beginning:
    """Return where the micro-batch after `before` begins in the partitions that there are now.

    A new partition begins at its log start. If that is not 0, records may be missing, as they are of a
    partition that is gone, of a topic that is another one now, and of a log that ends below what was read.

    forks  for each partition of `doubtful`, where the records up to this epoch end now, exclusive
    """
    offsets: dict[Key, int] = {}
    fresh: set[Key] = set()
    ahead: set[Key] = set()
    losses: list[Loss] = []
    created_again: set[str] = set()
    for one in there:
        known = before.ends.get(one.key)
        if known is not None and before.ids.get(one.topic, one.topic_id) != one.topic_id:
            created_again.add(one.topic)
            known = None
        elif known is None and one.log_start_offset:
            why = "a new partition does not begin at offset 0"
            losses.append(_loss(EXPIRED_OR_DELETED, why, one))
        elif known is not None and forks.get(one.key, INT64_MAX) < known:
            why = "an unclean election has replaced records that the stream has read"
            losses.append(_loss(TRUNCATED, why, one, read=known, replaced_from=forks[one.key]))
            fresh.add(one.key)
            known = max(min(forks[one.key], one.end_offset), one.log_start_offset)
        elif known is not None and known > one.log_end_offset:
            if one.is_of_tier and one.key in forks:
                ahead.add(one.key)
            else:
                why = "the log ends below what the stream has read"
                losses.append(_loss(LOST, why, one, read=known))
                fresh.add(one.key)
                known = one.log_end_offset
        if known is None:
            fresh.add(one.key)
            known = one.log_start_offset
        offsets[one.key] = known
    losses += [
        Loss(
            TOPIC_DELETED,
            DataLoss("the topic of the stream was deleted; another one has its name", topic=topic),
        )
        for topic in sorted(created_again)
    ]
    gone = sorted(k for k in before.ends if k not in offsets and k[0] not in created_again)
    losses += [
        Loss(
            TOPIC_DELETED,
            DataLoss(
                "a partition of the stream is gone",
                topic=topic, partition=partition, read=before.ends[topic, partition],
            ),
        )
        for topic, partition in gone
    ]  # fmt: skip
    return Beginning(offsets, frozenset(fresh), losses, frozenset(ahead))


def _loss(cause: str, why: str, one: PartitionEnds, **facts: int) -> Loss:
    problem = DataLoss(
        why, topic=one.topic, partition=one.partition, **facts, log_start=one.log_start_offset,
        end=one.log_end_offset,
    )  # fmt: skip
    return Loss(cause, problem)


def is_too_little(
    triggers: Triggers, begins: Mapping[Key, int], ends: Mapping[Key, int], *, waited_ms: int | None
) -> bool:
    """Whether the micro-batch is to wait for more offsets.

    waited_ms  since the last micro-batch; None: there was none since the query started, so nothing waits
    """
    if triggers.min_offsets is None or waited_ms is None or waited_ms >= triggers.max_delay_ms:
        return False
    return sum(_lags(begins, ends).values()) < triggers.min_offsets


def limited(
    triggers: Triggers, begins: Mapping[Key, int], ends: Mapping[Key, int], end_after: EndAfter
) -> dict[Key, int]:
    """Return the ends of a micro-batch that heeds the limits.

    Each limit is divided in proportion to the partitions' lags in offsets. Each partition with a lag gets one
    offset at least, so a small one does not starve beside a large one.
    """
    found = dict(ends)
    lags = _lags(begins, ends)
    total = sum(lags.values())
    for key, lag in lags.items():
        if triggers.max_offsets is not None:
            share = max(triggers.max_offsets * lag // total, 1)
            found[key] = min(found[key], begins[key] + share)
        if triggers.max_bytes is not None:
            size = triggers.max_bytes * lag // total
            found[key] = max(end_after(key, begins[key], found[key], size), begins[key] + 1)
    return found


def _lags(begins: Mapping[Key, int], ends: Mapping[Key, int]) -> dict[Key, int]:
    return {key: end - begins[key] for key, end in ends.items() if end > begins[key]}
