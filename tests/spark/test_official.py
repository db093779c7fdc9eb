"""Our source against Spark's own Kafka source: Kafka's segments read by us, its broker by them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka", reason="NOT RUN: confluent-kafka is not installed")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from firnline.stores.directory import DirectoryStore
from firnline.tiered.objects.layout import (
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
)
from tests.peers import kafka
from tests.spark.written_tier import T0, WrittenPartition

TOPIC = "both-ways"
JARS = os.environ.get("FIRNLINE_SPARK_KAFKA_JARS", "")


def produce(bootstrap: str) -> None:
    """Every codec, headers, nulls, an aborted transaction between committed ones, in two partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(
        [NewTopic(TOPIC, 2, 1, config={"retention.ms": "-1"})]
    ).values():
        future.result()
    number = 0
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for i in range(60):
            number += 1
            producer.produce(
                TOPIC,
                key=None if i % 7 == 0 else f"key-{number}",
                value=None if i % 11 == 0 else f"{codec}-{i}-" + "x" * (i * 13 % 200),
                partition=i % 2,
                timestamp=T0 + number * 1000,
                headers=[("codec", codec.encode()), ("none", None)] if i % 3 == 0 else None,
            )
        producer.flush()
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "both-ways"})
    writer.init_transactions()
    for round_, commit in enumerate((True, False, True)):
        writer.begin_transaction()
        for i in range(20):
            number += 1
            writer.produce(
                TOPIC, value=f"round {round_} {i}", partition=i % 2, timestamp=T0 + number * 1000
            )
        writer.flush()
        if commit:
            writer.commit_transaction()
        else:
            writer.abort_transaction()


def copy_to_tier(directory: Path, tier: Path) -> int:
    """Put Kafka's own segments and indexes into a tier with a catalog; return how many segments."""
    store = DirectoryStore(str(tier))
    count = 0
    for partition in (0, 1):
        (folder,) = directory.rglob(f"{TOPIC}-{partition}")
        writer = WrittenPartition(store, TOPIC, partition)
        for log in sorted(folder.glob("*.log")):
            suffixes = [LOG, OFFSET_INDEX, TIME_INDEX, PRODUCER_SNAPSHOT]
            if log.with_suffix(TXN_INDEX).exists():
                suffixes.append(TXN_INDEX)
            segment = writer.segment([log.read_bytes()], suffixes=suffixes)
            files = {suffix: log.with_suffix(suffix) for suffix in suffixes[1:]}
            files[PRODUCER_SNAPSHOT] = folder / f"{segment.end_offset + 1:020d}{PRODUCER_SNAPSHOT}"
            for suffix, path in files.items():
                if path.exists():
                    data = path.read_bytes()
                    store.put(segment.key(suffix), (data,), size_bytes=len(data))
            count += 1
        writer.publish()
    return count


@pytest.mark.peer
@pytest.mark.spark
@pytest.mark.skipif(
    not JARS, reason="NOT RUN: FIRNLINE_SPARK_KAFKA_JARS names no jars of Spark's Kafka connector"
)
def test_both_sources_give_the_same_rows_under_the_same_options(tmp_path: Path) -> None:
    """Goal: a job may change its format name. Method: exceptAll both ways, schemas as strings."""
    with kafka.start(tmp_path / "kafka") as cluster:
        produce(cluster.bootstrap)
        assert copy_to_tier(tmp_path / "kafka", tmp_path / "tier") > 2
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.official", cluster.bootstrap,
             str(tmp_path / "tier"), TOPIC, JARS, str(T0 + 150_000)],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for name, reported in found.items():
        assert reported["schemas"][0] == reported["schemas"][1], name
        assert reported["only_official"] == reported["only_ours"] == [], (name, reported)
        assert reported["rows"][0] == reported["rows"][1] > 0, name
    assert found["plain"]["rows"][0] == 360
    assert found["committed"]["rows"][0] == 340
