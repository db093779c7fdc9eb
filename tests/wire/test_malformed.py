"""Frames, headers and bodies that no proper client sends. Reliability (d) rows 1 to 30.

Rows 8 and 10 are matters of time and lie in tests/unit/runtime; 14 waits for TLS.
"""

import contextlib
import socket
import struct
import time

import pytest

from firnline.client.wire import encode_request
from firnline.protocol.messages.k03_metadata import MetadataRequest
from firnline.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.unit.protocol.test_recorded import ALL as RECORDED
from tests.wire.line import FRAME_LIMIT_BYTES, METADATA, MIB, Line, Target, framed, header, varint

CLOSED = None
API_VERSIONS = 18
# ApiVersions version 3: header v2, two compact strings, no tags.
SOFTWARE = b"\x05wire\x021"


def api_versions(tags: bytes = b"\0", number: int = 7) -> bytes:
    return header(API_VERSIONS, 3, number=number, flexible=True) + SOFTWARE + tags


# ------------------------------------------------------------------------------- frames


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, FRAME_LIMIT_BYTES + 1, 0, 3])
def test_a_frame_size_that_cannot_be_closes_the_connection(target: Target, size: int) -> None:
    assert target.send(struct.pack(">i", size) + b"abc") is CLOSED


def test_a_frame_of_exactly_the_limit_is_served(target: Target) -> None:
    """One byte more is refused above; this one is an ApiVersions with a large unknown tag."""
    room = FRAME_LIMIT_BYTES - len(api_versions(b"\x01\x64")) - 4
    request = framed(api_versions(b"\x01\x64" + varint(room) + bytes(room)))
    assert len(request) - 4 == FRAME_LIMIT_BYTES
    answer = target.send(request)
    assert answer is not None
    assert answer[:6] == struct.pack(">ih", 7, 0)


@pytest.mark.parametrize("sent", [1, 3, 4, 5, 12, 1000])
def test_a_frame_cut_by_the_end_of_the_connection_is_dropped(target: Target, sent: int) -> None:
    with target.line() as line:
        line.send((struct.pack(">i", 2000) + api_versions())[:sent].ljust(sent, b"x"))
        line.socket.shutdown(socket.SHUT_WR)
        assert line.frame() is CLOSED


def test_a_length_without_bytes_costs_no_memory(target: Target) -> None:
    if not target.is_firnline:
        pytest.skip("Kafka sets the announced memory aside and runs out of it")
    target.forget_peak()
    before = target.rss_bytes()
    with contextlib.ExitStack() as lines:
        for _ in range(100):  # together they announce 3.1 GiB
            line = lines.enter_context(target.line())
            line.send(struct.pack(">i", FRAME_LIMIT_BYTES) + b"0123456789")
        target.ask(ApiVersionsRequest(), 0)
        assert target.peak_bytes() - before < 64 * MIB


def test_a_peer_that_reads_no_answers_is_not_read_from(target: Target, unharmed: Line) -> None:
    """The kernel's buffers fill, then its requests wait where they are: with the peer."""
    one = encode_request(MetadataRequest(topics=None), version=12, correlation_id=1, client_id="w")
    if target.is_firnline:
        target.forget_peak()
        before = target.rss_bytes()
    with target.line() as line:
        line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.socket.settimeout(1.0)
        assert _send_until_it_blocks(line, one * 1000) < 256 * MIB
        unharmed.ask(ApiVersionsRequest(), 0)
        if target.is_firnline:
            assert target.peak_bytes() - before < 64 * MIB


def _send_until_it_blocks(line: Line, data: bytes) -> int:
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 256 * MIB:
            sent += line.socket.send(data)
    return sent


def test_ten_thousand_requests_at_once_are_answered_in_order(target: Target) -> None:
    count = 10_000
    sent = b"".join(framed(header(API_VERSIONS, 0, number=n)) for n in range(count))
    with target.line() as line:
        line.socket.setblocking(False)
        done, got, numbers = 0, b"", []
        deadline = time.monotonic() + 60
        while len(numbers) < count and time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                done += line.socket.send(sent[done : done + 65536]) if done < len(sent) else 0
            with contextlib.suppress(BlockingIOError):
                got += line.socket.recv(1 << 20)
            while len(got) >= 4 and len(got) >= 4 + (size := struct.unpack(">i", got[:4])[0]):
                numbers.append(struct.unpack(">i", got[4:8])[0])
                got = got[4 + size :]
    assert numbers == list(range(count))


def test_correlation_ids_come_back_as_they_were_sent(target: Target) -> None:
    numbers = [5, 5, 5, -1, 2**31 - 1, -(2**31), 5]
    with target.line() as line:
        line.send(b"".join(framed(header(API_VERSIONS, 0, number=n)) for n in numbers))
        for number in numbers:
            answer = line.frame()
            assert answer is not None
            assert struct.unpack(">i", answer[:4]) == (number,)


@pytest.mark.parametrize(
    "spoken",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(506),  # a TLS ClientHello
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\0" * 64,
        b"\xff" * 64,
    ],
    ids=["tls", "http", "ssh", "zeros", "ones"],
)
def test_another_protocol_is_hung_up_on(target: Target, spoken: bytes) -> None:
    assert target.send(spoken) is CLOSED


# ------------------------------------------------------------------------------- headers


@pytest.mark.parametrize("key", [-1, 4, 99, 1000, 32767, -32768])
def test_an_unknown_api_closes_the_connection(target: Target, key: int) -> None:
    assert target.send(framed(header(key, 0) + bytes(16))) is CLOSED


@pytest.mark.parametrize(
    ("key", "version"), [(0, 2), (0, 14), (1, 3), (1, 99), (3, 14), (3, -1), (8, 1), (19, 1)]
)
def test_an_unserved_version_closes_the_connection(target: Target, key: int, version: int) -> None:
    assert target.send(framed(header(key, version) + bytes(64))) is CLOSED


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_api_versions_from_the_future_is_answered_in_version_0(
    target: Target, version: int
) -> None:
    answer = target.send(framed(header(API_VERSIONS, version, flexible=True) + SOFTWARE + b"\0"))
    assert answer is not None
    body, end = ApiVersionsResponse.read(answer[4:], 0)
    assert end == len(answer) - 4
    assert body.error_code == 35
    assert [row.api_key for row in body.api_keys] == [API_VERSIONS]


@pytest.mark.parametrize(
    "tags",
    [
        b"\xff\xff\xff\xff\x0f",  # 2^32 - 1 tags
        b"\xff\xff\xff\xff\x7f",
        b"\x80\x80\x80\x80\x80\x00",  # a varint of six bytes
        b"\x01\x64\x7f",  # a tag that is larger than the frame
        b"\x01\x64\xff\xff\xff\xff\x0f",
        b"\x02\x64\x00",  # two tags announced, one there
    ],
    ids=["2^32-1", "35 bits", "6 bytes", "beyond", "far beyond", "missing"],
)
@pytest.mark.parametrize("place", ["header", "body"])
def test_broken_tags_close_the_connection(target: Target, tags: bytes, place: str) -> None:
    if place == "header":
        frame = header(API_VERSIONS, 3) + tags + SOFTWARE + b"\0"
    else:
        frame = api_versions(tags)
    answer = target.send(framed(frame))
    if not target.is_firnline and tags[:4] == b"\xff" * 4:
        assert answer is not CLOSED  # 4.3.1 reads such a count as -1, and -1 tags as none
    else:
        assert answer is CLOSED


def test_unknown_tags_in_order_are_skipped(target: Target) -> None:
    answer = target.send(framed(api_versions(b"\x02\x64\x01a\x65\x02bc")))
    assert answer is not None
    assert answer[:6] == struct.pack(">ih", 7, 0)


@pytest.mark.parametrize("tags", [b"\x02\x64\x01a\x64\x01b", b"\x02\x65\x01a\x64\x01b"])
def test_tags_that_repeat_or_run_backwards_get_the_same_answer_each_time(
    target: Target, tags: bytes
) -> None:
    answers = [target.send(framed(api_versions(tags))) for _ in range(5)]
    bodies = [ApiVersionsResponse.read(answer[4:], 3)[0] for answer in answers if answer]
    for body in bodies:
        assert body.api_keys
        # The place of the newest record of the metadata, which grows while we ask.
        body.finalized_features_epoch = 0
    assert len(bodies) in (0, len(answers))
    assert all(body == bodies[0] for body in bodies)


@pytest.mark.parametrize(
    "client", [b"x" * 32767, None, b"", b"a\nERROR b\x1b[31m\x1b]0;title\x07", "häß".encode()]
)
def test_any_client_id_is_served_and_none_reaches_the_log_raw(
    target: Target, client: bytes | None
) -> None:
    answer = target.send(framed(header(API_VERSIONS, 0, client=client)))
    assert answer is not None
    # A refusal of the same client is what gets logged.
    assert target.send(framed(header(METADATA, 1, client=client) + b"\x7f\xff\xff\xff")) is CLOSED
    log = target.log.read_text()
    assert "\nERROR b" not in log


def test_a_client_id_longer_than_the_frame_closes_the_connection(target: Target) -> None:
    assert target.send(framed(struct.pack(">hhih", API_VERSIONS, 0, 7, 500))) is CLOSED


@pytest.mark.parametrize("size", [-2, -32768])
def test_a_client_id_of_negative_length_is_none(target: Target, size: int) -> None:
    assert target.send(framed(struct.pack(">hhih", API_VERSIONS, 0, 7, size))) is not CLOSED


# ------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize("count", [2**31 - 1, 100, 5])
def test_an_array_longer_than_the_frame_closes_the_connection(target: Target, count: int) -> None:
    assert target.send(framed(header(METADATA, 1) + struct.pack(">i", count))) is CLOSED


_INT16, _INT32 = struct.Struct(">h").pack, struct.Struct(">i").pack
_PRODUCE = _INT16(-1) + _INT16(1) + _INT32(1000)
_JOIN = b"\0\1g" + _INT32(30_000)
# What a length of -2 stands for, its request, and whether null may stand there.
NEGATIVE = {
    "Metadata: topics": (header(METADATA, 1) + _INT32(-2), True),
    "Metadata: a name": (header(METADATA, 1) + _INT32(1) + _INT16(-2), False),
    "Produce: transactional id": (
        header(0, 3) + _INT16(-2) + _PRODUCE[2:] + _INT32(0),
        True,
    ),
    "Produce: topics": (header(0, 3) + _PRODUCE + _INT32(-2), False),
    "Produce: records": (
        header(0, 3) + _PRODUCE + _INT32(1) + b"\0\1t" + _INT32(1) + _INT32(0) + _INT32(-2),
        True,
    ),
    "Fetch: topics": (
        header(1, 4) + _INT32(-1) + _INT32(10) + _INT32(1) + _INT32(1000) + b"\0" + _INT32(-2),
        False,
    ),
    "ListOffsets: topics": (header(2, 1) + _INT32(-1) + _INT32(-2), False),
    "OffsetFetch: topics": (header(9, 5) + b"\0\1g" + _INT32(-2), True),
    "FindCoordinator: key": (header(10, 1) + _INT16(-2) + b"\0", False),
    "JoinGroup: instance id": (
        header(11, 5) + _JOIN + _INT32(30_000) + _INT16(0) + _INT16(-2) + b"\0\1c" + _INT32(0),
        True,
    ),
    "JoinGroup: metadata": (
        header(11, 0) + _JOIN + _INT16(0) + b"\0\1c" + _INT32(1) + b"\0\1r" + _INT32(-2),
        False,
    ),
    "DescribeGroups: groups": (header(15, 0) + _INT32(-2), False),
    "CreateTopics: topics": (header(19, 2) + _INT32(-2) + _INT32(1000) + b"\1", False),
    "DescribeConfigs: keys": (
        header(32, 1) + _INT32(1) + b"\2\0\1t" + _INT32(-2) + b"\0",
        True,
    ),
}


@pytest.mark.parametrize("name", list(NEGATIVE))
def test_a_negative_length_is_null_where_null_may_be_and_closes_elsewhere(
    target: Target, name: str
) -> None:
    """As 4.3.1: all negative lengths are one."""
    request, may_be_null = NEGATIVE[name]
    assert (target.send(framed(request)) is not CLOSED) == may_be_null


def test_of_the_memory_of_the_largest_requests_little_is_kept(
    target: Target, baseline_bytes: int
) -> None:
    """The C library would keep up to 64 MiB of it, more or less as chance has it (server/allocator.py).

    4 to 15 MiB on a machine with nothing else to do, up to 23 on a busy one.
    """
    if not target.is_firnline:
        pytest.skip("measures Firnline's memory")
    assert baseline_bytes - target.fresh_bytes < 32 * MIB


def test_ten_million_tiny_elements_are_refused(target: Target) -> None:
    if not target.is_firnline:
        pytest.skip("Kafka makes them all and runs out of memory")
    count = 10_000_000
    body = varint(count + 1) + b"\x01\0" * count + b"\0\0\0\0"
    target.forget_peak()
    before = target.rss_bytes()
    assert target.send(framed(header(METADATA, 9, flexible=True) + body)) is CLOSED
    # The frame, a copy of it, and no elements.
    assert target.peak_bytes() - before < 2 * len(body) + 32 * MIB


def test_a_large_request_is_given_back_when_it_is_answered(target: Target) -> None:
    """Hundreds of thousands of names; what held them once was a function that knew itself."""
    if not target.is_firnline:
        pytest.skip("measures Firnline's memory")
    count = 400_000
    body = varint(count + 1) + b"\x01\0" * count + b"\0\0\0\0"
    assert target.send(framed(header(METADATA, 9, flexible=True) + body)) is not CLOSED


@pytest.mark.parametrize("size", [-2, 20_000, 32767])
def test_a_string_longer_than_the_frame_closes_the_connection(target: Target, size: int) -> None:
    assert target.send(framed(header(METADATA, 1) + struct.pack(">ih", 1, size) + b"x")) is CLOSED


def test_bytes_after_the_body_are_not_looked_at(target: Target) -> None:
    """librdkafka 2.16 asks for all topics with a byte too many; here as it sends it."""
    frame = "0003000d00000003000772646b61666b61" + "0000000000010000"
    answer = target.send(framed(bytes.fromhex(frame)))
    assert answer is not CLOSED
    assert target.send(framed(header(METADATA, 1) + struct.pack(">i", 0) + b"more")) is not CLOSED


def test_a_name_that_is_no_text_is_never_stored(target: Target) -> None:
    name = b"bad-\xff\xfe\xc0\xaf"
    topic = struct.pack(">h", len(name)) + name + struct.pack(">ihii", 1, 1, 0, 0)
    body = struct.pack(">i", 1) + topic + struct.pack(">i?", 5000, False)
    target.send(framed(header(19, 2) + body))
    assert not any(n.startswith("bad-") for n in target.topic_names())


# ------------------------------------------------------------------------------- many bytes


def test_a_real_request_cut_at_any_byte_is_hung_up_on(target: Target) -> None:
    """Row 29: the length is right for what is there, the body ends early."""
    for recorded in RECORDED:
        for size in range(len(recorded.frame)):
            assert target.send(framed(recorded.frame[:size])) is CLOSED, (recorded, size)


def test_a_real_request_with_any_byte_flipped_gets_an_answer_or_a_hang_up(target: Target) -> None:
    """Row 28. A flip may make a request that waits (a Fetch of four hours): that is its right."""
    waited = 0
    for recorded in RECORDED:
        for position in range(len(recorded.frame)):
            frame = bytearray(recorded.frame)
            frame[position] ^= 1 << position % 8
            with target.line() as line:
                line.send(framed(frame))
                try:
                    line.frame(timeout_s=0.2)
                except TimeoutError:
                    waited += 1
    assert waited < 400
