"""Split a sequence of batches into chunks of a few batches. PURE."""

from collections.abc import Iterator
from struct import Struct

from firnline.base.ports import Buffer
from firnline.records.batch import HEADER_BYTES

_LENGTH_POSITION, _BEFORE_LENGTH_BYTES = 8, 12
_length = Struct(">i").unpack_from


def portions(records: Buffer, at_most: int) -> Iterator[tuple[Buffer, int]]:
    """Yield the records in order, in chunks of at most `at_most` complete batches, with their maximum number.

    Bytes that are not a complete batch come with the batches before them; whoever validates the chunk finds
    them.
    """
    if len(records) <= at_most * HEADER_BYTES:  # no batch is smaller than its header
        yield records, len(records) // HEADER_BYTES
        return
    view = memoryview(records)
    first = position = count = 0
    while position + HEADER_BYTES <= len(view):
        length = _BEFORE_LENGTH_BYTES + _length(view, position + _LENGTH_POSITION)[0]
        if length < HEADER_BYTES or position + length > len(view):
            break
        if count == at_most:
            yield view[first:position], count
            first, count = position, 0
        position += length
        count += 1
    yield view[first:], count
