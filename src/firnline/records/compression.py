"""Kafka's compression codecs, with a limit on the decompressed size. PURE.

Ids: 0 none, 1 gzip, 2 snappy (raw, or Java's xerial framing), 3 lz4 (frame), 4 zstd. A mebibyte of zstd
can decompress to 32 GiB, so no codec decompresses more than `limit_bytes` (reliability d 39-41).
"""

import gzip
import io
import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam
import lz4.frame
import zstandard

from firnline.base.errors import Code, KafkaError
from firnline.base.limits import DECOMPRESSED_BATCH_BYTES_MAX
from firnline.base.ports import Buffer
from firnline.base.units import KIB, MIB

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
# The codec that each compression.type stores; None: the one that the producer chose.
STORED_CODECS: dict[str, int | None] = {
    "producer": None,
    "uncompressed": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_CHUNK_BYTES = 256 * KIB


def decompress(
    codec: int, body: Buffer, *, limit_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> bytes:
    """Decompress the body of a batch.

    Raises KafkaError CORRUPT_MESSAGE for a body that is not of this codec, INVALID_RECORD when it
    decompresses to more than `limit_bytes`.
    """
    if codec == NONE:
        return bytes(body)
    # A thread that decompresses must not block the event loop. A library that returns everything at once
    # copies it while it holds the GIL, 0.7 ms a mebibyte (measured). `join` releases the GIL for large parts.
    return b"".join(decompress_in_chunks(codec, body, limit_bytes=limit_bytes))


def decompress_in_chunks(
    codec: int, body: Buffer, *, limit_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> Iterator[Buffer]:
    """Like `decompress`, in chunks of about a millisecond of work each. With snappy, a chunk is a block."""
    open_chunks = _CHUNKS.get(codec)
    if open_chunks is None:
        raise KafkaError(Code.CORRUPT_MESSAGE, "unknown compression codec", codec=codec)
    total = 0
    try:
        for chunk in open_chunks(body, limit_bytes):
            total += len(chunk)
            if total > limit_bytes:
                raise _too_big(limit_bytes)
            yield chunk
    except KafkaError:
        raise
    except Exception as problem:  # noqa: BLE001 - each library raises its own errors
        raise KafkaError(
            Code.CORRUPT_MESSAGE, "undecodable batch body", codec=NAMES[codec], problem=problem
        ) from None


def _as_it_is(body: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    yield body


def _gzip_chunks(body: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    opener, pieces = zlib.decompressobj(31), _pieces(body)
    chunk_bytes = min(_CHUNK_BYTES, limit_bytes + 1)
    while not opener.eof:
        piece = opener.unconsumed_tail or next(pieces, b"")
        chunk = opener.decompress(piece, chunk_bytes)
        if not chunk and not piece and not opener.eof:
            raise KafkaError(Code.CORRUPT_MESSAGE, "gzip body ends early")
        yield chunk


def _lz4_chunks(body: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    opener, pieces = lz4.frame.LZ4FrameDecompressor(), _pieces(body)
    chunk_bytes = min(_CHUNK_BYTES, limit_bytes + 1)
    while not opener.eof:
        piece = next(pieces, None) if opener.needs_input else b""
        if piece is None:
            raise KafkaError(Code.CORRUPT_MESSAGE, "lz4 body ends early")
        # It returns nothing while it has only a part of a block, and also asks for more input only then.
        yield opener.decompress(piece, max_length=chunk_bytes)


def _pieces(body: Buffer) -> Iterator[Buffer]:
    """Split the body: some libraries copy whatever part of their input they have not yet decompressed."""
    view = memoryview(body)
    for at in range(0, len(view), _CHUNK_BYTES):
        yield view[at : at + _CHUNK_BYTES]


def _zstd_chunks(body: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    opener = zstandard.ZstdDecompressor(max_window_size=128 * MIB)
    reader = opener.stream_reader(io.BytesIO(body))
    while chunk := reader.read(min(_CHUNK_BYTES, limit_bytes + 1)):
        yield chunk


# Used where no level is asked for. For lz4 the default is its fast method, as in Kafka; other levels use the
# slow one.
USUAL_LEVELS = {GZIP: -1, LZ4: 9, ZSTD: 3}


def compress(codec: int, body: bytes, level: int | None = None) -> bytes:
    """Compress a batch body as a producer would. `level` None is the default level of each codec."""
    if level is None:
        level = USUAL_LEVELS.get(codec, 0)
    if codec == NONE:
        return body
    if codec == GZIP:
        return gzip.compress(body, level, mtime=0)
    if codec == SNAPPY:
        return b"".join(_copied(memoryview(cramjam.snappy.compress_raw(body))))
    if codec == LZ4:
        method = 0 if level == USUAL_LEVELS[LZ4] else level
        return bytes(
            lz4.frame.compress(body, compression_level=method, block_linked=False, store_size=False)
        )
    assert codec == ZSTD, codec
    return zstandard.ZstdCompressor(level=level).compress(body)


def _too_big(limit_bytes: int) -> KafkaError:
    return KafkaError(Code.INVALID_RECORD, "a batch opens to too many bytes", limit=limit_bytes)


def _snappy_chunks(body: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    data = memoryview(body)
    if bytes(data[:8]) != _XERIAL_MAGIC:
        yield from _unsnappy_raw(data, limit_bytes)
        return
    position, total = 16, 0  # magic, version, compatible version
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if size < 0 or size > len(data) - position:
            raise KafkaError(Code.CORRUPT_MESSAGE, "snappy block exceeds the body", size=size)
        for chunk in _unsnappy_raw(data[position : position + size], limit_bytes - total):
            total += len(chunk)
            yield chunk
        position += size


def _unsnappy_raw(block: memoryview, limit_bytes: int) -> Iterator[bytes]:
    # A raw snappy block begins with its size, as a varint. Check it before allocating memory.
    if cramjam.snappy.decompress_raw_len(block) > limit_bytes:
        raise _too_big(limit_bytes)
    return _copied(memoryview(cramjam.snappy.decompress_raw(block)))


def _copied(made: memoryview) -> Iterator[bytes]:
    return map(bytes, _pieces(made))


_CHUNKS: dict[int, Callable[[Buffer, int], Iterator[Buffer]]] = {
    NONE: _as_it_is,
    GZIP: _gzip_chunks,
    SNAPPY: _snappy_chunks,
    LZ4: _lz4_chunks,
    ZSTD: _zstd_chunks,
}
