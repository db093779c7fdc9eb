"""Records of an answer, so many batches at a time. PURE.

A follower that comes back takes thousands of small batches for one partition, some 8 us each.
"""

from collections.abc import Iterator
from struct import Struct

from firnline.base.ports import Buffer
from firnline.records.batch import HEADER_BYTES

# Two milliseconds. A batch is not smaller than its header.
BATCHES_PER_SLICE = 200
_LENGTH_POSITION, _BEFORE_LENGTH_BYTES = 8, 12
_length = Struct(">i").unpack_from


def portions(records: Buffer) -> Iterator[tuple[Buffer, int]]:
    """Give the records in order: some whole batches, and how many those are at most.

    What is no batch, or a part of one, is left to whoever judges them: it comes with those before it.
    """
    if len(records) <= BATCHES_PER_SLICE * HEADER_BYTES:
        yield records, len(records) // HEADER_BYTES
        return
    view = memoryview(records)
    first = position = count = 0
    while position + HEADER_BYTES <= len(view):
        length = _BEFORE_LENGTH_BYTES + _length(view, position + _LENGTH_POSITION)[0]
        if length < HEADER_BYTES or position + length > len(view):
            break
        if count == BATCHES_PER_SLICE:
            yield view[first:position], count
            first, count = position, 0
        position += length
        count += 1
    yield view[first:], count
