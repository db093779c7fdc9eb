"""Which offsets the next micro-batch takes. PURE.

Source: Spark's `KafkaMicroBatchStream`: `latestOffset`, `rateLimit`, `delayBatch`, `reportDataLoss`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from firnline.base.ids import Uuid
from firnline.spark.options.triggers import Triggers
from firnline.spark.schema import DataLoss
from firnline.spark.streaming.offsets import Key, StreamOffsets

# The end of the offsets from `begin` to `end` whose records take about so many bytes.
EndAfter = Callable[[Key, int, int, int], int]


class PartitionEnds(NamedTuple):
    """What can be read of a partition now: offsets [log start, end).

    log_end_offset  as `end_offset`, with the records of transactions that are open
    """

    topic: str
    topic_id: Uuid
    partition: int
    log_start_offset: int
    end_offset: int
    log_end_offset: int

    @property
    def key(self) -> Key:
        return self.topic, self.partition


class Beginning(NamedTuple):
    """Where the next micro-batch begins.

    offsets  of each partition that there is
    fresh    partitions whose offset is not the end of the micro-batch before
    losses   what the stream cannot read any more
    """

    offsets: dict[Key, int]
    fresh: frozenset[Key]
    losses: list[DataLoss]


def begin_after(before: StreamOffsets, there: Sequence[PartitionEnds]) -> Beginning:
    """Return where the micro-batch after `before` begins in the partitions that there are now.

    A new partition begins at its log start. If that is not 0, records may be missing, as they are of a
    partition that is gone, of a topic that is another one now, and of a log that ends below what was read.
    """
    offsets: dict[Key, int] = {}
    fresh: set[Key] = set()
    losses: list[DataLoss] = []
    created_again: set[str] = set()
    for one in there:
        known = before.ends.get(one.key)
        if known is not None and before.ids.get(one.topic, one.topic_id) != one.topic_id:
            created_again.add(one.topic)
            known = None
        elif known is None and one.log_start_offset:
            losses.append(_loss("a new partition does not begin at offset 0", one))
        elif known is not None and known > one.log_end_offset:
            losses.append(_loss("the log ends below what the stream has read", one, read=known))
            fresh.add(one.key)
            known = one.log_end_offset
        if known is None:
            fresh.add(one.key)
            known = one.log_start_offset
        offsets[one.key] = known
    losses += [
        DataLoss("the topic of the stream was deleted; another one has its name", topic=topic)
        for topic in sorted(created_again)
    ]
    gone = sorted(k for k in before.ends if k not in offsets and k[0] not in created_again)
    losses += [
        DataLoss("a partition of the stream is gone", topic=topic, partition=partition, read=read)
        for topic, partition in gone
        for read in (before.ends[topic, partition],)
    ]
    return Beginning(offsets, frozenset(fresh), losses)


def _loss(why: str, one: PartitionEnds, **facts: int) -> DataLoss:
    return DataLoss(
        why,
        topic=one.topic,
        partition=one.partition,
        **facts,
        log_start=one.log_start_offset,
        end=one.log_end_offset,
    )


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
