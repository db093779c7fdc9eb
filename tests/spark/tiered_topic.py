"""A topic that clients wrote to our broker, which copied to its tier: for both sources. WORLD."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from firnline.base.errors import Code
from firnline.client.admin import Admin
from firnline.client.connection import Connection
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.primitives import varint
from firnline.testing.plugin import Broker
from tests.peers.nodes import eventually
from tests.raw_batches import raw_batch
from tests.spark.written_tier import T0

TOPIC = "both-ways"
PARTITIONS = 3
# The last one stays empty, so no catalog of the tier names it.
WRITTEN = (0, 1)
RECORDS = 300
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LOOK = "firnline.local.retention.check.interval.ms"
_CONFIGS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "4096",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}
# Header keys that are not UTF-8. Clients cannot send them, so they are written as bytes. Each group is one
# question of how many replacement characters Java shows: surrogates, cut sequences, overlong ones, bad leads.
MALFORMED = (
    *(b"\xed\xa0\x80", b"a\xed\xa0\x80z", b"\xed\xa0", b"\xed\xa0A", b"\xed\xa0\x80\xed\xb0\x80", b"\xed"),
    *(b"\xe2\x82", b"\xe2\x82A", b"\xe2A", b"\xf0\x9f\x98", b"\xf0\x9f\x98A", b"\xf0\x9fA", b"\xc3"),
    *(b"\xe0\x80\x80", b"\xe0\x80", b"\xe0\xa0A", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xc0\x80"),
    *(b"\x80", b"\xbf\xbf", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfe\xff", b"\xf0\xed\xa0\x80"),
    *(b"\xe2\xed\xbf\xbf", b"\xed\x9f\xbf\xed\xa0\xbf\xbf", "ä€😀".encode(), b"\xf1\xed\xa0", b""),
)  # fmt: skip


def record_with_header_keys(keys: tuple[bytes, ...], value: bytes) -> bytes:
    """Encode the body of a batch with one record whose headers have these keys, as bytes."""
    one = b"\0" + varint(0) + varint(0) + varint(-1) + varint(len(value)) + value
    one += varint(len(keys))
    for key in keys:
        one += varint(len(key)) + key + varint(-1)
    return varint(len(one)) + one


@contextmanager
def tiered_topic(directory: Path) -> Iterator[tuple[Broker, Path]]:
    """Yield a running broker with the topic, and the tier that has all of it. Old local files are gone."""
    tier = directory / "tier"
    tier.mkdir(parents=True)
    broker = Broker(directory / "data", tier=tier, options=("-X", f"{_LOOK}=100"))
    broker.start()
    try:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, configs=_CONFIGS)
            _produce(broker.bootstrap)
            _produce_malformed(broker.bootstrap)
            admin.tier_flush(TOPIC, [], timeout_s=60)
        first = broker.directory / f"{TOPIC}-0" / f"{0:020d}.log"
        eventually("old segments leave the broker", lambda: not first.exists())
        yield broker, tier
    finally:
        broker.stop()


def _produce(bootstrap: str) -> None:
    """Every codec, headers, nulls; timestamps ascend by a second."""
    number = 0
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec,
                             "enable.idempotence": codec == "lz4"})  # fmt: skip
        for i in range(RECORDS // len(CODECS)):
            number += 1
            producer.produce(
                TOPIC,
                key=None if i % 7 == 0 else f"key-{number}",
                value=None if i % 11 == 0 else f"{codec}-{i}-" + "x" * (i * 13 % 200),
                partition=WRITTEN[i % 2],
                timestamp=T0 + number * 1000,
                headers=[("codec", codec.encode()), ("none", None)] if i % 3 == 0 else None,
            )
        producer.flush()


def _produce_malformed(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    records = bytes(raw_batch(record_with_header_keys(MALFORMED, b"malformed")))
    data = [PartitionProduceData(index=WRITTEN[0], records=records)]
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    with Connection(host, int(port), timeout_s=30) as connection:
        row = connection.ask(request, version=9).responses[0].partition_responses[0]
    assert row.error_code == Code.NONE, row
