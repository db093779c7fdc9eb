"""Cut the power of a broker in the middle of its work, as often as asked. WORLD. Reliability (f) 2.

Each cut stops the broker, takes the disk as it is (tests/chaos/image.py), and goes on with a new broker
on that disk; the producers never notice more than a pause. So every cut is also one after a recovery.
"""

import contextlib
import random
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from firnline.testing.plugin import Broker
from tests.chaos.image import copy_of_the_disk, make_image, mounted
from tests.chaos.kill import OPTIONS, Report, probe
from tests.chaos.workload import (
    PATIENCE_S,
    SILENT,
    Checker,
    Workload,
    make_topic,
    read_all,
    violations,
)
from tests.peers.nodes import eventually
from tests.peers.stopped import stop_at_once
from tests.peers.topics import cluster_of

TOPIC, PARTITIONS = "cut", 3


class Clerk:
    """Keeps making topics and committing offsets, and remembers what the broker confirmed of it."""

    def __init__(self, bootstrap: str) -> None:
        self.topics: list[str] = []
        self.committed = 0
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **SILENT})
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "clerk",
                "enable.auto.commit": False,
                **SILENT,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Clerk":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)  # a commit waits for ever where no broker is left

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            name = f"made-{number}"
            with contextlib.suppress(KafkaException):
                self._admin.create_topics([NewTopic(name, 1, 1)], request_timeout=2)[name].result()
                self.topics.append(name)
            with contextlib.suppress(KafkaException):
                place = TopicPartition(TOPIC, 0, number)
                self._reader.commit(offsets=[place], asynchronous=False)
                self.committed = number
            self._stop.wait(0.05)


def check_metadata(bootstrap: str, topics: list[str], committed: int) -> list[str]:
    """Compare topics and the committed offset with what was confirmed."""
    faults = []
    admin = AdminClient({"bootstrap.servers": bootstrap, **SILENT})
    found = eventually("a broker tells", lambda: cluster_of(admin), within_s=PATIENCE_S)
    assert isinstance(found, ClusterMetadata)
    there = found.topics
    lost = [name for name in topics if name not in there]
    if lost:
        faults.append(f"{len(lost)} confirmed topics lost, first {lost[0]}")
    if committed:
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "clerk", **SILENT})
        try:
            (place,) = reader.committed([TopicPartition(TOPIC, 0)], timeout=PATIENCE_S)
        finally:
            reader.close()
        if place.offset < committed:
            faults.append(f"offset {committed} was committed, {place.offset} is there")
    return faults


def run_power_cuts(directory: Path, cuts: int, seed: int) -> Report:
    """Cut the power in mid-produce, `cuts` times; nothing confirmed may be missing after any of them."""
    rng = random.Random(seed)
    report = Report()
    with contextlib.ExitStack() as stack:
        disk = Disk(directory)
        stack.callback(disk.close)
        broker = Broker(disk.data, options=OPTIONS)
        stack.callback(lambda: broker.process is None or broker.kill())
        broker.start()
        make_topic(broker.bootstrap, TOPIC, PARTITIONS, internal_segment_bytes="65536")
        make_topic(broker.bootstrap, "probe", 1)
        work = stack.enter_context(Workload(broker.bootstrap, TOPIC, PARTITIONS, value_bytes=20))
        checker = Checker(TOPIC, PARTITIONS)
        with Clerk(broker.bootstrap) as clerk:
            for _ in range(cuts):
                work.await_acks(100)
                time.sleep(rng.uniform(0, 0.3))
                stop_at_once(broker.pid)
                # What is confirmed by now was sent before the stop: the disk has to have it.
                time.sleep(0.02)
                acked, topics, committed = work.acked(), list(clerk.topics), clerk.committed
                disk.cut_power(broker)
                report.faults += 1
                started = time.monotonic()
                broker.start()
                probe(broker)
                report.back_ms.append((time.monotonic() - started) * 1000)
                with work.paused():
                    faults = violations(acked, checker.read(broker.bootstrap))
                    faults += check_metadata(broker.bootstrap, topics, committed)
                report.violations += [f"cut {report.faults}: {fault}" for fault in faults]
        work.finish()
        acked = work.acked()
        report.acked = sum(map(len, acked.values()))
        found = read_all(broker.bootstrap, TOPIC, PARTITIONS)
        report.violations += violations(acked, found, work.sent)
        if "Traceback" in broker.log_text():
            report.violations.append("a traceback in the broker's log")
        broker.stop()
    return report


def losses_without_sync(directory: Path) -> tuple[int, list[str]]:
    """One cut of a broker that acknowledges before it syncs: (records acknowledged, what is wrong)."""
    with contextlib.ExitStack() as stack:
        disk = Disk(directory)
        stack.callback(disk.close)
        broker = Broker(disk.data, options=[*OPTIONS, "-X", "firnline.acks.fsync=never"])
        stack.callback(lambda: broker.process is None or broker.kill())
        broker.start()
        make_topic(broker.bootstrap, TOPIC, PARTITIONS)
        with contextlib.suppress(AssertionError), Workload(broker.bootstrap, TOPIC, 3) as work:
            work.await_acks(2000)
            stop_at_once(broker.pid)
            time.sleep(0.02)
            acked = work.acked()
            disk.cut_power(broker)
            raise AssertionError("the producers are of no use after a loss")
        broker.start()
        found = read_all(broker.bootstrap, TOPIC, PARTITIONS)
        return sum(map(len, acked.values())), violations(acked, found)


class Disk:
    """The mounted image under a broker, replaced by a copy of itself at each cut."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._image = directory / "disk.img"
        self._copy = directory / "copy.img"
        self._at = directory / "mnt"
        make_image(self._image)
        self._mount: Any = contextlib.ExitStack()
        self._mount.enter_context(mounted(self._image, self._at))
        self.data = self._at / "data"

    def cut_power(self, broker: Broker) -> None:
        """Take the disk as it is, end the stopped broker, and mount what was taken."""
        copy_of_the_disk(self._image, self._copy)
        broker.kill()
        log = shutil.copyfile(self._at / "data.log", self._at.parent / "data.log")
        self._mount.close()
        self._image.unlink()
        self._copy.rename(self._image)
        self._mount.enter_context(mounted(self._image, self._at))
        shutil.copyfile(log, self._at / "data.log")

    def close(self) -> None:
        self._mount.close()
