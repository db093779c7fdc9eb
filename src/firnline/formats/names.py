"""How files and directories of a log are named: Kafka's names. PURE.

A segment's files share a stem: the offset of its first record, 20 digits. A file that is to go is first
renamed `.deleted`, a partition directory `<topic>-<partition>.<unique>-delete`; both are removed later, or
at the next start (rel-P11). What belongs to no topic that is known is put aside as `-stray`, and kept.
"""

import re

from firnline.base.ids import TopicPartition

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

DELETED_DIR = "-delete"
STRAY_DIR = "-stray"
_NAME_BYTES_MAX = 255
_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_PARTITION_DIR = re.compile(r"(.+)-(\d+)")


def stem(base_offset: int) -> str:
    """Return the 20 digits that the files of the segment at `base_offset` begin with."""
    return f"{base_offset:020d}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Return (base offset, suffix) of a segment's file, or None for any other name."""
    found = _SEGMENT_FILE.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Return whose data a directory holds, or None when it is no partition's (or is to be deleted)."""
    if name.endswith((DELETED_DIR, "-future", STRAY_DIR)):
        return None
    found = _PARTITION_DIR.fullmatch(name)
    return TopicPartition(found[1], int(found[2])) if found else None


def deleted_dir(topic_partition: TopicPartition, unique: bytes) -> str:
    """Return the name of a partition directory that waits for its removal; 255 bytes at most."""
    return _renamed(topic_partition, unique, DELETED_DIR)


def stray_dir(topic_partition: TopicPartition, unique: bytes) -> str:
    """Return the name of a partition directory that is nobody's; 255 bytes at most."""
    return _renamed(topic_partition, unique, STRAY_DIR)


def _renamed(topic_partition: TopicPartition, unique: bytes, end: str) -> str:
    suffix = f"-{topic_partition.partition}.{unique.hex()}{end}"
    return topic_partition.topic[: _NAME_BYTES_MAX - len(suffix)] + suffix
