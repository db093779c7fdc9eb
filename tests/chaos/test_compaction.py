"""A compacted topic on a real broker: it stops growing, and no kill -9 changes what its keys say."""

import contextlib
import os
import random
import signal
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from firnline.testing.plugin import Broker
from tests.chaos.image import CannotMount, in_memory, why_not
from tests.chaos.operators import running
from tests.peers.nodes import bytes_in, files_below
from tests.peers.ports import free_ports

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


def options_of(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("-X", setting)]


def make_topic(bootstrap: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic("t", 1, 1, config=TOPIC | configs)]).values():
        done.result()


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
        {
            "bootstrap.servers": bootstrap,
            "group.id": "r",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(30)) is not None:
        if message.error():
            break
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def values(found: Iterable[tuple[Any, ...]]) -> dict[bytes, bytes]:
    """The last value of each key that was not deleted; a row ends with key and value."""
    seen = {row[-2]: row[-1] for row in found}
    return {key: value for key, value in seen.items() if value is not None}


def within_a_minute(is_so: Callable[[], bool], else_why: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, else_why
        time.sleep(0.05)


def metrics(port: int) -> dict[str, float]:
    """What the metrics port says of compaction."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    rows = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows if "compaction" in name}


def children(pid: int) -> list[int]:
    """The processes that compact for the broker."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            found += map(int, (task / "children").read_text().split())
    return found


def is_gone(broker: Broker, child: int) -> bool:
    return child not in children(broker.pid)


def has_failed(port: int, times: float) -> bool:
    return metrics(port)["firnline_compaction_failed_rounds_total"] >= times


def complaints(broker: Broker) -> list[str]:
    return [
        line
        for line in broker.log_text().splitlines()
        if "log is not compacted topic=t partition=0" in line
    ]


def unfinished(directory: Path) -> list[Path]:
    return [*files_below(directory, "*.cleaned*"), *files_below(directory, "*.swap")]


def log_bytes(directory: Path) -> int:
    return bytes_in(directory, "**/t-0/*.log")


def test_a_broker_that_is_killed_while_it_compacts_keeps_every_last_value(tmp_path: Path) -> None:
    rng = random.Random(11)
    broker = Broker(tmp_path / "data", options=options_of(*OPTIONS))
    broker.start()
    try:
        make_topic(broker.bootstrap)
        last: dict[bytes, bytes | None] = {}
        for _ in range(3):
            written(broker.bootstrap, rng, last)
            time.sleep(rng.random())
            broker.kill()
            broker.start()
            found = read(broker.bootstrap)
            offsets = [offset for offset, _, _ in found]
            assert offsets == sorted(set(offsets))
            assert values(found) == values(last.items())
        within_a_minute(lambda: log_bytes(tmp_path) < 4 * 1048576, "the log goes on growing")
        assert broker.stop() == 0
    finally:
        if broker.process is not None:
            broker.kill()


def test_a_broker_serves_on_beside_a_compaction_that_hangs_and_is_killed(tmp_path: Path) -> None:
    """Slow first, and not dead; then dead. One line and a metric tell of it, and nothing is left of it."""
    rng = random.Random(12)
    [port] = free_ports(1)
    slow = "log.cleaner.io.max.bytes.per.second=3000000"
    settings = (*OPTIONS, slow, f"firnline.metrics.port={port}")
    with running(Broker(tmp_path / "data", options=options_of(*settings))) as broker:
        make_topic(broker.bootstrap)
        last: dict[bytes, bytes | None] = {}
        written(broker.bootstrap, rng, last)
        for _ in range(2):
            within_a_minute(lambda: bool(children(broker.pid)), "no round began")
            [child] = children(broker.pid)
            os.kill(child, signal.SIGSTOP)
            written(broker.bootstrap, rng, last)
            assert values(read(broker.bootstrap)) == values(last.items())
            os.kill(child, signal.SIGKILL)
            within_a_minute(partial(is_gone, broker, child), "it is not reaped")
        within_a_minute(lambda: len(complaints(broker)) > 0, "nobody is told")
        within_a_minute(
            lambda: metrics(port)["firnline_compaction_failing_partitions"] == 0,
            "no round came to its end",
        )
        within_a_minute(lambda: log_bytes(tmp_path) < 4 * 1048576, "the log goes on growing")
        assert values(read(broker.bootstrap)) == values(last.items())
        assert len(complaints(broker)) == 1
        assert "SIGKILL" in complaints(broker)[0]
        assert metrics(port)["firnline_compaction_failed_rounds_total"] == 2
        within_a_minute(lambda: not children(broker.pid), "a round goes on and on")
        assert not unfinished(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if reason := why_not():
        pytest.skip(reason)
    try:
        with in_memory(tmp_path / "small", 32 << 20) as at:
            yield at
    except CannotMount as problem:
        pytest.skip(str(problem))


def leave_free(ballast: Path, size_bytes: int) -> None:
    """Fill the disk, but for so many bytes."""
    with ballast.open("ab", buffering=0) as file:
        for block in (1 << 16, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(block))
        file.truncate(max(0, file.tell() - size_bytes))


def test_a_broker_serves_on_beside_a_compaction_that_finds_no_room(
    tmp_path: Path, small_disk: Path
) -> None:
    """Some room, and not enough for the new segment; then none, not even for the checkpoint of a round."""
    rng = random.Random(13)
    [port] = free_ports(1)
    settings = options_of(*OPTIONS, f"firnline.metrics.port={port}")
    broker = Broker(small_disk / "data", options=settings)
    broker.log_file = tmp_path / "broker.log"
    with running(broker):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        # What was swapped out keeps its room.
        keeps = {"file.delete.delay.ms": "600000", "min.cleanable.dirty.ratio": "1.0"}
        make_topic(broker.bootstrap, **keeps)
        last: dict[bytes, bytes | None] = {}
        written(broker.bootstrap, rng, last)
        size_bytes = log_bytes(small_disk)
        for free_bytes in (100_000, 0):
            leave_free(small_disk / "ballast", free_bytes)
            if free_bytes:
                set_dirty_ratio(admin, "0.1")
            some_more = metrics(port)["firnline_compaction_failed_rounds_total"] + 3
            within_a_minute(partial(has_failed, port, some_more), "no round was tried")
            assert values(read(broker.bootstrap)) == values(last.items())
            assert metrics(port)["firnline_compaction_failing_partitions"] == 1
        said = complaints(broker)
        assert all("error=ENOSPC remedy=free space on this disk" in line for line in said), said
        assert 1 <= len(said) <= 2, "one for each way to have no room"
        (small_disk / "ballast").unlink()
        within_a_minute(lambda: log_bytes(small_disk) < size_bytes / 2, "no round came to its end")
        assert values(read(broker.bootstrap)) == values(last.items())
        within_a_minute(
            lambda: metrics(port)["firnline_compaction_failing_partitions"] == 0, "it is not over"
        )
        within_a_minute(lambda: not children(broker.pid), "a round goes on and on")
        assert not unfinished(small_disk)


def set_dirty_ratio(admin: AdminClient, ratio: str) -> None:
    entry = ConfigEntry(
        "min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()
