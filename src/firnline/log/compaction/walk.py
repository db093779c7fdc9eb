"""Pass over the batches of a closed segment, each verified: one by one, or many in native code. STORE.

What no CRC covers is checked, too: offsets ascend and stay within the segment, leader epochs do not fall, and
the last batch ends where the segment does.
"""

from crc32c import crc32c

from firnline.base.errors import StorageError
from firnline.base.ids import NO_EPOCH
from firnline.base.ports import Fs
from firnline.log.checkpoint import DAMAGE_REMEDY
from firnline.log.compaction.cleaner import Damaged
from firnline.records.batch import (
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    parse_header,
)

# A chunk and what is left of it stay in a core's cache; each costs some Python.
CHUNK_BYTES = 1 << 18


class SegmentWalk:
    """Where a pass is.

    chunk, at        bytes of the file, and where in them the next batch begins; good until the walk goes on
    expected, epoch  no batch begins below that offset, or is of an older leader epoch
    end_offset       every batch ends below it
    """

    __slots__ = (
        "_buffer",
        "_file",
        "_size",
        "_start",
        "at",
        "chunk",
        "end_offset",
        "epoch",
        "expected",
        "path",
    )

    def __init__(
        self, fs: Fs, path: str, base_offset: int, end_offset: int, size_bytes: int
    ) -> None:
        self.path = path
        self._file = fs.open_to_read(path)
        self._size = size_bytes
        self._start = 0  # of the chunk, in the file
        self._buffer = memoryview(bytearray(min(CHUNK_BYTES, size_bytes)))
        self.chunk = self._buffer[:0]
        self.at = 0
        self.expected = base_offset
        self.epoch = NO_EPOCH
        self.end_offset = end_offset
        if self._file.size() != size_bytes:
            self.close()
            raise StorageError("a segment changed while it was compacted", path=path)

    @property
    def position(self) -> int:
        """How far the pass is, in bytes of the file."""
        return self._start + self.at

    def has_more(self) -> bool:
        """True before the end; the next batch is then in the chunk, unless it is longer than one."""
        if self.position == self._size:
            return False
        if not self._is_next_there():
            self._read(CHUNK_BYTES)
        return True

    def _is_next_there(self) -> bool:
        chunk, at = self.chunk, self.at
        length = int.from_bytes(chunk[at + 8 : at + LOG_OVERHEAD_BYTES], "big", signed=True)
        return len(chunk) - at >= max(HEADER_BYTES, LOG_OVERHEAD_BYTES + length)

    def _read(self, size_bytes: int) -> None:
        """Begin the chunk at the next batch."""
        self._start, self.at = self.position, 0
        wanted = min(size_bytes, self._size - self._start)
        if wanted > len(self._buffer):
            self._buffer = memoryview(bytearray(wanted))
        self.chunk = self._buffer[: self._file.read_into(self._start, self._buffer[:wanted])]

    def moved(self, at: int, expected: int, epoch: int) -> None:
        """Native code has passed batches up to `at`."""
        self.at, self.expected, self.epoch = at, expected, epoch

    def take(self) -> tuple[BatchHeader, memoryview]:
        """Pass one batch, where `has_more` said so; return its header, placed in the file, and its bytes.

        Damaged if it is not good. The bytes are good until the walk goes on.
        """
        if len(self.chunk) - self.at < HEADER_BYTES:
            raise self._damaged("the end of a segment is no batch")
        header = parse_header(self.chunk, self.at)
        size = header.size_bytes
        if header.magic != 2 or size < HEADER_BYTES or self.position + size > self._size:
            raise self._damaged("its length or its format cannot be")
        if self.at + size > len(self.chunk):
            self._read(max(CHUNK_BYTES, size))
        if crc32c(self.chunk[self.at + CRC_START : self.at + size]) != header.crc:
            raise self._damaged("it does not match its CRC")
        if not self.expected <= header.base_offset <= header.last_offset < self.end_offset:
            raise self._damaged("its offsets do not follow those before, or leave the segment")
        if header.leader_epoch < self.epoch or header.record_count < 0:
            raise self._damaged("its leader epoch falls, or its count is negative")
        data = self.chunk[self.at : self.at + size]
        header = header._replace(position=self.position)
        self.moved(self.at + size, header.next_offset, header.leader_epoch)
        return header, data

    def _damaged(self, problem: str) -> Damaged:
        return Damaged(
            "a damaged batch stops the compaction of a log",
            path=self.path,
            position=self.position,
            offset=self.expected,
            problem=problem,
            remedy=DAMAGE_REMEDY,
        )

    def close(self) -> None:
        self._file.close()
