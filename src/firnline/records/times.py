"""Find the first record at or after a timestamp in one stored batch. PURE.

The search runs in steps: some codecs put a million records into a mebibyte. It reads only the timestamp and
offset of each record, and keeps only one chunk of the decompressed body.
"""

from collections.abc import Generator

from firnline.base.background import run_to_completion
from firnline.base.errors import Code, KafkaError, ProtocolError
from firnline.base.ports import Buffer
from firnline.base.units import INT64_MAX, wrap_int64
from firnline.protocol.primitives import read_varint
from firnline.records.batch import HEADER_BYTES, BatchHeader
from firnline.records.compression import decompress_in_chunks

OffsetAndTimestamp = tuple[int, int]
# A step takes about a millisecond.
_RECORDS_PER_STEP = 500
# Length, attributes, timestamp and offset of a record fit into so many bytes.
_FRONT_BYTES = 5 + 1 + 10 + 5


def first_at_time(
    data: Buffer, header: BatchHeader, time_ms: int, start_offset: int
) -> OffsetAndTimestamp | None:
    """Like `first_at_time_steps`, in one call."""
    return run_to_completion(first_at_time_steps(data, header, time_ms, start_offset))


def first_at_time_steps(
    data: Buffer, header: BatchHeader, time_ms: int, start_offset: int
) -> Generator[None, None, OffsetAndTimestamp | None]:
    """Return (offset, timestamp) of the first record of a batch at or after both, or None.

    Raises KafkaError UNKNOWN_SERVER_ERROR where the body does not match the header, as Kafka does. With
    CORRUPT_MESSAGE clients would retry, although all replicas have the same bytes.
    """
    try:
        return (yield from _search(data, header, time_ms, start_offset))
    except (KafkaError, ProtocolError, IndexError) as problem:
        why = "undecodable record" if isinstance(problem, IndexError) else problem.why
        raise KafkaError(Code.UNKNOWN_SERVER_ERROR, why, offset=header.base_offset) from None


def _search(
    data: Buffer, header: BatchHeader, time_ms: int, start_offset: int
) -> Generator[None, None, OffsetAndTimestamp | None]:
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
            elif position >= len(piece):  # skips the rest of the last record
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
            timestamp = wrap_int64(timestamp)
        if timestamp >= time_ms and offset >= start_offset:
            return offset, timestamp
    left_bytes = position - len(piece)
    for chunk in chunks:
        left_bytes -= len(chunk)
        yield
    if left_bytes:
        raise ProtocolError("the batch does not end with its last record")
    return None
