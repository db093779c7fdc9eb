"""The partitions that this node hosts, by name and by topic id; the error for any other. PURE.

A `Sweep` does periodic work on all of them, in slices. Its disk jobs hold files open, and a disk may be slow
or hang: `Permits` bounds the jobs under way, and a sweep waits while none is free. Source: spec C14 (100,
103), C13; KIP-516 (topic ids), KIP-951 (the current leader in an error response).
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Protocol

from firnline.base.cold_pages import ColdPages
from firnline.base.counting.traffic import TrafficByTopic
from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import ZERO_UUID, PartitionKey, Uuid
from firnline.replica.delete_records import Deletions
from firnline.replica.index_rebuilds import IndexRebuilds
from firnline.replica.partition import Partition

# Keys are TopicPartitions. A plain (topic, partition) pair finds them as well, and is cheaper to make.
ByName = dict[tuple[str, int], Partition]

# A slice of a sweep ends at this cost, about 4 ms of the event loop. A partition costs one. Each effect costs
# more, because files were opened or renamed for it.
_SLICE_COST = 300
_EFFECT_COST = 30


class PartitionObserver(Protocol):
    """A listener for changes of the hosted partitions. Only `broker/hosting.py` calls it, on the event loop.

    The partition is already in the state of the newest image. A listener returns effects. It may change the
    set of hosted partitions only through the controller.
    """

    def partition_updated(self, partition: Partition, now_ms: int) -> Effects:
        """Its leader, epoch, replicas or ISR changed. Called before the methods below."""
        ...

    def leadership_began(self, partition: Partition, now_ms: int) -> Effects:
        """This node became its leader, in a new leader epoch."""
        ...

    def leadership_ended(self, partition: Partition, now_ms: int) -> Effects:
        """This node leads it no more; also called when it is deleted or this node stops."""
        ...

    def partition_dropped(self, partition: Partition, now_ms: int) -> Effects:
        """It was removed from this node. Its log can still be read; its files are deleted next."""
        ...

    def partition_configured(self, partition: Partition, now_ms: int) -> Effects:
        """Its topic's configuration changed."""
        ...

    def partition_lost(self, key: PartitionKey, now_ms: int) -> Effects:
        """A replica here cannot be served: its files are damaged or missing."""
        ...

    def disk_failed(self, said: StorageError, now_ms: int) -> Effects:
        """A disk failed with `said` while a log was opened, synced before it is served, or removed."""
        ...


def _nobody_opens(topic: str, index: int) -> None:
    """The default of `on_missing`: no partition will be opened."""


class HostedPartitions:
    """A lookup: returns the partition, or the error for the client.

    exists      whether the committed image has (topic name, partition)
    name_of     topic name for a topic id of the committed image, or None
    deletions   DeleteRecords requests that wait until all replicas have deleted the records
    pages       reads cold pages of their files
    rebuilds    rebuilds damaged indexes of their logs
    traffic     what is asked of their topics
    on_missing  called with (topic, partition) when a lookup fails: the partition may be waiting to be opened
    """

    __slots__ = (
        "_exists",
        "_name_of",
        "_on_missing",
        "by_id",
        "by_name",
        "deletions",
        "pages",
        "rebuilds",
        "traffic",
    )

    def __init__(
        self,
        *,
        exists: Callable[[str, int], bool],
        name_of: Callable[[Uuid], str | None],
        on_missing: Callable[[str, int], None] = _nobody_opens,
    ) -> None:
        self.by_name: ByName = {}
        self.by_id: dict[PartitionKey, Partition] = {}
        self._exists = exists
        self._name_of = name_of
        self.deletions = Deletions()
        self.pages = ColdPages()
        self.rebuilds = IndexRebuilds(self._hosts, self.pages)
        self._on_missing = on_missing
        self.traffic = TrafficByTopic()

    def __iter__(self) -> Iterator[Partition]:
        """All hosted partitions, in the order they were added."""
        return iter(list(self.by_name.values()))

    def __len__(self) -> int:
        return len(self.by_name)

    def add(self, partition: Partition) -> None:
        topic_partition = partition.topic_partition
        assert topic_partition not in self.by_name, f"{topic_partition} is hosted already"
        self.by_name[topic_partition] = partition
        self.by_id[partition.topic_id, topic_partition.partition] = partition
        partition.traffic = self.traffic.join(topic_partition.topic)
        partition.log.have_indexes_built(partial(self.rebuilds.want, partition))

    def remove(self, partition: Partition) -> None:
        index = partition.topic_partition.partition
        if self.by_name.get(partition.topic_partition) is partition:
            del self.by_name[partition.topic_partition]
            self.traffic.leave(partition.topic_partition.topic)
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
        self._on_missing(topic, index)
        return _ELSEWHERE

    def name_of(self, topic_id: Uuid) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self._name_of(topic_id)


class Permits:
    """A semaphore for the disk jobs of some sweeps: at most `size` are under way, each under its key.

    owner  the name of the owner, unique on this node
    """

    def __init__(self, owner: str, size: int) -> None:
        self._timer = (owner, "room")
        self._size = size
        self._taken: dict[str, None] = {}
        # Sweeps that wait for a permit, by name, with their continuations. First in, first out.
        self._waiting: dict[str, Callable[[int], Effects]] = {}

    def __contains__(self, key: str) -> bool:
        """Whether the job of that key is under way."""
        return key in self._taken

    @property
    def is_full(self) -> bool:
        return len(self._taken) >= self._size

    def take(self, key: str) -> None:
        """Note that the job of that key is under way."""
        self._taken[key] = None

    def give_back(self, key: str, at_ms: int) -> Effects:
        """Note that the job ended; a waiting sweep continues at that time."""
        self._taken.pop(key, None)
        return self._go_on_at(at_ms)

    def wait(self, name: str, go_on: Callable[[int], Effects]) -> None:
        """Continue the sweep of that name once a permit is free."""
        self._waiting[name] = go_on

    def _go_on_at(self, at_ms: int) -> Effects:
        if self.is_full or not self._waiting:
            return []
        return [SetTimer(key=self._timer, at_ms=at_ms, then=self._go_on)]

    def _go_on(self, now_ms: int) -> Effects:
        if self.is_full or not self._waiting:
            return []
        go_on = self._waiting.pop(next(iter(self._waiting)))
        return go_on(now_ms) + self._go_on_at(now_ms)


class Sweep:
    """Calls `work` for every hosted partition, in slices. It skips those that were removed meanwhile.

    work     called with each partition
    permits  those that its jobs take: a sweep pauses while none is free
    some     the names of the partitions to visit, instead of all
    """

    def __init__(
        self,
        name: str,
        hosted: HostedPartitions,
        work: Callable[[Partition, int], Effects],
        permits: Permits | None = None,
        some: Collection[tuple[str, int]] | None = None,
    ) -> None:
        self._name = name
        self._hosted = hosted
        self._work = work
        self._permits = permits
        self._names = hosted.by_name if some is None else some
        self._is_under_way = False

    def __call__(self, now_ms: int) -> Effects:
        """Begin a new round, unless one is still under way."""
        if self._is_under_way:
            return []
        self._is_under_way = True
        return self._slice(iter(list(self._names)), now_ms)

    def _slice(self, rest: Iterator[tuple[str, int]], now_ms: int) -> Effects:
        effects: Effects = []
        cost = 0
        go_on = partial(self._slice, rest)
        while self._permits is None or not self._permits.is_full:
            name = next(rest, None)
            if name is None:
                self._is_under_way = False
                return effects
            partition = self._hosted.by_name.get(name)
            if partition is not None:
                found = self._work(partition, now_ms)
                cost += 1 + _EFFECT_COST * len(found)
                effects += found
            if cost >= _SLICE_COST:
                key = ("storage", self._name, "slice")
                return [*effects, SetTimer(key=key, at_ms=now_ms, then=go_on)]
        self._permits.wait(self._name, go_on)
        return effects


_ELSEWHERE = KafkaError(Code.NOT_LEADER_OR_FOLLOWER, "this node does not host the partition")
_UNKNOWN = KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such topic or partition")
_UNKNOWN_ID = KafkaError(Code.UNKNOWN_TOPIC_ID, "no topic has this id")
