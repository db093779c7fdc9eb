"""The partitions this node hosts, by name and by id, and the error for those it does not. PURE.

Source: spec C14 (100, 103), C13; KIP-516 (topic ids), KIP-951 (who leads instead).
"""

from collections.abc import Callable, Iterator
from functools import partial

from firnline.base.errors import Code, KafkaError
from firnline.base.ids import ZERO_UUID, Uuid
from firnline.replica.delete_records import Deletions
from firnline.replica.index_rebuilds import IndexRebuilds
from firnline.replica.partition import Partition

# Keys are TopicPartitions; any pair of (name, partition) finds them, which saves making one.
ByName = dict[tuple[str, int], Partition]


class HostedPartitions:
    """A lookup that answers with the partition, or with what the client must be told.

    exists      whether the committed image has (topic name, partition)
    name_of     topic name for a topic id of the committed image, or None
    deletions   who waits until deleted records are gone from all replicas
    rebuilds    builds damaged indexes of their logs
    on_missing  told (topic, partition) when one was looked for that is not here: it may yet be opened
    """

    __slots__ = (
        "_exists",
        "_name_of",
        "by_id",
        "by_name",
        "deletions",
        "on_missing",
        "rebuilds",
    )

    def __init__(
        self, *, exists: Callable[[str, int], bool], name_of: Callable[[Uuid], str | None]
    ) -> None:
        self.by_name: ByName = {}
        self.by_id: dict[tuple[Uuid, int], Partition] = {}
        self._exists = exists
        self._name_of = name_of
        self.deletions = Deletions()
        self.rebuilds = IndexRebuilds(self._hosts)
        self.on_missing: Callable[[str, int], None] = _nobody_opens

    def __iter__(self) -> Iterator[Partition]:
        """All hosted partitions, in the order they came."""
        return iter(list(self.by_name.values()))

    def __len__(self) -> int:
        return len(self.by_name)

    def add(self, partition: Partition) -> None:
        topic_partition = partition.topic_partition
        assert topic_partition not in self.by_name, f"{topic_partition} is hosted already"
        self.by_name[topic_partition] = partition
        self.by_id[partition.topic_id, topic_partition.partition] = partition
        partition.log.have_indexes_built(partial(self.rebuilds.want, partition))

    def remove(self, partition: Partition) -> None:
        index = partition.topic_partition.partition
        if self.by_name.get(partition.topic_partition) is partition:
            del self.by_name[partition.topic_partition]
            partition.log.have_indexes_built(None)
        self.by_id.pop((partition.topic_id, index), None)

    def _hosts(self, partition: Partition) -> bool:
        return self.by_name.get(partition.topic_partition) is partition

    def find(self, topic: str, index: int) -> Partition | KafkaError:
        """Return the partition of that name; NOT_LEADER_OR_FOLLOWER if others host it, else unknown."""
        found = self.by_name.get((topic, index))
        if found is not None:
            return found
        return self._missing(topic, index)

    def find_by_id(self, topic_id: Uuid, index: int) -> Partition | KafkaError:
        """Return the partition of that topic id; UNKNOWN_TOPIC_ID where no topic has it."""
        found = self.by_id.get((topic_id, index))
        if found is not None:
            return found
        name = None if topic_id == ZERO_UUID else self._name_of(topic_id)
        if name is None:
            return _UNKNOWN_ID
        return self._missing(name, index)

    def _missing(self, topic: str, index: int) -> KafkaError:
        if not self._exists(topic, index):
            return _UNKNOWN
        self.on_missing(topic, index)
        return _ELSEWHERE

    def name_of(self, topic_id: Uuid) -> str | None:
        """Return the name that goes with a topic id, or None."""
        return self._name_of(topic_id)


def _nobody_opens(topic: str, index: int) -> None:
    """Nothing is on its way."""


_ELSEWHERE = KafkaError(Code.NOT_LEADER_OR_FOLLOWER, "this node does not host the partition")
_UNKNOWN = KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such topic or partition")
_UNKNOWN_ID = KafkaError(Code.UNKNOWN_TOPIC_ID, "no topic has this id")
