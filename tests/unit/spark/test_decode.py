"""The bulk decoders against their plain twin: equal tables for what is right, an error for what is not.

`table` decodes with compiled code, if it is there, and with numpy, and finds that both do the same.
"""

import re
import struct
from collections.abc import Callable

import lz4.frame
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firnline.base.errors import FirnlineError, KafkaError
from firnline.formats.transaction_index import AbortedTxn
from firnline.protocol.primitives import varint
from firnline.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    parse_header,
)
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from firnline.spark import decode, decode_python
from firnline.spark.bodies import open_body
from firnline.spark.decoding import starts
from firnline.spark.schema import (
    ALL_COLUMNS,
    COLUMNS,
    NUMPY,
    CorruptSegment,
    OpenTxn,
    Wanted,
    arrow_schema,
)
from tests.raw_batches import SHOWN_BY_JAVA, raw_batch, record_with_header_keys

pytestmark = pytest.mark.slow

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
ALL = Wanted("flights", 3, ALL_COLUMNS)


def decoded(data: bytes, wanted: Wanted) -> pa.Table:
    return pa.Table.from_batches(decode.decode(data, wanted), arrow_schema(wanted.columns))


def table(data: bytes, wanted: Wanted) -> pa.Table:
    """Raises what the first of them raises, and so does the second."""
    by_numpy = wanted._replace(decoder=NUMPY)
    try:
        found = decoded(data, wanted)
    except CorruptSegment as problem:
        with pytest.raises(CorruptSegment, match=re.escape(str(problem))):
            decoded(data, by_numpy)
        raise
    try:
        other = decoded(data, by_numpy)
    except CorruptSegment:
        raise AssertionError("numpy refuses what compiled code takes") from None
    assert found.equals(other)
    assert [len(each) for each in found.to_batches()] == [len(each) for each in other.to_batches()]
    return found


def twin_table(data: bytes, wanted: Wanted) -> pa.Table:
    return pa.Table.from_batches(decode_python.decode(data, wanted), arrow_schema(wanted.columns))


def both(data: bytes, wanted: Wanted) -> pa.Table:
    found = table(data, wanted)
    found.validate(full=True)
    assert found.equals(twin_table(data, wanted))
    return found


def with_right_crc(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def batch_of_body(body: bytes, *, records: int, codec: int = NONE, last_delta: int = -1) -> bytes:
    """A batch with the CRC right whatever the body says."""
    packed = compress(codec, body)
    batch = bytearray(HEADER_BYTES) + packed
    delta = records - 1 if last_delta < 0 else last_delta
    HEADER.pack_into(
        batch, 0, 100, len(batch) - LOG_OVERHEAD_BYTES, 1, 2, 0, codec, delta,
        1_700_000_000_000, 1_700_000_000_000, -1, -1, -1, records,
    )  # fmt: skip
    return bytes(with_right_crc(batch))


small_bytes = st.none() | st.binary(max_size=12) | st.binary(min_size=60, max_size=70)
header_lists = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=6)), max_size=4
).map(tuple)
new_records = st.builds(
    NewRecord,
    key=small_bytes,
    value=small_bytes,
    timestamp_ms=st.integers(-1, 2**41) | st.just(1_700_000_000_000),
    headers=st.just(()) | header_lists,
)


def with_time(batch: bytes, time_ms: int) -> bytes:
    """Return a batch whose first record has this time."""
    data = bytearray(batch)
    data[27:35] = data[35:43] = struct.pack(">q", time_ms)
    return bytes(with_right_crc(data))


@st.composite
def segments(draw: st.DrawFn) -> bytes:
    """Some batches of any codec and kind, with gaps in offsets, as compaction and aborts leave them."""
    out, offset = bytearray(), draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 6))):
        rows = draw(st.lists(new_records, min_size=1, max_size=draw(st.sampled_from((2, 12)))))
        out += build_batch(
            rows,
            base_offset=offset,
            leader_epoch=draw(st.integers(-1, 3)),
            codec=draw(st.sampled_from(CODECS)),
            producer_id=draw(st.integers(-1, 2)),
            producer_epoch=draw(st.integers(-1, 3)),
            base_sequence=draw(st.integers(-1, 3) | st.integers(2**31 - 5, 2**31 - 1)),
            is_transactional=draw(st.booleans()),
            is_control=draw(st.sampled_from((False, False, False, True))),
            is_log_append_time=draw(st.booleans()),
        )
        offset += len(rows) + draw(st.integers(0, 3))
    return bytes(out)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=segments(),
    columns=st.permutations(ALL_COLUMNS).flatmap(
        lambda names: st.integers(1, 8).map(lambda count: tuple(names[:count]))
    ),
    chunk_bytes=st.sampled_from((1, 100, 1 << 21)),
    lanes=st.sampled_from((0, 1 << 30)),
    cut=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    aborted=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 40)), max_size=2
    ),
    unfinished=st.lists(st.tuples(st.integers(0, 40), st.none() | st.integers(0, 2)), max_size=2),
    keeps_aborted=st.booleans(),
)
def test_both_decoders_give_the_same_table(
    data: bytes,
    columns: tuple[str, ...],
    chunk_bytes: int,
    lanes: int,
    cut: tuple[int, int],
    aborted: list[tuple[int, int, int]],
    unfinished: list[tuple[int, int | None]],
    keeps_aborted: bool,
) -> None:
    """Goal: numpy sees what the plain decoder sees. Method: random segments, both walks, all columns."""
    base = parse_header(data).base_offset
    wanted = Wanted(
        "flights", 3, columns,
        start_offset=base + cut[0] - 5,
        end_offset=base + cut[0] + cut[1],
        aborted=tuple(AbortedTxn(p, base + a, base + b) for p, a, b in aborted),
        unfinished=tuple(OpenTxn(base + first, producer) for first, producer in unfinished),
        keeps_aborted=keeps_aborted,
        segment_id="an-id",
        chunk_bytes=chunk_bytes,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "LOCKSTEP_LANES_MIN", lanes)
        both(data, wanted)


def outcome(
    decoder: Callable[[bytes, Wanted], pa.Table], data: bytes, wanted: Wanted
) -> pa.Table | None:
    try:
        return decoder(data, wanted)
    except CorruptSegment:
        return None


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=segments(), spot=st.floats(0, 1), byte=st.integers(0, 255), lanes=st.sampled_from((0, 99))
)
def test_a_flipped_byte_under_a_right_crc_is_an_error_in_both_or_in_none(
    data: bytes, spot: float, byte: int, lanes: int
) -> None:
    """Goal: a corrupt length never crashes, hangs or passes in one decoder alone.
    Method: change one byte of a body, make the CRC right again, compare outcomes."""
    batch = bytearray(data[: parse_header(data).size_bytes])
    at = HEADER_BYTES + int(spot * (len(batch) - HEADER_BYTES - 1))
    batch[at] = byte
    broken = bytes(with_right_crc(batch)) + data[len(batch) :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "LOCKSTEP_LANES_MIN", lanes)
        found, expected = outcome(table, broken, ALL), outcome(twin_table, broken, ALL)
        outcome(table, broken, ALL._replace(columns=COLUMNS))
    assert (found is None) == (expected is None)
    if found is not None:
        assert found.equals(expected)


def test_what_a_wrong_length_leaves_at_the_end_is_refused_by_both() -> None:
    """A batch whose length became too short leaves bytes behind it that look like half a batch."""
    good = batch_of_body(good_record(), records=1)
    half = bytearray(batch_of_body(good_record() * 9, records=9)[:-1])
    assert outcome(table, good + bytes(half), ALL) is not None
    half[MAGIC_POSITION] = 1
    for data in (good + bytes(half), bytes(half)):
        assert outcome(table, data, ALL) is None
        assert outcome(twin_table, data, ALL) is None


@settings(max_examples=200, deadline=None)
@given(data=segments(), spot=st.floats(0, 1), byte=st.integers(0, 255))
def test_any_flipped_byte_raises_or_reads_but_never_crashes(
    data: bytes, spot: float, byte: int
) -> None:
    broken = bytearray(data)
    broken[int(spot * (len(broken) - 1))] = byte
    for wanted in (ALL, ALL._replace(verify_crc=False)):
        found = outcome(table, bytes(broken), wanted)
        expected = outcome(twin_table, bytes(broken), wanted)
        assert (found is None) == (expected is None)
        if found is not None:
            assert found.equals(expected)


def good_record(key: bytes = b"k") -> bytes:
    one = b"\0" + varint(0) + varint(0) + varint(len(key)) + key + varint(-1) + varint(0)
    return varint(len(one)) + one


BROKEN_BODIES = {
    "length past the end": varint(500) + b"\0" * 20,
    "negative length": varint(-5) + b"\0" * 20,
    "length of five continuation bytes": b"\xff" * 5 + b"\x01" + b"\0" * 20,
    "length above 32 bits": b"\xff\xff\xff\xff\x7f" + b"\0" * 20,
    "key longer than the record": varint(8) + b"\0\0\0" + varint(70) + b"\0" * 4 + b"\0" * 90,
    "key of length -2": varint(8) + b"\0\0\0" + varint(-2) + b"\0" * 4,
    "header count past the record": varint(7) + b"\0\0\0" + b"\x01\x01" + varint(60) + b"\0" * 1,
    "negative header count": varint(6) + b"\0\0\0" + b"\x01\x01" + varint(-1),
    "header without a key": varint(8) + b"\0\0\0" + b"\x01\x01" + varint(1) + b"\x01\x01",
    "record shorter than its length": varint(9) + b"\0\0\0\x01\x01\0" + b"\0" * 3,
    "bytes after the last record": good_record() + b"\0" * 9,
    "an offset beyond the batch": varint(6) + b"\0\0" + varint(9) + b"\x01\x01\0",
    "an offset before the batch": varint(6) + b"\0\0" + varint(-1) + b"\x01\x01\0",
    "a timestamp in the year 300000": varint(14) + b"\0" + varint(2**60) + b"\0\x01\x01\0",
    "a timestamp of 65 bits": varint(15) + b"\0" + b"\x80" * 9 + b"\x02" + b"\0\x01\x01\0",
    "a timestamp of eleven bytes": varint(16) + b"\0" + b"\x80" * 10 + b"\x01" + b"\0\x01\x01\0",
    "a negative length of the right size": bytes([2 * 6 + 1]) + b"\0\0\0\x01\x01\0",
    "headers shorter than the record": varint(12)
    + b"\0\0\0\x01\x01"
    + varint(1)
    + b"\x02a\x01"
    + b"\0" * 3,
    "nothing at all": b"",
}


@pytest.mark.parametrize("body", BROKEN_BODIES.values(), ids=BROKEN_BODIES.keys())
@pytest.mark.parametrize("codec", [NONE, LZ4])
@pytest.mark.parametrize("lanes", [0, 99])
def test_a_broken_record_names_segment_and_offset_in_both_decoders(
    body: bytes, codec: int, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "LOCKSTEP_LANES_MIN", lanes)
    data = batch_of_body(body, records=1, codec=codec)
    wanted = ALL._replace(source="data/x.log")
    for decoder in (table, twin_table):
        with pytest.raises(CorruptSegment) as caught:
            decoder(data, wanted)
        assert "segment=data/x.log" in str(caught.value)
        assert "offset=100" in str(caught.value)


@pytest.mark.parametrize("body", BROKEN_BODIES.values(), ids=BROKEN_BODIES.keys())
@pytest.mark.parametrize("columns", [("key",), ("value",), ("offset",)])
def test_fewer_columns_never_read_outside_a_record(body: bytes, columns: tuple[str, ...]) -> None:
    """What is not asked for is not checked, but what is read must be whole, or an error."""
    found = outcome(table, batch_of_body(body, records=1), Wanted("t", 0, columns))
    if found is not None:
        found.validate(full=True)


@pytest.mark.parametrize("name", ["key of length -2", "key longer than the record"])
def test_a_key_alone_is_held_against_its_record(name: str) -> None:
    with pytest.raises(CorruptSegment, match="offset=100"):
        table(batch_of_body(BROKEN_BODIES[name], records=1), Wanted("t", 0, ("key",)))


EXTRA = ("leaderEpoch", "producerId", "producerEpoch", "sequence", "segmentId", "readFrom")


def test_extra_columns_are_those_of_the_batch_and_null_where_it_has_none() -> None:
    """Fears -1 for "none", which an aggregate would take for a number, and a sequence that overflows."""
    rows = [NewRecord(None, b"v", 5)] * 3
    plain = build_batch(rows[:1], base_offset=10)
    numbered = build_batch(
        rows, base_offset=20, leader_epoch=7, producer_id=4, producer_epoch=2,
        base_sequence=2**31 - 2,
    )  # fmt: skip
    wanted = Wanted("t", 0, EXTRA, start_offset=10, segment_id="s")
    found = [tuple(row.values()) for row in both(bytes(plain + numbered), wanted).to_pylist()]
    assert found == [
        (None, None, None, None, "s", "tier"),
        (7, 4, 2, 2**31 - 2, "s", "tier"),
        (7, 4, 2, 2**31 - 1, "s", "tier"),
        (7, 4, 2, 0, "s", "tier"),
    ]


def test_the_state_of_a_transaction_is_told_and_aborted_records_are_kept_on_request() -> None:
    kinds = {1: True, 2: True, 3: True, 4: False}
    data = b"".join(
        build_batch([NewRecord(None, b"v", 5)], base_offset=o, producer_id=o, is_transactional=kind)
        for o, kind in kinds.items()
    )
    wanted = Wanted(
        "t", 0, ("offset", "transaction"), aborted=(AbortedTxn(2, 0, 5),),
        unfinished=(OpenTxn(3, 3), OpenTxn(4, 1)), keeps_aborted=True,
    )  # fmt: skip
    states = ["committed", "aborted", "open", None]
    assert both(data, wanted)["transaction"].to_pylist() == states
    assert both(data, wanted._replace(keeps_aborted=False))["offset"].to_pylist() == [1, 3, 4]
    unknown = wanted._replace(unfinished=(OpenTxn(3),))
    assert both(data, unknown)["transaction"].to_pylist() == states


def test_header_keys_that_are_not_utf8_are_shown_as_java_shows_them() -> None:
    """Each expected text is what `new String(bytes, UTF_8)` gave on Java 17."""
    data = bytes(raw_batch(record_with_header_keys(tuple(SHOWN_BY_JAVA), b"v")))
    for wanted in (ALL, ALL._replace(columns=("headers",))):
        (headers,) = both(data, wanted)["headers"].to_pylist()
        assert [h["key"] for h in headers] == list(SHOWN_BY_JAVA.values())


def test_a_batch_that_claims_two_billion_records_costs_no_memory() -> None:
    data = batch_of_body(good_record(), records=2**31 - 1)
    with pytest.raises(CorruptSegment):
        table(data, ALL)


def test_a_wrong_crc_is_an_error_unless_nobody_checks() -> None:
    batch = build_batch([NewRecord(b"k", b"v", 5)], base_offset=7)
    batch[-2] ^= 1
    for decoder in (table, twin_table):
        with pytest.raises(CorruptSegment, match=r"wrong CRC.*offset=7"):
            decoder(bytes(batch), ALL)
    assert both(bytes(batch), ALL._replace(verify_crc=False)).num_rows == 1


def test_a_batch_outside_the_wanted_offsets_is_not_even_looked_into() -> None:
    outside = build_batch([NewRecord(b"k", b"v", 5)], base_offset=7)
    outside[-2] ^= 1
    inside = build_batch([NewRecord(b"k", b"v", 5)], base_offset=8)
    wanted = ALL._replace(start_offset=8)
    assert both(bytes(outside + inside), wanted)["offset"].to_pylist() == [8]


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_message_formats_are_refused_with_their_magic(magic: int) -> None:
    first = build_batch([NewRecord(b"k", b"v", 5)], base_offset=7)
    other = build_batch([NewRecord(b"k", b"v", 5)], base_offset=8)
    other[16] = magic
    with pytest.raises(CorruptSegment, match=f"offset=8.*magic={magic}"):
        table(bytes(first + other), ALL)


def test_an_old_message_shorter_than_our_header_is_refused_as_old() -> None:
    old = struct.pack(">qiIbb", 12, 14, 0, 1, 0) + b"\0" * 40
    with pytest.raises(CorruptSegment, match="formats 0 and 1"):
        table(bytes(old), ALL)


def test_a_batch_shorter_than_its_header_is_an_error_with_its_place() -> None:
    batch = build_batch([NewRecord(b"k", b"v", 5)], base_offset=7)
    struct.pack_into(">i", batch, 8, 20)
    with pytest.raises(CorruptSegment, match=r"shorter than its header.*offset=7"):
        table(bytes(batch), ALL)


def test_a_partial_batch_at_the_end_is_left_out() -> None:
    one = build_batch([NewRecord(b"k", b"v", 5)], base_offset=7)
    two = build_batch([NewRecord(b"k", b"v", 5)], base_offset=8)
    for cut in (1, 30, len(two) - 1):
        assert both(bytes(one + two[:cut]), ALL)["offset"].to_pylist() == [7]


def test_an_emptied_batch_gives_no_rows_and_no_error() -> None:
    empty = batch_of_body(b"", records=0, last_delta=4)
    full = build_batch([NewRecord(b"k", b"v", 5)], base_offset=105)
    assert both(bytes(empty), ALL).num_rows == 0
    assert both(bytes(empty + full + empty), ALL)["offset"].to_pylist() == [105]


def test_control_batches_are_not_records() -> None:
    data = build_batch([NewRecord(b"k", b"v", 5)], base_offset=0) + build_batch(
        [NewRecord(b"\0\0\0\1", b"\0" * 6, 5)], base_offset=1, is_control=True
    )
    assert both(bytes(data), ALL)["offset"].to_pylist() == [0]


def test_an_aborted_transaction_takes_only_its_own_batches_with_it() -> None:
    """Goal: drop what was aborted, nothing else. Method: two producers interleaved, then the first
    again after its marker, then a batch of its that is in no transaction."""

    def one(offset: int, producer_id: int, is_transactional: bool = True) -> bytearray:
        return build_batch(
            [NewRecord(b"k", b"v", 5)],
            base_offset=offset,
            producer_id=producer_id,
            is_transactional=is_transactional,
        )

    data = bytes(one(10, 1) + one(11, 2) + one(12, 1) + one(14, 1) + one(11, 1, False))
    wanted = ALL._replace(aborted=(AbortedTxn(1, 10, 13),))
    assert both(data, wanted)["offset"].to_pylist() == [11, 14, 11]


@pytest.mark.parametrize("time_ms", [2**62, 1_700_000_000_000_000_000, -(2**62)])
@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_time_that_spark_does_not_have_costs_nothing_but_its_column(
    time_ms: int, codec: int
) -> None:
    """Fears one producer that writes nanoseconds: no other column of the topic could be read."""
    data = with_time(batch_of_body(good_record(), records=1, codec=codec), time_ms)
    for columns in (("key", "offset", "timestampType"), ("offset", "sequence", "headers")):
        assert table(data, Wanted("flights", 3, columns))["offset"].to_pylist() == [100]
    with pytest.raises(CorruptSegment, match=f"out of range.*{time_ms} remedy=.*other columns"):
        table(data, Wanted("flights", 3, ("offset", "timestamp")))


def test_log_append_time_is_the_batch_s_time() -> None:
    data = build_batch(
        [NewRecord(b"k", b"v", 5), NewRecord(b"k", b"v", 9)], is_log_append_time=True
    )
    found = both(bytes(data), ALL)
    assert found["timestampType"].to_pylist() == [1, 1]
    assert {t.timestamp() for t in found["timestamp"].to_pylist()} == {0.009}


def test_null_empty_and_absent_are_three_things() -> None:
    data = build_batch(
        [
            NewRecord(None, b"", 5, (("a", None), ("", b""))),
            NewRecord(b"", None, 5),
            NewRecord(b"k", b"v", -1),
        ]
    )
    found = both(bytes(data), ALL)
    assert found["key"].to_pylist() == [None, b"", b"k"]
    assert found["value"].to_pylist() == [b"", None, b"v"]
    assert found["headers"].to_pylist() == [
        [{"key": "a", "value": None}, {"key": "", "value": b""}], None, None,
    ]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("batches", "records"), [(1, 30_000), (400, 60), (3, 4_000)])
def test_big_batches_and_many_batches_read_the_same(codec: int, batches: int, records: int) -> None:
    """Goal: the shapes that choose the walk and fill several chunks. Method: values of 0..300 bytes,
    some records above the 8 KiB that two length bytes can say."""
    out = bytearray()
    for i in range(batches):
        rows = [
            NewRecord(
                b"%d" % n, bytes([n & 255]) * (9_000 if n % 997 == 0 else n % 300), 10**12 + n
            )
            for n in range(records)
        ]
        out += build_batch(rows, base_offset=i * records, codec=codec)
    found = both(bytes(out), Wanted("t", 0))
    assert found["offset"].to_pylist() == list(range(batches * records))


def test_yielded_batches_do_not_change_when_the_window_is_reused() -> None:
    window = build_batch([NewRecord(b"key", b"value" * 100, 5)], base_offset=1)
    (batch,) = decode.decode(window, ALL)
    before = batch.to_pylist()
    window[:] = bytes(len(window))
    assert batch.to_pylist() == before


def test_chunks_are_as_big_as_asked() -> None:
    data = b"".join(
        build_batch([NewRecord(None, b"x" * 1000, 5)] * 10, base_offset=10 * i) for i in range(200)
    )
    sizes = [b.num_rows for b in decode.decode(data, Wanted("t", 0, chunk_bytes=500_000))]
    assert sum(sizes) == 2000
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) <= 20


def test_a_bomb_is_refused_within_the_bound() -> None:
    """A batch body that opens to more than the limit is an error with the offset, for each codec."""
    body = bytes(129 * 1024 * 1024)
    for codec in (GZIP, LZ4, ZSTD, SNAPPY):
        with pytest.raises(CorruptSegment, match=r"too many bytes.*|undecodable"):
            table(batch_of_body(body, records=1, codec=codec), ALL)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_body_that_is_not_of_its_codec_is_an_error_with_its_place(codec: int) -> None:
    """A job that fails says where: nobody skips records in silence."""
    poison = raw_batch(b"this is no compressed data", codec=codec, base_offset=70)
    with pytest.raises(CorruptSegment, match="offset=70"):
        table(bytes(poison), ALL)


def test_no_codec_opens_past_the_bound() -> None:
    body = bytes(129 * 1024 * 1024)
    for codec in (LZ4, ZSTD):
        with pytest.raises(KafkaError, match="too many bytes"):
            open_body(codec, compress(codec, body))


def test_an_lz4_frame_that_announces_a_tebibyte_is_not_believed() -> None:
    """The announced size is allocated before anything is opened: an error, not a MemoryError."""
    packer = lz4.frame.LZ4FrameCompressor()
    frame = packer.begin(source_size=1 << 40) + packer.compress(b"x" * 100)
    with pytest.raises(KafkaError):
        open_body(LZ4, frame)


def test_a_record_batch_error_is_ours() -> None:
    assert issubclass(CorruptSegment, FirnlineError)
