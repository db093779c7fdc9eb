"""A tier that grows while somebody reads it."""

from pathlib import Path
from typing import Any

from firnline.stores.directory import DirectoryStore
from firnline.tiered.objects.catalog_reader import list_heads_of_topic, list_topics, read_catalog
from tests.spark.written_tier import WrittenPartition, batches


class GrowingTier:
    """A tier whose partitions grow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = DirectoryStore(str(path))
        self.partitions: dict[tuple[str, int], WrittenPartition] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.heads = 0

    def grow(
        self, count: int, partition: int = 0, *, topic: str = "t", number: int = 1, **publish: Any
    ) -> None:
        """Put one more segment of so many offsets into a partition."""
        key = topic, partition
        self.partition_of(topic, partition, number=number)
        begin = self.ends.get(key, 0)
        self.ends[key] = begin + count
        self.partitions[key].segment(batches(begin, begin + count))
        self.publish(partition, topic=topic, **publish)

    def partition_of(self, topic: str, partition: int = 0, *, number: int = 1) -> WrittenPartition:
        """Return a partition, to put segments into it that are not like those of `grow`."""
        key = topic, partition
        if key not in self.partitions:
            self.partitions[key] = WrittenPartition(self.store, topic, partition, number=number)
        return self.partitions[key]

    def publish(self, partition: int = 0, *, topic: str = "t", **publish: Any) -> None:
        self.heads += 1
        self.partitions[topic, partition].publish(sequence=self.heads, **publish)

    @property
    def expected(self) -> list[tuple[int, int]]:
        """The partition and the offset of each record of all partitions, in order."""
        return [(key[1], n) for key, end in sorted(self.ends.items()) for n in range(end)]

    def resume(self) -> None:
        """Go on with the topics that the tier has."""
        for number, topic in enumerate(list_topics(self.store), start=1):
            for partition in list_heads_of_topic(self.store, topic.topic_id):
                found = read_catalog(self.store, topic.topic_id, partition)
                assert found is not None
                key = topic.topic, partition
                made = WrittenPartition(self.store, topic.topic, partition, number=number)
                made.segments = list(found.segments)
                self.partitions[key] = made
                self.ends[key] = made.segments[-1].end_offset + 1
                self.heads += len(made.segments)
