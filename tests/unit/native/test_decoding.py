"""Compiled code and numpy find the same batches and lay out the same records, in hostile bytes, too."""

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from firnline.base.errors import FirnlineError
from firnline.base.units import INT64_MAX
from firnline.protocol.primitives import varint
from firnline.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from firnline.records.build import NewRecord, build_batch
from firnline.spark import frames
from firnline.spark.decoding import native_records, numpy_records
from firnline.spark.decoding.columns import RECORD_BYTES_MIN, Group, needs_numbers, record_batch
from firnline.spark.decoding.varints import Corrupt
from firnline.spark.frames import HEADER_DTYPE, Frames, find_frames_python, first_wrong_crc_python
from firnline.spark.schema import ALL_COLUMNS, TIMESTAMP_MS_MAX, CorruptSegment, Wanted
from tests.unit.native.compiled import Guarded, native, needs_native

pytestmark = [pytest.mark.slow, needs_native]

OWN_CRC = needs_native if native is None else pytest.mark.skipif(
    native.first_wrong_crc(b"", b"", b"", b"") is None,
    reason="NOT RUN: this processor has no instruction for CRC-32C",
)  # fmt: skip
SMALL = st.none() | st.binary(max_size=9) | st.binary(min_size=62, max_size=66)
ROWS = st.lists(
    st.builds(
        NewRecord,
        SMALL,
        SMALL,
        st.integers(-1, 1 << 41),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=4)), max_size=3).map(
            tuple
        ),
    ),
    min_size=1,
    max_size=6,
)
BATCHES = st.lists(
    st.tuples(ROWS, st.booleans(), st.integers(-1, 2), st.integers(0, 2)), min_size=1, max_size=4
)
# How a byte of the records, or a field of a header, becomes another.
DAMAGE = st.lists(
    st.tuples(
        st.sampled_from(("flip", "set", "cut", "grow", "header")),
        st.integers(0, 1 << 10),
        st.sampled_from((0, 1, 3, 0x7F, 0x80, 0xFF)) | st.integers(0, 255),
    ),
    max_size=3,
)
COLUMNS = st.sets(st.sampled_from(ALL_COLUMNS), min_size=1).map(
    lambda names: tuple(name for name in ALL_COLUMNS if name in names)
)


def segment(batches: list[Any]) -> bytes:
    out, offset = bytearray(), 5
    for rows, is_append_time, producer, gap in batches:
        out += build_batch(
            rows,
            base_offset=offset,
            leader_epoch=producer,
            producer_id=producer,
            producer_epoch=1,
            base_sequence=producer,
            is_log_append_time=is_append_time,
        )
        offset += len(rows) + gap
    return bytes(out)


def group_of(data: bytes, damage: list[tuple[str, int, int]] = []) -> Group:  # noqa: B006
    """The batches of a segment as a group, with some of it damaged: bodies, their bounds, or headers."""
    found = find_frames_python(data, "s", 0)
    body, heads = bytearray(data), bytearray(found.heads.tobytes())
    begins, ends = (found.begins + HEADER_BYTES).copy(), found.ends.copy()
    for kind, place, value in damage:
        one = place % len(begins)
        inside = int(begins[one]) + place % max(1, int(ends[one] - begins[one]))
        if kind == "flip":
            body[inside % len(body)] ^= value
        elif kind == "set":
            body[inside % len(body)] = value
        elif kind == "cut":
            ends[one] = max(begins[one], ends[one] - value % 5)
        elif kind == "grow" and begins[one] > HEADER_BYTES:
            begins[one] = max(int(ends[one - 1]), int(begins[one]) - value % 5)
        elif kind == "header":
            heads[one * HEADER_BYTES + 21 + place % (HEADER_BYTES - 21)] = value
    kept = Frames(found.begins, found.ends, np.frombuffer(bytes(heads), dtype=HEADER_DTYPE))
    return Group(bytes(body), begins, ends, kept)


def can_hold(group: Group) -> bool:
    """What the callers of both have checked before."""
    counts = group.frames.column("record_count")
    return (
        bool((counts >= 0).all() and counts.any())
        and not (counts * RECORD_BYTES_MIN > group.ends - group.begins).any()
    )


def laid_out(twin: Any, group: Group, wanted: Wanted) -> Any:
    try:
        rows = twin.read_rows(
            group, wanted.columns, wanted.start_offset, wanted.end_offset,
            numbered=needs_numbers(wanted.columns, group.frames),
        )  # fmt: skip
        if not len(rows.offset):
            return None
        found = record_batch(rows, group.frames, wanted)
    except (Corrupt, IndexError, pa.ArrowInvalid):
        return "corrupt"
    found.validate(full=True)
    return found


def same(group: Group, wanted: Wanted) -> Any:
    found = laid_out(native_records, group, wanted)
    expected = laid_out(numpy_records, group, wanted)
    if isinstance(found, pa.RecordBatch) and isinstance(expected, pa.RecordBatch):
        assert found.equals(expected)
    else:
        assert found == expected
    return found


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=BATCHES,
    damage=DAMAGE,
    columns=COLUMNS | st.just(ALL_COLUMNS),
    low=st.integers(-1, 12) | st.just(-(2**63)),
    size=st.integers(0, 12) | st.just(1 << 40),
)
@example([([NewRecord(None, None)] * 9, False, 0, 0)], [], ALL_COLUMNS, 0, 1 << 40)
def test_both_lay_out_the_same_records_or_refuse_the_same(
    batches: Any, damage: Any, columns: tuple[str, ...], low: int, size: int
) -> None:
    group = group_of(segment(batches), damage)
    if can_hold(group):
        same(group, Wanted("t", 1, columns, start_offset=low, end_offset=low + size))


@settings(max_examples=400, deadline=None)
@given(
    body=st.binary(min_size=7, max_size=80) | st.lists(
        st.sampled_from((0, 1, 2, 3, 12, 14, 16, 0x7F, 0x80, 0xFF)), min_size=7, max_size=60
    ).map(bytes),
    count=st.integers(1, 4),
    delta=st.sampled_from((0, 3, 2**31 - 1, -1)),
    base=st.sampled_from((0, 2**63 - 3)),
    times=st.sampled_from(((0, 0), (2**63 - 1, TIMESTAMP_MS_MAX), (-(2**63), TIMESTAMP_MS_MAX + 1))),
    attributes=st.sampled_from((0, 8)),
    columns=COLUMNS,
)  # fmt: skip
def test_arbitrary_bytes_are_the_same_to_both(
    body: bytes, count: int, delta: int, base: int, times: tuple[int, int], attributes: int,
    columns: tuple[str, ...],
) -> None:  # fmt: skip
    head = np.zeros(1, dtype=HEADER_DTYPE)
    head["record_count"], head["last_offset_delta"], head["base_offset"] = count, delta, base
    head["base_timestamp"], head["max_timestamp"] = times
    head["attributes"] = attributes
    some = np.array([0], dtype=np.int64), np.array([len(body)], dtype=np.int64)
    group = Group(body, *some, Frames(*some, head))
    if can_hold(group):
        same(group, Wanted("t", 1, columns, start_offset=-(2**63), end_offset=INT64_MAX))


REFUSED = {
    "key of length -2": b"\0\0\0" + varint(-2) + varint(-1) + varint(0),
    "value of length -2": b"\0\0\0" + varint(-1) + varint(-2) + varint(0),
    "more headers than bytes": b"\0\0\0" + varint(-1) + varint(-1) + varint(3) + b"\0" * 4,
    "negative number of headers": b"\0\0\0" + varint(-1) + varint(-1) + varint(-1),
    "bytes after the value": b"\0\0\0" + varint(-1) + varint(-1) + varint(0) + b"\0" * 3,
    "bytes after the headers": b"\0\0\0" + varint(-1) + varint(-1) + varint(1) + b"\0" * 4,
    "header without a key": b"\0\0\0" + varint(-1) + varint(-1) + varint(1) + b"\x01\x01",
}


@pytest.mark.parametrize("record", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("columns", [("key",), ("value",), ("headers",), ALL_COLUMNS])
def test_each_refusal_of_numpy_is_one_of_compiled_code(
    record: bytes, columns: tuple[str, ...]
) -> None:
    body = varint(len(record)) + record
    data = bytearray(build_batch([NewRecord(b"k", b"v")])[:HEADER_BYTES]) + body
    struct.pack_into(">i", data, 8, len(data) - LOG_OVERHEAD_BYTES)
    found = same(group_of(bytes(data)), Wanted("t", 0, columns))
    if columns == ALL_COLUMNS:
        assert found == "corrupt"


@pytest.mark.parametrize("count", [7, 8, 9, 64, 1000])
def test_every_null_is_where_it_was(count: int) -> None:
    """Fears a bit of the validity in the wrong byte, and a first or last row that is lost."""
    dice = random.Random(count)
    for nulls in (0.0, 0.5, 1.0):
        rows = [
            NewRecord(
                None if dice.random() < nulls else b"k%d" % n,
                None if dice.random() < nulls else dice.randbytes(dice.choice((0, 1, 200))),
                n,
                () if dice.random() < nulls else (("h", None if dice.random() < nulls else b"v"),),
            )
            for n in range(count)
        ]
        data = bytes(build_batch(rows))
        for low, high in ((0, count), (1, count - 1), (3, 4), (count, count + 1)):
            found = same(group_of(data), Wanted("t", 0, start_offset=low, end_offset=high))
            keys = [] if found is None else found["key"].to_pylist()
            assert keys == [row.key for row in rows[low:high]]


def damaged(data: bytes, how: list[tuple[int, int]], cut: int) -> bytes:
    out = bytearray(data)
    for place, value in how:
        out[place % len(out)] = value
    return bytes(out[: len(out) - cut % len(out)])


def found_by(data: bytes, *, is_native: bool) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        if not is_native:
            patch.setattr(frames, "native", None)
        try:
            found = frames.find_frames(data, source="x.log", position=7)
        except CorruptSegment as problem:
            return str(problem)
        return found.begins.tolist(), found.ends.tolist(), found.heads.tobytes()


@settings(max_examples=400, deadline=None)
@given(
    batches=BATCHES,
    how=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=2),
    cut=st.just(0) | st.integers(0, 200),
)
def test_both_find_the_same_batches_or_say_the_same_of_what_is_none(
    batches: Any, how: list[tuple[int, int]], cut: int
) -> None:
    data = damaged(segment(batches), how, cut)
    assert found_by(data, is_native=True) == found_by(data, is_native=False)


@pytest.mark.parametrize("length", [-(2**31), -12, 0, 48, 49, 2**31 - 1])
def test_lengths_at_their_limits_are_the_same_to_both(length: int) -> None:
    data = bytearray(segment([([NewRecord(b"k", b"v")], False, 0, 0)] * 2))
    struct.pack_into(">i", data, 8, length)
    for size in (16, 17, 60, 61, len(data)):
        told = [found_by(bytes(data[:size]), is_native=each) for each in (True, False)]
        assert told[0] == told[1]


@OWN_CRC
def test_both_name_the_first_batch_with_a_wrong_crc() -> None:
    dice = random.Random(3)
    for size in (0, 1, 1400, 1536, 3000, 5000):
        data = bytearray(segment([([NewRecord(b"k", dice.randbytes(size))], False, 0, 0)] * 4))
        found = find_frames_python(bytes(data), "s", 0)
        args = (found.begins, found.ends, found.heads)
        assert native.first_wrong_crc(bytes(data), *args) == -1
        for number in (3, 1, 0):
            data[int(found.begins[number]) + 21 + dice.randrange(30)] ^= 1 << dice.randrange(8)
            assert native.first_wrong_crc(bytes(data), *args) == number
            assert first_wrong_crc_python(bytes(data), found) == number


def decode_at_the_end(guarded: Guarded, group: Group, size: int, fields: int) -> None:
    """Every argument ends where the process may not read."""
    for name in ("body", "begins", "ends", "heads"):
        whole = {
            "body": bytes(group.body)[:size],
            "begins": np.minimum(group.begins, size).tobytes(),
            "ends": np.minimum(group.ends, size).tobytes(),
            "heads": group.frames.heads.tobytes(),
        }
        whole[name] = guarded.at_the_end(whole[name])
        native.decode_records(*whole.values(), 0, INT64_MAX, fields)


@pytest.mark.parametrize(
    "last",
    [
        NewRecord(b"key", b"v" * 70, 1 << 40, (("h", b"x"), ("i", None))),
        NewRecord(b"key", b"v", 0, (("h", b"x"),)),
        NewRecord(b"k" * 9, None),
        NewRecord(None, None),
    ],
)
def test_nothing_is_read_beyond_the_end(last: NewRecord) -> None:
    """Goal: no byte after a body is looked at. Method: it ends where reading would crash."""
    guarded, dice = Guarded(), random.Random(7)
    data = bytes(build_batch([last] * 3)) + bytes(build_batch([last], base_offset=3))
    group = group_of(data)
    for size in range(len(data) + 1):
        decode_at_the_end(guarded, group, size, 31)
        native.find_batches(guarded.at_the_end(data[:size]))
    for place in range(HEADER_BYTES, len(data)):
        for byte in (0x80, 0xFE, 0xFF, 0x7E, 0x20, 0x03):
            body = bytearray(data)
            body[place] = byte
            broken = group._replace(body=bytes(body))
            for fields in (31, dice.choice((0, 1, 3, 7))):
                decode_at_the_end(guarded, broken, len(data), fields)
            native.find_batches(guarded.at_the_end(bytes(body)))
    found = group.frames
    for size in range(len(data)):
        with pytest.raises(ValueError, match="outside the data"):
            native.first_wrong_crc(
                guarded.at_the_end(data[:size]), found.begins, found.ends, found.heads
            )


def test_arguments_that_do_not_fit_one_another_are_refused() -> None:
    """Fears a caller's mistake that reads or writes outside: each is an error, and not a crash."""
    group = group_of(bytes(build_batch([NewRecord(b"k", b"v")] * 3)) * 2)
    heads = group.frames.heads
    backwards = group.begins[::-1].copy()
    for begins, ends, some in (
        (group.begins[:1], group.ends, heads),
        (group.begins, group.ends, heads[:1]),
        (group.begins - 1000, group.ends, heads),
        (group.begins, group.ends + 1, heads),
        (backwards, group.ends, heads),
        (group.begins, group.ends, heads.tobytes()[:-1]),
    ):
        with pytest.raises(ValueError, match="one after another"):
            native.decode_records(group.body, begins, ends, some, 0, 9, 31)
    with pytest.raises(TypeError):
        native.decode_records(group.body, group.begins, group.ends, heads, 0, 9)
    with pytest.raises(TypeError):
        native.first_wrong_crc(group.body)
    if native.first_wrong_crc(b"", b"", b"", b"") is not None:
        with pytest.raises(ValueError, match="a header for each"):
            native.first_wrong_crc(group.body, group.begins, group.ends, heads[:1])


def test_a_batch_that_states_more_records_than_it_can_hold_costs_no_memory() -> None:
    group = group_of(bytes(build_batch([NewRecord(b"k", b"v")])))
    heads = group.frames.heads.copy()
    heads["record_count"] = 2**31 - 1
    args = (group.body, group.begins, group.ends, heads, 0, 9, 31)
    assert native.decode_records(*args) is None


def test_a_key_of_a_header_may_have_any_length_its_record_has() -> None:
    """A varint of more than one byte in each place where one can be."""
    for size in (0, 63, 64, 127, 128, 8191, 8192, 9000):
        rows = [NewRecord(b"k" * size, b"v" * size, 5, (("h" * size, b"x" * size),))] * 3
        found = same(group_of(bytes(build_batch(rows))), Wanted("t", 0, ALL_COLUMNS))
        assert found["headers"].to_pylist()[2] == [{"key": "h" * size, "value": b"x" * size}]


def test_what_is_longer_than_five_bytes_is_no_length() -> None:
    """Fears the bits above the thirty-second: they may not be dropped before the length is compared."""
    one = b"\0\0\0" + b"\x82\x80\x80\x80\x10" + b"k" + varint(-1) + varint(0)
    data = bytearray(build_batch([NewRecord(b"k" * len(one), None)]))
    body = varint(len(one)) + one
    data[HEADER_BYTES:] = body
    struct.pack_into(">i", data, 8, len(data) - LOG_OVERHEAD_BYTES)
    assert same(group_of(bytes(data)), Wanted("t", 0, ALL_COLUMNS)) == "corrupt"
    assert issubclass(CorruptSegment, FirnlineError)
