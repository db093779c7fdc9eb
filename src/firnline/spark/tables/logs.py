"""Logs in the directories of nodes: which there are, and how far each is sound. WORLD.

A log that was closed must be sound to its end. One that was not, because its node was killed or runs, ends
where the node's own recovery would cut it: at its first batch that is not complete, if no sound one follows
and the recovery point is not above it. Anything else is damage, and no row is read. Source:
`log/recovery.py`.
"""

import logging
import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple

from firnline.base.errors import ConfigError, KafkaError, StorageError
from firnline.base.ids import TopicPartition
from firnline.formats import leader_epoch_checkpoint, names
from firnline.formats.checkpoint import decode_offsets
from firnline.formats.leader_epoch_checkpoint import Epochs
from firnline.log.checkpoint import LEADER_EPOCHS, RECOVERY_POINTS
from firnline.log.directory import CLEAN_SHUTDOWN
from firnline.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    BatchHeader,
    crc_is_right,
    parse_header,
)
from firnline.spark.log_lines import warn
from firnline.spark.tables.files import Placed, Span, SpanMaker, reading, refuse, walk

_log = logging.getLogger(__name__)
_MAGIC = b"\x02"


class NodeLog(NamedTuple):
    """A partition's directory in a log directory, and what its node noted about it.

    recovery_point  records below it were synced
    was_clean       the node closed the log, so it has no torn end
    epochs          the checkpoint of leader epochs
    """

    path: str
    partition: TopicPartition
    recovery_point: int
    was_clean: bool
    epochs: Epochs


class CheckedLog(NamedTuple):
    """The sound batches of a log: in spans, from `start_offset` to `end_offset`, exclusive."""

    log: NodeLog
    spans: tuple[Span, ...]
    start_offset: int
    end_offset: int
    last_epoch: int


def find_logs(log_dirs: Iterable[str], topic: str) -> list[NodeLog]:
    """Return the partitions of a topic in these directories.

    Raises ConfigError for a directory that is not there, and if no partition of the topic is in any.
    """
    found: list[NodeLog] = []
    for log_dir in log_dirs:
        try:
            entries = sorted(os.listdir(log_dir))
        except OSError as problem:
            raise ConfigError(
                "log.dirs names a directory that cannot be read",
                path=log_dir,
                problem=problem.strerror,
            ) from None
        points = _recovery_points(log_dir)
        was_clean = os.path.exists(os.path.join(log_dir, CLEAN_SHUTDOWN))
        for entry in entries:
            partition = names.parse_partition_dir(entry)
            if partition is not None and partition.topic == topic:
                path = os.path.join(log_dir, entry)
                point = points.get(partition, 0)
                # A marker without an entry is Kafka's, who closes the log of the metadata after it.
                found.append(
                    NodeLog(path, partition, point, was_clean and point > 0, _epochs(path))
                )
    if not found:
        raise ConfigError(
            f"no {topic} is in these directories: give the log.dirs, or metadata.log.dir, of a node that"
            " has it",
            log_dirs=", ".join(log_dirs),
        )
    return found


def _recovery_points(log_dir: str) -> Mapping[TopicPartition, int]:
    try:
        return decode_offsets(_bytes(os.path.join(log_dir, RECOVERY_POINTS)))
    except (OSError, ValueError):
        return {}  # as a node reads it: nothing is known to be synced


def _epochs(path: str) -> Epochs:
    try:
        return leader_epoch_checkpoint.decode(_bytes(os.path.join(path, LEADER_EPOCHS)))
    except (OSError, ValueError, StorageError):
        return ()


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def check_log(log: NodeLog, *, may_have_gaps: bool = False) -> CheckedLog:
    """Check every batch of a log. Logs one line if the end is torn; raises StorageError for damage.

    may_have_gaps  compaction may have removed offsets
    """
    bases = sorted(
        pair[0]
        for pair in map(names.parse_segment_file, os.listdir(log.path))
        if pair is not None and pair[1] == names.LOG
    )
    check = _Check(log, may_have_gaps=may_have_gaps, start_offset=bases[0] if bases else 0)
    for number, base in enumerate(bases):
        path = os.path.join(log.path, names.stem(base) + names.LOG)
        if not check.segment(path, base):
            check.refuse_if_followed(
                os.path.join(log.path, names.stem(b) + names.LOG) for b in bases[number + 1 :]
            )
            break
    return check.result()


class _Check:
    """Walks over the segments of a log in order."""

    def __init__(self, log: NodeLog, *, may_have_gaps: bool, start_offset: int) -> None:
        self._log = log
        self._may_have_gaps = may_have_gaps
        self._start = self._end = start_offset
        self._epoch = -1
        self._spans: list[Span] = []
        self._bad: tuple[str, int, str] | None = None

    def result(self) -> CheckedLog:
        return CheckedLog(self._log, tuple(self._spans), self._start, self._end, self._epoch)

    def segment(self, path: str, base: int) -> bool:
        """Check one segment; False if it ends with a torn batch. Raises StorageError for damage."""
        with reading(path) as fd:
            size = os.fstat(fd).st_size
            if not size:
                return True
            if base < self._end or (base > self._end and not self._may_have_gaps):
                refuse(path, 0, "the segment before it ends at another offset", offset=self._end)
            maker, at = SpanMaker(path), 0
            problem: str | None = None
            try:
                for found in walk(fd, 0, size):
                    problem = self._problem(found, base)
                    if problem is not None:
                        break
                    maker.add(found)
                    at = found.position + found.header.size_bytes
                    self._end, self._epoch = found.header.next_offset, found.header.leader_epoch
                else:
                    problem = "the batch is not complete" if at < size else None
            except KafkaError as impossible:
                problem = str(impossible)
            maker.close()
            self._spans += maker.spans
            if problem is None:
                return True
            self._bad = (path, at, problem)
            is_below = self._end < self._log.recovery_point
            if self._log.was_clean or is_below or _has_batch_after(fd, at, size, self._end):
                refuse(path, at, problem, offset=self._end)
            warn(
                _log, "the log was not closed, and ends where a recovery would cut it", path=path,
                position=at, offset=self._end, bytes_left_out=size - at, problem=problem,
            )  # fmt: skip
            return False

    def refuse_if_followed(self, later: Iterable[str]) -> None:
        """Raise StorageError if segments with batches follow the torn one: then it is damaged."""
        assert self._bad is not None
        path, at, problem = self._bad
        for other in later:
            if os.path.exists(other) and os.path.getsize(other):
                refuse(path, at, problem, offset=self._end, followed_by=other)

    def _problem(self, found: Placed, base: int) -> str | None:
        header = found.header
        if header.base_offset < max(self._end, base):
            return "a batch begins before the one before it ends"
        if header.base_offset > self._end and not self._may_have_gaps:
            return "offsets are missing before a batch"
        if header.last_offset_delta < 0:
            return "a batch ends before it begins"
        if not crc_is_right(found.data, header):
            return "a batch has another CRC than it says"
        if header.leader_epoch < self._epoch or self._has_other_epoch(header):
            return "a batch has another leader epoch than its log"
        return None

    def _has_other_epoch(self, header: BatchHeader) -> bool:
        """Whether the checkpoint says otherwise; it may be older than records that were not synced."""
        if header.base_offset >= self._log.recovery_point:
            return False
        slot = bisect_right(self._log.epochs, header.base_offset, key=itemgetter(1)) - 1
        return slot >= 0 and self._log.epochs[slot][0] != header.leader_epoch


def _has_batch_after(fd: int, at: int, size: int, offset: int) -> bool:
    """Whether a sound batch of a later offset lies behind the first byte of a broken one.

    The length of the broken one may be what is broken, so a batch may begin at any byte.
    """
    data = os.pread(fd, size - at, at)
    magic = data.find(_MAGIC, 1 + MAGIC_POSITION)
    while magic >= 0 and magic - MAGIC_POSITION + HEADER_BYTES <= len(data):
        header = parse_header(data, magic - MAGIC_POSITION)
        left = len(data) - header.position
        is_complete = HEADER_BYTES <= header.batch_length + LOG_OVERHEAD_BYTES <= left
        if is_complete and header.base_offset >= offset and crc_is_right(data, header):
            return True
        magic = data.find(_MAGIC, magic + 1)
    return False
