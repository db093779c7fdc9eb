"""Batches of every codec into topics of every compression.type. WORLD.

What Apache Kafka 4.3.1 answers and stores stands in `REPORTED`, asked on 2026-11-23;
`test_compression_type.py` asks both. Records are compared decoded: how well a library compresses is its own
affair.
"""

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from crc32c import crc32c

from firnline.base.errors import Code
from firnline.protocol.messages import k01_fetch as m01
from firnline.records.batch import (
    CONTROL_MASK,
    CRC_START,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_MASK,
    parse_header,
)
from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import GZIP, NAMES, NONE, SNAPPY, ZSTD, compress
from firnline.records.record import encode_records, records
from tests.wire.line import Target

KEYED = [NewRecord(b"k%d" % n, b"v" * 40, 1_000 + n, (("h", b"x"),)) for n in range(5)]
# What `topic` names are made with.
TOPICS: dict[str, dict[str, str]] = {
    # The times of records here are those of 1970.
    **{
        f"to-{name}": {"compression_type": name, "retention_ms": "-1"}
        for name in ("producer", "uncompressed", *NAMES[1:])
    },
    "zstd-now": {
        "compression_type": "zstd",
        "message_timestamp_type": "LogAppendTime",
        "retention_ms": "-1",
    },
    "zstd-compacted": {
        "compression_type": "zstd",
        "cleanup_policy": "compact",
        "retention_ms": "-1",
    },
    "plain-small": {"compression_type": "uncompressed", "max_message_bytes": "2000"},
    "zstd-small": {"compression_type": "zstd", "max_message_bytes": "2000"},
    "zstd-timely": {"compression_type": "zstd", "message_timestamp_before_max_ms": "3600000"},
}


def made(
    body: bytes, like: Iterable[NewRecord] = KEYED, *, codec: int = NONE, **fields: int
) -> bytes:
    """A batch with that body, whatever is in it, under a right CRC; `fields` of its header as given."""
    header = parse_header(build_batch(list(like), codec=NONE))
    header = header._replace(
        batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body),
        attributes=codec | fields.pop("marks", 0),
        **fields,
    )
    out = bytearray(HEADER_BYTES) + body
    HEADER.pack_into(out, 0, *header[:13])
    struct.pack_into(">I", out, 17, crc32c(memoryview(out)[CRC_START:]))
    return bytes(out)


def _one(
    delta: int, key: bytes | None, value: bytes, *, time: int = 0, attributes: int = 0
) -> bytes:
    """A record as it stands in a batch, with the offset delta and attributes that are given."""
    body = bytearray(encode_records([(time, key, value, ())]))
    start = 1  # sizes here are below 64
    body[start] = attributes
    body[start + 1 + (1 if -64 <= time < 64 else 2)] = delta * 2
    return bytes(body)


def _jumbled(codec: int) -> bytes:
    return made(
        compress(codec, b"".join(_one(d, b"k", b"v") for d in (0, 0, 7, 1, 1))), codec=codec
    )


BODY = encode_records((r.timestamp_ms - 1_000, r.key, r.value, r.headers) for r in KEYED)
LARGE = [NewRecord(b"k", b"x" * 3_000, 1_000)]
LATE = [NewRecord(b"k", b"v", 1_000)]


class Case(NamedTuple):
    """A batch, and where it goes."""

    name: str
    topic: str
    batch: bytes
    version: int = 9


CASES = [
    *(
        Case(
            f"{NAMES[codec]} {topic}",
            topic,
            bytes(
                build_batch(
                    KEYED, codec=codec, producer_id=40 + codec, producer_epoch=3, base_sequence=0
                )
            ),
        )
        for topic in list(TOPICS)[:6]
        for codec in range(5)
    ),
    Case("log append time", "zstd-now", bytes(build_batch(KEYED, codec=GZIP))),
    Case("log append time, same codec", "zstd-now", bytes(build_batch(KEYED, codec=ZSTD))),
    Case("keys", "zstd-compacted", bytes(build_batch(KEYED, codec=GZIP))),
    Case(
        "no key", "zstd-compacted", bytes(build_batch([NewRecord(None, b"v", 1_000)], codec=GZIP))
    ),
    Case("too large once it is open", "plain-small", bytes(build_batch(LARGE, codec=GZIP))),
    Case("too large as it is sent", "zstd-small", bytes(build_batch(LARGE, codec=NONE))),
    Case("too old", "zstd-timely", bytes(build_batch(LATE, codec=GZIP))),
    Case("garbage", "to-zstd", made(b"garbage", codec=GZIP)),
    Case("garbage that is not compressed", "to-zstd", made(b"garbage", codec=NONE)),
    Case("garbage inside", "to-zstd", made(compress(GZIP, b"garbage"), codec=GZIP)),
    Case("cut off", "to-zstd", made(compress(GZIP, BODY)[:-20], codec=GZIP)),
    Case("bytes after the records", "to-zstd", made(compress(GZIP, BODY + b"\0\0\0"), codec=GZIP)),
    Case(
        "fewer records than it says",
        "to-zstd",
        made(compress(GZIP, BODY), codec=GZIP, record_count=9, last_offset_delta=8),
    ),
    Case(
        "more records than it says",
        "to-zstd",
        made(compress(GZIP, BODY), codec=GZIP, record_count=2, last_offset_delta=1),
    ),
    Case("offsets that jump", "to-zstd", _jumbled(GZIP)),
    Case("offsets that jump, uncompressed", "to-zstd", _jumbled(NONE)),
    Case(
        "greatest time is wrong",
        "to-zstd",
        made(compress(GZIP, BODY), codec=GZIP, max_timestamp=9_000),
    ),
    Case(
        "first time is not the base",
        "to-zstd",
        made(compress(GZIP, BODY), codec=GZIP, base_timestamp=500, max_timestamp=504),
    ),
    Case("no times", "to-zstd", bytes(build_batch([NewRecord(b"k", b"v")] * 2, codec=GZIP))),
    Case(
        "times that fall",
        "to-zstd",
        bytes(build_batch([NewRecord(b"k", b"v", 10 - n) for n in range(3)], codec=SNAPPY)),
    ),
    Case(
        "records with attributes",
        "to-zstd",
        made(compress(GZIP, _one(0, b"k", b"v", attributes=5)), LATE, codec=GZIP),
    ),
    Case(
        "a delete horizon",
        "to-zstd",
        made(compress(GZIP, BODY), codec=GZIP, marks=DELETE_HORIZON_MASK),
    ),
    Case("a bit nobody knows", "to-zstd", made(compress(GZIP, BODY), codec=GZIP, marks=0x400)),
    Case(
        "log append time that a producer claims",
        "to-zstd",
        made(compress(GZIP, BODY), codec=GZIP, marks=TIMESTAMP_TYPE_MASK),
    ),
    Case("a control batch", "to-zstd", made(compress(GZIP, BODY), codec=GZIP, marks=CONTROL_MASK)),
    Case("a codec nobody knows", "to-zstd", made(BODY, codec=6)),
    Case(
        "null header name",
        "to-zstd",
        made(
            compress(GZIP, _one(0, b"k", b"v")[:-1].replace(b"\x0e", b"\x12", 1) + b"\x02\x01\x01"),
            LATE,
            codec=GZIP,
        ),
    ),
    Case(
        "a sequence again",
        "to-zstd",
        bytes(build_batch(KEYED, codec=GZIP, producer_id=41, producer_epoch=3, base_sequence=0)),
    ),
    Case("old clients may not send zstd", "to-gzip", bytes(build_batch(KEYED, codec=ZSTD)), 6),
]


_AS_KEYED = "-1 -1 -1 1000 1000 1004 1004 x5"
_STORED = {"to-uncompressed": "none"} | {f"to-{name}": name for name in NAMES[1:]}


def _stored(case: Case) -> str:
    """What is stored of a batch of CASES' first rows: it has the codec of its topic, or its own."""
    sent = case.name.split()[0]
    codec = _STORED.get(case.topic, sent)
    said = f"{codec} 0x0 {40 + NAMES.index(sent)} 3 0 1000 1000 1004 1004 x5"
    return said + (" as sent" if codec == sent else "")


REPORTED = {case.name: _stored(case) for case in CASES if " to-" in case.name} | {
    "log append time": "zstd 0x8 -1 -1 -1 1000 now now now x5",
    "log append time, same codec": "zstd 0x8 -1 -1 -1 1000 now now now x5 as sent",
    "keys": f"zstd 0x0 {_AS_KEYED}",
    "no key": "INVALID_RECORD",
    "too large once it is open": "MESSAGE_TOO_LARGE",
    "too large as it is sent": "MESSAGE_TOO_LARGE",
    "too old": "INVALID_TIMESTAMP",
    "garbage": "UNKNOWN_SERVER_ERROR",
    "garbage that is not compressed": "INVALID_RECORD",
    "garbage inside": "INVALID_RECORD",
    "cut off": "UNKNOWN_SERVER_ERROR",
    "bytes after the records": "INVALID_RECORD",
    "fewer records than it says": "INVALID_RECORD",
    "more records than it says": "INVALID_RECORD",
    "offsets that jump": "zstd 0x0 -1 -1 -1 1000 1000 1000 1000 x5",
    "offsets that jump, uncompressed": "zstd 0x0 -1 -1 -1 1000 1000 1000 1000 x5",
    "greatest time is wrong": f"zstd 0x0 {_AS_KEYED}",
    "first time is not the base": "zstd 0x0 -1 -1 -1 500 500 504 504 x5",
    "no times": "zstd 0x0 -1 -1 -1 -1 -1 -1 -1 x2",
    "times that fall": "zstd 0x0 -1 -1 -1 10 10 8 10 x3",
    "records with attributes": "zstd 0x0 -1 -1 -1 1000 1000 1000 1000 x1",
    "a delete horizon": f"zstd 0x0 {_AS_KEYED}",
    "a bit nobody knows": f"zstd 0x0 {_AS_KEYED}",
    "log append time that a producer claims": "zstd 0x0 -1 -1 -1 1004 1004 1004 1004 x5",
    "a control batch": "INVALID_RECORD",
    "a codec nobody knows": "UNKNOWN_SERVER_ERROR",
    "null header name": "INVALID_RECORD",
    "a sequence again": "zstd 0x0 41 3 0 1000 1000 1004 1004 x5",
    "old clients may not send zstd": "UNSUPPORTED_COMPRESSION_TYPE",
}
# Where ours says something else. UNKNOWN_SERVER_ERROR tells a producer nothing; INVALID_RECORD is as final.
OURS = dict.fromkeys(("garbage", "cut off", "a codec nobody knows"), "INVALID_RECORD")
SAME_ROWS = {case.name for case in CASES if " to-" in case.name} | {"keys", "log append time"}


def reported(target: Target, case: Case, asked_ms: int) -> str:
    """Produce the batch; return its error code, or what is stored of it: codec, other attributes, producer,
    base time, times of records, greatest time, records; and whether its body is as it was sent.
    """
    part = target.produce(case.topic, case.batch, version=case.version)
    if part.error_code:
        return Code(part.error_code).name
    data = fetched(target, case.topic, part.base_offset)
    header = parse_header(data)
    rows = list(records(data, header))
    assert [row.offset for row in rows] == [part.base_offset + n for n in range(len(rows))]
    assert header.record_count == header.last_offset_delta + 1 == len(rows)
    if case.name in SAME_ROWS:
        assert [(row.key, row.value, row.headers) for row in rows] == [
            (row.key, row.value, row.headers) for row in KEYED
        ]
    times = [row.timestamp_ms for row in rows]
    facts: list[Any] = [NAMES[header.codec], hex(header.attributes & ~7)]
    facts += [header.producer_id, header.producer_epoch, header.base_sequence]
    facts += [header.base_timestamp, times[0], times[-1], header.max_timestamp]
    said = " ".join(
        "now" if isinstance(fact, int) and fact >= asked_ms else str(fact) for fact in facts
    )
    return f"{said} x{len(rows)}" + (" as sent" if data[61:] == case.batch[61:] else "")


def fetched(target: Target, topic: str, offset: int) -> bytes:
    """Return the batch at that offset, as it is stored."""
    part = fetch(target, topic, offset, 12)
    assert part.error_code == 0, part
    data = bytes(part.records)
    return data[: parse_header(data).size_bytes]


def fetch(target: Target, topic: str, offset: int, version: int) -> Any:
    """Return the answer about partition 0."""
    wanted = m01.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    topics = [m01.FetchTopic(topic=topic, partitions=[wanted])]
    request = m01.FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics
    )
    return target.ask(request, version).responses[0].partitions[0]
