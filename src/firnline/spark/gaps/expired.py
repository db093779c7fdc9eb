"""Finds out why offsets are below a log start: plans and reads `__remote_log_metadata` of the brokers. SPARK.

The driver asks where the records are; a task for each partition of that topic reads them, once for all
partitions of users whose segments it has.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from firnline.base.errors import ConfigError, FirnlineError, ProtocolError
from firnline.base.ids import (
    NO_EPOCH,
    REMOTE_LOG_METADATA_TOPIC,
    PartitionKey,
    TopicIdPartition,
)
from firnline.spark.brokers.cluster import Brokers
from firnline.spark.brokers.fetch import read_tail
from firnline.spark.gaps.causes import EXPIRED_OR_DELETED, LeftOut, Missing
from firnline.spark.gaps.history import History, Limits, limits_of
from firnline.spark.log_lines import warn
from firnline.spark.options.brokers import BrokerSettings
from firnline.spark.options.parse import EARLIEST, LATEST
from firnline.spark.planning.plan import TailTask
from firnline.spark.schema import ReadSettings
from firnline.tiered.metadata.changes import from_record
from firnline.tiered.metadata.partitioner import metadata_partition_of
from firnline.tiered.metadata.records import decode
from firnline.tiered.spi import PartitionDelete

_log = logging.getLogger(__name__)


class ExpiredTask(NamedTuple):
    """What one task finds out: why offsets of some partitions are below the log start.

    history  the records of `__remote_log_metadata` that say so; None: the cluster has no such topic
    """

    history: TailTask | None
    rows: tuple[tuple[LeftOut, Limits], ...]


def plan_expired(
    brokers: Brokers, left_out: Iterable[LeftOut]
) -> tuple[tuple[LeftOut, ...], tuple[ExpiredTask, ...]]:
    """Return what was left out for other causes, and tasks for what is below a log start."""
    others, expired = [], []
    for each in left_out:
        below = tuple(m for m in each.missing if m.cause == EXPIRED_OR_DELETED)
        rest = tuple(m for m in each.missing if m.cause != EXPIRED_OR_DELETED)
        expired += [each._replace(missing=below)] if below else []
        others += [each._replace(missing=rest)] if rest else []
    if not expired:
        return tuple(others), ()
    settings = brokers.topic_settings({each.topic for each in expired})
    rows = [(each, limits_of(settings.get(each.topic, {}))) for each in expired]
    try:
        topic = brokers.topics([REMOTE_LOG_METADATA_TOPIC])[REMOTE_LOG_METADATA_TOPIC]
    except ConfigError:
        return tuple(others), (ExpiredTask(None, tuple(rows)),)
    by_partition: dict[int, list[tuple[LeftOut, Limits]]] = {}
    for row in rows:
        where = TopicIdPartition(row[0].topic_id, row[0].partition)
        number = metadata_partition_of(where, len(topic.partitions))
        by_partition.setdefault(number, []).append(row)
    keys = [(topic.name, number) for number in by_partition]
    starts, ends = (
        brokers.offsets(dict.fromkeys(keys, place), read_committed=False)
        for place in (EARLIEST, LATEST)
    )
    return tuple(others), tuple(
        ExpiredTask(
            TailTask(
                topic.name, topic.topic_id, key[1], starts[key].offset, ends[key].offset, NO_EPOCH
            ),
            tuple(by_partition[key[1]]),
        )
        for key in keys
    )


def explain_expired(
    task: ExpiredTask, how: ReadSettings, brokers: BrokerSettings
) -> Iterator[LeftOut]:
    """Yield the offsets of a task with their causes, by partition.

    If the history cannot be read, they keep the cause that they had: it does not matter to anything else.
    """
    histories: dict[PartitionKey, History] = {}
    problem = "the cluster has no tier metadata" if task.history is None else None
    if task.history is not None:
        histories = {(each.topic_id, each.partition): History() for each, _ in task.rows}
        try:
            _read(task.history, histories, how, brokers)
        except FirnlineError as why:
            problem = f"the tier's metadata cannot be read: {why}"
            warn(_log, "the metadata of the tier cannot be read", error=why)
    for each, limits in task.rows:
        found: list[Missing] = []
        for missing in each.missing:
            if problem is None:
                found += histories[each.topic_id, each.partition].explain(missing, limits)
            else:
                detail = f"{missing.detail}; {problem}; {limits.text}"
                found.append(missing._replace(detail=detail))
        yield each._replace(missing=tuple(found))


def _read(
    task: TailTask,
    histories: dict[PartitionKey, History],
    how: ReadSettings,
    brokers: BrokerSettings,
) -> None:
    of_values = ReadSettings(("value",), how.chunk_bytes, how.window_bytes, keeps_aborted=True)
    ids = {topic_id for topic_id, _ in histories}
    for batch in read_tail(task, of_values, brokers):
        for value in batch.column("value").to_pylist():
            # Most records are of other topics: their ids are compared before a record is decoded.
            if value is None or not any(topic_id in value for topic_id in ids):
                continue
            try:
                change = from_record(decode(value))
            except (ProtocolError, ValueError):
                continue  # a broker that reads it says so
            if change is None or isinstance(change, PartitionDelete):
                continue
            history = histories.get((change.topic_id, change.partition))
            if history is not None:
                history.note(change)
