"""Clients that ask for what Firnline does not have yet fail at once, and the log names them.

What each of them then says is a table in docs/COMPATIBILITY.md.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from firnline.testing.plugin import Broker
from tests.peers import kafka
from tests.peers.nodes import eventually

# Far less than the timeout of any of them. Java takes a second to start.
AT_ONCE_S = 20.0
NO_TRANSACTIONS = "do not set transactional.id"
NO_CONSUMER_PROTOCOL = "set group.protocol=classic"


def failing_at_once(what: Callable[[], Any]) -> str:
    """The text of the error that the client raises."""
    started = time.monotonic()
    with pytest.raises(Exception) as failure:
        what()
    assert time.monotonic() - started < AT_ONCE_S
    return str(failure.value)


def assert_named(broker: Broker, client_id: str, sentence: str) -> None:
    """The log has one line about the client. A thread writes it: it may come after the answer."""

    def lines() -> list[str]:
        return [
            line
            for line in broker.log_text().splitlines()
            if f"client_id={client_id} " in line and "client refused" in line
        ]

    eventually("the client is named", lines)
    (line,) = lines()
    assert sentence in line


def test_transactions_of_confluent_kafka(firnline_broker: Broker) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": firnline_broker.bootstrap,
            "client.id": "shop",
            "transactional.id": "tx",
        }
    )

    said = failing_at_once(lambda: producer.init_transactions(30))
    assert "FATAL" in said
    assert NO_TRANSACTIONS in said
    assert_named(firnline_broker, "shop", NO_TRANSACTIONS)


def test_the_consumer_protocol_of_confluent_kafka(firnline_broker: Broker) -> None:
    from confluent_kafka import Consumer, KafkaError

    consumer = Consumer(
        {
            "bootstrap.servers": firnline_broker.bootstrap,
            "client.id": "shop",
            "group.id": "g",
            "group.protocol": "consumer",
        }
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(AT_ONCE_S)
    consumer.close()
    assert message is not None, "the client goes on trying"
    assert message.error().code() == KafkaError._FATAL
    assert "API version not supported" in message.error().str()
    assert_named(firnline_broker, "shop", NO_CONSUMER_PROTOCOL)


def test_transactions_of_kafka_python(firnline_broker: Broker) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=firnline_broker.bootstrap,
        client_id="shop",
        transactional_id="tx",
        max_block_ms=30_000,
    )
    try:
        assert "UnsupportedVersion" in failing_at_once(producer.init_transactions)
    finally:
        producer.close(timeout=1)
    assert_named(firnline_broker, "shop", NO_TRANSACTIONS)


def test_transactions_of_aiokafka(firnline_broker: Broker) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=firnline_broker.bootstrap, client_id="shop", transactional_id="tx"
        )
        try:
            await asyncio.wait_for(producer.start(), 30)
        finally:
            await producer.stop()

    assert "TransactionalIdAuthorizationFailed" in failing_at_once(lambda: asyncio.run(run()))
    assert_named(firnline_broker, "shop", NO_TRANSACTIONS)


def java(name: str, *words: str) -> str:
    """What a tool of Apache Kafka prints, which it ends by itself."""
    started = time.monotonic()
    done = subprocess.run(
        kafka.command(kafka.TOOLS[name], *words, is_short=True),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert time.monotonic() - started < AT_ONCE_S
    return done.stdout + done.stderr


@pytest.mark.peer
def test_transactions_and_the_consumer_protocol_of_java(firnline_broker: Broker) -> None:
    where = ("--bootstrap-server", firnline_broker.bootstrap, "--topic", "orders")
    client = ("--command-property", "client.id=shop")
    said = java(
        "producer-perf", *where, *client, "--transactional-id", "tx", "--num-records", "1",
        "--record-size", "1", "--throughput", "-1",
    )  # fmt: skip
    assert NO_TRANSACTIONS in said
    assert_named(firnline_broker, "shop", NO_TRANSACTIONS)
    said = java(
        "console-consumer", *where, "--command-property", "client.id=till", "--command-property",
        "group.protocol=consumer", "--timeout-ms", "30000",
    )  # fmt: skip
    assert "Set group.protocol=classic" in said
    assert_named(firnline_broker, "till", NO_CONSUMER_PROTOCOL)
