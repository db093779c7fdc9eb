"""A store that is gone for minutes, under a real broker with many tiered partitions. WORLD.

    python -m tests.chaos.store_outage [--partitions 1000] [--minutes 10] [--rounds 3]

A proxy stands between the broker and an S3 server. The store hangs for a third of the time, then answers 503,
then refuses connections, while producers close segments and consumers ask for records that only the tier has.
Those get a retriable error, and a store that hangs makes neither produce nor reads of local records slower.
What that costs must follow the segments that are due, and not the time; afterwards everything is copied as
fast as the same backlog without an outage, each record is there once, and no object is left over. A run is
one line in ledger/soak.jsonl. Source: F3, F14, F21; T59.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from firnline.base.errors import Code
from firnline.base.ids import REMOTE_LOG_METADATA_TOPIC
from firnline.client.admin import Admin
from firnline.client.connection import Connection
from firnline.protocol.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from firnline.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from firnline.records.build import NewRecord, build_batch
from firnline.testing.plugin import TIERED_TOPIC, Broker
from tests.chaos.soak import LEDGER, append, commit
from tests.chaos.workload import SILENT, offsets_of, read_all
from tests.peers import s3
from tests.peers.nodes import eventually
from tests.peers.servers import Server, options_of
from tests.peers.store_proxy import Fault, StoreProxy

FORM, TOPIC = "store-outage", "outage"
# Two records are larger than a segment may be, so each closes the segment of the one before it.
RECORD_BYTES = 9_000
METADATA_PARTITIONS = 4  # as `firnline dev` has them
DRAIN_S = 900.0
# Until the broker notices that the store is back: the longest wait between two probes, and some more.
NOTICE_S = 60.0
# Of remote.fetch.max.wait.ms of `firnline dev`, and one second.
TIER_ANSWER_S = 1.5
SLOWER_MOST = 1.2  # draining after the outage, compared with the same backlog alone
# Each p99 is the median of so many rounds, with the store up and while it hangs. It may grow by half; and by
# FLOOR_MS in any case: one turn of the scheduler or of the disk takes some ms. Waiting for the store takes
# half a second at least, so beside other tests BUSY_FLOOR_MS tells one from the other.
TIMED_ROUNDS, P99_MOST, FLOOR_MS, BUSY_FLOOR_MS = 5, 1.5, 10.0, 300.0
# What had begun when the store went away, or began before that was noticed: twenty copies of six objects (two
# copies for each thread), and the client library tries each once more; two records of each. And probes by
# minute.
REQUESTS_BEGUN, RECORDS_BEGUN, PROBES_A_MINUTE = 240, 40, 10


@dataclass
class Outage:
    """What a run came to. `up`: the store works; `hung`: it hangs; `tail`: reads of local records."""

    partitions: int
    minutes: float
    segments: int = 0
    requests: int = 0
    metadata_records: int = 0
    alone_s: float = 0.0
    drain_s: float = 0.0
    noticed_s: float = 0.0
    up_p99_ms: float = 0.0
    hung_p99_ms: float = 0.0
    up_tail_p99_ms: float = 0.0
    hung_tail_p99_ms: float = 0.0
    gone_p99_ms: float = 0.0
    tier_answers: int = 0
    empty_answers: int = 0
    slowest_tier_answer_s: float = 0.0
    violations: list[str] = field(default_factory=list)


class _Run:
    """One run; see the module."""

    def __init__(
        self,
        broker: Broker,
        proxy: StoreProxy,
        server: Server,
        outcome: Outage,
        rounds: int,
        floor_ms: float,
    ) -> None:
        self.broker, self.proxy, self.server = broker, proxy, server
        self.outcome, self.rounds, self.floor_ms = outcome, rounds, floor_ms
        self.written = 0  # records of each partition
        self.may_be_empty = False  # the next answer to a reader of the tier
        host, _, port = broker.bootstrap.partition(":")
        self.connection = Connection(host, int(port), timeout_s=30)

    def run(self) -> None:
        """Do it all; whatever is wrong is a violation."""
        out = self.outcome
        with Admin(self.broker.bootstrap, timeout_s=60) as admin:
            admin.create_topic(
                TOPIC, partitions=out.partitions, replication_factor=1, configs=TIERED_TOPIC
            )
        self.write_round()  # the metadata, and all that is made once
        self.read_tails()
        out.up_p99_ms, out.up_tail_p99_ms = self.timed_rounds()
        self.drain()
        out.alone_s = self.backlog_alone()
        eventually("the first segments are in the tier alone", self._is_remote_only, within_s=60)
        self.go_through_outage()
        out.drain_s = self.drain()
        if out.drain_s > SLOWER_MOST * out.alone_s + 5:
            self.complain(f"drained in {out.drain_s:.0f} s, and alone in {out.alone_s:.0f} s")
        self.check_all()

    def complain(self, text: str) -> None:
        self.outcome.violations.append(text)

    # ---- load

    def write_round(self) -> list[float]:
        """Write a record to each partition; return how long each took, in ms."""
        took: list[float] = []
        now_ms = int(time.time() * 1000)
        value = (b"%d " % self.written).ljust(RECORD_BYTES, b"x")
        for partition in range(self.outcome.partitions):
            records = bytes(build_batch([NewRecord(None, value, now_ms)]))
            data = PartitionProduceData(index=partition, records=records)
            topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
            began = time.perf_counter()
            answer = self.connection.ask(request, version=9)
            took.append((time.perf_counter() - began) * 1000)
            code = answer.responses[0].partition_responses[0].error_code
            assert code == 0, f"a record was refused with {code}"
        self.written += 1
        return took

    def read_tails(self) -> list[float]:
        """Read the newest record of each partition; return how long each read took, in ms."""
        took: list[float] = []
        for partition in range(self.outcome.partitions):
            began = time.perf_counter()
            row = self._fetch(partition, self.written - 1)
            took.append((time.perf_counter() - began) * 1000)
            assert row.error_code == 0, f"a local record was refused with {row.error_code}"
            assert row.records, "a local record was not there"
        return took

    def timed_rounds(self) -> tuple[float, float]:
        """Write and read rounds; return the p99 of produce and of reads, in ms: the median of the rounds."""
        writes: list[float] = []
        reads: list[float] = []
        for _ in range(TIMED_ROUNDS):
            writes.append(p99(self.write_round()))
            reads.append(p99(self.read_tails()))
        return statistics.median(writes), statistics.median(reads)

    def _fetch(self, partition: int, offset: int) -> Any:
        wanted = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
            max_bytes=1 << 20,
            max_wait_ms=100,
        )
        return self.connection.ask(request, version=12).responses[0].partitions[0]

    def backlog_alone(self) -> float:
        """Write the backlog while copies are refused for a moment; return how long it takes to copy it."""
        self.proxy.add("alone", Fault(status=503))
        for _ in range(self.rounds + TIMED_ROUNDS):
            self.write_round()
        self.proxy.remove("alone")
        return self.drain()

    def drain(self) -> float:
        """Wait until nothing waits for the tier; return how long that took once the store was used again."""
        began, before = time.monotonic(), self._copies()
        if self.waiting():
            eventually("copies go on", lambda: self._copies() > before, within_s=NOTICE_S)
        self.outcome.noticed_s = time.monotonic() - began
        began = time.monotonic()
        eventually("everything is copied", lambda: not self.waiting(), within_s=DRAIN_S)
        return time.monotonic() - began

    def _copies(self) -> int:
        return self.proxy.requests["PUT"]

    def waiting(self) -> int:
        """How many closed segments wait to be copied."""
        with Admin(self.broker.bootstrap, timeout_s=60) as admin:
            (status,) = admin.tier_status([TOPIC])
        if len(status.partitions) < self.outcome.partitions:
            return 1
        return sum(int(row["waiting_segments"]) for row in status.partitions)

    def _is_remote_only(self) -> bool:
        return not any(self.broker.directory.glob(f"{TOPIC}-*/{0:020d}.log"))

    # ---- the outage

    def go_through_outage(self) -> None:
        """Take the store away, in three ways one after the other, and write the backlog meanwhile."""
        out = self.outcome
        requests, records = self.proxy.total(), self.metadata_records()
        ways: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
            (
                lambda: self.proxy.add("hangs", Fault(hangs=True)),
                lambda: self.proxy.remove("hangs"),
            ),
            (lambda: self.proxy.add("503", Fault(status=503)), lambda: self.proxy.remove("503")),
            (self.proxy.stop, self.proxy.start),
        ]
        took: list[float] = []
        part_s = out.minutes * 60 / len(ways)
        rounds_left = self.rounds
        began = time.monotonic()
        for number, (begin, _) in enumerate(ways):
            begin()
            if number:
                ways[number - 1][1]()  # not sooner: the store would work in between
            self.may_be_empty = number == 0
            if number == 0:
                self.hang()
            until = began + (number + 1) * part_s
            for _ in range(-(-rounds_left // (len(ways) - number))):
                took += self.write_round()
                rounds_left -= 1
            while time.monotonic() < until:
                self.read_of_the_tier()
                time.sleep(min(1.0, part_s / 4))
            if number == len(ways) - 1:
                out.requests = self.proxy.total() - requests
                out.metadata_records = self.metadata_records() - records
                out.segments = self.waiting()
        ways[-1][1]()
        out.gone_p99_ms = p99(took)
        most = REQUESTS_BEGUN + PROBES_A_MINUTE * (out.minutes + 1) + out.tier_answers
        if out.requests > most:
            self.complain(f"{out.requests} requests came to a store that is gone; {most:.0f} may")
        if out.metadata_records > RECORDS_BEGUN:
            self.complain(f"{out.metadata_records} records about a store that is gone")
        expected = (self.rounds + TIMED_ROUNDS) * out.partitions
        if out.segments < expected:
            self.complain(f"{out.segments} segments wait, and {expected} were closed")

    def hang(self) -> None:
        """The store has begun to hang: whoever does not need it does not wait for it."""
        out = self.outcome
        out.hung_p99_ms, out.hung_tail_p99_ms = self.timed_rounds()
        for what, up_ms, hung_ms in (
            ("produce", out.up_p99_ms, out.hung_p99_ms),
            ("tail reads", out.up_tail_p99_ms, out.hung_tail_p99_ms),
        ):
            print(f"p99 of {what}: {up_ms:.1f} ms with the store up, {hung_ms:.1f} ms hanging")
            if hung_ms > max(P99_MOST * up_ms, up_ms + self.floor_ms):
                self.complain(f"p99 of {what}: {hung_ms:.1f} ms, and {up_ms:.1f} with the store up")

    def read_of_the_tier(self) -> None:
        """Ask for the first record of a partition: the answer is a retriable error, and comes soon.

        Of a store that hangs the first answer may be without records, and no other one (T59).
        """
        began = time.monotonic()
        row = self._fetch(0, 0)
        took_s = time.monotonic() - began
        out = self.outcome
        out.tier_answers += 1
        out.slowest_tier_answer_s = max(out.slowest_tier_answer_s, took_s)
        if took_s > TIER_ANSWER_S:
            self.complain(f"a reader of the tier waited for {took_s:.1f} s")
        if row.error_code == 0 and not row.records and self.may_be_empty:
            self.may_be_empty = False
            out.empty_answers += 1
        elif row.error_code != Code.KAFKA_STORAGE_ERROR:  # 1 would make consumers skip records
            self.complain(f"a reader of the tier was answered with {Code(row.error_code).name}")

    def metadata_records(self) -> int:
        """How many records the metadata topic has."""
        consumer = Consumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": "counts", **SILENT}
        )
        try:
            spots = [
                TopicPartition(REMOTE_LOG_METADATA_TOPIC, number)
                for number in range(METADATA_PARTITIONS)
            ]
            bounds = [offsets_of(consumer, spot) for spot in spots]
        finally:
            consumer.close()
        return sum(end for _, end in bounds)

    # ---- the end

    def check_all(self) -> None:
        """Each record is there once, in order; the store has the segments of the metadata, and no others."""
        found = read_all(self.broker.bootstrap, TOPIC, self.outcome.partitions)
        wrong = [
            p for p, rows in found.items() if [n for _, n in rows] != list(range(self.written))
        ]
        if wrong:
            self.complain(f"partitions {wrong[:5]} (of {len(wrong)}) have other records")
        eventually("the store has the segments of the metadata, and no others", self._is_whole)

    def _is_whole(self) -> bool:
        """Is it so? An idle topic closes a segment now and then, and copies it."""
        with Admin(self.broker.bootstrap, timeout_s=60) as admin:
            (status,) = admin.tier_status([TOPIC])
        known = sum(int(row["remote_segments"]) for row in status.partitions)
        logs = [key for key in s3.objects(self.server) if "/data/" in key and key.endswith(".log")]
        return len(logs) == known


def p99(values: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(values)[len(values) * 99 // 100] if values else 0.0


def run_outage(
    directory: Path, *, partitions: int, minutes: float, rounds: int, floor_ms: float = FLOOR_MS
) -> Outage:
    """Start everything, go through an outage, and return what it came to."""
    outcome = Outage(partitions, minutes)
    with s3.start(directory / "s3") as server, StoreProxy(server) as proxy:
        options = ["--tier", server.uri, *options_of(proxy.settings), "--log-level", "warning"]
        broker = Broker(directory / "data", options=options)
        broker.start()
        try:
            _Run(broker, proxy, server, outcome, rounds, floor_ms).run()
        except AssertionError as problem:
            outcome.violations.append(f"it did not come to its end: {str(problem)[:500]}")
        finally:
            broker.stop()
    return outcome


def main() -> int:
    """Run the command line; 1 if something was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.store_outage")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="segments of each partition")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="firnline-outage-") as directory:
        outcome = run_outage(
            Path(directory), partitions=given.partitions, minutes=given.minutes, rounds=given.rounds
        )
    row = {k: round(v, 2) if isinstance(v, float) else v for k, v in asdict(outcome).items()}
    append(LEDGER, {"commit": commit(), "form": FORM, **row})
    print(row)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
