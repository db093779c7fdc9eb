"""Scan the batches of a file and check everything that can be checked without decoding records. PURE."""

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from firnline.base.errors import StorageError
from firnline.base.ids import NO_EPOCH
from firnline.base.ports import File
from firnline.base.units import INT64_MAX, MIB
from firnline.records.batch import (
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    parse_header,
)

_SCAN_BYTES = MIB


class FoundBatch(NamedTuple):
    """A batch that passed the scan. Its bytes are `data[header.position:][:header.size_bytes]`."""

    header: BatchHeader
    data: bytes
    position: int  # in the file


def good_batches(
    file: File, base_offset: int, gaps_upto_offset: int = INT64_MAX
) -> Iterator[FoundBatch]:
    """Iterate over the batches of a file from its start; stop before the first damaged one.

    A good batch has magic 2, a length that fits and the right CRC. The CRC does not cover offsets and epochs,
    so they are checked too: offsets ascend from `base_offset`, with gaps only before batches that end by
    `gaps_upto_offset`; leader epochs do not fall. Raises StorageError for a message of a format before v2: it
    is not garbage, and must not be truncated.
    """
    expected, epoch = base_offset, NO_EPOCH
    for found in complete_batches(file):
        header = found.header
        if header.base_offset < expected or header.leader_epoch < epoch:
            return
        if header.base_offset > expected and header.next_offset > gaps_upto_offset:
            return
        yield found
        expected, epoch = header.next_offset, header.leader_epoch


def complete_batches(file: File, position: int = 0) -> Iterator[FoundBatch]:
    """Iterate over the batches of a file, from `position` on, that have a possible length and the right
    CRC.
    """
    size = file.size()
    chunk, chunk_start = b"", position
    while size - position >= HEADER_BYTES:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = file.read(position, _SCAN_BYTES), position, 0
        header = parse_header(chunk, at)
        end = position + header.size_bytes
        if header.magic != 2:
            _refuse_old_format(file, position, header)
            return
        if header.size_bytes < HEADER_BYTES or end > size:
            return
        if at + header.size_bytes > len(chunk):
            wanted = max(_SCAN_BYTES, header.size_bytes)
            chunk, chunk_start = file.read(position, wanted), position
            header = parse_header(chunk, 0)
        start = header.position
        with memoryview(chunk) as view:
            crc = crc32c(view[start + CRC_START : start + header.size_bytes])
        if crc != header.crc or header.last_offset_delta < 0:
            return
        yield FoundBatch(header, chunk, position)
        position = end


def _refuse_old_format(file: File, position: int, header: BatchHeader) -> None:
    if header.magic not in (0, 1) or not 14 <= header.batch_length <= 100 * MIB:
        return
    message = file.read(position + LOG_OVERHEAD_BYTES, header.batch_length)
    if int.from_bytes(message[:4], "big") == zlib.crc32(message[4:]):
        raise StorageError(
            "a segment holds messages of a format before v2",
            path=file.path,
            magic=header.magic,
            remedy="let Apache Kafka 3 rewrite the topic, or remove the partition's directory",
        )
