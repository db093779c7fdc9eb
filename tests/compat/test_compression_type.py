"""compression.type of topics: ours stores what Apache Kafka stores, whatever producers send."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from firnline.records.batch import parse_header
from firnline.records.compression import NAMES, ZSTD
from firnline.testing.plugin import Broker
from tests.compat.compression_cases import CASES, OURS, REPORTED, TOPICS, fetch, reported
from tests.compat.one_server import KINDS, one_server
from tests.peers import kafka
from tests.wire.line import Target

RECORDS = 300


@pytest.fixture(scope="module", params=KINDS)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """A server of one kind with the topics of the cases."""
    with one_server(request.param, tmp_path_factory.mktemp("compression")) as server:
        yield _with_topics(server)


def _with_topics(target: Target) -> Target:
    for name, configs in TOPICS.items():
        target.topic(name, **configs)  # type: ignore[arg-type]
    return target


def test_batches_are_stored_in_the_codec_of_their_topic_as_kafka_stores_them(
    target: Target,
) -> None:
    wrong = []
    now_ms = int(time.time() * 1000) - 1_000
    for case in CASES:
        wanted = REPORTED[case.name]
        if target.is_firnline:
            wanted = OURS.get(case.name, wanted)
        found = reported(target, case, now_ms)
        if found != wanted:
            wrong.append(f"{case.name}\n  {found}\n  {wanted}")
    assert not wrong, "told and wanted:\n" + "\n".join(wrong)


def test_who_fetches_in_a_version_from_before_zstd_has_the_batch_all_the_same(
    target: Target,
) -> None:
    """Kafka refused it once, and does no more: a client of that age reads the codec in the batch."""
    target.topic("old", compression_type="zstd", retention_ms="-1")
    assert not target.produce("old", CASES[0].batch).error_code
    part = fetch(target, "old", 0, 4)
    assert not part.error_code
    assert parse_header(bytes(part.records)).codec == ZSTD


def _producer(bootstrap: str, codec: str) -> Producer:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "compression.type": codec}
    return Producer(settings | {"enable.idempotence": True, "linger.ms": 1})


def _produce(producer: Producer, topic: str, codec: str) -> list[tuple[bytes, bytes, Any]]:
    """Write batches of some bytes and of many, so that they are compressed on the loop and by threads."""
    failures: list[object] = []
    rows = []
    for number in range(RECORDS):
        key, value = b"%s %d" % (codec.encode(), number), b"%d " % number * 60
        rows.append((key, value, [("codec", codec.encode()), ("null", None)]))
        producer.produce(
            topic,
            value,
            key,
            headers=rows[-1][2],
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        if number in (0, 1, RECORDS // 2):
            assert producer.flush(20) == 0
    assert producer.flush(20) == 0
    assert not failures
    return rows


def _consume(bootstrap: str, topic: str, count: int) -> list[tuple[bytes, bytes, Any]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = []
    while len(seen) < count:
        message = consumer.poll(20)
        assert message is not None, f"{topic}: only {len(seen)} records arrived"
        assert message.error() is None, message.error()
        assert message.offset() == len(seen)
        seen.append((message.key(), message.value(), message.headers()))
    consumer.close()
    return seen


def _firnline(broker: Broker, *words: str) -> str:
    command = [sys.executable, "-m", "firnline", *words]
    if words[0] != "dump":
        command += ["--bootstrap-server", broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _codecs(broker: Broker, topic: str) -> list[str]:
    """What `firnline dump` says of the batches of a topic; each codec once for a run of batches."""
    [path] = broker.directory.glob(f"**/{topic}-0/*.log")
    found = _firnline(broker, "dump", "--batches", "--format", "json", str(path))
    return [codec for codec, _ in groupby(re.findall(r'"codec": ?"(\w+)"', found))]


def test_real_clients_write_in_every_codec_to_topics_of_every_kind_and_read_it_back(
    firnline_broker: Broker,
) -> None:
    kinds = ("producer", "uncompressed", *NAMES[1:])
    rows: dict[str, list[tuple[bytes, bytes, Any]]] = {kind: [] for kind in kinds}
    for kind in kinds:
        _firnline(firnline_broker, "topic", "create", kind, "-c", f"compression.type={kind}")
    for codec in NAMES:
        producer = _producer(firnline_broker.bootstrap, codec)
        for kind in kinds:
            rows[kind] += _produce(producer, kind, codec)
    for kind in kinds:
        assert _consume(firnline_broker.bootstrap, kind, len(rows[kind])) == rows[kind]
        stored = {"producer": list(NAMES), "uncompressed": ["none"]}
        assert _codecs(firnline_broker, kind) == stored.get(kind, [kind])


def test_the_setting_acts_from_the_next_batch_on_and_is_shown(firnline_broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": firnline_broker.bootstrap})
    admin.create_topics([NewTopic("t", 1)])["t"].result(20)
    producer = _producer(firnline_broker.bootstrap, "none")
    rows = _produce(producer, "t", "none")
    for owner, name, key, value in (
        (ResourceType.BROKER, "1", "compression.type", "gzip"),
        (ResourceType.TOPIC, "t", "compression.type", "zstd"),
        (ResourceType.TOPIC, "t", "compression.zstd.level", "19"),
        (ResourceType.TOPIC, "t", "compression.type", "lz4"),
        (ResourceType.TOPIC, "t", "compression.type", "producer"),
    ):
        change = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(owner, name, incremental_configs=[change])
        admin.incremental_alter_configs([resource])[resource].result(20)
        shown = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")])
        entries = next(iter(shown.values())).result(20)
        assert entries[key].value == value
        rows += _produce(producer, "t", "none")
    assert _consume(firnline_broker.bootstrap, "t", len(rows)) == rows
    assert _codecs(firnline_broker, "t") == ["none", "gzip", "zstd", "lz4", "none"]


@pytest.mark.peer
def test_kafka_reads_what_was_compressed_here(firnline_broker: Broker) -> None:
    """Its own tool opens each batch, with the libraries that Java's consumers have."""
    producer = _producer(firnline_broker.bootstrap, "none")
    for codec in NAMES[1:]:
        topic = f"to-{codec}"
        _firnline(firnline_broker, "topic", "create", topic, "-c", f"compression.type={codec}")
        rows = _produce(producer, topic, "none")
        [path] = firnline_broker.directory.glob(f"**/{topic}-0/*.log")
        text = kafka.tool("dump", str(path), "--deep-iteration", "--print-data-log")
        assert f"compresscodec: {codec}" in text
        assert "isvalid: false" not in text
        values = re.findall(r"(?m)^\| offset: .* payload: (.*)$", text)
        assert [value.encode() for value in values] == [value for _, value, _ in rows]
