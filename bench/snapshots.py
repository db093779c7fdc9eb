"""What does a snapshot of the metadata cost, whom does it hold up, and what does it save?

emission   CPU seconds to write an image down, beside writing the same bytes with a CRC over each batch; the
           longest slice, which is how long a heartbeat waits for it at most; bytes written for each byte of
           the image's records, and bytes read back from the log (Q48, Q53). Meanwhile the state changes at
           1 MB of new records for every 100 MB of it and second of CPU, which is the case of KIP-630.
catching   what an empty observer has to fetch, and the CPU seconds it loads, after 1, 10 and 100 times as
  up       many changes of the same 2,000 partitions, with snapshots and without (Q54).

Loading a million records from a snapshot is in `bench/metadata.py`. `--partitions 1000000` for the full size.
"""

import argparse
import gc
import random
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from crc32c import crc32c

from bench.measure import report
from bench.metadata import LEVEL, content
from firnline.base.effects import Effects, Flush, SetTimer, Submit
from firnline.base.ids import OffsetAndEpoch
from firnline.base.log_lines.line import Log
from firnline.config.load import load
from firnline.metadata import records as r
from firnline.metadata.features import record_version
from firnline.metadata.image import ClusterImage
from firnline.metadata.loader import Loader, SnapshotLoader
from firnline.metadata.meta_log import MetaLog, open_meta_log
from firnline.metadata.snapshotter import SnapshotSettings, Snapshotter
from firnline.protocol.schema import Message
from firnline.raft.settings import QuorumSettings
from firnline.raft.snapshot_rules import next_start_offset
from firnline.records.batch import headers
from firnline.records.build import NewRecord, build_batch
from firnline.runtime.disk import RealFile, RealFs

NOW = 1_700_000_000_000
RECORDS_PER_BATCH = 100


class Pauses:
    """What the interpreter's collector takes, whenever it comes: not a slice's work, and told apart."""

    def __init__(self) -> None:
        self.total_s = self.longest_s = self._began = 0.0
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._began = now
        else:
            self.total_s += now - self._began
            self.longest_s = max(self.longest_s, now - self._began)


PAUSES = Pauses()


class CountingFile(RealFile):
    """Counts what is read from segments of the log."""

    __slots__ = ()
    read_bytes = 0

    def read(self, position: int, size: int) -> bytes:
        data = super().read(position, size)
        if self.path.endswith(".log"):
            CountingFile.read_bytes += len(data)
        return data


class CountingFs(RealFs):
    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        file.__class__ = CountingFile
        return file


class Node:
    """A metadata log, its image, and its snapshots: a controller without a network."""

    def __init__(self, directory: str, settings: SnapshotSettings) -> None:
        stated = {
            "process.roles": "controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": "C",
            "listeners": "C://localhost:9093",
            "log.dirs": directory,
            "metadata.log.segment.bytes": str(8 << 20),
        }
        self.log: MetaLog = open_meta_log(CountingFs(), load(stated), now_ms=NOW)
        self.snapshotter = Snapshotter(self.log, settings)
        self.loader = Loader()
        self.waiting: list[Any] = []
        self.slices: list[float] = []

    def write(self, values: list[bytes]) -> None:
        """Append one batch, call it committed, apply it, and let the snapshotter hear of it."""
        batch = build_batch([NewRecord(None, value, NOW) for value in values])
        self.log.append(batch, epoch=1, now_ms=NOW)
        self.log.advance_high_watermark(self.log.end_offset)
        self.loader.apply(bytes(batch))
        for delta in self.loader.take_deltas():
            self.waiting += self.snapshotter.on_applied(
                delta,
                bytes_applied=len(batch),
                last_timestamp_ms=NOW,
                is_batch_end=True,
                now_ms=NOW,
            )

    def turn(self) -> None:
        """One turn of the loop; what a slice costs is measured, what a thread syncs is not."""
        effect = self.waiting.pop(0)
        effects: Effects = []
        if isinstance(effect, SetTimer):
            paused, began = PAUSES.total_s, time.thread_time()
            effects = effect.then(NOW)
            took = time.thread_time() - began
            self.slices.append(took - (PAUSES.total_s - paused))
        elif not isinstance(effect, Log):
            assert isinstance(effect, Submit)
            effects = effect.then(effect.work(), NOW)
        self.waiting += effects

    def clean(self) -> None:
        limits = QuorumSettings(retention_max_bytes=0)
        while (start := next_start_offset(self.log, settings=limits, now_ms=NOW)) is not None:
            effects = self.log.retire_snapshots(start, now_ms=NOW)
            for flush in [each for each in effects if isinstance(each, Flush)]:
                for file in flush.files:
                    file.sync()
                effects = effects + flush.then(None, NOW)
            for timer in [each for each in effects if isinstance(each, SetTimer)]:
                for submit in timer.then(NOW):
                    assert isinstance(submit, Submit)
                    submit.work()


def encoded(message: Message) -> bytes:
    return r.encode(message, record_version(message, LEVEL))


def batches_of(messages: Iterator[Message]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    for message in messages:
        some.append(encoded(message))
        if len(some) == RECORDS_PER_BATCH:
            yield some
            some = []
    if some:
        yield some


def changes(image: ClusterImage, dice: random.Random) -> Iterator[Message]:
    """Partitions that get another leader, for ever."""
    topics = [image.topics_by_name[name] for name in sorted(image.topics_by_name)]
    while True:
        topic = dice.choice(topics)
        number = dice.randrange(len(topic.partitions))
        yield r.PartitionChangeRecord(
            partition_id=number, topic_id=topic.topic_id, leader=dice.randrange(10)
        )


def emission_row(directory: str, partitions: int) -> dict[str, Any]:
    node = Node(directory, SnapshotSettings(1 << 62, 0))
    for values in batches_of(content(partitions * 50 // 49)):
        node.write(values)
    image = node.loader.image()
    image_bytes = sum(len(encoded(message)) for message in content(partitions * 50 // 49))
    edits = batches_of(changes(image, random.Random(2)))
    rate = image_bytes / 100  # bytes of changes in a second
    node.snapshotter._settings = SnapshotSettings(1, 0)
    node.write(next(edits))
    gc.collect()
    PAUSES.longest_s = 0.0
    CountingFile.read_bytes, written, spent = 0, 0, 0.0
    while node.snapshotter.is_emitting:
        node.turn()
        spent = sum(node.slices)
        while written < rate * spent:
            values = next(edits)
            node.write(values)
            written += sum(map(len, values))
    ((snapshot_id, size_bytes, _),) = node.log.snapshot_sizes()
    slices = sorted(node.slices)
    bare = min(bare_s(node.log, snapshot_id, directory) for _ in range(5))
    return {
        "partitions": partitions,
        "MB": round(size_bytes / 1e6, 1),
        "s CPU": round(spent, 2),
        "us a record": round(spent / (partitions * 50 / 49) * 1e6, 2),
        "write + CRC s": round(bare, 3),
        "ratio": round(spent / bare, 1),
        "slices": len(slices),
        "p99 slice ms": round(slices[int(len(slices) * 0.99)] * 1e3, 2),
        "longest ms": round(slices[-1] * 1e3, 2),
        "longest collection ms": round(PAUSES.longest_s * 1e3, 1),
        "file / image": round(size_bytes / image_bytes, 3),
        "read of log": CountingFile.read_bytes,
        "changed meanwhile": written,
    }


def bare_s(log: MetaLog, snapshot_id: OffsetAndEpoch, directory: str) -> float:
    """CPU seconds to write the bytes of a snapshot, a CRC over each batch, into another file."""
    source = log.open_snapshot(snapshot_id)
    assert source is not None
    data = source.read(0, source.size_bytes)
    source.close()
    view = memoryview(data)
    parts = [view[h.position : h.position + h.size_bytes] for h in headers(data)]
    target = RealFs().open(f"{directory}/bare", create=True)
    target.truncate(0)
    began = time.thread_time()
    for part in parts:
        crc32c(part[21:])
        target.append(part)
    took = time.thread_time() - began
    target.close()
    return took


def catching_up_row(directory: str, edits: int, *, snapshots: bool) -> dict[str, Any]:
    node = Node(directory, SnapshotSettings(256 << 10 if snapshots else 1 << 62, 0))
    for values in batches_of(content(2041)):
        node.write(values)
    changed = batches_of(changes(node.loader.image(), random.Random(3)))
    for _ in range(edits // RECORDS_PER_BATCH):
        node.write(next(changed))
        while node.waiting:
            node.turn()
    node.clean()
    log, newest = node.log, node.log.newest_snapshot_id
    began, fetched, loader = time.thread_time(), 0, Loader()
    if newest is not None:
        file = log.open_snapshot(newest)
        assert file is not None
        fetched += file.size_bytes
        snapshot = SnapshotLoader(newest, file)
        for _ in snapshot.steps():
            pass
        loader = Loader(snapshot.image())
    while loader.next_offset < log.end_offset:
        data = log.read(loader.next_offset, max_bytes=256 * 1024)
        fetched += len(data)
        loader.apply(data)
        loader.take_deltas()
    took = time.thread_time() - began
    assert loader.image().topics_by_id == node.loader.image().topics_by_id
    return {
        "changes": edits,
        "snapshots": snapshots,
        "fetched KB": fetched // 1000,
        "s CPU": round(took, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--partitions", type=int, default=150_000)
    parser.add_argument("--changes", type=int, default=2_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        row = emission_row(directory, asked.partitions)
        report("What does a snapshot cost, and whom does it hold up?", [row])
    rows = []
    for factor in (1, 10, 100):
        for snapshots in (True, False):
            with tempfile.TemporaryDirectory() as directory:
                rows.append(catching_up_row(directory, asked.changes * factor, snapshots=snapshots))
    report("What does an empty observer need after a long history?", rows)


if __name__ == "__main__":
    main()
