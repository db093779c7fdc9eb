"""Columns that the headers of batches state: the same rows as from the records, and no body is opened."""

import struct
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from firnline.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from firnline.spark import decode, decode_python
from firnline.spark.decoding import header_rows
from firnline.spark.schema import ALL_COLUMNS, CorruptSegment, Wanted, arrow_schema

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
OF_HEADERS = tuple(
    name for name in ALL_COLUMNS if name not in ("key", "value", "headers", "timestamp")
)
OFFSET = Wanted("t", 0, ("offset",))


def batch(base: int, count: int, **kinds: Any) -> bytes:
    rows = [NewRecord(b"k", b"value", 1000 + base % 1000 + n) for n in range(count)]
    return bytes(build_batch(rows, base_offset=base, **kinds))


def with_field(data: bytes, place: int, form: str, value: int) -> bytes:
    """The batch with another header, and the CRC that it has then."""
    out = bytearray(data)
    struct.pack_into(form, out, place, value)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def with_body(data: bytes, body: bytes) -> bytes:
    """The batch with another body, and length and CRC of that."""
    length = HEADER_BYTES + len(body) - LOG_OVERHEAD_BYTES
    return with_field(data[:HEADER_BYTES] + body, 8, ">i", length)


def table(data: bytes, wanted: Wanted) -> pa.Table:
    return pa.Table.from_batches(decode.decode(data, wanted), arrow_schema(wanted.columns))


def offsets(data: bytes, wanted: Wanted = OFFSET) -> list[int]:
    return table(data, wanted)["offset"].to_pylist()  # type: ignore[no-any-return]


@settings(max_examples=200, deadline=None)
@given(
    batches=st.lists(
        st.tuples(
            st.integers(1, 5), st.sampled_from(CODECS), st.booleans(), st.integers(-1, 2),
            st.integers(0, 3), st.booleans(),
        ), min_size=1, max_size=5,
    ),
    columns=st.sets(st.sampled_from((*OF_HEADERS, "timestamp")), min_size=1).map(sorted).map(tuple),
    low=st.integers(0, 20),
    size=st.integers(0, 20),
    rows_max=st.sampled_from((1, 3, 1 << 16)),
)  # fmt: skip
def test_headers_give_the_rows_that_the_records_give(
    batches: Any, columns: tuple[str, ...], low: int, size: int, rows_max: int
) -> None:
    data, offset = b"", 0
    for count, codec, is_append_time, producer, gap, is_transactional in batches:
        data += batch(
            offset, count, codec=codec, is_log_append_time=is_append_time, producer_id=producer,
            producer_epoch=2, base_sequence=producer, leader_epoch=producer,
            is_transactional=is_transactional,
        )  # fmt: skip
        offset += count + gap
    wanted = Wanted("t", 1, columns, start_offset=low, end_offset=low + size, segment_id="s")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(header_rows, "ROWS_MAX", rows_max)
        found = table(data, wanted)
        assert all(len(each) > 0 for each in found.to_batches())
    expected = pa.Table.from_batches(
        decode_python.decode(data, wanted), arrow_schema(wanted.columns)
    )
    found.validate(full=True)
    assert found.equals(expected)


@pytest.mark.parametrize("columns", [OF_HEADERS, ("offset",), ("partition", "topic")])
def test_no_body_is_opened_if_the_headers_say_all(
    columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"".join(batch(n * 2, 2, codec=codec) for n, codec in enumerate(CODECS))
    monkeypatch.setattr(decode, "open_body", None)
    monkeypatch.setattr(decode, "_decode_group", None)
    assert table(data, Wanted("t", 0, columns)).num_rows == 10
    with pytest.raises(TypeError):
        table(data, Wanted("t", 0, (*columns, "key")))


def test_a_time_is_that_of_the_records_unless_the_leader_gave_it() -> None:
    """Fears the time of the batch for all of its records."""
    wanted = Wanted("t", 0, ("timestamp",))
    data = batch(0, 3) + batch(3, 2, is_log_append_time=True) + batch(5, 2)
    times = table(data, wanted)["timestamp"].cast("int64").to_pylist()
    assert [micros // 1000 for micros in times] == [1000, 1001, 1002, 1004, 1004, 1005, 1006]


@pytest.mark.parametrize("time_ms", [2**63 - 1, -(2**63)])
def test_a_time_out_of_range_is_an_error_as_ever(time_ms: int) -> None:
    data = with_field(batch(0, 3, is_log_append_time=True), 35, ">q", time_ms)
    with pytest.raises(CorruptSegment, match="timestamp out of range"):
        table(data, Wanted("t", 0, ("timestamp",)))


def test_a_batch_with_fewer_records_than_offsets_is_opened() -> None:
    """What a compaction leaves: only the records know which offsets they have."""
    data = batch(0, 3)
    left = with_field(data, 23, ">i", 9)  # the last offset is 9
    assert offsets(left + batch(10, 1)) == [0, 1, 2, 10]


def test_what_the_records_say_of_themselves_is_not_looked_at() -> None:
    """Stated in docs/SPARK.md: a column is checked if it is selected. The CRC is checked in any case."""
    data = with_body(batch(0, 3), b"no records are here, but room for three of them")
    assert offsets(data) == [0, 1, 2]
    for columns in (("key",), ("offset", "timestamp"), ("offset", "value")):
        with pytest.raises(CorruptSegment, match="offset=0"):
            table(data, OFFSET._replace(columns=columns))
    flipped = bytearray(data)
    flipped[-1] ^= 1
    with pytest.raises(CorruptSegment, match="wrong CRC"):
        offsets(bytes(flipped))


@pytest.mark.parametrize("codec", CODECS)
def test_a_header_that_states_more_records_than_there_is_room_for_is_not_believed(
    codec: int,
) -> None:
    """Fears two billion rows of nothing from a few bytes with a right CRC."""
    data = batch(0, 3, codec=codec)
    for count in (2**31 - 1, 100_000):
        lie = with_field(with_field(data, 57, ">i", count), 23, ">i", count - 1)
        with pytest.raises(CorruptSegment, match="offset=0"):
            offsets(lie)


def test_an_empty_batch_has_no_rows_and_the_last_offset_there_is_is_no_overflow() -> None:
    last = batch(2**63 - 3, 3)  # one offset more than the exclusive end of a range can be
    assert offsets(last) == [2**63 - 3, 2**63 - 2]
    empty = with_field(batch(0, 1)[:HEADER_BYTES], 57, ">i", 0)
    empty = with_field(empty, 8, ">i", HEADER_BYTES - LOG_OVERHEAD_BYTES)
    assert offsets(empty + batch(1, 1)) == [1]


def test_rows_come_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_rows, "ROWS_MAX", 4)
    data = batch(0, 3) + batch(3, 6) + batch(9, 1)
    assert [len(each) for each in decode.decode(data, OFFSET)] == [4, 4, 2]
    assert offsets(data) == list(range(10))
    two = OFFSET._replace(columns=("offset", "leaderEpoch"))
    assert [len(each) for each in decode.decode(data, two)] == [4, 4, 2]
