"""Walk over the batches of a segment; compare each with its neighbours, its CRC and the indexes. PURE.

The CRC does not cover everything, so the rest is compared with what is known: offsets ascend, leader epochs
match the history of the segment, and index entries match the batches they name. `walk_batches` in _native.c
does this without the GIL, at the speed of the CRC; the Python version here is its reference implementation.
"""

from array import array
from collections.abc import Sequence
from enum import IntEnum

from crc32c import crc32c

from firnline.base.native import native
from firnline.base.ports import Buffer
from firnline.base.units import INT64_MAX
from firnline.formats import offset_index, time_index
from firnline.records.batch import (
    CONTROL_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    parse_header,
)

# Base offset, length, leader epoch, magic and CRC of a batch. Together with the batch CRC they cover every
# byte.
HEADS_BYTES = 21


class Problem(IntEnum):
    """Why a walk stopped before the end of its bytes."""

    NONE = 0
    NOT_A_BATCH = 1
    WRONG_CRC = 2
    OVERLAP = 3
    BEYOND_END = 4
    OTHER_EPOCH = 5
    WRONG_COUNT = 6


WHY = {
    Problem.NOT_A_BATCH: "there is no record batch where one has to begin",
    Problem.WRONG_CRC: "a batch has a wrong CRC",
    Problem.OVERLAP: "a batch begins before the one before it ends",
    Problem.BEYOND_END: "a batch is beyond its segment's end",
    Problem.OTHER_EPOCH: "a batch is of another leader epoch than its offset",
    Problem.WRONG_COUNT: "a batch has more records than offsets, or fewer than none",
}


class Slot:
    """The state of a walk, in 64-bit slots that compiled code shares."""

    POSITION = 0  # in the segment, of the next batch
    NEXT_OFFSET = 1  # the lowest possible offset of the next batch
    BASE_OFFSET = 2  # of the segment
    END_OFFSET = 3  # of the segment, inclusive
    HEADS_CRC = 4  # CRC-32C of the first HEADS_BYTES of all batches so far
    FIRST_CRC = 5  # as stated in the first batch
    MAX_TIMESTAMP = 6
    GAPS = 7  # gaps between offsets, before or inside batches
    ABORTS = 8  # control batches that may abort a transaction
    OFFSET_ENTRY = 9  # the next entry to compare: of the offset index, then of the time index
    TIME_ENTRY = 10
    WRONG_INDEX = 11  # 1: the offset index differs from the batches, 2: the time index differs
    PROBLEM = 12
    MIN_TIMESTAMP = 13  # of all records so far whose timestamps are known
    UNTIMED = 14  # batches whose least timestamp is not known: they would have to be decompressed
    COUNT = 15


class BatchWalk:
    """A walk over one segment, fed with its bytes in pieces; see `feed` and `finish`.

    epochs   (leader epoch, first offset), ascending; below the first one, any epoch is accepted.
    offsets  the file of the offset index, `times` that of the time index; b"" for none.
    """

    def __init__(
        self,
        base_offset: int,
        end_offset: int,
        epochs: Sequence[tuple[int, int]],
        *,
        offsets: bytes = b"",
        times: bytes = b"",
    ) -> None:
        self.state = array("q", bytes(8 * Slot.COUNT))
        self.state[Slot.NEXT_OFFSET] = self.state[Slot.BASE_OFFSET] = base_offset
        self.state[Slot.END_OFFSET] = end_offset
        self.state[Slot.MAX_TIMESTAMP] = -1
        self.state[Slot.MIN_TIMESTAMP] = INT64_MAX
        self._epochs = array("q", [number for entry in epochs for number in entry])
        self._offsets = offsets[
            : len(offsets) // offset_index.ENTRY_BYTES * offset_index.ENTRY_BYTES
        ]
        self._times = times[: len(times) // time_index.ENTRY_BYTES * time_index.ENTRY_BYTES]
        if len(self._offsets) != len(offsets):
            self.state[Slot.WRONG_INDEX] |= 1
        if len(self._times) != len(times):
            self.state[Slot.WRONG_INDEX] |= 2

    @property
    def position(self) -> int:
        """The position of the next batch in the segment; the next piece begins there."""
        return self.state[Slot.POSITION]

    @property
    def problem(self) -> Problem:
        return Problem(self.state[Slot.PROBLEM])

    @property
    def has_gaps(self) -> bool:
        """Whether offsets are missing so far."""
        state = self.state
        return bool(state[Slot.GAPS]) or state[Slot.NEXT_OFFSET] <= state[Slot.END_OFFSET]

    @property
    def min_timestamp_ms(self) -> int | None:
        """The least timestamp of all records so far; None if it is not known, or there are no records."""
        least = self.state[Slot.MIN_TIMESTAMP]
        return None if self.state[Slot.UNTIMED] or least == INT64_MAX else least

    @property
    def offset_index_fits(self) -> bool:
        """Whether every entry names a batch that was passed, with the right offset."""
        is_all = self.state[Slot.OFFSET_ENTRY] * offset_index.ENTRY_BYTES == len(self._offsets)
        return is_all and not self.state[Slot.WRONG_INDEX] & 1

    @property
    def time_index_fits(self) -> bool:
        is_all = self.state[Slot.TIME_ENTRY] * time_index.ENTRY_BYTES == len(self._times)
        return is_all and not self.state[Slot.WRONG_INDEX] & 2

    def feed(self, data: Buffer) -> int:
        """Walk over the complete batches at the beginning of `data`; return how many bytes they are.

        Returns less than all bytes where the last batch is incomplete, or where there is a `problem`.
        """
        before = self.position
        _walk(data, self._epochs, self._offsets, self._times, self.state)
        return self.position - before


def walk_batches_python(
    data: Buffer, epochs: "array[int]", offsets: bytes, times: bytes, state: "array[int]"
) -> None:
    """Advance `state` over the complete batches of `data`."""
    at, size = 0, len(data)
    starts = epochs[1::2]
    slot = -1
    with memoryview(data) as view:
        while size - at >= HEADER_BYTES and not state[Slot.PROBLEM]:
            head = parse_header(view, at)
            if head.magic != 2 or head.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
                state[Slot.PROBLEM] = Problem.NOT_A_BATCH
                return
            end = at + head.size_bytes
            if end > size:
                return
            with view[at + CRC_START : end] as body:
                crc = crc32c(body)
            while slot + 1 < len(starts) and starts[slot + 1] <= head.base_offset:
                slot += 1
            last = head.last_offset
            problem = Problem.NONE
            if crc != head.crc:
                problem = Problem.WRONG_CRC
            elif head.base_offset < state[Slot.NEXT_OFFSET]:
                problem = Problem.OVERLAP
            elif head.last_offset_delta < 0 or last > state[Slot.END_OFFSET]:
                problem = Problem.BEYOND_END
            elif slot >= 0 and head.leader_epoch != epochs[2 * slot]:
                problem = Problem.OTHER_EPOCH
            elif not 0 <= head.record_count <= head.last_offset_delta + 1:
                problem = Problem.WRONG_COUNT
            if problem:
                state[Slot.PROBLEM] = problem
                return
            _note(state, head.base_offset, last, head.max_timestamp, offsets, times)
            if head.record_count:
                _note_least_time(state, view, head)
            if (
                head.base_offset != state[Slot.NEXT_OFFSET]
                or head.record_count <= last - head.base_offset
            ):
                state[Slot.GAPS] += 1
            if head.attributes & CONTROL_MASK:
                state[Slot.ABORTS] += _may_abort(view, head)
            if not state[Slot.POSITION]:
                state[Slot.FIRST_CRC] = crc
            with view[at : at + HEADS_BYTES] as prefix:
                state[Slot.HEADS_CRC] = crc32c(prefix, state[Slot.HEADS_CRC])
            state[Slot.NEXT_OFFSET] = last + 1
            state[Slot.POSITION] += end - at
            at = end


def _may_abort(data: Buffer, head: BatchHeader) -> bool:
    """Check whether a control batch may abort a transaction: the key of its record is version and type, 0
    for ABORT.
    """
    if not head.record_count:
        return False  # compaction may remove its record
    if head.codec:
        return True
    at, end = head.position + HEADER_BYTES, head.position + head.size_bytes
    with memoryview(data)[at:end] as body:
        try:
            at = _varint(body, 0, 5)[1] + 1  # length, attributes
            at = _varint(body, at, 10)[1]  # timestamp
            length, at = _varint(body, _varint(body, at, 5)[1], 5)
        except (IndexError, ValueError):
            return True
        if length > len(body) - at:
            return True
        return length >= 4 and body[at + 2] == body[at + 3] == 0


def _varint(data: memoryview, at: int, bytes_max: int) -> tuple[int, int]:
    """Return a zigzag varint and its end; IndexError or ValueError where there is none."""
    value = 0
    for number in range(bytes_max):
        byte = data[at + number]
        value |= (byte & 127) << 7 * number
        if byte < 128:
            value &= 0xFFFFFFFF if bytes_max == 5 else 0xFFFFFFFFFFFFFFFF
            return value >> 1 ^ -(value & 1), at + number + 1
    raise ValueError("a varint is too long")


def _note(
    state: "array[int]", base: int, last: int, max_timestamp: int, offsets: bytes, times: bytes
) -> None:
    """Compare the index entries that name this batch with it."""
    state[Slot.MAX_TIMESTAMP] = max(state[Slot.MAX_TIMESTAMP], max_timestamp)
    segment, position = state[Slot.BASE_OFFSET], state[Slot.POSITION]
    at = state[Slot.OFFSET_ENTRY] * offset_index.ENTRY_BYTES
    while at < len(offsets):
        relative, place = offset_index.ENTRY.unpack_from(offsets, at)
        if place > position:
            break
        if place != position or segment + relative != last:
            state[Slot.WRONG_INDEX] |= 1
        state[Slot.OFFSET_ENTRY] += 1
        at += offset_index.ENTRY_BYTES
    at = state[Slot.TIME_ENTRY] * time_index.ENTRY_BYTES
    while at < len(times):
        timestamp, relative = time_index.ENTRY.unpack_from(times, at)
        if segment + relative > last:
            break
        if segment + relative < base or not timestamp == max_timestamp == state[Slot.MAX_TIMESTAMP]:
            state[Slot.WRONG_INDEX] |= 2
        state[Slot.TIME_ENTRY] += 1
        at += time_index.ENTRY_BYTES


def _note_least_time(state: "array[int]", data: memoryview, head: BatchHeader) -> None:
    """Note the least timestamp of a batch's records: its header states only the first and the greatest."""
    least = head.max_timestamp
    if not head.is_log_append_time:
        try:
            if head.codec:
                raise ValueError("compressed")
            with data[head.position + HEADER_BYTES : head.position + head.size_bytes] as body:
                least = min(least, _least_time(body, head))
        except (IndexError, ValueError):
            state[Slot.UNTIMED] += 1
            return
    state[Slot.MIN_TIMESTAMP] = min(state[Slot.MIN_TIMESTAMP], least)


def _least_time(body: memoryview, head: BatchHeader) -> int:
    """Return the least timestamp of the records; IndexError or ValueError where one is cut off."""
    at, deltas = 0, []
    for _ in range(head.record_count):
        length, at = _varint(body, at, 5)
        if not 0 <= length <= len(body) - at:
            raise ValueError("a record is cut off")
        with body[at : at + length] as record:
            deltas.append(_varint(record, 1, 10)[0])
        at += length
    least = head.base_timestamp + min(deltas)
    if least < -INT64_MAX - 1 or head.base_timestamp + max(deltas) > INT64_MAX:
        raise ValueError("a timestamp beyond 64 bits")
    return least


_walk = getattr(native, "walk_batches", walk_batches_python)
