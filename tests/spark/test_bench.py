"""The benchmark of reads runs, on a tier as the copier leaves it: no figure is a test's business."""

from pathlib import Path

import pytest

from bench import spark as bench
from firnline.records.compression import NAMES, ZSTD
from firnline.stores.directory import DirectoryStore
from firnline.tiered.objects.catalog_reader import list_topics, read_catalog


def missed(ratios: dict[str, float], value_bytes: int = 100) -> list[bench.Missed]:
    """What the bench says where each baseline takes so many times what ours takes."""
    times = {f"all columns/{name}": ratio for name, ratio in ({"ours": 1.0} | ratios).items()}
    jobs = ("with headers", "two columns", "offset", "count")
    times |= {f"{job}/ours": 0.01 for job in jobs}
    _, found = bench.compared(times, bench.Shape(value_bytes, ZSTD), rows=1)
    return found


@pytest.mark.parametrize(("value_bytes", "floor"), [(100, 2.14), (1024, 1.59)])
def test_the_bench_fails_where_a_scan_is_slower_than_it_was_with_numpy_alone(
    value_bytes: int, floor: float
) -> None:
    """And only there: a bar that is not met is told."""
    (below,) = missed({"connector": floor - 0.01}, value_bytes)
    assert below.fails
    assert "slower than with numpy alone" in str(below)
    (above,) = missed({"connector": floor + 0.01}, value_bytes)
    assert not above.fails
    (parquet,) = missed({"connector": 9.0, "parquet": 0.1}, value_bytes)
    assert (parquet.baseline, parquet.fails) == ("parquet", False)
    assert missed({"connector": 3.0, "parquet": 0.9}, value_bytes) == []


@pytest.mark.spark
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
