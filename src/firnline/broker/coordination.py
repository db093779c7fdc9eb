"""The group coordinator's ground: its partitions are loaded when we lead them, and left when not. PURE.

Source: KIP-98, spec C15 (14 while loading, 16 elsewhere).
"""

from collections.abc import Iterator

from firnline.base.effects import Effects
from firnline.base.errors import StorageError
from firnline.base.ids import OFFSETS_TOPIC
from firnline.base.units import MIB
from firnline.coordinator.groups import GroupCoordinator
from firnline.records.batch import headers
from firnline.replica.partition import Partition

LOAD_STEP_BYTES = MIB


class Coordination:
    """Tells the coordinator which partitions of `__consumer_offsets` are ours."""

    __slots__ = ("_groups", "failed")

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups
        # Partitions whose records could not be read: their groups have no coordinator.
        self.failed: dict[int, StorageError] = {}

    def on_leading(self, partition: Partition, now_ms: int) -> Effects:
        """Read a partition of groups that we lead now."""
        topic, index = partition.topic_partition
        if topic != OFFSETS_TOPIC:
            return []
        self._groups.begin_loading(index)
        try:
            return self._groups.load_partition(index, batches_of(partition), now_ms)
        except StorageError as problem:
            self.failed[index] = problem
            return []

    def on_not_leading(self, partition: Partition, now_ms: int) -> Effects:
        """Leave a partition of groups to whoever leads it."""
        topic, index = partition.topic_partition
        if topic != OFFSETS_TOPIC:
            return []
        self.failed.pop(index, None)
        return self._groups.unload_partition(index, now_ms)


def batches_of(partition: Partition) -> Iterator[bytes]:
    """Yield the local log from its start to its end, whole batches, about LOAD_STEP_BYTES at a time."""
    log = partition.log
    offset = log.local_log_start_offset
    while offset < log.log_end_offset:
        data = log.read_batches(offset, max_bytes=LOAD_STEP_BYTES)
        if not data:
            return
        yield data
        for header in headers(data):
            offset = header.next_offset
