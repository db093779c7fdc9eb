"""The first record of a time in a batch: the one that decoding all of them finds, in small steps."""

import tracemalloc
from random import Random

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.units import MIB
from firnline.records.batch import parse_header
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import compress
from firnline.records.record import encode_records, records
from firnline.records.times import first_at_time, first_at_time_steps
from tests.raw_batches import misplaced_batch, raw_batch

CODECS = range(5)
BASE_MS = 1_000_000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_one_that_decoding_all_of_them_finds(codec: int, seed: int) -> None:
    """Records longer than what is opened at once, empty ones, times that go back, and headers."""
    random = Random(seed)
    sizes = [0, 1, 100, 9_000, 300_000, 700_000]
    rows = [
        NewRecord(
            random.choice([None, b"", b"k" * 70]),
            random.randbytes(random.choice(sizes) // 2) * 2,
            BASE_MS + random.randrange(-50, 50),
            ((("h", None), ("i", b"x"))) * random.randrange(3),
        )
        for _ in range(random.choice([1, 3, 40]))
    ]
    data = bytes(build_batch(rows, base_offset=70, codec=codec))
    header = parse_header(data)
    decoded = list(records(data, header))
    for time_ms in (0, BASE_MS - 50, BASE_MS, BASE_MS + 20, BASE_MS + 49, BASE_MS + 50):
        for start_offset in (0, 70, 72, 75, 90, 200):
            expected = next(
                (
                    (each.offset, each.timestamp_ms)
                    for each in decoded
                    if each.timestamp_ms >= time_ms and each.offset >= start_offset
                ),
                None,
            )
            assert first_at_time(data, header, time_ms, start_offset) == expected


@pytest.mark.parametrize("codec", CODECS)
def test_a_mebibyte_of_records_holds_nobody_up_and_is_not_kept_in_memory(codec: int) -> None:
    """A million in 763 KB of zstd were decoded in one go: seconds, for 30 bytes of request."""
    count = 40_000
    body = compress(codec, encode_records((0, None, b"x" * 200, ()) for _ in range(count)))
    data = bytes(raw_batch(body, codec=codec, count=count))
    steps = first_at_time_steps(data, parse_header(data), 0, count - 1)
    tracemalloc.start()
    taken, found = 0, None
    while found is None:
        try:
            next(steps)
            taken += 1
        except StopIteration as done:
            found = done.value
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == (count - 1, 1)
    assert taken >= count // 500 - 1
    if codec in (1, 3, 4):  # snappy is one block, and what is not compressed is there already
        assert peak_bytes < 4 * MIB


@pytest.mark.parametrize("codec", CODECS)
def test_few_records_are_one_step(codec: int) -> None:
    data = bytes(build_batch([NewRecord(b"k", b"v", BASE_MS)] * 100, codec=codec))
    with pytest.raises(StopIteration):
        next(first_at_time_steps(data, parse_header(data), 0, 99))


@pytest.mark.parametrize(
    "batch",
    [
        *(raw_batch(b"this is no compressed data", codec=codec) for codec in range(1, 8)),
        *(raw_batch(compress(codec, b"x" * 30)[:-9], codec=codec) for codec in range(1, 5)),
        raw_batch(b""),
        raw_batch(b"\x80" * 20),
        raw_batch(bytes(30)),
        raw_batch(b"\x01" + bytes(30)),
        raw_batch(b"\xfe\x7f" + bytes(30)),
        misplaced_batch(1),
        misplaced_batch(-1),
    ],
    ids=lambda batch: bytes(batch[61:75]).hex() + f"-{batch[22]}",
)
def test_what_is_no_batch_is_reported_in_one_way(batch: bytearray) -> None:
    data = bytes(batch)
    with pytest.raises(KafkaError) as found:
        first_at_time(data, parse_header(data), 2, 0)
    assert found.value.code == Code.UNKNOWN_SERVER_ERROR


def test_a_bomb_is_opened_no_further_than_any_batch() -> None:
    body = compress(4, b"\xfe\xff\xff\xff\x0f" + bytes(130 * MIB))
    data = bytes(raw_batch(body, codec=4, count=2))
    with pytest.raises(KafkaError, match="too many bytes"):
        first_at_time(data, parse_header(data), 2, 0)
