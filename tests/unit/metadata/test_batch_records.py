"""Records decoded in place are the records; what is odd or damaged is judged as everywhere else."""

import random
from typing import Any

import pytest

from firnline.base.errors import KafkaError, ProtocolError
from firnline.metadata import records as r
from firnline.metadata.batch_records import batch_records
from firnline.protocol.schema import Message
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from firnline.records.record import records
from tests.metadata_stories import Life


def batch_of(values: list[bytes], **options: Any) -> bytes:
    rows = [NewRecord(None, value, 1_000 + 90 * n) for n, value in enumerate(values)]
    return bytes(build_batch(rows, base_offset=70_000, leader_epoch=3, **options))


def found(data: bytes, at_most: int = 7) -> list[tuple[int, Message]]:
    (header,) = headers(data)
    steps = list(batch_records(data, header, at_most=at_most))
    assert all(0 < len(step) <= at_most for step in steps)
    return [pair for step in steps for pair in step]


def checked(data: bytes) -> list[tuple[int, Message]]:
    """What the code that looks at every byte finds."""
    (header,) = headers(data)
    return [(row.offset, r.decode(row.value or b"")) for row in records(data, header)]


@pytest.mark.parametrize("seed", range(10))
def test_what_is_decoded_in_place_is_what_is_there(seed: int) -> None:
    values = [value for values in Life(seed).write(300).encoded() for value in values]
    data = batch_of(values)
    assert found(data) == checked(data)
    assert found(data, at_most=10**6) == checked(data)


def test_no_record_as_usual_takes_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes several times as long: a start, and a new leader's first step, would too."""
    values = [r.encode(r.NoOpRecord(), 0)]
    for size in (20, 50, 60, 70, 200, 8_000, 9_000, 20_000):
        record = r.ConfigRecord(resource_type=2, resource_name="t", name="k", value="v" * size)
        values.append(r.encode(record, 0))
    data = batch_of(values)
    expected = checked(data)
    monkeypatch.setattr("firnline.metadata.batch_records._checked_records", None)
    assert found(data) == expected


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_every_codec_is_read(codec: int) -> None:
    """Q49: others may write them."""
    values = [value for values in Life(1).write(50).encoded() for value in values]
    data = batch_of(values, codec=codec)
    assert found(data) == checked(batch_of(values))


def test_a_record_with_a_key_or_headers_is_read_the_long_way() -> None:
    value = r.encode(r.NoOpRecord(), 0)
    rows = [
        NewRecord(None, value, 1),
        NewRecord(b"key", value, 1),
        NewRecord(None, value, 1, (("name", b"x"),)),
    ]
    data = bytes(build_batch(rows, base_offset=5, leader_epoch=1))
    assert found(data) == [(5, r.NoOpRecord()), (6, r.NoOpRecord()), (7, r.NoOpRecord())]


def test_an_unknown_type_after_known_ones_is_an_error_in_its_place() -> None:
    values = [r.encode(r.NoOpRecord(), 0), b"\x01\x7f\x00"]
    (header,) = headers(data := batch_of(values))
    steps = batch_records(data, header, at_most=1)
    assert next(steps) == [(70_000, r.NoOpRecord())]
    with pytest.raises(ProtocolError, match="unknown record type"):
        next(steps)


@pytest.mark.parametrize("value", [b"", b"\x01", b"\x00\x14\x00\x00", b"\x01\x14\x09\x00"])
def test_a_frame_that_is_none_is_an_error(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        found(batch_of([r.encode(r.NoOpRecord(), 0), value]))


@pytest.mark.parametrize("seed", range(200))
def test_any_flipped_byte_gives_what_the_long_way_gives(seed: int) -> None:
    """The CRC finds it before; should it not, both ways must agree on what they read."""
    dice = random.Random(seed)
    values = [value for values in Life(seed % 7).write(30).encoded() for value in values]
    data = bytearray(batch_of(values))
    data[dice.randrange(61, len(data))] ^= 1 << dice.randrange(8)
    outcomes = []
    for way in (found, checked):
        try:
            # Offsets are counted where it is possible, and not read.
            outcomes.append(repr([message for _, message in way(bytes(data))]))
        except (KafkaError, ProtocolError) as problem:
            outcomes.append(type(problem).__name__)
    assert outcomes[0] == outcomes[1]
