"""The benchmark of reads runs, on a tier as the copier leaves it: no figure is a test's business."""

from pathlib import Path

import pytest

from bench import spark as bench
from firnline.records.compression import NAMES, ZSTD
from firnline.stores.directory import DirectoryStore
from firnline.tiered.objects.catalog_reader import list_topics, read_catalog

pytestmark = pytest.mark.spark


def test_the_smallest_topic_is_measured_without_the_connector(
    spark: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = bench.Shape(100, ZSTD)
    reads, rows = bench.prepare(spark, tmp_path, shape, records=200, bootstrap="")  # type: ignore[arg-type]
    assert rows >= 200
    table, missed = bench.compare(reads, shape, rows=rows, rounds=1)
    jobs = [line["job"] for line in table]
    assert jobs == ["all columns", "with headers", "two columns", "offset", "count"]
    assert all("connector" not in line for line in (*map(str, table), *missed))
    said = capsys.readouterr().out
    assert f"v100-{NAMES[ZSTD]}  all columns" in said
    store = DirectoryStore(str(tmp_path / f"tier-{shape.topic}"), is_writer=False)
    (topic,) = list_topics(store)
    catalog = read_catalog(store, topic.topic_id, 0)
    assert catalog is not None
    assert all(segment.fingerprint is not None for segment in catalog.segments)
