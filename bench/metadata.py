"""How long do a million metadata records take to load, and what does a partition weigh?

The baseline of loading is a program that reads the same file and checks the CRC of every batch; that of
memory a dict of tuples with the same fields. CPU seconds, the least of some rounds.
"""

import argparse
import os
import random
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator

from firnline.base.ids import OffsetAndEpoch
from firnline.metadata import records as r
from firnline.metadata.features import record_version
from firnline.metadata.loader import Loader, SnapshotLoader
from firnline.metadata.snapshot_file import snapshot_batches
from firnline.protocol.schema import Message
from firnline.records.batch import crc_is_right, headers
from firnline.records.build import NewRecord, build_batch

PARTITIONS_PER_TOPIC = 49
READ_BYTES = 256 * 1024
LEVEL = 30


class OnDisk:
    """A file as the loader of snapshots wants one."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb")  # noqa: SIM115 - closed by the loader
        self.size_bytes = os.path.getsize(path)

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, position)

    def close(self) -> None:
        self._file.close()


def content(count: int) -> Iterator[Message]:
    """Topics with three replicas a partition, as a cluster of ten brokers has them."""
    dice = random.Random(1)
    directories = [dice.randbytes(16) for _ in range(10)]
    yield r.FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)
    for number in range(count // (PARTITIONS_PER_TOPIC + 1)):
        topic_id = dice.randbytes(16)
        yield r.TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        for partition in range(PARTITIONS_PER_TOPIC):
            replicas = [(number + partition + n) % 10 for n in range(3)]
            yield r.PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=3,
                partition_epoch=7,
                directories=[directories[node_id] for node_id in replicas],
            )


def log_batches(count: int) -> Iterator[bytearray]:
    """The same records as controllers write them: a batch for each topic."""
    offset, rows = 0, list[NewRecord]()
    for message in content(count):
        if isinstance(message, r.TopicRecord) and rows:
            yield build_batch(rows, base_offset=offset, leader_epoch=1)
            offset, rows = offset + len(rows), []
        rows.append(NewRecord(None, r.encode(message, record_version(message, LEVEL)), 1))
    yield build_batch(rows, base_offset=offset, leader_epoch=1)


def pieces(path: str) -> Iterator[bytes]:
    """The file in reads of a size, each of whole batches; a batch that is larger is read whole."""
    with open(path, "rb") as file:
        position, size_bytes, read_bytes = 0, os.path.getsize(path), READ_BYTES
        while position < size_bytes:
            data = os.pread(file.fileno(), read_bytes, position)
            end = 0
            for header in headers(data):
                end = header.position + header.size_bytes
            if end == 0 and position + read_bytes >= size_bytes:
                raise ValueError(f"{path}: the batch at {position} is cut short")
            read_bytes = READ_BYTES if end else 2 * read_bytes
            if end:
                yield data[:end]
            position += end


def read_and_check(path: str) -> None:
    for data in pieces(path):
        for header in headers(data):
            assert crc_is_right(data, header)


def load_snapshot(path: str) -> None:
    loader = SnapshotLoader(OffsetAndEpoch(10**9, 1), OnDisk(path))
    for _ in loader.steps():
        pass
    assert loader.image().topics_by_id


def load_log(path: str) -> None:
    loader = Loader()
    for data in pieces(path):
        loader.apply(data)
        loader.take_deltas()
    assert loader.image().topics_by_id


def longest_step_ms(path: str) -> float:
    """What others wait for, at most, while a snapshot is loaded."""
    loader, longest = SnapshotLoader(OffsetAndEpoch(10**9, 1), OnDisk(path)), 0.0
    at = time.process_time()
    for _ in loader.steps():
        now = time.process_time()
        longest, at = max(longest, now - at), now
    return longest * 1000


def cpu_s(work: Callable[[], None], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def weighed(count: int) -> tuple[float, float]:
    """Bytes a partition takes in an image, and in a dict of tuples."""
    batches = [bytes(batch) for batch in log_batches(count)]
    partitions = count // (PARTITIONS_PER_TOPIC + 1) * PARTITIONS_PER_TOPIC
    tracemalloc.start()
    loader = Loader()
    for batch in batches:
        loader.apply(batch)
        loader.take_deltas()
    image = loader.image()
    ours = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert image.partition_count() == partitions
    tracemalloc.start()
    plain = dict[tuple[bytes, int], tuple[object, ...]]()
    for batch in batches:
        for record in rows_of(batch):
            plain[record.topic_id, record.partition_id] = (
                *(tuple(record.replicas), tuple(record.directories), tuple(record.isr)),
                *(record.leader, record.leader_epoch, record.partition_epoch),
                *(tuple(record.removing_replicas), tuple(record.adding_replicas)),
                *(record.leader_recovery_state, (), ()),
            )
    theirs = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return ours / partitions, theirs / partitions


def rows_of(batch: bytes) -> Iterator[r.PartitionRecord]:
    from firnline.records.record import records

    (header,) = headers(batch)
    for row in records(batch, header):
        record = r.decode(row.value or b"")
        if isinstance(record, r.PartitionRecord):
            yield record


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        snapshot, log = f"{directory}/snapshot", f"{directory}/log"
        made = snapshot_batches(
            content(asked.records), epoch=1, metadata_version=LEVEL, last_contained_ms=1, now_ms=1
        )
        for path, batches in ((snapshot, made), (log, log_batches(asked.records))):
            with open(path, "wb") as file:
                for batch in batches:
                    file.write(batch)
        for name, path, load in (("snapshot", snapshot, load_snapshot), ("log", log, load_log)):
            base = cpu_s(lambda path=path: read_and_check(path), max(3, asked.rounds))  # type: ignore[misc]
            took = cpu_s(lambda path=path, load=load: load(path), asked.rounds)  # type: ignore[misc]
            print(
                f"load {asked.records:,} records from a {name:8s} {took:7.2f} s CPU"
                f"  {took / asked.records * 1e6:6.2f} us a record"
                f"  read + CRC {base:6.3f} s  ratio {took / base:6.1f}"
            )
        print(f"longest step of a load {longest_step_ms(snapshot):6.1f} ms CPU")
    ours, plain = weighed(min(asked.records, 100_000))
    print(
        f"a partition weighs {ours:6.0f} bytes, in a dict of tuples {plain:6.0f}: {ours / plain:.2f}x"
    )


if __name__ == "__main__":
    main()
