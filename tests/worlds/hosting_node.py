"""One node's hosting without disks: its logs are lists, and what the disk pool has to do waits."""

from collections.abc import Sequence
from typing import Any

from firnline.base.effects import Effect, Effects, SetTimer, Submit
from firnline.base.errors import StorageError
from firnline.base.ids import TopicPartition, Uuid
from firnline.broker.hosting import Hosting
from firnline.broker.leaders import ActedOn
from firnline.config.broker import BrokerConfig
from firnline.config.topic import TopicConfig
from firnline.metadata import records as r
from firnline.metadata.delta import Replay
from firnline.metadata.image import EMPTY_IMAGE
from firnline.protocol.schema import Message
from firnline.replica.partition import Partition
from tests.worlds.effects import World
from tests.worlds.hosting import hosted
from tests.worlds.list_log import NODE_ID, ListLog

ID, OTHER_ID = b"\x01" * 16, b"\x02" * 16


class ToSync:
    """A file that a new log wants synced."""

    path = "/one/t-0/partition.metadata"

    def sync(self) -> None:
        """It is on disk."""


class Store:
    """Logs in lists."""

    def __init__(self) -> None:
        self.opened: list[tuple[TopicPartition, Uuid]] = []
        self.dropped: list[TopicPartition] = []
        self.given_up: list[tuple[TopicPartition, Uuid]] = []
        self.broken = False
        self.error: str | None = None
        self.let_go_of: list[TopicPartition] = []
        self.files: list[Any] = [ToSync()]
        self.has_failed = False
        self.may_make = True
        self.slices = 0  # of the recovery of each log
        self.fails_after_slices = False

    def open_steps(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: TopicConfig,
        now_ms: int,
        *,
        directory_id: Uuid | None = None,
        may_make: bool = True,
    ) -> Any:
        self.may_make = may_make
        if self.broken:
            facts = {} if self.error is None else {"error": self.error, "path": "/one/t-0"}
            raise StorageError("cannot open", **facts)
        for _ in range(self.slices):
            yield
        if self.fails_after_slices:
            raise StorageError("it is damaged")
        self.opened.append((topic_partition, topic_id))
        log = ListLog(*topic_partition, topic_id=topic_id)
        log.config = config
        return log

    def healthy_paths(self) -> list[str]:
        return [""]

    def unsynced(self, log: Any) -> list[Any]:
        return self.files

    def still_unsynced(self, log: Any, files: Sequence[Any]) -> None:
        """They are on no disk."""

    def directory_of(self, log: Any) -> Uuid | None:
        return None if self.has_failed else b"d" * 16

    def let_go(self, log: Any) -> Effects:
        self.let_go_of.append(log.topic_partition)
        return []

    def is_unmade(self, topic_partition: TopicPartition, said: StorageError) -> bool:
        return False

    def drop(self, log: Any, now_ms: int) -> Effects:
        self.dropped.append(log.topic_partition)
        return []

    def drop_unopened(
        self, topic_partition: TopicPartition, topic_id: Uuid, now_ms: int
    ) -> Effects:
        if self.broken and self.error is not None:
            raise StorageError("cannot rename", error=self.error)
        self.given_up.append((topic_partition, topic_id))
        return []


class Node(World):
    """One node's hosting, fed with records."""

    def __init__(self) -> None:
        super().__init__()
        self.image = EMPTY_IMAGE
        self.was_replaced = False  # by another process of its id
        self.store = Store()
        self.hosted = hosted(on_missing=lambda *name: self.hosting.asked_for(*name))
        self.hosting: Hosting = Hosting(
            node_id=NODE_ID,
            config=BrokerConfig(),
            hosted=self.hosted,
            store=self.store,
            fsync_rule="never",
            observer=self,
            acted_on=ActedOn(),
            is_in=lambda image: not self.was_replaced,
        )
        self.failures: list[StorageError] = []
        self.lost: list[Any] = []
        self.work: list[Any] = []  # timers too: what they do is work for the disk
        self.reported: list[tuple[str, TopicPartition]] = []

    def disk_failed(self, said: StorageError, now_ms: int) -> Effects:
        self.failures.append(said)
        return []

    def partition_lost(self, key: Any, now_ms: int) -> Effects:
        self.lost.append(key)
        return []

    def partition_updated(self, partition: Partition, now_ms: int) -> Effects:
        return []

    def leadership_began(self, partition: Partition, now_ms: int) -> Effects:
        return self._reported("leadership_began", partition)

    def leadership_ended(self, partition: Partition, now_ms: int) -> Effects:
        return self._reported("leadership_ended", partition)

    def partition_dropped(self, partition: Partition, now_ms: int) -> Effects:
        return self._reported("partition_dropped", partition)

    def partition_configured(self, partition: Partition, now_ms: int) -> Effects:
        return self._reported("partition_configured", partition)

    def _reported(self, name: str, partition: Partition) -> Effects:
        self.reported.append((name, partition.topic_partition))
        return []

    def commit(self, *records: Message) -> None:
        replay = Replay(self.image)
        for record in records:
            replay.apply(record)
        delta = replay.finish(offset=self.image.offset + 1, epoch=0)
        self.image = delta.after
        self.warnings = []
        self.run(self.hosting.apply(delta, self.image, 0))

    def on_set_timer(self, effect: SetTimer) -> None:
        """What is slices of work waits with the rest of it, whenever it is due."""
        self.wait_or_do(effect, self.work if self.holds_work else None)

    def complete(self, effect: Effect) -> None:
        if isinstance(effect, SetTimer):
            self.run(self.call(effect.then))
        else:
            assert isinstance(effect, Submit)
            super().complete(effect)

    def go_on(self) -> None:
        """Do the oldest piece of work for the disk pool, and all of it where none is held."""
        self.work_once()
        while self.work and not self.holds_work:
            self.work_once()

    def partition(self, name: str = "t", index: int = 0) -> Partition:
        found = self.hosted.find(name, index)
        assert isinstance(found, Partition), found
        return found


def topic(name: str = "t", topic_id: Uuid = ID) -> Message:
    return r.TopicRecord(name=name, topic_id=topic_id)


def placed(
    index: int = 0,
    replicas: Sequence[int] = (NODE_ID,),
    topic_id: Uuid = ID,
    leader: int | None = None,
    directory: Uuid = bytes(16),
) -> Message:
    return r.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(replicas),
        leader=replicas[0] if leader is None else leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory] * len(replicas),
    )


def moved(index: int = 0, **changes: Any) -> Message:
    return r.PartitionChangeRecord(partition_id=index, topic_id=ID, **changes)
