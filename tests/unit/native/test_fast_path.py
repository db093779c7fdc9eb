"""Compiled code and its twins in Python say the same of the same bytes, whatever they are."""

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firnline.api.fast_path import common_request_python
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest
from firnline.protocol.schema import Message
from firnline.records.batch import parse_header, set_offset_and_epoch
from firnline.records.build import NewRecord, build_batch
from firnline.records.fast_path import (
    common_batch_python,
    common_records_python,
    renumber_python,
    right_body_python,
    survey_python,
)
from tests.fuzz.shapes import Plan
from tests.fuzz.shapes import frame as extreme_frame
from tests.unit.native.compiled import Guarded, native, needs_native
from tests.unit.records.bodies import BODIES
from tests.worlds.decoded import all_records

pytestmark = pytest.mark.slow

TOPIC_ID = bytes(range(16))
VERSIONS = [(0, v) for v in range(3, 14)] + [(1, v) for v in range(4, 19)]
VERSIONS += [(18, v) for v in range(5)]


def batch(value_bytes: int = 20, **more: Any) -> bytes:
    return bytes(build_batch([NewRecord(b"k", bytes(value_bytes), 1000)], **more))


def with_crc(data: bytes) -> bytes:
    """The batch with the CRC that its bytes have now."""
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def produce(records: bytes | None, **more: Any) -> ProduceRequest:
    part = PartitionProduceData(index=3, records=records)
    topic = TopicProduceData(name="t.opic", topic_id=TOPIC_ID, partition_data=[part])
    return ProduceRequest(**{"acks": -1, "timeout_ms": 100, "topic_data": [topic]} | more)


def fetch(**more: Any) -> FetchRequest:
    part = FetchPartition(
        partition=3, fetch_offset=2**40, partition_max_bytes=77, current_leader_epoch=5
    )
    topic = FetchTopic(topic="t.opic", topic_id=TOPIC_ID, partitions=[part])
    usual: dict[str, Any] = {"max_wait_ms": 5, "min_bytes": 6, "max_bytes": 88, "topics": [topic]}
    return FetchRequest(**usual | {"rack_id": "r"} | more)


def frame(request: Message, version: int, client: bytes | None = b"bench") -> bytes:
    size = -1 if client is None else len(client)
    head = struct.pack(">hhih", request.key, version, 0x0A0B0C0D, size) + (client or b"")
    is_flexible = version in request.flexible
    body = head + (b"\0" if is_flexible else b"") + request.write(version)
    return struct.pack(">i", len(body)) + body


def common_frame(key: int, version: int) -> bytes:
    if key == 18:
        name = (
            {"client_software_name": "me", "client_software_version": "1.0"} if version > 2 else {}
        )
        return frame(ApiVersionsRequest(**name), version)
    return frame(produce(batch()) if key == 0 else fetch(), version)


def writable(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


def asked_both(data: memoryview, size: int) -> Any:
    """What both say of a request; records as bytes, so that they can be compared."""
    said = [native.common_request(data, size), common_request_python(data, size, walks=True)]
    plain = [
        x and tuple(bytes(part) if isinstance(part, memoryview) else part for part in x)
        for x in said
    ]
    assert plain[0] == plain[1]
    return plain[0]


def batch_both(data: bytes) -> Any:
    said = native.common_batch(data)
    assert said == common_batch_python(data, walks=True)
    return said


needs = needs_native


@needs
@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_what_clients_send_is_common_at_every_version_in_use(key: int, version: int) -> None:
    data = common_frame(key, version)
    asked = asked_both(writable(data), len(data))
    topic: Any = TOPIC_ID if version >= 13 else "t.opic"
    if key == 18:
        expected: Any = None if version < 3 else ("me", "1.0")
    elif key == 0:
        header = tuple(parse_header(batch()))
        expected = None if version < 5 else (topic, 3, -1, 100, batch(), header)
    else:
        epoch = 5 if version >= 9 else -1
        expected = None if version < 7 else (topic, 3, 2**40, 77, 88, 6, epoch, 0, -1)
    assert asked == (expected and (key << 16 | version, 0x0A0B0C0D, *expected))


def odd_frames() -> Iterator[tuple[str, bytes]]:
    """Requests that are allowed, or nearly, and go the way for all cases."""
    two = produce(batch()).topic_data * 2  # type: ignore[operator]
    yield "two topics", frame(produce(None, topic_data=two), 9)
    yield (
        "two partitions",
        frame(
            produce(
                None,
                topic_data=[TopicProduceData(name="t", partition_data=two[0].partition_data * 2)],  # type: ignore[index]
            ),
            9,
        ),
    )
    yield "no records", frame(produce(None), 9)
    yield "empty records", frame(produce(b""), 9)
    yield "transactional id", frame(produce(batch(), transactional_id="x"), 9)
    yield (
        "topic not ASCII",
        frame(
            produce(
                None,
                topic_data=[TopicProduceData(name="é", partition_data=two[0].partition_data)],  # type: ignore[index]
            ),
            9,
        ),
    )
    yield "client not ASCII", frame(produce(batch()), 9, "é".encode())
    yield "client not UTF-8", frame(produce(batch()), 9, b"\xff")
    yield "two batches", frame(produce(batch() * 2), 9)
    yield "wrong CRC", frame(produce(batch()[:-1] + b"x"), 9)
    yield "bytes after it", frame(produce(batch()), 9) + b"x"
    for key, version in ((0, 9), (1, 12), (18, 3)):
        more = common_frame(key, version)[4:] + b"x"  # librdkafka 2.16 does that in Metadata
        yield f"a byte more, {key}", struct.pack(">i", len(more)) + more
    yield "a follower", frame(fetch(replica_id=2), 12)
    yield "committed alone", frame(fetch(isolation_level=1), 12)
    yield "a session that ends", frame(fetch(session_id=1, session_epoch=-1), 12)
    yield "an epoch without a session", frame(fetch(session_epoch=1), 12)
    yield "session -1", frame(fetch(session_id=-1, session_epoch=1), 12)
    yield "two changes", frame(fetch(session_id=1, session_epoch=1, topics=fetch().topics * 2), 12)  # type: ignore[operator]
    yield (
        "a topic of no partition",
        frame(
            fetch(session_id=1, session_epoch=1, topics=[FetchTopic(topic="t", partitions=[])]), 12
        ),
    )
    forgotten = ForgottenTopic(topic="t", partitions=[1])
    yield (
        "one to forget",
        frame(fetch(session_id=1, session_epoch=1, forgotten_topics_data=[forgotten]), 12),
    )
    yield "a new session", frame(fetch(session_epoch=0), 12)
    yield "no topic", frame(fetch(topics=[]), 12)
    yield "rack not ASCII", frame(fetch(rack_id="é"), 12)
    yield "a cluster id", frame(fetch(cluster_id="c"), 12)
    yield "version 14", frame(produce(batch()), 9)[:6] + b"\0\x0e" + frame(produce(batch()), 9)[8:]


@needs
@pytest.mark.parametrize(
    ("name", "data"), list(odd_frames()), ids=lambda x: x if isinstance(x, str) else ""
)
def test_what_is_unusual_goes_the_way_for_all_cases(name: str, data: bytes) -> None:
    assert asked_both(writable(data), len(data)) is None


@needs
@pytest.mark.parametrize("version", range(7, 19))
def test_a_session_asks_for_one_change_or_for_none(version: int) -> None:
    session = {"session_id": 2**31 - 1, "session_epoch": 3}
    for more, topics in (({}, 1), ({"topics": []}, 0)):
        data = frame(fetch(**session, **more), version)
        asked = asked_both(writable(data), len(data))
        assert asked[-2:] == (2**31 - 1, 3)
        assert (asked[2] is not None) == bool(topics)
        assert asked[6:8] == (88, 6)


@needs
def test_a_text_longer_than_any_string_is_not_usual() -> None:
    """The way for all cases closes its connection; nobody keeps a mebibyte as the name of a client."""
    for size, is_common in ((32_767, True), (32_768, False), (500_000, False)):
        data = writable(extreme_frame(18, 3, Plan("", "a" * size), "c"))
        assert (asked_both(data, len(data)) is not None) is is_common, size


@needs
def test_a_batch_larger_than_topics_take_by_default_is_not_usual() -> None:
    """It is looked into, for two milliseconds a mebibyte, where its topic takes such."""
    for more, is_common in ((0, True), (1, False)):
        made = batch(1_048_588 - len(batch(9_000)) + 9_000 + more)
        assert len(made) >= 1_048_588
        data = frame(produce(made), 9)
        assert (asked_both(writable(data), len(data)) is not None) is (len(made) <= 1_048_588)
        assert (len(made) <= 1_048_588) is is_common


@needs
def test_a_client_without_a_name_is_common() -> None:
    data = frame(fetch(), 12, None)
    assert asked_both(writable(data), len(data)) is not None


@needs
@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200), size=st.integers(-5, 260))
def test_any_bytes_are_checked_alike(data: bytes, size: int) -> None:
    asked_both(writable(data), size)
    batch_both(data)


@needs
@settings(max_examples=400, deadline=None)
@given(
    which=st.sampled_from(VERSIONS),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=3),
    cut=st.integers(0, 12),
    repairs_size=st.booleans(),
)
@example(which=(0, 9), changes=[(0, 0)], cut=1, repairs_size=True)
def test_damaged_requests_are_checked_alike(
    which: tuple[int, int], changes: list[tuple[int, int]], cut: int, repairs_size: bool
) -> None:
    data = bytearray(common_frame(*which))
    for at, value in changes:
        data[at % len(data)] = value
    del data[len(data) - cut :]
    if repairs_size:
        data[:4] = struct.pack(">i", len(data) - 4)
    asked_both(memoryview(data), len(data))


@needs
@settings(max_examples=400, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3),
    value_bytes=st.sampled_from([0, 1, 30, 2000, 2050, 9000]),
)
def test_damaged_batches_are_checked_alike(
    changes: list[tuple[int, int]], value_bytes: int
) -> None:
    """Their CRC is right, so that what is wrong has to be seen elsewhere; in short and in long ones."""
    data = bytearray(batch(value_bytes))
    for at, value in changes:
        data[at] = value
    batch_both(bytes(data))
    batch_both(with_crc(bytes(data)))


@needs
@settings(max_examples=500, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.none() | st.binary(max_size=9),
            st.none() | st.binary(max_size=70),
            st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3),
        ),
        min_size=1,
        max_size=5,
    ),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 3),
    more=st.integers(-1, 2),
    base_ms=st.sampled_from([0, 1_000, 2**63 - 1, -(2**63)]),
)
def test_bodies_are_checked_alike(
    rows: list[Any], changes: list[tuple[int, int]], cut: int, more: int, base_ms: int
) -> None:
    """Records as they should be, and with a few bytes changed, which may be lengths and counts."""
    made = build_batch([NewRecord(k, v, 1000, tuple(headers)) for k, v, headers in rows])
    body = made[61:]
    assert right_body_python(body, len(rows))
    for at, value in changes:
        body[at % len(body)] = value
    body = body[: len(body) - cut]
    said = native.right_body(bytes(body), len(rows) + more)
    assert said == right_body_python(body, len(rows) + more)
    seen = native.survey(bytes(body), len(rows) + more)
    assert seen == survey_python(body, len(rows) + more)
    assert (seen is not None) == (said and len(rows) + more > 0)
    for base, most in ((base_ms, 2_000), (None, 2_000), (base_ms, 30)):
        again = native.renumber(bytes(body), len(rows) + more, base, most)
        assert again == renumber_python(body, len(rows) + more, base, most)
        assert (again is not None) == (seen is not None) or most == 30
        if again is not None:
            assert native.survey(again[0], len(rows) + more)[3]
    batch_both(with_crc(bytes(made[:61] + body)))
    asked = frame(produce(with_crc(bytes(made[:61] + body))), 9)
    asked_both(writable(asked), len(asked))


@needs
@pytest.mark.parametrize("what", BODIES)
def test_bodies_that_kafka_takes_are_taken_and_no_others(what: str) -> None:
    body, count, is_right = BODIES[what]
    assert native.right_body(body, count) == is_right
    assert right_body_python(body, count) == is_right


@needs
@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=60), count=st.integers(-2, 6))
def test_any_bytes_are_the_same_body_to_both(data: bytes, count: int) -> None:
    said = native.right_body(data, count)
    assert said == right_body_python(data, count)
    assert native.survey(data, count) == survey_python(data, count)
    again = native.renumber(data, count, 7, 1_000)
    assert again == renumber_python(data, count, 7, 1_000)


@needs
@pytest.mark.parametrize("size", [*range(70), 2026, 2068, 2069, 2070, 5000, 100_000])
def test_the_crc_of_every_length_is_known(size: int) -> None:
    data = batch(size)
    assert batch_both(data) == tuple(parse_header(data))
    assert batch_both(data[:-1] + bytes([data[-1] ^ 1])) is None


@needs
@pytest.mark.parametrize("codec", range(8))
@pytest.mark.parametrize("count", [-5, 0, 1, 3, 40, 70_000, 2**31 - 1])
def test_a_count_that_its_bytes_cannot_hold_is_seen(codec: int, count: int) -> None:
    data = bytearray(batch())
    data[21:23] = struct.pack(">h", codec)
    data[23:27], data[57:61] = struct.pack(">i", count - 1), struct.pack(">i", count)
    batch_both(with_crc(bytes(data)))


@needs
def test_nothing_is_read_beyond_the_end() -> None:
    """Goal: no byte after the data is looked at. Method: it ends where reading would crash."""
    guarded, dice = Guarded(), random.Random(7)
    for key, version in VERSIONS:
        complete = common_frame(key, version)
        for cut in range(len(complete) + 1):
            data = bytearray(complete[:cut])
            if cut >= 4:
                data[:4] = struct.pack(">i", cut - 4)  # so that the rest is looked into
            if cut > 20 and dice.random() < 0.5:
                data[dice.randrange(14, cut)] = 0xFF
            native.common_request(guarded.at_the_end(bytes(data)), cut)
    for size in (0, 11, 12, 60, 61, 62, len(batch())):
        native.common_batch(guarded.at_the_end(batch()[:size]))
    body = batch(5)[61:] * 3
    for cut in range(len(body) + 1):
        for byte in (None, *range(cut)):
            data = bytearray(body[:cut])
            if byte is not None:
                data[byte] = dice.choice((0x80, 0xFE, 0xFF, 0x7E))
            native.right_body(guarded.at_the_end(bytes(data)), 3)
            native.survey(guarded.at_the_end(bytes(data)), 3)
            native.renumber(guarded.at_the_end(bytes(data)), 3, 0, 1 << 20)


@needs
@pytest.mark.parametrize(
    "call",
    [
        lambda: native.common_request(writable(b"x" * 20)),
        lambda: native.common_request("text", 4),
        lambda: native.common_request(writable(b"x" * 20), "4"),
        lambda: native.common_batch(5),
        lambda: native.right_body(b"x"),
        lambda: native.right_body(b"x", "1"),
        lambda: native.survey(b"x"),
        lambda: native.survey(b"x", "1"),
        lambda: native.renumber(b"x", 1, 0),
        lambda: native.renumber(b"x", "1", 0, 9),
        lambda: native.renumber(b"x", 1, "0", 9),
        lambda: native.renumber(b"x", 1, 0, None),
        lambda: native.renumber("x", 1, 0, 9),
        lambda: native.common_records(b"x", 1),
        lambda: native.common_records("x", 1, 1),
        lambda: native.common_records(b"x", 1, "1"),
        lambda: native.turn(1, 2),
        lambda: native.turn("x", 0.0, {}, {}, writable(b"xx"), print, print),
        lambda: native.turn(0, 0.0, {}, [], writable(b"xx"), print, print),
        lambda: native.turn(0, 0.0, {}, {}, writable(b"xx")),
    ],
)
def test_nonsense_is_an_error_and_not_a_crash(call: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        call()


@needs
def test_a_size_beyond_the_buffer_is_not_believed() -> None:
    """The rack of this Fetch goes on beyond the buffer, where reading would crash."""
    data = common_frame(1, 12)[:-3] + bytes([91])
    claims = struct.pack(">i", len(data) + 91 - 4) + data[4:]
    assert asked_both(Guarded().at_the_end(claims), len(data) + 91) is None


# ------------------------------------------------------------------------------ records of a log


def log_of(*batches: list[NewRecord], **more: Any) -> bytes:
    """Batches one after the other, as they are in a log."""
    data, offset = bytearray(), 7
    for rows in batches:
        made = build_batch(rows, **more)
        set_offset_and_epoch(made, 0, offset, 3)
        data += made
        offset += len(rows)
    return bytes(data)


ROWS = [
    [NewRecord(b"k", b"v" * 300, 1000), NewRecord(None, b"", 1001), NewRecord(b"", None, 5)],
    [NewRecord(b"x" * 70, b"y", 1)],
    [NewRecord(b"a", b"b", 1)] * 9,
]


def rows_both(data: bytes, position: int, at_most: int) -> tuple[list[Any], int]:
    expected = common_records_python(data, position, at_most)
    assert native.common_records(data, position, at_most) == expected
    return expected


@needs
@pytest.mark.parametrize("at_most", [0, 1, 3, 4, 100])
def test_records_of_a_log_are_the_same_rows_to_all(at_most: int) -> None:
    data = log_of(*ROWS)
    reported = [(r.offset, r.key, r.value) for r in all_records(data)]
    found: list[Any] = []
    position = 0
    while at_most and position < len(data):
        rows, position = rows_both(data, position, at_most)
        assert rows
        found += rows
    assert found == (reported if at_most else [])


@needs
@pytest.mark.parametrize(
    "unusual",
    [
        log_of([NewRecord(b"k", b"v", 1)], codec=3),
        log_of([NewRecord(b"k", b"v", 1, (("h", b"1"),))]),
        log_of([NewRecord(b"k", b"v", 1)] * 4097),
        log_of(*ROWS)[:-1],
        log_of([NewRecord(b"k", b"v", 1)])[:-1] + b"\1",
        with_crc(log_of([NewRecord(b"k", b"v", 1)])[:-1] + b"\1"),
        b"\xff" + log_of([NewRecord(b"k", b"v", 1)])[1:],
        b"\x7f" + b"\xff" * 7 + log_of([NewRecord(b"k", b"v", 1)])[8:],
    ],
)
def test_an_uncommon_batch_ends_the_rows_before_it(unusual: bytes) -> None:
    usual = log_of(*ROWS)
    rows, position = rows_both(usual + unusual, 0, 100_000)
    more = 4 if unusual.startswith(usual[:200]) else 0
    assert len(rows) == 13 + more
    assert rows_both(usual + unusual, position, 1) == ([], position)


@needs
@settings(max_examples=400, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 200),
    repairs=st.booleans(),
    position=st.integers(-3, 900),
)
def test_damaged_records_are_checked_alike(
    changes: list[tuple[int, int]], cut: int, repairs: bool, position: int
) -> None:
    data = bytearray(log_of(ROWS[0], ROWS[2]))
    first = len(log_of(ROWS[0]))
    for place, byte in changes:
        data[place % len(data)] = byte
    if repairs:
        data[:first] = with_crc(bytes(data[:first]))
    complete = bytes(data[: len(data) - cut])
    for at in (0, first, position):
        rows_both(complete, at, 5)


@needs
def test_no_record_is_read_beyond_the_end() -> None:
    guarded, dice = Guarded(), random.Random(7)
    complete = log_of(ROWS[0])
    for cut in range(len(complete) + 1):
        native.common_records(guarded.at_the_end(complete[:cut]), 0, 10)
    for place in range(61, len(complete)):
        data = bytearray(complete)
        data[place] = dice.choice((0x80, 0xFE, 0xFF, 0x7E))
        native.common_records(guarded.at_the_end(with_crc(bytes(data))), 0, 10)
