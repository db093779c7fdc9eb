"""Decompress batch bodies for the bulk decoder. SPARK.

Same results and limits as `records.compression`, whose functions cost 10 to 20 us a call. Here codec objects
are reused, and a body that cannot exceed the limit is decompressed without checking it.
"""

import struct
import threading

import lz4.frame
import zstandard

from firnline.base.limits import DECOMPRESSED_BATCH_BYTES_MAX
from firnline.base.ports import Buffer
from firnline.base.units import KIB, MIB
from firnline.records.compression import LZ4, ZSTD, decompress

_LZ4_RATIO_MAX = 255  # the highest compression ratio of lz4
_LZ4_MAGIC = 0x184D2204
_LZ4_HAS_SIZE = 0x08
_LZ4_START = struct.Struct("<IB")
_ZSTD_GUESS = 16


class _Contexts(threading.local):
    """A zstd context serves one thread at a time."""

    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor(max_window_size=128 * MIB)


_contexts = _Contexts()


def open_body(codec: int, body: Buffer) -> Buffer:
    """Decompress a batch body; return an uncompressed one as it is. Errors as in `decompress`."""
    if codec == 0:
        return body
    opened: Buffer | None = None
    if codec == ZSTD:
        opened = _open_zstd(body)
    elif codec == LZ4:
        opened = _open_lz4(body)
    return decompress(codec, body) if opened is None else opened


def _open_zstd(body: Buffer) -> Buffer | None:
    """Decompress in one call if the size is stated, or guessed right; None: use the limited decoder."""
    try:
        size = zstandard.get_frame_parameters(body).content_size
        if size == zstandard.CONTENTSIZE_UNKNOWN:
            # Java's encoder streams, so it does not state the size.
            guess = min(DECOMPRESSED_BATCH_BYTES_MAX, 64 * KIB + len(body) * _ZSTD_GUESS)
            return _contexts.zstd.decompress(body, max_output_size=guess)
        if size <= DECOMPRESSED_BATCH_BYTES_MAX:
            return _contexts.zstd.decompress(body)
    except zstandard.ZstdError:
        pass
    return None


def _open_lz4(body: Buffer) -> Buffer | None:
    """Decompress without a limit if the body cannot exceed it; else None.

    The library allocates the stated content size before it decompresses, so the size is never trusted.
    """
    if len(body) < _LZ4_START.size or len(body) * _LZ4_RATIO_MAX > DECOMPRESSED_BATCH_BYTES_MAX:
        return None
    magic, flags = _LZ4_START.unpack_from(body)
    if magic != _LZ4_MAGIC or flags & _LZ4_HAS_SIZE:
        return None
    try:
        opened: bytes = lz4.frame.decompress(body)
    except RuntimeError:
        return None
    return opened
