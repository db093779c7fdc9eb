"""Kafka's cleaner and ours over the same log: the same is left, and each opens what the other left."""

import random
import re
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from firnline.base import ids
from firnline.base.effects import SetTimer, Submit
from firnline.log import checkpoint
from firnline.log.checkpoint import read_meta_properties
from firnline.log.compaction.rounds import RoundDone
from firnline.log.directory import LogDirectory
from firnline.log.log import Log
from firnline.records.batch import DELETE_HORIZON_MASK, headers
from firnline.records.record import records
from firnline.runtime.disk import RealFs
from tests.compat.test_log_with_kafka import CODECS, consumed, dumped
from tests.peers import kafka
from tests.peers.nodes import eventually
from tests.worlds.chance import SeededRng
from tests.worlds.compaction import RULES, compacted, round_of
from tests.worlds.effects import only
from tests.worlds.log import flush, read_all

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

TOPIC = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "1.0",
}
CONFIG = compacted(
    segment_bytes=1048576,
    segment_index_bytes=10485760,
    index_interval_bytes=4096,
    delete_retention_ms=0,
)
SETTINGS = {"log.cleaner.backoff.ms": 200, "log.cleaner.io.buffer.load.factor": 0.9}
Row = tuple[object, ...]


def produce(cluster: kafka.Cluster, rng: random.Random) -> None:
    """Values, tombstones, headers, every codec; idempotent producers, and transactions of both ends."""
    for codec in CODECS:
        settings = {"bootstrap.servers": cluster.bootstrap, "compression.type": codec}
        producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 20})
        for number in range(1500):
            value = None if rng.random() < 0.2 else rng.randbytes(rng.choice([10, 700]))
            key = b"%d" % rng.randrange(400)
            producer.produce("t", value, key, headers={"n": b"%d" % number})
            if number % 97 == 0:
                producer.flush()
        assert producer.flush(30) == 0
    for name in range(4):
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{rng.random()}-{name}"}
        )
        producer.init_transactions()
        for turn in range(4):
            producer.begin_transaction()
            for number in range(25):
                producer.produce("t", b"%d %d" % (turn, number), b"%d" % rng.randrange(450))
            producer.flush()
            if (name + turn) % 2:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "none"})
    for _ in range(2500):  # what was written above is in closed segments
        producer.produce("t", rng.randbytes(900), b"%d" % rng.randrange(50))
    assert producer.flush(30) == 0


def set_ratio(cluster: kafka.Cluster, ratio: str) -> None:
    entry = ConfigEntry(
        "min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()


def cleaned_upto(data: Path) -> int:
    offsets = checkpoint.read_offsets(RealFs(), str(data / checkpoint.CLEANER_OFFSETS))
    return offsets.get(ids.TopicPartition("t", 0), -1)


def opened(path: Path) -> tuple[LogDirectory, Log]:
    """Open a directory of Kafka's, and the topic's log in it, as a start of ours would."""
    meta = read_meta_properties(RealFs(), str(path))
    assert meta is not None
    found = LogDirectory(
        RealFs(), str(path), cluster_id=meta["cluster.id"], node_id=1, unique=SeededRng().uuid
    )
    found.start()
    topic_id = checkpoint.read_partition_metadata(RealFs(), f"{path}/t-0")
    assert topic_id is not None
    log = found.open(ids.TopicPartition("t", 0), topic_id, CONFIG, now_ms())
    flush(log)
    log.advance_high_watermark(log.log_end_offset)
    return found, log


def now_ms() -> int:
    return int(time.time() * 1000)


def rows(log: Log) -> list[Row]:
    """Return (offset, key, value, timestamp, headers) of every record, markers left out."""
    data = read_all(log).read()
    return [
        (r.offset, r.key, r.value, r.timestamp_ms, r.headers)
        for header in headers(data)
        if not header.is_control
        for r in records(data, header)
    ]


def batches(log: Log) -> list[Row]:
    """Return what the header of every batch says, without times of the clean-up and compressed sizes."""
    data = read_all(log).read()
    return [
        (
            h.base_offset,
            h.last_offset,
            h.leader_epoch,
            h.attributes,
            h.max_timestamp,
            h.producer_id,
            h.producer_epoch,
            h.base_sequence,
            h.record_count,
        )
        for h in headers(data)
    ]


def compact_in_kafka(cluster: kafka.Cluster, upto_offset: int) -> None:
    set_ratio(cluster, "0.0")
    eventually(
        "its cleaner is done", lambda: cleaned_upto(cluster.data()) >= upto_offset, within_s=60
    )
    set_ratio(cluster, "1.0")


def test_both_cleaners_leave_the_same_and_each_opens_what_the_other_left(
    kafka_jars: Path, tmp_path: Path
) -> None:
    rng = random.Random(5)
    with kafka.start(tmp_path / "kafka", settings=SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1, config=TOPIC)])["t"].result()
        for turn in range(2):
            produce(cluster, rng)
            cluster.stop()
            mine = tmp_path / f"mine-{turn}"
            shutil.copytree(cluster.data(), mine)
            directory, log = opened(mine)
            before = len(rows(log))
            # The horizons of the turn before are over; Kafka's cleaner runs a little later than ours.
            done, effects = round_of(
                RealFs(), log, now_ms=now_ms(), rules=RULES._replace(map_bytes=1 << 24)
            )
            assert isinstance(done, RoundDone)
            cluster = kafka.start(cluster.directory, settings=SETTINGS)
            compact_in_kafka(cluster, done.first_dirty_offset)
            seen = consumed(cluster, "t", 1 << 62, "read_uncommitted")
            committed = consumed(cluster, "t", 1 << 62, "read_committed")
            cluster.stop()
            assert cleaned_upto(cluster.data()) == done.first_dirty_offset
            theirs_directory, theirs = opened(cluster.data())
            assert rows(log) == rows(theirs)
            assert [row[:4] for row in rows(log)] == seen
            assert len(seen) < before
            assert batches(log) == batches(theirs)
            assert log.log_end_offset == theirs.log_end_offset
            end = log.log_end_offset
            assert log.aborted_transactions(0, end) == theirs.aborted_transactions(0, end)
            assert [s.base_offset for s in log.closed_segments()] == [
                s.base_offset for s in theirs.closed_segments()
            ]
            data = read_all(log).read()
            has_horizons = any(h.attributes & DELETE_HORIZON_MASK for h in headers(data))
            theirs_directory.close(broker_epoch=theirs_directory.last_broker_epoch)
            for timer in effects:
                assert isinstance(timer, SetTimer)
                for submit in timer.then(timer.at_ms):
                    only([submit], Submit).work()
            directory.close(broker_epoch=directory.last_broker_epoch)
            # Kafka goes on with what we left.
            shutil.rmtree(cluster.data())
            shutil.copytree(mine, cluster.data())
            for file in sorted((mine / "t-0").iterdir()):
                look_at(file)
            cluster = kafka.start(cluster.directory, settings=SETTINGS)
            assert consumed(cluster, "t", 1 << 62, "read_uncommitted") == seen
            assert consumed(cluster, "t", 1 << 62, "read_committed") == committed
            text = (cluster.directory / "node-1" / "kafka.log").read_text()
            assert not re.search(r"(?i)corrupt|rebuild|recovering unflushed", text), text[-3000:]
        assert has_horizons


def look_at(file: Path) -> None:
    if file.suffix == ".log":
        assert "isvalid: false" not in dumped(file, "--deep-iteration", "--print-data-log")
    elif file.suffix in (".index", ".timeindex"):
        dumped(file, "--index-sanity-check")
        dumped(file, "--verify-index-only")
    elif file.suffix in (".txnindex", ".snapshot"):
        dumped(file)
