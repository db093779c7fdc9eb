"""What does the tier cost, and how fast is it? On a directory, and on an S3 server with 20 ms a request.

Rows, each beside a baseline of the same run:

copies    a backlog goes into the tier, beside `cp` and a sync of the same bytes (0.5x or more)
reads     a topic that only the tier has, from a directory beside Apache Kafka with its LocalTieredStorage
          (ahead), and from the S3 server, without and with latency, beside the directory (0.5x or more)
produce   p95 and p99 of a steady producer beside a writer whose topic is tiered, to one whose topic is not
          (1.2x; fails above 1.5x), and beside a reader of the tier, to none (1.3x); acks=1 and acks=all; and
          beside Kafka's own in the same two places (p99 below Kafka's, and below 5 ms beside the writer)
rebuild   a broker without its disk is in sync again, for 1x, 10x and 100x of history in the tier (flat)

    python -m bench.tier                 wants an idle machine, Java, and ten minutes
    python -m bench.tier --only copies,rebuild
    python -m bench.tier --only distant  the rows with an S3 server alone
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.kafka import PARTITIONS, SIZE_BYTES, Result, Side, compare
from bench.measure import broker, c_program, free_port, process, report, wait_for_port
from firnline.base.units import MIB
from firnline.broker.list_offsets import EARLIEST_LOCAL
from firnline.client.admin import Admin
from firnline.client.connection import Connection
from firnline.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.chaos.tiered_replicas import tiered_settings
from tests.peers import kafka, s3
from tests.peers.nodes import BROKER, CONTROLLER, FIRNLINE, Cluster, Node
from tests.peers.servers import options_of
from tests.peers.topics import await_partitions, is_complete

LATENCY_MS = 20
# Only topics that ask for it are tiered, and only their closed segments: not what `dev` does by itself.
QUICK = (
    "-X",
    "firnline.new.topics.remote.storage.enable=false",
    "-X",
    "firnline.remote.log.roll.idle.ms=0",
    "-X",
    "remote.log.manager.task.interval.ms=200",
    "-X",
    "log.retention.check.interval.ms=300",
)
SEGMENT_BYTES = 16 * MIB
TIERED = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES)}
ONLY_IN_TIER = {**TIERED, "local.retention.ms": "1000"}
PACE_PER_S, PACE_S = 500, 8
WRITER_PER_S = 20_000
HISTORY_MESSAGES = 20_000
COLD_MESSAGES = 400_000
_PATIENCE_S = 300.0
Row = dict[str, Any]


# ------------------------------------------------------------------------------------------- nodes


@contextmanager
def on_directory(*options: str) -> Iterator[Side]:
    """Run a node whose tier is a directory."""
    with (
        tempfile.TemporaryDirectory() as tier,
        broker("--tier", tier, *QUICK, *options) as (node, port),
    ):
        yield Side("directory", f"127.0.0.1:{port}", node.pid)


@contextmanager
def on_s3(*options: str, latency_ms: int = 0) -> Iterator[Side]:
    """Run a node whose tier is an S3 server, each of whose answers comes that much later.

    A store is on other machines. So this one keeps its objects in memory, and it and the network before it
    run only when nobody else wants the core.
    """
    with ExitStack() as stack:
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory)))
        server = stack.enter_context(s3.start(directory))
        give_way(server.processes[0].pid)
        settings = dict(server.settings)
        if latency_ms:
            port, (_, _, behind) = free_port(), settings["endpoint"].rpartition(":")
            command = [str(c_program("delay")), str(port), behind, str(latency_ms)]
            give_way(stack.enter_context(process(command)).pid)
            wait_for_port(port)
            settings["endpoint"] = f"http://127.0.0.1:{port}"
        node, port = stack.enter_context(
            broker("--tier", server.uri, *options_of(settings), *QUICK, *options)
        )
        yield Side(f"S3 +{latency_ms} ms" if latency_ms else "S3", f"127.0.0.1:{port}", node.pid)


def give_way(pid: int) -> None:
    """Let a process run only while a core is idle."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))


@contextmanager
def kafka_with_tier() -> Iterator[Side]:
    """Run Apache Kafka with its LocalTieredStorage."""
    settings = {"log.retention.check.interval.ms": 300}
    with (
        tempfile.TemporaryDirectory() as directory,
        kafka.start(
            directory, settings=settings, tiered=True, heap="1g", is_short=False
        ) as cluster,
    ):
        yield Side("kafka", cluster.bootstrap, cluster.pids[0])


def create(side: Side, topic: str, config: dict[str, str], partitions: int = PARTITIONS) -> None:
    """Create a topic with a configuration."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    new = NewTopic(topic, partitions, replication_factor=side.replicas, config=config)
    admin.create_topics([new])[topic].result(30)


def alter(side: Side, topic: str, key: str, value: str) -> None:
    """Set one configuration of a topic."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def await_copied(side: Side, topic: str) -> list[dict[str, Any]]:
    """Wait until no closed segment waits; return the rows of `firnline tier status`."""
    deadline = time.monotonic() + _PATIENCE_S
    with Admin(side.bootstrap) as admin:
        while True:
            rows = [row for broker in admin.tier_status([topic]) for row in broker.partitions]
            if rows and not any(row["waiting_bytes"] for row in rows):
                return rows
            if time.monotonic() > deadline:
                raise SystemExit(f"{topic} is not copied: {rows}")
            time.sleep(0.05)


def await_local_deletion(side: Side, topic: str, messages: int) -> None:
    """Wait until the local logs have no more than two segments each: the tier has the rest."""
    deadline = time.monotonic() + _PATIENCE_S
    kept = 2 * SEGMENT_BYTES // SIZE_BYTES
    host, port = side.bootstrap.split(",")[0].rsplit(":", 1)
    with Connection(host, int(port), timeout_s=30) as connection:
        while True:
            starts = [local_start(connection, topic, partition) for partition in range(PARTITIONS)]
            if messages - sum(starts) <= PARTITIONS * kept:
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"{topic} stays in local files: they begin at {starts}")
            time.sleep(0.1)


def local_start(connection: Connection, topic: str, partition: int) -> int:
    """Return the local log start offset of a partition, as ListOffsets reports it."""
    row = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST_LOCAL)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[row])]
    )
    [answer] = connection.ask(request, version=8).topics
    offset: int = answer.partitions[0].offset
    return offset


# ------------------------------------------------------------------------------------------ copies


def copies(rounds: int) -> list[Row]:
    """Copy a backlog into a directory, beside `cp` and a sync of the same bytes."""
    ours: list[float] = []
    theirs: list[float] = []
    messages = 400_000
    with tempfile.TemporaryDirectory() as base, on_directory("--dir", base) as side:
        for number in range(rounds):
            topic = f"copies-{number}"
            create(side, topic, {**TIERED, "remote.log.copy.disable": "true"})
            side.load("produce", topic, messages, SIZE_BYTES)
            closed = [
                log
                for folder in Path(base).glob(f"**/{topic}-*")
                for log in sorted(folder.glob("*.log"))[:-1]
            ]
            megabytes = sum(log.stat().st_size for log in closed) / 1e6
            # In turn, because many disks are slower after a burst of writes.
            for is_ours in (False, True) if number % 2 else (True, False):
                os.sync()
                if is_ours:
                    ours.append(megabytes / copy_to_tier(side, topic))
                else:
                    theirs.append(megabytes / copy_plainly(closed))
            side.delete(topic)
    fast, plain = statistics.median(ours), statistics.median(theirs)
    return [
        {
            "question": "copy a backlog into a directory",
            "MB/s": round(fast),
            "baseline": "cp + sync",
            "MB/s of it": round(plain),
            "ratio": round(fast / plain, 2),
            "bar": ">= 0.5",
        }
    ]


def copy_to_tier(side: Side, topic: str) -> float:
    """Return the seconds from the permission to copy the topic until the tier has its closed segments."""
    begun = time.monotonic()
    alter(side, topic, "remote.log.copy.disable", "false")
    await_copied(side, topic)
    return time.monotonic() - begun


def copy_plainly(files: Sequence[Path]) -> float:
    """Return the seconds that `cp` and a sync of the files take."""
    with tempfile.TemporaryDirectory() as target:
        begun = time.monotonic()
        for number, each in enumerate(files):
            subprocess.run(["cp", each, Path(target) / str(number)], check=True)
        os.sync()
        return time.monotonic() - begun


# ------------------------------------------------------------------------------------------- reads


def consume_cold(side: Side, number: int) -> Result:
    """Consume the topic `cold`; first make it, so that only the tier has it."""
    if number == 0:
        create(side, "cold", ONLY_IN_TIER)
        side.load("produce", "cold", COLD_MESSAGES, SIZE_BYTES)
        if side.name != "kafka":
            await_copied(side, "cold")
        await_local_deletion(side, "cold", COLD_MESSAGES)
    return side.load("consume", "cold", PARTITIONS, COLD_MESSAGES)


def reads(rounds: int) -> list[Row]:
    """Consume what only the tier has: a directory beside Kafka, the S3 server beside the directory."""
    rows: list[Row] = []
    with on_directory() as ours, kafka_with_tier() as theirs:
        found = compare(ours, theirs, rounds, consume_cold)
        rows.append(
            {"question": "consume the tier: directory beside Kafka's LocalTieredStorage", **found}
        )
    return rows + distant(rounds)


def distant(rounds: int) -> list[Row]:
    """Consume what only the tier has: the S3 server, without and with latency, beside the directory."""
    rows: list[Row] = []
    for latency_ms in (0, LATENCY_MS):
        with on_s3(latency_ms=latency_ms) as ours, on_directory() as theirs:
            found = compare(ours, theirs, rounds, consume_cold)
            found = {name.replace("Kafka", "directory"): value for name, value in found.items()}
            rows.append(
                {"question": f"consume the tier: {ours.name} beside the directory", **found}
            )
    return rows


# ----------------------------------------------------------------------------------------- produce


def pace(side: Side, topic: str, acks: str) -> Result:
    """Return the times to an acknowledgement of a steady producer."""
    return side.load("pace", topic, PACE_PER_S, PACE_S, SIZE_BYTES, f"acks={acks}")


@contextmanager
def writer(side: Side, topic: str) -> Iterator[None]:
    """Write to a topic at a steady rate meanwhile."""
    command = [
        c_program("load", "rdkafka"),
        "pace",
        side.bootstrap,
        topic,
        WRITER_PER_S,
        PACE_S + 4,
        SIZE_BYTES,
    ]
    with process([str(word) for word in command], stdout=subprocess.DEVNULL):
        time.sleep(1)
        yield


@contextmanager
def reader(side: Side, messages: int) -> Iterator[None]:
    """Read the topic `cold` from the tier meanwhile, again and again; nothing of it outlives the block.

    No shell repeats it: what a shell has started outlives it, and would read on beside the next measurement.
    """
    program = str(c_program("load", "rdkafka"))
    command = [program, "consume", side.bootstrap, "cold", str(PARTITIONS), str(messages)]
    lock, children, failures = threading.Lock(), list[subprocess.Popen[bytes]](), list[int]()
    is_over = False

    def again() -> None:
        while True:
            with lock:
                if is_over or failures:
                    return
                child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                children[:] = [child]
            code = child.wait()
            if code and not is_over:
                failures.append(code)

    thread = threading.Thread(target=again)
    thread.start()
    try:
        time.sleep(0.5)
        yield
    finally:
        with lock:
            is_over = True
            children[0].kill()
        thread.join()
    if failures:
        raise SystemExit(f"the reader of the tier failed with {failures[0]}: nothing was beside")


@contextmanager
def nothing(side: Side) -> Iterator[None]:
    """Leave the producer alone."""
    del side
    yield


def produce(rounds: int) -> list[Row]:
    """Time a steady producer beside what the tier does meanwhile."""
    rows: list[Row] = []
    messages = 200_000
    openers: list[Callable[[], Any]] = [
        on_directory,
        lambda: on_s3(latency_ms=LATENCY_MS),
        kafka_with_tier,
    ]
    for opener in openers:
        with opener() as side:
            create(side, "steady", {})
            create(side, "tiered", ONLY_IN_TIER)
            create(side, "plain", {"segment.bytes": TIERED["segment.bytes"]})
            create(side, "cold", ONLY_IN_TIER)
            side.load("produce", "cold", messages, SIZE_BYTES)
            await_local_deletion(side, "cold", messages)
            beside: dict[str, Callable[[], Any]] = {
                "nothing": lambda s=side: nothing(s),
                "an untiered writer": lambda s=side: writer(s, "plain"),
                "a tiered writer": lambda s=side: writer(s, "tiered"),
                "a reader of the tier": lambda s=side: reader(s, messages),
            }
            for acks in ("1", "all"):
                rows += paced_rows(side, acks, beside, rounds)
    return rows


def paced_rows(
    side: Side, acks: str, beside: Mapping[str, Callable[[], Any]], rounds: int
) -> list[Row]:
    """Alternate what is beside the producer; return medians, and ratios to what the issue compares with."""
    found: dict[str, list[Result]] = {name: [] for name in beside}
    for _ in range(rounds):
        for name, opener in beside.items():
            with opener():
                found[name].append(pace(side, "steady", acks))
            times = {key: round(found[name][-1][f"{key}_us"]) for key in ("p50", "p95", "p99")}
            print(f"{side.name}, acks={acks}, beside {name}: {times} us", flush=True)
    median = {
        name: {
            key: statistics.median(r[key] for r in results)
            for key in ("p50_us", "p95_us", "p99_us")
        }
        for name, results in found.items()
    }
    base_of = {"a tiered writer": "an untiered writer"} | dict.fromkeys(
        ("a reader of the tier", "a Spark job"), "nothing"
    )
    rows: list[Row] = []
    for name, figures in median.items():
        row: Row = {
            "node": side.name,
            "acks": acks,
            "beside": name,
            **{k: round(v) for k, v in figures.items()},
        }
        base = base_of.get(name)
        if base is not None:
            row["to"] = base
            row["p95 ratio"] = round(figures["p95_us"] / median[base]["p95_us"], 2)
            row["p99 ratio"] = round(figures["p99_us"] / median[base]["p99_us"], 2)
        rows.append(row)
    return rows


# ----------------------------------------------------------------------------------------- rebuild


def rebuild(rounds: int) -> list[Row]:
    """Take a broker's disk away; time until it is in every ISR again, for three lengths of history."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as base:
        tier = Path(base) / "tier"
        members = [(FIRNLINE, CONTROLLER), (FIRNLINE, BROKER), (FIRNLINE, BROKER)]
        settings = tiered_settings(tier, metadata_replicas=2)
        with Cluster(Path(base), members, settings) as cluster:
            side = Side("cluster", cluster.bootstrap, *(n.pid for n in cluster.brokers), replicas=2)
            create(side, "history", {**ONLY_IN_TIER, "segment.bytes": str(2 * MIB)}, partitions=2)
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            written = 0
            for times in (1, 10, 100):
                side.pids = tuple(node.pid for node in cluster.brokers)
                side.load("produce", "history", times * HISTORY_MESSAGES - written, SIZE_BYTES)
                written = times * HISTORY_MESSAGES
                await_copied(side, "history")
                time.sleep(5)
                seconds = [rebuild_once(cluster.brokers[1], admin) for _ in range(rounds)]
                rows.append({"history": f"{times}x", "MB": written * SIZE_BYTES // 10**6,
                             "seconds": round(statistics.median(seconds), 2)})  # fmt: skip
    for row in rows:
        row["ratio"] = round(row["seconds"] / rows[0]["seconds"], 2)
    return rows


def rebuild_once(node: Node, admin: AdminClient) -> float:
    """Return the seconds from the start of a broker with an empty disk until all its replicas are in sync."""
    node.kill()
    shutil.rmtree(node.data)
    await_partitions(admin, "history", 2, lambda each: len(each.isrs) == 1)
    begun = time.monotonic()
    node.start()
    await_partitions(admin, "history", 2, is_complete)
    return time.monotonic() - begun


PARTS: dict[str, tuple[str, Callable[[int], list[Row]]]] = {
    "copies": ("How fast is a backlog copied?", copies),
    "reads": ("How fast is the tier consumed?", reads),
    "distant": ("How fast is a store with latency consumed?", distant),
    "produce": ("Whom does the tier hold up?", produce),
    "rebuild": ("How long until a broker without its disk is in sync?", rebuild),
}


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="copies,reads,produce,rebuild")
    options = parser.parse_args()
    for name in options.only.split(","):
        question, run = PARTS[name]
        report(question, run(options.rounds))


if __name__ == "__main__":
    main()
