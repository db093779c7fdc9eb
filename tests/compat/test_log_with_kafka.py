"""Kafka judges our log directory, and we read Kafka's: one directory that moves both ways."""

import random
import re
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from firnline.base import ids
from firnline.base.errors import Code, StorageError
from firnline.config.topic import TopicConfig
from firnline.log import checkpoint
from firnline.log.checkpoint import read_meta_properties
from firnline.log.directory import LogDirectory
from firnline.log.log import Log
from firnline.log.recovery import RecoveryReport
from firnline.records.batch import headers
from firnline.records.record import records
from firnline.runtime.disk import RealFs
from tests.peers import kafka
from tests.peers.nodes import eventually
from tests.unit.records.test_validate import cases
from tests.worlds.chance import SeededRng
from tests.worlds.log import ABORT, COMMIT, append, batch, end_txn, found_records, offset_at_time

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {"segment.bytes": "1048576", "index.interval.bytes": "512"}
CONFIG = TopicConfig(segment_bytes=1048576, index_interval_bytes=512)


@pytest.fixture
def cluster(kafka_jars: Path, tmp_path: Path) -> Iterator[kafka.Cluster]:
    with kafka.start(tmp_path / "kafka") as running:
        yield running


def create(cluster: kafka.Cluster, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = [NewTopic(topic, 1, 1, config=SETTINGS) for topic in topics]
    for done in admin.create_topics(new).values():
        done.result()


def directory(cluster: kafka.Cluster) -> LogDirectory:
    """Open Kafka's data directory as ours."""
    path = str(cluster.data())
    meta = read_meta_properties(RealFs(), path)
    assert meta is not None
    opened = LogDirectory(
        RealFs(), path, cluster_id=meta["cluster.id"], node_id=1, unique=SeededRng().uuid
    )
    deadline = time.monotonic() + 30
    while True:
        try:
            opened.start()
            return opened
        except StorageError as problem:  # a killed JVM holds its lock until it is quite gone
            if "in use" not in problem.why or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def now_ms() -> int:
    return int(time.time() * 1000)


def log_of(opened: LogDirectory, topic: str) -> Log:
    topic_id = checkpoint.read_partition_metadata(RealFs(), f"{opened.path}/{topic}-0")
    assert topic_id is not None
    return opened.open(ids.TopicPartition(topic, 0), topic_id, CONFIG, now_ms())


def consumed(
    cluster: kafka.Cluster, topic: str, end: int, isolation: str
) -> list[tuple[object, ...]]:
    """Read the partition with a real consumer up to `end`: (offset, key, value, timestamp)."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "judge",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[object, ...]] = []
    while True:
        message = consumer.poll(10)
        assert message is not None, f"nothing comes after {len(found)} records"
        problem = message.error()
        if problem is not None and problem.code() == KafkaError._PARTITION_EOF:
            break
        if problem is not None and problem.retriable():
            continue
        assert problem is None, problem
        found.append((message.offset(), message.key(), message.value(), message.timestamp()[1]))
    consumer.close()
    assert not found or found[-1][0] < end  # type: ignore[operator]
    return found


def ours(log: Log, *, committed: bool) -> list[tuple[object, ...]]:
    """What a consumer has to see of our log, by our own rules."""
    data = log.read_batches(log.log_start_offset, max_bytes=1 << 30)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    found: list[tuple[object, ...]] = []
    for header in headers(data):
        if header.is_control:
            continue
        if committed and header.is_transactional:
            if header.base_offset >= log.last_stable_offset:
                break
            if any(
                t.producer_id == header.producer_id
                and t.first_offset <= header.base_offset <= t.last_offset
                for t in aborted
            ):
                continue
        found += [(r.offset, r.key, r.value, r.timestamp_ms) for r in records(data, header)]
    return found


def fill(log: Log, count: int, rng: random.Random) -> None:
    """Write what exercises every file: codecs, sizes, epochs, idempotence, transactions, several segments."""
    sequences = {7: 0, 8: 0, 9: 0}
    base = now_ms()
    for number in range(count):
        # Kafka led in epoch 0 and will again in 2: ours have to lie between.
        values = [rng.randbytes(rng.choice([10, 900])).hex() for _ in range(rng.randint(1, 12))]
        data = batch(*values, key=b"%d" % number, time_ms=base + number, codec=number % 5)
        append(log, data, epoch=number // (count // 2), now_ms=now_ms())
        pid = rng.choice(list(sequences))
        data = batch(
            *values[:3], pid=pid, seq=sequences[pid], time_ms=base + number, is_transactional=True
        )
        sequences[pid] += min(3, len(values))
        append(log, data, epoch=number // (count // 2), now_ms=now_ms())
        if number % 3 == 0:
            end_txn(log, pid, ABORT if number % 2 else COMMIT, leader_epoch=number // (count // 2))
    for pid in (7, 8):
        end_txn(log, pid, ABORT, leader_epoch=1)
    log.advance_high_watermark(log.log_end_offset)


def dumped(path: Path, *flags: str) -> str:
    text = kafka.tool("dump", str(path), *flags)
    assert not re.search(r"(?i)mismatch|corrupt|non-consecutive|exception|invalid|error", text), (
        text
    )
    return text


def test_kafka_accepts_every_file_and_serves_what_we_wrote(cluster: kafka.Cluster) -> None:
    create(cluster, "moved")
    cluster.stop()
    opened = directory(cluster)
    assert opened.was_clean, "Kafka's marker of a clean stop was not understood"
    log = log_of(opened, "moved")
    fill(log, 400, random.Random(1))
    end, wanted = log.log_end_offset, ours(log, committed=False)
    committed = ours(log, committed=True)
    aborted = log.aborted_transactions(0, end)
    by_time = {t: offset_at_time(log, t) for t in (0, wanted[500][3], wanted[-1][3])}  # type: ignore[arg-type, call-overload]
    assert len(log.closed_segments()) >= 2
    assert len(committed) < len(wanted)
    opened.close(broker_epoch=opened.last_broker_epoch)

    _dump_all(Path(log.path), end, len(aborted))
    kafka.start(cluster.directory)
    try:
        assert consumed(cluster, "moved", end, "read_uncommitted") == wanted
        assert consumed(cluster, "moved", end, "read_committed") == committed
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for timestamp, found in by_time.items():
            spec = {TopicPartition("moved", 0): OffsetSpec.for_timestamp(timestamp)}  # type: ignore[arg-type]
            answer = next(iter(admin.list_offsets(spec).values())).result()
            assert found == (answer.offset, answer.timestamp)
        text = (cluster.directory / "node-1" / "kafka.log").read_text()
        assert not re.search(r"(?i)corrupt|rebuild|recovering unflushed", text), text[-3000:]
    finally:
        kafka.stop(cluster.directory)
    again = log_of(directory(cluster), "moved")
    assert again.log_end_offset == end
    assert again.aborted_transactions(0, end) == aborted
    assert [t for t in again.epochs.entries() if t[1] < end] == list(log.epochs.entries())


def _dump_all(path: Path, end: int, aborted: int) -> None:
    """Let DumpLogSegments look at every file: it checks an index against the log next to it."""
    counted = 0
    for file in sorted(path.iterdir()):
        if file.suffix == ".log":
            text = dumped(file, "--deep-iteration")
            counted += len(re.findall(r"(?m)^\| offset", text))
            assert "isvalid: true" in text
            assert "isvalid: false" not in text
        elif file.suffix in (".index", ".timeindex"):
            assert "passed sanity check" in dumped(file, "--index-sanity-check")
            dumped(file, "--verify-index-only")
            assert len(dumped(file).splitlines()) - 1 == file.stat().st_size // (
                8 if file.suffix == ".index" else 12
            )
        elif file.suffix == ".txnindex":
            aborted -= len(re.findall(r"(?m)^version: 0 producerId", dumped(file)))
        elif file.suffix == ".snapshot":
            assert len(re.findall(r"producerId: [789] ", dumped(file))) <= 3
    assert aborted == 0
    assert counted >= end * 0.5


def produce_with_kafka(cluster: kafka.Cluster, topic: str) -> None:
    """Write with every codec, idempotently, and in transactions that commit, abort and stay open."""
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
            }
        )
        for number in range(600):
            producer.produce(topic, key=b"%d" % number, value=b"%d " % number * 40)
            if number % 100 == 0:
                producer.flush()
        producer.flush()
    for name in range(3):
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"t{name}"}
        )
        producer.init_transactions()
        for turn in range(4):
            producer.begin_transaction()
            for number in range(15):
                producer.produce(topic, value=b"%d %d %d" % (name, turn, number))
            producer.flush()
            if (name + turn) % 2:
                producer.commit_transaction()
            else:
                producer.abort_transaction()


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_we_read_what_kafka_wrote(cluster: kafka.Cluster, how: str) -> None:
    create(cluster, "theirs")
    produce_with_kafka(cluster, "theirs")
    opened_producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "left open"}
    )
    opened_producer.init_transactions()
    opened_producer.begin_transaction()
    opened_producer.produce("theirs", value=b"never committed")
    opened_producer.flush()
    end = 1 << 62
    wanted = consumed(cluster, "theirs", end, "read_uncommitted")
    committed = consumed(cluster, "theirs", end, "read_committed")
    cluster.stop(at_once=how == "killed")
    opened = directory(cluster)
    assert opened.was_clean == (how == "stopped")
    log = log_of(opened, "theirs")
    log.advance_high_watermark(log.log_end_offset)
    assert ours(log, committed=False) == wanted
    assert ours(log, committed=True) == committed
    assert log.last_stable_offset == log.log_end_offset - 1
    assert isinstance(log.recovery, RecoveryReport)
    assert log.recovery.bytes_cut == 0
    assert log.recovery.segments_scanned == (0 if how == "stopped" else 1)
    dumped_log = kafka.tool("dump", f"{log.path}/00000000000000000000.log", "--deep-iteration")
    assert len(found_records(log)) == len(re.findall(r"(?m)^\| offset", dumped_log))
    opened.close()


def produce_raw(cluster: kafka.Cluster, topic: str, data: bytes | bytearray) -> int:
    """Send a Produce request of version 7 with these bytes as its records; return the error code."""
    name = len(topic).to_bytes(2, "big") + topic.encode()
    body = struct.pack(">hhih", 0, 7, 1, -1) + struct.pack(">hhii", -1, -1, 5000, 1) + name
    body += struct.pack(">iii", 1, 0, len(data)) + data
    host, port = cluster.bootstrap.split(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(len(body).to_bytes(4, "big") + body)
        stream = connection.makefile("rb")
        answer = stream.read(int.from_bytes(stream.read(4), "big"))
    (code,) = struct.unpack_from(">h", answer, 4 + 4 + len(name) + 4 + 4)
    return int(code)


# Where we differ, and why: records/validate.py.
DIFFERENT = {
    "codec 5": -1,
    "codec 7": -1,
    "length 2^31-1": -1,
    "a max timestamp that lies": 0,
}


def test_kafka_answers_the_same_codes_to_the_same_bytes(kafka_peer: kafka.Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_peer.bootstrap})
    new = NewTopic("judged", 1, 1, config={"max.message.bytes": "10000"})
    admin.create_topics([new])["judged"].result()
    checked = cases(now_ms(), leeway_ms=60_000)
    # A topic is created before its leader knows: ask until it does, as every client would.
    unknown = (Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION)
    first = checked[0][1]
    eventually("it leads", lambda: produce_raw(kafka_peer, "judged", first) not in unknown)
    found = {name: produce_raw(kafka_peer, "judged", data) for name, data, _ in checked}
    assert found == {name: DIFFERENT.get(name, int(code)) for name, _, code in checked}
