"""Producers that number what they send, and the judge of what is there afterwards. WORLD.

The producers are librdkafka's, idempotent, acks=all, and go on through every fault: what the broker
refused or never answered they send again. So the log of a partition has to be 0, 1, 2, ... each once and
in order, and what was acknowledged has to be where its acknowledgement said.
"""

import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from firnline.base.errors import Code
from firnline.testing.plugin import Broker
from tests.peers.topics import await_partitions, is_led
from tests.wire.line import Target

PATIENCE_S = 60.0

_BATCH_RECORDS = 40
OVERLAP = (
    2000  # records that are read again: a fault takes the newest, and others may lie in their place
)
_log = logging.getLogger("tests.chaos.librdkafka")
_log.addHandler(logging.NullHandler())
_log.propagate = False
# librdkafka tells of each broken connection; breaking them is the point.
SILENT = {"logger": _log}
# What the answers to requests say while another broker becomes the leader.
_MOVED = {
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.LEADER_NOT_AVAILABLE,
    Code.FENCED_LEADER_EPOCH,
    Code.UNKNOWN_LEADER_EPOCH,
    Code.OFFSET_NOT_AVAILABLE,  # KIP-207: its followers have not fetched from the new leader yet
}
# partition -> [(offset, number)], in the order it was told or read
Positions = dict[int, list[tuple[int, int]]]


class Workload:
    """Numbered records into every partition of one topic, from a thread of its own, until it is left."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        value_bytes: int = 200,
        rest_s: float = 0.02,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.bootstrap = bootstrap
        self._rest_s, self._patience_s = rest_s, patience_s
        self.topic = topic
        self.sent = dict.fromkeys(range(partitions), 0)
        self.failures: list[str] = []
        self._acked: Positions = defaultdict(list)
        self._acked_s: dict[int, float] = {}
        self.longest_gap_s = 0.0  # between two acknowledgements in one partition
        self._count = 0
        self._lock = threading.Lock()
        self._padding = b"x" * value_bytes
        self._stop = threading.Event()
        self._is_paused = False
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.size": 16_384,  # several batches in each of the small segments
                "message.timeout.ms": 300_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "error_cb": self._on_error,
                **SILENT,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if kind is not None:
            self._producer.purge()

    def acked(self) -> Positions:
        """Return what has been acknowledged until now."""
        with self._lock:
            return {partition: list(rows) for partition, rows in self._acked.items()}

    def await_acks(self, more: int) -> None:
        """Wait until `more` records have been acknowledged from now on."""
        wanted = self._count + more
        deadline = time.monotonic() + self._patience_s
        while self._count < wanted:
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, (
                f"no {more} acknowledgements in {self._patience_s:.0f} s"
            )
            time.sleep(0.005)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Send nothing new meanwhile; what is on its way goes on."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def finish(self) -> None:
        """Send no more and wait until everything sent is acknowledged."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(self._patience_s)
        assert left == 0, f"{left} records were never acknowledged"
        assert not self.failures, self.failures

    def _run(self) -> None:
        while not self._stop.is_set():
            if len(self._producer) < 5000 and not self._is_paused:
                for partition in self.sent:
                    for _ in range(_BATCH_RECORDS):
                        self._send(partition)
            self._producer.poll(0)
            self._stop.wait(self._rest_s)  # not too many: the judge reads them all again

    def _send(self, partition: int) -> None:
        number = self.sent[partition]
        self.sent[partition] = number + 1
        self._producer.produce(
            self.topic,
            b"%d %s" % (number, self._padding),
            partition=partition,
            on_delivery=lambda error, message, number=number: self._on_delivery(
                error, message, number
            ),
        )

    def _on_delivery(self, error: Any, message: Any, number: int) -> None:
        if error is not None:
            if not self._stop.is_set() and len(self.failures) < 3:
                self.failures.append(str(error))
            return
        partition, now_s = message.partition(), time.monotonic()
        with self._lock:
            self._acked[partition].append((message.offset(), number))
            self._count += 1
            gap_s = now_s - self._acked_s.get(partition, now_s)
            self.longest_gap_s = max(self.longest_gap_s, gap_s)
            self._acked_s[partition] = now_s

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error}")


class Reader:
    """A consumer that reads every partition from its beginning, while whoever serves them dies."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.found: Positions = {partition: [] for partition in range(partitions)}
        self.failures: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",  # an offset that was there and is not any more
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                **SILENT,
            }
        )
        places = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in self.found]
        self._consumer.assign(places)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(2000, 0.1):
                problem = message.error()
                if problem is None:
                    number = int(message.value().partition(b" ")[0])
                    self.found[message.partition()].append((message.offset(), number))
                elif not problem.retriable() and problem.name() != "_ALL_BROKERS_DOWN":
                    self.failures.append(str(problem))

    def await_all(self, known: Positions) -> None:
        """Return when it has read as far as somebody else did."""
        deadline = time.monotonic() + PATIENCE_S
        while any(rows and self._end(p) < rows[-1][0] for p, rows in known.items()):
            assert not self.failures, self.failures[:3]
            assert time.monotonic() < deadline, "the consumer stands still"
            time.sleep(0.05)

    def _end(self, partition: int) -> int:
        rows = self.found[partition]
        return rows[-1][0] if rows else -1

    def differences(self, known: Positions) -> list[str]:
        """Say in which partitions it did not read each record once and in order, as they are there now."""
        faults = [f"the consumer failed: {each}" for each in self.failures[:3]]
        for partition, rows in known.items():
            read = self.found[partition][: len(rows)]
            if read != rows:
                at = next((i for i, pair in enumerate(zip(read, rows)) if pair[0] != pair[1]), None)
                where = f"{len(read)} of {len(rows)} read" if at is None else f"from {rows[at]} on"
                faults.append(f"partition {partition}: the consumer read something else, {where}")
        return faults


class Checker:
    """Reads a topic back after each fault: what is new since the last time, and now and then everything.

    A producer goes on meanwhile, so to read everything each time is to read ever more of it: the log grew by
    the time that reading took, until no reading ended.
    """

    def __init__(self, topic: str, partitions: int, *, complete_every: int = 10) -> None:
        self._topic = topic
        self._complete_every = complete_every
        self._rounds = 0
        self._known: Positions = {partition: [] for partition in range(partitions)}

    def read(self, bootstrap: str) -> Positions:
        """Return what is in every partition now, read up to its high watermark."""
        if self._rounds % self._complete_every == 0:
            self._known = {partition: [] for partition in self._known}
        self._rounds += 1
        after = {p: max(0, rows[-1][0] - OVERLAP) for p, rows in self._known.items() if rows}
        fresh, bounds = read_from(bootstrap, self._topic, len(self._known), after)
        for partition, rows in self._known.items():
            low, end = bounds[partition]
            upto = min(end, after.get(partition, 0))
            before = [row for row in rows[: upto + 1] if low <= row[0] < upto]
            self._known[partition] = before + fresh[partition]
        return self._known


def read_all(bootstrap: str, topic: str, partitions: int) -> Positions:
    """Return what a consumer finds in every partition, from its first offset to its high watermark."""
    return read_from(bootstrap, topic, partitions, {})[0]


def read_from(
    bootstrap: str, topic: str, partitions: int, after: dict[int, int]
) -> tuple[Positions, dict[int, tuple[int, int]]]:
    """Return the records from the offsets of `after` on, and (first offset, high watermark), by partition.

    A partition that is not in `after` is read from its first offset.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 20,
            **SILENT,
        }
    )
    try:
        found: Positions = {partition: [] for partition in range(partitions)}
        bounds = {}
        for partition in found:
            bounds[partition] = offsets_of(consumer, TopicPartition(topic, partition))
        behind = {p for p, (_, end) in bounds.items() if end > after.get(p, 0)}
        consumer.assign(
            [TopicPartition(topic, p, after.get(p, OFFSET_BEGINNING)) for p in sorted(behind)]
        )
        deadline = time.monotonic() + PATIENCE_S
        while behind:
            assert time.monotonic() < deadline, (
                f"{topic}: no record of partitions {behind} in {PATIENCE_S:.0f} s, and not at the end"
            )
            for message in consumer.consume(5000, 0.1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                deadline = time.monotonic() + PATIENCE_S
                partition, offset = message.partition(), message.offset()
                number = int(message.value().partition(b" ")[0])
                found[partition].append((offset, number))
                if offset >= bounds[partition][1] - 1:
                    behind.discard(partition)
        return found, bounds
    finally:
        consumer.close()


def offsets_of(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return the first offset of a partition and its high watermark; again if its leader has just changed."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            bounds: tuple[int, int] = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)
        except KafkaException as problem:
            if problem.args[0].code() not in _MOVED or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return bounds


def violations(acked: Positions, found: Positions, sent: dict[int, int] | None = None) -> list[str]:
    """Compare what was acknowledged with what is there; with `sent`, all of it has to be there.

    Each line says one kind of fault in one partition: lost, elsewhere, twice, out of order, missing.
    """
    faults = []
    for partition, rows in found.items():
        numbers = [number for _, number in rows]
        at = dict(rows)
        there = set(numbers)
        name = f"partition {partition}"
        reported = acked.get(partition, [])
        lost = [n for _, n in reported if n not in there]
        if lost:
            faults.append(f"{name}: {len(lost)} acknowledged records lost, first {min(lost)}")
        moved = [n for offset, n in reported if n in there and at.get(offset) != n]
        if moved:
            faults.append(f"{name}: {len(moved)} records not at their offset, first {min(moved)}")
        if len(there) != len(numbers):
            faults.append(f"{name}: {len(numbers) - len(there)} records twice")
        if numbers != sorted(numbers):
            faults.append(f"{name}: records out of order")
        if there and len(there) != max(there) + 1:
            faults.append(f"{name}: {max(there) + 1 - len(there)} records missing in between")
        if sent is not None and len(there) != sent[partition]:
            faults.append(f"{name}: {len(there)} of {sent[partition]} records sent")
    return faults


def append(broker: Broker, topic: str, batch: bytes | bytearray) -> Any:
    """Produce one batch to partition 0 without a client's own delays; return the partition's answer.

    A broker of which half a second was not enough to open all logs is ready before (decision 0029).
    """
    target = Target("firnline", broker.bootstrap, broker.pid, Path())
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = target.produce(topic, batch)
        if answer.error_code != Code.NOT_LEADER_OR_FOLLOWER or time.monotonic() > end:
            return answer
        time.sleep(0.005)


def make_topic(bootstrap: str, topic: str, partitions: int, **configs: str) -> None:
    """Create a topic, whose keys are spelt with _ for ., and wait until all of it has a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **SILENT})
    config = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(PATIENCE_S)
    await_partitions(admin, topic, partitions, is_led)
