"""How long a test waits for its Kafka: from nothing to the first record that a client has acknowledged.

    python -m bench.test_servers

A broker and a cluster of three from `firnline.testing`, a topic in a broker that runs already, the mock
cluster of librdkafka, and Apache Kafka on its JVM without a container, as fast as we can start it (an archive
of loaded classes, one compiler). The client is confluent-kafka; the mock is the baseline, as it costs little
more than the client itself. A container costs Kafka's time and its own; none is measured here.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.measure import BUILD, median_and_min, report
from firnline.testing import Broker, Cluster
from tests.peers import kafka

ROUNDS = 5
TOPIC = "orders"
Start = Callable[[], Any]


def first_record(settings: dict[str, object], topic: str = TOPIC) -> None:
    """Write one record with acks=all; SystemExit if it is not acknowledged."""
    from confluent_kafka import Producer

    failures: list[Any] = []
    producer = Producer({"topic.metadata.refresh.fast.interval.ms": 20, **settings})
    producer.produce(topic, b"1", on_delivery=lambda error, _: failures.append(error))
    left = producer.flush(60)
    if left or failures != [None]:
        raise SystemExit(f"the record was not acknowledged: {failures}")


@contextmanager
def broker() -> Iterator[None]:
    with Broker() as made:
        first_record({"bootstrap.servers": made.bootstrap}, made.create_topic(TOPIC))
        yield


@contextmanager
def cluster() -> Iterator[None]:
    with Cluster() as made:
        first_record({"bootstrap.servers": made.bootstrap}, made.create_topic(TOPIC))
        yield


@contextmanager
def mock() -> Iterator[None]:
    first_record({"test.mock.num.brokers": 1})
    yield


@contextmanager
def apache_kafka() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as directory, kafka.start(directory) as made:
        first_record({"bootstrap.servers": made.bootstrap})
        yield


def measured(what: str, start: Start) -> dict[str, Any]:
    """Return the row of one kind of server."""
    starts, stops = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        with start():
            up = time.perf_counter()
        starts.append((up - began) * 1000)
        stops.append((time.perf_counter() - up) * 1000)
    median, least = median_and_min(starts)
    return {
        "server": what,
        "start_ms": round(median),
        "least_ms": round(least),
        "stop_ms": round(median_and_min(stops)[0]),
    }


def main() -> None:
    """Measure and report."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    sys.pycache_prefix = str(BUILD / "compiled")
    rows = [measured("librdkafka's mock cluster", mock)]
    with Broker() as made:

        @contextmanager
        def topic() -> Iterator[None]:
            first_record({"bootstrap.servers": made.bootstrap}, made.create_topic())
            yield

        rows.append(measured("firnline: a topic in a running broker", topic))
    rows.append(measured("firnline: Broker()", broker))
    rows.append(measured("firnline: Cluster(), 3 nodes", cluster))
    try:
        kafka.class_archive()
        rows.append(measured(f"Apache Kafka {kafka.VERSION}, native", apache_kafka))
    except kafka.PeerMissing as problem:
        rows.append({"server": f"NOT RUN: Apache Kafka: {problem}"})
    report("how long does a test wait for its Kafka?", rows)


if __name__ == "__main__":
    main()
