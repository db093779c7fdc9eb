"""Find where the records of a group of batches begin and end. SPARK.

A record begins where the previous one ends, so one batch can only be walked. Many batches are walked in
lockstep: step k finds the k-th record of every batch at once. A few big batches are walked one by one in a
tight loop; the counts decide which is cheaper. Source: spark section 2, target T3.
"""

import numpy as np

from firnline.base.ports import Buffer
from firnline.spark.decoding.varints import Corrupt, read_int32s
from firnline.spark.frames import Bytes, Ints

# The average number of batches per step above which lockstep is faster than the loop (bench/spark_decode.py).
LOCKSTEP_LANES_MIN = 24


def record_ends(body: Bytes, raw: Buffer, begins: Ints, ends: Ints, counts: Ints) -> Ints:
    """Return the end position of every record, batch after batch.

    body, raw  the same bytes as an array and as a buffer.
    Raises Corrupt or IndexError if lengths do not add up to exactly `ends`.
    """
    total = int(counts.sum())
    if total < LOCKSTEP_LANES_MIN * int(counts.max()):
        return _walk(raw, begins, ends, counts)
    return _walk_in_lockstep(body, begins, ends, counts)


def record_starts(begins: Ints, counts: Ints, record_end: Ints) -> Ints:
    """Return the position of each record's length: the end of the previous record, or the start of its
    batch.
    """
    starts = np.empty_like(record_end)
    starts[1:] = record_end[:-1]
    some = counts > 0
    starts[(np.cumsum(counts) - counts)[some]] = begins[some]
    return starts


def _walk(raw: Buffer, begins: Ints, ends: Ints, counts: Ints) -> Ints:
    data = bytes(raw) if isinstance(raw, memoryview) else raw
    found: list[int] = []
    append = found.append
    for begin, end, count in zip(begins.tolist(), ends.tolist(), counts.tolist(), strict=True):
        at = begin
        for _ in range(count):
            size = data[at]
            at += 1
            if size > 127:
                byte = data[at]
                at += 1
                size = size & 127 | byte << 7
                if byte > 127:
                    size, at = _long(data, at, size & 16383)
            if size & 1:
                raise Corrupt("a negative length")
            at += size >> 1
            if at > end:
                raise Corrupt("a record that exceeds its batch")
            append(at)
        if at != end:
            raise Corrupt("bytes after the last record")
    return np.array(found, dtype=np.int64)


def _long(data: Buffer, at: int, size: int) -> tuple[int, int]:
    for shift in (14, 21, 28):
        byte = data[at]
        at += 1
        size |= (byte & 127) << shift
        if byte < 128:
            break
    else:
        raise Corrupt("a varint is too long")
    return size, at


def _two_byte_steps() -> Ints:
    """Return for two bytes at a record's start, low byte first, the distance to its end; -1 if they do not
    tell.
    """
    pair = np.arange(65536, dtype=np.int64)
    low, high = pair & 255, pair >> 8
    size = np.where(low < 128, low, low & 127 | (high & 127) << 7)
    known = (low < 128) | (high < 128)
    return np.where(known & (size & 1 == 0), (size >> 1) + np.where(low < 128, 1, 2), -1)


_STEP = _two_byte_steps()


def _walk_in_lockstep(body: Bytes, begins: Ints, ends: Ints, counts: Ints) -> Ints:
    order = np.argsort(-counts, kind="stable")
    at, limit = begins[order], ends[order]
    # How many batches have a k-th record: these come first in `order`.
    active = np.searchsorted(-counts[order], -np.arange(int(counts.max())), side="left")
    pairs: np.ndarray[tuple[int], np.dtype[np.uint16]] = np.ndarray(
        shape=(len(body) - 1,), dtype="<u2", buffer=body, strides=(1,)
    )
    total = int(counts.sum())
    found = np.empty(total, dtype=np.int64)
    filled = 0
    for lanes in active.tolist():
        if lanes < len(at):
            if (at[lanes:] != limit[lanes:]).any():
                raise Corrupt("bytes after the last record")
            at, limit = at[:lanes], limit[:lanes]
        step = _STEP.take(pairs[at])
        if step.min() < 0:
            size, after = read_int32s(body, at)
            if (size < 0).any():
                raise Corrupt("a negative length")
            step = after - at + size
        at = at + step
        if (at > limit).any():
            raise Corrupt("a record that exceeds its batch")
        found[filled : filled + lanes] = at
        filled += lanes
    if (at != limit).any():
        raise Corrupt("bytes after the last record")
    # From step order (k, batch) to record order (batch, k).
    step_of = np.repeat(np.arange(len(active)), active)
    lane_of = np.arange(total) - np.repeat(np.cumsum(active) - active, active)
    result = np.empty(total, dtype=np.int64)
    result[(np.cumsum(counts) - counts)[order][lane_of] + step_of] = found
    return result
