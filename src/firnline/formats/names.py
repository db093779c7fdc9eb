"""Kafka's names for the files and directories of a log. PURE.

The files of a segment share a stem: its base offset, 20 digits. A deleted file is first renamed to
`.deleted`, a partition directory to `<topic>-<partition>.<unique>-delete`; both are removed later, or at the
next start (rel-P11). A directory that belongs to no known topic is renamed to `-stray`, and kept.
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
    """Return the 20 digits with which the file names of the segment at `base_offset` begin."""
    return f"{base_offset:020d}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Return (base offset, suffix) of a segment's file, or None for any other name."""
    found = _SEGMENT_FILE.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Return the partition of a directory; None for a deleted one and for any other name."""
    if name.endswith((DELETED_DIR, "-future", STRAY_DIR)):
        return None
    found = _PARTITION_DIR.fullmatch(name)
    return TopicPartition(found[1], int(found[2])) if found else None


def deleted_dir(topic_partition: TopicPartition, unique: bytes) -> str:
    """Return the name of a partition directory that waits for its removal; 255 bytes at most."""
    return _renamed(topic_partition, unique, DELETED_DIR)


def stray_dir(topic_partition: TopicPartition, unique: bytes) -> str:
    """Return the name of a stray partition directory; 255 bytes at most."""
    return _renamed(topic_partition, unique, STRAY_DIR)


def renamed_stems(topic_partition: TopicPartition) -> set[str]:
    """Return what the names of its deleted and stray directories have before the dot and the unique part."""
    return {
        _renamed(topic_partition, bytes(16), end).rpartition(".")[0]
        for end in (DELETED_DIR, STRAY_DIR)
    }


def _renamed(topic_partition: TopicPartition, unique: bytes, end: str) -> str:
    suffix = f"-{topic_partition.partition}.{unique.hex()}{end}"
    return topic_partition.topic[: _NAME_BYTES_MAX - len(suffix)] + suffix
