"""What does the plan of a read cost where the tier is large and each request takes 20 ms?

Baseline: the catalogs read in series, one listing and all parts for each partition, which is what the planner
did before; its time is computed from its requests. Target: 5 s and 300 MB for a complete plan of 100,000
segments in one partition and of 10,000 partitions of 5 segments; 5 requests a partition for the last hour.

    make bench QUESTION=spark_plan      python -m bench.spark_plan --share 0.01 for a first look
"""

import argparse
import pickle
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import NamedTuple

from firnline.base.units import GIB, HOUR_MS, MIB
from firnline.spark.options.parse import Options
from firnline.spark.planning.filters import Filters
from firnline.spark.planning.plan import Task
from firnline.stores.memory import MemoryStore
from firnline.stores.port import PAGE_OBJECTS, ObjectInfo
from firnline.tiered.catalog.format import (
    SPLIT_BYTES,
    CatalogHead,
    CatalogSegment,
    PartRef,
    Split,
    encode_head,
    encode_part,
    reference,
)
from firnline.tiered.objects.catalog_changes import begin_catalog
from firnline.tiered.objects.catalog_reader import list_partitions, read_catalog
from firnline.tiered.objects.fingerprint import Fingerprint, ObjectSum
from firnline.tiered.objects.layout import (
    SUFFIXES,
    TXN_INDEX,
    HeadName,
    head_key,
    part_key,
    segment_stem,
)
from tests.spark.written_tier import plan_scan

REQUEST_S = 0.020
TOPIC_ID = bytes([1]) * 16
T0 = 1_700_000_000_000
OFFSETS_PER_SEGMENT = 10_000
SEGMENT_MS = HOUR_MS // 60
ROWS_PER_PART, REFS_PER_PART, TAIL = 1024, 32, 32
_SUFFIXES = tuple(suffix for suffix in SUFFIXES if suffix != TXN_INDEX)


class DistantStore(MemoryStore):
    """A store in memory whose requests take `wait_s`; counts them. A page of a listing is a request."""

    is_distant = True

    def __init__(self) -> None:
        super().__init__()
        self.wait_s = 0.0
        self.requests = 0

    def get(self, key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        self._pass()
        return super().get(key, position, size_bytes)

    def list_prefix(self, prefix: str) -> list[ObjectInfo]:
        found = super().list_prefix(prefix)
        for _ in range(max(1, -(-len(found) // PAGE_OBJECTS))):
            self._pass()
        return found

    def _pass(self) -> None:
        self.requests += 1
        if self.wait_s:
            time.sleep(self.wait_s)


def rows(partition: int, count: int, size_bytes: int) -> Iterator[CatalogSegment]:
    """Segments of a minute each, one after the other."""
    chunks = size_bytes // SPLIT_BYTES
    for number in range(count):
        base, at = number * OFFSETS_PER_SEGMENT, T0 + number * SEGMENT_MS
        segment_id = partition.to_bytes(8, "big") + number.to_bytes(8, "big")
        sums = tuple((suffix, ObjectSum(1000, number)) for suffix in _SUFFIXES)
        yield CatalogSegment(
            segment_id,
            base,
            base + OFFSETS_PER_SEGMENT - 1,
            size_bytes,
            at + SEGMENT_MS - 1,
            ((0, base),),  # of a segment: where its first epoch begins in it
            segment_stem(TOPIC_ID, partition, base_offset=base, segment_id=segment_id),
            _SUFFIXES,
            fingerprint=Fingerprint(False, number, number, sums),
            min_timestamp_ms=at,
            splits=tuple(
                Split(
                    base + k * OFFSETS_PER_SEGMENT // chunks,
                    k * SPLIT_BYTES + 100,
                    at + k * SEGMENT_MS // chunks,
                )
                for k in range(1, chunks)
            ),
        )


def write_partition(store: MemoryStore, partition: int, count: int, size_bytes: int) -> None:
    """Write the catalog of a partition: the newest rows in the head, the others in parts."""
    made = list(rows(partition, count, size_bytes))
    name, tail = HeadName(0, 1), made[-TAIL:]
    refs: list[PartRef] = []
    below: list[CatalogSegment] | list[PartRef] = made[: len(made) - len(tail)]
    for level, per in ((0, ROWS_PER_PART), (1, REFS_PER_PART)):
        refs = []
        for at in range(0, len(below), per):
            some = below[at : at + per]
            key = part_key(TOPIC_ID, partition, name, level * 500 + at // per)
            data = encode_part(TOPIC_ID, partition, some, level)
            store.put(key, (data,), size_bytes=len(data))
            refs.append(reference(key, level, some, data))
        below = refs
    head = CatalogHead(
        "t", TOPIC_ID, partition, 0, 1, 1, T0, 0, 0, 0, count * OFFSETS_PER_SEGMENT, ((0, 0),),
        tuple(refs), (), tuple(tail),
    )  # fmt: skip
    data = encode_head(head)
    store.put(head_key(TOPIC_ID, partition, name), (data,), size_bytes=len(data))


def tier(partitions: int, segments: int, size_bytes: int) -> DistantStore:
    """A topic of so many partitions, with so many segments each."""
    store = DistantStore()
    begin_catalog(store, topic="t", topic_id=TOPIC_ID, partition=0, now_ms=T0)
    for partition in range(partitions):
        write_partition(store, partition, segments, size_bytes)
    return store


class Figures(NamedTuple):
    """What one plan cost; `pickled_bytes` is of all its tasks."""

    seconds: float
    cpu_s: float
    requests: int
    peak_bytes: int
    tasks: int
    pickled_bytes: int


def measure(store: DistantStore, plan: Callable[[], list[Task]], wait_s: float) -> Figures:
    """Time the plan with slow requests, then measure its memory with fast ones."""
    store.requests, store.wait_s = 0, wait_s
    began, began_cpu = time.perf_counter(), time.process_time()
    tasks = plan()
    took, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    requests, store.wait_s = store.requests, 0.0
    count, pickled = len(tasks), sum(len(pickle.dumps(task)) for task in tasks)
    del tasks
    tracemalloc.start()
    kept = plan()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del kept
    return Figures(took, cpu_s, requests, peak, count, pickled)


def naive_requests(store: DistantStore) -> int:
    """Return the requests of reading every catalog as one, in series."""
    store.requests, store.wait_s = 0, 0.0
    for partition in list_partitions(store, TOPIC_ID):
        read_catalog(store, TOPIC_ID, partition)
    return store.requests


def _print(question: str, figures: Figures, naive: int) -> None:
    print(
        f"{question:50} {figures.seconds:6.2f} s ({figures.cpu_s:.2f} of CPU) {figures.requests:6} requests"
        f" {figures.peak_bytes / MIB:6.0f} MB {figures.tasks:6} tasks"
        f" {figures.pickled_bytes / MIB:5.1f} MB pickled   naive {naive} requests, {naive * REQUEST_S:.0f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the sizes of the target")
    share = parser.parse_args().share
    options = Options("", ("t",))
    long = max(int(100_000 * share), 100)
    store = tier(1, long, 64 * MIB)
    end, end_ms = long * OFFSETS_PER_SEGMENT, T0 + long * SEGMENT_MS
    last_hour = Filters().and_time(">=", [(end_ms - HOUR_MS) * 1000])
    naive = naive_requests(store)
    last_ten = options._replace(starting={"t": {0: end - 10}})
    _print(f"{long} segments", measure(store, lambda: plan_scan(store, options), REQUEST_S), naive)
    _print(
        "its last 10 offsets", measure(store, lambda: plan_scan(store, last_ten), REQUEST_S), naive
    )
    _print(
        "its last hour",
        measure(store, lambda: plan_scan(store, options, last_hour), REQUEST_S),
        naive,
    )
    wide = max(int(10_000 * share), 10)
    store = tier(wide, 5, 64 * MIB)
    _print(
        f"{wide} partitions of 5 segments",
        measure(store, lambda: plan_scan(store, options), REQUEST_S),
        naive_requests(store),
    )
    store = tier(1, 200, GIB)
    _print(
        "200 segments of 1 GiB",
        measure(store, lambda: plan_scan(store, options), REQUEST_S),
        naive_requests(store) + 200,
    )


if __name__ == "__main__":
    main()
