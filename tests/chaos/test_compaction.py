"""A compacted topic on a real broker: it stops growing, and no kill -9 changes what its keys say."""

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from firnline.testing.plugin import Broker

pytestmark = pytest.mark.timeout(180)

OPTIONS = ("log.cleaner.backoff.ms=100", "log.flush.offset.checkpoint.interval.ms=200")
TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "100",
    "file.delete.delay.ms": "100",
}
KEYS = 300


def written(bootstrap: str, rng: random.Random, last: dict[bytes, bytes | None]) -> None:
    """Write a few thousand values and tombstones, and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(3000):
        key = b"%d" % rng.randrange(KEYS)
        value = None if rng.random() < 0.1 else b"%d-" % number + rng.randbytes(900)
        producer.produce("t", value, key, partition=0)
        last[key] = value
    assert producer.flush(60) == 0


def read(bootstrap: str) -> list[tuple[int, bytes, bytes | None]]:
    """Return (offset, key, value) of all that the topic has."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "r", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(30)) is not None:
        if message.error():
            break
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("**/t-0/*.log"))


def test_a_broker_that_is_killed_while_it_compacts_keeps_every_last_value(tmp_path: Path) -> None:
    rng = random.Random(11)
    options = [part for option in OPTIONS for part in ("-X", option)]
    broker = Broker(tmp_path / "data", options=options)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for done in admin.create_topics([NewTopic("t", 1, 1, config=TOPIC)]).values():
            done.result()
        last: dict[bytes, bytes | None] = {}
        for _ in range(3):
            written(broker.bootstrap, rng, last)
            time.sleep(rng.random())
            broker.kill()
            broker.start()
            found = read(broker.bootstrap)
            offsets = [offset for offset, _, _ in found]
            assert offsets == sorted(set(offsets))
            seen = {key: value for _, key, value in found}
            assert {k: v for k, v in seen.items() if v is not None} == {
                k: v for k, v in last.items() if v is not None
            }
        deadline = time.monotonic() + 60
        while log_bytes(tmp_path) > 4 * 1048576:
            assert time.monotonic() < deadline, "the log goes on growing"
            time.sleep(0.1)
        assert broker.stop() == 0
    finally:
        if broker.process is not None:
            broker.kill()
