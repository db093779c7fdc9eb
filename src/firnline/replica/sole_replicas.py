"""Syncs the records that only this replica still holds. PURE.

While a partition has other in-sync replicas, records are acknowledged from page caches. When the leader
becomes the only member of the ISR, those records may be in its page cache alone, and a power cut would lose
them: it syncs them here. This happens after a reassignment, or when all followers fall behind. Later appends
wait for their own sync (`Partition.needs_flush`). Not with `firnline.acks.fsync=never`. Source: rel-P4,
rel-P9.
"""

from collections.abc import Callable, Sequence
from functools import partial

from firnline.base.effects import Effects
from firnline.base.errors import StorageError
from firnline.base.ids import PartitionKey
from firnline.base.ports import File
from firnline.replica.opening import SLICE, sync_in_pool
from firnline.replica.partition import Partition

_Need = tuple[Partition, int]  # with the end of its log when its files were listed


class SoleReplicas:
    """The partitions of which this node is the sole replica, synced some at a time in the disk pool.

    There may be thousands. Each log directory has its own queue, so one that hangs delays no other.

    on_storage_failure  called with a partition whose files failed
    """

    def __init__(self, on_storage_failure: Callable[[Partition, int], Effects]) -> None:
        self._on_storage_failure = on_storage_failure
        self._queues: dict[str, dict[PartitionKey, Partition]] = {}  # by log directory
        self._syncing: set[str] = set()  # log directories with a sync under way
        self._is_stopped = False

    def look(self, partition: Partition, now_ms: int) -> Effects:
        """The ISR of a partition may have changed: sync its log if this is the sole replica now."""
        if not partition.is_sole_replica or partition.is_durable:
            return []
        directory = partition.log.path.rpartition("/")[0]
        queue = self._queues.setdefault(directory, {})
        queue[partition.topic_id, partition.topic_partition.partition] = partition
        return self._go(directory, now_ms)

    def stop(self) -> None:
        """Sync nothing more, and ignore the results of syncs under way."""
        self._is_stopped = True
        self._queues.clear()

    def _go(self, directory: str, now_ms: int) -> Effects:
        effects: Effects = []
        needs: list[tuple[_Need, Sequence[File]]] = []
        is_ready = not self._is_stopped and directory not in self._syncing
        queue = self._queues[directory] if is_ready else {}
        while queue and len(needs) < SLICE:
            partition = queue.pop(next(iter(queue)))
            if not partition.is_sole_replica:
                continue  # others joined the ISR or lead meanwhile
            try:
                files = partition.dirty_files()
            except StorageError as problem:
                # No space or descriptor at the moment: the periodic flush syncs it later.
                effects += [] if problem.is_passing else self._failed(partition, now_ms)
                continue
            if files:
                needs.append(((partition, partition.log.log_end_offset), files))
        if not needs:
            return effects
        self._syncing.add(directory)
        synced = partial(self._synced, directory)
        return effects + sync_in_pool(f"last copies {directory}", needs, synced)

    def _synced(
        self, directory: str, results: list[tuple[_Need, StorageError | None]], now_ms: int
    ) -> Effects:
        if self._is_stopped:
            return []
        assert directory in self._syncing, "one sync of a log directory at a time"
        self._syncing.discard(directory)
        effects: Effects = []
        for (partition, end_offset), problem in results:
            if problem is not None and problem.has_lost_nothing:
                continue  # as above: nothing was written or lost
            if problem is not None or not partition.note_flushed(end_offset):
                effects += self._failed(partition, now_ms)
        return effects + self._go(directory, now_ms)

    def _failed(self, partition: Partition, now_ms: int) -> Effects:
        if partition.is_offline:
            return []
        partition.go_offline()
        return self._on_storage_failure(partition, now_ms)
