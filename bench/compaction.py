"""What a round of compaction costs, and what a producer notices of it. WORLD.

    python -m bench.compaction [MIB]     1024 by default

The baseline is `raw`: reading the same segments, and writing and syncing as many bytes as are left of them,
in one process that is not niced. `round` is the production code over records of 1 KiB, not compressed, in
batches of 16, half of them with a later value: a process of its own, niced, from its start to its end. The
target is 0.3, on an idle machine: beside other work a niced process waits for it.

Then the latency of a producer with acks=all, one message at a time, to a broker that runs beside it: without
and with rounds in such a process, over and over. The target for p99 is 1.5 times.
"""

import os
import queue
import random
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

from confluent_kafka import Producer

from firnline.base.effects import Appended, Compact
from firnline.base.ids import TopicPartition
from firnline.config.topic import TopicConfig
from firnline.log.compaction.rounds import CompactionJob, RoundDone
from firnline.log.compaction.state import RoundRules
from firnline.log.log import Log
from firnline.log.recovery import open_log
from firnline.records.build import NewRecord, build_batch
from firnline.runtime.compactors import Compactors
from firnline.runtime.disk import RealFs
from firnline.testing.plugin import Broker

MIB = 1 << 20
NOW = 1_700_000_000_000
BATCH = 16
MESSAGES = 1500
RULES = RoundRules(map_bytes=128 * MIB, load_factor=0.9, bytes_per_second=1e300, secret=bytes(16))


def written(directory: Path, size_bytes: int) -> Log:
    """A log of so many bytes: every key twice, the values of no use to a compressor."""
    config = replace(
        TopicConfig(),
        cleanup_policy=("compact",),
        segment_bytes=64 * MIB,
        min_cleanable_dirty_ratio=0.0,
    )
    log = open_log(
        RealFs(),
        str(directory / "t-0"),
        TopicPartition("t", 0),
        topic_id=bytes(range(16)),
        config=config,
        now_ms=NOW,
        was_clean=True,
    )
    rng = random.Random(1)
    records = size_bytes // 1024
    keys = [number % (records // 2) for number in range(records)]
    rng.shuffle(keys)
    value = rng.randbytes(990)
    for start in range(0, records - BATCH, BATCH):
        rows = [NewRecord(b"key-%012d" % key, value, NOW) for key in keys[start : start + BATCH]]
        done = log.append_as_leader(build_batch(rows), leader_epoch=0, now_ms=NOW)
        assert isinstance(done, Appended)
    log.roll(NOW)
    for _ in range(2):
        end = log.log_end_offset
        for file in log.dirty_files():
            file.sync()
        log.flushed(end)
    log.advance_high_watermark(log.log_end_offset)
    return log


def raw_s(directory: Path, left_bytes: int) -> float:
    """Seconds to read the segments and to write and sync what is left of them."""
    began = time.monotonic()
    copy = directory / "copy"
    with copy.open("wb", buffering=0) as out:
        for path in sorted((directory / "t-0").glob("*.log")):
            with path.open("rb", buffering=0) as file:
                while data := file.read(MIB):
                    if left_bytes > 0:
                        out.write(data[:left_bytes])
                        left_bytes -= len(data)
        os.fdatasync(out.fileno())
    took = time.monotonic() - began
    copy.unlink()
    return took


def round_s(job: CompactionJob) -> tuple[float, RoundDone]:
    """Seconds of one round; its groups are not swapped in, so that it can be done again."""
    calls: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    found: list[Any] = []
    compactors = Compactors(lambda then, result: calls.put((then, result)))
    began = time.monotonic()
    compactors.add(
        Compact(
            job=job,
            on_group=lambda group, now_ms: [],
            then=lambda result, now_ms: found.append(result) or [],  # type: ignore[func-returns-value]
        )
    )
    while not found:
        then, result = calls.get()
        then(result, NOW)
    took = time.monotonic() - began
    for path in Path(job.path).glob("*.cleaned"):
        path.unlink()
    assert isinstance(found[0], RoundDone), found[0]
    return took, found[0]


def p99_ms(bootstrap: str) -> float:
    """The latency that one message in a hundred exceeds."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    took = []
    for number in range(MESSAGES):
        began = time.monotonic()
        producer.produce("p99", b"x" * 1024, b"%d" % number)
        assert producer.flush(30) == 0
        took.append((time.monotonic() - began) * 1000)
    return sorted(took[100:])[int(0.99 * (MESSAGES - 100))]


def main(size_bytes: int) -> None:
    directory = Path(tempfile.mkdtemp(prefix="firnline-bench-"))
    try:
        log = written(directory, size_bytes)
        job = log.compaction.job(log.compaction.log_to_clean(NOW), RULES, NOW)
        _, first = round_s(job)
        raw = min(raw_s(directory, first.bytes_written) for _ in range(3))
        took, done = min(round_s(job) for _ in range(3))
        print(f"log {log.size_bytes / MIB:.0f} MiB, left {done.bytes_written / MIB:.0f} MiB")
        print(f"raw   {raw:6.2f} s  {log.size_bytes / MIB / raw:6.0f} MiB/s")
        print(
            f"round {took:6.2f} s  {log.size_bytes / MIB / took:6.0f} MiB/s  {raw / took:.2f} of raw"
        )
        beside_a_producer(directory, job)
    finally:
        shutil.rmtree(directory)


def beside_a_producer(directory: Path, job: CompactionJob) -> None:
    broker = Broker(directory / "broker")
    broker.start()
    try:
        idle = min(p99_ms(broker.bootstrap) for _ in range(2))
        over = Event()

        def rounds() -> None:
            while not over.is_set():
                round_s(job)

        beside = Thread(target=rounds)
        beside.start()
        busy = min(p99_ms(broker.bootstrap) for _ in range(2))
        over.set()
        beside.join()
        print(
            f"produce p99: idle {idle:.2f} ms, beside rounds {busy:.2f} ms, {busy / idle:.2f} times"
        )
    finally:
        broker.stop()


if __name__ == "__main__":
    main(int(sys.argv[1] if len(sys.argv) > 1 else 1024) * MIB)
