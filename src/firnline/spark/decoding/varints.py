"""Read varints of many records at once. SPARK. Like `protocol.primitives.read_varint`.

One byte is read for every record; further bytes only for the records whose byte says so.
"""

from typing import Any

import numpy as np

from firnline.spark.frames import Bytes, Ints


class Corrupt(Exception):
    """A check failed somewhere in a group of batches; the reference implementation then explains it."""


def read_int32s(body: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Read one zigzag varint of 32 bits at each position; return the values and the next positions.

    Raises Corrupt for more than five bytes, IndexError beyond the body. Does not refuse values of up to 35
    bits: every caller compares them with a limit below 32 bits.
    """
    first = body.take(at)
    value: Ints = (first & 127).astype(np.int64)
    after = at + 1
    lanes = np.flatnonzero(first > 127)
    shift = 7
    while lanes.size:
        if shift > 28:
            raise Corrupt("a varint is too long")
        byte = body.take(after[lanes])
        value[lanes] |= (byte & 127).astype(np.int64) << shift
        after[lanes] += 1
        lanes = lanes[byte > 127]
        shift += 7
    return (value >> 1) ^ -(value & 1), after


def read_int64s(body: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Read one zigzag varint of 64 bits at each position; see `read_int32s`."""
    first = body.take(at)
    value: Any = (first & 127).astype(np.uint64)
    after = at + 1
    lanes = np.flatnonzero(first > 127)
    shift = 7
    while lanes.size:
        if shift > 63:
            raise Corrupt("a varint is too long")
        byte = body.take(after[lanes])
        if shift == 63 and (byte & 127 > 1).any():
            raise Corrupt("a varint is too large")
        value[lanes] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        after[lanes] += 1
        lanes = lanes[byte > 127]
        shift += 7
    sign = (value & np.uint64(1)).astype(np.int64)
    return (value >> np.uint64(1)).astype(np.int64) ^ -sign, after
