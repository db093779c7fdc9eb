"""Find the batches in a part of a segment and check their headers, all at once. SPARK.

Lengths are read one by one, since each says where the next batch begins; all other header fields are read as
columns of one numpy table. Where there is compiled code it reads lengths and checks CRCs (decision 0049).
Source: spark section 2; spec C13.
"""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from firnline.base.native import native
from firnline.base.ports import Buffer
from firnline.formats.transaction_index import AbortedTxn
from firnline.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    TRANSACTIONAL_MASK,
)
from firnline.spark.schema import (
    ABORTED,
    COMMITTED,
    OPEN,
    TRANSACTION_STATES,
    CorruptSegment,
    Wanted,
)

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

HEADER_DTYPE = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert HEADER_DTYPE.itemsize == HEADER_BYTES

_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_BATCH_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES


class Frames(NamedTuple):
    """The complete batches of a part of a segment: their begins, their ends, and the table of headers."""

    begins: Ints
    ends: Ints
    heads: npt.NDArray[np.void]

    def column(self, name: str) -> Ints:
        return self.heads[name].astype(np.int64)

    def only(self, mask: Mask) -> "Frames":
        return Frames(self.begins[mask], self.ends[mask], self.heads[mask])

    def part(self, first: int, last: int) -> "Frames":
        """Return the batches numbered [first, last)."""
        return Frames(self.begins[first:last], self.ends[first:last], self.heads[first:last])


def find_frames(data: Buffer, *, source: str = "segment", position: int = 0) -> Frames:
    """Return the complete batches of `data`, as in a Fetch response: a partial one at the end is skipped.

    Of that one the magic is checked: after a wrong length it is no batch at all.
    position  where `data` begins in its segment, in bytes; for errors.
    Raises CorruptSegment for an impossible length and for batches of magic 0 and 1.
    """
    found = None if native is None else native.find_batches(data)
    if found is None:  # or the bytes are no batches: say which
        return find_frames_python(data, source, position)
    table = np.frombuffer(found[0], dtype=np.int64)
    return Frames(table[:-1], table[1:], np.frombuffer(found[1], dtype=HEADER_DTYPE))


def find_frames_python(data: Buffer, source: str, position: int) -> Frames:
    """Do what `find_frames` does, without compiled code."""
    begins: list[int] = []
    at, end = 0, len(data)
    unpack = _LENGTH.unpack_from
    while end - at >= HEADER_BYTES:
        (length,) = unpack(data, at + 8)
        if length < _BATCH_LENGTH_MIN:
            raise _bad_length(data, at, length, source, position)
        after = at + LOG_OVERHEAD_BYTES + length
        if after > end:
            break
        begins.append(at)
        at = after
    if not begins:
        _refuse_other_magic(data, at, source, position)
        return Frames(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, HEADER_DTYPE))
    table = np.array([*begins, at], dtype=np.int64)
    # A view with a header at every byte: selecting from it copies only 61 bytes a batch.
    everywhere: npt.NDArray[np.void] = np.ndarray(
        shape=(end - HEADER_BYTES + 1,), dtype=HEADER_DTYPE, buffer=data, strides=(1,)
    )
    frames = Frames(table[:-1], table[1:], everywhere[table[:-1]])
    other = np.flatnonzero(frames.heads["magic"] != 2)
    if other.size:
        _refuse_other_magic(data, int(frames.begins[other[0]]), source, position)
    if end - at >= HEADER_BYTES:
        _refuse_other_magic(data, at, source, position)
    return frames


def select_frames(frames: Frames, wanted: Wanted) -> Frames:
    """Keep the batches with records to deliver: no control batches, nothing aborted or out of range.

    Raises CorruptSegment for a header that contradicts itself.
    """
    base = frames.column("base_offset")
    last = base + frames.column("last_offset_delta")
    attributes = frames.column("attributes")
    keep = (last >= wanted.start_offset) & (base < wanted.end_offset)
    keep &= (attributes & CONTROL_MASK) == 0
    if wanted.aborted and not wanted.keeps_aborted and (attributes & TRANSACTIONAL_MASK).any():
        keep &= ~is_aborted(base, frames.column("producer_id"), attributes, aborted=wanted.aborted)
    chosen = frames if keep.all() else frames.only(keep)
    _check_heads(chosen, wanted)
    return chosen


def check_crcs(data: Buffer, frames: Frames, wanted: Wanted) -> None:
    """Recompute the CRC-32C of each batch; raises CorruptSegment for the first wrong one."""
    wrong = None
    if native is not None:
        wrong = native.first_wrong_crc(data, frames.begins, frames.ends, frames.heads)
    if wrong is None:
        wrong = first_wrong_crc_python(data, frames)
    if wrong >= 0:
        raise CorruptSegment(
            "a batch has a wrong CRC",
            segment=wanted.source,
            topic=wanted.topic,
            partition=wanted.partition,
            offset=int(frames.heads["base_offset"][wrong]),
        )


def first_wrong_crc_python(data: Buffer, frames: Frames) -> int:
    """Return the number of the first batch whose CRC is not what its header states; -1 if all are right."""
    stated = frames.heads["crc"].tolist()
    with memoryview(data) as view:
        for i, (begin, end) in enumerate(
            zip(frames.begins.tolist(), frames.ends.tolist(), strict=True)
        ):
            if crc32c(view[begin + CRC_START : end]) != stated[i]:
                return i
    return -1


def transaction_states(frames: Frames, wanted: Wanted) -> tuple[Ints, Mask]:
    """Return for each batch the place of its state in `TRANSACTION_STATES`, and whether it is in none."""
    base, producer = frames.column("base_offset"), frames.column("producer_id")
    attributes = frames.column("attributes")
    unfinished = np.zeros(len(base), dtype=np.bool_)
    for one in wanted.unfinished:
        is_its = True if one.producer_id is None else producer == one.producer_id
        unfinished |= (base >= one.first_offset) & is_its
    aborted = is_aborted(base, producer, attributes, aborted=wanted.aborted)
    states = np.where(
        aborted,
        TRANSACTION_STATES.index(ABORTED),
        np.where(unfinished, TRANSACTION_STATES.index(OPEN), TRANSACTION_STATES.index(COMMITTED)),
    )
    return states.astype(np.int64), (attributes & TRANSACTIONAL_MASK) == 0


def is_aborted(
    base: Ints, producer: Ints, attributes: Ints, *, aborted: tuple[AbortedTxn, ...]
) -> Mask:
    """Return which of some batches, given by columns of their headers, belong to an aborted transaction."""
    void = np.zeros(len(base), dtype=np.bool_)
    for one in aborted:
        void |= (
            (producer == one.producer_id) & (base >= one.first_offset) & (base <= one.last_offset)
        )
    void &= (attributes & TRANSACTIONAL_MASK) != 0
    return void


def _check_heads(frames: Frames, wanted: Wanted) -> None:
    heads = frames.heads
    for why, bad in (
        ("a batch states a negative record count", heads["record_count"] < 0),
        ("a batch states a negative offset", heads["base_offset"] < 0),
        ("a batch ends before it begins", heads["last_offset_delta"] < 0),
        ("a batch has an unknown codec", (heads["attributes"] & COMPRESSION_MASK) > 4),
    ):
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            raise CorruptSegment(
                why,
                segment=wanted.source,
                topic=wanted.topic,
                partition=wanted.partition,
                offset=int(heads["base_offset"][first]),
            )


def _bad_length(data: Buffer, at: int, length: int, source: str, position: int) -> CorruptSegment:
    _refuse_other_magic(data, at, source, position)
    return CorruptSegment(
        "a batch is shorter than its header",
        segment=source,
        position=position + at,
        offset=_OFFSET.unpack_from(data, at)[0],
        length=length,
    )


def _refuse_other_magic(data: Buffer, at: int, source: str, position: int) -> None:
    if len(data) - at <= MAGIC_POSITION:
        return
    magic = data[at + MAGIC_POSITION]
    if magic != 2:
        raise CorruptSegment(
            "not a v2 record batch: message formats 0 and 1 are not supported"
            if magic < 2
            else "not a record batch",
            segment=source,
            position=position + at,
            offset=_OFFSET.unpack_from(data, at)[0],
            magic=magic,
        )
