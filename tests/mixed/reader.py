"""A member of a consumer group that reads what a `Workload` writes, and commits it. WORLD.

It is one member, and stays it: whoever coordinates the group, the generation goes on, so the member is
assigned its partitions once, and reads each offset once and in order.
"""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tests.chaos.workload import SILENT, Positions

PATIENCE_S = 240.0  # several JVMs on a busy machine
GROUP = "readers"
# What a client tries again by itself, or its user may: nothing was refused for good.
RETRIABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
    }
)


class Reader:
    """Reads and commits in a thread of its own until it is left."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.failures: list[str] = []
        self.read: Positions = defaultdict(list)
        self.assignments = 0
        self.commits = 0
        self._last = ""
        self._bootstrap, self._topic = bootstrap, topic
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                "session.timeout.ms": 60_000,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 200,
                "error_cb": self._on_error,
                **SILENT,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._consumer.subscribe([self._topic], on_assign=self._on_assign)
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

    def await_commits(self, more: int = 2) -> None:
        """Wait until the group's coordinator has taken `more` commits from now on."""
        wanted, deadline = self.commits + more, time.monotonic() + PATIENCE_S
        while self.commits < wanted:
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, (
                f"no {more} commits in {PATIENCE_S:.0f} s: {self.assignments} assignments,"
                f" {sum(map(len, self.read.values()))} records read, last error {self._last!r}"
            )
            time.sleep(0.02)

    def await_all(self, ends: dict[int, int]) -> None:
        """Wait until everything below `ends` was read and is committed."""
        deadline = time.monotonic() + PATIENCE_S
        asked = [TopicPartition(self._topic, partition) for partition in ends]
        # Another client of the same group, which is no member: the member's own is busy.
        asker = Consumer({"bootstrap.servers": self._bootstrap, "group.id": GROUP, **SILENT})
        there: dict[int, int] = {}
        while there != ends:
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, f"committed {there} of {ends}"
            with contextlib.suppress(KafkaException):
                there = {t.partition: t.offset for t in asker.committed(asked, timeout=5)}
            time.sleep(0.1)
        asker.close()

    def faults(self, acked: Positions) -> list[str]:
        """Say what was read wrongly: not in order, twice, not at all."""
        faults = list(self.failures)
        if self.assignments != 1:
            faults.append(f"the group was rebalanced: {self.assignments} assignments")
        for partition, rows in acked.items():
            found = self.read[partition]
            if found != [(offset, offset) for offset in range(len(found))]:
                faults.append(f"partition {partition}: not read in order, each once")
            if lost := set(rows) - set(found):
                faults.append(f"partition {partition}: {len(lost)} were never read")
        return faults

    def _run(self) -> None:
        while not self._stop.is_set():
            messages = self._consumer.consume(1000, 0.1)
            for message in messages:
                self._take(message)
            if messages:
                self._commit()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._note(error)
            return
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        number = int(value.partition(b" ")[0])
        self.read[message.partition() or 0].append((offset, number))

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
            self.commits += 1
        except KafkaException as problem:
            self._note(problem.args[0])

    def _note(self, error: Any) -> None:
        self._last = str(error)
        if error.code() not in RETRIABLE and len(self.failures) < 5:
            self.failures.append(f"the consumer heard {error}")

    def _on_assign(self, consumer: Any, partitions: Any) -> None:
        self.assignments += 1

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error}")


def read_messages(
    bootstrap: str, places: Sequence[tuple[str, int]], *, isolation: str = "read_committed"
) -> dict[tuple[str, int], list[Message]]:
    """Return what a consumer finds in partitions (topic, number), from their first offsets to their ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "asker",
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            **SILENT,
        }
    )
    found: dict[tuple[str, int], list[Message]] = {place: [] for place in places}
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
    left, deadline = set(places), time.monotonic() + PATIENCE_S
    try:
        while left:
            assert time.monotonic() < deadline, f"{left}: no end in {PATIENCE_S:.0f} s"
            for message in consumer.consume(1000, 0.1):
                place, error = (message.topic() or "", message.partition() or 0), message.error()
                if error is None:
                    found[place].append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(place)
                elif error.code() not in RETRIABLE:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found
