"""Loads and unloads partitions of `__consumer_offsets` in the group coordinator, as leadership changes. PURE.

When this broker becomes the leader of a partition, the coordinator reads its log in slices. Until that has
ended, requests for its groups get COORDINATOR_LOAD_IN_PROGRESS (14). When it stops leading, the coordinator
drops the groups, and requests get NOT_COORDINATOR (16). If the log cannot be read, its groups have no
coordinator, and the load is tried again while we lead. Source: KIP-98, spec C15.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from firnline.base.effects import Effects, SetTimer
from firnline.base.errors import RecordsTruncated, StorageError
from firnline.base.ids import OFFSETS_TOPIC
from firnline.base.log_lines.broker import (
    COORDINATOR_LOADED,
    COORDINATOR_NOT_LOADED,
    COORDINATOR_UNLOADED,
    COORDINATORS_LOADED,
    COORDINATORS_UNLOADED,
)
from firnline.base.log_lines.line import LogLine
from firnline.base.units import KIB
from firnline.broker.change_log.bundles import Bundles
from firnline.coordinator.groups import GroupCoordinator
from firnline.log.sparse_index import IndexDamaged
from firnline.records.batch import LOG_OVERHEAD_BYTES, OFFSET_AND_LENGTH, parse_header
from firnline.replica.partition import Partition

# Bytes read at a time: tens of microseconds from the page cache, and about two slices of records.
LOAD_STEP_BYTES = 64 * KIB
# Pause before another attempt to load a partition.
_AGAIN_MS = 10_000


class Coordination:
    """Loads the partitions of `__consumer_offsets` that this broker leads into the coordinator."""

    __slots__ = ("_bundles", "_epochs", "_groups", "failed")

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups
        self._bundles = Bundles("coordinators")
        self._epochs: dict[int, int] = {}  # partition, loaded or loading -> our leader epoch
        # Partitions whose records could not be read: their groups have no coordinator.
        self.failed: dict[int, StorageError] = {}

    def on_leading(self, partition: Partition, now_ms: int) -> Effects:
        """Load a partition that this broker now leads, in slices.

        If we also led in the epoch before, no other broker has written: the groups in memory stay, as in
        Kafka.
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
        index = partition.topic_partition.partition
        epoch = partition.leader_epoch

        def loaded(problem: StorageError | None, at_ms: int) -> Effects:
            before = self.failed.pop(index, None)
            if problem is None:
                return self._report(
                    COORDINATOR_LOADED, COORDINATORS_LOADED, index, at_ms, epoch, now_ms
                )
            self.failed[index] = problem
            again = partial(self._again, partition, epoch)
            effects: Effects = [
                SetTimer(key=("groups", "load", index), at_ms=at_ms + _AGAIN_MS, then=again)
            ]
            if str(before) != str(problem):
                where = partition.topic_partition._asdict()
                effects.append(COORDINATOR_NOT_LOADED(**where, error=problem))
            return effects

        return self._groups.load_partition(index, batches_of(partition), loaded, now_ms)

    def _report(
        self,
        line: LogLine,
        total: LogLine,
        index: int,
        now_ms: int,
        epoch: int,
        began_ms: int | None = None,
    ) -> Effects:
        """Tell of one partition; a broker that fails over may hand over fifty at once."""
        fields: dict[str, object] = {"topic": OFFSETS_TOPIC, "partition": index}
        if began_ms is not None:
            fields["took_ms"] = now_ms - began_ms
        fields["leader_epoch"] = epoch
        name = f"{OFFSETS_TOPIC}-{index}"
        return self._bundles.add(line, fields, total=total, shared={}, name=name, now_ms=now_ms)

    def _again(self, partition: Partition, epoch: int, now_ms: int) -> Effects:
        """Try again: the failure may have been temporary, and no other broker can load the partition."""
        index = partition.topic_partition.partition
        if self._epochs.get(index) != epoch or index not in self.failed:
            return []
        return self._load(partition, now_ms)

    def on_not_leading(self, partition: Partition, now_ms: int) -> Effects:
        """Unload a partition that another broker leads, or none."""
        topic, index = partition.topic_partition
        if topic != OFFSETS_TOPIC:
            return []
        epoch = self._epochs.pop(index, None)
        self.failed.pop(index, None)
        lines: Effects = []
        if epoch is not None:
            lines = self._report(COORDINATOR_UNLOADED, COORDINATORS_UNLOADED, index, now_ms, epoch)
        return lines + self._groups.unload_partition(index, now_ms)


def batches_of(partition: Partition) -> Iterator[bytes]:
    """Yield the local log from its start to its end, as complete batches, about LOAD_STEP_BYTES at a time.

    While a damaged index is being rebuilt, it yields no bytes after each slice.
    """
    log, built = partition.log, None
    offset = log.local_log_start_offset
    while offset < log.log_end_offset:
        # Retention may have deleted the next records between two slices.
        offset = max(offset, log.local_log_start_offset)
        end = log.log_end_offset
        try:
            found = log.read(offset, max_bytes=LOAD_STEP_BYTES, upto_offset=end, may_wait=True)
        except IndexDamaged as damage:
            if built is damage.segment:
                raise
            built = damage.segment
            # Compaction may have replaced the segment: the next read uses the new one.
            with suppress(RecordsTruncated):
                for _ in damage.steps():
                    yield b""
            continue
        data = found.read()
        if not data:
            return
        yield data
        offset = _end_offset(data)


def _end_offset(data: bytes) -> int:
    """Return the offset after the last of some complete batches, which `read` has checked."""
    position = last = 0
    while position < len(data):
        last = position
        position += OFFSET_AND_LENGTH.unpack_from(data, position)[1] + LOG_OVERHEAD_BYTES
    return parse_header(data, last).next_offset
