"""Clients in Python that write numbers and read them back, while brokers go and come. WORLD.

Each has a topic with one partition, an idempotent producer with several batches in flight and a consumer that
reads all the while, in a thread of its own. What they must see is 0, 1, 2, ... each once and in order, and no
error that a program would have to handle.
"""

import asyncio
import threading
import time
from types import TracebackType
from typing import Any, Self

from tests.chaos.workload import PATIENCE_S

_WINDOW = 20


class Client:
    """What both kinds have in common. `acked` is how many were acknowledged, `read` what came back."""

    name = ""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic = f"of-{self.name}"
        self.acked = 0
        self.read: list[int] = []
        self.failures: list[str] = []
        self._is_ending = threading.Event()
        self._is_written = threading.Event()  # `acked` grows no more
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
        self._is_ending.set()
        self._thread.join(PATIENCE_S)

    def finish(self) -> list[str]:
        """Send no more, read what there is, and say what was wrong."""
        self._is_ending.set()
        self._thread.join(2 * PATIENCE_S)
        if self._thread.is_alive():
            self.failures.append("it did not come to its end")
        if self.read != list(range(self.acked)):
            self.failures.append(f"{self.acked} records acknowledged, {len(self.read)} read")
        return [f"{self.name}: {each}" for each in self.failures]

    def _has_read_all(self) -> bool:
        return self._is_written.is_set() and len(self.read) >= self.acked

    def _run(self) -> None:
        try:
            self._work()
        except Exception as problem:  # noqa: BLE001 - the thread's end is the test's news
            self.failures.append(repr(problem))

    def _work(self) -> None:
        raise AssertionError("a kind of its own")


class Aiokafka(Client):
    """aiokafka, both halves in one loop."""

    name = "aiokafka"

    def _work(self) -> None:
        asyncio.run(self._in_loop())

    async def _in_loop(self) -> None:
        reading = asyncio.create_task(self._read())
        try:
            await self._write()
            await asyncio.wait_for(reading, PATIENCE_S)
        finally:
            reading.cancel()

    async def _write(self) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=True, request_timeout_ms=120_000
        )
        await producer.start()
        try:
            sent = 0
            while not self._is_ending.is_set():
                window = []
                for _ in range(_WINDOW):
                    window.append(await producer.send(self.topic, b"%d" % sent))
                    sent += 1
                await asyncio.gather(*window)
                self.acked = sent
                await asyncio.sleep(0.05)
        finally:
            self._is_written.set()
            await producer.stop()

    async def _read(self) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([TopicPartition(self.topic, 0)])
            while not self._has_read_all():
                for rows in (await consumer.getmany(timeout_ms=200)).values():
                    self.read += [int(row.value) for row in rows]
        finally:
            await consumer.stop()


class KafkaPython(Client):
    """kafka-python; its consumer has a thread to itself."""

    name = "kafka-python"

    def _work(self) -> None:
        from kafka import KafkaProducer

        reading = threading.Thread(target=self._read, daemon=True)
        reading.start()
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap.split(","),
            acks="all",
            enable_idempotence=True,
            delivery_timeout_ms=240_000,
            max_block_ms=120_000,
        )
        sent = 0
        try:
            while not self._is_ending.is_set():
                window: list[Any] = []
                for _ in range(_WINDOW):
                    window.append(producer.send(self.topic, b"%d" % sent, partition=0))
                    sent += 1
                for future in window:
                    future.get(2 * PATIENCE_S)
                self.acked = sent
                time.sleep(0.05)
        finally:
            self._is_written.set()
            producer.close()
        reading.join(PATIENCE_S)

    def _read(self) -> None:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap.split(","), auto_offset_reset="earliest"
        )
        try:
            consumer.assign([TopicPartition(self.topic, 0)])
            while not self._has_read_all():
                for rows in consumer.poll(timeout_ms=200).values():
                    self.read += [int(row.value) for row in rows]
        except Exception as problem:  # noqa: BLE001 - as above
            self.failures.append(f"reading: {problem!r}")
        finally:
            consumer.close()


KINDS: tuple[type[Client], ...] = (Aiokafka, KafkaPython)
