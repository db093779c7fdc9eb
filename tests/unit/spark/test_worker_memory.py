"""How much a worker grows while it reads a segment: the same, however large the segment is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from firnline.base.units import KIB, MIB
from firnline.records.build import NewRecord, build_batch
from firnline.stores.directory import DirectoryStore
from firnline.tiered.objects.layout import LOG
from tests.spark.written_tier import WrittenPartition

pytestmark = pytest.mark.slow
GROWTH_BYTES_MAX = 100 * MIB
SEGMENT_BYTES = 320 * MIB
_BATCH_RECORDS = 64

# Its first read loads what any read loads; then it reads what it is asked about.
_WORKER = """
import json, sys, psutil
from firnline.spark.options.parse import parse_options
from firnline.spark.planning.scan import plan_read
from firnline.spark.read import read_tasks
from firnline.spark.schema import COLUMNS, ReadSettings
from firnline.stores.directory import DirectoryStore
store = DirectoryStore(sys.argv[1], is_writer=False)
store.is_distant, store.calls_at_once = sys.argv[2] == "distant", 6
def read(topic):
    options = parse_options({"tier.uri": sys.argv[1], "subscribe": topic, "splitBytes": "4g"})
    most = rows = 0
    for batch in read_tasks(store, plan_read(store, options).tasks, ReadSettings(COLUMNS)):
        rows += batch.num_rows
        most = max(most, psutil.Process().memory_info().rss)
    return rows, most
read("small")
before = psutil.Process().memory_info().rss
rows, most = read("large")
print(json.dumps({"rows": rows, "growth": most - before}))
"""


def _write(store: DirectoryStore, topic: str, number: int, size_bytes: int) -> int:
    """Write a topic of one segment; return its number of records. The batches differ in offset alone."""
    rows = [NewRecord(b"key", b"v" * KIB, 10**12) for _ in range(_BATCH_RECORDS)]
    batch = bytes(build_batch(rows, base_offset=0, leader_epoch=0))
    count = size_bytes // len(batch)
    copies = [(at * _BATCH_RECORDS).to_bytes(8, "big") + batch[8:] for at in range(count)]
    written = WrittenPartition(store, topic, number=number)
    written.segment(copies, suffixes=(LOG,), is_old=True)
    written.publish()
    return count * _BATCH_RECORDS


@pytest.mark.parametrize("kind", ["near", "distant"])
def test_a_worker_grows_by_a_bounded_amount_at_any_segment_size(tmp_path: Path, kind: str) -> None:
    store = DirectoryStore(str(tmp_path))
    _write(store, "small", 1, MIB)
    records = _write(store, "large", 2, SEGMENT_BYTES)
    done = subprocess.run(
        [sys.executable, "-c", _WORKER, str(tmp_path), kind],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["rows"] == records
    assert found["growth"] < GROWTH_BYTES_MAX, f"{found['growth'] / MIB:.0f} MiB"
    print(f"{kind}: {found['growth'] / MIB:.0f} MiB")
