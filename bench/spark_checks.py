"""What does it cost a scan that batches are compared with their neighbours and with the catalog?

Baseline: the same scan in the same run with the comparison left out; CRCs are checked in both. CPU of one
core, rounds in turn, the median of their ratios. Target: at most 1.03 (decision 0023).

    PYTHONPATH=src python -m bench.spark_checks
"""

import gc
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from bench.spark_decode import Shape, segment
from firnline.base.units import KIB, MIB
from firnline.records.compression import LZ4, NONE, ZSTD
from firnline.records.walk import BatchWalk, Slot
from firnline.spark.integrity import Continuity
from firnline.spark.planning.plan import Piece, Task, segment_of
from firnline.spark.read import read_task
from firnline.spark.schema import COLUMNS, ReadSettings
from firnline.stores.memory import MemoryStore
from firnline.tiered.catalog.format import CatalogSegment
from firnline.tiered.objects.fingerprint import Fingerprint

ROUNDS, TARGET = 30, 1.03


def tier(shape: Shape) -> tuple[MemoryStore, Task]:
    """One segment of that shape, and the task that reads it."""
    data, records = segment(shape, total_bytes=32 * MIB)
    walk = BatchWalk(0, records - 1, ((-1, 0),))
    assert walk.feed(data) == len(data)
    known = Fingerprint(False, walk.state[Slot.FIRST_CRC], walk.state[Slot.HEADS_CRC], ())
    row = CatalogSegment(
        bytes(16), 0, records - 1, len(data), 0, ((-1, 0),), "s", (".log",), None, known
    )
    store = MemoryStore()
    store.put(row.key(), (data,), size_bytes=len(data))
    return store, Task("t", bytes(16), 0, (Piece(segment_of(row), 0, len(data), 0, records),))


@contextmanager
def unchecked() -> Iterator[None]:
    """Leave the comparison out."""
    with (
        patch.object(Continuity, "note", lambda _self, _frames: None),
        patch.object(Continuity, "finish", lambda _self: None),
    ):
        yield


def seconds(store: MemoryStore, task: Task) -> float:
    """Return the CPU time of one scan."""
    begun = time.process_time()
    for _ in read_task(store, task, ReadSettings(COLUMNS)):
        pass
    return time.process_time() - begun


def main() -> None:
    """Print one line per shape, and the targets that were missed."""
    missed = []
    for shape in (
        Shape(100, 16 * KIB, NONE), Shape(100, MIB, NONE), Shape(1024, 16 * KIB, NONE),
        Shape(100, 16 * KIB, LZ4), Shape(100, 16 * KIB, ZSTD), Shape(100, KIB, NONE),
    ):  # fmt: skip
        store, task = tier(shape)
        seconds(store, task)
        gc.disable()
        ratios, costs = [], []
        for number in range(ROUNDS):
            if number % 2:
                checked = seconds(store, task)
                with unchecked():
                    plain = seconds(store, task)
            else:
                with unchecked():
                    plain = seconds(store, task)
                checked = seconds(store, task)
            ratios.append(checked / plain)
            costs.append(checked)
        gc.enable()
        ratio = statistics.median(ratios)
        print(f"{shape!s:<24} {min(costs) * 1000:>7.1f} ms  {ratio:.3f}x  target {TARGET}x")
        if ratio > TARGET:
            missed.append(str(shape))
    print("missed: " + ", ".join(missed) if missed else "every target met")


if __name__ == "__main__":
    main()
