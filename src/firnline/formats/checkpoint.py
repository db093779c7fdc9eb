"""Kafka's text checkpoints. PURE.

A line with the version, a line with the number of entries, then one entry a line, with spaces between its
columns. There is no CRC. Source: Kafka's CheckpointFile and OffsetCheckpointFile; spec T46.
"""

from collections.abc import Iterable, Mapping, Sequence

from firnline.base.ids import TopicPartition

VERSION = 0
OFFSET_COLUMNS = ("topic", "partition", "offset")


def encode(entries: Iterable[Sequence[object]]) -> bytes:
    """Return a version 0 checkpoint."""
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def decode(data: bytes, columns: int) -> list[list[str]]:
    """Return the entries of a version 0 checkpoint; ValueError for anything else."""
    lines = data.decode().splitlines()
    if len(lines) < 2:
        raise ValueError("the version or the count is missing")
    version, count = int(lines[0]), int(lines[1])
    if version != VERSION:
        raise ValueError(f"version {version} is not {VERSION}")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if count != len(rows):
        raise ValueError(f"{count} entries announced, {len(rows)} found")
    if any(len(row) != columns for row in rows):
        raise ValueError(f"an entry has not {columns} columns")
    return rows


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return a checkpoint of one offset for each partition, sorted by topic and partition."""
    return encode((tp.topic, tp.partition, offsets[tp]) for tp in sorted(offsets))


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Return the offset of each partition, also negative ones; ValueError for anything else."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partition, offset in decode(data, len(OFFSET_COLUMNS))
    }
