"""Many readers of records that only the tier has, beside one that reads the end of the log. WORLD.

    python -m tests.chaos.cold_readers BOOTSTRAP READERS RECORDS

reads as so many consumers do, in a process of its own, so that the reader of the tail, in the process of the
test, does not wait for them. It ends when its standard input does, and prints what came of it as JSON.
"""

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from firnline.base.errors import Code
from firnline.base.units import KIB, MIB
from firnline.client.admin import Admin
from firnline.client.connection import Connection
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.records.build import NewRecord, build_batch
from firnline.testing.plugin import Broker
from tests.chaos.workload import PATIENCE_S
from tests.peers.nodes import eventually
from tests.peers.servers import Server, options_of
from tests.peers.store_proxy import StoreProxy
from tests.worlds.decoded import all_records

TOPIC = "cold"
FETCH_BYTES = MIB
VALUE_BYTES = 64 * KIB
SEGMENT_BYTES = 8 * MIB
SEGMENTS = 8
CONFIG = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "100",
    "retention.ms": "-1",
}
READERS, PENDING_MAX = 4, 20
ANSWERS_BYTES = 32 * MIB
AHEAD_BYTES = 16 * MIB
SETTINGS = {
    "remote.log.reader.threads": READERS,
    "remote.log.reader.max.pending.tasks": PENDING_MAX,
    "firnline.answers.max.bytes": ANSWERS_BYTES,
    "firnline.remote.read.ahead.max.bytes": AHEAD_BYTES,
}
_AT_LEAST = 2  # reads of each reader, however soon the others are told to stop
_RETRY_S = 0.1  # retry.backoff.ms of Java's clients
# What a Fetch of the tier may be answered that is no error to the application. The last one is of a read that
# takes longer than two Fetches wait (T59): so it is if the machine is busy with other things as well.
RETRIABLE = {Code.NONE, Code.OFFSET_NOT_AVAILABLE, Code.KAFKA_STORAGE_ERROR}


def value_of(offset: int) -> bytes:
    """Return the value of the record with that offset."""
    word = b"%d " % offset
    return (word * (VALUE_BYTES // len(word) + 1))[:VALUE_BYTES]


def fetch(offset: int, max_bytes: int = FETCH_BYTES, topic: str = TOPIC) -> FetchRequest:
    """Return a request as a consumer makes it."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic=topic, partitions=[wanted])]
    return FetchRequest(topics=topics, max_bytes=max_bytes, max_wait_ms=500, min_bytes=1)


def ask(connection: Connection, request: FetchRequest) -> tuple[int, list[Any]]:
    """Return the error code of an answer, and its records."""
    [topic] = connection.ask(request, version=12).responses
    [row] = topic.partitions
    return row.error_code, list(all_records(bytes(row.records or b"")))


# --------------------------------------------------------------------------- the readers


@dataclass
class Outcome:
    """What readers saw: how many answers with records each had, the error codes, and what was wrong."""

    reads: list[int] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class _Reader:
    """One consumer, which reads on from where it begins, and from the beginning again at the end."""

    def __init__(self, address: tuple[str, int], number: int, of: int, records: int) -> None:
        self._address, self._number, self._records = address, number, records
        self._at = records * number // of
        self.reads = 0
        self.codes: Counter[str] = Counter()
        self.wrong: list[str] = []

    def run(self, is_over: threading.Event) -> None:
        deadline = time.monotonic() + PATIENCE_S
        try:
            with Connection(*self._address, timeout_s=PATIENCE_S) as connection:
                while not self.wrong and not (is_over.is_set() and self.reads >= _AT_LEAST):
                    if time.monotonic() > deadline:
                        self.wrong.append(f"it has come to {self._at} only, with {self.codes}")
                        return
                    self._read(connection)
        except Exception as problem:  # noqa: BLE001 - it is the news of this reader
            self.wrong.append(repr(problem))

    def _read(self, connection: Connection) -> None:
        code, found = ask(connection, fetch(self._at))
        self.codes[Code(code).name if code or found else "nothing"] += 1
        if code not in RETRIABLE:
            self.wrong.append(f"{Code(code).name} at {self._at}")
        if code:
            time.sleep(_RETRY_S * random.uniform(0.8, 1.2))
        for record in found:
            if record.offset != self._at or bytes(record.value) != value_of(self._at):
                self.wrong.append(f"another record at {self._at}: offset {record.offset}")
                return
            self._at += 1
        self.reads += bool(found)
        if self._at >= self._records:
            self._at = 0


def read_until_told(address: tuple[str, int], readers: int, records: int) -> Outcome:
    """Read with so many consumers until standard input ends, and each has read some."""
    is_over = threading.Event()
    all_of_them = [_Reader(address, number, readers, records) for number in range(readers)]
    threads = [threading.Thread(target=each.run, args=(is_over,)) for each in all_of_them]
    for thread in threads:
        thread.start()
    print("reading", flush=True)
    sys.stdin.read()
    is_over.set()
    for thread in threads:
        thread.join()
    codes: Counter[str] = Counter()
    for each in all_of_them:
        codes.update(each.codes)
    wrong = [f"reader {n}: {text}" for n, each in enumerate(all_of_them) for text in each.wrong]
    return Outcome([each.reads for each in all_of_them], dict(codes), wrong)


class ColdReaders:
    """So many consumers in another process, from entering to leaving; `outcome` is what they saw."""

    def __init__(self, broker: Broker, count: int, records: int) -> None:
        self.outcome = Outcome()
        words = [broker.bootstrap, str(count), str(records)]
        self._command = [sys.executable, "-m", "tests.chaos.cold_readers", *words]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "reading\n"
        return self

    def __exit__(self, *_: object) -> None:
        printed, _ = self._process.communicate(timeout=2 * PATIENCE_S)
        self.outcome = Outcome(**json.loads(printed))


# --------------------------------------------------------------------------- the broker


class Cold:
    """A broker whose topic is in the tier, but for its last segment.

    records  how many only the tier has
    end      the offset after the last one
    """

    def __init__(self, broker: Broker, proxy: StoreProxy, records: int, end: int) -> None:
        self.broker, self.proxy, self.records, self.end = broker, proxy, records, end
        host, _, port = broker.bootstrap.partition(":")
        self.address = host, int(port)

    def memory_bytes(self, *, most: bool = False) -> int:
        """Return the resident memory of the broker; with `most` the greatest since `forget_most`."""
        name = "VmHWM" if most else "VmRSS"
        status = Path(f"/proc/{self.broker.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) * KIB

    def forget_most(self) -> None:
        """Let the greatest memory be that of now."""
        Path(f"/proc/{self.broker.pid}/clear_refs").write_text("5")

    def tail(self, connection: Connection) -> float:
        """Read the last record; return how long it took, in ms."""
        began = time.perf_counter()
        code, found = ask(connection, fetch(self.end - 1))
        took_ms = (time.perf_counter() - began) * 1000
        assert (code, [record.offset for record in found]) == (0, [self.end - 1])
        return took_ms


@contextlib.contextmanager
def cold_broker(directory: Path, server: Server, *, latency_ms: int) -> Iterator[Cold]:
    """Start a broker with a tier in the server, and fill the topic."""
    with StoreProxy(server) as proxy:
        settings = [word for k, v in SETTINGS.items() for word in ("-X", f"{k}={v}")]
        options = ["--tier", server.uri, *options_of(proxy.settings), *settings]
        broker = Broker(directory / "data", options=options)
        broker.start()
        try:
            with Admin(broker.bootstrap) as admin:
                admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=CONFIG)
            host, _, port = broker.bootstrap.partition(":")
            cold = Cold(broker, proxy, *_fill(broker, (host, int(port))))
            proxy.latency_ms = latency_ms
            yield cold
            proxy.latency_ms = 0
            assert "Traceback" not in broker.log_text()
        finally:
            broker.stop()


def _fill(broker: Broker, address: tuple[str, int]) -> tuple[int, int]:
    """Append records; return how many of them only the tier has, and how many there are."""
    now_ms = int(time.time() * 1000)
    per_segment = SEGMENT_BYTES // (VALUE_BYTES + KIB)
    folder = broker.directory / f"{TOPIC}-0"
    with Connection(*address, timeout_s=PATIENCE_S) as connection:
        for offset in range(SEGMENTS * per_segment + 1):
            records = bytes(build_batch([NewRecord(None, value_of(offset), now_ms)]))
            data = [PartitionProduceData(index=0, records=records)]
            topics = [TopicProduceData(name=TOPIC, partition_data=data)]
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)

            def appended(request: ProduceRequest = request) -> Any:
                row = connection.ask(request, version=9).responses[0].partition_responses[0]
                return row if row.error_code != Code.NOT_LEADER_OR_FOLLOWER else None

            row: Any = eventually("a record is appended", appended)
            assert (row.error_code, row.base_offset) == (0, offset)
    eventually(
        "all but the last segment are in the tier alone",
        lambda: len(list(folder.glob("*.log"))) == 1,
        within_s=PATIENCE_S,
    )
    (active,) = folder.glob("*.log")
    return int(active.stem), offset + 1


if __name__ == "__main__":
    bootstrap, count, all_records_of_it = sys.argv[1:]
    host_name, _, its_port = bootstrap.partition(":")
    result = read_until_told((host_name, int(its_port)), int(count), int(all_records_of_it))
    print(json.dumps(vars(result)))
