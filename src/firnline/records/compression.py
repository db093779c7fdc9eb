"""Kafka's codecs, with a bound on what they may open to. PURE.

Ids: 0 none, 1 gzip, 2 snappy (raw, or Java's xerial framing), 3 lz4 (frame), 4 zstd. A mebibyte
of zstd can open to 32 GiB, so no codec is read past `limit_bytes` (reliability d 39-41).
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
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_CHUNK_BYTES = MIB
_SMALL_CHUNK_BYTES = 256 * KIB


def decompress(
    codec: int, body: Buffer, *, limit_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> bytes:
    """Return the records of a batch body as one byte string.

    Raises KafkaError CORRUPT_MESSAGE for a body that is not of this codec, INVALID_RECORD when it
    opens to more than `limit_bytes`.
    """
    if codec == NONE:
        return bytes(body)
    opener = _OPENERS.get(codec)
    if opener is None:
        raise KafkaError(Code.CORRUPT_MESSAGE, "unknown compression codec", codec=codec)
    try:
        return opener(body, limit_bytes)
    except KafkaError:
        raise
    except Exception as problem:  # noqa: BLE001 - each library has errors of its own
        raise KafkaError(
            Code.CORRUPT_MESSAGE, "undecodable batch body", codec=NAMES[codec], problem=problem
        ) from None


def decompress_in_chunks(
    codec: int, body: Buffer, *, limit_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> Iterator[Buffer]:
    """As `decompress`, a piece at a time, each about a millisecond of work; snappy comes block by block."""
    total = 0
    try:
        for chunk in _CHUNKS.get(codec, _at_once)(codec, body, limit_bytes):
            total += len(chunk)
            if total > limit_bytes:
                raise _too_big(limit_bytes)
            yield chunk
    except KafkaError:
        raise
    except Exception as problem:  # noqa: BLE001 - each library has errors of its own
        raise KafkaError(
            Code.CORRUPT_MESSAGE, "undecodable batch body", codec=NAMES[codec], problem=problem
        ) from None


def _at_once(codec: int, body: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    yield body if codec == NONE else decompress(codec, body, limit_bytes=limit_bytes)


def _gzip_chunks(codec: int, body: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    opener = zlib.decompressobj(31)
    left: Buffer = body
    while not opener.eof:
        chunk = opener.decompress(left, _SMALL_CHUNK_BYTES)
        left = opener.unconsumed_tail
        if not chunk and not left and not opener.eof:
            raise KafkaError(Code.CORRUPT_MESSAGE, "gzip body ends early")
        yield chunk


def _lz4_chunks(codec: int, body: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    opener = lz4.frame.LZ4FrameDecompressor()
    left: Buffer = body
    while not opener.eof:
        chunk = opener.decompress(left, max_length=_SMALL_CHUNK_BYTES)
        left = b""
        if not chunk and not opener.eof:
            raise KafkaError(Code.CORRUPT_MESSAGE, "lz4 body ends early")
        yield chunk


def _zstd_chunks(codec: int, body: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    opener = zstandard.ZstdDecompressor(max_window_size=128 * MIB)
    reader = opener.stream_reader(io.BytesIO(body))
    while chunk := reader.read(_SMALL_CHUNK_BYTES):
        yield chunk


# Where nobody asks for another level. That of lz4 means its fast method, as in Kafka; others, the slow one.
USUAL_LEVELS = {GZIP: -1, LZ4: 9, ZSTD: 3}


def compress(codec: int, body: bytes, level: int | None = None) -> bytes:
    """Compress a batch body as a producer would; `level` None is each codec's usual one."""
    if level is None:
        level = USUAL_LEVELS.get(codec, 0)
    if codec == NONE:
        return body
    if codec == GZIP:
        return gzip.compress(body, level, mtime=0)
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(body))
    if codec == LZ4:
        method = 0 if level == USUAL_LEVELS[LZ4] else level
        return bytes(
            lz4.frame.compress(body, compression_level=method, block_linked=False, store_size=False)
        )
    assert codec == ZSTD, codec
    return zstandard.ZstdCompressor(level=level).compress(body)


def _too_big(limit_bytes: int) -> KafkaError:
    return KafkaError(Code.INVALID_RECORD, "a batch opens to too many bytes", limit=limit_bytes)


def _drain(read: Callable[[int], bytes], limit_bytes: int) -> bytes:
    chunks, total = [], 0
    while chunk := read(_CHUNK_BYTES):
        total += len(chunk)
        if total > limit_bytes:
            raise _too_big(limit_bytes)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _gunzip(body: Buffer, limit_bytes: int) -> bytes:
    opener = zlib.decompressobj(31)
    out = opener.decompress(body, limit_bytes + 1)
    if len(out) > limit_bytes:
        raise _too_big(limit_bytes)
    if not opener.eof:
        raise KafkaError(Code.CORRUPT_MESSAGE, "gzip body ends early")
    return out


def _unlz4(body: Buffer, limit_bytes: int) -> bytes:
    opener = lz4.frame.LZ4FrameDecompressor()
    out: bytes = opener.decompress(body, max_length=limit_bytes + 1)
    if len(out) > limit_bytes:
        raise _too_big(limit_bytes)
    if not opener.eof:
        raise KafkaError(Code.CORRUPT_MESSAGE, "lz4 body ends early")
    return out


def _unzstd(body: Buffer, limit_bytes: int) -> bytes:
    reader = zstandard.ZstdDecompressor(max_window_size=128 * MIB).stream_reader(io.BytesIO(body))
    return _drain(reader.read, limit_bytes)


def _unsnappy(body: Buffer, limit_bytes: int) -> bytes:
    data = memoryview(body)
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _unsnappy_raw(data, limit_bytes)
    position, out = 16, bytearray()  # magic, version, compatible version
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if size < 0 or size > len(data) - position:
            raise KafkaError(Code.CORRUPT_MESSAGE, "snappy block exceeds the body", size=size)
        out += _unsnappy_raw(data[position : position + size], limit_bytes - len(out))
        position += size
    return bytes(out)


def _unsnappy_raw(block: memoryview, limit_bytes: int) -> bytes:
    # A raw snappy block states its size first, as a varint: look before allocating.
    if cramjam.snappy.decompress_raw_len(block) > limit_bytes:
        raise _too_big(limit_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


_OPENERS: dict[int, Callable[[Buffer, int], bytes]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}

_CHUNKS: dict[int, Callable[[int, Buffer, int], Iterator[Buffer]]] = {
    GZIP: _gzip_chunks,
    LZ4: _lz4_chunks,
    ZSTD: _zstd_chunks,
}
