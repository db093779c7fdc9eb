"""What a leader takes from a client, byte by byte; tests/compat/test_log_with_kafka.py asks Kafka."""

from typing import Any

import pytest

from firnline.base.errors import Code, KafkaError
from firnline.base.units import INT64_MAX
from firnline.records import validate
from firnline.records.batch import BatchHeader
from firnline.records.validate import (
    BatchLimits,
    check_batches,
)
from tests.worlds.log import NOW, batch, check_client_batch, patched

OPEN = BatchLimits(10_000, INT64_MAX, 3_600_000)


def code(data: bytes | bytearray, limits: BatchLimits = OPEN) -> Code:
    found = check_client_batch(data, limits, NOW)
    return found.code if isinstance(found, KafkaError) else Code.NONE


def fixed(kind: str, position: int, value: int) -> bytearray:
    return patched(batch("a", "b"), kind, position, value)


def cases(now: int, leeway_ms: int = 0) -> list[tuple[str, bytes | bytearray, Code]]:
    """Return (name, what a producer sends at `now`, the code it is answered with)."""

    def made(*values: str, **more: Any) -> bytearray:
        return batch(*values, **({"time_ms": now} | more))

    def raw(kind: str, position: int, value: int) -> bytearray:
        return patched(made("a", "b"), kind, position, value, fix_crc=False)

    def fixed(kind: str, position: int, value: int) -> bytearray:
        return patched(made("a", "b"), kind, position, value)

    size = len(made("a", "b"))
    return [
        ("good", made("a", "b"), Code.NONE),
        ("wrong CRC", raw(">I", 17, 5), Code.CORRUPT_MESSAGE),
        ("base offset", made("a", base_offset=7), Code.INVALID_RECORD),
        ("longer than sent", raw(">i", 8, size - 12 + 1), Code.INVALID_RECORD),
        ("one byte short", raw(">i", 8, size - 12 - 1), Code.CORRUPT_MESSAGE),
        ("length 5", raw(">i", 8, 5), Code.CORRUPT_MESSAGE),
        ("length 20", raw(">i", 8, 20), Code.CORRUPT_MESSAGE),
        ("length 48", raw(">i", 8, 48), Code.CORRUPT_MESSAGE),
        ("length -1", raw(">i", 8, -1), Code.CORRUPT_MESSAGE),
        ("length -2^31", raw(">i", 8, -(2**31)), Code.CORRUPT_MESSAGE),
        ("length 2^31-1", raw(">i", 8, 2**31 - 1), Code.INVALID_RECORD),
        ("magic 0", raw(">b", 16, 0), Code.INVALID_RECORD),
        ("magic 1", raw(">b", 16, 1), Code.INVALID_RECORD),
        ("magic 3", raw(">b", 16, 3), Code.CORRUPT_MESSAGE),
        ("magic 127", raw(">b", 16, 127), Code.CORRUPT_MESSAGE),
        ("magic -1", raw(">b", 16, -1), Code.CORRUPT_MESSAGE),
        ("count -1", fixed(">i", 57, -1), Code.INVALID_RECORD),
        ("count 0", fixed(">i", 57, 0), Code.INVALID_RECORD),
        ("count 1", fixed(">i", 57, 1), Code.INVALID_RECORD),
        ("count 3", fixed(">i", 57, 3), Code.INVALID_RECORD),
        ("delta -1", fixed(">i", 23, -1), Code.INVALID_RECORD),
        ("delta -1, count 0", patched(fixed(">i", 23, -1), ">i", 57, 0), Code.INVALID_RECORD),
        ("delta 5", fixed(">i", 23, 5), Code.INVALID_RECORD),
        ("two batches", made("a") + made("b"), Code.INVALID_RECORD),
        ("a few bytes after it", made("a") + b"12345", Code.NONE),
        ("part of a batch after it", made("a") + made("b")[:40], Code.NONE),
        ("zeros after it", made("a") + bytes(15), Code.CORRUPT_MESSAGE),
        ("a wrong magic after it", made("a") + raw(">b", 16, 9)[:30], Code.CORRUPT_MESSAGE),
        ("nothing", b"", Code.INVALID_RECORD),
        ("11 bytes", bytes(11), Code.INVALID_RECORD),
        ("30 bytes", made("a")[:30], Code.INVALID_RECORD),
        ("30 zeros", bytes(30), Code.CORRUPT_MESSAGE),
        ("61 bytes", made("a")[:61], Code.INVALID_RECORD),
        ("control", made("a", is_control=True), Code.INVALID_RECORD),
        ("codec 5", fixed(">h", 21, 5), Code.INVALID_RECORD),
        ("codec 7", fixed(">h", 21, 7), Code.INVALID_RECORD),
        ("unused attribute bits", fixed(">h", 21, 0x100), Code.NONE),
        ("delete horizon", fixed(">h", 21, 0x40), Code.NONE),
        ("log append time", fixed(">h", 21, 0x08), Code.NONE),
        ("producer without sequence", made("a", pid=7, seq=-1), Code.INVALID_RECORD),
        ("producer id -5", fixed(">q", 43, -5), Code.NONE),
        ("one hour ahead", made("a", time_ms=now + 3_600_000), Code.NONE),
        (
            "more than one hour ahead",
            made("a", time_ms=now + 3_600_001 + leeway_ms),
            Code.INVALID_TIMESTAMP,
        ),
        ("year 292 million", made("a", time_ms=2**62), Code.INVALID_TIMESTAMP),
        ("no timestamp", made("a", time_ms=-1), Code.NONE),
        ("before 1970", made("a", time_ms=-5), Code.NONE),
        ("a max timestamp that lies", fixed(">q", 35, now + 2**50), Code.INVALID_TIMESTAMP),
        ("too large", made("x" * 10_000), Code.MESSAGE_TOO_LARGE),
    ]


CASES = cases(NOW)


@pytest.mark.parametrize(
    ("data", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_what_is_taken_and_what_is_refused(data: bytes, expected: Code) -> None:
    """Reliability d 31-36, 43, 44."""
    assert code(data) == expected


def test_the_largest_batch_is_taken_and_one_byte_more_is_not() -> None:
    data = batch("x" * 100)
    assert code(data, BatchLimits(len(data))) == Code.NONE
    assert code(data, BatchLimits(len(data) - 1)) == Code.MESSAGE_TOO_LARGE


def test_old_times_are_refused_where_a_topic_says_so() -> None:
    limits = OPEN._replace(before_max_ms=1000)
    assert code(batch("a", time_ms=NOW - 1000), limits) == Code.NONE
    assert code(batch("a", time_ms=NOW - 1001), limits) == Code.INVALID_TIMESTAMP
    assert code(batch("a", time_ms=-1), limits) == Code.NONE, "no timestamp is not an old one"


def test_the_log_gives_the_time_where_a_topic_says_so() -> None:
    limits = OPEN._replace(is_log_append_time=True)
    assert code(batch("a", time_ms=NOW + 10**9), limits) == Code.NONE
    assert code(fixed(">h", 21, 0x08), limits) == Code.INVALID_TIMESTAMP


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    limits = OPEN._replace(is_compacted=True)
    for codec in range(5):
        assert code(batch("a", "b", codec=codec), limits) == Code.NONE
        assert code(batch("a", "b", key=None, codec=codec), limits) == Code.INVALID_RECORD


def test_a_compressed_body_that_cannot_be_read_is_seen_where_it_is_looked_into() -> None:
    """Reliability d 42; elsewhere the body is opaque."""
    data = fixed(">h", 21, 1)
    assert code(data) == Code.NONE
    assert code(data, OPEN._replace(is_compacted=True)) == Code.CORRUPT_MESSAGE


def test_a_count_that_the_bytes_cannot_hold_is_refused() -> None:
    """A batch of 69 bytes that claims 2^31 - 1 records would use up that many offsets (reliability d 33)."""
    for codec, counts in ((0, (5, 2**31 - 1)), (1, (1_000_000, 2**31 - 1)), (4, (2**31 - 1,))):
        for count in counts:
            data = batch("ab", codec=codec)
            lying = patched(data, ">i", 23, count - 1)
            assert code(patched(lying, ">i", 57, count)) == Code.INVALID_RECORD, (codec, count)


def test_a_refusal_holds_nothing_of_what_it_refused() -> None:
    """It waits as a value; with a traceback it would keep the opened body in memory."""
    bad = check_client_batch(fixed(">h", 21, 1), OPEN._replace(is_compacted=True), NOW)
    assert isinstance(bad, KafkaError)
    assert bad.__traceback__ is None
    assert bad.__context__ is None
    assert not bad.facts


def test_a_bomb_is_not_opened_further_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reliability d 39-41."""
    monkeypatch.setattr("firnline.records.validate.KEYED_BATCH_BYTES_MAX", 1000)
    limits = BatchLimits(10_000, is_compacted=True)
    for codec in (1, 2, 3, 4):
        assert code(batch("0" * 50_000, codec=codec), limits) == Code.INVALID_RECORD


def test_every_single_bit_flip_is_refused_or_harmless() -> None:
    """Reliability d 28: no flip may crash, and none under the CRC may pass."""
    good = bytes(batch("abc", pid=7, seq=3))
    for bit in range(len(good) * 8):
        data = bytearray(good)
        data[bit // 8] ^= 1 << (bit % 8)
        outside_crc = 12 <= bit // 8 < 16  # the leader epoch, which the leader overwrites
        assert (code(data) == Code.NONE) == outside_crc, bit


def test_every_truncation_is_refused() -> None:
    good = bytes(batch("abc", "def"))
    assert all(code(good[:size]) != Code.NONE for size in range(len(good)))


def test_the_header_of_a_good_batch_is_returned() -> None:
    found = check_client_batch(batch("a", "b", pid=7, seq=5), OPEN, NOW)
    assert isinstance(found, BatchHeader)
    assert (found.producer_id, found.base_sequence, found.last_sequence) == (7, 5, 6)


def test_batches_of_a_leader_are_complete_and_have_the_right_crc() -> None:
    two = batch("a") + batch("b", base_offset=1)
    found = check_batches(two)
    assert isinstance(found, list)
    assert [header.base_offset for header in found] == [0, 1]
    assert len(check_batches(two + two[:30])) == 2  # type: ignore[arg-type]
    damaged = bytearray(two)
    damaged[-1] ^= 1
    for bad, expected in ((damaged, 2), (b"", 87), (bytes(70), 2), (batch("a")[:-1], 87)):
        problem = check_batches(bad)
        assert isinstance(problem, KafkaError)
        assert problem.code == expected
    large = check_batches(two, BatchLimits(20))
    assert isinstance(large, KafkaError)
    assert large.code == Code.MESSAGE_TOO_LARGE


def test_what_is_too_large_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk through 90 MiB of small records that nobody may send held the loop for 256 ms."""

    def checks(*_: Any) -> None:
        raise AssertionError("it is looked into")

    for name in ("common_batch", "right_body", "crc32c"):
        monkeypatch.setattr(validate, name, checks)
    small = BatchLimits(100)
    assert code(batch("a" * 200), small) == Code.MESSAGE_TOO_LARGE
    with pytest.raises(AssertionError):
        code(batch("a"), small)
