"""The partitions this node hosts, by name and by id, and the error for those it does not. PURE.

Periodic work goes over all of them in slices: `Sweep`. What it has the disk do holds files open, and a disk
may be slow, or hang: so much may be under way at a time, and the sweep waits for room where it is (`Room`).
Source: spec C14 (100, 103), C13; KIP-516 (topic ids), KIP-951 (who leads instead).
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Protocol

from firnline.base.cold_pages import ColdPages
from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import Code, KafkaError, StorageError
from firnline.base.ids import ZERO_UUID, Uuid
from firnline.replica.delete_records import Deletions
from firnline.replica.index_rebuilds import IndexRebuilds
from firnline.replica.partition import Partition

# Keys are TopicPartitions; any pair of (name, partition) finds them, which saves making one.
ByName = dict[tuple[str, int], Partition]

# A slice of a sweep ends when this much is done, about 4 ms of the loop: a partition that was looked at
# counts one, each effect that came of it many, because it took files to be opened or renamed.
_SLICE_COST = 300
_EFFECT_COST = 30


class PartitionObserver(Protocol):
    """Who needs to know what becomes of partitions here. `broker/hosting.py` alone calls it, on the loop.

    The partition is as the newest image has it by then. Each returns what is to be done; none may change
    which partitions are hosted, but through the controller.
    """

    def partition_updated(self, partition: Partition, now_ms: int) -> Effects:
        """Its leader, epoch, replicas or ISR are other ones; told before what follows from that."""
        ...

    def leadership_began(self, partition: Partition, now_ms: int) -> Effects:
        """We lead it, in a new epoch."""
        ...

    def leadership_ended(self, partition: Partition, now_ms: int) -> Effects:
        """We led it and do not any more; also told where it is deleted, or this node stops."""
        ...

    def partition_dropped(self, partition: Partition, now_ms: int) -> Effects:
        """It is hosted no more; its log can be read a last time, and its files are removed next."""
        ...

    def partition_configured(self, partition: Partition, now_ms: int) -> Effects:
        """Its topic's settings are other ones."""
        ...

    def partition_lost(self, key: tuple[Uuid, int], now_ms: int) -> Effects:
        """A replica of ours cannot be served: its files are damaged, or not where they were."""
        ...

    def disk_failed(self, said: StorageError, now_ms: int) -> Effects:
        """A disk answered that when a log was opened, made durable before it is served, or removed."""
        ...


def _nobody_opens(topic: str, index: int) -> None:
    """Nothing is on its way."""


class HostedPartitions:
    """A lookup that answers with the partition, or with what the client must be told.

    exists      whether the committed image has (topic name, partition)
    name_of     topic name for a topic id of the committed image, or None
    deletions   who waits until deleted records are gone from all replicas
    pages       reads what is not in memory of their files
    rebuilds    builds damaged indexes of their logs
    on_missing  told (topic, partition) when one was looked for that is not here: it may yet be opened
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
    )

    def __init__(
        self,
        *,
        exists: Callable[[str, int], bool],
        name_of: Callable[[Uuid], str | None],
        on_missing: Callable[[str, int], None] = _nobody_opens,
    ) -> None:
        self.by_name: ByName = {}
        self.by_id: dict[tuple[Uuid, int], Partition] = {}
        self._exists = exists
        self._name_of = name_of
        self.deletions = Deletions()
        self.pages = ColdPages()
        self.rebuilds = IndexRebuilds(self._hosts, self.pages)
        self._on_missing = on_missing

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
        self._on_missing(topic, index)
        return _ELSEWHERE

    def name_of(self, topic_id: Uuid) -> str | None:
        """Return the name that goes with a topic id, or None."""
        return self._name_of(topic_id)


class Room:
    """What may be under way at a time of the works of some sweeps: `size` of them, each by its key.

    owner  who has it: no two of a node have the same name
    """

    def __init__(self, owner: str, size: int) -> None:
        self._timer = (owner, "room")
        self._size = size
        self._taken: dict[str, None] = {}
        # Of sweeps that found no room, by name: how they go on. Those that came first are first.
        self._waiting: dict[str, Callable[[int], Effects]] = {}

    def __contains__(self, key: str) -> bool:
        """Whether the work of that key is under way."""
        return key in self._taken

    @property
    def is_full(self) -> bool:
        return len(self._taken) >= self._size

    def take(self, key: str) -> None:
        """The work of that key is under way."""
        self._taken[key] = None

    def give_back(self, key: str, at_ms: int) -> Effects:
        """It is no more; whoever waits goes on at that time."""
        self._taken.pop(key, None)
        return self._go_on_at(at_ms)

    def wait(self, name: str, go_on: Callable[[int], Effects]) -> None:
        """Have the sweep of that name go on when there is room."""
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
    """Goes over all hosted partitions in slices; one that is not hosted any more is left out.

    work  what to do with each
    room  where works of it take room: it goes on only while there is some
    some  the names to go over in place of all
    """

    def __init__(
        self,
        name: str,
        hosted: HostedPartitions,
        work: Callable[[Partition, int], Effects],
        room: Room | None = None,
        some: Collection[tuple[str, int]] | None = None,
    ) -> None:
        self._name = name
        self._hosted = hosted
        self._work = work
        self._room = room
        self._names = hosted.by_name if some is None else some
        self._is_under_way = False

    def __call__(self, now_ms: int) -> Effects:
        """Begin a new round, unless one is under way: those that it has not come to have their turn first."""
        if self._is_under_way:
            return []
        self._is_under_way = True
        return self._slice(iter(list(self._names)), now_ms)

    def _slice(self, rest: Iterator[tuple[str, int]], now_ms: int) -> Effects:
        effects: Effects = []
        cost = 0
        go_on = partial(self._slice, rest)
        while self._room is None or not self._room.is_full:
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
        self._room.wait(self._name, go_on)
        return effects


_ELSEWHERE = KafkaError(Code.NOT_LEADER_OR_FOLLOWER, "this node does not host the partition")
_UNKNOWN = KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such topic or partition")
_UNKNOWN_ID = KafkaError(Code.UNKNOWN_TOPIC_ID, "no topic has this id")
