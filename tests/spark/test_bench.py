"""The measurement of a scan runs, on a tier as the copier leaves it: no figure is a test's business."""

from pathlib import Path

import pytest

from bench import spark_scan
from firnline.base.units import KIB
from firnline.records.compression import NONE
from firnline.stores.directory import DirectoryStore
from firnline.tiered.objects.catalog_reader import list_topics, read_catalog

pytestmark = pytest.mark.spark


def test_a_scan_of_the_smallest_tier_is_measured(
    spark: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missed = spark_scan.compare(spark, tmp_path, NONE, 0.0, segment_bytes=32 * KIB, repeats=1)  # type: ignore[arg-type]
    assert not [name for name in missed if name.startswith("T4")]
    said = capsys.readouterr().out
    assert "T4 full scan" in said
    assert "T5 with headers" in said
    store = DirectoryStore(str(tmp_path / "tier"), is_writer=False)
    (topic,) = list_topics(store)
    catalog = read_catalog(store, topic.topic_id, 0)
    assert catalog is not None
    assert all(segment.fingerprint is not None for segment in catalog.segments)
