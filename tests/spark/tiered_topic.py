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
from firnline.testing.plugin import Broker
from tests.peers.nodes import eventually
from tests.raw_batches import SHOWN_BY_JAVA, raw_batch, record_with_header_keys
from tests.spark.written_tier import T0

TOPIC = "both-ways"
HALF, PLAIN = "half-copied", "not-copied"
# Of HALF, records up to the first of these are in the tier, and up to the second in the topic.
HALF_TIERED, HALF_END = 180, 200
PARTITIONS = 3
# The last one stays empty, so no catalog of the tier names it.
WRITTEN = (0, 1)
RECORDS = 300
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LOOK = "firnline.local.retention.check.interval.ms"
_EXPIRE = "log.retention.check.interval.ms"
_CONFIGS = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "4096",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}


@contextmanager
def tiered_topic(directory: Path, *settings: str) -> Iterator[tuple[Broker, Path]]:
    """Yield a running broker with the topic, and the tier that has all of it. Old local files are gone.

    settings  more of the broker, as `key=value`
    """
    tier = directory / "tier"
    tier.mkdir(parents=True)
    given = (f"{_LOOK}=100", f"{_EXPIRE}=500", *settings)
    options = [word for each in given for word in ("-X", each)]
    broker = Broker(directory / "data", tier=tier, options=options)
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


def half_tiered(broker: Broker) -> None:
    """Make two topics: of one the tier has the older nine tenths, of the other nothing.

    The last tenth is too small to close a segment, so it stays on the broker.
    """
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(HALF, partitions=1, configs=_CONFIGS)
        admin.create_topic(PLAIN, partitions=1, configs={"retention.ms": "-1"})
        write(broker.bootstrap, HALF, 0, HALF_TIERED)
        admin.tier_flush(HALF, [], timeout_s=60)
    first = broker.directory / f"{HALF}-0" / f"{0:020d}.log"
    eventually("old segments leave the broker", lambda: not first.exists())
    write(broker.bootstrap, HALF, HALF_TIERED, HALF_END)
    write(broker.bootstrap, PLAIN, 0, 50)


def write(bootstrap: str, topic: str, begin: int, end: int) -> None:
    """Write records with these numbers to partition 0; each is a second later than the one before it."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(begin, end):
        producer.produce(
            topic,
            key=f"key-{number}",
            value=f"{number}-" + "x" * (number * 13 % 200),
            partition=0,
            timestamp=T0 + number * 1000,
            headers=[("number", str(number).encode())] if number % 3 == 0 else None,
        )
        if number % 20 == 0:  # several batches, so several segments
            producer.flush()
    producer.flush()


def _produce_malformed(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    records = bytes(raw_batch(record_with_header_keys(tuple(SHOWN_BY_JAVA), b"malformed")))
    data = [PartitionProduceData(index=WRITTEN[0], records=records)]
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    with Connection(host, int(port), timeout_s=30) as connection:
        row = connection.ask(request, version=9).responses[0].partition_responses[0]
    assert row.error_code == Code.NONE, row
