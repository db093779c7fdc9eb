"""The first record of a time in one stored batch, in steps: some codecs put a million into a mebibyte. PURE.

Of each record only the time and the offset are read, and of what is opened no more is kept than a piece.
"""

from collections.abc import Generator

from firnline.base.background import whole
from firnline.base.errors import Code, KafkaError, ProtocolError
from firnline.base.ports import Buffer
from firnline.base.units import INT64_MAX
from firnline.protocol.primitives import read_varint
from firnline.records.batch import HEADER_BYTES, BatchHeader
from firnline.records.compression import decompress_in_chunks

Place = tuple[int, int]
# A step is about a millisecond.
_RECORDS_PER_STEP = 500
# Length, attributes, time and offset of a record are in so many bytes.
_FRONT_BYTES = 5 + 1 + 10 + 5


def first_at_time(
    data: Buffer, header: BatchHeader, time_ms: int, start_offset: int
) -> Place | None:
    """As `first_at_time_steps`, at once."""
    return whole(first_at_time_steps(data, header, time_ms, start_offset))


def first_at_time_steps(
    data: Buffer, header: BatchHeader, time_ms: int, start_offset: int
) -> Generator[None, None, Place | None]:
    """Return (offset, timestamp) of the first record of a batch at or after both; None where none is.

    Raises KafkaError UNKNOWN_SERVER_ERROR where the body is not what the header says, as Kafka answers then:
    all replicas have the same bytes, so nobody is to ask again, as for CORRUPT_MESSAGE clients would.
    """
    try:
        return (yield from _search(data, header, time_ms, start_offset))
    except (KafkaError, ProtocolError, IndexError) as problem:
        why = "undecodable record" if isinstance(problem, IndexError) else problem.why
        raise KafkaError(Code.UNKNOWN_SERVER_ERROR, why, offset=header.base_offset) from None


def _search(
    data: Buffer, header: BatchHeader, time_ms: int, start_offset: int
) -> Generator[None, None, Place | None]:
    packed = memoryview(data)[header.position + HEADER_BYTES : header.position + header.size_bytes]
    base_offset, last_offset = header.base_offset, header.last_offset
    base_time = header.base_timestamp
    chunks = decompress_in_chunks(header.codec, packed)
    piece, position, is_last = b"", 0, False
    for count in range(header.record_count):
        if count and count % _RECORDS_PER_STEP == 0:
            yield
        while len(piece) - position < _FRONT_BYTES and not is_last:
            chunk = next(chunks, None)
            if chunk is None:
                is_last = True
            elif position >= len(piece):  # the rest of the last record is passed over
                position -= len(piece)
                piece = bytes(chunk)
            else:
                piece, position = piece[position:] + bytes(chunk), 0
            if chunk is not None and count:
                yield
        length, at = read_varint(piece, position)
        time_delta, after = read_varint(piece, at + 1, bits=64)
        offset_delta, after = read_varint(piece, after)
        position = at + length
        if after > position or (is_last and position > len(piece)):
            raise ProtocolError("record length exceeds the batch", length=length)
        offset = base_offset + offset_delta
        if not base_offset <= offset <= last_offset:
            raise ProtocolError("a record lies outside its batch", record=offset)
        timestamp = base_time + time_delta
        if header.is_log_append_time:
            timestamp = header.max_timestamp
        elif not -INT64_MAX <= timestamp <= INT64_MAX:
            timestamp = (timestamp + 2**63) % 2**64 - 2**63  # 64 bits, as in every Kafka client
        if timestamp >= time_ms and offset >= start_offset:
            return offset, timestamp
    left_bytes = position - len(piece)
    for chunk in chunks:
        left_bytes -= len(chunk)
        yield
    if left_bytes:
        raise ProtocolError("the batch ends elsewhere than its last record")
    return None
