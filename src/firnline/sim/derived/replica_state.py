"""The state of a replica after a step, and how the checkers read its log. SIM."""

from collections import deque
from collections.abc import Callable
from typing import Any

from firnline.base.errors import KafkaError
from firnline.base.ids import NO_EPOCH
from firnline.base.units import INT32_MAX
from firnline.records.batch import headers, parse_header, set_offset_and_epoch
from firnline.records.compression import NONE
from firnline.records.recompress import Target, recompress
from firnline.records.validate import BatchLimits
from firnline.replica.partition import Partition

_ALL_BYTES = 1 << 30
# Answers of one step are sent in slices, while others commit more.
_COMMITS = 64
LargestIsr = Callable[[int, int], int]  # of one partition, in the partition epochs (after, upto]


class Seen:
    """The state of one hosted partition after the last step of its process."""

    __slots__ = (
        "alone_us",
        "cuts",
        "began_us",
        "commits",
        "end_offset",
        "high_watermark",
        "is_leader",
        "last_epoch",
        "leader_epoch",
        "local_start",
        "partition",
        "partition_epoch",
        "proposed",
        "state",
        "swaps",
        "verified",
        "log_start",
    )

    def __init__(self, partition: Partition) -> None:
        log = partition.log
        self.partition = partition
        self.state: Any = None
        self.end_offset = log.log_end_offset
        self.high_watermark = log.local_log_start_offset
        self.local_start = log.local_log_start_offset
        self.log_start = log.log_start_offset  # with what only the tier has
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.is_leader = False
        self.proposed: Any = None
        # Below it the log has been compared with the ledger.
        self.verified = log.local_log_start_offset
        self.last_epoch = log.epochs.latest_epoch if log.log_end_offset else NO_EPOCH
        self.cuts = 0
        self.swaps = log.compaction.swaps
        self.began_us = 0  # when it began to lead in this epoch
        self.alone_us: int | None = None  # since when it leads alone in the ISR
        # The last high watermarks as a leader, each with the size of the ISR that committed up to it.
        self.commits: deque[tuple[int, int]] = deque(maxlen=_COMMITS)

    def note_commit(self, largest_isr: LargestIsr) -> None:
        """The high watermark rose in this step."""
        partition = self.partition
        if partition.leader_epoch != self.leader_epoch and partition.is_leader:
            self.commits.clear()
        if partition.is_leader or self.is_leader:
            between = largest_isr(self.partition_epoch, partition.partition_epoch)
            size = max(len(partition.isr), between)
            self.commits.append((partition.log.high_watermark, size))

    def isr_at_commit(self, next_offset: int) -> int:
        """The size of the ISR that committed the record before `next_offset`; 0 if that is not known."""
        return next((size for high, size in self.commits if high >= next_offset), 0)


def isr_size_of(promise: Any, one: Seen | None, largest_isr: LargestIsr) -> int:
    """The largest ISR that an acknowledged batch had: after this step, in it, or at its commit."""
    known: int = promise.isr_size
    if one is None:
        return max(known, largest_isr(-1, promise.partition_epoch))
    in_step = largest_isr(one.partition_epoch, promise.partition_epoch)
    return max(known, in_step, one.isr_at_commit(promise.next_offset))


def crc_as_sent(batch: bytes) -> int:
    """The CRC of a batch without compression, as producers send it here, whatever the topic's codec."""
    header = parse_header(batch)
    if header.codec == NONE:
        return header.crc
    sent = bytearray(batch)
    set_offset_and_epoch(sent, 0, 0, NO_EPOCH)
    opened = recompress(sent, Target(NONE), BatchLimits(INT32_MAX), 0)
    return 0 if isinstance(opened, KafkaError) else parse_header(opened).crc


def read(log: Any, start: int, end: int) -> bytes:
    """Complete batches of [start, end), from the one that holds `start` on."""
    if start >= end:
        return b""
    parts: list[bytes] = []
    at = start
    while at < end:
        data: bytes = log.read(at, max_bytes=_ALL_BYTES, upto_offset=end).read()
        found = [header.next_offset for header in headers(data)]
        if not found:
            break
        parts.append(data)
        at = found[-1]
    return b"".join(parts)
