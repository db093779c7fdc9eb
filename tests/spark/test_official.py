"""Our source against Spark's own Kafka source, under the same options.

The official one reads from a broker, ours the tier. The topic is written to our broker, which copies it to
its tier. A second topic has transactions: it is written to Apache Kafka, whose segments are copied by hand.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="NOT RUN: confluent-kafka is not installed")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from firnline.spark.options.kafka import is_known
from firnline.stores.directory import DirectoryStore
from firnline.testing.plugin import Broker
from firnline.tiered.objects.layout import (
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
)
from tests.peers import kafka, spark_kafka
from tests.spark import tiered_topic
from tests.spark.test_past_and_tail import Cluster, delete_below, flush, make_topic
from tests.spark.written_tier import T0, WrittenPartition, fingerprint_of

TOPIC = "transactions"
SHORTENED, REST = "shortened", (20, 60)  # a topic of which somebody deleted the first records


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
            bodies = {s: path.read_bytes() for s, path in files.items() if path.exists()}
            for suffix, data in bodies.items():
                store.put(segment.key(suffix), (data,), size_bytes=len(data))
            # What the writer noted is of its own indexes.
            known = fingerprint_of(segment, {LOG: log.read_bytes(), **bodies})
            writer.segments[-1] = segment._replace(fingerprint=known)
            count += 1
        writer.publish()
    return count


J = json.dumps
MIDDLE = str(T0 + 150_000)
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}


def by_partition(*values: int) -> str:
    return J({tiered_topic.TOPIC: dict(enumerate(values))})


# Options under which both sources give the same rows, at least one; on the topic that our broker tiered.
SAME: dict[str, dict[str, str]] = {
    "plain": {},
    "headers": {"includeHeaders": "true"},
    "pattern anywhere in the name": {"subscribePattern": "th-w"},
    "assign": {"assign": J({tiered_topic.TOPIC: [1]})},
    "assign a partition that is not there": {"assign": J({tiered_topic.TOPIC: [1, 99]})},
    "from a time": {"startingTimestamp": MIDDLE, **LATEST},
    "until a time": {"endingTimestamp": MIDDLE},
    "offsets, one of the empty partition": {
        "startingOffsets": by_partition(7, -2, -2), "endingOffsets": by_partition(-1, 40, -1),
    },
    "offset 0 of the empty partition": {"startingOffsets": by_partition(7, 140, 0)},
    "whole floats": {"startingOffsets": by_partition(7, 140, 0).replace("7", "7.0")},
    "times of partitions": {
        "startingOffsetsByTimestamp": by_partition(T0 + 50_000, T0 + 60_000, 1), **LATEST,
        "endingOffsetsByTimestamp": by_partition(T0 + 70_000, T0 + 80_000, 1),
    },
    "the time comes first": {
        "startingTimestamp": MIDDLE, **LATEST, "startingOffsets": by_partition(0, 0, 0),
    },
    "divided by offsets": {"maxRecordsPerPartition": "80", "minPartitions": "5"},
    "without effect": {
        "groupIdPrefix": "p", "kafka.group.id": "g", "fetchOffset.numRetries": "2",
        "fetchOffset.retryIntervalMs": "10", "kafkaConsumer.pollTimeoutMs": "120000",
        "maxOffsetsPerTrigger": "some", "maxTriggerDelay": "x",
        "kafka.max.poll.records": "7", "kafka.client.id": "c", "kafka.not.known": "1",
        "kafka.check.crcs": "false", "kafka.request.timeout.ms": "25000",
        "failOnDataLoss": "false", "kafka.isolation.level": "read_committed",
    },
}  # fmt: skip
# Options that both sources refuse.
REFUSED: dict[str, dict[str, str]] = {
    **{name: {f"kafka.{name}": "x"} for name in (
        "auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit",
        "interceptor.classes",
    )},
    "two strategies": {"assign": "{}", "subscribe": "x"},
    "no topic": {"subscribe": " , "},
    "empty pattern": {"subscribePattern": " "},
    "assign of text": {"assign": J({tiered_topic.TOPIC: ["0"]})},
    "unknown topic": {"subscribe": "nobody-made-it", "fetchOffset.numRetries": "1"},
    "starting latest": {"startingOffsets": "latest"},
    "ending earliest": {"endingOffsets": "earliest"},
    "starting -1": {"startingOffsets": by_partition(-1, -2, -2)},
    "starting -3": {"startingOffsets": by_partition(-3, -2, -2)},
    "ending -2": {"endingOffsets": by_partition(-2, -1, -1)},
    "offset in quotes": {"startingOffsets": J({tiered_topic.TOPIC: {"0": "7", "1": 1, "2": 0}})},
    "a partition not named": {"startingOffsets": by_partition(7)},
    "a topic not read": {"startingOffsets": J({"x": {"0": 0}})},
    "ends that name different partitions": {
        "startingOffsets": by_partition(7, 0, 0), "endingOffsets": by_partition(9, -1),
    },
    "beyond the end": {"startingOffsets": by_partition(7, 0, 5)},
    "end before start": {
        "startingOffsets": by_partition(50, 0, 0), "endingOffsets": by_partition(40, -1, -1),
    },
    "end before start by time": {
        "startingOffsets": by_partition(150, 0, 0), "endingTimestamp": str(T0 + 10_000),
    },
    "no record after the time": {
        "startingTimestamp": "9999999999999", "fetchOffset.numRetries": "1",
    },
    "time in words": {"startingTimestamp": "noon"},
    "strategy": {"startingOffsetsByTimestampStrategy": "nearest"},
    "minPartitions 0": {"minPartitions": "0"},
    "minPartitions with a unit": {"minPartitions": "64m"},
    "maxRecordsPerPartition 0": {"maxRecordsPerPartition": "0"},
    "least above most": {"minOffsetsPerTrigger": "7", "maxOffsetsPerTrigger": "5"},
    "retries": {"fetchOffset.numRetries": "x"},
    "retry interval": {"fetchOffset.retryIntervalMs": "x"},
    "poll timeout": {"kafkaConsumer.pollTimeoutMs": "x"},
    "isolation level": {"kafka.isolation.level": "READ_COMMITTED"},
    "headers perhaps": {"includeHeaders": "yes"},
    "data loss": {"failOnDataLoss": "no"},
}  # fmt: skip
# The tasks of both sources. The official one needs minPartitions to heed maxRecordsPerPartition in a batch.
TASKS = {
    "tasks minPartitions": ({"minPartitions": "8"}, [8, 8, 8]),
    "tasks both": ({"maxRecordsPerPartition": "40", "minPartitions": "20"}, [21, 21, 21]),
    "tasks maxRecordsPerPartition": ({"maxRecordsPerPartition": "40"}, [3, 8, 8]),
}
# On Apache Kafka's own segments: our broker has no transaction coordinator yet.
TRANSACTIONS = {
    "kafka plain": {},
    "kafka committed": {"kafka.isolation.level": "read_committed"},
}

# Topics of which the tier has a part, or nothing.
TAILS: dict[str, tuple[str, dict[str, str]]] = {
    "most of it is in the tier": ("tail", {"subscribe": tiered_topic.HALF}),
    "both from a time": ("tail", {"subscribe": tiered_topic.HALF, "startingTimestamp": MIDDLE}),
    "both until an offset": (
        "tail",
        {"subscribe": tiered_topic.HALF, "endingOffsets": J({tiered_topic.HALF: {"0": 190}})},
    ),
    "without a tier": ("tail", {"subscribe": tiered_topic.PLAIN, "includeHeaders": "true"}),
    "a topic with a tier and one without": (
        "tail",
        {"subscribe": f"{tiered_topic.HALF},{tiered_topic.PLAIN}"},
    ),
    "written meanwhile": ("meanwhile", {"subscribe": tiered_topic.HALF}),
}


def shortened(start: int, end: int = -1, *, fails: bool = True) -> dict[str, str]:
    ends = {
        "startingOffsets": J({SHORTENED: {"0": start}}),
        "endingOffsets": J({SHORTENED: {"0": end}}),
    }
    return {"subscribe": SHORTENED, **ends, "failOnDataLoss": str(fails).lower()}


# Reads that begin or end at records that are gone, and how many rows they give.
LOSSES = {
    "gone, and that is no failure": (shortened(5, fails=False), 40),
    "gone up to the middle": (shortened(5, 30, fails=False), 10),
}
# Both say so; the official one only where it reads.
LOST = {"gone": shortened(5)}

# Streams of a topic of which the tier has a part, and of one with several partitions.
STREAMS: dict[str, dict[str, str]] = {
    "a stream": {"subscribe": tiered_topic.HALF, "startingOffsets": "earliest"},
    "a stream from offsets": {
        "subscribe": tiered_topic.TOPIC, "startingOffsets": by_partition(7, -1, -2),
    },
    "a stream with limits": {
        "subscribe": tiered_topic.TOPIC, "startingOffsets": "earliest",
        "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "70",
    },
}  # fmt: skip
# What both refuse of a stream.
REFUSED_STREAMS = {
    "a stream with an end": {"endingOffsets": "latest"},
    "a stream from too few offsets": {"startingOffsets": by_partition(7)},
}


def cases(ours: tuple[str, Path], kafkas: tuple[str, Path]) -> list[list[object]]:
    """Return the cases for tests.spark.official."""
    kinds = {"same": SAME, "refused": REFUSED, "tasks": {n: o for n, (o, _) in TASKS.items()}}
    found: list[list[object]] = []
    for kind, named in kinds.items():
        for name, options in named.items():
            is_chosen = {"subscribe", "subscribePattern", "assign"} & set(options)
            topic = {} if is_chosen else {"subscribe": tiered_topic.TOPIC}
            found.append([kind, name, ours[0], str(ours[1]), topic | options])
    for name, (kind, options) in TAILS.items():
        found.append([kind, name, ours[0], str(ours[1]), options])
    for name, options in (LOST | {name: o for name, (o, _) in LOSSES.items()}).items():
        found.append(["tail", name, ours[0], str(ours[1]), options])
    for name, options in STREAMS.items():
        found.append(["streams", name, ours[0], str(ours[1]), options])
    for name, options in REFUSED_STREAMS.items():
        topic = {"subscribe": tiered_topic.TOPIC}
        found.append(["streams", name, ours[0], str(ours[1]), topic | options])
    for name, options in TRANSACTIONS.items():
        found.append(["same", name, kafkas[0], str(kafkas[1]), {"subscribe": TOPIC} | options])
    found.append(["again", "again", ours[0], str(ours[1]), {"subscribe": SHORTENED}])
    return found


def shorten(broker: Broker, tier: Path) -> None:
    """Write a topic, copy it, and delete its first records."""
    cluster = Cluster(broker, tier)
    make_topic(cluster, SHORTENED)
    tiered_topic.write(broker.bootstrap, SHORTENED, 0, REST[1])
    flush(cluster, SHORTENED)
    delete_below(cluster, SHORTENED, REST[0])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What both sources said in every case."""
    base = tmp_path_factory.mktemp("official")
    try:
        jars = spark_kafka.jars()
        apache = kafka.start(base / "kafka")
    except kafka.PeerMissing as problem:
        pytest.skip(f"NOT RUN: {problem}")
    with apache, tiered_topic.tiered_topic(base / "ours") as (broker, tier):
        began = time.monotonic()
        produce(apache.bootstrap)
        tiered_topic.half_tiered(broker)
        shorten(broker, tier)
        assert copy_to_tier(base / "kafka", base / "tier") > 2
        (base / "cases.json").write_text(
            J(cases((broker.bootstrap, tier), (apache.bootstrap, base / "tier")))
        )
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.official", str(base / "cases.json"), jars],
            capture_output=True, text=True, timeout=800, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stderr, f"{time.monotonic() - began:.1f} s altogether, without the servers' start")
    return dict(json.loads(done.stdout.splitlines()[-1]))


# All reads are made before the first test: two minutes, and more beside others.
pytestmark = [pytest.mark.peer, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", [*SAME, *TRANSACTIONS, *TAILS])
def test_both_sources_give_the_same_rows_under_the_same_options(
    found: dict[str, Any], name: str
) -> None:
    """Goal: a job may change its format name. Method: all rows as text, schemas as text."""
    reported = found[name]
    assert set(reported["refused"]) == {""}
    assert len(set(reported["schemas"])) == 1
    assert reported["only_official"] == reported["only_ours"] == []
    assert len(set(reported["rows"])) == 1
    assert reported["rows"][0] > 0


@pytest.mark.parametrize("name", LOSSES)
def test_records_that_are_gone_are_left_out_as_by_the_official_source(
    found: dict[str, Any], name: str
) -> None:
    reported = found[name]
    assert set(reported["refused"]) == {""}
    assert set(reported["rows"]) == {LOSSES[name][1]}
    assert reported["only_official"] == reported["only_ours"] == []


@pytest.mark.parametrize("name", LOST)
def test_records_that_are_gone_are_data_loss_as_for_the_official_source(
    found: dict[str, Any], name: str
) -> None:
    assert "" not in found[name]["refused"]
    assert all("below the log start" in words for words in found[name]["refused"][1:])


def test_a_frame_that_is_read_again_reads_on_only_where_each_query_is_planned(
    found: dict[str, Any],
) -> None:
    """The official source plans each query; docs/SPARK.md says so, and which of ours do."""
    assert found["again"] == [[40, 40], [50, 40]]


def test_the_rows_are_as_many_as_were_written(found: dict[str, Any]) -> None:
    assert found["plain"]["rows"][0] == tiered_topic.RECORDS + 1
    assert found["kafka plain"]["rows"][0] == 360
    assert found["kafka committed"]["rows"][0] == 340


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_official_source_refuses_is_refused(found: dict[str, Any], name: str) -> None:
    official, ours, beside_brokers = found[name]
    assert official, "the official source does not refuse it"
    assert ours, f"only the official source refuses it: {official}"
    assert beside_brokers, f"beside brokers it is not refused: {official}"


@pytest.mark.parametrize("name", TASKS)
def test_tasks_are_as_many_as_those_of_the_official_source(
    found: dict[str, Any], name: str
) -> None:
    assert found[name] == TASKS[name][1]


def test_every_setting_of_a_consumer_passes_without_a_note(found: dict[str, Any]) -> None:
    assert len(found["settings"]) > 90
    assert [name for name in found["settings"] if not is_known(name)] == []


@pytest.mark.parametrize("name", STREAMS)
def test_streams_take_the_same_micro_batches_as_those_of_the_official_source(
    found: dict[str, Any], name: str
) -> None:
    """Goal: a job may change the format name of its stream, too, and keep its checkpoint."""
    reported = found[name]
    official = reported["official"]
    assert official["rows"]
    for way in ("auto", "broker"):
        ours = reported[way]
        assert "refused" not in ours, ours
        assert ours["rows"] == official["rows"]
        assert ours["ends"] == official["ends"]
        assert ours["latest"] == official["latest"]
    assert len(set(reported["goes on"]["rows"])) == len(reported["goes on"]["rows"])
    assert len(reported["goes on"]["rows"]) == len(official["rows"]) + 10
    assert "refused" in reported["goes back"]


@pytest.mark.parametrize("name", REFUSED_STREAMS)
def test_what_the_official_source_refuses_of_a_stream_is_refused(
    found: dict[str, Any], name: str
) -> None:
    assert [
        way for way in ("official", "auto", "broker") if "refused" not in found[name][way]
    ] == []
