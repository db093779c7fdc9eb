"""The group coordinator's ground: its partitions are loaded when we lead them, and left when not. PURE.

Source: KIP-98, spec C15 (14 while loading, 16 elsewhere).
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from firnline.base.effects import Effects, SetTimer, Warn
from firnline.base.errors import RecordsCut, StorageError
from firnline.base.ids import OFFSETS_TOPIC
from firnline.base.units import KIB
from firnline.coordinator.groups import GroupCoordinator
from firnline.log.sparse_index import IndexDamaged
from firnline.records.batch import LOG_OVERHEAD_BYTES, OFFSET_AND_LENGTH, parse_header
from firnline.replica.partition import Partition

# Read at a time: some tens of microseconds from the page cache, two slices of records or so.
LOAD_STEP_BYTES = 64 * KIB
# A partition that could not be loaded is tried again so often, as long as we lead it.
_AGAIN_MS = 10_000


class Coordination:
    """Tells the coordinator which partitions of `__consumer_offsets` are ours."""

    __slots__ = ("_epochs", "_groups", "failed")

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups
        self._epochs: dict[int, int] = {}  # in which we lead what is loaded, or being loaded
        # Partitions whose records could not be read: their groups have no coordinator.
        self.failed: dict[int, StorageError] = {}

    def on_leading(self, partition: Partition, now_ms: int) -> Effects:
        """Read a partition of groups that we lead now; in slices, while other requests are answered.

        Where we led in the epoch before, nobody else has written: what is in memory stands, as Kafka does.
        """
        topic, index = partition.topic_partition
        if topic != OFFSETS_TOPIC:
            return []
        before = self._epochs.get(index)
        self._epochs[index] = partition.leader_epoch
        if before == partition.leader_epoch - 1 and index not in self.failed:
            return []
        self.failed.pop(index, None)
        return self._load(partition, now_ms)

    def _load(self, partition: Partition, now_ms: int) -> Effects:
        topic, index = partition.topic_partition
        epoch = partition.leader_epoch

        def loaded(problem: StorageError | None, at_ms: int) -> Effects:
            before = self.failed.pop(index, None)
            if problem is None:
                return []
            self.failed[index] = problem
            again = partial(self._again, partition, epoch)
            effects: Effects = [
                SetTimer(key=("groups", "load", index), at_ms=at_ms + _AGAIN_MS, then=again)
            ]
            if str(before) != str(problem):
                line = f"groups of {topic}-{index} have no coordinator: {problem}"
                effects.append(Warn(line=line))
            return effects

        return self._groups.load_partition(index, batches_of(partition), loaded, now_ms)

    def _again(self, partition: Partition, epoch: int, now_ms: int) -> Effects:
        """One read that failed may have been the only one; where nobody else leads nobody else loads."""
        index = partition.topic_partition.partition
        if self._epochs.get(index) != epoch or index not in self.failed:
            return []
        return self._load(partition, now_ms)

    def on_not_leading(self, partition: Partition, now_ms: int) -> Effects:
        """Leave a partition of groups to whoever leads it."""
        topic, index = partition.topic_partition
        if topic != OFFSETS_TOPIC:
            return []
        self._epochs.pop(index, None)
        self.failed.pop(index, None)
        return self._groups.unload_partition(index, now_ms)


def batches_of(partition: Partition) -> Iterator[bytes]:
    """Yield the local log from its start to its end, whole batches, about LOAD_STEP_BYTES at a time.

    Nothing, after each slice, while a damaged index is built again.
    """
    log, built = partition.log, None
    offset = log.local_log_start_offset
    while offset < log.log_end_offset:
        # Between two slices retention may have removed what was next.
        offset = max(offset, log.local_log_start_offset)
        end = log.log_end_offset
        try:
            found = log.read(offset, max_bytes=LOAD_STEP_BYTES, upto_offset=end, may_wait=True)
        except IndexDamaged as damage:
            if built is damage.segment:
                raise
            built = damage.segment
            with suppress(RecordsCut):  # others put a segment in its place: the next read sees it
                for _ in damage.steps():
                    yield b""
            continue
        data = found.read()
        if not data:
            return
        yield data
        offset = _end_offset(data)


def _end_offset(data: bytes) -> int:
    """Return the offset after the last of some whole batches, which were found right before."""
    position = last = 0
    while position < len(data):
        last = position
        position += OFFSET_AND_LENGTH.unpack_from(data, position)[1] + LOG_OVERHEAD_BYTES
    return parse_header(data, last).next_offset
