"""Counts over the cluster that would take too long when somebody asks, and times in buckets. PURE.

Counted as Kafka's controller counts: a partition is offline when nobody leads it, and imbalanced when its
first replica does not. Source: spec 1.14.
"""

from bisect import bisect_left
from collections.abc import Generator

from firnline.metadata.delta import TOPICS_PER_STEP, ClusterDelta
from firnline.metadata.image import NO_LEADER, ClusterImage, PartitionImage

_RECOVERING = 1


class Census:
    """What is true of the partitions of the committed image, kept up to date by its differences."""

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
        # Since this node began to count. The last of an ISR leads again whatever its disk lost (I25).
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
                    was, now = before.leader_recovery_state, after.leader_recovery_state
                    self.unclean_elections += was != _RECOVERING and now == _RECOVERING
                    self.last_standing_elections += _is_last_standing(before, after)
                self._count(after, 1)
        for gone in delta.deleted_topics:
            for partition in gone.partitions.values():
                self._count(partition, -1)

    def recount(self, image: ClusterImage) -> "Generator[None, None, Census]":
        """Return a census of another image; yields after some topics at a time."""
        fresh = Census()
        fresh.unclean_elections = self.unclean_elections
        fresh.last_standing_elections = self.last_standing_elections
        for count, topic in enumerate(image.topics_by_id.values(), 1):
            for partition in topic.partitions.values():
                fresh._count(partition, 1)
            if count % TOPICS_PER_STEP == 0:
                yield
        return fresh

    def _count(self, partition: PartitionImage, by: int) -> None:
        self.partitions += by
        if partition.leader == NO_LEADER:
            self.offline += by
        if not partition.replicas or partition.leader != partition.replicas[0]:
            self.imbalanced += by


def _is_last_standing(before: PartitionImage, after: PartitionImage) -> bool:
    """Does the last of the ISR lead again, having been gone, where others have replicas?"""
    return (
        before.leader == NO_LEADER
        and len(before.replicas) > 1
        and len(before.isr) == 1
        and after.leader == before.isr[0]
    )


class Latencies:
    """How long something took, how often: a histogram. Milliseconds."""

    BOUNDS_MS = (1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000)

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(self.BOUNDS_MS) + 1)  # the last is for all above the last bound
        self.sum_ms = 0

    def add(self, took_ms: int) -> None:
        self.counts[bisect_left(self.BOUNDS_MS, took_ms)] += 1
        self.sum_ms += took_ms

    @property
    def count(self) -> int:
        return sum(self.counts)
