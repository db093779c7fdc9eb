"""Counts of partitions, an index of partitions by broker, and latencies, kept up to date with the image.
PURE.

Finding these in an image on demand would take too long. They count as Kafka's controller does: a partition is
offline without a leader, and imbalanced if its first replica does not lead it. Source: spec 1.14.
"""

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

from firnline.base.ids import Uuid
from firnline.metadata.delta import ClusterDelta
from firnline.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage

_RECOVERING = 1
# Topics and partitions in one step; a millisecond or two.
_COUNTED_PER_STEP = 2_000
Hashed = TypeVar("Hashed")


class PartitionCounts:
    """Counts of the partitions of the committed image, updated with each delta."""

    __slots__ = (
        "imbalanced",
        "last_standing_elections",
        "offline",
        "partitions",
        "unclean_elections",
    )

    def __init__(self) -> None:
        self.partitions = 0
        self.offline = 0
        self.imbalanced = 0
        # Since the start of this node. The last member of an ISR leads again whatever its disk lost (I25).
        self.unclean_elections = 0
        self.last_standing_elections = 0

    def apply(self, delta: ClusterDelta) -> None:
        """Count a change of the image."""
        for topic in delta.topics:
            old = topic.before.partitions if topic.before is not None else {}
            new = topic.after.partitions
            for number in topic.partitions:
                before, after = old.get(number), new[number]
                if before is not None:
                    self._count(before, -1)
                    self.unclean_elections += is_unclean(before, after)
                    self.last_standing_elections += is_last_standing(before, after)
                self._count(after, 1)
        for gone in delta.deleted_topics:
            for partition in gone.partitions.values():
                self._count(partition, -1)

    def recount(self, image: ClusterImage) -> "Generator[None, None, PartitionCounts]":
        """Return the counts of another image; yields after some partitions at a time."""
        fresh = PartitionCounts()
        fresh.unclean_elections = self.unclean_elections
        fresh.last_standing_elections = self.last_standing_elections
        count = 0
        for topic in image.topics_by_id.values():
            count += 1
            for partition in topic.partitions.values():
                fresh._count(partition, 1)
                count += 1
                if count >= _COUNTED_PER_STEP:
                    count = 0
                    yield
        return fresh

    def _count(self, partition: PartitionImage, by: int) -> None:
        self.partitions += by
        if partition.leader == NO_LEADER:
            self.offline += by
        if not partition.replicas or partition.leader != partition.replicas[0]:
            self.imbalanced += by


def is_unclean(before: PartitionImage, after: PartitionImage) -> bool:
    """Is the new leader from outside the ISR, so that acknowledged records may be lost?

    A leader from outside the ISR is in recovery; one that a reassignment brought in is not.
    """
    return after.leader_recovery_state == _RECOVERING and (
        before.leader_recovery_state != _RECOVERING
        or (after.leader != NO_LEADER and after.leader not in before.isr)
    )


def is_last_standing(before: PartitionImage, after: PartitionImage) -> bool:
    """Does the last replica standing lead again after it was away, with other replicas assigned?"""
    return (
        before.leader == NO_LEADER
        and len(before.replicas) > 1
        and len(before.isr) == 1
        and after.leader == before.isr[0]
    )


class PartitionIndex:
    """Finds the partitions of a broker, and those without a leader or without their preferred one.

    It follows one image by its deltas, forward and back. Replicas are found by topic: each broker that ever
    had a replica has a byte for each topic, so 10 bytes a topic with 10 brokers; the topic itself says the
    rest.
    """

    __slots__ = (
        "_flags",
        "_free",
        "_led",
        "_slots",
        "_topics",
        "imbalanced",
        "leaderless",
        "metric_names",
    )

    def __init__(self) -> None:
        # Topic id -> the number of such partitions.
        self.leaderless: dict[Uuid, int] = {}
        self.imbalanced: dict[Uuid, int] = {}
        # Metric name -> topic name, for topics whose metric name another topic could have.
        self.metric_names: dict[str, str] = {}
        self._led: dict[int, int] = {}  # broker -> partitions it leads
        self._slots: dict[Uuid, int] = {}
        self._topics: list[Uuid | None] = []  # by slot
        self._free: list[int] = []
        self._flags: dict[int, bytearray] = {}  # broker -> by slot: may it have a replica?

    def apply(self, delta: ClusterDelta) -> None:
        """Follow a change of the image."""
        for topic in delta.topics:
            self._replace(topic.before, topic.after, topic.partitions)
        for gone in delta.deleted_topics:
            self._replace(gone, None, gone.partitions)

    def revert(self, delta: ClusterDelta) -> None:
        """Follow the image back to before the last change that was applied."""
        for gone in delta.deleted_topics:
            self._replace(None, gone, gone.partitions)
        for topic in delta.topics:
            self._replace(topic.after, topic.before, topic.partitions)

    @staticmethod
    def of(image: ClusterImage) -> "Generator[None, None, PartitionIndex]":
        """Return the index of an image; yields after some partitions at a time.

        Topics are added in the order of their ids: decisions follow the order of the index, and must be the
        same on every controller and in every process, while a map has no order.
        """
        index = PartitionIndex()
        count = 0
        for topic_id in sorted(image.topics_by_id):
            topic = image.topics_by_id[topic_id]
            numbers = list(topic.partitions)
            for first in range(0, max(len(numbers), 1), _COUNTED_PER_STEP):
                some = numbers[first : first + _COUNTED_PER_STEP]
                index._replace(None, topic, some)
                count += 1 + len(some)
                if count >= _COUNTED_PER_STEP:
                    count = 0
                    yield
        return index

    def leads_any(self, broker_id: int) -> bool:
        """Does this broker lead a partition?"""
        return broker_id in self._led

    def topics_of(self, broker_id: int) -> Iterator[Uuid]:
        """Yield the ids of topics that may have replicas on a broker; the index may change meanwhile.

        A topic that exists from the first step to the last is yielded.
        """
        flags, slot = self._flags.get(broker_id, b""), -1
        while (slot := flags.find(1, slot + 1)) >= 0:
            topic_id = self._topics[slot]
            assert topic_id is not None
            yield topic_id

    def _replace(
        self, old: TopicImage | None, new: TopicImage | None, numbers: Iterable[int]
    ) -> None:
        """Replace some partitions of a topic in the index."""
        were = old.partitions if old is not None else {}
        are = new.partitions if new is not None else {}
        topic_id = (new or old).topic_id  # type: ignore[union-attr]
        has_new_replicas, is_moved = [], False
        for number in numbers:
            before, after = were.get(number), are.get(number)
            if before is not None:
                self._count(topic_id, before, -1)
            if after is not None:
                self._count(topic_id, after, 1)
                if before is None or before.replicas != after.replicas:
                    has_new_replicas.append(after)
                    is_moved = is_moved or before is not None
            else:
                is_moved = True
        if new is None:
            assert old is not None
            self._forget(topic_id)
            self.metric_names.pop(metric_name(old.name), None)
            return
        if old is None and has_metric_name(new.name):
            self.metric_names[metric_name(new.name)] = new.name
        if is_moved:
            self._forget(topic_id)
            has_new_replicas = list(new.partitions.values())
        slot = self._slot(topic_id)
        broker_ids = [each for partition in has_new_replicas for each in partition.replicas]
        for broker_id in dict.fromkeys(broker_ids):
            self._flag(broker_id, slot)

    def _count(self, topic_id: Uuid, partition: PartitionImage, by: int) -> None:
        leader, replicas = partition.leader, partition.replicas
        if leader == NO_LEADER:
            _add(self.leaderless, topic_id, by)
        else:
            _add(self._led, leader, by)
        if not replicas or leader != replicas[0]:
            _add(self.imbalanced, topic_id, by)

    def _slot(self, topic_id: Uuid) -> int:
        slot = self._slots.get(topic_id)
        if slot is None:
            if self._free:
                slot = self._free.pop()
                self._topics[slot] = topic_id
            else:
                slot = len(self._topics)
                self._topics.append(topic_id)
            self._slots[topic_id] = slot
        return slot

    def _flag(self, broker_id: int, slot: int) -> None:
        flags = self._flags.get(broker_id)
        if flags is None:
            flags = self._flags[broker_id] = bytearray()
        if slot >= len(flags):
            flags += bytes(slot + 1 - len(flags) + len(flags) // 8)
        flags[slot] = 1

    def _forget(self, topic_id: Uuid) -> None:
        slot = self._slots.pop(topic_id, None)
        if slot is None:
            return
        self._topics[slot] = None
        self._free.append(slot)
        for flags in self._flags.values():
            if slot < len(flags):
                flags[slot] = 0


def metric_name(topic_name: str) -> str:
    """Return the topic's name in metrics, where `.` and `_` collide."""
    return topic_name.replace(".", "_")


def has_metric_name(topic_name: str) -> bool:
    """May another topic have the same name in metrics?"""
    return "." in topic_name or "_" in topic_name


def _add(counts: dict[Hashed, int], key: Hashed, by: int) -> None:
    """Add to a count, and drop counts of zero."""
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        del counts[key]


class Latencies:
    """A histogram of durations, in milliseconds."""

    BOUNDS_MS = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000)

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (
            len(self.BOUNDS_MS) + 1
        )  # the last one counts all above the last bound
        self.sum_ms = 0

    def add(self, took_ms: int) -> None:
        self.counts[bisect_left(self.BOUNDS_MS, took_ms)] += 1
        self.sum_ms += took_ms

    @property
    def count(self) -> int:
        return sum(self.counts)
