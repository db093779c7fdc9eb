"""Record batches that no proper producer sends. Reliability (d) rows 31 to 45; codes are Kafka 4.3.1's.

After each refusal the partition's end has not moved: nothing of a refused batch is stored.
"""

import functools
import gzip
import struct
import time
import zlib
from collections.abc import Callable, Iterator

import cramjam
import lz4.frame
import pytest
import zstandard
from crc32c import crc32c

from firnline.client.wire import encode_request
from firnline.protocol.messages.k00_produce import PartitionProduceData, TopicProduceData
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from firnline.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from firnline.protocol.primitives import varint
from firnline.records.batch import HEADER, HEADER_BYTES
from firnline.records.build import NewRecord, build_batch
from tests.unit.records.bodies import BODIES
from tests.wire.line import MIB, Target, produce_request

OPEN_LIMIT_BYTES = 64 * MIB  # what a batch may cost beyond its own size
NAMES = (
    "base_offset",
    "batch_length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)
NOW = 1_790_000_000_000
CORRUPT, TOO_LARGE, INVALID_TIMESTAMP, OUT_OF_ORDER, INVALID_RECORD = 2, 10, 32, 45, 87
UNKNOWN = -1


@pytest.fixture(scope="module")
def topic(target: Target) -> str:
    target.topic("plain")
    return "plain"


@pytest.fixture(scope="module")
def compacted(target: Target) -> str:
    target.topic("compacted", cleanup_policy="compact")
    return "compacted"


def end_offset(target: Target, topic: str) -> int:
    wanted = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    answer = target.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 5)
    end = answer.topics[0].partitions[0].offset
    assert isinstance(end, int)
    return end


def new_producer_id(target: Target) -> int:
    """Kafka asks to come again while it fetches its first block of ids."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    deadline = time.monotonic() + 20
    while (granted := target.ask(request, 4)).error_code:
        assert time.monotonic() < deadline, granted
        time.sleep(0.05)
    assert isinstance(granted.producer_id, int)
    return granted.producer_id


def good(count: int = 2) -> bytearray:
    return build_batch([NewRecord(b"k%d" % i, b"v", NOW) for i in range(count)])


def changed(batch: bytes | bytearray, **fields: int) -> bytearray:
    """Set header fields of a batch, and the CRC over them."""
    out = bytearray(batch)
    values = dict(zip(NAMES, HEADER.unpack_from(out), strict=True)) | fields
    HEADER.pack_into(out, 0, *(values[name] for name in NAMES))
    out[17:21] = struct.pack(">I", crc32c(bytes(out[21:])))
    return out


def opaque(body: bytes, codec: int, count: int = 1) -> bytearray:
    """A batch with any bytes as its compressed body, right in every other respect."""
    start = bytearray(build_batch([NewRecord(b"k", b"v", NOW)])[:HEADER_BYTES])
    batch = start + body
    return changed(
        batch,
        batch_length=len(batch) - 12,
        attributes=codec,
        record_count=count,
        last_offset_delta=count - 1,
    )


def flipped() -> bytearray:
    batch = good()
    batch[-1] ^= 1
    return batch


REFUSED: dict[str, tuple[Callable[[], bytes | bytearray], int]] = {
    "a wrong CRC": (flipped, CORRUPT),
    "a length beyond the bytes": (lambda: changed(good(), batch_length=5000), INVALID_RECORD),
    "a length below the header's": (lambda: changed(good(), batch_length=10), CORRUPT),
    "a negative length": (lambda: changed(good(), batch_length=-1), CORRUPT),
    "length 0": (lambda: changed(good(), batch_length=0), CORRUPT),
    "a count that is negative": (lambda: changed(good(), record_count=-1), INVALID_RECORD),
    "a count beyond the offsets": (lambda: changed(good(), record_count=7), INVALID_RECORD),
    "a count of 2^31-1": (
        lambda: changed(good(), record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        INVALID_RECORD,
    ),
    "a count that fits no bytes": (
        lambda: changed(good(), record_count=20, last_offset_delta=19),
        INVALID_RECORD,
    ),
    "a count that no gzip of this size can hold": (
        lambda: opaque(gzip.compress(b"x"), 1, count=1_000_000),
        INVALID_RECORD,
    ),
    "a negative offset delta": (lambda: changed(good(), last_offset_delta=-1), INVALID_RECORD),
    "a base offset": (lambda: changed(good(), base_offset=5), INVALID_RECORD),
    "magic 0": (lambda: changed(good(), magic=0), INVALID_RECORD),
    "magic 1": (lambda: changed(good(), magic=1), INVALID_RECORD),
    "magic 3": (lambda: changed(good(), magic=3), CORRUPT),
    "magic 127": (lambda: changed(good(), magic=127), CORRUPT),
    "magic -1": (lambda: changed(good(), magic=-1), CORRUPT),
    "two batches": (lambda: good() + good(), INVALID_RECORD),
    "a control batch": (lambda: changed(good(1), attributes=0x20), INVALID_RECORD),
    "nothing": (lambda: b"", INVALID_RECORD),
    "a few bytes": (lambda: good()[:20], INVALID_RECORD),
    "an unknown codec": (lambda: changed(good(), attributes=7), INVALID_RECORD),
    "the far future": (lambda: build_batch([NewRecord(b"k", b"v", 2**61)]), INVALID_TIMESTAMP),
    "a sequence without a start": (
        lambda: changed(good(), producer_id=5, producer_epoch=0, base_sequence=-1),
        INVALID_RECORD,
    ),
    "a batch over max.message.bytes": (
        lambda: build_batch([NewRecord(b"k", b"x" * 2 * MIB, NOW)]),
        TOO_LARGE,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_bad_batch_is_refused_and_leaves_nothing(target: Target, topic: str, what: str) -> None:
    make, code = REFUSED[what]
    if what == "an unknown codec" and not target.is_firnline:
        code = UNKNOWN  # 4.3.1 has no word for it
    before = end_offset(target, topic)
    assert target.produce(topic, make()).error_code == code
    assert end_offset(target, topic) == before


@pytest.mark.parametrize("what", BODIES)
def test_a_body_that_is_not_what_its_header_says_is_refused(
    target: Target, topic: str, what: str
) -> None:
    """Under a right CRC. Compiled code alone looks into bodies; in Python it would cost too much."""
    body, count, is_right = BODIES[what]
    batch, code = opaque(body, 0, count=count), 0 if is_right else INVALID_RECORD
    if what == "a length in six bytes" and not target.is_firnline:
        code = UNKNOWN
    if not target.parses_bodies:
        code = 0
    before = end_offset(target, topic)
    assert target.produce(topic, batch).error_code == code
    assert (end_offset(target, topic) == before) == bool(code)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("how", ["acks=1", "acks=0", "idempotent"])
def test_a_batch_cannot_claim_offsets_that_its_bytes_have_no_room_for(
    target: Target, topic: str, codec: int, how: str
) -> None:
    """Kafka opens every batch and counts; here what is compressed is held to what any encoder can do."""
    batch = opaque(bytes(500_000), codec, count=2**31 - 1)
    if how == "idempotent":
        batch = changed(
            batch, producer_id=new_producer_id(target), producer_epoch=0, base_sequence=0
        )
    before = end_offset(target, topic)
    if how == "acks=0":
        with target.line() as line:
            line.send(
                encode_request(
                    produce_request(topic, batch, acks=0), version=9, correlation_id=1, client_id=""
                )
            )
            assert line.socket.recv(1) == b""  # a failure has no other answer
    else:
        code = target.produce(topic, batch).error_code
        assert code == (INVALID_RECORD if target.is_firnline or not codec else UNKNOWN)
    assert end_offset(target, topic) == before


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_smallest_records_that_there_are_have_room(
    target: Target, topic: str, codec: int
) -> None:
    """Alike but for their offsets: nothing packs better."""
    batch = build_batch([NewRecord(None, None, NOW)] * 50_000, codec=codec)
    before = end_offset(target, topic)
    assert target.produce(topic, batch).error_code == 0
    assert end_offset(target, topic) == before + 50_000


@pytest.mark.parametrize("stamp", [-1, 0, -5])
def test_an_early_timestamp_is_taken(target: Target, topic: str, stamp: int) -> None:
    before = end_offset(target, topic)
    batch = build_batch([NewRecord(b"k", b"v", stamp)])
    target.produce(topic, batch)
    assert end_offset(target, topic) in (before, before + 1)


def test_a_transactional_batch_without_a_transaction_is_refused(target: Target, topic: str) -> None:
    before = end_offset(target, topic)
    batch = changed(good(), attributes=0x10, producer_id=5, producer_epoch=0, base_sequence=0)
    assert target.produce(topic, batch).error_code != 0
    assert end_offset(target, topic) == before


def test_a_gap_in_the_sequence_is_refused_and_a_repeat_answered_again(
    target: Target, topic: str
) -> None:
    producer = {"producer_id": new_producer_id(target), "producer_epoch": 0}
    first = target.produce(topic, changed(good(), **producer, base_sequence=0))
    assert first.error_code == 0
    again = target.produce(topic, changed(good(), **producer, base_sequence=0))
    assert (again.error_code, again.base_offset) == (0, first.base_offset)
    assert target.produce(topic, changed(good(), **producer, base_sequence=9)).error_code == (
        OUT_OF_ORDER
    )
    assert end_offset(target, topic) == first.base_offset + 2


def test_an_older_producer_epoch_is_refused(target: Target, topic: str) -> None:
    producer = {"producer_id": new_producer_id(target), "base_sequence": 0}
    assert target.produce(topic, changed(good(), **producer, producer_epoch=1)).error_code == 0
    before = end_offset(target, topic)
    assert target.produce(topic, changed(good(), **producer, producer_epoch=0)).error_code == 47
    assert end_offset(target, topic) == before


# ------------------------------------------------------------------------------- bombs


@functools.cache
def gzip_bomb() -> tuple[bytes, int]:
    """A mebibyte that opens to a gibibyte."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(16 * MIB)
    return b"".join([*(packer.compress(block) for _ in range(60)), packer.flush()]), 1


@functools.cache
def zstd_bomb() -> tuple[bytes, int]:
    """A quarter of a mebibyte that opens to eight gibibytes."""
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    block = bytes(16 * MIB)
    frame = b"".join([*(packer.compress(block) for _ in range(512)), packer.flush()])
    return frame, 4


@functools.cache
def zstd_bomb_that_states_its_size() -> tuple[bytes, int]:
    """The frame's header claims 512 MiB: a reader that believes it sets that aside at once."""
    return zstandard.ZstdCompressor(level=1, write_content_size=True).compress(bytes(512 * MIB)), 4


def zstd_with_a_huge_window() -> tuple[bytes, int]:
    parameters = zstandard.ZstdCompressionParameters(window_log=30)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return packer.compress(b"x" * 1000) + packer.flush(), 4


@functools.cache
def lz4_bomb() -> tuple[bytes, int]:
    return lz4.frame.compress(bytes(200 * MIB), block_linked=False, store_size=False), 3


def snappy_bomb() -> tuple[bytes, int]:
    return bytes(cramjam.snappy.compress_raw(bytes(19 * MIB))), 2


def snappy_that_claims_4_gib() -> tuple[bytes, int]:
    return b"\xff\xff\xff\xff\x0f" + b"\0" * 100, 2


@functools.cache
def gzip_in_gzip() -> tuple[bytes, int]:
    return gzip.compress(gzip_bomb()[0], mtime=0), 1


BOMBS = [
    gzip_bomb,
    zstd_bomb,
    zstd_bomb_that_states_its_size,
    zstd_with_a_huge_window,
    lz4_bomb,
    snappy_bomb,
    snappy_that_claims_4_gib,
    gzip_in_gzip,
]


@pytest.fixture
def peak(target: Target) -> Iterator[None]:
    """The memory that a test may cost the server at its worst moment."""
    if not target.is_firnline:
        yield
        return
    target.forget_peak()
    before = target.rss_bytes()
    yield
    rise = target.peak_bytes() - before
    assert rise < OPEN_LIMIT_BYTES, f"{rise / MIB:.0f} MiB"


@pytest.mark.usefixtures("peak")
@pytest.mark.parametrize("make", BOMBS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("policy", ["plain", "compacted"])
def test_a_bomb_is_bounded(
    target: Target, topic: str, compacted: str, policy: str, make: Callable[[], tuple[bytes, int]]
) -> None:
    """A compacted topic is the hard case: there records are looked into for their keys."""
    body, codec = make()
    batch = opaque(body, codec)
    assert len(batch) < MIB + 12
    before = end_offset(target, policy)
    answer = target.produce(policy, batch)
    if answer.error_code:
        assert end_offset(target, policy) == before


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("policy", ["plain", "compacted"])
def test_a_body_that_is_not_of_its_codec(
    target: Target, topic: str, compacted: str, policy: str, codec: int
) -> None:
    """4.3.1 opens every batch and answers -1. Here only a compacted topic's batches are opened; elsewhere
    the body is stored as it came, and consumers find it (records/validate)."""
    before = end_offset(target, policy)
    code = target.produce(policy, opaque(b"this is no compressed data", codec)).error_code
    if target.is_firnline:
        assert code == (CORRUPT if policy == "compacted" else 0)
    else:
        assert code == UNKNOWN
    if code:
        assert end_offset(target, policy) == before


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_body_that_cannot_be_read_fails_its_partition_for_a_time_and_no_other(
    target: Target, topic: str, codec: int
) -> None:
    if not target.is_firnline:
        pytest.skip("it would not take the batch")
    target.topic(poisoned := f"poisoned-{codec}")
    assert target.produce(topic, good()).error_code == 0
    assert target.produce(poisoned, good()).error_code == 0
    batch = changed(opaque(b"this is no compressed data", codec), max_timestamp=NOW + 9)
    assert target.produce(poisoned, batch).error_code == 0
    for time_ms in (NOW + 5, -3):
        asked = [
            ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsPartition(partition_index=0, timestamp=time_ms)],
            )
            for name in (poisoned, topic)
        ]
        answer = target.ask(ListOffsetsRequest(replica_id=-1, topics=asked), 7)
        codes = {each.name: each.partitions[0].error_code for each in answer.topics}
        assert codes == {poisoned: UNKNOWN, topic: 0}  # as 4.3.1 answers of stored bytes
    assert end_offset(target, poisoned) == 3


def test_a_time_beyond_64_bits_is_answered(target: Target, topic: str) -> None:
    """A record's time is its batch's and a difference; clients add them in 64 bits."""
    if not target.is_firnline:
        pytest.skip("4.3.1 judges the time of each record")
    one = b"\0" + varint(2**63 - 1) + b"\0\x01\x02x\0"
    batch = changed(opaque(varint(len(one)) + one, 0), max_timestamp=NOW + 3_000_000)
    target.topic("far")
    assert target.produce("far", batch).error_code == 0
    asked = ListOffsetsTopic(
        name="far", partitions=[ListOffsetsPartition(partition_index=0, timestamp=NOW + 2_999_999)]
    )
    answer = target.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7)
    assert answer.topics[0].partitions[0].error_code == 0


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(
    target: Target, compacted: str
) -> None:
    before = end_offset(target, compacted)
    rows = [NewRecord(b"k", b"v", NOW), NewRecord(None, b"v", NOW)]
    assert target.produce(compacted, build_batch(rows)).error_code == INVALID_RECORD
    assert end_offset(target, compacted) == before


@pytest.mark.usefixtures("peak")
@pytest.mark.parametrize("policy", ["plain", "compacted"])
def test_a_million_headers_in_a_record_are_bounded(
    target: Target, topic: str, compacted: str, policy: str
) -> None:
    """Three bytes each; compressed it is a few kibibytes."""
    headers = tuple(("", b"") for _ in range(1_000_000))
    batch = build_batch([NewRecord(b"k", b"v", NOW, headers)], codec=1)
    assert target.produce(policy, batch).error_code == 0


# ------------------------------------------------------------------------------- requests


def test_null_records_are_refused_and_the_next_partition_is_served(
    target: Target, topic: str
) -> None:
    if not target.is_firnline:
        pytest.skip("4.3.1 never answers")
    request = produce_request(topic, None)
    request.topic_data = [
        *request.topic_data,
        TopicProduceData(
            name="nowhere", partition_data=[PartitionProduceData(index=0, records=good())]
        ),
    ]
    answer = target.ask(request, 9)
    codes = {each.name: each.partition_responses[0].error_code for each in answer.responses}
    assert codes["nowhere"] == 3
    assert codes[topic] == INVALID_RECORD


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_unknown_acks_are_refused(target: Target, topic: str, acks: int) -> None:
    before = end_offset(target, topic)
    answer = target.ask(produce_request(topic, good(), acks=acks), 9)
    assert answer.responses[0].partition_responses[0].error_code == 21
    assert end_offset(target, topic) == before
