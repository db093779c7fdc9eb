"""Bodies are opened a piece at a time, whatever is in them, so that whoever opens one holds nobody up."""

import random
import struct

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.errors import Code, KafkaError
from firnline.base.units import KIB, MIB
from firnline.records.compression import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
    decompress_in_chunks,
)

NOISE = random.Random(3).randbytes(MIB)
# What clients send is between these two: half of it can be compressed, so no block ends where a piece ends.
DIGITS = random.Random(4).randbytes(MIB).hex().encode()
BODIES = {
    "zeros": bytes(3 * MIB),
    "noise": NOISE,
    "both": NOISE + bytes(MIB + 1),
    "digits": DIGITS,
    "nothing": b"",
}


def xerial(body: bytes) -> bytes:
    """Snappy as Java's clients frame it, in blocks of 32 KiB."""
    blocks = [
        bytes(cramjam.snappy.compress_raw(body[at : at + 32 * KIB]))
        for at in range(0, len(body), 32 * KIB)
    ]
    packed = b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + packed


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("what", BODIES)
def test_no_piece_is_large_and_together_they_are_the_body(codec: int, what: str) -> None:
    """A library that makes a body at once copies it: 145 ms for 100 MiB, in which nobody else goes on."""
    body = BODIES[what]
    forms = [compress(codec, body)] + [xerial(body)] * (codec == SNAPPY)
    for packed in forms:
        assert decompress(codec, memoryview(packed)) == body
        pieces = list(decompress_in_chunks(codec, packed))
        assert b"".join(pieces) == body
        assert max(map(len, pieces), default=0) <= 256 * KIB


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("what", ["zeros", "noise", "both", "digits"])
def test_a_body_that_ends_early_is_corrupt(codec: int, what: str) -> None:
    packed = compress(codec, BODIES[what])
    for size in (len(packed) - 1, len(packed) // 2, 1):
        with pytest.raises(KafkaError) as raised:
            decompress(codec, packed[:size])
        assert raised.value.code == Code.CORRUPT_MESSAGE


@given(
    size=st.integers(0, 3 * MIB),
    noise_percent=st.integers(0, 100),
    block_size=st.sampled_from([0, 4, 5, 6, 7]),  # the default, 64 KiB, 256 KiB, 1 MiB, 4 MiB
    is_linked=st.booleans(),
    has_checksums=st.booleans(),
)
def test_every_lz4_body_that_a_client_may_write_is_opened(
    size: int, noise_percent: int, block_size: int, is_linked: bool, has_checksums: bool
) -> None:
    noise = size * noise_percent // 100
    body = (NOISE * 3)[:noise] + DIGITS[: size - noise]
    packed = lz4.frame.compress(
        body,
        block_size=block_size,
        block_linked=is_linked,
        content_checksum=has_checksums,
        block_checksum=has_checksums,
        store_size=False,
    )
    assert decompress(LZ4, packed) == body


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_body_is_opened_to_its_bound_and_no_further(codec: int) -> None:
    for body in BODIES.values():
        packed = compress(codec, body)
        assert decompress(codec, packed, limit_bytes=len(body)) == body
        for limit in {0, len(body) // 2, len(body) - 1} - {-1, len(body)}:
            pieces = decompress_in_chunks(codec, packed, limit_bytes=limit)
            opened: list[int] = []
            with pytest.raises(KafkaError) as raised:
                opened.extend(map(len, pieces))
            assert raised.value.code == Code.INVALID_RECORD
            assert sum(opened) <= limit
