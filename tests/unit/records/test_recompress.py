"""A batch in another codec is the same batch to everybody, and what is no batch is refused."""

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnline.base.errors import Code, KafkaError
from firnline.base.limits import DECOMPRESSED_BATCH_BYTES_MAX
from firnline.base.native import native
from firnline.base.units import INT64_MAX, MIB
from firnline.records.batch import HEADER_BYTES, crc_is_right, parse_header
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from firnline.records.fast_path import renumber, survey
from firnline.records.recompress import Target, recompress
from firnline.records.record import Record, encode_records, records
from firnline.records.validate import BatchLimits
from tests.compat.compression_cases import CASES, REPORTED, made

LIMITS = BatchLimits(MIB)
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
NOW_MS = 1_700_000_000_000


def changed(data: bytes | bytearray, codec: int, limits: BatchLimits = LIMITS) -> bytearray:
    found = recompress(data, Target(codec), limits, NOW_MS)
    assert not isinstance(found, KafkaError), found
    return found


def refused(data: bytes | bytearray, codec: int = ZSTD, limits: BatchLimits = LIMITS) -> KafkaError:
    found = recompress(data, Target(codec), limits, NOW_MS)
    assert isinstance(found, KafkaError)
    return found


def rows_of(data: bytearray) -> list[Record]:
    header = parse_header(data)
    assert header.size_bytes == len(data)
    assert crc_is_right(data, header)
    return list(records(data, header))


texts = st.none() | st.binary(max_size=40)
new_records = st.builds(
    NewRecord,
    texts,
    texts,
    st.integers(-1, INT64_MAX),
    st.lists(st.tuples(st.text(max_size=5), texts), max_size=3).map(tuple),
)


@given(
    st.lists(new_records, min_size=1, max_size=20),
    st.sampled_from(CODECS),
    st.sampled_from(CODECS),
    st.booleans(),
    st.tuples(st.integers(0, INT64_MAX), st.integers(0, 32_767), st.integers(0, 2**31 - 1)),
)
def test_a_batch_in_another_codec_has_the_same_records_and_the_same_producer(
    rows: list[NewRecord],
    codec: int,
    wanted: int,
    is_transactional: bool,
    producer: tuple[int, int, int],
) -> None:
    data = build_batch(
        rows,
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        is_transactional=is_transactional,
    )
    before = bytes(data)
    found = changed(data, wanted)
    assert bytes(data) == before
    assert rows_of(found) == rows_of(data)
    header, was = parse_header(found), parse_header(data)
    assert header.codec == wanted
    assert header == was._replace(
        batch_length=header.batch_length, crc=header.crc, attributes=header.attributes
    )
    assert header.is_transactional == is_transactional
    assert recompress(found, Target(codec), LIMITS, NOW_MS) == changed(found, codec)


# ---------------------------------------------------------------------------- what a body may cost

TINY = bytes((12, 0, 0, 0, 1, 1, 0))  # no key, no value, and the offset of the record before it
MANY = 300_000
needs_c = pytest.mark.skipif(native is None, reason="NOT RUN: it is about the compiled code")


def body_of_tiny_records(count: int) -> bytes:
    """With enough of noise in the first one that the header's count is believed."""
    noise = random.Random(1).randbytes(8_000)
    return encode_records([(0, None, noise, ())]) + TINY * (count - 1)


@needs_c
def test_records_that_nobody_has_numbered_cost_next_to_nothing() -> None:
    """As Python objects 1.2 million of them, sent as 34 KB, took 10 s of a thread and 230 MB."""
    body = body_of_tiny_records(MANY)
    data = made(compress(GZIP, body), codec=GZIP, record_count=MANY, last_offset_delta=MANY - 1)
    assert len(data) < 30_000
    before = time.thread_time()
    found = changed(data, ZSTD)
    assert time.thread_time() - before < 0.5
    assert survey(decompress(ZSTD, found[HEADER_BYTES:]), MANY) == (0, 0, False, True)


def test_times_that_go_around_stay_what_they_were() -> None:
    deltas = (5, INT64_MAX, -INT64_MAX, -1)
    body = encode_records((delta, b"k", None, ()) for delta in deltas)
    data = made(body, record_count=4, last_offset_delta=3, base_timestamp=NOW_MS)
    found = changed(data, ZSTD)
    assert rows_of(found) == rows_of(bytearray(data))
    assert parse_header(found).max_timestamp == max(row.timestamp_ms for row in rows_of(found))


def test_timestamps_from_both_ends_of_time_are_built_and_read_again() -> None:
    """Their difference needs 65 bits: the batch that was built could not be read."""
    rows = [NewRecord(b"k", b"v", time) for time in (-1, INT64_MAX, -INT64_MAX - 1, 0)]
    batch = build_batch(rows)
    assert [row.timestamp_ms for row in rows_of(batch)] == [row.timestamp_ms for row in rows]
    assert rows_of(changed(batch, ZSTD)) == rows_of(batch)


def test_what_grows_when_it_is_numbered_is_opened_no_further_than_anything_else() -> None:
    body = TINY * 1_000
    data = made(body, record_count=1_000, last_offset_delta=999)
    for most, is_refused in ((len(body), True), (2 * len(body), False)):
        found = recompress(data, Target(ZSTD), LIMITS, NOW_MS, opened_bytes_max=most)
        assert isinstance(found, KafkaError) == is_refused


@pytest.fixture
def patient_threads() -> Iterator[None]:
    """Threads have the interpreter until they let go of it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    yield
    sys.setswitchinterval(before)


@needs_c
@pytest.mark.usefixtures("patient_threads")
@pytest.mark.parametrize("walk", ["survey", "renumber"])
def test_a_thread_that_walks_a_large_body_does_not_keep_the_loop_waiting(walk: str) -> None:
    """It kept it for 70 ms for 32 MiB, whatever the interval at which threads take turns."""
    count = 1_000_000
    body = TINY * count
    calls: dict[str, Callable[[], object]] = {
        "survey": lambda: survey(body, count),
        "renumber": lambda: renumber(body, count, 0, 1 << 30),
    }
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        calls[walk]()
        ended.set()

    were_at_work = []
    for _ in range(5):
        begun.clear()
        ended.clear()
        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        were_at_work.append(not ended.is_set())
        thread.join()
    assert any(were_at_work)


@given(st.integers(0, len(CASES) - 1), st.data())
def test_no_bytes_make_it_raise(index: int, source: st.DataObject) -> None:
    data = bytearray(CASES[index].batch)
    at = source.draw(st.integers(HEADER_BYTES, len(data)))
    body = bytes(data[at:]) + source.draw(st.binary(max_size=8))
    count = source.draw(st.integers(-1, 2**31 - 1) | st.integers(1, 9))
    codec = source.draw(st.integers(0, 4))
    harmed = made(body, codec=codec, record_count=count, last_offset_delta=count - 1)
    found = recompress(harmed, Target(ZSTD), LIMITS, NOW_MS)
    assert isinstance(found, KafkaError) or len(rows_of(found)) == count


@pytest.mark.parametrize("case", [case for case in CASES if case.topic == "to-zstd"])
def test_what_kafka_refuses_is_refused(case: object) -> None:
    """What it stores, and that ours is the same on the wire: tests/compat/test_compression_type.py."""
    found = recompress(case.batch, Target(ZSTD), LIMITS, NOW_MS)  # type: ignore[attr-defined]
    is_refused = REPORTED[case.name].isupper()  # type: ignore[attr-defined]
    assert isinstance(found, KafkaError) == is_refused


def test_a_bomb_is_opened_no_further_than_may_be_stored() -> None:
    bomb = compress(GZIP, bytes(1_000))
    data = made(bomb, codec=GZIP)
    said = recompress(data, Target(ZSTD), LIMITS, NOW_MS, opened_bytes_max=999)
    assert isinstance(said, KafkaError)
    assert said.code == Code.INVALID_RECORD
    assert said.__traceback__ is None
    huge = made(compress(GZIP, bytes(DECOMPRESSED_BATCH_BYTES_MAX + 1)), codec=GZIP)
    assert refused(huge).code == Code.INVALID_RECORD
    assert refused(huge, NONE).code == Code.MESSAGE_TOO_LARGE


def test_it_may_be_too_large_before_and_after() -> None:
    row = NewRecord(b"k", b"x" * 3_000, NOW_MS)
    small = BatchLimits(1_000)
    assert refused(build_batch([row]), ZSTD, small).code == Code.MESSAGE_TOO_LARGE
    assert refused(build_batch([row], codec=ZSTD), NONE, small).code == Code.MESSAGE_TOO_LARGE
    assert len(changed(build_batch([row], codec=ZSTD), GZIP, small)) < 1_000
    # A codec may make it larger than it was.
    noise = NewRecord(None, bytes(range(256)), NOW_MS)
    plain = build_batch([noise])
    said = recompress(plain, Target(GZIP), BatchLimits(len(plain)), NOW_MS)
    assert isinstance(said, KafkaError)
    assert said.code == Code.MESSAGE_TOO_LARGE


def test_a_compacted_topic_takes_no_record_without_a_key_in_any_codec() -> None:
    rows = [NewRecord(b"k", b"v", NOW_MS), NewRecord(None, b"v", NOW_MS)]
    compacted = LIMITS._replace(is_compacted=True)
    for codec in CODECS:
        data = build_batch(rows, codec=codec)
        assert refused(data, ZSTD, compacted).code == Code.INVALID_RECORD
        changed(build_batch(rows[:1], codec=codec), ZSTD, compacted)


@pytest.mark.parametrize(
    ("codec", "levels"), [(GZIP, (1, 9)), (LZ4, (1, 17)), (ZSTD, (-131_072, 22))]
)
def test_levels_are_those_that_kafka_takes_and_make_a_difference(
    codec: int, levels: tuple[int, int]
) -> None:
    body = encode_records((n, b"%d" % (n * n), b"%d" % n * 9, ()) for n in range(2_000))
    quick, slow = (compress(codec, body, level) for level in levels)
    assert len(slow) < len(quick)
    assert decompress(codec, quick) == decompress(codec, slow) == body
