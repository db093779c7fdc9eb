"""The state of a replica after a step, and how the checkers read its log. SIM."""

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


class Seen:
    """The state of one hosted partition after the last step of its process."""

    __slots__ = (
        "alone_us",
        "cuts",
        "began_us",
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
