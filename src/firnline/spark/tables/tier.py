"""`topics`, `partitions` and `segments` of a tier, from its catalogs alone. SPARK, without Spark.

All topic ids that the tier has, also those of deleted topics whose objects are still there. The driver lists
names and heads; tasks read heads and parts.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from firnline.base.errors import ConfigError
from firnline.base.ids import uuid_text
from firnline.spark.log_lines import warn
from firnline.spark.planning.calls import Calls
from firnline.spark.tables.columns import TIER
from firnline.spark.tables.rows import Row, micros
from firnline.stores.port import ObjectMissing, ObjectStore
from firnline.tiered.catalog.format import CatalogHead, CatalogSegment, CatalogTopic
from firnline.tiered.objects.catalog_reader import (
    heads_of_partition,
    list_heads_of_topic,
    list_topics,
    read_catalog,
    read_head,
    with_newest,
)
from firnline.tiered.objects.layout import HeadName

_log = logging.getLogger(__name__)
T = TypeVar("T")
# A head is one request; the rows of a catalog may be many.
HEADS_PER_TASK = 1000
CATALOGS_PER_TASK = 16
# From `partition_epoch` to `directories`.
_ONLY_METADATA = (None,) * 9


class CatalogPlace(NamedTuple):
    """A partition with a catalog, and the newest head that a listing showed."""

    topic: CatalogTopic
    partition: int
    head: HeadName


class TierTask(NamedTuple):
    """What one task reads of the tier: the topics themselves, or heads or catalogs of partitions."""

    topics: tuple[tuple[CatalogTopic, int], ...] = ()  # each with the number of its partitions
    places: tuple[CatalogPlace, ...] = ()


def plan_tier(store: ObjectStore, table: str, uri: str) -> list[TierTask]:
    """List the tier; return tasks in the order of topic names, ids and partitions.

    Raises ConfigError if there is no topic: an empty table would hide a wrong `uri`.
    """
    topics = list_topics(store)
    if not topics:
        raise ConfigError(
            "no catalog was found: there is no tier here, or nothing has been copied to it yet",
            uri=uri,
        )
    with Calls(store) as calls:
        heads = calls.each(lambda topic: list_heads_of_topic(store, topic.topic_id), topics)
    if table == "topics":
        counted = [(topic, len(found)) for topic, found in zip(topics, heads, strict=True)]
        return [TierTask(topics=some) for some in _runs(counted, HEADS_PER_TASK)]
    places = [
        CatalogPlace(topic, partition, head)
        for topic, found in zip(topics, heads, strict=True)
        for partition, head in found.items()
    ]
    per_task = HEADS_PER_TASK if table == "partitions" else CATALOGS_PER_TASK
    return [TierTask(places=some) for some in _runs(places, per_task)]


def _runs(items: Iterable[T], most: int) -> Iterator[tuple[T, ...]]:
    """Yield `items` in runs of `most`; the last may be shorter."""
    waiting = iter(items)
    while run := tuple(islice(waiting, most)):
        yield run


def tier_rows(store: ObjectStore, table: str, task: TierTask) -> Iterator[Row]:
    """Yield the rows of one task. Raises ObjectMissing and CatalogCorrupt, which name the object."""
    if table == "topics":
        yield from (topic_row(topic, count) for topic, count in task.topics)
    elif table == "partitions":
        with Calls(store) as calls:
            heads = calls.each(lambda place: _head(store, place), task.places)
        for place, head in zip(task.places, heads, strict=True):
            if head is not None:
                yield partition_row(place.topic, head)
    else:
        for place in task.places:
            yield from _segments(store, place)


def _head(store: ObjectStore, place: CatalogPlace) -> CatalogHead | None:
    def read(topic_id: bytes, partition: int, name: HeadName) -> CatalogHead:
        return read_head(store, topic_id, partition, name)

    return _unless_removed(
        store,
        place,
        lambda: with_newest(store, place.topic.topic_id, place.partition, place.head, read),
    )


def _segments(store: ObjectStore, place: CatalogPlace) -> Iterable[Row]:
    catalog = _unless_removed(
        store,
        place,
        lambda: read_catalog(store, place.topic.topic_id, place.partition, place.head),
    )
    if catalog is None:
        return ()
    return (segment_row(place, segment) for segment in catalog.segments)


def _unless_removed(
    store: ObjectStore, place: CatalogPlace, read: Callable[[], T | None]
) -> T | None:
    """Return what `read` returns; None, with a line in the log, if the partition is removed meanwhile."""
    topic, partition = place.topic, place.partition
    try:
        return read()
    except ObjectMissing:
        if heads_of_partition(store, topic.topic_id, partition):
            raise
    warn(
        _log,
        "a partition was removed from the tier while it was read",
        topic=topic.topic,
        id=uuid_text(topic.topic_id),
        partition=partition,
    )
    return None


def topic_row(topic: CatalogTopic, partitions: int) -> Row:
    """Return the row of a topic; `partitions` is the number of those with a catalog."""
    return (
        topic.topic, uuid_text(topic.topic_id), topic.is_deleted, micros(topic.registered_ms), partitions,
        TIER,
    )  # fmt: skip


def partition_row(topic: CatalogTopic, head: CatalogHead) -> Row:
    """Return the row of a partition as its newest head describes it; null where only metadata knows."""
    return (
        head.topic, uuid_text(head.topic_id), head.partition, topic.is_deleted, None, head.leader_epoch,
        *_ONLY_METADATA, head.broker_id, head.sequence, micros(head.written_ms),
        head.metadata_partition, head.metadata_offset, head.log_start_offset, head.log_end_offset,
        list(head.epochs), TIER,
    )  # fmt: skip


def segment_row(place: CatalogPlace, row: CatalogSegment) -> Row:
    """Return the row of a segment as its catalog describes it."""
    known = row.fingerprint
    copied: Sequence[Any] = (None, None, None, None)
    if known is not None:
        sums = [(suffix, size_bytes, crc) for suffix, (size_bytes, crc) in known.sums]
        copied = (known.may_have_gaps, known.first_crc, known.heads_crc, sums)
    return (
        place.topic.topic, uuid_text(place.topic.topic_id), place.partition, place.topic.is_deleted,
        uuid_text(row.segment_id), row.base_offset, row.end_offset, row.size_bytes,
        micros(row.min_timestamp_ms), micros(row.max_timestamp_ms), list(row.epochs), row.stem,
        list(row.suffixes), None if row.custom_metadata is None else row.custom_metadata.hex(), *copied,
        [(s.offset, s.position, micros(s.max_timestamp_ms)) for s in row.splits],
    )  # fmt: skip
