"""Real clients, unchanged, over sockets: create a topic, produce with every codec, read through a group.

Each client gets a broker of its own process (`firnline dev`). What is judged is what the client saw:
every record once, in order within its partition, with key, value and headers as they were sent.
"""

import asyncio
import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from firnline.testing.plugin import Broker

PARTITIONS = 3
RECORDS = 300
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def expected(codec: str) -> list[tuple[bytes, bytes]]:
    """The records of one topic: keys say the order in which they were sent."""
    return [
        (b"%06d" % i, b"%s value %d %s" % (codec.encode(), i, b"x" * (i % 97)))
        for i in range(RECORDS)
    ]


def assert_all_once_in_order(seen: Iterable[tuple[int, bytes, bytes]], codec: str) -> None:
    """`seen` is (partition, key, value) in the order of arrival."""
    by_partition: dict[int, list[bytes]] = defaultdict(list)
    rows = []
    for partition, key, value in seen:
        by_partition[partition].append(key)
        rows.append((key, value))
    assert sorted(rows) == expected(codec)
    for keys in by_partition.values():
        assert keys == sorted(keys)


def test_confluent_kafka(firnline_broker: Broker) -> None:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": firnline_broker.bootstrap})
    for codec in CODECS:
        topic = f"confluent-{codec}"
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(20)
        failures: list[Any] = []
        producer = Producer(
            {
                "bootstrap.servers": firnline_broker.bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        for key, value in expected(codec):
            producer.produce(
                topic,
                value,
                key,
                headers=[("codec", codec.encode()), ("empty", None)],
                on_delivery=lambda error, _, kept=failures: kept.append(error) if error else None,
            )
        assert producer.flush(20) == 0
        assert not failures
        consumer = Consumer(
            {
                "bootstrap.servers": firnline_broker.bootstrap,
                "group.id": f"group-{codec}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        seen = []
        while len(seen) < RECORDS:
            message = consumer.poll(20)
            assert message is not None, f"only {len(seen)} records arrived"
            assert message.error() is None, message.error()
            assert message.headers() == [("codec", codec.encode()), ("empty", None)]
            seen.append((message.partition(), message.key(), message.value()))
        consumer.commit(asynchronous=False)
        consumer.close()
        assert_all_once_in_order(seen, codec)
        # A second member of the same group finds its offsets committed and nothing left to read.
        again = Consumer(
            {
                "bootstrap.servers": firnline_broker.bootstrap,
                "group.id": f"group-{codec}",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )
        again.subscribe([topic])
        ended = set()
        while len(ended) < PARTITIONS:
            message = again.poll(20)
            assert message is not None, f"only {ended} ended"
            assert message.error() is not None, "a record that was read before"
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
        again.close()


def test_aiokafka(firnline_broker: Broker) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    async def run(codec: str) -> None:
        topic = f"aiokafka-{codec}"
        admin = AIOKafkaAdminClient(bootstrap_servers=firnline_broker.bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        await admin.close()
        producer = AIOKafkaProducer(
            bootstrap_servers=firnline_broker.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
        )
        await producer.start()
        sent = [await producer.send(topic, value, key) for key, value in expected(codec)]
        await asyncio.gather(*sent)
        await producer.stop()
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=firnline_broker.bootstrap,
            group_id=f"group-{codec}",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        seen = []
        while len(seen) < RECORDS:
            message = await asyncio.wait_for(consumer.getone(), 20)
            seen.append((message.partition, message.key, message.value))
        await consumer.commit()
        await consumer.stop()
        assert_all_once_in_order(seen, codec)

    for codec in CODECS:
        asyncio.run(run(codec))


def test_kafka_python(firnline_broker: Broker) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=firnline_broker.bootstrap)
    for codec in CODECS:
        topic = f"kafka-python-{codec}"
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        producer = KafkaProducer(
            bootstrap_servers=firnline_broker.bootstrap,
            compression_type=None if codec == "none" else codec,
        )
        sent = [producer.send(topic, value=value, key=key) for key, value in expected(codec)]
        producer.flush(20)
        for one in sent:
            one.get(20)
        producer.close()
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=firnline_broker.bootstrap,
            group_id=f"group-{codec}",
            auto_offset_reset="earliest",
            consumer_timeout_ms=20_000,
        )
        seen = []
        for message in consumer:
            seen.append((message.partition, message.key, message.value))
            if len(seen) == RECORDS:
                break
        consumer.close()
        assert_all_once_in_order(seen, codec)
    admin.close()


def test_kcat(firnline_broker: Broker) -> None:
    kcat = shutil.which("kcat") or shutil.which("kafkacat")
    if kcat is None:
        pytest.skip("NOT RUN: kcat is not installed")
    for codec in CODECS:
        topic = f"kcat-{codec}"  # created by the first Produce, as Kafka's default is
        text = "".join(f"{k.decode()}:{v.decode()}\n" for k, v in expected(codec))
        produce = [kcat, "-b", firnline_broker.bootstrap, "-P", "-t", topic, "-K:", "-z", codec]
        subprocess.run(produce, input=text, text=True, check=True, timeout=60)
        consume = [kcat, "-b", firnline_broker.bootstrap, "-G", f"group-{codec}", topic]
        options = ["-X", "auto.offset.reset=earliest", "-c", str(RECORDS), "-J"]
        done = subprocess.run(
            consume + options, capture_output=True, text=True, check=True, timeout=60
        )
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        seen = [(r["partition"], r["key"].encode(), r["payload"].encode()) for r in rows]
        assert_all_once_in_order(seen, codec)


@pytest.mark.peer
def test_kafkas_own_tools(firnline_broker: Broker) -> None:
    """topics, console-producer, console-consumer with a group, groups, producer-perf, consumer-perf."""
    from tests.peers.kafka import tool

    server = ("--bootstrap-server", firnline_broker.bootstrap)
    for codec in CODECS:
        topic, group = f"java-{codec}", f"java-group-{codec}"
        tool("topics", *server, "--create", "--topic", topic, "--partitions", str(PARTITIONS))
        described = tool("topics", *server, "--describe", "--topic", topic)
        assert f"PartitionCount: {PARTITIONS}" in described
        text = "".join(f"{k.decode()}:{v.decode()}\n" for k, v in expected(codec))
        separator = ("--property", "parse.key=true", "--property", "key.separator=:")
        tool(
            "console-producer", *server, "--topic", topic, "--compression-codec", codec, *separator,
            stdin=text,
        )  # fmt: skip
        out = tool(
            "console-consumer", *server, "--topic", topic, "--group", group, "--from-beginning",
            "--max-messages", str(RECORDS), "--property", "print.key=true",
            "--property", "print.partition=true", "--property", "key.separator=:",
        )  # fmt: skip
        rows = [line.split(":", 2) for line in out.splitlines() if line.startswith("Partition:")]
        seen = [(int(r[1].split(":")[0]), *_key_value(r[2])) for r in rows]
        assert_all_once_in_order(seen, codec)
        groups = tool("groups", *server, "--describe", "--group", group)
        lags = [line.split()[5] for line in groups.splitlines() if topic in line]
        assert lags == ["0"] * PARTITIONS
    assert "java-group-zstd" in tool("groups", *server, "--list")
    tool("topics", *server, "--create", "--topic", "perf", "--partitions", "1")
    producer_options = ("--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    bootstrap = ("--producer-props", f"bootstrap.servers={firnline_broker.bootstrap}")
    assert "20000 records sent" in tool(
        "producer-perf", "--topic", "perf", *producer_options, *bootstrap
    )
    consumed = tool("consumer-perf", *server, "--topic", "perf", "--messages", "20000")
    assert "20000" in consumed
    assert "java-none" in tool("topics", *server, "--list")


def _key_value(rest: str) -> tuple[bytes, bytes]:
    key, _, value = rest.partition(":")
    return key.encode(), value.encode()
